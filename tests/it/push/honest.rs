//! The freshness checker (13.4): a source that remembers when each write was completed, a pusher that is
//! slow, pauses, breaks off and comes back, and readers of every level. Whatever the schedule, an answer has
//! what it promises, and no age is below the true one.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use shardcache_proxy::freshness::FreshnessConfig;
use shardcache_proxy::service::ApiConfig;
use tokio::sync::watch;

use super::pusher::{Door, Pusher};
use super::source::Source;
use crate::stand::{Setting, Stand};
use crate::wire::{Answer, Wire};

/// How long writes, faults and reads go on.
const RUN: Duration = Duration::from_secs(5);
const READERS: u64 = 4;

/// The source as it is, and when each of its writes was completed.
struct Truth {
    source: Source,
    /// In order: name, and source after it.
    history: Vec<(String, Source)>,
    completed: Vec<(Instant, String)>,
}

type World = Arc<Mutex<Truth>>;

fn new_world() -> World {
    let source = Source::exports("amber").with(&["first"]);
    let history = vec![("first".to_owned(), source.clone())];
    let completed = vec![(Instant::now(), "first".to_owned())];
    Arc::new(Mutex::new(Truth { source, history, completed }))
}

fn truth(world: &World) -> std::sync::MutexGuard<'_, Truth> {
    world.lock().expect("no test panics with it")
}

/// Completes writes until it is told to stop.
async fn write(world: World, seed: u64, mut stop: watch::Receiver<bool>) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut number = 0;
    while !*stop.borrow() {
        {
            let mut truth = truth(&world);
            let name = format!("w-{number}");
            truth.source.put(&name, "gold");
            let after = truth.source.clone();
            truth.history.push((name.clone(), after));
            truth.completed.push((Instant::now(), name));
        }
        number += 1;
        let pause = Duration::from_millis(random.random_range(0..20));
        let _ = tokio::time::timeout(pause, stop.wait_for(|stop| *stop)).await;
    }
}

/// Pushes the source until it is told to stop, badly: late, with pauses, broken off, begun again.
async fn push(door: Door, world: World, seed: u64, stop: watch::Receiver<bool>) {
    let mut random = StdRng::seed_from_u64(seed);
    while !*stop.borrow() {
        session(&door, &world, &mut random, stop.clone()).await;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..300))).await;
    }
}

async fn session(door: &Door, world: &World, random: &mut StdRng, stop: watch::Receiver<bool>) {
    let before = truth(world).source.clone();
    let (mut pusher, welcome) = door.open(&before.push_path(), before.hello("i1")).await;
    let position = welcome["position"].as_str().and_then(|position| position.parse::<u64>().ok());
    // What was sent so far: a place in the history.
    let mut sent = if let Some(position) = position {
        at(world, position)
    } else {
        let (place, list) = {
            let truth = truth(world);
            (truth.history.len() - 1, truth.source.clone())
        };
        pusher.send_all(list.sync(1));
        place
    };
    // The barrier that is to be answered, and the place in the history that it asked for.
    let mut owed: Option<(u64, usize)> = None;
    for _ in 0..random.random_range(5..60) {
        if *stop.borrow() {
            return;
        }
        let pause = match random.random_range(0..20) {
            0 => 400,
            1 => 100,
            _ => random.random_range(0..10),
        };
        let Some(frames) = told(&mut pusher, Duration::from_millis(pause)).await else { return };
        for frame in frames {
            if frame["type"] == "barrier" {
                // The head is read now, however long it takes to get there.
                owed = Some((frame["id"].as_u64().expect("a number"), truth(world).history.len() - 1));
            }
        }
        let events: Vec<_> = {
            let truth = truth(world);
            let behind = truth.history.len() - 1 - sent;
            let next = truth.history[sent + 1..].iter().take(random.random_range(0..=behind));
            next.map(|(name, after)| (after.upsert(name), after.clone())).collect()
        };
        sent += events.len();
        pusher.send_all(events.iter().map(|(frame, _)| frame.clone()));
        if let Some((id, place)) = owed
            && sent >= place
        {
            let mut progress = truth(world).history[sent].1.progress();
            progress["barrier"] = id.into();
            pusher.send(progress);
            owed = None;
        } else if random.random_bool(0.3) {
            // A sign of life, which proves nothing.
            let progress = truth(world).history[sent].1.progress();
            pusher.send(progress);
        }
    }
}

/// The place in the history at which the source had a version.
fn at(world: &World, version: u64) -> usize {
    let truth = truth(world);
    truth.history.iter().rposition(|(_, after)| after.head <= version).expect("it was sent from there")
}

/// What the server says within a time; `None`: the stream has ended.
async fn told(pusher: &mut Pusher, time: Duration) -> Option<Vec<Value>> {
    let mut frames = vec![];
    let until = tokio::time::Instant::now() + time;
    loop {
        match tokio::time::timeout_at(until, pusher.next()).await {
            Ok(Some(frame)) if frame["type"] == "error" => panic!("{frame}"),
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => return None,
            Err(_) => return Some(frames),
        }
    }
}

/// What readers saw.
#[derive(Default)]
struct Tally {
    fresh: usize,
    bounded: usize,
    stale: usize,
    refused: usize,
    aged: usize,
}

/// Reads at every level until it is told to stop, and holds each answer against the truth.
async fn read(wire: Wire, world: World, seed: u64, stop: watch::Receiver<bool>) -> Tally {
    let mut random = StdRng::seed_from_u64(seed);
    let mut tally = Tally::default();
    let collection = truth(&world).source.collection();
    while !*stop.borrow() {
        let bound = Duration::from_millis(random.random_range(0..1_500));
        let asked = random.random_range(0..4);
        let query = match asked {
            0 => "freshness=source".to_owned(),
            1 => format!("maxStaleness={}ms", bound.as_millis()),
            2 => "resourceVersion=0".to_owned(),
            _ => String::new(),
        };
        let sent = Instant::now();
        let answer = wire.get(&format!("{collection}?{query}")).await;
        if answer.status == 500 {
            assert_eq!(answer.reason().1, "ServerTimeout", "{answer:?}");
            assert_ne!(asked, 2, "what asks for nothing is served: {answer:?}");
            tally.refused += 1;
            continue;
        }
        assert_eq!(answer.status, 200, "{answer:?}");
        let promise = match asked {
            0 | 3 => Some(Duration::ZERO),
            1 => Some(bound),
            _ => None,
        };
        if let Some(slack) = promise {
            missing(&world, &answer, sent, slack, &query);
        }
        // The age is a promise as well, whoever asked for what.
        let age = answer.headers["x-cache-age"].to_str().expect("text");
        if let Ok(age) = age.parse() {
            missing(&world, &answer, sent, Duration::from_secs(age), "by its age");
            tally.aged += 1;
        }
        match asked {
            0 | 3 => tally.fresh += 1,
            1 => tally.bounded += 1,
            _ => tally.stale += 1,
        }
        // By name: an object that was there before is never not found.
        let before = Instant::now();
        let name = truth(&world).completed.last().map(|(_, name)| name.clone()).expect("there is one");
        let answer = wire.get(&format!("{collection}/{name}")).await;
        assert_ne!(answer.status, 404, "{name} was written {:?} before", before.elapsed());
    }
    tally
}

/// Nothing that was completed more than `slack` before an answer was asked for may be missing from it.
fn missing(world: &World, answer: &Answer, asked: Instant, slack: Duration, promise: &str) {
    let list = answer.json();
    let items = list["items"].as_array().expect("a list").iter();
    let found: std::collections::HashSet<_> =
        items.map(|item| item["metadata"]["name"].as_str().expect("named")).collect();
    let Some(since) = asked.checked_sub(slack) else { return };
    for (at, name) in &truth(world).completed {
        assert!(
            *at >= since || found.contains(name.as_str()),
            "{promise:?}: {name} was completed {:?} before the request and is missing; {:?}",
            asked - *at,
            answer.headers
        );
    }
}

#[expect(clippy::print_stdout, reason = "a failure is looked into by its seed")]
fn print_seed(seed: u64) {
    println!("seed {seed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_schedule_yields_an_answer_that_lacks_what_it_promises() {
    let directory = tempfile::tempdir().expect("a directory");
    let freshness = FreshnessConfig {
        patience: Duration::from_millis(300),
        disconnected_after: Duration::from_millis(200),
        confirm_interval: Duration::from_millis(200),
        ..FreshnessConfig::default()
    };
    let default = Setting::default();
    let setting = Setting { api: ApiConfig { freshness, ..default.api }, ..default };
    let stand = Stand::open(directory.path(), &setting).await;
    let seed: u64 = rand::random();
    let world = new_world();
    let (end, stop) = watch::channel(false);
    let door = Door::http2(&stand).await;
    let (mut control, _) = door.control("amber", "i1").await;
    control.send(json!({"type": "catalog", "types": [truth(&world).source.type_name()]}));
    control.settled().await;
    // Readers of the stale level are served once it has been synced.
    let first = truth(&world).source.clone();
    drop(door.synced(&first, "i1").await);
    let readers =
        (0..READERS).map(|reader| read(stand.wire(), Arc::clone(&world), seed + 2 + reader, stop.clone()));
    // Shown with a failure, which it repeats as far as timing lets it.
    print_seed(seed);
    let ended = async {
        tokio::time::sleep(RUN).await;
        end.send(true).expect("somebody listens");
    };
    let writer = write(Arc::clone(&world), seed, stop.clone());
    let pusher = push(door, Arc::clone(&world), seed + 1, stop.clone());
    let (tallies, (), (), ()) = tokio::join!(join_all(readers), writer, pusher, ended);
    let sum = tallies.into_iter().fold(Tally::default(), |sum, tally| Tally {
        fresh: sum.fresh + tally.fresh,
        bounded: sum.bounded + tally.bounded,
        stale: sum.stale + tally.stale,
        refused: sum.refused + tally.refused,
        aged: sum.aged + tally.aged,
    });
    let Tally { fresh, bounded, stale, refused, aged } = sum;
    let counts = [fresh, bounded, stale, refused, aged];
    assert!(counts.iter().all(|count| *count > 0), "everything must have happened: {counts:?}");
    drop(control);
    stand.close().await;
}
