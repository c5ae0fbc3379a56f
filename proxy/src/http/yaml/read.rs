//! One YAML document as JSON text, for bodies that come as `application/yaml`.
//!
//! The text is written while the document is parsed, so that nothing is lost on the way: repeated keys
//! stay repeated (whoever reads the JSON decides about them, as for JSON bodies) and integers keep their
//! digits. Scalars are typed as in kube-apiserver, which follows YAML 1.1: `yes` is true, and keys that
//! are no text become text.
//!
//! Aliases are expanded up to bounds of their number, of what they repeat and of the text that comes of
//! it: a small body cannot become a large one.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::options::DuplicateKeyPolicy;

/// Levels of nesting; what ingest takes, and a little more, so that its error is the one that shows.
const DEPTH_MAX: usize = 125;
/// Aliases in one document, and the events that they may repeat in sum.
const ALIASES_MAX: usize = 10_000;
const REPLAYED_MAX: usize = 200_000;

/// The document as JSON of at most `max` bytes; the error says where it is wrong.
pub(super) fn to_json(yaml: &[u8], max: usize) -> Result<Vec<u8>, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            max_aliases: ALIASES_MAX,
            max_documents: 1,
        },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: REPLAYED_MAX },
        with_snippet: false,
    };
    let mut out = Out { json: Vec::with_capacity(yaml.len()), max };
    serde_saphyr::with_deserializer_from_slice_with_options(yaml, options, |document| {
        Node(&mut out).deserialize(document)
    })
    .map_err(|error| error.to_string())?;
    Ok(out.json)
}

struct Out {
    json: Vec<u8>,
    max: usize,
}

impl Out {
    fn push<E: serde::de::Error>(&mut self, text: &[u8]) -> Result<(), E> {
        if self.json.len() + text.len() > self.max {
            return Err(E::custom(format_args!("the document has more than {} bytes as JSON", self.max)));
        }
        self.json.extend_from_slice(text);
        Ok(())
    }

    fn value<E: serde::de::Error>(&mut self, value: impl Into<Value>) -> Result<(), E> {
        self.push(value.into().to_string().as_bytes())
    }
}

/// A value, written as JSON.
struct Node<'o>(&'o mut Out);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.0.value(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.0.value(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.0.value(value)
    }

    fn visit_i128<E: serde::de::Error>(self, value: i128) -> Result<(), E> {
        self.0.push(value.to_string().as_bytes())
    }

    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<(), E> {
        self.0.push(value.to_string().as_bytes())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number that JSON does not have"))?;
        self.0.value(Value::Number(number))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.0.value(value)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.0.push(b"null")
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let out = self.0;
        out.push(b"[")?;
        let mut first = true;
        loop {
            let at = out.json.len();
            if !std::mem::take(&mut first) {
                out.push(b",")?;
            }
            if elements.next_element_seed(Node(out))?.is_none() {
                out.json.truncate(at);
                return out.push(b"]");
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let out = self.0;
        out.push(b"{")?;
        let mut comma: &[u8] = b"";
        while let Some(key) = members.next_key_seed(Key)? {
            out.push(comma)?;
            out.value(key)?;
            out.push(b":")?;
            members.next_value_seed(Node(out))?;
            comma = b",";
        }
        out.push(b"}")
    }
}

/// A key as text.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Key {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key that is a text, a number or a boolean")
    }

    fn visit_bool<E: serde::de::Error>(self, key: bool) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_i64<E: serde::de::Error>(self, key: i64) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, key: u64) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, key: f64) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<String, E> {
        Ok(key.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn no_body_panics_and_what_is_read_is_json(yaml in "[a-c:\\-\\[\\]{},&*!|>'\"#%~<? \n\t0-9.]{0,40}") {
            if let Ok(json) = to_json(yaml.as_bytes(), 1 << 16) {
                let value: Result<Value, _> = serde_json::from_slice(&json);
                proptest::prop_assert!(value.is_ok(), "{}", String::from_utf8_lossy(&json));
            }
        }
    }

    fn json(yaml: &str) -> String {
        let json = to_json(yaml.as_bytes(), 1 << 20).unwrap_or_else(|error| panic!("{error}\n{yaml}"));
        String::from_utf8(json).expect("UTF-8")
    }

    #[test]
    fn documents_become_the_json_that_kubernetes_makes_of_them() {
        for (yaml, expected) in [
            ("a: 1\nb: [x, 'y', \"z\"]\n", r#"{"a":1,"b":["x","y","z"]}"#),
            ("---\na: {b: {}}\n", r#"{"a":{"b":{}}}"#),
            ("a: yes\nb: ~\nc: null\nd: 'yes'\n", r#"{"a":true,"b":null,"c":null,"d":"yes"}"#),
            // As everywhere in Kubernetes: who means the letter has to quote it.
            ("1: one\ny: two\n'n': three\n", r#"{"1":"one","true":"two","n":"three"}"#),
            ("a: |\n  x\n  y\n", r#"{"a":"x\ny\n"}"#),
            ("a: 18446744073709551615\nb: -5\nc: 1.5\n", r#"{"a":18446744073709551615,"b":-5,"c":1.5}"#),
            ("a: &x {k: v}\nb: *x\n", r#"{"a":{"k":"v"},"b":{"k":"v"}}"#),
            ("a: &x {k: v}\nb:\n  <<: *x\n  l: w\n", r#"{"a":{"k":"v"},"b":{"l":"w","k":"v"}}"#),
            (r#"{"a": [1, {"b": "c"}]}"#, r#"{"a":[1,{"b":"c"}]}"#),
            ("a: 1\na: 2\n", r#"{"a":1,"a":2}"#),
            ("# nothing but a comment\na: b # c\n", r#"{"a":"b"}"#),
        ] {
            assert_eq!(json(yaml), expected, "{yaml}");
        }
    }

    #[test]
    fn what_is_no_document_is_an_error_that_says_where() {
        for yaml in ["a: [", "a: b: c", "a: *nobody", "a: .inf", "? {a: b}\n: c", "a: 1\n---\nb: 2\n"] {
            assert!(to_json(yaml.as_bytes(), 1 << 20).is_err(), "{yaml}");
        }
        assert!(to_json(b"a: \xff", 1 << 20).is_err());
        let error = to_json(b"a: b\nc: [d\n", 1 << 20).expect_err("not closed");
        assert!(error.contains("line"), "{error}");
    }

    #[test]
    fn a_small_body_cannot_become_a_large_one() {
        let level = |level: usize| {
            let elements = if level == 0 { "x,".repeat(9) } else { format!("*a{},", level - 1).repeat(9) };
            format!("a{level}: &a{level} [{elements}]\n")
        };
        let bomb: String = (0..9).map(level).collect();
        assert!(to_json(bomb.as_bytes(), 3 << 20).is_err());
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(10_000), "*a,".repeat(1_000));
        let error = to_json(long.as_bytes(), 1 << 20).expect_err("10 MB");
        assert!(error.contains("more than 1048576 bytes"), "{error}");
        assert!(to_json("[".repeat(100_000).as_bytes(), 1 << 20).is_err(), "too deep");
        assert!(to_json("{a: ".repeat(100_000).as_bytes(), 1 << 20).is_err(), "too deep");
    }
}
