use proptest::prelude::*;

use super::super::testing::*;
use super::*;
use crate::selector::ShardSelector;

#[test]
fn a_name_is_taken_before_a_label_and_a_label_before_hashes() {
    let unknown = |_: &Requirement| None;
    let mut chosen = filter("*/*", "a in (x,y,z),b in (p,q),c");
    assert_eq!(Choice::of(&chosen, unknown), Choice::Label(1), "the fewest values");
    let counts = |requirement: &Requirement| (&*requirement.key == "a").then_some(3);
    assert_eq!(Choice::of(&chosen, counts), Choice::Label(0), "what is known is trusted more");
    let counts = |requirement: &Requirement| Some(if &*requirement.key == "a" { 30 } else { 4 });
    assert_eq!(Choice::of(&chosen, counts), Choice::Label(1), "the fewest objects");
    chosen.fields = named("*/*", "x").fields;
    assert_eq!(Choice::of(&chosen, unknown), Choice::Levels);

    let mut hashes = filter("*/*", "!a,b notin (x)");
    assert_eq!(Choice::of(&hashes, unknown), Choice::Levels);
    let half = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
    hashes.shards = Some(ShardSelector::parse(half).expect("legal"));
    assert_eq!(Choice::of(&hashes, unknown), Choice::Hashes);
}

#[test]
fn half_of_the_hashes_is_one_cell() {
    assert_eq!(cells(0, u64::MAX), [(0, 0)]);
    assert_eq!(cells(0, u64::MAX / 2), [(1, 0)]);
    assert_eq!(cells(u64::MAX / 2 + 1, u64::MAX), [(1, 1)]);
    assert_eq!(cells(5, 5), [(HASH_BITS, 0)]);
    assert_eq!(cells(u64::MAX, u64::MAX), [(HASH_BITS, (1 << HASH_BITS) - 1)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(20_000)))]

    #[test]
    fn cells_cover_their_range_and_little_else(a: u64, b: u64, inside: u64, outside: u64) {
        let (start, end) = (a.min(b), a.max(b));
        let cells = cells(start, end);
        prop_assert!(cells.len() <= 2 * HASH_BITS as usize);
        let hits = |hash: u64| cells.iter().filter(|(bits, cell)| prefix(hash, *bits) == *cell).count();
        for hash in [start, end, start + inside % (end - start).max(1)] {
            prop_assert_eq!(hits(hash), 1, "{} in {}..={}", hash, start, end);
        }
        let slack = 1 << (u64::BITS - HASH_BITS);
        if outside < start.saturating_sub(slack) || outside > end.saturating_add(slack) {
            prop_assert_eq!(hits(outside), 0);
        }
    }
}

#[test]
fn shapes_that_nobody_uses_any_more_are_forgotten() {
    let mut shapes = Shapes::default();
    let mut hashed = filter("*/root", "");
    let third = "shardRange(object.metadata.uid, '0x1000000000000001', '0x5555555555555555')";
    hashed.shards = Some(ShardSelector::parse(third).expect("legal"));
    let filters = [
        (filter("amber/root", "a in (x,y)"), Choice::Label(0)),
        (hashed, Choice::Hashes),
        (all(), Choice::Levels),
    ];
    let anchors: Vec<_> =
        filters.iter().flat_map(|(filter, choice)| shapes.anchors(filter, *choice)).collect();
    for anchor in &anchors {
        shapes.add(anchor);
    }
    assert_eq!(shapes.labels.len(), 1);
    assert!(shapes.hashes.len() > 3);
    for anchor in &anchors {
        shapes.remove(anchor);
    }
    assert!(shapes.labels.is_empty() && shapes.hashes.is_empty() && shapes.plain.is_unused());
}
