//! Cluster IPs, IP families and node ports of a Service: which ones it needs, which ones it keeps. The server
//! allocates them.
//!
//! Upstream: kubernetes `pkg/registry/core/service/strategy.go` and
//! `pkg/registry/core/service/storage/alloc.go`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use plinth_codec::{Map, Value};

/// `clusterIP` of a headless Service.
pub(super) const NONE: &str = "None";

pub(super) const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

/// A field that holds a node port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePortField {
    /// An entry of `spec.ports`.
    Port(usize),
    /// `spec.healthCheckNodePort`.
    HealthCheck,
}

impl NodePortField {
    /// The path of the field.
    pub fn path(&self) -> String {
        match self {
            NodePortField::Port(index) => format!("spec.ports[{index}].nodePort"),
            NodePortField::HealthCheck => "spec.healthCheckNodePort".to_owned(),
        }
    }
}

/// `IPv4` or `IPv6`.
pub fn family(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    }
}

pub(super) fn text<'a>(service: &'a Value, key: &str) -> &'a str {
    service.str_at(&["spec", key]).unwrap_or_default()
}

pub(super) fn texts<'a>(service: &'a Value, key: &str) -> Vec<&'a str> {
    let list = service.list_at(&["spec", key]);
    list.iter().filter_map(Value::as_str).collect()
}

fn ports(service: &Value) -> &[Value] {
    service.list_at(&["spec", "ports"])
}

/// The node port of an entry, not validated; 0 if absent.
fn node_port(port: &Value) -> i64 {
    port.get("nodePort").and_then(Value::as_int).unwrap_or(0)
}

/// As [`node_port`], of `spec.healthCheckNodePort`.
fn health_port(service: &Value) -> i64 {
    service.at(&["spec", "healthCheckNodePort"]).and_then(Value::as_int).unwrap_or(0)
}

pub(super) fn needs_address(service: &Value) -> bool {
    matches!(text(service, "type"), "ClusterIP" | "NodePort" | "LoadBalancer")
}

/// Whether the type has node ports.
fn has_node_ports(service: &Value) -> bool {
    matches!(text(service, "type"), "NodePort" | "LoadBalancer")
}

/// Whether a node port is allocated for each entry.
fn needs_node_ports(service: &Value) -> bool {
    let allocates = service.at(&["spec", "allocateLoadBalancerNodePorts"]).and_then(Value::as_bool);
    match text(service, "type") {
        "NodePort" => true,
        "LoadBalancer" => allocates != Some(false),
        _ => false,
    }
}

fn needs_health_check(service: &Value) -> bool {
    text(service, "type") == "LoadBalancer" && text(service, "externalTrafficPolicy") == "Local"
}

pub(super) fn is_headless(service: &Value) -> bool {
    text(service, "clusterIP") == NONE || cluster_ip_texts(service).first() == Some(&NONE)
}

fn cluster_ip_texts(service: &Value) -> Vec<&str> {
    match texts(service, "clusterIPs") {
        list if list.is_empty() => {
            Some(text(service, "clusterIP")).filter(|ip| !ip.is_empty()).into_iter().collect()
        }
        list => list,
    }
}

/// `spec.clusterIPs` for error messages.
pub fn cluster_ips(service: &Value) -> Value {
    texts(service, "clusterIPs").into_iter().map(Value::from).collect::<Vec<_>>().into()
}

/// The cluster IPs of a Service, in order.
pub fn addresses(service: &Value) -> Vec<IpAddr> {
    if !needs_address(service) {
        return Vec::new();
    }
    cluster_ip_texts(service).iter().filter_map(|ip| ip.parse().ok()).collect()
}

/// The node ports of a Service, without duplicates.
pub fn node_ports(service: &Value) -> Vec<u16> {
    let written = ports(service).iter().map(node_port).chain([health_port(service)]);
    let mut all: Vec<u16> = written.filter_map(|port| u16::try_from(port).ok()).filter(|p| *p != 0).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The node ports that a Service requests, not validated. That of health checks is requested once: it is kept
/// as long as the Service has health checks (`old` is the stored Service).
pub fn wanted_node_ports(service: &Value, old: Option<&Value>) -> Vec<(NodePortField, i64)> {
    if !has_node_ports(service) {
        return Vec::new();
    }
    let listed = ports(service).iter().enumerate().map(|(i, port)| (NodePortField::Port(i), node_port(port)));
    let begins = needs_health_check(service) && !old.is_some_and(needs_health_check);
    let health = begins.then(|| (NodePortField::HealthCheck, health_port(service)));
    listed.chain(health).filter(|(_, port)| *port != 0).collect()
}

/// The fields for which a node port must be allocated.
pub fn missing_node_ports(service: &Value) -> Vec<NodePortField> {
    let mut fields = Vec::new();
    if needs_node_ports(service) {
        let listed = ports(service).iter().enumerate().filter(|(_, port)| node_port(port) == 0);
        fields.extend(listed.map(|(i, _)| NodePortField::Port(i)));
    }
    if needs_health_check(service) && health_port(service) == 0 {
        fields.push(NodePortField::HealthCheck);
    }
    fields
}

/// Node ports by port number: entries of the same number and different protocols share one.
#[derive(Debug)]
pub struct SharedPorts(HashMap<i64, u16>);

impl SharedPorts {
    /// The node ports that the Service has.
    pub fn of(service: &Value) -> SharedPorts {
        let mut shared = HashMap::new();
        for port in ports(service) {
            if let Some(given) = u16::try_from(node_port(port)).ok().filter(|given| *given != 0) {
                shared.entry(number(port)).or_insert(given);
            }
        }
        SharedPorts(shared)
    }

    /// The node port of another entry with the same port number.
    pub fn find(&self, service: &Value, port_field: &NodePortField) -> Option<u16> {
        let NodePortField::Port(index) = port_field else { return None };
        self.0.get(&number(ports(service).get(*index)?)).copied()
    }

    /// Records an allocated node port.
    pub fn add(&mut self, service: &Value, port_field: &NodePortField, found: u16) {
        if let NodePortField::Port(index) = port_field {
            self.0.extend(ports(service).get(*index).map(|port| (number(port), found)));
        }
    }
}

fn number(port: &Value) -> i64 {
    port.get("port").and_then(Value::as_int).unwrap_or(0)
}

/// Sets a node port.
pub fn set_node_port(service: &mut Value, port_field: &NodePortField, port: u16) {
    let spec = service.object_at_mut(&["spec"]);
    let target = match port_field {
        NodePortField::HealthCheck => spec.map(|spec| (spec, "healthCheckNodePort")),
        NodePortField::Port(index) => spec
            .and_then(|spec| spec.get_mut("ports"))
            .and_then(Value::as_array_mut)
            .and_then(|ports| ports.get_mut(*index))
            .and_then(Value::as_object_mut)
            .map(|entry| (entry, "nodePort")),
    };
    if let Some((object, key)) = target {
        object.insert(key, i64::from(port));
    }
}

/// The IP families for which a cluster IP must be allocated.
pub fn missing_families(service: &Value) -> Vec<String> {
    if !needs_address(service) || is_headless(service) {
        return Vec::new();
    }
    let have: Vec<&str> = addresses(service).into_iter().map(family).collect();
    texts(service, "ipFamilies").into_iter().filter(|f| !have.contains(f)).map(str::to_owned).collect()
}

/// Sets `clusterIP` and `clusterIPs`.
pub fn set_addresses(service: &mut Value, addresses: &[IpAddr]) {
    if !needs_address(service) || is_headless(service) || addresses.is_empty() {
        return;
    }
    let texts: Vec<Value> = addresses.iter().map(|a| Value::from(a.to_string())).collect();
    if let Some(spec) = service.object_at_mut(&["spec"]) {
        spec.insert("clusterIP", texts.first().cloned().unwrap_or_default());
        spec.insert("clusterIPs", texts);
    }
}

/// Whether the Service is reachable from outside the cluster.
fn is_external(service: &Value) -> bool {
    match text(service, "type") {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => !texts(service, "externalIPs").is_empty(),
        _ => false,
    }
}

/// Copies allocated values from the old Service where the client omits them.
pub(super) fn keep_assigned(service: &mut Value, old: &Value) {
    if needs_address(service) {
        let same_ip =
            matches!(text(service, "clusterIP"), "") || text(service, "clusterIP") == text(old, "clusterIP");
        let fields: &[&str] = match same_ip {
            true => &["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"],
            false => &[],
        };
        if let Some(spec) = service.object_at_mut(&["spec"]) {
            fields.iter().for_each(|key| keep(spec, old, key));
        }
    }
    if needs_node_ports(service) && needs_node_ports(old) {
        let mut used: HashSet<u16> = node_ports(service).into_iter().collect();
        // Of several ports with the same name the first one is used.
        let had = |port| u16::try_from(node_port(port)).unwrap_or(0);
        let named: HashMap<Option<&str>, u16> =
            ports(old).iter().rev().map(|port| (port.str_at(&["name"]), had(port))).collect();
        let found: Vec<(NodePortField, Option<u16>)> = missing_node_ports(service)
            .into_iter()
            .map(|port_field| match port_field {
                NodePortField::Port(i) => {
                    let name = ports(service).get(i).and_then(|port| port.str_at(&["name"]));
                    (port_field, named.get(&name).copied())
                }
                NodePortField::HealthCheck => (port_field, None),
            })
            .collect();
        for (port_field, port) in found {
            if let Some(port) = port.filter(|port| *port != 0 && used.insert(*port)) {
                set_node_port(service, &port_field, port);
            }
        }
    }
    if needs_health_check(service) && needs_health_check(old) {
        if let Some(spec) = service.object_at_mut(&["spec"]) {
            keep(spec, old, "healthCheckNodePort");
        }
    }
}

fn keep(spec: &mut Map, old: &Value, key: &str) {
    let is_absent = |v: &Value| {
        matches!(v, Value::Null | Value::Int(0))
            || v.as_str() == Some("")
            || v.as_array().is_some_and(<[Value]>::is_empty)
    };
    if spec.get(key).is_none_or(is_absent) {
        if let Some(value) = old.at(&["spec", key]) {
            spec.insert(key, value.clone());
        }
    }
}

/// Drops fields that the new type does not have, unless the client changed them.
pub(crate) fn prepare_for_update(new: &mut Value, old: &Value) {
    let mut dropped: Vec<&str> = Vec::new();
    if needs_address(old) && text(new, "type") == "ExternalName" {
        dropped.extend(["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]);
    }
    if text(old, "type") == "LoadBalancer" && text(new, "type") != "LoadBalancer" {
        dropped.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if needs_health_check(old) && !needs_health_check(new) {
        dropped.push("healthCheckNodePort");
    }
    if is_external(old) && !is_external(new) {
        dropped.push("externalTrafficPolicy");
    }
    let gives_up_ports =
        needs_node_ports(old) && !needs_node_ports(new) && node_ports(old) == node_ports(new);
    let Some(spec) = new.object_at_mut(&["spec"]) else { return };
    for key in dropped {
        if spec.get(key) == old.at(&["spec", key]) {
            spec.remove(key);
        }
    }
    if gives_up_ports {
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
        ports.into_iter().flatten().filter_map(Value::as_object_mut).for_each(|p| drop(p.remove("nodePort")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn an_update_keeps_allocated_values_and_drops_fields_of_the_old_type() {
        let old = parse(
            r#"{"spec":{"type":"NodePort","clusterIP":"10.0.0.9","clusterIPs":["10.0.0.9"],"ipFamilies":["IPv4"],
            "ipFamilyPolicy":"SingleStack","ports":[{"name":"a","port":1,"nodePort":30001}]}}"#,
        );
        let mut new =
            parse(r#"{"spec":{"type":"NodePort","ports":[{"name":"a","port":2},{"name":"b","port":3}]}}"#);
        keep_assigned(&mut new, &old);
        assert_eq!(text(&new, "clusterIP"), "10.0.0.9");
        assert_eq!(node_ports(&new), [30001]);
        assert_eq!(missing_node_ports(&new), [NodePortField::Port(1)]);
        let mut new = old.clone();
        new.object_at_mut(&["spec"]).unwrap().insert("type", "ExternalName");
        prepare_for_update(&mut new, &old);
        assert!(addresses(&new).is_empty() && node_ports(&new).is_empty());
        assert_eq!(text(&new, "clusterIP"), "");
    }

    #[test]
    fn requested_node_ports_are_returned_unvalidated() {
        let balanced = r#""type":"LoadBalancer","externalTrafficPolicy":"Local""#;
        // spec, spec before, ports with their paths
        let rows: [(String, Option<&str>, &[(&str, i64)]); 6] = [
            (r#"{"type":"NodePort","ports":[{"port":1,"nodePort":70000},{"port":2}]}"#.into(), None, &[(
                "spec.ports[0].nodePort",
                70000,
            )]),
            (r#"{"type":"ClusterIP","ports":[{"port":1,"nodePort":-1}]}"#.into(), None, &[]),
            (
                r#"{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"ports":[{"port":1,"nodePort":-1}]}"#.into(),
                None,
                &[("spec.ports[0].nodePort", -1)],
            ),
            (format!(r#"{{{balanced},"healthCheckNodePort":1}}"#), None, &[("spec.healthCheckNodePort", 1)]),
            (
                format!(r#"{{{balanced},"healthCheckNodePort":1}}"#),
                Some(r#"{"type":"NodePort"}"#),
                &[("spec.healthCheckNodePort", 1)],
            ),
            (
                format!(r#"{{{balanced},"healthCheckNodePort":30001}}"#),
                Some(r#"{"type":"LoadBalancer","externalTrafficPolicy":"Local","healthCheckNodePort":30000}"#),
                &[],
            ),
        ];
        for (spec, old, expected) in rows {
            let service = parse(&format!(r#"{{"spec":{spec}}}"#));
            let old = old.map(|old| parse(&format!(r#"{{"spec":{old}}}"#)));
            let wanted = wanted_node_ports(&service, old.as_ref());
            let wanted: Vec<(String, i64)> =
                wanted.iter().map(|(port_field, port)| (port_field.path(), *port)).collect();
            let wanted: Vec<(&str, i64)> = wanted.iter().map(|(path, port)| (path.as_str(), *port)).collect();
            assert_eq!(wanted, expected, "{spec}");
        }
    }

    #[test]
    fn a_node_port_serves_both_protocols_of_a_port() {
        let service = parse(
            r#"{"spec":{"type":"NodePort","ports":[{"port":53,"protocol":"UDP","nodePort":30053},{"port":53,"protocol":"TCP"}]}}"#,
        );
        assert_eq!(SharedPorts::of(&service).find(&service, &NodePortField::Port(1)), Some(30053));
    }
}
