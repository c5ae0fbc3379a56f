//! The rules of pushing (D32, D34, D35), as the writer applies them: who holds a shard, where a session
//! begins, and what a frame does to its cell.
//!
//! ```text
//! Attach ─► Tenure (term)          Open ─► Session (generation, position)          Frames ─► events
//! ```

use crate::key::{Key, TypeName};
use crate::object::{Draft, Object, Source};
use crate::push::{
    Attach, Cell, CellName, Election, Frames, Op, Open, Push, Pushed, Tally, Tenure, Verdict, entry_digest,
};

use super::Stage;
use super::sessions::{Phase, Session};

/// What one frame asks for beyond itself.
pub(super) enum Step {
    /// Nothing: the next frame.
    Go,
    /// The same frame again: it has not ended.
    Again,
    /// The copy is not the source: a sync, in a new generation.
    Resync(Box<str>),
    /// The frame breaks the rules.
    Break(Box<str>),
}

impl<I: FnMut(&TypeName) -> u32> Stage<'_, I> {
    /// Applies a request of a pusher's handler, or a change of the roster. [`Pushed::version`] is the one of the last event so far.
    pub(crate) fn push(&mut self, push: Push) -> Pushed {
        match push {
            Push::Attach(attach) => self.attach(attach),
            Push::Catalog { shard, term, types } => self.catalog(&shard, term, types),
            Push::Open(open) => self.open(open),
            Push::Frames(frames) => self.frames(frames),
            Push::Close { cell, session } => {
                drop(self.sessions.take(&cell, session));
                self.pushed(cell.shard(), Some(&cell), Verdict::Done)
            }
            Push::Release { shard, type_name } => self.release(&shard, type_name.as_ref()),
            Push::Roster(change) => self.roster(change),
        }
    }

    /// D32, in its order: the same process goes on; a leader that was replaced is fenced whatever it
    /// claims; a holder that may be replaced is; else it is held.
    fn attach(&mut self, attach: Attach) -> Pushed {
        let mut tenure = self.staged.state.tenure(&attach.shard).cloned().unwrap_or_default();
        if tenure.term > 0 && tenure.instance == attach.instance {
            if newer_election(tenure.election.as_ref(), attach.election.as_ref()) {
                tenure.election = attach.election;
                self.set_tenure(&attach.shard, tenure);
            }
            self.join(&attach.shard);
            return self.pushed(&attach.shard, None, Verdict::Done);
        }
        if is_behind(attach.election.as_ref(), tenure.election.as_ref()) {
            return self.pushed(&attach.shard, None, Verdict::Fenced);
        }
        if tenure.term > 0 && attach.replaces != Some(tenure.term) {
            return self.pushed(&attach.shard, None, Verdict::Held);
        }
        let Attach { shard, holder, instance, election, .. } = attach;
        let catalog = tenure.catalog.take();
        self.set_tenure(&shard, Tenure { term: tenure.term + 1, holder, instance, election, catalog });
        self.sessions.end_shard(&shard);
        self.join(&shard);
        self.pushed(&shard, None, Verdict::Done)
    }

    fn catalog(&mut self, shard: &str, term: u64, mut types: Vec<TypeName>) -> Pushed {
        if !self.holds(shard, term) {
            return self.pushed(shard, None, Verdict::Fenced);
        }
        types.sort_unstable();
        types.dedup();
        let mut tenure = self.staged.state.tenure(shard).cloned().unwrap_or_default();
        if tenure.catalog.as_deref() != Some(&types) {
            tenure.catalog = Some(types.into());
            self.set_tenure(shard, tenure);
        }
        self.catalogued(shard);
        self.pushed(shard, None, Verdict::Done)
    }

    /// D35: whether the position still means something to the source.
    fn open(&mut self, open: Open) -> Pushed {
        let Open { cell: name, term, source, source_head, described } = open;
        if !self.holds(name.shard(), term) {
            return self.pushed(name.shard(), Some(&name), Verdict::Fenced);
        }
        let before = self.staged.state.cell(&name).cloned().unwrap_or_default();
        let mut cell = Cell { described, ..before.clone() };
        let reason = if !cell.is_managed() {
            Some("NeverSynced")
        } else if cell.source != source {
            Some("SourceChanged")
        } else if source_head < cell.position {
            Some("SourceRegressed")
        } else if !cell.cut {
            Some("SyncIncomplete")
        } else {
            None
        };
        if reason.is_some_and(|reason| reason != "SyncIncomplete") {
            cell.generation += 1;
            cell.cut = false;
            cell.source = source;
        }
        if cell != before {
            self.set_cell(&name, cell);
            self.staged.touched.must_be_durable = true;
        }
        let phase = match reason {
            Some(_) => Phase::AwaitsSync { told: false },
            None => Phase::Following,
        };
        let (session, ended) = self.sessions.begin(name.clone(), phase);
        let verdict = reason.map_or(Verdict::Done, |reason| Verdict::Resync(reason.into()));
        Pushed { session, ended: Some(ended), ..self.pushed(name.shard(), Some(&name), verdict) }
    }

    fn release(&mut self, shard: &str, type_name: Option<&TypeName>) -> Pushed {
        let released = |name: &CellName| {
            name.shard() == shard && type_name.is_none_or(|type_name| name.type_name() == type_name)
        };
        let names: Vec<_> = self.staged.state.cells().map(|(name, _)| name.clone()).collect();
        for name in names.iter().filter(|name| released(name)) {
            let mut cell = self.staged.state.cell(name).cloned().unwrap_or_default();
            cell.synced_generation = 0;
            cell.position = 0;
            cell.cut = false;
            self.set_cell(name, cell);
            self.sessions.end(name);
            self.staged.touched.must_be_durable = true;
        }
        self.withdraw(shard, type_name);
        self.pushed(shard, None, Verdict::Done)
    }

    /// Takes what was released out of the catalog: until its pusher says so again nobody waits for it, and
    /// what ordinary writers make of it is shown.
    fn withdraw(&mut self, shard: &str, type_name: Option<&TypeName>) {
        let Some(mut tenure) = self.staged.state.tenure(shard).cloned() else { return };
        let Some(catalog) = tenure.catalog.as_deref() else { return };
        let kept = catalog.iter().filter(|name| type_name.is_some_and(|released| released != *name));
        let kept: Vec<_> = kept.cloned().collect();
        if kept.len() < catalog.len() {
            tenure.catalog = Some(kept.into());
            self.set_tenure(shard, tenure);
        }
    }

    /// Applies frames until one ends the session. Who is not the holder, or not the newest session of the
    /// holder, changes nothing: this is the fence.
    fn frames(&mut self, frames: Frames) -> Pushed {
        let Frames { cell: name, term, session: number, ops, now_ms } = frames;
        if !self.holds(name.shard(), term) {
            return self.pushed(name.shard(), Some(&name), Verdict::Fenced);
        }
        let Some(session) = self.sessions.take(&name, number) else {
            return self.pushed(name.shard(), Some(&name), Verdict::Superseded);
        };
        let cell = self.staged.state.cell(&name).cloned().expect("a session is begun with its cell");
        let mut work = Work { before: cell.clone(), cell, session, tally: Tally::default(), now_ms };
        let (mut verdict, mut done) = (Verdict::Done, 0);
        for op in ops {
            match self.op(&name, &mut work, op) {
                Step::Go => {}
                Step::Again => verdict = Verdict::Sweeping,
                Step::Resync(reason) => {
                    work.cell.generation += 1;
                    work.cell.cut = false;
                    work.session.phase = Phase::AwaitsSync { told: true };
                    self.staged.touched.must_be_durable = true;
                    verdict = Verdict::Resync(reason);
                }
                Step::Break(problem) => {
                    verdict = Verdict::Broken(problem);
                    break;
                }
            }
            done += 1;
        }
        let Work { before, cell, session, tally, .. } = work;
        if cell != before {
            self.set_cell(&name, cell);
        }
        if !matches!(verdict, Verdict::Broken(_)) {
            self.sessions.put_back(&name, session);
        }
        Pushed { session: number, done, tally, ..self.pushed(name.shard(), Some(&name), verdict) }
    }

    fn op(&mut self, name: &CellName, work: &mut Work, op: Op) -> Step {
        match (&mut work.session.phase, op) {
            (_, Op::SyncStart { sync }) => self.sync_start(name, work, sync),
            (Phase::AwaitsSync { told: true }, _) => {
                work.tally.ignored += 1;
                Step::Go
            }
            (Phase::AwaitsSync { told: false }, _) => Step::Break("the cell needs a sync first".into()),
            (Phase::Syncing(_), Op::SyncEnd { sync, version, count, digest, allow_empty }) => {
                let claim = super::sync::Claim { sync, version, count, digest, allow_empty };
                self.sync_end(name, work, &claim)
            }
            (Phase::Following, Op::SyncEnd { .. }) => Step::Break("no sync has started".into()),
            // The list was compared: what is left of the sweep is nothing the source knows of.
            (Phase::Syncing(sync), Op::Progress { version, .. })
                if sync.sweeping && version >= work.cell.position =>
            {
                work.cell.position = version;
                Step::Go
            }
            (Phase::Syncing(_), Op::Progress { .. }) => {
                Step::Break("there is no progress inside a sync".into())
            }
            (Phase::Following, Op::Progress { version, count, digest }) => {
                if version < work.cell.position {
                    return Step::Resync("progress went backwards".into());
                }
                work.cell.position = version;
                if (work.cell.count, work.cell.digest) == (count, digest) {
                    Step::Go
                } else {
                    Step::Resync("count or digest differ".into())
                }
            }
            (phase, Op::Upsert { key, version, draft }) => {
                if phase.has_position() && !work.moves_to(version) {
                    return Step::Go;
                }
                self.upsert(name, work, &key, version, draft);
                Step::Go
            }
            (phase, Op::Delete { key, version, uid }) => {
                if phase.has_position() && !work.moves_to(version) {
                    return Step::Go;
                }
                self.remove(name, work, &key, version, &uid);
                Step::Go
            }
        }
    }

    fn upsert(&mut self, name: &CellName, work: &mut Work, key: &Key, version: u64, draft: Draft) {
        let current = self.staged.state.get(name.type_name(), key.as_str()).cloned();
        if let Some(current) = &current {
            let source = work.source_of(current);
            // Inside a generation versions are of one order, whatever the uid: an older list must not bring
            // an older object back.
            let newer = source.generation == work.cell.generation && source.version > version;
            let same =
                current.uid() == draft.uid() && source.version == version && draft.is_content_of(current);
            if newer || same {
                work.confirm(current);
                *(if newer { &mut work.tally.stale } else { &mut work.tally.unchanged }) += 1;
                return;
            }
            work.forget(current);
        }
        let source = Source { generation: work.cell.generation, version };
        let event = self.put(name.type_name().clone(), draft, source, current);
        let object = event.current.as_ref().expect("it was put");
        work.add(object);
        work.confirm(object);
        work.tally.put += 1;
    }

    fn remove(&mut self, name: &CellName, work: &mut Work, key: &Key, version: u64, uid: &str) {
        let current = self.staged.state.get(name.type_name(), key.as_str()).cloned();
        let overtaken = |current: &Object| {
            let source = work.source_of(current);
            current.uid() != uid || source.generation == work.cell.generation && source.version > version
        };
        match current {
            Some(current) if !overtaken(&current) => {
                work.forget(&current);
                self.delete(name.type_name(), current);
                work.tally.deleted += 1;
            }
            _ => work.tally.stale += 1,
        }
    }

    /// Whether a term is the one of the shard's holder.
    fn holds(&self, shard: &str, term: u64) -> bool {
        term > 0 && self.staged.state.tenure(shard).is_some_and(|tenure| tenure.term == term)
    }

    fn set_tenure(&mut self, shard: &str, tenure: Tenure) {
        self.staged.state.set_tenure(shard, tenure);
        self.staged.touched.tenures.insert(shard.into());
        self.staged.touched.must_be_durable = true;
    }

    fn set_cell(&mut self, name: &CellName, cell: Cell) {
        self.staged.state.set_cell(name, cell);
        self.staged.touched.cells.insert(name.clone());
    }

    pub(super) fn pushed(&self, shard: &str, cell: Option<&CellName>, verdict: Verdict) -> Pushed {
        let state = &self.staged.state;
        Pushed {
            verdict,
            tenure: state.tenure(shard).cloned().unwrap_or_default(),
            cell: cell.and_then(|cell| state.cell(cell)).cloned(),
            session: 0,
            ended: None,
            done: 0,
            tally: Tally::default(),
            version: state.resource_version(),
        }
    }

    /// Has the batch made durable though it may have no event.
    pub(super) fn must_be_durable(&mut self) {
        self.staged.touched.must_be_durable = true;
    }
}

/// A cell while frames are applied to it.
pub(super) struct Work {
    before: Cell,
    pub(super) cell: Cell,
    pub(super) session: Session,
    pub(super) tally: Tally,
    pub(super) now_ms: u64,
}

impl Work {
    /// Takes the position along with an event; `false` if the event is at or below it.
    fn moves_to(&mut self, version: u64) -> bool {
        let moves = version > self.cell.position;
        if moves {
            self.cell.position = version;
        } else {
            self.tally.duplicate += 1;
        }
        moves
    }

    /// Where a state of an object is from. The generation is at least that of the last complete sync,
    /// which has confirmed every object it left.
    fn source_of(&self, object: &Object) -> Source {
        let Source { generation, version } = object.source();
        Source { generation: generation.max(self.cell.synced_generation), version }
    }

    pub(super) fn add(&mut self, object: &Object) {
        self.cell.count += 1;
        self.cell.digest = self.cell.digest.with(entry_of(object));
    }

    pub(super) fn forget(&mut self, object: &Object) {
        self.cell.count -= 1;
        self.cell.digest = self.cell.digest.without(entry_of(object));
    }

    /// In a sync: the list has this object.
    fn confirm(&mut self, object: &Object) {
        if let Phase::Syncing(sync) = &mut self.session.phase {
            sync.seen.insert(object.revision());
        }
    }
}

pub(super) fn entry_of(object: &Object) -> crate::push::Digest {
    entry_digest(object.parts(), object.uid(), object.source().version)
}

/// Whether a claim is of an earlier term of the same election.
fn is_behind(claimed: Option<&Election>, held: Option<&Election>) -> bool {
    matches!((claimed, held), (Some(claimed), Some(held)) if claimed.uid == held.uid && claimed.term < held.term)
}

/// Whether the holder has won an election since it became the holder.
fn newer_election(held: Option<&Election>, claimed: Option<&Election>) -> bool {
    claimed.is_some() && claimed != held && !is_behind(claimed, held)
}
