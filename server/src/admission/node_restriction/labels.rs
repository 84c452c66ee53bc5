//! Node labels that a kubelet may set.
//!
//! Upstream: k8s.io/kubelet `pkg/apis/well_known_labels.go`. Labels in Kubernetes' own domains influence
//! scheduling, so a kubelet may set only those that describe its node.

use plinth_codec::{Map, Value};

/// Well-known labels that a kubelet may set.
const KUBELET: &[&str] = &[
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
/// Domains, with their subdomains, of labels that a kubelet may set.
const KUBELET_DOMAINS: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];
/// The domain of labels that kubelets must not set.
const RESTRICTED: &str = "node-restriction.kubernetes.io";

/// The labels of an object.
pub(super) fn of(object: &Value) -> Map {
    object.at(&["metadata", "labels"]).and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The keys of changed labels that a kubelet may not set, sorted.
pub(super) fn forbidden(new: &Value, old: &Value) -> Vec<String> {
    let (new, old) = (of(new), of(old));
    let changed = new.iter().filter(|(key, value)| old.get(key) != Some(value)).map(|(key, _)| key);
    let gone = old.keys().filter(|key| !new.contains(key));
    let mut keys: Vec<String> =
        changed.chain(gone).filter(|key| is_forbidden(key)).map(|key| key.to_string()).collect();
    keys.sort_unstable();
    keys
}

fn is_forbidden(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_in =
        |parent: &str| domain.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let is_kubelets = KUBELET.contains(&key) || KUBELET_DOMAINS.iter().any(|parent| is_in(parent));
    is_in(RESTRICTED) || ((is_in("kubernetes.io") || is_in("k8s.io")) && !is_kubelets)
}

#[cfg(test)]
mod tests {
    use super::is_forbidden;

    #[test]
    fn keys_by_table() {
        let rows = [
            ("mine", false),
            ("example.com/zone", false),
            ("notkubernetes.io/x", false),
            ("kubernetes.io/hostname", false),
            ("topology.kubernetes.io/zone", false),
            ("node.kubernetes.io/anything", false),
            ("sub.node.kubernetes.io/anything", false),
            ("kubelet.kubernetes.io/x", false),
            ("kubernetes.io/x", true),
            ("node-role.kubernetes.io/control-plane", true),
            ("a.k8s.io/x", true),
            ("k8s.io/x", true),
            ("node-restriction.kubernetes.io/x", true),
            ("a.node-restriction.kubernetes.io/x", true),
        ];
        for (key, expected) in rows {
            assert_eq!(is_forbidden(key), expected, "{key}");
        }
    }
}
