use serde_json::{Value, json};

use super::*;

/// A version of a run of the server.
fn at(revision: u64, run: u16) -> ResourceVersion {
    let tag = shardcache_storage::Tag::new(run).expect("in range");
    ResourceVersion::new(shardcache_storage::Revision(revision), tag)
}

fn exports() -> TypeName {
    TypeName::new("apis.kcp.io", "apiexports")
}

/// One type, synced or not.
fn of_type(resource: &str, synced_at: Option<ResourceVersion>) -> Value {
    let mut of_type = json!({
        "group": "apis.kcp.io", "resource": resource, "state": "Live", "generation": 1, "cut": synced_at.is_some(),
    });
    if let Some(version) = synced_at {
        of_type["syncedGeneration"] = json!(1);
        of_type["syncedAtRV"] = json!(version.to_string());
    }
    of_type
}

fn view(shard: &str, role: &str, types: &[Value]) -> ShardView {
    let status = json!({"role": role, "seeded": true, "catalogued": true, "types": types});
    serde_json::from_value(json!({"metadata": {"name": shard}, "status": status})).expect("a view")
}

fn missing(shard: &str, why: Why) -> Completeness {
    Completeness::Incomplete(vec![Missing { shard: shard.to_owned(), why }])
}

#[test]
fn every_expected_shard_must_be_synced_at_or_before_the_data() {
    let (amber, beryl) = (
        view("amber", "Expected", &[of_type("apiexports", Some(at(10, 1)))]),
        view("beryl", "Expected", &[of_type("apiexports", Some(at(20, 1)))]),
    );
    let of = |data, shards: &[&ShardView]| complete(&exports(), data, at(30, 1), shards.iter().copied());
    assert_eq!(of(at(20, 1), &[&amber, &beryl]), Completeness::Complete);
    assert_eq!(of(at(40, 1), &[&amber, &beryl]), Completeness::Complete, "whichever is ahead");
    assert_eq!(of(at(19, 1), &[&amber, &beryl]), missing("beryl", Why::SyncedAt(at(20, 1))));
    let unsynced = view("citrine", "Expected", &[of_type("apiexports", None)]);
    assert_eq!(of(at(40, 1), &[&amber, &beryl, &unsynced]), missing("citrine", Why::NeverSynced));
}

#[test]
fn a_shard_without_the_type_lacks_nothing_once_it_has_said_so() {
    let amber = view("amber", "Expected", &[of_type("apiexports", Some(at(10, 1)))]);
    let other = view("beryl", "Expected", &[of_type("apiresourceschemas", None)]);
    let of = |shards: [&ShardView; 2]| complete(&exports(), at(30, 1), at(30, 1), shards);
    assert_eq!(of([&amber, &other]), Completeness::Complete);
    let mut silent = view("beryl", "Expected", &[]);
    silent.status.catalogued = false;
    assert_eq!(of([&amber, &silent]), missing("beryl", Why::NotCatalogued));
    // Types of the same name in other groups or of an identity are other types.
    let mut alike = of_type("apiexports", None);
    alike["identity"] = json!("abc");
    assert_eq!(of([&amber, &view("beryl", "Expected", &[alike])]), Completeness::Complete);
}

#[test]
fn roles_decide_whose_absence_counts() {
    let amber = view("amber", "Expected", &[of_type("apiexports", Some(at(10, 1)))]);
    let of = |role| {
        let other = view("beryl", role, &[of_type("apiexports", None)]);
        complete(&exports(), at(30, 1), at(30, 1), [&amber, &other])
    };
    assert_eq!(of("Joining"), Completeness::Complete, "no view has contained it");
    assert_eq!(of("Excused"), missing("beryl", Why::NeverSynced), "shown without it, not whole without it");
    assert_eq!(of("SomethingNewer"), missing("beryl", Why::NeverSynced), "no role we know is safe to assume");
}

#[test]
fn where_nobody_knows_it_is_said() {
    let amber = view("amber", "Expected", &[of_type("apiexports", Some(at(10, 1)))]);
    let joining = view("beryl", "Joining", &[]);
    let mut unseeded = amber.clone();
    unseeded.status.seeded = false;
    let of = |data, views, shards: &[&ShardView]| complete(&exports(), data, views, shards.iter().copied());
    let unknown = Completeness::Unknown;
    assert_eq!(of(at(30, 1), at(30, 1), &[]), unknown(Doubt::NobodyExpected));
    assert_eq!(of(at(30, 1), at(30, 1), &[&joining]), unknown(Doubt::NobodyExpected));
    assert_eq!(of(at(30, 1), at(30, 1), &[&unseeded]), unknown(Doubt::NotSeeded));
    assert_eq!(of(at(30, 2), at(30, 1), &[&amber]), unknown(Doubt::OtherRun));
    assert_eq!(of(at(30, 1), at(31, 2), &[&amber]), unknown(Doubt::OtherRun));
    // No store issues such versions.
    let made_up = ResourceVersion::parse("1024").expect("a number");
    assert_eq!(of(made_up, made_up, &[&view("amber", "Expected", &[])]), unknown(Doubt::OtherRun));
    // What is missing for sure is said first.
    assert_eq!(of(at(9, 2), at(30, 1), &[&amber]), missing("amber", Why::SyncedAt(at(10, 1))));
}

#[test]
fn a_version_that_cannot_be_read_is_no_sync() {
    let mut amber = view("amber", "Expected", &[of_type("apiexports", Some(at(10, 1)))]);
    amber.status.types[0].synced_at_rv = Some("soon".to_owned());
    assert_eq!(complete(&exports(), at(30, 1), at(30, 1), [&amber]), missing("amber", Why::NeverSynced));
}

#[test]
fn everything_has_a_text() {
    let texts = [
        Completeness::Complete,
        Completeness::Incomplete(vec![
            Missing { shard: "amber".to_owned(), why: Why::NotCatalogued },
            Missing { shard: "beryl".to_owned(), why: Why::NeverSynced },
        ]),
        Completeness::Unknown(Doubt::OtherRun),
    ]
    .map(|completeness| completeness.to_string());
    assert_eq!(
        texts,
        [
            "complete",
            "incomplete: amber has not said which types it has, beryl has not been synced",
            "unknown: data and views are of different runs of the cache",
        ]
    );
}
