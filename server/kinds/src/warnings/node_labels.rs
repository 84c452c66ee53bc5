//! Warnings about deprecated labels of nodes.

use plinth_codec::Value;

use crate::path::text;
use crate::warnings::Warnings;

/// Deprecated labels of nodes.
const DEPRECATED_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#),
    ("beta.kubernetes.io/os", r#"deprecated since v1.14; use "kubernetes.io/os" instead"#),
    (
        "failure-domain.beta.kubernetes.io/region",
        r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#,
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#,
    ),
    (
        "beta.kubernetes.io/instance-type",
        r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#,
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", r#"use "node-role.kubernetes.io/control-plane" instead"#),
];

pub(crate) fn deprecated_label(key: &str) -> Option<&'static str> {
    DEPRECATED_LABELS.iter().find(|(old, _)| *old == key).map(|(_, why)| *why)
}

/// Adds warnings about requirements on deprecated labels.
pub(crate) fn warn_expressions(expressions: &[Value], path: &str, found: &mut Warnings) {
    for (i, expression) in expressions.iter().enumerate() {
        let key = text(expression, "key");
        if let Some(why) = deprecated_label(key) {
            found.add(format!("{path}.matchExpressions[{i}].key: {key} is {why}"));
        }
    }
}

/// Keys of a map that are deprecated labels, with their warnings.
pub(crate) fn deprecated_keys<'a>(
    map: Option<&'a Value>,
) -> impl Iterator<Item = (&'static str, &'static str)> + 'a {
    DEPRECATED_LABELS.into_iter().filter(move |(key, _)| map.is_some_and(|map| map.get(key).is_some()))
}
