//! Documents that clients keep: answered with a validator, and with 304 to who has them already.

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH, VARY};
use ::http::{HeaderMap, Response, StatusCode};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::body::Body;

/// How long a client may use a document without asking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Not at all: it asks with the validator every time.
    Revalidate,
    /// For ever: the URL names the content.
    Immutable,
}

/// The document, or 304 if the request's `If-None-Match` names it.
pub(super) fn answer(
    headers: &HeaderMap,
    content_type: HeaderValue,
    body: Bytes,
    freshness: Freshness,
) -> Response<Body> {
    let etag = format!("\"{}\"", digest(&body));
    let mut response = if is_known(headers, &etag) {
        let mut response = Response::new(Body::full(Bytes::new()));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        let mut response = Response::new(Body::full(body));
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    };
    let cache_control = match freshness {
        Freshness::Revalidate => "public",
        Freshness::Immutable => "public, max-age=31536000, immutable",
    };
    let etag = HeaderValue::from_str(&etag).expect("quoted hexadecimal digits are a legal header");
    let known: [(HeaderName, HeaderValue); 3] = [
        (ETAG, etag),
        (VARY, HeaderValue::from_static("Accept")),
        (CACHE_CONTROL, HeaderValue::from_static(cache_control)),
    ];
    response.headers_mut().extend(known);
    response
}

/// SHA-256 in upper-case hexadecimal digits, as kube-apiserver writes its validators.
pub(super) fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// RFC 9110 13.1.2: a list of validators compared weakly, or `*`.
fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|candidate| candidate == "*" || candidate.strip_prefix("W/").unwrap_or(candidate) == etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(if_none_match: Option<&str>) -> Response<Body> {
        let mut headers = HeaderMap::new();
        if let Some(value) = if_none_match {
            headers.insert(IF_NONE_MATCH, HeaderValue::from_str(value).expect("legal"));
        }
        let json = HeaderValue::from_static("application/json");
        answer(&headers, json, Bytes::from_static(b"{}"), Freshness::Revalidate)
    }

    #[test]
    fn a_known_validator_is_answered_304_without_a_body() {
        let first = ask(None);
        assert_eq!(first.status(), StatusCode::OK);
        let etag = first.headers()[ETAG].to_str().expect("text").to_owned();
        assert_eq!(etag, "\"44136FA355B3678A1146AD16F7E8649E94FB4FC21FE77E8310C060F61CAAFF8A\"");
        for known in [etag.clone(), format!("W/{etag}"), format!("\"other\", {etag}"), "*".to_owned()] {
            let second = ask(Some(&known));
            assert_eq!(second.status(), StatusCode::NOT_MODIFIED, "{known}");
            assert_eq!(second.headers()[ETAG].to_str().expect("text"), etag);
            assert!(!second.headers().contains_key(CONTENT_TYPE));
        }
        assert_eq!(ask(Some("\"other\"")).status(), StatusCode::OK);
        assert_eq!(ask(Some(etag.trim_matches('"'))).status(), StatusCode::OK);
    }
}
