//! Indented JSON for people: two spaces, as kube-apiserver's `?pretty=true`.
//!
//! Works on bytes as they stream by and changes white space between tokens only: numbers, escapes and
//! the order of keys stay as they are. Its input is compact JSON that ingest has validated.

use crate::http::rewrite::Rewriter;

/// Where in the document the last byte was.
#[derive(Default)]
pub(crate) struct Writer {
    out: Vec<u8>,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The last token opened an object or array, which may turn out to be empty.
    opened: bool,
}

impl Rewriter for Writer {
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

    fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn finish(mut self) -> Vec<u8> {
        self.out.push(b'\n');
        self.out
    }
}

impl Writer {
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
