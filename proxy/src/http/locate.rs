//! From a parsed path to a served type, a scope and the state at hand; and what a version that a client
//! sent means against that state.

use std::sync::Arc;

use shardcache_storage::{ResourceVersion, Revision, Standing, State, TypeName};

use crate::cache::Snapshot;
use crate::filter::Filter;
use crate::http::options::Freshness;
use crate::http::path::ResourcePath;
use crate::scope::{Part, Scope};
use crate::selector::{FieldSelector, LabelSelector, ShardSelector};
use crate::service::Api;
use crate::status::ApiError;
use crate::types::TypeInfo;

/// A request whose path names a served type.
pub(crate) struct Located {
    /// The newest published state when the request came.
    pub(crate) snapshot: Arc<Snapshot>,
    /// The type, as that state serves it.
    pub(crate) type_info: Arc<TypeInfo>,
    /// Where to look.
    pub(crate) scope: Scope,
    /// The rest of the path.
    pub(crate) path: ResourcePath,
}

/// The scope that a path names.
pub(crate) fn scope_of(shard: &Part, cluster: &Part, path: &ResourcePath) -> Scope {
    Scope {
        shard: shard.clone(),
        cluster: cluster.clone(),
        namespace: path.namespace.as_deref().map(Arc::from),
    }
}

impl Located {
    /// Resolves a path; 404 if its type is addressed with a namespace where it has none, or without where
    /// an object needs one, and what `unserved` says if its type is not served there.
    pub(crate) fn resolve(
        api: &Api,
        scope: Scope,
        path: ResourcePath,
        unserved: impl FnOnce(&Api, &State, &Scope, &TypeName) -> ApiError,
    ) -> Result<Self, ApiError> {
        let snapshot = api.cache.snapshot();
        let identity = path.identity.as_deref();
        let type_info = snapshot
            .types
            .resolve(&scope.shard, &scope.cluster, &path.group, &path.version, &path.resource, identity)
            .cloned();
        let type_info = type_info.ok_or_else(|| {
            let group = if &*path.group == "core" { "" } else { &*path.group };
            unserved(api, &snapshot.state, &scope, &TypeName::new(group, &path.resource))
        })?;
        let needless = scope.namespace.is_some() && !type_info.namespaced;
        let missing = scope.namespace.is_none() && type_info.namespaced && path.name.is_some();
        if needless || missing {
            return Err(ApiError::no_such_path());
        }
        Ok(Self { snapshot, type_info, scope, path })
    }

    /// Takes the newest published state, after something was waited for. The type stays as it was found: a
    /// type that is served no more has no objects either.
    pub(crate) fn renew(&mut self, api: &Api) {
        self.snapshot = api.cache.snapshot();
    }

    /// The filter of a list or watch; 400 if a field is not selectable in this version of the type.
    pub(crate) fn filter(
        &self,
        labels: LabelSelector,
        fields: FieldSelector,
        shards: Option<ShardSelector>,
    ) -> Result<Filter, ApiError> {
        let version = self.type_info.versions.iter().find(|version| version.name == self.path.version);
        let selectable = version.map_or(&[][..], |version| &version.selectable_fields);
        fields.check(self.type_info.namespaced, selectable).map_err(ApiError::bad_request)?;
        Ok(Filter { scope: self.scope.clone(), labels, fields, shards })
    }

    /// The revision of a version that lists and gets may be served at: 504 if it is still to come, 410
    /// if it is of another timeline.
    pub(crate) fn issued(&self, api: &Api, version: ResourceVersion) -> Result<Revision, ApiError> {
        match api.store.lineage().classify(version, self.snapshot.state.head()) {
            Standing::Issued(revision) => Ok(revision),
            Standing::Future => {
                Err(ApiError::too_large_resource_version(version, self.snapshot.resource_version()))
            }
            Standing::Foreign => Err(another_timeline()),
        }
    }

    /// Whether the state at hand satisfies a read; it is the newest, so only a version that is still to
    /// come, or of another timeline, cannot be satisfied.
    pub(crate) fn fresh_enough(&self, api: &Api, wanted: Freshness) -> Result<(), ApiError> {
        match wanted {
            Freshness::MostRecent | Freshness::Any => Ok(()),
            Freshness::NotOlderThan(version) => self.issued(api, version).map(drop),
        }
    }
}

/// 410 for a version that this store never issued, or issued so long ago that it cannot tell.
fn another_timeline() -> ApiError {
    ApiError::expired(
        "The resourceVersion is too old, or from another timeline of this store: list again without it.",
    )
}
