use proptest::prelude::*;

use super::{HashField, ShardSelector, fnv1a64};

fn parse(text: &str) -> ShardSelector {
    ShardSelector::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
}

fn error(text: &str) -> String {
    let error = ShardSelector::parse(text).expect_err(text);
    error.strip_prefix("invalid shard selector: ").expect("the prefix").to_owned()
}

/// One term with these two bounds, quotes included.
fn range(start: &str, end: &str) -> String {
    format!("shardRange(object.metadata.uid, {start}, {end})")
}

const LOW: &str = "'0x0000000000000000'";
const MIDDLE: &str = "'0x8000000000000000'";
const TOP: &str = "'0x10000000000000000'";

#[test]
fn the_hash_is_fnv_1a_64() {
    for (text, hash) in [
        ("", 0xcbf2_9ce4_8422_2325),
        ("a", 0xaf63_dc4c_8601_ec8c),
        ("foobar", 0x8594_4171_f739_67e8),
        ("default", 0xebad_a516_8620_c5fe),
        ("kube-system", 0xdf65_c7bc_1d82_b35e),
        ("00000000-0000-0000-0000-000000000001", 0x7c38_4b62_18f2_983e),
        ("7a6f1e5c-0d0b-4f0e-9a53-0f6f1b7a1c11", 0x65d4_3ae9_8912_4e31),
    ] {
        assert_eq!(fnv1a64(text), hash, "{text}");
    }
}

#[test]
fn b079_ranges_are_half_open_and_complements_are_disjoint_and_complete() {
    let (low, high) = (parse(&range(LOW, MIDDLE)), parse(&range(MIDDLE, TOP)));
    assert_eq!(low.field(), HashField::Uid);
    for hash in [0, 1, (1 << 63) - 1, 1 << 63, u64::MAX] {
        assert_ne!(low.contains(hash), high.contains(hash), "{hash:x}");
    }
    assert!(low.contains(0) && high.contains(1 << 63) && high.contains(u64::MAX));
    let both = parse(&format!("{} || {}", range(MIDDLE, TOP), range(LOW, MIDDLE)));
    assert_eq!(both.ranges(), vec![0..=u64::MAX]);
}

#[test]
fn sloppy_spellings_have_one_canonical_text() {
    let canonical = "shardRange(object.metadata.namespace, '0x0000000000000000', '0x00000000000000ff') || \
                     shardRange(object.metadata.namespace, '0x8000000000000000', '0x10000000000000000')";
    for text in [
        canonical.to_owned(),
        canonical.replace('\'', "\""),
        canonical.replace(' ', ""),
        canonical.replace(' ', " \n\t "),
        format!("  ({canonical})  "),
        format!("(({}))", canonical.replace(" || ", ") || (")),
        canonical.replace("object.metadata", "object . metadata").replace('(', " ( "),
    ] {
        assert_eq!(parse(&text).to_string(), canonical, "{text}");
    }
}

#[test]
fn what_is_not_a_union_of_ranges_is_refused_with_kube_s_reason() {
    let uid = "object.metadata.uid";
    let other = "shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')";
    let table = [
        ("  ".to_owned(), "empty shard selector is not allowed; omit the parameter for unfiltered lists"),
        (range(LOW, "'8000000000000000'"), "hexEnd must have '0x' prefix, got \"8000000000000000\""),
        (range("'0x'", TOP), "hexStart: hex value is required after '0x'"),
        (
            range(LOW, "'0x100000000000000000'"),
            "hexEnd: hex value too long (18 chars, max 17): \"100000000000000000\"",
        ),
        (range(LOW, "'0x800000000000000G'"), "hexEnd: invalid hex character \"G\" in \"0x800000000000000G\""),
        (
            range("'0xA000000000000000'", TOP),
            "hexStart: invalid hex character \"A\" in \"0xA000000000000000\"",
        ),
        (
            range(LOW, "'0x10000000000000001'"),
            "hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), got \"0x10000000000000001\"",
        ),
        (
            range("'0x0'", TOP),
            "hexStart must be a 0x-prefixed 16-digit hex value, got \"0x0\" (did you mean \"0x0000000000000000\"?)",
        ),
        (
            range(MIDDLE, MIDDLE),
            "shard range start 0x8000000000000000 must be less than end 0x8000000000000000",
        ),
        (range(TOP, TOP), "shard range start 0x10000000000000000 must be less than end 0x10000000000000000"),
        (range("0", TOP), "hexStart must be a string literal (e.g. '0xff')"),
        (format!("shardRange({uid}, {LOW})"), "shardRange() requires exactly 3 arguments, got 2"),
        ("shardRange()".to_owned(), "shardRange() requires exactly 3 arguments, got 0"),
        (
            range(LOW, TOP).replace(uid, "metadata.uid"),
            "unsupported field path \"metadata.uid\"; supported: object.metadata.uid, object.metadata.namespace",
        ),
        (
            range(LOW, TOP).replace(uid, "'x'"),
            "shardRange() first argument: expected field path (e.g. object.metadata.uid)",
        ),
        (
            format!("{} || {other}", range(LOW, TOP)),
            "all shard ranges must use the same field, got \"object.metadata.uid\" and \"object.metadata.namespace\"",
        ),
        (
            range(LOW, TOP).replace("shardRange", "hash"),
            "unsupported function \"hash\"; only shardRange() and || are allowed",
        ),
        (
            format!("{} && {}", range(LOW, TOP), range(LOW, TOP)),
            "unsupported function \"&&\"; only shardRange() and || are allowed",
        ),
        (uid.to_owned(), "unexpected expression kind; expected shardRange() call or || operator"),
        ("true".to_owned(), "unexpected expression kind; expected shardRange() call or || operator"),
    ];
    for (text, expected) in table {
        assert_eq!(error(&text), expected, "{text}");
    }
    let good = range(LOW, TOP);
    for text in [
        format!("{good} ||"),
        format!("({good}"),
        format!("{good})"),
        format!("{good} {good}"),
        format!("!{good}"),
        good.replace("')", ")"),
        good.replace(".uid", "."),
        "(".repeat(100_000),
    ] {
        assert!(error(&text).starts_with("CEL parse error: "), "{text}: {}", error(&text));
    }
}

fn bound() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), Just(1 << 63), any::<u64>(), 0_u64..8]
}

proptest! {
    #[test]
    fn ranges_cover_what_the_terms_contain_and_the_text_survives_the_round_trip(
        bounds in prop::collection::vec((bound(), prop::option::of(bound())), 1..6),
        probes in prop::collection::vec(bound(), 8),
    ) {
        let terms: Vec<_> =
            bounds.iter().copied().filter(|(start, end)| end.is_none_or(|end| *start < end)).collect();
        prop_assume!(!terms.is_empty());
        let selector = ShardSelector { field: HashField::Uid, terms: terms.clone().into() };
        prop_assert_eq!(ShardSelector::parse(&selector.to_string()), Ok(selector.clone()));
        let ranges = selector.ranges();
        prop_assert!(ranges.windows(2).all(|pair| pair[0].end() < pair[1].start() && pair[1].start() - pair[0].end() > 1));
        let edges = terms.iter().flat_map(|(start, end)| [*start, start.wrapping_sub(1), end.unwrap_or(0)]);
        for hash in probes.into_iter().chain(edges) {
            let inside = ranges.iter().any(|range| range.contains(&hash));
            prop_assert_eq!(selector.contains(hash), inside, "{:x} in {:?}", hash, ranges);
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in "(shardRange|object.metadata.uid|'0x8000000000000000'|[ (),|'\"é.]){0,12}") {
        if let Ok(selector) = ShardSelector::parse(&text) {
            prop_assert_eq!(ShardSelector::parse(&selector.to_string()), Ok(selector));
        }
    }
}
