//! Which requests match a webhook or policy: rules, scope, selectors, and the version that it gets objects
//! in.
//!
//! Upstream: k8s.io/apiserver `pkg/admission/plugin/webhook/predicates` and
//! `pkg/admission/plugin/policy/matching`.

use std::sync::Arc;

use plinth_codec::selector::LabelSelector;
use plinth_codec::Value;

use super::call::Call;
use plinth_api::ApiError;
use plinth_apiserver::context::Operation;
use plinth_kinds::AdmissionExemption;
use plinth_registry::ResourceType;
use plinth_storage::{Header, Namespaces};

/// Whether the request is exempt from webhooks and policies.
pub(super) fn is_exempt(call: &Call<'_>) -> bool {
    call.cx.resource.strategy.admission_exemption == AdmissionExemption::WebhooksAndPolicies
}

/// Whether the request is exempt from policies. Webhooks may be called.
pub(super) fn is_exempt_from_policies(call: &Call<'_>) -> bool {
    call.cx.resource.strategy.admission_exemption != AdmissionExemption::Nothing
}

/// The attributes of a request that rules match.
#[derive(Clone, Copy, Debug)]
struct RequestAttributes<'a> {
    operation: Operation,
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    subresource: &'a str,
    namespaced: bool,
    /// Name of the object; empty at create while the server has not generated it.
    name: &'a str,
}

fn texts<'a>(rule: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    rule.list_at(&[key]).iter().filter_map(Value::as_str)
}

/// Whether a rule matches the request.
fn rule_matches(rule: &Value, attributes: &RequestAttributes<'_>) -> bool {
    let has = |key: &str, given: &str| texts(rule, key).any(|text| text == "*" || text == given);
    let scope = match rule.str_at(&["scope"]) {
        Some("Namespaced") => attributes.namespaced,
        Some("Cluster") => !attributes.namespaced,
        _ => true,
    };
    scope
        && has("operations", attributes.operation.as_str())
        && has("apiGroups", attributes.group)
        && has("apiVersions", attributes.version)
        && texts(rule, "resources").any(|pattern| resource_matches(pattern, attributes))
        && (texts(rule, "resourceNames").next().is_none()
            || texts(rule, "resourceNames").any(|name| name == attributes.name))
}

/// `pods`, `pods/log`, `pods/*`, `*/scale`, `*` (no subresource), `*/*`.
fn resource_matches(pattern: &str, attributes: &RequestAttributes<'_>) -> bool {
    let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    (resource == "*" || resource == attributes.resource)
        && (subresource == "*" || subresource == attributes.subresource)
}

/// The resource as requested, or in another version that matches a rule; `None` when no rule matches. A
/// version that is switched off counts as well: its objects are written in those that are on.
pub(super) fn matched_version(
    call: &Call<'_>,
    rules: &[Value],
    exact: bool,
    object: &Value,
) -> Option<Arc<ResourceType>> {
    let resource = &call.cx.resource;
    let name = call.object_name(object);
    let matches = |rule: &Value, resource: &ResourceType| {
        let attributes = RequestAttributes {
            operation: call.operation,
            group: resource.group(),
            version: &resource.row.version,
            resource: resource.plural(),
            subresource: &call.cx.info.subresource,
            namespaced: resource.row.namespaced,
            name,
        };
        rule_matches(rule, &attributes)
    };
    if rules.iter().any(|rule| matches(rule, resource)) {
        return Some(resource.clone());
    }
    if exact {
        return None;
    }
    let prefix = &resource.storage.as_ref()?.prefix;
    let part = call.cx.info.subresource.as_str();
    // Of a subresource, the versions that have it.
    let has_part = |other: &ResourceType| part.is_empty() || other.row.subresource(part).is_some();
    let mut same = call.cx.registry.known().filter(|other| {
        other.storage.as_ref().is_some_and(|storage| storage.prefix == *prefix) && has_part(other)
    });
    same.find(|other| rules.iter().any(|rule| matches(rule, other))).cloned()
}

/// The version in which a webhook gets the request, if the request matches.
///
/// # Errors
/// When the namespace cannot be read.
pub(super) async fn by_webhook(
    call: &Call<'_>,
    hook: &Value,
    object: &Value,
) -> Result<Option<Arc<ResourceType>>, ApiError> {
    let exact = hook.str_at(&["matchPolicy"]) == Some("Exact");
    let Some(matched) = matched_version(call, hook.list_at(&["rules"]), exact, object) else {
        return Ok(None);
    };
    let selected = object_selected(hook, objects_with_labels(call, object))
        && namespace_selected(call, hook, object).await?;
    Ok(selected.then_some(matched))
}

/// The version in which a policy gets the request, if the request matches its `matchConstraints` or the
/// `matchResources` of a binding. Without rules every request matches.
///
/// # Errors
/// When the namespace cannot be read.
pub(super) async fn by_constraints(
    call: &Call<'_>,
    constraints: &Value,
    object: &Value,
) -> Result<Option<Arc<ResourceType>>, ApiError> {
    let exact = constraints.str_at(&["matchPolicy"]) == Some("Exact");
    if !object_selected(constraints, objects_with_labels(call, object))
        || matched_version(call, constraints.list_at(&["excludeResourceRules"]), exact, object).is_some()
    {
        return Ok(None);
    }
    let matched = match constraints.list_at(&["resourceRules"]) {
        [] => Some(call.cx.resource.clone()),
        rules => matched_version(call, rules, exact, object),
    };
    let Some(matched) = matched else { return Ok(None) };
    Ok(namespace_selected(call, constraints, object).await?.then_some(matched))
}

/// Namespaces are selected by their own labels, namespaced objects by those of their namespace, all others
/// always.
async fn namespace_selected(call: &Call<'_>, owner: &Value, object: &Value) -> Result<bool, ApiError> {
    const KEY: &str = "namespaceSelector";
    if call.is_about_namespace() {
        // At a subresource what is sent does not change the labels.
        let is_stored = object.is_null() || !call.cx.info.subresource.is_empty();
        let object = call.old.filter(|_| is_stored).unwrap_or(object);
        return Ok(selects(owner, KEY, |key| object.str_at(&["metadata", "labels", key])));
    }
    if call.namespace.is_empty() || selects_all(owner, KEY) {
        return Ok(true);
    }
    let server = &call.cx.server;
    let selected = |namespace: Header<'_>| selects(owner, KEY, |key| namespace.label(key));
    let selected = server.namespaces.read(&server.store, call.namespace, selected).await?;
    selected.ok_or_else(|| Namespaces::not_found(call.namespace))
}

/// Whether a selector of a webhook or policy is absent or empty, and so matches what has no labels, too.
fn selects_all(owner: &Value, key: &str) -> bool {
    let Some(selector) = owner.get(key) else { return true };
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    selector.list_at(&["matchExpressions"]).is_empty() && labels.is_none_or(plinth_codec::Map::is_empty)
}

/// Whether a selector of a webhook or policy matches the labels; an invalid one matches nothing.
fn selects<'a>(owner: &Value, key: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
    match owner.get(key).filter(|selector| !selector.is_null()) {
        None => true,
        selector => LabelSelector::from_object(selector).is_ok_and(|selector| selector.matches(label)),
    }
}

/// The objects of a request that have labels; options of a connection have no metadata.
fn objects_with_labels<'v>(call: &Call<'v>, new: &'v Value) -> [Option<&'v Value>; 2] {
    let is_object = call.operation != Operation::Connect && !new.is_null();
    [is_object.then_some(new), call.old]
}

/// Whether the selector matches the new or the old object.
fn object_selected(owner: &Value, objects: [Option<&Value>; 2]) -> bool {
    const KEY: &str = "objectSelector";
    let of = |object: &Value| selects(owner, KEY, |key| object.str_at(&["metadata", "labels", key]));
    selects_all(owner, KEY) || objects.into_iter().flatten().any(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    const PODS: RequestAttributes<'_> = RequestAttributes {
        operation: Operation::Create,
        group: "",
        version: "v1",
        resource: "pods",
        subresource: "",
        namespaced: true,
        name: "p",
    };

    #[test]
    fn rules_name_requests() {
        let rule = |resources: &str, more: &str| {
            let text = format!(
                r#"{{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["*"],"resources":[{resources}]{more}}}"#
            );
            json::parse(text.as_bytes()).unwrap()
        };
        let status = RequestAttributes { subresource: "status", ..PODS };
        // resources, more of the rule, request, matches
        let rows = [
            (r#""pods""#, "", PODS, true),
            (r#""pods""#, "", status, false),
            (r#""pods/*""#, "", status, true),
            (r#""*""#, "", PODS, true),
            (r#""*""#, "", status, false),
            (r#""*/*""#, "", status, true),
            (r#""*/status""#, "", status, true),
            (r#""services""#, "", PODS, false),
            (r#""pods""#, r#","scope":"Cluster""#, PODS, false),
            (r#""pods""#, r#","scope":"Namespaced""#, PODS, true),
            (r#""pods""#, r#","resourceNames":["p"]"#, PODS, true),
            (r#""pods""#, r#","resourceNames":["q"]"#, PODS, false),
            (r#""pods""#, "", RequestAttributes { operation: Operation::Delete, ..PODS }, false),
            (r#""pods""#, "", RequestAttributes { group: "apps", ..PODS }, false),
        ];
        for (resources, more, attributes, matches) in rows {
            assert_eq!(
                rule_matches(&rule(resources, more), &attributes),
                matches,
                "{resources} {more} {attributes:?}"
            );
        }
    }

    #[test]
    fn either_state_of_an_object_is_selected() {
        let hook = json::parse(br#"{"objectSelector":{"matchLabels":{"a":"b"}}}"#).unwrap();
        let with = json::parse(br#"{"metadata":{"labels":{"a":"b"}}}"#).unwrap();
        let without = json::parse(b"{}").unwrap();
        assert!(object_selected(&hook, [Some(&with), None]));
        assert!(object_selected(&hook, [Some(&without), Some(&with)]));
        assert!(object_selected(&hook, [None, Some(&with)]));
        assert!(!object_selected(&hook, [Some(&without), None]));
        assert!(object_selected(&without, [Some(&without), None]));
        let lacks = json::parse(
            br#"{"objectSelector":{"matchExpressions":[{"key":"skip","operator":"DoesNotExist"}]}}"#,
        );
        assert!(object_selected(lacks.as_ref().unwrap(), [Some(&without), None]));
        assert!(!object_selected(lacks.as_ref().unwrap(), [None, None]), "options of a connection");
        assert!(object_selected(&without, [None, None]));
    }
}
