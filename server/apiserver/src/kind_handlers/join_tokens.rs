//! Secrets that let replicas join. Joining hands over the cluster's keys, so such a Secret grants more than
//! any role on Secrets is meant to: only `system:masters` write them, and no admission webhook or policy
//! makes one of what they write, or changes it. Whoever may read them finds a hash.

use plinth_codec::{tree, Value};
use plinth_pki::{JOIN_TOKEN_NAMESPACE, JOIN_TOKEN_SECRET_TYPE, JOIN_TOKEN_USAGE};

use crate::context::{Outcome, Write};
use plinth_api::{metadata_text, ApiError, MASTERS_GROUP};

/// Refuses what would create such a Secret, make one of another, or change what one grants.
pub(super) fn check(write: Write<'_>) -> Outcome<'_, ()> {
    Box::pin(async move {
        let Write { cx, new, old } = write;
        if cx.user.is_in(MASTERS_GROUP) || !grants_joining(new) || old.is_some_and(|old| is_same(old, new)) {
            return Ok(());
        }
        let why = "only members of the group \"system:masters\" may write tokens for joining replicas";
        Err(ApiError::forbidden("", "secrets", metadata_text(new, "name"), why))
    })
}

/// What a Secret that grants joining has about that.
pub(super) fn grant(secret: &Value) -> Option<Value> {
    let part = |name: &str| secret.at(&[name]).cloned().unwrap_or_default();
    grants_joining(secret)
        .then(|| tree!({ "name": metadata_text(secret, "name"), "type": part("type"), "data": part("data") }))
}

fn grants_joining(secret: &Value) -> bool {
    secret.str_at(&["type"]) == Some(JOIN_TOKEN_SECRET_TYPE)
        && metadata_text(secret, "namespace") == JOIN_TOKEN_NAMESPACE
        && secret.at(&["data", JOIN_TOKEN_USAGE]).is_some()
}

/// Labels, finalizers and the like may change.
fn is_same(old: &Value, new: &Value) -> bool {
    ["type", "data", "immutable"].iter().all(|field| old.at(&[field]) == new.at(&[field]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_secrets_grant_joining() {
        let secret = |kind: &str, namespace: &str, key: &str| {
            let data = match key {
                "" => tree!({}),
                _ => tree!({ "usage-plinth-join": key }),
            };
            tree!({ "type": kind, "metadata": tree!({ "name": "x", "namespace": namespace }), "data": data })
        };
        for (kind, namespace, key, grants) in [
            (JOIN_TOKEN_SECRET_TYPE, JOIN_TOKEN_NAMESPACE, "dHJ1ZQ==", true),
            // Whatever its value: it may be changed later.
            (JOIN_TOKEN_SECRET_TYPE, JOIN_TOKEN_NAMESPACE, "eA==", true),
            (JOIN_TOKEN_SECRET_TYPE, JOIN_TOKEN_NAMESPACE, "", false),
            (JOIN_TOKEN_SECRET_TYPE, "default", "dHJ1ZQ==", false),
            ("Opaque", JOIN_TOKEN_NAMESPACE, "dHJ1ZQ==", false),
        ] {
            assert_eq!(grants_joining(&secret(kind, namespace, key)), grants, "{kind} {namespace} {key}");
        }
        let (one, other) = (
            secret(JOIN_TOKEN_SECRET_TYPE, JOIN_TOKEN_NAMESPACE, "eA=="),
            secret(JOIN_TOKEN_SECRET_TYPE, JOIN_TOKEN_NAMESPACE, "eQ=="),
        );
        assert!(is_same(&one, &one) && !is_same(&one, &other));
    }
}
