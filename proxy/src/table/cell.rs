//! One cell: a value of an object as its column's type wants it
//! (`k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor`), and the cells of
//! built-in types that are made of several values (`pkg/printers/internalversion`).

use std::time::SystemTime;

use serde_json::{Map, Number, Value};

use super::age::since;
use crate::types::Computed;

const UNSET: &str = "<unset>";
const UNKNOWN: &str = "<unknown>";

/// The value found at a column's path, as a cell of the column's type; null where it is of another type.
pub(super) fn of_type(kind: &str, found: &Value, now: SystemTime) -> Value {
    match (kind, found) {
        ("string", found) => text(found).into(),
        ("integer", Value::Number(number)) => integer(number).map_or(Value::Null, Value::from),
        ("number", Value::Number(number)) => {
            number.as_f64().and_then(Number::from_f64).map_or(Value::Null, shortest)
        }
        ("boolean", Value::Bool(_)) => found.clone(),
        ("date", Value::String(text)) => since(text, now).into(),
        _ => Value::Null,
    }
}

/// A cell that no path expresses.
pub(super) fn computed(computed: Computed, object: &Value, now: SystemTime) -> Value {
    match computed {
        Computed::Name => at(object, "/metadata/name").into(),
        Computed::CreatedAt => match at(object, "/metadata/creationTimestamp") {
            "" => UNKNOWN.into(),
            text => text.into(),
        },
        Computed::Count(pointer) => {
            object.pointer(pointer).and_then(Value::as_array).map_or(0, Vec::len).into()
        }
        Computed::Role => format!("{}/{}", at(object, "/roleRef/kind"), at(object, "/roleRef/name")).into(),
        Computed::Subjects(kind) => subjects(object, kind).into(),
        Computed::ParamKind => match object.pointer("/spec/paramKind") {
            Some(Value::Object(kind)) => {
                format!("{}/{}", member(kind, "apiVersion"), member(kind, "kind")).into()
            }
            _ => UNSET.into(),
        },
        Computed::ParamRef => param_ref(object).into(),
        Computed::LastSeen => {
            let times = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime"];
            age_of_first(object, &times, now).into()
        }
        Computed::FirstSeen => age_of_first(object, &["/firstTimestamp", "/eventTime"], now).into(),
        Computed::EventObject => {
            let (kind, name) = (at(object, "/involvedObject/kind"), at(object, "/involvedObject/name"));
            let kind = kind.to_lowercase();
            if name.is_empty() { kind.into() } else { format!("{kind}/{name}").into() }
        }
        Computed::EventSource => event_source(object).into(),
        Computed::EventCount => {
            let counts = ["/series/count", "/count"];
            let count = counts.iter().find_map(|pointer| object.pointer(pointer).and_then(Value::as_i64));
            count.filter(|count| *count != 0).unwrap_or(1).to_string().into()
        }
    }
}

/// The text at a JSON pointer, or none.
fn at<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn member<'v>(map: &'v Map<String, Value>, name: &str) -> &'v str {
    map.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn subjects(object: &Value, kind: &str) -> String {
    let subjects = object.pointer("/subjects").and_then(Value::as_array).into_iter().flatten();
    let names = subjects.filter_map(Value::as_object).filter(|subject| member(subject, "kind") == kind);
    let names: Vec<String> = names
        .map(|subject| match (kind, member(subject, "namespace")) {
            ("ServiceAccount", namespace) if !namespace.is_empty() => {
                format!("{namespace}/{}", member(subject, "name"))
            }
            _ => member(subject, "name").to_owned(),
        })
        .collect();
    names.join(", ")
}

fn param_ref(object: &Value) -> String {
    let Some(reference) = object.pointer("/spec/paramRef").and_then(Value::as_object) else {
        return UNSET.to_owned();
    };
    match (member(reference, "name"), member(reference, "namespace"), reference.get("selector")) {
        ("", _, Some(selector)) => text(selector),
        ("", _, None) => UNSET.to_owned(),
        (name, "", _) => format!("*/{name}"),
        (name, namespace, _) => format!("{namespace}/{name}"),
    }
}

fn event_source(object: &Value) -> String {
    let (component, host) = match at(object, "/source/component") {
        "" => (at(object, "/reportingComponent"), at(object, "/reportingInstance")),
        component => (component, at(object, "/source/host")),
    };
    if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }
}

fn age_of_first(object: &Value, pointers: &[&str], now: SystemTime) -> String {
    let time = pointers.iter().map(|pointer| at(object, pointer)).find(|time| !time.is_empty());
    since(time.unwrap_or_default(), now)
}

/// A value as Go prints it: maps and lists as JSON with sorted keys, numbers without needless digits.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => integer.to_string(),
            None => number.as_f64().map_or_else(|| number.to_string(), float),
        },
        Value::Array(_) | Value::Object(_) => sorted(value).to_string(),
    }
}

/// Go's `%v` of a `float64`.
fn float(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    number.to_string()
}

fn integer(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| number.as_f64().map(|float| float as i64))
}

/// The number without a fraction where it has none.
fn shortest(number: Number) -> Value {
    let whole = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e15);
    whole.map_or(Value::Number(number), |whole| Value::from(whole as i64))
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().map(|(name, value)| (name.clone(), sorted(value))).collect();
            members.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Object(members.into_iter().collect())
        }
        Value::Array(elements) => elements.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::json;

    use super::*;

    const NOW: SystemTime = UNIX_EPOCH;

    fn parse(text: &str) -> Value {
        serde_json::from_str(text).expect("JSON")
    }

    #[test]
    fn values_become_cells_as_in_kube_apiserver() {
        for (kind, found, expected) in [
            ("string", "\"x\"", json!("x")),
            ("string", "null", json!("<no value>")),
            ("string", "true", json!("true")),
            ("string", "42", json!("42")),
            ("string", "1.0", json!("1")),
            ("string", "0.5", json!("0.5")),
            ("string", "1e22", json!("1e+22")),
            ("string", "0.00001", json!("1e-05")),
            ("string", "{\"b\":[1],\"a\":{}}", json!("{\"a\":{},\"b\":[1]}")),
            ("integer", "42", json!(42)),
            ("integer", "1.9", json!(1)),
            ("integer", "\"42\"", Value::Null),
            ("number", "1.50", json!(1.5)),
            ("number", "3", json!(3)),
            ("boolean", "false", json!(false)),
            ("boolean", "\"false\"", Value::Null),
            ("date", "\"1970-01-01T00:00:00Z\"", json!("0s")),
            ("date", "\"x\"", json!("<invalid>")),
            ("date", "1", Value::Null),
            ("other", "1", Value::Null),
            ("integer", "null", Value::Null),
        ] {
            assert_eq!(of_type(kind, &parse(found), NOW).to_string(), expected.to_string(), "{kind} {found}");
        }
    }

    #[test]
    fn what_no_path_says_is_computed() {
        let binding = json!({
            "metadata": {"creationTimestamp": "2026-01-02T03:04:05Z"},
            "roleRef": {"kind": "ClusterRole", "name": "admin"},
            "subjects": [
                {"kind": "User", "name": "ann"},
                {"kind": "ServiceAccount", "namespace": "ns", "name": "bot"},
                {"kind": "User", "name": "bob"},
            ],
            "webhooks": [{}, {}],
            "spec": {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "paramRef": {"name": "p"}},
        });
        let event = json!({
            "involvedObject": {"kind": "Pod", "name": "p"}, "lastTimestamp": null, "count": 7,
            "eventTime": "1970-01-01T00:00:00.000000Z", "reportingComponent": "scheduler",
        });
        for (object, cell, expected) in [
            (&binding, Computed::Role, json!("ClusterRole/admin")),
            (&binding, Computed::Subjects("User"), json!("ann, bob")),
            (&binding, Computed::Subjects("ServiceAccount"), json!("ns/bot")),
            (&binding, Computed::Subjects("Group"), json!("")),
            (&binding, Computed::CreatedAt, json!("2026-01-02T03:04:05Z")),
            (&binding, Computed::Count("/webhooks"), json!(2)),
            (&binding, Computed::Count("/other"), json!(0)),
            (&binding, Computed::ParamKind, json!("v1/ConfigMap")),
            (&binding, Computed::ParamRef, json!("*/p")),
            (&event, Computed::ParamKind, json!("<unset>")),
            (&event, Computed::ParamRef, json!("<unset>")),
            (&event, Computed::EventObject, json!("pod/p")),
            (&event, Computed::EventSource, json!("scheduler")),
            (&event, Computed::EventCount, json!("7")),
            (&event, Computed::LastSeen, json!("5m")),
            (&event, Computed::FirstSeen, json!("5m")),
            (&event, Computed::Name, json!("")),
        ] {
            let now = UNIX_EPOCH + Duration::from_mins(5);
            assert_eq!(computed(cell, object, now), expected, "{cell:?}");
        }
    }
}
