//! Services, EndpointSlices, Ingresses and NetworkPolicies.

use plinth_codec::{names, Value};

use super::pod::{port_name_faults, port_or_name};
use super::Check::{By, Each, In, NeedOneOf, OneOf, Port, Selector};
use super::{at, is_empty, list, text, Check};
use crate::field;
use crate::status::Cause;

/// core/v1 Service.
pub const SERVICE: &[Check] = &[
    By(has_ports),
    By(ports),
    OneOf("spec.sessionAffinity", &["ClientIP", "None"]),
    OneOf("spec.type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]),
    By(external_name),
    OneOf("spec.externalTrafficPolicy", &["Cluster", "Local"]),
    OneOf("spec.internalTrafficPolicy", &["Cluster", "Local"]),
    By(node_ports_of_cluster_ip),
];

/// discovery.k8s.io/v1 EndpointSlice.
pub const ENDPOINT_SLICE: &[Check] = &[
    NeedOneOf("addressType", &["FQDN", "IPv4", "IPv6"]),
    By(endpoint_addresses),
    Each("ports", &[OneOf("protocol", &["SCTP", "TCP", "UDP"]), Port("port")]),
];

/// networking.k8s.io/v1 Ingress.
pub const INGRESS: &[Check] = &[
    By(ingress_says_something),
    In("spec.defaultBackend", &[By(backend)]),
    Each("spec.rules", &[By(host), Each("http.paths", &[By(path_of_rule), By(backend_of_path)])]),
];

/// networking.k8s.io/v1 NetworkPolicy.
pub const NETWORK_POLICY: &[Check] = &[Selector("spec.podSelector"), By(policy_types)];

fn has_ports(service: &Value, _: &str, faults: &mut Vec<Cause>) {
    let headless = text(service, "spec.clusterIP") == "None";
    let external = text(service, "spec.type") == "ExternalName";
    if list(service, "spec.ports").is_empty() && !headless && !external {
        faults.push(field::required("spec.ports", ""));
    }
}

fn ports(service: &Value, _: &str, faults: &mut Vec<Cause>) {
    let all = list(service, "spec.ports");
    let mut names_seen = Vec::new();
    for (i, port) in all.iter().enumerate() {
        let path = format!("spec.ports[{i}]");
        let name = text(port, "name");
        if name.is_empty() {
            if all.len() > 1 {
                faults.push(field::required(format!("{path}.name"), ""));
            }
        } else {
            let bad = names::dns1123_label_faults(name);
            faults.extend(bad.iter().map(|why| field::invalid(format!("{path}.name"), name, why)));
            if names_seen.contains(&name) {
                faults.push(field::duplicate(format!("{path}.name"), name));
            }
            names_seen.push(name);
        }
        let number = at(port, "port").and_then(Value::as_int).unwrap_or(0);
        if !super::is_port(number) {
            faults.push(field::invalid(format!("{path}.port"), number, super::PORT));
        }
        let supported = &["SCTP", "TCP", "UDP"];
        super::validate(&[NeedOneOf("protocol", supported)], port, &format!("{path}."), faults);
        port_or_name(at(port, "targetPort"), &format!("{path}.targetPort"), faults);
    }
    for (i, port) in all.iter().enumerate() {
        let alike = |other: &Value| {
            other.get("port") == port.get("port") && text(other, "protocol") == text(port, "protocol")
        };
        if all.iter().take(i).any(alike) {
            // Upstream shows the key that it compares by: an empty port but for number and protocol.
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{:?},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                text(port, "protocol"),
                at(port, "port").and_then(Value::as_int).unwrap_or(0)
            );
            faults.push(field::duplicate_shown(format!("spec.ports[{i}]"), &shown));
        }
    }
}

fn external_name(service: &Value, _: &str, faults: &mut Vec<Cause>) {
    if text(service, "spec.type") != "ExternalName" {
        return;
    }
    let name = text(service, "spec.externalName").trim_end_matches('.');
    if name.is_empty() {
        faults.push(field::required("spec.externalName", ""));
    } else {
        let bad = names::dns1123_subdomain_faults(name);
        faults.extend(bad.iter().map(|why| field::invalid("spec.externalName", name, why)));
    }
}

fn node_ports_of_cluster_ip(service: &Value, _: &str, faults: &mut Vec<Cause>) {
    if text(service, "spec.type") != "ClusterIP" {
        return;
    }
    for (i, port) in list(service, "spec.ports").iter().enumerate() {
        if at(port, "nodePort").and_then(Value::as_int).is_some_and(|n| n != 0) {
            let why = "may not be used when `type` is 'ClusterIP'";
            faults.push(field::forbidden(format!("spec.ports[{i}].nodePort"), why));
        }
    }
}

fn endpoint_addresses(slice: &Value, _: &str, faults: &mut Vec<Cause>) {
    for (i, endpoint) in list(slice, "endpoints").iter().enumerate() {
        let path = format!("endpoints[{i}].addresses");
        let addresses = list(endpoint, "addresses");
        if addresses.is_empty() {
            faults.push(field::required(path.as_str(), "must contain at least 1 address"));
        }
        for (j, address) in addresses.iter().enumerate() {
            let address = address.as_str().unwrap_or_default();
            let parsed = address.parse::<std::net::IpAddr>().ok();
            let why = match text(slice, "addressType") {
                "IPv4" if !parsed.is_some_and(|ip| ip.is_ipv4()) => "must be an IPv4 address",
                "IPv6" if !parsed.is_some_and(|ip| ip.is_ipv6()) => "must be an IPv6 address",
                _ => continue,
            };
            faults.push(field::invalid(format!("{path}[{j}]"), address, why));
        }
    }
}

fn ingress_says_something(ingress: &Value, _: &str, faults: &mut Vec<Cause>) {
    if at(ingress, "spec.defaultBackend").is_none() && list(ingress, "spec.rules").is_empty() {
        let why = "either `defaultBackend` or `rules` must be specified";
        faults.push(field::invalid("spec", Value::Null, why));
    }
}

fn host(rule: &Value, path: &str, faults: &mut Vec<Cause>) {
    let host = text(rule, "host");
    if host.is_empty() {
        return;
    }
    let path = format!("{path}host");
    if host.parse::<std::net::IpAddr>().is_ok() {
        faults.push(field::invalid(path, host, "must be a DNS name, not an IP address"));
        return;
    }
    let name = host.strip_prefix("*.").unwrap_or(host);
    let bad = names::dns1123_subdomain_faults(name);
    faults.extend(bad.iter().map(|why| field::invalid(path.as_str(), host, why)));
}

fn path_of_rule(rule: &Value, path: &str, faults: &mut Vec<Cause>) {
    let given = text(rule, "path");
    match text(rule, "pathType") {
        "" => faults.push(field::required(format!("{path}pathType"), "pathType must be specified")),
        "Exact" | "Prefix" if !given.starts_with('/') => {
            faults.push(field::invalid(format!("{path}path"), given, "must be an absolute path"));
        }
        "ImplementationSpecific" if !given.is_empty() && !given.starts_with('/') => {
            faults.push(field::invalid(format!("{path}path"), given, "must be an absolute path"));
        }
        "Exact" | "Prefix" | "ImplementationSpecific" => {}
        other => {
            let supported = &["Exact", "ImplementationSpecific", "Prefix"];
            faults.push(field::not_supported(format!("{path}pathType"), other, supported));
        }
    }
}

/// A path has a backend, be it an empty one.
fn backend_of_path(path_of_rule: &Value, path: &str, faults: &mut Vec<Cause>) {
    let nothing = Value::object();
    backend(at(path_of_rule, "backend").unwrap_or(&nothing), &format!("{path}backend."), faults);
}

fn backend(backend: &Value, path: &str, faults: &mut Vec<Cause>) {
    let parent = path.trim_end_matches('.');
    match (at(backend, "service"), at(backend, "resource")) {
        (Some(_), Some(_)) => {
            faults.push(field::invalid(parent, "", "cannot set both resource and service backends"));
        }
        (None, None) => faults.push(field::required(parent, "port name or number is required")),
        (Some(service), None) => {
            let name = text(service, "name");
            if name.is_empty() {
                faults.push(field::required(format!("{path}service.name"), ""));
            }
            let number = at(service, "port.number").and_then(Value::as_int).unwrap_or(0);
            let port_name = text(service, "port.name");
            match (number, port_name) {
                (0, "") => faults.push(field::required(parent, "port name or number is required")),
                (0, given) => faults.extend(
                    port_name_faults(given)
                        .iter()
                        .map(|why| field::invalid(format!("{path}service.port.name"), given, why)),
                ),
                (_, given) if !given.is_empty() => {
                    faults.push(field::invalid(parent, "", "cannot set both port name & port number"));
                }
                (number, _) if !super::is_port(number) => {
                    faults.push(field::invalid(format!("{path}service.port.number"), number, super::PORT));
                }
                _ => {}
            }
        }
        (None, Some(resource)) => {
            for key in ["kind", "name"] {
                if is_empty(at(resource, key)) {
                    faults.push(field::required(format!("{path}resource.{key}"), ""));
                }
            }
        }
    }
}

fn policy_types(policy: &Value, _: &str, faults: &mut Vec<Cause>) {
    let types = list(policy, "spec.policyTypes");
    if types.len() > 2 {
        let why = "may not specify more than two policyTypes";
        faults.push(field::invalid("spec.policyTypes", types.to_vec(), why));
        return;
    }
    for (i, given) in types.iter().filter_map(Value::as_str).enumerate() {
        if !matches!(given, "Ingress" | "Egress") {
            faults.push(field::not_supported(
                format!("spec.policyTypes[{i}]"),
                given,
                &["Ingress", "Egress"],
            ));
        }
    }
}
