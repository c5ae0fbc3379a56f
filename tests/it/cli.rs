//! What scripts rely on: exit codes, the one line on standard error, the first line on standard output,
//! and what signals do.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use shardcache_storage::{RedbOptions, RedbStore, Store};

use crate::checker::Step;
use crate::harness::{ROLES, binary, collection, role};
use crate::wire::{PATIENCE, Wire};

/// Runs `serve` to its end on a data directory.
fn serve(data: &Path, flags: &[&str]) -> Output {
    let mut command = binary();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data).args(flags);
    command.output().expect("it can be started")
}

/// The exit code, and the one line on standard error that is not from the log.
fn refused(output: &Output) -> (Option<i32>, String) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let said: Vec<_> = text.lines().filter(|line| line.starts_with("shardcache: ")).collect();
    assert_eq!(said.len(), 1, "not one line: {text}");
    (output.status.code(), said[0].to_owned())
}

/// A closed store in a directory.
async fn store(directory: &Path) {
    let options = RedbOptions::new(directory);
    let store = tokio::task::spawn_blocking(|| RedbStore::open(options)).await.expect("joined");
    store.expect("an empty directory is a new store").close().await.expect("it closes");
}

#[test]
fn help_and_version_are_no_mistakes() {
    for flags in [&["--help"][..], &["--version"], &["serve", "--help"], &["ctl", "backup", "--help"]] {
        let output = binary().args(flags).output().expect("it can be started");
        assert_eq!(output.status.code(), Some(0), "{flags:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{flags:?}");
    }
}

#[test]
fn a_wrong_flag_exits_64_before_a_port_is_bound_or_a_file_is_made() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    for (flags, name) in [
        (&["--history-age", "5"][..], "--history-age"),
        (&["--no-such-flag"], "--no-such-flag"),
        (&["--storage", "etcd"], "--storage etcd"),
        (&["--config", "/no/such/file"], "--config"),
        (&["--tls-cert-file", "/no/such/file"], "--tls-private-key-file"),
        (&["--listen", "0.0.0.0:0"], "--tls-cert-file"),
    ] {
        let output = serve(&data, flags);
        let (code, line) = refused(&output);
        assert_eq!(code, Some(64), "{flags:?}: {line}");
        assert!(line.contains(name), "{flags:?}: {line}");
        assert!(output.stdout.is_empty(), "{flags:?} printed something");
        assert!(!data.exists(), "{flags:?} made the data directory");
    }
    for flags in [&[][..], &["no-such-command"], &["ctl"], &["ctl", "no-such-command"]] {
        let output = binary().args(flags).output().expect("it can be started");
        assert_eq!(refused(&output).0, Some(64), "{flags:?}");
    }
}

#[test]
fn the_environment_is_read_and_named_in_mistakes() {
    let output = binary().args(["serve", "--print-config"]).env("SHARDCACHE_HISTORY_AGE", "7m").output();
    let text = String::from_utf8(output.expect("it can be started").stdout).expect("UTF-8");
    assert!(text.contains("history-age: 7m"), "{text}");
    let output = binary().args(["serve", "--print-config"]).env("SHARDCACHE_HISTORY_AGE", "7").output();
    let (code, line) = refused(&output.expect("it can be started"));
    assert_eq!(code, Some(64));
    assert!(line.contains("--history-age"), "{line}");
}

/// Every way in which a store cannot be opened: exit 74 and one line that says which and what to do.
#[tokio::test]
async fn a_store_that_cannot_be_opened_exits_74() {
    let directory = tempfile::tempdir().expect("a directory");
    let good = directory.path().join("good");
    store(&good).await;
    let file = |name: &str| {
        let path = directory.path().join(name);
        std::fs::create_dir(&path).expect("made");
        std::fs::copy(good.join("store.redb"), path.join("store.redb")).expect("copied");
        path
    };
    let zero = file("zero");
    std::fs::write(zero.join("store.redb"), b"").expect("emptied");
    let noise = file("noise");
    std::fs::write(noise.join("store.redb"), b"this is not a store".repeat(1000)).expect("written");
    let cut = file("cut");
    let len = std::fs::metadata(cut.join("store.redb")).expect("there").len();
    let open = std::fs::OpenOptions::new().write(true).open(cut.join("store.redb")).expect("opened");
    open.set_len(len / 3).expect("cut");
    let newer = file("newer");
    let supported = exchange_format(&newer.join("store.redb"), &9999_u32.to_le_bytes());
    let plain = directory.path().join("plain");
    std::fs::write(&plain, b"a file").expect("written");
    let below = plain.join("data");
    let occupied = directory.path().join("occupied");
    std::fs::create_dir_all(occupied.join("store.redb")).expect("made");
    for (data, says) in [
        (&zero, "0 bytes"),
        (&noise, "store"),
        (&cut, "store"),
        (&newer, "newer"),
        (&plain, "not a directory"),
        (&below, "data"),
        (&occupied, "not a file"),
    ] {
        let before = std::fs::read(data.join("store.redb")).ok();
        let output = serve(data, &[]);
        let (code, line) = refused(&output);
        assert_eq!(code, Some(74), "{}: {line}", data.display());
        assert!(line.contains(says), "{}: {line}", data.display());
        assert!(line.contains(&*directory.path().to_string_lossy()), "it does not say which: {line}");
        // redb notes in a sound file that it was opened; everything else stays as it was, byte for byte.
        let untouched = std::fs::read(data.join("store.redb")).ok() == before;
        assert!(untouched || *data == newer, "{} was changed", data.display());
    }
    // The store of a newer program was refused, and nothing else: it is as good as before.
    exchange_format(&newer.join("store.redb"), &supported);
    store(&newer).await;
}

/// Replaces the format version in the store's `meta` table and returns the earlier one.
fn exchange_format(path: &Path, format: &[u8]) -> Vec<u8> {
    use redb::{Database, TableDefinition};
    const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
    let database = Database::open(path).expect("the store is a redb file");
    let transaction = database.begin_write().expect("writable");
    let earlier = {
        let mut meta = transaction.open_table(META).expect("there is a meta table");
        let earlier = meta.insert("format", format).expect("written");
        earlier.expect("it had a format").value().to_vec()
    };
    transaction.commit().expect("written");
    earlier
}

/// A store on a file system that cannot be written to. Root may write whatever the permissions say, so for
/// root the directory is mounted read-only in a namespace of its own.
#[tokio::test]
async fn a_read_only_store_exits_74() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    store(&data).await;
    let is_root = std::fs::metadata("/proc/self").expect("there is proc").uid() == 0;
    let output = if is_root {
        const MOUNT: &str = "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" || exit 99; \
                             exec \"$2\" serve --listen 127.0.0.1:0 --data-dir \"$1\"";
        let mut command = std::process::Command::new("unshare");
        command.args(["-m", "sh", "-c", MOUNT, "sh"]).arg(&data).arg(binary().get_program());
        command.output().expect("there is unshare")
    } else {
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(data.join("store.redb"), mode(0o444)).expect("set");
        std::fs::set_permissions(&data, mode(0o555)).expect("set");
        let output = serve(&data, &[]);
        std::fs::set_permissions(&data, mode(0o755)).expect("set");
        output
    };
    if output.status.code() == Some(99) || output.status.code() == Some(1) {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        eprintln!("SKIPPED: a_read_only_store_exits_74: nothing can be mounted here: {why}");
        return;
    }
    let (code, line) = refused(&output);
    assert_eq!(code, Some(74), "{line}");
    assert!(line.contains("writ") || line.contains("read-only"), "{line}");
    assert!(line.contains(&*data.to_string_lossy()), "{line}");
}

#[test]
fn a_data_directory_that_another_server_uses_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let running = Running::start(directory.path(), &[]);
    running.wait_for_line("ready");
    let (code, line) = refused(&serve(directory.path(), &[]));
    assert_eq!(code, Some(74));
    assert!(line.contains("in use"), "{line}");
    // Without a store file there is no lock, but there is the admin socket.
    let (code, line) = refused(&serve(directory.path(), &["--storage", "memory"]));
    assert_eq!(code, Some(74));
    assert!(line.contains("another server"), "{line}");
    assert_eq!(running.terminate().code(), Some(0));
}

#[test]
fn an_address_in_use_exits_69() {
    let directory = tempfile::tempdir().expect("a directory");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let mut command = binary();
    command.args(["serve", "--listen", &address, "--data-dir"]).arg(directory.path());
    let (code, line) = refused(&command.output().expect("it can be started"));
    assert_eq!(code, Some(69));
    assert!(line.contains(&address), "{line}");
}

#[test]
fn ctl_without_a_server_exits_69_and_leaves_no_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let copy = directory.path().join("copy.redb");
    let mut command = binary();
    command.args(["ctl", "backup", "--data-dir"]).arg(directory.path()).arg("--output").arg(&copy);
    let (code, line) = refused(&command.output().expect("it can be started"));
    assert_eq!(code, Some(69));
    assert!(line.contains("admin.sock"), "{line}");
    assert!(!copy.exists());
}

/// The real server as a process of its own, with what it says on standard output.
struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Running {
    fn start(data: &Path, flags: &[&str]) -> Self {
        let mut command = binary();
        command.args(["serve", "--listen", "127.0.0.1:0", "--log-level", "warn", "--data-dir"]);
        let mut child =
            command.arg(data).args(flags).stdout(Stdio::piped()).spawn().expect("it can be started");
        let lines = follow(child.stdout.take().expect("piped"));
        Self { child, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line in time")
    }

    fn wait_for_line(&self, start: &str) -> String {
        loop {
            let line = self.line();
            if line.starts_with(start) {
                return line;
            }
        }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = std::process::Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.expect("there is kill").success());
    }

    fn wait(mut self) -> std::process::ExitStatus {
        let (tell, ended) = mpsc::channel();
        let id = self.child.id();
        let child = std::thread::spawn(move || {
            let status = self.child.wait().expect("it can be waited for");
            // The test may have given up.
            let _ = tell.send(status);
        });
        let status = ended.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("process {id} does not end"));
        child.join().expect("joined");
        status
    }

    fn terminate(self) -> std::process::ExitStatus {
        self.signal("TERM");
        self.wait()
    }
}

fn follow(stdout: ChildStdout) -> mpsc::Receiver<String> {
    let (tell, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // Read on, whether or not anybody listens: a full pipe would stop the server.
            let _ = tell.send(line);
        }
    });
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn port_0_is_chosen_and_printed_first_then_a_kubeconfig_and_commands() {
    let directory = tempfile::tempdir().expect("a directory");
    let running = Running::start(directory.path(), &[]);
    let first = running.line();
    let base = first.strip_prefix("listening on ").expect("the first line says where it listens");
    let port = base.strip_prefix("http://127.0.0.1:").expect("an address").parse::<u16>();
    assert_ne!(port.expect("a port"), 0);
    let ready = running.wait_for_line("ready");
    assert_eq!(ready, "ready, 0 objects");
    assert_eq!(Wire::tcp(base).get("/readyz").await.status, 200);
    let path = running.wait_for_line("kubeconfig: ");
    let path = Path::new(path.strip_prefix("kubeconfig: ").expect("just seen"));
    assert!(path.is_absolute());
    let commands: Vec<_> = (0..4).map(|_| running.line()).collect();
    assert_eq!(commands[0], "try next:");
    assert!(commands[1].contains("kubectl --kubeconfig ") && commands[3].contains("curl "), "{commands:?}");

    // The file is as good as it says: kube reads it, and both contexts are places.
    let kubeconfig = kube::config::Kubeconfig::read_from(path).expect("kube reads it");
    for (context, scope) in [(None, "shards/*/clusters/*"), (Some("amber"), "shards/amber/clusters/root")] {
        let options = kube::config::KubeConfigOptions {
            context: context.map(str::to_owned),
            ..kube::config::KubeConfigOptions::default()
        };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await;
        let config = config.expect("the context is whole");
        assert_eq!(config.cluster_url.to_string(), format!("{base}/services/cache/{scope}"));
    }
    assert_eq!(running.terminate().code(), Some(0));
    assert!(!directory.path().join("admin.sock").exists(), "the socket of a server that is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_watches_with_a_bookmark_and_exits_0() {
    for signal in ["TERM", "INT"] {
        let directory = tempfile::tempdir().expect("a directory");
        let running = Running::start(directory.path(), &[]);
        let first = running.line();
        running.wait_for_line("ready");
        let wire = Wire::tcp(first.strip_prefix("listening on ").expect("it listens"));
        let path = collection("amber", "root", ROLES);
        let created = wire.call(http::Method::POST, &path, role("a", "gold").to_string()).await;
        assert_eq!(created.status, 201);
        let version = crate::checker::version_of(&created.json()).expect("it has a version");
        let mut watch =
            wire.watch(&path, "resourceVersion=0&allowWatchBookmarks=true").await.expect("it opens");
        assert!(matches!(watch.expect().await, Step::Added(_)));
        running.signal(signal);
        let mut last = None;
        while let Some(step) =
            tokio::time::timeout(PATIENCE, watch.next()).await.expect("the stream ends in time")
        {
            last = Some(step.expect("whole lines to the end"));
        }
        match last {
            Some(Step::Bookmark { version: at, .. }) => assert!(at >= version),
            other => panic!("the last step before the end was {other:?}"),
        }
        assert_eq!(running.wait().code(), Some(0), "{signal}");
    }
}

#[test]
fn sigterm_does_not_wait_for_a_client_that_stalls_longer_than_the_grace() {
    let directory = tempfile::tempdir().expect("a directory");
    let running = Running::start(directory.path(), &["--shutdown-grace", "300ms"]);
    let first = running.line();
    running.wait_for_line("ready");
    let address = first.strip_prefix("listening on http://").expect("it listens");
    // Half a request: the connection is busy and will never be done.
    let mut client = std::net::TcpStream::connect(address).expect("it accepts");
    std::io::Write::write_all(&mut client, b"POST /services/cache/shards/a/clusters/b/").expect("sent");
    let began = std::time::Instant::now();
    assert_eq!(running.terminate().code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(10), "the grace is 300 ms");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let _ = client.read_to_end(&mut Vec::new());
}
