//! The networks that Services' cluster addresses are allocated from: those of the ServiceCIDRs that are
//! ready.
//!
//! They are read for each allocation, so that one that is added, becomes ready or is being deleted counts
//! from then on, on each replica. Upstream: kubernetes
//! `pkg/registry/core/service/ipallocator/cidrallocator.go`.

use ipnet::IpNet;
use plinth_codec::Value;

use crate::context::Context;
use plinth_api::{find_condition, is_deleting, metadata_text, ApiError};

/// The ServiceCIDR of the networks in `--service-cluster-ip-range`.
pub const DEFAULT_SERVICE_CIDR: &str = "kubernetes";

/// The networks of both families, in the order of the ServiceCIDRs' names. While the default ServiceCIDR is
/// still to be created, its networks are those of the flag.
pub(super) async fn networks(cx: &Context) -> Result<Vec<IpNet>, ApiError> {
    let resource = cx.registry.internal("networking.k8s.io", "v1", "servicecidrs");
    let resource = resource.ok_or_else(ApiError::no_such_resource)?;
    let objects = cx.server.store.objects(resource, "").await?;
    let is_default = |object: &Value| metadata_text(object, "name") == DEFAULT_SERVICE_CIDR;
    let mut networks = match objects.iter().any(is_default) {
        true => Vec::new(),
        false => cx.server.services.addresses.clone(),
    };
    networks.extend(objects.iter().filter(|object| is_ready(object)).flat_map(of_object));
    Ok(networks)
}

/// Ready is also one without the condition: kube-controller-manager, which sets it, need not run.
fn is_ready(object: &Value) -> bool {
    let condition = find_condition(object, "Ready");
    let is_unready = condition.is_some_and(|condition| condition.str_at(&["status"]) != Some("True"));
    !is_unready && !is_deleting(object)
}

fn of_object(object: &Value) -> impl Iterator<Item = IpNet> + '_ {
    object.list_at(&["spec", "cidrs"]).iter().filter_map(|network| network.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn only_ready_ones_count() {
        let object = |metadata: &str, status: &str| {
            let text = format!(
                r#"{{"metadata":{metadata},"spec":{{"cidrs":["10.1.0.0/24","fd00::/112"]}},"status":{status}}}"#
            );
            json::parse(text.as_bytes()).unwrap()
        };
        let ready = r#"{"conditions":[{"type":"Ready","status":"True"}]}"#;
        assert!(is_ready(&object("{}", ready)));
        assert!(is_ready(&object("{}", "{}")));
        assert!(is_ready(&object("{}", r#"{"conditions":[{"type":"Other","status":"False"}]}"#)));
        for status in ["False", "Unknown"] {
            let status = format!(r#"{{"conditions":[{{"type":"Ready","status":"{status}"}}]}}"#);
            assert!(!is_ready(&object("{}", &status)));
        }
        for status in [ready, "{}"] {
            assert!(!is_ready(&object(r#"{"deletionTimestamp":"2026-01-01T00:00:00Z"}"#, status)));
        }
        let networks: Vec<String> =
            of_object(&object("{}", ready)).map(|network| network.to_string()).collect();
        assert_eq!(networks, ["10.1.0.0/24", "fd00::/112"]);
    }
}
