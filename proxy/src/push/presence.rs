//! Who was heard when: the one part of fencing that needs a clock (D32).
//!
//! A holder may be replaced when nothing was heard of it on any stream of the shard for
//! [`PushConfig::silence`], when it said goodbye, or when another claims to take over. Whom the server does
//! not listen to, because its store is slow, counts as heard. Terms themselves are the store's.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use shardcache_storage::Tenure;
use tokio::sync::watch;
use tokio::time::Instant;

use super::PushConfig;

/// The shards' holders, as far as they were heard.
#[derive(Debug)]
pub(crate) struct Presence {
    opened: Instant,
    shards: Mutex<HashMap<Box<str>, Heard>>,
}

#[derive(Debug)]
struct Heard {
    /// The term in force and its holder; streams of older ones end.
    holder: watch::Sender<Holder>,
    at: Instant,
    gone: bool,
    /// Streams of the holder that the server does not read.
    unread: usize,
    taken_over: Option<Instant>,
    streams: usize,
}

/// Who holds a shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holder {
    /// Its term.
    pub(crate) term: u64,
    /// Its name.
    pub(crate) name: Box<str>,
}

/// A stream of a holder, while it lasts.
pub(crate) struct Attached<'a> {
    presence: &'a Presence,
    shard: Box<str>,
    term: u64,
    /// Whether the server reads the stream.
    reads: bool,
    current: watch::Receiver<Holder>,
}

impl Presence {
    /// Nobody was heard yet; who holds a shard from before gets the whole time to come back.
    pub(crate) fn new() -> Self {
        Self { opened: Instant::now(), shards: Mutex::default() }
    }

    /// The term whose holder may be replaced, or how long that is still off.
    pub(crate) fn replaceable(
        &self,
        shard: &str,
        tenure: &Tenure,
        takeover: bool,
        config: &PushConfig,
    ) -> Result<u64, Duration> {
        let shards = self.shards.lock();
        let heard = shards.get(shard).filter(|heard| heard.holder.borrow().term == tenure.term);
        if heard.is_some_and(|heard| heard.gone) {
            return Ok(tenure.term);
        }
        let left = |since: Instant, time: Duration| time.saturating_sub(since.elapsed());
        let silent_in = match heard {
            Some(heard) if heard.unread > 0 => config.silence,
            heard => left(heard.map_or(self.opened, |heard| heard.at), config.silence),
        };
        let takeover_in = shards
            .get(shard)
            .and_then(|heard| heard.taken_over)
            .map_or(Duration::ZERO, |at| left(at, config.takeover_interval));
        let wait = if takeover { silent_in.min(takeover_in) } else { silent_in };
        if wait.is_zero() { Ok(tenure.term) } else { Err(wait) }
    }

    /// A stream of the holder of a term has begun.
    pub(crate) fn attach(&self, shard: &str, tenure: &Tenure, took_over: bool) -> Attached<'_> {
        let now = Instant::now();
        let term = tenure.term;
        let mut shards = self.shards.lock();
        let heard = shards.entry(shard.into()).or_insert_with(|| Heard {
            // No term yet: the first one heard since the opening may be a takeover too.
            holder: watch::Sender::default(),
            at: now,
            gone: false,
            unread: 0,
            taken_over: None,
            streams: 0,
        });
        // A stream that is late must not call an older term back.
        if term >= heard.holder.borrow().term {
            let changed = heard.holder.send_if_modified(|holder| {
                let changes = holder.term != term;
                *holder = Holder { term, name: tenure.holder.clone() };
                changes
            });
            if changed && took_over {
                heard.taken_over = Some(now);
            }
            if changed {
                heard.unread = 0;
            }
            (heard.at, heard.gone) = (now, false);
        }
        heard.streams += 1;
        let current = heard.holder.subscribe();
        Attached { presence: self, shard: shard.into(), term, reads: true, current }
    }

    /// Seconds since something was heard of the holder of a term, and its open streams.
    pub(crate) fn of(&self, shard: &str, term: u64) -> Option<(Duration, usize)> {
        let shards = self.shards.lock();
        let heard = shards.get(shard).filter(|heard| heard.holder.borrow().term == term)?;
        Some((heard.at.elapsed(), heard.streams))
    }
}

impl Attached<'_> {
    /// Something was heard.
    pub(crate) fn heard(&self) {
        self.note(|heard| heard.at = Instant::now());
    }

    /// Whether the server reads the stream from now on: what is not read cannot be heard.
    pub(crate) fn reads(&mut self, reads: bool) {
        if std::mem::replace(&mut self.reads, reads) == reads {
            return;
        }
        self.note(|heard| {
            heard.at = Instant::now();
            heard.unread = if reads { heard.unread - 1 } else { heard.unread + 1 };
        });
    }

    /// The holder goes away in order: another may follow at once.
    pub(crate) fn goodbye(&self) {
        self.note(|heard| heard.gone = true);
    }

    /// Resolves when another term is in force: whose.
    pub(crate) async fn fenced(&mut self) -> Holder {
        let term = self.term;
        let later = self.current.wait_for(|current| current.term > term).await;
        later.expect("the sender lives as long as the presence").clone()
    }

    fn note(&self, note: impl FnOnce(&mut Heard)) {
        let mut shards = self.presence.shards.lock();
        if let Some(heard) = shards.get_mut(&self.shard)
            && heard.holder.borrow().term == self.term
        {
            note(heard);
        }
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.reads(true);
        let mut shards = self.presence.shards.lock();
        if let Some(heard) = shards.get_mut(&self.shard) {
            heard.streams -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenure(term: u64) -> Tenure {
        Tenure { term, ..Tenure::default() }
    }

    fn wait(presence: &Presence, term: u64, takeover: bool) -> Result<u64, u64> {
        let config = PushConfig::default();
        presence.replaceable("amber", &tenure(term), takeover, &config).map_err(|wait| wait.as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn d32_a_holder_is_replaced_when_it_is_silent_gone_or_taken_over_from() {
        let presence = Presence::new();
        assert_eq!(wait(&presence, 1, false), Err(15), "from the opening on");
        tokio::time::advance(Duration::from_secs(10)).await;
        let first = presence.attach("amber", &tenure(1), false);
        assert_eq!(wait(&presence, 1, false), Err(15));
        tokio::time::advance(Duration::from_secs(14)).await;
        first.heard();
        tokio::time::advance(Duration::from_secs(14)).await;
        assert_eq!(wait(&presence, 1, false), Err(1));
        assert_eq!(wait(&presence, 1, true), Ok(1), "a takeover needs no silence");
        let mut second = presence.attach("amber", &tenure(2), true);
        first.heard();
        assert_eq!(wait(&presence, 2, true), Err(5), "one takeover in five seconds");
        tokio::time::advance(Duration::from_secs(4)).await;
        first.goodbye();
        assert_eq!(wait(&presence, 2, false), Err(11), "an old holder is not heard");
        second.goodbye();
        assert_eq!(wait(&presence, 2, false), Ok(2));
        let third = presence.attach("amber", &tenure(3), false);
        assert_eq!(second.fenced().await.term, 3);
        drop(first);
        assert_eq!(presence.of("amber", 3), Some((Duration::ZERO, 2)));
        drop(third);
    }

    #[tokio::test(start_paused = true)]
    async fn d32_whom_the_server_does_not_read_is_not_silent() {
        let presence = Presence::new();
        let mut first = presence.attach("amber", &tenure(1), false);
        let mut other = presence.attach("amber", &tenure(1), false);
        first.reads(false);
        first.reads(false);
        other.reads(false);
        other.reads(true);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(wait(&presence, 1, false), Err(15));
        assert_eq!(wait(&presence, 1, true), Ok(1), "a takeover needs no silence");
        first.reads(true);
        tokio::time::advance(Duration::from_secs(14)).await;
        assert_eq!(wait(&presence, 1, false), Err(1), "it is read again");
        // It ends while it is not read; and of an older term it says nothing of the next holder.
        first.reads(false);
        drop(first);
        tokio::time::advance(Duration::from_secs(15)).await;
        assert_eq!(wait(&presence, 1, false), Ok(1));
        other.reads(false);
        let mut next = presence.attach("amber", &tenure(2), false);
        next.reads(false);
        drop(other);
        tokio::time::advance(Duration::from_secs(15)).await;
        assert_eq!(wait(&presence, 2, false), Err(15));
        drop(next);
        tokio::time::advance(Duration::from_secs(15)).await;
        assert_eq!(wait(&presence, 2, false), Ok(2));
    }
}
