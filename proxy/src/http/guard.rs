//! The browser guard of loopback (D52): applies where [`crate::access::Access::is_loopback`] holds.
//!
//! On loopback everybody on the host is trusted, but a web page in a browser on that host is not
//! somebody on the host: a request with an `Origin`, or for a `Host` that is not a loopback name
//! (DNS rebinding), is refused. WebSocket upgrades whose Origin is the Host itself pass, because
//! fabric8 sends that header.

use std::net::IpAddr;

use http::header::{HOST, ORIGIN, UPGRADE};
use http::request::Parts;

use crate::status::ApiError;

/// Refuses (403) what a browser may have been talked into sending.
pub(crate) fn check(parts: &Parts) -> Result<(), ApiError> {
    let host = host(parts);
    if !host.as_deref().is_some_and(is_loopback) {
        let host = host.unwrap_or_default();
        return Err(ApiError::forbidden(format!(
            "forbidden: the host \"{host}\" is not a loopback name: anonymous requests are served on loopback only"
        )));
    }
    if !parts.headers.contains_key(ORIGIN) {
        return Ok(());
    }
    let upgrades =
        parts.headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    if upgrades && !is_from_elsewhere(parts) {
        return Ok(());
    }
    Err(ApiError::forbidden("forbidden: anonymous requests from web pages (with an Origin) are not served"))
}

/// Whether a page of another host sent the request: its `Origin` is not the `Host`. Browsers let any page
/// open a WebSocket, with whatever certificate they have, so this holds beyond loopback too.
pub(crate) fn is_from_elsewhere(parts: &Parts) -> bool {
    let Some(origin) = parts.headers.get(ORIGIN) else { return false };
    let from = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    from.is_none() || from != host(parts).as_deref()
}

/// Host and port as the client names them: HTTP/2's authority, or the only `Host` header.
fn host(parts: &Parts) -> Option<String> {
    if let Some(authority) = parts.uri.authority() {
        return Some(authority.as_str().to_owned());
    }
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = hosts.next()?.to_str().ok()?;
    hosts.next().is_none().then(|| host.to_owned())
}

/// Whether a host, with or without port, is a name of the loopback interface.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn passes(uri: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(&request.body(()).expect("a request").into_parts().0).is_ok()
    }

    #[test]
    fn d52_only_loopback_names_are_served() {
        for host in
            ["localhost", "LOCALHOST:7443", "127.0.0.1:7443", "127.9.9.9", "[::1]:7443", "a.localhost."]
        {
            assert!(passes("/livez", &[("host", host)]), "{host}");
        }
        for host in [
            "example.org",
            "127.0.0.1.example.org",
            "10.0.0.1:80",
            "[2001:db8::1]",
            "localhost.example.org",
            "",
        ] {
            assert!(!passes("/livez", &[("host", host)]), "{host}");
        }
        assert!(!passes("/livez", &[]));
        assert!(!passes("/livez", &[("host", "localhost"), ("host", "example.org")]));
        assert!(passes("http://localhost:1/livez", &[]));
        assert!(!passes("http://evil.example/livez", &[("host", "localhost")]));
    }

    #[test]
    fn d52_web_pages_are_refused_but_fabric8_upgrades_pass() {
        let host = ("host", "localhost:7443");
        assert!(!passes("/livez", &[host, ("origin", "http://evil.example")]));
        assert!(!passes("/livez", &[host, ("origin", "null")]));
        assert!(!passes("/livez", &[host, ("origin", "http://localhost:7443")]));
        let upgrade = ("upgrade", "WebSocket");
        assert!(passes("/livez", &[host, upgrade, ("origin", "http://localhost:7443")]));
        assert!(!passes("/livez", &[host, upgrade, ("origin", "http://evil.example")]));
        assert!(!passes("/livez", &[host, upgrade, ("origin", "http://localhost:1")]));
    }
}
