//! JSON path as CRDs write it, which is kubectl's dialect (`k8s.io/client-go/util/jsonpath`).
//!
//! A path is translated to RFC 9535 and evaluated by a library. Understood are chains of
//! - `.name`, where `\.` is a dot in the name, and `['name']`, whose content is read in the same way;
//! - `[n]`, `[-n]`, `[from:to:step]`, `[*]`, `.*`, and unions of those, `[0,2]`;
//! - `[?(@.path OP literal)]` and `[?(@.path)]`, with one comparison at most;
//! - `..name`, once.
//!
//! What a path costs is bounded by the size of the object: everything that finds one value several times
//! (unions, `..`) is allowed once, because a chain of them would multiply.
//!
//! Where the two differ: a slice that ends beyond its list shows its first element here and nothing in
//! kube-apiserver; a comparison of different types is false here and empties the cell there. Ranges,
//! literals and several paths in one are not understood: kube-apiserver would show the first result,
//! here [`Path::parse`] gives `None`.

use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde_json::Value;

/// Longest path that is read, in bytes.
const LEN_MAX: usize = 1024;
/// Indexes and slices in a union.
const UNION_MAX: usize = 16;

/// A path that was understood.
#[derive(Debug)]
pub(super) struct Path(JpQuery);

impl Path {
    /// Reads a path without its braces.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() > LEN_MAX {
            return None;
        }
        let mut query = Query { text: String::from("$"), multiplied: false };
        translate(text, &mut query)?;
        parse_json_path(&query.text).ok().map(Self)
    }

    /// The first value at the path.
    pub(super) fn first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        js_path_process(&self.0, value).ok()?.into_iter().next().map(|found| found.val)
    }
}

/// An RFC 9535 query in the making.
struct Query {
    text: String,
    /// Whether it has a segment that may find a value more than once.
    multiplied: bool,
}

impl Query {
    fn multiply(&mut self) -> Option<()> {
        (!std::mem::replace(&mut self.multiplied, true)).then_some(())
    }
}

/// Whether only `metadata` can be at the path.
pub(super) fn is_metadata(text: &str) -> bool {
    text.trim_start_matches(['$', '@', ' ']).starts_with(".metadata.")
}

/// Appends the segments of `text` to an RFC 9535 query.
fn translate(text: &str, query: &mut Query) -> Option<()> {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if matches!(first, ' ' | '@' | '$') {
            rest = &rest[1..];
        } else if let Some(filter) = rest.strip_prefix("[?(") {
            let end = filter_end(filter)?;
            translate_filter(&filter[..end], query)?;
            rest = &filter[end + 2..];
        } else if let Some(index) = rest.strip_prefix('[') {
            let (selectors, after) = index.split_once(']')?;
            translate_selectors(selectors, query)?;
            rest = after;
        } else if let Some(name) = rest.strip_prefix("..") {
            let (name, after) = name.split_at(name_end(name));
            query.multiply()?;
            query.text.push_str("..");
            push_name(name, query);
            rest = after;
        } else if let Some(name) = rest.strip_prefix('.') {
            let (name, after) = name.split_at(name_end(name));
            push_name(name, query);
            rest = after;
        } else {
            return None;
        }
    }
    Some(())
}

/// Where a name ends: at the first terminator that no backslash precedes.
fn name_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, char) in text.char_indices() {
        let ends = matches!(char, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}');
        if ends && !escaped {
            return at;
        }
        escaped = char == '\\' && !escaped;
    }
    text.len()
}

fn push_name(name: &str, query: &mut Query) {
    if name == "*" {
        query.text.push_str("[*]");
        return;
    }
    query.text.push('[');
    query.text.push_str(&Value::from(name.replace('\\', "")).to_string());
    query.text.push(']');
}

/// What stands between brackets: a name, or indexes and slices.
fn translate_selectors(text: &str, query: &mut Query) -> Option<()> {
    if let Some(name) = text.strip_prefix('\'').and_then(|name| name.strip_suffix('\''))
        && !name.contains('\'')
    {
        return translate(&format!(".{name}"), query);
    }
    let is_number = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        digits.is_empty() || digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let selectors: Vec<&str> = text.split(',').map(str::trim).take(UNION_MAX + 1).collect();
    if selectors.len() > UNION_MAX {
        return None;
    }
    for selector in &selectors {
        let numbers: Vec<&str> = selector.split(':').collect();
        let slice = numbers.len() <= 3 && numbers.iter().all(|number| is_number(number));
        if *selector != "*" && (!slice || selector.is_empty() || *selector == "-") {
            return None;
        }
    }
    if selectors.len() > 1 {
        query.multiply()?;
    }
    query.text.push('[');
    query.text.push_str(&selectors.join(","));
    query.text.push(']');
    Some(())
}

/// Where the filter ends: at a `)]` outside of quotes.
fn filter_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut before = ' ';
    for (at, char) in text.char_indices() {
        match (char, quote) {
            ('"' | '\'', None) => quote = Some(char),
            (_, Some(open)) if char == open && before != '\\' => quote = None,
            (')', None) => return text[at..].starts_with(")]").then_some(at),
            _ => {}
        }
        before = char;
    }
    None
}

fn translate_filter(text: &str, query: &mut Query) -> Option<()> {
    const OPERATORS: [char; 4] = ['!', '<', '>', '='];
    query.text.push_str("[?");
    if let Some(at) = text.find(OPERATORS) {
        let (left, rest) = text.split_at(at);
        let right = rest.trim_start_matches(OPERATORS);
        let operator = &rest[..rest.len() - right.len()];
        if !matches!(operator, "==" | "!=" | "<" | ">" | "<=" | ">=") {
            return None;
        }
        translate_operand(left, query)?;
        query.text.push_str(operator);
        translate_operand(right, query)?;
    } else {
        translate_operand(text, query)?;
    }
    query.text.push(']');
    Some(())
}

/// A path from the element, or a literal.
fn translate_operand(text: &str, query: &mut Query) -> Option<()> {
    let text = text.trim();
    match text.chars().next()? {
        '@' | '.' => {
            query.text.push('@');
            translate(text, query)
        }
        quote @ ('"' | '\'') => {
            let literal = text[1..].strip_suffix(quote).filter(|literal| !literal.contains('\\'))?;
            query.text.push_str(&Value::from(literal).to_string());
            Some(())
        }
        _ => {
            let literal = matches!(text, "true" | "false") || text.parse::<f64>().is_ok();
            literal.then(|| query.text.push_str(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_understood_is_found_or_not(text in "[.\\[\\]a-c0-9*?(@)=<'\"\\\\,: -]{0,24}") {
            let object = json!({"a": [{"b": 1, "c": [[1, 2], []]}, {"a": null}], "b": {"c": "x"}});
            if let Some(path) = Path::parse(&text) {
                let _ = path.first(&object);
            }
        }
    }

    fn first(path: &str, value: &Value) -> Option<Value> {
        Path::parse(path).unwrap_or_else(|| panic!("{path} is understood")).first(value).cloned()
    }

    /// Each result was seen with `k8s.io/client-go/util/jsonpath`.
    #[test]
    fn paths_that_crds_use_lead_where_kubectl_says() {
        let object = json!({
            "metadata": {
                "labels": {"region": "eu", "app.kubernetes.io/name": "x", "a-b": "dash", "it's": "quoted"},
                "ownerReferences": [{"name": "one"}, {"name": "two"}],
            },
            "spec": {"size": 3, "list": [10, 20, 30], "deep": {"name": "inner"}, "nothing": null, "": "empty"},
            "status": {"conditions": [
                {"type": "Synced", "status": "False", "n": 1},
                {"type": "Ready", "status": "True", "n": 2, "reason": "a)b]"},
            ]},
        });
        for (path, expected) in [
            (".spec.size", json!(3)),
            (".spec.deep.name", json!("inner")),
            ("$.spec.size", json!(3)),
            (".metadata.labels.region", json!("eu")),
            (".metadata.labels['region']", json!("eu")),
            (".metadata.labels.a-b", json!("dash")),
            (r".metadata.labels.app\.kubernetes\.io/name", json!("x")),
            (r".metadata.labels['app\.kubernetes\.io/name']", json!("x")),
            (".metadata.labels.it's", json!("quoted")),
            (".metadata.ownerReferences[*].name", json!("one")),
            (".metadata.ownerReferences[0].name", json!("one")),
            (".metadata.ownerReferences[-1].name", json!("two")),
            (".metadata.ownerReferences[1:2].name", json!("two")),
            (".spec.list[1:]", json!(20)),
            (".spec.list[0:3:2]", json!(10)),
            (".spec.list[2,0]", json!(30)),
            (".spec.list", json!([10, 20, 30])),
            (".spec.nothing", Value::Null),
            (".spec.deep.*", json!("inner")),
            (".status.conditions[?(@.type==\"Ready\")].status", json!("True")),
            (".status.conditions[?(@.type=='Ready')].status", json!("True")),
            (".status.conditions[?(@.type == 'Ready')].status", json!("True")),
            (".status.conditions[?(@.type!='Synced')].status", json!("True")),
            (".status.conditions[?(@.n>1)].type", json!("Ready")),
            (".status.conditions[?(@.n<=1)].type", json!("Synced")),
            (".status.conditions[?(@.reason)].type", json!("Ready")),
            (".status.conditions[?(@.reason=='a)b]')].type", json!("Ready")),
            (".status..reason", json!("a)b]")),
        ] {
            assert_eq!(first(path, &object), Some(expected), "{path}");
        }
        for path in [
            ".spec.missing",
            ".spec.size.more",
            ".spec.list[3]",
            ".spec.list.name",
            ".spec.nothing.more",
            ".metadata.labels['app.kubernetes.io/name']",
            ".status.conditions[?(@.type=='Other')].status",
            ".",
        ] {
            assert_eq!(first(path, &object), None, "{path}");
        }
    }

    #[test]
    fn what_is_not_understood_is_no_path() {
        for path in [
            "spec",
            ".spec[",
            ".spec[x]",
            ".spec[\"x\"]",
            ".spec[1:2:3:4]",
            ".spec[]",
            ".spec[?(@.a==1 && @.b==2)]",
            ".spec[?(@.a=~'x')]",
            ".spec[?(@.a==x)]",
            ".spec[?(@.a==1]",
            ".a} {.b",
            "{.a}",
            "range .items[*]",
            "..a..b",
            ".a[0,1].b[0,1]",
            ".a[0,1]..b",
            ".a[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]",
            &".a".repeat(600),
        ] {
            assert!(Path::parse(path).is_none(), "{path}");
        }
    }
}
