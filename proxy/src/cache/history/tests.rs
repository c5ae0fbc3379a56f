use super::super::testing::*;
use super::*;

async fn filled(count: usize) -> (History, Vec<Arc<Event>>, ResourceVersion) {
    let changes = (0..count).map(|n| change(widgets(), "amber/root//a", Some(("", &n.to_string()))));
    let (_, events) = events(changes.collect()).await;
    let tag = events[0].resource_version.tag().expect("tagged");
    let opened = ResourceVersion::new(Revision(events[0].revision.0 - 1), tag);
    let mut history = History::new(opened);
    for event in &events {
        history.append(Arc::clone(event));
    }
    (history, events, opened)
}

fn revisions(reading: Reading) -> (Vec<Revision>, Option<Revision>) {
    match reading {
        Reading::Events { events, end } => {
            (events.iter().map(|event| event.revision).collect(), end.map(ResourceVersion::revision))
        }
        Reading::Behind => panic!("behind"),
    }
}

#[tokio::test]
async fn reading_goes_on_where_it_stopped() {
    let (history, events, opened) = filled(5).await;
    let (first, end) = revisions(history.read(opened.revision(), 2));
    assert_eq!((first, end), (vec![events[0].revision, events[1].revision], None));
    let (rest, end) = revisions(history.read(events[1].revision, 9));
    assert_eq!((rest.len(), end), (3, Some(events[4].revision)));
    let (none, end) = revisions(history.read(events[4].revision, 9));
    assert_eq!((none.len(), end), (0, Some(events[4].revision)));
    assert!(matches!(history.read(Revision(opened.revision().0 - 1), 9), Reading::Behind));
}

#[tokio::test]
async fn an_empty_history_is_complete_from_its_opening() {
    let history = History::new(version(5));
    let (none, end) = revisions(history.read(version(5).revision(), 9));
    assert_eq!((none.len(), end), (0, Some(version(5).revision())));
    assert!(matches!(history.read(version(4).revision(), 9), Reading::Behind));
}

#[tokio::test]
async fn over_budget_the_oldest_events_go_first() {
    let (mut history, events, opened) = filled(6).await;
    let all = history.bytes();
    assert_eq!(all, events.iter().map(|event| event_bytes(event)).sum::<u64>());
    let keep = event_bytes(&events[4]) + event_bytes(&events[5]);
    assert_eq!(history.shrink_to(keep), events[3].revision);
    assert_eq!((history.len(), history.bytes()), (2, keep));
    assert!(matches!(history.read(opened.revision(), 9), Reading::Behind));
    assert_eq!(revisions(history.read(events[3].revision, 9)).0.len(), 2);
    assert!(!history.growable(), "growing backwards must not fight the budget");
    history.shrink_to(0);
    assert_eq!((history.len(), history.bytes(), history.start()), (0, 0, events[5].revision));
    assert_eq!(revisions(history.read(events[5].revision, 9)).1, Some(events[5].revision));
}

#[tokio::test]
async fn a_floor_takes_what_lies_at_or_below() {
    let (mut history, events, _) = filled(4).await;
    history.forget_through(events[1].revision);
    assert_eq!((history.len(), history.start()), (2, events[1].revision));
    assert_eq!(revisions(history.read(events[1].revision, 9)).0.len(), 2, "a position at the floor is fine");
    assert!(matches!(history.read(events[0].revision, 9), Reading::Behind));
}

#[tokio::test]
async fn a_history_grows_backwards_without_a_seam() {
    let (mut whole, events, opened) = filled(6).await;
    let mut late = History::new(events[3].resource_version);
    late.append(Arc::clone(&events[4]));
    late.append(Arc::clone(&events[5]));
    late.prepend(events[1].revision, events[2..4].to_vec());
    late.prepend(opened.revision(), events[..2].to_vec());
    let read = |history: &History| revisions(history.read(opened.revision(), 9));
    assert_eq!(read(&late), read(&whole));
    assert_eq!(late.bytes(), whole.bytes());
    assert!(late.growable());
    whole.stop_growing();
    assert!(!whole.growable());
}

#[tokio::test]
async fn a_deletion_counts_its_second_encoding() {
    let (_, events) = events(vec![
        change(widgets(), "amber/root//a", Some(("", "1"))),
        change(widgets(), "amber/root//a", Some(("", "2"))),
        change(widgets(), "amber/root//a", None),
    ])
    .await;
    let size = events[0].current.as_ref().map_or(0, Object::size) as u64;
    let costs: Vec<_> = events.iter().map(|event| event_bytes(event) - EVENT_BYTES).collect();
    assert_eq!(costs, [0, size, 2 * size]);
}
