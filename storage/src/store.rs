//! The contract of every engine.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::mpsc;

use crate::change::{Applied, Change, Commit, Event, Refusal};
use crate::error::StorageError;
use crate::key::TypeName;
use crate::lineage::Lineage;
use crate::push::{Push, Pushed};
use crate::resource_version::Revision;
use crate::state::State;

/// Result of a batch: one entry per change, in order.
pub type Receipt = Vec<Result<Applied, Refusal>>;

/// A durable, versioned log of objects, and the state it folds to.
///
/// Nothing above this trait may assume that it is the only process that writes: everything that
/// happens is learned from [`Store::subscribe`], never from the answer to a write. Engines must
/// keep the order *durable → published to subscribers → acknowledged*: no subscriber, list or
/// answer ever shows a revision that a crash could take back.
pub trait Store: Send + Sync + 'static {
    /// Submits changes that become durable in one commit, each judged alone. Resolves when they are
    /// durable and sent to every subscriber. Dropping the future does not take the changes back.
    ///
    /// Errors concern the whole batch: [`StorageError::Overloaded`] (nothing was queued),
    /// [`StorageError::DiskFull`], [`StorageError::ReadOnly`], [`StorageError::Closed`]. After the last
    /// three the changes may or may not survive a crash; they have not been published.
    fn commit(&self, changes: Vec<Change>) -> BoxFuture<'static, Result<Receipt, StorageError>>;

    /// Submits a request of a pusher's handler; it is queued before this returns, so requests are applied
    /// in the order of the calls; never refused as [`StorageError::Overloaded`], so no call leaves a gap
    /// before the next. Resolves when its effects are durable and published, as [`Store::commit`], with its
    /// other errors; after one of them every session has ended.
    fn push(&self, push: Push) -> BoxFuture<'static, Result<Pushed, StorageError>>;

    /// The state now, and every commit after it, in order, without gap.
    fn subscribe(&self) -> Subscription;

    /// Which versions this store issued.
    fn lineage(&self) -> Arc<Lineage>;

    /// Reads the durable log of one type: the events in `(after, up_to]`, oldest first, at most
    /// `limit.events` of them and about `limit.bytes` of bodies (at least one event if there is one).
    /// [`StorageError::Compacted`] if `after` is below the type's floor.
    fn events(
        &self,
        type_name: &TypeName,
        after: Revision,
        up_to: Revision,
        limit: ReadLimit,
    ) -> BoxFuture<'static, Result<LogPage, StorageError>>;

    /// Writes a consistent copy of the store at one commit boundary to `to`, which must not exist.
    fn backup(&self, to: PathBuf) -> BoxFuture<'static, Result<BackupReport, StorageError>>;

    /// Whether writes are possible now.
    fn health(&self) -> Health;

    /// Refuses further writes, finishes the queued ones and closes the store. Idempotent.
    fn close(&self) -> BoxFuture<'static, Result<(), StorageError>>;
}

/// In an implementation of [`Store`] that stands before another one: the methods that it leaves to that one,
/// which is in the field that is named first. `delegate_store!(inner: push, lineage, close);`
#[macro_export]
macro_rules! delegate_store {
    (@ $to:tt commit) => {
        fn commit(
            &self,
            changes: Vec<$crate::Change>,
        ) -> ::futures::future::BoxFuture<'static, Result<$crate::Receipt, $crate::StorageError>> {
            self.$to.commit(changes)
        }
    };
    (@ $to:tt push) => {
        fn push(
            &self,
            push: $crate::Push,
        ) -> ::futures::future::BoxFuture<'static, Result<$crate::Pushed, $crate::StorageError>> {
            self.$to.push(push)
        }
    };
    (@ $to:tt subscribe) => {
        fn subscribe(&self) -> $crate::Subscription {
            self.$to.subscribe()
        }
    };
    (@ $to:tt lineage) => {
        fn lineage(&self) -> ::std::sync::Arc<$crate::Lineage> {
            self.$to.lineage()
        }
    };
    (@ $to:tt events) => {
        fn events(
            &self,
            type_name: &$crate::TypeName,
            after: $crate::Revision,
            up_to: $crate::Revision,
            limit: $crate::ReadLimit,
        ) -> ::futures::future::BoxFuture<'static, Result<$crate::LogPage, $crate::StorageError>> {
            self.$to.events(type_name, after, up_to, limit)
        }
    };
    (@ $to:tt backup) => {
        fn backup(
            &self,
            to: ::std::path::PathBuf,
        ) -> ::futures::future::BoxFuture<'static, Result<$crate::BackupReport, $crate::StorageError>> {
            self.$to.backup(to)
        }
    };
    (@ $to:tt health) => {
        fn health(&self) -> $crate::Health {
            self.$to.health()
        }
    };
    (@ $to:tt close) => {
        fn close(&self) -> ::futures::future::BoxFuture<'static, Result<(), $crate::StorageError>> {
            self.$to.close()
        }
    };
    ($to:tt: $($method:ident),+) => {
        $($crate::delegate_store!(@ $to $method);)+
    };
}

/// The start of following a store.
#[derive(Debug)]
pub struct Subscription {
    /// The state at the moment of subscribing.
    pub state: State,
    /// Every later commit. Bounded: a subscriber that does not read holds up the writer.
    pub commits: mpsc::Receiver<Commit>,
}

/// Bounds of one read of the log.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimit {
    /// Most events in a page.
    pub events: usize,
    /// About how many bytes of bodies in a page.
    pub bytes: usize,
}

/// A stretch of one type's log.
#[derive(Clone, Debug)]
pub struct LogPage {
    /// Events, oldest first.
    pub events: Vec<Arc<Event>>,
    /// Every event of the type at or below this revision is in this page or an earlier one.
    pub complete_to: Revision,
}

/// What a finished backup holds.
#[derive(Clone, Debug)]
pub struct BackupReport {
    /// The commit boundary it is a copy of.
    pub head: Revision,
    /// Live objects in it.
    pub objects: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
}

/// Whether a store can write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Reads and writes work.
    Writable,
    /// Reads work; writes are refused until space is free.
    DiskFull,
    /// Reads work; writes need a restart. The text says what failed.
    ReadOnly(String),
    /// The store was closed.
    Closed,
}
