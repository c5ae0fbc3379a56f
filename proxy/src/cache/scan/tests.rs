use std::cell::Cell;
use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::{Index, select as one_of, subsequence};

use super::super::testing::*;
use super::*;

/// Objects at a random part of all paths over small alphabets. Names that are prefixes of each other, and
/// the empty namespace, are where byte order is easy to get wrong.
fn population() -> &'static [Object] {
    static POPULATION: std::sync::OnceLock<Vec<Object>> = std::sync::OnceLock::new();
    POPULATION.get_or_init(|| {
        let mut changes = Vec::new();
        for shard in ["a", "a-b", "ab", "b"] {
            for cluster in ["r", "r-1", "s", "t"] {
                for namespace in ["", "n", "n-1", "o"] {
                    for (name, labels) in [("x", "k=1"), ("x-y", "k=2,l=1"), ("y", ""), ("z", "k=1,l=2")] {
                        let path = format!("{shard}/{cluster}/{namespace}/{name}");
                        changes.push(change(widgets(), &path, Some((labels, "c"))));
                    }
                }
            }
        }
        let (_, events) = block_on(events(changes));
        events.iter().map(|event| event.current.clone().expect("a put")).collect()
    })
}

fn some_objects() -> impl Strategy<Value = Vec<Object>> {
    let all = population().to_vec();
    let len = all.len();
    prop_oneof![subsequence(all.clone(), 0..=len), subsequence(all, 0..20)]
}

/// Filters of every shape, over the same alphabets and values that do not occur.
fn any_filter() -> impl Strategy<Value = Filter> {
    let scope = (
        one_of(vec!["*", "*", "a", "a-b", "b", "zz", "0"]),
        one_of(vec!["*", "*", "r", "r-1", "t", "zz", "0"]),
        one_of(vec!["", "", "/n", "/o", "/zz"]),
    );
    let labels = one_of(vec!["", "", "k=1", "k in (1,2)", "l!=1", "!k"]);
    let fields = one_of(vec![
        "",
        "",
        "metadata.name=x",
        "metadata.name!=x",
        "metadata.namespace=n",
        "metadata.namespace=",
        "metadata.name=x,metadata.namespace=o",
    ]);
    (scope, labels, fields).prop_map(|((shard, cluster, namespace), labels, fields)| {
        let fields = crate::selector::FieldSelector::parse(fields).expect("legal");
        Filter { fields, ..filter(&format!("{shard}/{cluster}{namespace}"), labels) }
    })
}

fn objects_of(some: &[Object]) -> Objects {
    let mut objects = Objects::default();
    for object in some {
        objects.insert(object.clone());
    }
    objects
}

/// A scan of the same shape as [`select`] makes, which asks for nothing.
fn counting<F, I>(range: F, current: I, levels: Levels<'_>) -> SkipScan<'_, F, I> {
    SkipScan { range, current, levels, passed: None, done: false, cluster_seeks: 0, if_costly: None }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(4000)))]

    #[test]
    fn d20_every_scope_is_the_filter_of_the_full_list(
        some in some_objects(),
        filter in any_filter(),
        after in proptest::option::of(any::<Index>()),
    ) {
        let objects = objects_of(&some);
        let after = after.map(|index| index.get(population()).key());
        let expected: Vec<&str> = objects
            .iter()
            .filter(|object| filter.matches(object) && after.is_none_or(|after| object.key() > after))
            .map(Object::key)
            .collect();
        let found: Vec<&str> = scan(&objects, &filter, after).map(Object::key).collect();
        prop_assert_eq!(&found, &expected);
        let count = remaining(&objects, &filter, after);
        prop_assert_eq!(count, (!filter.has_selectors()).then_some(expected.len()));
        prop_assert_eq!(selects_all(&filter), filter == all());
    }

    #[test]
    fn d20_one_cluster_in_every_shard_touches_few_others(
        some in some_objects(),
        cluster in one_of(vec!["r", "r-1", "t", "zz", "0"]),
    ) {
        let objects = objects_of(&some);
        let touched = Cell::new(0);
        // The scan is `Send`, a counter of one thread is not: count in a scan of the same shape.
        let counted = |from: Bound<&str>| {
            objects.range(from, Bound::Unbounded).inspect(|_| touched.set(touched.get() + 1))
        };
        let one = filter(&format!("*/{cluster}"), "");
        let levels = Levels::of(&one);
        let current = counted(Bound::Included(&levels.first()));
        let scan = counting(counted, current, levels);
        let result = scan.count();
        let shards: BTreeSet<_> = objects.iter().map(|object| object.parts().shard).collect();
        prop_assert_eq!(result, objects.iter().filter(|object| one.matches(object)).count());
        prop_assert!(touched.get() <= 4 * (shards.len() + result), "{} of {}", touched.get(), objects.len());
    }
}

#[test]
fn a_range_ends_where_its_scope_ends() {
    let objects = objects_of(population());
    let one = filter("a/r/n", "");
    let touched = Cell::new(0);
    let counted =
        |from: Bound<&str>| objects.range(from, Bound::Unbounded).inspect(|_| touched.set(touched.get() + 1));
    let levels = Levels::of(&one);
    let current = counted(Bound::Included(&levels.first()));
    let mut scan = counting(counted, current, levels);
    assert_eq!(scan.by_ref().count(), 4);
    assert_eq!(touched.get(), 5, "one beyond the end is seen");
    assert!(scan.next().is_none());
    assert_eq!(touched.get(), 5, "a finished scan stays finished");
}
