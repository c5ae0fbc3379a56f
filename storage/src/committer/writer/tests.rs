//! The writer, stepped by hand over a log that fails on demand.

use futures::FutureExt;
use tokio::sync::oneshot;

use super::*;
use crate::change::{Action, Change, Guard};
use crate::key::Key;
use crate::object::tests::draft_of;
use crate::resource_version::ResourceVersion;

/// What happened, in order, as the log and the subscriber saw it.
type Trace = Arc<std::sync::Mutex<Vec<String>>>;

#[derive(Default)]
struct FakeLog {
    trace: Trace,
    next: Vec<Result<(), Failure>>,
    /// What a recovery finds to be durable after all.
    durable: Option<(Vec<Arc<Event>>, State)>,
    recovers: bool,
}

impl Log for FakeLog {
    fn type_id(&mut self, _: &TypeName) -> u32 {
        1
    }

    fn append(&mut self, events: &[Arc<Event>], _: &Touched, state: &mut State) -> Result<(), Failure> {
        self.trace.lock().expect("trace").push(format!("append {}", events.len()));
        let result = self.next.pop().unwrap_or(Ok(()));
        if result.is_err() {
            self.durable = Some((events.to_vec(), state.clone()));
        }
        result
    }

    fn compact(&mut self, _: &TypeName, _: Revision, _: &mut State) -> Result<(), Failure> {
        Ok(())
    }

    fn maintain(&mut self, _: &mut State) -> Result<bool, Failure> {
        Ok(false)
    }

    fn pause(&mut self) -> Option<Duration> {
        None
    }

    fn recover(&mut self, state: &mut State) -> Result<Vec<Arc<Event>>, Failure> {
        if !self.recovers {
            return Err(Failure::DiskFull);
        }
        let (events, durable) = self.durable.take().unwrap_or_else(|| (Vec::new(), state.clone()));
        *state = durable;
        Ok(events)
    }

    fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

fn writer(log: FakeLog) -> Writer<FakeLog> {
    let tag = Tag::new(5).expect("legal");
    let state = State::empty(ResourceVersion::new(Revision(1_790_000_000_000 << 11), tag));
    Writer::new(log, tag, Arc::new(Publisher::new(state)), Metrics::default())
}

fn request(name: &str) -> (Request, oneshot::Receiver<Result<Receipt, StorageError>>) {
    let key = Key::new("amber", "root", "", name).expect("legal");
    let action = Action::Put(draft_of(&key, ""));
    let guard = Guard { exists: Some(false), ..Guard::default() };
    let change = Change { type_name: TypeName::new("", "things"), key, guard, action };
    let (reply, answer) = oneshot::channel();
    (Request::Changes(vec![change], reply), answer)
}

#[test]
fn i1_d12_durable_then_published_then_acknowledged() {
    let trace = Trace::default();
    let mut writer = writer(FakeLog { trace: Arc::clone(&trace), ..FakeLog::default() });
    let mut following = writer.publisher.subscribe();
    let ((one, first), (two, second), (again, third)) = (request("a"), request("b"), request("a"));
    writer.step(Job::Commit(vec![one, two, again]));
    assert_eq!(*trace.lock().expect("trace"), ["append 2"], "one transaction for all that waited");
    let commit = following.commits.try_recv().expect("published");
    assert_eq!(commit.events.len(), 2);
    let heads: Vec<_> = [first, second]
        .into_iter()
        .map(|answer| {
            let receipt = answer.now_or_never().expect("answered").expect("sent").expect("written");
            receipt.into_iter().next().expect("one change").expect("applied").head
        })
        .collect();
    assert_eq!(heads, [commit.state.head(); 2]);
    let refused = third.now_or_never().expect("answered").expect("sent").expect("judged");
    assert!(refused[0].is_err(), "a failed guard fails alone");
}

#[test]
fn d14_a_failed_write_is_neither_published_nor_acknowledged() {
    for (failure, health) in [
        (Failure::DiskFull, Health::DiskFull),
        (Failure::Fatal("sync".to_owned()), Health::ReadOnly("sync".to_owned())),
    ] {
        let mut writer = writer(FakeLog { next: vec![Err(failure)], ..FakeLog::default() });
        let mut following = writer.publisher.subscribe();
        let (one, answer) = request("a");
        writer.step(Job::Commit(vec![one]));
        assert!(answer.now_or_never().expect("answered").expect("sent").is_err());
        assert!(following.commits.try_recv().is_err());
        assert_eq!(writer.publisher.health(), health);
        let (two, answer) = request("b");
        writer.step(Job::Commit(vec![two]));
        assert!(answer.now_or_never().expect("answered").expect("sent").is_err(), "and it stays so");
        assert_eq!(writer.publisher.state().head(), following.state.head());
    }
}

#[test]
fn c4_a_failed_batch_that_reached_the_disk_is_adopted_and_published() {
    let log = FakeLog { next: vec![Err(Failure::DiskFull)], recovers: true, ..FakeLog::default() };
    let mut writer = writer(log);
    let mut following = writer.publisher.subscribe();
    let (one, answer) = request("a");
    writer.step(Job::Commit(vec![one]));
    assert!(matches!(answer.now_or_never(), Some(Ok(Err(StorageError::DiskFull)))));
    // The next commit finds space, and before it what was durable all along.
    let (again, answer) = request("a");
    writer.step(Job::Commit(vec![again]));
    let receipt = answer.now_or_never().expect("answered").expect("sent").expect("it writes again");
    assert!(receipt[0].is_err(), "the object exists already: the retry is a conflict");
    let commit = following.commits.try_recv().expect("the adopted batch is published");
    assert_eq!(commit.events.len(), 1);
    assert_eq!(commit.state.len(), 1);
    assert_eq!(writer.publisher.health(), Health::Writable);
}

#[test]
fn an_idle_writer_on_a_full_disk_tries_less_and_less_often() {
    let mut writer = writer(FakeLog { next: vec![Err(Failure::DiskFull)], ..FakeLog::default() });
    let (one, _answer) = request("a");
    writer.step(Job::Commit(vec![one]));
    let mut pauses = Vec::new();
    for _ in 0..10 {
        pauses.push(writer.pause().expect("it tries again"));
        writer.maintain();
    }
    assert!(pauses.is_sorted() && pauses[0] == RETRY_MIN && pauses[9] == RETRY_MAX, "{pauses:?}");
    writer.log.recovers = true;
    writer.maintain();
    assert_eq!(writer.publisher.health(), Health::Writable);
    assert_eq!(writer.pause(), None);
}
