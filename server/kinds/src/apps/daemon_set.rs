//! DaemonSet (`apps`).

use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::checks::int_or_percent::{at_most_100_percent, int_or_percent, is_zero};
use crate::checks::Check::{self, AtLeast, By};
use crate::checks::Part;
use crate::columns;
use crate::defaults::DefaultRule::{self, Ensure, Field, When};
use crate::defaults::Literal::{Int, Str};
use crate::gated_fields;
use crate::path::at;
use crate::pod_template::controller::{self, selector, template_always};
use crate::pod_template::defaults::TEMPLATE_DEFAULTS;
use crate::pod_template::warnings::warn_template;
use crate::strategy::{Generation, Strategy, BASE};
use crate::warnings::Warnings;

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    defaults: DEFAULTS,
    prepare_for_create,
    prepare_for_update,
    gated_fields: &gated_fields::of_pods(gated_fields::TEMPLATE),
    checks: CHECKS,
    immutable: &["spec.selector"],
    warnings,
    status_checks: STATUS_CHECKS,
    validate_status: controller::collision_count,
    prepare_status: keep_template_generation,
    columns: COLUMNS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[
    Field("spec.updateStrategy.type", Str("RollingUpdate")),
    When(
        "spec.updateStrategy.type",
        "RollingUpdate",
        &[
            Field("spec.updateStrategy.rollingUpdate.maxUnavailable", Int(1)),
            Field("spec.updateStrategy.rollingUpdate.maxSurge", Int(0)),
        ],
    ),
    Field("spec.revisionHistoryLimit", Int(10)),
    Ensure("spec.template", TEMPLATE_DEFAULTS),
];

/// Annotation with the generation of the template, for old clients.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Sets the generation of the template to 1.
fn prepare_for_create(object: &mut Value) {
    set_template_generation(object, 1);
}

/// Increments the generation of the template when the template changes.
fn prepare_for_update(new: &mut Value, old: &Value) {
    let count =
        old.str_at(&["metadata", "annotations", TEMPLATE_GENERATION]).and_then(|t| t.parse::<i64>().ok());
    let template = |v: &Value| v.at(&["spec", "template"]).cloned();
    let changed = i64::from(template(new) != template(old));
    set_template_generation(new, count.unwrap_or(1).saturating_add(changed));
}

/// A write of the status keeps the generation of the template.
fn keep_template_generation(new: &mut Value, old: &Value) {
    if let Some(count) =
        old.str_at(&["metadata", "annotations", TEMPLATE_GENERATION]).and_then(|t| t.parse().ok())
    {
        set_template_generation(new, count);
    }
}

fn set_template_generation(object: &mut Value, count: i64) {
    if let Some(annotations) = object.object_at_mut(&["metadata", "annotations"]) {
        annotations.insert(TEMPLATE_GENERATION, count.to_string());
    }
}

const CHECKS: &[Check] = &[
    By(|object| selector(object, "daemonset")),
    By(template_always),
    AtLeast("spec.minReadySeconds", 0),
    AtLeast("spec.revisionHistoryLimit", 0),
    By(update_strategy),
];

fn update_strategy(object: &Part<'_>) {
    match object.text("spec.updateStrategy.type") {
        "OnDelete" | "" => {}
        "RollingUpdate" => rolling_update(&object.field("spec.updateStrategy.rollingUpdate")),
        _ => {
            let shown = object.shown("spec.updateStrategy");
            object.not_supported("spec.updateStrategy", shown, &["RollingUpdate", "OnDelete"]);
        }
    }
}

fn rolling_update(update: &Part<'_>) {
    for key in ["maxUnavailable", "maxSurge"] {
        int_or_percent(update, key);
        at_most_100_percent(update, key);
    }
    let positive = |key: &str| update.has(key) && !is_zero(update.at(key));
    match (positive("maxUnavailable"), positive("maxSurge")) {
        (true, true) => {
            let why = "may not be set when maxUnavailable is non-zero";
            update.invalid("maxSurge", update.shown("maxSurge"), why);
        }
        (false, false) => update.required("maxUnavailable", "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

const STATUS_CHECKS: &[Check] = &[
    AtLeast("status.currentNumberScheduled", 0),
    AtLeast("status.numberMisscheduled", 0),
    AtLeast("status.desiredNumberScheduled", 0),
    AtLeast("status.numberReady", 0),
    AtLeast("status.observedGeneration", 0),
    AtLeast("status.updatedNumberScheduled", 0),
    AtLeast("status.numberAvailable", 0),
    AtLeast("status.numberUnavailable", 0),
    AtLeast("status.collisionCount", 0),
];

/// Warnings about the template, when it changed.
fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    const TEMPLATE: &str = "spec.template";
    let mut found = Warnings::default();
    if old.is_none_or(|old| at(old, TEMPLATE) != at(new, TEMPLATE)) {
        warn_template(new, TEMPLATE, &mut found);
    }
    found.into_vec()
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::int("Desired", "status.desiredNumberScheduled"),
    Column::int("Current", "status.currentNumberScheduled"),
    Column::int("Ready", "status.numberReady"),
    Column::int("Up-to-date", "status.updatedNumberScheduled"),
    Column::int("Available", "status.numberAvailable"),
    Column::labels("Node Selector", "spec.template.spec.nodeSelector"),
    Column::AGE,
    columns::containers("spec.template.spec.containers").wide(),
    columns::images("spec.template.spec.containers").wide(),
    Column::selector("Selector", "spec.selector", "<none>", "<error>").wide(),
];
