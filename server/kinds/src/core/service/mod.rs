//! Service (`core`).

pub mod addresses;
mod columns;
pub mod families;
mod ip_families;
pub mod ranges;

use std::collections::HashSet;

use plinth_api::Cause;
use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::{names, Map, Value};

use crate::checks::immutable::IMMUTABLE;
use crate::checks::ports::{must_be_port, port_or_name, PROTOCOLS};
use crate::checks::Check::{self, By, Each, Enum, Is, OneOf, OptionalText, Required, RequiredOneOf};
use crate::checks::{address, Part};
use crate::defaults;
use crate::defaults::DefaultRule::{self, Computed, Field, ForEach, When};
use crate::defaults::Literal::{Bool, EmptyObject, Int, Str};
use crate::load_balancer_status::{self, POINTS};
use crate::path::{at, list, text};
use crate::strategy::{NameRule, Strategy, BASE};
use crate::warnings::address::{warn_cidrs, warn_ip, warn_ips};
use crate::warnings::{annotation, Warnings};

pub(crate) const STRATEGY: Strategy = Strategy {
    name: NameRule::Label,
    create_on_update: true,
    returns_deleted_object: true,
    defaults: DEFAULTS,
    prepare_for_update: addresses::prepare_for_update,
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
    Each("spec.externalIPs", &[Is("", address::endpoint)]),
    OneOf("spec.type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]),
    By(external_name),
    By(node_ports),
    By(source_ranges),
    By(load_balancer),
    By(external_traffic),
    Enum("spec.internalTrafficPolicy", &["Cluster", "Local"]),
    Enum("spec.trafficDistribution", &["PreferClose", "PreferSameZone", "PreferSameNode"]),
];

fn has_ports(service: &Part<'_>) {
    if service.text("spec.clusterIP") != "None" && service.text("spec.type") != "ExternalName" {
        service.check(&[Required("spec.ports", "")]);
    }
}

fn ports(service: &Part<'_>) {
    let count = service.list("spec.ports").len();
    let mut names_seen = HashSet::new();
    for port in service.each("spec.ports") {
        match port.text("name") {
            "" if count > 1 => port.required("name", ""),
            "" => {}
            name => {
                port.check_text("name", name, names::dns1123_label_errors);
                port.unique("name", name, &mut names_seen);
            }
        }
        must_be_port(&port, "port");
        port.check(&[RequiredOneOf("protocol", PROTOCOLS)]);
        port_or_name(&port.field("targetPort"));
        port.check(&[OptionalText("appProtocol", names::qualified_name_errors)]);
    }
    let mut seen = HashSet::new();
    for port in service.each("spec.ports") {
        if !seen.insert((port.int("port"), port.text("protocol"))) {
            // Upstream reports the key that it compares: a port with number and protocol only.
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{:?},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                port.text("protocol"),
                port.number("port")
            );
            port.push(Cause::duplicate_shown(port.path(""), &shown));
        }
    }
}

fn external_name(service: &Part<'_>) {
    const PATH: &str = "spec.externalName";
    if is(service, "ExternalName") {
        match service.text(PATH).trim_end_matches('.') {
            "" => service.required(PATH, ""),
            name => service.check_text(PATH, name, names::dns1123_subdomain_errors),
        }
    }
}

fn is(service: &Part<'_>, kind: &str) -> bool {
    service.text("spec.type") == kind
}

fn session_affinity(service: &Part<'_>) {
    const PATH: &str = "spec.sessionAffinityConfig";
    const SECONDS: &str = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
    const MAX_LENGTH: i64 = 86_400;
    match service.text("spec.sessionAffinity") {
        "None" => service.forbid_each(&[PATH], "must not be set when session affinity is None"),
        "ClientIP" => {
            let needed = [PATH, "spec.sessionAffinityConfig.clientIP", SECONDS];
            if let Some(missing) = needed.into_iter().find(|path| !service.has(path)) {
                service.required(missing, "when session affinity type is ClientIP");
            } else if !(1..=MAX_LENGTH).contains(&service.number(SECONDS)) {
                let why = format!("must be greater than 0 and less than {MAX_LENGTH}");
                service.invalid(SECONDS, service.number(SECONDS), &why);
            }
        }
        _ => {}
    }
}

fn node_ports(service: &Part<'_>) {
    let mut seen = HashSet::new();
    for port in service.each("spec.ports").filter(|port| port.number("nodePort") != 0) {
        let number = port.number("nodePort");
        if is(service, "ClusterIP") {
            port.forbidden("nodePort", "may not be used when `type` is 'ClusterIP'");
        }
        if !seen.insert((port.text("protocol"), number)) {
            port.duplicate("nodePort", number);
        }
    }
}

/// Upstream reports the field by its Go name.
fn source_ranges(service: &Part<'_>) {
    const PATH: &str = "spec.LoadBalancerSourceRanges";
    const ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let balanced = is(service, "LoadBalancer");
    if !service.is_empty("spec.loadBalancerSourceRanges") {
        if !balanced {
            service.forbidden(PATH, ONLY_BALANCED);
        }
        for range in service.each_as("spec.loadBalancerSourceRanges", PATH) {
            range.apply_to("", range.text("").trim(), address::network);
        }
        return;
    }
    let annotation = service.value().str_at(&["metadata", "annotations", ANNOTATION]);
    let Some(annotation) = annotation else { return };
    let here = format_args!("metadata.annotations[{ANNOTATION}]");
    if !balanced {
        service.forbidden(here, ONLY_BALANCED);
    }
    for range in annotation.split(',').map(str::trim).filter(|_| !annotation.trim().is_empty()) {
        service.apply_to(here, range, address::network);
    }
}

const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";

fn load_balancer(service: &Part<'_>) {
    if is(service, "LoadBalancer") {
        service.check(&[OptionalText("spec.loadBalancerClass", names::qualified_name_errors)]);
    } else {
        service.forbid_each(&["spec.allocateLoadBalancerNodePorts", "spec.loadBalancerClass"], ONLY_BALANCED);
    }
}

/// Whether the Service is reachable from outside the cluster.
fn is_external(service: &Part<'_>) -> bool {
    is(service, "LoadBalancer")
        || is(service, "NodePort")
        || is(service, "ClusterIP") && !service.list("spec.externalIPs").is_empty()
}

fn external_traffic(service: &Part<'_>) {
    const PATH: &str = "spec.externalTrafficPolicy";
    const HEALTH: &str = "spec.healthCheckNodePort";
    let policy = service.text(PATH);
    match (is_external(service), policy) {
        (false, "") => {}
        (false, given) => service.invalid(PATH, given, "may only be set for externally-accessible services"),
        (true, _) => service.check(&[OneOf(PATH, &["Cluster", "Local"])]),
    }
    let port = service.number(HEALTH);
    if port != 0 && !(is(service, "LoadBalancer") && policy == "Local") {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        service.invalid(HEALTH, port, why);
    } else if port != 0 {
        must_be_port(service, HEALTH);
    }
}

/// The primary cluster IP is immutable while the type has one.
fn validate_update(new: &Part<'_>, old: &Value) {
    const CLASS: &str = "spec.loadBalancerClass";
    const HEALTH: &str = "spec.healthCheckNodePort";
    let both = |wanted: fn(&Value) -> bool| wanted(new.value()) && wanted(old);
    if both(|service| text(service, "spec.type") == "LoadBalancer") {
        if new.at(CLASS) != at(old, CLASS) {
            new.invalid(CLASS, new.shown(CLASS), "may not change once set");
        }
        if both(|service| text(service, "spec.externalTrafficPolicy") == "Local")
            && new.at(HEALTH) != at(old, HEALTH)
        {
            new.forbidden(HEALTH, IMMUTABLE);
        }
    }
    let has_address = both(|service| text(service, "spec.type") != "ExternalName");
    let before = at(old, "spec.clusterIP").and_then(Value::as_str);
    if has_address && before.is_some() && new.set_text("spec.clusterIP") != before {
        new.invalid("spec.clusterIPs[0]", new.shown("spec.clusterIPs"), "may not change once set");
    }
}

/// Validates `status.loadBalancer`, which only the type `LoadBalancer` can have.
fn validate_status(new: &Part<'_>, old: &Value) {
    match is(new, "LoadBalancer") || new.list(POINTS).is_empty() {
        true => load_balancer_status::validate(new, old, true),
        false => new.forbidden(POINTS, "may only be used when `spec.type` is 'LoadBalancer'"),
    }
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
