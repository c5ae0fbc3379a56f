//! Streams that break off: by the network, by restarts of either side, by a source that is restored.

use serde_json::{Value, json};
use shardcache_proxy::metrics::labels::{FrameOutcome, PushEnd};

use super::pusher::{Door, ends, held, served};
use super::source::Source;
use crate::checker::{Replay, Step};
use crate::stand::{Setting, Stand};
use crate::wire::Watch;

fn outcome(stand: &Stand, outcome: FrameOutcome) -> u64 {
    stand.api.metrics.push.frames.get_or_create(&outcome.into()).get()
}

/// The events of a watch up to a version, without bookmarks, as text.
async fn events_to(watch: &mut Watch, client: &mut Replay, ack: &Value) -> Vec<String> {
    let to: u64 = ack["cacheRV"].as_str().expect("text").parse().expect("a number");
    let mut seen = vec![];
    while client.resume_at() < Some(to) {
        let step = watch.expect().await;
        client.step(&step).unwrap_or_else(|violation| panic!("{violation}"));
        let told = |sign: &str, object: &Value| {
            let metadata = &object["metadata"];
            format!(
                "{sign}{} {}",
                metadata["name"].as_str().unwrap_or(""),
                metadata["uid"].as_str().unwrap_or("")
            )
        };
        match &step {
            Step::Added(object) => seen.push(told("+", object)),
            Step::Modified(object) => seen.push(told("~", object)),
            Step::Deleted(object) => seen.push(told("-", object)),
            Step::Bookmark { .. } => {}
            Step::Error { .. } => panic!("{step:?}"),
        }
    }
    seen
}

async fn watched(stand: &Stand, source: &Source) -> (Watch, Replay) {
    let wire = stand.wire();
    let list = wire.list(&source.collection()).await.expect("listed");
    let from = format!("resourceVersion={}&allowWatchBookmarks=true", list.version);
    (wire.watch(&source.collection(), &from).await.expect("watched"), Replay::after(&list))
}

#[tokio::test(flavor = "multi_thread")]
async fn d31_an_up_to_date_cell_is_resumed_with_a_few_bytes() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let door = Door::http2(&stand).await;
    let names: Vec<String> = (0..500).map(|number| format!("role-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut source = Source::roles("amber").with(&names);
    let first = door.synced(&source, "i1").await;
    assert!(first.bytes_sent > 50_000);
    drop(first);
    let (mut pusher, welcome) = door.cell(&source, "i1").await;
    assert_eq!(
        (&welcome["needSync"], &welcome["position"]),
        (&json!(false), &json!(source.head.to_string())),
        "{welcome}"
    );
    assert_eq!((&welcome["count"], &welcome["digest"]), (&json!(500), &json!(source.digest().to_string())));
    // It is asked at once how far the source is.
    assert_eq!(pusher.read().await, json!({"type": "barrier", "id": 1}));
    source.head += 3;
    let mut answer = source.progress();
    answer["barrier"] = 1.into();
    pusher.send(answer);
    let ack = pusher.settled().await;
    assert_eq!(ack["position"], source.head.to_string());
    assert!(pusher.bytes_sent < 600, "{}", pusher.bytes_sent);
    drop((pusher, door));
    stand.close().await;
}

/// D34's T: the whole stream again has no effect and makes no event.
#[tokio::test(flavor = "multi_thread")]
async fn d34_what_is_sent_again_makes_no_event() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let door = Door::http2(&stand).await;
    let mut source = Source::roles("amber").with(&["a", "b"]);
    let mut pusher = door.synced(&source, "i1").await;
    let events = [source.put("c", "gold"), source.put("a", "iron"), source.delete("b"), source.delete("c")];
    pusher.send_all(events.clone());
    pusher.settled().await;
    let before = stand.wire().list(&source.collection()).await.expect("listed");
    let mut again = door.cell(&source, "i1").await.0;
    again.send_all(events);
    again.send(source.progress());
    again.settled().await;
    again.send_all(source.sync(2));
    let ack = again.settled().await;
    assert_eq!(ack["cacheRV"], before.version.to_string(), "no event");
    assert_eq!(before, stand.wire().list(&source.collection()).await.expect("listed"));
    assert_eq!((outcome(&stand, FrameOutcome::Duplicate), outcome(&stand, FrameOutcome::Unchanged)), (4, 1));
    drop((pusher, again, door));
    stand.close().await;
}

/// D31's T, over HTTP: a recorded session is cut after every prefix and resumed, and in the end the cell
/// is the source; no object that both have was ever away.
#[tokio::test(flavor = "multi_thread")]
async fn d31_a_session_cut_anywhere_and_resumed_ends_as_the_source() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let door = Door::http2(&stand).await;
    // A first sync, events, a sync in the middle, and events again: the session, and the source at its end.
    let mut source = Source::roles("amber").with(&["stays", "goes", "changes"]);
    let mut session = source.sync(1);
    let first_end = session.len();
    session.push(source.put("new", "gold"));
    session.push(source.put("changes", "iron"));
    session.push(source.delete("goes"));
    session.push(source.progress());
    source.put("late", "gold");
    source.delete("new");
    let list_at = source.head;
    session.extend(source.sync(2));
    let second_end = session.len();
    session.push(source.put("last", "gold"));
    session.push(source.progress());
    for cut in 0..=session.len() {
        let shard: &'static str = Box::leak(format!("cut-{cut}").into_boxed_str());
        let mut place = Source { shard, ..source.clone() };
        let (mut first, _) = door.cell(&place, "i1").await;
        first.send_all(session[..cut].iter().cloned());
        if cut % 2 == 0 {
            first.hang_up();
        } else {
            drop(first);
        }
        let (mut second, welcome) = door.cell(&place, "i1").await;
        if welcome["needSync"] == true {
            second.send_all(place.sync(3));
        } else {
            // The same again from a place that is certainly early enough.
            let position: u64 = welcome["position"].as_str().expect("text").parse().expect("a number");
            let from = if position < list_at { first_end } else { second_end };
            second.send_all(session[from..].iter().cloned());
        }
        let ack = second.settled().await;
        assert_eq!(served(&stand.wire(), &place, &ack).await, held(&place), "cut after {cut}");
        second.send(place.put("afterwards", "gold"));
        second.send(place.progress());
        let ack = second.settled().await;
        assert_eq!(served(&stand.wire(), &place, &ack).await, held(&place), "cut after {cut}");
    }
    drop(door);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d33_a_restart_in_the_middle_of_a_sync_loses_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let mut source = Source::roles("amber").with(&["a", "b", "c"]);
    let mut pusher = Door::http2(&stand).await.synced(&source, "i1").await;
    let before = held(&source);
    source.delete("b");
    source.put("d", "gold");
    let mut frames = source.sync(2);
    frames.truncate(3);
    pusher.send_all(frames);
    pusher.settled().await;
    drop(pusher);
    stand.close().await;

    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let wire = stand.wire();
    let names = wire.list(&source.collection()).await.expect("listed").items.len();
    assert_eq!(names, before.len(), "nothing was removed, and d had not come");
    let (mut watch, mut client) = watched(&stand, &source).await;
    let (mut pusher, welcome) = Door::http2(&stand).await.cell(&source, "i1").await;
    assert_eq!((&welcome["reason"], &welcome["gen"]), (&json!("SyncIncomplete"), &json!(1)), "{welcome}");
    pusher.send_all(source.sync(3));
    let ack = pusher.settled().await;
    assert_eq!(served(&wire, &source, &ack).await, held(&source));
    let seen = events_to(&mut watch, &mut client, &ack).await;
    assert_eq!(seen.iter().map(|event| &event[..2]).collect::<Vec<_>>(), ["+d", "-b"]);
    drop(pusher);
    stand.close().await;
}

/// D35's T: a restored source is a new generation, and what is in both timelines is never away.
#[tokio::test(flavor = "multi_thread")]
async fn d35_a_restored_source_deletes_nothing_that_it_still_has() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let door = Door::http2(&stand).await;
    let mut source = Source::roles("amber").with(&["both", "changed"]);
    let backup = source.clone();
    source.put("changed", "iron");
    source.put("lost", "gold");
    source.head += 50;
    let pusher = door.synced(&source, "i1").await;
    let (mut watch, mut client) = watched(&stand, &source).await;
    drop(pusher);
    let mut restored = backup;
    restored.put("other", "gold");
    assert!(restored.head < source.head);
    let (mut pusher, welcome) = door.cell(&restored, "i1").await;
    assert_eq!((&welcome["reason"], &welcome["gen"]), (&json!("SourceRegressed"), &json!(2)), "{welcome}");
    let objects = stand.wire().list(&source.collection()).await.expect("listed").items.len();
    assert_eq!(objects, 3, "what was there is served until the end of the sync");
    pusher.send_all(restored.sync(1));
    let ack = pusher.settled().await;
    assert_eq!(served(&stand.wire(), &restored, &ack).await, held(&restored));
    let seen = events_to(&mut watch, &mut client, &ack).await;
    let signs: Vec<&str> = seen.iter().filter_map(|event| event.split(' ').next()).collect();
    assert_eq!(signs, ["~changed", "+other", "-lost"]);
    // From here on its lower numbers count.
    pusher.send(restored.put("both", "iron"));
    pusher.send(restored.progress());
    let ack = pusher.settled().await;
    assert_eq!(ack["position"], restored.head.to_string());
    assert_eq!(served(&stand.wire(), &restored, &ack).await, held(&restored));
    // A source that calls itself otherwise is another lineage, whatever its numbers.
    restored.id = "src-2".into();
    restored.head += 1000;
    let (mut pusher, welcome) = door.cell(&restored, "i1").await;
    assert_eq!((&welcome["reason"], &welcome["gen"]), (&json!("SourceChanged"), &json!(3)), "{welcome}");
    let before = stand.wire().list(&source.collection()).await.expect("listed").version;
    pusher.send_all(restored.sync(1));
    assert_eq!(pusher.settled().await["cacheRV"], before.to_string(), "the same objects make no event");
    drop((pusher, door));
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d34_another_uid_is_seen_as_deleted_and_then_added() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let mut source = Source::roles("amber").with(&["a"]);
    let mut pusher = Door::http2(&stand).await.synced(&source, "i1").await;
    let (mut watch, mut client) = watched(&stand, &source).await;
    let old = source.objects["a"].uid.clone();
    // The pusher's watch was away while it was deleted and made again.
    source.delete("a");
    pusher.send(source.put("a", "iron"));
    let new = source.objects["a"].uid.clone();
    pusher.send(source.progress());
    let ack = pusher.settled().await;
    assert_ne!(old, new);
    assert_eq!(events_to(&mut watch, &mut client, &ack).await, [format!("-a {old}"), format!("+a {new}")]);
    assert_eq!(served(&stand.wire(), &source, &ack).await, held(&source));
    drop(pusher);
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_every_stream_with_a_word() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let door = Door::http2(&stand).await;
    let source = Source::roles("amber").with(&["a"]);
    let (mut control, _) = door.control("amber", "i1").await;
    let mut pusher = door.synced(&source, "i1").await;
    let mut silent = door.begin(&source.push_path()).await.expect("a stream without a hello");
    stand.drain();
    for stream in [&mut control, &mut pusher, &mut silent] {
        let (code, message) = stream.refused().await;
        assert!(code == 503 && message.contains("shutting down"), "{code} {message}");
    }
    assert_eq!(ends(&stand, PushEnd::Drain), 3);
    assert_eq!(door.begin(&source.push_path()).await.err().map(|(code, _)| code), Some(429));
    drop((control, pusher, silent, door));
    stand.close().await;
    // What was acknowledged is there.
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let (_, welcome) = Door::http2(&stand).await.cell(&source, "i1").await;
    assert_eq!((&welcome["needSync"], &welcome["count"]), (&json!(false), &json!(1)), "{welcome}");
    stand.close().await;
}
