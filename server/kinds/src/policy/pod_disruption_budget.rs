//! PodDisruptionBudget (`policy`).

use plinth_api::{shown_value, Cause};
use plinth_codec::table::Column;

use crate::checks::int_or_percent::{at_most_100_percent, int_or_percent};
use crate::checks::Check::{self, AtLeast, By, Enum, Selector};
use crate::checks::Part;
use crate::strategy::{Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    unconditional_update: false,
    checks: CHECKS,
    status_checks: STATUS_CHECKS,
    columns: COLUMNS,
    ..BASE
};

const CHECKS: &[Check] = &[
    By(budget),
    Selector("spec.selector"),
    Enum("spec.unhealthyPodEvictionPolicy", &["AlwaysAllow", "IfHealthyBudget"]),
];

fn budget(object: &Part<'_>) {
    const KEYS: [&str; 2] = ["spec.minAvailable", "spec.maxUnavailable"];
    if object.count(&KEYS) == 2 {
        // Upstream reports the struct with its Go field names.
        let member = |key: &str| shown_value(&object.shown(key));
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            member("spec.minAvailable"),
            member("spec.selector"),
            member("spec.maxUnavailable"),
            member("spec.unhealthyPodEvictionPolicy")
        );
        let why = "minAvailable and maxUnavailable cannot be both set";
        object.push(Cause::invalid_shown("spec", &shown, why));
    }
    for key in KEYS {
        int_or_percent(object, key);
        at_most_100_percent(object, key);
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
