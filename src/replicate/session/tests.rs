//! Barriers against a source and a cache that do as the test says, in time that stands still while anybody
//! has something to do: what a test measures is what the parts wait for.

use proptest::prelude::*;
use shardcache_proxy::push::client::Provider::{Direct, MetadataDiff, RollingWatch, Watch};

use super::*;
use crate::replicate::testing::{Cache, Shard, Stub, Told};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// A source with a few objects, and a cache that has them.
async fn following() -> (Stub, Cache) {
    followed(Stub::new()).await
}

async fn followed(stub: Stub) -> (Stub, Cache) {
    stub.change(|shard| ["a", "b", "c"].iter().for_each(|name| shard.put(name)));
    let mut cache = Cache::synced(&stub).await;
    stub.until(|shard| shard.watches == 1).await;
    // The first sign of life, which says that all is as it was listed.
    cache.read_for(6 * S).await;
    (stub, cache)
}

#[tokio::test(start_paused = true)]
async fn d38_what_the_watch_has_reached_is_answered_at_once() {
    let (_stub, mut cache) = following().await;
    assert_eq!(cache.confirmed().await, (103, Watch, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn d38_an_idle_type_is_answered_by_a_rolling_watch() {
    let (stub, mut cache) = following().await;
    for round in 1..=5 {
        stub.change(|shard| (0..7).for_each(|_| shard.elsewhere()));
        let (version, provider, took) = cache.confirmed().await;
        assert_eq!((version, provider), (103 + round * 7, RollingWatch));
        assert!(took < 3 * S, "{took:?}");
    }
    // What it was answered by ends, and an ordinary watch follows.
    cache.read_for(10 * S).await;
    let watches = stub.look(|shard| shard.watches);
    cache.read_for(240 * S).await;
    assert_eq!(stub.look(|shard| shard.watches), watches);
    assert_eq!(cache.report.barriers()[&RollingWatch], 5);
    assert_eq!(stub.look(|shard| (shard.comparisons, shard.lists)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn d38_a_source_that_says_how_far_it_is_answers_at_once() {
    let stub = Stub::new();
    stub.change(|shard| shard.asked = Some(0));
    let (stub, mut cache) = followed(stub).await;
    for round in 1..=5 {
        stub.change(Shard::elsewhere);
        assert_eq!(cache.confirmed().await, (103 + round, Direct, Duration::ZERO));
    }
    assert_eq!(cache.confirmed().await, (108, Watch, Duration::ZERO), "what is here needs no question");
    assert_eq!(stub.look(|shard| (shard.asked, shard.watches)), (Some(5), 1));
    // Its word is nothing without the bookmark.
    stub.change(|shard| {
        shard.bookmarks = false;
        shard.elsewhere();
    });
    assert_eq!(cache.confirmed().await.1, MetadataDiff);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_by_itself_needs_no_other_watch() {
    let (stub, mut cache) = following().await;
    stub.change(|shard| {
        shard.shown = Some(103);
        shard.put("a");
    });
    cache.barrier().await;
    cache.read_for(50 * MS).await;
    stub.change(|shard| shard.shown = None);
    assert_eq!(cache.next().await, Told::Answer { id: 1, version: 104, provider: Watch });
    assert_eq!(stub.look(|shard| shard.watches), 1);
}

#[tokio::test(start_paused = true)]
async fn d38_without_bookmarks_metadata_are_compared() {
    let (stub, mut cache) = following().await;
    stub.change(|shard| {
        shard.bookmarks = false;
        shard.elsewhere();
    });
    let (version, provider, took) = cache.confirmed().await;
    assert_eq!((version, provider), (104, MetadataDiff));
    assert!(took < 3 * S, "{took:?}");
    // From then on at once, once a second at most.
    for round in 1..=20 {
        stub.change(Shard::elsewhere);
        let (version, provider, took) = cache.confirmed().await;
        assert_eq!((version, provider), (104 + round * 3 - 2, MetadataDiff));
        assert!(took <= S, "{took:?}");
        stub.change(|shard| {
            shard.put("d");
            shard.delete("d");
        });
        cache.read_for(MS).await;
    }
    assert_eq!(cache.objects, stub.held());
    assert_eq!((cache.syncs, stub.look(|shard| shard.comparisons)), (1, 21));
    // Bookmarks that come back are noticed after a while.
    stub.change(|shard| shard.bookmarks = true);
    cache.read_for(301 * S).await;
    stub.change(|shard| shard.version += 100);
    assert_eq!(cache.confirmed().await.1, RollingWatch);
}

#[tokio::test(start_paused = true)]
async fn d38_a_lagging_replica_is_watched_again_until_it_has_come() {
    let (stub, mut cache) = following().await;
    stub.change(|shard| {
        shard.shown = Some(103);
        shard.put("d");
        shard.elsewhere();
    });
    cache.barrier().await;
    // The first rolling watch says less than the head.
    stub.until(|shard| shard.watches == 3).await;
    stub.change(|shard| shard.shown = None);
    let answer = loop {
        if let answer @ Told::Answer { .. } = cache.next().await {
            break answer;
        }
    };
    assert_eq!(answer, Told::Answer { id: 1, version: 105, provider: RollingWatch });
    assert_eq!(cache.objects, stub.held());
    assert_eq!(stub.look(|shard| shard.comparisons), 0);
}

#[tokio::test(start_paused = true)]
async fn d38_a_replica_that_stays_behind_is_compared_with_the_quorum() {
    let (stub, mut cache) = following().await;
    stub.change(|shard| {
        shard.shown = Some(103);
        (0..5).for_each(|_| shard.elsewhere());
    });
    assert_eq!(cache.confirmed().await.1, MetadataDiff, "nothing of the type has happened");
    // What has happened is not said to be here before it is.
    stub.change(|shard| shard.put("d"));
    cache.barrier().await;
    let told = cache.read_for(1500 * MS).await;
    assert!(told.iter().all(|told| !matches!(told, Told::Answer { .. })), "{told:?}");
    stub.change(|shard| shard.shown = None);
    while !matches!(cache.next().await, Told::Answer { version: 109, .. }) {}
    assert_eq!((cache.syncs, cache.objects), (1, stub.held()));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_a_watch_lost_is_found() {
    // A watch that is opened anew has it.
    let (stub, mut cache) = following().await;
    stub.change(|shard| {
        shard.bookmarks = false;
        shard.lost = Some((104, 2));
        shard.put("d");
    });
    assert_eq!(cache.confirmed().await.0, 104);
    assert_eq!((cache.syncs, &cache.objects), (1, &stub.held()));
    // None ever has it.
    stub.change(|shard| {
        shard.lost = Some((105, usize::MAX));
        shard.put("e");
    });
    assert_eq!(cache.confirmed().await.0, 105);
    assert_eq!((cache.syncs, cache.objects), (2, stub.held()));
}

#[tokio::test(start_paused = true)]
async fn a_position_that_the_source_has_forgotten_is_no_reason_to_list() {
    let (stub, mut cache) = following().await;
    stub.change(|shard| {
        (0..50).for_each(|_| shard.elsewhere());
        shard.forgotten = 150;
    });
    let (version, provider, _) = cache.confirmed().await;
    assert_eq!((version, provider, cache.syncs), (153, MetadataDiff, 1));
}

#[tokio::test(start_paused = true)]
async fn d38_a_paused_source_is_not_answered_for() {
    let (stub, mut cache) = following().await;
    stub.change(|shard| {
        shard.elsewhere();
        shard.paused = true;
    });
    cache.barrier().await;
    cache.barrier().await;
    let told = cache.read_for(200 * S).await;
    assert!(told.iter().all(|told| matches!(told, Told::Progress(103))), "{told:?}");
    assert!(told.len() >= 6, "the stream itself lives: {told:?}");
    stub.change(|shard| shard.paused = false);
    while !matches!(cache.next().await, Told::Answer { id: 2, version: 104, .. }) {}
    assert!(!cache.session.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_is_asked_again_and_the_stream_goes_on() {
    let (stub, mut cache) = following().await;
    stub.change(|shard| {
        shard.elsewhere();
        shard.failing = 3;
    });
    let (version, provider, took) = cache.confirmed().await;
    assert_eq!((version, provider), (104, RollingWatch));
    assert!(took >= 3 * S, "a second between two reads: {took:?}");
    assert_eq!((cache.syncs, stub.look(|shard| shard.heads)), (1, 4));
}

#[tokio::test(start_paused = true)]
async fn the_head_is_read_after_the_newest_barrier() {
    let (stub, mut cache) = following().await;
    stub.change(|shard| shard.paused = true);
    cache.barrier().await;
    cache.read_for(MS).await;
    cache.barrier().await;
    cache.read_for(MS).await;
    assert_eq!(stub.look(|shard| shard.heads), 2);
    stub.change(|shard| {
        shard.paused = false;
        shard.elsewhere();
    });
    let told = cache.read_for(3 * S).await;
    let answers: Vec<_> = told.iter().filter(|told| matches!(told, Told::Answer { .. })).collect();
    assert_eq!(answers, [&Told::Answer { id: 2, version: 104, provider: RollingWatch }]);
}

#[tokio::test(start_paused = true)]
async fn a_barrier_in_a_sync_is_answered_after_it() {
    let stub = Stub::new();
    stub.change(|shard| {
        shard.put("a");
        shard.paused = true;
    });
    let mut cache = Cache::welcome(&stub).await;
    cache.barrier().await;
    cache.read_for(S).await;
    stub.change(|shard| shard.paused = false);
    // The list was of the head, and nothing more is needed.
    assert_eq!(cache.next().await, Told::Synced(101));
    assert_eq!(cache.next().await, Told::Answer { id: 1, version: 101, provider: Watch });
}

#[tokio::test(start_paused = true)]
async fn d35_a_head_below_the_position_is_another_source() {
    let (stub, mut cache) = following().await;
    // Restored from a backup, while the old one's watch has not broken off.
    stub.change(|shard| shard.version = 101);
    cache.barrier().await;
    let ended = (&mut cache.session).await.expect("it did not break");
    assert_eq!(ended, Err(CellError::Source(SourceError::Behind)));
}

#[tokio::test(start_paused = true)]
async fn a_stream_says_where_it_is_when_it_moves_and_seldom_otherwise() {
    let (stub, mut cache) = following().await;
    stub.change(|shard| shard.bookmarks = false);
    let told = cache.read_for(600 * S).await;
    assert_eq!(told, [Told::Progress(103)].repeat(20), "every 30 s");
    let mut told = Vec::new();
    for _ in 0..60 {
        stub.change(|shard| shard.put("a"));
        told.extend(cache.read_for(S).await);
    }
    assert!((11..=13).contains(&told.len()), "every 5 s: {told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_answers_barriers_says_nothing_else_while_nothing_moves() {
    let (_stub, mut cache) = following().await;
    for _ in 0..20 {
        // As often as the cache asks by itself.
        assert_eq!(cache.confirmed().await, (103, Watch, Duration::ZERO));
        let told = cache.read_for(29 * S).await;
        assert_eq!(told, [], "the answer was a sign of life");
    }
    assert_eq!(cache.read_for(10 * S).await, [Told::Progress(103)]);
}

/// A step of what source, network and readers do.
#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Delete(u8),
    Elsewhere,
    /// Watches show everything from now on, or nothing more.
    Shows(bool),
    Bookmarks(bool),
    Forgets,
    Fails(u32),
    Barrier,
    Passes(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..5_u8).prop_map(Step::Put),
        3 => (0..5_u8).prop_map(Step::Delete),
        4 => Just(Step::Elsewhere),
        2 => any::<bool>().prop_map(Step::Shows),
        1 => any::<bool>().prop_map(Step::Bookmarks),
        1 => Just(Step::Forgets),
        1 => (1..3_u32).prop_map(Step::Fails),
        6 => Just(Step::Barrier),
        8 => (0..2500_u16).prop_map(Step::Passes),
    ];
    prop::collection::vec(step, 1..80)
}

/// Whatever happens while watches roll, nothing comes twice or in disorder, what the cache has at a version
/// is what the source had ([`Cache`] sees to both), each answer is of a version that the source had when its
/// barrier came, or later, and nothing is listed again.
async fn nothing_is_lost(asked: Option<usize>, steps: Vec<Step>) {
    let stub = Stub::new();
    stub.change(|shard| shard.asked = asked);
    let (stub, mut cache) = followed(stub).await;
    let (mut heads, mut held_back) = (vec![0], Duration::ZERO);
    let check = |told: Vec<Told>, heads: &[u64]| {
        for told in told {
            if let Told::Answer { id, version, .. } = told {
                assert!(version >= heads[id as usize], "{told:?}, but the barrier came at {heads:?}");
            }
        }
    };
    for step in steps {
        match step {
            Step::Put(name) => stub.change(|shard| shard.put(&format!("o{name}"))),
            Step::Delete(name) => stub.change(|shard| shard.delete(&format!("o{name}"))),
            Step::Elsewhere => stub.change(Shard::elsewhere),
            Step::Shows(all) => stub.change(|shard| shard.shown = (!all).then_some(shard.version)),
            Step::Bookmarks(sends) => stub.change(|shard| shard.bookmarks = sends),
            // Only what the stream is past of, or it would have to list.
            Step::Forgets => stub.change(|shard| shard.forgotten = shard.forgotten.max(cache.position)),
            Step::Fails(times) => stub.change(|shard| shard.failing = times),
            Step::Barrier => {
                heads.push(stub.look(|shard| shard.version));
                cache.barrier().await;
            }
            Step::Passes(ms) => {
                let time = u32::from(ms) * MS;
                check(cache.read_for(time).await, &heads);
                held_back =
                    if stub.look(|shard| shard.shown.is_some()) { held_back + time } else { Duration::ZERO };
            }
        }
        // What is held back for longer counts as lost, and is listed.
        if held_back > 4 * S {
            stub.change(|shard| shard.shown = None);
        }
    }
    stub.change(|shard| {
        shard.shown = None;
        shard.elsewhere();
    });
    heads.push(stub.look(|shard| shard.version));
    let asked = cache.barrier().await;
    loop {
        let told = cache.next().await;
        check(vec![told], &heads);
        if matches!(told, Told::Answer { id, .. } if id == asked) {
            break;
        }
    }
    assert_eq!(cache.objects, stub.held());
    assert_eq!((cache.syncs, stub.look(|shard| shard.lists)), (1, 1));
}

proptest! {
    #[test]
    fn d38_nothing_is_lost_or_repeated_while_watches_roll(
        asked in prop::option::weighted(0.2, Just(0)),
        steps in steps(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(nothing_is_lost(asked, steps));
    }
}
