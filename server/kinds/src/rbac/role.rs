//! Role and ClusterRole (`rbac.authorization.k8s.io`).

use crate::checks::Check::{self, By, Each, In, Required, Selector};
use crate::checks::Part;
use crate::strategy::{NameRule, Strategy, BASE};

pub(crate) const STRATEGY: Strategy =
    Strategy { name: NameRule::PathSegment, create_on_update: true, checks: CHECKS, ..BASE };

pub(crate) const CLUSTER_STRATEGY: Strategy =
    Strategy { name: NameRule::PathSegment, create_on_update: true, checks: CLUSTER_CHECKS, ..BASE };

const CHECKS: &[Check] = &[Each("rules", &[By(|rule| policy_rule(rule, true))])];

const CLUSTER_CHECKS: &[Check] =
    &[Each("rules", &[By(|rule| policy_rule(rule, false))]), In("aggregationRule", AGGREGATION)];

const AGGREGATION: &[Check] = &[
    Required(
        "clusterRoleSelectors",
        "at least one clusterRoleSelector required if aggregationRule is non-nil",
    ),
    Each("clusterRoleSelectors", &[Selector("")]),
];

fn policy_rule(rule: &Part<'_>, namespaced: bool) {
    rule.check(&[Required("verbs", "verbs must contain at least one value")]);
    if rule.is_empty("nonResourceURLs") {
        rule.check(&[
            Required("apiGroups", "resource rules must supply at least one api group"),
            Required("resources", "resource rules must supply at least one resource"),
        ]);
        return;
    }
    let refuse = |why: &str| rule.invalid("nonResourceURLs", rule.list("nonResourceURLs").to_vec(), why);
    if namespaced {
        refuse("namespaced rules cannot apply to non-resource URLs");
    }
    if !["apiGroups", "resources", "resourceNames"].iter().all(|key| rule.is_empty(key)) {
        refuse("rules cannot apply to both regular resources and non-resource URLs");
    }
}
