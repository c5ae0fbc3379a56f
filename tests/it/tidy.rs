//! The rules of the tree that no compiler knows: layers, file sizes, names, and documents that tell the truth.
//!
//! A rule that must be broken is changed here, in the open, with its reason.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use shardcache::cli::Settings;
use shardcache_storage::{Attach, CellName, Digest, Frames, Op, Open, Push, PushedType, TypeName, Verdict};

use crate::harness::Served;

/// Lines of a file, its tests included.
const LINES_MAX: usize = 600;
/// Lines of ARCHITECTURE.md: it is read from top to bottom.
const ARCHITECTURE_LINES_MAX: usize = 300;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The project's own files with this extension, relative to the root.
fn files(extension: &str) -> Vec<PathBuf> {
    fn walk(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).expect("readable") {
            let path = entry.expect("readable").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Hidden directories, and what builds and servers leave behind.
            let skipped = ["target", "node_modules", "shardcache-data", "artifacts", "corpus"];
            if name.starts_with('.') || skipped.contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                walk(&path, extension, found);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path.strip_prefix(root()).expect("below the root").to_owned());
            }
        }
    }
    let mut found = vec![];
    walk(root(), extension, &mut found);
    found.sort();
    assert!(!found.is_empty(), "no {extension} files: looked in the wrong place");
    found
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Lines of code with their numbers: no comments, no documentation, nothing after `#[cfg(test)]`.
fn code(path: &Path) -> Vec<(usize, String)> {
    let text = read(path);
    let lines = (1..).zip(text.lines()).take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
    let code = lines.filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.map(|(number, line)| (number, line.split(" // ").next().unwrap_or_default().to_owned())).collect()
}

fn is_test(path: &Path) -> bool {
    let in_tests = path.components().any(|part| {
        let part = part.as_os_str();
        part == "tests" || part == "benches" || part == "examples" || part == "fuzz"
    });
    in_tests || path.file_stem().is_some_and(|stem| stem == "tests" || stem == "testing")
}

/// Whether `line` has `word` as a whole identifier.
fn names(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part))
}

/// Whether `line` uses the crate `name`: in an import, or as the start of a path.
fn uses_crate(line: &str, name: &str) -> bool {
    let imports = line.trim_start().starts_with(&format!("use {name}"));
    names(line, name) && (imports || line.contains(&format!("{name}::")))
}

/// Every place in production code below `directory` that names one of `words`, except in `allowed` files.
fn offences(directory: &str, words: &[&str], allowed: &[&str]) -> Vec<String> {
    let mut found = vec![];
    for path in files("rs").iter().filter(|path| path.starts_with(directory) && !is_test(path)) {
        if allowed.iter().any(|allowed| path.starts_with(allowed)) {
            continue;
        }
        for (number, line) in code(path) {
            // Types are named anywhere; crates, in lower case, where they are used.
            let is_crate = |word: &str| word.starts_with(|c: char| c.is_ascii_lowercase());
            let offends =
                |word: &&&str| if is_crate(word) { uses_crate(&line, word) } else { names(&line, word) };
            if let Some(word) = words.iter().find(offends) {
                found.push(format!("{}:{number} names {word}", path.display()));
            }
        }
    }
    found
}

fn none(rule: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{rule}:\n  {}", offences.join("\n  "));
}

/// The names in the `[dependencies]` table of a manifest.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let text = read(manifest);
    let (_, table) = text.split_once("\n[dependencies]\n").expect("it has dependencies");
    let table = table.split("\n[").next().unwrap_or_default();
    let name = |line: &str| line.split(['.', ' ', '=']).next().unwrap_or_default().to_owned();
    table.lines().filter(|line| !line.trim().is_empty()).map(name).collect()
}

#[test]
fn storage_knows_nothing_of_http() {
    let http = ["http", "hyper", "hyper_util", "axum", "tower", "tower_service", "kube", "serde_json"];
    none("the store names the wire", &offences("storage/src", &http, &[]));
    let dependencies = dependencies("storage/Cargo.toml");
    let wrong: Vec<_> = http.iter().filter(|name| dependencies.contains(&name.replace('_', "-"))).collect();
    assert!(wrong.is_empty(), "storage depends on {wrong:?}");
}

#[test]
fn the_proxy_knows_no_engine() {
    let engines = ["redb", "RedbStore", "RedbOptions", "MemoryStore", "etcd"];
    none("the proxy names an engine", &offences("proxy/src", &engines, &[]));
    assert!(!dependencies("proxy/Cargo.toml").contains("redb"));
    let workspace = read("Cargo.toml");
    assert!(
        workspace.contains("shardcache-storage = { path = \"storage\", default-features = false }"),
        "engines must be off unless the root package asks for them"
    );
}

#[test]
fn engines_are_chosen_in_one_place() {
    let engines = ["redb", "RedbStore", "RedbOptions", "MemoryStore"];
    let allowed = ["src/instance/open.rs", "src/embedded.rs"];
    none("an engine is named outside of its place", &offences("src", &engines, &allowed));
}

#[test]
fn layers_of_the_proxy_import_downwards_only() {
    let up = ["http", "ingest", "service", "front", "body", "represent"];
    let uses = |line: &str, module: &str| line.contains(&format!("crate::{module}"));
    let mut found = vec![];
    for path in files("rs").iter().filter(|path| path.starts_with("proxy/src") && !is_test(path)) {
        let below = |layer: &str| {
            path.starts_with(format!("proxy/src/{layer}"))
                || path.to_str() == Some(&format!("proxy/src/{layer}.rs"))
        };
        let forbidden: &[&str] = if below("cache") {
            &up
        } else if below("selector") {
            &[
                "http",
                "ingest",
                "service",
                "front",
                "body",
                "represent",
                "cache",
                "types",
                "filter",
                "metrics",
            ]
        } else if below("types") {
            &["http", "service", "front", "body", "represent", "cache", "ingest"]
        } else if below("ingest") || below("body") {
            &["http", "service", "front", "cache"]
        } else {
            continue;
        };
        for (number, line) in code(path) {
            if let Some(module) = forbidden.iter().find(|module| uses(&line, module)) {
                found.push(format!("{}:{number} uses crate::{module}", path.display()));
            }
        }
    }
    none("a layer imports upwards", &found);
}

#[test]
fn http_codes_are_an_affair_of_the_surface() {
    let surface = ["proxy/src/http", "proxy/src/http.rs", "proxy/src/status.rs", "proxy/src/front.rs"];
    none("an HTTP code inside", &offences("proxy/src", &["StatusCode"], &surface));
}

#[test]
fn tables_are_defined_and_versions_parsed_in_one_place() {
    let tables = ["storage/src/redb/tables.rs"];
    let mut found = vec![];
    for path in files("rs").iter().filter(|path| path.starts_with("storage/src") && !is_test(path)) {
        let defines = |line: &str| line.contains("TableDefinition::new");
        if code(path).iter().any(|(_, line)| defines(line)) && !tables.contains(&&*path.to_string_lossy()) {
            found.push(path.display().to_string());
        }
    }
    none("a table is defined elsewhere", &found);
    let mut found = vec![];
    for path in files("rs").iter().filter(|path| !is_test(path)) {
        // The edge may ask the one parser, and so may what clients link, and who reads what they wrote into
        // an annotation; nobody has another one.
        let allowed = path.starts_with("proxy/src/http")
            || path.starts_with("proxy/src/freshness/lease.rs")
            || path.starts_with("storage/src")
            || path.starts_with("src/completeness.rs");
        for (number, line) in code(path) {
            if line.contains("ResourceVersion::parse") && !allowed {
                found.push(format!("{}:{number}", path.display()));
            }
        }
    }
    none("resourceVersions are parsed inside", &found);
}

#[test]
fn files_are_short_named_for_what_they_hold_and_say_what_they_guarantee() {
    let mut found = vec![];
    for path in files("rs") {
        let text = read(&path);
        let lines = text.lines().count();
        if lines > LINES_MAX {
            found.push(format!("{}: {lines} lines, at most {LINES_MAX}", path.display()));
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if ["mod", "util", "utils", "common", "helpers", "misc", "manager"].contains(&stem.as_str()) {
            found.push(format!("{}: a name that says nothing", path.display()));
        }
        // A file of tests is described by their names.
        let described =
            text.starts_with("//!") || text.starts_with("#![") || stem == "tests" || is_test(&path);
        if !described {
            found.push(format!("{}: no module documentation", path.display()));
        }
    }
    none("files", &found);
}

#[test]
fn nothing_is_left_unfinished_or_silenced() {
    // Spelled in halves, so that this file does not name them.
    let words = [
        ["to", "do!"],
        ["unimpl", "emented!"],
        ["#[ign", "ore"],
        ["#[al", "low("],
        ["unbounded_", "channel("],
    ];
    let mut found = vec![];
    for path in files("rs") {
        for (number, line) in (1..).zip(read(&path).lines()) {
            if let Some(word) = words.iter().map(|halves| halves.concat()).find(|word| line.contains(word)) {
                found.push(format!("{}:{number} has {word}", path.display()));
            }
        }
    }
    none("unfinished or silenced", &found);
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut found = vec![];
    for path in files("md") {
        let directory = root().join(path.parent().unwrap_or(Path::new("")));
        for (number, line) in (1..).zip(read(&path).lines()) {
            // What stands in backticks is no link.
            let line: String = line.split('`').step_by(2).collect();
            for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let target = link.split('#').next().unwrap_or_default();
                let outside = target.contains("://") || target.starts_with("mailto:");
                if !target.is_empty() && !outside && !directory.join(target).exists() {
                    found.push(format!("{}:{number}: {link}", path.display()));
                }
            }
        }
    }
    none("links that lead nowhere", &found);
}

/// A test with the id of a bug report in its name is in the table of reports, and what the table names is
/// a test.
#[test]
fn bug_reports_and_their_tests_name_each_other() {
    let is_id = |part: &str| {
        part.strip_prefix('b').is_some_and(|id| id.len() == 3 && id.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut tests = BTreeSet::new();
    for path in files("rs") {
        for line in read(&path).lines() {
            let name = line.split("fn ").nth(1).and_then(|rest| rest.split('(').next()).unwrap_or_default();
            if name.split('_').take(4).any(is_id) {
                tests.insert(name.to_owned());
            }
        }
    }
    let table = read("docs/bug-reports.md");
    let named: BTreeSet<String> = table
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.split('_').take(4).any(is_id))
        .map(str::to_owned)
        .collect();
    assert_eq!(tests.difference(&named).collect::<Vec<_>>(), [""; 0], "tests that the table lacks");
    assert_eq!(named.difference(&tests).collect::<Vec<_>>(), [""; 0], "the table names tests that are not");
}

#[test]
fn decision_records_are_indexed() {
    let index = read("docs/adr/README.md");
    for path in files("md").iter().filter(|path| path.starts_with("docs/adr")) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            assert!(index.contains(&name), "docs/adr/README.md does not list {name}");
        }
    }
}

/// Files and directories that ARCHITECTURE.md names exist: it is a map.
#[test]
fn the_map_shows_what_is_there() {
    let text = read("ARCHITECTURE.md");
    assert!(text.lines().count() <= ARCHITECTURE_LINES_MAX, "ARCHITECTURE.md is too long to be read");
    let quoted = text.split('`').skip(1).step_by(2);
    let is_rust = |text: &str| Path::new(text).extension().is_some_and(|extension| extension == "rs");
    let paths: Vec<_> = quoted.filter(|text| text.contains('/') && is_rust(text)).collect();
    assert!(paths.len() > 20, "ARCHITECTURE.md names no files");
    let missing: Vec<_> = paths.iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names files that are gone: {missing:?}");
}

/// Syncs a type of a shard that has no objects: what is known of shards is exposed once there is one.
async fn push_nothing(served: &Served) {
    let cell = CellName::new("amber", TypeName::new("apis.kcp.io", "apiexports"));
    let (digest, now_ms, term) = (Digest::default(), 1_000, 1);
    let push = async |push| served.api().store.push(push).await.expect("it is writable");
    let claim = Attach {
        shard: "amber".into(),
        holder: "h".into(),
        instance: "i".into(),
        election: None,
        replaces: None,
    };
    push(Push::Attach(claim)).await;
    let described = PushedType { version: "v1alpha2".into(), kind: "APIExport".into(), namespaced: false };
    let open = Open { cell: cell.clone(), term, source: "s".into(), source_head: 1, described };
    let session = push(Push::Open(open)).await.session;
    let (sync, version, count, allow_empty) = (1, 1, 0, true);
    let ops = vec![Op::SyncStart { sync }, Op::SyncEnd { sync, version, count, digest, allow_empty }];
    let pushed = push(Push::Frames(Frames { cell, term, session, ops, now_ms })).await;
    assert_eq!(pushed.verdict, Verdict::Done);
    served.api().cache.published(pushed.version.revision()).await;
}

/// Every metric of a running server is explained, and nothing else is.
#[tokio::test]
async fn every_metric_is_explained() {
    let served = Served::with(Settings { cell_metrics: Some(true), ..Settings::default() }).await;
    // A family shows itself once it has counted something.
    served.wire().get("/readyz").await;
    push_nothing(&served).await;
    let text = String::from_utf8(served.wire().get("/metrics").await.body.to_vec()).expect("text");
    let described = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let exposed: BTreeSet<String> = described
        .map(|(name, kind)| match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        })
        .collect();
    assert!(exposed.len() > 20, "{exposed:?}");
    let document = read("docs/operations.md");
    let explained: BTreeSet<String> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `shardcache_")?.split('`').next())
        .map(|rest| format!("shardcache_{rest}"))
        .collect();
    let missing: Vec<_> = exposed.difference(&explained).collect();
    let stale: Vec<_> = explained.difference(&exposed).collect();
    assert!(missing.is_empty() && stale.is_empty(), "not explained: {missing:?}; not there: {stale:?}");
}

/// Every flag of `serve` stands in the operator's document, with its default.
#[test]
fn every_flag_is_explained() {
    use clap::CommandFactory;
    let document = read("docs/operations.md");
    let command = shardcache::cli::Cli::command();
    let serve = command.find_subcommand("serve").expect("there is serve");
    let flags = serve.get_arguments().filter_map(|argument| argument.get_long());
    let missing: Vec<_> = flags.filter(|flag| !document.contains(&format!("`--{flag}`"))).collect();
    assert!(missing.is_empty(), "docs/operations.md does not explain {missing:?}");
}
