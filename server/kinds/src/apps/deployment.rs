//! Deployment (`apps`).

use plinth_codec::apply::Reset;
use plinth_codec::table::Column;

use crate::checks::int_or_percent::{at_most_100_percent, int_or_percent, is_zero};
use crate::checks::Check::{self, AtLeast, By};
use crate::checks::Part;
use crate::columns;
use crate::defaults::DefaultRule::{self, Ensure, Field, When};
use crate::defaults::Literal::{Int, Str};
use crate::gated_fields;
use crate::pod_template::controller::{self, replica_counts, selector, template_always};
use crate::pod_template::defaults::TEMPLATE_DEFAULTS;
use crate::pod_template::warnings;
use crate::strategy::{Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::ChangesAndAnnotations,
    defaults: DEFAULTS,
    gated_fields: &gated_fields::of_pods(gated_fields::TEMPLATE),
    checks: CHECKS,
    immutable: &["spec.selector"],
    warnings: warnings::template_warnings,
    status_keeps: &["labels"],
    status_checks: STATUS_CHECKS,
    validate_status: controller::collision_count,
    columns: COLUMNS,
    reset_fields: &[("status", Reset::Except(&["spec", "metadata.labels"]))],
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[
    Field("spec.replicas", Int(1)),
    Field("spec.strategy.type", Str("RollingUpdate")),
    When(
        "spec.strategy.type",
        "RollingUpdate",
        &[
            Field("spec.strategy.rollingUpdate.maxUnavailable", Str("25%")),
            Field("spec.strategy.rollingUpdate.maxSurge", Str("25%")),
        ],
    ),
    Field("spec.revisionHistoryLimit", Int(10)),
    Field("spec.progressDeadlineSeconds", Int(600)),
    Ensure("spec.template", TEMPLATE_DEFAULTS),
];

const CHECKS: &[Check] = &[
    AtLeast("spec.replicas", 0),
    By(|object| selector(object, "deployment")),
    By(template_always),
    By(strategy),
    AtLeast("spec.minReadySeconds", 0),
    AtLeast("spec.revisionHistoryLimit", 0),
    AtLeast("spec.progressDeadlineSeconds", 0),
    By(progress_deadline),
];

/// Only a rolling update has settings.
fn strategy(object: &Part<'_>) {
    const UPDATE: &str = "spec.strategy.rollingUpdate";
    match object.text("spec.strategy.type") {
        "Recreate" => {
            object.forbid_each(&[UPDATE], "may not be specified when strategy `type` is 'Recreate'")
        }
        "RollingUpdate" => rolling_update(&object.field(UPDATE)),
        "" => {}
        // Upstream reports the whole strategy as the value.
        _ => {
            let shown = object.shown("spec.strategy");
            object.not_supported("spec.strategy", shown, &["Recreate", "RollingUpdate"]);
        }
    }
}

/// `maxUnavailable` and `maxSurge` cannot both be 0: no pod could be replaced.
fn rolling_update(update: &Part<'_>) {
    int_or_percent(update, "maxUnavailable");
    int_or_percent(update, "maxSurge");
    if is_zero(update.at("maxUnavailable")) && is_zero(update.at("maxSurge")) {
        let why = "may not be 0 when `maxSurge` is 0";
        update.invalid("maxUnavailable", update.shown("maxUnavailable"), why);
    }
    at_most_100_percent(update, "maxUnavailable");
}

fn progress_deadline(object: &Part<'_>) {
    const PATH: &str = "spec.progressDeadlineSeconds";
    let ready = object.number("spec.minReadySeconds");
    if let Some(seconds) = object.int(PATH).filter(|seconds| *seconds <= ready) {
        object.invalid(PATH, seconds, "must be greater than minReadySeconds");
    }
}

const STATUS_CHECKS: &[Check] = &[
    AtLeast("status.observedGeneration", 0),
    AtLeast("status.replicas", 0),
    AtLeast("status.updatedReplicas", 0),
    AtLeast("status.readyReplicas", 0),
    AtLeast("status.availableReplicas", 0),
    AtLeast("status.unavailableReplicas", 0),
    AtLeast("status.terminatingReplicas", 0),
    AtLeast("status.collisionCount", 0),
    By(|object| {
        replica_counts(object, &["updatedReplicas", "readyReplicas", "availableReplicas"], "readyReplicas");
    }),
];

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::ratio("Ready", "status.readyReplicas", "spec.replicas"),
    Column::int("Up-to-date", "status.updatedReplicas").declared("string"),
    Column::int("Available", "status.availableReplicas").declared("string"),
    Column::AGE,
    columns::containers("spec.template.spec.containers").wide(),
    columns::images("spec.template.spec.containers").wide(),
    Column::selector("Selector", "spec.selector", "", "<invalid>").wide(),
];
