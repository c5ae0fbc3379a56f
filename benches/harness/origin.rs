//! Where a result is from: the machine and the two programs. Results of different origin are never joined.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::client::Client;
use super::server::Server;
use super::verdict::Refusal;

/// Machine and programs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// Processor, cores, memory, kernel, file system of the stores.
    pub(crate) machine: String,
    /// Version and compiler; the hash of its binary.
    pub(crate) ours: String,
    pub(crate) ours_binary: String,
    /// Versions of the apiserver, etcd and Go; the hash of its binary.
    pub(crate) theirs: String,
    pub(crate) theirs_binary: String,
}

impl Origin {
    /// Asks the machine and both programs.
    pub(crate) async fn gather(reference: &Path) -> Result<Self, Refusal> {
        let ours = env!("CARGO_BIN_EXE_shardcache");
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let server = Server::reference(reference, &directory.path().join("data"), &[]);
        server.ready(Instant::now()).await;
        let version = Client::connect(server.address).await?.get("/version").await?;
        let version: serde_json::Value = serde_json::from_slice(&version).map_err(std::io::Error::from)?;
        let said = |name: &str| version[name].as_str().unwrap_or("unknown").to_owned();
        let theirs = format!(
            "apiextensions-apiserver {} with etcd {} embedded, {}",
            said("gitVersion"),
            etcd_version()?,
            said("goVersion")
        );
        let compiler = output("rustc", &["--version"])?;
        let compiler = compiler.split(" (").next().unwrap_or_default();
        Ok(Self {
            machine: machine(directory.path())?,
            ours: format!("{}, release profile, {compiler}", output(ours, &["--version"])?),
            ours_binary: hash(Path::new(ours))?,
            theirs,
            theirs_binary: hash(reference)?,
        })
    }
}

fn machine(stores: &Path) -> Result<String, Refusal> {
    let cpu = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown");
    let model = model.trim_start_matches([' ', '\t', ':']);
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let kib = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(f64::NAN);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let kernel = kernel.split('-').next().unwrap_or_default().trim();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let stores = output("stat", &["-f", "-c", "%T", &stores.to_string_lossy()])?;
    Ok(format!(
        "{cores} cores ({model}), {:.0} GiB memory, Linux {kernel}, stores on {stores}",
        kib / f64::from(1 << 20)
    ))
}

/// The version that the reference's `go.mod` pins.
fn etcd_version() -> Result<String, Refusal> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/go.mod");
    let text = std::fs::read_to_string(path)?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("go.etcd.io/etcd/server/v3 "));
    Ok(line.unwrap_or("unknown").to_owned())
}

fn hash(binary: &Path) -> Result<String, Refusal> {
    let digest = Sha256::digest(std::fs::read(binary)?);
    let start = digest.iter().take(8).fold(0_u64, |start, byte| start << 8 | u64::from(*byte));
    Ok(format!("{start:016x}"))
}

fn output(program: &str, arguments: &[&str]) -> Result<String, Refusal> {
    let output = Command::new(program).args(arguments).output()?;
    if !output.status.success() {
        return Err(Refusal::Impossible(format!("{program} {arguments:?}: {}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
