//! Node (`core`).

use std::collections::{BTreeSet, HashSet};

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::table::{condition, join, pairs, Cell, Column, Now};
use plinth_codec::{names, Map, Value};

use crate::checks::Check::{self, By};
use crate::checks::{address, check_text, quantities};
use crate::columns::or;
use crate::defaults;
use crate::defaults::DefaultRule::{self, Computed, IfPresent, RoundQuantities};
use crate::path::{at, flag, list, text, texts};
use crate::strategy::{Strategy, BASE};
use crate::warnings::address::warn_cidrs;
use crate::warnings::Warnings;

pub(crate) const STRATEGY: Strategy = Strategy {
    defaults: DEFAULTS,
    status_at_create: true,
    prepare_for_create,
    prepare_for_update,
    checks: CHECKS,
    warnings,
    validate_update,
    status_checks: CHECKS,
    validate_status: validate_update,
    storage_name: Some("minions"),
    columns: COLUMNS,
    selectable: Selectable::new(&[
        SelectableField::NAME,
        SelectableField::new("spec.unschedulable").absent("false"),
    ]),
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[
    Computed(default_allocatable),
    RoundQuantities("status.capacity"),
    RoundQuantities("status.allocatable"),
    IfPresent("spec", &[Computed(|spec| defaults::agree(spec, "podCIDR", "podCIDRs", None))]),
];

fn default_allocatable(object: &mut Map) {
    if let Some(capacity) = defaults::at(object, "status.capacity").filter(|c| !c.is_null()).cloned() {
        defaults::set(object, "status.allocatable", &capacity, Value::is_null);
    }
}

/// Drops the removed feature of dynamic kubelet configuration.
fn prepare_for_create(node: &mut Value) {
    if let Some(spec) = node.object_at_mut(&["spec"]) {
        spec.remove("configSource");
    }
    if let Some(status) = node.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("config");
    }
}

/// Drops `configSource` unless the stored node has it.
fn prepare_for_update(node: &mut Value, old: &Value) {
    if old.at(&["spec", "configSource"]).is_none() {
        if let Some(spec) = node.object_at_mut(&["spec"]) {
            spec.remove("configSource");
        }
    }
}

const CHECKS: &[Check] = &[By(taints), By(amounts), By(pod_networks)];

fn amounts(node: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for part in ["capacity", "allocatable"] {
        let given = node.at(&["status", part]).and_then(Value::as_object);
        for (name, shown) in given.into_iter().flat_map(plinth_codec::Map::iter) {
            let shown = shown.as_str().unwrap_or_default();
            quantities::amount(name, shown, format_args!("status.{part}.{name}"), errors);
        }
    }
}

/// Validates `podCIDRs`: at most one of each IP family.
fn pod_networks(node: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let networks = texts(node, "spec.podCIDRs");
    for (i, network) in networks.iter().enumerate() {
        address::network(network, format_args!("spec.podCIDRs[{i}]"), errors);
    }
    let is_6 = |network: &&str| network.contains(':');
    let one_each = networks.len() == 2 && networks.iter().filter(|network| is_6(network)).count() == 1;
    if networks.len() > 1 && !one_each {
        let why = "may specify no more than one CIDR for each IP family";
        errors.push(field::invalid("spec.podCIDRs", list(node, "spec.podCIDRs").to_vec(), why));
    }
}

/// Validates the taints; upstream reports their paths below `metadata`.
fn taints(node: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (i, taint) in list(node, "spec.taints").iter().enumerate() {
        let path = format_args!("metadata.taints[{i}]");
        let key = text(taint, "key");
        check_text(format_args!("{path}.key"), key, names::qualified_name_errors, errors);
        let value = text(taint, "value");
        check_text(format_args!("{path}.value"), value, names::label_value_errors, errors);
        if !seen.insert((key, text(taint, "effect"))) {
            let mut error = field::duplicate(path, taint.clone());
            error.message += ": taints must be unique by key and effect pair";
            errors.push(error);
        }
        let effect = text(taint, "effect");
        let supported = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if effect.is_empty() {
            errors.push(field::required(format_args!("{path}.effect"), ""));
        } else if !supported.contains(&effect) {
            errors.push(field::not_supported(format_args!("{path}.effect"), effect, supported));
        }
    }
}

/// `podCIDRs` and `providerID` are immutable once set.
fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    let before = list(old, "spec.podCIDRs");
    if !before.is_empty() && list(new, "spec.podCIDRs") != before {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(field::forbidden("spec.podCIDRs", why));
    }
    let before = text(old, "spec.providerID");
    if !before.is_empty() && text(new, "spec.providerID") != before {
        let why = "node updates may not change providerID except from \"\" to valid";
        errors.push(field::forbidden("spec.providerID", why));
    }
    errors
}

fn warnings(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Warnings::default();
    if at(new, "spec.configSource").is_some() {
        found.add("spec.configSource: the feature is removed");
    }
    if !text(new, "spec.externalID").is_empty() {
        found.add("spec.externalID: this field is deprecated, and is unused by Kubernetes");
    }
    warn_cidrs(list(new, "spec.podCIDRs"), "spec.podCIDRs", &mut found);
    found.into_vec()
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::computed(
        "Status",
        &["spec.unschedulable", "status.conditions[].type", "status.conditions[].status"],
        status_cell,
    ),
    Column::computed("Roles", &["metadata.labels"], roles_cell),
    Column::AGE,
    Column::text("Version", "status.nodeInfo.kubeletVersion", ""),
    Column::computed(
        "Internal-IP",
        &["status.addresses[].type", "status.addresses[].address"],
        internal_ip_cell,
    )
    .wide(),
    Column::computed(
        "External-IP",
        &["status.addresses[].type", "status.addresses[].address"],
        external_ip_cell,
    )
    .wide(),
    Column::text("OS-Image", "status.nodeInfo.osImage", "<unknown>").wide(),
    Column::computed(
        "Kernel-Version",
        &["status.nodeInfo.kernelVersion", "status.nodeInfo.architecture"],
        kernel_cell,
    )
    .wide(),
    Column::text("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", "<unknown>").wide(),
];

fn address<'a>(node: &'a Value, kind: &str) -> Cell<'a> {
    let addresses = list(node, "status.addresses");
    addresses.iter().find(|a| text(a, "type") == kind).map_or("<none>", |a| text(a, "address")).into()
}

fn status_cell(node: &Value, _: Now) -> Cell<'_> {
    let ready = match condition(list(node, "status.conditions"), "Ready") {
        Some(condition) if text(condition, "status") == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if flag(node, "spec.unschedulable") {
        format!("{ready},SchedulingDisabled").into()
    } else {
        ready.into()
    }
}

/// The roles that labels give a node: `node-role.kubernetes.io/ROLE` or `kubernetes.io/role: ROLE`.
fn roles_cell(node: &Value, _: Now) -> Cell<'_> {
    let roles: BTreeSet<&str> = pairs(node, "metadata.labels")
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => (key == "kubernetes.io/role").then_some(value),
        })
        .filter(|role| !role.is_empty())
        .collect();
    match roles.is_empty() {
        true => "<none>".into(),
        false => join(roles.into_iter(), ",").into(),
    }
}

fn internal_ip_cell(node: &Value, _: Now) -> Cell<'_> {
    address(node, "InternalIP")
}

fn external_ip_cell(node: &Value, _: Now) -> Cell<'_> {
    address(node, "ExternalIP")
}

fn kernel_cell(node: &Value, _: Now) -> Cell<'_> {
    let kernel = or(text(node, "status.nodeInfo.kernelVersion"), "<unknown>");
    match text(node, "status.nodeInfo.architecture") {
        "" => kernel.into(),
        architecture => format!("{kernel} ({architecture})").into(),
    }
}
