//! `ctl freshness`: the server's own account of every shard and cell, as a table or as it stands.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::{aligned, ask, plain, runtime};
use crate::cli::{FreshnessArgs, OutputForm};
use crate::failure::Failure;

const PATH: &str = "/services/cache/freshness";
/// How often the server is asked whether something has changed.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Prints it; with `--watch` whenever a role or a state has changed, until interrupted.
pub fn freshness(arguments: &FreshnessArgs) -> Result<(), Failure> {
    let path = path(arguments)?;
    runtime()?.block_on(async {
        let mut last = None;
        loop {
            let document = ask(&arguments.data_dir, Method::GET, &path).await?;
            let states = states(&document);
            if last.as_ref() != Some(&states) {
                let text = match arguments.output {
                    OutputForm::Json => format!("{document:#}\n"),
                    OutputForm::Table => table(&document),
                };
                // Whoever has closed the output has seen enough.
                if std::io::stdout().write_all(text.as_bytes()).is_err() {
                    return Ok(());
                }
                last = Some(states);
            }
            if !arguments.watch {
                return Ok(());
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    })
}

/// Path and query; names are checked so that nothing needs to be escaped.
fn path(arguments: &FreshnessArgs) -> Result<String, Failure> {
    let mut parameters = Vec::new();
    for (flag, name, value) in
        [("--shard", "shard", &arguments.shard), ("--rtype", "rtype", &arguments.rtype)]
    {
        let Some(value) = value else { continue };
        if !plain(value) {
            return Err(Failure::usage(format!("{flag} {value:?}: is not a name")));
        }
        parameters.push(format!("{name}={value}"));
    }
    Ok(format!("{PATH}?{}", parameters.join("&")))
}

/// What a change of is worth another print: roles and states, not ages and positions.
fn states(document: &Value) -> Vec<String> {
    let mut states = vec![text(&document["complete"])];
    for shard in document["shards"].as_array().into_iter().flatten() {
        states.push(format!("{} {} {}", shard["name"], shard["role"], shard["awaits"]));
        for cell in shard["cells"].as_array().into_iter().flatten() {
            states.push(format!("{} {} {}", cell["group"], cell["resource"], cell["state"]));
        }
    }
    states
}

/// A row for each cell; shards without one have a row too.
fn table(document: &Value) -> String {
    const HEAD: [&str; 8] = ["SHARD", "ROLE", "TYPE", "STATE", "AGE", "BY", "OBJECTS", "HOLDER"];
    let mut rows = vec![HEAD.map(str::to_owned)];
    for shard in document["shards"].as_array().into_iter().flatten() {
        let row = |[kind, state, age, by, objects]: [String; 5]| {
            let [name, role, holder] = ["name", "role", "holder"].map(|field| text(&shard[field]));
            [name, role, kind, state, age, by, objects, holder]
        };
        let cells = shard["cells"].as_array().map_or(&[][..], Vec::as_slice);
        if cells.is_empty() {
            rows.push(row(["-"; 5].map(str::to_owned)));
        }
        for cell in cells {
            let kind = format!("{}.{}", text(&cell["resource"]), cell["group"].as_str().unwrap_or_default());
            let age = cell["ageSeconds"].as_u64().map_or("unknown".to_owned(), |age| format!("{age}s"));
            let kind = kind.trim_end_matches('.').to_owned();
            let [state, by, objects] = ["state", "provider", "objects"].map(|field| text(&cell[field]));
            rows.push(row([kind, state, age, by, objects]));
        }
    }
    let mut table = aligned(&rows);
    if let Some(complete) = document["complete"].as_str() {
        let _ = writeln!(table, "complete: {complete}");
    }
    table
}

/// A field for people.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_has_a_row_for_each_cell_and_each_shard_without_one() {
        let document = json!({"complete": "false", "shards": [
            {"name": "amber", "role": "expected", "holder": "r-0", "cells": [
                {"group": "apis.kcp.io", "resource": "apiexports", "state": "Live", "ageSeconds": 3, "objects": 12,
                    "provider": "rollingWatch"},
                {"group": "", "resource": "namespaces", "state": "Restored", "ageSeconds": null, "objects": 0},
            ]},
            {"name": "birch", "role": "expected", "holder": null, "cells": []},
        ]});
        let expected = "\
SHARD   ROLE       TYPE                     STATE      AGE       BY             OBJECTS   HOLDER
amber   expected   apiexports.apis.kcp.io   Live       3s        rollingWatch   12        r-0
amber   expected   namespaces               Restored   unknown   -              0         r-0
birch   expected   -                        -          -         -              -         -
complete: false
";
        assert_eq!(table(&document), expected);
    }

    #[test]
    fn ages_alone_are_no_change() {
        let document = |state: &str, age: u64| {
            json!({"shards": [{"name": "amber", "role": "expected", "cells": [
                {"group": "", "resource": "namespaces", "state": state, "ageSeconds": age},
            ]}]})
        };
        assert_eq!(states(&document("Live", 1)), states(&document("Live", 2)));
        assert_ne!(states(&document("Live", 1)), states(&document("Lagging", 91)));
    }
}
