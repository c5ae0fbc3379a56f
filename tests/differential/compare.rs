//! Two transcripts, leaf by leaf.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::run::NOT_OPEN;
use crate::script::Script;
use crate::watch::SILENCE;

/// One leaf where the servers differ.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// `script.step:path`.
    pub(crate) place: String,
    /// What was asked.
    pub(crate) asked: String,
    pub(crate) theirs: String,
    pub(crate) ours: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  {}", self.place, self.asked)?;
        writeln!(f, "    theirs: {}", self.theirs)?;
        write!(f, "    ours:   {}", self.ours)
    }
}

/// Every leaf that differs, in the script's order.
pub(crate) fn differences(script: &Script, theirs: &[Value], ours: &[Value]) -> Vec<Difference> {
    let mut found = vec![];
    for (number, step) in script.steps.iter().enumerate() {
        let mut leaves = vec![];
        let (theirs, ours) = (&theirs[number], &ours[number]);
        if is_closed(theirs) != is_closed(ours) {
            // Only one of them had opened it: that was compared where it was opened.
            continue;
        }
        if let Some(missing) = [theirs, ours].into_iter().find_map(unanswered) {
            // Two servers that both say nothing do not agree on anything.
            leaves.push(("answer".to_owned(), missing.to_owned(), missing.to_owned()));
        } else if theirs["code"] == ours["code"] {
            compare("", Some(theirs), Some(ours), &mut leaves);
        } else {
            // One fact, whatever follows from it.
            leaves.push(("answer".to_owned(), in_short(theirs), in_short(ours)));
        }
        found.extend(leaves.into_iter().map(|(path, theirs, ours)| Difference {
            place: format!("{}.{}:{path}", script.name, number + 1),
            asked: step.to_string().split_whitespace().collect::<Vec<_>>().join(" "),
            theirs,
            ours,
        }));
    }
    found
}

fn is_closed(answer: &Value) -> bool {
    answer["failed"] == NOT_OPEN
}

/// Why there is no whole answer to compare. A watch that was refused is not open: that was compared.
fn unanswered(answer: &Value) -> Option<&str> {
    let failed = answer["failed"].as_str().filter(|why| *why != NOT_OPEN);
    failed.or(answer["end"].as_str().filter(|why| *why == SILENCE))
}

/// Code, reason and message; of what is no error, the code.
fn in_short(answer: &Value) -> String {
    let code = written(answer.get("code"));
    let body = &answer["body"];
    match (body["kind"].as_str(), body.as_str()) {
        (Some("Status"), _) => {
            format!(
                "{code} {}: {}",
                body["reason"].as_str().unwrap_or("Unknown"),
                written(body.get("message"))
            )
        }
        (_, Some(text)) => format!("{code} {}", text.trim()),
        _ => code,
    }
}

/// What a table writes for a value.
fn written(value: Option<&Value>) -> String {
    match value {
        None => "–".to_owned(),
        Some(Value::String(text)) => text.replace('\n', "⏎"),
        Some(value) => value.to_string(),
    }
}

fn compare(
    path: &str,
    theirs: Option<&Value>,
    ours: Option<&Value>,
    found: &mut Vec<(String, String, String)>,
) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match (theirs, ours) {
        (Some(Value::Object(theirs)), Some(Value::Object(ours))) => {
            let names: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
            for name in names {
                compare(&below(name), theirs.get(name), ours.get(name), found);
            }
        }
        (Some(Value::Array(theirs)), Some(Value::Array(ours))) if theirs.len() == ours.len() => {
            for (number, (theirs, ours)) in theirs.iter().zip(ours).enumerate() {
                compare(&below(&number.to_string()), Some(theirs), Some(ours), found);
            }
        }
        (theirs, ours) if theirs == ours => {}
        (theirs, ours) => found.push((path.to_owned(), written(theirs), written(ours))),
    }
}
