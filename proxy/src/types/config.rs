//! Types named in the configuration file, for what neither the built-in table nor a CRD describes.
//!
//! ```yaml
//! types:
//! - group: example.io          # "" is the core group
//!   versions: [v1, v1beta1]    # the first one is what new objects are stored under
//!   resource: widgets
//!   kind: Widget
//!   singular: widget           # optional: the kind in lower case
//!   shortNames: [wd]           # optional
//!   categories: [all]          # optional
//!   namespaced: true           # optional: false
//! ```
//!
//! Unknown keys are errors, as is a type that is built in or named twice: it would never be used.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use shardcache_storage::TypeName;

use super::{TypeInfo, VersionInfo, builtin, version};

/// A type as written in the configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TypeConfig {
    /// API group; `""` is the core group.
    pub group: String,
    /// Served versions; the first one is the storage version.
    pub versions: Vec<String>,
    /// Plural resource name.
    pub resource: String,
    /// Kind.
    pub kind: String,
    /// Singular name; the kind in lower case if absent.
    pub singular: Option<String>,
    /// Short names.
    #[serde(default)]
    pub short_names: Vec<String>,
    /// Categories.
    #[serde(default)]
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    #[serde(default)]
    pub namespaced: bool,
}

/// Why the configured types cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TypeConfigError {
    /// The YAML has another shape; the text has line and column.
    #[error("{0}")]
    Yaml(String),
    /// Something in an entry is not legal.
    #[error("type {name}: {problem}")]
    Illegal {
        /// `resource.group` of the entry.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// The type is built in.
    #[error("type {0} is built in")]
    Builtin(String),
    /// The type is named twice.
    #[error("type {0} is named twice")]
    Twice(String),
}

/// Reads a YAML document whose only key is `types`, as in the module's example.
pub fn parse(yaml: &str) -> Result<Vec<TypeInfo>, TypeConfigError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Document {
        types: Vec<TypeConfig>,
    }
    let document: Document =
        serde_saphyr::from_str(yaml).map_err(|error| TypeConfigError::Yaml(error.to_string()))?;
    build(document.types)
}

/// Checks configured types and makes them servable (see [`super::Types::builtin`]).
pub fn build(types: Vec<TypeConfig>) -> Result<Vec<TypeInfo>, TypeConfigError> {
    let builtin: BTreeSet<TypeName> = builtin::table().map(|info| info.name.clone()).collect();
    let mut seen = BTreeSet::new();
    types
        .into_iter()
        .map(|entry| {
            let info = entry.info()?;
            if builtin.contains(&info.name) {
                return Err(TypeConfigError::Builtin(info.name.qualified()));
            }
            if !seen.insert(info.name.clone()) {
                return Err(TypeConfigError::Twice(info.name.qualified()));
            }
            Ok(info)
        })
        .collect()
}

impl TypeConfig {
    fn info(self) -> Result<TypeInfo, TypeConfigError> {
        let name = TypeName::new(&self.group, &self.resource);
        let illegal = |problem| TypeConfigError::Illegal { name: name.qualified(), problem };
        let storage_version =
            self.versions.first().cloned().ok_or_else(|| illegal("it has no version".to_owned()))?;
        let mut versions: Vec<VersionInfo> = self.versions.into_iter().map(VersionInfo::new).collect();
        versions.sort_by(|a, b| version::by_preference(&a.name, &b.name));
        let info = TypeInfo {
            name: name.clone(),
            list_kind: format!("{}List", self.kind),
            singular: self.singular.unwrap_or_else(|| self.kind.to_lowercase()),
            kind: self.kind,
            short_names: self.short_names,
            categories: self.categories,
            namespaced: self.namespaced,
            versions,
            storage_version,
        };
        info.check().map_err(illegal)?;
        if info.name.group().is_empty() && info.versions.iter().any(|version| version.name != "v1") {
            return Err(illegal("the core group has the version v1 only".to_owned()));
        }
        Ok(info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDGETS: &str = "types:\n- group: example.io\n  versions: [v1beta1, v1]\n  resource: widgets\n  kind: Widget\n  shortNames: [wd]\n  namespaced: true\n";

    #[test]
    fn a_configured_type_has_kubernetes_defaults() {
        let types = parse(WIDGETS).expect("legal");
        let [widgets] = types.as_slice() else { panic!("one type") };
        assert_eq!(widgets.name, TypeName::new("example.io", "widgets"));
        assert_eq!((widgets.singular.as_str(), widgets.list_kind.as_str()), ("widget", "WidgetList"));
        assert_eq!(widgets.storage_version, "v1beta1");
        let versions: Vec<_> = widgets.versions.iter().map(|version| version.name.as_str()).collect();
        assert_eq!(versions, ["v1", "v1beta1"]);
        assert!(widgets.namespaced);
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_it() {
        let yaml = WIDGETS.replace("shortNames", "shortnames");
        let error = parse(&yaml).expect_err("unknown key").to_string();
        assert!(error.contains("shortnames"), "{error}");
    }

    #[test]
    fn what_could_never_be_served_is_an_error() {
        let cases = [
            (WIDGETS.replace("widgets", "Wid/gets"), "type Wid/gets.example.io: "),
            (WIDGETS.replace("[v1beta1, v1]", "[]"), "type widgets.example.io: it has no version"),
            (
                WIDGETS.replace("[v1beta1, v1]", "[v1, v1]"),
                "type widgets.example.io: version v1 is there twice",
            ),
            (WIDGETS.replace("example.io", "''"), "type widgets: the core group has the version v1 only"),
            (
                format!("{WIDGETS}{}", WIDGETS.trim_start_matches("types:\n")),
                "type widgets.example.io is named twice",
            ),
            (
                WIDGETS.replace("example.io", "apis.kcp.io").replace("widgets", "apiexports"),
                "type apiexports.apis.kcp.io is built in",
            ),
        ];
        for (yaml, expected) in cases {
            let error = parse(&yaml).expect_err(&yaml).to_string();
            assert!(error.starts_with(expected), "{error}\n{yaml}");
        }
    }
}
