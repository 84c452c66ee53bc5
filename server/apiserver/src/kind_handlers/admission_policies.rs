//! Parameters of admission policies. Whoever writes a policy must be able to read all objects of its
//! `paramKind`, and whoever writes a binding those that its `paramRef` names: else a policy would read for
//! its author what the author may not.
//!
//! Upstream: kubernetes `pkg/registry/admissionregistration/*/authz.go`.

use std::sync::Arc;

use plinth_codec::Value;

use crate::authz::{Decision, ResourceTarget};
use crate::context::{Outcome, Write};
use plinth_api::{ApiError, Cause, User, MASTERS_GROUP};
use plinth_registry::{Registry, ResourceType};
use plinth_storage::decode_object;

/// A `paramKind` as authorizers are asked about it: `*` for what it does not say or what is not served.
struct Parameters<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    /// What could not be found out, in upstream's words.
    unknown: Option<&'static str>,
}

impl Parameters<'static> {
    const ANY: Parameters<'static> = Parameters { group: "*", version: "*", resource: "*", unknown: None };
}

impl<'a> Parameters<'a> {
    fn of(kind: &'a Value, registry: &'a Registry) -> Parameters<'a> {
        let Some((group, version)) = group_version(text(kind, "apiVersion")) else {
            return Parameters { unknown: Some("parse"), ..Parameters::ANY };
        };
        let found = registry.of_kind(group, version, text(kind, "kind")).next();
        match found {
            Some(found) => Parameters { group, version, resource: found.plural(), unknown: None },
            None => Parameters { group, version, resource: "*", unknown: Some("resolve") },
        }
    }
}

/// Group and version of an `apiVersion`; `None` for what is none.
fn group_version(text: &str) -> Option<(&str, &str)> {
    match text.matches('/').count() {
        0 => Some(("", text)),
        1 => text.split_once('/'),
        _ => None,
    }
}

fn text<'a>(object: &'a Value, member: &str) -> &'a str {
    object.str_at(&[member]).unwrap_or_default()
}

/// A member of the spec that is set.
fn of_spec<'a>(object: &'a Value, member: &str) -> Option<&'a Value> {
    object.at(&["spec", member]).filter(|value| !value.is_null())
}

/// Asks for the permissions of a policy's writer.
pub(super) fn check_policy<'a>(write: Write<'a>, errors: &'a mut Vec<Cause>) -> Outcome<'a, ()> {
    Box::pin(async move {
        if write.cx.info.subresource.is_empty() {
            policy(write, errors).await;
        }
        Ok(())
    })
}

/// Asks for the permissions of the writer of a policy's binding.
pub(super) fn check_binding<'a>(write: Write<'a>, errors: &'a mut Vec<Cause>) -> Outcome<'a, ()> {
    Box::pin(async move {
        binding(write, errors).await;
        Ok(())
    })
}

/// A policy: `get` of all objects of its `paramKind`, where that is new.
async fn policy(write: Write<'_>, errors: &mut Vec<Cause>) {
    let Some(kind) = of_spec(write.new, "paramKind") else { return };
    let same = |old: &Value| of_spec(old, "paramKind") == Some(kind);
    if !errors.is_empty() || write.old.is_some_and(same) || write.cx.user.is_in(MASTERS_GROUP) {
        return;
    }
    let Parameters { group, version, resource, .. } = Parameters::of(kind, &write.cx.registry);
    let target =
        ResourceTarget { group, version, resource, name: "*", namespace: "*", ..ResourceTarget::default() };
    let decision = write.authorize("get", target).await;
    let why = || {
        format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
            shown(&write.cx.user),
            text(kind, "kind"),
            text(kind, "apiVersion"),
        )
    };
    errors.extend(refusal(decision, "spec.paramKind", "", why));
}

/// A binding: `get` of the object that its `paramRef` names, or `list` of those that it selects, where policy
/// or reference are new. Upstream compares references whose members are pointers, so one that has any is
/// always new.
async fn binding(write: Write<'_>, errors: &mut Vec<Cause>) {
    let Some(reference) = of_spec(write.new, "paramRef") else { return };
    let has_pointers = ["selector", "parameterNotFoundAction"]
        .iter()
        .any(|member| reference.get(member).is_some_and(|value| !value.is_null()));
    let same = |old: &Value| {
        !has_pointers
            && of_spec(old, "paramRef") == Some(reference)
            && of_spec(old, "policyName") == of_spec(write.new, "policyName")
    };
    if !errors.is_empty() || write.old.is_some_and(same) || write.cx.user.is_in(MASTERS_GROUP) {
        return;
    }
    let policy_name = of_spec(write.new, "policyName").and_then(Value::as_str).unwrap_or_default();
    let policy = read_policy(write, policy_name).await;
    let kind = policy.as_ref().ok().and_then(|policy| of_spec(policy, "paramKind"));
    let parameters = kind.map_or(Parameters::ANY, |kind| Parameters::of(kind, &write.cx.registry));
    let name = text(reference, "name");
    let verb = if name.is_empty() { "list" } else { "get" };
    let target = ResourceTarget {
        group: parameters.group,
        version: parameters.version,
        resource: parameters.resource,
        name,
        namespace: text(reference, "namespace"),
        ..ResourceTarget::default()
    };
    let decision = write.authorize(verb, target).await;
    let user = shown(&write.cx.user);
    let why = || {
        let everywhere = format!(
            "to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, versions and resources"
        );
        match (policy.is_err(), parameters.unknown, kind) {
            (true, ..) => format!("unable to get policy {policy_name} {everywhere}"),
            (false, Some(what), Some(kind)) => {
                let kind = format!(
                    "&ParamKind{{APIVersion:{},Kind:{},}}",
                    text(kind, "apiVersion"),
                    text(kind, "kind")
                );
                format!("unable to {what} paramKind {kind} {everywhere}")
            }
            _ => format!(
                "user {user} does not have \"{verb}\" permission on the object referenced by paramRef"
            ),
        }
    };
    errors.extend(refusal(decision, "spec.paramRef", "failed to authorize request: ", why));
}

/// The policy that a binding names, of the same sort as the binding.
async fn read_policy(write: Write<'_>, name: &str) -> Result<Value, ApiError> {
    let binding = &write.cx.resource.row;
    let plural = match binding.kind.as_str() {
        "MutatingAdmissionPolicyBinding" => "mutatingadmissionpolicies",
        _ => "validatingadmissionpolicies",
    };
    let absent = || ApiError::not_found(&binding.group, plural, name);
    let resource: &Arc<ResourceType> =
        write.cx.registry.get(&binding.group, &binding.version, plural).ok_or_else(absent)?;
    let form = resource.storage.as_ref().ok_or_else(absent)?;
    let record = write.cx.stored(form, "", name).await?.ok_or_else(absent)?;
    decode_object(resource, &record)
}

/// The error for a decision that does not allow.
fn refusal(decision: Decision, field: &str, failed: &str, why: impl Fn() -> String) -> Option<Cause> {
    match (decision.allowed(), decision.error) {
        (true, _) => None,
        (false, Some(error)) => Some(Cause::forbidden(field, &format!("{failed}{error}"))),
        (false, None) => Some(Cause::forbidden(field, &why())),
    }
}

/// A user as Go prints a pointer to one.
fn shown(user: &User) -> String {
    let mut extra: Vec<_> = user.extra.iter().collect();
    extra.sort();
    let extra: Vec<String> =
        extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::tree;

    #[test]
    fn parameters_by_table() {
        let registry = Registry::builtin();
        let rows = [
            ("v1", "ConfigMap", ("", "v1", "configmaps")),
            ("apps/v1", "Deployment", ("apps", "v1", "deployments")),
            ("apps/v2", "Deployment", ("apps", "v2", "*")),
            ("v1", "Nonesuch", ("", "v1", "*")),
            ("a/b/c", "X", ("*", "*", "*")),
        ];
        for (api_version, kind, expected) in rows {
            let kind = tree!({ "apiVersion": api_version, "kind": kind });
            let found = Parameters::of(&kind, &registry);
            assert_eq!((found.group, found.version, found.resource), expected, "{api_version}");
        }
    }
}
