//! PriorityClass (`scheduling.k8s.io`).

use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::checks::immutable::immutable;
use crate::checks::Check::{self, By, OneOf};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, Field};
use crate::defaults::Literal::Str;
use crate::path::at;
use crate::strategy::{Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Constant,
    defaults: DEFAULTS,
    checks: CHECKS,
    validate_update,
    refuse_delete,
    columns: COLUMNS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[Field("preemptionPolicy", Str("PreemptLowerPriority"))];

/// System priority classes cannot be deleted.
fn refuse_delete(name: &str) -> Option<&'static str> {
    let is_system = matches!(name, "system-node-critical" | "system-cluster-critical");
    is_system.then_some("this is a system priority class and cannot be deleted")
}

const CHECKS: &[Check] = &[By(priority), OneOf("preemptionPolicy", &["PreemptLowerPriority", "Never"])];

/// The maximum priority of classes that users define.
const MAX_PRIORITY: i64 = 1_000_000_000;

const SYSTEM_PRIORITIES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

fn priority(class: &Part<'_>) {
    let (name, value) = (class.text("metadata.name"), class.number("value"));
    if name.starts_with("system-") {
        let known = SYSTEM_PRIORITIES.iter().find(|(known, _)| *known == name);
        if known.is_none_or(|(_, expected)| *expected != value) {
            let why = format!("priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class");
            class.forbidden("metadata.name", &why);
        }
    } else if value > MAX_PRIORITY {
        let why = format!("maximum allowed value of a user defined priority is {MAX_PRIORITY}");
        class.forbidden("value", &why);
    }
}

/// The value and the preemption policy are immutable.
fn validate_update(new: &Part<'_>, old: &Value) {
    if new.at("value") != at(old, "value") {
        new.forbidden("value", "may not be changed in an update.");
    }
    immutable(&["preemptionPolicy"], new, old);
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::int("Value", "value"),
    Column::boolean("Global-Default", "globalDefault", false),
    Column::AGE,
    Column::text("PreemptionPolicy", "preemptionPolicy", ""),
];
