//! NetworkPolicy (`networking.k8s.io`).

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath, ParentPath};
use plinth_codec::table::Column;
use plinth_codec::{Map, Value};

use crate::checks::ports::port_or_name;
use crate::checks::Check::{self, By, Each, OneOf, Port, Selector};
use crate::checks::{address, validate};
use crate::defaults;
use crate::defaults::DefaultRule::{self, Computed, Field, ForEach};
use crate::defaults::Literal::{Str, Strs};
use crate::path::{at, int, list, text, texts};
use crate::strategy::{Generation, Strategy, BASE};
use crate::warnings::address::{warn_cidr, warn_cidrs};
use crate::warnings::Warnings;

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    defaults: DEFAULTS,
    checks: CHECKS,
    warnings,
    columns: COLUMNS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[
    Computed(default_policy_types),
    ForEach("spec.ingress", &[ForEach("ports", PORT_DEFAULTS)]),
    ForEach("spec.egress", &[ForEach("ports", PORT_DEFAULTS)]),
];

const PORT_DEFAULTS: &[DefaultRule] = &[Field("protocol", Str("TCP"))];

/// `policyTypes` defaults to `Ingress`, and to `Egress` too where there are egress rules.
fn default_policy_types(object: &mut Map) {
    let has_egress =
        defaults::at(object, "spec.egress").and_then(Value::as_array).is_some_and(|e| !e.is_empty());
    let types = if has_egress { Strs(&["Ingress", "Egress"]) } else { Strs(&["Ingress"]) };
    defaults::apply(&[Field("spec.policyTypes", types)], object);
}

const CHECKS: &[Check] = &[
    Selector("spec.podSelector"),
    Each("spec.ingress", &[Each("ports", PORT_CHECKS), Each("from", PEER_CHECKS)]),
    Each("spec.egress", &[Each("ports", PORT_CHECKS), Each("to", PEER_CHECKS)]),
    By(policy_types),
];

const PORT_CHECKS: &[Check] = &[OneOf("protocol", &["TCP", "UDP", "SCTP"]), By(policy_port)];

const PEER_CHECKS: &[Check] = &[Selector("podSelector"), Selector("namespaceSelector"), By(peer)];

fn policy_port(port: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let (number, end) = (at(port, "port"), int(port, "endPort"));
    let here = format_args!("{path}endPort");
    match number {
        None => {
            if let Some(end) = end {
                let why = "may not be specified when `port` is not specified";
                errors.push(field::invalid(here, end, why));
            }
        }
        Some(Value::String(_)) => {
            port_or_name(number, format_args!("{path}port"), errors);
            if let Some(end) = end {
                let why = "may not be specified when `port` is non-numeric";
                errors.push(field::invalid(here, end, why));
            }
        }
        Some(first) => {
            port_or_name(number, format_args!("{path}port"), errors);
            let Some(end) = end else { return };
            if first.as_int().is_some_and(|first| end < first) {
                // Upstream reports the value of the other field.
                errors.push(field::invalid(here, first.clone(), "must be greater than or equal to `port`"));
            }
            validate(&[Port("endPort")], port, path, errors);
        }
    }
}

fn peer(peer: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let here = ParentPath(path);
    let parts = ["podSelector", "namespaceSelector", "ipBlock"];
    let count = parts.iter().filter(|part| at(peer, part).is_some()).count();
    if let Some(block) = at(peer, "ipBlock") {
        ip_block(block, format_args!("{path}ipBlock"), errors);
    }
    if count == 0 {
        errors.push(field::required(here, "must specify a peer"));
    } else if count > 1 && at(peer, "ipBlock").is_some() {
        errors.push(field::forbidden(here, "may not specify both ipBlock and another peer"));
    }
}

fn ip_block(block: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let network = text(block, "cidr");
    if network.is_empty() {
        errors.push(field::required(format_args!("{path}.cidr"), ""));
        return;
    }
    let before = errors.len();
    address::network(network, format_args!("{path}.cidr"), errors);
    let good = errors.len() == before;
    for (i, except) in texts(block, "except").iter().enumerate() {
        let here = format_args!("{path}.except[{i}]");
        let before = errors.len();
        address::network(except, here, errors);
        if good && errors.len() == before && !address::contains(network, except) {
            errors.push(field::invalid(here, *except, "must be a strict subset of `cidr`"));
        }
    }
}

fn policy_types(policy: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let types = list(policy, "spec.policyTypes");
    if types.len() > 2 {
        let why = "may not specify more than two policyTypes";
        errors.push(field::invalid("spec.policyTypes", types.to_vec(), why));
        return;
    }
    for (i, given) in texts(policy, "spec.policyTypes").iter().enumerate() {
        if !matches!(*given, "Ingress" | "Egress") {
            let here = format_args!("spec.policyTypes[{i}]");
            errors.push(field::not_supported(here, *given, &["Ingress", "Egress"]));
        }
    }
}

fn warnings(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Warnings::default();
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, rule) in list(new, &format!("spec.{direction}")).iter().enumerate() {
            for (j, peer) in list(rule, peers).iter().enumerate() {
                let Some(block) = at(peer, "ipBlock").filter(|_| !found.is_full()) else { continue };
                let here = format!("spec.{direction}[{i}].{peers}[{j}].ipBlock");
                warn_cidr(text(block, "cidr"), &format!("{here}.cidr"), &mut found);
                warn_cidrs(list(block, "except"), &format!("{here}.except"), &mut found);
            }
        }
    }
    found.into_vec()
}

const COLUMNS: &[Column] =
    &[Column::NAME, Column::selector("Pod-Selector", "spec.podSelector", "<none>", "<error>"), Column::AGE];
