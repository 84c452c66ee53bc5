//! NetworkPolicy (`networking.k8s.io`).

use plinth_codec::table::Column;
use plinth_codec::{Map, Value};

use crate::checks::ports::port_or_name;
use crate::checks::Check::{self, By, Each, MustBe, OneOf, Port, Selector};
use crate::checks::{address, Part};
use crate::defaults;
use crate::defaults::DefaultRule::{self, Computed, Field, ForEach};
use crate::defaults::Literal::{Str, Strs};
use crate::path::{at, list, text};
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

fn policy_port(port: &Part<'_>) {
    let refuse = |why: &str| {
        if let Some(end) = port.int("endPort") {
            port.invalid("endPort", end, why);
        }
    };
    match port.at("port") {
        None => refuse("may not be specified when `port` is not specified"),
        Some(Value::String(_)) => {
            port_or_name(&port.field("port"));
            refuse("may not be specified when `port` is non-numeric");
        }
        Some(first) => {
            port_or_name(&port.field("port"));
            if port.int("endPort").zip(first.as_int()).is_some_and(|(end, first)| end < first) {
                // Upstream reports the value of the other field.
                port.invalid("endPort", first.clone(), "must be greater than or equal to `port`");
            }
            port.check(&[Port("endPort")]);
        }
    }
}

fn peer(peer: &Part<'_>) {
    if let Some(block) = peer.get("ipBlock") {
        ip_block(&block);
    }
    match peer.count(&["podSelector", "namespaceSelector", "ipBlock"]) {
        0 => peer.required("", "must specify a peer"),
        2.. if peer.has("ipBlock") => peer.forbidden("", "may not specify both ipBlock and another peer"),
        _ => {}
    }
}

fn ip_block(block: &Part<'_>) {
    let network = block.text("cidr");
    if network.is_empty() {
        block.required("cidr", "");
        return;
    }
    let is_good = |part: &Part<'_>, key: &str| {
        let before = part.errors();
        part.apply(key, address::network);
        part.errors() == before
    };
    let good = is_good(block, "cidr");
    for except in block.each("except") {
        if is_good(&except, "") && good && !address::contains(network, except.text("")) {
            except.invalid("", except.text(""), "must be a strict subset of `cidr`");
        }
    }
}

fn policy_types(policy: &Part<'_>) {
    const PATH: &str = "spec.policyTypes";
    match policy.list(PATH).len() {
        ..=2 => policy.check(&[Each(PATH, &[MustBe("", &["Ingress", "Egress"])])]),
        _ => policy.invalid(PATH, policy.shown(PATH), "may not specify more than two policyTypes"),
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
