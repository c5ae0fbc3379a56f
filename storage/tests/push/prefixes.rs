//! D31: one recorded session, cut after every prefix of its frames, in every way a session can end.

use shardcache_storage::Op;

use crate::script::{Replaces, Step};
use crate::world::{Engine, World};
use crate::{Memory, Redb};

/// How a session ends before its time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Cut,
    /// Another pusher takes over.
    Takeover,
    Restart,
    Crash,
}

/// What the cell is when the session begins.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// Nobody has pushed; ordinary writers have written.
    Unmanaged,
    /// An earlier session has synced it.
    Synced,
    /// As before, and then the source was restored.
    Restored,
    /// The source was restored and went on past the position.
    Advanced,
}

const WHOLE: Step = Step::Deliver { pusher: 0, frames: usize::MAX, chunk: 3 };
const CONNECT: Step = Step::Connect { pusher: 0, replaces: Replaces::Current };

fn rest(name: usize) -> Step {
    Step::Rest { name, other: false, delete: false }
}

/// Brings a world to where the session begins.
fn prepare<E: Engine>(before: Before) -> World<E> {
    let mut world = World::new();
    let sync = [CONNECT, Step::List(0), WHOLE, Step::Cut(0)];
    let steps = match before {
        Before::Unmanaged => vec![rest(0), rest(4), Step::Write(0), Step::Write(1), Step::Write(2)],
        Before::Synced => {
            let mut steps = vec![Step::Write(0), Step::Write(1), Step::Write(2), Step::Write(4)];
            steps.extend(sync);
            steps.extend([Step::Delete(1), Step::Recreate(2), Step::Write(3)]);
            steps
        }
        Before::Restored | Before::Advanced => {
            let mut steps =
                vec![Step::Write(0), Step::Write(1), Step::BackUp, Step::Write(2), Step::Write(3)];
            steps.extend([Step::Write(0), Step::Delete(1)]);
            steps.extend(sync);
            match before {
                Before::Advanced => steps.push(Step::RestoreAndAdvance(1)),
                _ => steps.extend([Step::Restore, Step::Write(4), Step::Write(1)]),
            }
            steps
        }
    };
    for step in &steps {
        world.step(step);
    }
    world
}

/// Sends a session: a list, what follows, progress, and a second list in the middle.
fn record<E: Engine>(world: &mut World<E>) -> Vec<Op> {
    let follow = Step::Follow { pusher: 0, events: 9 };
    let steps = [
        CONNECT,
        Step::List(0),
        Step::Write(0),
        Step::Delete(2),
        Step::Write(4),
        follow.clone(),
        Step::Progress(0),
        Step::Recreate(0),
        Step::Bump,
        follow.clone(),
        Step::Progress(0),
        Step::Delete(4),
        Step::List(0),
        Step::Write(2),
        Step::Recreate(2),
        follow,
        Step::Bump,
        Step::Progress(0),
    ];
    for step in &steps {
        world.step(step);
    }
    world.queued(0)
}

fn cut_everywhere<E: Engine>(before: Before, ending: Ending, again: bool) -> usize {
    let mut length = 0;
    for prefix in 0.. {
        let mut world = prepare::<E>(before);
        let ops = record(&mut world);
        length = ops.len();
        if prefix > length {
            break;
        }
        world.step(&Step::Deliver { pusher: 0, frames: prefix, chunk: 1 });
        match ending {
            Ending::Cut | Ending::Takeover => world.step(&Step::Cut(0)),
            Ending::Restart => world.step(&Step::Restart),
            Ending::Crash => world.step(&Step::Crash),
        }
        let pusher = usize::from(ending == Ending::Takeover);
        world.step(&Step::Connect { pusher, replaces: Replaces::Current });
        if again {
            world.send(pusher, whole_again(&world, pusher, &ops, prefix));
        }
        world.settle_as(pusher);
        // What the cut left behind arrives after all.
        world.step(&Step::Late { pusher: 0, which: 0 });
        world.equals_source();
    }
    length
}

/// The whole session once more, as far as the rules let it be sent: no list that had ended before the cut,
/// no progress of the past, and nothing before a list where one is needed.
fn whole_again<E: Engine>(world: &World<E>, pusher: usize, ops: &[Op], prefix: usize) -> Vec<Op> {
    let (needs_sync, position) = world.stands(pusher);
    let had_ended = |number: u64| {
        let is_its_end = |op: &Op| matches!(op, Op::SyncEnd { sync, .. } if *sync == number);
        ops[..prefix].iter().any(is_its_end)
    };
    let may_be_sent = |op: &&Op| match op {
        Op::SyncStart { sync } | Op::SyncEnd { sync, .. } => !had_ended(*sync),
        Op::Progress { version, .. } => *version >= position,
        Op::Upsert { .. } | Op::Delete { .. } => true,
    };
    let begins = |op: &Op| !needs_sync || matches!(op, Op::SyncStart { .. });
    ops.iter().filter(may_be_sent).skip_while(|op| !begins(op)).cloned().collect()
}

/// `again`: what is sent afterwards is the whole session (D34), or only what follows the position.
fn all<E: Engine>(endings: &[Ending], again: &[bool]) {
    for before in [Before::Unmanaged, Before::Synced, Before::Restored, Before::Advanced] {
        for ending in endings {
            for again in again {
                let frames = cut_everywhere::<E>(before, *ending, *again);
                assert!(frames > 15, "{frames} frames are no session worth cutting");
            }
        }
    }
}

#[test]
fn d31_a_session_cut_after_any_prefix_leads_to_the_source() {
    all::<Memory>(&[Ending::Cut, Ending::Takeover], &[false, true]);
}

#[test]
fn d31_a_session_cut_after_any_prefix_leads_to_the_source_on_disk() {
    all::<Redb>(&[Ending::Restart, Ending::Crash], &[false]);
}
