//! A simulated pusher: its copy of the source, and the frames it has sent that have not arrived.

use std::collections::VecDeque;

use shardcache_storage::{Attach, Cell, Election, Op, Open, Pushed, PushedType, Verdict};

use crate::SHARD;
use crate::source::{Source, Things, sum, upsert};
use crate::world::main_cell;

/// Frames that were on their way when their connection was cut: they may still arrive.
#[derive(Clone)]
pub(crate) struct Leftover {
    pub(crate) term: u64,
    pub(crate) session: u64,
    pub(crate) ops: Vec<Op>,
}

/// One of the processes that want to push.
pub(crate) struct Pusher {
    name: usize,
    /// Rises when the process is replaced.
    process: usize,
    pub(crate) election: Option<Election>,
    /// The term it was last welcomed in, for its control stream; 0 before that.
    pub(crate) term: u64,
    pub(crate) link: Option<Link>,
    pub(crate) leftovers: Vec<Leftover>,
}

/// A session as its pusher knows it.
pub(crate) struct Link {
    pub(crate) term: u64,
    pub(crate) session: u64,
    timeline: usize,
    pub(crate) needs_sync: bool,
    mirror: Things,
    /// Source version up to which everything was sent.
    followed: u64,
    syncs: u64,
    pub(crate) queue: VecDeque<Op>,
}

impl Pusher {
    pub(crate) fn new(name: usize) -> Self {
        Self { name, process: 0, election: None, term: 0, link: None, leftovers: Vec::new() }
    }

    pub(crate) fn holder(&self) -> String {
        format!("pusher-{}", self.name)
    }

    pub(crate) fn attach(&self, replaces: Option<u64>) -> Attach {
        Attach {
            shard: SHARD.into(),
            holder: self.holder().into(),
            instance: format!("process-{}-{}", self.name, self.process).into(),
            election: self.election.clone(),
            replaces,
        }
    }

    /// Another process takes this one's place.
    pub(crate) fn replace_process(&mut self) {
        self.cut();
        self.process += 1;
        self.term = 0;
    }

    pub(crate) fn open(source: &Source, term: u64) -> Open {
        Open {
            cell: main_cell(),
            term,
            source: source.now.id.as_str().into(),
            source_head: source.now.head,
            described: PushedType { version: "v1".into(), kind: "Cowboy".into(), namespaced: true },
        }
    }

    /// Learns how its session began: makes its copy of the source as of the position, if there is one,
    /// and compares (D36: the source may have been restored and gone on).
    pub(crate) fn welcome(&mut self, source: &Source, pushed: &Pushed) {
        let cell = pushed.cell.clone().expect("a session has a cell");
        let Cell { position, count, digest, .. } = cell;
        let mirror = source.now.at(position);
        let follows = pushed.verdict == Verdict::Done;
        self.link = Some(Link {
            term: pushed.tenure.term,
            session: pushed.session,
            timeline: source.timeline(),
            needs_sync: !follows || sum(&mirror) != (count, digest),
            mirror,
            followed: position,
            syncs: 0,
            queue: VecDeque::new(),
        });
    }

    /// The connection is cut; what was on its way may still arrive.
    pub(crate) fn cut(&mut self) {
        if let Some(Link { term, session, queue, .. }) = self.link.take() {
            self.leftovers.push(Leftover { term, session, ops: queue.into() });
        }
    }

    /// The link, if its view of the source still holds; a restored source is noticed by a broken watch.
    fn linked(&mut self, source: &Source) -> Option<&mut Link> {
        if self.link.as_ref().is_some_and(|link| link.timeline != source.timeline()) {
            self.cut();
        }
        self.link.as_mut()
    }

    /// Sends a complete list.
    pub(crate) fn list(&mut self, source: &Source) {
        let Some(link) = self.linked(source) else { return };
        let things = source.now.now();
        link.syncs += 1;
        link.queue.push_back(Op::SyncStart { sync: link.syncs });
        link.queue.extend(things.iter().map(|(name, thing)| upsert(name, thing)));
        let (count, digest) = sum(&things);
        link.queue.push_back(Op::SyncEnd {
            sync: link.syncs,
            version: source.now.head,
            count,
            digest,
            allow_empty: things.is_empty(),
        });
        link.needs_sync = false;
        link.mirror = things;
        link.followed = source.now.head;
    }

    /// Sends what happened next, at most `events` of it.
    pub(crate) fn follow(&mut self, source: &Source, events: usize) {
        let Some(link) = self.linked(source).filter(|link| !link.needs_sync) else { return };
        let followed = link.followed;
        let next = source.now.log.iter().filter(|happening| happening.version > followed);
        for happening in next.take(events) {
            link.queue.push_back(happening.op());
            link.followed = happening.version;
        }
        link.mirror = source.now.at(link.followed);
    }

    /// Says how far it has come.
    pub(crate) fn progress(&mut self, source: &Source) {
        let Some(link) = self.linked(source).filter(|link| !link.needs_sync) else { return };
        if source.now.log.last().is_none_or(|last| last.version <= link.followed) {
            link.followed = source.now.head;
        }
        let (count, digest) = sum(&link.mirror);
        link.queue.push_back(Op::Progress { version: link.followed, count, digest });
    }
}
