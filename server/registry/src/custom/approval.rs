//! Protected groups of the Kubernetes community, whose definitions must be annotated with their approval
//! (k8s.io/apiextensions-apiserver, `pkg/apihelpers`).

use plinth_codec::Value;

/// The annotation that a definition in a protected group must have.
const APPROVED: &str = "api-approved.kubernetes.io";
const POLICY: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// Whether a group belongs to the Kubernetes community.
pub fn is_protected_group(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// State of the approval annotation of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// Neither a URL nor a reason.
    Invalid,
    /// The URL of the approval.
    Approved,
    /// A reason why there is no approval.
    Bypassed,
    /// There is no such annotation.
    Missing,
}

/// The approval, and the message for the condition.
pub fn definition_approval(definition: &Value) -> (Approval, String) {
    let annotation = definition.str_at(&["metadata", "annotations", APPROVED]).unwrap_or_default();
    let is_url = annotation
        .parse::<hyper::Uri>()
        .is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some_and(|h| !h.is_empty()));
    match annotation {
        "" => (
            Approval::Missing,
            format!("protected groups must have approval annotation {APPROVED:?}, {POLICY}"),
        ),
        a if a.starts_with("unapproved") => (Approval::Bypassed, format!("not approved: {a:?}")),
        a if is_url => (Approval::Approved, format!("approved in {a}")),
        _ => (
            Approval::Invalid,
            format!("protected groups must have approval annotation {APPROVED:?} with either a URL or a reason starting with \"unapproved\", {POLICY}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::tree;

    #[test]
    fn annotations_by_table() {
        let rows = [
            ("", Approval::Missing),
            ("unapproved, an experiment", Approval::Bypassed),
            ("https://github.com/kubernetes/kubernetes/pull/1", Approval::Approved),
            ("yes", Approval::Invalid),
            ("/pull/1", Approval::Invalid),
        ];
        for (annotation, expected) in rows {
            let annotations = tree!({ "api-approved.kubernetes.io": annotation });
            let definition = tree!({ "metadata": tree!({ "annotations": annotations }) });
            assert_eq!(definition_approval(&definition).0, expected, "{annotation}");
        }
        assert!(is_protected_group("k8s.io") && is_protected_group("x.kubernetes.io"));
        assert!(!is_protected_group("notk8s.io") && !is_protected_group("k8s.io.example.com"));
    }
}
