//! Records, there and back and damaged.

use super::*;
use crate::key::Key;
use crate::resource_version::{PLACEHOLDER, Tag};

const SOURCE: Source = Source { generation: 2, version: 3 };

fn draft() -> Draft {
    draft_of(&Key::new("amber", "root", "", "x").expect("legal"), "u-1")
}

/// A small object with a uid, or none.
pub(crate) fn draft_of(key: &Key, uid: &str) -> Draft {
    let digits = std::str::from_utf8(PLACEHOLDER).expect("digits");
    let body = format!(r#"{{"apiVersion":"v1","metadata":{{"resourceVersion":"{digits}","uid":"{uid}"}}}}"#);
    let at = |needle: &str| body.find(needle).expect("present") as u32;
    let metadata_at = at(r#"{"resource"#);
    let spans = Spans {
        resource_version_at: at(digits),
        metadata: Span { at: metadata_at, len: body.len() as u32 - 1 - metadata_at },
        api_version: Span { at: at("v1"), len: 2 },
        uid: Span { at: at(r#""uid":""#) + 7, len: uid.len() as u32 },
    };
    Draft::new(key, &[("tier", "x"), ("app", "")], body.as_bytes(), spans).expect("fits")
}

fn sealed() -> Object {
    let revision = Revision(1_790_000_000_000 << 11);
    draft().seal(
        7,
        revision,
        ResourceVersion::new(revision, Tag::new(5).expect("legal")),
        Revision(3),
        SOURCE,
    )
}

#[test]
fn a_sealed_draft_reads_back() {
    let object = sealed();
    // What is sealed knows the same as what is read: D10's chain of states starts in memory.
    assert_eq!(object.previous_revision(), Revision(3));
    assert_eq!(object.type_id(), 7);
    assert_eq!(object.source(), SOURCE);
    let again = Object::decode(object.revision(), object.record()).expect("intact");
    assert_eq!(again.key(), "amber\0root\0\0x");
    assert_eq!(again.uid(), "u-1");
    assert_eq!(again.labels().collect::<Vec<_>>(), [("app", ""), ("tier", "x")]);
    assert_eq!(again.resource_version(), object.resource_version());
    assert_eq!(again.resource_version().revision(), object.revision());
    assert_eq!(again.previous_revision(), Revision(3));
    assert_eq!(again.type_id(), 7);
    let metadata = &again.body_bytes()[again.spans().metadata.range()];
    assert!(metadata.starts_with(b"{") && metadata.ends_with(b"}"));
}

#[test]
fn a_tombstone_reads_back() {
    let tombstone = Tombstone { type_id: 9, previous: Revision(8), key: "s\0c\0n\0x".into() };
    match Record::decode(Revision(9), &tombstone.encode()) {
        Ok(Record::Delete(read)) => assert_eq!(read, tombstone),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_flipped_byte_is_noticed() {
    for record in [
        sealed().record().to_vec(),
        Tombstone { type_id: 1, previous: Revision(1), key: "s\0c\0n\0x".into() }.encode(),
    ] {
        for at in 0..record.len() {
            let mut damaged = record.clone();
            damaged[at] ^= 0x40;
            assert!(Record::decode(Revision(9), &damaged).is_err(), "byte {at}");
        }
        for len in 0..record.len() {
            assert!(Record::decode(Revision(9), &record[..len]).is_err(), "cut at {len}");
        }
    }
}

/// Found by fuzzing: with a checksum that is right, the rest must still be judged.
#[test]
fn damage_that_the_checksum_covers_is_noticed() {
    let object = sealed();
    let label_at = HEADER + object.key().len() + 2;
    let digits_at =
        object.record().len() - object.body_bytes().len() + object.spans().resource_version_at as usize;
    let last_label_at = object.record().len() - object.body_bytes().len() - 1;
    for (at, byte) in [(digits_at, b'0'), (digits_at, b'x'), (label_at, 0xff), (last_label_at, 0xff)] {
        let mut damaged = object.record().to_vec();
        damaged[at] = byte;
        let sum = checksum(&damaged);
        put_u32(&mut damaged, 64, sum);
        let error = Record::decode(object.revision(), &damaged).expect_err("damaged");
        assert!(matches!(error, RecordError::Damaged(_)), "byte {at}: {error}");
    }
}
