use super::*;
use crate::freshness::confirmation::Confirmation;

fn standing(synced: Synced, contact: Contact, age: Option<u64>) -> (Condition, Option<u64>) {
    let now = Instant::after_boot(Duration::from_secs(1_000));
    let confirmed = age.map(|age| now.before(Duration::from_secs(age)));
    let shown = Shown { confirmed, contact, evidence: None };
    let standing = Standing::judge(synced, &shown, now, &FreshnessConfig::default());
    (standing.condition, standing.age.map(|age| age.as_secs()))
}

fn lost(seconds: u64) -> Contact {
    Contact::Lost(Duration::from_secs(seconds))
}

/// D40's table, row by row, over every combination that is reachable.
#[test]
fn d40_every_state_follows_from_its_condition() {
    const COMPLETE: Synced = Synced::Once { complete: true };
    const BETWEEN: Synced = Synced::Once { complete: false };
    use Condition::*;
    for (synced, contact, age, expected) in [
        (Synced::NotPushed, Contact::Never, None, (Unmanaged, None)),
        (Synced::NotPushed, lost(1), Some(1), (Unmanaged, None)),
        (Synced::NotPushed, Contact::Open, None, (NeverSynced, None)),
        (Synced::Never, Contact::Never, None, (NeverSynced, None)),
        (Synced::Never, Contact::Open, None, (NeverSynced, None)),
        (Synced::Never, lost(100), None, (NeverSynced, None)),
        (COMPLETE, Contact::Never, None, (Restored, None)),
        (BETWEEN, Contact::Never, None, (Restored, None)),
        (BETWEEN, Contact::Open, Some(1), (Syncing, None)),
        (BETWEEN, lost(15), Some(1), (Syncing, None)),
        (BETWEEN, lost(16), Some(1), (Disconnected, None)),
        (COMPLETE, Contact::Open, Some(0), (Live, Some(0))),
        (COMPLETE, Contact::Open, Some(90), (Live, Some(90))),
        (COMPLETE, Contact::Open, Some(91), (Lagging, Some(91))),
        (COMPLETE, Contact::Open, None, (Lagging, None)),
        (COMPLETE, lost(15), Some(20), (Live, Some(20))),
        (COMPLETE, lost(15), Some(91), (Lagging, Some(91))),
        (COMPLETE, lost(16), Some(20), (Disconnected, Some(20))),
    ] {
        assert_eq!(standing(synced, contact, age), expected, "{synced:?} {contact:?} {age:?}");
    }
}

/// What can happen to a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happens {
    /// A stream begins, whose position holds if a sync has ended and none was broken off.
    Connect,
    Disconnect,
    /// A list begins.
    SyncStart,
    SyncEnd,
    /// Somebody asks, and the pusher answers.
    Confirm,
    /// The server ends and is opened again.
    Restart,
    /// So many seconds pass.
    Pass(u64),
}

const EVERYTHING: [Happens; 8] = [
    Happens::Connect,
    Happens::Disconnect,
    Happens::SyncStart,
    Happens::SyncEnd,
    Happens::Confirm,
    Happens::Restart,
    Happens::Pass(10),
    Happens::Pass(100),
];

/// A cell as store and server have it, and the history that led there.
#[derive(Clone)]
struct World {
    cell: Confirmation,
    synced: Synced,
    stream: u64,
    now: u64,
    history: Vec<(u64, Happens)>,
}

impl World {
    fn at(&self) -> Instant {
        Instant::after_boot(Duration::from_secs(1_000 + self.now))
    }

    fn is_open(&self) -> bool {
        self.cell.contact(self.at()) == Contact::Open
    }

    /// `None` where that cannot happen.
    fn after(&self, step: Happens) -> Option<Self> {
        let mut next = self.clone();
        let now = self.at();
        match step {
            Happens::Connect => {
                next.stream += 1;
                next.cell.open(next.stream);
            }
            Happens::Disconnect if self.is_open() => next.cell.close(self.stream, now),
            Happens::SyncStart if self.is_open() => {
                if let Synced::Once { complete } = &mut next.synced {
                    *complete = false;
                    next.cell.doubt();
                }
            }
            Happens::SyncEnd if self.is_open() && self.synced != (Synced::Once { complete: true }) => {
                next.synced = Synced::Once { complete: true };
            }
            Happens::Confirm if self.is_open() && self.synced == (Synced::Once { complete: true }) => {
                next.cell.want(now);
                if let Some(id) = next.cell.begin(self.stream, now, Duration::from_secs(10)) {
                    next.cell.answered(self.stream, id);
                }
            }
            Happens::Restart => next.cell = Confirmation::default(),
            Happens::Pass(seconds) => next.now += seconds,
            _ => return None,
        }
        next.history.push((next.now, step));
        Some(next)
    }

    /// D40's table, read from the history alone.
    fn expected(&self) -> Condition {
        let since = |what: &dyn Fn(Happens) -> bool| self.history.iter().rposition(|(_, step)| what(*step));
        let restarted = since(&|step| step == Happens::Restart).map_or(0, |at| at + 1);
        let lately = &self.history[restarted..];
        let Some(connected) = lately.iter().rposition(|(_, step)| *step == Happens::Connect) else {
            return if self.synced == Synced::Never { Condition::NeverSynced } else { Condition::Restored };
        };
        let ended = lately.iter().rposition(|(_, step)| *step == Happens::Disconnect);
        let away = ended.filter(|ended| *ended > connected).map(|ended| self.now - lately[ended].0);
        let listing = since(&|step| step == Happens::SyncStart);
        let listed = since(&|step| step == Happens::SyncEnd);
        let Some(listed) = listed else { return Condition::NeverSynced };
        if away.is_some_and(|away| away > 15) {
            return Condition::Disconnected;
        }
        if listing.is_some_and(|listing| listing > listed) {
            return Condition::Syncing;
        }
        // A list that has begun since a confirmation takes it back.
        let confirmed = lately.iter().rposition(|(_, step)| *step == Happens::Confirm);
        let confirmed = confirmed.filter(|at| listing.is_none_or(|listing| listing < restarted + at));
        match confirmed {
            Some(at) if self.now - lately[at].0 <= 90 => Condition::Live,
            _ => Condition::Lagging,
        }
    }
}

/// Every history of up to six steps: the machine says what D40's table says, and a read that asks for the
/// source is only served from what was confirmed after it came.
#[test]
fn d40_the_table_holds_in_every_state_that_can_be_reached() {
    let start =
        World { cell: Confirmation::default(), synced: Synced::Never, stream: 0, now: 0, history: vec![] };
    let mut worlds = vec![start];
    let mut reached = std::collections::HashSet::new();
    for _ in 0..6 {
        let next = worlds.iter().flat_map(|world| EVERYTHING.iter().filter_map(|step| world.after(*step)));
        worlds = next.collect();
        for world in &worlds {
            let now = world.at();
            let shown =
                Shown { confirmed: world.cell.confirmed(), contact: world.cell.contact(now), evidence: None };
            let standing = Standing::judge(world.synced, &shown, now, &FreshnessConfig::default());
            assert_eq!(standing.condition, world.expected(), "{:?}", world.history);
            reached.insert(standing.condition);
            // Who comes now is not served by what was confirmed before, unless no time has passed since.
            let is_served =
                shown.confirmed.is_some_and(|confirmed| confirmed >= now) && standing.age.is_some();
            let just_now =
                world.history.iter().any(|(at, step)| *at == world.now && *step == Happens::Confirm);
            assert!(!is_served || just_now, "{:?}", world.history);
        }
    }
    assert_eq!(reached.len(), 6, "every state but Unmanaged: {reached:?}");
}
