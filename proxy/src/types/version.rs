//! Kubernetes' order of API versions: stable before beta before alpha, newer before older, and
//! everything that does not look like a version last, by name
//! (`k8s.io/apimachinery/pkg/version.CompareKubeAwareVersionStrings`).

use std::cmp::Ordering;

/// How far along a version is. Declared in order of rising preference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Alpha,
    Beta,
    Stable,
}

/// Compares so that the preferred version comes first.
pub(crate) fn by_preference(a: &str, b: &str) -> Ordering {
    match (parse(a), parse(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Stage, major, minor of `v1`, `v2beta3`; `None` for anything else.
fn parse(version: &str) -> Option<(Stage, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (major, rest) = rest.split_at(digits);
    let major = major.parse().ok()?;
    if rest.is_empty() {
        return Some((Stage::Stable, major, 0));
    }
    let (stage, minor) = match (rest.strip_prefix("alpha"), rest.strip_prefix("beta")) {
        (Some(minor), _) => (Stage::Alpha, minor),
        (_, Some(minor)) => (Stage::Beta, minor),
        _ => return None,
    };
    let all_digits = minor.bytes().all(|b| b.is_ascii_digit());
    Some((stage, major, minor.parse().ok().filter(|_| all_digits)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_the_one_in_kubernetes_documentation() {
        // "Version priority" of the CustomResourceDefinition versioning page.
        let expected =
            ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"];
        let mut sorted = expected;
        sorted.reverse();
        sorted.sort_by(|a, b| by_preference(a, b));
        assert_eq!(sorted, expected);
    }

    #[test]
    fn what_only_resembles_a_version_is_ordered_by_name_and_last() {
        for odd in ["v", "v1beta", "v1gamma1", "1", "v1beta+1", "v1alpha1beta1"] {
            assert_eq!(by_preference("v1alpha1", odd), Ordering::Less, "{odd}");
        }
        assert_eq!(by_preference("va", "vb"), Ordering::Less);
    }
}
