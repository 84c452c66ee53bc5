//! PodDisruptionBudget (`policy`).

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::checks::int_or_percent::{at_most_100_percent, int_or_percent};
use crate::checks::Check::{self, AtLeast, By, Enum, Selector};
use crate::path::at;
use crate::strategy::{Generation, Strategy, BASE};
use crate::warnings;

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    unconditional_update: false,
    checks: CHECKS,
    warnings: warnings::reserved_name_warnings,
    status_checks: STATUS_CHECKS,
    columns: COLUMNS,
    ..BASE
};

const CHECKS: &[Check] = &[
    By(budget),
    Selector("spec.selector"),
    Enum("spec.unhealthyPodEvictionPolicy", &["AlwaysAllow", "IfHealthyBudget"]),
];

fn budget(object: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let (least, most) = (at(object, "spec.minAvailable"), at(object, "spec.maxUnavailable"));
    if let (Some(least), Some(most)) = (least, most) {
        // Upstream reports the struct with its Go field names.
        let member = |key: &str| field::shown(at(object, &format!("spec.{key}")).unwrap_or(&Value::Null));
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            field::shown(least),
            member("selector"),
            field::shown(most),
            member("unhealthyPodEvictionPolicy")
        );
        let why = "minAvailable and maxUnavailable cannot be both set";
        errors.push(field::invalid_shown("spec", &shown, why));
    }
    for (path, value) in [("spec.minAvailable", least), ("spec.maxUnavailable", most)] {
        if let Some(value) = value {
            int_or_percent(value, format_args!("{path}"), errors);
            at_most_100_percent(value, format_args!("{path}"), errors);
        }
    }
}

const STATUS_CHECKS: &[Check] = &[
    AtLeast("status.disruptionsAllowed", 0),
    AtLeast("status.currentHealthy", 0),
    AtLeast("status.desiredHealthy", 0),
    AtLeast("status.expectedPods", 0),
];

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Min Available", "spec.minAvailable", "N/A"),
    Column::text("Max Unavailable", "spec.maxUnavailable", "N/A"),
    Column::int("Allowed Disruptions", "status.disruptionsAllowed"),
    Column::AGE,
];
