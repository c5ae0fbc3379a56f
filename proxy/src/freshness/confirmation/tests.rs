use proptest::prelude::*;

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

fn at(seconds: u64) -> Instant {
    Instant::after_boot(Duration::from_secs(seconds))
}

#[test]
fn d38_a_barrier_that_runs_proves_nothing_to_who_comes_later() {
    let mut cell = Confirmation::default();
    cell.open(1);
    cell.want(at(10));
    assert_eq!(cell.begin(1, at(10), PATIENCE), Some(1));
    cell.want(at(11));
    assert_eq!(cell.begin(1, at(11), PATIENCE), None, "one runs");
    cell.answered(1, 1);
    assert_eq!(cell.confirmed(), Some(at(10)));
    assert_eq!(cell.begin(1, at(12), PATIENCE), Some(2), "one waited");
    cell.want(at(12));
    cell.answered(1, 2);
    assert_eq!((cell.confirmed(), cell.begin(1, at(13), PATIENCE)), (Some(at(12)), None));
}

#[test]
fn d38_one_that_is_never_answered_is_tried_again() {
    let mut cell = Confirmation::default();
    cell.open(1);
    cell.want(at(10));
    assert_eq!(cell.begin(1, at(10), PATIENCE), Some(1));
    assert_eq!(cell.begin(1, at(19), PATIENCE), None);
    assert_eq!(cell.begin(1, at(20), PATIENCE), Some(2));
    cell.answered(1, 1);
    assert_eq!(cell.confirmed(), None, "too late");
    cell.answered(1, 2);
    assert_eq!(cell.confirmed(), Some(at(20)));
}

#[test]
fn answers_of_other_streams_do_not_count() {
    let mut cell = Confirmation::default();
    cell.open(1);
    cell.want(at(10));
    cell.begin(1, at(10), PATIENCE);
    cell.open(2);
    assert_eq!(cell.begin(1, at(11), PATIENCE), None, "the first stream is over");
    assert_eq!(cell.begin(2, at(11), PATIENCE), Some(1));
    cell.answered(1, 1);
    assert_eq!(cell.confirmed(), None);
    cell.close(1, at(12));
    assert_eq!(cell.contact(at(12)), Contact::Open);
    cell.close(2, at(12));
    assert_eq!(cell.contact(at(15)), Contact::Lost(Duration::from_secs(3)));
}

/// What happens around a cell, in the order of time.
#[derive(Clone, Copy, Debug)]
enum Happens {
    /// The source completes a write.
    Write,
    /// The pusher's watch delivers the oldest write that is still on its way.
    Deliver,
    /// A reader comes.
    Want,
    /// The stream's task gets its turn.
    Turn,
    /// The pusher reads the source's head, for the barrier it has heard of.
    ReadHead,
    /// It answers, if it has sent everything up to that head.
    Answer,
    /// The stream breaks and begins again; what is on its way is delivered to the new one.
    Reconnect,
    /// The copy is found to be wrong, and lacks the last write until that is delivered again.
    Doubt,
}

fn happens() -> impl Strategy<Value = Happens> {
    use Happens::*;
    prop_oneof![
        4 => Just(Write), 4 => Just(Deliver), 3 => Just(Want), 4 => Just(Turn), 4 => Just(ReadHead),
        4 => Just(Answer), 1 => Just(Reconnect), 1 => Just(Doubt),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// D39: for every schedule, what is confirmed is in the cache. The source's history is the list of
    /// completion times; the cache has a prefix of it.
    #[test]
    fn d39_everything_before_the_confirmed_instant_is_in_the_cache(
        schedule in proptest::collection::vec(happens(), 1..80)
    ) {
        let mut cell = Confirmation::default();
        let (mut completed, mut delivered) = (Vec::new(), 0_usize);
        let (mut stream, mut asked, mut head) = (1, None, None);
        cell.open(stream);
        let (mut now, mut barriers, mut wants) = (0, 0, 0);
        for step in schedule {
            now += 1;
            match step {
                Happens::Write => completed.push(now),
                Happens::Deliver => delivered = completed.len().min(delivered + 1),
                Happens::Want => { wants += 1; cell.want(at(now)); }
                Happens::Turn => if let Some(id) = cell.begin(stream, at(now), PATIENCE) {
                    barriers += 1;
                    asked = Some(id);
                    head = None;
                },
                Happens::ReadHead => if let Some(id) = asked { head = Some((id, completed.len())); },
                Happens::Answer => if let Some((id, version)) = head && delivered >= version {
                    cell.answered(stream, id);
                    (asked, head) = (None, None);
                },
                Happens::Reconnect => {
                    cell.close(stream, at(now));
                    stream += 1;
                    cell.open(stream);
                    (asked, head) = (None, None);
                }
                Happens::Doubt => {
                    delivered = delivered.saturating_sub(1);
                    cell.doubt();
                    (asked, head) = (None, None);
                }
            }
            if let Some(confirmed) = cell.confirmed() {
                let owed = completed.iter().filter(|time| at(**time) < confirmed).count();
                prop_assert!(delivered >= owed, "{owed} writes before {confirmed:?}, {delivered} are here");
            }
            prop_assert!(barriers <= 2 * wants + 1 + now as usize / 10, "{barriers} barriers for {wants} readers");
        }
    }
}
