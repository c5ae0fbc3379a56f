use proptest::prelude::*;
use proptest::sample::{Index, select as one_of};

use super::super::testing::*;
use super::*;
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

fn index_of(objects: &Objects, label: &str) -> LabelIndex {
    LabelIndex::build(label.into(), objects)
}

fn contents(index: &LabelIndex) -> Vec<(String, Vec<(String, shardcache_storage::Revision)>)> {
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
        built_at in any::<Index>(),
        selector in one_of(vec!["k=1", "k in (1,2,3)", "k in (2,9)", "l=1,k=3", "k=9", "l in (1,2),k!=1"]),
        scope in one_of(vec!["*/*", "a/*", "*/r", "b/s", "b/s/n"]),
        after in proptest::option::of(0..PATHS.len()),
    ) {
        let (state, events) = block_on(replay(&changes));
        prop_assume!(!events.is_empty());
        // Build from a prefix, follow the rest.
        let prefix = built_at.index(events.len() + 1);
        let mut early = Objects::default();
        for event in &events[..prefix] {
            match &event.current {
                Some(object) => early.insert(object.clone()),
                None => early.remove(event.key()),
            };
        }
        let mut indexes = LabelIndexes::default();
        indexes.add(widgets(), index_of(&early, "k"));
        indexes.add(widgets(), index_of(&early, "l"));
        indexes.apply(&events[prefix..]);
        let objects = state.objects(&widgets()).expect("there were events");
        for label in ["k", "l"] {
            let maintained = indexes.find(&widgets(), label).expect("added");
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
        let scan = indexes.scan(&widgets(), &filter, after).expect("an index serves it");
        let found: Vec<_> = scan.map(|object| (object.key(), object.revision())).collect();
        prop_assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn the_label_not_used_for_longest_makes_room() {
    let (state, _) = replay(&[(0, Some(1))]).await;
    let objects = state.objects(&widgets()).expect("one");
    let mut indexes = LabelIndexes::default();
    for n in 0..INDEXES_MAX {
        indexes.add(widgets(), index_of(objects, &format!("l{n}")));
    }
    let used = filter("*/*", "l0=1");
    assert_eq!(indexes.scan(&widgets(), &used, None).expect("indexed").count(), 0);
    indexes.add(widgets(), index_of(objects, "k"));
    assert_eq!(indexes.len(), INDEXES_MAX);
    assert!(indexes.has(&widgets(), "l0") && indexes.has(&widgets(), "k"));
    assert!(!indexes.has(&widgets(), "l1"));
    indexes.add(widgets(), index_of(objects, "k"));
    assert_eq!(indexes.len(), INDEXES_MAX, "the same label twice is one index");
}

#[tokio::test]
async fn the_most_selective_index_serves() {
    let (state, _) = replay(&[(0, Some(4)), (1, Some(1)), (2, Some(1)), (3, Some(5))]).await;
    let mut indexes = LabelIndexes::default();
    let objects = state.objects(&widgets()).expect("some");
    indexes.add(widgets(), index_of(objects, "k"));
    let both = filter("*/*", "k=1,l=2");
    assert_eq!(indexes.missing(&widgets(), &both), None, "one index is enough");
    indexes.add(widgets(), index_of(objects, "l"));
    let count = |at: usize| indexes.count(&widgets(), &both.labels.requirements()[at]);
    assert_eq!((count(0), count(1)), (Some(3), Some(1)));
    let found: Vec<_> = indexes.scan(&widgets(), &both, None).expect("served").map(Object::key).collect();
    assert_eq!(found, [key(PATHS[0]).as_str()]);
    assert!(indexes.scan(&gadgets(), &both, None).is_none(), "an index is of one type");
    let other = filter("*/*", "!k,m in (1),n=1");
    assert_eq!(indexes.missing(&widgets(), &other).map(|label| &**label), Some("m"));
    assert_eq!(indexes.missing(&widgets(), &filter("*/*", "k,k!=1")), None, "nothing an index could answer");
}
