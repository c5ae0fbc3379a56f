//! Random schedules: what operators say, and what shards' pushers do.

use proptest::collection::vec;
use proptest::prelude::*;

/// Names there can be.
pub(crate) const SHARDS: [&str; 4] = ["amber", "beryl", "coral", "dusk"];
/// Number of types there can be.
pub(crate) const TYPES: usize = 3;

/// One thing that happens. Sets are bits.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Seed(u8),
    Expect(usize),
    Excuse(usize),
    Forget(usize),
    /// A pusher claims a shard; another process may take over from the first, or be held off.
    Attach {
        shard: usize,
        other: bool,
        takes_over: bool,
    },
    Catalog {
        shard: usize,
        types: u8,
        /// By a holder that was replaced.
        late: bool,
    },
    SyncStart {
        shard: usize,
        of: usize,
    },
    SyncEnd {
        shard: usize,
        of: usize,
        /// The list is not what was sent.
        wrong: bool,
    },
    Release {
        shard: usize,
        of: Option<usize>,
    },
    /// An ordinary write.
    Rest {
        shard: usize,
        of: usize,
        delete: bool,
    },
    /// What was asked for is waited for, and looked at.
    Look,
    Restart,
    Crash,
    /// The store is lost, and begins anew.
    Lose,
}

fn step() -> impl Strategy<Value = Step> {
    let (shard, of) = (0..SHARDS.len(), 0..TYPES);
    let operator = prop_oneof![
        3 => (0..16_u8).prop_map(Step::Seed),
        1 => shard.clone().prop_map(Step::Expect),
        2 => shard.clone().prop_map(Step::Excuse),
        2 => shard.clone().prop_map(Step::Forget),
    ];
    let pusher = prop_oneof![
        6 => (shard.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(shard, other, takes_over)| Step::Attach { shard, other, takes_over }),
        6 => (shard.clone(), 0..8_u8, prop::bool::weighted(0.1))
            .prop_map(|(shard, types, late)| Step::Catalog { shard, types, late }),
        12 => (shard.clone(), of.clone()).prop_map(|(shard, of)| Step::SyncStart { shard, of }),
        16 => (shard.clone(), of.clone(), prop::bool::weighted(0.1))
            .prop_map(|(shard, of, wrong)| Step::SyncEnd { shard, of, wrong }),
    ];
    let others = prop_oneof![
        2 => (shard.clone(), prop::option::of(of.clone()))
            .prop_map(|(shard, of)| Step::Release { shard, of }),
        3 => (shard, of, any::<bool>()).prop_map(|(shard, of, delete)| Step::Rest { shard, of, delete }),
        8 => Just(Step::Look),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
        1 => Just(Step::Lose),
    ];
    prop_oneof![2 => operator, 8 => pusher, 3 => others]
}

/// A schedule of at most `steps` steps; most begin with a seed, as a server does.
pub(crate) fn script(steps: usize) -> impl Strategy<Value = Vec<Step>> {
    let seed = prop::option::weighted(0.7, (0..16_u8).prop_map(Step::Seed));
    (seed, vec(step(), 1..steps)).prop_map(|(seed, steps)| seed.into_iter().chain(steps).collect())
}
