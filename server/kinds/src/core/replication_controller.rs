//! ReplicationController (`core`).

use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::table::Column;
use plinth_codec::Map;

use crate::checks::Check::{self, AtLeast, By, Required, Set};
use crate::checks::Part;
use crate::columns;
use crate::defaults::DefaultRule::{self, Computed, Field, IfPresent};
use crate::defaults::Literal::Int;
use crate::defaults::{self, is_empty_map};
use crate::gated_fields;
use crate::pod_template::controller::{
    labels_do_not_match, restarts_always, template, REPLICAS_STATUS_CHECKS,
};
use crate::pod_template::defaults::TEMPLATE_DEFAULTS;
use crate::pod_template::warnings;
use crate::strategy::{Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    orphans_by_default: true,
    defaults: DEFAULTS,
    gated_fields: &gated_fields::of_pods(gated_fields::TEMPLATE),
    checks: CHECKS,
    warnings: warnings::template_warnings,
    status_checks: REPLICAS_STATUS_CHECKS,
    storage_name: Some("controllers"),
    columns: COLUMNS,
    selectable: Selectable::new(&[
        SelectableField::NAME,
        SelectableField::NAMESPACE,
        SelectableField::new("status.replicas").absent("0"),
    ]),
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[
    Computed(default_labels),
    Field("spec.replicas", Int(1)),
    IfPresent("spec.template", TEMPLATE_DEFAULTS),
];

/// `metadata.labels` and `spec.selector` of a ReplicationController default to its template's labels.
fn default_labels(object: &mut Map) {
    let labels =
        defaults::at(object, "spec.template.metadata.labels").filter(|l| l.as_object().is_some()).cloned();
    let Some(labels) = labels else { return };
    defaults::set(object, "spec.selector", &labels, is_empty_map);
    defaults::set(object, "metadata.labels", &labels, is_empty_map);
}

const CHECKS: &[Check] =
    &[AtLeast("spec.replicas", 0), AtLeast("spec.minReadySeconds", 0), By(plain_selector)];

fn plain_selector(object: &Part<'_>) {
    object.check(&[Required("spec.selector", ""), Set("spec.template", "")]);
    if !object.has("spec.template") {
        return;
    }
    const LABELS: &str = "spec.template.metadata.labels";
    let label = |key: &str| object.at(LABELS).and_then(|labels| labels.get(key));
    if object.members("spec.selector").any(|(key, value)| label(key) != Some(value)) {
        labels_do_not_match(object, LABELS);
    }
    template(object);
    restarts_always(object);
}

const COLUMNS: &[Column] = &columns::replicas(Column::labels("Selector", "spec.selector"));
