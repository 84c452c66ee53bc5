//! ReplicaSet (`apps`).

use crate::checks::Check::{self, AtLeast, By};
use crate::defaults::DefaultRule::{self, Ensure, Field};
use crate::defaults::Literal::Int;
use crate::pod_template::controller::{selector, template_always, REPLICAS_STATUS_CHECKS};
use crate::pod_template::defaults::TEMPLATE_DEFAULTS;
use crate::pod_template::warnings;
use crate::strategy::{Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    defaults: DEFAULTS,
    checks: CHECKS,
    immutable: &["spec.selector"],
    warnings: warnings::template_warnings,
    status_checks: REPLICAS_STATUS_CHECKS,
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
