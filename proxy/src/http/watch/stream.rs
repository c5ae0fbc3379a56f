//! The life of an admitted watch: initial events, then events and bookmarks until one of its ends.
//!
//! Owns the watcher and one timer. Receives from the cache through the watcher; sends frames to the
//! connection that polls the body. Stops at its deadline, at a drain, when history is gone, or when the
//! client goes away (then the body, and this with it, is dropped where it stands).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use shardcache_storage::{ResourceVersion, StorageError, TypeName};
use tokio::time::{Instant, sleep, sleep_until};

use super::line;
use crate::body::{BodyError, Sink, Weave};
use crate::cache::{Delivery, WatchStep, Watcher};
use crate::freshness::report;
use crate::http::items::{Collection, Items};
use crate::http::limits::Share;
use crate::metrics::labels::{Class, Reason};
use crate::represent::{Annotation, Form};
use crate::scope::Scope;
use crate::service::Api;
use crate::status::ApiError;
use crate::types::is_shardviews;

/// Streams with initial events of more objects than this are walked instead of picked.
const PICKED_MAX: usize = 1_000;
/// When a bookmark that is due is tried again, while its watcher is in the middle of something.
const BOOKMARK_RETRY: Duration = Duration::from_millis(50);
/// Clients told to leave come back at once: this many of them per millisecond.
const DRAINED_PER_MS: usize = 1;
/// Longest delay of a stream's end in a drain.
const DRAIN_SPREAD_MAX: Duration = Duration::from_secs(5);

/// Annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What precedes the live events.
pub(super) struct Initial {
    /// Sent as ADDED in key order.
    pub(super) collection: Arc<Collection>,
    /// Version of the bookmark that ends the initial events, if one does.
    pub(super) end_bookmark: Option<ResourceVersion>,
}

/// An admitted watch.
pub(super) struct Stream {
    watcher: Watcher,
    type_name: TypeName,
    scope: Scope,
    form: Form,
    /// When the next bookmark is due; `None` if there are none, or no more.
    bookmark_at: Option<Instant>,
    /// When the last bookmark is due.
    last_bookmark_at: Instant,
    bookmarks: bool,
    deadline: Instant,
    ended: Ended,
}

/// Why the stream ended, reported when it is dropped.
struct Ended {
    api: Arc<Api>,
    reason: Reason,
    _share: Share,
}

impl Stream {
    pub(super) fn new(
        api: Arc<Api>,
        watcher: Watcher,
        (type_name, scope): (TypeName, Scope),
        form: Form,
        bookmarks: bool,
        lifetime: Duration,
        share: Share,
    ) -> Self {
        api.metrics.http.in_flight.get_or_create(&Class::Watch.into()).inc();
        let deadline = Instant::now() + lifetime;
        let before = api.config.bookmark_before_deadline.min(lifetime / 2);
        let mut stream = Self {
            watcher,
            type_name,
            scope,
            form,
            bookmark_at: None,
            last_bookmark_at: deadline - before,
            bookmarks,
            deadline,
            ended: Ended { api, reason: Reason::Client, _share: share },
        };
        stream.schedule_bookmark();
        stream
    }

    /// Produces the body.
    pub(super) async fn run(mut self, initial: Option<Initial>, mut sink: Sink) -> Result<(), BodyError> {
        if let Some(initial) = initial
            && !self.send_initial(initial, &mut sink).await
        {
            return Ok(());
        }
        let mut timer = pin!(sleep_until(self.next_due()));
        loop {
            // The timer goes first, or a busy stream would outlive its deadline.
            let step = tokio::select! {
                biased;
                () = &mut timer => None,
                step = self.watcher.next() => Some(step),
            };
            match step {
                Some(WatchStep::Events(events)) => self.send_events(&events, &mut sink).await,
                Some(WatchStep::Expired) => {
                    self.fail(Reason::Expired, &ApiError::watch_expired(), &mut sink).await;
                    return Ok(());
                }
                // A store that closed while the stream was reading its log: an ERROR would make clients list
                // again, a clean end lets them go on from their last version after the restart.
                Some(WatchStep::Draining | WatchStep::Failed(StorageError::Closed)) => {
                    self.leave(&mut sink).await;
                    return Ok(());
                }
                Some(WatchStep::Failed(error)) => {
                    self.fail(Reason::Error, &ApiError::internal(error), &mut sink).await;
                    return Ok(());
                }
                None => {
                    if Instant::now() >= self.deadline {
                        self.ended.reason = Reason::Timeout;
                        return Ok(());
                    }
                    self.send_bookmark(&mut sink).await;
                    timer.as_mut().reset(self.next_due());
                }
            }
        }
    }

    /// Sends the initial events and their end. `false` if the deadline came first.
    async fn send_initial(&mut self, initial: Initial, sink: &mut Sink) -> bool {
        let Initial { collection, end_bookmark } = initial;
        let walked = !collection.filter.has_selectors() && collection.candidates() > PICKED_MAX;
        let mut items = if walked {
            Items::Walked { collection, after: None }
        } else {
            match collection.pick(None, usize::MAX).await {
                Ok(objects) => Items::Picked(objects.into_iter()),
                Err(error) => {
                    self.fail(Reason::Error, &error, sink).await;
                    return false;
                }
            }
        };
        let mut annotations = match end_bookmark {
            Some(version) => self.annotations(version),
            None => vec![],
        };
        let mut more = true;
        while more {
            let mut weave = Weave::new();
            let (form, mut sent) = (&mut self.form, 0);
            more = items.portion(|object, _| {
                line::added(&mut weave, form, object);
                sent += 1;
                !weave.is_full()
            });
            self.ended.api.metrics.watch.events.inc_by(sent);
            if !more && let Some(version) = end_bookmark {
                annotations.push((INITIAL_EVENTS_END, "true".into()));
                line::bookmark(&mut weave, form, version, &annotations);
                self.ended.api.metrics.watch.bookmarks.inc();
                self.schedule_bookmark();
            }
            sink.send(weave.take()).await;
            if Instant::now() >= self.deadline {
                self.ended.reason = Reason::Timeout;
                return false;
            }
        }
        true
    }

    async fn send_events(&mut self, events: &[Delivery], sink: &mut Sink) {
        let mut weave = Weave::default();
        for delivery in events {
            if weave.is_full() {
                sink.send(weave.take()).await;
            }
            line::event(&mut weave, &mut self.form, delivery);
        }
        self.ended.api.metrics.watch.events.inc_by(events.len() as u64);
        sink.send(weave.take()).await;
    }

    async fn send_bookmark(&mut self, sink: &mut Sink) {
        let Some(version) = self.watcher.bookmark() else {
            // Events are on their way, and say as much until then.
            self.bookmark_at = Some(Instant::now() + BOOKMARK_RETRY);
            return;
        };
        self.ended.api.metrics.watch.bookmarks.inc();
        self.schedule_bookmark();
        let mut weave = Weave::default();
        let annotations = self.annotations(version);
        line::bookmark(&mut weave, &mut self.form, version, &annotations);
        sink.send(weave.take()).await;
    }

    /// What a bookmark at a version says of the view that a watcher has who has seen everything up to it.
    fn annotations(&self, version: ResourceVersion) -> Vec<Annotation> {
        let api = &self.ended.api;
        if is_shardviews(&self.type_name) {
            return vec![];
        }
        let view = api.views.of(&api.cache, &api.freshness, &self.type_name, &self.scope);
        // What has become complete later is not complete at this version.
        if view.version > version { vec![] } else { report::annotations(&view, api.freshness.now()) }
    }

    /// Says what went wrong; the stream ends after it (R3).
    async fn fail(&mut self, reason: Reason, error: &ApiError, sink: &mut Sink) {
        self.ended.reason = reason;
        sink.send(line::error(error).into()).await;
    }

    /// The end of a stream that the server closes on its way out: the client resumes elsewhere.
    async fn leave(&mut self, sink: &mut Sink) {
        self.ended.reason = Reason::Drain;
        if self.bookmarks {
            self.send_bookmark(sink).await;
        }
        sleep(self.drain_delay()).await;
    }

    /// A random part of the time over which the open watches are spread.
    fn drain_delay(&self) -> Duration {
        let open = self.ended.api.limits.watches.used();
        let spread = Duration::from_millis((open / DRAINED_PER_MS) as u64).min(DRAIN_SPREAD_MAX);
        spread.mul_f64(rand::random_range(0.0..1.0))
    }

    /// Jitter only ever shortens the interval: clients count on hearing something within it (R8).
    fn schedule_bookmark(&mut self) {
        let now = Instant::now();
        if !self.bookmarks || now >= self.last_bookmark_at {
            self.bookmark_at = None;
            return;
        }
        let interval = self.ended.api.config.bookmark_interval.mul_f64(rand::random_range(0.9..1.0));
        self.bookmark_at = Some((now + interval).min(self.last_bookmark_at));
    }

    fn next_due(&self) -> Instant {
        self.bookmark_at.map_or(self.deadline, |at| at.min(self.deadline))
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let metrics = &self.api.metrics;
        metrics.http.in_flight.get_or_create(&Class::Watch.into()).dec();
        metrics.watch.terminations.get_or_create(&self.reason.into()).inc();
    }
}
