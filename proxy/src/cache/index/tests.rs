use std::sync::atomic::AtomicUsize;

use proptest::prelude::*;
use proptest::sample::{Index as Pick, select as one_of};

use super::super::snapshot::Snapshot;
use super::super::testing::*;
use super::*;
use crate::selector::FieldSelector;
use crate::types::Types;
use shardcache_storage::State;

const PATHS: [&str; 6] = ["a/r//x", "a/r//y", "a/s//x", "b/r//x", "b/s/n/x", "b/s/n/y"];
const LABELS: [&str; 6] = ["", "k=1", "k=2", "k=3,l=1", "k=1,l=2", "l=1"];

async fn replay(changes: &[(usize, Option<usize>)]) -> (State, Vec<Arc<Event>>) {
    let mut live = [false; PATHS.len()];
    let mut applicable = Vec::new();
    for (path, labels) in changes {
        if labels.is_some() || live[*path] {
            live[*path] = labels.is_some();
            let state = labels.map(|at| (LABELS[at], "c"));
            applicable.push(change(widgets(), PATHS[*path], state));
        }
    }
    events(applicable).await
}

fn by(label: &str) -> IndexBy {
    IndexBy::Label(label.into())
}

fn index_of(objects: &Objects, label: &str) -> Index {
    Index::build(by(label), objects)
}

/// The objects that a prefix of the events leaves.
fn after_events(events: &[Arc<Event>]) -> Objects {
    let mut objects = Objects::default();
    for event in events {
        match &event.current {
            Some(object) => objects.insert(object.clone()),
            None => objects.remove(event.key()),
        };
    }
    objects
}

fn contents(index: &Index) -> Vec<(String, Vec<(String, shardcache_storage::Revision)>)> {
    let posting = |posting: &OrdSet<Object>| {
        posting.iter().map(|object| (object.key().to_owned(), object.revision())).collect()
    };
    index.postings.iter().map(|(value, objects)| (value.to_string(), posting(objects))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(300)))]

    #[test]
    fn a_maintained_index_is_the_index_of_the_new_state(
        changes in proptest::collection::vec((0..PATHS.len(), proptest::option::of(0..LABELS.len())), 1..60),
        built_at in any::<Pick>(),
        selector in one_of(vec!["k=1", "k in (1,2,3)", "k in (2,9)", "l=1,k=3", "k=9", "l in (1,2),k!=1"]),
        scope in one_of(vec!["*/*", "a/*", "*/r", "b/s", "b/s/n"]),
        after in proptest::option::of(0..PATHS.len()),
    ) {
        let (state, events) = block_on(replay(&changes));
        prop_assume!(!events.is_empty());
        // Build from a prefix, follow the rest.
        let prefix = built_at.index(events.len() + 1);
        let early = after_events(&events[..prefix]);
        let mut indexes = Indexes::default();
        indexes.add(widgets(), index_of(&early, "k"));
        indexes.add(widgets(), index_of(&early, "l"));
        indexes.apply(&events[prefix..]);
        let objects = state.objects(&widgets()).expect("there were events");
        for label in ["k", "l"] {
            let maintained = indexes.find(&widgets(), &by(label)).expect("added");
            prop_assert_eq!(contents(maintained), contents(&index_of(objects, label)));
        }
        let filter = filter(scope, selector);
        let after = after.map(|at| key(PATHS[at]));
        let after = after.as_ref().map(shardcache_storage::Key::as_str);
        let expected: Vec<_> = objects
            .iter()
            .filter(|object| filter.matches(object) && after.is_none_or(|after| object.key() > after))
            .map(|object| (object.key(), object.revision()))
            .collect();
        let scan = indexes.scan(&widgets(), &filter, after, None).expect("an index serves it");
        let found: Vec<_> = scan.map(|object| (object.key(), object.revision())).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn d20_an_index_by_cluster_gives_the_filter_of_the_full_list(
        changes in proptest::collection::vec((0..PATHS.len(), proptest::option::of(0..LABELS.len())), 1..60),
        built_at in any::<Pick>(),
        with_labels in any::<bool>(),
        scope in one_of(vec!["*/r", "*/s", "*/s/n", "*/zz", "a/r", "*/*"]),
        selector in one_of(vec!["", "k=1", "k in (1,3)", "k!=1"]),
        fields in one_of(vec!["", "metadata.name=x", "metadata.namespace=n", "metadata.name!=x"]),
        after in proptest::option::of(0..PATHS.len()),
    ) {
        let (state, events) = block_on(replay(&changes));
        prop_assume!(!events.is_empty());
        // Build from a prefix, follow the rest: clusters come and go.
        let prefix = built_at.index(events.len() + 1);
        let early = after_events(&events[..prefix]);
        let mut indexes = Indexes::default();
        indexes.add(widgets(), Index::build(IndexBy::Cluster, &early));
        if with_labels {
            indexes.add(widgets(), index_of(&early, "k"));
        }
        indexes.apply(&events[prefix..]);
        let objects = state.objects(&widgets()).expect("there were events").clone();
        let maintained = indexes.find(&widgets(), &IndexBy::Cluster).expect("added");
        prop_assert_eq!(contents(maintained), contents(&Index::build(IndexBy::Cluster, &objects)));

        let fields = FieldSelector::parse(fields).expect("legal");
        let filter = Filter { fields, ..filter(scope, selector) };
        let after = after.map(|at| key(PATHS[at]));
        let after = after.as_ref().map(shardcache_storage::Key::as_str);
        let expected: Vec<_> = objects
            .iter()
            .filter(|object| filter.matches(object) && after.is_none_or(|after| object.key() > after))
            .map(|object| (object.key(), object.revision()))
            .collect();
        let served = indexes.scan(&widgets(), &filter, after, None);
        prop_assert!(served.is_some() || cluster_across_shards(&filter).is_none());
        drop(served);
        let (requests, _wanted) = mpsc::channel(1);
        let types = Types::builtin(Vec::new());
        let snapshot = Snapshot::indexed(state, types, indexes, IndexRequests(requests));
        let scan = snapshot.scan(&widgets(), &filter, after);
        let found: Vec<_> = scan.map(|object| (object.key(), object.revision())).collect();
        prop_assert_eq!(&found, &expected);
        let remaining = snapshot.remaining(&widgets(), &filter, after);
        prop_assert_eq!(remaining, (!filter.has_selectors()).then_some(expected.len()));
    }
}

/// Objects in so many shards: two in cluster `a`, `c` and `z` each, and in every tenth shard one in `home`.
async fn many_shards(shards: usize) -> Objects {
    let mut paths = Vec::new();
    for shard in 0..shards {
        for cluster in ["a", "c", "z"] {
            paths.extend([format!("s{shard:04}/{cluster}//x"), format!("s{shard:04}/{cluster}//y")]);
        }
        if shard % 10 == 0 {
            paths.push(format!("s{shard:04}/home//x"));
        }
    }
    let put = |path: &String| change(widgets(), path, Some(("k=1", "c")));
    let (state, _) = events(paths.iter().map(put).collect()).await;
    state.objects(&widgets()).expect("there are some").clone()
}

#[tokio::test]
async fn d20_through_an_index_one_cluster_touches_only_its_own() {
    let objects = many_shards(200).await;
    let index = Index::build(IndexBy::Cluster, &objects);
    for (cluster, selector, found) in [("home", "", 20), ("home", "k=1", 20), ("c", "", 400), ("none", "", 0)]
    {
        let filter = filter(&format!("*/{cluster}"), selector);
        let touched = AtomicUsize::new(0);
        let touched = &touched;
        let postings = index.postings_of(cluster_across_shards(&filter));
        let counted = |posting: &'_ OrdSet<Object>| {
            let range = |from: Bound<&str>| {
                let objects = posting.range::<_, [u8]>((from.map(str::as_bytes), Bound::Unbounded));
                objects.inspect(|_| _ = touched.fetch_add(1, Ordering::Relaxed))
            };
            select(range, &filter, None, None).count()
        };
        let result: usize = postings.into_iter().map(counted).sum();
        assert_eq!(result, found, "{cluster}");
        let touched = touched.load(Ordering::Relaxed);
        assert!(touched <= 4 * (result + 1), "{cluster}: {touched}");
    }
}

#[tokio::test]
async fn of_a_label_and_a_cluster_the_smaller_serves() {
    let objects = after_events(&replay(&[(0, Some(1)), (1, Some(1)), (3, Some(2)), (2, Some(2))]).await.1);
    let mut indexes = Indexes::default();
    indexes.add(widgets(), Index::build(IndexBy::Cluster, &objects));
    indexes.add(widgets(), index_of(&objects, "k"));
    let used = |indexes: &Indexes, by: &IndexBy| {
        indexes.find(&widgets(), by).expect("added").used.load(Ordering::Relaxed)
    };
    // Three in cluster r, two with k=2; one in cluster s, two with k=1.
    for (scope, selector, by_label) in [("*/r", "k=2", true), ("*/s", "k=1", false)] {
        let filter = filter(scope, selector);
        assert!(indexes.scan(&widgets(), &filter, None, None).is_some());
        let label_is_newer = used(&indexes, &by("k")) > used(&indexes, &IndexBy::Cluster);
        assert_eq!(label_is_newer, by_label, "{scope} {selector}");
    }
    let named =
        Filter { fields: FieldSelector::parse("metadata.name=x").expect("legal"), ..filter("*/r", "k=2") };
    assert!(indexes.scan(&widgets(), &named, None, None).is_some());
    assert!(used(&indexes, &IndexBy::Cluster) > used(&indexes, &by("k")), "a label never serves a name");
}

#[tokio::test]
async fn the_label_not_used_for_longest_makes_room() {
    let (state, _) = replay(&[(0, Some(1))]).await;
    let objects = state.objects(&widgets()).expect("one");
    let mut indexes = Indexes::default();
    for n in 0..INDEXES_MAX {
        indexes.add(widgets(), index_of(objects, &format!("l{n}")));
    }
    let used = filter("*/*", "l0=1");
    assert_eq!(indexes.scan(&widgets(), &used, None, None).expect("indexed").count(), 0);
    indexes.add(widgets(), index_of(objects, "k"));
    assert_eq!(indexes.len(), INDEXES_MAX);
    assert!(indexes.has(&widgets(), &by("l0")) && indexes.has(&widgets(), &by("k")));
    assert!(!indexes.has(&widgets(), &by("l1")));
    indexes.add(widgets(), index_of(objects, "k"));
    assert_eq!(indexes.len(), INDEXES_MAX, "the same label twice is one index");
}

#[tokio::test]
async fn the_most_selective_index_serves() {
    let (state, _) = replay(&[(0, Some(4)), (1, Some(1)), (2, Some(1)), (3, Some(5))]).await;
    let mut indexes = Indexes::default();
    let objects = state.objects(&widgets()).expect("some");
    indexes.add(widgets(), index_of(objects, "k"));
    let both = filter("*/*", "k=1,l=2");
    assert_eq!(indexes.missing(&widgets(), &both), None, "one index is enough");
    indexes.add(widgets(), index_of(objects, "l"));
    let count = |at: usize| indexes.count(&widgets(), &both.labels.requirements()[at]);
    assert_eq!((count(0), count(1)), (Some(3), Some(1)));
    let found: Vec<_> =
        indexes.scan(&widgets(), &both, None, None).expect("served").map(Object::key).collect();
    assert_eq!(found, [key(PATHS[0]).as_str()]);
    assert!(indexes.scan(&gadgets(), &both, None, None).is_none(), "an index is of one type");
    let other = filter("*/*", "!k,m in (1),n=1");
    assert_eq!(indexes.missing(&widgets(), &other), Some(by("m")));
    assert_eq!(indexes.missing(&widgets(), &filter("*/*", "k,k!=1")), None, "nothing an index could answer");
    let named = Filter { labels: other.labels, ..named("*/*", "x") };
    assert_eq!(indexes.missing(&widgets(), &named), None, "a name is more selective");
}
