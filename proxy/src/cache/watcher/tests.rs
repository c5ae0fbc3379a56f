use super::super::testing::*;
use super::*;

#[tokio::test]
async fn a_watcher_sees_what_happens_after_its_start() {
    let mut world = World::new();
    world.put("amber/root//a", "", "1").await;
    let mut watcher = world.watch(all(), world.head());
    assert_eq!(drain_now(&mut watcher), Vec::<String>::new());
    world.put("amber/root//a", "", "2").await;
    world.put("amber/root//b", "", "1").await;
    world.delete("amber/root//a").await;
    assert_eq!(drain_now(&mut watcher), ["~a 2", "+b 1", "-a 2"]);
}
