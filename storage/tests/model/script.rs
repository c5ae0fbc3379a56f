//! Random scripts: what is done to the stores of a world, in terms that survive shrinking (an index
//! means "that one, modulo how many there are").

use proptest::collection::vec;
use proptest::prelude::*;

use crate::machine::Content;

/// One thing done to the world.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A batch of writes; `abandoned`: nobody waits for the answer.
    Write { store: usize, batch: Vec<Wish>, abandoned: bool },
    /// Reading a type's log in pages of these bounds, from a point of its history (0 the beginning,
    /// 255 the head).
    Read { store: usize, kind: usize, after: u8, up_to: u8, events: usize, bytes: usize },
    /// Following the store from now on.
    Subscribe { store: usize },
    /// Forgetting a type's history up to a point of it (0 the beginning, 255 the head).
    Compact { store: usize, kind: usize, to: u8 },
    /// Closing and opening again.
    Restart { store: usize },
    /// Losing the process.
    Crash { store: usize },
    /// Copying the running store.
    Backup { store: usize },
    /// Putting a backup in the store's place.
    Restore { store: usize, backup: usize },
    /// Starting over with an empty volume.
    Wipe { store: usize },
    /// Copying the closed volume; both go on.
    Clone { store: usize },
    /// Turning the clock, in a world where clocks jump.
    Clock { at: usize },
}

/// A write that refers to what is there when it comes to it.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) kind: usize,
    pub(crate) place: usize,
    pub(crate) exists: Option<bool>,
    pub(crate) uid: Option<Which>,
    pub(crate) version: Option<Which>,
    pub(crate) content: Option<Content>,
}

/// Which uid or version a guard names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// The one the object has.
    Held,
    /// One that something had, somewhere in the world.
    Some(usize),
}

pub(crate) const UIDS: [&str; 4] = ["", "uid-1", "uid-2", "uid-3"];

fn content() -> impl Strategy<Value = Content> {
    (0..UIDS.len(), prop::option::of(0..3_u8), 0..40_u32).prop_map(|(uid, label, payload)| Content {
        uid: UIDS[uid],
        label,
        payload,
    })
}

fn which() -> impl Strategy<Value = Option<Which>> {
    prop_oneof![
        6 => Just(None),
        2 => Just(Some(Which::Held)),
        1 => any::<u8>().prop_map(|index| Some(Which::Some(index.into()))),
    ]
}

fn wish() -> impl Strategy<Value = Wish> {
    let exists = prop_oneof![4 => Just(None), 1 => Just(Some(false)), 1 => Just(Some(true))];
    let content = prop_oneof![3 => content().prop_map(Some), 1 => Just(None)];
    (0..3_usize, 0..8_usize, exists, which(), which(), content).prop_map(
        |(kind, place, exists, uid, version, content)| Wish { kind, place, exists, uid, version, content },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let store = 0..3_usize;
    let write = (store.clone(), vec(wish(), 0..8), prop::bool::weighted(0.1));
    let read = (store.clone(), 0..3_usize, any::<u8>(), any::<u8>(), 1..6_usize, 1..8000_usize);
    prop_oneof![
        40 => write.prop_map(|(store, batch, abandoned)| Step::Write { store, batch, abandoned }),
        10 => read.prop_map(|(store, kind, after, up_to, events, bytes)| {
            Step::Read { store, kind, after, up_to, events, bytes }
        }),
        4 => store.clone().prop_map(|store| Step::Subscribe { store }),
        4 => (store.clone(), 0..3_usize, any::<u8>())
            .prop_map(|(store, kind, to)| Step::Compact { store, kind, to }),
        4 => store.clone().prop_map(|store| Step::Restart { store }),
        4 => store.clone().prop_map(|store| Step::Crash { store }),
        3 => store.clone().prop_map(|store| Step::Backup { store }),
        2 => (store.clone(), any::<u8>())
            .prop_map(|(store, backup)| Step::Restore { store, backup: backup.into() }),
        1 => store.clone().prop_map(|store| Step::Wipe { store }),
        2 => store.prop_map(|store| Step::Clone { store }),
        2 => (0..8_usize).prop_map(|at| Step::Clock { at }),
    ]
}

/// A script of at most `steps` steps.
pub(crate) fn script(steps: usize) -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..steps)
}
