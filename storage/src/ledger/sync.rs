//! A sync, mark and sweep (D33): nothing is removed before the list is known to be complete, then
//! everything that it does not have, in one commit.

use std::collections::HashSet;
use std::ops::Bound;

use crate::key::TypeName;
use crate::object::Object;
use crate::push::{CellName, Digest};
use crate::state::State;

use super::Stage;
use super::push::{Step, Work, entry_of};
use super::sessions::{Phase, Sync};

/// Objects that one commit may remove; a larger sweep is several, and the cell is not cut until the last.
const SWEEP_MAX: usize = if cfg!(test) { 3 } else { 200_000 };

/// What the end of a sync claims.
pub(super) struct Claim {
    pub(super) sync: u64,
    pub(super) version: u64,
    pub(super) count: u64,
    pub(super) digest: Digest,
    pub(super) allow_empty: bool,
}

impl<I: FnMut(&TypeName) -> u32> Stage<'_, I> {
    /// Begins a list; one that had begun is void. From here on the position says nothing.
    pub(super) fn sync_start(&mut self, name: &CellName, work: &mut Work, number: u64) -> Step {
        work.cell.cut = false;
        if !work.cell.is_managed() {
            // Until now anybody could write the cell, and nobody counted.
            (work.cell.count, work.cell.digest) = (0, Digest::default());
            for object in objects_of(&self.staged.state, name) {
                work.add(object);
            }
        }
        work.session.phase = Phase::Syncing(Sync { number, seen: HashSet::new(), sweeping: false });
        Step::Go
    }

    /// Compares the list with what will be left, and removes what it does not have.
    pub(super) fn sync_end(&mut self, name: &CellName, work: &mut Work, claim: &Claim) -> Step {
        let Phase::Syncing(sync) = &work.session.phase else {
            return Step::Break("no sync has started".into());
        };
        if sync.number != claim.sync {
            return Step::Break(
                format!("sync {} ends while {} is under way", claim.sync, sync.number).into(),
            );
        }
        let unseen = |object: &&Object| !sync.seen.contains(&object.revision());
        let mut absent: Vec<Object> = objects_of(&self.staged.state, name).filter(unseen).cloned().collect();
        if !sync.sweeping {
            if let Some(wrong) = compare(work, &absent, claim) {
                return wrong;
            }
            work.cell.position = claim.version;
        }
        let more = absent.len() > SWEEP_MAX;
        absent.truncate(SWEEP_MAX);
        work.tally.deleted += absent.len() as u64;
        for object in absent {
            work.forget(&object);
            self.delete(name.type_name(), object);
        }
        if more {
            if let Phase::Syncing(sync) = &mut work.session.phase {
                sync.sweeping = true;
            }
            return Step::Again;
        }
        work.cell.cut = true;
        work.cell.synced_generation = work.cell.generation;
        work.cell.synced_ms = work.now_ms;
        work.session.phase = Phase::Following;
        self.must_be_durable();
        self.synced(name);
        Step::Go
    }
}

/// What is wrong with the end of a sync, if something is; nothing has been removed then.
fn compare(work: &Work, absent: &[Object], claim: &Claim) -> Option<Step> {
    let cell = &work.cell;
    if claim.count == 0 && cell.count > 0 && !claim.allow_empty {
        return Some(Step::Break(
            format!("an empty list would remove {} objects, and allowEmpty is not set", cell.count).into(),
        ));
    }
    let digest = absent.iter().map(entry_of).fold(cell.digest, Digest::without);
    if (cell.count - absent.len() as u64, digest) != (claim.count, claim.digest) {
        return Some(Step::Resync("count or digest of the list differ".into()));
    }
    if cell.synced_generation == cell.generation && claim.version < cell.position {
        return Some(Step::Resync("the list is older than what was sent before".into()));
    }
    None
}

/// The objects of a cell, in key order.
fn objects_of<'a>(state: &'a State, name: &CellName) -> impl Iterator<Item = &'a Object> + use<'a> {
    // NUL separates the parts of a key: U+0001 is above every key of the shard and below the next.
    let (from, to) = (format!("{}\0", name.shard()), format!("{}\u{1}", name.shard()));
    let objects = state.objects(name.type_name());
    objects.into_iter().flat_map(move |objects| objects.range(Bound::Included(&from), Bound::Excluded(&to)))
}
