//! A replicator of a source that says on demand how far its watches are: the reference apiserver without a
//! watch cache, which has etcd say so (`POST /reference/progress`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::client::Body;
use shardcache::replicate::{Config, Network, Prune, Replicator, Report, RequestProgress, Resource, Target};
use tokio_util::sync::CancellationToken;

use crate::harness::verdict::Refusal;
use crate::stand::{RESOURCE, SHARD};

/// A replicator in a thread of its own, with a runtime of its own; ends when it is dropped.
pub(crate) struct Direct {
    pub(crate) report: Arc<Report>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// The request that a source of this kind has for it.
struct Etcd(kube::Client);

impl RequestProgress for Etcd {
    fn request_progress<'a>(&'a self, resource: &'a Resource) -> BoxFuture<'a, Result<(), String>> {
        async move {
            let path = format!("/reference/progress?resource={}.{}", resource.plural, resource.group);
            let request = http::Request::post(path).body(Body::empty()).map_err(|error| error.to_string())?;
            let response = self.0.send(request).await.map_err(|error| error.to_string())?;
            if response.status().is_success() { Ok(()) } else { Err(response.status().to_string()) }
        }
        .boxed()
    }
}

impl Direct {
    /// Begins to push.
    pub(crate) fn start(source: SocketAddr, cache: SocketAddr) -> Result<Self, Refusal> {
        let report = Arc::<Report>::default();
        let stop = CancellationToken::new();
        let url = |text: String| text.parse::<http::Uri>().map_err(|error| impossible(&error));
        let (source, cache) =
            (url(format!("http://{source}"))?, url(format!("http://{cache}/services/cache"))?);
        let resource: Resource = RESOURCE.parse().map_err(|error| impossible(&error))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (known, stopped) = (Arc::clone(&report), stop.clone());
        let push = async move {
            let mut config = kube::Config::new(source);
            config.read_timeout = None;
            config.default_retry = false;
            let client = kube::Client::try_from(config).expect("plain HTTP needs no keys");
            let network = Network { url: cache, ca_file: None, identity_files: None, token_file: None };
            let config = Config {
                shard: SHARD.to_owned(),
                cluster: "root".to_owned(),
                source: client.clone(),
                prefix: String::new(),
                source_id: "bench".to_owned(),
                target: Target::Network(Box::new(network)),
                resources: vec![resource],
                prune: Prune::default(),
                identity: "bench".to_owned(),
                election_namespace: None,
            };
            let replicator = Replicator::with_report(config, known).with_progress(Arc::new(Etcd(client)));
            replicator.run(stopped).await;
        };
        let thread = std::thread::spawn(move || runtime.block_on(push));
        Ok(Self { report, stop, thread: Some(thread) })
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic of it was told when it happened.
            drop(thread.join());
        }
    }
}

fn impossible(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::Impossible(error.to_string())
}
