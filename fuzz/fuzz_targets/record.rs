//! Records read from a disk: damage is an error, and what is accepted can be read in every part.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shardcache_storage::{Key, Record, Revision};

/// Where the checksum lies; it covers every other byte.
const CHECKSUM: std::ops::Range<usize> = 64..68;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    // Nothing gets past the checksum by chance, so give it one that is right.
    let mut repaired = bytes.to_vec();
    if let Some(rest) = bytes.get(CHECKSUM.end..) {
        let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..CHECKSUM.start]), rest);
        repaired[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        read(&repaired);
    }
});

fn read(record: &[u8]) {
    match Record::decode(Revision(7), record) {
        Ok(Record::Put(object)) => {
            let parts = object.parts();
            let key = Key::new(parts.shard, parts.cluster, parts.namespace, parts.name).expect("no NUL inside");
            assert_eq!(key.as_str(), object.key());
            let _ = (object.labels().count(), object.uid().len(), object.label("a"));
            let spans = object.spans();
            let body = object.body();
            for span in [spans.metadata, spans.api_version, spans.uid] {
                let _ = &body[span.range()];
            }
            let _ = object.resource_version();
        }
        Ok(Record::Delete(tombstone)) => {
            let again = Record::decode(Revision(7), &tombstone.encode());
            assert!(matches!(again, Ok(Record::Delete(same)) if same == tombstone));
        }
        Err(error) => drop(error.to_string()),
    }
}
