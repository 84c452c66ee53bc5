//! MutatingWebhookConfiguration (`admissionregistration.k8s.io`).

use crate::admissionregistration::webhook::{self, CONFIGURATION_CHECKS, WEBHOOK_COLUMNS, WEBHOOK_DEFAULTS};
use crate::admissionregistration::REGISTRATION;
use crate::defaults::DefaultRule::{self, Field, ForEach};
use crate::defaults::Literal::Str;
use crate::strategy::Strategy;

pub(crate) const STRATEGY: Strategy = Strategy {
    defaults: DEFAULTS,
    checks: CONFIGURATION_CHECKS,
    validate_create: webhook::validate_create,
    validate_update: webhook::validate_update,
    columns: WEBHOOK_COLUMNS,
    ..REGISTRATION
};

const DEFAULTS: &[DefaultRule] = &[
    ForEach("webhooks", WEBHOOK_DEFAULTS),
    ForEach("webhooks", &[Field("reinvocationPolicy", Str("Never"))]),
];
