//! ValidatingWebhookConfiguration (`admissionregistration.k8s.io`).

use crate::admissionregistration::webhook::{self, CONFIGURATION_CHECKS, WEBHOOK_COLUMNS, WEBHOOK_DEFAULTS};
use crate::defaults::DefaultRule::{self, ForEach};
use crate::strategy::{Generation, Strategy, BASE};
use crate::warnings;

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    unconditional_update: false,
    defaults: DEFAULTS,
    checks: CONFIGURATION_CHECKS,
    validate_create: webhook::validate_create,
    warnings: warnings::reserved_name_warnings,
    validate_update: webhook::validate_update,
    columns: WEBHOOK_COLUMNS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[ForEach("webhooks", WEBHOOK_DEFAULTS)];
