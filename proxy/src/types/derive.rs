//! Deriving the served set: from scratch at a state, or from the set before a commit.
//!
//! Pure but for log lines. Both ways end in the same function, [`Derivation::settle`], which decides
//! for one type in one cell whether leftover objects have to keep it served; so they cannot disagree.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use serde::Deserialize;
use shardcache_storage::{CellName, Commit, KeyParts, Object, Objects, PushedType, State, TypeName};

use super::declared::{Cell, Declared, Kind};
use super::{TypeInfo, Types, VersionInfo, builtin, crd, version};
use crate::scope::Part;

/// CRDs in this logical cluster, of any shard, describe types everywhere (kcp's rule).
const SYSTEM_CLUSTER: &str = "system:system-crds";

/// One derivation; copies the set it starts from only if something changes.
pub(super) struct Derivation<'a> {
    base: &'a Arc<Types>,
    state: &'a State,
    next: Option<Types>,
    /// Where a description or an undescribed object came or went.
    unsettled: BTreeSet<(TypeName, Cell)>,
}

impl<'a> Derivation<'a> {
    /// The set at a state; `fixed` has only the sources that do not change.
    pub(super) fn from_scratch(fixed: &'a Arc<Types>, state: &'a State) -> Arc<Types> {
        let mut derivation = Self::new(fixed, state);
        let crds = state.objects(&builtin::crd_type()).into_iter().flat_map(Objects::iter);
        crds.for_each(|object| derivation.read_definition(object.parts(), Some(object)));
        state.cells().for_each(|(name, _)| derivation.read_cell(name));
        for (name, objects) in state.types().filter(|(name, _)| !fixed.is_fixed(name)) {
            derivation.unsettled.extend(cells(objects).map(|cell| (name.clone(), cell)));
        }
        derivation.finish()
    }

    /// The set after a commit.
    pub(super) fn after(base: &'a Arc<Types>, commit: &'a Commit) -> Arc<Types> {
        let mut derivation = Self::new(base, &commit.state);
        commit.cells.iter().for_each(|name| derivation.read_cell(name));
        let crd_type = builtin::crd_type();
        for event in commit.events.iter() {
            let Some(key) = KeyParts::split(event.key()) else { continue };
            if event.type_name == crd_type {
                derivation.read_definition(key, event.current.as_ref());
            } else if !base.is_fixed(&event.type_name) {
                derivation.unsettled.insert((event.type_name.clone(), cell_of(key)));
            }
        }
        derivation.finish()
    }

    fn new(base: &'a Arc<Types>, state: &'a State) -> Self {
        Self { base, state, next: None, unsettled: BTreeSet::new() }
    }

    fn finish(mut self) -> Arc<Types> {
        for (name, cell) in std::mem::take(&mut self.unsettled) {
            self.settle(&name, &cell);
        }
        self.next.map_or_else(|| Arc::clone(self.base), Arc::new)
    }

    fn types(&self) -> &Types {
        self.next.as_ref().unwrap_or(self.base)
    }

    fn types_mut(&mut self) -> &mut Types {
        self.next.get_or_insert_with(|| (**self.base).clone())
    }

    /// Takes over the new state of one definition; `None` if it was deleted.
    fn read_definition(&mut self, key: KeyParts<'_>, object: Option<&Object>) {
        let parsed = object.map(|object| crd::parse(key.name, object.body_bytes())).transpose();
        let broken = parsed.as_ref().err();
        if let Some(error) = broken {
            tracing::warn!(
                shard = key.shard,
                cluster = key.cluster,
                crd = key.name,
                %error,
                "skipping a CustomResourceDefinition; other types are not concerned"
            );
        }
        let joined: Box<str> = [key.shard, key.cluster, key.name].join("\0").into();
        let types = self.types_mut();
        if broken.is_some() {
            types.broken.insert(joined, ());
        } else {
            types.broken.remove(&joined);
        }
        let Some(name) = crd::declared_type(key.name) else { return };
        let builtin = types.fixed.builtin.get(&name).cloned();
        let info = parsed.ok().flatten().and_then(|info| match &builtin {
            Some(builtin) => builtin.explained_by(&info),
            None => Some(info),
        });
        let info = info.map(Arc::new);
        let cell = cell_of(key);
        if key.cluster == SYSTEM_CLUSTER {
            self.edit(&name, |declared| declared.set_system(&cell.0, info.as_ref()));
            if builtin.is_none() {
                self.unsettle_everywhere(&name);
            }
        } else {
            self.edit(&name, |declared| declared.set_cell(&cell, info.map(|info| (Kind::Crd, info))));
            if builtin.is_none() {
                self.unsettled.insert((name, cell));
            }
        }
    }

    /// Takes over what a pusher says of its type. Built-in and configured types are described already.
    fn read_cell(&mut self, cell: &CellName) {
        let name = cell.type_name();
        if self.types().is_fixed(name) {
            return;
        }
        let info = self.state.cell(cell).map(|known| pushed_type(name, &known.described));
        let known = self.types().declared.get(name).and_then(|declared| declared.pushed(cell.shard()));
        if known.map(|known| &**known) == info.as_ref() {
            return;
        }
        let shard: Arc<str> = cell.shard().into();
        self.edit(name, |declared| declared.set_pushed(&shard, info.map(Arc::new)));
        self.unsettle_everywhere(name);
    }

    /// A description that counts everywhere came or went.
    fn unsettle_everywhere(&mut self, name: &TypeName) {
        let objects = self.state.objects(name).into_iter().flat_map(cells);
        let known = self.types().declared.get(name).cloned();
        let leftovers = known.iter().flat_map(|declared| declared.leftover_cells().cloned());
        self.unsettled.extend(objects.chain(leftovers).map(|cell| (name.clone(), cell)));
    }

    /// Keeps the type served in the cell exactly while it has objects there and nothing describes it.
    fn settle(&mut self, name: &TypeName, cell: &Cell) {
        let types = self.types();
        let declared = types.declared.get(name);
        let covered = types.is_fixed(name) || declared.is_some_and(|declared| declared.covers(cell));
        let served_as_leftover = declared.is_some_and(|declared| declared.is_leftover(cell));
        let objects = self.state.objects(name).filter(|_| !covered);
        let first = objects.and_then(|objects| in_cell(objects, cell).next());
        if let Some(first) = first {
            if !served_as_leftover {
                let info = self.last_known(name, cell).or_else(|| read_off(name, first, self.state, cell));
                let Some(info) = info else { return };
                self.edit(name, |declared| declared.set_cell(cell, Some((Kind::Leftover, info))));
            }
        } else if served_as_leftover {
            self.edit(name, |declared| declared.set_cell(cell, None));
        }
    }

    /// How the type was described in the cell before this derivation.
    fn last_known(&self, name: &TypeName, cell: &Cell) -> Option<Arc<TypeInfo>> {
        let (shard, cluster) = (Part::One(cell.0.clone()), Part::One(cell.1.clone()));
        self.base.described(name, &shard, &cluster).cloned()
    }

    fn edit(&mut self, name: &TypeName, edit: impl FnOnce(&mut Declared)) {
        let types = self.types_mut();
        let config = types.fixed.config.get(name).cloned();
        let mut declared =
            types.declared.get(name).map_or_else(|| Declared::new(config), |known| (**known).clone());
        edit(&mut declared);
        if declared.is_empty() {
            types.declared.remove(name);
        } else {
            types.declared.insert(name.clone(), Arc::new(declared));
        }
    }
}

impl Types {
    /// Whether the type is described everywhere, whatever happens in the store.
    fn is_fixed(&self, name: &TypeName) -> bool {
        self.fixed.builtin.contains_key(name) || self.fixed.config.contains_key(name)
    }
}

/// A type as a pusher describes it.
pub(crate) fn pushed_type(name: &TypeName, described: &PushedType) -> TypeInfo {
    let kind = String::from(&*described.kind);
    TypeInfo {
        name: name.clone(),
        list_kind: format!("{kind}List"),
        singular: kind.to_lowercase(),
        kind,
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: described.namespaced,
        versions: vec![VersionInfo::new(&*described.version)],
        storage_version: String::from(&*described.version),
    }
}

fn cell_of(key: KeyParts<'_>) -> Cell {
    (key.shard.into(), key.cluster.into())
}

/// The cells that have objects; O(log n) for each.
fn cells(objects: &Objects) -> impl Iterator<Item = Cell> {
    let mut next = objects.iter().next();
    std::iter::from_fn(move || {
        let cell = cell_of(next?.parts());
        // NUL separates the parts of a key: U+0001 is above every key of the cell and below the next.
        let end = format!("{}\0{}\u{1}", cell.0, cell.1);
        next = objects.range(Bound::Included(&end), Bound::Unbounded).next();
        Some(cell)
    })
}

/// The objects of one cell, in key order.
fn in_cell<'a>(objects: &'a Objects, cell: &Cell) -> impl Iterator<Item = &'a Object> + use<'a> {
    let start = format!("{}\0{}\0", cell.0, cell.1);
    let end = format!("{}\0{}\u{1}", cell.0, cell.1);
    objects.range(Bound::Included(&start), Bound::Excluded(&end))
}

/// A description read off the objects of a cell: what is left when the process that knew more is gone.
fn read_off(name: &TypeName, first: &Object, state: &State, cell: &Cell) -> Option<Arc<TypeInfo>> {
    #[derive(Deserialize)]
    struct Typed {
        kind: String,
    }
    let kind = serde_json::from_slice::<Typed>(first.body_bytes()).ok()?.kind;
    let mut versions = BTreeSet::new();
    let mut namespaced = false;
    for object in in_cell(state.objects(name)?, cell) {
        let api_version =
            std::str::from_utf8(&object.body_bytes()[object.spans().api_version.range()]).ok()?;
        versions.insert(api_version.rsplit('/').next().unwrap_or(api_version));
        namespaced |= !object.parts().namespace.is_empty();
    }
    let mut versions: Vec<VersionInfo> = versions.into_iter().map(VersionInfo::new).collect();
    versions.sort_by(|a, b| version::by_preference(&a.name, &b.name));
    Some(Arc::new(TypeInfo {
        name: name.clone(),
        list_kind: format!("{kind}List"),
        singular: kind.to_lowercase(),
        kind,
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced,
        storage_version: versions.first()?.name.clone(),
        versions,
    }))
}
