//! Kinds of `admissionregistration.k8s.io`.

pub(crate) mod environment;
pub(crate) mod expressions;
pub(crate) mod match_resources;
pub(crate) mod mutating_admission_policy;
pub(crate) mod mutating_admission_policy_binding;
pub(crate) mod mutating_webhook_configuration;
pub(crate) mod params;
pub(crate) mod validating_admission_policy;
pub(crate) mod validating_admission_policy_binding;
pub(crate) mod validating_webhook_configuration;
pub(crate) mod webhook;

use crate::strategy::{Conversion, Generation, Strategy, BASE};
use crate::warnings;
use crate::AdmissionExemption;

/// What the six kinds have in common: they configure the server and have generations.
const REGISTRATION: Strategy = Strategy {
    generation: Generation::Changes,
    unconditional_update: false,
    warnings: warnings::reserved_name_warnings,
    admission_exemption: AdmissionExemption::WebhooksAndPolicies,
    ..BASE
};

/// Versions of mutating policies and their bindings that are off by default.
const OLDER_VERSIONS: &[Conversion] = &[
    Conversion::same("v1beta1", ("admissionregistration.k8s.io", "v1")),
    Conversion::same("v1alpha1", ("admissionregistration.k8s.io", "v1")),
];
