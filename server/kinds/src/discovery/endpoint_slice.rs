//! EndpointSlice (`discovery.k8s.io`).

use std::borrow::Cow;
use std::collections::HashSet;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::checks::ports::PROTOCOL_CHECKS;
use crate::checks::Check::{self, By, OptionalText, RequiredOneOf, Text};
use crate::checks::{address, check_text, validate};
use crate::columns::with_more;
use crate::defaults::DefaultRule::{self, Field, ForEach};
use crate::defaults::Literal::{OptionalStr, Str};
use crate::path::{at, list, text, texts};
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
fn endpoint_address(kind: &str, given: &str, list_path: FieldPath<'_>, i: usize, errors: &mut Vec<Cause>) {
    let here = format_args!("{list_path}[{i}]");
    if kind == "FQDN" {
        match given {
            "" => errors.push(field::required(here, "")),
            given => {
                let before = errors.len();
                check_text(here, given, names::dns1123_subdomain_errors, errors);
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
    // IPv6 addresses have always been required to be canonical here.
    match kind {
        "IPv6" => drop(address::canonical(given, here, errors)),
        _ => address::legacy(given, here, errors),
    }
    if errors.len() != before {
        return;
    }
    // Upstream reports the path of the list when the family is wrong.
    match (kind, address::sloppy(given).is_some_and(|ip| ip.is_ipv4())) {
        ("IPv4", false) => errors.push(field::invalid(list_path, given, "must be an IPv4 address")),
        ("IPv6", true) => errors.push(field::invalid(list_path, given, "must be an IPv6 address")),
        _ => {}
    }
    address::endpoint_range(given, here, errors);
}

fn endpoints(slice: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MAX_ENDPOINTS: usize = 1000;
    const MAX_ADDRESSES: usize = 100;
    const MAX_HINTS: usize = 8;
    let all = list(slice, "endpoints");
    if all.len() > MAX_ENDPOINTS {
        errors.push(field::too_many("endpoints", all.len(), MAX_ENDPOINTS));
        return;
    }
    for (i, endpoint) in all.iter().enumerate() {
        let path = format_args!("endpoints[{i}].");
        let (addresses, here) = (texts(endpoint, "addresses"), format_args!("{path}addresses"));
        if addresses.is_empty() {
            errors.push(field::required(here, "must contain at least 1 address"));
        }
        if addresses.len() > MAX_ADDRESSES {
            errors.push(field::too_many(here, addresses.len(), MAX_ADDRESSES));
        }
        for (j, given) in addresses.iter().enumerate() {
            endpoint_address(text(slice, "addressType"), given, here, j, errors);
        }
        let host_names = &[
            OptionalText("nodeName", names::dns1123_subdomain_errors),
            OptionalText("hostname", names::dns1123_label_errors),
        ];
        validate(host_names, endpoint, path, errors);
        type Rule = fn(&str) -> Vec<String>;
        let hints: [(&str, Rule); 2] =
            [("forZones", names::label_value_errors), ("forNodes", names::dns1123_subdomain_errors)];
        for (part, name_rule) in hints {
            let (named, here) =
                (list(endpoint, &format!("hints.{part}")), format_args!("{path}hints.{part}"));
            if named.len() > MAX_HINTS {
                errors.push(field::too_many(here, named.len(), MAX_HINTS));
                continue;
            }
            let mut seen = HashSet::new();
            for (j, hint) in named.iter().enumerate() {
                let (name, here) = (text(hint, "name"), format_args!("{here}[{j}].name"));
                if !seen.insert(name) {
                    errors.push(field::duplicate(here, name));
                } else {
                    check_text(here, name, name_rule, errors);
                }
            }
        }
    }
}

fn ports(slice: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MAX: usize = 20_000;
    let ports = list(slice, "ports");
    if ports.len() > MAX {
        errors.push(field::too_many("ports", ports.len(), MAX));
        return;
    }
    let mut seen = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let (name, path) = (text(port, "name"), format_args!("ports[{i}]."));
        validate(&[Text("name", names::dns1123_label_errors)], port, path, errors);
        if !seen.insert(name) {
            errors.push(field::duplicate(format_args!("{path}name"), name));
        }
        validate(PROTOCOL_CHECKS, port, path, errors);
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
