//! The real server as a process of its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::wire::{PATIENCE, Wire};

/// A running server; killed when dropped.
pub(crate) struct Binary {
    child: Child,
    address: Option<oneshot::Receiver<String>>,
}

impl Binary {
    /// Starts the server on a data directory; `point`: the fail point it dies at, and which time.
    pub(crate) fn start(dir: &Path, flags: &[&str], point: Option<(&str, u32)>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shardcache"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--log-level", "warn", "--data-dir"]);
        command.arg(dir).args(flags).env_remove("SHARDCACHE_FAILPOINT");
        if let Some((name, count)) = point {
            command.env("SHARDCACHE_FAILPOINT", format!("{name}:{count}"));
        }
        Self::of(command)
    }

    /// Starts the server by a command of the test's own.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the server can be started");
        let stdout = child.stdout.take().expect("it is piped");
        let (tell, address) = oneshot::channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
            if let Some(base) = lines.next().as_deref().and_then(|line| line.strip_prefix("listening on ")) {
                // Nobody waits for the address of a server that dies while it opens.
                let _ = tell.send(base.to_owned());
            }
            lines.for_each(drop);
        });
        Self { child, address: Some(address) }
    }

    /// Waits for readiness; `http://ADDR`.
    pub(crate) async fn ready(&mut self) -> String {
        let address = self.address.take().expect("asked once");
        let base = tokio::time::timeout(PATIENCE, address).await.expect("it says where it listens in time");
        let base = base.expect("its first line says where it listens");
        let wire = Wire::tcp(&base);
        let ready = async {
            while !matches!(wire.request(http::Method::GET, "/readyz", "", "").await, Ok(a) if a.status == 200)
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ready).await.expect("ready in time");
        base
    }

    /// Waits for the process to die of its fail point.
    pub(crate) async fn dies(&mut self) {
        let dead = async {
            loop {
                if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let status = tokio::time::timeout(PATIENCE, dead).await.expect("the fail point is reached in time");
        assert!(aborted(status), "it ended by itself: {status}");
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it can be waited for");
    }

    /// Runs `shardcache ctl` against the server of a data directory.
    pub(crate) async fn ctl(dir: &Path, arguments: &[&str]) -> ExitStatus {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shardcache"));
        command.arg("ctl").args(arguments).arg("--data-dir").arg(dir);
        tokio::task::spawn_blocking(move || command.status())
            .await
            .expect("joined")
            .expect("it can be started")
    }
}

fn aborted(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    const SIGABRT: i32 = 6;
    status.signal() == Some(SIGABRT)
}

impl Drop for Binary {
    fn drop(&mut self) {
        // It may be dead already, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
