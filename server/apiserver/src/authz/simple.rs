//! The authorizers that need no state.

use super::rbac::rules::PolicyRule;
use super::{Attributes, Decision, Target};

/// The group that may do everything, whatever the mode (`user.SystemPrivilegedGroup`).
pub const MASTERS: &str = "system:masters";

/// Allows everything to `system:masters`, before anything else is asked.
pub fn masters(attributes: &Attributes<'_>) -> Decision {
    match attributes.user.is_in(MASTERS) {
        true => Decision::ALLOW,
        false => Decision::NO_OPINION,
    }
}

/// The path of the online backup: all objects, Secrets among them, and their history.
pub const BACKUP: &str = "/plinth/backup";

/// Refuses what no rule, webhook or mode can grant: the backup is for `system:masters`, who were let through before. It
/// hands out more than any rule on `*` paths means to, since upstream has no path that shows objects.
pub fn reserved(attributes: &Attributes<'_>) -> Decision {
    let segments = |path: &'static str| path.split('/').filter(|segment| !segment.is_empty());
    match attributes.target {
        Target::Path(path) if path.split('/').filter(|segment| !segment.is_empty()).eq(segments(BACKUP)) => {
            Decision::deny("only members of the group \"system:masters\" may back up the store")
        }
        _ => Decision::NO_OPINION,
    }
}

/// The paths that everybody may read (`system:public-info-viewer`).
pub const PUBLIC: &[&str] = &["/healthz", "/livez", "/readyz", "/version"];

/// Allows what everybody may read.
pub fn public(attributes: &Attributes<'_>) -> Decision {
    let under = |path: &str| {
        PUBLIC.iter().any(|p| path == *p || path.strip_prefix(*p).is_some_and(|rest| rest.starts_with('/')))
    };
    match attributes.target {
        Target::Path(path) if attributes.verb == "get" && under(path) => Decision::ALLOW,
        _ => Decision::NO_OPINION,
    }
}

/// `AlwaysAllow`, for experiments: everything to everybody who is authenticated. Upstream switches anonymous
/// requests off under this mode; here they may read what is public and nothing else.
pub fn always_allow(attributes: &Attributes<'_>) -> Decision {
    match attributes.user.is_in("system:authenticated") {
        true => Decision::ALLOW,
        false => public(attributes),
    }
}

/// `AlwaysDeny`: has no opinion, so that what it comes to is a refusal.
pub fn always_deny() -> Decision {
    Decision::no_opinion("Everything is forbidden.")
}

/// The rules that allow everything.
pub fn everything() -> [PolicyRule; 2] {
    let all = || vec!["*".into()];
    let resources = PolicyRule { verbs: all(), groups: all(), resources: all(), ..PolicyRule::default() };
    [resources, PolicyRule { verbs: all(), paths: all(), ..PolicyRule::default() }]
}
