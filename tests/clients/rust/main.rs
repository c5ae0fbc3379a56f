//! Runs kube-rs's watcher, reflector or controller over cluster roles against a cache and answers its
//! driver, `../python/scenario.py`, about what it holds and what it saw.
//!
//! ```text
//! kube_client [--mode watcher|reflector|controller] [--strategy list|stream] [--selector LABEL=VALUE] --server URL
//! ```

use std::collections::BTreeMap;
use std::future::{Ready, ready};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, Event, InitialListStrategy, watcher};
use kube::runtime::{WatchStreamExt, utils::Backoff};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Where an object is and what version it has.
type Items = BTreeMap<String, String>;

/// What the client saw.
#[derive(Default)]
struct Journal {
    items: Items,
    /// What an initial list is building up.
    building: Items,
    listed: bool,
    /// Kind, name and version since the driver last asked.
    events: Vec<[String; 3]>,
}

/// What answers the driver.
struct Client {
    journal: Arc<Mutex<Journal>>,
    /// The library's own cache, where the mode has one.
    store: Option<Store<ClusterRole>>,
    /// Holds only what the reconciler was called with, and is behind until it holds all.
    reconciles: bool,
}

/// The pause before each attempt; the libraries' own grow to half a minute.
struct Soon;

impl Iterator for Soon {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(200))
    }
}

impl Backoff for Soon {
    fn reset(&mut self) {}
}

fn lock(journal: &Mutex<Journal>) -> MutexGuard<'_, Journal> {
    journal.lock().expect("nobody panics with it")
}

fn key(role: &ClusterRole) -> String {
    let place = |name| role.annotations().get(name).map_or("", String::as_str);
    format!("{}|{}||{}", place("kcp.io/shard"), place("kcp.io/cluster"), role.name_any())
}

fn version(role: &ClusterRole) -> String {
    role.resource_version().unwrap_or_default()
}

impl Journal {
    fn apply(&mut self, event: &Event<ClusterRole>) {
        match event {
            Event::Init => self.building.clear(),
            Event::InitApply(role) => drop(self.building.insert(key(role), version(role))),
            Event::InitDone => {
                self.items = std::mem::take(&mut self.building);
                self.listed = true;
            }
            Event::Apply(role) => {
                let known = self.items.insert(key(role), version(role)).is_some();
                self.note(if known { "MODIFIED" } else { "ADDED" }, role);
            }
            Event::Delete(role) => {
                self.items.remove(&key(role));
                self.note("DELETED", role);
            }
        }
    }

    fn note(&mut self, kind: &str, role: &ClusterRole) {
        self.events.push([kind.to_owned(), role.name_any(), version(role)]);
    }
}

impl Client {
    fn start(mode: &str, api: Api<ClusterRole>, config: watcher::Config) -> Result<Self, Failure> {
        let journal = Arc::<Mutex<Journal>>::default();
        if mode == "controller" {
            let controller = Controller::new(api, config).trigger_backoff(Soon);
            let store = controller.store();
            let running = controller.run(reconcile, again, Arc::clone(&journal)).for_each(|_| ready(()));
            tokio::spawn(running);
            return Ok(Self { journal, store: Some(store), reconciles: true });
        }
        let seen = Arc::clone(&journal);
        let events = watcher(api, config).backoff(Soon).inspect(move |event| {
            if let Ok(event) = event {
                lock(&seen).apply(event);
            }
        });
        let store = match mode {
            "watcher" => {
                tokio::spawn(events.for_each(|_| ready(())));
                None
            }
            "reflector" => {
                let (reader, writer) = reflector::store();
                tokio::spawn(events.reflect(writer).for_each(|_| ready(())));
                Some(reader)
            }
            other => return Err(format!("unknown mode {other}").into()),
        };
        Ok(Self { journal, store, reconciles: false })
    }

    fn dump(&self) -> Value {
        let journal = lock(&self.journal);
        let Some(store) = &self.store else {
            return json!({ "synced": journal.listed, "items": journal.items });
        };
        let items: Items = store.state().iter().map(|role| (key(role), version(role))).collect();
        let synced = if self.reconciles {
            items.iter().all(|(key, version)| journal.items.get(key) == Some(version))
        } else {
            journal.listed
        };
        json!({ "synced": synced, "items": items })
    }

    fn events(&self) -> Value {
        json!({ "streams": [std::mem::take(&mut lock(&self.journal).events)] })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the signature is the controller's")]
fn reconcile(role: Arc<ClusterRole>, seen: Arc<Mutex<Journal>>) -> Ready<Result<Action, kube::Error>> {
    lock(&seen).items.insert(key(&role), version(&role));
    ready(Ok(Action::await_change()))
}

fn again(_: Arc<ClusterRole>, _: &kube::Error, _: Arc<Mutex<Journal>>) -> Action {
    Action::requeue(Duration::from_millis(200))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| {
        let pair = arguments.chunks_exact(2).find(|pair| pair[0] == name);
        pair.map(|pair| pair[1].as_str())
    };
    let server = option("--server").ok_or("where is the server?")?;
    let api = Api::all(kube::Client::try_from(kube::Config::new(server.parse()?))?);
    let initial_list_strategy = match option("--strategy") {
        Some("stream") => InitialListStrategy::StreamingList,
        _ => InitialListStrategy::ListWatch,
    };
    let label_selector = option("--selector").map(str::to_owned);
    let config = watcher::Config { initial_list_strategy, label_selector, ..watcher::Config::default() };
    let client = Client::start(option("--mode").unwrap_or("watcher"), api, config)?;
    tokio::task::spawn_blocking(move || answer(&client)).await?
}

/// Until the driver has asked enough.
fn answer(client: &Client) -> Result<(), Failure> {
    for question in std::io::stdin().lines() {
        let answer = match question?.as_str() {
            "dump" => client.dump(),
            "events" => client.events(),
            _ => return Ok(()),
        };
        writeln!(std::io::stdout(), "{answer}")?;
    }
    Ok(())
}
