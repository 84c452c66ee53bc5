//! Fields that a write to a resource or subresource cannot own, since the server resets them: the status for
//! the object itself, the spec for `/status`, and so on. Upstream's strategies list them (`GetResetFields`).

use std::sync::LazyLock;

use super::path::PathElement;
use super::set::{Builder, Set, View};

/// Which fields a write cannot own.
#[derive(Clone, Debug, Default)]
pub enum Reset {
    /// Everything may be owned.
    #[default]
    Nothing,
    /// These fields and all below them may not.
    Except(Set),
    /// Only fields below these paths may; `*` stands for any element.
    Only(&'static [&'static [&'static str]]),
}

impl Reset {
    /// The set without fields that may not be owned.
    pub(super) fn filter(&self, set: Set) -> Set {
        match self {
            Reset::Nothing => set,
            Reset::Except(fields) if set.is_apart_from(fields) => set,
            Reset::Except(fields) => set.recursive_difference(fields),
            Reset::Only(patterns) => {
                let mut out = Builder::default();
                only(set.view(), patterns, &mut out);
                out.finish()
            }
        }
    }
}

fn only(view: View<'_>, patterns: &[&[&str]], out: &mut Builder) {
    for node in view.nodes() {
        let matches = |step: &str| match node.element {
            PathElement::Field(name) => step == "*" || step == name,
            _ => step == "*",
        };
        let rest: Vec<&[&str]> = patterns
            .iter()
            .filter_map(|pattern| pattern.split_first())
            .filter(|(first, _)| matches(first))
            .map(|(_, rest)| rest)
            .collect();
        if rest.is_empty() {
            continue;
        }
        out.enter(node.element.clone());
        if rest.iter().any(|pattern| pattern.is_empty()) {
            out.leave();
            out.copy(node);
            continue;
        }
        only(node.below, &rest, out);
        out.leave();
    }
}

/// Rows of resources that differ from the rule: group, resource, subresource, fields.
type Row = (&'static str, &'static str, &'static str, &'static [&'static [&'static str]]);

const STATUS: &[&str] = &["status"];
const SPEC: &[&str] = &["spec"];
const METADATA: &[&str] = &["metadata"];

const EXCEPTIONS: &[Row] = &[
    ("", "namespaces", "finalize", &[STATUS]),
    ("", "pods", "status", &[SPEC, &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]]),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", "status", &[SPEC, METADATA]),
    ("apiregistration.k8s.io", "apiservices", "status", &[SPEC, METADATA]),
    ("apps", "deployments", "status", &[SPEC, &["metadata", "labels"]]),
    ("certificates.k8s.io", "certificatesigningrequests", "", &[SPEC, STATUS]),
    ("certificates.k8s.io", "certificatesigningrequests", "approval", &[SPEC, &["status", "certificate"]]),
    ("certificates.k8s.io", "certificatesigningrequests", "status", &[SPEC, &["status", "conditions"]]),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "status", &[SPEC, METADATA]),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "status", &[SPEC, METADATA]),
    ("internal.apiserver.k8s.io", "storageversions", "status", &[SPEC, METADATA]),
    ("networking.k8s.io", "servicecidrs", "status", &[SPEC, METADATA]),
    ("resource.k8s.io", "devicetaintrules", "status", &[SPEC, METADATA]),
    ("resource.k8s.io", "resourceclaims", "status", &[SPEC, METADATA]),
    ("resource.k8s.io", "resourcepoolstatusrequests", "status", &[SPEC, METADATA]),
    ("scheduling.k8s.io", "podgroups", "status", &[SPEC, METADATA]),
    ("storage.k8s.io", "volumeattachments", "status", &[SPEC, METADATA]),
    ("storagemigration.k8s.io", "storageversionmigrations", "status", &[SPEC, METADATA]),
];

/// Subresources that may own only these fields.
const ALLOWED: &[Row] = &[
    ("", "pods", "ephemeralcontainers", &[&["spec", "ephemeralContainers"]]),
    (
        "",
        "pods",
        "resize",
        &[
            &["spec", "containers", "*", "resources"],
            &["spec", "containers", "*", "resizePolicy"],
            &["spec", "initContainers", "*", "resources"],
            &["spec", "initContainers", "*", "resizePolicy"],
        ],
    ),
];

/// Without a status subresource, or with one that resets nothing.
static RULES: LazyLock<[Reset; 3]> =
    LazyLock::new(|| [except(&[STATUS]), except(&[SPEC]), except(&[SPEC, METADATA])]);

static TABLE: LazyLock<Vec<(Row, Reset)>> = LazyLock::new(|| {
    let exceptions = EXCEPTIONS.iter().map(|row| (*row, except(row.3)));
    let allowed = ALLOWED.iter().map(|row| (*row, Reset::Only(row.3)));
    exceptions.chain(allowed).collect()
});

fn except(paths: &[&[&'static str]]) -> Reset {
    let paths: Vec<Vec<PathElement>> = paths
        .iter()
        .map(|path| path.iter().map(|name| PathElement::Field((*name).into())).collect())
        .collect();
    Reset::Except(Set::of(paths.iter().map(Vec::as_slice)))
}

/// The reset fields of a built-in resource. `has_status`: whether the resource has a status subresource.
pub fn builtin(group: &str, resource: &str, subresource: &str, has_status: bool) -> &'static Reset {
    static NOTHING: Reset = Reset::Nothing;
    let row = TABLE.iter().find(|((g, r, s, _), _)| (*g, *r, *s) == (group, resource, subresource));
    match (row, subresource) {
        (Some((_, reset)), _) => reset,
        (None, "") if has_status => &RULES[0],
        (None, "status") => &RULES[1],
        _ => &NOTHING,
    }
}

/// The reset fields of a custom resource.
pub fn custom(subresource: &str, has_status: bool) -> &'static Reset {
    static NOTHING: Reset = Reset::Nothing;
    match subresource {
        "" if has_status => &RULES[0],
        "status" => &RULES[2],
        _ => &NOTHING,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::fields_v1;
    use crate::patch::testkit::json;

    #[test]
    fn filters_by_table() {
        let all = r#"{"f:metadata":{"f:labels":{"f:a":{}},"f:ownerReferences":{}},"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:resources":{"f:limits":{}}}},"f:ephemeralContainers":{".":{}},"f:x":{}},"f:status":{"f:phase":{},"f:conditions":{}}}"#;
        let rows = [
            (builtin("", "pods", "", true), vec!["f:metadata", "f:spec"]),
            (builtin("", "configmaps", "", false), vec!["f:metadata", "f:spec", "f:status"]),
            (builtin("", "services", "status", true), vec!["f:metadata", "f:status"]),
            (builtin("storage.k8s.io", "volumeattachments", "status", true), vec!["f:status"]),
            (builtin("certificates.k8s.io", "certificatesigningrequests", "", true), vec!["f:metadata"]),
            (custom("", true), vec!["f:metadata", "f:spec"]),
            (custom("", false), vec!["f:metadata", "f:spec", "f:status"]),
            (custom("status", true), vec!["f:status"]),
        ];
        let set = fields_v1::decode(&json(all)).unwrap();
        for (reset, want) in rows {
            let left = reset.filter(set.clone());
            let top: Vec<_> = left.view().nodes().map(|n| n.element.to_key()).collect();
            assert_eq!(top, want, "{reset:?}");
        }
        let left =
            |subresource| fields_v1::encode(&builtin("", "pods", subresource, true).filter(set.clone()));
        assert_eq!(left("ephemeralcontainers"), json(r#"{"f:spec":{"f:ephemeralContainers":{}}}"#));
        assert_eq!(
            left("resize"),
            json(r#"{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{"f:resources":{"f:limits":{}}}}}}"#)
        );
        assert_eq!(
            left("status"),
            json(r#"{"f:metadata":{"f:labels":{"f:a":{}}},"f:status":{"f:phase":{},"f:conditions":{}}}"#)
        );
    }
}
