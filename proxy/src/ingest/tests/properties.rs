//! Random documents: what goes in comes out, and only JSON goes in.

use std::fmt::Write as _;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Number, Value};

use super::super::*;
use super::{check_spans, key};

/// A number as text: any legal form, far beyond what a float can hold.
fn number() -> impl Strategy<Value = Value> {
    "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?"
        .prop_map(|text| Value::Number(Number::from_string_unchecked(text)))
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{0,3}", "\\PC{0,12}", any::<String>()]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number(),
        text().prop_map(Value::String),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::Array),
            vec((text(), inner), 0..24).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A legal object: `metadata` of the right types, anything elsewhere.
fn object() -> impl Strategy<Value = Value> {
    let strings = || vec((text(), text()), 0..5);
    let metadata = (
        vec((text(), value()), 0..3),
        proptest::option::of(strings()),
        proptest::option::of(strings()),
        vec(select(&["uid", "resourceVersion", "namespace", "generateName", "selfLink"][..]), 0..4),
        "[a-zé/ -]{0,8}",
        any::<prop::sample::Index>(),
    )
        .prop_map(|(unknown, labels, annotations, known, value, at)| {
            let mut members: Vec<(String, Value)> = Vec::new();
            let strings = |pairs: Vec<(String, String)>| {
                Value::Object(pairs.into_iter().map(|(key, value)| (key, Value::String(value))).collect())
            };
            members.extend(labels.map(|pairs| ("labels".to_owned(), strings(pairs))));
            members.extend(annotations.map(|pairs| ("annotations".to_owned(), strings(pairs))));
            members.extend(known.into_iter().map(|name| (name.to_owned(), Value::String(value.clone()))));
            for (name, value) in unknown {
                members.insert(at.index(members.len() + 1), (format!("x{name}"), value));
            }
            Value::Object(members.into_iter().collect())
        });
    (vec((text(), value()), 0..4), metadata, "[a-zé./]{0,8}", any::<prop::sample::Index>()).prop_map(
        |(members, metadata, api_version, at)| {
            let mut members: Vec<_> =
                members.into_iter().map(|(name, value)| (format!("x{name}"), value)).collect();
            members.insert(at.index(members.len() + 1), ("metadata".into(), metadata));
            members.insert(at.index(members.len() + 1), ("apiVersion".into(), Value::String(api_version)));
            Value::Object(members.into_iter().collect())
        },
    )
}

/// Prints with white space and escapes chosen by `noise`, which is used up and then repeats.
struct Sloppy<'a> {
    noise: &'a [u8],
    at: usize,
    out: String,
}

impl Sloppy<'_> {
    fn roll(&mut self) -> u8 {
        self.at += 1;
        self.noise[self.at % self.noise.len()]
    }

    fn gap(&mut self) {
        let gap = ["", "", "", " ", "\n  ", "\t", "\r\n"][usize::from(self.roll() % 7)];
        self.out.push_str(gap);
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for char in text.chars() {
            if self.roll().is_multiple_of(4) {
                let mut units = [0; 2];
                for unit in char.encode_utf16(&mut units) {
                    let _ = write!(self.out, "\\u{unit:04x}");
                }
            } else {
                let quoted = serde_json::to_string(&char).expect("encodes");
                self.out.push_str(&quoted[1..quoted.len() - 1]);
            }
        }
        self.out.push('"');
    }

    fn members(&mut self, map: &Map<String, Value>) {
        for (at, (name, value)) in map.iter().enumerate() {
            if at > 0 {
                self.out.push(',');
                self.gap();
            }
            self.string(name);
            self.gap();
            self.out.push(':');
            self.gap();
            self.value(value);
            self.gap();
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.string(text),
            Value::Array(elements) => {
                self.out.push('[');
                self.gap();
                for (at, element) in elements.iter().enumerate() {
                    if at > 0 {
                        self.out.push(',');
                    }
                    self.gap();
                    self.value(element);
                    self.gap();
                }
                self.out.push(']');
            }
            Value::Object(map) => {
                self.out.push('{');
                self.gap();
                self.members(map);
                self.out.push('}');
            }
            scalar => self.out.push_str(&scalar.to_string()),
        }
    }
}

fn sloppy(value: &Value, noise: &[u8]) -> String {
    let mut sloppy = Sloppy { noise, at: 0, out: String::new() };
    sloppy.gap();
    sloppy.value(value);
    sloppy.gap();
    sloppy.out
}

fn string(value: &Value) -> &str {
    value.as_str().expect("built as a string")
}

/// What the documentation of [`crate::ingest`] says comes of an object without assigned values.
fn expected(mut value: Value, namespace: &str, name: &str) -> Value {
    let metadata = value["metadata"].as_object_mut().expect("built with metadata");
    metadata.insert("resourceVersion".into(), "0000000000000000000".into());
    metadata.insert("name".into(), name.into());
    if namespace.is_empty() {
        metadata.remove("namespace");
    } else {
        metadata.insert("namespace".into(), namespace.into());
    }
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    annotations["kcp.io/shard"] = "amber".into();
    annotations["kcp.io/cluster"] = "root:acme".into();
    value
}

proptest! {
    #[test]
    fn an_object_comes_out_as_it_went_in(
        sent in object(),
        noise in vec(any::<u8>(), 1..40),
        namespace in select(&["", "ns"][..]),
    ) {
        let body = sloppy(&sent, &noise);
        let object = read(body.as_bytes()).expect("legal");
        prop_assert_eq!(object.duplicates(), &[] as &[String]);
        prop_assert_eq!(&object.api_version(), string(&sent["apiVersion"]));
        prop_assert_eq!(&object.uid(), sent["metadata"]["uid"].as_str().unwrap_or(""));
        let labels: Vec<_> = object.labels().map(|(key, value)| (key.into_owned(), value.into_owned())).collect();
        let wanted: Vec<_> = sent["metadata"]["labels"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), string(value).to_owned()))
            .collect();
        prop_assert_eq!(labels, wanted);
        let draft = object.encode(&key(namespace, "x"), Assigned::default()).expect("fits");
        prop_assert_eq!(check_spans(&draft), expected(sent, namespace, "x"));
    }

    #[test]
    fn compact_text_differs_from_what_was_sent_in_white_space_only(
        sent in object(),
        noise in vec(any::<u8>(), 1..40),
    ) {
        let body = sloppy(&sent, &noise);
        let object = read(body.as_bytes()).expect("legal");
        let mut rest = object.text();
        for byte in body.bytes() {
            match rest.split_first() {
                Some((first, tail)) if *first == byte => rest = tail,
                _ => prop_assert!(b" \n\r\t".contains(&byte)),
            }
        }
        prop_assert!(rest.is_empty());
        let again = read(object.text()).expect("compact text is legal");
        prop_assert_eq!(again.text(), object.text());
        prop_assert!(matches!(again.text, Cow::Borrowed(_)), "compact text is not copied");
    }

    #[test]
    fn exactly_what_serde_json_reads_is_json(
        sent in object(),
        noise in vec(any::<u8>(), 1..40),
        edits in vec((any::<prop::sample::Index>(), select(b"{}[],:\"\\ \n0123eE+-.truefalsnu/x\x01\xc3\xff".as_slice())), 0..4),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut body = sloppy(&sent, &noise).into_bytes();
        for (at, byte) in edits {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if let Some(cut) = cut {
            body.truncate(cut.index(body.len()));
        }
        let reference: Result<Value, _> = serde_json::from_slice(&body);
        let ours = std::str::from_utf8(&body).map_err(|error| error.to_string()).and_then(parse_value);
        prop_assert_eq!(ours.is_ok(), reference.is_ok(), "{:?} {:?}", ours, reference);
        if let (Ok(ours), Ok(reference)) = (&ours, &reference) {
            // serde_json spells exponents its own way.
            prop_assert_eq!(&serde_json::from_str::<Value>(&ours.to_string()).expect("JSON"), reference);
        }
        let read = read(&body);
        match reference {
            Ok(Value::Object(_)) => prop_assert!(matches!(read, Ok(_) | Err(IngestError::Field(_)))),
            _ => prop_assert!(matches!(read, Err(IngestError::Json(_) | IngestError::Utf8(_)))),
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(body in vec(any::<u8>(), 0..200)) {
        if let Ok(object) = read(&body) {
            drop(object.encode(&key("", "x"), Assigned::default()));
        }
    }
}
