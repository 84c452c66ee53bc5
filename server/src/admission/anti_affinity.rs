//! `LimitPodHardAntiAffinityTopology`: required pod anti-affinity may use the topology of nodes only. Off by
//! default.
//!
//! Upstream: kubernetes `plugin/pkg/admission/antiaffinity`.

use plinth_codec::Value;

use super::call::Call;
use plinth_api::{metadata_text, ApiError};

const NODE: &str = "kubernetes.io/hostname";
const REQUIRED: [&str; 4] =
    ["spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];

/// Denies required anti-affinity with another topology than nodes.
///
/// # Errors
/// 403 that names the first such topology.
pub(super) fn validate(call: &Call<'_>, pod: &Value) -> Result<(), ApiError> {
    match wider(pod) {
        None => Ok(()),
        Some(key) => {
            let why = format!(
                "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {NODE} is allowed"
            );
            let resource = &call.cx.resource;
            Err(ApiError::forbidden(resource.group(), resource.plural(), metadata_text(pod, "name"), &why))
        }
    }
}

fn wider(pod: &Value) -> Option<&str> {
    let terms = pod.list_at(&REQUIRED);
    terms.iter().map(|term| term.str_at(&["topologyKey"]).unwrap_or_default()).find(|key| *key != NODE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn a_node_is_as_far_as_it_goes() {
        // required terms, preferred ones, what is refused
        let rows = [
            ("[]", "[]", None),
            (r#"[{"topologyKey":"kubernetes.io/hostname"}]"#, "[]", None),
            (r#"[{"topologyKey":"kubernetes.io/hostname"},{"topologyKey":"zone"}]"#, "[]", Some("zone")),
            ("[]", r#"[{"podAffinityTerm":{"topologyKey":"zone"}}]"#, None),
        ];
        for (required, preferred, refused) in rows {
            let text = format!(
                r#"{{"spec":{{"affinity":{{"podAntiAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{required},"preferredDuringSchedulingIgnoredDuringExecution":{preferred}}}}}}}}}"#
            );
            assert_eq!(wider(&json::parse(text.as_bytes()).unwrap()), refused, "{text}");
        }
    }
}
