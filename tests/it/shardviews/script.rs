//! What can happen, in any order.

use proptest::prelude::*;

use super::world::{SHARDS, TYPES};

/// One of the two informers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Which {
    Data,
    Views,
}

/// Something that happens. Shards and types are numbers.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Somebody says which shards there ought to be: those of the bits.
    Seed(u8),
    Expect(usize),
    Excuse(usize),
    Forget(usize),
    /// A shard says which types it has: those of the bits.
    Catalog(usize, u8),
    /// A shard begins to sync a type, perhaps from a new source.
    Begin {
        shard: usize,
        of_type: usize,
        new_source: bool,
    },
    /// So many frames of what it has begun arrive.
    Frames {
        shard: usize,
        of_type: usize,
        count: usize,
    },
    /// An object of a source changes; if it is synced, the cache hears of it.
    Change {
        shard: usize,
        of_type: usize,
        object: u8,
    },
    /// An administrator gives a shard's types back to ordinary writers.
    Release(usize),
    /// Somebody writes to the cache something that nobody pushes.
    Other(u8),
    /// Views are written: of what has changed, or of everything.
    Write {
        everything: bool,
    },
    /// An informer takes in so many events, or lists if it has to.
    Read(Which, usize),
    /// An informer that has everything hears how far it is.
    Bookmark(Which),
    /// The server starts again; one in memory has lost everything.
    Restart,
    Backup,
    /// The last backup is put in the place of the store.
    Restore,
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![Just(Which::Data), Just(Which::Views)]
}

fn step() -> impl Strategy<Value = Step> {
    let (shard, of_type) = (|| 0..SHARDS.len(), || 0..TYPES.len());
    prop_oneof![
        2 => any::<u8>().prop_map(Step::Seed),
        1 => shard().prop_map(Step::Expect),
        1 => shard().prop_map(Step::Excuse),
        1 => shard().prop_map(Step::Forget),
        6 => (shard(), any::<u8>()).prop_map(|(shard, types)| Step::Catalog(shard, types)),
        8 => (shard(), of_type(), prop::bool::weighted(0.3))
            .prop_map(|(shard, of_type, new_source)| Step::Begin { shard, of_type, new_source }),
        14 => (shard(), of_type(), 1..6_usize)
            .prop_map(|(shard, of_type, count)| Step::Frames { shard, of_type, count }),
        4 => (shard(), of_type(), 0..4_u8)
            .prop_map(|(shard, of_type, object)| Step::Change { shard, of_type, object }),
        1 => shard().prop_map(Step::Release),
        2 => any::<u8>().prop_map(Step::Other),
        14 => any::<bool>().prop_map(|everything| Step::Write { everything }),
        16 => (which(), 1..5_usize).prop_map(|(which, count)| Step::Read(which, count)),
        6 => which().prop_map(Step::Bookmark),
        2 => Just(Step::Restart),
        1 => Just(Step::Backup),
        1 => Just(Step::Restore),
    ]
}

/// A schedule of at most so many steps. Most begin as a server does that is told its roster.
pub(super) fn script(steps: usize) -> impl Strategy<Value = Vec<Step>> {
    let seed = prop::option::weighted(0.8, (1..8_u8).prop_map(Step::Seed));
    (seed, prop::collection::vec(step(), 20..steps))
        .prop_map(|(seed, steps)| seed.into_iter().chain(steps).collect())
}
