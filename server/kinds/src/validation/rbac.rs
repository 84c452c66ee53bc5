//! Roles and bindings.

use plinth_codec::{names, Value};

use super::Check::{By, Each, RequiredText, Selector};
use super::{at, list, text, Check};

const GROUP: &str = "rbac.authorization.k8s.io";
use plinth_api::api_error::Cause;
use plinth_api::field::{self, Place};

/// rbac.authorization.k8s.io/v1 Role.
pub const ROLE: &[Check] = &[Each("rules", &[By(namespaced_rule)])];
/// rbac.authorization.k8s.io/v1 ClusterRole.
pub const CLUSTER_ROLE: &[Check] = &[Each("rules", &[By(cluster_rule)]), By(aggregation)];
/// rbac.authorization.k8s.io/v1 RoleBinding.
pub const ROLE_BINDING: &[Check] = &[
    By(|binding, _, errors| role_ref(binding, &["Role", "ClusterRole"], errors)),
    RequiredText("roleRef.name", names::path_segment_errors),
    Each("subjects", &[By(|s, path, errors| subject(s, path, true, errors))]),
];
/// rbac.authorization.k8s.io/v1 ClusterRoleBinding.
pub const CLUSTER_ROLE_BINDING: &[Check] = &[
    By(|binding, _, errors| role_ref(binding, &["ClusterRole"], errors)),
    RequiredText("roleRef.name", names::path_segment_errors),
    Each("subjects", &[By(|s, path, errors| subject(s, path, false, errors))]),
];

fn namespaced_rule(value: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    rule(value, path, true, errors);
}

fn cluster_rule(value: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    rule(value, path, false, errors);
}

fn rule(rule: &Value, path: Place<'_>, namespaced: bool, errors: &mut Vec<Cause>) {
    let has = |key: &str| !list(rule, key).is_empty();
    if !has("verbs") {
        errors.push(field::required(format_args!("{path}verbs"), "verbs must contain at least one value"));
    }
    if has("nonResourceURLs") {
        let mut refuse = |why: &str| {
            let paths = list(rule, "nonResourceURLs").to_vec();
            errors.push(field::invalid(format_args!("{path}nonResourceURLs"), paths, why));
        };
        if namespaced {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        if has("apiGroups") || has("resources") || has("resourceNames") {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    let needed = [
        ("apiGroups", "resource rules must supply at least one api group"),
        ("resources", "resource rules must supply at least one resource"),
    ];
    for (key, why) in needed.into_iter().filter(|(key, _)| !has(key)) {
        errors.push(field::required(format_args!("{path}{key}"), why));
    }
}

fn aggregation(role: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    let Some(rule) = at(role, "aggregationRule").filter(|rule| !rule.is_null()) else { return };
    if list(rule, "clusterRoleSelectors").is_empty() {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(field::required("aggregationRule.clusterRoleSelectors", why));
    }
    for (i, selector) in list(rule, "clusterRoleSelectors").iter().enumerate() {
        // The row reads a member of an object; the element is given one.
        let holder = plinth_codec::tree!({ "selector": selector.clone() });
        let mut found = Vec::new();
        super::validate(&[Selector("selector")], &holder, format_args!(""), &mut found);
        let here = format_args!("aggregationRule.clusterRoleSelectors[{i}]");
        errors.extend(found.into_iter().map(|mut error| {
            error.field = error.field.replacen("selector", &here.to_string(), 1);
            error
        }));
    }
}

fn role_ref(binding: &Value, kinds: &[&str], errors: &mut Vec<Cause>) {
    let group = text(binding, "roleRef.apiGroup");
    if group != GROUP {
        errors.push(field::not_supported("roleRef.apiGroup", group, &[GROUP]));
    }
    let kind = text(binding, "roleRef.kind");
    if !kinds.contains(&kind) {
        errors.push(field::not_supported("roleRef.kind", kind, kinds));
    }
}

fn subject(subject: &Value, path: Place<'_>, namespaced: bool, errors: &mut Vec<Cause>) {
    let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
    if name.is_empty() {
        errors.push(field::required(format_args!("{path}name"), ""));
    }
    let wanted_group = match text(subject, "kind") {
        "ServiceAccount" => {
            let bad = if name.is_empty() { Vec::new() } else { names::dns1123_subdomain_errors(name) };
            errors.extend(bad.iter().map(|why| field::invalid(format_args!("{path}name"), name, why)));
            ""
        }
        "User" | "Group" => GROUP,
        other => {
            let supported = &["ServiceAccount", "User", "Group"];
            errors.push(field::not_supported(format_args!("{path}kind"), other, supported));
            return;
        }
    };
    if group != wanted_group {
        errors.push(field::not_supported(format_args!("{path}apiGroup"), group, &[wanted_group]));
    }
    if wanted_group.is_empty() && !namespaced && text(subject, "namespace").is_empty() {
        errors.push(field::required(format_args!("{path}namespace"), ""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_by_table() {
        // resource, object, paths of the errors and their messages up to the first comma
        let rows: &[(&str, &str, &[(&str, &str)])] = &[
            (
                "roles",
                r#"{"rules":[{"verbs":["get"],"nonResourceURLs":["/x"],"resources":["pods"]}]}"#,
                &[
                    ("rules[0].nonResourceURLs", "namespaced rules cannot apply to non-resource URLs"),
                    (
                        "rules[0].nonResourceURLs",
                        "rules cannot apply to both regular resources and non-resource URLs",
                    ),
                ],
            ),
            ("clusterroles", r#"{"rules":[{"verbs":["get"],"nonResourceURLs":["/x"]}]}"#, &[]),
            (
                "clusterroles",
                r#"{"rules":[{}]}"#,
                &[
                    ("rules[0].verbs", "verbs must contain at least one value"),
                    ("rules[0].apiGroups", "at least one api group"),
                    ("rules[0].resources", "at least one resource"),
                ],
            ),
            (
                "clusterroles",
                r#"{"aggregationRule":{}}"#,
                &[("aggregationRule.clusterRoleSelectors", "at least one clusterRoleSelector required")],
            ),
            (
                "clusterroles",
                r#"{"aggregationRule":{"clusterRoleSelectors":[{"matchExpressions":[{"key":"a","operator":"In"}]}]}}"#,
                &[(
                    "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values",
                    "must be specified when `operator` is 'In' or 'NotIn'",
                )],
            ),
            (
                "rolebindings",
                r#"{"roleRef":{"apiGroup":"x","kind":"Y"},"subjects":[{"kind":"ServiceAccount","name":"a_b"},{"kind":"User","name":"u"},{"kind":"Z"}]}"#,
                &[
                    ("roleRef.apiGroup", "Unsupported value: \"x\""),
                    ("roleRef.kind", "supported values: \"Role\", \"ClusterRole\""),
                    ("roleRef.name", "Required value"),
                    ("subjects[0].name", "a lowercase RFC 1123 subdomain"),
                    ("subjects[1].apiGroup", "Unsupported value: \"\""),
                    ("subjects[2].name", "Required value"),
                    ("subjects[2].kind", "\"ServiceAccount\", \"User\", \"Group\""),
                ],
            ),
            (
                "clusterrolebindings",
                r#"{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"a/b"},"subjects":[{"kind":"ServiceAccount","name":"a","apiGroup":"x"}]}"#,
                &[
                    ("roleRef.kind", "supported values: \"ClusterRole\""),
                    ("roleRef.name", "may not contain '/'"),
                    ("subjects[0].apiGroup", "Unsupported value: \"x\": supported values: \"\""),
                    ("subjects[0].namespace", "Required value"),
                ],
            ),
        ];
        for (plural, object, expected) in rows {
            let object = plinth_codec::json::parse(object.as_bytes()).unwrap();
            let errors = crate::of(GROUP, plural).errors(&object);
            let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
            let wanted: Vec<&str> = expected.iter().map(|(field, _)| *field).collect();
            assert_eq!(fields, wanted, "{plural}");
            for (error, (_, message)) in errors.iter().zip(*expected) {
                assert!(error.message.contains(message), "{:?} has no {message:?}", error.message);
            }
        }
    }
}
