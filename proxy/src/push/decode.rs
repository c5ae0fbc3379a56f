//! From frames to what the store is asked: every object is checked as an ordinary write is, and that it
//! is what the frame says it is.

use shardcache_storage::{Key, Op, PushedType, TypeName};

use super::PushConfig;
use super::client::{Delete, Hello, Upsert};
use crate::http::names;
use crate::http::path;
use crate::ingest::{self, Assigned, CLUSTER_ANNOTATION, Object, Original, SHARD_ANNOTATION};
use crate::status::ApiError;
use crate::types::{Types, pushed_type};

/// The cell of a stream, as its hello has settled it.
#[derive(Clone, Debug)]
pub(crate) struct CellType {
    /// Shard.
    pub(crate) shard: Box<str>,
    /// Type.
    pub(crate) name: TypeName,
    /// `apiVersion` of its objects.
    pub(crate) api_version: String,
    /// Version alone.
    pub(crate) version: String,
    /// Kind of its objects.
    pub(crate) kind: String,
    /// Whether they have namespaces.
    pub(crate) namespaced: bool,
}

impl CellType {
    /// What the stream's objects are: as the server serves the type already, or else as the pusher says.
    pub(crate) fn agreed(
        types: &Types,
        shard: &str,
        name: &TypeName,
        version: &str,
        hello: &Hello,
    ) -> Result<Self, ApiError> {
        let said = hello.kind.as_ref().zip(hello.namespaced);
        let (kind, namespaced) = match (said, types.known_in(shard, name)) {
            (None, None) => {
                return Err(ApiError::bad_request(format!(
                    "kind, scope: are required, because the type {} is unknown here",
                    name.qualified()
                )));
            }
            (Some((kind, namespaced)), Some((known, true)))
                if *kind != known.kind || namespaced != known.namespaced =>
            {
                return Err(ApiError::bad_request(format!(
                    "kind, scope: {} is a {} {} here",
                    name.qualified(),
                    if known.namespaced { "Namespaced" } else { "Cluster" },
                    known.kind
                )));
            }
            (Some((kind, namespaced)), _) => (kind.clone(), namespaced),
            (None, Some((known, _))) => (known.kind.clone(), known.namespaced),
        };
        let described = PushedType { version: version.into(), kind: kind.as_str().into(), namespaced };
        let info = pushed_type(name, &described);
        info.check().map_err(ApiError::bad_request)?;
        Ok(Self {
            shard: shard.into(),
            name: name.clone(),
            api_version: info.api_version(version),
            version: version.to_owned(),
            kind,
            namespaced,
        })
    }

    /// An `upsert`, checked and encoded.
    pub(crate) fn upsert(&self, frame: &Upsert<'_>) -> Result<Op, ApiError> {
        let object = ingest::read(frame.object.as_bytes())
            .map_err(|error| ApiError::bad_request(format!("object: {error}")))?;
        self.agrees("object.apiVersion", &object.api_version(), &self.api_version)?;
        self.agrees("object.kind", &object.kind(), &self.kind)?;
        let (name, namespace) = (object.name(), object.namespace());
        if let Some(said) = &frame.name {
            self.agrees("object.metadata.name", &name, said)?;
        }
        if let Some(said) = &frame.namespace {
            self.agrees("object.metadata.namespace", &namespace, said)?;
        }
        let version = frame.version.to_string();
        for (field, found, said) in [
            (SHARD_ANNOTATION, object.annotation(SHARD_ANNOTATION), &*self.shard),
            (CLUSTER_ANNOTATION, object.annotation(CLUSTER_ANNOTATION), &*frame.cluster),
        ] {
            if let Some(found) = found {
                self.agrees(&format!("object.metadata.annotations[{field}]"), &found, said)?;
            }
        }
        let own = object.resource_version();
        if !own.is_empty() {
            self.agrees("object.metadata.resourceVersion", &own, &version)?;
        }
        let key = self.key(&frame.cluster, &namespace, &name)?;
        let errors = names::validate(&object, &self.name, key.parts().namespace, &name);
        if !errors.is_empty() {
            return Err(ApiError::invalid(self.name.group(), &self.kind, &name, &errors));
        }
        let uid = object.uid();
        let original = Original { version: &version, uid: &uid };
        let draft =
            Object::encode(&object, &key, Assigned { original: Some(original), ..Assigned::default() })
                .map_err(|error| ApiError::request_entity_too_large(format!("object {name}: {error}")))?;
        Ok(Op::Upsert { key, version: frame.version, draft })
    }

    /// A `delete`, checked.
    pub(crate) fn delete(&self, frame: &Delete<'_>) -> Result<Op, ApiError> {
        let key = self.key(&frame.cluster, &frame.namespace, &frame.name)?;
        Ok(Op::Delete { key, version: frame.version, uid: (&*frame.uid).into() })
    }

    fn key(&self, cluster: &str, namespace: &str, name: &str) -> Result<Key, ApiError> {
        if !path::is_cluster(cluster) {
            return Err(ApiError::bad_request(format!("cluster: {cluster:?} is not a logical cluster name")));
        }
        if name.is_empty() {
            return Err(ApiError::bad_request("name: is required"));
        }
        if namespace.is_empty() == self.namespaced {
            let scope = if self.namespaced { "needs" } else { "must not have" };
            return Err(ApiError::bad_request(format!(
                "namespace: {} {scope} a namespace",
                self.name.qualified()
            )));
        }
        Key::new(&self.shard, cluster, namespace, name)
            .map_err(|error| ApiError::bad_request(format!("name: {error}")))
    }

    fn agrees(&self, field: &str, found: &str, said: &str) -> Result<(), ApiError> {
        if found == said {
            return Ok(());
        }
        let stream = format!("{} of shard {}", self.name.qualified(), self.shard);
        Err(ApiError::bad_request(format!("{field}: is {found:?}, but the stream of {stream} says {said:?}")))
    }
}

/// Whether so many bytes are a batch that should not wait for more.
pub(crate) fn is_full(ops: usize, bytes: usize, config: &PushConfig) -> bool {
    const OPS_MAX: usize = 1024;
    ops >= OPS_MAX || bytes >= (config.window_bytes / 4).min(2 << 20)
}
