//! Node (`core`).

use std::collections::{BTreeSet, HashSet};

use plinth_api::Cause;
use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::table::{condition, join, pairs, Cell, Column, Now};
use plinth_codec::{names, Map, Value};

use crate::checks::Check::{self, AnyText, By, Each, Is};
use crate::checks::{address, quantities, Part};
use crate::columns::or;
use crate::defaults;
use crate::defaults::DefaultRule::{self, Computed, IfPresent, RoundQuantities};
use crate::path::{at, flag, list, text};
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

fn amounts(node: &Part<'_>) {
    for part in ["status.capacity", "status.allocatable"] {
        for (name, amount) in node.entries(part) {
            // Upstream reports the resource as a field.
            let path = format!("{part}.{name}");
            quantities::amount(name, &amount.in_place_of(node, &path));
        }
    }
}

/// Validates `podCIDRs`: at most one of each IP family.
fn pod_networks(node: &Part<'_>) {
    const PATH: &str = "spec.podCIDRs";
    node.check(&[Each(PATH, &[Is("", address::network)])]);
    let networks = node.texts(PATH);
    let one_each =
        networks.len() == 2 && networks.iter().filter(|network| network.contains(':')).count() == 1;
    if networks.len() > 1 && !one_each {
        let why = "may specify no more than one CIDR for each IP family";
        node.invalid(PATH, node.list(PATH).to_vec(), why);
    }
}

/// Validates the taints; upstream reports their paths below `metadata`.
fn taints(node: &Part<'_>) {
    let mut seen = HashSet::new();
    for taint in node.each_as("spec.taints", "metadata.taints") {
        taint.check(&[
            AnyText("key", names::qualified_name_errors),
            AnyText("value", names::label_value_errors),
        ]);
        if !seen.insert((taint.text("key"), taint.text("effect"))) {
            let mut error = Cause::duplicate(taint.path(""), taint.shown(""));
            error.message += ": taints must be unique by key and effect pair";
            taint.push(error);
        }
        taint.required_one_of("effect", &["NoSchedule", "PreferNoSchedule", "NoExecute"], "");
    }
}

/// `podCIDRs` and `providerID` are immutable once set.
fn validate_update(new: &Part<'_>, old: &Value) {
    let before = list(old, "spec.podCIDRs");
    if !before.is_empty() && new.list("spec.podCIDRs") != before {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        new.forbidden("spec.podCIDRs", why);
    }
    let before = text(old, "spec.providerID");
    if !before.is_empty() && new.text("spec.providerID") != before {
        let why = "node updates may not change providerID except from \"\" to valid";
        new.forbidden("spec.providerID", why);
    }
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
