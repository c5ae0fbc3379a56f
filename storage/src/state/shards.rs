//! A shard's part of a state, and which shards' parts differ between two states.
//!
//! For who follows states and not commits: what is shared between two states is not looked at, so that
//! comparing neighbours costs what has changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::ordmap::DiffItem;

use super::State;
use crate::key::TypeName;
use crate::push::{Cell, CellName};

impl State {
    /// The cells of one shard, by type.
    pub fn cells_of(&self, shard: &str) -> impl Iterator<Item = (&CellName, &Cell)> {
        let first = CellName::new(shard, TypeName::new("", ""));
        let cells = self.cells.range(first..).map(|(name, cell)| (name, &**cell));
        cells.take_while(move |(name, _)| name.shard() == shard)
    }

    /// Shards that differ from an earlier state in their place in the roster, who writes for them, or a cell
    /// in more than how far it has come. Every member, if the roster was seeded in between.
    pub fn shards_changed_since(&self, earlier: &Self) -> BTreeSet<Box<str>> {
        let mut changed = BTreeSet::new();
        for item in earlier.cells.diff(&self.cells) {
            match item {
                DiffItem::Update { old: (_, old), new: (_, new) } if stands_as(old, new) => {}
                DiffItem::Add(name, _)
                | DiffItem::Remove(name, _)
                | DiffItem::Update { new: (name, _), .. } => {
                    if !changed.contains(name.shard()) {
                        changed.insert(Box::from(name.shard()));
                    }
                }
            }
        }
        changed.extend(earlier.tenures.diff(&self.tenures).map(|item| key_of(&item)));
        changed.extend(earlier.roster.diff(&self.roster).map(|item| key_of(&item)));
        if earlier.seeded != self.seeded {
            changed.extend(self.roster.keys().cloned());
        }
        changed
    }
}

/// Whether two states of a cell differ in positions and counts only.
fn stands_as(one: &Cell, other: &Cell) -> bool {
    (one.generation, one.cut, one.synced_generation) == (other.generation, other.cut, other.synced_generation)
}

fn key_of<V>(item: &DiffItem<'_, '_, Box<str>, Arc<V>>) -> Box<str> {
    match item {
        DiffItem::Add(shard, _) | DiffItem::Remove(shard, _) | DiffItem::Update { new: (shard, _), .. } => {
            (*shard).clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push::Tenure;
    use crate::resource_version::{ResourceVersion, Revision, Tag};
    use crate::roster::{Awaited, Member, Role};

    fn state() -> State {
        State::empty(ResourceVersion::new(Revision(1), Tag::new(1).expect("in range")))
    }

    fn name(shard: &str, resource: &str) -> CellName {
        CellName::new(shard, TypeName::new("example.io", resource))
    }

    fn changed(before: &State, after: &State) -> Vec<String> {
        after.shards_changed_since(before).into_iter().map(String::from).collect()
    }

    #[test]
    fn a_shards_cells_are_its_own_only() {
        let mut state = state();
        for shard in ["amber", "amber-2", "amb", "beryl"] {
            for resource in ["widgets", "gadgets"] {
                state.set_cell(&name(shard, resource), Cell::default());
            }
        }
        let cells: Vec<_> = state.cells_of("amber").map(|(cell, _)| cell.clone()).collect();
        assert_eq!(cells, [name("amber", "gadgets"), name("amber", "widgets")]);
        assert_eq!(state.cells_of("ambe").count(), 0);
        assert_eq!(state.cells_of("zircon").count(), 0);
    }

    #[test]
    fn progress_changes_no_shard_and_everything_else_does() {
        let mut before = state();
        for shard in ["amber", "beryl", "citrine"] {
            before.set_cell(&name(shard, "widgets"), Cell { generation: 1, ..Cell::default() });
        }
        let mut after = before.clone();
        let moved = Cell { generation: 1, position: 7, count: 3, ..Cell::default() };
        after.set_cell(&name("amber", "widgets"), moved.clone());
        assert_eq!(changed(&before, &after), Vec::<String>::new());

        let cells: [fn(&mut Cell); 3] =
            [|cell| cell.generation = 2, |cell| cell.cut = true, |cell| cell.synced_generation = 1];
        for change in cells {
            let (mut after, mut cell) = (after.clone(), moved.clone());
            change(&mut cell);
            after.set_cell(&name("amber", "widgets"), cell);
            assert_eq!(changed(&before, &after), ["amber"]);
        }
        after.set_cell(&name("beryl", "gadgets"), Cell::default());
        after.set_tenure("citrine", Tenure { term: 1, ..Tenure::default() });
        let member = Member { role: Role::Joining, awaits: Awaited::Catalog };
        after.set_member("diamond", member.clone());
        assert_eq!(changed(&before, &after), ["beryl", "citrine", "diamond"]);
        assert_eq!(changed(&after, &before), ["beryl", "citrine", "diamond"], "what has gone counts as well");

        let mut seeded = after.clone();
        seeded.set_seeded();
        assert_eq!(changed(&after, &seeded), ["diamond"], "for all members");
    }
}
