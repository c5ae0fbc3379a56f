//! Shares of a budget that can be taken back from who does not use them.
//!
//! A list holds its share of the bytes in flight until it is sent. A client of HTTP/2 can keep its
//! connection alive and yet never open the window of one stream; nothing then asks that list for more,
//! so nothing tells it that it is stuck. When the budget is used up, leases that were not used for
//! longer than the patience are revoked, and their lists end with an error if they are asked again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::body::BodyError;
use crate::http::limits::{Budget, Share};
use crate::metrics::Metrics;
use crate::metrics::labels::Limit;
use crate::status::ApiError;

/// Everybody who holds a share of one budget.
#[derive(Debug)]
pub(crate) struct Leases {
    budget: Arc<Budget>,
    patience: Duration,
    begun: Instant,
    /// Locked for moments only, and never while anything is awaited.
    given: Mutex<Vec<Weak<Lease>>>,
}

/// A share that is used, or else taken back.
#[derive(Debug)]
pub(crate) struct Lease {
    share: Mutex<Option<Share>>,
    /// Milliseconds after `begun`.
    used_ms: AtomicU64,
    begun: Instant,
    patience: Duration,
}

impl Leases {
    pub(crate) fn new(budget: Arc<Budget>, patience: Duration) -> Self {
        Self { budget, patience, begun: Instant::now(), given: Mutex::default() }
    }

    /// A lease of part of the budget; 429 if there is none, even after revoking.
    pub(crate) fn take(&self, amount: usize, metrics: &Metrics) -> Result<Arc<Lease>, ApiError> {
        let share = if let Some(share) = self.budget.try_take(amount) {
            share
        } else {
            let revoked = self.revoke_unused();
            metrics.http.refusals.get_or_create(&Limit::StalledReader.into()).inc_by(revoked);
            self.budget.take(amount, metrics)?
        };
        let lease = Arc::new(Lease {
            share: Mutex::new(Some(share)),
            used_ms: AtomicU64::new(0),
            begun: self.begun,
            patience: self.patience,
        });
        lease.touch();
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        // The list of leases stays within twice the number of live ones.
        if given.len() == given.capacity() {
            given.retain(|lease| lease.strong_count() > 0);
        }
        given.push(Arc::downgrade(&lease));
        Ok(lease)
    }

    fn revoke_unused(&self) -> u64 {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let revoked = given.iter().filter_map(Weak::upgrade).filter(|lease| lease.revoke_if_unused());
        revoked.count() as u64
    }
}

impl Lease {
    /// Notes that the holder goes on; an error if it was given up.
    pub(crate) fn proceed(&self) -> Result<(), BodyError> {
        self.touch();
        match *self.share() {
            Some(_) => Ok(()),
            None => Err(BodyError::Stalled(self.patience.as_secs())),
        }
    }

    fn touch(&self) {
        self.used_ms.store(self.begun.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn revoke_if_unused(&self) -> bool {
        let used = Duration::from_millis(self.used_ms.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(used) > self.patience && self.share().take().is_some()
    }

    fn share(&self) -> std::sync::MutexGuard<'_, Option<Share>> {
        self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
