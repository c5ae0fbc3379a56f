//! Reading objects in key order, touching few that are not asked for (D20).
//!
//! A filter fixes some of the four levels of the key. Where a fixed level follows one that is not
//! (`shards/*` with a concrete cluster), the scan seeks from prefix to prefix: O(S log n + result) for
//! S prefixes, instead of O(n). Where there are very many shards, it asks for an index by cluster.

use std::ops::Bound;

use shardcache_storage::{KeyParts, Object, Objects, SEPARATOR};

use super::index::Request;
use crate::filter::Filter;

/// Selected objects in key order.
pub(crate) type Scan<'a> = Box<dyn Iterator<Item = &'a Object> + Send + 'a>;

/// Objects passed over one by one under the same prefix before the scan seeks.
const STEPS_BEFORE_SEEK: u32 = 2;
/// Seeks for a cluster above which one scan asks for an index by cluster. D20's bound on the number of
/// shards, counted as work: a shard costs one such seek, or two where clusters on both sides are skipped.
pub(crate) const CLUSTER_SEEKS_MAX: u32 = 1000;
/// The level of the cluster in a key.
const CLUSTER: usize = 1;
/// Sorts after every key that begins with the text before it and a separator, before all others.
const AFTER_PREFIX: char = '\u{1}';

/// Selected objects in key order, strictly after the joined key `after` if given; for objects that come
/// from [`super::WatchCache::objects_at`].
pub fn scan<'a>(
    objects: &'a Objects,
    filter: &'a Filter,
    after: Option<&str>,
) -> Box<dyn Iterator<Item = &'a Object> + Send + 'a> {
    select(move |from| objects.range(from, Bound::Unbounded), filter, after, None)
}

/// How many objects lie in a filter's scope after the key; `None` if the filter has selectors
/// (Kubernetes' `remainingItemCount` exists without them only). O(answer), O(1) for all of a type.
pub fn remaining(objects: &Objects, filter: &Filter, after: Option<&str>) -> Option<usize> {
    if filter.has_selectors() {
        return None;
    }
    if after.is_none() && Levels::of(filter).are_open() {
        return Some(objects.len());
    }
    Some(scan(objects, filter, after).count())
}

/// Whether a filter selects all objects of a type.
pub(crate) fn selects_all(filter: &Filter) -> bool {
    !filter.has_selectors() && Levels::of(filter).are_open()
}

/// The one cluster that a filter looks for in every shard, if it does.
pub(crate) fn cluster_across_shards(filter: &Filter) -> Option<&str> {
    match demanded(filter) {
        [None, cluster, ..] => cluster,
        _ => None,
    }
}

/// The same over anything sorted by key; `range` gives the objects from a bound on. `if_costly` is sent
/// once there were more than [`CLUSTER_SEEKS_MAX`] seeks for a cluster.
pub(crate) fn select<'a, I>(
    range: impl Fn(Bound<&str>) -> I + Send + 'a,
    filter: &'a Filter,
    after: Option<&str>,
    if_costly: Option<Request<'a>>,
) -> Scan<'a>
where
    I: Iterator<Item = &'a Object> + Send + 'a,
{
    let levels = Levels::of(filter);
    let begin = levels.first();
    let from = match after {
        Some(after) if after >= begin.as_str() => Bound::Excluded(after),
        _ => Bound::Included(begin.as_str()),
    };
    let current = range(from);
    if levels.are_open() {
        return if filter.has_selectors() {
            Box::new(current.filter(|object| filter.matches(object)))
        } else {
            Box::new(current)
        };
    }
    let scan = SkipScan { range, current, levels, passed: None, done: false, cluster_seeks: 0, if_costly };
    if filter.has_selectors() {
        Box::new(scan.filter(|object| filter.matches(object)))
    } else {
        Box::new(scan)
    }
}

/// What a filter demands of each level of the key (shard, cluster, namespace, name), if one value. It may
/// demand more, even what cannot be: this is where to look, the filter decides.
pub(crate) fn demanded(filter: &Filter) -> [Option<&str>; 4] {
    let scope = &filter.scope;
    let mut terms = filter.fields.terms().iter();
    let field = terms.find(|term| term.equal && &*term.field == "metadata.namespace");
    let namespace = scope.namespace.as_ref().or(field.map(|term| &term.value));
    [scope.shard.one(), scope.cluster.one(), namespace.map(|name| &**name), filter.fields.name()]
}

/// [`demanded`], by level.
struct Levels<'f>([Option<&'f str>; 4]);

/// Where a key lies, seen from what the levels demand.
enum Place {
    Inside,
    /// The first level that differs; the key sorts before what is demanded there, or after.
    Before(usize),
    After(usize),
}

impl<'f> Levels<'f> {
    fn of(filter: &'f Filter) -> Self {
        Self(demanded(filter))
    }

    fn are_open(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// A lower bound of every key inside.
    fn first(&self) -> String {
        self.follow(String::new(), 0)
    }

    fn place(&self, key: KeyParts<'_>) -> Place {
        let parts = [key.shard, key.cluster, key.namespace, key.name];
        for (level, (demanded, part)) in self.0.iter().zip(parts).enumerate() {
            match demanded.map(|demanded| part.cmp(demanded)) {
                Some(std::cmp::Ordering::Less) => return Place::Before(level),
                Some(std::cmp::Ordering::Greater) => return Place::After(level),
                _ => {}
            }
        }
        Place::Inside
    }

    /// The lowest key inside that comes after `key`, which is not inside; `None` if there is none.
    fn next(&self, key: &str, place: &Place) -> Option<String> {
        match *place {
            Place::Inside => None,
            Place::Before(level) => {
                let shared = prefix(key, level);
                Some(self.follow(key[..shared].to_owned(), level))
            }
            Place::After(level) => {
                // Nothing more under these levels: on to the next value of the last open one.
                let open = (0..level).rev().find(|level| self.0[*level].is_none())?;
                let shared = prefix(key, open + 1) - SEPARATOR.len_utf8();
                Some(format!("{}{AFTER_PREFIX}", &key[..shared]))
            }
        }
    }

    /// Appends the demanded values from a level on, as long as there are any.
    fn follow(&self, mut bound: String, level: usize) -> String {
        for (level, demanded) in self.0.iter().enumerate().skip(level) {
            let Some(demanded) = demanded else { break };
            bound.push_str(demanded);
            if level + 1 < self.0.len() {
                bound.push(SEPARATOR);
            }
        }
        bound
    }
}

/// Length of the first `levels` parts of a key, their separators included.
fn prefix(key: &str, levels: usize) -> usize {
    if levels == 0 {
        return 0;
    }
    key.match_indices(SEPARATOR).nth(levels - 1).map_or(key.len(), |(at, _)| at + SEPARATOR.len_utf8())
}

struct SkipScan<'a, F, I> {
    range: F,
    current: I,
    levels: Levels<'a>,
    /// The last object passed over, the level it differed at, and how many there were under its prefix.
    passed: Option<(&'a Object, usize, u32)>,
    done: bool,
    /// Seeks because of the cluster; those below it an index by cluster would not save.
    cluster_seeks: u32,
    if_costly: Option<Request<'a>>,
}

impl<'a, F, I> SkipScan<'a, F, I> {
    /// Counts an object that is not inside; `true` if it is time to seek.
    fn pass(&mut self, object: &'a Object, level: usize) -> bool {
        let steps = match self.passed {
            Some((last, at, steps))
                if at == level
                    && last.key()[..prefix(last.key(), level)]
                        == object.key()[..prefix(object.key(), level)] =>
            {
                steps + 1
            }
            _ => 1,
        };
        self.passed = Some((object, level, steps));
        steps >= STEPS_BEFORE_SEEK
    }

    fn count_seek(&mut self, level: usize) {
        self.cluster_seeks += u32::from(level == CLUSTER);
        if self.cluster_seeks > CLUSTER_SEEKS_MAX
            && let Some(request) = self.if_costly.take()
        {
            request.send();
        }
    }
}

impl<'a, F, I> Iterator for SkipScan<'a, F, I>
where
    F: Fn(Bound<&str>) -> I,
    I: Iterator<Item = &'a Object>,
{
    type Item = &'a Object;

    fn next(&mut self) -> Option<&'a Object> {
        while !self.done {
            let object = self.current.next()?;
            let place = self.levels.place(object.parts());
            let (Place::Before(level) | Place::After(level)) = place else {
                self.passed = None;
                return Some(object);
            };
            if matches!(place, Place::After(_)) && self.levels.0[..level].iter().all(Option::is_some) {
                // Nothing inside comes after this; looking further would walk to the end.
                self.done = true;
                return None;
            }
            if self.pass(object, level) {
                let bound = self.levels.next(object.key(), &place)?;
                self.current = (self.range)(Bound::Included(&bound));
                self.passed = None;
                self.count_seek(level);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
