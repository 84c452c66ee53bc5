//! Endpoints (`core`).

use std::borrow::Cow;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath, ParentPath};
use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::checks::ports::{is_port, PORT, PROTOCOL_CHECKS};
use crate::checks::Check::{self, By, Each};
use crate::checks::{address, check_text, validate};
use crate::columns::with_more;
use crate::defaults::DefaultRule::{self, Field, ForEach};
use crate::defaults::Literal::Str;
use crate::path::{int, int_or_zero, list, text};
use crate::strategy::{Strategy, BASE};
use crate::warnings::address::warn_ip;
use crate::warnings::{is_made_by, Warnings};

pub(crate) const STRATEGY: Strategy = Strategy {
    create_on_update: true,
    defaults: DEFAULTS,
    checks: CHECKS,
    warnings,
    deprecation_warning: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
    storage_name: Some("services/endpoints"),
    columns: COLUMNS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[ForEach("subsets", &[ForEach("ports", &[Field("protocol", Str("TCP"))])])];

const CHECKS: &[Check] = &[Each("subsets", &[By(subset)])];

fn subset(subset: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let (ready, others) = (list(subset, "addresses"), list(subset, "notReadyAddresses"));
    if ready.is_empty() && others.is_empty() {
        let why = "must specify `addresses` or `notReadyAddresses`";
        errors.push(field::required(ParentPath(path), why));
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
            name => check_text(format_args!("{here}name"), name, names::dns1123_label_errors, errors),
        }
        let number = int(port, "port").unwrap_or(0);
        if !is_port(number) {
            errors.push(field::invalid(format_args!("{here}port"), number, PORT));
        }
        validate(PROTOCOL_CHECKS, port, here, errors);
    }
}

fn warnings(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Warnings::default();
    if is_made_by(new, "endpoints.kubernetes.io/managed-by", &["endpoint-controller"]) {
        return found.into_vec();
    }
    for (i, subset) in list(new, "subsets").iter().enumerate() {
        for part in ["addresses", "notReadyAddresses"] {
            for (j, point) in list(subset, part).iter().enumerate() {
                if found.is_full() {
                    return found.into_vec();
                }
                warn_ip(text(point, "ip"), &format!("subsets[{i}].{part}[{j}].ip"), &mut found);
            }
        }
    }
    found.into_vec()
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::computed("Endpoints", &["subsets[].addresses[].ip", "subsets[].ports[].port"], endpoints_cell),
    Column::AGE,
];

/// How many endpoints a cell shows.
const SHOWN: usize = 3;

fn endpoints_cell(endpoints: &Value, _: Now) -> Cell<'_> {
    let subsets = list(endpoints, "subsets");
    if subsets.is_empty() {
        return "<none>".into();
    }
    // A headless service may have addresses without ports.
    let total = subsets.iter().map(|s| list(s, "addresses").len() * list(s, "ports").len().max(1)).sum();
    let shown: Vec<Cow<'_, str>> = subsets
        .iter()
        .flat_map(|subset| {
            let ports = list(subset, "ports");
            (0..ports.len().max(1)).flat_map(move |i| {
                list(subset, "addresses").iter().map(move |address| {
                    let ip = text(address, "ip");
                    match ports.get(i).map(|port| int_or_zero(port, "port")) {
                        None => Cow::Borrowed(ip),
                        Some(port) if ip.contains(':') => Cow::Owned(format!("[{ip}]:{port}")),
                        Some(port) => Cow::Owned(format!("{ip}:{port}")),
                    }
                })
            })
        })
        .take(SHOWN)
        .collect();
    with_more(shown.iter().map(|s| &**s), ",", total, SHOWN).into()
}
