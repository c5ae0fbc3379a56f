//! The pure core of every engine: changes in, events out, against the state after the last commit.
//!
//! No I/O, no clock, no lock. An engine stages a batch, makes the staged events durable, and adopts
//! the staged state; if durability fails it drops the staged state and nothing has happened.

use std::sync::Arc;

use crate::change::{Action, Change, Event, Guard, Refusal};
use crate::key::TypeName;
use crate::object::Object;
use crate::resource_version::{ResourceVersion, Revision, Tag};
use crate::state::State;

/// A batch applied in memory but not yet durable.
#[derive(Debug)]
pub(crate) struct Staged {
    /// The state after the batch; its head is the batch's last event.
    pub(crate) state: State,
    /// The events in revision order.
    pub(crate) events: Vec<Arc<Event>>,
    /// One result per change, in order: the change's last event, or why it was refused.
    pub(crate) results: Vec<Result<Arc<Event>, Refusal>>,
}

/// Applies `changes` in order on top of `base`, numbering events from the revision after its head.
///
/// `type_id` interns a type name for the engine's file; it is asked once per written object.
pub(crate) fn stage(
    base: &State,
    tag: Tag,
    changes: Vec<Change>,
    mut type_id: impl FnMut(&TypeName) -> u32,
) -> Staged {
    let mut staged =
        Staged { state: base.clone(), events: Vec::new(), results: Vec::with_capacity(changes.len()) };
    for change in changes {
        let result = apply(&mut staged, tag, change, &mut type_id);
        staged.results.push(result);
    }
    staged
}

fn apply(
    staged: &mut Staged,
    tag: Tag,
    change: Change,
    type_id: &mut impl FnMut(&TypeName) -> u32,
) -> Result<Arc<Event>, Refusal> {
    let current = staged.state.get(&change.type_name, change.key.as_str()).cloned();
    check(&change.guard, current.as_ref())?;
    match change.action {
        Action::Delete => {
            let Some(current) = current else { return Err(Refusal::NotFound) };
            Ok(delete(staged, tag, &change.type_name, current))
        }
        Action::Put(draft) => {
            let replaced_by_another = current.as_ref().is_some_and(|old| {
                !old.uid().is_empty() && !draft.uid().is_empty() && old.uid() != draft.uid()
            });
            let previous = if replaced_by_another {
                delete(staged, tag, &change.type_name, current.expect("it has a uid"));
                None
            } else {
                current
            };
            let version = next_version(staged, tag);
            let before = previous.as_ref().map_or(Revision::ZERO, Object::revision);
            let object = draft.seal(type_id(&change.type_name), version.revision(), version, before);
            staged.state.insert(&change.type_name, object.clone());
            Ok(record(staged, Event::new(version, change.type_name, previous, Some(object))))
        }
    }
}

fn delete(staged: &mut Staged, tag: Tag, type_name: &TypeName, current: Object) -> Arc<Event> {
    let version = next_version(staged, tag);
    staged.state.remove(type_name, current.key());
    record(staged, Event::new(version, type_name.clone(), Some(current), None))
}

fn next_version(staged: &Staged, tag: Tag) -> ResourceVersion {
    ResourceVersion::new(staged.state.head().next(), tag)
}

fn record(staged: &mut Staged, event: Event) -> Arc<Event> {
    let event = Arc::new(event);
    staged.state.set_head(event.resource_version);
    staged.events.push(Arc::clone(&event));
    event
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
