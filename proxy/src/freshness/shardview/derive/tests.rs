use std::sync::Arc;

use proptest::prelude::*;
use shardcache_storage::{
    Attach, Cell, Digest, Frames, MemoryStore, Op, Open, Opening, Push, Pushed, PushedType, RosterChange,
    Store,
};

use super::*;

/// A store whose shards push empty types.
struct World(Arc<MemoryStore>);

impl World {
    fn new() -> Self {
        Self(MemoryStore::new(Opening::from_system()))
    }

    async fn push(&self, push: Push) -> Pushed {
        self.0.push(push).await.expect("it is writable")
    }

    async fn attach(&self, shard: &str) -> u64 {
        let attach = Attach {
            shard: shard.into(),
            holder: "h".into(),
            instance: "i".into(),
            election: None,
            replaces: None,
        };
        self.push(Push::Attach(attach)).await.tenure.term
    }

    async fn catalog(&self, shard: &str, types: &[&str]) {
        let term = self.attach(shard).await;
        let types = types.iter().map(|resource| type_name(resource)).collect();
        self.push(Push::Catalog { shard: shard.into(), term, types }).await;
    }

    /// Begins a session on a cell of a source.
    async fn open(&self, cell: &CellName, source: &str) -> Frames {
        let term = self.attach(cell.shard()).await;
        let described = PushedType { version: "v1".into(), kind: "Widget".into(), namespaced: false };
        let open = Open { cell: cell.clone(), term, source: source.into(), source_head: 10, described };
        let session = self.push(Push::Open(open)).await.session;
        Frames { cell: cell.clone(), term, session, ops: vec![], now_ms: 1 }
    }

    async fn frames(&self, session: &Frames, ops: Vec<Op>) {
        self.push(Push::Frames(Frames { ops, ..session.clone() })).await;
    }

    /// A sync to this version of the source.
    async fn sync_to(&self, version: u64, session: &Frames) {
        let end = Op::SyncEnd { sync: 1, version, count: 0, digest: Digest::default(), allow_empty: true };
        self.frames(session, vec![Op::SyncStart { sync: 1 }, end]).await;
    }

    async fn sync(&self, session: &Frames) {
        self.sync_to(10, session).await;
    }

    /// Moves the store's version.
    async fn something_else_happens(&self) {
        let key = crate::cache::testing::key("zircon/root//w");
        let draft = crate::cache::testing::draft("zircon/root//w", "", "", "x");
        let change = shardcache_storage::Change {
            type_name: type_name("gadgets"),
            key,
            guard: shardcache_storage::Guard::default(),
            action: shardcache_storage::Action::Put(draft),
        };
        self.0.commit(vec![change]).await.expect("it is writable");
    }

    fn state(&self) -> State {
        self.0.subscribe().state
    }

    fn head(&self) -> Box<str> {
        self.state().resource_version().to_string().into()
    }

    /// The view of amber while everything that is synced is in this condition.
    fn view(&self, condition: Condition, uptime: Duration, before: Option<&Status>) -> Option<Status> {
        let state = self.state();
        let standing = |cell: &CellName| {
            let synced = state.cell(cell).is_some_and(Cell::is_managed);
            Standing {
                condition: if synced { condition } else { Condition::NeverSynced },
                age: (condition == Condition::Live).then_some(Duration::ZERO),
                is_pushed: true,
                is_vouched: false,
                is_probed: false,
            }
        };
        let config = FreshnessConfig::default();
        let lease = |_: &str| None;
        Observed { state: &state, standing, lease, uptime, config: &config }.view("amber", before)
    }

    fn live(&self, before: Option<&Status>) -> Status {
        self.view(Condition::Live, LONG, before).expect("a view")
    }
}

/// Long after the server was opened.
const LONG: Duration = Duration::from_hours(1);

fn type_name(resource: &str) -> TypeName {
    TypeName::new("example.dev", resource)
}

fn widgets() -> CellName {
    CellName::new("amber", type_name("widgets"))
}

#[tokio::test]
async fn a_view_follows_a_shard_from_its_name_to_its_sync() {
    let world = World::new();
    assert_eq!(world.view(Condition::Live, LONG, None), None, "nobody knows it");
    world.push(Push::Roster(RosterChange::Seed { shards: vec!["amber".into()] })).await;
    let named = world.live(None);
    let expected =
        Status { role: "Expected".into(), seeded: true, catalogued: false, state: None, types: vec![] };
    assert_eq!(named, expected);

    world.catalog("amber", &["widgets", "gadgets"]).await;
    let announced = world.live(Some(&named));
    assert!(announced.catalogued);
    let resources: Vec<_> = announced.types.iter().map(|of_type| &*of_type.resource).collect();
    assert_eq!(resources, ["gadgets", "widgets"]);
    assert!(announced.types.iter().all(|of_type| of_type.synced_at.is_none() && of_type.generation == 0));
    assert_eq!(announced.state.as_deref(), Some("NeverSynced"));

    let session = world.open(&widgets(), "source-1").await;
    let opened = world.live(Some(&announced));
    assert_eq!((opened.types[1].generation, opened.types[1].cut), (1, false));
    world.something_else_happens().await;
    world.sync(&session).await;
    let synced = world.live(Some(&opened));
    let of_type = &synced.types[1];
    assert_eq!((of_type.cut, of_type.synced_generation), (true, 1));
    assert_eq!(of_type.synced_at, Some(world.head()));
    assert_eq!(of_type.state, "Live");
    assert_eq!(synced.state.as_deref(), Some("NeverSynced"), "gadgets are not");
}

#[tokio::test]
async fn the_version_of_a_sync_stays_while_its_lineage_does() {
    let world = World::new();
    world.catalog("amber", &["widgets"]).await;
    let session = world.open(&widgets(), "source-1").await;
    world.sync(&session).await;
    let first = world.live(None);
    let synced_at = first.types[0].synced_at.clone();

    world.something_else_happens().await;
    assert_eq!(world.live(Some(&first)), first, "what others do is no change");
    let progress = Op::Progress { version: 20, count: 0, digest: Digest::default() };
    world.frames(&session, vec![progress]).await;
    assert_eq!(world.live(Some(&first)), first, "progress is no change");

    // A sync that begins: between two states, and nothing is absent.
    world.frames(&session, vec![Op::SyncStart { sync: 1 }]).await;
    let between = world.view(Condition::Syncing, LONG, Some(&first)).expect("a view");
    assert_eq!((between.types[0].cut, &between.types[0].synced_at), (false, &synced_at));
    world.sync_to(30, &session).await;
    assert_eq!(world.live(Some(&between)), first);

    // Another lineage: the old objects are there until its sync ends, which is a later one.
    let session = world.open(&widgets(), "source-2").await;
    let replaced = world.view(Condition::Syncing, LONG, Some(&first)).expect("a view");
    assert_eq!((replaced.types[0].generation, replaced.types[0].synced_generation), (2, 1));
    assert_eq!(replaced.types[0].synced_at, synced_at);
    world.sync(&session).await;
    let second = world.live(Some(&replaced));
    assert_eq!(
        (second.types[0].synced_generation, second.types[0].synced_at.clone()),
        (2, Some(world.head()))
    );

    // Looked at for the first time after much has happened: late, never early.
    world.something_else_happens().await;
    assert_eq!(world.live(None).types[0].synced_at, Some(world.head()));
}

#[tokio::test]
async fn what_was_released_is_not_synced_and_what_is_synced_after_it_is_new() {
    let world = World::new();
    world.catalog("amber", &["widgets"]).await;
    let session = world.open(&widgets(), "source-1").await;
    world.sync(&session).await;
    let synced = world.live(None);
    world.push(Push::Release { shard: "amber".into(), type_name: None }).await;
    let released = world.live(Some(&synced));
    assert_eq!(released.types, [], "the shard does not push it");

    world.something_else_happens().await;
    world.catalog("amber", &["widgets"]).await;
    let announced = world.live(Some(&released));
    let of_type = &announced.types[0];
    assert_eq!((of_type.cut, of_type.synced_generation, &of_type.synced_at), (false, 0, &None));
    let session = world.open(&widgets(), "source-1").await;
    world.sync(&session).await;
    let head = world.head();
    // Whether or not anybody looked in between.
    for before in [&announced, &released, &synced] {
        assert_eq!(world.live(Some(before)).types[0].synced_at.as_ref(), Some(&head));
    }
}

#[tokio::test]
async fn a_restart_that_changes_nothing_changes_no_view() {
    let world = World::new();
    world.catalog("amber", &["widgets"]).await;
    let session = world.open(&widgets(), "source-1").await;
    world.sync(&session).await;
    let live = world.live(None);
    let after = |seconds, condition| {
        world.view(condition, Duration::from_secs(seconds), Some(&live)).expect("a view").types[0]
            .state
            .clone()
    };
    // The pusher is on its way, and then has not shown yet how far it is.
    assert_eq!(after(1, Condition::Restored), "Live");
    assert_eq!(after(20, Condition::Lagging), "Live");
    // It does not come, or does not show it.
    assert_eq!(after(16, Condition::Restored), "Restored");
    assert_eq!(after(91, Condition::Lagging), "Lagging");
    assert_eq!(after(1, Condition::Disconnected), "Disconnected");
    // Something else has changed: then it is said how it stands.
    world.frames(&session, vec![Op::SyncStart { sync: 1 }]).await;
    assert_eq!(after(1, Condition::Restored), "Restored");
}

#[tokio::test]
async fn a_type_that_is_announced_no_more_is_there_while_its_objects_are() {
    let world = World::new();
    world.catalog("amber", &["gadgets", "widgets"]).await;
    let session = world.open(&widgets(), "source-1").await;
    world.sync(&session).await;
    let both = world.live(None);
    world.catalog("amber", &[]).await;
    let left: Vec<_> = world.live(Some(&both)).types;
    assert_eq!(left, [both.types[1].clone()], "widgets were synced");
}

fn of_type(resource: &str) -> impl Strategy<Value = TypeStatus> + use<> {
    let resource = resource.to_owned();
    (0..3_u64, any::<bool>()).prop_map(move |(synced_generation, cut)| TypeStatus {
        group: "".into(),
        resource: resource.as_str().into(),
        identity: "".into(),
        state: "Live".into(),
        generation: synced_generation,
        cut,
        synced_generation,
        vouched_by: None,
        synced_at: (synced_generation > 0).then(|| synced_generation.to_string().into()),
    })
}

fn status() -> impl Strategy<Value = Status> {
    let types = (prop::option::of(of_type("gadgets")), prop::option::of(of_type("widgets")));
    let role = prop::sample::select(&ROLES_BY_WEIGHT[..]);
    (role, any::<bool>(), any::<bool>(), types).prop_map(|(role, seeded, catalogued, (one, other))| Status {
        role: role.into(),
        seeded,
        catalogued,
        state: None,
        types: one.into_iter().chain(other).collect(),
    })
}

/// Whether a shard lets a view of widgets at a version be complete.
fn lets(status: &Status, data: u64) -> bool {
    let of_type = status.types.iter().find(|of_type| &*of_type.resource == "widgets");
    let synced_at = |of_type: &TypeStatus| of_type.synced_at.as_ref()?.parse::<u64>().ok();
    status.role == JOINING
        || match of_type {
            None => status.catalogued,
            Some(of_type) => synced_at(of_type).is_some_and(|version| data >= version),
        }
}

/// The rule of readers (`shardcache::completeness`).
fn whole(shards: &[Option<&Status>], data: u64) -> bool {
    let mut shards = shards.iter().flatten();
    shards.clone().any(|status| status.role == EXPECTED)
        && shards.all(|status| status.seeded && lets(status, data))
}

/// Whether a sync that is known is of an earlier lineage than the one known before, which none is.
fn goes_back(before: Option<&Status>, after: Option<&Status>) -> bool {
    let (Some(before), Some(after)) = (before, after) else { return false };
    before.types.iter().any(|was| {
        let is = after.types.iter().find(|is| is.is_same_type(was));
        is.is_some_and(|is| (1..was.synced_generation).contains(&is.synced_generation))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_096, ..ProptestConfig::default() })]

    /// Three shards change at once, and a reader sees one change after the other: at no moment does it find
    /// something complete that was not before and is not after.
    #[test]
    fn d43_no_reader_finds_complete_in_between_what_is_not(
        before in prop::array::uniform3(prop::option::of(status())),
        after in prop::array::uniform3(prop::option::of(status())),
        data in 0..3_u64,
    ) {
        let was: Vec<_> = before.iter().map(Option::as_ref).collect();
        let is: Vec<_> = after.iter().map(Option::as_ref).collect();
        prop_assume!(!was.iter().zip(&is).any(|(was, is)| goes_back(*was, *is)));
        let expects = |shards: &[Option<&Status>]| shards.iter().flatten().any(|status| status.role == EXPECTED);
        let somebody = expects(&was) && expects(&is);
        let allowed = whole(&was, data) || whole(&is, data);
        let first: Vec<_> = was.iter().zip(&is).map(|(was, is)| guarded(*was, *is, somebody)).collect();
        for changed in 0..=3 {
            let seen = first[..changed].iter().map(Option::as_ref).chain(was[changed..].iter().copied());
            let seen: Vec<_> = seen.collect();
            prop_assert!(allowed || !whole(&seen, data), "in the first step, after {changed}: {seen:?}");
            let seen = is[..changed].iter().copied().chain(first[changed..].iter().map(Option::as_ref));
            let seen: Vec<_> = seen.collect();
            prop_assert!(allowed || !whole(&seen, data), "in the second step, after {changed}: {seen:?}");
        }
    }
}
