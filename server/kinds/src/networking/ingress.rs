//! Ingress (`networking.k8s.io`).

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath, ParentPath};
use plinth_codec::table::{count, join, Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::checks::ports::{is_port, port_name_errors, PORT};
use crate::checks::Check::{self, By, Each, In, OptionalText, RequiredText, Text};
use crate::checks::{address, check_text, validate};
use crate::columns::with_more;
use crate::load_balancer_status;
use crate::load_balancer_status::balancer_addresses;
use crate::path::{at, int, list, text, texts};
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
    Each("spec.tls", &[By(tls_hosts), Text("secretName", names::dns1123_subdomain_errors)]),
    By(has_backend_or_rules),
    In("spec.defaultBackend", &[By(backend)]),
    Each("spec.rules", &[By(host), By(paths)]),
    OptionalText("spec.ingressClassName", names::dns1123_subdomain_errors),
];

fn host_rule(host: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const FORM: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    if !host.contains('*') {
        check_text(path, host, names::dns1123_subdomain_errors, errors);
        return;
    }
    let name = host.strip_prefix("*.").unwrap_or_default();
    if !names::dns1123_subdomain_errors(name).is_empty() {
        errors.push(field::invalid(path, host, FORM));
    }
}

fn tls_hosts(tls: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for (i, host) in texts(tls, "hosts").iter().enumerate() {
        host_rule(host, format_args!("{path}hosts[{i}]"), errors);
    }
}

fn has_backend_or_rules(ingress: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    if at(ingress, "spec.defaultBackend").is_none() && list(ingress, "spec.rules").is_empty() {
        let why = "either `defaultBackend` or `rules` must be specified";
        errors.push(field::invalid("spec", Value::Null, why));
    }
}

fn host(rule: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
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

fn paths(rule: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let Some(http) = at(rule, "http") else { return };
    let path = format_args!("{path}http.paths");
    if list(http, "paths").is_empty() {
        errors.push(field::required(path, ""));
    }
    for (i, given) in list(http, "paths").iter().enumerate() {
        let here = format_args!("{path}[{i}].");
        path_of_rule(given, here, errors);
        // Upstream skips the backend of a path without a type.
        if at(given, "pathType").is_none() {
            continue;
        }
        // An absent backend is validated as an empty one.
        let nothing = Value::object();
        backend(at(given, "backend").unwrap_or(&nothing), format_args!("{here}backend."), errors);
    }
}

fn path_of_rule(rule: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
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

/// Checks of a reference to an object of any kind.
pub(crate) const REFERENCE: &[Check] = &[
    Text("apiGroup", names::dns1123_subdomain_errors),
    RequiredText("kind", names::path_segment_errors),
    RequiredText("name", names::path_segment_errors),
];

fn backend(backend: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let parent = ParentPath(path);
    match (at(backend, "service"), at(backend, "resource")) {
        (Some(_), Some(_)) => {
            errors.push(field::invalid(parent, "", "cannot set both resource and service backends"));
        }
        (None, None) => {
            errors.push(field::invalid(parent, "", "resource or service backend is required"));
        }
        (Some(service), None) => service_backend(service, parent, path, errors),
        (None, Some(resource)) => {
            validate(REFERENCE, resource, format_args!("{path}resource."), errors);
        }
    }
}

fn service_backend(service: &Value, parent: ParentPath<'_>, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let name = RequiredText("name", names::dns1123_label_errors);
    validate(&[name], service, format_args!("{path}service."), errors);
    let number = int(service, "port.number").unwrap_or(0);
    match (number, text(service, "port.name")) {
        (0, "") => errors.push(field::required(parent, "port name or number is required")),
        (0, given) => check_text(format_args!("{path}service.port.name"), given, port_name_errors, errors),
        (_, given) if !given.is_empty() => {
            errors.push(field::invalid(parent, "", "cannot set both port name & port number"));
        }
        (number, _) if !is_port(number) => {
            errors.push(field::invalid(format_args!("{path}service.port.number"), number, PORT));
        }
        _ => {}
    }
}

/// Validates the points of `status.loadBalancer.ingress`.
fn validate_status(new: &Value, old: &Value) -> Vec<Cause> {
    load_balancer_status::validate(new, old, false)
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
