//! Room for the frames of all push streams that wait for the store: whoever finds none waits, and whoever
//! was told to slow down learns when there is plenty again.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Bytes that are counted as one.
const UNIT: usize = 1 << 10;

/// The room of a server.
#[derive(Debug)]
pub(crate) struct Budget {
    free: Arc<Semaphore>,
    units: usize,
    /// More than half is free.
    relieved: Notify,
}

/// A part of it; dropping it gives it back.
pub(crate) struct Part {
    budget: Arc<Budget>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Budget {
    /// So many bytes, at least one unit.
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        let units = (bytes / UNIT).max(1);
        Arc::new(Self { free: Arc::new(Semaphore::new(units)), units, relieved: Notify::new() })
    }

    /// Room for so many bytes, if it is there. More than there can be is all there is.
    pub(crate) fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Part> {
        let permit = Arc::clone(&self.free).try_acquire_many_owned(self.units_of(bytes)).ok()?;
        Some(Part { budget: Arc::clone(self), permit: Some(permit) })
    }

    /// The same, once it is there; in the order of the calls.
    pub(crate) async fn take(self: Arc<Self>, bytes: usize) -> Part {
        let permit = Arc::clone(&self.free).acquire_many_owned(self.units_of(bytes)).await;
        Part { permit: Some(permit.expect("nobody closes it")), budget: self }
    }

    /// Resolves when more than half is free.
    pub(crate) async fn relieved(&self) {
        loop {
            let mut relieved = pin!(self.relieved.notified());
            // Before the look, so that nothing is missed between the two.
            relieved.as_mut().enable();
            if self.is_relieved() {
                return;
            }
            relieved.await;
        }
    }

    fn is_relieved(&self) -> bool {
        self.free.available_permits() > self.units / 2
    }

    fn units_of(&self, bytes: usize) -> u32 {
        bytes.div_ceil(UNIT).clamp(1, self.units) as u32
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        drop(self.permit.take());
        if self.budget.is_relieved() {
            self.budget.relieved.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn d31_who_waits_for_room_gets_it_and_relief_is_half_of_it() {
        let budget = Budget::new(8 * UNIT);
        let half = budget.try_take(4 * UNIT).expect("it is empty");
        let mut relieved = pin!(budget.relieved());
        assert_eq!(relieved.as_mut().now_or_never(), None, "half is not more than half");
        let small = budget.try_take(1).expect("there is room");
        assert!(budget.try_take(4 * UNIT).is_none());
        let mut all = pin!(Arc::clone(&budget).take(100 * UNIT));
        assert!(all.as_mut().now_or_never().is_none());
        drop(half);
        assert_eq!(relieved.as_mut().now_or_never(), None, "what is free is somebody's already");
        drop(small);
        let all = all.now_or_never().expect("everything is free");
        assert_eq!(relieved.as_mut().now_or_never(), None);
        drop(all);
        assert_eq!(relieved.now_or_never(), Some(()));
    }
}
