//! Of Services, what they lead to, and what lets traffic pass.

use plinth_codec::Value;

use super::{address, annotation, at, list, text, Found};

/// Of a Service.
pub fn service(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Found::default();
    if annotation(new, "service.kubernetes.io/topology-aware-hints").is_some() {
        found.add("annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead");
    }
    let kind = text(new, "spec.type");
    let has_address = !matches!(text(new, "spec.clusterIP"), "" | "None");
    let headless = kind == "ClusterIP" && text(new, "spec.clusterIP") == "None";
    let external = list(new, "spec.externalIPs");
    let balancer = text(new, "spec.loadBalancerIP");
    if has_address && kind != "ExternalName" {
        address::each(list(new, "spec.clusterIPs"), "spec.clusterIPs", &mut found);
    }
    if headless {
        if !balancer.is_empty() {
            found.add("spec.loadBalancerIP is ignored for headless services");
        }
        if !external.is_empty() {
            found.add("spec.externalIPs is ignored for headless services");
        }
        if !matches!(text(new, "spec.sessionAffinity"), "" | "None") {
            found.add("spec.SessionAffinity is ignored for headless services");
        }
    }
    address::each(external, "spec.externalIPs", &mut found);
    if !external.is_empty() && !headless && kind != "ExternalName" {
        found.add("spec.externalIPs is deprecated and may no longer be implemented in some clusters");
    }
    address::one(balancer, "spec.loadBalancerIP", &mut found);
    let ranges = list(new, "spec.loadBalancerSourceRanges");
    address::networks(ranges, "spec.loadBalancerSourceRanges", &mut found);
    if kind == "ExternalName" && !external.is_empty() {
        found.add("spec.externalIPs is ignored when spec.type is \"ExternalName\"");
    }
    if kind != "ExternalName" && !text(new, "spec.externalName").is_empty() {
        found.add("spec.externalName is ignored when spec.type is not \"ExternalName\"");
    }
    if text(new, "spec.trafficDistribution") == "PreferClose" {
        found.add(r#"spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone""#);
    }
    found.0
}

/// Of the status of a Service or Ingress: where its load balancer is.
pub fn load_balancer_status(new: &Value) -> Vec<String> {
    let mut found = Found::default();
    const PATH: &str = "status.loadBalancer.ingress";
    for (i, point) in list(new, PATH).iter().enumerate() {
        address::one(text(point, "ip"), &format!("{PATH}[{i}]"), &mut found);
    }
    found.0
}

/// Of an Ingress.
pub fn ingress(new: &Value, old: Option<&Value>) -> Vec<String> {
    const CLASS: &str = "kubernetes.io/ingress.class";
    let by_annotation = annotation(new, CLASS).is_some() && at(new, "spec.ingressClassName").is_none();
    match old.is_none() && by_annotation {
        true => {
            vec![format!("annotation {CLASS:?} is deprecated, please use 'spec.ingressClassName' instead")]
        }
        false => Vec::new(),
    }
}

/// Of a NetworkPolicy.
pub fn network_policy(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Found::default();
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, rule) in list(new, &format!("spec.{direction}")).iter().enumerate() {
            for (j, peer) in list(rule, peers).iter().enumerate() {
                let Some(block) = at(peer, "ipBlock").filter(|_| !found.is_full()) else { continue };
                let here = format!("spec.{direction}[{i}].{peers}[{j}].ipBlock");
                address::network(text(block, "cidr"), &format!("{here}.cidr"), &mut found);
                address::networks(list(block, "except"), &format!("{here}.except"), &mut found);
            }
        }
    }
    found.0
}

/// Who mends addresses himself is not told of them: upstream's controllers of endpoints.
fn is_made_by(object: &Value, label: &str, controllers: &[&str]) -> bool {
    object.str_at(&["metadata", "labels", label]).is_some_and(|by| controllers.contains(&by))
}

/// Of an EndpointSlice.
pub fn endpoint_slice(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut found = Found::default();
    if old.is_none() && text(new, "addressType") == "FQDN" {
        found.add("spec.addressType: FQDN endpoints are deprecated");
    }
    const MAKERS: &[&str] = &["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];
    if is_made_by(new, "endpointslice.kubernetes.io/managed-by", MAKERS) {
        return found.0;
    }
    for (i, endpoint) in list(new, "endpoints").iter().enumerate() {
        if found.is_full() {
            break;
        }
        address::each(list(endpoint, "addresses"), &format!("endpoints[{i}].addresses"), &mut found);
    }
    found.0
}

/// Of Endpoints.
pub fn endpoints(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Found::default();
    if is_made_by(new, "endpoints.kubernetes.io/managed-by", &["endpoint-controller"]) {
        return found.0;
    }
    for (i, subset) in list(new, "subsets").iter().enumerate() {
        for part in ["addresses", "notReadyAddresses"] {
            for (j, point) in list(subset, part).iter().enumerate() {
                if found.is_full() {
                    return found.0;
                }
                address::one(text(point, "ip"), &format!("subsets[{i}].{part}[{j}].ip"), &mut found);
            }
        }
    }
    found.0
}
