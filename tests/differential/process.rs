//! One server as a process: the real binary, on a directory of its own, which it can be started on again.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::PATIENCE;

/// How a process is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// SIGTERM, after which it must exit 0.
    Graceful,
    /// SIGKILL.
    Killed,
}

/// A running binary.
pub(crate) struct Process {
    program: PathBuf,
    arguments: Vec<String>,
    child: Child,
    /// Where it listens.
    pub(crate) base: String,
    directory: tempfile::TempDir,
}

impl Process {
    /// Starts a program whose last argument is its data directory.
    pub(crate) fn start(program: PathBuf, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let data = directory.path().join("data").to_str().expect("text").to_owned();
        let arguments: Vec<_> = arguments.iter().map(|text| (*text).to_owned()).chain([data]).collect();
        let (child, base) = spawn(&program, &arguments);
        Self { program, arguments, child, base, directory }
    }

    /// Its data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Starts it again on the same directory, on another port.
    pub(crate) fn start_again(&mut self) {
        (self.child, self.base) = spawn(&self.program, &self.arguments);
    }

    /// Ends it and waits for the end.
    pub(crate) fn end(&mut self, how: End) {
        if how == End::Killed {
            self.child.kill().expect("it had not ended");
            self.child.wait().expect("it is our child");
            return;
        }
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
        assert!(told.success(), "the server had ended before it was told to");
        let until = Instant::now() + PATIENCE;
        let ended = loop {
            match self.child.try_wait().expect("it is our child") {
                Some(ended) => break ended,
                None => assert!(Instant::now() < until, "SIGTERM does not end it"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(ended.success(), "after SIGTERM: {ended}");
    }
}

/// The process, and the address that it says it listens on.
fn spawn(program: &PathBuf, arguments: &[String]) -> (Child, String) {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::piped()).stdin(Stdio::null());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("readable");
    let base = line.trim().strip_prefix("listening on ");
    let base = base.unwrap_or_else(|| panic!("{command:?} said {line:?}")).to_owned();
    // What it says later must go somewhere, or it stops at a full pipe.
    std::thread::spawn(move || output.read_to_end(&mut vec![]));
    (child, base)
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
