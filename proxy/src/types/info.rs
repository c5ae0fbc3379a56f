//! What is known of one served type.

use shardcache_storage::TypeName;

use super::columns::Column;
use super::schema::Schema;

/// One served type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeInfo {
    /// Group, resource, identity.
    pub name: TypeName,
    /// Kind of one object.
    pub kind: String,
    /// Kind of a list.
    pub list_kind: String,
    /// Singular name.
    pub singular: String,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories such as `all`.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Served versions, most preferred first.
    pub versions: Vec<VersionInfo>,
    /// Version whose `apiVersion` stored objects carry by default.
    pub storage_version: String,
}

/// One served version of a type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionInfo {
    /// Such as `v1alpha1`.
    pub name: String,
    /// Selectable fields of a CRD, as dotted paths without the leading dot (`spec.color`).
    pub selectable_fields: Vec<String>,
    /// What a `Table` shows beside the name; none means the age.
    pub columns: Vec<Column>,
    /// What OpenAPI documents say of the type, where a CRD says it.
    pub schema: Option<Schema>,
}

impl TypeInfo {
    /// A served version by name.
    pub fn version(&self, name: &str) -> Option<&VersionInfo> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// Whether the server itself writes the objects, and nobody else may.
    pub(crate) fn is_own(&self) -> bool {
        super::is_shardviews(&self.name)
    }

    /// `apiVersion` of the type under a version: `group/version`, or the version in the core group.
    pub fn api_version(&self, version: &str) -> String {
        match self.name.group() {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        }
    }

    /// This built-in type as a CRD explains it: the same names, scope and versions, and of each version the
    /// CRD's schema, its columns if it has any, and its selectable fields besides the table's. `None` if the
    /// CRD is of something else under the same name.
    pub(super) fn explained_by(&self, crd: &Self) -> Option<Self> {
        if (&self.kind, self.namespaced) != (&crd.kind, crd.namespaced) {
            return None;
        }
        let mut explained = self.clone();
        for version in &mut explained.versions {
            let Some(said) = crd.version(&version.name) else { continue };
            version.schema.clone_from(&said.schema);
            if !said.columns.is_empty() {
                version.columns.clone_from(&said.columns);
            }
            version.selectable_fields.extend_from_slice(&said.selectable_fields);
            version.selectable_fields.sort();
            version.selectable_fields.dedup();
        }
        Some(explained)
    }

    /// Whether kube-apiserver would accept the names and versions; the error says what is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        let group = self.name.group();
        if !group.is_empty() && !group.split('.').all(is_label) {
            return Err(format!("group {group:?} is not a DNS subdomain"));
        }
        for (what, name) in [("plural", self.name.resource()), ("singular", &self.singular)] {
            if !is_label(name) {
                return Err(format!("{what} name {name:?} is not a DNS label"));
            }
        }
        for kind in [&self.kind, &self.list_kind] {
            if !is_label(&kind.to_ascii_lowercase()) {
                return Err(format!("kind {kind:?} is not a DNS label"));
            }
        }
        if let Some(name) = self.short_names.iter().chain(&self.categories).find(|name| !is_label(name)) {
            return Err(format!("short name or category {name:?} is not a DNS label"));
        }
        if self.versions.is_empty() {
            return Err("it serves no version".to_owned());
        }
        for (at, version) in self.versions.iter().enumerate() {
            if !is_label(&version.name) {
                return Err(format!("version {:?} is not a DNS label", version.name));
            }
            if self.versions[..at].iter().any(|other| other.name == version.name) {
                return Err(format!("version {} is there twice", version.name));
            }
        }
        Ok(())
    }
}

impl VersionInfo {
    /// A version without selectable fields, columns and schema.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), selectable_fields: Vec::new(), columns: Vec::new(), schema: None }
    }
}

/// RFC 1035 as Kubernetes checks it for resource names, but a leading digit is allowed as in groups.
fn is_label(text: &str) -> bool {
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| inner(&b))
        && !text.starts_with('-')
        && !text.ends_with('-')
}
