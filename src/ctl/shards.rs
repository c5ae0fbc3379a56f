//! `ctl shards`: the roster of shards as the server has it, and what an operator says of one.

use std::fmt::Write as _;
use std::io::Write as _;

use http::Method;
use serde_json::Value;
use shardcache_proxy::http::path::is_shard_name;

use super::{aligned, ask, runtime};
use crate::cli::{OutputForm, ShardArgs, ShardsArgs, ShardsListArgs, ShardsWord};
use crate::failure::Failure;

const PATH: &str = "/services/cache/admin/shards";
/// Types named in a row of the table; of more, only their number is told.
const TYPES_NAMED: usize = 3;

/// Shows the roster, or changes a place in it and says what has become of it.
pub fn shards(arguments: &ShardsArgs) -> Result<(), Failure> {
    let text = match &arguments.word {
        None => list(&arguments.list)?,
        Some(ShardsWord::Expect(shard)) => say(shard, "expect")?,
        Some(ShardsWord::Excuse(shard)) => say(shard, "excuse")?,
        Some(ShardsWord::Forget(shard)) => say(shard, "forget")?,
    };
    // Whoever has closed the output does not want it.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

fn list(arguments: &ShardsListArgs) -> Result<String, Failure> {
    let answer = runtime()?.block_on(ask(&arguments.data_dir, Method::GET, PATH))?;
    Ok(match arguments.output {
        OutputForm::Json => format!("{answer:#}\n"),
        OutputForm::Table => table(&answer),
    })
}

fn say(arguments: &ShardArgs, word: &str) -> Result<String, Failure> {
    let shard = &arguments.shard;
    if !is_shard_name(shard) {
        return Err(Failure::usage(format!("{shard:?}: is not the name of a shard")));
    }
    let answer =
        runtime()?.block_on(ask(&arguments.data_dir, Method::POST, &format!("{PATH}/{shard}/{word}")))?;
    Ok(sentence(&answer["shard"]))
}

/// What has become of a shard's place.
fn sentence(shard: &Value) -> String {
    let name = shard["shard"].as_str().unwrap_or_default();
    if shard["role"] == "unmanaged" {
        return format!("shard {name} is not in the roster\n");
    }
    let role = shard["role"].as_str().unwrap_or_default();
    let waits =
        if shard["gates"] == true { "views over all shards wait for it" } else { "no view waits for it" };
    format!("shard {name} is {role}: {waits}; awaited: {}\n", awaited(shard))
}

fn table(answer: &Value) -> String {
    let mut rows = vec![["SHARD", "ROLE", "PUSHER", "HEARD", "SYNCED", "AWAITED"].map(str::to_owned)];
    for shard in answer["shards"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let heard = match shard["pusher"]["heardSecondsAgo"].as_f64() {
            Some(seconds) => format!("{seconds:.0}s ago"),
            None => "-".to_owned(),
        };
        rows.push([
            text(&shard["shard"]),
            text(&shard["role"]),
            text(&shard["pusher"]["holder"]),
            heard,
            format!("{}/{}", shard["cells"]["synced"], shard["cells"]["total"]),
            awaited(shard),
        ]);
    }
    let mut text = aligned(&rows);
    if answer["seeded"] != true {
        let _ = writeln!(text, "The roster was not seeded: nobody has said which shards ought to exist.");
    }
    text
}

/// What is still awaited of a shard, in few words.
fn awaited(shard: &Value) -> String {
    if shard["role"] == "unmanaged" {
        return "-".to_owned();
    }
    if shard["catalog"] != true {
        return "catalog".to_owned();
    }
    let types = shard["awaits"].as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |of: &Value| {
        let part = |field: &str| of[field].as_str().unwrap_or_default().to_owned();
        [part("resource"), part("group")].join(".").trim_end_matches('.').to_owned()
    };
    match types {
        [] => "-".to_owned(),
        few if few.len() <= TYPES_NAMED => few.iter().map(name).collect::<Vec<_>>().join(","),
        many => format!("{} types", many.len()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_says_who_is_waited_for_and_for_what() {
        let kind = |resource: &str| json!({"group": "g.dev", "resource": resource});
        let answer = json!({"seeded": false, "shards": [
            {"shard": "amber", "role": "expected", "gates": true, "catalog": true, "awaits": [kind("cows"), {"group": "", "resource": "secrets"}],
             "pusher": {"holder": "replicator-0", "heardSecondsAgo": 2.6}, "cells": {"synced": 1, "total": 3}},
            {"shard": "beryl", "role": "joining", "gates": false, "catalog": false, "awaits": [], "pusher": null, "cells": {"synced": 0, "total": 0}},
            {"shard": "coral", "role": "excused", "gates": false, "catalog": true, "awaits": [kind("a"), kind("b"), kind("c"), kind("d")],
             "pusher": {"holder": "r", "heardSecondsAgo": null}, "cells": {"synced": 0, "total": 4}},
            {"shard": "old", "role": "unmanaged", "gates": false, "catalog": false, "awaits": [], "pusher": null, "cells": {"synced": 0, "total": 0}},
        ]});
        let expected = "\
SHARD   ROLE        PUSHER         HEARD    SYNCED   AWAITED
amber   expected    replicator-0   3s ago   1/3      cows.g.dev,secrets
beryl   joining     -              -        0/0      catalog
coral   excused     r              -        0/4      4 types
old     unmanaged   -              -        0/0      -
The roster was not seeded: nobody has said which shards ought to exist.
";
        assert_eq!(table(&answer), expected);
        let said: Vec<_> = answer["shards"].as_array().expect("four").iter().map(sentence).collect();
        assert_eq!(
            said[0],
            "shard amber is expected: views over all shards wait for it; awaited: cows.g.dev,secrets\n"
        );
        assert_eq!(said[1], "shard beryl is joining: no view waits for it; awaited: catalog\n");
        assert_eq!(said[3], "shard old is not in the roster\n");
    }
}
