//! What `/metrics` shows of shards that stand still: nobody should have to read data to see that it is old.

use std::collections::BTreeMap;

use futures::future::join_all;
use serde_json::json;
use shardcache_storage::{Push, RosterChange, Store};

use super::fresh::{answer, get, scene, setting};
use super::pusher::{Door, Pusher};
use super::source::Source;
use crate::stand::Stand;
use crate::wire::Wire;

/// Every series of `/metrics`, by its name with its labels.
struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    async fn of(wire: &Wire) -> Self {
        let text = String::from_utf8(wire.get("/metrics").await.body.to_vec()).expect("text");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a series and its value");
            (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")))
        });
        Self(series.collect())
    }

    fn value(&self, series: &str) -> f64 {
        *self.0.get(series).unwrap_or_else(|| panic!("{series} is not there: {:?}", self.0.keys()))
    }

    fn age(&self, shard: &str) -> f64 {
        self.value(&format!("shardcache_shard_age_seconds{{shard=\"{shard}\"}}"))
    }

    fn synced(&self, shard: &str) -> f64 {
        self.value(&format!("shardcache_shard_synced_timestamp_seconds{{shard=\"{shard}\"}}"))
    }

    /// States of a shard's cells, and how many are in each.
    fn cells(&self, shard: &str) -> Vec<(&str, f64)> {
        let begins = format!("shardcache_shard_cells{{shard=\"{shard}\",state=\"");
        let of = |(series, count)| Some((series, count));
        let series = self.0.iter().filter_map(|(series, count)| of((series.strip_prefix(&begins)?, *count)));
        series.map(|(state, count)| (state.trim_end_matches("\"}"), count)).collect()
    }

    /// What `docs/operations.md` says to alert on.
    fn alerts(&self, shard: &str) -> bool {
        self.age(shard) > 90.0
    }
}

/// Both are expected, announced and synced, and have answered a barrier.
async fn two(stand: &Stand, door: &Door, sources: &[Source; 2]) -> [Pusher; 2] {
    let shards = sources.iter().map(|source| source.shard.into()).collect();
    stand.store.push(Push::Roster(RosterChange::Seed { shards })).await.expect("it is writable");
    let begun = sources.iter().map(async |source| {
        let (mut control, _) = door.control(source.shard, "i1").await;
        control.send(json!({"type": "catalog", "types": [source.type_name()]}));
        control.settled().await;
        let mut pusher = door.synced(source, "i1").await;
        answer(&mut pusher, source, vec![]).await;
        pusher
    });
    join_all(begun).await.try_into().unwrap_or_else(|_| panic!("two"))
}

#[tokio::test(flavor = "multi_thread")]
async fn b110_a_standstill_shows_in_the_metrics_and_outlasts_a_restart() {
    let (directory, hands, stand) = scene().await;
    let sources = [Source::exports("amber").with(&["a"]), Source::exports("onyx").with(&["b"])];
    let (door, wire) = (Door::http2(&stand).await, stand.wire());
    let [gone, mut paused] = two(&stand, &door, &sources).await;
    let well = Scrape::of(&wire).await;
    for source in &sources {
        assert_eq!(well.cells(source.shard), [("Live", 1.0)]);
        assert!(well.age(source.shard) < 5.0 && !well.alerts(source.shard));
    }

    // One pusher goes. The other is heard, and proves nothing.
    drop(gone);
    let (barriers, answers) =
        ("shardcache_freshness_barriers_total", "shardcache_freshness_confirmations_total");
    let mut before = well;
    for (passes, amber, onyx) in
        [(10, "Live", "Live"), (50, "Disconnected", "Live"), (31, "Disconnected", "Lagging")]
    {
        hands.pass(passes);
        paused.send(sources[1].progress());
        paused.settled().await;
        let now = Scrape::of(&wire).await;
        assert_eq!((now.cells("amber"), now.cells("onyx")), (vec![(amber, 1.0)], vec![(onyx, 1.0)]));
        for shard in ["amber", "onyx"] {
            let grown = now.age(shard) - before.age(shard);
            assert!(grown >= passes as f64 - 0.001, "{shard}: {grown} s in {passes}");
        }
        before = now;
    }
    assert!(before.alerts("amber") && before.alerts("onyx"), "91 s");
    // Those who want to know better are refused, counted and asked for in vain.
    for source in &sources {
        assert_eq!(get(&wire, source, "").await.status, 500);
    }
    let refused = Scrape::of(&wire).await;
    assert!((refused.value("shardcache_freshness_refusals_total{reason=\"unconfirmed\"}") - 2.0).abs() < 0.1);
    assert!((refused.value("shardcache_freshness_waits_seconds_count") - 2.0).abs() < 0.1);
    assert!(refused.value(barriers) > refused.value(answers), "asked and not answered");
    drop((paused, door));
    stand.close().await;

    // After a restart nobody knows more. When they were synced is still known.
    let stand = Stand::open(directory.path(), &setting(&hands)).await;
    let wire = stand.wire();
    let restored = Scrape::of(&wire).await;
    for source in &sources {
        assert!(restored.age(source.shard).is_infinite() && restored.alerts(source.shard));
        assert_eq!(restored.cells(source.shard), [("Restored", 1.0)]);
        let (then, now) = (refused.synced(source.shard), restored.synced(source.shard));
        assert!(then > 1.0 && (then - now).abs() < 0.1, "{then} {now}");
    }
    // The alert of one ends with its return, and not with that of the other.
    let door = Door::http2(&stand).await;
    let (mut back, _) = door.cell(&sources[0], "i1").await;
    answer(&mut back, &sources[0], vec![]).await;
    let again = Scrape::of(&wire).await;
    assert_eq!((again.cells("amber"), again.cells("onyx")), (vec![("Live", 1.0)], vec![("Restored", 1.0)]));
    assert!(!again.alerts("amber") && again.alerts("onyx"));
    drop((back, door));
    stand.close().await;
}

/// Two monitors ask at one moment, as pairs of them do.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn scrapes_at_one_moment_do_not_get_into_each_others_way() {
    const TYPES: usize = 300;
    let (_directory, _, stand) = scene().await;
    let door = Door::http2(&stand).await;
    let (mut control, _) = door.control("amber", "i1").await;
    let types: Vec<_> =
        (0..TYPES).map(|n| json!({"group": "example.io", "resource": format!("t{n}")})).collect();
    control.send(json!({"type": "catalog", "types": types}));
    control.settled().await;
    let scrapers = (0..4).map(|_| {
        let wire = stand.wire();
        tokio::spawn(async move {
            for _ in 0..50 {
                let scrape = Scrape::of(&wire).await;
                assert_eq!(scrape.cells("amber"), [("NeverSynced", TYPES as f64)]);
                assert!(scrape.age("amber").is_infinite());
            }
        })
    });
    for scraper in join_all(scrapers).await {
        scraper.expect("it found what there is");
    }
    drop((control, door));
    stand.close().await;
}
