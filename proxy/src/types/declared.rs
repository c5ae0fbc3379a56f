//! Everything that describes one type, and what each scope makes of it.
//!
//! A *cell* is a shard and a logical cluster. Definitions that are equal are counted, not repeated:
//! ten thousand workspaces with the same CRD are one variant, so that adding one more costs O(log n)
//! and a wildcard resolves to a prepared answer.

use std::sync::Arc;

use imbl::OrdMap;

use super::{TypeInfo, version};
use crate::scope::Part;

/// Shard and logical cluster.
pub(super) type Cell = (Arc<str>, Arc<str>);

/// What describes a type in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A CRD of the cell.
    Crd,
    /// Objects whose description is gone.
    Leftover,
}

/// The descriptions of one type.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    /// The configured description, which takes part under wildcards.
    config: Option<Arc<TypeInfo>>,
    /// Definitions that count everywhere, by shard.
    system: OrdMap<Arc<str>, Arc<TypeInfo>>,
    everywhere: Variants,
    /// What pushers say of it, by shard; counts where no CRD does.
    pushed: OrdMap<Arc<str>, Arc<TypeInfo>>,
    by_pushers: Variants,
    /// All others. Never a leftover where there is a definition, or a configured type.
    cells: OrdMap<Cell, (Kind, Arc<TypeInfo>)>,
    crds: usize,
    all: Variants,
    by_shard: OrdMap<Arc<str>, Variants>,
    by_cluster: OrdMap<Arc<str>, Variants>,
}

/// Distinct descriptions and how often each occurs.
#[derive(Clone, Debug, Default)]
struct Variants {
    /// In the order of the descriptions themselves, so that history does not show.
    counted: Vec<(Arc<TypeInfo>, usize)>,
    joined: Option<Arc<TypeInfo>>,
}

impl Declared {
    pub(super) fn new(config: Option<Arc<TypeInfo>>) -> Self {
        Self {
            config,
            system: OrdMap::new(),
            everywhere: Variants::default(),
            pushed: OrdMap::new(),
            by_pushers: Variants::default(),
            cells: OrdMap::new(),
            crds: 0,
            all: Variants::default(),
            by_shard: OrdMap::new(),
            by_cluster: OrdMap::new(),
        }
    }

    /// The description at a scope.
    pub(super) fn at(&self, shard: &Part, cluster: &Part) -> Option<&Arc<TypeInfo>> {
        let local = || match (shard, cluster) {
            (Part::Any, Part::Any) => self.all.joined.as_ref(),
            (Part::One(shard), Part::Any) => self.by_shard.get(shard)?.joined.as_ref(),
            (Part::Any, Part::One(cluster)) => {
                let local = self.by_cluster.get(cluster).and_then(|view| view.joined.as_ref());
                local.or(self.by_pushers.joined.as_ref())
            }
            (Part::One(shard), Part::One(cluster)) => {
                self.in_cell(&(shard.clone(), cluster.clone())).or_else(|| self.pushed.get(shard))
            }
        };
        self.everywhere.joined.as_ref().or_else(local)
    }

    /// Whether a definition or a pusher describes the type in the cell.
    pub(super) fn covers(&self, cell: &Cell) -> bool {
        self.is_everywhere()
            || self.pushed.contains_key(&cell.0)
            || matches!(self.cells.get(cell), Some((Kind::Crd, _)))
    }

    pub(super) fn is_leftover(&self, cell: &Cell) -> bool {
        matches!(self.cells.get(cell), Some((Kind::Leftover, _)))
    }

    pub(super) fn leftover_cells(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|(_, (kind, _))| *kind == Kind::Leftover).map(|(cell, _)| cell)
    }

    pub(super) fn is_everywhere(&self) -> bool {
        !self.system.is_empty()
    }

    pub(super) fn has_crds(&self) -> bool {
        self.is_everywhere() || self.crds > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.system.is_empty() && self.cells.is_empty() && self.pushed.is_empty()
    }

    /// Sets or removes the definition of a shard's system cluster.
    pub(super) fn set_system(&mut self, shard: &Arc<str>, info: Option<&Arc<TypeInfo>>) {
        let old = match info {
            Some(info) => self.system.insert(shard.clone(), info.clone()),
            None => self.system.remove(shard),
        };
        self.everywhere.replace(old.as_ref(), info);
    }

    /// How the pusher of a shard describes the type.
    pub(super) fn pushed(&self, shard: &str) -> Option<&Arc<TypeInfo>> {
        self.pushed.get(shard)
    }

    /// Whether a pusher describes the type.
    pub(super) fn has_pushers(&self) -> bool {
        !self.pushed.is_empty()
    }

    /// Sets or removes what the pusher of a shard says of the type.
    pub(super) fn set_pushed(&mut self, shard: &Arc<str>, info: Option<Arc<TypeInfo>>) {
        let info = info.map(|info| self.all.shared(info));
        let old = match &info {
            Some(info) => self.pushed.insert(shard.clone(), info.clone()),
            None => self.pushed.remove(shard),
        };
        self.by_pushers.replace(old.as_ref(), info.as_ref());
        self.count(Some(shard), None, old.as_ref(), info.as_ref());
    }

    /// Sets or removes what describes the type in one cell.
    pub(super) fn set_cell(&mut self, cell: &Cell, info: Option<(Kind, Arc<TypeInfo>)>) {
        let info = info.map(|(kind, info)| (kind, self.all.shared(info)));
        let old = match &info {
            Some(info) => self.cells.insert(cell.clone(), info.clone()),
            None => self.cells.remove(cell),
        };
        self.crds += usize::from(matches!(info, Some((Kind::Crd, _))));
        self.crds -= usize::from(matches!(old, Some((Kind::Crd, _))));
        let (old, new) = (old.map(|(_, info)| info), info.map(|(_, info)| info));
        self.count(Some(&cell.0), Some(&cell.1), old.as_ref(), new.as_ref());
    }

    /// Counts one description instead of another in the views that include it.
    fn count(
        &mut self,
        shard: Option<&Arc<str>>,
        cluster: Option<&Arc<str>>,
        old: Option<&Arc<TypeInfo>>,
        new: Option<&Arc<TypeInfo>>,
    ) {
        let base = self.config.as_ref();
        self.all.replace_above(base, old, new);
        for (views, part) in [(&mut self.by_shard, shard), (&mut self.by_cluster, cluster)] {
            let Some(part) = part else { continue };
            let mut view = views.get(part).cloned().unwrap_or_default();
            view.replace_above(base, old, new);
            if view.counted.is_empty() {
                views.remove(part);
            } else {
                views.insert(part.clone(), view);
            }
        }
    }

    fn in_cell(&self, cell: &Cell) -> Option<&Arc<TypeInfo>> {
        self.cells.get(cell).map(|(_, info)| info)
    }
}

impl Variants {
    /// The same description as is counted already, to share its memory.
    fn shared(&self, info: Arc<TypeInfo>) -> Arc<TypeInfo> {
        let place = self.counted.binary_search_by(|(counted, _)| counted.cmp(&info));
        place.map_or(info, |at| self.counted[at].0.clone())
    }

    fn replace(&mut self, old: Option<&Arc<TypeInfo>>, new: Option<&Arc<TypeInfo>>) {
        self.replace_above(None, old, new);
    }

    /// Counts one description instead of another; `base` takes part in the joined one while anything is
    /// counted.
    fn replace_above(
        &mut self,
        base: Option<&Arc<TypeInfo>>,
        old: Option<&Arc<TypeInfo>>,
        new: Option<&Arc<TypeInfo>>,
    ) {
        let added = new.is_some_and(|new| self.add(new));
        let removed = old.is_some_and(|old| self.remove(old));
        if added || removed {
            self.joined = join(self.counted.iter().map(|(info, _)| info).chain(base));
            if self.counted.is_empty() {
                self.joined = None;
            }
        }
    }

    /// Whether the description is a new variant.
    fn add(&mut self, info: &Arc<TypeInfo>) -> bool {
        match self.counted.binary_search_by(|(counted, _)| counted.cmp(info)) {
            Ok(at) => {
                self.counted[at].1 += 1;
                false
            }
            Err(at) => {
                self.counted.insert(at, (info.clone(), 1));
                true
            }
        }
    }

    /// Whether the variant is gone.
    fn remove(&mut self, info: &Arc<TypeInfo>) -> bool {
        let Ok(at) = self.counted.binary_search_by(|(counted, _)| counted.cmp(info)) else { return false };
        self.counted[at].1 -= 1;
        if self.counted[at].1 == 0 {
            self.counted.remove(at);
            return true;
        }
        false
    }
}

/// One description for several: names of the first, every version that any of them serves, every column
/// that any of them has.
fn join<'a>(mut variants: impl Iterator<Item = &'a Arc<TypeInfo>>) -> Option<Arc<TypeInfo>> {
    let first = variants.next()?;
    let mut joined = Arc::clone(first);
    for other in variants {
        if other == &joined {
            continue;
        }
        let joined = Arc::make_mut(&mut joined);
        joined.namespaced |= other.namespaced;
        for version in &other.versions {
            match joined.versions.iter_mut().find(|known| known.name == version.name) {
                Some(known) => {
                    known.selectable_fields.extend_from_slice(&version.selectable_fields);
                    known.selectable_fields.sort();
                    known.selectable_fields.dedup();
                    // No schema is better than one that is wrong for a part of the objects.
                    if known.schema != version.schema {
                        known.schema = None;
                    }
                    for column in &version.columns {
                        if !known.columns.iter().any(|other| other.name == column.name) {
                            known.columns.push(column.clone());
                        }
                    }
                }
                None => joined.versions.push(version.clone()),
            }
        }
        joined.versions.sort_by(|a, b| version::by_preference(&a.name, &b.name));
    }
    Some(joined)
}
