use std::sync::Arc;

use shardcache_proxy::push::client::Sum;
use shardcache_storage::{CellName, Digest, KeyParts, TypeName, entry_digest};
use tokio::sync::Semaphore;

use super::*;
use crate::replicate::selection::{Resource, Rule};
use crate::replicate::testing::{Shard, Stub};

/// A source with two objects, how it is read, and the copy of it.
fn copied() -> (Stub, Reader, Copied) {
    let stub = Stub::new();
    stub.change(|shard| {
        shard.put("a");
        shard.put("b");
    });
    let resource = Resource::new("stable.example.io", "v1", "widgets");
    let source = Source::new(stub.client(), &resource, "");
    let turns = Arc::new(Semaphore::new(1));
    let reader = Reader { source, rule: Rule::All, cluster: "root".to_owned(), turns };
    let (position, sum) = (stub.look(|shard| shard.version), sum(&stub));
    let (cell, version) =
        (CellName::new("amber", TypeName::new("stable.example.io", "widgets")), "v1".into());
    (stub, reader, Copied { cell, version, source: "s".into(), generation: 1, position, sum })
}

fn sum(stub: &Stub) -> Sum {
    let held = stub.held();
    let entries = held.iter().map(|(name, (uid, version))| {
        entry_digest(KeyParts { shard: "", cluster: "root", namespace: "", name }, uid, *version)
    });
    Sum { count: held.len() as u64, digest: entries.fold(Digest::default(), Digest::with) }
}

/// A watch from the version at which the copy was the source.
async fn thread(reader: &Reader, copy: &Copied) -> Thread {
    let version = compare(reader, copy).await.expect("they are the same");
    Thread::new(reader.source.watch(version, WATCH_TIME).await.expect("it is watched"), version)
}

#[tokio::test(start_paused = true)]
async fn d36_only_what_is_the_same_by_content_is_confirmed() {
    let (stub, reader, copy) = copied();
    stub.change(Shard::elsewhere);
    assert_eq!(compare(&reader, &copy).await, Ok(copy.position + 1), "another type's version");
    stub.change(|shard| shard.put("a"));
    assert!(matches!(compare(&reader, &copy).await, Err(Unproven::Behind(_))), "as many, and others");
    stub.change(|shard| shard.delete("a"));
    assert!(matches!(compare(&reader, &copy).await, Err(Unproven::Behind(_))));
    let gone_back = Copied { position: 1_000, sum: sum(&stub), ..copy };
    assert!(matches!(compare(&reader, &gone_back).await, Err(Unproven::Foreign(_))), "the same, and older");
}

#[tokio::test(start_paused = true)]
async fn d38_silence_up_to_the_head_confirms() {
    let (stub, reader, copy) = copied();
    let mut thread = thread(&reader, &copy).await;
    let watches = || stub.look(|shard| shard.watches);
    assert_eq!((thread.holds(&reader.source).await, watches()), (Ok(true), 1), "the head is where it was");
    for number in 2..5 {
        stub.change(Shard::elsewhere);
        assert_eq!((thread.holds(&reader.source).await, watches()), (Ok(true), number), "a bookmark");
    }
    assert_eq!((thread.holds(&reader.source).await, watches()), (Ok(true), 4), "it is remembered");
}

#[tokio::test(start_paused = true)]
async fn d38_whatever_is_not_silence_up_to_the_head_confirms_nothing() {
    type Change = fn(&mut Shard);
    let changes: [(&str, Change); 6] = [
        ("an event", |shard| shard.put("a")),
        ("an event that undoes another", |shard| {
            shard.put("c");
            shard.delete("c");
        }),
        ("a replica that lags behind the head", |shard| {
            shard.shown = Some(shard.version);
            shard.elsewhere();
        }),
        ("no bookmark", |shard| {
            shard.bookmarks = false;
            shard.elsewhere();
        }),
        ("a position that is forgotten", |shard| {
            shard.elsewhere();
            shard.forgotten = shard.version;
        }),
        ("a source that has gone back", |shard| shard.version -= 1),
    ];
    for (what, change) in changes {
        let (stub, reader, copy) = copied();
        let mut thread = thread(&reader, &copy).await;
        stub.change(change);
        assert_eq!(thread.holds(&reader.source).await, Ok(false), "{what}");
    }
    let (stub, reader, copy) = copied();
    let mut thread = thread(&reader, &copy).await;
    stub.change(|shard| shard.failing = 1);
    assert!(thread.holds(&reader.source).await.is_err(), "a head that cannot be read");
}
