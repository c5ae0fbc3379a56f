use super::super::testing::*;
use super::*;

const LIMITS: Limits = Limits { count: 3, age: Duration::from_mins(5), bytes: 1000 };

/// Snapshots of consecutive commits.
async fn snapshots(count: usize) -> Vec<Arc<Snapshot>> {
    let mut world = World::new();
    let mut snapshots = Vec::new();
    for n in 0..count {
        world.put("amber/root//a", "", &n.to_string()).await;
        snapshots.push(world.cache.snapshot());
    }
    snapshots
}

fn contents(retained: &mut Retained, snapshot: &Snapshot) -> Option<Vec<String>> {
    let objects = retained.objects(&widgets(), snapshot.state.head(), Instant::now())?;
    Some(objects.iter().map(content).collect())
}

#[tokio::test]
async fn a_kept_snapshot_is_found_by_its_revision() {
    let (mut retained, kept) = (Retained::new(LIMITS), snapshots(2).await);
    retained.keep(&kept[0], Instant::now());
    assert_eq!(contents(&mut retained, &kept[0]), Some(vec!["0".to_owned()]));
    assert_eq!(contents(&mut retained, &kept[1]), None);
    let other = retained.objects(&gadgets(), kept[0].state.head(), Instant::now());
    assert!(other.is_some_and(|objects| objects.is_empty()), "a type without objects is known to be empty");
}

#[tokio::test]
async fn the_count_is_bounded_and_use_keeps_alive() {
    let (mut retained, kept) = (Retained::new(LIMITS), snapshots(4).await);
    for snapshot in &kept[..3] {
        retained.keep(snapshot, Instant::now());
    }
    assert!(contents(&mut retained, &kept[0]).is_some());
    retained.keep(&kept[3], Instant::now());
    assert_eq!(retained.len(), 3);
    assert_eq!(contents(&mut retained, &kept[1]), None, "the one not used for longest went");
    retained.keep(&kept[3], Instant::now());
    assert_eq!(retained.len(), 3, "keeping twice is keeping once");
}

#[tokio::test]
async fn age_counts_from_the_last_use() {
    let (mut retained, kept) = (Retained::new(LIMITS), snapshots(2).await);
    let start = Instant::now();
    let after = |minutes| start + Duration::from_mins(minutes);
    retained.keep(&kept[0], start);
    retained.keep(&kept[1], start);
    assert!(retained.objects(&widgets(), kept[1].state.head(), after(4)).is_some());
    retained.superseded(0, after(6));
    assert_eq!(retained.len(), 1);
    assert!(retained.objects(&widgets(), kept[1].state.head(), after(6)).is_some());
    retained.superseded(0, after(12));
    assert_eq!((retained.len(), retained.bytes()), (0, 0));
}

#[tokio::test]
async fn bytes_superseded_since_the_oldest_are_bounded() {
    let (mut retained, kept) = (Retained::new(LIMITS), snapshots(2).await);
    retained.superseded(5000, Instant::now());
    retained.keep(&kept[0], Instant::now());
    assert_eq!(retained.bytes(), 0, "what was superseded earlier is not in the snapshot");
    retained.superseded(600, Instant::now());
    retained.keep(&kept[1], Instant::now());
    retained.superseded(400, Instant::now());
    assert_eq!((retained.len(), retained.bytes()), (2, 1000));
    retained.superseded(1, Instant::now());
    assert_eq!((retained.len(), retained.bytes()), (1, 401));
    retained.keep_objects(&widgets(), Revision(7), Objects::default(), 900, Instant::now());
    assert_eq!((retained.len(), retained.bytes()), (2, 900));
    assert!(retained.objects(&widgets(), Revision(7), Instant::now()).is_some());
    assert!(retained.objects(&gadgets(), Revision(7), Instant::now()).is_none(), "of one type only");
    retained.superseded(101, Instant::now());
    assert_eq!((retained.len(), retained.bytes()), (1, 502));
}
