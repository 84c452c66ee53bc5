//! Authorizers without state.

use super::{Attributes, Decision, Target};
use plinth_api::MASTERS_GROUP;
use plinth_pki::JOIN_PATH;

/// Allows everything to `system:masters`, in every mode; runs before the chain.
pub fn masters(attributes: &Attributes<'_>) -> Decision {
    match attributes.user.is_in(MASTERS_GROUP) {
        true => Decision::ALLOW,
        false => Decision::NO_OPINION,
    }
}

/// Paths of the online backup (all objects, including Secrets, with their history) and of a replica's
/// checkpoint (the same, and the cluster's keys), with the reason of a denial.
const RESERVED: [(&str, &str); 2] = [
    ("/plinth/backup", "only members of the group \"system:masters\" may back up the store"),
    (
        "/plinth/checkpoint",
        "only members of the group \"system:masters\" may copy the store and the cluster's keys",
    ),
];

/// Denies what no rule, webhook or mode can grant: these paths are for `system:masters`, who were allowed
/// before. They expose more than rules on `*` paths intend, since upstream has no path that returns objects.
pub fn reserved(attributes: &Attributes<'_>) -> Decision {
    fn segments(path: &str) -> impl Iterator<Item = &str> {
        path.split('/').filter(|segment| !segment.is_empty())
    }
    let Target::Path(path) = attributes.target else { return Decision::NO_OPINION };
    match RESERVED.iter().find(|(reserved, _)| segments(path).eq(segments(reserved))) {
        Some((_, why)) => Decision::deny(*why),
        None => Decision::NO_OPINION,
    }
}

/// Allows the path of joining replicas, in every mode: it asks for a join token, which grants it alone, and
/// knows no users.
pub fn joining(attributes: &Attributes<'_>) -> Decision {
    match attributes.target {
        Target::Path(JOIN_PATH) if matches!(attributes.verb, "get" | "post") => Decision::ALLOW,
        _ => Decision::NO_OPINION,
    }
}

/// Paths that everyone may read (`system:public-info-viewer`).
pub const PUBLIC: &[&str] = &["/healthz", "/livez", "/readyz", "/version"];

/// Allows what everyone may read.
pub fn public(attributes: &Attributes<'_>) -> Decision {
    let under = |path: &str| {
        PUBLIC.iter().any(|p| path == *p || path.strip_prefix(*p).is_some_and(|rest| rest.starts_with('/')))
    };
    match attributes.target {
        Target::Path(path) if attributes.verb == "get" && under(path) => Decision::ALLOW,
        _ => Decision::NO_OPINION,
    }
}

/// `AlwaysAllow`, for experiments: allows everything to authenticated users. Upstream disables anonymous
/// requests in this mode; here they may read public paths only.
pub(crate) fn always_allow(attributes: &Attributes<'_>) -> Decision {
    match attributes.user.is_in("system:authenticated") {
        true => Decision::ALLOW,
        false => public(attributes),
    }
}

/// `AlwaysDeny`: has no opinion, so that the chain denies.
pub fn always_deny() -> Decision {
    Decision::no_opinion("Everything is forbidden.")
}
