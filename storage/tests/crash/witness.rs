//! A witness of everything a store said, to be held against what a later opening finds.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;
use shardcache_storage::{
    Applied, Change, Objects, Refusal, ResourceVersion, Revision, Standing, State, StorageError, Store,
    TypeName,
};

use crate::objects::{cowboys, delete, key, put, put_of, read_retained, sheriffs};

/// Objects of both types by type and key, as bodies without versions: what clients care about.
type Contents = BTreeMap<(String, String), String>;

/// What was promised so far.
#[derive(Default)]
pub(crate) struct Witness {
    /// The contents at each commit boundary that may be the recovered one, oldest first.
    boundaries: Vec<(Revision, Contents)>,
    /// Everything at or below this was acknowledged or shown.
    promised: Revision,
    /// Versions that somebody saw.
    seen: Vec<ResourceVersion>,
}

impl Witness {
    /// A witness of a store that was just opened.
    pub(crate) fn of(store: &dyn Store) -> Self {
        let mut witness = Self::default();
        witness.saw(&store.subscribe().state);
        witness
    }

    /// Somebody saw this state.
    pub(crate) fn saw(&mut self, state: &State) {
        self.promised = self.promised.max(state.head());
        self.seen.push(state.resource_version());
        self.boundaries.push((state.head(), contents(state)));
    }

    /// Commits a batch alone and notes what comes back. `Err` if the store could not write.
    pub(crate) async fn commit(&mut self, store: &dyn Store, batch: Vec<Change>) -> Result<(), StorageError> {
        let before = store.subscribe().state;
        let receipt: Vec<Result<Applied, Refusal>> = match store.commit(batch.clone()).await {
            Ok(receipt) => receipt,
            Err(error) => {
                assert_eq!(store.subscribe().state.head(), before.head(), "a failed batch is not shown");
                // It may come back after a crash, whole.
                self.boundaries.push((Revision::ZERO, predicted(&before, batch)));
                return Err(error);
            }
        };
        for applied in receipt.into_iter().flatten() {
            self.promised = self.promised.max(applied.head);
            self.seen.push(applied.event.resource_version);
        }
        self.saw(&store.subscribe().state);
        Ok(())
    }

    /// Holds a reopened store against everything that was promised.
    pub(crate) async fn check(&self, store: &dyn Store, context: &str) {
        let state = store.subscribe().state;
        let lineage = store.lineage();
        // Not the head of this opening: the last durable revision of the one before.
        let earlier = lineage.incarnations.len().checked_sub(2).map(|index| &lineage.incarnations[index]);
        if let Some(earlier) = earlier {
            let end = earlier.end.expect("it was closed by this opening");
            assert!(end >= self.promised, "I1: {context}: durable {end}, promised {}", self.promised);
        }
        let found = contents(&state);
        let after_the_promise = self.boundaries.iter().position(|(head, _)| *head >= self.promised);
        let legal = &self.boundaries[after_the_promise.unwrap_or_default()..];
        assert!(
            legal.iter().any(|(_, contents)| *contents == found),
            "I3: {context}: {found:?} is no commit boundary at or after {}: {legal:?}",
            self.promised,
        );
        for version in &self.seen {
            let standing = lineage.classify(*version, state.head());
            assert_eq!(standing, Standing::Issued(version.revision()), "I2: {context}: {version}");
        }
        self.check_log(store, context).await;
    }

    /// Holds the log against the state.
    pub(crate) async fn check_log(&self, store: &dyn Store, context: &str) {
        for type_name in [cowboys(), sheriffs()] {
            log_equals_state(store, &type_name, context).await;
        }
    }
}

/// I5: the retained log, undone from the state, leaves no object that the log contradicts, and replayed
/// again gives the state back.
async fn log_equals_state(store: &dyn Store, type_name: &TypeName, context: &str) {
    let (floor, events, state) = read_retained(store, type_name).await;
    let Some(now) = state.objects(type_name) else { return };
    let mut at: Objects = now.clone();
    for event in events.iter().rev() {
        let current = at.get(event.key()).map(shardcache_storage::Object::revision);
        let expected = event.current.as_ref().map(shardcache_storage::Object::revision);
        assert_eq!(current, expected, "I5: {context}: {event:?} is not what the state descends from");
        match &event.previous {
            Some(object) => drop(at.insert(object.clone())),
            None => drop(at.remove(event.key())),
        }
    }
    for object in at.iter() {
        assert!(object.revision() <= floor, "I5: {context}: {object:?} has no event");
    }
}

fn contents(state: &State) -> Contents {
    let mut all = Contents::new();
    for (name, objects) in state.types() {
        for object in objects.iter() {
            all.insert((format!("{name:?}"), object.key().to_owned()), payload(object.body_bytes()));
        }
    }
    all
}

fn payload(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.split(r#""spec":""#).nth(1).expect("it has a payload").trim_end_matches("\"}").to_owned()
}

/// The contents after a batch without guards.
fn predicted(before: &State, batch: Vec<Change>) -> Contents {
    let mut after = contents(before);
    for change in batch {
        let at = (format!("{:?}", change.type_name), change.key.as_str().to_owned());
        match change.action {
            shardcache_storage::Action::Put(draft) => drop(after.insert(at, payload(draft.body()))),
            shardcache_storage::Action::Delete => drop(after.remove(&at)),
        }
    }
    after
}

/// Some changes of few objects, so that they supersede each other.
pub(crate) fn random_batch(random: &mut StdRng) -> Vec<Change> {
    let size = if random.random_bool(0.1) { random.random_range(20..60) } else { random.random_range(1..5) };
    (0..size)
        .map(|_| {
            let name = format!("o{}", random.random_range(0..12));
            let payload = "x".repeat(random.random_range(0..3000));
            match random.random_range(0..10) {
                0..2 => delete(&name),
                2..5 => put_of(sheriffs(), &name, &payload),
                _ => put(&name, &payload),
            }
        })
        .collect()
}

/// Whether an object is there, with this payload.
pub(crate) fn holds(store: &dyn Store, name: &str, expected: &str) -> bool {
    let state = store.subscribe().state;
    state.get(&cowboys(), key(name).as_str()).is_some_and(|object| payload(object.body_bytes()) == expected)
}
