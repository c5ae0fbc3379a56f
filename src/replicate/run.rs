//! The program `shardcache replicate`: from arguments to a running replicator, and what people and probes
//! see of it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::progress::Progress;
use super::{Config, KCP_PREFIX, Network, Preset, Prune, Replicator, Report, Target};
use crate::app::{Signals, say};
use crate::cli::{CacheArgs, PresetName, PruneName, ReplicateArgs};
use crate::failure::Failure;

/// How often the kubeconfig is looked at.
const ROTATION_EVERY: Duration = Duration::from_secs(10);
/// Time to learn what the source is called.
const SOURCE_ID_TIME: Duration = Duration::from_secs(10);

/// Pushes until SIGTERM or SIGINT; `Ok` once what was sent is durable.
pub fn run(arguments: &ReplicateArgs) -> Result<(), Failure> {
    let target = network(&arguments.cache)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("shardcache")
        .build()
        .map_err(|error| Failure::Internal(format!("the runtime cannot be started: {error}")))?;
    runtime.block_on(replicate(arguments, target))
}

async fn replicate(arguments: &ReplicateArgs, target: Network) -> Result<(), Failure> {
    let mut signals = Signals::install()?;
    let mut config = config(arguments, target).await?;
    let report = Arc::<Report>::default();
    if let Some(address) = arguments.listen {
        let address = serve(address, Arc::clone(&report)).await?;
        say(&format!("listening on http://{address}\n"));
    }
    let progress = Progress::start(Arc::clone(&report), &arguments.shard);
    loop {
        let stop = CancellationToken::new();
        let running = Replicator::with_report(config.clone(), Arc::clone(&report)).run(stop.clone());
        tokio::pin!(running);
        let rotated = tokio::select! {
            () = &mut running => break,
            () = signals.next() => None,
            source = rotated(arguments) => Some(source),
        };
        stop.cancel();
        tokio::select! {
            () = &mut running => {}
            // A second one: what was sent last may not be durable.
            () = signals.next() => break,
        }
        match rotated {
            Some(source) => config.source = source,
            None => break,
        }
    }
    progress.end();
    Ok(())
}

async fn config(arguments: &ReplicateArgs, target: Network) -> Result<Config, Failure> {
    let (source, url) = source(arguments).await?;
    let mut resources = arguments.resources.clone();
    let mut prefix = String::new();
    if arguments.preset == Some(PresetName::Kcp) {
        resources.extend(Preset::Kcp.resources());
        KCP_PREFIX.clone_into(&mut prefix);
    }
    let source_id = match &arguments.source_id {
        Some(id) => id.clone(),
        None => source_id(source.clone()).await.unwrap_or(url),
    };
    Ok(Config {
        shard: arguments.shard.clone(),
        cluster: arguments.cluster.clone(),
        source,
        prefix,
        source_id,
        target: Target::Network(Box::new(target)),
        resources,
        prune: Prune {
            managed_fields: arguments.prune.contains(&PruneName::ManagedFields),
            last_applied: arguments.prune.contains(&PruneName::LastApplied),
        },
        identity: arguments.identity.clone().unwrap_or_else(identity),
        election_namespace: arguments.leader_election.then(|| arguments.leader_election_namespace.clone()),
    })
}

/// Resolves when the kubeconfig has changed and can be read, with the client it describes. Tokens that
/// files hold are `kube`'s to read again.
async fn rotated(arguments: &ReplicateArgs) -> Client {
    let Some(path) = &arguments.kubeconfig else { return std::future::pending().await };
    let modified = || std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let known = modified();
    loop {
        tokio::time::sleep(ROTATION_EVERY).await;
        if modified() == known {
            continue;
        }
        match source(arguments).await {
            Ok((source, _)) => {
                tracing::info!(kubeconfig = %path.display(), "the kubeconfig has changed");
                return source;
            }
            Err(failure) => tracing::warn!("{}", failure.line()),
        }
    }
}

/// Where the cache is.
pub(crate) fn network(arguments: &CacheArgs) -> Result<Network, Failure> {
    let secure = arguments.cache_ca_file.is_some() || arguments.cache_client_cert_file.is_some();
    let default =
        if secure { "https://localhost:7443/services/cache" } else { "http://127.0.0.1:7443/services/cache" };
    let url = arguments.cache_url.clone().unwrap_or_else(|| http::Uri::from_static(default));
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none() {
        return Err(Failure::usage(format!("--cache-url {url}: is no http or https URL")));
    }
    let identity = arguments.cache_client_cert_file.clone().zip(arguments.cache_client_key_file.clone());
    let network = Network {
        url,
        ca_file: arguments.cache_ca_file.clone(),
        identity_files: identity,
        token_file: arguments.cache_token_file.clone(),
    };
    network.check().map_err(|error| Failure::usage(error.to_string()))?;
    Ok(network)
}

/// The source, and its URL.
async fn source(arguments: &ReplicateArgs) -> Result<(Client, String), Failure> {
    let mut config = if let Some(server) = &arguments.server {
        kube::Config::new(server.clone())
    } else if let Some(path) = &arguments.kubeconfig {
        let file = |error: &dyn std::fmt::Display| Failure::file("kubeconfig", path, error);
        let kubeconfig = Kubeconfig::read_from(path).map_err(|error| file(&error))?;
        let options =
            KubeConfigOptions { context: arguments.context.clone(), ..KubeConfigOptions::default() };
        kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| file(&error))?
    } else {
        kube::Config::infer().await.map_err(|error| Failure::usage(format!("--kubeconfig: {error}")))?
    };
    // A watch may be silent for a minute, and longer where there are no bookmarks.
    config.read_timeout = None;
    // A 504 may say that the source is not at a version, which no repetition helps with; and what has to be
    // asked again is asked again with pauses of our own.
    config.default_retry = false;
    let url = config.cluster_url.to_string();
    let client =
        Client::try_from(config).map_err(|error| Failure::usage(format!("--kubeconfig: {error}")))?;
    Ok((client, url))
}

/// The uid of `kube-system`, which a cluster keeps for its life.
async fn source_id(client: Client) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(client);
    let asked = tokio::time::timeout(SOURCE_ID_TIME, namespaces.get_opt("kube-system")).await;
    asked.ok()?.ok()??.metadata.uid
}

fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}_{}", std::process::id())
}

/// `/metrics`, `/readyz` (200 once every type is live, or while another replica pushes) and `/livez`.
async fn serve(address: SocketAddr, report: Arc<Report>) -> Result<SocketAddr, Failure> {
    let failed = |error: std::io::Error| Failure::Unavailable(format!("--listen {address}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let report = Arc::clone(&report);
            tokio::spawn(async move {
                let answer = service_fn(move |request: Request<Incoming>| {
                    let response = answer(&report, request.uri().path());
                    async move { Ok::<_, Infallible>(response) }
                });
                drop(
                    auto::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), answer)
                        .await,
                );
            });
        }
    });
    Ok(bound)
}

fn answer(report: &Report, path: &str) -> Response<Full<Bytes>> {
    let (code, text) = match path {
        "/metrics" => (StatusCode::OK, report.metrics()),
        "/livez" | "/healthz" => (StatusCode::OK, "ok".to_owned()),
        "/readyz" if report.is_live() => (StatusCode::OK, "ok".to_owned()),
        // Who stands by is ready to take over.
        "/readyz" if report.stands_by() => {
            (StatusCode::OK, "standing by: another replica pushes the shard\n".to_owned())
        }
        "/readyz" => (StatusCode::INTERNAL_SERVER_ERROR, "not every type is live\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    };
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn ready(report: &Report) -> (u16, String) {
        let response = answer(report, "/readyz");
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.expect("it is whole").to_bytes();
        (code, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn a_replica_that_stands_by_is_ready_and_says_what_it_does() {
        let report = Report::default();
        let gauge = |report: &Report| report.metrics().contains("\nshardcache_replicate_standing_by 1\n");
        assert_eq!(ready(&report).await.0, 500, "nothing is known yet");
        assert!(report.standing_by() && !report.standing_by(), "news once");
        let (code, text) = ready(&report).await;
        assert!(code == 200 && text.starts_with("standing by"), "{code} {text}");
        assert!(gauge(&report));
        report.holds(3);
        assert_eq!((ready(&report).await.0, gauge(&report)), (500, false), "no type is live yet");
        report.holds(0);
        assert_eq!(ready(&report).await.0, 500, "it has failed");
    }
}
