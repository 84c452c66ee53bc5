//! Endpoints, EndpointSlices, Ingresses, IngressClasses, NetworkPolicies, IPAddresses and ServiceCIDRs.

use std::collections::HashSet;

use plinth_codec::{names, Value};

use super::batch::domain_prefixed;
use super::pod::container::PROTOCOLS;
use super::pod::{port_name_errors, port_or_name};
use super::Check::{By, Each, In, OneOf, Port, RequiredOneOf, Selector};
use super::{address, at, int, list, rule, text, texts, validate, Check};
use plinth_api::api_error::Cause;
use plinth_api::field::{self, Itself, Place};

/// core/v1 Endpoints.
pub const ENDPOINTS: &[Check] = &[Each("subsets", &[By(subset)])];

fn subset(subset: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let (ready, others) = (list(subset, "addresses"), list(subset, "notReadyAddresses"));
    if ready.is_empty() && others.is_empty() {
        let why = "must specify `addresses` or `notReadyAddresses`";
        errors.push(field::required(Itself(path), why));
    }
    for (part, addresses) in [("addresses", ready), ("notReadyAddresses", others)] {
        for (i, given) in addresses.iter().enumerate() {
            let here = format_args!("{path}{part}[{i}].");
            let ip = text(given, "ip");
            address::legacy(ip, format_args!("{here}ip"), errors);
            let checks = &[
                Check::Text("hostname", names::dns1123_label_errors),
                Check::Text("nodeName", names::dns1123_subdomain_errors),
            ];
            validate(checks, given, here, errors);
            address::endpoint_range(ip, format_args!("{here}ip"), errors);
        }
    }
    let ports = list(subset, "ports");
    for (i, port) in ports.iter().enumerate() {
        let here = format_args!("{path}ports[{i}].");
        match text(port, "name") {
            "" if ports.len() > 1 => errors.push(field::required(format_args!("{here}name"), "")),
            "" => {}
            name => rule(format_args!("{here}name"), name, names::dns1123_label_errors, errors),
        }
        let number = int(port, "port").unwrap_or(0);
        if !super::is_port(number) {
            errors.push(field::invalid(format_args!("{here}port"), number, super::PORT));
        }
        validate(&[RequiredOneOf("protocol", PROTOCOLS), By(app_protocol)], port, here, errors);
    }
}

fn app_protocol(port: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    if let Some(protocol) = at(port, "appProtocol").and_then(Value::as_str) {
        rule(format_args!("{path}appProtocol"), protocol, names::qualified_name_errors, errors);
    }
}

/// discovery.k8s.io/v1 EndpointSlice.
pub const ENDPOINT_SLICE: &[Check] =
    &[RequiredOneOf("addressType", &["FQDN", "IPv4", "IPv6"]), By(endpoints), By(slice_ports)];

/// An address of the kind that the slice says.
fn slice_address(kind: &str, given: &str, list_path: Place<'_>, i: usize, errors: &mut Vec<Cause>) {
    let here = format_args!("{list_path}[{i}]");
    if kind == "FQDN" {
        match given {
            "" => errors.push(field::required(here, "")),
            given => {
                let before = errors.len();
                rule(here, given, names::dns1123_subdomain_errors, errors);
                if errors.len() == before && given.split('.').count() < 2 {
                    let why = "should be a domain with at least two segments separated by dots";
                    errors.push(field::invalid(here, given, why));
                }
            }
        }
        return;
    }
    if !matches!(kind, "IPv4" | "IPv6") {
        return;
    }
    let before = errors.len();
    // The newer family has been in one form from the beginning.
    match kind {
        "IPv6" => drop(address::canonical(given, here, errors)),
        _ => address::legacy(given, here, errors),
    }
    if errors.len() != before {
        return;
    }
    // Upstream names the list where the family is wrong.
    match (kind, address::sloppy(given).is_some_and(|ip| ip.is_ipv4())) {
        ("IPv4", false) => errors.push(field::invalid(list_path, given, "must be an IPv4 address")),
        ("IPv6", true) => errors.push(field::invalid(list_path, given, "must be an IPv6 address")),
        _ => {}
    }
    address::endpoint_range(given, here, errors);
}

fn endpoints(slice: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    const MOST_ENDPOINTS: usize = 1000;
    const MOST_ADDRESSES: usize = 100;
    const MOST_HINTS: usize = 8;
    let all = list(slice, "endpoints");
    if all.len() > MOST_ENDPOINTS {
        errors.push(field::too_many("endpoints", all.len(), MOST_ENDPOINTS));
        return;
    }
    for (i, endpoint) in all.iter().enumerate() {
        let path = format_args!("endpoints[{i}].");
        let (addresses, here) = (texts(endpoint, "addresses"), format_args!("{path}addresses"));
        if addresses.is_empty() {
            errors.push(field::required(here, "must contain at least 1 address"));
        }
        if addresses.len() > MOST_ADDRESSES {
            errors.push(field::too_many(here, addresses.len(), MOST_ADDRESSES));
        }
        for (j, given) in addresses.iter().enumerate() {
            slice_address(text(slice, "addressType"), given, here, j, errors);
        }
        if let Some(name) = at(endpoint, "nodeName").and_then(Value::as_str) {
            rule(format_args!("{path}nodeName"), name, names::dns1123_subdomain_errors, errors);
        }
        if let Some(name) = at(endpoint, "hostname").and_then(Value::as_str) {
            rule(format_args!("{path}hostname"), name, names::dns1123_label_errors, errors);
        }
        type Rule = fn(&str) -> Vec<String>;
        let hints: [(&str, Rule); 2] =
            [("forZones", names::label_value_errors), ("forNodes", names::dns1123_subdomain_errors)];
        for (part, name_rule) in hints {
            let (named, here) =
                (list(endpoint, &format!("hints.{part}")), format_args!("{path}hints.{part}"));
            if named.len() > MOST_HINTS {
                errors.push(field::too_many(here, named.len(), MOST_HINTS));
                continue;
            }
            let mut seen = HashSet::new();
            for (j, hint) in named.iter().enumerate() {
                let (name, here) = (text(hint, "name"), format_args!("{here}[{j}].name"));
                if !seen.insert(name) {
                    errors.push(field::duplicate(here, name));
                } else {
                    rule(here, name, name_rule, errors);
                }
            }
        }
    }
}

fn slice_ports(slice: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    const MOST: usize = 20_000;
    let ports = list(slice, "ports");
    if ports.len() > MOST {
        errors.push(field::too_many("ports", ports.len(), MOST));
        return;
    }
    let mut seen = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let (name, path) = (text(port, "name"), format_args!("ports[{i}]."));
        if !name.is_empty() {
            rule(format_args!("{path}name"), name, names::dns1123_label_errors, errors);
        }
        if !seen.insert(name) {
            errors.push(field::duplicate(format_args!("{path}name"), name));
        }
        validate(&[RequiredOneOf("protocol", PROTOCOLS), By(app_protocol)], port, path, errors);
    }
}

/// networking.k8s.io/v1 Ingress.
pub const INGRESS: &[Check] = &[
    Each("spec.tls", &[By(certificate)]),
    By(ingress_says_something),
    In("spec.defaultBackend", &[By(backend)]),
    Each("spec.rules", &[By(host), By(paths)]),
    By(|ingress, _, errors| {
        if let Some(class) = at(ingress, "spec.ingressClassName").and_then(Value::as_str) {
            rule(format_args!("spec.ingressClassName"), class, names::dns1123_subdomain_errors, errors);
        }
    }),
];

fn host_rule(host: &str, path: Place<'_>, errors: &mut Vec<Cause>) {
    const FORM: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    if !host.contains('*') {
        rule(path, host, names::dns1123_subdomain_errors, errors);
        return;
    }
    let name = host.strip_prefix("*.").unwrap_or_default();
    if !names::dns1123_subdomain_errors(name).is_empty() {
        errors.push(field::invalid(path, host, FORM));
    }
}

fn certificate(tls: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    for (i, host) in texts(tls, "hosts").iter().enumerate() {
        host_rule(host, format_args!("{path}hosts[{i}]"), errors);
    }
    let secret = text(tls, "secretName");
    if !secret.is_empty() {
        rule(format_args!("{path}secretName"), secret, names::dns1123_subdomain_errors, errors);
    }
}

fn ingress_says_something(ingress: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    if at(ingress, "spec.defaultBackend").is_none() && list(ingress, "spec.rules").is_empty() {
        let why = "either `defaultBackend` or `rules` must be specified";
        errors.push(field::invalid("spec", Value::Null, why));
    }
}

fn host(rule: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let host = text(rule, "host");
    if host.is_empty() {
        return;
    }
    let path = format_args!("{path}host");
    if address::sloppy(host).is_some() {
        errors.push(field::invalid(path, host, "must be a DNS name, not an IP address"));
        return;
    }
    host_rule(host, path, errors);
}

fn paths(rule: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let Some(http) = at(rule, "http") else { return };
    let path = format_args!("{path}http.paths");
    if list(http, "paths").is_empty() {
        errors.push(field::required(path, ""));
    }
    for (i, given) in list(http, "paths").iter().enumerate() {
        let here = format_args!("{path}[{i}].");
        path_of_rule(given, here, errors);
        // Upstream looks no further without a type.
        if at(given, "pathType").is_none() {
            continue;
        }
        // A path has a backend, be it an empty one.
        let nothing = Value::object();
        backend(at(given, "backend").unwrap_or(&nothing), format_args!("{here}backend."), errors);
    }
}

fn path_of_rule(rule: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    const WITHIN: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
    const AT_END: [&str; 2] = ["/..", "/."];
    const KINDS: &[&str] = &["Exact", "ImplementationSpecific", "Prefix"];
    let (given, here) = (text(rule, "path"), format_args!("{path}path"));
    let Some(kind) = at(rule, "pathType").and_then(Value::as_str) else {
        errors.push(field::required(format_args!("{path}pathType"), "pathType must be specified"));
        return;
    };
    match kind {
        "Exact" | "Prefix" => {
            if !given.starts_with('/') {
                errors.push(field::invalid(here, given, "must be an absolute path"));
            }
            if given.is_empty() {
                return;
            }
            for wrong in WITHIN.into_iter().filter(|wrong| given.contains(wrong)) {
                errors.push(field::invalid(here, given, &format!("must not contain '{wrong}'")));
            }
            for wrong in AT_END.into_iter().filter(|wrong| given.ends_with(wrong)) {
                errors.push(field::invalid(here, given, &format!("cannot end with '{wrong}'")));
            }
        }
        "ImplementationSpecific" => {
            if !given.is_empty() && !given.starts_with('/') {
                errors.push(field::invalid(here, given, "must be an absolute path"));
            }
        }
        other => errors.push(field::not_supported(format_args!("{path}pathType"), other, KINDS)),
    }
}

fn backend(backend: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let parent = Itself(path);
    match (at(backend, "service"), at(backend, "resource")) {
        (Some(_), Some(_)) => {
            errors.push(field::invalid(parent, "", "cannot set both resource and service backends"));
        }
        (None, None) => {
            errors.push(field::invalid(parent, "", "resource or service backend is required"));
        }
        (Some(service), None) => service_backend(service, parent, path, errors),
        (None, Some(resource)) => {
            let path = format_args!("{path}resource.");
            let group = text(resource, "apiGroup");
            if !group.is_empty() {
                rule(format_args!("{path}apiGroup"), group, names::dns1123_subdomain_errors, errors);
            }
            for key in ["kind", "name"] {
                match text(resource, key) {
                    "" => errors.push(field::required(format_args!("{path}{key}"), "")),
                    given => rule(format_args!("{path}{key}"), given, names::path_segment_errors, errors),
                }
            }
        }
    }
}

fn service_backend(service: &Value, parent: Itself<'_>, path: Place<'_>, errors: &mut Vec<Cause>) {
    match text(service, "name") {
        "" => errors.push(field::required(format_args!("{path}service.name"), "")),
        name => rule(format_args!("{path}service.name"), name, names::dns1123_label_errors, errors),
    }
    let number = int(service, "port.number").unwrap_or(0);
    match (number, text(service, "port.name")) {
        (0, "") => errors.push(field::required(parent, "port name or number is required")),
        (0, given) => rule(format_args!("{path}service.port.name"), given, port_name_errors, errors),
        (_, given) if !given.is_empty() => {
            errors.push(field::invalid(parent, "", "cannot set both port name & port number"));
        }
        (number, _) if !super::is_port(number) => {
            errors.push(field::invalid(format_args!("{path}service.port.number"), number, super::PORT));
        }
        _ => {}
    }
}

/// networking.k8s.io/v1 IngressClass.
pub const INGRESS_CLASS: &[Check] = &[
    By(|class, _, errors| {
        const PATH: &str = "spec.controller";
        const LONGEST: usize = 250;
        let controller = text(class, PATH);
        if controller.len() > LONGEST {
            errors.push(field::too_long(PATH, LONGEST));
        }
        domain_prefixed(controller, format_args!("{PATH}"), errors);
    }),
    In("spec.parameters", &[By(class_parameters)]),
];

fn class_parameters(parameters: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let group = text(parameters, "apiGroup");
    if !group.is_empty() {
        rule(format_args!("{path}apiGroup"), group, names::dns1123_subdomain_errors, errors);
    }
    for key in ["kind", "name"] {
        match text(parameters, key) {
            "" => errors.push(field::required(format_args!("{path}{key}"), "")),
            given => rule(format_args!("{path}{key}"), given, names::path_segment_errors, errors),
        }
    }
    let (scope, namespace) = (text(parameters, "scope"), at(parameters, "namespace").and_then(Value::as_str));
    let here = format_args!("{path}namespace");
    match (scope, namespace) {
        ("Namespace", None | Some("")) => {
            errors.push(field::required(here, "`parameters.scope` is set to 'Namespace'"));
        }
        ("Namespace", Some(name)) => rule(here, name, names::dns1123_label_errors, errors),
        ("Cluster", Some(_)) => {
            errors.push(field::forbidden(here, "`parameters.scope` is set to 'Cluster'"));
        }
        ("Cluster", None) => {}
        ("", _) => errors.push(field::required(format_args!("{path}scope"), "")),
        (other, _) => {
            errors.push(field::not_supported(format_args!("{path}scope"), other, &["Cluster", "Namespace"]));
        }
    }
}

/// networking.k8s.io/v1 NetworkPolicy.
pub const NETWORK_POLICY: &[Check] = &[
    Selector("spec.podSelector"),
    Each("spec.ingress", &[Each("ports", POLICY_PORT), Each("from", PEER)]),
    Each("spec.egress", &[Each("ports", POLICY_PORT), Each("to", PEER)]),
    By(policy_types),
];
const POLICY_PORT: &[Check] = &[OneOf("protocol", &["TCP", "UDP", "SCTP"]), By(policy_port)];
const PEER: &[Check] = &[Selector("podSelector"), Selector("namespaceSelector"), By(peer)];

fn policy_port(port: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let (number, end) = (at(port, "port"), int(port, "endPort"));
    let here = format_args!("{path}endPort");
    match number {
        None => {
            if let Some(end) = end {
                let why = "may not be specified when `port` is not specified";
                errors.push(field::invalid(here, end, why));
            }
        }
        Some(Value::String(_)) => {
            port_or_name(number, format_args!("{path}port"), errors);
            if let Some(end) = end {
                let why = "may not be specified when `port` is non-numeric";
                errors.push(field::invalid(here, end, why));
            }
        }
        Some(first) => {
            port_or_name(number, format_args!("{path}port"), errors);
            let Some(end) = end else { return };
            if first.as_int().is_some_and(|first| end < first) {
                // Upstream shows the other one.
                errors.push(field::invalid(here, first.clone(), "must be greater than or equal to `port`"));
            }
            validate(&[Port("endPort")], port, path, errors);
        }
    }
}

fn peer(peer: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let here = Itself(path);
    let parts = ["podSelector", "namespaceSelector", "ipBlock"];
    let count = parts.iter().filter(|part| at(peer, part).is_some()).count();
    if let Some(block) = at(peer, "ipBlock") {
        ip_block(block, format_args!("{path}ipBlock"), errors);
    }
    if count == 0 {
        errors.push(field::required(here, "must specify a peer"));
    } else if count > 1 && at(peer, "ipBlock").is_some() {
        errors.push(field::forbidden(here, "may not specify both ipBlock and another peer"));
    }
}

fn ip_block(block: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let network = text(block, "cidr");
    if network.is_empty() {
        errors.push(field::required(format_args!("{path}.cidr"), ""));
        return;
    }
    let before = errors.len();
    address::network(network, format_args!("{path}.cidr"), errors);
    let good = errors.len() == before;
    for (i, except) in texts(block, "except").iter().enumerate() {
        let here = format_args!("{path}.except[{i}]");
        let before = errors.len();
        address::network(except, here, errors);
        if good && errors.len() == before && !address::contains(network, except) {
            errors.push(field::invalid(here, *except, "must be a strict subset of `cidr`"));
        }
    }
}

fn policy_types(policy: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    let types = list(policy, "spec.policyTypes");
    if types.len() > 2 {
        let why = "may not specify more than two policyTypes";
        errors.push(field::invalid("spec.policyTypes", types.to_vec(), why));
        return;
    }
    for (i, given) in texts(policy, "spec.policyTypes").iter().enumerate() {
        if !matches!(*given, "Ingress" | "Egress") {
            let here = format_args!("spec.policyTypes[{i}]");
            errors.push(field::not_supported(here, *given, &["Ingress", "Egress"]));
        }
    }
}

/// networking.k8s.io/v1 IPAddress.
pub const IP_ADDRESS: &[Check] = &[By(|object, _, errors| {
    const PATH: &str = "spec.parentRef";
    // One without a name is refused for that.
    if !text(object, "metadata.name").is_empty() {
        address::canonical(text(object, "metadata.name"), format_args!("metadata.name"), errors);
    }
    let Some(parent) = at(object, PATH) else {
        errors.push(field::required(PATH, ""));
        return;
    };
    let group = text(parent, "group");
    if !group.is_empty() {
        rule(format_args!("{PATH}.group"), group, names::dns1123_subdomain_errors, errors);
    }
    for key in ["resource", "name"] {
        match text(parent, key) {
            "" => errors.push(field::required(format_args!("{PATH}.{key}"), "")),
            given => rule(format_args!("{PATH}.{key}"), given, names::path_segment_errors, errors),
        }
    }
    match text(parent, "namespace") {
        "" => {}
        given => rule(format_args!("{PATH}.namespace"), given, names::path_segment_errors, errors),
    }
})];

/// networking.k8s.io/v1 ServiceCIDR.
pub const SERVICE_CIDR: &[Check] = &[By(|object, _, errors| {
    const PATH: &str = "spec.cidrs";
    let networks = texts(object, PATH);
    let family = |network: &str| network.contains(':');
    match networks.as_slice() {
        [] => {
            errors.push(field::required(PATH, "at least one CIDR required"));
            return;
        }
        [_] => {}
        [first, second] if family(first) != family(second) => {}
        _ => {
            let why =
                "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
            errors.push(field::invalid(PATH, list(object, PATH).to_vec(), why));
        }
    }
    for (i, network) in networks.iter().enumerate() {
        address::canonical_network(network, format_args!("{PATH}[{i}]"), errors);
    }
})];

/// Networks can be added to a ServiceCIDR, once.
pub fn service_cidr_update(new: &Value, old: &Value) -> Vec<Cause> {
    const PATH: &str = "spec.cidrs";
    const WHY: &str = "field is immutable";
    let (now, before) = (texts(new, PATH), texts(old, PATH));
    if before.len() != now.len() && (before.len() != 1 || now.len() < before.len()) {
        return vec![field::invalid(PATH, list(new, PATH).to_vec(), WHY)];
    }
    let pairs = now.iter().zip(&before).enumerate();
    let changed = pairs.filter(|(_, (now, before))| now != before);
    changed.map(|(i, (now, _))| field::invalid(format_args!("{PATH}[{i}]"), *now, WHY)).collect()
}
