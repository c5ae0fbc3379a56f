//! A stock informer: a list, then events from its version on; another list if the server says so.

use std::collections::BTreeMap;

use shardcache::completeness::{ResourceVersion, ShardView, TypeName};
use shardcache_proxy::service::Api;
use shardcache_storage::{Object, Objects, ReadLimit, Standing};

/// What an informer has, and of which version.
pub(super) struct Informer {
    type_name: TypeName,
    /// Of its last list, event or bookmark; `None` before the first list.
    pub(super) version: Option<ResourceVersion>,
    /// By joined key.
    pub(super) objects: BTreeMap<String, Object>,
}

/// What reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// Nothing new, or the server does not answer now.
    Nothing,
    /// A list.
    List,
    /// Events, the last one at this version.
    Events(ResourceVersion),
}

impl Informer {
    pub(super) fn of(type_name: TypeName) -> Self {
        Self { type_name, version: None, objects: BTreeMap::new() }
    }

    /// Takes in at most so many events, or a list if there is no other way.
    pub(super) async fn read(&mut self, api: &Api, count: usize) -> Came {
        let snapshot = api.cache.snapshot();
        let head = snapshot.state.head();
        let after = self.version.map(|version| api.store.lineage().classify(version, head));
        let Some(Standing::Issued(after)) = after else {
            // D42's gate: a view that would lack shards is not shown.
            if snapshot.state.awaited(&self.type_name).next().is_some() && !is_views(&self.type_name) {
                return Came::Nothing;
            }
            let objects = snapshot.state.objects(&self.type_name).into_iter().flat_map(Objects::iter);
            self.objects = objects.map(|object| (object.key().to_owned(), object.clone())).collect();
            self.version = Some(snapshot.resource_version());
            return Came::List;
        };
        let limit = ReadLimit { events: count, bytes: usize::MAX };
        let page = api.store.events(&self.type_name, after, head, limit).await.expect("nothing is compacted");
        for event in page.events.iter().take(count) {
            let key = event.key().to_owned();
            let known = match &event.current {
                Some(object) => self.objects.insert(key, object.clone()),
                None => self.objects.remove(&key),
            };
            assert_eq!(
                known.is_some(),
                event.previous.is_some(),
                "{event:?} is no transition from what is known"
            );
            self.version = Some(event.resource_version);
        }
        page.events.first().and(self.version).map_or(Came::Nothing, Came::Events)
    }

    /// Hears how far it is, if it has every event.
    pub(super) async fn bookmark(&mut self, api: &Api) {
        let snapshot = api.cache.snapshot();
        let head = snapshot.state.head();
        let after = self.version.map(|version| api.store.lineage().classify(version, head));
        let Some(Standing::Issued(after)) = after else { return };
        let limit = ReadLimit { events: 1, bytes: usize::MAX };
        let page = api.store.events(&self.type_name, after, head, limit).await.expect("nothing is compacted");
        if page.events.is_empty() {
            let here = snapshot.state.objects(&self.type_name).into_iter().flat_map(Objects::iter);
            let here: Vec<_> = here.map(|object| (object.key(), object.resource_version())).collect();
            let known: Vec<_> =
                self.objects.iter().map(|(key, object)| (&**key, object.resource_version())).collect();
            assert_eq!(known, here, "the informer is the state");
            self.version = Some(snapshot.resource_version());
        }
    }

    /// The objects as shard views.
    pub(super) fn views(&self) -> Vec<ShardView> {
        let read = |object: &Object| serde_json::from_slice(object.body_bytes()).expect("a view");
        self.objects.values().map(read).collect()
    }

    /// Names of a shard's objects.
    pub(super) fn names<'a>(&'a self, shard: &'a str) -> impl Iterator<Item = &'a str> {
        self.objects
            .values()
            .map(Object::parts)
            .filter(move |parts| parts.shard == shard)
            .map(|parts| parts.name)
    }
}

fn is_views(type_name: &TypeName) -> bool {
    type_name.resource() == "shardviews"
}
