//! Child processes: started, signalled and ended by their own pid, with their output in a file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::PATIENCE;

/// A program that is started and ended again and again with the same arguments.
pub(crate) struct Process {
    pub(crate) name: String,
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// Not started yet.
    pub(crate) fn new(name: &str, program: &Path, arguments: Vec<String>, logs: &Path) -> Self {
        let log = logs.join(format!("{name}.log"));
        Self { name: name.to_owned(), program: program.to_owned(), arguments, log, child: None }
    }

    pub(crate) fn start(&mut self) {
        assert!(self.child.is_none(), "{} runs already", self.name);
        let log = File::options().create(true).append(true).open(&self.log).expect("a log");
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        self.child = Some(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")));
    }

    /// Starts a server and waits until it says where it listens; from then on always there.
    pub(crate) async fn listen(&mut self, flag: &str) -> String {
        let before = self.log().matches(LISTENING).count();
        self.start();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let base = loop {
            if let Some(said) = self.log().split(LISTENING).nth(before + 1)
                && let Some((base, _)) = said.split_once('\n')
            {
                break base.trim().to_owned();
            }
            if self.has_ended() {
                // The port of before may be some connection's for a moment.
                self.child = None;
                self.start();
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{} does not listen:\n{}",
                self.name,
                self.tail()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let at = self.arguments.iter().position(|argument| argument == flag).expect("it has an address");
        base.strip_prefix("http://").expect("an url").clone_into(&mut self.arguments[at + 1]);
        base
    }

    /// Gives an argument another value from the next start on.
    pub(crate) fn set(&mut self, flag: &str, value: &Path) {
        let at = self.arguments.iter().position(|argument| argument == flag).expect("it has the flag");
        self.arguments[at + 1] = value.display().to_string();
    }

    pub(crate) fn signal(&self, signal: &str) {
        let child = self.child.as_ref().unwrap_or_else(|| panic!("{} does not run", self.name));
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success(), "{} had ended before {signal}:\n{}", self.name, self.tail());
    }

    /// SIGSTOP, and waits until nothing of it runs any more.
    pub(crate) async fn pause(&self) {
        self.signal("-STOP");
        let id = self.child.as_ref().expect("it runs").id();
        crate::eventually(&format!("{} stands still", self.name), async || {
            let stat =
                std::fs::read_to_string(format!("/proc/{id}/stat")).map_err(|error| error.to_string())?;
            // After the name, which is in brackets.
            let state = stat.rsplit(')').next().unwrap_or_default().trim_start().to_owned();
            if state.starts_with('T') { Ok(()) } else { Err(state) }
        })
        .await;
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        assert!(!self.has_ended(), "{} ended by itself:\n{}", self.name, self.tail());
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
    }

    /// SIGTERM, after which it must end in order.
    pub(crate) async fn terminate(&mut self) {
        self.signal("-TERM");
        let ended = self.ended().await;
        assert!(ended.success(), "{} after SIGTERM: {ended}\n{}", self.name, self.tail());
    }

    async fn ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it runs");
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait().expect("it is ours") {
                return status;
            }
            if tokio::time::Instant::now() > deadline {
                drop(child.kill());
                panic!("SIGTERM does not end {}:\n{}", self.name, self.tail());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Where it says that it listens, since its last start.
    pub(crate) fn address(&self) -> Option<String> {
        let log = self.log();
        let (_, said) = log.rsplit_once(LISTENING)?;
        Some(said.split_once('\n')?.0.trim().to_owned())
    }

    /// Whether it was started, and neither killed nor terminated since.
    pub(crate) fn is_started(&self) -> bool {
        self.child.is_some()
    }

    fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| child.try_wait().expect("it is ours").is_some())
    }

    /// Everything it ever said.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// What it said last.
    pub(crate) fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        format!("--- {}\n{}", self.name, lines[lines.len().saturating_sub(30)..].join("\n"))
    }
}

const LISTENING: &str = "listening on ";

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}
