//! How shards are reached and what their replicators push, from one kubeconfig.
//!
//! A context that is named like a shard has its address and credentials. What the shard's replicator was
//! told beside them, and is not its default, stands in an extension of the context:
//!
//! ```yaml
//! contexts:
//! - name: amber
//!   context:
//!     cluster: amber
//!     user: cache
//!     extensions:
//!     - name: shardcache.dev/probe
//!       extension: {sourceID: amber-1, preset: kcp, cluster: root, resources: ["a.io/v1/things?labels=x=y"]}
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use futures::FutureExt;
use kube::Client;
use kube::config::{Context, KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use serde::Deserialize;
use shardcache_proxy::freshness::probe::Copied;
use shardcache_proxy::http::path::is_shard_name;
use tokio::sync::Semaphore;

use crate::replicate::compare::Reader;
use crate::replicate::selection::{KCP_PREFIX, Preset, Resource};
use crate::replicate::source::Source;

const EXTENSION: &str = "shardcache.dev/probe";
/// Logical cluster of objects that do not say one, unless the replicator was told another.
const CLUSTER: &str = "root";

/// A shard that can be asked.
pub(super) struct Shard {
    config: kube::Config,
    url: String,
    said: Said,
    resources: Vec<Resource>,
    /// Made when it is first asked, because it takes a runtime.
    client: Mutex<Option<Client>>,
}

/// What the shard's replicator was told beside address and credentials.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Said {
    #[serde(rename = "sourceID")]
    source_id: Option<String>,
    preset: Option<PresetName>,
    cluster: Option<String>,
    resources: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PresetName {
    Kcp,
}

/// Reads the kubeconfig; the error names the context and the field.
pub(super) fn load(path: &Path) -> Result<BTreeMap<String, Shard>, String> {
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| chain(&error))?;
    if kubeconfig.contexts.is_empty() {
        return Err("contexts: there are none".to_owned());
    }
    let mut shards = BTreeMap::new();
    for named in &kubeconfig.contexts {
        let name = &named.name;
        let wrong = |problem: String| format!("contexts[{name}]: {problem}");
        if !is_shard_name(name) {
            return Err(wrong("name: is not the name of a shard".to_owned()));
        }
        let context = named.context.as_ref().ok_or_else(|| wrong("context: is missing".to_owned()))?;
        let shard = Shard::of(&kubeconfig, name, context).map_err(wrong)?;
        if shards.insert(name.clone(), shard).is_some() {
            return Err(wrong("name: is there twice".to_owned()));
        }
    }
    Ok(shards)
}

impl Shard {
    fn of(kubeconfig: &Kubeconfig, name: &str, context: &Context) -> Result<Self, String> {
        let options = KubeConfigOptions { context: Some(name.to_owned()), ..KubeConfigOptions::default() };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &options);
        // It is asynchronous in name only: everything was read with the file.
        let config = config.now_or_never().ok_or("cannot be read at once")?;
        let mut config = config.map_err(|error| chain(&error))?;
        // As of the replicator: a watch may be silent, and what fails is not asked again behind our back.
        config.read_timeout = None;
        config.default_retry = false;
        let extensions = context.extensions.iter().flatten();
        let said = match extensions.into_iter().find(|extension| extension.name == EXTENSION) {
            Some(extension) => serde_json::from_value::<Said>(extension.extension.clone())
                .map_err(|error| format!("extensions[{EXTENSION}]: {error}"))?,
            None => Said::default(),
        };
        let resource = |text: &String| {
            text.parse().map_err(|error| format!("extensions[{EXTENSION}].resources: {text:?}: {error}"))
        };
        // Before those of the preset, as what is said is meant.
        let mut resources: Vec<Resource> = said.resources.iter().map(resource).collect::<Result<_, _>>()?;
        if let Some(PresetName::Kcp) = said.preset {
            resources.extend(Preset::Kcp.resources());
        }
        let url = config.cluster_url.to_string();
        Ok(Self { config, url, said, resources, client: Mutex::default() })
    }

    /// The client of the shard. May run a program that has its credentials.
    pub(super) async fn client(&self) -> Result<Client, String> {
        if let Some(client) = self.client.lock().clone() {
            return Ok(client);
        }
        let config = self.config.clone();
        let made = tokio::task::spawn_blocking(|| Client::try_from(config)).await;
        let client = made.map_err(|error| error.to_string())?.map_err(|error| chain(&error))?;
        *self.client.lock() = Some(client.clone());
        Ok(client)
    }

    /// What its replicator pushes of a type.
    pub(super) fn resource(&self, copy: &Copied) -> Result<Resource, String> {
        let type_name = copy.cell.type_name();
        if !type_name.identity().is_empty() {
            return Err("types with an identity cannot be asked for".to_owned());
        }
        let said = self.resources.iter().find(|resource| resource.type_name() == *type_name);
        let plain = || Resource::new(type_name.group(), &copy.version, type_name.resource());
        Ok(said.cloned().unwrap_or_else(plain))
    }

    /// What stands before `/api` and `/apis`, after the path of the server's URL.
    pub(super) fn prefix(&self) -> &'static str {
        let has_it = self.url.trim_end_matches('/').ends_with(KCP_PREFIX);
        if self.said.preset.is_some() && !has_it { KCP_PREFIX } else { "" }
    }

    /// Reads what the replicator would push.
    pub(super) fn reader(&self, source: Source, resource: &Resource) -> Reader {
        let cluster = self.said.cluster.clone().unwrap_or_else(|| CLUSTER.to_owned());
        Reader { source, rule: resource.rule, cluster, turns: Arc::new(Semaphore::new(1)) }
    }

    /// What the source calls itself, if that was said.
    pub(super) fn source_id(&self) -> Option<&str> {
        self.said.source_id.as_deref()
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Whether a source is called by the URL of this one, with or without its path.
    pub(super) fn is_at(&self, source: &str) -> bool {
        let Ok(other) = source.parse::<http::Uri>() else { return false };
        let own = &self.config.cluster_url;
        let path = own.path().trim_end_matches('/');
        let prefix = path.strip_suffix(KCP_PREFIX).unwrap_or(path);
        let same_path = [path, prefix].contains(&other.path().trim_end_matches('/'));
        other.scheme() == own.scheme() && other.authority() == own.authority() && same_path
    }
}

/// An error with its causes on one line; they are what the person looks for.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use shardcache_proxy::push::client::Sum;
    use shardcache_storage::{CellName, TypeName};

    use super::*;
    use crate::replicate::selection::Rule;

    fn file(contexts: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("shards.kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n\
             - {{name: a, cluster: {{server: \"https://amber.example:6443\"}}}}\n\
             - {{name: b, cluster: {{server: \"https://beryl.example:6443/clusters/*\"}}}}\n\
             users:\n- {{name: u, user: {{token: secret}}}}\ncontexts:\n{contexts}\n"
        );
        std::fs::write(&path, text).expect("written");
        (directory, path)
    }

    fn copy(group: &str, version: &str, plural: &str) -> Copied {
        Copied {
            cell: CellName::new("amber", TypeName::new(group, plural)),
            version: version.into(),
            source: "s".into(),
            generation: 1,
            position: 1,
            sum: Sum::default(),
        }
    }

    #[test]
    fn a_context_is_a_shard_and_its_extension_says_what_its_replicator_was_told() {
        let (_directory, path) = file(
            "- name: amber\n  context: {cluster: a, user: u}\n\
             - name: beryl\n  context:\n    cluster: b\n    user: u\n    extensions:\n    \
             - name: shardcache.dev/probe\n      extension: {preset: kcp, sourceID: beryl-1, \
             resources: [\"a.io/v1/things?labels=x=y\"]}",
        );
        let shards = load(&path).expect("legal");
        let (amber, beryl) = (&shards["amber"], &shards["beryl"]);
        assert_eq!((amber.prefix(), amber.source_id()), ("", None));
        let plain = amber.resource(&copy("a.io", "v1beta1", "things")).expect("a type");
        assert_eq!(plain, Resource::new("a.io", "v1beta1", "things"));
        for (name, is_same) in [
            ("https://amber.example:6443", true),
            ("https://amber.example:6443/", true),
            ("https://amber.example:6444/", false),
            ("http://amber.example:6443/", false),
            ("https://amber.example:6443/clusters/root", false),
            ("0c2f-uid", false),
        ] {
            assert_eq!(amber.is_at(name), is_same, "{name}");
        }
        // The server's path is the prefix.
        assert_eq!((beryl.prefix(), beryl.source_id()), ("", Some("beryl-1")));
        assert!(
            beryl.is_at("https://beryl.example:6443/")
                && beryl.is_at("https://beryl.example:6443/clusters/*")
        );
        let things = beryl.resource(&copy("a.io", "v1", "things")).expect("a type");
        assert_eq!(things.label_selector.as_deref(), Some("x=y"));
        let exports = beryl.resource(&copy("apis.kcp.io", "v1alpha2", "apiexports")).expect("a type");
        assert_eq!(exports.rule, Rule::Kcp { opt_in: false });
    }

    #[test]
    fn what_is_wrong_is_named_with_its_context() {
        let extended = |extension: &str| {
            format!(
                "- name: amber\n  context:\n    cluster: a\n    user: u\n    extensions:\n    \
                 - name: shardcache.dev/probe\n      extension: {extension}"
            )
        };
        for (contexts, begins) in [
            (String::new(), "contexts: "),
            ("- name: Amber\n  context: {cluster: a, user: u}".to_owned(), "contexts[Amber]: name: "),
            ("- name: amber\n  context: {cluster: z, user: u}".to_owned(), "contexts[amber]: "),
            ("- name: amber".to_owned(), "contexts[amber]: context: "),
            (extended("{sourceId: x}"), "contexts[amber]: extensions[shardcache.dev/probe]: unknown field"),
            (extended("{preset: k3s}"), "contexts[amber]: extensions[shardcache.dev/probe]: "),
            (
                extended("{resources: [things]}"),
                "contexts[amber]: extensions[shardcache.dev/probe].resources: ",
            ),
            (
                "- name: amber\n  context: {cluster: a}\n- name: amber\n  context: {cluster: a}".to_owned(),
                "contexts[amber]: name: is there twice",
            ),
        ] {
            let (_directory, path) = file(&contexts);
            let problem = load(&path).err().unwrap_or_else(|| panic!("{contexts}: is legal"));
            assert!(problem.starts_with(begins), "{problem}");
        }
        assert!(load(Path::new("/nowhere/kubeconfig")).is_err());
    }
}
