//! Requests that do not hold on to their connection's read buffer.
//!
//! hyper parses a head in place: method, target and headers are slices of the buffer that it came in.
//! hyper goes on reading to notice the client's end, and while the request lives it has to take a second
//! buffer, twice as large. A copy of a few hundred bytes lets it keep the one it has: an idle watcher over
//! HTTP/1.1 then holds 8 KiB for reading instead of 16.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};

/// The request with a head of its own, if it is one that may stay for long.
pub(super) fn detached<B>(mut request: Request<B>) -> Request<B> {
    if request.method() == Method::GET && request.version() <= Version::HTTP_11 {
        if let Some(uri) = copy_of_uri(request.uri()) {
            *request.uri_mut() = uri;
        }
        if let Some(headers) = copy_of_headers(request.headers()) {
            *request.headers_mut() = headers;
        }
    }
    request
}

// What was legal once is legal again; were it not, the original does as well.

fn copy_of_uri(uri: &Uri) -> Option<Uri> {
    Uri::try_from(uri.to_string()).ok()
}

fn copy_of_headers(headers: &HeaderMap) -> Option<HeaderMap> {
    let mut copy = HeaderMap::with_capacity(headers.keys_len());
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        let mut owned = HeaderValue::from_bytes(value.as_bytes()).ok()?;
        owned.set_sensitive(value.is_sensitive());
        copy.append(name, owned);
    }
    Some(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_says_the_same_and_shares_nothing() {
        for target in ["/a/%2A?watch=true&labelSelector=a%3Db", "http://host:1/p?q", "*"] {
            let request = Request::get(target)
                .header("accept", "application/json")
                .header("x-twice", "1")
                .header("x-twice", "2")
                .header("x-bytes", HeaderValue::from_bytes(b"\xff\xfe").expect("legal"))
                .body(())
                .expect("a request");
            let copy = detached(request.clone());
            assert_eq!((copy.uri(), copy.headers()), (request.uri(), request.headers()));
            let twice = |request: &Request<()>| {
                let values = request.headers().get_all("x-twice").iter();
                values.map(|value| value.as_bytes().as_ptr()).collect::<Vec<_>>()
            };
            assert_eq!(twice(&copy).len(), 2);
            assert!(twice(&copy).iter().zip(twice(&request)).all(|(copy, original)| *copy != original));
        }
    }
}
