//! Fields that are a number or a percentage of pods.

use plinth_codec::Value;

use crate::checks::Part;

/// Validates a number or a percentage of pods, if it is set.
pub(crate) fn int_or_percent(part: &Part<'_>, key: &str) {
    const FORM: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
    match part.at(key) {
        Some(Value::Int(n)) if *n < 0 => part.invalid(key, *n, "must be greater than or equal to 0"),
        Some(Value::String(share)) => {
            let digits = share.strip_suffix('%').unwrap_or_default();
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                part.invalid(key, share.clone(), FORM);
            }
        }
        _ => {}
    }
}

/// The number of a percentage.
fn percent(value: &Value) -> Option<i64> {
    value.as_str()?.strip_suffix('%')?.parse().ok()
}

pub(crate) fn at_most_100_percent(part: &Part<'_>, key: &str) {
    if part.at(key).and_then(percent).is_some_and(|percent| percent > 100) {
        part.invalid(key, part.shown(key), "must not be greater than 100%");
    }
}

pub(crate) fn is_zero(value: Option<&Value>) -> bool {
    // A malformed percentage counts as 0.
    value.is_some_and(|value| value.as_int().or_else(|| percent(value)).unwrap_or(0) == 0)
}
