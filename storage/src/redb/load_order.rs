//! Puts a million objects in key order without looking at each of them twenty times.
//!
//! Keys are scattered over as much memory as the objects fill, so a comparison of two keys costs two
//! cache misses. Here objects are grouped by all of the key but the name, while they are in the cache
//! anyway, and the beginnings of their names lie side by side to be compared.

use std::collections::BTreeMap;

use crate::object::Object;
use crate::state::Sizes;

/// Bytes of a name that are compared without looking at the object.
const PREFIX: usize = 24;

/// Objects of one type on their way into key order.
#[derive(Default)]
pub(super) struct InOrder {
    groups: BTreeMap<Box<str>, Vec<Named>>,
    sums: Sizes,
}

struct Named {
    /// Beginning of the name, filled up with zeros, which sort below every byte of a name.
    prefix: [u8; PREFIX],
    object: Object,
}

impl InOrder {
    pub(super) fn push(&mut self, object: Object) {
        self.sums.add(&object);
        let (group, name) = object.key().rsplit_once('\0').unwrap_or(("", object.key()));
        let mut prefix = [0; PREFIX];
        let known = name.len().min(PREFIX);
        prefix[..known].copy_from_slice(&name.as_bytes()[..known]);
        // A group is looked up a thousand times for once that it is new.
        if !self.groups.contains_key(group) {
            self.groups.insert(group.into(), Vec::new());
        }
        self.groups.get_mut(group).expect("it is there").push(Named { prefix, object });
    }

    pub(super) fn sort(&mut self) {
        for named in self.groups.values_mut() {
            named.sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| a.object.cmp(&b.object)));
        }
    }

    pub(super) fn sums(&self) -> Sizes {
        self.sums
    }

    /// The objects, in key order if [`InOrder::sort`] came last.
    pub(super) fn sorted(self) -> impl Iterator<Item = Object> {
        // No group is the beginning of another with more parts: every key has the same number of parts.
        self.groups.into_values().flatten().map(|named| named.object)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::Key;
    use crate::object::tests::draft_of;
    use crate::resource_version::{ResourceVersion, Revision, Tag};

    proptest! {
        #[test]
        fn the_order_is_the_order_of_keys(
            parts in prop::collection::btree_set(("[ab]{1,2}", "[-a]{1,2}", "[a]{0,1}", "[-.a]{1,30}"), 0..40),
            seed in any::<u64>(),
        ) {
            let revision = Revision(1_790_000_000_000 << 11);
            let version = ResourceVersion::new(revision, Tag::new(1).expect("legal"));
            let mut objects: Vec<_> = parts
                .iter()
                .map(|(shard, cluster, namespace, name)| {
                    let key = Key::new(shard, cluster, namespace, name).expect("no NUL");
                    draft_of(&key, "u").preview(version)
                })
                .collect();
            // Any order will do as long as it differs from case to case.
            objects.sort_by_key(|object| crc32c::crc32c_append(seed as u32, object.key().as_bytes()));
            let mut in_order = InOrder::default();
            for object in &objects {
                in_order.push(object.clone());
            }
            in_order.sort();
            objects.sort();
            let bodies: u64 = objects.iter().map(|object| object.body_bytes().len() as u64).sum();
            prop_assert_eq!(in_order.sums().bodies, bodies);
            prop_assert_eq!(in_order.sorted().collect::<Vec<_>>(), objects);
        }
    }
}
