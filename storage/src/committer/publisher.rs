//! What is published: the state after the last durable commit, and who is told of the next one.
//!
//! One lock makes subscribing gapless: the state is replaced and the list of subscribers is read in
//! one step, so a subscriber either finds a commit in its state or receives it. Sending happens
//! outside the lock and only on the writer's thread, so the order of commits is the order of sends.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::change::Commit;
use crate::state::State;
use crate::store::{Health, Subscription};

/// Commits a subscriber may lag behind before it holds up the writer.
const SUBSCRIBER_COMMITS: usize = 64;

#[derive(Debug)]
pub(crate) struct Publisher {
    published: Mutex<Published>,
}

#[derive(Debug)]
struct Published {
    state: State,
    health: Health,
    subscribers: Vec<mpsc::Sender<Commit>>,
}

impl Publisher {
    pub(crate) fn new(state: State) -> Self {
        Self { published: Mutex::new(Published { state, health: Health::Writable, subscribers: Vec::new() }) }
    }

    /// The state after the last published commit.
    pub(crate) fn state(&self) -> State {
        self.lock().state.clone()
    }

    pub(crate) fn health(&self) -> Health {
        self.lock().health.clone()
    }

    /// Health only ever changes on the writer's thread. A closed store stays closed.
    pub(crate) fn set_health(&self, health: Health) {
        let mut published = self.lock();
        if published.health != Health::Closed {
            published.health = health;
        }
    }

    pub(crate) fn subscribe(&self) -> Subscription {
        let (sender, commits) = mpsc::channel(SUBSCRIBER_COMMITS);
        let mut published = self.lock();
        if published.health != Health::Closed {
            published.subscribers.push(sender);
        }
        Subscription { state: published.state.clone(), commits }
    }

    /// Shows a durable commit to everybody; waits for subscribers that are behind.
    pub(crate) fn publish(&self, commit: &Commit) {
        let subscribers = {
            let mut published = self.lock();
            published.state = commit.state.clone();
            published.subscribers.clone()
        };
        let mut gone = false;
        for subscriber in subscribers {
            gone |= subscriber.blocking_send(commit.clone()).is_err();
        }
        if gone {
            self.lock().subscribers.retain(|subscriber| !subscriber.is_closed());
        }
    }

    /// Ends every subscription.
    pub(crate) fn close(&self) {
        let mut published = self.lock();
        published.health = Health::Closed;
        published.subscribers.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Published> {
        // Nothing panics while the lock is held.
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
