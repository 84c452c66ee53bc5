//! Fields that are a number or a percentage of pods.

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::Value;

/// Validates a number or a percentage of pods.
pub(crate) fn int_or_percent(value: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const FORM: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
    match value {
        Value::Int(n) if *n < 0 => {
            errors.push(field::invalid(path, *n, "must be greater than or equal to 0"));
        }
        Value::String(share) => {
            let digits = share.strip_suffix('%').unwrap_or_default();
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                errors.push(field::invalid(path, share.clone(), FORM));
            }
        }
        _ => {}
    }
}

/// The number of a percentage.
fn percent(value: &Value) -> Option<i64> {
    value.as_str()?.strip_suffix('%')?.parse().ok()
}

pub(crate) fn at_most_100_percent(value: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    if percent(value).is_some_and(|percent| percent > 100) {
        errors.push(field::invalid(path, value.clone(), "must not be greater than 100%"));
    }
}

pub(crate) fn is_zero(value: Option<&Value>) -> bool {
    // A malformed percentage counts as 0.
    value.is_some_and(|value| value.as_int().or_else(|| percent(value)).unwrap_or(0) == 0)
}
