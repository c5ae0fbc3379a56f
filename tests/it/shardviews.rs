//! D43: two informers, one of data and one of shard views, that read at whatever speed, know when the first
//! one has everything. Random schedules of shards, rosters, restarts, losses and restores, judged by objects
//! that must be there.
//!
//! `SHARDCACHE_MODEL_CASES=2000 cargo test --test it shardviews` runs so many schedules. A failure prints the
//! shrunk schedule and keeps its seed in `tests/it/shardviews/regressions.txt`.

mod informer;
mod script;
mod world;

use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};
use shardcache::completeness::{Completeness, ResourceVersion, ShardView, TypeName, complete};
use shardcache_storage::{Revision, Tag};

use world::{Engine, Rule, World};

/// The rule as it is published.
fn published(
    name: &TypeName,
    data: ResourceVersion,
    views: ResourceVersion,
    shards: &[ShardView],
) -> Completeness {
    complete(name, data, views, shards)
}

fn run(engine: Engine, rule: Rule, config: Config, steps: usize) -> Result<(), String> {
    let outcome = TestRunner::new(config).run(&script::script(steps), |script| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            World::open(engine, rule).run(&script).await;
        });
        Ok(())
    });
    outcome.map_err(|failure| failure.to_string())
}

fn prove(engine: Engine, cases: u32, steps: usize) {
    let asked = std::env::var("SHARDCACHE_MODEL_CASES").ok();
    let cases = asked.map_or(cases, |asked| asked.parse().expect("SHARDCACHE_MODEL_CASES is a number"));
    let seeds = FileFailurePersistence::Direct("tests/it/shardviews/regressions.txt");
    let config = Config { cases, failure_persistence: Some(Box::new(seeds)), ..Config::default() };
    if let Err(failure) = run(engine, published, config, steps) {
        panic!("{failure}");
    }
}

#[test]
fn d43_what_two_informers_call_complete_is() {
    prove(Engine::Memory, 200, 80);
}

#[test]
fn d43_what_two_informers_call_complete_is_across_restarts_and_restores() {
    prove(Engine::Redb, 24, 60);
}

/// Readers that leave out a part of the rule.
const CARELESS: [(&str, Rule); 4] = [
    ("the version of a sync does not matter", |name, _, views, shards| {
        let tag = views.tag().unwrap_or(Tag::new(1).expect("in range"));
        complete(name, ResourceVersion::new(Revision(shardcache_storage::REVISION_MAX), tag), views, shards)
    }),
    ("the run of the server does not matter", |name, data, views, shards| {
        let tag = data.tag().unwrap_or(Tag::new(1).expect("in range"));
        complete(name, data, ResourceVersion::new(views.revision(), tag), shards)
    }),
    ("who has said nothing has nothing", |name, data, views, shards| {
        let mut shards = shards.to_vec();
        for view in &mut shards {
            view.status.catalogued = true;
        }
        complete(name, data, views, &shards)
    }),
    ("what was never synced is not awaited", |name, data, views, shards| {
        let mut shards = shards.to_vec();
        for view in &mut shards {
            view.status.types.retain(|of_type| of_type.synced_at_rv.is_some());
        }
        complete(name, data, views, &shards)
    }),
];

#[test]
fn d80_a_reader_that_leaves_out_a_part_of_the_rule_is_noticed() {
    for (fault, rule) in CARELESS {
        let config =
            Config { cases: 400, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
        let outcome = run(Engine::Memory, rule, config, 100);
        let problem = outcome.expect_err(&format!("{fault:?} went unnoticed"));
        eprintln!("{fault:?}: {}", problem.lines().next().unwrap_or_default());
    }
}
