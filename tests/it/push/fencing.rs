//! Two pushers of one shard: one holds it, the other waits, takes over, or is told to go away.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shardcache_proxy::metrics::labels::PushEnd;
use shardcache_proxy::push::PushConfig;
use shardcache_proxy::service::ApiConfig;

use super::pusher::{Door, ends, held, hello, served, status_until};
use super::source::{Source, control_path};
use crate::stand::{Setting, Stand};

fn short(push: PushConfig) -> Setting {
    Setting { api: ApiConfig { push, ..Setting::default().api }, ..Setting::default() }
}

fn with(mut frame: Value, name: &str, value: Value) -> Value {
    frame[name] = value;
    frame
}

fn takeover(frame: Value) -> Value {
    with(frame, "takeover", true.into())
}

fn election(frame: Value, uid: &str, term: u64) -> Value {
    with(frame, "election", json!({"uid": uid, "term": term}))
}

#[tokio::test(flavor = "multi_thread")]
async fn d32_a_shard_that_is_held_is_refused_with_holder_and_remaining_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let (first, second) = (Door::http2(&stand).await, Door::http2(&stand).await);
    let mut source = Source::roles("amber").with(&["a"]);
    let mut pusher = first.synced(&source, "i1").await;
    for path in [control_path("amber"), source.push_path()] {
        let (mut refused, error) = second.open(&path, source.hello("i2")).await;
        let status = &error["status"];
        assert_eq!((&status["code"], &status["reason"]), (&json!(409), &json!("Conflict")), "{error}");
        assert!(status["message"].as_str().is_some_and(|text| text.contains("held by h-i1")), "{error}");
        let wait = status["details"]["retryAfterSeconds"].as_u64().expect("a number");
        assert!((1..=15).contains(&wait), "{error}");
        refused.ended().await;
    }
    assert_eq!(ends(&stand, PushEnd::Held), 2);
    // Another shard is another affair, and the holder goes on.
    let (_, welcome) = second.control("onyx", "i2").await;
    assert_eq!(welcome["term"], 1);
    pusher.send(source.put("b", "gold"));
    let ack = pusher.settled().await;
    assert_eq!(served(&stand.wire(), &source, &ack).await, held(&source));
    drop((pusher, first, second));
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d32_a_silent_holder_is_replaced_and_one_that_is_heard_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let silence = Duration::from_secs(1);
    let stand = Stand::open(directory.path(), &short(PushConfig { silence, ..PushConfig::default() })).await;
    let (first, second) = (Door::http2(&stand).await, Door::InProcess(stand.service()));
    let (mut holder, _) = first.control("amber", "i1").await;
    let mut signs = 0;
    let welcome = loop {
        let heard = Instant::now();
        // Signs of life for a while, then nothing more.
        if signs < 20 {
            holder.send(json!({"type": "progress"}));
            holder.settled().await;
            signs += 1;
        }
        let (_, answer) = second.control("amber", "i2").await;
        if answer["type"] == "welcome" {
            assert!(signs == 20 || heard.elapsed() >= silence, "the holder was heard");
            break answer;
        }
    };
    assert_eq!(welcome["term"], 2);
    assert_eq!(holder.until("fenced").await, json!({"type": "fenced", "term": 2, "holder": "h-i2"}));
    holder.ended().await;
    drop((holder, first));
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d32_a_takeover_fences_every_stream_of_the_one_before() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let (first, second) = (Door::http2(&stand).await, Door::http2(&stand).await);
    let source = Source::roles("amber").with(&["a", "b"]);
    let exports = Source::exports("amber").with(&["x"]);
    let (mut control, _) = first.open(&control_path("amber"), election(hello("i1"), "lease", 4)).await;
    let mut busy = first.synced(&source, "i1").await;
    let mut idle = first.synced(&exports, "i1").await;
    let bystander = Source::roles("onyx").with(&["o"]);
    let mut other = first.synced(&bystander, "i1").await;

    // Who was replaced in the election is fenced whatever it claims, and nobody notices.
    let late = takeover(election(hello("i2"), "lease", 3));
    let (_, answer) = second.open(&control_path("amber"), late).await;
    assert_eq!(answer, json!({"type": "fenced", "term": 1, "holder": "h-i1"}));

    let (mut new, welcome) =
        second.open(&control_path("amber"), takeover(election(hello("i2"), "lease", 5))).await;
    assert_eq!((&welcome["type"], &welcome["term"]), (&json!("welcome"), &json!(2)));
    for stream in [&mut control, &mut idle] {
        assert_eq!(stream.until("fenced").await, json!({"type": "fenced", "term": 2, "holder": "h-i2"}));
        stream.ended().await;
    }
    // What the old holder still sends has no effect.
    let mut ghost = source.clone();
    for frame in [ghost.put("ghost", "gold"), ghost.delete("a")] {
        busy.send(frame);
    }
    assert_eq!(busy.until("fenced").await["term"], 2);
    assert_eq!(ends(&stand, PushEnd::Fenced), 4);
    let mut successor = source.clone();
    let (mut cell, welcome) = second.cell(&successor, "i2").await;
    assert_eq!(welcome["needSync"], false, "the copy is what the source is: {welcome}");
    cell.send(successor.put("c", "gold"));
    let ack = cell.settled().await;
    assert_eq!(served(&stand.wire(), &source, &ack).await, held(&successor));
    // It may not come back with its old claim, nor another take over at once.
    let back = takeover(election(hello("i1"), "lease", 4));
    assert_eq!(first.open(&control_path("amber"), back).await.1["type"], "fenced");
    let (_, third) = second.open(&control_path("amber"), takeover(hello("i3"))).await;
    assert_eq!(third["status"]["code"], 409, "one takeover in five seconds: {third}");
    let wait = third["status"]["details"]["retryAfterSeconds"].as_u64().expect("a number");
    assert!((1..=5).contains(&wait), "{third}");
    // The other shard of the same process went on.
    other.send(bystander.progress());
    other.settled().await;
    new.send(json!({"type": "progress"}));
    new.settled().await;
    drop((control, busy, idle, other, new, cell, first, second));
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d32_a_hello_that_is_wrong_takes_nothing_from_the_holder() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let (first, second) = (Door::http2(&stand).await, Door::http2(&stand).await);
    let mut source = Source::widgets("amber").with(&["a"]);
    let mut pusher = first.synced(&source, "i1").await;
    let without = |field: &str| {
        let mut hello = takeover(source.hello("i2"));
        hello.as_object_mut().expect("it is one").remove(field);
        hello
    };
    let unknown = source.push_path().replace("widgets", "gadgets");
    for (path, hello) in [(&source.push_path(), without("source")), (&unknown, without("kind"))] {
        let (_, answer) = second.open(path, hello).await;
        assert_eq!(answer["status"]["code"], 400, "{answer}");
    }
    pusher.send(source.put("b", "gold"));
    let ack = pusher.settled().await;
    assert_eq!(served(&stand.wire(), &source, &ack).await, held(&source));
    let status = status_until(&stand.wire(), "amber", |status| status["streams"] == 1).await;
    assert_eq!((&status["term"], &status["holder"]), (&json!(1), &json!("h-i1")));
    drop((pusher, first, second));
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d32_after_a_goodbye_the_next_one_need_not_wait() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let door = Door::http2(&stand).await;
    let source = Source::roles("amber").with(&["a"]);
    let (mut control, _) = door.control("amber", "i1").await;
    let mut pusher = door.synced(&source, "i1").await;
    // The goodbye of a type's stream gives nothing up.
    pusher.send(json!({"type": "bye"}));
    pusher.ended().await;
    assert_eq!(door.control("amber", "i2").await.1["status"]["code"], 409);
    control.send(json!({"type": "bye"}));
    control.ended().await;
    let (next, welcome) = door.control("amber", "i2").await;
    assert_eq!((&welcome["type"], &welcome["term"]), (&json!("welcome"), &json!(2)));
    let (_, welcome) = door.cell(&source, "i2").await;
    assert_eq!((&welcome["needSync"], &welcome["term"]), (&json!(false), &json!(2)));
    assert_eq!(ends(&stand, PushEnd::Bye), 2);
    drop(next);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d32_the_same_process_goes_on_in_its_term_and_its_later_stream_counts() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let door = Door::http2(&stand).await;
    let mut source = Source::roles("amber").with(&["a"]);
    let mut old = door.synced(&source, "i1").await;
    let (mut new, welcome) = door.cell(&source, "i1").await;
    assert_eq!((&welcome["term"], &welcome["needSync"]), (&json!(1), &json!(false)));
    // It says nothing and is told.
    let (code, message) = old.refused().await;
    assert!(code == 409 && message.contains("another stream"), "{code} {message}");
    assert_eq!(ends(&stand, PushEnd::Superseded), 1);
    let mut ghost = source.clone();
    old.send(ghost.delete("a"));
    new.send(source.put("b", "gold"));
    let ack = new.settled().await;
    assert_eq!(served(&stand.wire(), &source, &ack).await, held(&source));
    let status = status_until(&stand.wire(), "amber", |status| status["streams"] == 1).await;
    assert_eq!((&status["term"], &status["holder"]), (&json!(1), &json!("h-i1")));
    drop((new, door));
    stand.close().await;
}

/// The last holder's term is in the store: after a restart it has its time, and then others may follow.
#[tokio::test(flavor = "multi_thread")]
async fn d32_terms_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let sources = ["amber", "onyx"].map(|shard| Source::roles(shard).with(&["a"]));
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let door = Door::http2(&stand).await;
    for source in &sources {
        drop(door.synced(source, "i1").await);
    }
    drop(door);
    stand.close().await;
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let door = Door::http2(&stand).await;
    assert_eq!(door.control("amber", "i2").await.1["status"]["code"], 409, "i1 has 15 s to come back");
    let (_, welcome) = door.cell(&sources[0], "i1").await;
    assert_eq!((&welcome["term"], &welcome["needSync"]), (&json!(1), &json!(false)));
    // Nobody has been heard for the other shard yet; its first takeover counts as one.
    let (_, welcome) = door.open(&control_path("onyx"), takeover(hello("i2"))).await;
    assert_eq!(welcome["term"], 2);
    let (_, third) = door.open(&control_path("onyx"), takeover(hello("i3"))).await;
    assert_eq!(third["status"]["code"], 409, "one takeover in five seconds: {third}");
    drop(door);
    stand.close().await;
}
