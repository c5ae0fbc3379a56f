//! Bounds that requests share: how many may be answered at once, and how many bytes they may occupy.
//!
//! A [`Budget`] never waits: who cannot have a share is told so at once (429) and comes back later.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::http::lease::Leases;
use crate::metrics::Metrics;
use crate::metrics::labels::Limit;
use crate::service::ApiConfig;
use crate::status::ApiError;

/// kube-apiserver's text for refused requests.
const TOO_MANY: &str = "Too many requests, please try again later.";

/// A number of requests or bytes that may be in use.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    max: usize,
    limit: Limit,
}

/// A part of a budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    amount: usize,
}

impl Budget {
    fn new(max: usize, limit: Limit) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), max, limit })
    }

    fn reserve(&self, amount: usize) -> bool {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(amount).filter(|sum| *sum <= self.max)
            })
            .is_ok()
    }

    /// A share of the budget, or 429 and a count of the refusal.
    pub(crate) fn take(self: &Arc<Self>, amount: usize, metrics: &Metrics) -> Result<Share, ApiError> {
        self.try_take(amount).ok_or_else(|| self.refusal(metrics))
    }

    /// A share of the budget, if there is one.
    pub(crate) fn try_take(self: &Arc<Self>, amount: usize) -> Option<Share> {
        self.reserve(amount).then(|| Share { budget: Arc::clone(self), amount })
    }

    /// What is in use.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn refusal(&self, metrics: &Metrics) -> ApiError {
        metrics.http.refusals.get_or_create(&self.limit.into()).inc();
        ApiError::too_many_requests(TOO_MANY, 1)
    }
}

impl Share {
    /// Makes the share larger, or leaves it as it is and gives the refusal.
    pub(crate) fn grow(&mut self, amount: usize, metrics: &Metrics) -> Result<(), ApiError> {
        if self.budget.reserve(amount) {
            self.amount += amount;
            return Ok(());
        }
        Err(self.budget.refusal(metrics))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

/// The budgets of one server.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) reads: Arc<Budget>,
    pub(crate) writes: Arc<Budget>,
    pub(crate) watches: Arc<Budget>,
    pub(crate) list_bytes: Leases,
    pub(crate) body_bytes: Arc<Budget>,
    pub(crate) backups: Arc<Budget>,
    pub(crate) pushes: Arc<Budget>,
}

impl Limits {
    pub(crate) fn new(config: &ApiConfig) -> Self {
        Self {
            reads: Budget::new(config.reads_in_flight_max, Limit::ReadsInFlight),
            writes: Budget::new(config.writes_in_flight_max, Limit::WritesInFlight),
            watches: Budget::new(config.watches_max, Limit::Watches),
            list_bytes: Leases::new(
                Budget::new(config.list_bytes_in_flight_max, Limit::ListBytes),
                config.stall_timeout,
            ),
            body_bytes: Budget::new(config.body_bytes_in_flight_max, Limit::Body),
            backups: Budget::new(1, Limit::ReadsInFlight),
            pushes: Budget::new(config.push.streams_max, Limit::Pushes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_refuses_what_exceeds_it_and_takes_shares_back() {
        let metrics = Metrics::default();
        let budget = Budget::new(3, Limit::Watches);
        let mut share = budget.take(2, &metrics).expect("room for two");
        assert_eq!(budget.take(2, &metrics).expect_err("one is left").code, 429);
        share.grow(1, &metrics).expect("room for one more");
        assert!(share.grow(1, &metrics).is_err());
        drop(share);
        assert!(budget.take(3, &metrics).is_ok());
        assert_eq!(metrics.http.refusals.get_or_create(&Limit::Watches.into()).get(), 2);
    }
}
