//! What is written to both servers: APIExports as a shard would write them, of a chosen size.
//!
//! Both get the same bytes. They carry the managed fields that the reference would add by itself (and a uid
//! and a time, which it replaces), so that what the servers hold and send is of the same size too.

use std::fmt::Write;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The collection, below a place.
pub(crate) const COLLECTION: &str = "/apis/apis.kcp.io/v1alpha2/apiexports";
/// Encoded bytes of an object of the lists, and of an event's object.
pub(crate) const OBJECT_BYTES: usize = 2 << 10;
pub(crate) const EVENT_BYTES: usize = 1 << 10;
/// Objects of the same label `bucket`: one in so many.
pub(crate) const BUCKETS: usize = 100;

/// An object of about `bytes` encoded bytes. Its text has names and hashes in the proportion of real
/// ones, so that it compresses as they do.
pub(crate) fn object(name: &str, number: usize, owner: &str, bytes: usize) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(number as u64);
    let bucket = number % BUCKETS;
    let uid = format!("{:08x}-0000-4000-8000-{:012x}", random.random::<u32>(), number);
    let mut text = format!(
        r#"{{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{{"name":"{name}","uid":"{uid}","creationTimestamp":"2026-01-02T03:04:05Z","labels":{{"app.kubernetes.io/name":"bench","bucket":"{bucket}","owner":"{owner}"}},"managedFields":[{{"manager":"bench","operation":"Update","apiVersion":"apis.kcp.io/v1alpha2","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:labels":{{".":{{}},"f:app.kubernetes.io/name":{{}},"f:bucket":{{}},"f:owner":{{}}}}}},"f:spec":{{".":{{}},"f:note":{{}},"f:resources":{{}}}}}}}}]}},"spec":{{"note":""#,
    );
    // The version, the place, and what else a server adds.
    let total = bytes.saturating_sub(100);
    let room = total.saturating_sub(text.len() + r#"","resources":[]}}"#.len());
    let mut resources = String::new();
    loop {
        let (kind, team) = (KINDS[random.random_range(0..KINDS.len())], random.random_range(0..50));
        let (day, hash) = (random.random_range(1..29), random.random::<u32>());
        let resource = format!(
            r#"{{"group":"team-{team}.example.io","name":"{kind}","schema":"v2601{day:02}-{hash:08x}.{kind}.team-{team}.example.io","storage":{{"crd":{{}}}}}}"#
        );
        if resources.len() + resource.len() + 1 > room {
            break;
        }
        if !resources.is_empty() {
            resources.push(',');
        }
        resources.push_str(&resource);
    }
    for _ in resources.len()..room {
        text.push(char::from(b'a' + random.random_range(0..16)));
    }
    write!(text, r#"","resources":[{resources}]}}}}"#).expect("a string takes everything");
    text.into_bytes()
}

const KINDS: [&str; 8] =
    ["widgets", "databases", "buckets", "certificates", "pipelines", "gateways", "queues", "tenants"];
