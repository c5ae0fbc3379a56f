//! The rules of the roster (D42): who is a member, what is awaited of it, and who waits.
//!
//! ```text
//! Seed, Expect ─► Expected ──────────────┐
//! Attach, a later Seed ─► Joining ───────┼─ a catalog is there and nothing is awaited ─► Expected for good
//! Excuse ─► Excused ─────────────────────┘
//! ```
//!
//! What is awaited is fixed by the first catalog and only shrinks: by the end of a type's first sync, and by
//! catalogs without the type. Types that come later are in no view anybody waits for. A release changes
//! nothing: what was complete once has been shown.

use std::sync::Arc;

use crate::key::{OWN_GROUP, TypeName};
use crate::push::{Cell, CellName, Pushed, Tenure, Verdict};
use crate::roster::{Awaited, Member, Role, RosterChange};
use crate::state::{Objects, State};

use super::Stage;

impl<I: FnMut(&TypeName) -> u32> Stage<'_, I> {
    /// Applies a change from outside the push protocol.
    pub(super) fn roster(&mut self, change: RosterChange) -> Pushed {
        match change {
            RosterChange::Seed { shards } => {
                self.seed(&shards);
                self.pushed("", None, Verdict::Done)
            }
            RosterChange::Expect { shard } => {
                let awaits = self.awaits(&shard);
                self.set_member(&shard, Member { role: Role::Expected, awaits });
                self.pushed(&shard, None, Verdict::Done)
            }
            RosterChange::Excuse { shard } => {
                if self.staged.state.member(&shard).is_none() {
                    return self.not_a_member(&shard);
                }
                let awaits = self.awaits(&shard);
                self.set_member(&shard, Member { role: Role::Excused, awaits });
                self.pushed(&shard, None, Verdict::Done)
            }
            RosterChange::Forget { shard } => self.forget(&shard),
        }
    }

    /// Only in a store that has seen nothing can a view not have been shown before. What the server itself
    /// has written about its roster is nothing that a view could lack.
    fn seed(&mut self, shards: &[Box<str>]) {
        let state = &self.staged.state;
        let is_shown =
            |(name, objects): (&TypeName, &Objects)| name.group() != OWN_GROUP && !objects.is_empty();
        let is_first = !state.is_seeded() && state.tenures().next().is_none() && !state.types().any(is_shown);
        for shard in shards {
            if is_first && self.staged.state.member(shard).is_none() {
                self.set_member(shard, Member { role: Role::Expected, awaits: Awaited::Catalog });
            } else {
                self.join(shard);
            }
        }
        if !self.staged.state.is_seeded() {
            self.staged.state.set_seeded();
            self.staged.touched.seeded = true;
            self.staged.touched.must_be_durable = true;
        }
    }

    fn forget(&mut self, shard: &str) -> Pushed {
        if self.staged.state.member(shard).is_none() {
            return self.not_a_member(shard);
        }
        if self.staged.state.tenure(shard).is_some() {
            let problem = format!("shard {shard} has been pushed: it can be excused, not forgotten");
            return self.pushed(shard, None, Verdict::Broken(problem.into()));
        }
        self.staged.state.remove_member(shard);
        self.touch_member(shard);
        self.pushed(shard, None, Verdict::Done)
    }

    fn not_a_member(&self, shard: &str) -> Pushed {
        self.pushed(shard, None, Verdict::Broken(format!("shard {shard} is not in the roster").into()))
    }

    /// Makes a member of a shard that is none.
    pub(super) fn join(&mut self, shard: &str) {
        if self.staged.state.member(shard).is_none() {
            let awaits = self.awaits(shard);
            self.set_member(shard, Member { role: Role::Joining, awaits });
        }
    }

    /// A catalog was sent.
    pub(super) fn catalogued(&mut self, shard: &str) {
        self.join(shard);
        let state = &self.staged.state;
        let (Some(member), Some(tenure)) = (state.member(shard), state.tenure(shard)) else { return };
        let catalog = tenure.catalog.as_deref().unwrap_or_default();
        let awaits = match &member.awaits {
            Awaited::Catalog => first_catalog(state, shard, tenure),
            Awaited::Types(types) => {
                let still = types.iter().filter(|name| catalog.binary_search(name).is_ok());
                Awaited::Types(still.cloned().collect())
            }
        };
        let role = member.role;
        self.set_member(shard, Member { role, awaits });
    }

    /// A sync of a cell has ended.
    pub(super) fn synced(&mut self, cell: &CellName) {
        let Some(member) = self.staged.state.member(cell.shard()) else { return };
        let Awaited::Types(types) = &member.awaits else { return };
        if member.awaits.includes(cell.type_name()) {
            let rest: Arc<[_]> = types.iter().filter(|name| *name != cell.type_name()).cloned().collect();
            let member = Member { role: member.role, awaits: Awaited::Types(rest) };
            self.set_member(cell.shard(), member);
        }
    }

    /// What is awaited of a shard: as the roster has it, or else as its pusher has left it, which was there
    /// before the roster.
    fn awaits(&self, shard: &str) -> Awaited {
        let state = &self.staged.state;
        match (state.member(shard), state.tenure(shard)) {
            (Some(member), _) => member.awaits.clone(),
            (None, Some(tenure)) => first_catalog(state, shard, tenure),
            (None, None) => Awaited::Catalog,
        }
    }

    fn set_member(&mut self, shard: &str, mut member: Member) {
        if member.awaits.is_nothing() {
            member.role = Role::Expected;
        }
        if self.staged.state.member(shard) != Some(&member) {
            self.staged.state.set_member(shard, member);
            self.touch_member(shard);
        }
    }

    fn touch_member(&mut self, shard: &str) {
        self.staged.touched.members.insert(shard.into());
        self.staged.touched.must_be_durable = true;
    }
}

/// What is awaited once a shard has a catalog: its types that nobody has synced.
fn first_catalog(state: &State, shard: &str, tenure: &Tenure) -> Awaited {
    let Some(catalog) = &tenure.catalog else { return Awaited::Catalog };
    let missing = |name: &&TypeName| {
        let cell = CellName::new(shard, (*name).clone());
        !state.cell(&cell).is_some_and(Cell::is_managed)
    };
    Awaited::Types(catalog.iter().filter(missing).cloned().collect())
}
