//! Role and ClusterRole (`rbac.authorization.k8s.io`).

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::Value;

use crate::checks::validate;
use crate::checks::Check::{self, By, Each, Selector};
use crate::path::{at, list};
use crate::strategy::{NameRule, Strategy, BASE};

pub(crate) const STRATEGY: Strategy =
    Strategy { name: NameRule::PathSegment, create_on_update: true, checks: CHECKS, ..BASE };

pub(crate) const CLUSTER_STRATEGY: Strategy =
    Strategy { name: NameRule::PathSegment, create_on_update: true, checks: CLUSTER_CHECKS, ..BASE };

const CHECKS: &[Check] = &[Each("rules", &[By(namespaced_rule)])];

const CLUSTER_CHECKS: &[Check] = &[Each("rules", &[By(cluster_rule)]), By(aggregation)];

fn namespaced_rule(value: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    policy_rule(value, path, true, errors);
}

fn cluster_rule(value: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    policy_rule(value, path, false, errors);
}

fn policy_rule(rule: &Value, path: FieldPath<'_>, namespaced: bool, errors: &mut Vec<Cause>) {
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

fn aggregation(role: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let Some(rule) = at(role, "aggregationRule").filter(|rule| !rule.is_null()) else { return };
    if list(rule, "clusterRoleSelectors").is_empty() {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(field::required("aggregationRule.clusterRoleSelectors", why));
    }
    for (i, selector) in list(rule, "clusterRoleSelectors").iter().enumerate() {
        // The row reads a member of an object, so the element is wrapped in one.
        let holder = plinth_codec::tree!({ "selector": selector.clone() });
        let mut found = Vec::new();
        validate(&[Selector("selector")], &holder, format_args!(""), &mut found);
        let here = format_args!("aggregationRule.clusterRoleSelectors[{i}]");
        errors.extend(found.into_iter().map(|mut error| {
            error.field = error.field.replacen("selector", &here.to_string(), 1);
            error
        }));
    }
}
