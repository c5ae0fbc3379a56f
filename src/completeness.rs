//! Whether what an informer has is the whole: the rule of two informers (D43).
//!
//! A list of objects does not say whether shards are missing from it. The cache writes one [`ShardView`] for
//! each shard of its roster, among the data and in the same space of versions: which types of the shard were
//! synced, and from which version on they are there. So a controller runs two stock informers over all
//! shards, one of the data and one of the views, and asks [`complete`] before it acts on something that is
//! *not* there. `docs/shardviews.md` has the rule in words, for other languages.
//!
//! Pure, and about absence only: complete data may be old (`shardviews` say how a shard stands; headers and
//! bookmarks of the data say how old).
//!
//! ```
//! use shardcache::completeness::{Completeness, ResourceVersion, ShardView, TypeName, complete};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // As an informer of shardviews.cache.shardcache.dev has it:
//! let amber: ShardView = serde_json::from_str(r#"{
//!     "apiVersion": "cache.shardcache.dev/v1alpha1",
//!     "kind": "ShardView",
//!     "metadata": {"name": "amber"},
//!     "status": {
//!         "role": "Expected", "seeded": true, "catalogued": true, "state": "Disconnected",
//!         "types": [{
//!             "group": "apis.kcp.io", "resource": "apiexports", "state": "Disconnected",
//!             "generation": 1, "cut": true, "syncedGeneration": 1, "syncedAtRV": "3764330070125568017"
//!         }]
//!     }
//! }"#)?;
//! let exports = TypeName::new("apis.kcp.io", "apiexports");
//! let views_at = ResourceVersion::parse("3764330070125598737")?;
//!
//! // The data informer has come past the sync: nothing is missing, though the shard is out of reach by now.
//! let data_at = ResourceVersion::parse("3764330070125577233")?;
//! assert_eq!(complete(&exports, data_at, views_at, [&amber]), Completeness::Complete);
//!
//! // It has not: an export that it lacks may exist.
//! let data_at = ResourceVersion::parse("3764330070125564945")?;
//! let early = complete(&exports, data_at, views_at, [&amber]);
//! assert_eq!(early.to_string(), "incomplete: amber was synced at 3764330070125568017");
//! # Ok(()) }
//! ```

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::ClusterResourceScope;
use serde::{Deserialize, Serialize};
pub use shardcache_storage::{ResourceVersion, TypeName};

/// An object of `shardviews.cache.shardcache.dev/v1alpha1`: what the cache knows of a shard. Only the cache
/// writes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardView {
    /// The name is the shard's.
    pub metadata: ObjectMeta,
    /// What is known.
    pub status: Status,
}

/// What the cache knows of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Its role in the roster.
    pub role: Role,
    /// Whether somebody has told this store which shards there ought to be. If not, shards may be missing of
    /// which it has never heard.
    pub seeded: bool,
    /// Whether the shard has said which types it pushes. If not, any may be missing from `types`.
    pub catalogued: bool,
    /// The gravest state of its types; none if it has no types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The types that it pushes, in name order.
    pub types: Vec<TypeStatus>,
}

/// What the cache knows of one type of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TypeStatus {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name.
    pub resource: String,
    /// API identity; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub identity: String,
    /// `NeverSynced`, `Syncing`, `Live`, `Lagging`, `Disconnected` or `Restored`.
    pub state: String,
    /// Counts lineages of the source, from 1; a new one begins where the source was replaced or restored.
    pub generation: u64,
    /// Whether the copy is one state of the source, not something between two.
    pub cut: bool,
    /// The lineage that was synced last; 0 if none was.
    #[serde(default)]
    pub synced_generation: u64,
    /// A version of the cache at and after which everything of that sync is there.
    #[serde(default, rename = "syncedAtRV", skip_serializing_if = "Option::is_none")]
    pub synced_at_rv: Option<String>,
}

/// A shard's role in the roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Cow<'_, str>")]
pub enum Role {
    /// It ought to be there. Also what a role stands for that this version does not know.
    Expected,
    /// It came after the others and has not been synced: no view has contained it yet, so none misses it.
    Joining,
    /// An operator lets views be shown without it. They are not the whole for that.
    Excused,
}

/// What can be said of a view over all shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// Nothing is missing that the cache was ever synced with. What is not there does not exist, or is newer
    /// than the view.
    Complete,
    /// Objects of these shards may be missing.
    Incomplete(Vec<Missing>),
    /// Nobody can say.
    Unknown(Doubt),
}

/// A shard of which objects may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its name.
    pub shard: String,
    /// Why.
    pub why: Why,
}

/// Why objects of a shard may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It has not said which types it has.
    NotCatalogued,
    /// It has the type, and it was never synced in this store.
    NeverSynced,
    /// The data are of an earlier version than the sync.
    SyncedAt(ResourceVersion),
}

/// Why nobody can say whether a view is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The two informers have not both heard from the same run of the server. Both get bookmarks, so this is
    /// over within a minute of a restart.
    OtherRun,
    /// There is no shard that ought to be there, or it is not known yet.
    NobodyExpected,
    /// Nobody has said which shards ought to be there.
    NotSeeded,
}

/// Whether an informer of a type over all shards has everything, that has come to version `data`, judged by
/// what an informer of shard views over all shards has, that has come to version `views`.
///
/// Versions are those of the last list, event or bookmark that an informer has taken in. An earlier one is
/// safe, and says `Complete` later.
///
/// Shards without a view write by ordinary requests: nobody can say whether their objects are all there.
pub fn complete<'a>(
    type_name: &TypeName,
    data: ResourceVersion,
    views: ResourceVersion,
    shards: impl IntoIterator<Item = &'a ShardView>,
) -> Completeness {
    let (mut missing, mut expected, mut seeded) = (Vec::new(), false, true);
    for view in shards {
        expected |= view.status.role == Role::Expected;
        seeded &= view.status.seeded;
        if view.status.role == Role::Joining {
            continue;
        }
        if let Some(why) = view.status.lacks(type_name, data) {
            missing.push(Missing { shard: view.metadata.name.clone().unwrap_or_default(), why });
        }
    }
    if !missing.is_empty() {
        Completeness::Incomplete(missing)
    } else if data.tag().is_none() || data.tag() != views.tag() {
        // After a store was lost or restored, the one informer may know the old one still and the other the
        // new one; then their versions do not compare. The tag is of the run that issued the version.
        Completeness::Unknown(Doubt::OtherRun)
    } else if !expected {
        Completeness::Unknown(Doubt::NobodyExpected)
    } else if !seeded {
        Completeness::Unknown(Doubt::NotSeeded)
    } else {
        Completeness::Complete
    }
}

impl Status {
    /// Why data at a version may lack objects of the shard.
    fn lacks(&self, type_name: &TypeName, data: ResourceVersion) -> Option<Why> {
        let Some(of_type) = self.types.iter().find(|of_type| of_type.is_of(type_name)) else {
            return (!self.catalogued).then_some(Why::NotCatalogued);
        };
        let synced_at = of_type.synced_at_rv.as_deref().and_then(|text| ResourceVersion::parse(text).ok());
        match synced_at {
            None => Some(Why::NeverSynced),
            Some(synced_at) => (data < synced_at).then_some(Why::SyncedAt(synced_at)),
        }
    }
}

impl TypeStatus {
    fn is_of(&self, name: &TypeName) -> bool {
        (&*self.group, &*self.resource, &*self.identity) == (name.group(), name.resource(), name.identity())
    }
}

impl From<Cow<'_, str>> for Role {
    fn from(text: Cow<'_, str>) -> Self {
        match &*text {
            "Joining" => Self::Joining,
            "Excused" => Self::Excused,
            _ => Self::Expected,
        }
    }
}

impl fmt::Display for Completeness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("complete"),
            Self::Unknown(doubt) => write!(f, "unknown: {doubt}"),
            Self::Incomplete(missing) => {
                let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
                write!(f, "incomplete: {}", missing.join(", "))
            }
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shard = &self.shard;
        match self.why {
            Why::NotCatalogued => write!(f, "{shard} has not said which types it has"),
            Why::NeverSynced => write!(f, "{shard} has not been synced"),
            Why::SyncedAt(version) => write!(f, "{shard} was synced at {version}"),
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherRun => "data and views are of different runs of the cache",
            Self::NobodyExpected => "no shard is expected",
            Self::NotSeeded => "nobody has said which shards there ought to be",
        })
    }
}

impl Resource for ShardView {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "ShardView".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "cache.shardcache.dev".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1alpha1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "shardviews".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests;
