use super::*;

fn part(length: usize) -> Arc<Part> {
    // Random enough not to shrink.
    let text: Vec<u8> =
        (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    Arc::new(Part::of(&text[..]))
}

fn key(number: u8) -> Box<[u8]> {
    vec![number; 8].into()
}

#[test]
fn what_is_kept_stays_below_the_bound_and_what_is_used_stays() {
    let each = occupied(&key(0), &part(1_000));
    let bytes_max = each * 8;
    let mut kept = Kept::default();
    for number in 0..100 {
        kept.insert(key(number), part(1_000), bytes_max);
        assert!(kept.find(&key(0), bytes_max).is_some(), "used every time, gone after {number}");
        assert!(kept.recent_bytes + kept.older_bytes <= bytes_max, "after {number}");
        let counted: usize =
            kept.recent.iter().chain(&kept.older).map(|(key, part)| occupied(key, part)).sum();
        assert_eq!(counted, kept.recent_bytes + kept.older_bytes);
    }
    assert!(kept.find(&key(50), bytes_max).is_none(), "not used since");
}

#[test]
fn a_page_that_two_lists_made_counts_once() {
    let mut kept = Kept::default();
    kept.insert(key(1), part(1_000), 1 << 20);
    let bytes = kept.recent_bytes;
    kept.insert(key(1), part(1_000), 1 << 20);
    assert_eq!(kept.recent_bytes, bytes);
}

#[test]
fn a_page_larger_than_the_room_is_not_kept() {
    let mut kept = Kept::default();
    kept.insert(key(1), part(10_000), 4_000);
    assert_eq!((kept.recent.len(), kept.recent_bytes), (0, 0));
}

#[test]
fn one_in_sixteen_objects_ends_a_page_wherever_revisions_lie() {
    for start in [1, 3_677_000_000_000_000] {
        let ends = (start..start + 16_000).filter(|revision| ends_page(Revision(*revision))).count();
        assert!((800..1_200).contains(&ends), "{ends}");
    }
}
