//! JSON rewritten as block YAML while it streams by, like [`crate::http::pretty`].
//!
//! Numbers, and the order of keys, stay as they are. Texts are plain where no YAML parser, of 1.1 or 1.2,
//! could take them for anything else, and double-quoted otherwise. Memory is one text and the open
//! containers, however long the document. The input is compact JSON that ingest has validated.

use serde_json::Value;

use crate::http::rewrite::Rewriter;

/// Where in the document the last byte was.
#[derive(Default)]
pub(crate) struct Writer {
    out: Vec<u8>,
    open: Vec<Container>,
    /// What stands before the next value on its line.
    before: Before,
    /// A text, with its quotes, or a number or word that has not ended.
    token: Vec<u8>,
    escaped: bool,
}

struct Container {
    is_map: bool,
    /// Columns before its keys or dashes.
    indent: usize,
    empty: bool,
    /// What stood before it.
    after: Before,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Before {
    /// Nothing: the document begins.
    #[default]
    Start,
    /// A key and its colon.
    Key,
    /// A dash.
    Dash,
}

impl Rewriter for Writer {
    fn write(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + bytes.len() / 4);
        for &byte in bytes {
            if self.token.first() == Some(&b'"') {
                self.string(byte);
            } else {
                self.plain(byte);
            }
        }
    }

    fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn finish(mut self) -> Vec<u8> {
        self.end_token();
        self.out
    }
}

impl Writer {
    fn string(&mut self, byte: u8) {
        self.token.push(byte);
        if self.escaped {
            self.escaped = false;
        } else if byte == b'\\' {
            self.escaped = true;
        } else if byte == b'"' {
            let token = std::mem::take(&mut self.token);
            let text: String = serde_json::from_slice(&token).unwrap_or_default();
            self.text(&text);
        }
    }

    fn plain(&mut self, byte: u8) {
        match byte {
            b'{' | b'[' => self.begin(byte == b'{'),
            b'}' | b']' => {
                self.end_token();
                self.end();
            }
            b',' => self.end_token(),
            b':' | b' ' | b'\n' | b'\t' | b'\r' => {}
            byte => self.token.push(byte),
        }
    }

    /// A text: a key where a map waits for one, else a value.
    fn text(&mut self, text: &str) {
        let is_key = self.before != Before::Key && self.open.last().is_some_and(|open| open.is_map);
        if is_key {
            self.begin_member();
            push_text(&mut self.out, text);
            self.out.push(b':');
            self.before = Before::Key;
        } else {
            self.begin_value();
            push_text(&mut self.out, text);
            self.end_value();
        }
    }

    fn end_token(&mut self) {
        if !self.token.is_empty() {
            let token = std::mem::take(&mut self.token);
            self.begin_value();
            self.out.extend_from_slice(&token);
            self.end_value();
        }
    }

    /// Opens a container; nothing is written until it is known whether it has members.
    fn begin(&mut self, is_map: bool) {
        if self.before != Before::Key && self.open.last().is_some_and(|open| !open.is_map) {
            self.begin_member();
        }
        let parent = self.open.last().map_or(0, |parent| parent.indent);
        let after = std::mem::take(&mut self.before);
        let indent = match after {
            Before::Start => 0,
            // A list below a key is not indented, as in Kubernetes' own YAML.
            Before::Key => parent + if is_map { 2 } else { 0 },
            Before::Dash => parent + 2,
        };
        self.open.push(Container { is_map, indent, empty: true, after });
    }

    /// The beginning of a member's line: its dash, or the place for its key.
    fn begin_member(&mut self) {
        let Some(open) = self.open.last_mut() else { return };
        let first = std::mem::replace(&mut open.empty, false);
        match open.after {
            Before::Start if first => {}
            Before::Dash if first => self.out.push(b' '),
            after => {
                if first && after == Before::Key {
                    self.out.push(b'\n');
                }
                self.out.resize(self.out.len() + open.indent, b' ');
            }
        }
        if !open.is_map {
            self.out.push(b'-');
            self.before = Before::Dash;
        }
    }

    fn begin_value(&mut self) {
        if self.before != Before::Key && self.open.last().is_some_and(|open| !open.is_map) {
            self.begin_member();
        }
        if self.before != Before::Start {
            self.out.push(b' ');
        }
    }

    /// A value is complete: its container waits for the next member.
    fn end_value(&mut self) {
        self.out.push(b'\n');
        self.before = Before::Start;
    }

    fn end(&mut self) {
        let Some(closed) = self.open.pop() else { return };
        if closed.empty {
            if closed.after != Before::Start {
                self.out.push(b' ');
            }
            self.out.extend_from_slice(if closed.is_map { b"{}" } else { b"[]" });
            self.end_value();
        }
        self.before = Before::Start;
    }
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    if is_plain(text) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    for char in Value::from(text).to_string().chars() {
        // JSON leaves alone what YAML takes for a line break, a mark or nothing printable.
        if matches!(
            char,
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        ) {
            out.extend_from_slice(format!("\\u{:04x}", u32::from(char)).as_bytes());
        } else {
            out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}

/// Whether a text without quotes is that text and nothing else to every parser.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 13] =
        ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "nil", "none"];
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/' | b' ');
    let ends = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    first.is_ascii_alphabetic()
        && ends(*last)
        && bytes.iter().all(|byte| inner(*byte))
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn yaml(json: &str, step: usize) -> String {
        let mut writer = Writer::default();
        json.as_bytes().chunks(step.max(1)).for_each(|chunk| writer.write(chunk));
        String::from_utf8(writer.finish()).expect("UTF-8")
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            "[a-eyn0-9.: #\"\\\\'{}\\[\\],&*!|>%@`~\u{85}\u{2028}\u{feff}\u{7f}ü\n\t-]{0,8}"
                .prop_map(Value::from),
            prop::sample::select(vec![
                "yes",
                "No",
                "null",
                "~",
                "1e3",
                "0x1f",
                "012",
                ".inf",
                "a: b",
                "- a",
                "=",
                "<<",
                "2020-01-01",
                "1:30"
            ])
            .prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c:\"yn1 ]{0,3}", inner, 0..4).prop_map(|map| json!(map)),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same_value(value in value(), step in 1_usize..9) {
            let text = yaml(&value.to_string(), step);
            let read = super::super::read::to_json(text.as_bytes(), usize::MAX);
            let read = read.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
            let read: Value = serde_json::from_slice(&read).expect("JSON");
            prop_assert_eq!(read, value, "{}", text);
        }
    }

    #[test]
    fn the_layout_is_that_of_kubernetes() {
        let object = json!({
            "apiVersion": "example.io/v1", "metadata": {"labels": {}, "name": "x", "finalizers": []},
            "spec": {
                "list": [{"a": 1, "b": [true, null]}, "two words", [[1], []], {}],
                "text": "a: b\nc", "word": "yes", "digits": "12", "empty": "",
            },
        });
        let expected = concat!(
            "apiVersion: example.io/v1\n",
            "metadata:\n",
            "  labels: {}\n",
            "  name: x\n",
            "  finalizers: []\n",
            "spec:\n",
            "  list:\n",
            "  - a: 1\n",
            "    b:\n",
            "    - true\n",
            "    - null\n",
            "  - two words\n",
            "  - - - 1\n",
            "    - []\n",
            "  - {}\n",
            "  text: \"a: b\\nc\"\n",
            "  word: \"yes\"\n",
            "  digits: \"12\"\n",
            "  empty: \"\"\n",
        );
        assert_eq!(yaml(&object.to_string(), 7), expected);
    }

    #[test]
    fn numbers_stay_digit_by_digit_and_documents_may_be_anything() {
        assert_eq!(yaml("{\"a\":1.00,\"b\":[1e400]}", 1), "a: 1.00\nb:\n- 1e400\n");
        for (json, expected) in
            [("[]", "[]\n"), ("{}", "{}\n"), ("3", "3\n"), ("\"x\"", "x\n"), ("[1]", "- 1\n")]
        {
            assert_eq!(yaml(json, 1), expected);
        }
    }
}
