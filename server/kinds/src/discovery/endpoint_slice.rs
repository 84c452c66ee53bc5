//! EndpointSlice (`discovery.k8s.io`).

use std::borrow::Cow;
use std::collections::HashSet;

use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::checks::ports::PROTOCOL_CHECKS;
use crate::checks::Check::{
    self, AnyText, AtMostItems, By, EachUnlessDuplicate, OptionalText, Required, RequiredOneOf, Text,
};
use crate::checks::{address, Part};
use crate::columns::with_more;
use crate::defaults::DefaultRule::{self, Field, ForEach};
use crate::defaults::Literal::{OptionalStr, Str};
use crate::path::{at, list, text};
use crate::strategy::{Generation, Strategy, BASE};
use crate::warnings::address::warn_ips;
use crate::warnings::{is_made_by, Warnings};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::ChangesAndLabels,
    defaults: DEFAULTS,
    checks: CHECKS,
    immutable: &["addressType"],
    warnings,
    columns: COLUMNS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] =
    &[ForEach("ports", &[Field("name", OptionalStr("")), Field("protocol", Str("TCP"))])];

const CHECKS: &[Check] = &[RequiredOneOf("addressType", &["FQDN", "IPv4", "IPv6"]), By(endpoints), By(ports)];

/// Validates an address of the slice's `addressType`.
fn endpoint_address(address: &Part<'_>, kind: &str) {
    let (given, before) = (address.text(""), address.errors());
    match kind {
        "FQDN" => {
            address.required_text("", "", names::dns1123_subdomain_errors);
            if address.errors() == before && given.split('.').count() < 2 {
                address.invalid("", given, "should be a domain with at least two segments separated by dots");
            }
            return;
        }
        // IPv6 addresses have always been required to be canonical here.
        "IPv6" => address.apply("", address::canonical),
        "IPv4" => address.apply("", address::legacy),
        _ => return,
    }
    if address.errors() != before {
        return;
    }
    // Upstream reports the path of the list when the family is wrong.
    match (kind, address::sloppy(given).is_some_and(|ip| ip.is_ipv4())) {
        ("IPv4", false) => address.without_index().invalid("", given, "must be an IPv4 address"),
        ("IPv6", true) => address.without_index().invalid("", given, "must be an IPv6 address"),
        _ => {}
    }
    address.apply("", address::endpoint_range);
}

fn endpoints(slice: &Part<'_>) {
    const MAX_ENDPOINTS: usize = 1000;
    const MAX_ADDRESSES: usize = 100;
    if !slice.at_most_items("endpoints", MAX_ENDPOINTS) {
        return;
    }
    for endpoint in slice.each("endpoints") {
        endpoint.check(&[
            Required("addresses", "must contain at least 1 address"),
            AtMostItems("addresses", MAX_ADDRESSES, &[]),
        ]);
        for address in endpoint.each("addresses") {
            endpoint_address(&address, slice.text("addressType"));
        }
        endpoint.check(ENDPOINT);
    }
}

const ENDPOINT: &[Check] = &[
    OptionalText("nodeName", names::dns1123_subdomain_errors),
    OptionalText("hostname", names::dns1123_label_errors),
    AtMostItems(
        "hints.forZones",
        MAX_HINTS,
        &[EachUnlessDuplicate("hints.forZones", "name", &[AnyText("name", names::label_value_errors)])],
    ),
    AtMostItems(
        "hints.forNodes",
        MAX_HINTS,
        &[EachUnlessDuplicate("hints.forNodes", "name", &[AnyText("name", names::dns1123_subdomain_errors)])],
    ),
];

const MAX_HINTS: usize = 8;

fn ports(slice: &Part<'_>) {
    const MAX: usize = 20_000;
    if !slice.at_most_items("ports", MAX) {
        return;
    }
    let mut seen = HashSet::new();
    for port in slice.each("ports") {
        port.check(&[Text("name", names::dns1123_label_errors)]);
        port.unique("name", port.text("name"), &mut seen);
        port.check(PROTOCOL_CHECKS);
    }
}

fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut found = Warnings::default();
    if old.is_none() && text(new, "addressType") == "FQDN" {
        found.add("spec.addressType: FQDN endpoints are deprecated");
    }
    const MAKERS: &[&str] = &["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];
    if is_made_by(new, "endpointslice.kubernetes.io/managed-by", MAKERS) {
        return found.into_vec();
    }
    for (i, endpoint) in list(new, "endpoints").iter().enumerate() {
        if found.is_full() {
            break;
        }
        warn_ips(list(endpoint, "addresses"), &format!("endpoints[{i}].addresses"), &mut found);
    }
    found.into_vec()
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("AddressType", "addressType", ""),
    Column::computed("Ports", &["ports[].port", "ports[].name"], ports_cell),
    Column::computed("Endpoints", &["endpoints[].addresses"], endpoints_cell),
    Column::AGE,
];

/// How many ports or addresses a cell shows.
const SHOWN: usize = 3;

fn ports_cell(slice: &Value, _: Now) -> Cell<'_> {
    let ports = list(slice, "ports");
    let shown: Vec<Cow<'_, str>> = ports
        .iter()
        .take(SHOWN)
        .map(|port| match at(port, "port").and_then(Value::as_int) {
            Some(number) => Cow::Owned(number.to_string()),
            None => at(port, "name").and_then(Value::as_str).unwrap_or("*").into(),
        })
        .collect();
    unset_if_empty(with_more(shown.iter().map(|s| &**s), ",", ports.len(), SHOWN))
}

fn endpoints_cell(slice: &Value, _: Now) -> Cell<'_> {
    let addresses =
        || list(slice, "endpoints").iter().flat_map(|e| list(e, "addresses")).filter_map(Value::as_str);
    unset_if_empty(with_more(addresses(), ",", addresses().count(), SHOWN))
}

fn unset_if_empty<'a>(text: String) -> Cell<'a> {
    if text.is_empty() {
        "<unset>".into()
    } else {
        text.into()
    }
}
