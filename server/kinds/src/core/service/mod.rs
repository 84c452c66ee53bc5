//! Service (`core`).

pub mod allocation;
mod columns;
mod ip_families;

use std::collections::HashSet;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::{names, Map, Value};

use crate::checks::immutable::IMMUTABLE;
use crate::checks::ports::{is_port, port_or_name, PORT, PROTOCOLS};
use crate::checks::Check::{self, By, Enum, OneOf, OptionalText, RequiredOneOf};
use crate::checks::{address, check_text, validate};
use crate::defaults;
use crate::defaults::DefaultRule::{self, Computed, Field, ForEach, When};
use crate::defaults::Literal::{Bool, EmptyObject, Int, Str};
use crate::load_balancer_status;
use crate::path::{at, int, list, text, texts};
use crate::strategy::{NameRule, Strategy, BASE};
use crate::warnings::address::{warn_cidrs, warn_ip, warn_ips};
use crate::warnings::{annotation, Warnings};

pub(crate) const STRATEGY: Strategy = Strategy {
    name: NameRule::Label,
    create_on_update: true,
    returns_deleted_object: true,
    defaults: DEFAULTS,
    prepare_for_update: allocation::prepare_for_update,
    checks: CHECKS,
    warnings,
    status_warnings: load_balancer_status::warnings,
    validate_update,
    validate_status,
    storage_name: Some("services/specs"),
    columns: columns::COLUMNS,
    selectable: SELECTABLE,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[
    Field("spec.sessionAffinity", Str("None")),
    Field("spec.type", Str("ClusterIP")),
    Computed(default_affinity),
    ForEach("spec.ports", &[Field("protocol", Str("TCP")), Computed(default_target_port)]),
    Computed(default_external_traffic),
    When("spec.type", "ClusterIP", INTERNAL_TRAFFIC_DEFAULTS),
    When("spec.type", "NodePort", INTERNAL_TRAFFIC_DEFAULTS),
    When("spec.type", "LoadBalancer", INTERNAL_TRAFFIC_DEFAULTS),
    When(
        "spec.type",
        "LoadBalancer",
        &[
            Field("spec.allocateLoadBalancerNodePorts", Bool(true)),
            ForEach("status.loadBalancer.ingress", &[Computed(default_ip_mode)]),
        ],
    ),
];

const INTERNAL_TRAFFIC_DEFAULTS: &[DefaultRule] = &[Field("spec.internalTrafficPolicy", Str("Cluster"))];

/// Three hours, in seconds.
const AFFINITY_TIMEOUT: i64 = 10_800;

fn default_affinity(object: &mut Map) {
    match defaults::at(object, "spec.sessionAffinity").and_then(Value::as_str) {
        Some("None") => {
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                spec.remove("sessionAffinityConfig");
            }
        }
        Some("ClientIP") => defaults::apply(
            &[
                Field("spec.sessionAffinityConfig", EmptyObject),
                Field("spec.sessionAffinityConfig.clientIP.timeoutSeconds", Int(AFFINITY_TIMEOUT)),
            ],
            object,
        ),
        _ => {}
    }
}

fn default_target_port(port: &mut Map) {
    let is_unset = port
        .get("targetPort")
        .is_none_or(|target| matches!(target, Value::Null | Value::Int(0)) || target.as_str() == Some(""));
    if is_unset {
        let number = port.get("port").cloned().unwrap_or(Value::Int(0));
        port.insert("targetPort", number);
    }
}

/// `externalTrafficPolicy` has a default where the Service is reachable from outside the cluster.
fn default_external_traffic(object: &mut Map) {
    let kind = defaults::at(object, "spec.type").and_then(Value::as_str);
    let has_addresses =
        defaults::at(object, "spec.externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty());
    let is_external =
        matches!(kind, Some("LoadBalancer" | "NodePort")) || (kind == Some("ClusterIP") && has_addresses);
    if is_external {
        defaults::apply(&[Field("spec.externalTrafficPolicy", Str("Cluster"))], object);
    }
}

fn default_ip_mode(ingress: &mut Map) {
    if ingress.get("ip").and_then(Value::as_str).is_some_and(|ip| !ip.is_empty()) {
        defaults::apply(&[Field("ipMode", Str("VIP"))], ingress);
    }
}

const CHECKS: &[Check] = &[
    By(has_ports),
    By(ports),
    Check::Labels("spec.selector"),
    OneOf("spec.sessionAffinity", &["ClientIP", "None"]),
    By(session_affinity),
    By(ip_families::validate_families),
    By(external_ips),
    OneOf("spec.type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]),
    By(external_name),
    By(node_ports),
    By(source_ranges),
    By(load_balancer),
    By(external_traffic),
    Enum("spec.internalTrafficPolicy", &["Cluster", "Local"]),
    Enum("spec.trafficDistribution", &["PreferClose", "PreferSameZone", "PreferSameNode"]),
];

fn has_ports(service: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let headless = text(service, "spec.clusterIP") == "None";
    let external = text(service, "spec.type") == "ExternalName";
    if list(service, "spec.ports").is_empty() && !headless && !external {
        errors.push(field::required("spec.ports", ""));
    }
}

fn ports(service: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let all = list(service, "spec.ports");
    let mut names_seen = HashSet::new();
    for (i, port) in all.iter().enumerate() {
        let path = format_args!("spec.ports[{i}]");
        let name = text(port, "name");
        if name.is_empty() {
            if all.len() > 1 {
                errors.push(field::required(format_args!("{path}.name"), ""));
            }
        } else {
            check_text(format_args!("{path}.name"), name, names::dns1123_label_errors, errors);
            if !names_seen.insert(name) {
                errors.push(field::duplicate(format_args!("{path}.name"), name));
            }
        }
        let number = at(port, "port").and_then(Value::as_int).unwrap_or(0);
        if !is_port(number) {
            errors.push(field::invalid(format_args!("{path}.port"), number, PORT));
        }
        validate(&[RequiredOneOf("protocol", PROTOCOLS)], port, format_args!("{path}."), errors);
        port_or_name(at(port, "targetPort"), format_args!("{path}.targetPort"), errors);
        let app_protocol = OptionalText("appProtocol", names::qualified_name_errors);
        validate(&[app_protocol], port, format_args!("{path}."), errors);
    }
    let mut seen = HashSet::new();
    for (i, port) in all.iter().enumerate() {
        if !seen.insert((at(port, "port").and_then(Value::as_int), text(port, "protocol"))) {
            // Upstream reports the key that it compares: a port with number and protocol only.
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{:?},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                text(port, "protocol"),
                at(port, "port").and_then(Value::as_int).unwrap_or(0)
            );
            errors.push(field::duplicate_shown(format_args!("spec.ports[{i}]"), &shown));
        }
    }
}

fn external_name(service: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    if text(service, "spec.type") != "ExternalName" {
        return;
    }
    let name = text(service, "spec.externalName").trim_end_matches('.');
    if name.is_empty() {
        errors.push(field::required("spec.externalName", ""));
    } else {
        check_text(format_args!("spec.externalName"), name, names::dns1123_subdomain_errors, errors);
    }
}

fn is(service: &Value, kind: &str) -> bool {
    text(service, "spec.type") == kind
}

fn session_affinity(service: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.sessionAffinityConfig";
    const MAX_LENGTH: i64 = 86_400;
    const NEEDED: &str = "when session affinity type is ClientIP";
    let config = at(service, PATH);
    match text(service, "spec.sessionAffinity") {
        "None" if config.is_some() => {
            errors.push(field::forbidden(PATH, "must not be set when session affinity is None"));
        }
        "ClientIP" => {
            if config.is_none() {
                errors.push(field::required(PATH, NEEDED));
                return;
            }
            let here = "spec.sessionAffinityConfig.clientIP";
            if at(service, here).is_none() {
                errors.push(field::required(here, NEEDED));
                return;
            }
            let here = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            match int(service, here) {
                None => errors.push(field::required(here, NEEDED)),
                Some(seconds) if !(1..=MAX_LENGTH).contains(&seconds) => {
                    let why = format!("must be greater than 0 and less than {MAX_LENGTH}");
                    errors.push(field::invalid(here, seconds, &why));
                }
                Some(_) => {}
            }
        }
        _ => {}
    }
}

fn external_ips(service: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for (i, ip) in texts(service, "spec.externalIPs").iter().enumerate() {
        address::endpoint(ip, format_args!("spec.externalIPs[{i}]"), errors);
    }
}

fn node_ports(service: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (i, port) in list(service, "spec.ports").iter().enumerate() {
        let Some(number) = int(port, "nodePort").filter(|number| *number != 0) else { continue };
        let here = format_args!("spec.ports[{i}].nodePort");
        if is(service, "ClusterIP") {
            let why = "may not be used when `type` is 'ClusterIP'";
            errors.push(field::forbidden(here, why));
        }
        let key = (text(port, "protocol"), number);
        if !seen.insert(key) {
            errors.push(field::duplicate(here, number));
        }
    }
}

/// Upstream reports the field by its Go name.
fn source_ranges(service: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.LoadBalancerSourceRanges";
    const WHY: &str = "may only be used when `type` is 'LoadBalancer'";
    const ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let ranges = texts(service, "spec.loadBalancerSourceRanges");
    let balanced = is(service, "LoadBalancer");
    if !ranges.is_empty() {
        if !balanced {
            errors.push(field::forbidden(PATH, WHY));
        }
        for (i, range) in ranges.iter().enumerate() {
            address::network(range.trim(), format_args!("{PATH}[{i}]"), errors);
        }
        return;
    }
    let annotation = service.str_at(&["metadata", "annotations", ANNOTATION]);
    let Some(annotation) = annotation else { return };
    let here = format_args!("metadata.annotations[{ANNOTATION}]");
    if !balanced {
        errors.push(field::forbidden(here, WHY));
    }
    for range in annotation.split(',').map(str::trim).filter(|_| !annotation.trim().is_empty()) {
        address::network(range, here, errors);
    }
}

fn load_balancer(service: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const WHY: &str = "may only be used when `type` is 'LoadBalancer'";
    let balanced = is(service, "LoadBalancer");
    if at(service, "spec.allocateLoadBalancerNodePorts").is_some() && !balanced {
        errors.push(field::forbidden("spec.allocateLoadBalancerNodePorts", WHY));
    }
    match at(service, "spec.loadBalancerClass").and_then(Value::as_str) {
        Some(class) if balanced => {
            check_text(format_args!("spec.loadBalancerClass"), class, names::qualified_name_errors, errors);
        }
        Some(_) => errors.push(field::forbidden("spec.loadBalancerClass", WHY)),
        None => {}
    }
}

/// Whether the Service is reachable from outside the cluster.
fn is_external(service: &Value) -> bool {
    is(service, "LoadBalancer")
        || is(service, "NodePort")
        || is(service, "ClusterIP") && !list(service, "spec.externalIPs").is_empty()
}

fn external_traffic(service: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.externalTrafficPolicy";
    const HEALTH: &str = "spec.healthCheckNodePort";
    let policy = text(service, PATH);
    match (is_external(service), policy) {
        (false, "") => {}
        (false, given) => {
            errors.push(field::invalid(PATH, given, "may only be set for externally-accessible services"));
        }
        (true, _) => validate(&[OneOf(PATH, &["Cluster", "Local"])], service, format_args!(""), errors),
    }
    let port = int(service, HEALTH).unwrap_or(0);
    let checked = is(service, "LoadBalancer") && policy == "Local";
    if port != 0 && !checked {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(field::invalid(HEALTH, port, why));
    } else if port != 0 && !is_port(port) {
        errors.push(field::invalid(HEALTH, port, PORT));
    }
}

/// The primary cluster IP is immutable while the type has one.
fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    let ip = |service: &Value| at(service, "spec.clusterIP").and_then(Value::as_str).map(str::to_owned);
    let external = |service: &Value| text(service, "spec.type") == "ExternalName";
    let mut errors = Vec::new();
    let balanced = |service: &Value| text(service, "spec.type") == "LoadBalancer";
    let (now, before) = (at(new, "spec.loadBalancerClass"), at(old, "spec.loadBalancerClass"));
    if balanced(new) && balanced(old) && now != before {
        let shown = now.cloned().unwrap_or_default();
        errors.push(field::invalid("spec.loadBalancerClass", shown, "may not change once set"));
    }
    let checked =
        |service: &Value| balanced(service) && text(service, "spec.externalTrafficPolicy") == "Local";
    let health = "spec.healthCheckNodePort";
    if checked(new) && checked(old) && at(new, health) != at(old, health) {
        errors.push(field::forbidden(health, IMMUTABLE));
    }
    let (Some(before), false, false) = (ip(old), external(new), external(old)) else { return errors };
    if ip(new).as_deref() != Some(before.as_str()) {
        let shown = at(new, "spec.clusterIPs").cloned().unwrap_or_default();
        errors.push(field::invalid("spec.clusterIPs[0]", shown, "may not change once set"));
    }
    errors
}

/// Validates `status.loadBalancer`, which only the type `LoadBalancer` can have.
fn validate_status(new: &Value, old: &Value) -> Vec<Cause> {
    const PATH: &str = "status.loadBalancer.ingress";
    if text(new, "spec.type") != "LoadBalancer" && !list(new, PATH).is_empty() {
        return vec![field::forbidden(PATH, "may only be used when `spec.type` is 'LoadBalancer'")];
    }
    load_balancer_status::validate(new, old, true)
}

fn warnings(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Warnings::default();
    if annotation(new, "service.kubernetes.io/topology-aware-hints").is_some() {
        found.add("annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead");
    }
    let kind = text(new, "spec.type");
    let has_address = !matches!(text(new, "spec.clusterIP"), "" | "None");
    let headless = kind == "ClusterIP" && text(new, "spec.clusterIP") == "None";
    let external = list(new, "spec.externalIPs");
    let balancer = text(new, "spec.loadBalancerIP");
    if has_address && kind != "ExternalName" {
        warn_ips(list(new, "spec.clusterIPs"), "spec.clusterIPs", &mut found);
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
    warn_ips(external, "spec.externalIPs", &mut found);
    if !external.is_empty() && !headless && kind != "ExternalName" {
        found.add("spec.externalIPs is deprecated and may no longer be implemented in some clusters");
    }
    warn_ip(balancer, "spec.loadBalancerIP", &mut found);
    let ranges = list(new, "spec.loadBalancerSourceRanges");
    warn_cidrs(ranges, "spec.loadBalancerSourceRanges", &mut found);
    if kind == "ExternalName" && !external.is_empty() {
        found.add("spec.externalIPs is ignored when spec.type is \"ExternalName\"");
    }
    if kind != "ExternalName" && !text(new, "spec.externalName").is_empty() {
        found.add("spec.externalName is ignored when spec.type is not \"ExternalName\"");
    }
    if text(new, "spec.trafficDistribution") == "PreferClose" {
        found.add(r#"spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone""#);
    }
    found.into_vec()
}

const SELECTABLE: Selectable = Selectable::new(&[
    SelectableField::NAME,
    SelectableField::NAMESPACE,
    SelectableField::new("spec.clusterIP"),
    SelectableField::new("spec.type"),
]);
