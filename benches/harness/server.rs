//! The real binary as a child process, and what the kernel says it costs.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::client::Client;

/// Of `/proc`: ticks per second, the same on every Linux that runs this.
pub(crate) const TICKS: f64 = 100.0;

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts `shardcache serve` on a free port and returns when it has printed its address.
    pub(crate) fn start(data: &Path, flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shardcache"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data).args(flags);
        Self::spawn(command)
    }

    /// Starts the apiserver of `tests/reference`; returns when it serves every type.
    pub(crate) fn reference(binary: &Path, data: &Path, flags: &[&str]) -> Self {
        let mut command = Command::new(binary);
        command.args(["-listen", "127.0.0.1:0", "-data-dir"]).arg(data).args(flags);
        Self::spawn(command)
    }

    /// Starts `shardcache replicate` from an API server into a cache; returns when its own port answers.
    pub(crate) fn replicator(source: SocketAddr, cache: SocketAddr, flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shardcache"));
        command.args(["replicate", "--listen", "127.0.0.1:0", "--log-level", "warn"]);
        command.args(["--server", &format!("http://{source}")]);
        command.args(["--cache-url", &format!("http://{cache}/services/cache")]).args(flags);
        Self::spawn(command)
    }

    /// Starts this benchmark's own binary as a peer.
    pub(crate) fn peer(mode: &str, argument: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.env("SHARDCACHE_BENCH_PEER", mode).env("SHARDCACHE_BENCH_FILE", argument);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        output.read_line(&mut line).expect("a first line");
        let address = line.trim().rsplit("http://").next().and_then(|a| a.parse().ok());
        std::thread::spawn(move || io::copy(&mut output, &mut io::sink()));
        Self { child, address: address.unwrap_or_else(|| panic!("first line: {line:?}")) }
    }

    /// SIGKILL; returns when the process has ended.
    pub(crate) fn kill(&mut self) {
        // Already gone is as good as killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until `/readyz` answers 200; returns the time since `since`.
    pub(crate) async fn ready(&self, since: Instant) -> Duration {
        loop {
            if let Ok(mut client) = Client::connect(self.address).await
                && let Ok(answer) = client.send("GET", "/readyz", b"").await
                && answer.code == 200
            {
                return since.elapsed();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Resident memory in bytes.
    pub(crate) fn rss(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The part of [`Self::rss`] that is no file's pages.
    pub(crate) fn anonymous_rss(&self) -> u64 {
        self.status("RssAnon:")
    }

    /// The most resident memory since [`Self::forget_peak`], or since the start.
    pub(crate) fn peak_rss(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// Lets [`Self::peak_rss`] begin again at what is resident now.
    pub(crate) fn forget_peak(&self) -> io::Result<()> {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5")
    }

    /// A line of `/proc/PID/status` in bytes.
    fn status(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1))
            .and_then(|kib| kib.parse::<u64>().ok())
            .unwrap_or(0)
            << 10
    }

    /// CPU seconds used so far, user and system.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        cpu_seconds(&self.child.id().to_string())
    }

    /// One metric's value, summed over its labels.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let mut client = Client::connect(self.address).await.expect("the server accepts");
        let text = client.get("/metrics").await.expect("metrics");
        String::from_utf8_lossy(&text)
            .lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])))
            .filter_map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()))
            .sum()
    }
}

/// CPU seconds that all threads of a process used so far, ended ones too; `self` is this process.
pub(crate) fn cpu_seconds(pid: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / TICKS
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
