//! An object's text without its own `kind` and `apiVersion`, as slices of what is stored.
//!
//! Only the text up to the later of the two is looked at, which is next to nothing: clients write them
//! first. Relies on stored text being valid JSON without white space. A key that is written with escapes,
//! or a second time, stays.

use std::ops::Range;

use smallvec::SmallVec;

use super::Source;
use crate::body::Weave;

/// Runs of members between those that are left out; rarely more than one.
type Runs = SmallVec<[Range<usize>; 3]>;

/// Appends the object, and the comma that follows it if the source has one.
pub(super) fn put(weave: &mut Weave, source: &impl Source) {
    let body = source.body();
    let (last, end) = (body.len() - 1, body.len() + usize::from(source.has_comma()));
    weave.text(b"{");
    let mut from = last;
    for (number, run) in runs(body).into_iter().enumerate() {
        if number > 0 {
            weave.text(b",");
        }
        // What ends with the object takes the brace and the comma along.
        if run.end == last {
            from = run.start;
        } else {
            source.put(weave, run);
        }
    }
    source.put(weave, from..end);
}

/// Bytes that [`put`] appends for an object without a comma.
pub(super) fn len(body: &[u8]) -> usize {
    let runs = runs(body);
    let commas = runs.len().saturating_sub(1);
    runs.into_iter().map(|run| run.len()).sum::<usize>() + commas + b"{}".len()
}

/// The members that stay, commas inside of runs included.
fn runs(body: &[u8]) -> Runs {
    let last = body.len() - 1;
    let mut runs = Runs::new();
    let (mut at, mut left_out) = (1, 0);
    while at < last {
        let end = if left_out == 2 { last } else { member_end(body, at) };
        if left_out < 2 && is_type(&body[at..end]) {
            left_out += 1;
        } else {
            match runs.last_mut() {
                Some(run) if run.end + 1 == at => run.end = end,
                _ => runs.push(at..end),
            }
        }
        at = end + 1;
    }
    runs
}

fn is_type(member: &[u8]) -> bool {
    member.starts_with(br#""kind":"#) || member.starts_with(br#""apiVersion":"#)
}

/// Where the member that starts here ends: at the comma or the brace after its value.
fn member_end(body: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match body[at] {
            b'"' => at = string_end(body, at),
            b'{' | b'[' => depth += 1,
            b'}' | b',' if depth == 0 => return at,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
}

/// The quote that ends the string which starts here.
fn string_end(body: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while body[at] != b'"' {
        at += if body[at] == b'\\' { 2 } else { 1 };
    }
    at
}

#[cfg(test)]
mod tests {
    use bytes::{Buf, Bytes};
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};
    use shardcache_storage::Spans;

    use super::super::Copied;
    use super::*;

    fn untyped(body: &str) -> String {
        let body = Bytes::from(body.to_owned());
        let mut weave = Weave::new();
        put(&mut weave, &Copied { body: &body, spans: Spans::default() });
        let mut rope = weave.take();
        let text = rope.copy_to_bytes(rope.len());
        assert_eq!(text.len(), len(&body));
        String::from_utf8(text.into()).expect("text")
    }

    #[test]
    fn the_type_is_left_out_wherever_it_stands() {
        for (body, expected) in [
            (r#"{"kind":"A","apiVersion":"v1","metadata":{"name":"x"}}"#, r#"{"metadata":{"name":"x"}}"#),
            (r#"{"apiVersion":"v1","a":{"kind":"B"},"kind":"A","b":[{}]}"#, r#"{"a":{"kind":"B"},"b":[{}]}"#),
            (r#"{"a":",\"}\\","kind":"A","apiVersion":"v1"}"#, r#"{"a":",\"}\\"}"#),
            (r#"{"a":1,"kind":"A","b":2,"apiVersion":"v1","c":3}"#, r#"{"a":1,"b":2,"c":3}"#),
            (r#"{"kinds":1,"kind":"A"}"#, r#"{"kinds":1}"#),
            (r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2}"#),
            (r#"{"kind":"A","apiVersion":"v1"}"#, "{}"),
            ("{}", "{}"),
        ] {
            assert_eq!(untyped(body), expected, "{body}");
        }
    }

    proptest! {
        #[test]
        fn all_else_stays(
            before in "[\\PC\"\\\\{},]{0,8}",
            after in proptest::collection::vec("[\\PC\"\\\\{},]{0,8}", 0..3),
            order in Just(vec!["kind", "apiVersion", "a", "b"]).prop_shuffle(),
        ) {
            let mut object = Map::new();
            for key in order {
                let value = match key {
                    "a" => json!({ "kind": before, (before.clone()): [1, { "apiVersion": after }] }),
                    "b" => json!(after),
                    _ => json!(before),
                };
                object.insert(key.into(), value);
            }
            let text = untyped(&Value::from(object.clone()).to_string());
            object.remove("kind");
            object.remove("apiVersion");
            prop_assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), Value::from(object));
        }
    }
}
