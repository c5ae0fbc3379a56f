use super::super::testing::*;
use super::IndexBy;

fn names(world: &World, selector: &str) -> Vec<String> {
    let filter = filter("*/*", selector);
    let snapshot = world.cache.snapshot();
    snapshot.scan(&widgets(), &filter, None).map(|object| object.parts().name.to_owned()).collect()
}

async fn filled() -> World {
    let mut world = World::new();
    let put = |n: usize| {
        let labels = format!("k={}", n % 7);
        change(widgets(), &format!("amber/root//w{n:04}"), Some((&labels, "c")))
    };
    world.commit((0..OBJECTS).map(put).collect()).await;
    world.reflect().await;
    world
}

const OBJECTS: usize = super::OBJECTS_MIN + 100;

#[tokio::test]
async fn a_label_is_indexed_after_it_was_selected_on() {
    let mut world = filled().await;
    let scanned = names(&world, "k in (3,5)");
    assert_eq!(scanned.len(), (0..OBJECTS).filter(|n| matches!(n % 7, 3 | 5)).count());
    while !world.cache.snapshot().indexes().has(&widgets(), &IndexBy::Label("k".into())) {
        assert!(world.reflector.step().await);
    }
    assert_eq!(names(&world, "k in (3,5)"), scanned, "the index gives the same, in the same order");
    // And it follows what happens.
    world.put("amber/root//w0003", "k=4", "moved").await;
    world.put("amber/root//new", "k=3", "new").await;
    world.delete("amber/root//w0005").await;
    let expected: Vec<_> = std::iter::once("new".to_owned())
        .chain(scanned.into_iter().filter(|name| name != "w0003" && name != "w0005"))
        .collect();
    assert_eq!(names(&world, "k in (3,5)"), expected);
    assert_eq!(world.metrics.cache.indexes.get(), 1);
}

#[tokio::test]
async fn events_during_the_building_of_an_index_are_in_it() {
    let mut world = filled().await;
    let before = names(&world, "k=3");
    // The request is taken, the build is running or done; its result waits for the reflector.
    world.cache.snapshot();
    assert!(world.reflector.step().await, "takes the request");
    world.put("amber/root//w0003", "k=4", "moved").await;
    world.put("amber/root//zzz", "k=3", "new").await;
    while !world.cache.snapshot().indexes().has(&widgets(), &IndexBy::Label("k".into())) {
        assert!(world.reflector.step().await);
    }
    let mut expected: Vec<_> = before.into_iter().filter(|name| name != "w0003").collect();
    expected.push("zzz".to_owned());
    assert_eq!(names(&world, "k=3"), expected);
}

#[tokio::test]
async fn small_types_and_standalone_snapshots_are_scanned() {
    let mut world = World::new();
    world.put("amber/root//a", "k=1", "1").await;
    assert_eq!(names(&world, "k=1"), ["a"]);
    let snapshot = snapshot(world.cache.snapshot().state.clone());
    let one = filter("*/*", "k=1");
    assert_eq!(snapshot.scan(&widgets(), &one, None).count(), 1);
    assert_eq!(snapshot.scan(&gadgets(), &one, None).count(), 0, "a type without objects");
}

#[tokio::test]
async fn totals_are_known_for_all_of_a_type() {
    let mut world = World::new();
    world.put("amber/root//a", "", "1").await;
    world.put("beryl/root//b", "", "22").await;
    let snapshot = world.cache.snapshot();
    let totals = snapshot.totals(&widgets(), &all()).expect("known");
    let bytes: usize = snapshot.scan(&widgets(), &all(), None).map(|o| o.body_bytes().len()).sum();
    assert_eq!((totals.objects, totals.body_bytes), (2, bytes as u64));
    assert_eq!(snapshot.totals(&gadgets(), &all()).map(|totals| totals.objects), Some(0));
    for narrower in [filter("amber/*", ""), filter("*/*/n", ""), filter("*/*", "k"), named("*/*", "a")] {
        assert_eq!(snapshot.totals(&widgets(), &narrower), None);
    }
}
