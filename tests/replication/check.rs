//! Comparisons, in words short enough to be read.

use crate::view::{Key, Object, View};

/// The first differences between what should be there and what is; `None` if there are none.
pub(crate) fn difference<'a>(
    wanted: impl Iterator<Item = (&'a Key, &'a Object)>,
    found: &View,
) -> Option<String> {
    let mut differences = Vec::new();
    let mut matched = 0;
    for (key, object) in wanted {
        match found.get(key) {
            Some(same) if same == object => matched += 1,
            Some(other) => {
                matched += 1;
                differences.push(format!("{key:?} is {} instead of {}", short(other), short(object)));
            }
            None => differences.push(format!("{key:?} is missing ({})", short(object))),
        }
    }
    if matched < found.len() {
        differences.push(format!("{} that should not be there", found.len() - matched));
    }
    let first = differences.iter().take(3).cloned().collect::<Vec<_>>().join("; ");
    (!differences.is_empty()).then(|| format!("{} differences: {first}", differences.len()))
}

fn short(object: &Object) -> String {
    format!("{} {}/{} {}", object.uid, object.version, object.source_version, object.content)
}
