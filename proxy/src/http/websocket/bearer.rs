//! A bearer token among the subprotocols of an upgrade: browsers cannot send `Authorization` with it.
//!
//! As in kube-apiserver (`k8s.io/apiserver/pkg/authentication/request/websocket`): one subprotocol of the
//! list is [`PREFIX`] and the token in URL-safe Base64 without padding, and another one must be there to be
//! chosen. Whoever recognises the token takes it out of the request, so that nothing behind sees it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{Method, Request};

use super::has_token;

/// What a subprotocol that carries a token begins with.
const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The offered subprotocol that carries a token makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The token of an upgrade, if one is offered that is not empty; other requests have none.
pub(crate) fn token<B>(request: &Request<B>) -> Result<Option<String>, Malformed> {
    let headers = request.headers();
    let upgrades = request.method() == Method::GET
        && has_token(headers, &UPGRADE, "websocket")
        && has_token(headers, &CONNECTION, "upgrade");
    if !upgrades {
        return Ok(None);
    }
    let mut carriers = offered(headers).filter_map(|name| name.strip_prefix(PREFIX));
    let Some(encoded) = carriers.next() else { return Ok(None) };
    let token = URL_SAFE_NO_PAD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match token {
        Some(token) if carriers.next().is_none() => match token.as_str() {
            "" => Ok(None),
            _ if others(headers).next().is_some() => Ok(Some(token)),
            _ => Err(Malformed),
        },
        _ => Err(Malformed),
    }
}

/// Leaves the other subprotocols.
pub(crate) fn remove(headers: &mut HeaderMap) {
    let rest = others(headers).collect::<Vec<_>>().join(", ");
    let rest = HeaderValue::from_str(&rest).expect("it is made of what was a header");
    headers.insert(SEC_WEBSOCKET_PROTOCOL, rest);
}

/// Offered subprotocols that carry no token, in the client's order.
pub(super) fn others(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    offered(headers).filter(|name| !name.is_empty() && !name.starts_with(PREFIX))
}

fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upgrade(protocols: &[&str]) -> Request<()> {
        let mut request = Request::get("/").header("connection", "Upgrade").header("upgrade", "websocket");
        for protocols in protocols {
            request = request.header("sec-websocket-protocol", *protocols);
        }
        request.body(()).expect("legal")
    }

    #[test]
    fn a_token_is_read_from_either_form_of_the_list() {
        let carrier = format!("{PREFIX}czNjcmV0Pz8_");
        for protocols in [
            &[format!("{carrier}, base64.binary.k8s.io").as_str()][..],
            &["base64.binary.k8s.io", &carrier],
            &[&format!("a,{carrier}"), "b"],
        ] {
            assert_eq!(token(&upgrade(protocols)), Ok(Some("s3cret???".to_owned())), "{protocols:?}");
        }
        assert_eq!(token(&upgrade(&["a, b"])), Ok(None));
        assert_eq!(token(&upgrade(&[])), Ok(None));
        // An empty one proves as little as none.
        assert_eq!(token(&upgrade(&[PREFIX])), Ok(None));
    }

    #[test]
    fn what_makes_no_sense_is_malformed() {
        let carrier = format!("{PREFIX}czNjcmV0");
        for protocols in [
            carrier.clone(),
            format!("{carrier}, {carrier}, other"),
            format!("{carrier}==, other"),
            format!("{PREFIX}!, other"),
            format!("{PREFIX}_w, other"),
        ] {
            assert_eq!(token(&upgrade(&[&protocols])), Err(Malformed), "{protocols}");
        }
    }

    #[test]
    fn only_upgrades_have_tokens() {
        let protocols = format!("{PREFIX}czNjcmV0, other");
        for missing in ["connection", "upgrade"] {
            let mut request = upgrade(&[&protocols]);
            request.headers_mut().remove(missing);
            assert_eq!(token(&request), Ok(None), "{missing}");
        }
        let mut request = upgrade(&[&protocols]);
        *request.method_mut() = Method::POST;
        assert_eq!(token(&request), Ok(None));
    }

    #[test]
    fn what_is_left_are_the_other_protocols() {
        let mut request = upgrade(&[&format!("a, {PREFIX}czNjcmV0"), "b"]);
        remove(request.headers_mut());
        let left: Vec<_> = request.headers().get_all(SEC_WEBSOCKET_PROTOCOL).iter().collect();
        assert_eq!(left, ["a, b"]);
    }
}
