//! What the replicator reads of an object, and what it may leave out: everything else passes through as it
//! came.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use shardcache_proxy::ingest::{CLUSTER_ANNOTATION, SHARD_ANNOTATION};

use super::pusher::Place;
use super::selection::Rule;

/// Annotation by which kcp's objects ask to be replicated.
const REPLICATE_ANNOTATION: &str = "internal.kcp.io/replicate";
/// Start of the names of kcp's own logical clusters.
const SYSTEM: &str = "system:";
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What is left out of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prune {
    /// `metadata.managedFields`.
    pub managed_fields: bool,
    /// The annotation of `kubectl apply`.
    pub last_applied: bool,
}

/// What the replicator reads of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Facts<'a> {
    #[serde(borrow, rename = "apiVersion")]
    api_version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow)]
    annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

impl<'a> Facts<'a> {
    pub(super) fn read(object: &'a str) -> Result<Self, String> {
        serde_json::from_str(object).map_err(|error| format!("an object cannot be read: {error}"))
    }

    pub(super) fn uid(&self) -> &str {
        &self.metadata.uid
    }

    pub(super) fn version(&self) -> Result<u64, String> {
        shardcache_proxy::push::client::number("metadata.resourceVersion", &self.metadata.resource_version)
    }

    /// Where it goes: its own logical cluster if it says one, else the one of the source.
    pub(super) fn place<'s>(&'s self, cluster: &'s str) -> Place<'s> {
        let own = self.annotation(CLUSTER_ANNOTATION);
        Place {
            cluster: own.unwrap_or(cluster),
            namespace: &self.metadata.namespace,
            name: &self.metadata.name,
        }
    }

    /// Whether the object is one of those that are pushed.
    pub(super) fn is_wanted(&self, rule: Rule, cluster: &str) -> bool {
        match rule {
            Rule::All => true,
            Rule::Kcp { opt_in } => {
                let asks = self.annotation(REPLICATE_ANNOTATION).is_some_and(|words| !words.is_empty());
                !self.place(cluster).cluster.starts_with(SYSTEM) && (asks || !opt_in)
            }
        }
    }

    /// Whether a bookmark says that everything there was has been sent.
    pub(super) fn ends_initial_events(&self) -> bool {
        self.annotation(INITIAL_EVENTS_END) == Some("true")
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(name).map(|value| &**value)
    }

    /// The object as it is pushed. Items of typed lists lack `apiVersion` and `kind`.
    pub(super) fn text(
        &self,
        object: &'a str,
        api_version: &str,
        kind: &str,
        prune: Prune,
    ) -> Result<Cow<'a, str>, String> {
        let mut text = Cow::Borrowed(object);
        if self.api_version.is_none() {
            let open = object.find('{').map_or(0, |at| at + 1);
            let comma = if object[open..].trim_start().starts_with('}') { "" } else { "," };
            let head = format!(r#"{{"apiVersion":"{api_version}","kind":"{kind}"{comma}"#);
            text = Cow::Owned(head + &object[open..]);
        }
        // Where the source is a cache itself, the object is of that shard there, and of ours here.
        if self.annotation(SHARD_ANNOTATION).is_some() {
            text = without(text, &["metadata", "annotations", SHARD_ANNOTATION])?;
        }
        if prune.managed_fields {
            text = without(text, &["metadata", "managedFields"])?;
        }
        if prune.last_applied {
            text = without(text, &["metadata", "annotations", LAST_APPLIED])?;
        }
        Ok(text)
    }
}

/// The text without one member; everything else stays byte for byte.
fn without<'a>(text: Cow<'a, str>, path: &[&str]) -> Result<Cow<'a, str>, String> {
    let Some((from, to)) = member(&text, path)? else { return Ok(text) };
    let mut shorter = String::with_capacity(text.len());
    shorter.push_str(&text[..from]);
    shorter.push_str(&text[to..]);
    Ok(Cow::Owned(shorter))
}

/// Where a member is, with one comma.
fn member(text: &str, path: &[&str]) -> Result<Option<(usize, usize)>, String> {
    let mut value = text;
    for name in path {
        if !value.trim_start().starts_with('{') {
            return Ok(None);
        }
        let members: BTreeMap<Cow<'_, str>, &RawValue> =
            serde_json::from_str(value).map_err(|error| format!("an object cannot be read: {error}"))?;
        match members.get(*name) {
            Some(found) => value = found.get(),
            None => return Ok(None),
        }
    }
    let start = value.as_ptr() as usize - text.as_ptr() as usize;
    // Before the value stand the colon and the name; a name with escapes is not one that is looked for.
    let colon = text[..start].trim_end();
    let name = colon[..colon.len() - 1].trim_end();
    let from = name[..name.len() - 1].rfind('"').ok_or("a member without a name")?;
    let to = start + value.len();
    let after = text[to..].trim_start();
    if let Some(rest) = after.strip_prefix(',') {
        return Ok(Some((from, text.len() - rest.len())));
    }
    let before = text[..from].trim_end();
    Ok(Some((before.strip_suffix(',').map_or(from, str::len), to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pruned(object: &str) -> String {
        let all = Prune { managed_fields: true, last_applied: true };
        let facts = Facts::read(object).expect("an object");
        facts.text(object, "v1", "Thing", all).expect("an object").into_owned()
    }

    #[test]
    fn what_is_left_out_leaves_the_rest_byte_for_byte() {
        let rest = r#"{"apiVersion":"v1", "metadata":{ "name":"a" , "annotations":{"x":"1"} },"spec":1.0}"#;
        let first = rest.replace(r#""name""#, r#""managedFields": [{"a":","}] ,"name""#);
        assert_eq!(pruned(&first), rest);
        let last = rest.replace(r#"{"x":"1"} }"#, r#"{"x":"1"} , "managedFields":[] }"#);
        assert_eq!(pruned(&last), rest.replace(r#"{"x":"1"} }"#, r#"{"x":"1"}  }"#));
        let applied = rest.replace(r#""x":"1""#, &format!(r#""x":"1","{LAST_APPLIED}":"{{\"a\":1}}""#));
        assert_eq!(pruned(&applied), rest);
        assert_eq!(pruned(rest), rest);
        let alone = r#"{"apiVersion":"v1","metadata":{"managedFields":[]}}"#;
        assert_eq!(pruned(alone), r#"{"apiVersion":"v1","metadata":{}}"#);
    }

    #[test]
    fn items_of_typed_lists_get_their_type() {
        let facts = Facts::read(r#"{"metadata":{"name":"a"}}"#).expect("an object");
        let text = facts.text(r#"{"metadata":{"name":"a"}}"#, "v1", "Thing", Prune::default());
        assert_eq!(text.expect("an object"), r#"{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a"}}"#);
    }
}
