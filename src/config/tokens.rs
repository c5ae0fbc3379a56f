//! The static token file, in kube-apiserver's form: `token,user,uid,"group1,group2"` per line.

use std::collections::HashSet;
use std::path::Path;

use shardcache_proxy::access::Identity;

use crate::failure::Failure;

/// Reads the file; messages give the line and never the token.
pub(super) fn load(path: &Path) -> Result<Vec<(String, Identity)>, Failure> {
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::file("token-auth-file", path, error))?;
    let mut tokens = Vec::new();
    let mut seen = HashSet::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let (token, identity) = parse(line)
            .map_err(|problem| Failure::file("token-auth-file", path, format!("line {number}: {problem}")))?;
        if !seen.insert(token.clone()) {
            let problem = format!("line {number}: the token is there twice");
            return Err(Failure::file("token-auth-file", path, problem));
        }
        tokens.push((token, identity));
    }
    Ok(tokens)
}

fn parse(line: &str) -> Result<(String, Identity), &'static str> {
    let fields = split(line).ok_or("a quote is not closed")?;
    let [token, user, _uid, rest @ ..] = fields.as_slice() else {
        return Err("expected token,user,uid and optionally groups");
    };
    if token.is_empty() || user.is_empty() {
        return Err("token and user must not be empty");
    }
    let groups = rest.first().map(String::as_str).unwrap_or_default();
    let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
    let identity = Identity { user: user.clone(), groups: groups.map(str::to_owned).collect(), uris: vec![] };
    Ok((token.clone(), identity))
}

/// The fields of a CSV line; a quoted field may contain commas, and `""` for a quote.
fn split(line: &str) -> Option<Vec<String>> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.trim().chars().peekable();
    while let Some(c) = chars.next() {
        let field = fields.last_mut().expect("never empty, because it starts with one field");
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => field.push(c),
        }
    }
    (!quoted).then(|| fields.iter().map(|field| field.trim().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_as_kube_apiserver_reads_them() {
        let (token, identity) = parse(r#"s3cret,jane,42,"dev,system:masters""#).expect("legal");
        assert_eq!((token.as_str(), identity.user.as_str()), ("s3cret", "jane"));
        assert_eq!(identity.groups, ["dev", "system:masters"]);
        assert_eq!(parse("t,u,1").expect("groups are optional").1.groups, Vec::<String>::new());
    }

    #[test]
    fn incomplete_lines_are_refused() {
        for line in ["t", "t,u", ",u,1", "t,,1", r#"t,u,1,"a,b"#] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
