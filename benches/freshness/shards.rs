//! Many pushers with nothing to push: they say that they live, and answer barriers, as the replicator does
//! whose sources stand still.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::try_join_all;
use shardcache_proxy::push::client::{ClientFrame, Hello, Provider, Sum, Upsert};
use shardcache_proxy::push::server::ServerFrame;
use shardcache_storage::{KeyParts, TypeName, entry_digest};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until};

use crate::harness::pusher::{Connection, Stream, unexpected};
use crate::harness::verdict::Refusal;

/// The types that every shard has: group, version, plural, kind. Those of kcp's cache server that have no
/// namespaces, and one more.
#[rustfmt::skip]
pub(crate) const TYPES: [[&str; 4]; 20] = [
    ["apis.kcp.io", "v1alpha1", "apiresourceschemas", "APIResourceSchema"],
    ["apis.kcp.io", "v1alpha1", "apiconversions", "APIConversion"],
    ["apis.kcp.io", "v1alpha2", "apiexports", "APIExport"],
    ["apis.kcp.io", "v1alpha1", "apiexportendpointslices", "APIExportEndpointSlice"],
    ["core.kcp.io", "v1alpha1", "logicalclusters", "LogicalCluster"],
    ["core.kcp.io", "v1alpha1", "shards", "Shard"],
    ["migration.kcp.io", "v1alpha1", "logicalclustermigrations", "LogicalClusterMigration"],
    ["cache.kcp.io", "v1alpha1", "cachedobjects", "CachedObject"],
    ["cache.kcp.io", "v1alpha1", "clustercachedresources", "ClusterCachedResource"],
    ["cache.kcp.io", "v1alpha1", "clustercachedresourceendpointslices", "ClusterCachedResourceEndpointSlice"],
    ["tenancy.kcp.io", "v1alpha1", "workspacetypes", "WorkspaceType"],
    ["rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole"],
    ["rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding"],
    ["admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"],
    ["admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"],
    ["admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy"],
    ["admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"],
    ["admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy"],
    ["admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"],
    ["", "v1", "namespaces", "Namespace"],
];
/// Version of every source.
const HEAD: u64 = 7;
/// How often a control stream says that the pusher lives, and when the stream of a type does that has said
/// nothing.
const ALIVE_EVERY: Duration = Duration::from_secs(5);
const STILL_EVERY: Duration = Duration::from_secs(30);
/// Shards that come at once.
const COMING: usize = 20;

/// Pushers, until they are dropped.
pub(crate) struct Shards {
    /// Their streams; one that ends is an error.
    streams: JoinSet<Result<(), Refusal>>,
}

/// Name of a shard.
pub(crate) fn shard(number: usize) -> String {
    format!("shard-{number}")
}

impl Shards {
    /// Pushes one object of each type of each shard; everything is synced when this returns.
    pub(crate) async fn push(address: SocketAddr, shards: usize) -> Result<Self, Refusal> {
        let mut streams = JoinSet::new();
        let numbers: Vec<_> = (0..shards).collect();
        for some in numbers.chunks(COMING) {
            let coming = some.iter().map(|number| synced(address, shard(*number)));
            for (control, cells) in try_join_all(coming).await? {
                streams.spawn(live(control));
                for (cell, sum) in cells {
                    streams.spawn(follow(cell, sum));
                }
            }
        }
        Ok(Self { streams })
    }

    /// Refuses if a stream has ended.
    pub(crate) fn check(&mut self) -> Result<(), Refusal> {
        let Some(ended) = self.streams.try_join_next() else { return Ok(()) };
        match ended {
            Ok(Err(refusal)) => Err(refusal),
            other => Err(Refusal::Impossible(format!("a pusher ended: {other:?}"))),
        }
    }
}

/// Brings a shard; its control stream, and those of its types with what each has.
async fn synced(address: SocketAddr, shard: String) -> Result<(Stream, Vec<(Stream, Sum)>), Refusal> {
    let mut connection = Connection::open(address, &shard).await?;
    let hello = Hello { holder: "bench".into(), instance: shard, ..Hello::default() };
    let catalog = TYPES.iter().map(|[group, _, plural, _]| TypeName::new(group, plural)).collect();
    let control = connection.control(hello.clone(), catalog).await?;
    let mut cells = vec![];
    for [group, version, plural, kind] in TYPES {
        let query = format!("?group={group}&version={version}&resource={plural}");
        let mut stream = connection.stream(&query).await?;
        let hello = Hello { source: "bench".into(), source_head: HEAD, ..hello.clone() };
        stream.say(&ClientFrame::Hello(Box::new(hello))).await?;
        stream.welcome().await?;
        let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        cells.push((stream, format!(r#""apiVersion":"{version}","kind":"{kind}""#)));
    }
    let synced = cells.into_iter().map(async |(mut stream, of_type)| {
        let sum = sync(&mut stream, &of_type).await?;
        Ok::<_, Refusal>((stream, sum))
    });
    Ok((control, try_join_all(synced).await?))
}

/// A list of one object; what was sent.
async fn sync(stream: &mut Stream, of_type: &str) -> Result<Sum, Refusal> {
    let object = format!(r#"{{{of_type},"metadata":{{"name":"one","uid":"one"}},"spec":{{}}}}"#);
    let key = KeyParts { shard: "", cluster: "root", namespace: "", name: "one" };
    let mut sum = Sum { count: 1, ..Sum::default() };
    sum.digest = sum.digest.with(entry_digest(key, "one", HEAD));
    stream.say(&ClientFrame::SyncStart { sync: 1 }).await?;
    let upsert =
        Upsert { version: HEAD, cluster: "root".into(), namespace: None, name: None, object: &object };
    stream.say(&ClientFrame::Upsert(upsert)).await?;
    let end = ClientFrame::SyncEnd { sync: 1, version: HEAD, sum, allow_empty: false };
    let last = stream.say(&end).await?;
    loop {
        match stream.hear().await? {
            ServerFrame::Ack { seq, .. } if seq == last => return Ok(sum),
            ServerFrame::Ack { .. } => {}
            other => return Err(unexpected(&other)),
        }
    }
}

/// The control stream of a pusher that lives.
async fn live(mut stream: Stream) -> Result<(), Refusal> {
    let mut alive = interval(ALIVE_EVERY);
    loop {
        tokio::select! {
            frame = stream.hear() => match frame? {
                ServerFrame::Ack { .. } => {}
                other => return Err(unexpected(&other)),
            },
            _ = alive.tick() => {
                stream.say(&ClientFrame::Progress { at: None, barrier: None, provider: None }).await?;
            }
        }
    }
}

/// The stream of a type whose source stands still.
async fn follow(mut stream: Stream, sum: Sum) -> Result<(), Refusal> {
    let mut said = Instant::now();
    loop {
        let barrier = tokio::select! {
            frame = stream.hear() => match frame? {
                ServerFrame::Barrier { id } => Some(id),
                ServerFrame::Ack { .. } | ServerFrame::Throttle { .. } => continue,
                other => return Err(unexpected(&other)),
            },
            () = sleep_until(said + STILL_EVERY) => None,
        };
        said = Instant::now();
        let provider = barrier.map(|_| Provider::Watch);
        stream.say(&ClientFrame::Progress { at: Some((HEAD, sum)), barrier, provider }).await?;
    }
}
