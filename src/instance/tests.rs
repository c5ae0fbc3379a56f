use std::sync::atomic::{AtomicUsize, Ordering};

use shardcache_storage::{MemoryStore, Opening};

use super::*;
use crate::cli::Settings;
use crate::config::Effective;

/// An instance whose store fails to open so many times, and how often that was tried.
fn failing(times: usize) -> (Instance, Arc<AtomicUsize>) {
    let tries = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&tries);
    let opener = Opener(Arc::new(move || {
        if counted.fetch_add(1, Ordering::Relaxed) < times {
            return Err(StorageError::Corrupt("so the test says".to_owned()));
        }
        Ok(MemoryStore::new(Opening::from_system()) as Arc<dyn Store>)
    }));
    let config = Effective::of(Settings::default()).expect("the defaults are legal").config;
    let config = InstanceConfig { restart: Restart::WithBackoff, opener: Some(opener), ..(&config).into() };
    (Instance::start(config), tries)
}

// Backoffs are minutes; the clock of these tests goes forward when everybody waits.
#[tokio::test(start_paused = true)]
async fn d60_a_store_that_opens_in_the_end_is_served() {
    let (instance, tries) = failing(RESTARTS_MAX - 1);
    instance.ready().await.expect("the last try succeeds");
    assert_eq!(tries.load(Ordering::Relaxed), RESTARTS_MAX);
    instance.close().await.expect("a clean end");
}

#[tokio::test(start_paused = true)]
async fn d60_after_five_failures_it_stays_failed_until_told_otherwise() {
    let (instance, tries) = failing(RESTARTS_MAX + 1);
    let failure = instance.failed().await;
    assert!(failure.to_string().contains("so the test says"), "{failure}");
    assert!(instance.ready().await.is_err());
    assert!(matches!(instance.front().phase(), Phase::Failed(_)));
    tokio::time::sleep(RESTART_WINDOW * 2).await;
    assert_eq!(tries.load(Ordering::Relaxed), RESTARTS_MAX, "it has given up");

    instance.restart();
    let mut front = instance.front().clone();
    front.wait_for(|phase| matches!(phase, Phase::Ready(_))).await;
    assert_eq!(tries.load(Ordering::Relaxed), RESTARTS_MAX + 2, "one more failure is one of five again");
    instance.ready().await.expect("the failure is over");
    instance.restart();
    tokio::time::sleep(RESTART_WINDOW).await;
    assert_eq!(tries.load(Ordering::Relaxed), RESTARTS_MAX + 2, "what works is left alone");
    instance.close().await.expect("a clean end");
}

#[tokio::test(start_paused = true)]
async fn d60_an_instance_that_stays_failed_can_be_closed() {
    let (instance, _) = failing(usize::MAX);
    let failure = instance.failed().await;
    assert_eq!(instance.close().await, Err(failure));
}
