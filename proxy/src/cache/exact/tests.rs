use std::collections::BTreeMap;

use super::super::CacheConfig;
use super::super::testing::*;
use super::*;

/// The widgets after each revision: key to content.
type Past = BTreeMap<Revision, BTreeMap<String, String>>;

fn as_map(objects: &Objects) -> BTreeMap<String, String> {
    objects.iter().map(|object| (object.key().to_owned(), content(object))).collect()
}

/// A hundred events, some in one commit, some of another type, with deletions and recreations.
async fn lived(config: CacheConfig) -> (World, Past) {
    let mut world = World::with(config);
    let mut past = Past::from([(world.head(), BTreeMap::new())]);
    let mut now = BTreeMap::new();
    for n in 0..40_usize {
        let path = format!("amber/root//w{}", n * 7 % 5);
        let state = format!("{n}");
        let exists = now.contains_key(key(&path).as_str());
        let mut changes = vec![change(gadgets(), &path, Some(("", "g")))];
        changes.push(change(widgets(), &path, (n % 3 > 0 || !exists).then_some(("", &*state))));
        changes.push(change(widgets(), "amber/root//busy", Some(("", &*state))));
        for event in world.commit(changes).await {
            if event.type_name == widgets() {
                match &event.current {
                    Some(object) => now.insert(object.key().to_owned(), content(object)),
                    None => now.remove(event.key()),
                };
            }
            past.insert(event.revision, now.clone());
        }
        world.reflect().await;
    }
    (world, past)
}

async fn assert_all(world: &World, past: &Past) {
    for (revision, expected) in past {
        let objects = world.cache.objects_at(&widgets(), *revision).await.expect("nothing was compacted");
        assert_eq!(&as_map(&objects), expected, "at {revision}");
        let bytes: usize = objects.iter().map(|object| object.body_bytes().len()).sum();
        assert_eq!(objects.body_bytes(), bytes as u64);
    }
}

#[tokio::test]
async fn d26_every_issued_revision_can_be_read_again() {
    let (mut world, past) = lived(CacheConfig::default()).await;
    assert_all(&world, &past).await;
    assert_eq!(world.log_reads.load(std::sync::atomic::Ordering::Relaxed), 0, "the history was enough");
    world.restart();
    assert_all(&world, &past).await;
    assert!(world.log_reads.load(std::sync::atomic::Ordering::Relaxed) > 0, "a token survives a restart");
}

#[tokio::test]
async fn d26_the_log_answers_what_the_history_dropped() {
    for history_bytes in [0, 8 << 10] {
        let config = CacheConfig { history_bytes, snapshots_max: 0, ..CacheConfig::default() };
        let (world, past) = lived(config).await;
        assert_all(&world, &past).await;
    }
}

#[tokio::test]
async fn a_rebuilt_state_is_not_rebuilt_for_the_next_page() {
    let (world, past) = lived(CacheConfig { history_bytes: 0, ..CacheConfig::default() }).await;
    let at = *past.keys().nth(10).expect("some");
    let reads = || world.log_reads.load(std::sync::atomic::Ordering::Relaxed);
    world.cache.objects_at(&widgets(), at).await.expect("in the log");
    let first = reads();
    assert!(first > 0);
    world.cache.objects_at(&widgets(), at).await.expect("retained");
    assert_eq!(reads(), first);
    assert_eq!(world.metrics.cache.snapshots.get(), 1);
    assert!(world.metrics.cache.snapshot_bytes.get() > 0);
}

#[tokio::test]
async fn below_the_floor_only_what_is_retained_is_left() {
    let (mut world, _) = lived(CacheConfig::default()).await;
    let kept = world.cache.snapshot();
    let at = kept.state.head();
    world.cache.retain(&kept);
    let lost = world.put("amber/root//w0", "", "later").await.revision;
    world.put("amber/root//w0", "", "latest").await;
    let floor = world.compact(world.head()).await;
    assert!(lost < floor);
    let expected = as_map(kept.state.objects(&widgets()).expect("some"));
    let objects = world.cache.objects_at(&widgets(), at).await.expect("retained");
    assert_eq!(as_map(&objects), expected);
    match world.cache.objects_at(&widgets(), lost).await {
        Err(CacheError::TooOld { floor: at }) => assert_eq!(at, floor),
        other => panic!("{:?}", other.map(|objects| objects.len())),
    }
    let head = world.cache.objects_at(&widgets(), world.head()).await.expect("the present");
    assert_eq!(head.get(key("amber/root//w0").as_str()).map(content).as_deref(), Some("latest"));
}

#[tokio::test]
async fn a_type_without_objects_was_always_empty() {
    let (world, past) = lived(CacheConfig::default()).await;
    let never = TypeName::new("example.dev", "never");
    for revision in past.keys() {
        assert!(world.cache.objects_at(&never, *revision).await.expect("issued").is_empty());
    }
}
