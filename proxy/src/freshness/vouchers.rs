//! The owner of what shards have said of themselves by their Leases since the server was opened, and of when
//! they did. What they claim is in the store; only the times are here, because no clock outlives a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashmap::DashMap;
use shardcache_storage::{CellName, ResourceVersion, State, TypeName};

use super::clock::Instant;
use super::confirmation::Contact;
use super::lease::{Claim, Fault, Lease, Proof, Renewals, judge};

/// What Leases have shown; one entry for each shard that has, or had, one.
#[derive(Debug, Default)]
pub(crate) struct Vouchers(DashMap<Box<str>, Voucher>);

/// One shard.
#[derive(Debug, Default)]
struct Voucher {
    /// The Lease as it was read last.
    lease: Option<Arc<Lease>>,
    renewals: Renewals,
    /// Up to when each type is confirmed.
    proved: BTreeMap<TypeName, Instant>,
}

/// What a Lease says of one type, now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vouched {
    /// Up to when the type is confirmed.
    pub(crate) confirmed: Option<Instant>,
    pub(crate) contact: Contact,
}

/// A renewal that was acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    /// Its resourceVersion.
    pub(crate) version: ResourceVersion,
    pub(crate) claim: Claim,
    /// What was judged of the claim.
    pub(crate) proof: Proof,
    /// Whether the Lease began with it.
    pub(crate) is_first: bool,
}

impl Vouchers {
    /// The Lease of a shard, as a state has it.
    pub(crate) fn lease(&self, state: &State, shard: &str) -> Option<Arc<Lease>> {
        let object = Lease::find(state, shard)?;
        if let Some(voucher) = self.0.get(shard)
            && let Some(lease) = voucher.lease.as_ref().filter(|lease| lease.revision == object.revision())
        {
            return Some(Arc::clone(lease));
        }
        let lease = Arc::new(Lease::read(object));
        self.0.entry(shard.into()).or_default().lease = Some(Arc::clone(&lease));
        Some(lease)
    }

    /// What the Lease of a cell's shard says of its type; `None`: nothing.
    pub(crate) fn of(&self, state: &State, cell: &CellName, now: Instant) -> Option<Vouched> {
        let lease = self.lease(state, cell.shard())?;
        if !lease.claim.written.contains_key(cell.type_name()) {
            return None;
        }
        let voucher = self.0.get(cell.shard())?;
        let contact = match voucher.renewals.last() {
            None => Contact::Never,
            Some(last) if now.since(last) > lease.duration => Contact::Lost(now.since(last)),
            Some(_) => Contact::Open,
        };
        Some(Vouched { confirmed: voucher.proved.get(cell.type_name()).copied(), contact })
    }

    /// Judges what a shard's Lease is to say; see [`judge`].
    pub(crate) fn judge(
        &self,
        shard: &str,
        before: Option<(&Claim, ResourceVersion)>,
        claim: &Claim,
        may_go: impl Fn(&TypeName) -> bool,
    ) -> Result<Proof, Fault> {
        match self.0.get(shard) {
            Some(voucher) => judge(before, claim, may_go, &voucher.renewals),
            None => judge(before, claim, may_go, &Renewals::default()),
        }
    }

    /// A renewal is acknowledged; it began at an instant before anybody could know that.
    pub(crate) fn renewed(&self, shard: &str, began: Instant, renewal: &Renewal) {
        let mut voucher = self.0.entry(shard.into()).or_default();
        let Voucher { renewals, proved, .. } = &mut *voucher;
        if renewal.is_first {
            // Of another Lease nothing counts.
            *renewals = Renewals::default();
            proved.clear();
        }
        renewals.acknowledged(renewal.version, began);
        let Claim { written, .. } = &renewal.claim;
        proved.retain(|type_name, _| written.contains_key(type_name));
        if let Some(time) = renewal.proof {
            for type_name in written.keys() {
                let known = proved.entry(type_name.clone()).or_insert(time);
                *known = time.max(*known);
            }
        }
    }

    /// Somebody pushes a cell, perhaps from another source: should it be released, what was shown before is not
    /// of what is here then.
    pub(crate) fn superseded(&self, cell: &CellName) {
        if let Some(mut voucher) = self.0.get_mut(cell.shard()) {
            voucher.proved.remove(cell.type_name());
        }
    }

    /// Nothing counts any more that a shard has said.
    pub(crate) fn distrust(&self, shard: &str) {
        if let Some(mut voucher) = self.0.get_mut(shard) {
            voucher.renewals = Renewals::default();
            voucher.proved.clear();
        }
    }

    /// Nothing counts any more: the clock stood still.
    pub(crate) fn distrust_everybody(&self) {
        for mut voucher in self.0.iter_mut() {
            voucher.renewals = Renewals::default();
            voucher.proved.clear();
        }
    }
}
