//! Indented JSON for people: two spaces, as kube-apiserver's `?pretty=true`.
//!
//! Works on bytes as they stream by and changes white space between tokens only: numbers, escapes and
//! the order of keys stay as they are. Its input is compact JSON that ingest has validated.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::Response;
use http::header::CONTENT_LENGTH;
use http_body::Body as _;

use crate::body::{Body, BodyError, Frames, Rope};

/// Indents the body of an answer.
pub(crate) fn indent(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    let body = match body {
        Body::Empty => Body::Empty,
        Body::Full(bytes) => {
            let mut writer = Writer::default();
            writer.write(&bytes);
            Body::full(writer.finish())
        }
        stream @ Body::Stream(_) => Body::stream(Indented { body: stream, writer: Some(Writer::default()) }),
    };
    Response::from_parts(parts, body)
}

struct Indented {
    body: Body,
    /// `None` once the end is written.
    writer: Option<Writer>,
}

impl Frames for Indented {
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Rope, BodyError>>> {
        let Self { body, writer } = &mut *self;
        let Some(current) = writer else { return Poll::Ready(None) };
        let frame = match Pin::new(body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => return Poll::Pending,
        };
        let Some(frame) = frame else {
            let last = writer.take().map(Writer::finish).unwrap_or_default();
            return Poll::Ready(Some(Ok(Bytes::from(last).into())));
        };
        if let Ok(mut rope) = frame?.into_data() {
            while rope.has_remaining() {
                let chunk = rope.chunk();
                current.write(chunk);
                let len = chunk.len();
                rope.advance(len);
            }
        }
        let written = std::mem::take(&mut current.out);
        Poll::Ready(Some(Ok(Bytes::from(written).into())))
    }
}

/// Where in the document the last byte was.
#[derive(Default)]
struct Writer {
    out: Vec<u8>,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The last token opened an object or array, which may turn out to be empty.
    opened: bool,
}

impl Writer {
    fn write(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() * 2);
        for &byte in bytes {
            if self.in_string {
                self.string(byte);
            } else {
                self.token(byte);
            }
        }
    }

    fn string(&mut self, byte: u8) {
        self.out.push(byte);
        if self.escaped {
            self.escaped = false;
        } else if byte == b'\\' {
            self.escaped = true;
        } else if byte == b'"' {
            self.in_string = false;
        }
    }

    fn token(&mut self, byte: u8) {
        if byte.is_ascii_whitespace() {
            return;
        }
        let closes = matches!(byte, b'}' | b']');
        if closes {
            self.depth = self.depth.saturating_sub(1);
        }
        if std::mem::take(&mut self.opened) != closes {
            self.line();
        }
        self.out.push(byte);
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                self.opened = true;
            }
            b',' => self.line(),
            b':' => self.out.push(b' '),
            b'"' => self.in_string = true,
            _ => {}
        }
    }

    fn line(&mut self) {
        self.out.push(b'\n');
        self.out.resize(self.out.len() + 2 * self.depth, b' ');
    }

    fn finish(mut self) -> Vec<u8> {
        self.out.push(b'\n');
        self.out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn pretty(text: &str, step: usize) -> String {
        let mut writer = Writer::default();
        text.as_bytes().chunks(step.max(1)).for_each(|chunk| writer.write(chunk));
        String::from_utf8(writer.finish()).expect("UTF-8")
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a\"\\\\{}\\[\\],: ü\n]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a\"\\\\]{0,3}", inner, 0..4).prop_map(|map| json!(map)),
            ]
        })
    }

    proptest! {
        #[test]
        fn output_is_that_of_a_pretty_printer(value in value(), step in 1_usize..9) {
            let expected = serde_json::to_string_pretty(&value).expect("JSON") + "\n";
            prop_assert_eq!(pretty(&value.to_string(), step), expected);
        }
    }

    #[test]
    fn numbers_stay_byte_for_byte() {
        assert_eq!(
            pretty(r#"{"a":1.00,"b":[1e400]}"#, 1),
            "{\n  \"a\": 1.00,\n  \"b\": [\n    1e400\n  ]\n}\n"
        );
    }
}
