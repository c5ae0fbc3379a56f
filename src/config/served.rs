//! Types that the configuration file adds to the built-in ones (D45, last row).

use serde::{Deserialize, Serialize};
use shardcache_proxy::types::{TypeInfo, VersionInfo};
use shardcache_storage::TypeName;

use crate::failure::Failure;

/// One entry of `types` in the configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServedType {
    /// API group; `""` is the core group.
    pub group: String,
    /// Served versions, most preferred first.
    pub versions: Vec<String>,
    /// Plural name, as in paths.
    pub plural: String,
    /// Kind of one object.
    pub kind: String,
    /// Kind of a list; the kind with `List` behind it if not given.
    #[serde(default)]
    pub list_kind: Option<String>,
    /// Singular name; the kind in lower case if not given.
    #[serde(default)]
    pub singular: Option<String>,
    /// Short names.
    #[serde(default)]
    pub short_names: Vec<String>,
    /// Categories such as `all`.
    #[serde(default)]
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    #[serde(default)]
    pub namespaced: bool,
}

/// Checks the entries and turns them into what is served.
pub(super) fn types(entries: &[ServedType]) -> Result<Vec<TypeInfo>, Failure> {
    entries.iter().map(one).collect()
}

fn one(entry: &ServedType) -> Result<TypeInfo, Failure> {
    let wrong = |key: &str, value: &str| {
        let plural = &entry.plural;
        Failure::usage(format!("--config: types: {plural}: {key} {value:?} is not a legal name"))
    };
    if !is_dns_subdomain(&entry.plural) {
        return Err(wrong("plural", &entry.plural));
    }
    if !entry.group.is_empty() && !is_dns_subdomain(&entry.group) {
        return Err(wrong("group", &entry.group));
    }
    if !is_kind(&entry.kind) {
        return Err(wrong("kind", &entry.kind));
    }
    if let Some(version) = entry.versions.iter().find(|version| !is_dns_subdomain(version)) {
        return Err(wrong("version", version));
    }
    let Some(storage_version) = entry.versions.first().cloned() else {
        return Err(Failure::usage(format!("--config: types: {}: versions is empty", entry.plural)));
    };
    let versions = entry
        .versions
        .iter()
        .map(|name| VersionInfo { name: name.clone(), selectable_fields: vec![] })
        .collect();
    Ok(TypeInfo {
        name: TypeName::new(&entry.group, &entry.plural),
        kind: entry.kind.clone(),
        list_kind: entry.list_kind.clone().unwrap_or_else(|| format!("{}List", entry.kind)),
        singular: entry.singular.clone().unwrap_or_else(|| entry.kind.to_lowercase()),
        short_names: entry.short_names.clone(),
        categories: entry.categories.clone(),
        namespaced: entry.namespaced,
        versions,
        storage_version,
    })
}

fn is_dns_subdomain(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 253
        && text.split('.').all(|label| {
            label.starts_with(edge) && label.ends_with(edge) && label.chars().all(|c| edge(c) || c == '-')
        })
}

fn is_kind(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(|c| c.is_ascii_alphanumeric())
}
