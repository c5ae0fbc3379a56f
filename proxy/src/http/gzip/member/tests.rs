use std::io::Read as _;

use proptest::prelude::*;

use super::*;

/// Decodes one member; what follows it is an error.
fn decoded(member: &[u8]) -> Vec<u8> {
    let mut decoder = flate2::bufread::GzDecoder::new(member);
    let mut text = Vec::new();
    decoder.read_to_end(&mut text).expect("one valid member");
    assert!(decoder.into_inner().is_empty(), "something follows the member");
    text
}

fn joined(parts: &[&Part]) -> Vec<u8> {
    let mut member = Member::default();
    let mut bytes = Member::start().to_vec();
    for part in parts {
        bytes.extend_from_slice(&member.append(part));
    }
    bytes.extend_from_slice(&member.end());
    bytes
}

proptest! {
    #[test]
    fn parts_join_in_any_order_and_number(
        texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3_000), 0..5),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let parts: Vec<_> = texts.iter().map(|text| Part::of(&text[..])).collect();
        let order: Vec<_> =
            if texts.is_empty() { vec![] } else { order.iter().map(|at| at.index(texts.len())).collect() };
        let chosen: Vec<_> = order.iter().map(|at| &parts[*at]).collect();
        let expected: Vec<u8> = order.iter().flat_map(|at| texts[*at].clone()).collect();
        prop_assert_eq!(decoded(&joined(&chosen)), expected);
    }
}

#[test]
fn a_part_larger_than_the_compressors_window_and_its_output_is_whole() {
    let text: Vec<u8> =
        (0..400_000_u32).flat_map(|number| (number.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
    let xs = vec![b'x'; 300_000];
    let (noise, letters) = (Part::of(&text[..]), Part::of(&xs[..]));
    assert!(letters.deflated().len() < 3_000, "{}", letters.deflated().len());
    let expected = [&xs[..], &text, &xs].concat();
    assert!(decoded(&joined(&[&letters, &noise, &letters])) == expected);
}

#[test]
fn a_text_in_pieces_is_compressed_as_one() {
    let pieces =
        Bytes::from_static(b"one ").chain(Bytes::from_static(b"two ")).chain(Bytes::from_static(b"three"));
    assert_eq!(decoded(&joined(&[&Part::of(pieces)])), b"one two three");
}
