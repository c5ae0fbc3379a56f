//! D42, absent is not empty: which shards a view over all of them waits for, and that no view that could be
//! shown has to wait again.

use shardcache_storage::{
    Attach, Awaited, CellName, Digest, Frames, OWN_GROUP, Op, Open, Push, Pushed, PushedType, Role,
    RosterChange, State, Store, TypeName, Verdict,
};

use crate::objects::{apply, cowboys, put, put_of, sheriffs};
use crate::push::{FORMAT, ROSTER, format_of, lost, make_older};
use crate::pushing::{known, roster};
use crate::{Engine, Rig, on_every_engine};

async fn ask(store: &dyn Store, push: Push) -> Pushed {
    store.push(push).await.expect("the store can write")
}

async fn change(store: &dyn Store, change: RosterChange) -> Verdict {
    ask(store, Push::Roster(change)).await.verdict
}

async fn seed(store: &dyn Store, shards: &[&str]) {
    let shards = shards.iter().map(|shard| Box::from(*shard)).collect();
    assert_eq!(change(store, RosterChange::Seed { shards }).await, Verdict::Done);
}

async fn attach(store: &dyn Store, shard: &str) -> u64 {
    let (holder, instance) = ("replicator".into(), "one".into());
    let attach = Attach { shard: shard.into(), holder, instance, election: None, replaces: None };
    let pushed = ask(store, Push::Attach(attach)).await;
    assert_eq!(pushed.verdict, Verdict::Done);
    pushed.tenure.term
}

async fn catalog(store: &dyn Store, shard: &str, term: u64, types: &[TypeName]) {
    let push = Push::Catalog { shard: shard.into(), term, types: types.to_vec() };
    assert_eq!(ask(store, push).await.verdict, Verdict::Done);
}

/// Syncs an empty type.
async fn sync(store: &dyn Store, shard: &str, term: u64, type_name: TypeName) {
    let cell = CellName::new(shard, type_name);
    let (source, described) = ("prod".into(), PushedType::default());
    let open = Open { cell: cell.clone(), term, source, source_head: 10, described };
    let session = ask(store, Push::Open(open)).await.session;
    let (sync, version, count, digest, allow_empty) = (1, 10, 0, Digest::default(), true);
    let ops = vec![Op::SyncStart { sync }, Op::SyncEnd { sync, version, count, digest, allow_empty }];
    let pushed = ask(store, Push::Frames(Frames { cell, term, session, ops, now_ms: 1 })).await;
    assert_eq!(pushed.verdict, Verdict::Done);
}

/// A shard with two types, both synced.
async fn whole(store: &dyn Store, shard: &str) {
    let term = attach(store, shard).await;
    catalog(store, shard, term, &[cowboys(), sheriffs()]).await;
    sync(store, shard, term, cowboys()).await;
    sync(store, shard, term, sheriffs()).await;
}

fn awaited(state: &State, type_name: &TypeName) -> Vec<String> {
    state.awaited(type_name).map(str::to_owned).collect()
}

fn state(store: &dyn Store) -> State {
    store.subscribe().state
}

fn place(store: &dyn Store, shard: &str) -> Option<(Role, Awaited)> {
    state(store).member(shard).map(|member| (member.role, member.awaits.clone()))
}

fn types(types: &[TypeName]) -> Awaited {
    Awaited::Types(types.into())
}

async fn d42_what_the_server_writes_about_its_roster_is_nothing_that_was_shown(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    assert_eq!(change(&*store, RosterChange::Expect { shard: "amber".into() }).await, Verdict::Done);
    apply(&*store, put_of(TypeName::new(OWN_GROUP, "shardviews"), "amber", "of a shard")).await;
    seed(&*store, &["amber", "beryl"]).await;
    for shard in ["amber", "beryl"] {
        assert_eq!(place(&*store, shard), Some((Role::Expected, Awaited::Catalog)), "{shard}");
    }
}

async fn d42_a_lost_store_waits_for_every_shard_that_was_seeded(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    assert!(!state(&*store).is_seeded());
    assert_eq!(awaited(&state(&*store), &cowboys()), [""; 0], "nobody has said who ought to be there");
    let names: Vec<_> = (0..10).map(|number| format!("shard-{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut follower = store.subscribe();
    seed(&*store, &names).await;
    let commit = follower.commits.try_recv().expect("published before it was answered");
    assert_eq!((commit.shards.len(), commit.events.len()), (10, 0));
    assert!(commit.state.is_seeded());
    assert_eq!(awaited(&state(&*store), &cowboys()), names);
    for (number, shard) in names.iter().enumerate().take(9) {
        let term = attach(&*store, shard).await;
        assert_eq!(awaited(&state(&*store), &cowboys()), names[number..], "that it is there is not enough");
        catalog(&*store, shard, term, &[cowboys()]).await;
        assert_eq!(
            awaited(&state(&*store), &sheriffs()),
            names[number + 1..],
            "what it has not, it has sent"
        );
        assert_eq!(awaited(&state(&*store), &cowboys()), names[number..]);
        sync(&*store, shard, term, cowboys()).await;
        assert_eq!(awaited(&state(&*store), &cowboys()), names[number + 1..]);
    }
    assert_eq!(change(&*store, RosterChange::Excuse { shard: "shard-9".into() }).await, Verdict::Done);
    assert_eq!(awaited(&state(&*store), &cowboys()), [""; 0]);
    // It comes back, and nobody waits.
    let term = attach(&*store, "shard-9").await;
    catalog(&*store, "shard-9", term, &[cowboys(), sheriffs()]).await;
    assert_eq!(place(&*store, "shard-9"), Some((Role::Excused, types(&[cowboys(), sheriffs()]))));
    assert_eq!(awaited(&state(&*store), &cowboys()), [""; 0]);
    sync(&*store, "shard-9", term, sheriffs()).await;
    sync(&*store, "shard-9", term, cowboys()).await;
    assert_eq!(place(&*store, "shard-9"), Some((Role::Expected, types(&[]))));
    store.close().await.expect("closes");
}

async fn d42_an_eleventh_shard_blocks_no_view_at_any_moment(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    let mut follower = store.subscribe();
    seed(&*store, &["amber", "beryl"]).await;
    for shard in ["amber", "beryl"] {
        whole(&*store, shard).await;
    }
    while let Ok(commit) = follower.commits.try_recv() {
        follower.state = commit.state;
    }
    // One that nobody has named, one that the file names now, and a type that comes later.
    whole(&*store, "coral").await;
    seed(&*store, &["amber", "dusk"]).await;
    assert_eq!(place(&*store, "dusk"), Some((Role::Joining, Awaited::Catalog)));
    let term = attach(&*store, "amber").await;
    catalog(&*store, "amber", term, &[cowboys(), sheriffs(), TypeName::new("", "secrets")]).await;
    whole(&*store, "dusk").await;
    let mut commits = 0;
    while let Ok(commit) = follower.commits.try_recv() {
        commits += 1;
        for type_name in [cowboys(), sheriffs(), TypeName::new("", "secrets")] {
            assert_eq!(awaited(&commit.state, &type_name), [""; 0]);
        }
    }
    assert!(commits > 8, "{commits} commits");
    for shard in ["amber", "beryl", "coral", "dusk"] {
        assert_eq!(place(&*store, shard), Some((Role::Expected, types(&[]))), "{shard}");
    }
    store.close().await.expect("closes");
}

async fn d42_a_later_catalog_takes_types_away_and_adds_none(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    seed(&*store, &["amber"]).await;
    let term = attach(&*store, "amber").await;
    sync(&*store, "amber", term, sheriffs()).await;
    assert_eq!(awaited(&state(&*store), &sheriffs()), ["amber"], "its catalog may have more");
    catalog(&*store, "amber", term, &[sheriffs(), cowboys()]).await;
    assert_eq!(place(&*store, "amber"), Some((Role::Expected, types(&[cowboys()]))));
    catalog(&*store, "amber", term, &[sheriffs(), TypeName::new("", "secrets")]).await;
    assert_eq!(place(&*store, "amber"), Some((Role::Expected, types(&[]))));
    // What is released was shown.
    ask(&*store, Push::Release { shard: "amber".into(), type_name: None }).await;
    catalog(&*store, "amber", term, &[cowboys(), sheriffs()]).await;
    assert_eq!(place(&*store, "amber"), Some((Role::Expected, types(&[]))));
    store.close().await.expect("closes");
}

async fn d42_operators_expect_excuse_and_forget(engine: Engine) {
    let rig = Rig::new(engine);
    let store = rig.open();
    apply(&*store, put("a", "x")).await;
    // Views of this store may have been shown.
    seed(&*store, &["amber", "ambre"]).await;
    assert_eq!(place(&*store, "ambre"), Some((Role::Joining, Awaited::Catalog)));
    let forget = |shard: &str| change(&*store, RosterChange::Forget { shard: shard.into() });
    let excuse = |shard: &str| change(&*store, RosterChange::Excuse { shard: shard.into() });
    let expect = |shard: &str| change(&*store, RosterChange::Expect { shard: shard.into() });
    assert_eq!(forget("ambre").await, Verdict::Done);
    assert_eq!(place(&*store, "ambre"), None);
    assert_eq!(forget("ambre").await, Verdict::Broken("shard ambre is not in the roster".into()));
    assert_eq!(excuse("ambre").await, Verdict::Broken("shard ambre is not in the roster".into()));
    let term = attach(&*store, "amber").await;
    let refused = Verdict::Broken("shard amber has been pushed: it can be excused, not forgotten".into());
    assert_eq!(forget("amber").await, refused);
    catalog(&*store, "amber", term, &[cowboys()]).await;
    assert_eq!(awaited(&state(&*store), &cowboys()), [""; 0]);
    assert_eq!(expect("amber").await, Verdict::Done);
    assert_eq!(awaited(&state(&*store), &cowboys()), ["amber"]);
    assert_eq!(awaited(&state(&*store), &sheriffs()), [""; 0]);
    assert_eq!(expect("beryl").await, Verdict::Done);
    assert_eq!(awaited(&state(&*store), &sheriffs()), ["beryl"]);
    for shard in ["amber", "beryl"] {
        assert_eq!(excuse(shard).await, Verdict::Done);
    }
    assert_eq!(awaited(&state(&*store), &cowboys()), [""; 0]);
    sync(&*store, "amber", term, cowboys()).await;
    assert_eq!(excuse("amber").await, Verdict::Done);
    assert_eq!(place(&*store, "amber"), Some((Role::Expected, types(&[]))), "nothing is left to excuse");
    store.close().await.expect("closes");
}

on_every_engine!(
    d42_a_lost_store_waits_for_every_shard_that_was_seeded,
    d42_what_the_server_writes_about_its_roster_is_nothing_that_was_shown,
    d42_an_eleventh_shard_blocks_no_view_at_any_moment,
    d42_a_later_catalog_takes_types_away_and_adds_none,
    d42_operators_expect_excuse_and_forget,
);

#[tokio::test]
async fn d42_the_roster_survives_a_restart_a_crash_and_a_backup() {
    let rig = Rig::new(Engine::Redb);
    let store = rig.open();
    seed(&*store, &["amber", "beryl", "coral", "dusk"]).await;
    let term = attach(&*store, "amber").await;
    catalog(&*store, "amber", term, &[cowboys(), sheriffs()]).await;
    sync(&*store, "amber", term, cowboys()).await;
    assert_eq!(change(&*store, RosterChange::Excuse { shard: "beryl".into() }).await, Verdict::Done);
    assert_eq!(change(&*store, RosterChange::Forget { shard: "coral".into() }).await, Verdict::Done);
    let before = known(&state(&*store));
    assert_eq!(before.2.len(), 3);
    let crashed = lost(&rig, "a crash").open();
    assert_eq!(known(&state(&*crashed)), before);
    assert_eq!(awaited(&state(&*crashed), &cowboys()), ["dusk"]);
    assert_eq!(awaited(&state(&*crashed), &sheriffs()), ["amber", "dusk"]);
    crashed.close().await.expect("closes");
    let restored = Rig::new(Engine::Redb);
    std::fs::create_dir_all(restored.path()).expect("a directory");
    store.backup(restored.file()).await.expect("backs up");
    store.close().await.expect("closes");
    for rig in [rig, restored] {
        let store = rig.open();
        assert_eq!(known(&state(&*store)), before);
        // The same names again, as at every start: nothing changes, nothing is written.
        let mut follower = store.subscribe();
        seed(&*store, &["amber", "beryl", "dusk"]).await;
        assert!(follower.commits.try_recv().is_err(), "nothing was published");
        assert_eq!(known(&state(&*store)), before);
        store.close().await.expect("closes");
    }
}

/// A file of the version before the roster: one shard whole, one with a type missing, one without a catalog.
async fn of_format_2(rig: &Rig) {
    let store = rig.open();
    whole(&*store, "amber").await;
    let term = attach(&*store, "beryl").await;
    catalog(&*store, "beryl", term, &[cowboys(), sheriffs()]).await;
    sync(&*store, "beryl", term, cowboys()).await;
    attach(&*store, "coral").await;
    store.close().await.expect("closes");
    make_older(&rig.file(), 2, &[ROSTER]);
}

#[tokio::test]
async fn d42_shards_from_before_the_roster_join_it_as_they_are() {
    let rig = Rig::new(Engine::Redb);
    of_format_2(&rig).await;
    let store = rig.open();
    assert_eq!(roster(&state(&*store)), [], "an opening adds nobody");
    assert_eq!(state(&*store).tenures().count(), 3);
    for shard in ["amber", "beryl", "coral"] {
        attach(&*store, shard).await;
    }
    let places = |store: &dyn Store| ["amber", "beryl", "coral", "dusk"].map(|shard| place(store, shard));
    let [amber, beryl, coral] = [
        Some((Role::Expected, types(&[]))),
        Some((Role::Joining, types(&[sheriffs()]))),
        Some((Role::Joining, Awaited::Catalog)),
    ];
    assert_eq!(places(&*store), [amber.clone(), beryl.clone(), coral.clone(), None]);
    store.close().await.expect("closes");
    assert_eq!(format_of(&rig.file()), FORMAT);

    // Or they are seeded first.
    let rig = Rig::new(Engine::Redb);
    of_format_2(&rig).await;
    let store = rig.open();
    seed(&*store, &["amber", "beryl", "coral", "dusk"]).await;
    let dusk = Some((Role::Joining, Awaited::Catalog));
    assert_eq!(places(&*store), [amber, beryl, coral, dusk]);
    assert_eq!(awaited(&state(&*store), &sheriffs()), [""; 0]);
    // Whom an operator expects is awaited for what is missing.
    let change = change(&*store, RosterChange::Expect { shard: "beryl".into() }).await;
    assert_eq!(change, Verdict::Done);
    assert_eq!(awaited(&state(&*store), &sheriffs()), ["beryl"]);
    assert_eq!(awaited(&state(&*store), &cowboys()), [""; 0]);
    store.close().await.expect("closes");
}
