//! Stores with one planted fault each: the suite must notice every one of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use shardcache_storage::{
    Change, Event, Guard, Lineage, LogPage, MemoryStore, Opening, ReadLimit, Receipt, Revision, StorageError,
    Store, Subscription, TypeName,
};

use crate::world::Engine;

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Semantics row 2: a reader of the log misses the last event of a full page.
    Gap,
    /// A reader of the log gets the last event of a page twice.
    Duplicate,
    /// A page of the log is not in the order of the log.
    Reorder,
    /// A page shows the state before as the state after.
    StaleBody,
    /// A departed object's last state is not told (row 4: transitions need it).
    NoPrevious,
    /// Compacted history reads as nothing having happened (row 6).
    SilentFloor,
    /// Versions below this opening count as issued here (row 1).
    EveryPast,
    /// All openings have one tag, which only monotone clocks forgive (row 1).
    OneTag,
    /// The state at the moment of following is newer than what follows it (row 3).
    LateState,
    /// Guards are judged before the batch, not in its order.
    EarlyGuards,
    /// A write is acknowledged at a boundary that does not contain it.
    EarlyBoundary,
    /// Somebody who no longer waits for the answer loses the write.
    DroppedWithTheCaller,
}

pub(crate) const FAULTS: [Fault; 12] = [
    Fault::Gap,
    Fault::Duplicate,
    Fault::Reorder,
    Fault::StaleBody,
    Fault::NoPrevious,
    Fault::SilentFloor,
    Fault::EveryPast,
    Fault::OneTag,
    Fault::LateState,
    Fault::EarlyGuards,
    Fault::EarlyBoundary,
    Fault::DroppedWithTheCaller,
];

/// A store in memory with the `N`th of [`FAULTS`].
pub(crate) struct Faulty<const N: usize>(Arc<MemoryStore>);

impl<const N: usize> Faulty<N> {
    const FAULT: Fault = FAULTS[N];
}

impl<const N: usize> Engine for Faulty<N> {
    type Store = Self;
    const DURABLE: bool = false;

    fn open(_dir: &Path, mut opening: Opening) -> Arc<Self> {
        if Self::FAULT == Fault::OneTag {
            opening.entropy = 7;
        }
        Arc::new(Self(MemoryStore::new(opening)))
    }

    fn compact(
        store: &Self,
        kind: TypeName,
        to: Revision,
    ) -> BoxFuture<'static, Result<Revision, StorageError>> {
        store.0.compact(kind, to)
    }

    fn file(_dir: &Path) -> PathBuf {
        unreachable!("a store in memory has no file")
    }
}

impl<const N: usize> Store for Faulty<N> {
    fn commit(&self, mut changes: Vec<Change>) -> BoxFuture<'static, Result<Receipt, StorageError>> {
        match Self::FAULT {
            Fault::EarlyGuards => {
                let state = self.0.subscribe().state;
                for change in &mut changes {
                    let held = state.get(&change.type_name, change.key.as_str());
                    if change.guard.exists == Some(held.is_some()) {
                        change.guard = Guard::default();
                    }
                }
                self.0.commit(changes)
            }
            Fault::EarlyBoundary => {
                let answer = self.0.commit(changes);
                async move {
                    let mut receipt = answer.await?;
                    for applied in receipt.iter_mut().flatten() {
                        applied.head = Revision(applied.head.0 - 1);
                    }
                    Ok(receipt)
                }
                .boxed()
            }
            Fault::DroppedWithTheCaller => {
                let store = Arc::clone(&self.0);
                async move {
                    tokio::task::yield_now().await;
                    store.commit(changes).await
                }
                .boxed()
            }
            _ => self.0.commit(changes),
        }
    }

    fn subscribe(&self) -> Subscription {
        let mut subscription = self.0.subscribe();
        if Self::FAULT == Fault::LateState {
            subscription.state = shardcache_storage::State::empty(subscription.state.resource_version());
        }
        subscription
    }

    fn lineage(&self) -> Arc<Lineage> {
        let mut lineage = (*self.0.lineage()).clone();
        if Self::FAULT == Fault::EveryPast {
            for incarnation in &mut lineage.incarnations {
                incarnation.start = Revision::ZERO;
            }
        }
        Arc::new(lineage)
    }

    fn events(
        &self,
        type_name: &TypeName,
        after: Revision,
        up_to: Revision,
        limit: ReadLimit,
    ) -> BoxFuture<'static, Result<LogPage, StorageError>> {
        let answer = self.0.events(type_name, after, up_to, limit);
        async move {
            let mut page = match answer.await {
                Err(StorageError::Compacted { .. }) if Self::FAULT == Fault::SilentFloor => {
                    return Ok(LogPage { events: Vec::new(), complete_to: up_to.max(after) });
                }
                answer => answer?,
            };
            spoil(Self::FAULT, &mut page, limit);
            Ok(page)
        }
        .boxed()
    }

    shardcache_storage::delegate_store!(0: push, backup, health, close);
}

fn spoil(fault: Fault, page: &mut LogPage, limit: ReadLimit) {
    let other = |event: &Arc<Event>, previous, current| {
        Arc::new(Event::new(event.resource_version, event.type_name.clone(), previous, current))
    };
    match fault {
        Fault::Gap if page.events.len() == limit.events => drop(page.events.pop()),
        Fault::Duplicate if page.events.len() == limit.events => {
            page.complete_to = Revision(page.complete_to.0.min(page.events[limit.events - 1].revision.0) - 1);
        }
        Fault::Reorder => page.events.reverse(),
        Fault::StaleBody => {
            for event in &mut page.events {
                if event.previous.is_some() && event.current.is_some() {
                    *event = other(event, event.previous.clone(), event.previous.clone());
                }
            }
        }
        Fault::NoPrevious => {
            for event in &mut page.events {
                if event.current.is_some() {
                    *event = other(event, None, event.current.clone());
                }
            }
        }
        _ => {}
    }
}
