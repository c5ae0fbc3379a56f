//! What the source has, by its metadata alone, to compare it with what was sent.

use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use super::feed::Asked;
use super::object::Facts;
use super::pusher::Mirror;
use super::selection::Rule;
use super::source::{Source, SourceError};

/// What it takes to compare the source with what was sent.
pub(super) struct Reader {
    pub(super) source: Source,
    pub(super) rule: Rule,
    pub(super) cluster: String,
    /// One replicator compares one type at a time, however many barriers wait.
    pub(super) turns: Arc<Semaphore>,
}

impl Reader {
    /// What the source has, by a quorum read, or had at a version, and the version; `None` if it does not
    /// know any more, or has no such reads.
    pub(super) async fn mirror(&self, at: Option<u64>) -> Result<Option<(Mirror, u64)>, SourceError> {
        let mut mirror = Mirror::default();
        let mut token: Option<String> = None;
        let mut version = None;
        loop {
            let page = match self.source.metadata(at, token.as_deref()).await {
                Ok(page) => page,
                // Whoever cannot list at a version lists everything.
                Err(SourceError::Expired | SourceError::Unsupported) => return Ok(None),
                Err(error) => return Err(error),
            };
            let content = page.read()?;
            // All pages are of the first one's version.
            let first = content.version()?;
            let version = *version.get_or_insert(first);
            for item in content.items() {
                let facts = Facts::read(item)?;
                if facts.is_wanted(self.rule, &self.cluster) {
                    mirror.put(facts.place(&self.cluster), facts.uid(), facts.version()?);
                }
            }
            match content.next() {
                Some(next) => token = Some(next.to_owned()),
                None => return Ok(Some((mirror, version))),
            }
        }
    }

    /// The same by a quorum read that begins at `when`, or when it is this type's turn.
    pub(super) fn newest(self, when: Instant) -> Asked<Option<(Mirror, u64)>> {
        async move {
            sleep_until(when).await;
            let turn = self.turns.acquire().await;
            let newest = self.mirror(None).await;
            drop(turn);
            newest
        }
        .boxed()
    }
}
