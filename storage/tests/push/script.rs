//! Random schedules: what happens to a source, its two pushers, their connections and the store.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::source::NAMES;

/// Which holder a pusher wants to take the place of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Replaces {
    Nobody,
    /// The one there is.
    Current,
    /// The one before: too late.
    Former,
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Write(usize),
    Delete(usize),
    Recreate(usize),
    /// The source's version moves, the cell does not.
    Bump,
    BackUp,
    /// The source is put back to its backup.
    Restore,
    /// The source is put back to its backup and goes on, past where it was, before anybody looks.
    RestoreAndAdvance(usize),
    /// The source gets another identity and counts anew.
    ChangeIdentity,
    /// A pusher wins the election at the source.
    Elect(usize),
    /// The election is held anew under another identity; terms begin at 0.
    NewLease,
    /// A pusher claims the shard and, if it may, begins a session.
    Connect {
        pusher: usize,
        replaces: Replaces,
    },
    ReplaceProcess(usize),
    List(usize),
    Follow {
        pusher: usize,
        events: usize,
    },
    Progress(usize),
    /// So many frames arrive, so many in a request; the requests wait for the writer together.
    Deliver {
        pusher: usize,
        frames: usize,
        chunk: usize,
    },
    /// A pusher says which types it pushes: those whose bits these are.
    Catalog {
        pusher: usize,
        types: usize,
    },
    /// Frames arrive, another pusher takes over, the first one's next frames and its catalog arrive: all
    /// at once.
    Race {
        pusher: usize,
        frames: usize,
        types: usize,
    },
    Cut(usize),
    /// Frames of a connection that was cut arrive.
    Late {
        pusher: usize,
        which: usize,
    },
    /// An ordinary write: to the cell, or to another one of the shard.
    Rest {
        name: usize,
        other: bool,
        delete: bool,
    },
    /// An administrator gives the cell, or the shard, back to ordinary writers.
    Release {
        shard: bool,
    },
    Restart,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let (name, pusher, types) = (0..NAMES.len(), 0..2_usize, 0..8_usize);
    let replaces = prop_oneof![
        2 => Just(Replaces::Nobody),
        6 => Just(Replaces::Current),
        1 => Just(Replaces::Former),
    ];
    let source = prop_oneof![
        10 => name.clone().prop_map(Step::Write),
        5 => name.clone().prop_map(Step::Delete),
        3 => name.clone().prop_map(Step::Recreate),
        2 => Just(Step::Bump),
        2 => Just(Step::BackUp),
        2 => Just(Step::Restore),
        3 => name.clone().prop_map(Step::RestoreAndAdvance),
        1 => Just(Step::ChangeIdentity),
        4 => pusher.clone().prop_map(Step::Elect),
        1 => Just(Step::NewLease),
    ];
    let pushing = prop_oneof![
        9 => (pusher.clone(), replaces).prop_map(|(pusher, replaces)| Step::Connect { pusher, replaces }),
        1 => pusher.clone().prop_map(Step::ReplaceProcess),
        8 => pusher.clone().prop_map(Step::List),
        8 => (pusher.clone(), 1..6_usize).prop_map(|(pusher, events)| Step::Follow { pusher, events }),
        5 => pusher.clone().prop_map(Step::Progress),
        18 => (pusher.clone(), 1..12_usize, 1..6_usize)
            .prop_map(|(pusher, frames, chunk)| Step::Deliver { pusher, frames, chunk }),
        4 => (pusher.clone(), types.clone()).prop_map(|(pusher, types)| Step::Catalog { pusher, types }),
        2 => (pusher.clone(), 1..5_usize, types)
            .prop_map(|(pusher, frames, types)| Step::Race { pusher, frames, types }),
        2 => pusher.clone().prop_map(Step::Cut),
        4 => (pusher, any::<u8>()).prop_map(|(pusher, which)| Step::Late { pusher, which: which.into() }),
    ];
    let others = prop_oneof![
        6 => (name, any::<bool>(), any::<bool>())
            .prop_map(|(name, other, delete)| Step::Rest { name, other, delete }),
        1 => any::<bool>().prop_map(|shard| Step::Release { shard }),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ];
    prop_oneof![3 => source, 6 => pushing, 1 => others]
}

/// A schedule of at most `steps` steps.
pub(crate) fn script(steps: usize) -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..steps)
}
