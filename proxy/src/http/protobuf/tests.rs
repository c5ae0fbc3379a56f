//! Kubernetes' own fixtures (`tests/fixtures/kubernetes`): every field of each kind in both encodings.

use std::path::{Path, PathBuf};

use ::http::HeaderValue;
use proptest::prelude::*;

use super::*;

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kubernetes");
    let files = std::fs::read_dir(folder).expect("fixtures").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "pb")).collect();
    files.sort();
    files
}

#[test]
fn every_kind_reads_as_its_json() {
    let fixtures = fixtures();
    assert_eq!(fixtures.len(), 13);
    for file in fixtures {
        let decoded = decode(&std::fs::read(&file).expect("read")).expect("decodes");
        let json = std::fs::read(file.with_extension("json")).expect("read");
        let expected: Value = serde_json::from_slice(&json).expect("JSON");
        assert_eq!(decoded, expected, "{}", file.display());
    }
}

#[test]
fn every_built_in_type_of_kubernetes_but_crds_has_a_protobuf_form() {
    let types = crate::types::Types::builtin(Vec::new());
    let any = crate::scope::Part::Any;
    for info in
        types.in_scope(&any, &any).filter(|info| !info.name.group().ends_with(".kcp.io") && !info.is_own())
    {
        let known = schema::message(&info.api_version(&info.storage_version), &info.kind).is_some();
        assert_eq!(known, info.kind != "CustomResourceDefinition", "{:?}", info.name);
    }
}

/// A length-delimited field.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).expect("short")], bytes].concat()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Bytes {
    let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), field(1, &type_meta), field(2, raw), field(3, b""), field(4, b"")].concat().into()
}

/// Code of the error, or the JSON.
fn convert(content_type: &'static str, body: Bytes) -> Result<(HeaderMap, Bytes), ApiError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let mut body = body;
    into_json(&mut headers, &mut body).map(|()| (headers, body))
}

#[test]
fn delete_options_are_read_in_every_group() {
    // gracePeriodSeconds 0, preconditions.uid, propagationPolicy.
    let raw = [vec![0x08, 0x00], field(2, &field(1, b"u-1")), field(4, b"Background")].concat();
    let (headers, body) = convert(PROTOBUF, envelope("example.io/v1", "DeleteOptions", &raw)).expect("reads");
    assert_eq!(headers[CONTENT_TYPE], "application/json");
    let expected = serde_json::json!({
        "apiVersion": "example.io/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u-1"}, "propagationPolicy": "Background",
    });
    assert_eq!(serde_json::from_slice::<Value>(&body).expect("JSON"), expected);
}

#[test]
fn zeroes_are_left_out_where_gos_json_leaves_them_out() {
    // metadata with an empty name and no creationTimestamp; no rules at all.
    let metadata = [field(1, b""), field(8, b"")].concat();
    let decoded = decode(&envelope("rbac.authorization.k8s.io/v1", "Role", &field(1, &metadata)));
    let expected = serde_json::json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {}, "rules": null,
    });
    assert_eq!(decoded, Ok(expected));
}

#[test]
fn times_have_seconds_or_microseconds() {
    let time = |nanos| [vec![0x08], varint(1_767_225_296), vec![0x10], varint(nanos)].concat();
    let spec = field(4, &time(123_456));
    let metadata = field(8, &time(0));
    let raw = [field(1, &metadata), field(2, &spec)].concat();
    let lease = decode(&envelope("coordination.k8s.io/v1", "Lease", &raw)).expect("decodes");
    assert_eq!(lease["metadata"]["creationTimestamp"], "2025-12-31T23:54:56Z");
    assert_eq!(lease["spec"]["renewTime"], "2025-12-31T23:54:56.000123Z");
    // Ten bytes of a negative number: before 1970.
    let past = [&[0x08][..], &[0xff; 9], &[0x01]].concat();
    let raw = field(1, &field(8, &past));
    let refused = decode(&envelope("coordination.k8s.io/v1", "Lease", &raw));
    assert_eq!(refused, Err(DecodeError::Value("creationTimestamp")));
}

#[test]
fn what_is_not_protobuf_is_400_and_what_has_no_protobuf_form_415() {
    let code = |content_type, body: Bytes| convert(content_type, body).map_err(|error| error.code).err();
    assert_eq!(code(PROTOBUF, Bytes::from_static(b"{}")), Some(400));
    assert_eq!(code(PROTOBUF, envelope("v1", "Namespace", &[0x0a, 0x05, 0x00])), Some(400));
    assert_eq!(code(PROTOBUF, envelope("v1", "Namespace", &[0x0b])), Some(400));
    assert_eq!(code(PROTOBUF, envelope("v1", "Namespace", &field(1, &field(1, &[0xff])))), Some(400));
    assert_eq!(code(PROTOBUF, envelope("apis.kcp.io/v1alpha2", "APIExport", b"")), Some(415));
    assert_eq!(code(PROTOBUF, envelope("v1", "Secret", b"")), Some(415));
    // Other bodies are not touched, and no body is no body.
    let (headers, body) = convert("application/json", Bytes::from_static(b"{")).expect("left alone");
    assert_eq!((headers[CONTENT_TYPE].as_bytes(), &body[..]), (&b"application/json"[..], &b"{"[..]));
    assert!(
        convert("application/vnd.kubernetes.protobuf; charset=x", Bytes::new()).expect("none").1.is_empty()
    );
}

#[test]
fn no_cut_of_a_body_panics() {
    for file in fixtures() {
        let body = std::fs::read(&file).expect("read");
        for end in 0..body.len() {
            drop(decode(&body[..end]));
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(raw in prop::collection::vec(any::<u8>(), 0..512), pick in 0..13_usize) {
        let fixture = std::fs::read(&fixtures()[pick]).expect("read");
        drop(decode(&[MAGIC, &raw].concat()));
        // The same bytes somewhere inside a body that begins well.
        let at = raw.len() % fixture.len();
        drop(decode(&[&fixture[..at], &raw, &fixture[at..]].concat()));
    }
}
