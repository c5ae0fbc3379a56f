//! Which types are pushed, and which of their objects.

use std::fmt;
use std::str::FromStr;

use shardcache_storage::TypeName;

/// A type to be pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group; `""` is the core group.
    pub group: String,
    /// Version in which the source is asked.
    pub version: String,
    /// Plural name.
    pub plural: String,
    /// Only objects that a label selector matches.
    pub label_selector: Option<String>,
    /// Only objects that a field selector matches.
    pub field_selector: Option<String>,
    /// Which objects of those.
    pub rule: Rule,
}

/// Which objects are pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// All of them.
    All,
    /// Those outside kcp's system clusters.
    Kcp {
        /// Only if the annotation `internal.kcp.io/replicate` asks for it.
        opt_in: bool,
    },
}

/// The text is not `GROUP/VERSION/PLURAL`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected GROUP/VERSION/PLURAL (core/v1/configmaps for the core group), with ?labels=SELECTOR&fields=SELECTOR after it if wanted"
)]
pub struct NotAResource;

impl Resource {
    /// Everything of a type.
    pub fn new(group: &str, version: &str, plural: &str) -> Self {
        Self {
            group: if group == "core" { String::new() } else { group.to_owned() },
            version: version.to_owned(),
            plural: plural.to_owned(),
            label_selector: None,
            field_selector: None,
            rule: Rule::All,
        }
    }

    /// The type, whatever its version.
    pub fn type_name(&self) -> TypeName {
        TypeName::new(&self.group, &self.plural)
    }

    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = if self.group.is_empty() { "core" } else { &self.group };
        write!(f, "{group}/{}/{}", self.version, self.plural)
    }
}

impl FromStr for Resource {
    type Err = NotAResource;

    fn from_str(text: &str) -> Result<Self, NotAResource> {
        let (name, query) = text.split_once('?').unwrap_or((text, ""));
        let mut parts = name.split('/');
        let (Some(group), Some(version), Some(plural), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotAResource);
        };
        if group.is_empty() || version.is_empty() || plural.is_empty() {
            return Err(NotAResource);
        }
        let mut resource = Self::new(group, version, plural);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("labels", selector)) => resource.label_selector = Some(selector.to_owned()),
                Some(("fields", selector)) => resource.field_selector = Some(selector.to_owned()),
                _ => return Err(NotAResource),
            }
        }
        Ok(resource)
    }
}

/// kcp's logical clusters of a shard, all of them.
pub const KCP_PREFIX: &str = "/clusters/*";

/// What kcp's shards replicate (kcp's `pkg/reconciler/cache/replication`): group, version, plural, and
/// whether objects ask for it. Types behind a feature gate of kcp are not among them.
const KCP: [(&str, &str, &str, bool); 16] = [
    ("apis.kcp.io", "v1alpha1", "apiresourceschemas", false),
    ("apis.kcp.io", "v1alpha1", "apiconversions", false),
    ("apis.kcp.io", "v1alpha2", "apiexports", false),
    ("apis.kcp.io", "v1alpha1", "apiexportendpointslices", false),
    ("core.kcp.io", "v1alpha1", "logicalclusters", true),
    ("core.kcp.io", "v1alpha1", "shards", false),
    ("migration.kcp.io", "v1alpha1", "logicalclustermigrations", false),
    ("cache.kcp.io", "v1alpha1", "clustercachedresources", false),
    ("cache.kcp.io", "v1alpha1", "clustercachedresourceendpointslices", false),
    ("tenancy.kcp.io", "v1alpha1", "workspacetypes", false),
    ("rbac.authorization.k8s.io", "v1", "clusterroles", true),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", true),
    ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", false),
    ("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", false),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", false),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", false),
];

/// A ready-made selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// What kcp's own replicator copies, over all logical clusters of a shard.
    Kcp,
}

impl Preset {
    /// The types.
    pub fn resources(self) -> Vec<Resource> {
        KCP.iter()
            .map(|(group, version, plural, opt_in)| Resource {
                rule: Rule::Kcp { opt_in: *opt_in },
                ..Resource::new(group, version, plural)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_written_as_they_are_read() {
        for text in ["core/v1/configmaps", "wildwest.dev/v1/cowboys"] {
            assert_eq!(text.parse::<Resource>().expect("legal").to_string(), text);
        }
        let selected: Resource =
            "a.io/v1/things?labels=tier in (x,y)&fields=metadata.name=z".parse().expect("legal");
        assert_eq!(selected.label_selector.as_deref(), Some("tier in (x,y)"));
        assert_eq!(selected.field_selector.as_deref(), Some("metadata.name=z"));
        for wrong in ["", "things", "v1/things", "a/b/c/d", "/v1/things", "a/v1/things?x=1"] {
            assert_eq!(wrong.parse::<Resource>(), Err(NotAResource), "{wrong}");
        }
    }
}
