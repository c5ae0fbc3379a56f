//! The roster of shards (D42): told by a file at the start, kept by what pushers send, changed by operators.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use shardcache::cli::Settings;
use shardcache::embedded::EmbeddedCache;
use shardcache::failure::Failure;
use shardcache_storage::{MemoryStore, Opening, Role, Store, TypeName};

use super::pusher::Door;
use super::source::Source;
use crate::harness::{Served, binary, eventually};
use crate::stand::{Setting, Stand};

/// What holds the gates until the names are known.
const STAND_IN: &str = "roster:shards";
const SHARDS: &str = "/services/cache/admin/shards";

/// A file for `--roster`.
fn file(directory: &tempfile::TempDir, text: &str) -> PathBuf {
    let file = directory.path().join("roster");
    std::fs::write(&file, text).expect("written");
    file
}

fn roles() -> TypeName {
    TypeName::new("rbac.authorization.k8s.io", "clusterroles")
}

fn awaited(served: &Served) -> Vec<String> {
    let snapshot = served.api().cache.snapshot();
    snapshot.state.awaited(&roles()).map(str::to_owned).collect()
}

async fn ctl(served: &Served, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = binary();
    command.args(["ctl", "shards"]).args(arguments).arg("--data-dir").arg(served.data_dir());
    let ended = tokio::task::spawn_blocking(move || command.output()).await;
    let output = ended.expect("joined").expect("it can be started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Sends a catalog on a control stream that ends thereafter.
async fn catalog(door: &Door, shard: &str, source: &Source) {
    let (mut control, _) = door.control(shard, "i1").await;
    control.send(json!({"type": "catalog", "types": [source.type_name()]}));
    control.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d42_a_lost_store_is_told_at_its_start_whom_to_wait_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let roster = file(&directory, "# two of them\namber\nberyl # in the north\n");
    let settings = Settings { roster: Some(roster.clone()), ..Settings::default() };
    let mut served = Served::with(settings).await;
    assert_eq!(awaited(&served), ["amber", "beryl"]);
    for lost in [false, true] {
        if lost {
            served = served.wiped().await;
            assert_eq!(awaited(&served), ["amber", "beryl"], "and it is told again");
        }
        let door = Door::InProcess(shardcache_proxy::service::ProxyService::new(served.shared_api()));
        for (shard, left) in [("amber", &["beryl"][..]), ("beryl", &[])] {
            let source = Source::roles(shard).with(&["a"]);
            catalog(&door, shard, &source).await;
            drop(door.synced(&source, "i1").await);
            eventually("what was sent is not awaited", || async { awaited(&served) == left }).await;
        }
        assert!(served.metric("shardcache_roster_members{role=\"expected\"") > 1.5);
        assert!(served.metric("shardcache_roster_gating_members") < 0.5);
    }
    // A third is known from the next start on; nobody waits for it.
    std::fs::write(&roster, "amber\nberyl\ncoral\n").expect("written");
    let served = served.restart().await;
    assert_eq!(awaited(&served), [""; 0]);
    assert!(served.api().cache.snapshot().state.member("coral").is_some());
    assert!(served.metric("shardcache_roster_members{role=\"joining\"") > 0.5);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d42_the_root_shard_names_whom_to_wait_for() {
    let settings = Settings { roster_from_shards: Some("root".into()), ..Settings::default() };
    let served = Served::with(settings).await;
    assert_eq!(awaited(&served), [STAND_IN], "nobody knows whom to wait for");
    let door = Door::InProcess(shardcache_proxy::service::ProxyService::new(served.shared_api()));
    // One that comes before its name does.
    let beryl = Source::roles("beryl").with(&["a"]);
    let (pusher, _) = door.cell(&beryl, "i1").await;
    let mut names = Source::shards("root").with(&["root", "beryl"]);
    catalog(&door, "root", &names).await;
    let mut naming = door.synced(&names, "i1").await;
    // Of root nothing else is awaited: its catalog has the names only.
    eventually("whom it names is awaited", || async { awaited(&served) == ["beryl"] }).await;
    assert!(served.api().cache.snapshot().state.member(STAND_IN).is_none());
    drop(pusher);
    catalog(&door, "beryl", &beryl).await;
    drop(door.synced(&beryl, "i1").await);
    eventually("what was sent is not awaited", || async { awaited(&served) == [""; 0] }).await;
    naming.send(names.put("coral", "gold"));
    naming.settled().await;
    let role = |served: &Served, shard: &str| {
        served.api().cache.snapshot().state.member(shard).map(|member| member.role)
    };
    eventually("a later name joins", || async { role(&served, "coral") == Some(Role::Joining) }).await;
    drop((naming, door));
    let served = served.restart().await;
    assert_eq!(awaited(&served), [""; 0]);
    assert_eq!(role(&served, STAND_IN), None, "the names are known");
    // Everything is lost, and root with it.
    let served = served.wiped().await;
    assert_eq!(awaited(&served), [STAND_IN]);
    let (code, text, line) = ctl(&served, &["excuse", STAND_IN]).await;
    assert_eq!(code, Some(0), "{text} {line}");
    assert_eq!(awaited(&served), [""; 0]);
    served.stop().await;
}

#[test]
fn d42_a_roster_that_cannot_be_read_exits_64_and_says_where() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = |text: &str, problem: &str| {
        let roster = file(&directory, text);
        let mut command = binary();
        command.args(["serve", "--storage", "memory", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(directory.path().join("data")).arg("--roster").arg(&roster);
        let output = command.output().expect("it can be started");
        let line = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(64), "{line}");
        assert_eq!(line, format!("shardcache: --roster {}: {problem}\n", roster.display()));
        assert!(!directory.path().join("data").exists(), "nothing was made");
    };
    refused("amber\n\n# x\nBeryl\n", "line 4: \"Beryl\" is not the name of a shard");
    refused("amber, beryl\n", "line 1: \"amber, beryl\" is not the name of a shard");
    refused("# nobody yet\n", "names no shard");
    for (flags, problem) in [
        (&["--roster-from-shards", "*"][..], "--roster-from-shards \"*\": is not the name of a shard"),
        (
            &["--roster-from-shards", "root", "--roster", "/no/such/file"],
            "--roster and --roster-from-shards: only one of them",
        ),
    ] {
        let output = binary().arg("serve").args(flags).output().expect("it can be started");
        assert_eq!(output.status.code(), Some(64));
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("shardcache: {problem}\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d42_an_embedded_cache_is_told_by_its_host() {
    let builder = || EmbeddedCache::builder().memory();
    for (roster, problem) in
        [(&["Amber"][..], "roster: \"Amber\" is not the name of a shard"), (&[], "roster: names no shard")]
    {
        let refused = builder().roster(roster.iter().copied()).start().expect_err("refused");
        assert_eq!(refused, Failure::usage(problem));
    }
    let store = MemoryStore::new(Opening::from_system());
    let opened = Arc::clone(&store);
    let cache = builder().store(move || Ok(Arc::clone(&opened) as Arc<dyn Store>)).roster(["amber", "beryl"]);
    let cache = cache.start().expect("it starts");
    cache.ready().await.expect("it is ready");
    let state = store.subscribe().state;
    assert_eq!(state.awaited(&roles()).collect::<Vec<_>>(), ["amber", "beryl"]);
    cache.shutdown(Duration::from_secs(10)).await.expect("a clean end");
}

#[tokio::test(flavor = "multi_thread")]
async fn d42_administrators_expect_excuse_and_forget() {
    let directory = tempfile::tempdir().expect("a directory");
    let stand = Stand::open(directory.path(), &Setting::default()).await;
    let [wire, admin] = stand.wires();
    let source = Source::roles("amber").with(&["a"]);
    let door = Door::http2(&stand).await;
    let pusher = door.synced(&source, "i1").await;
    let mut object = source.object("a");
    object["metadata"] = json!({"name": "a"});
    let old = Source::roles("old").with(&["a"]);
    assert_eq!(wire.call(Method::POST, &old.collection(), object.to_string()).await.status, 201);

    assert_eq!(wire.get(SHARDS).await.status, 401, "anonymous on loopback administers nothing");
    for (method, path, code) in [
        (Method::POST, "", 405),
        (Method::GET, "/amber/excuse", 405),
        (Method::POST, "/amber/excuses", 404),
        (Method::POST, "/amber", 404),
        (Method::POST, "/Amber/expect", 400),
        (Method::POST, "/*/excuse", 400),
        (Method::POST, "/onyx/excuse", 404),
        (Method::POST, "/onyx/forget", 404),
        (Method::POST, "/amber/forget", 409),
    ] {
        let path = format!("{SHARDS}{path}");
        assert_eq!(wire.call(method.clone(), &path, "").await.status, 401, "{method} {path}");
        let answer = admin.call(method.clone(), &path, "").await;
        assert_eq!(answer.status.as_u16(), code, "{method} {path} {answer:?}");
    }
    let listed = admin.get(SHARDS).await.json();
    assert_eq!(listed["seeded"], false);
    let of = |listed: &Value, shard: &str| {
        let shards = listed["shards"].as_array().expect("an array");
        shards.iter().find(|one| one["shard"] == shard).cloned().unwrap_or_default()
    };
    let amber = of(&listed, "amber");
    assert_eq!((&amber["role"], &amber["catalog"]), (&json!("joining"), &json!(false)));
    assert_eq!(amber["pusher"]["holder"], "h-i1");
    assert_eq!(amber["pusher"]["streams"], 1);
    assert!(amber["pusher"]["heardSecondsAgo"].is_f64(), "{amber}");
    assert_eq!(amber["cells"], json!({"synced": 1, "total": 1}));
    assert_eq!(of(&listed, "old")["role"], "unmanaged", "it only has ordinary writers");

    catalog(&door, "amber", &source).await;
    eventually("a shard that has sent everything is expected", || async {
        let amber = of(&admin.get(SHARDS).await.json(), "amber");
        (&amber["role"], &amber["awaits"]) == (&json!("expected"), &json!([]))
    })
    .await;
    let said = async |path: &str| {
        let answer = admin.call(Method::POST, &format!("{SHARDS}{path}"), "").await;
        assert_eq!(answer.status, 200, "{path} {answer:?}");
        answer.json()["shard"].clone()
    };
    let onyx = said("/onyx/expect").await;
    assert_eq!((&onyx["role"], &onyx["gates"]), (&json!("expected"), &json!(true)));
    let onyx = said("/onyx/excuse").await;
    assert_eq!((&onyx["role"], &onyx["gates"]), (&json!("excused"), &json!(false)));
    assert_eq!(said("/onyx/forget").await["role"], "unmanaged");
    assert_eq!(of(&admin.get(SHARDS).await.json(), "onyx"), Value::Null);
    drop((pusher, door));
    stand.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d42_ctl_shows_and_changes_the_roster_over_the_admin_socket() {
    let served = Served::start().await;
    let source = Source::roles("amber").with(&["a"]);
    let door = Door::InProcess(shardcache_proxy::service::ProxyService::new(served.shared_api()));
    let pusher = door.synced(&source, "i1").await;
    for (arguments, code) in [
        (&["expect", "Not-a-name"][..], 64),
        (&["expect"], 64),
        (&["banish", "amber"], 64),
        (&["-o", "yaml"], 64),
        (&["excuse", "onyx"], 69),
        (&["forget", "amber"], 69),
    ] {
        let (found, _, line) = ctl(&served, arguments).await;
        assert_eq!(found, Some(code), "{arguments:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
    }
    let said = async |arguments: &[&str]| {
        let (code, text, line) = ctl(&served, arguments).await;
        assert_eq!(code, Some(0), "{arguments:?}: {line}");
        text
    };
    let waits = "shard onyx is expected: views over all shards wait for it; awaited: catalog\n";
    assert_eq!(said(&["expect", "onyx"]).await, waits);
    assert_eq!(awaited(&served), ["onyx"]);
    let table = said(&[]).await;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["SHARD", "ROLE", "PUSHER", "HEARD", "SYNCED", "AWAITED"]);
    assert_eq!((&rows[1][..3], rows[1].last()), (&["amber", "joining", "h-i1"][..], Some(&"catalog")));
    assert_eq!(rows[2], ["onyx", "expected", "-", "-", "0/0", "catalog"]);
    let json: Value = serde_json::from_str(&said(&["-o", "json"]).await).expect("JSON");
    assert_eq!(json["shards"][1]["gates"], true);
    assert_eq!(
        said(&["excuse", "onyx"]).await,
        "shard onyx is excused: no view waits for it; awaited: catalog\n"
    );
    assert_eq!(awaited(&served), [""; 0]);
    assert_eq!(said(&["forget", "onyx"]).await, "shard onyx is not in the roster\n");
    drop(pusher);
    served.stop().await;
}
