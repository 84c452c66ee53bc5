//! APIService (`apiregistration.k8s.io`).

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::table::{condition, Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::checks::ports::{is_port, PORT};
use crate::checks::Check::{self, By, Required};
use crate::checks::{check_text, validate};
use crate::defaults::DefaultRule::{self, IfPresent};
use crate::defaults::SERVICE_REFERENCE;
use crate::path::{at, int, list, text};
use crate::strategy::{Strategy, BASE, STATUS_KEEPS_METADATA, STATUS_OWNS_NO_METADATA};

pub(crate) const STRATEGY: Strategy = Strategy {
    unconditional_update: false,
    defaults: DEFAULTS,
    checks: CHECKS,
    status_keeps: STATUS_KEEPS_METADATA,
    columns: COLUMNS,
    reset_fields: STATUS_OWNS_NO_METADATA,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[IfPresent("spec.service", SERVICE_REFERENCE)];

const CHECKS: &[Check] = &[By(api_service)];

fn api_service(service: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let name = text(service, "metadata.name");
    let (group, version) = (text(service, "spec.group"), text(service, "spec.version"));
    let required = format!("{version}.{group}");
    if name != required {
        let why = format!("must be `spec.version+\".\"+spec.group`: {required:?}");
        errors.push(field::invalid("metadata.name", name, &why));
    }
    match group {
        "" if version != "v1" => {
            let why = "only v1 may have an empty group and it better be legacy kube";
            errors.push(field::required("spec.group", why));
        }
        "" => {}
        group => check_text(format_args!("spec.group"), group, names::dns1123_subdomain_errors, errors),
    }
    check_text(format_args!("spec.version"), version, names::dns1035_label_errors, errors);
    for (path, most) in [("spec.groupPriorityMinimum", 20_000), ("spec.versionPriority", 1000)] {
        let number = at(service, path).and_then(Value::as_int).unwrap_or(0);
        if number <= 0 || number > most {
            errors.push(field::invalid(path, number, &format!("must be positive and less than {most}")));
        }
    }
    let skips = at(service, "spec.insecureSkipTLSVerify").and_then(Value::as_bool) == Some(true);
    let authority = !text(service, "spec.caBundle").is_empty();
    let Some(called) = at(service, "spec.service") else {
        if authority {
            let why = "local APIServices may not have a caBundle";
            errors.push(field::invalid("spec.caBundle", text(service, "spec.caBundle"), why));
        }
        if skips {
            let why = "local APIServices may not have insecureSkipTLSVerify";
            errors.push(field::invalid("spec.insecureSkipTLSVerify", true, why));
        }
        return;
    };
    validate(
        &[Required("namespace", ""), Required("name", "")],
        called,
        format_args!("spec.service."),
        errors,
    );
    let port = int(called, "port").unwrap_or(443);
    if !is_port(port) {
        let why = format!("port is not valid: {}", PORT);
        errors.push(field::invalid("spec.service.port", port, &why));
    }
    if skips && authority {
        let why = "may not be true if caBundle is present";
        errors.push(field::invalid("spec.insecureSkipTLSVerify", true, why));
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::computed("Service", &["spec.service.namespace", "spec.service.name"], service_cell),
    Column::computed(
        "Available",
        &["status.conditions[].type", "status.conditions[].status", "status.conditions[].reason"],
        available_cell,
    ),
    Column::AGE,
];

fn service_cell(service: &Value, _: Now) -> Cell<'_> {
    match at(service, "spec.service") {
        Some(backend) => format!("{}/{}", text(backend, "namespace"), text(backend, "name")).into(),
        None => "Local".into(),
    }
}

fn available_cell(service: &Value, _: Now) -> Cell<'_> {
    match condition(list(service, "status.conditions"), "Available") {
        None => "Unknown".into(),
        Some(available) => match (text(available, "status"), text(available, "reason")) {
            (status @ "True", _) | (status, "") => status.into(),
            (status, reason) => format!("{status} ({reason})").into(),
        },
    }
}
