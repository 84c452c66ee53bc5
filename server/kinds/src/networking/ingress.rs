//! Ingress (`networking.k8s.io`).

use plinth_api::{Cause, FieldPath};
use plinth_codec::table::{count, join, Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::checks::ports::{must_be_port, port_name_errors};
use crate::checks::Check::{
    self, Always, By, Each, ExactlyOne, In, Is, OptionalText, Required, RequiredText, Text,
};
use crate::checks::{address, Part, PartError};
use crate::columns::with_more;
use crate::load_balancer_status::{self, balancer_addresses};
use crate::path::{at, list, text};
use crate::strategy::{Generation, Strategy, BASE};
use crate::warnings::annotation;

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    checks: CHECKS,
    warnings,
    status_warnings: load_balancer_status::warnings,
    validate_status,
    storage_name: Some("ingress"),
    columns: COLUMNS,
    ..BASE
};

const CHECKS: &[Check] = &[
    Each(
        "spec.tls",
        &[Each("hosts", &[Is("", host_rule)]), Text("secretName", names::dns1123_subdomain_errors)],
    ),
    By(|ingress| {
        if !ingress.has("spec.defaultBackend") && ingress.list("spec.rules").is_empty() {
            ingress.invalid("spec", Value::Null, "either `defaultBackend` or `rules` must be specified");
        }
    }),
    In("spec.defaultBackend", BACKEND),
    Each("spec.rules", &[By(host), In("http", &[Required("paths", ""), Each("paths", PATH)])]),
    OptionalText("spec.ingressClassName", names::dns1123_subdomain_errors),
];

const PATH: &[Check] = &[
    By(path),
    By(|path| {
        // Upstream skips the backend of a path without a type, and validates an absent one as an empty one.
        if path.has("pathType") {
            path.check(&[Always("backend", BACKEND)]);
        }
    }),
];

fn host_rule(host: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const FORM: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    if !host.contains('*') {
        errors
            .extend(names::dns1123_subdomain_errors(host).iter().map(|why| Cause::invalid(path, host, why)));
        return;
    }
    let name = host.strip_prefix("*.").unwrap_or_default();
    if !names::dns1123_subdomain_errors(name).is_empty() {
        errors.push(Cause::invalid(path, host, FORM));
    }
}

fn host(rule: &Part<'_>) {
    let host = rule.text("host");
    if address::sloppy(host).is_some() {
        rule.invalid("host", host, "must be a DNS name, not an IP address");
    } else if !host.is_empty() {
        rule.apply("host", host_rule);
    }
}

fn path(rule: &Part<'_>) {
    const WITHIN: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
    const AT_END: [&str; 2] = ["/..", "/."];
    let given = rule.text("path");
    match rule.set_text("pathType") {
        None => rule.required("pathType", "pathType must be specified"),
        Some("Exact" | "Prefix") => {
            if !given.starts_with('/') {
                rule.invalid("path", given, "must be an absolute path");
            }
            for wrong in WITHIN.into_iter().filter(|wrong| given.contains(wrong)) {
                rule.invalid("path", given, &format!("must not contain '{wrong}'"));
            }
            for wrong in AT_END.into_iter().filter(|wrong| given.ends_with(wrong)) {
                rule.invalid("path", given, &format!("cannot end with '{wrong}'"));
            }
        }
        Some("ImplementationSpecific") => {
            if !given.is_empty() && !given.starts_with('/') {
                rule.invalid("path", given, "must be an absolute path");
            }
        }
        Some(_) => rule.one_of("pathType", &["Exact", "ImplementationSpecific", "Prefix"]),
    }
}

/// Checks of a reference to an object of any kind.
pub(crate) const REFERENCE: &[Check] = &[
    Text("apiGroup", names::dns1123_subdomain_errors),
    RequiredText("kind", names::path_segment_errors),
    RequiredText("name", names::path_segment_errors),
];

const BACKEND: &[Check] = &[ExactlyOne(
    &["service", "resource"],
    PartError::InvalidText("resource or service backend is required"),
    PartError::InvalidText("cannot set both resource and service backends"),
    &[By(service), In("resource", REFERENCE)],
)];

fn service(backend: &Part<'_>) {
    let Some(service) = backend.get("service") else { return };
    service.check(&[RequiredText("name", names::dns1123_label_errors)]);
    match (service.number("port.number"), service.text("port.name")) {
        (0, "") => backend.required("", "port name or number is required"),
        (0, name) => service.check_text("port.name", name, port_name_errors),
        (_, "") => must_be_port(&service, "port.number"),
        _ => backend.invalid("", "", "cannot set both port name & port number"),
    }
}

/// Validates the points of `status.loadBalancer.ingress`.
fn validate_status(new: &Part<'_>, old: &Value) {
    load_balancer_status::validate(new, old, false);
}

fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    const CLASS: &str = "kubernetes.io/ingress.class";
    let by_annotation = annotation(new, CLASS).is_some() && at(new, "spec.ingressClassName").is_none();
    match old.is_none() && by_annotation {
        true => {
            vec![format!("annotation {CLASS:?} is deprecated, please use 'spec.ingressClassName' instead")]
        }
        false => Vec::new(),
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Class", "spec.ingressClassName", "<none>"),
    Column::computed("Hosts", &["spec.rules[].host"], hosts_cell),
    Column::computed("Address", &["status.loadBalancer.ingress"], address_cell),
    Column::computed("Ports", &["spec.tls#"], ports_cell),
    Column::AGE,
];

/// How many hosts a cell shows.
const SHOWN: usize = 3;

fn hosts_cell(ingress: &Value, _: Now) -> Cell<'_> {
    // Upstream stops at the rule after the third host, and counts rules, with hosts or without.
    let rules = list(ingress, "spec.rules");
    let hosts = || rules.iter().map(|r| text(r, "host")).filter(|h| !h.is_empty());
    let third = rules.iter().enumerate().filter(|(_, r)| !text(r, "host").is_empty()).nth(SHOWN - 1);
    let more = third.is_some_and(|(i, _)| i + 1 < rules.len());
    match hosts().next() {
        None => "*".into(),
        Some(_) if more => with_more(hosts(), ",", rules.len(), SHOWN).into(),
        Some(_) => join(hosts(), ",").into(),
    }
}

fn address_cell(ingress: &Value, _: Now) -> Cell<'_> {
    join(balancer_addresses(ingress).into_iter(), ",").into()
}

fn ports_cell(ingress: &Value, _: Now) -> Cell<'_> {
    if count(ingress, "spec.tls") > 0 { "80, 443" } else { "80" }.into()
}
