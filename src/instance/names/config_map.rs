//! The names that a ConfigMap has: its key `shards`, in the form of `--roster`'s file.
//!
//! Read at the start and watched from then on. What cannot be read, is not there or is wrong changes
//! nothing: it is logged with its reason, and the API is asked again after pauses that grow to half a
//! minute.
//!
//! The task — *owns* the names as they were last; *receives* the ConfigMap from its API; *sends* changes of
//! the roster to the store; *stops when* it is aborted, with the store.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use shardcache_proxy::cache::WatchCache;
use shardcache_storage::Store;
use tracing::error;

use super::{tell, ticks};
use crate::config::{ConfigMapName, roster_names};

/// The key whose value has the names.
const KEY: &str = "shards";
/// Pause before it is asked again how the API is reached.
const PAUSE: Duration = Duration::from_secs(10);
/// A watch that says nothing for so long is dead: the API ends each after 290 s.
const SILENCE_MAX: Duration = Duration::from_secs(295);

/// Tells the store of every name, for as long as it is polled.
pub(in crate::instance) async fn follow(store: Arc<dyn Store>, cache: WatchCache, name: ConfigMapName) {
    let unread = |problem: &str| {
        error!(%name, problem, "the roster of shards cannot be read from its ConfigMap; it is tried again");
    };
    let client = loop {
        match client().await {
            Ok(client) => break client,
            Err(problem) => unread(&problem),
        }
        tokio::time::sleep(PAUSE).await;
    };
    let api: Api<ConfigMap> = Api::namespaced(client, &name.namespace);
    let mut objects = pin!(watcher::watch_object(api, &name.name).default_backoff());
    let mut ticks = ticks();
    let mut known: Vec<Box<str>> = Vec::new();
    loop {
        tokio::select! {
            next = objects.next() => {
                let read = match next {
                    Some(Ok(Some(object))) => names(&object),
                    Some(Ok(None)) => Err("it is not there".to_owned()),
                    Some(Err(error)) => Err(error.to_string()),
                    None => Err("its watch has ended".to_owned()),
                };
                match read {
                    Ok(names) => known = names,
                    Err(problem) => unread(&problem),
                }
            }
            _ = ticks.tick() => {}
        }
        let names: Vec<&str> = known.iter().map(|name| &**name).collect();
        tell(&*store, &cache.snapshot().state, &names, KEY).await;
    }
}

/// The API, by kube's usual rules: `$KUBECONFIG`, `~/.kube/config`, or the pod's own account.
async fn client() -> Result<Client, String> {
    let mut config = kube::Config::infer().await.map_err(|error| error.to_string())?;
    config.read_timeout = Some(SILENCE_MAX);
    // Whoever waits for the roster is told what is wrong, rather than later.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| error.to_string())
}

/// The names in a ConfigMap. One without a name is refused, as the file is.
fn names(object: &ConfigMap) -> Result<Vec<Box<str>>, String> {
    let text = object.data.as_ref().and_then(|data| data.get(KEY));
    let text = text.ok_or_else(|| format!("it has no key {KEY:?}"))?;
    let names = roster_names(text).map_err(|problem| format!("{KEY}: {problem}"))?;
    if names.is_empty() { Err(format!("{KEY}: names no shard")) } else { Ok(names) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: &str, text: &str) -> Result<Vec<Box<str>>, String> {
        let data = [(key.to_owned(), text.to_owned())].into();
        names(&ConfigMap { data: Some(data), ..ConfigMap::default() })
    }

    #[test]
    fn d42_the_names_are_written_as_in_the_file() {
        let both: Vec<Box<str>> = vec!["amber".into(), "beryl".into()];
        assert_eq!(read(KEY, "# two\namber\nberyl # in the north\n"), Ok(both));
        for (key, text, problem) in [
            ("roster", "amber", "it has no key \"shards\""),
            (KEY, "# nobody yet\n", "shards: names no shard"),
            (KEY, "amber\nBeryl\n", "shards: line 2: \"Beryl\" is not the name of a shard"),
        ] {
            assert_eq!(read(key, text), Err(problem.to_owned()));
        }
        assert_eq!(names(&ConfigMap::default()), Err("it has no key \"shards\"".to_owned()));
    }
}
