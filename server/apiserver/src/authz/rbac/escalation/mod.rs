//! Privilege escalation checks, before a role or binding is written.
//!
//! Upstream: kubernetes `pkg/registry/rbac/*/policybased` and `pkg/registry/rbac/validation/rule.go`. A user
//! who holds all rules of a role, or the verb `escalate` on it, may write it; one who holds all rules of the
//! role that a binding references, or the verb `bind` on that role, may write the binding. `system:masters`,
//! and with it the server itself, is exempt.

use std::collections::HashSet;
use std::sync::Arc;

use plinth_codec::error::{quoted, quoted_list};
use plinth_codec::Value;

use super::coverage::{self, CoverageLimits, TooComplex, Uncovered};
use super::index::RoleKey;
use super::rules::{self, PolicyRule};
use super::{Rbac, GROUP};
use crate::authz::{aggregate, Attributes, Authorizer, ResourceTarget};
use plinth_api::{metadata_text, ApiError, User, MASTERS_GROUP};

/// A write of a role or binding.
#[derive(Clone, Copy, Debug)]
pub struct RoleWrite<'a> {
    /// Who writes the role or binding.
    pub user: &'a User,
    /// The plural: `roles`, `clusterroles`, `rolebindings` or `clusterrolebindings`.
    pub plural: &'a str,
    /// Namespace of the request; empty for cluster-scoped resources.
    pub namespace: &'a str,
    /// Name in the request's path; empty for create.
    pub name: &'a str,
    /// The object, defaulted.
    pub new: &'a Value,
    /// The previous object.
    pub old: Option<&'a Value>,
}

/// Refuses a write that grants permissions which the user does not hold.
///
/// # Errors
/// 403 with upstream's message, 404 when a binding's role does not exist, 500 when roles cannot be read.
pub async fn check(authorizer: &Authorizer, write: RoleWrite<'_>) -> Result<(), ApiError> {
    if write.user.is_in(MASTERS_GROUP) || write.old.is_some_and(|old| changes_only_gc_fields(write.new, old))
    {
        return Ok(());
    }
    match write.plural {
        "roles" | "clusterroles" => check_role(authorizer, write).await,
        "rolebindings" | "clusterrolebindings" => check_binding(authorizer, write).await,
        _ => Ok(()),
    }
}

async fn check_role(authorizer: &Authorizer, write: RoleWrite<'_>) -> Result<(), ApiError> {
    let RoleWrite { user, plural, namespace, name, new, old } = write;
    if is_allowed(authorizer, user, "escalate", plural, namespace, name).await {
        return Ok(());
    }
    let rbac = authorizer.rbac();
    let object_name = metadata_text(new, "name");
    let forbidden = |why: &str| ApiError::forbidden(GROUP, plural, object_name, why);
    check_covered(rbac, user, plural, namespace, PolicyRule::all_of(new).into())
        .await?
        .map_err(|why| forbidden(&why))?;
    let aggregates = |role: &Value| {
        let selectors = role.at(&["aggregationRule", "clusterRoleSelectors"]).and_then(Value::as_array);
        selectors.is_some_and(|selectors| !selectors.is_empty())
    };
    if plural == "clusterroles" && (aggregates(new) || old.is_some_and(aggregates)) {
        // An aggregated role may match any role, so it requires all permissions.
        check_covered(rbac, user, plural, namespace, PolicyRule::everything().into())
            .await?
            .map_err(|_| forbidden("must have cluster-admin privileges to use the aggregationRule"))?;
    }
    Ok(())
}

async fn check_binding(authorizer: &Authorizer, write: RoleWrite<'_>) -> Result<(), ApiError> {
    let RoleWrite { user, plural, namespace, new, .. } = write;
    let role_ref = |member: &str| new.str_at(&["roleRef", member]).unwrap_or_default();
    let (roles, role_namespace) = match role_ref("kind") {
        "ClusterRole" => ("clusterroles", ""),
        "Role" => ("roles", namespace),
        // Validation refuses it.
        _ => return Ok(()),
    };
    let role = role_ref("name");
    if role_ref("apiGroup") == GROUP && is_allowed(authorizer, user, "bind", roles, namespace, role).await {
        return Ok(());
    }
    let rbac = authorizer.rbac();
    let key = RoleKey { namespace: role_namespace.into(), name: role.into() };
    // Upstream reports a missing role as a binding, too.
    let rules = rbac.rules_of(&key).await?.ok_or_else(|| ApiError::not_found(GROUP, plural, role))?;
    let name = metadata_text(new, "name");
    let outcome = check_covered(rbac, user, plural, namespace, rules).await?;
    outcome.map_err(|why| ApiError::forbidden(GROUP, plural, name, &why))
}

/// Whether the user is authorized for a verb on a role.
async fn is_allowed(
    authorizer: &Authorizer,
    user: &User,
    verb: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> bool {
    let target =
        ResourceTarget { group: GROUP, version: "*", resource, namespace, name, ..ResourceTarget::default() };
    authorizer.authorize(&Attributes::resource(user, verb, target)).await.allowed()
}

/// Whether the user's rules in the namespace cover these; the inner error is upstream's message.
async fn check_covered(
    rbac: &Rbac,
    user: &User,
    plural: &str,
    namespace: &str,
    wanted: Arc<[PolicyRule]>,
) -> Result<Result<(), String>, ApiError> {
    let (held, errors) = rbac.rules_for(user, namespace).await?;
    // Bounded, but still too long for a runtime thread.
    let missing = tokio::task::spawn_blocking(move || missing(&held, &wanted)).await;
    let who = format!("user {} (groups={})", quoted(&user.name), quoted_list(&user.groups));
    let Ok(missing) = missing.map_err(ApiError::internal)? else {
        return Ok(Err(format!(
            "{who} is attempting to grant RBAC permissions that are too complex to be compared with those \
                currently held"
        )));
    };
    let Some(missing) = missing else { return Ok(Ok(())) };
    let mut why = format!("{who} is attempting to grant RBAC permissions not currently held:\n{missing}");
    if !errors.is_empty() {
        // Upstream reports a missing object as one of the kind that is written.
        let of_kind = |error: String| match error.split_once('.') {
            Some((_, rest)) => format!("{plural}.{rest}"),
            None => error,
        };
        let errors: Vec<String> = errors.into_iter().map(of_kind).collect();
        why.push_str(&format!("; resolution errors: [{}]", aggregate(&errors)));
    }
    Ok(Err(why))
}

/// Describes the uncovered permissions, one per line; `None` when there are none.
fn missing(held: &[Arc<[PolicyRule]>], wanted: &[PolicyRule]) -> Result<Option<String>, TooComplex> {
    // Bindings share the rules of their role.
    let mut seen = HashSet::new();
    let held = held.iter().filter(|rules| seen.insert(Arc::as_ptr(rules)));
    let held = held.flat_map(|rules| rules.iter());
    let Uncovered { rules, has_more } = coverage::uncovered(held, wanted, CoverageLimits::REQUEST)?;
    if rules.is_empty() {
        return Ok(None);
    }
    let mut lines: Vec<String> = rules::compacted(rules).iter().map(PolicyRule::compact).collect();
    lines.sort_unstable();
    lines.dedup();
    lines.extend(has_more.then(|| "and others".to_owned()));
    Ok(Some(lines.join("\n")))
}

/// Whether only fields that the garbage collector updates have changed: owners and finalizers.
pub fn changes_only_gc_fields(new: &Value, old: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.object_at_mut(&["metadata"]) {
            for member in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
                metadata.remove(member);
            }
        }
        object
    };
    without(new) == without(old)
}

#[cfg(test)]
mod tests;
