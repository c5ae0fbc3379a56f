use super::*;
use crate::resource_version::{PLACEHOLDER, Tag};

fn draft() -> Draft {
    let key = Key::new("amber", "root", "", "x").expect("legal");
    let body = br#"{"apiVersion":"v1","metadata":{"resourceVersion":"0000000000000000000","uid":"u-1"}}"#;
    let at = |needle: &[u8]| body.windows(needle.len()).position(|w| w == needle).expect("present") as u32;
    let spans = Spans {
        resource_version_at: at(PLACEHOLDER),
        metadata: Span { at: at(br#"{"resource"#), len: (body.len() - 1) as u32 - at(br#"{"resource"#) },
        api_version: Span { at: at(b"v1"), len: 2 },
        uid: Span { at: at(b"u-1"), len: 3 },
    };
    Draft::new(&key, &[("tier", "x"), ("app", "")], body, spans).expect("fits")
}

fn sealed() -> Object {
    let revision = Revision(1_790_000_000_000 << 11);
    draft().seal(7, revision, ResourceVersion::new(revision, Tag::new(5).expect("legal")), Revision(3))
}

#[test]
fn a_sealed_draft_reads_back() {
    let object = sealed();
    // What is sealed knows the same as what is read: D10's chain of states starts in memory.
    assert_eq!(object.previous_revision(), Revision(3));
    assert_eq!(object.type_id(), 7);
    let again = Object::decode(object.revision(), object.record().clone()).expect("intact");
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
    match Record::decode(Revision(9), tombstone.encode().into()) {
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
            assert!(Record::decode(Revision(9), damaged.into()).is_err(), "byte {at}");
        }
        for len in 0..record.len() {
            assert!(Record::decode(Revision(9), record[..len].to_vec().into()).is_err(), "cut at {len}");
        }
    }
}
