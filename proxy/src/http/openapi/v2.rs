//! `/openapi/v2`: a legal document that describes nothing.
//!
//! Go clients read it as protobuf whatever its content type, so it is written in that form for who
//! accepts it, and in JSON for everybody else.

use ::http::header::{ACCEPT, HeaderValue};
use ::http::{HeaderMap, Response};
use bytes::Bytes;
use serde_json::json;

use super::Freshness;
use crate::body::Body;
use crate::http::accept::negotiate_json;
use crate::http::{document, respond};
use crate::status::ApiError;

/// What Go clients ask for is spelled with an `@`, what they are answered is not (kube-openapi).
const ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const ANSWERED: HeaderValue =
    HeaderValue::from_static("application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
const TITLE: &str = "shardcache";
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) fn respond(headers: &HeaderMap) -> Result<Response<Body>, ApiError> {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let protobuf = accepted
        .flat_map(|value| value.split(','))
        .any(|clause| clause.split(';').next().is_some_and(|range| range.trim() == ASKED));
    if protobuf {
        Ok(document::answer(headers, ANSWERED, Bytes::from(encoded()), Freshness::Revalidate))
    } else {
        negotiate_json(headers)?;
        let json = json!({"swagger": "2.0", "info": {"title": TITLE, "version": VERSION}, "paths": {}});
        Ok(document::answer(headers, respond::JSON, Bytes::from(json.to_string()), Freshness::Revalidate))
    }
}

/// `openapi.v2.Document` with swagger (1), info (2: title 1, version 2) and paths (8).
fn encoded() -> Vec<u8> {
    let info = [field(1, TITLE.as_bytes()), field(2, VERSION.as_bytes())].concat();
    [field(1, b"2.0"), field(2, &info), field(8, b"")].concat()
}

/// A length-delimited field of fewer than 128 bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    debug_assert!(number < 16 && bytes.len() < 128);
    let mut field = vec![number << 3 | 2, bytes.len() as u8];
    field.extend_from_slice(bytes);
    field
}

#[cfg(test)]
mod tests {
    use ::http::header::CONTENT_TYPE;

    use super::*;

    #[test]
    fn go_clients_get_protobuf_and_others_json() {
        let mut headers = HeaderMap::new();
        let json = respond(&headers).expect("acceptable");
        assert_eq!(json.headers()[CONTENT_TYPE], "application/json");
        headers.insert(ACCEPT, HeaderValue::from_static("application/yaml"));
        assert_eq!(respond(&headers).expect_err("neither").code, 406);
        headers.insert(ACCEPT, HeaderValue::from_static(ASKED));
        let answer = respond(&headers).expect("acceptable");
        assert_eq!(
            answer.headers()[CONTENT_TYPE],
            "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
        );
        let expected = [
            &b"\x0a\x032.0\x12"[..],
            &[(TITLE.len() + VERSION.len() + 4) as u8],
            b"\x0a\x0ashardcache\x12",
            &[VERSION.len() as u8],
            VERSION.as_bytes(),
            b"\x42\x00",
        ];
        assert_eq!(encoded(), expected.concat());
    }
}
