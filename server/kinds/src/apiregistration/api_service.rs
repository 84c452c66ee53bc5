//! APIService (`apiregistration.k8s.io`).

use plinth_codec::table::{condition, Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::admissionregistration::webhook::service_port;
use crate::checks::Check::{self, AnyText, By, Required, Text};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, IfPresent};
use crate::defaults::SERVICE_REFERENCE;
use crate::path::{at, list, text};
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

fn api_service(service: &Part<'_>) {
    const SKIPS: &str = "spec.insecureSkipTLSVerify";
    const AUTHORITY: &str = "spec.caBundle";
    let name = service.text("metadata.name");
    let (group, version) = (service.text("spec.group"), service.text("spec.version"));
    let required = format!("{version}.{group}");
    if name != required {
        service.invalid(
            "metadata.name",
            name,
            &format!("must be `spec.version+\".\"+spec.group`: {required:?}"),
        );
    }
    if group.is_empty() && version != "v1" {
        service.required("spec.group", "only v1 may have an empty group and it better be legacy kube");
    }
    service.check(&[
        Text("spec.group", names::dns1123_subdomain_errors),
        AnyText("spec.version", names::dns1035_label_errors),
    ]);
    for (path, most) in [("spec.groupPriorityMinimum", 20_000), ("spec.versionPriority", 1000)] {
        let number = service.number(path);
        if number <= 0 || number > most {
            service.invalid(path, number, &format!("must be positive and less than {most}"));
        }
    }
    let skips = service.is_true(SKIPS);
    let authority = service.text(AUTHORITY);
    let Some(called) = service.get("spec.service") else {
        if !authority.is_empty() {
            service.invalid(AUTHORITY, authority, "local APIServices may not have a caBundle");
        }
        if skips {
            service.invalid(SKIPS, true, "local APIServices may not have insecureSkipTLSVerify");
        }
        return;
    };
    called.check(&[Required("namespace", ""), Required("name", ""), By(service_port)]);
    if skips && !authority.is_empty() {
        service.invalid(SKIPS, true, "may not be true if caBundle is present");
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
