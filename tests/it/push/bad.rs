//! Bad input: the error frame, the cell that keeps its last good content, the other streams that go on,
//! and the metric that counts it.

use std::time::Duration;

use serde_json::{Value, json};
use shardcache_proxy::metrics::labels::PushEnd;
use shardcache_proxy::push::PushConfig;
use shardcache_proxy::service::ApiConfig;

use super::pusher::{Door, Pusher, ends, held, served};
use super::source::Source;
use crate::stand::{Setting, Stand};

/// What is sent to a stream that follows.
enum Sent {
    Frames(Vec<Value>),
    /// A line, made of the number that is next.
    Line(fn(u64) -> String),
}

/// One kind of bad input: what it is, what is sent, and the code and the text that answer it.
type Case = (&'static str, Sent, u64, &'static str);

/// A server, a cell that is to be mistreated, and another stream of the same shard.
struct Bench {
    _directory: tempfile::TempDir,
    stand: Stand,
    door: Door,
    source: Source,
    other: (Source, Pusher),
}

impl Bench {
    async fn new(setting: &Setting) -> (Self, Pusher) {
        let directory = tempfile::tempdir().expect("a directory");
        let stand = Stand::open(directory.path(), setting).await;
        let door = Door::http2(&stand).await;
        let source = Source::widgets("amber").with(&["a", "b"]);
        let exports = Source::exports("amber").with(&["x"]);
        let pusher = door.synced(&source, "i1").await;
        let other = door.synced(&exports, "i1").await;
        (Self { _directory: directory, stand, door, source, other: (exports, other) }, pusher)
    }

    /// The stream has ended with an error that was counted; the cell has what it had; the other stream
    /// goes on; and a new stream is served.
    async fn unharmed(&mut self, what: &str, counted: u64, reason: PushEnd) {
        assert_eq!(ends(&self.stand, reason), counted, "{what}: {reason:?}");
        let (exports, other) = &mut self.other;
        other.send(exports.put("y", &what.replace(|c: char| !c.is_ascii_alphanumeric(), "-")));
        let ack = other.settled().await;
        let wire = self.stand.wire();
        assert_eq!(served(&wire, exports, &ack).await, held(exports), "{what}");
        assert_eq!(served(&wire, &self.source, &ack).await, held(&self.source), "{what}");
    }

    /// A new stream that follows, after a sync where one is needed.
    async fn again(&self) -> Pusher {
        let (mut pusher, welcome) = self.door.cell(&self.source, "i1").await;
        if welcome["needSync"] == true {
            pusher.send_all(self.source.sync(9));
            pusher.settled().await;
        }
        pusher
    }

    async fn end(self) {
        let Self { stand, door, other, .. } = self;
        drop((door, other));
        stand.close().await;
    }
}

fn edited(mut frame: Value, edit: impl FnOnce(&mut Value)) -> Value {
    edit(&mut frame);
    frame
}

fn bye(seq: u64) -> String {
    json!({"type": "bye", "seq": seq}).to_string()
}

#[expect(clippy::too_many_lines, reason = "one table, a row for each mistake")]
fn cases(source: &Source) -> Vec<Case> {
    use Sent::{Frames, Line};
    let newer = || {
        let mut later = source.clone();
        later.put("a", "iron")
    };
    let object = |edit: fn(&mut Value)| Frames(vec![edited(newer(), |frame| edit(&mut frame["object"]))]);
    let frame = |edit: fn(&mut Value)| Frames(vec![edited(newer(), edit)]);
    vec![
        ("not JSON", Line(|_| "{".into()), 400, "not a frame"),
        ("not an object", Line(|_| "[1]".into()), 400, "not a frame"),
        (
            "an unknown frame",
            Line(|next| format!(r#"{{"type":"put","seq":{next}}}"#)),
            400,
            "type: there are no frames",
        ),
        ("no type", Line(|next| format!(r#"{{"seq":{next}}}"#)), 400, "type: is required"),
        ("a gap", Line(|next| bye(next + 1)), 400, "seq: is "),
        ("a repetition", Line(|next| bye(next - 1)), 400, "seq: is "),
        ("no number", Line(|_| r#"{"type":"bye"}"#.into()), 400, "seq: is 0, but "),
        ("a second hello", Frames(vec![source.hello("i1")]), 400, "type: not here"),
        ("a catalog", Frames(vec![json!({"type": "catalog", "types": []})]), 400, "type: not here"),
        ("progress without a version", Frames(vec![json!({"type": "progress"})]), 400, "rv: is required"),
        ("a sync's end out of order", Frames(vec![source.sync(3).pop().expect("its end")]), 400, "no sync"),
        (
            "the end of another sync",
            Frames(vec![json!({"type": "syncStart", "sync": 4}), source.sync(5).pop().expect("its end")]),
            400,
            "sync 5 ends while 4",
        ),
        (
            "progress inside a sync",
            Frames(vec![json!({"type": "syncStart", "sync": 4}), source.progress()]),
            400,
            "no progress inside a sync",
        ),
        (
            "an empty list without allowEmpty",
            Frames(vec![
                json!({"type": "syncStart", "sync": 4}),
                json!({"type": "syncEnd", "sync": 4, "rv": "500", "count": 0, "digest": "0".repeat(32)}),
            ]),
            400,
            "allowEmpty is not set",
        ),
        ("another name", frame(|frame| frame["name"] = "z".into()), 400, "object.metadata.name"),
        ("another namespace", frame(|f| f["namespace"] = "z".into()), 400, "object.metadata.namespace"),
        (
            "no namespace",
            object(|o| drop(o["metadata"].as_object_mut().expect("it is one").remove("namespace"))),
            400,
            "namespace",
        ),
        ("no logical cluster", frame(|frame| frame["cluster"] = "root:org".into()), 400, "cluster"),
        ("a wildcard", frame(|frame| frame["cluster"] = "*".into()), 400, "cluster"),
        (
            "another cluster's annotation",
            object(|o| o["metadata"]["annotations"] = json!({"kcp.io/cluster": "other"})),
            400,
            "kcp.io/cluster",
        ),
        (
            "another shard's annotation",
            object(|o| o["metadata"]["annotations"] = json!({"kcp.io/shard": "onyx"})),
            400,
            "kcp.io/shard",
        ),
        ("another kind", object(|object| object["kind"] = "Gadget".into()), 400, "object.kind"),
        ("another group", object(|object| object["apiVersion"] = "x/v1".into()), 400, "object.apiVersion"),
        (
            "another version than the frame's",
            object(|object| object["metadata"]["resourceVersion"] = "7".into()),
            400,
            "object.metadata.resourceVersion",
        ),
        ("an illegal name", object(|object| object["metadata"]["name"] = "A_b".into()), 422, "metadata.name"),
        (
            "an illegal label",
            object(|object| object["metadata"]["labels"] = json!({"-": "x"})),
            422,
            "metadata.labels",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_bad_frame_ends_its_stream_and_nothing_else() {
    let (mut bench, mut pusher) = Bench::new(&Setting::default()).await;
    let mut counted = 0;
    for (what, sent, code, text) in cases(&bench.source) {
        match sent {
            Sent::Frames(frames) => pusher.send_all(frames),
            Sent::Line(line) => pusher.send_raw(&line(pusher.seq() + 1)),
        }
        let (found, message) = pusher.refused().await;
        assert_eq!(found, code, "{what}: {message}");
        assert!(message.contains(text), "{what}: {message}");
        counted += 1;
        bench.unharmed(what, counted, PushEnd::Invalid).await;
        pusher = bench.again().await;
    }
    drop(pusher);
    bench.end().await;
}

/// What came before it with the same bytes is acknowledged as ever, and nothing of what follows is done.
#[tokio::test(flavor = "multi_thread")]
async fn d31_frames_before_a_wrong_one_are_done_and_acknowledged() {
    let (mut bench, mut pusher) = Bench::new(&Setting::default()).await;
    let first = pusher.seq() + 1;
    let mut ghost = bench.source.clone();
    let right = [bench.source.put("c", "gold"), bench.source.put("d", "gold")];
    let wrong = json!({"type": "syncEnd", "sync": 7, "rv": "9", "count": 0, "digest": "0".repeat(32)});
    let frames = right.into_iter().chain([wrong, ghost.delete("a"), json!({"type": "bye"})]);
    let numbered = (first..).zip(frames).map(|(seq, frame)| edited(frame, |frame| frame["seq"] = seq.into()));
    let lines: Vec<_> = numbered.map(|frame| format!("{frame}\n")).collect();
    pusher.send_bytes(lines.concat());
    let ack = pusher.until("ack").await;
    assert_eq!((&ack["seq"], &ack["position"]), (&json!(first + 1), &json!(bench.source.head.to_string())));
    assert_eq!(served(&bench.stand.wire(), &bench.source, &ack).await, held(&bench.source));
    let (code, message) = pusher.refused().await;
    assert!(code == 400 && message.contains("no sync has started"), "{code} {message}");
    bench.unharmed("a wrong frame among others", 1, PushEnd::Invalid).await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d31_an_oversized_frame_ends_its_stream_before_its_end_has_come() {
    let (mut bench, mut pusher) = Bench::new(&Setting::default()).await;
    let large = "x".repeat(PushConfig::default().frame_bytes_max);
    // No end of the line is ever sent.
    pusher.send_bytes(format!("{{\"type\":\"upsert\",\"seq\":{},\"name\":\"{large}", pusher.seq() + 1));
    let (code, message) = pusher.refused().await;
    assert_eq!(code, 413, "{message}");
    bench.unharmed("a line that is too long", 1, PushEnd::Invalid).await;
    // The largest that is allowed goes through as a frame, and is judged as one.
    let mut pusher = bench.again().await;
    let head = format!("{{\"type\":\"no\",\"seq\":{},\"name\":\"", pusher.seq() + 1);
    let fill = PushConfig::default().frame_bytes_max - head.len() - 2;
    pusher.send_raw(&format!("{head}{}\"}}", "x".repeat(fill)));
    let (code, message) = pusher.refused().await;
    assert!(code == 400 && message.contains("no frames of type"), "{code} {message}");
    drop(pusher);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d36_a_digest_that_does_not_match_is_answered_with_a_sync_that_repairs() {
    let (mut bench, mut pusher) = Bench::new(&Setting::default()).await;
    let resyncs = || bench.stand.api.metrics.push.resyncs.get();
    // An event that was lost on the way.
    drop(bench.source.put("a", "iron"));
    let mut before = bench.source.clone();
    pusher.send(bench.source.progress());
    assert_eq!(pusher.until("resync").await["reason"], "count or digest differ");
    assert_eq!(resyncs(), 1);
    // What was on its way has no effect.
    pusher.send(before.put("b", "lead"));
    pusher.settled().await;
    pusher.send_all(bench.source.sync(2));
    let ack = pusher.settled().await;
    assert_eq!(served(&bench.stand.wire(), &bench.source, &ack).await, held(&bench.source));
    // A list that was not sent as it was summed: nothing is removed, and it is asked for again.
    let mut frames = bench.source.sync(3);
    frames.remove(1);
    pusher.send_all(frames);
    assert_eq!(pusher.until("resync").await["reason"], "count or digest of the list differ");
    assert_eq!(resyncs(), 2);
    bench.unharmed("a list that differs", 0, PushEnd::Invalid).await;
    pusher.send_all(bench.source.sync(4));
    let ack = pusher.settled().await;
    assert_eq!(ack["position"], bench.source.head.to_string());
    drop(pusher);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_type_is_refused_unless_its_pusher_describes_it() {
    let (mut bench, pusher) = Bench::new(&Setting::default()).await;
    let source = Source::widgets("onyx");
    for (missing, count) in [("kind", 1), ("scope", 2)] {
        let hello = edited(source.hello("i1"), |hello| {
            hello.as_object_mut().expect("it is one").remove(missing);
        });
        let (mut refused, first) = bench.door.open(&source.push_path(), hello).await;
        assert_eq!((&first["type"], &first["status"]["code"]), (&json!("error"), &json!(400)), "{first}");
        assert!(first["status"]["message"].as_str().is_some_and(|text| text.contains("unknown here")));
        refused.ended().await;
        bench.unharmed("an unknown type", count, PushEnd::Invalid).await;
    }
    // What is built in is not to be contradicted.
    let exports = Source::exports("onyx");
    let hello = edited(exports.hello("i1"), |hello| hello["scope"] = "Namespaced".into());
    let (_, first) = bench.door.open(&exports.push_path(), hello).await;
    assert!(first["status"]["message"].as_str().is_some_and(|text| text.contains("is a Cluster APIExport")));
    for path in
        ["?resource=widgets", "?version=v1", "?group=g&version=v1", "?resource=w&version=v1&identity=i"]
    {
        let answer = bench.door.begin(&format!("/services/cache/shards/onyx/push{path}")).await;
        assert_eq!(answer.err().map(|(code, _)| code), Some(400), "{path}");
    }
    let wild = bench.door.begin("/services/cache/shards/*/push").await;
    assert_eq!(wild.err().map(|(code, _)| code), Some(400));
    drop(pusher);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_illegal_before_the_first_sync_and_on_a_control_stream() {
    let (mut bench, pusher) = Bench::new(&Setting::default()).await;
    let fresh = Source::roles("amber").with(&["r"]);
    let mut count = 0;
    for first in [fresh.upsert("r"), fresh.progress(), fresh.sync(1).pop().expect("its end")] {
        let (mut stream, welcome) = bench.door.cell(&fresh, "i1").await;
        assert_eq!(welcome["needSync"], true);
        stream.send(first);
        let (code, message) = stream.refused().await;
        assert!(code == 400 && message.contains("needs a sync first"), "{code} {message}");
        count += 1;
        bench.unharmed("no sync", count, PushEnd::Invalid).await;
    }
    for wrong in
        [fresh.upsert("r"), json!({"type": "syncStart", "sync": 1}), fresh.progress(), fresh.hello("i1")]
    {
        let (mut control, _) = bench.door.control("amber", "i1").await;
        control.send(wrong);
        let (code, message) = control.refused().await;
        assert!(code == 400 && message.contains("not on a control stream"), "{code} {message}");
        count += 1;
        bench.unharmed("not on a control stream", count, PushEnd::Invalid).await;
    }
    // Neither does a stream begin with anything but a hello, nor one of a type without a source.
    let mut stream = bench.door.begin(&fresh.push_path()).await.expect("a stream");
    stream.send(json!({"type": "syncStart", "sync": 1}));
    assert!(stream.refused().await.1.contains("is a hello"));
    let hello =
        edited(fresh.hello("i1"), |hello| drop(hello.as_object_mut().expect("it is").remove("source")));
    let (_, first) = bench.door.open(&fresh.push_path(), hello).await;
    assert!(first["status"]["message"].as_str().is_some_and(|text| text.starts_with("source: is required")));
    drop(pusher);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_stream_ends_and_the_others_go_on() {
    let push = PushConfig { idle_timeout: Duration::from_secs(2), ..PushConfig::default() };
    let setting = Setting { api: ApiConfig { push, ..Setting::default().api }, ..Setting::default() };
    let (mut bench, mut pusher) = Bench::new(&setting).await;
    let (mut control, _) = bench.door.control("amber", "i1").await;
    // The other stream goes on all the time.
    let (exports, other) = &mut bench.other;
    let going_on = async {
        loop {
            other.send(exports.progress());
            other.settled().await;
        }
    };
    let (code, message) = tokio::select! {
        refused = pusher.refused() => refused,
        () = going_on => unreachable!("it goes on"),
    };
    assert_eq!((code, message.as_str()), (504, "Timeout: nothing was heard on this stream for too long"));
    assert_eq!(control.refused().await.0, 504);
    bench.unharmed("a stalled stream", 2, PushEnd::Silent).await;
    let mut pusher = bench.again().await;
    pusher.send(bench.source.put("c", "gold"));
    pusher.settled().await;
    drop(pusher);
    bench.end().await;
}
