//! `application/yaml`, both ways.
//!
//! A body is turned into JSON before anybody looks into it; an answer is rewritten on its way out. In
//! between everything is JSON, and nobody who does not ask for YAML pays for it. There is no YAML stream
//! of events.

mod read;
mod write;

use bytes::Bytes;

pub(crate) use write::Writer;

/// A YAML body as JSON of at most `max` bytes, or why it is none, in the words of kube-apiserver.
pub(crate) fn to_json(body: &[u8], max: usize) -> Result<Bytes, String> {
    let json = read::to_json(body, max);
    json.map(Bytes::from).map_err(|why| format!("error converting YAML to JSON: yaml: {why}"))
}
