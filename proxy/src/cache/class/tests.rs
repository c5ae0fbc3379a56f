use shardcache_storage::{Change, Object};

use super::super::testing::*;
use super::Transition::{Added, Deleted, Modified};
use super::*;

/// `count` updates of one widget.
async fn updates(count: usize, content: &str) -> Vec<Arc<Event>> {
    let update = |_| change(widgets(), "amber/root//a", Some(("", content)));
    events((0..count).map(update).collect::<Vec<Change>>()).await.1
}

fn push_all(class: &Class, events: &[Arc<Event>]) {
    for event in events {
        class.push(Delivery { kind: Modified, event: Arc::clone(event) });
    }
}

fn read(class: &Class, after: Revision) -> Vec<Revision> {
    match class.read(after) {
        Pending::Events(deliveries) => deliveries.iter().map(|d| d.event.revision).collect(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_transition_table_is_kubernetes() {
    let (_, events) = events(vec![
        change(widgets(), "amber/root//a", Some(("app=a", "1"))),
        change(widgets(), "amber/root//a", Some(("app=a", "2"))),
        change(widgets(), "amber/root//a", Some(("app=b", "3"))),
        change(widgets(), "amber/root//a", Some(("app=b", "4"))),
        change(widgets(), "amber/root//a", Some(("app=a", "5"))),
        change(widgets(), "amber/root//a", None),
        change(widgets(), "amber/root//a", Some(("app=b", "6"))),
        change(widgets(), "amber/root//a", None),
    ])
    .await;
    let seen: Vec<_> = events.iter().map(|event| transition(&filter("*/*", "app=a"), event)).collect();
    let expected = [Some(Added), Some(Modified), Some(Deleted), None, Some(Added), Some(Deleted), None, None];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_ring_gives_what_comes_after_a_position() {
    let events = updates(5, "x").await;
    let before = Revision(events[0].revision.0 - 1);
    let class = Class::new(all(), before);
    assert!(matches!(class.read(before), Pending::Nothing));
    assert!(class.at_tail(before));
    push_all(&class, &events);
    let revisions: Vec<_> = events.iter().map(|event| event.revision).collect();
    assert_eq!(read(&class, before), revisions);
    assert_eq!(read(&class, revisions[2]), revisions[3..]);
    assert!(matches!(class.read(revisions[4]), Pending::Nothing));
    assert!(
        matches!(class.read(Revision(before.0 - 1)), Pending::Behind),
        "the class knows nothing of earlier"
    );
    assert!(!class.at_tail(revisions[3]));
    assert!(class.at_tail(revisions[4]));
    assert!(!class.at_tail(Revision(before.0 - 1)));
}

#[tokio::test]
async fn a_full_ring_drops_the_oldest_and_says_so() {
    let events = updates(RING_MAX + 3, "x").await;
    let before = Revision(events[0].revision.0 - 1);
    let class = Class::new(all(), before);
    push_all(&class, &events);
    assert!(matches!(class.read(before), Pending::Behind));
    assert!(matches!(class.read(events[1].revision), Pending::Behind));
    // Positions at the last dropped event miss nothing.
    assert_eq!(read(&class, events[2].revision)[0], events[3].revision);
    assert_eq!(class.ring.read().slots.len(), RING_MAX);
}

#[tokio::test]
async fn what_the_history_dropped_leaves_the_ring() {
    let events = updates(4, "x").await;
    let class = Class::new(all(), Revision(events[0].revision.0 - 1));
    push_all(&class, &events);
    class.forget_through(events[1].revision);
    assert!(matches!(class.read(events[0].revision), Pending::Behind));
    assert_eq!(read(&class, events[1].revision).len(), 2);
    class.forget_through(events[3].revision);
    assert!(matches!(class.read(events[3].revision), Pending::Nothing), "who has all is not behind");
    assert!(matches!(class.read(events[2].revision), Pending::Behind));
    assert!(class.ring.read().slots.capacity() <= RING_KEPT, "an idle ring holds no memory");
}

#[tokio::test]
async fn one_step_is_bounded_by_number_and_bytes() {
    let events = updates(BATCH_EVENTS + 1, "x").await;
    let before = Revision(events[0].revision.0 - 1);
    let class = Class::new(all(), before);
    push_all(&class, &events);
    assert_eq!(read(&class, before).len(), BATCH_EVENTS);

    let big = "y".repeat(BATCH_BYTES / 3);
    let events = updates(7, &big).await;
    let before = Revision(events[0].revision.0 - 1);
    let class = Class::new(all(), before);
    push_all(&class, &events);
    assert_eq!(read(&class, before).len(), 2);

    let huge = "z".repeat(BATCH_BYTES + 1);
    let events = updates(2, &huge).await;
    let before = Revision(events[0].revision.0 - 1);
    let class = Class::new(all(), before);
    push_all(&class, &events);
    assert_eq!(read(&class, before).len(), 1, "an event above the bound still goes out, alone");
    assert!(events[0].current.as_ref().map(Object::size) > Some(BATCH_BYTES));
}
