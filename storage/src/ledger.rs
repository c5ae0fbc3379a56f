//! The pure core of every engine: requests in, events out, against the state after the last commit.
//!
//! No I/O, no clock, no lock. An engine stages a batch, makes the staged events durable, and adopts
//! the staged state; if durability fails it drops the staged state and nothing has happened.

mod push;
mod roster;
mod sessions;
mod sync;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::change::{Action, Change, Event, Guard, Refusal};
use crate::key::TypeName;
use crate::object::{Draft, Object, Source};
use crate::push::{Cell, CellName};
use crate::resource_version::{ResourceVersion, Revision, Tag};
use crate::state::State;

pub(crate) use sessions::Sessions;

/// A batch applied in memory but not yet durable.
#[derive(Debug)]
pub(crate) struct Staged {
    /// The state after the batch; its head is the batch's last event.
    pub(crate) state: State,
    /// The events in revision order.
    pub(crate) events: Vec<Arc<Event>>,
    /// What pushers changed beside objects.
    pub(crate) touched: Touched,
}

/// What of pushing and of the roster a state has other than the file does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    pub(crate) cells: BTreeSet<CellName>,
    /// Shards whose tenure it is.
    pub(crate) tenures: BTreeSet<Box<str>>,
    /// Shards whose place in the roster it is; one without a place has lost it.
    pub(crate) members: BTreeSet<Box<str>>,
    /// Whether it is that the roster was seeded.
    pub(crate) seeded: bool,
    /// Whether somebody is told that it is durable.
    pub(crate) must_be_durable: bool,
}

impl Touched {
    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.tenures.is_empty() && self.members.is_empty() && !self.seeded
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.cells.extend(other.cells);
        self.tenures.extend(other.tenures);
        self.members.extend(other.members);
        self.seeded |= other.seeded;
        self.must_be_durable |= other.must_be_durable;
    }

    /// Shards of whom more has changed than their cells, in order.
    pub(crate) fn shards(&self) -> Vec<Box<str>> {
        self.tenures.union(&self.members).cloned().collect()
    }
}

/// A batch being staged: requests are applied in order, each sees what those before it did.
pub(crate) struct Stage<'a, I> {
    staged: Staged,
    tag: Tag,
    sessions: &'a mut Sessions,
    type_id: I,
}

impl<'a, I: FnMut(&TypeName) -> u32> Stage<'a, I> {
    /// Begins a batch on top of `base`, numbering events from the revision after its head.
    ///
    /// `type_id` interns a type name for the engine's file; it is asked once per written object. If the
    /// batch does not become durable, `sessions` must be ended.
    pub(crate) fn new(base: &State, tag: Tag, sessions: &'a mut Sessions, type_id: I) -> Self {
        let staged = Staged { state: base.clone(), events: Vec::new(), touched: Touched::default() };
        Self { staged, tag, sessions, type_id }
    }

    /// The whole batch.
    pub(crate) fn finish(self) -> Staged {
        self.staged
    }

    /// Applies an ordinary write; its last event, or why it was refused.
    pub(crate) fn change(&mut self, change: Change) -> Result<Arc<Event>, Refusal> {
        self.check_unmanaged(&change)?;
        let current = self.staged.state.get(&change.type_name, change.key.as_str()).cloned();
        check(&change.guard, current.as_ref())?;
        match change.action {
            Action::Delete => {
                let Some(current) = current else { return Err(Refusal::NotFound) };
                Ok(self.delete(&change.type_name, current))
            }
            Action::Put(draft) => Ok(self.put(change.type_name, draft, Source::default(), current)),
        }
    }

    /// Only its pusher writes a cell that is push-managed, or is being synced for the first time.
    fn check_unmanaged(&self, change: &Change) -> Result<(), Refusal> {
        let state = &self.staged.state;
        if !state.has_cells() {
            return Ok(());
        }
        let shard = change.key.parts().shard;
        let cell = CellName::new(shard, change.type_name.clone());
        if state.cell(&cell).is_some_and(Cell::is_managed) || self.sessions.is_syncing(&cell) {
            let holder = state.tenure(shard).map(|tenure| tenure.holder.clone()).unwrap_or_default();
            return Err(Refusal::PushManaged { holder });
        }
        Ok(())
    }

    /// Stores a draft in place of `current`. Objects of different uids are two objects: the old one is
    /// deleted first.
    fn put(
        &mut self,
        type_name: TypeName,
        draft: Draft,
        source: Source,
        current: Option<Object>,
    ) -> Arc<Event> {
        let replaced_by_another = current
            .as_ref()
            .is_some_and(|old| !old.uid().is_empty() && !draft.uid().is_empty() && old.uid() != draft.uid());
        let previous = if replaced_by_another {
            self.delete(&type_name, current.expect("it has a uid"));
            None
        } else {
            current
        };
        let version = self.next_version();
        let before = previous.as_ref().map_or(Revision::ZERO, Object::revision);
        let object = draft.seal((self.type_id)(&type_name), version.revision(), version, before, source);
        self.staged.state.insert(&type_name, object.clone());
        self.record(Event::new(version, type_name, previous, Some(object)))
    }

    fn delete(&mut self, type_name: &TypeName, current: Object) -> Arc<Event> {
        let version = self.next_version();
        self.staged.state.remove(type_name, current.key());
        self.record(Event::new(version, type_name.clone(), Some(current), None))
    }

    fn next_version(&self) -> ResourceVersion {
        ResourceVersion::new(self.staged.state.head().next(), self.tag)
    }

    fn record(&mut self, event: Event) -> Arc<Event> {
        let event = Arc::new(event);
        self.staged.state.set_head(event.resource_version);
        self.staged.events.push(Arc::clone(&event));
        event
    }
}

/// Kubernetes' order: existence, then uid, then resourceVersion.
fn check(guard: &Guard, current: Option<&Object>) -> Result<(), Refusal> {
    let Some(current) = current else {
        let wants_one = guard.exists == Some(true) || guard.uid.is_some() || guard.resource_version.is_some();
        return if wants_one { Err(Refusal::NotFound) } else { Ok(()) };
    };
    if guard.exists == Some(false) {
        return Err(Refusal::AlreadyExists(current.clone()));
    }
    if guard.uid.as_deref().is_some_and(|uid| uid != current.uid()) {
        return Err(Refusal::UidMismatch(current.clone()));
    }
    if guard.resource_version.is_some_and(|version| version != current.resource_version()) {
        return Err(Refusal::VersionMismatch(current.clone()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
