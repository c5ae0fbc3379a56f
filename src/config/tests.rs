use clap::CommandFactory;

use super::*;
use crate::cli::{Cli, Command, Invocation, parse};

fn serve(flags: &[&str]) -> Result<Effective, Failure> {
    let arguments = ["shardcache", "serve"].iter().chain(flags);
    match parse(arguments)? {
        Invocation::Run(Cli { command: Command::Serve(arguments) }) => Effective::load(*arguments),
        other => panic!("not serve: {other:?}"),
    }
}

fn refusal(flags: &[&str]) -> String {
    let failure = serve(flags).expect_err("must be refused");
    assert_eq!(failure.exit_code(), 64, "{failure}");
    let line = failure.line();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn every_default_is_the_one_that_help_names() {
    let settings = serde_json::to_value(defaults()).expect("settings are plain data");
    let command = Cli::command();
    let serve = command.find_subcommand("serve").expect("there is serve");
    for (key, value) in settings.as_object().expect("an object") {
        let Some(argument) = serve.get_arguments().find(|a| a.get_long() == Some(key)) else {
            assert_eq!(key, "types", "{key} has no flag");
            continue;
        };
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        match value {
            serde_json::Value::Null => assert!(!help.contains("[default"), "{key}: {help}"),
            value => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                assert!(help.contains(&format!("[default: {text}]")), "{key} is {text}: {help}");
            }
        }
    }
}

#[test]
fn the_flag_wins_over_the_file_and_the_file_over_the_default() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("config.yaml");
    std::fs::write(&file, "history-age: 5m\nhistory-bytes: 64KiB\nstorage: memory\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    let config = serve(&["--config", file, "--history-age", "1s"]).expect("valid").config;
    assert_eq!(config.api.object_bytes_max, None);
    let storage = config.storage;
    assert_eq!(storage.history_age, Duration::from_secs(1));
    assert_eq!(storage.history_bytes, 64 << 10);
    assert_eq!(storage.engine, Engine::Memory);
}

#[test]
fn the_printed_configuration_reads_back_to_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("config.yaml");
    let types = "types:\n- {group: example.dev, versions: [v1], resource: widgets, kind: Widget}\n";
    std::fs::write(&file, types).expect("written");
    let first = serve(&["--config", file.to_str().expect("UTF-8"), "--max-streams", "7"]).expect("valid");
    assert_eq!(first.config.types[0].list_kind, "WidgetList");
    std::fs::write(&file, first.to_yaml().expect("prints")).expect("written");
    let second = serve(&["--config", file.to_str().expect("UTF-8")]).expect("valid");
    assert_eq!(first.settings, second.settings);
}

#[test]
fn mistakes_are_one_line_that_names_the_flag_or_key() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str, content: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let unknown_key = at("unknown.yaml", "history-aeg: 5m\n");
    let bad_value = at("value.yaml", "history-age: 5 parsecs\n");
    let bad_type =
        at("type.yaml", "types:\n- {group: example.dev, versions: [], resource: widgets, kind: Widget}\n");
    let not_pem = at("cert.pem", "hello\n");
    let tokens = at("tokens.csv", "only-a-token\n");
    let contexts = at("contexts.kubeconfig", "contexts: [{name: Amber, context: {cluster: a}}]\n");
    for (flags, name) in [
        (&["--history-age", "5"][..], "--history-age"),
        (&["--history-age", "10ms"], "--history-age"),
        (&["--history-bytes", "1KiB"], "--history-bytes"),
        (&["--history-bytes", "1GB"], "--history-bytes"),
        (&["--listen", "localhost"], "--listen"),
        (&["--storage", "sled"], "--storage"),
        (&["--storage", "etcd"], "not in this release"),
        (&["--no-such-flag"], "--no-such-flag"),
        (&["--max-body-bytes", "1GiB"], "--max-body-bytes"),
        (&["--max-streams", "0"], "--max-streams"),
        (&["--log-level", "shardcache=loud"], "--log-level"),
        (&["--config", "/no/such/file"], "--config /no/such/file"),
        (&["--config", &unknown_key], "history-aeg"),
        (&["--config", &bad_value], "value.yaml"),
        (&["--config", &bad_type], "type widgets.example.dev: it has no version"),
        (&["--tls-cert-file", &not_pem], "--tls-private-key-file"),
        (&["--tls-private-key-file", &not_pem], "--tls-cert-file"),
        (&["--client-ca-file", &not_pem], "--tls-cert-file"),
        (&["--tls-cert-file", &not_pem, "--tls-private-key-file", &not_pem], "--tls-cert-file"),
        (&["--token-auth-file", &tokens], "line 1"),
        (&["--token-auth-file", "/no/such/file"], "--token-auth-file"),
        (&["--direct-probe", "/no/such/file"], "--direct-probe /no/such/file"),
        (&["--direct-probe", &contexts], "contexts.kubeconfig: contexts[Amber]: name: "),
    ] {
        let line = refusal(flags);
        assert!(line.contains(name), "{flags:?}: {line}");
    }
}

/// D52: {bind, TLS, authentication} → {starts, refuses}; the refusal names the missing flag.
#[test]
fn d52_start_matrix() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str, content: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let cert = at("cert.pem", &pair.cert.pem());
    let key = at("key.pem", &pair.signing_key.serialize_pem());
    let tokens = at("tokens.csv", "t,u,1\n");
    let tls = ["--tls-cert-file", &cert, "--tls-private-key-file", &key];
    let by_token = ["--token-auth-file", &tokens];
    let by_certificate = ["--client-ca-file", &cert];
    for listen in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let loopback = listen.contains("127.0.0.1") || listen.contains("::1");
        let with = |more: &[&[&str]]| {
            let flags: Vec<&str> = [&["--listen", listen][..]]
                .iter()
                .chain(more)
                .flat_map(|flags| flags.iter().copied())
                .collect();
            serve(&flags).map(drop).map_err(|failure| failure.line())
        };
        let expect = |missing: &str, outcome: Result<(), String>| match outcome {
            Ok(()) => assert!(loopback || missing.is_empty(), "{listen} started without {missing}"),
            Err(line) => {
                assert!(!loopback && !missing.is_empty(), "{listen} refused: {line}");
                assert!(line.contains(missing), "{line} does not name {missing}");
            }
        };
        expect("--tls-cert-file", with(&[]));
        expect("--tls-cert-file", with(&[&by_token]));
        expect("--client-ca-file or --token-auth-file", with(&[&tls]));
        expect("", with(&[&tls, &by_token]));
        expect("", with(&[&tls, &by_certificate]));
    }
}
