//! Who says which shards ought to exist: the file of `--roster`, one name per line, `#` begins a comment; the
//! cached shards of one; or a ConfigMap that has the file's text.

use std::fmt;
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
    /// The key `shards` of a ConfigMap, once it can be read.
    ConfigMap(ConfigMapName),
}

/// Which ConfigMap, of the API server that the process's kubeconfig or pod account leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapName {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

impl fmt::Display for ConfigMapName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Reads the three settings.
pub(super) fn source(settings: &Settings) -> Result<Option<RosterSource>, Failure> {
    let Settings { roster, roster_from_shards, roster_configmap, .. } = settings;
    let given: Vec<_> = [
        ("--roster", roster.is_some()),
        ("--roster-from-shards", roster_from_shards.is_some()),
        ("--roster-configmap", roster_configmap.is_some()),
    ]
    .into_iter()
    .filter_map(|(flag, is_given)| is_given.then_some(flag))
    .collect();
    if given.len() > 1 {
        return Err(Failure::usage(format!("{}: only one of them", given.join(" and "))));
    }
    if let Some(path) = roster {
        return load(path).map(|shards| Some(RosterSource::Names(shards)));
    }
    if let Some(shard) = roster_from_shards {
        if !is_shard_name(shard) {
            return Err(Failure::usage(format!(
                "--roster-from-shards {shard:?}: is not the name of a shard"
            )));
        }
        return Ok(Some(RosterSource::ShardsOf(shard.as_str().into())));
    }
    let Some(text) = roster_configmap else { return Ok(None) };
    let name = config_map(text)
        .ok_or_else(|| Failure::usage(format!("--roster-configmap {text:?}: is not NAMESPACE/NAME")))?;
    Ok(Some(RosterSource::ConfigMap(name)))
}

/// A namespace and a name as Kubernetes allows them.
fn config_map(text: &str) -> Option<ConfigMapName> {
    let (namespace, name) = text.split_once('/')?;
    let is_label = |text: &str, longest: usize| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let ends = text.bytes().next().is_some_and(plain) && text.bytes().last().is_some_and(plain);
        ends && text.len() <= longest && text.bytes().all(|byte| plain(byte) || byte == b'-')
    };
    let is_legal =
        is_label(namespace, 63) && name.len() <= 253 && name.split('.').all(|part| is_label(part, 253));
    is_legal.then(|| ConfigMapName { namespace: namespace.into(), name: name.into() })
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
pub(crate) fn parse(text: &str) -> Result<Vec<Box<str>>, String> {
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
