//! Nodes.

use super::read::{bool_at, condition, items, join, or, pairs, str_at};
use super::{Cell, Computation};
use crate::Value;
use std::collections::BTreeSet;

pub const STATUS: Computation = Computation {
    reads: &["spec.unschedulable", "status.conditions[].type", "status.conditions[].status"],
    cell: |node, _| {
        let ready = match condition(items(node, "status.conditions"), "Ready") {
            Some(condition) if str_at(condition, "status") == "True" => "Ready",
            Some(_) => "NotReady",
            None => "Unknown",
        };
        if bool_at(node, "spec.unschedulable") {
            format!("{ready},SchedulingDisabled").into()
        } else {
            ready.into()
        }
    },
};

/// The roles that labels give a node: `node-role.kubernetes.io/ROLE` or `kubernetes.io/role: ROLE`.
pub const ROLES: Computation = Computation {
    reads: &["metadata.labels"],
    cell: |node, _| {
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
    },
};

fn address<'a>(node: &'a Value, kind: &str) -> Cell<'a> {
    let addresses = items(node, "status.addresses");
    addresses.iter().find(|a| str_at(a, "type") == kind).map_or("<none>", |a| str_at(a, "address")).into()
}

pub const INTERNAL_IP: Computation = Computation {
    reads: &["status.addresses[].type", "status.addresses[].address"],
    cell: |node, _| address(node, "InternalIP"),
};

pub const EXTERNAL_IP: Computation = Computation {
    reads: &["status.addresses[].type", "status.addresses[].address"],
    cell: |node, _| address(node, "ExternalIP"),
};

pub const KERNEL: Computation = Computation {
    reads: &["status.nodeInfo.kernelVersion", "status.nodeInfo.architecture"],
    cell: |node, _| {
        let kernel = or(str_at(node, "status.nodeInfo.kernelVersion"), "<unknown>");
        match str_at(node, "status.nodeInfo.architecture") {
            "" => kernel.into(),
            architecture => format!("{kernel} ({architecture})").into(),
        }
    },
};
