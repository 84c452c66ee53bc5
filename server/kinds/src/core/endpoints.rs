//! Endpoints (`core`).

use std::borrow::Cow;

use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::url::join_host_port;
use plinth_codec::{names, Value};

use crate::checks::ports::{must_be_port, PROTOCOL_CHECKS};
use crate::checks::Check::{self, By, Each, Is, Text};
use crate::checks::{address, Part};
use crate::columns::with_more;
use crate::defaults::DefaultRule::{self, Field, ForEach};
use crate::defaults::Literal::Str;
use crate::path::{int_or_zero, list, text};
use crate::strategy::{Deprecation, Strategy, BASE};
use crate::warnings::address::warn_ip;
use crate::warnings::{is_made_by, Warnings};

pub(crate) const STRATEGY: Strategy = Strategy {
    create_on_update: true,
    defaults: DEFAULTS,
    checks: CHECKS,
    warnings,
    deprecations: &[Deprecation::new(
        "v1",
        "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        "",
    )],
    storage_name: Some("services/endpoints"),
    columns: COLUMNS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[ForEach("subsets", &[ForEach("ports", &[Field("protocol", Str("TCP"))])])];

const CHECKS: &[Check] = &[Each(
    "subsets",
    &[By(has_addresses), Each("addresses", ADDRESS), Each("notReadyAddresses", ADDRESS), By(ports)],
)];

const ADDRESS: &[Check] = &[
    Is("ip", address::legacy),
    Text("hostname", names::dns1123_label_errors),
    Text("nodeName", names::dns1123_subdomain_errors),
    Is("ip", address::endpoint_range),
];

fn has_addresses(subset: &Part<'_>) {
    if subset.is_empty("addresses") && subset.is_empty("notReadyAddresses") {
        subset.required("", "must specify `addresses` or `notReadyAddresses`");
    }
}

fn ports(subset: &Part<'_>) {
    for port in subset.each("ports") {
        match port.text("name") {
            "" if subset.list("ports").len() > 1 => port.required("name", ""),
            _ => port.check(&[Text("name", names::dns1123_label_errors)]),
        }
        must_be_port(&port, "port");
        port.check(PROTOCOL_CHECKS);
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
                        Some(port) => Cow::Owned(join_host_port(ip, port)),
                    }
                })
            })
        })
        .take(SHOWN)
        .collect();
    with_more(shown.iter().map(|s| &**s), ",", total, SHOWN).into()
}
