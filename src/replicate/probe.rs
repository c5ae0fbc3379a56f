//! Asks a shard's API itself whether the cache's copy of a type is what the shard has, where the shard's
//! pusher is gone (`serve --direct-probe`).
//!
//! Versions alone do not tell: a source that was restored from a backup and written to since may be at any
//! version, and has events below the position that no watch from there shows. So what is compared is what
//! there is, by a quorum read of all metadata against count and digest of the copy ([`evidence`]). Once
//! that was so, a watch is kept open, and as long as it stays open and silent nothing needs to be compared
//! again. Objects are never taken from the source, and the position is never moved.
//!
//! The prober has to read what the shard's replicator reads: which objects, under which names. Where that
//! is not everything, an extension of the context says so ([`shards`]).

mod evidence;
mod shards;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, try_join};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use parking_lot::Mutex;
use shardcache_proxy::freshness::probe::{Copied, DirectProbe, Unproven};
use shardcache_storage::CellName;
use tokio::time::Instant;

use super::compare::Reader;
use super::source::{Source, SourceError, WATCH_TIME};
use evidence::{Thread, compare};
use shards::Shard;

/// Cells of which something is known until the next probe, watches above all; one above that is compared
/// each time.
const KNOWN_MAX: usize = 256;
/// After a comparison that showed a difference none is made for so many times as long as it took, and no
/// longer than the most: what was missed while nobody pushes does not vanish, and each reads every object's
/// metadata.
const REST_SHARE: u32 = 9;
const REST_MAX: Duration = Duration::from_secs(30);
/// The namespace whose uid a cluster keeps for its life.
const NAMESPACE: &str = "kube-system";

/// Asks shards, each by the context of a kubeconfig that has its name.
pub struct Prober {
    shards: BTreeMap<String, Shard>,
    known: Mutex<HashMap<CellName, Known>>,
}

/// What the last probe of a cell has left.
enum Known {
    /// The copy was the source, which is watched since.
    Same(Copied, Thread),
    /// It was not.
    Other(Copied, Unproven, Instant),
}

impl Prober {
    /// Reads a kubeconfig whose contexts are named like shards. Tokens that files hold are read again as they
    /// change, the kubeconfig itself is not. The error names the context and the field.
    pub fn load(kubeconfig: &Path) -> Result<Self, String> {
        Ok(Self { shards: shards::load(kubeconfig)?, known: Mutex::default() })
    }

    async fn ask(&self, copy: &Copied) -> Result<(), Unproven> {
        let name = copy.cell.shard();
        let shard = self.shards.get(name);
        let shard = shard.ok_or_else(|| Unproven::Failed("there is no context of its name".to_owned()))?;
        let client = shard.client().await.map_err(Unproven::Failed)?;
        let resource = shard.resource(copy).map_err(Unproven::Failed)?;
        let source = Source::new(client.clone(), &resource, shard.prefix());
        let reader = shard.reader(source, &resource);
        try_join(is_source(shard, client, copy), self.compared(&reader, copy)).await.map(drop)
    }

    /// Whether the source has nothing else than the copy: as is known since the last probe, or by comparing.
    async fn compared(&self, reader: &Reader, copy: &Copied) -> Result<(), Unproven> {
        let known = self.take(copy);
        if let Some(Known::Other(_, why, until)) = &known
            && Instant::now() < *until
        {
            let why = why.clone();
            self.keep(known);
            return Err(why);
        }
        if let Some(Known::Same(_, mut thread)) = known
            && thread.holds(&reader.source).await?
        {
            self.keep(Some(Known::Same(copy.clone(), thread)));
            return Ok(());
        }
        let began = Instant::now();
        match compare(reader, copy).await {
            Ok(version) => {
                let lines = reader.source.watch(version, WATCH_TIME).await.ok();
                self.keep(lines.map(|lines| Known::Same(copy.clone(), Thread::new(lines, version))));
                Ok(())
            }
            Err(why @ Unproven::Failed(_)) => Err(why),
            Err(why) => {
                let until = Instant::now() + (REST_SHARE * began.elapsed()).min(REST_MAX);
                self.keep(Some(Known::Other(copy.clone(), why.clone(), until)));
                Err(why)
            }
        }
    }

    /// What is known of a copy; what is known of an older one of the cell is forgotten.
    fn take(&self, copy: &Copied) -> Option<Known> {
        self.known.lock().remove(&copy.cell).filter(|known| known.copy() == copy)
    }

    fn keep(&self, known: Option<Known>) {
        let Some(known) = known else { return };
        let now = Instant::now();
        let mut all = self.known.lock();
        all.retain(|_, known| match known {
            Known::Same(_, thread) => now < thread.ends(),
            Known::Other(_, _, until) => now < *until,
        });
        if all.len() < KNOWN_MAX {
            all.insert(known.copy().cell.clone(), known);
        }
    }
}

impl Known {
    fn copy(&self) -> &Copied {
        match self {
            Self::Same(copy, _) | Self::Other(copy, ..) => copy,
        }
    }
}

/// Whether the API is the source that was copied: it calls itself so, as the replicator names sources.
async fn is_source(shard: &Shard, client: Client, copy: &Copied) -> Result<(), Unproven> {
    let source = &*copy.source;
    let other = |own: &str| {
        Err(Unproven::Foreign(format!(
            "it is not known to be the source of the copy: that one is called {source}, this one {own}"
        )))
    };
    if let Some(id) = shard.source_id() {
        return if id == source { Ok(()) } else { other(id) };
    }
    if shard.is_at(source) {
        return Ok(());
    }
    let namespaces: Api<Namespace> = Api::all(client);
    match namespaces.get_opt(NAMESPACE).await {
        Ok(namespace) => match namespace.and_then(|namespace| namespace.metadata.uid) {
            Some(uid) if uid == source => Ok(()),
            Some(uid) => other(&uid),
            None => other(shard.url()),
        },
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => other(shard.url()),
        Err(error) => Err(Unproven::Failed(format!("it does not say what it is called: {error}"))),
    }
}

impl From<SourceError> for Unproven {
    fn from(error: SourceError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl DirectProbe for Prober {
    fn covers(&self, shard: &str) -> bool {
        self.shards.contains_key(shard)
    }

    fn probe<'a>(&'a self, copy: &'a Copied) -> BoxFuture<'a, Result<(), Unproven>> {
        self.ask(copy).boxed()
    }
}

impl fmt::Debug for Prober {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.shards.keys()).finish()
    }
}
