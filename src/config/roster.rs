//! Who says which shards ought to exist: the file of `--roster`, one name per line, `#` begins a comment; or
//! the cached shards of one.

use std::path::Path;

use shardcache_proxy::http::path::is_shard_name;

use crate::cli::Settings;
use crate::failure::Failure;

/// Who says which shards ought to exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RosterSource {
    /// These.
    Names(Vec<Box<str>>),
    /// The `shards.core.kcp.io` of this shard, once it has sent them.
    ShardsOf(Box<str>),
}

/// Reads the two settings.
pub(super) fn source(settings: &Settings) -> Result<Option<RosterSource>, Failure> {
    match (&settings.roster, &settings.roster_from_shards) {
        (Some(_), Some(_)) => Err(Failure::usage("--roster and --roster-from-shards: only one of the two")),
        (Some(path), None) => load(path).map(|shards| Some(RosterSource::Names(shards))),
        (None, Some(shard)) if is_shard_name(shard) => {
            Ok(Some(RosterSource::ShardsOf(shard.as_str().into())))
        }
        (None, Some(shard)) => {
            Err(Failure::usage(format!("--roster-from-shards {shard:?}: is not the name of a shard")))
        }
        (None, None) => Ok(None),
    }
}

/// Reads the file. One without a name is refused: it is more likely cut short than meant.
fn load(path: &Path) -> Result<Vec<Box<str>>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::file("roster", path, error))?;
    let shards = parse(&text).map_err(|problem| Failure::file("roster", path, problem))?;
    if shards.is_empty() {
        return Err(Failure::file("roster", path, "names no shard"));
    }
    Ok(shards)
}

/// The names in the order of their first lines, each once.
fn parse(text: &str) -> Result<Vec<Box<str>>, String> {
    let mut shards: Vec<Box<str>> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for (number, line) in (1..).zip(text.lines()) {
        let name = line.split('#').next().unwrap_or_default().trim();
        if name.is_empty() {
            continue;
        }
        if !is_shard_name(name) {
            return Err(format!("line {number}: {name:?} is not the name of a shard"));
        }
        if seen.insert(name) {
            shards.push(name.into());
        }
    }
    Ok(shards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_name_a_comment_or_nothing() {
        let text = "# all of them\namber\n\n  beryl  # in the north\r\nroot:coral\namber\n";
        let shards = parse(text).expect("legal");
        assert_eq!(shards.iter().map(|shard| &**shard).collect::<Vec<_>>(), ["amber", "beryl", "root:coral"]);
        assert_eq!(parse("# nobody\n"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_name_is_refused_with_its_line() {
        let long = "x".repeat(62);
        for name in ["Amber", "amber beryl", "*", "amber,beryl", "a/b", "a.b", "a\0b", &long] {
            let problem = parse(&format!("amber\n{name}\n")).expect_err(name);
            assert!(problem.starts_with("line 2: "), "{problem}");
        }
    }
}
