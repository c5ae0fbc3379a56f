//! Negotiation: any header leads to an answer or to a refusal.
#![no_main]

use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderValue, USER_AGENT};
use libfuzzer_sys::fuzz_target;
use shardcache_proxy::http::accept::{Expected, body_format, negotiate, negotiate_discovery, patch_format};

fuzz_target!(|bytes: &[u8]| {
    let mut headers = HeaderMap::new();
    // Lines are repeated headers.
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(value) = HeaderValue::from_bytes(line) else { continue };
        for name in [ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT] {
            headers.append(name, value.clone());
        }
    }
    let query = String::from_utf8_lossy(bytes);
    for expected in [Expected::Object, Expected::List, Expected::Watch] {
        if let Ok(representation) = negotiate(&headers, &query, expected) {
            assert!(expected != Expected::Watch || !(representation.gzip || representation.pretty));
        }
    }
    let _ = (negotiate_discovery(&headers, &query, true), body_format(&headers), patch_format(&headers));
});
