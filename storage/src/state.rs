//! The fold of the log at one commit boundary: every live object, by type and key.
//!
//! A [`State`] is a persistent (copy-on-write) structure: cloning one is O(number of types touched
//! since) and readers keep theirs as long as they like. The writer owns one and publishes a clone
//! with each commit, so the truth the writer checks guards against and the snapshots that readers
//! scan share their memory.

mod shards;

use std::ops::Bound;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::key::TypeName;
use crate::object::{Object, RecordError};
use crate::push::{Cell, CellName, Tenure};
use crate::resource_version::{ResourceVersion, Revision};
use crate::roster::Member;

/// Every live object of a store at one revision, and how far pushers have brought it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct State {
    head: ResourceVersion,
    types: OrdMap<TypeName, Objects>,
    cells: OrdMap<CellName, Arc<Cell>>,
    tenures: OrdMap<Box<str>, Arc<Tenure>>,
    roster: OrdMap<Box<str>, Arc<Member>>,
    /// The members that keep some view from being shown.
    gating: OrdMap<Box<str>, Arc<Member>>,
    seeded: bool,
}

/// The live objects of one type, in key order, and how far back the type's history reaches.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    set: OrdSet<Object>,
    sizes: Sizes,
    floor: Revision,
}

/// Sums over the bodies of some objects, in bytes: what tells how long a list of them is, in whichever
/// version or shape, without looking at each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// The bodies.
    pub bodies: u64,
    /// The values of `apiVersion` in them, quotes excluded.
    pub api_versions: u64,
    /// `metadata` in them, braces included.
    pub metadata: u64,
}

impl Sizes {
    pub(crate) fn add(&mut self, object: &Object) {
        let spans = object.spans();
        self.bodies += object.body_bytes().len() as u64;
        self.api_versions += u64::from(spans.api_version.len);
        self.metadata += u64::from(spans.metadata.len);
    }

    fn subtract(&mut self, object: &Object) {
        let spans = object.spans();
        self.bodies -= object.body_bytes().len() as u64;
        self.api_versions -= u64::from(spans.api_version.len);
        self.metadata -= u64::from(spans.metadata.len);
    }
}

impl State {
    /// No objects, at `head`.
    pub fn empty(head: ResourceVersion) -> Self {
        Self {
            head,
            types: OrdMap::new(),
            cells: OrdMap::new(),
            tenures: OrdMap::new(),
            roster: OrdMap::new(),
            gating: OrdMap::new(),
            seeded: false,
        }
    }

    /// The last revision the state contains.
    pub fn head(&self) -> Revision {
        self.head.revision()
    }

    /// The version of the state, as clients see it on lists and bookmarks.
    pub fn resource_version(&self) -> ResourceVersion {
        self.head
    }

    /// The objects of a type; `None` if it never had any.
    pub fn objects(&self, type_name: &TypeName) -> Option<&Objects> {
        self.types.get(type_name)
    }

    /// Every type that has or had objects, in name order.
    pub fn types(&self) -> impl Iterator<Item = (&TypeName, &Objects)> {
        self.types.iter()
    }

    /// One object.
    pub fn get(&self, type_name: &TypeName, key: &str) -> Option<&Object> {
        self.types.get(type_name)?.get(key)
    }

    /// Oldest revision a watch of the type can start after ([`Revision::ZERO`]: nothing was compacted).
    pub fn floor(&self, type_name: &TypeName) -> Revision {
        self.types.get(type_name).map_or(Revision::ZERO, |objects| objects.floor)
    }

    /// Objects of all types.
    pub fn len(&self) -> usize {
        self.types.iter().map(|(_, objects)| objects.len()).sum()
    }

    /// Whether there is no object at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Encoded bytes of all objects of all types.
    pub fn body_bytes(&self) -> u64 {
        self.types.iter().map(|(_, objects)| objects.body_bytes()).sum()
    }

    /// What is known of a cell; `None` if nobody ever pushed it.
    pub fn cell(&self, name: &CellName) -> Option<&Cell> {
        self.cells.get(name).map(|cell| &**cell)
    }

    /// Every cell that somebody pushes or pushed, by shard and type.
    pub fn cells(&self) -> impl Iterator<Item = (&CellName, &Cell)> {
        self.cells.iter().map(|(name, cell)| (name, &**cell))
    }

    /// Whether there is a cell that somebody pushes or pushed.
    pub fn has_cells(&self) -> bool {
        !self.cells.is_empty()
    }

    /// Who writes for a shard; `None` if nobody ever pushed.
    pub fn tenure(&self, shard: &str) -> Option<&Tenure> {
        self.tenures.get(shard).map(|tenure| &**tenure)
    }

    /// Every shard that somebody pushes or pushed, by name.
    pub fn tenures(&self) -> impl Iterator<Item = (&str, &Tenure)> {
        self.tenures.iter().map(|(shard, tenure)| (&**shard, &**tenure))
    }

    /// A shard's place in the roster; `None` if it has none: nobody has named it, and it never pushed.
    pub fn member(&self, shard: &str) -> Option<&Member> {
        self.roster.get(shard).map(|member| &**member)
    }

    /// Every member of the roster, by name.
    pub fn roster(&self) -> impl Iterator<Item = (&str, &Member)> {
        self.roster.iter().map(|(shard, member)| (&**shard, &**member))
    }

    /// Whether somebody outside the store has said in this lineage which shards ought to exist.
    pub fn is_seeded(&self) -> bool {
        self.seeded
    }

    /// Expected shards that keep a view of the type over all shards from being shown, by name; none: it may
    /// be shown. O(1) if nothing of any type is awaited.
    pub fn awaited(&self, type_name: &TypeName) -> impl Iterator<Item = &str> {
        let gating = self.gating.iter().map(|(shard, member)| (&**shard, member));
        gating.filter(|(_, member)| member.awaits.includes(type_name)).map(|(shard, _)| shard)
    }

    pub(crate) fn set_cell(&mut self, name: &CellName, cell: Cell) {
        self.cells.insert(name.clone(), Arc::new(cell));
    }

    pub(crate) fn set_tenure(&mut self, shard: &str, tenure: Tenure) {
        self.tenures.insert(shard.into(), Arc::new(tenure));
    }

    /// Puts what a file says of pushers in place of everything known.
    pub(crate) fn load_push(&mut self, cells: Vec<(CellName, Cell)>, tenures: Vec<(Box<str>, Tenure)>) {
        self.cells = cells.into_iter().map(|(name, cell)| (name, Arc::new(cell))).collect();
        self.tenures = tenures.into_iter().map(|(shard, tenure)| (shard, Arc::new(tenure))).collect();
    }

    pub(crate) fn set_member(&mut self, shard: &str, member: Member) {
        let (shard, member) = (Box::<str>::from(shard), Arc::new(member));
        if member.gates() {
            self.gating.insert(shard.clone(), Arc::clone(&member));
        } else {
            self.gating.remove(&shard);
        }
        self.roster.insert(shard, member);
    }

    pub(crate) fn remove_member(&mut self, shard: &str) {
        self.gating.remove(shard);
        self.roster.remove(shard);
    }

    pub(crate) fn set_seeded(&mut self) {
        self.seeded = true;
    }

    /// Puts what a file says of the roster in place of everything known.
    pub(crate) fn load_roster(&mut self, members: Vec<(Box<str>, Member)>, seeded: bool) {
        (self.roster, self.gating, self.seeded) = (OrdMap::new(), OrdMap::new(), seeded);
        for (shard, member) in members {
            self.set_member(&shard, member);
        }
    }

    pub(crate) fn set_head(&mut self, head: ResourceVersion) {
        self.head = head;
    }

    pub(crate) fn set_floor(&mut self, type_name: &TypeName, floor: Revision) {
        let objects = self.types.entry(type_name.clone()).or_default();
        objects.floor = objects.floor.max(floor);
    }

    /// Adds the objects of a type, in key order, with the sums over them; used once, at load. Two of one
    /// key are an error: only one of them can be the newest.
    pub(crate) fn load(
        &mut self,
        type_name: TypeName,
        sizes: Sizes,
        objects: impl IntoIterator<Item = Object>,
    ) -> Result<(), RecordError> {
        let loaded = self.types.entry(type_name).or_default();
        loaded.sizes = sizes;
        for object in objects {
            if loaded.set.insert(object).is_some() {
                return Err(RecordError::Damaged("two states of one object count as the newest"));
            }
        }
        Ok(())
    }

    pub(crate) fn insert(&mut self, type_name: &TypeName, object: Object) -> Option<Object> {
        self.types.entry(type_name.clone()).or_default().insert(object)
    }

    pub(crate) fn remove(&mut self, type_name: &TypeName, key: &str) -> Option<Object> {
        self.types.get_mut(type_name)?.remove(key)
    }
}

impl Objects {
    /// Number of objects.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// Whether the type has no objects.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Sum of the encoded bodies, in bytes.
    pub fn body_bytes(&self) -> u64 {
        self.sizes.bodies
    }

    /// Sums over the bodies.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Oldest revision a watch of the type can start after.
    pub fn floor(&self) -> Revision {
        self.floor
    }

    /// One object by its joined key.
    pub fn get(&self, key: &str) -> Option<&Object> {
        self.set.get(key.as_bytes())
    }

    /// All objects in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Object> {
        self.set.iter()
    }

    /// The objects whose joined keys lie between the bounds, in key order; O(log n) to begin.
    pub fn range<'a>(
        &'a self,
        from: Bound<&str>,
        to: Bound<&str>,
    ) -> impl DoubleEndedIterator<Item = &'a Object> + use<'a> {
        self.set.range::<_, [u8]>((from.map(str::as_bytes), to.map(str::as_bytes)))
    }

    /// Puts a state in place of whatever has its key. Also used to build the state at an earlier
    /// revision by undoing events.
    pub fn insert(&mut self, object: Object) -> Option<Object> {
        self.sizes.add(&object);
        let replaced = self.set.insert(object);
        if let Some(old) = &replaced {
            self.sizes.subtract(old);
        }
        replaced
    }

    /// Removes what has the key.
    pub fn remove(&mut self, key: &str) -> Option<Object> {
        let removed = self.set.remove(key.as_bytes());
        if let Some(old) = &removed {
            self.sizes.subtract(old);
        }
        removed
    }
}
