//! Informers on the cache, as a controller has them: kube-rs's watcher, and a record of all it said.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::view::{GROUP, Key, Kind, Object, View, place};
use crate::wire::Server;

/// Pause after an error; kube-rs would ask again at once.
const PAUSE: Duration = Duration::from_millis(200);

/// One informer.
pub(crate) struct Informer {
    pub(crate) name: String,
    pub(crate) kind: &'static Kind,
    /// `*` or the one it is of.
    pub(crate) shard: &'static str,
    seen: Arc<Mutex<Seen>>,
    _watch: AbortOnDropHandle<()>,
}

/// What an informer saw.
#[derive(Default)]
struct Seen {
    objects: View,
    /// A list that is not complete yet.
    listing: Option<View>,
    /// Uids of objects that were there and then were not.
    vanished: BTreeSet<String>,
    /// Events in their order: key, uid, and whether it is a deletion.
    events: Vec<(Key, String, bool)>,
    lists: usize,
    errors: usize,
    /// What must never happen.
    wrong: Vec<String>,
}

impl Informer {
    pub(crate) fn start(
        cache: &Server,
        kind: &'static Kind,
        shard: &'static str,
        config: watcher::Config,
    ) -> Self {
        let name = format!("{} of {shard} by {:?}", kind.plural, config.initial_list_strategy);
        let url = format!("{}{}", cache.base, place(shard)).parse().expect("an url");
        let client = Client::try_from(kube::Config::new(url)).expect("a client");
        let resource = ApiResource {
            group: GROUP.to_owned(),
            version: "v1".to_owned(),
            api_version: format!("{GROUP}/v1"),
            kind: kind.kind.to_owned(),
            plural: kind.plural.to_owned(),
        };
        let api = Api::<DynamicObject>::all_with(client, &resource);
        let seen = Arc::<Mutex<Seen>>::default();
        let into = Arc::clone(&seen);
        let watch = tokio::spawn(async move {
            let mut events = watcher::watcher(api, config).boxed();
            while let Some(event) = events.next().await {
                if let Ok(event) = event {
                    into.lock().take(event);
                } else {
                    into.lock().errors += 1;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        });
        Self { name, kind, shard, seen, _watch: AbortOnDropHandle::new(watch) }
    }

    /// How what it holds differs from what it should hold; `None` if it does not.
    pub(crate) fn difference(&self, truth: &View) -> Option<String> {
        let seen = self.seen.lock();
        let wanted = truth.iter().filter(|((shard, ..), _)| self.shard == "*" || self.shard == &**shard);
        let difference = crate::check::difference(wanted, &seen.objects);
        difference.map(|found| {
            format!("informer {}: {found} ({} lists, {} errors)", self.name, seen.lists, seen.errors)
        })
    }

    /// Objects that it lost although no source deleted them, and what else was wrong.
    pub(crate) fn wrongs(&self, deleted: &BTreeSet<String>) -> Vec<String> {
        let seen = self.seen.lock();
        let lost = seen.vanished.difference(deleted).map(|uid| format!("{uid} vanished and was not deleted"));
        lost.chain(seen.wrong.iter().cloned())
            .map(|wrong| format!("informer {}: {wrong}", self.name))
            .collect()
    }

    /// Objects that it lost although they exist.
    pub(crate) fn lost(&self, exists: &BTreeSet<&str>) -> Vec<String> {
        let seen = self.seen.lock();
        let lost = seen.vanished.iter().filter(|uid| exists.contains(&***uid));
        lost.map(|uid| format!("informer {}: {uid}", self.name)).collect()
    }

    /// Events so far.
    pub(crate) fn events(&self) -> usize {
        self.seen.lock().events.len()
    }

    /// Of a shard that was wiped: what must not be between the events after the first `from`. Nothing that
    /// the source had before goes before everything that it listed has come (D33).
    pub(crate) fn swept_early(
        &self,
        from: usize,
        before: &BTreeSet<String>,
        listed: &View,
    ) -> Option<String> {
        let seen = self.seen.lock();
        let events = &seen.events[from..];
        // A name that is used again is another object's at once.
        let swept = |(key, uid, deleted): &(Key, String, bool)| {
            *deleted && before.contains(uid) && !listed.contains_key(key)
        };
        let Some(first) = events.iter().position(swept) else {
            return Some(format!("{}: nothing was swept", self.name));
        };
        let came: BTreeSet<_> =
            events[..first].iter().filter(|event| !event.2).map(|event| &*event.1).collect();
        let late = listed.values().find(|object| !came.contains(&*object.uid));
        late.map(|object| format!("{}: {:?} went before {} came", self.name, events[first], object.uid))
    }

    /// Lists and errors so far.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let seen = self.seen.lock();
        (seen.lists, seen.errors)
    }
}

impl Seen {
    fn take(&mut self, event: Event<DynamicObject>) {
        match event {
            Event::Init => {
                self.lists += 1;
                self.listing = Some(View::new());
            }
            Event::InitApply(object) => {
                let (key, object) = read(object);
                self.check(&key, &object);
                self.listing.get_or_insert_default().insert(key, object);
            }
            Event::InitDone => {
                let listed = self.listing.take().unwrap_or_default();
                for (key, old) in std::mem::replace(&mut self.objects, listed) {
                    if self.objects.get(&key).is_none_or(|now| now.uid != old.uid) {
                        self.vanished.insert(old.uid);
                    }
                }
            }
            Event::Apply(object) => {
                let (key, object) = read(object);
                self.check(&key, &object);
                self.events.push((key.clone(), object.uid.clone(), false));
                if let Some(old) = self.objects.get(&key)
                    && old.uid != object.uid
                {
                    self.wrong.push(format!("{key:?} became another object without a DELETED"));
                }
                self.objects.insert(key, object);
            }
            Event::Delete(object) => {
                let (key, object) = read(object);
                self.events.push((key.clone(), object.uid.clone(), true));
                match self.objects.remove(&key) {
                    Some(old) => drop(self.vanished.insert(old.uid)),
                    None => self.wrong.push(format!("{key:?} ({}) was deleted twice", object.uid)),
                }
            }
        }
    }

    /// An object moves forward only, in the cache's versions and in the source's.
    fn check(&mut self, key: &Key, now: &Object) {
        let Some(old) = self.objects.get(key) else { return };
        let is_back =
            now.version < old.version || now.uid == old.uid && now.source_version < old.source_version;
        if is_back {
            self.wrong.push(format!(
                "{key:?} went back from {} ({}) to {} ({})",
                old.version, old.source_version, now.version, now.source_version
            ));
        }
    }
}

fn read(object: DynamicObject) -> (Key, Object) {
    Object::read(serde_json::to_value(object).expect("objects are JSON"), None)
}
