//! PodTemplate (`core`).

use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::checks::Check::{self, Always};
use crate::columns;
use crate::defaults::DefaultRule::{self, Ensure};
use crate::gated_fields;
use crate::pod_template::defaults::TEMPLATE_DEFAULTS;
use crate::pod_template::warnings::warn_template;
use crate::pod_template::TEMPLATE_CHECKS;
use crate::strategy::{Generation, Strategy, BASE};
use crate::warnings::{is_same_generation, Warnings};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    returns_deleted_object: true,
    defaults: DEFAULTS,
    gated_fields: &gated_fields::of_pods(&["template", "spec"]),
    checks: CHECKS,
    warnings,
    columns: COLUMNS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[Ensure("template", TEMPLATE_DEFAULTS)];

const CHECKS: &[Check] = &[Always("template", TEMPLATE_CHECKS)];

fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut found = Warnings::default();
    if !is_same_generation(new, old) {
        warn_template(new, "template", &mut found);
    }
    found.into_vec()
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    columns::containers("template.spec.containers"),
    columns::images("template.spec.containers"),
    Column::labels("Pod Labels", "template.metadata.labels"),
];
