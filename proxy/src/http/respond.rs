//! From outcomes to responses: the one place where [`ApiError`] becomes bytes on the wire.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use serde_json::Value;

use crate::body::Body;
use crate::http::accept::{Encoding, Representation};
use crate::http::rewrite::{Rewriter, rewrite};
use crate::http::{gzip, pretty, yaml};
use crate::service::ApiConfig;
use crate::status::ApiError;

/// `Content-Type` of everything that is not text, unless YAML was asked for.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The same where YAML was asked for.
pub const YAML: HeaderValue = HeaderValue::from_static("application/yaml");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// An answer of encoded JSON.
pub fn json(code: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    with_type(code, JSON, Body::full(body))
}

/// An answer of a JSON value.
pub fn value(code: StatusCode, value: &Value) -> Response<Body> {
    json(code, value.to_string())
}

/// An answer of plain text.
pub fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    with_type(code, TEXT, Body::full(text))
}

/// What kube-apiserver answers for a path it does not know.
pub fn unknown_path() -> Response<Body> {
    error_headers(text(StatusCode::NOT_FOUND, "404 page not found\n"))
}

/// A `Status` with its headers.
pub fn error(error: &ApiError) -> Response<Body> {
    let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = error_headers(value(code, &error.status()));
    let details = &error.details;
    if details.retry_after_seconds > 0 && !details.no_retry_header {
        response.headers_mut().insert(RETRY_AFTER, details.retry_after_seconds.into());
    }
    response
}

/// The answer in the encoding that was negotiated: as YAML, indented, or as it is, and compressed. Not for
/// watches.
pub(crate) fn encoded(
    response: Response<Body>,
    representation: Representation,
    config: &ApiConfig,
) -> Response<Body> {
    gzip::compress(written(response, representation), representation.gzip, config)
}

/// The same without compression, as for errors.
pub(crate) fn written(response: Response<Body>, representation: Representation) -> Response<Body> {
    match representation.encoding {
        Encoding::Yaml => {
            let mut response = rewrite::<yaml::Writer>(response);
            response.headers_mut().insert(CONTENT_TYPE, YAML);
            response
        }
        Encoding::Json if representation.pretty => rewrite::<pretty::Writer>(response),
        Encoding::Json => response,
    }
}

/// Whole JSON as it was negotiated, without compression.
pub(crate) fn spelled(json: Bytes, representation: Representation) -> Bytes {
    fn through<R: Rewriter>(json: &[u8]) -> Bytes {
        let mut rewriter = R::default();
        rewriter.write(json);
        rewriter.finish().into()
    }
    match representation.encoding {
        Encoding::Yaml => through::<yaml::Writer>(&json),
        Encoding::Json if representation.pretty => through::<pretty::Writer>(&json),
        Encoding::Json => json,
    }
}

fn error_headers(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// An answer with a body of some content type.
pub(crate) fn with_type(code: StatusCode, content_type: HeaderValue, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
