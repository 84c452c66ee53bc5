//! ReplicaSet (`apps`).

use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::table::Column;

use crate::checks::Check::{self, AtLeast, By};
use crate::columns;
use crate::defaults::DefaultRule::{self, Ensure, Field};
use crate::defaults::Literal::Int;
use crate::gated_fields;
use crate::pod_template::controller::{selector, template_always, REPLICAS_STATUS_CHECKS};
use crate::pod_template::defaults::TEMPLATE_DEFAULTS;
use crate::pod_template::warnings;
use crate::strategy::{Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    defaults: DEFAULTS,
    gated_fields: &gated_fields::of_pods(gated_fields::TEMPLATE),
    checks: CHECKS,
    immutable: &["spec.selector"],
    warnings: warnings::template_warnings,
    status_checks: REPLICAS_STATUS_CHECKS,
    columns: COLUMNS,
    selectable: SELECTABLE,
    ..BASE
};

const DEFAULTS: &[DefaultRule] =
    &[Field("spec.replicas", Int(1)), Ensure("spec.template", TEMPLATE_DEFAULTS)];

const CHECKS: &[Check] = &[
    AtLeast("spec.replicas", 0),
    AtLeast("spec.minReadySeconds", 0),
    By(|object| selector(object, "deployment")),
    By(template_always),
];

/// By `status.replicas`, too, as documented, though upstream refuses it in apps/v1.
const SELECTABLE: Selectable = Selectable {
    fields: &[
        SelectableField::NAME,
        SelectableField::NAMESPACE,
        SelectableField::new("status.replicas").absent("0"),
    ],
    unsupported: Selectable::not_a_known_field,
};

const COLUMNS: &[Column] =
    &columns::replicas(Column::selector("Selector", "spec.selector", "<none>", "<error>"));
