//! Conditions of a status (k8s.io/apimachinery `pkg/apis/meta/v1/validation`, `ValidateConditions`).

use std::collections::HashSet;

use plinth_codec::names;

use crate::checks::Check::{self, AnyText, By, MustBe, Required, Within};
use crate::checks::Part;

/// Validates the conditions in that list of a part.
pub(crate) fn conditions(holder: &Part<'_>, key: &str) {
    let mut seen = HashSet::new();
    for condition in holder.each(key) {
        condition.unique("type", condition.text("type"), &mut seen);
        condition.check(CONDITION);
    }
}

const CONDITION: &[Check] = &[
    AnyText("type", names::qualified_name_errors),
    MustBe("status", &["False", "True", "Unknown"]),
    Within("observedGeneration", 0, i64::MAX, "must be greater than or equal to zero"),
    Required("lastTransitionTime", ""),
    By(reason),
    By(|condition| condition.at_most_bytes("message", condition.text("message"), MAX_MESSAGE)),
];

const MAX_REASON: usize = 1024;
const MAX_MESSAGE: usize = 32 * 1024;

fn reason(condition: &Part<'_>) {
    const KEY: &str = "reason";
    const FORM: &str = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
    let reason = condition.text(KEY);
    if reason.is_empty() {
        condition.required(KEY, "");
        return;
    }
    let ends = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let is_good = reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.bytes().all(|b| ends(b) || b == b',' || b == b':')
        && reason.bytes().last().is_some_and(ends);
    if !is_good {
        condition.invalid(KEY, reason, FORM);
    }
    condition.at_most_bytes(KEY, reason, MAX_REASON);
}
