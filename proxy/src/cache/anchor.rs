//! Anchors: where a class is filed so that few events come across it (D22).
//!
//! A class is filed under what its filter fixes: concrete levels of the key (shard, cluster, namespace,
//! name), and one label with its values or the hash ranges of a shard selector. An event looks into the
//! buckets that its own key, labels and hashes name, in the *shapes* that some class uses: a handful,
//! however many classes there are. What an anchor does not cover, the filter decides.
//!
//! A bucket is known by the hash of what it is filed under. Equal hashes of different things only mean
//! that a class is judged once too often.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;

use shardcache_storage::{Event, KeyParts, Object};

use super::scan::demanded;
use crate::filter::Filter;
use crate::selector::{HashField, Operator, Requirement, fnv1a64};

const SHARD: u8 = 1;
const CLUSTER: u8 = 2;
const NAMESPACE: u8 = 4;
const NAME: u8 = 8;
/// Combinations of concrete levels.
const LEVELS: usize = 16;

/// Hash ranges are filed with this many bits; a finer range shares its cell with neighbours. It bounds
/// the cells of one range (2 per bit) and the look-ups of one event (1 per bit in use).
const HASH_BITS: u32 = 20;

/// What besides levels of the key a class is filed under. Remembered, because live counts change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Nothing: the levels alone (none at all is the scan list).
    Levels,
    /// The values of this requirement of the label selector.
    Label(usize),
    /// The ranges of the shard selector.
    Hashes,
}

impl Choice {
    /// The most selective anchor of a filter. `count` tells how many live objects have one of the values
    /// of a label, where that is known; otherwise the requirement with the fewest values wins.
    pub(crate) fn of(filter: &Filter, count: impl Fn(&Requirement) -> Option<usize>) -> Self {
        if filter.fields.name().is_some() {
            return Self::Levels;
        }
        let requirements = filter.labels.requirements().iter().enumerate();
        let best = requirements.filter(|(_, requirement)| requirement.operator == Operator::In).min_by_key(
            |(_, requirement)| (count(requirement).unwrap_or(usize::MAX), requirement.values.len()),
        );
        match best {
            Some((at, _)) => Self::Label(at),
            None if filter.shards.is_some() => Self::Hashes,
            None => Self::Levels,
        }
    }
}

/// What kind of thing a bucket is filed under.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    Levels,
    Label(Arc<str>),
    /// Field, and bits of its hash.
    Hash(HashField, u32),
}

/// What a bucket is filed under, besides levels.
#[derive(Hash)]
enum Pick<'a> {
    Levels,
    Label(&'a str, &'a str),
    Hash(HashField, u32, u64),
}

/// One bucket of one class.
#[derive(Debug)]
pub(crate) struct Anchor {
    levels: u8,
    shape: Shape,
    /// The bucket's key.
    pub(crate) bucket: u64,
}

/// The shapes in use, by which an event finds its buckets.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    hasher: RandomState,
    plain: Levels,
    labels: HashMap<Arc<str>, Levels>,
    hashes: Vec<(HashField, u32, Levels)>,
}

/// How many anchors use each combination of levels.
#[derive(Debug, Default)]
struct Levels([u32; LEVELS]);

impl Levels {
    fn in_use(&self) -> impl Iterator<Item = u8> {
        (0u8..).zip(self.0).filter(|(_, count)| *count > 0).map(|(levels, _)| levels)
    }

    fn is_unused(&self) -> bool {
        self.0.iter().all(|count| *count == 0)
    }
}

impl Shapes {
    /// The buckets of a class that is filed by `choice`.
    pub(crate) fn anchors(&self, filter: &Filter, choice: Choice) -> Vec<Anchor> {
        let (levels, key) = concrete(filter);
        let anchor =
            |shape, pick: &Pick<'_>| Anchor { levels, shape, bucket: self.bucket(levels, key, pick) };
        match choice {
            Choice::Levels => vec![anchor(Shape::Levels, &Pick::Levels)],
            Choice::Label(at) => {
                let requirement = &filter.labels.requirements()[at];
                let label = &requirement.key;
                let under = |value| anchor(Shape::Label(Arc::clone(label)), &Pick::Label(label, value));
                requirement.values.iter().map(|value| under(value)).collect()
            }
            Choice::Hashes => {
                let Some(shards) = &filter.shards else { return Vec::new() };
                let field = shards.field();
                let under =
                    |(bits, prefix)| anchor(Shape::Hash(field, bits), &Pick::Hash(field, bits, prefix));
                shards
                    .ranges()
                    .iter()
                    .flat_map(|range| cells(*range.start(), *range.end()))
                    .map(under)
                    .collect()
            }
        }
    }

    /// Notes that an anchor is in use.
    pub(crate) fn add(&mut self, anchor: &Anchor) {
        let levels = match &anchor.shape {
            Shape::Levels => &mut self.plain,
            Shape::Label(label) => self.labels.entry(Arc::clone(label)).or_default(),
            Shape::Hash(field, bits) => {
                let at = self.hash_at(*field, *bits).unwrap_or_else(|| {
                    self.hashes.push((*field, *bits, Levels::default()));
                    self.hashes.len() - 1
                });
                &mut self.hashes[at].2
            }
        };
        levels.0[usize::from(anchor.levels)] += 1;
    }

    /// Notes that an anchor that was added is no longer in use.
    pub(crate) fn remove(&mut self, anchor: &Anchor) {
        let at = usize::from(anchor.levels);
        match &anchor.shape {
            Shape::Levels => self.plain.0[at] -= 1,
            Shape::Label(label) => {
                let levels = self.labels.get_mut(label).expect("the anchor was added");
                levels.0[at] -= 1;
                if levels.is_unused() {
                    self.labels.remove(label);
                }
            }
            Shape::Hash(field, bits) => {
                let entry = self.hash_at(*field, *bits).expect("the anchor was added");
                self.hashes[entry].2.0[at] -= 1;
                if self.hashes[entry].2.is_unused() {
                    self.hashes.swap_remove(entry);
                }
            }
        }
    }

    /// Every bucket that may hold a class which sees the event: by what either state is.
    pub(crate) fn buckets(&self, event: &Event, out: &mut Vec<u64>) {
        out.clear();
        let key = KeyParts::split(event.key()).expect("an object's key has four parts");
        out.extend(self.plain.in_use().map(|levels| self.bucket(levels, key, &Pick::Levels)));
        let states = [event.previous.as_ref(), event.current.as_ref()];
        for object in states.into_iter().flatten() {
            self.label_buckets(object, key, out);
        }
        for (field, bits, levels) in &self.hashes {
            for object in states.into_iter().flatten() {
                let hash = fnv1a64(match field {
                    HashField::Uid => object.uid(),
                    HashField::Namespace => key.namespace,
                });
                let pick = Pick::Hash(*field, *bits, prefix(hash, *bits));
                out.extend(levels.in_use().map(|levels| self.bucket(levels, key, &pick)));
            }
        }
    }

    fn label_buckets(&self, object: &Object, key: KeyParts<'_>, out: &mut Vec<u64>) {
        if self.labels.is_empty() {
            return;
        }
        for (label, value) in object.labels() {
            if let Some(levels) = self.labels.get(label) {
                let pick = Pick::Label(label, value);
                out.extend(levels.in_use().map(|levels| self.bucket(levels, key, &pick)));
            }
        }
    }

    fn hash_at(&self, field: HashField, bits: u32) -> Option<usize> {
        self.hashes.iter().position(|(f, b, _)| (*f, *b) == (field, bits))
    }

    fn bucket(&self, levels: u8, key: KeyParts<'_>, pick: &Pick<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u8(levels);
        let parts =
            [(SHARD, key.shard), (CLUSTER, key.cluster), (NAMESPACE, key.namespace), (NAME, key.name)];
        for (_, part) in parts.into_iter().filter(|(level, _)| levels & level != 0) {
            part.hash(&mut hasher);
        }
        pick.hash(&mut hasher);
        hasher.finish()
    }
}

/// The levels a filter fixes, and a key with their values.
fn concrete(filter: &Filter) -> (u8, KeyParts<'_>) {
    let [shard, cluster, namespace, name] = demanded(filter);
    let fixed = [(SHARD, shard), (CLUSTER, cluster), (NAMESPACE, namespace), (NAME, name)];
    let levels = fixed.into_iter().filter(|(_, part)| part.is_some()).map(|(level, _)| level).sum();
    let key = KeyParts {
        shard: shard.unwrap_or_default(),
        cluster: cluster.unwrap_or_default(),
        namespace: namespace.unwrap_or_default(),
        name: name.unwrap_or_default(),
    };
    (levels, key)
}

fn prefix(hash: u64, bits: u32) -> u64 {
    hash.checked_shr(u64::BITS - bits).unwrap_or(0)
}

/// The fewest dyadic cells, as (bits, prefix), that cover an inclusive range at [`HASH_BITS`].
fn cells(start: u64, end: u64) -> Vec<(u32, u64)> {
    let (mut low, high) = (prefix(start, HASH_BITS), prefix(end, HASH_BITS));
    let mut cells = Vec::new();
    while low <= high {
        let aligned = low.trailing_zeros().min(HASH_BITS);
        let fits = (high - low + 1).ilog2();
        let size = aligned.min(fits);
        cells.push((HASH_BITS - size, low >> size));
        low += 1 << size;
    }
    cells
}

#[cfg(test)]
mod tests;
