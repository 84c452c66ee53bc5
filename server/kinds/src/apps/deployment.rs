//! Deployment (`apps`).

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::apply::Reset;
use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::checks::int_or_percent::{at_most_100_percent, int_or_percent, is_zero};
use crate::checks::validate;
use crate::checks::Check::{self, AtLeast, By};
use crate::columns;
use crate::defaults::DefaultRule::{self, Ensure, Field, When};
use crate::defaults::Literal::{Int, Str};
use crate::path::{at, int, text};
use crate::pod_template::controller::{self, replica_counts, selector, template_always};
use crate::pod_template::defaults::TEMPLATE_DEFAULTS;
use crate::pod_template::warnings;
use crate::strategy::{Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::ChangesAndAnnotations,
    defaults: DEFAULTS,
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
    By(|object, _, errors| selector(object, "deployment", errors)),
    By(template_always),
    By(rolling_update),
    AtLeast("spec.minReadySeconds", 0),
    AtLeast("spec.revisionHistoryLimit", 0),
    By(progress_deadline),
];

/// `maxUnavailable` and `maxSurge` cannot both be 0: no pod could be replaced.
fn rolling_update(object: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.strategy.rollingUpdate";
    let update = at(object, PATH);
    match text(object, "spec.strategy.type") {
        "Recreate" if update.is_some() => {
            let why = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(field::forbidden(PATH, why));
        }
        "RollingUpdate" => {
            let part = |key: &str| update.and_then(|update| at(update, key));
            for key in ["maxUnavailable", "maxSurge"] {
                if let Some(value) = part(key) {
                    int_or_percent(value, format_args!("{PATH}.{key}"), errors);
                }
            }
            if let Some(unavailable) = part("maxUnavailable") {
                if is_zero(Some(unavailable)) && is_zero(part("maxSurge")) {
                    let why = "may not be 0 when `maxSurge` is 0";
                    errors.push(field::invalid(
                        format_args!("{PATH}.maxUnavailable"),
                        unavailable.clone(),
                        why,
                    ));
                }
                at_most_100_percent(unavailable, format_args!("{PATH}.maxUnavailable"), errors);
            }
        }
        "" | "Recreate" => {}
        // Upstream reports the whole strategy as the value.
        _ => {
            let shown = at(object, "spec.strategy").cloned().unwrap_or_default();
            errors.push(field::not_supported("spec.strategy", shown, &["Recreate", "RollingUpdate"]));
        }
    }
}

fn progress_deadline(object: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.progressDeadlineSeconds";
    validate(&[AtLeast(PATH, 0)], object, format_args!(""), errors);
    let ready = int(object, "spec.minReadySeconds").unwrap_or(0);
    if let Some(seconds) = int(object, PATH).filter(|seconds| *seconds <= ready) {
        errors.push(field::invalid(PATH, seconds, "must be greater than minReadySeconds"));
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
    By(|o, _, f| {
        replica_counts(o, &["updatedReplicas", "readyReplicas", "availableReplicas"], "readyReplicas", f)
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
