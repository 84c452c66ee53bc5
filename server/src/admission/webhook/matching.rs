//! Which webhooks a request concerns: rules, scope, selectors. Pure functions over the configuration.
//!
//! Upstream: k8s.io/apiserver `pkg/admission/plugin/webhook/predicates`.

use plinth_codec::selector::LabelSelector;
use plinth_codec::Value;

use super::super::Operation;

/// What a request is about, as rules name it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub operation: Operation,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespaced: bool,
}

fn texts<'a>(rule: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    rule.get(key).and_then(Value::as_array).unwrap_or_default().iter().filter_map(Value::as_str)
}

/// Whether a rule names the request.
pub(super) fn rule_matches(rule: &Value, asked: &Asked<'_>) -> bool {
    let has = |key: &str, given: &str| texts(rule, key).any(|text| text == "*" || text == given);
    let scope = match rule.str_at(&["scope"]) {
        Some("Namespaced") => asked.namespaced,
        Some("Cluster") => !asked.namespaced,
        _ => true,
    };
    scope
        && has("operations", asked.operation.as_str())
        && has("apiGroups", asked.group)
        && has("apiVersions", asked.version)
        && texts(rule, "resources").any(|pattern| resource_matches(pattern, asked))
}

/// `pods`, `pods/log`, `pods/*`, `*/scale`, `*` (no subresource), `*/*`.
fn resource_matches(pattern: &str, asked: &Asked<'_>) -> bool {
    let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    (resource == "*" || resource == asked.resource)
        && (subresource == "*" || subresource == asked.subresource)
}

/// Whether any rule of a webhook names the request.
pub(super) fn rules_match(hook: &Value, asked: &Asked<'_>) -> bool {
    let rules = hook.get("rules").and_then(Value::as_array).unwrap_or_default();
    rules.iter().any(|rule| rule_matches(rule, asked))
}

/// Whether a selector of a webhook takes in an object with these labels; one that cannot be read takes in nothing.
pub(super) fn selects<'a>(hook: &Value, key: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
    match hook.get(key).filter(|selector| !selector.is_null()) {
        None => true,
        selector => LabelSelector::from_object(selector).is_ok_and(|selector| selector.matches(label)),
    }
}

/// Whether the object, or what it was before, is selected.
pub(super) fn object_selected(hook: &Value, object: &Value, old: Option<&Value>) -> bool {
    let of =
        |object: &Value| selects(hook, "objectSelector", |key| object.str_at(&["metadata", "labels", key]));
    (!object.is_null() && of(object)) || old.is_some_and(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    const PODS: Asked<'_> = Asked {
        operation: Operation::Create,
        group: "",
        version: "v1",
        resource: "pods",
        subresource: "",
        namespaced: true,
    };

    #[test]
    fn rules_name_requests() {
        let rule = |resources: &str, more: &str| {
            let text = format!(
                r#"{{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["*"],"resources":[{resources}]{more}}}"#
            );
            json::parse(text.as_bytes()).unwrap()
        };
        let status = Asked { subresource: "status", ..PODS };
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
            (r#""pods""#, "", Asked { operation: Operation::Delete, ..PODS }, false),
            (r#""pods""#, "", Asked { group: "apps", ..PODS }, false),
        ];
        for (resources, more, asked, matches) in rows {
            assert_eq!(rule_matches(&rule(resources, more), &asked), matches, "{resources} {more} {asked:?}");
        }
    }

    #[test]
    fn either_state_of_an_object_is_selected() {
        let hook = json::parse(br#"{"objectSelector":{"matchLabels":{"a":"b"}}}"#).unwrap();
        let with = json::parse(br#"{"metadata":{"labels":{"a":"b"}}}"#).unwrap();
        let without = json::parse(b"{}").unwrap();
        assert!(object_selected(&hook, &with, None));
        assert!(object_selected(&hook, &without, Some(&with)));
        assert!(object_selected(&hook, &Value::Null, Some(&with)));
        assert!(!object_selected(&hook, &without, None));
        assert!(object_selected(&without, &without, None));
    }
}
