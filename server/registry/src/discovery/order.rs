//! The order in which groups and versions are listed.
//!
//! Clients resolve a name that several groups serve (`events`) to the first group that has it, and
//! talk to the first version of a group, so the order is part of the API.

use std::cmp::Ordering;

/// Compares two version names the way Kubernetes ranks them, the lesser first: `foo1 < foo10 <
/// v1alpha1 < v1alpha2 < v1beta1 < v1 < v2 < v10`. Stable versions rank over beta over alpha, higher
/// numbers over lower; names of another form rank below all of these, and among themselves the
/// alphabetically earlier one ranks higher (k8s.io/apimachinery, `pkg/version/helpers.go`).
///
/// ```
/// use plinth_registry::compare_versions;
///
/// let mut versions = vec!["v1beta1", "v2", "v1", "edge", "v1alpha1", "v11"];
/// versions.sort_by(|a, b| compare_versions(b, a));
/// assert_eq!(versions, ["v11", "v2", "v1", "v1beta1", "v1alpha1", "edge"]);
/// ```
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parse(a), parse(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// The stability of a version; later variants rank higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Alpha,
    Beta,
    Stable,
}

/// `v1beta2` as (stage, major, minor): (`Beta`, 1, 2).
fn parse(version: &str) -> Option<(Stage, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let major = rest[..digits].parse().ok()?;
    let stage = &rest[digits..];
    if stage.is_empty() {
        return Some((Stage::Stable, major, 0));
    }
    let (stage, minor) = match (stage.strip_prefix("alpha"), stage.strip_prefix("beta")) {
        (Some(minor), _) => (Stage::Alpha, minor),
        (_, Some(minor)) => (Stage::Beta, minor),
        _ => return None,
    };
    // `u64::from_str` would accept a sign.
    if !minor.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some((stage, major, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_another_form_rank_below_and_alphabetically() {
        let mut versions = vec![
            "v1",
            "v1beta",
            "v1gamma1",
            "version1",
            "v",
            "v3beta1",
            "v12alpha1",
            "v1beta2x",
            "v1beta+2",
            "v02",
        ];
        versions.sort_by(|a, b| compare_versions(b, a));
        assert_eq!(
            versions,
            [
                "v02",
                "v1",
                "v3beta1",
                "v12alpha1",
                "v",
                "v1beta",
                "v1beta+2",
                "v1beta2x",
                "v1gamma1",
                "version1"
            ]
        );
    }
}
