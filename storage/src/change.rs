//! What is asked of the store ([`Change`]), what happened ([`Event`]), what becomes visible together
//! ([`Commit`]).

use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};

use crate::key::{Key, TypeName};
use crate::object::{Draft, Object};
use crate::push::CellName;
use crate::resource_version::{DIGITS, ResourceVersion, Revision};
use crate::state::State;

/// One requested write. A change whose guard fails is refused alone; its batch goes on.
#[derive(Clone)]
pub struct Change {
    /// Type of the object.
    pub type_name: TypeName,
    /// Key of the object.
    pub key: Key,
    /// What must hold at the writer for the change to apply.
    pub guard: Guard,
    /// The write.
    pub action: Action,
}

/// The write of a [`Change`].
#[derive(Clone)]
pub enum Action {
    /// Store this encoded object. Where an object with another non-empty uid has the key, the store
    /// makes two events of it in one commit: the deletion of the old one, then the new one.
    Put(Draft),
    /// Remove the object.
    Delete,
}

/// Preconditions, judged by the single writer in log order. The default demands nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// Whether an object must (`true`) or must not (`false`) have the key.
    pub exists: Option<bool>,
    /// The state of the object must be the one of this version.
    pub resource_version: Option<ResourceVersion>,
    /// The object must have this uid.
    pub uid: Option<Box<str>>,
}

/// Why a change did not apply. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// [`Guard::exists`] was `false` and an object has the key.
    #[error("the object exists already")]
    AlreadyExists(Object),
    /// No object has the key, and the guard or the deletion needs one.
    #[error("the object does not exist")]
    NotFound,
    /// [`Guard::uid`] is not the uid of the object.
    #[error("the object has another uid")]
    UidMismatch(Object),
    /// [`Guard::resource_version`] is not the version of the object.
    #[error("the object has another resourceVersion")]
    VersionMismatch(Object),
    /// Only its pusher writes the type in this shard.
    #[error("cell is push-managed by {holder}")]
    PushManaged {
        /// Name of the pusher.
        holder: Box<str>,
    },
}

/// A change that was applied, is durable and has been published.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The last event the change made.
    pub event: Arc<Event>,
    /// Head of the commit that holds it: a snapshot at or after this revision contains the change.
    pub head: Revision,
}

/// One thing that happened to one object: created, changed or deleted.
pub struct Event {
    /// Its place in the log.
    pub revision: Revision,
    /// The version clients see on the event.
    pub resource_version: ResourceVersion,
    /// Type of the object.
    pub type_name: TypeName,
    /// The state before; `None` if the object was created.
    pub previous: Option<Object>,
    /// The state after; `None` if the object was deleted.
    pub current: Option<Object>,
    /// The previous body with the event's version in it, made when first asked for.
    departed: OnceLock<Bytes>,
}

impl Event {
    /// An event; one of the two states must be given.
    pub fn new(
        resource_version: ResourceVersion,
        type_name: TypeName,
        previous: Option<Object>,
        current: Option<Object>,
    ) -> Self {
        debug_assert!(previous.is_some() || current.is_some());
        let revision = resource_version.revision();
        Self { revision, resource_version, type_name, previous, current, departed: OnceLock::new() }
    }

    /// The joined key of the object.
    pub fn key(&self) -> &str {
        self.current.as_ref().or(self.previous.as_ref()).expect("an event has a state").key()
    }

    /// The previous state's body under the event's own version: what a watcher is sent as DELETED,
    /// whether the object was removed or left the watcher's selector (as kube-apiserver's cacher
    /// does). Encoded once for all watchers. `None` if the event created the object.
    pub fn departed(&self) -> Option<Bytes> {
        let previous = self.previous.as_ref()?;
        let body = self.departed.get_or_init(|| {
            let mut body = BytesMut::from(previous.body_bytes());
            let at = previous.spans().resource_version_at as usize;
            body[at..at + DIGITS].copy_from_slice(&self.resource_version.digits());
            body.freeze()
        });
        Some(body.clone())
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match (&self.previous, &self.current) {
            (None, _) => "create",
            (_, None) => "delete",
            _ => "change",
        };
        write!(f, "{kind} {:?} {}@{}", self.type_name, self.key().replace('\0', "|"), self.revision)
    }
}

/// Events that became durable together, and the state after them. Also sent without events: when only
/// history floors moved, or only what is known of pushers or the roster changed.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The state after the events; `state.head()` is the commit's boundary.
    pub state: State,
    /// The events in revision order.
    pub events: Arc<[Arc<Event>]>,
    /// Cells that changed beside their objects, in order.
    pub cells: Arc<[CellName]>,
    /// Shards of which the tenure or the place in the roster changed, in order.
    pub shards: Arc<[Box<str>]>,
}
