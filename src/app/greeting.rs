//! What the server says when it is ready: the kubeconfig it wrote, and three commands that work with it.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::config::Config;
use crate::failure::Failure;

/// The user of both contexts: whoever the connection shows.
const USER: &str = "me";
/// Shard of the example context.
const EXAMPLE_SHARD: &str = "amber";
/// Logical cluster of the example context.
const EXAMPLE_CLUSTER: &str = "root";

/// Writes `<data-dir>/kubeconfig` anew and returns its absolute path.
pub(super) fn write_kubeconfig(config: &Config, address: SocketAddr) -> Result<PathBuf, Failure> {
    let path = config.data_dir.join("kubeconfig");
    let failure =
        |error: std::io::Error| Failure::Store(format!("{}: cannot be written: {error}", path.display()));
    let authority = match config.tls {
        Some(ref tls) => Some(std::path::absolute(&tls.cert_file).map_err(failure)?),
        None => None,
    };
    let text = kubeconfig(&base(address, authority.is_some()), authority.as_deref());
    // It holds no secret, but people put some into kubeconfigs.
    let written = config.data_dir.join(".kubeconfig");
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&written).map_err(failure)?;
    file.write_all(text.as_bytes()).map_err(failure)?;
    std::fs::rename(&written, &path).map_err(failure)?;
    std::path::absolute(&path).map_err(failure)
}

/// Where clients on this host find the server; an unspecified address is reached over loopback.
fn base(address: SocketAddr, tls: bool) -> String {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{}/services/cache", SocketAddr::new(ip, address.port()))
}

/// JSON is YAML, and quotes every path and address safely.
fn kubeconfig(base: &str, authority: Option<&Path>) -> String {
    let places = [("wildcard", "*", "*"), (EXAMPLE_SHARD, EXAMPLE_SHARD, EXAMPLE_CLUSTER)];
    let clusters = places.map(|(name, shard, cluster)| {
        let mut at = json!({ "server": format!("{base}/shards/{shard}/clusters/{cluster}") });
        if let Some(path) = authority {
            at["certificate-authority"] = json!(path);
        }
        json!({ "name": name, "cluster": at })
    });
    let contexts =
        places.map(|(name, ..)| json!({ "name": name, "context": { "cluster": name, "user": USER } }));
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": places[0].0,
        "clusters": clusters, "users": [{ "name": USER, "user": {} }], "contexts": contexts,
    });
    format!("{config:#}\n")
}

/// The lines after the first one.
pub(super) fn text(url: &str, kubeconfig: &Path, objects: usize) -> String {
    let quoted = quoted(&kubeconfig.display().to_string());
    let kubectl = format!("kubectl --kubeconfig {quoted}");
    format!(
        "ready, {objects} objects\n\
         kubeconfig: {quoted}\n\
         try next:\n  \
         {kubectl} --context {EXAMPLE_SHARD} create clusterrole hello --verb=get --non-resource-url=/hello\n  \
         {kubectl} get clusterroles --watch\n  \
         curl '{url}/readyz?verbose'\n"
    )
}

/// As a shell takes it.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if path.chars().all(plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubeconfig_parses_and_has_both_contexts() {
        let base = base(SocketAddr::from(([0, 0, 0, 0], 7443)), true);
        assert_eq!(base, "https://127.0.0.1:7443/services/cache");
        let text = kubeconfig(&base, Some(Path::new("/etc/\"odd\" path/ca.pem")));
        let parsed = kube::config::Kubeconfig::from_yaml(&text).expect("kube reads it");
        assert_eq!(parsed.current_context.as_deref(), Some("wildcard"));
        let servers: Vec<_> =
            parsed.clusters.iter().filter_map(|named| named.cluster.as_ref()?.server.as_deref()).collect();
        let at = |place: &str| format!("{base}/shards/{place}");
        assert_eq!(servers, [at("*/clusters/*"), at("amber/clusters/root")]);
        assert_eq!(parsed.contexts.len(), 2);
    }
}
