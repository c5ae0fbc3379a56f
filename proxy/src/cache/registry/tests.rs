use std::sync::OnceLock;

use proptest::prelude::*;
use proptest::sample::{Index, select as one_of};
use shardcache_storage::{Change, Object, ResourceVersion};

use super::super::class::{Pending, Transition};
use super::super::testing::*;
use super::*;
use crate::selector::{FieldSelector, ShardSelector};

const LABELS: [&str; 7] = ["", "k=1", "k=2", "l=1", "k=1,l=1", "k=2,l=2", "m=1"];
const UIDS: [&str; 3] = ["", "u-1", "u-2"];

/// States of objects, grouped by key: any two states of a group can be the two sides of an event.
fn states() -> &'static [Vec<Object>] {
    static STATES: OnceLock<Vec<Vec<Object>>> = OnceLock::new();
    STATES.get_or_init(|| {
        let mut groups = Vec::new();
        for path in ["a/r//x", "a/r/n/x", "a/s//y", "b/r/n/y", "b/s//x"] {
            let mut changes: Vec<Change> = Vec::new();
            for labels in LABELS {
                for uid in UIDS {
                    let mut change = change(widgets(), path, Some((labels, "c")));
                    change.action = shardcache_storage::Action::Put(draft(path, labels, uid, "c"));
                    changes.push(change);
                }
            }
            let (_, events) = block_on(events(changes));
            groups.push(events.iter().filter_map(|event| event.current.clone()).collect());
        }
        groups
    })
}

#[derive(Clone, Debug)]
enum Step {
    Join(Filter),
    Leave(Index),
    Event { key: Index, before: Option<Index>, after: Option<Index> },
    Forget(Index),
}

fn any_filter() -> impl Strategy<Value = Filter> {
    let scope = (
        one_of(vec!["*", "*", "a", "b", "zz"]),
        one_of(vec!["*", "*", "r", "s"]),
        one_of(vec!["", "", "/n", "/zz"]),
    );
    let labels = one_of(vec![
        "",
        "",
        "k=1",
        "k in (1,2)",
        "k in (2,3)",
        "l=1",
        "k=1,l=1",
        "!k",
        "k",
        "k!=1",
        "k notin (1,2)",
        "m>0",
    ]);
    let fields = one_of(vec!["", "", "", "metadata.name=x", "metadata.name!=x", "metadata.namespace=n"]);
    let shards = one_of(vec![
        None,
        None,
        Some("shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"),
        Some("shardRange(object.metadata.uid, '0x5555555555555556', '0xaaaaaaaaaaaaaaab')"),
        Some("shardRange(object.metadata.namespace, '0x1000000000000000', '0x10000000000000000')"),
    ]);
    (scope, labels, fields, shards).prop_map(|((shard, cluster, namespace), labels, fields, shards)| Filter {
        fields: FieldSelector::parse(fields).expect("legal"),
        shards: shards.map(|text| ShardSelector::parse(text).expect("legal")),
        ..filter(&format!("{shard}/{cluster}{namespace}"), labels)
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let event = (any::<Index>(), proptest::option::of(any::<Index>()), proptest::option::of(any::<Index>()));
    prop_oneof![
        4 => any_filter().prop_map(Step::Join),
        1 => any::<Index>().prop_map(Step::Leave),
        6 => event.prop_map(|(key, before, after)| Step::Event { key, before, after }),
        1 => any::<Index>().prop_map(Step::Forget),
    ]
}

/// One watcher, kept the slow and simple way.
struct Watched {
    id: ClassId,
    class: Arc<Class>,
    since: Revision,
    expected: Vec<(Revision, Transition)>,
}

fn in_ring(class: &Class, after: Revision) -> Vec<(Revision, Transition)> {
    match class.read(after) {
        Pending::Events(pending) => pending.iter().map(|d| (d.event.revision, d.kind)).collect(),
        Pending::Nothing => Vec::new(),
        Pending::Behind => panic!("the ring begins after {after}"),
    }
}

fn event(number: u64, before: Option<&Object>, after: Option<&Object>) -> Arc<Event> {
    let version: ResourceVersion = version(number);
    Arc::new(Event::new(version, widgets(), before.cloned(), after.cloned()))
}

proptest! {
    // Every case judges some hundred pairs of event and filter.
    #![proptest_config(ProptestConfig::with_cases(cases(10_000)))]

    #[test]
    fn d22_dispatch_by_anchors_equals_brute_force(steps in proptest::collection::vec(any_step(), 1..24)) {
        let mut registry = Registry::new(version(0).revision());
        let mut watched: Vec<Watched> = Vec::new();
        let (mut number, mut forgotten) = (0, version(0).revision());
        for step in steps {
            match step {
                Step::Join(filter) => {
                    let (id, class) = registry.join(filter, |_| None);
                    watched.push(Watched { id, class, since: version(number).revision(), expected: Vec::new() });
                }
                Step::Leave(which) if !watched.is_empty() => {
                    let gone = watched.swap_remove(which.index(watched.len()));
                    registry.leave(gone.id);
                }
                Step::Event { key, before, after } if before.is_some() || after.is_some() => {
                    let group = key.get(states());
                    let state = |index: Option<Index>| index.map(|index| index.get(group));
                    number += 1;
                    let event = event(number, state(before), state(after));
                    let done = registry.dispatch(std::slice::from_ref(&event));
                    let mut matching = Vec::new();
                    for one in &mut watched {
                        if let Some(kind) = transition(one.class.filter(), &event) {
                            one.expected.push((event.revision, kind));
                            if !matching.iter().any(|class| Arc::ptr_eq(class, &one.class)) {
                                matching.push(Arc::clone(&one.class));
                            }
                        }
                    }
                    prop_assert_eq!(done.woken.len(), matching.len());
                    prop_assert!(matching.iter().all(|class| done.woken.iter().any(|w| Arc::ptr_eq(w, class))));
                    prop_assert!(done.judged >= matching.len() as u64 && done.judged <= registry.len() as u64);
                }
                Step::Forget(through) => {
                    let through = version(through.index(number as usize + 1) as u64).revision();
                    registry.forget_through(through);
                    forgotten = forgotten.max(through);
                }
                Step::Leave(_) | Step::Event { .. } => {}
            }
            for one in &watched {
                let from = one.since.max(forgotten);
                let expected: Vec<_> = one.expected.iter().copied().filter(|(at, _)| *at > from).collect();
                prop_assert_eq!(in_ring(&one.class, from), expected);
            }
            let classes: std::collections::HashSet<_> = watched.iter().map(|one| one.class.filter()).collect();
            prop_assert_eq!(registry.len(), classes.len());
        }
        watched.drain(..).for_each(|one| registry.leave(one.id));
        registry.forget_through(version(number).revision());
        prop_assert_eq!((registry.len(), registry.bytes()), (0, 0));
        prop_assert!(registry.buckets.is_empty() && registry.pushed.is_empty());
    }
}

/// A registry with a class per `shard in (i)`.
fn disjoint(classes: usize) -> Registry {
    let mut registry = Registry::new(version(0).revision());
    for n in 0..classes {
        registry.join(filter("*/*", &format!("shard in ({n})")), |_| None);
    }
    registry
}

fn labelled(label: &str) -> Object {
    let (_, events) = block_on(events(vec![change(widgets(), "a/r//x", Some((label, "c")))]));
    events[0].current.clone().expect("a put")
}

#[test]
fn d22_an_event_judges_few_of_100k_disjoint_selectors() {
    let mut registry = disjoint(100_000);
    let (here, there) = (labelled("shard=4711,app=x"), labelled("shard=815,app=x"));
    let created = registry.dispatch(&[event(1, None, Some(&here))]);
    assert_eq!((created.judged, created.woken.len()), (1, 1));
    let moved = registry.dispatch(&[event(2, Some(&here), Some(&there))]);
    assert_eq!((moved.judged, moved.woken.len()), (2, 2));
    let elsewhere = labelled("app=x");
    assert_eq!(registry.dispatch(&[event(3, None, Some(&elsewhere))]).judged, 0);
}

#[test]
fn d22_levels_and_labels_anchor_together() {
    // A thousand clusters with the same selector, and a thousand selectors in the same cluster.
    let mut registry = Registry::new(version(0).revision());
    for n in 0..1000 {
        registry.join(filter(&format!("*/c{n}"), "app=x"), |_| None);
        registry.join(filter("*/r", &format!("app in (v{n})")), |_| None);
    }
    let in_r = labelled("app=v7");
    assert_eq!(registry.dispatch(&[event(1, None, Some(&in_r))]).judged, 1);
}

#[test]
fn d22_a_thousand_hash_ranges_judge_one() {
    let mut registry = Registry::new(version(0).revision());
    let width = u64::MAX / 1000;
    for n in 0..1000_u64 {
        let (start, end) = (n * width, (n + 1) * width);
        let text = format!("shardRange(object.metadata.uid, '{start:#018x}', '{end:#018x}')");
        let shards = Some(ShardSelector::parse(&text).expect("legal"));
        registry.join(Filter { shards, ..all() }, |_| None);
    }
    let object = labelled("");
    let done = registry.dispatch(&[event(1, None, Some(&object))]);
    // A range that does not end on a cell's border shares that cell with its neighbour.
    assert!((1..=2).contains(&done.judged), "{}", done.judged);
    assert_eq!(done.woken.len(), 1);
}

#[test]
fn watchers_of_one_filter_share_a_class_until_the_last_one_leaves() {
    let mut registry = Registry::new(version(0).revision());
    let (first, class) = registry.join(filter("*/*", "k=1"), |_| None);
    let (second, same) = registry.join(filter("*/*", "k=1"), |_| None);
    assert!(first == second && Arc::ptr_eq(&class, &same));
    registry.leave(first);
    assert_eq!(registry.len(), 1);
    registry.leave(second);
    assert_eq!(registry.len(), 0);
    let (_, other) = registry.join(filter("*/*", "k=1"), |_| None);
    assert!(!Arc::ptr_eq(&class, &other));
}

#[test]
fn b028_an_object_that_never_matched_is_never_mentioned() {
    let mut registry = Registry::new(version(0).revision());
    let (_, class) = registry.join(filter("*/*", "app=a"), |_| None);
    let (_, scanned) = registry.join(filter("*/*", "app!=b,app"), |_| None);
    let states = ["app=b,n=1", "app=b,n=2"].map(labelled);
    for n in 1..=100 {
        let (before, after) = (&states[n % 2], &states[(n + 1) % 2]);
        registry.dispatch(&[event(n as u64, Some(before), Some(after))]);
    }
    registry.dispatch(&[event(101, Some(&states[0]), None)]);
    for class in [class, scanned] {
        assert!(matches!(class.read(version(0).revision()), Pending::Nothing));
    }
}
