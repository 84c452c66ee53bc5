//! Rules of upstream's declarative validation (k8s.io/apimachinery `pkg/api/validate`), whose words differ
//! from those of validation by hand.

use plinth_api::Cause;
use plinth_codec::{names, Value};

use super::immutable::IMMUTABLE;
use super::part::Part;

/// Errors of a subdomain: bytes are called what they are.
pub(crate) fn long_name_errors(name: &str) -> Vec<String> {
    in_bytes(names::dns1123_subdomain_errors(name))
}

/// Errors of a label.
pub(crate) fn short_name_errors(name: &str) -> Vec<String> {
    in_bytes(names::dns1123_label_errors(name))
}

fn in_bytes(errors: Vec<String>) -> Vec<String> {
    let in_bytes = |why: String| match why.starts_with("must be no more than") {
        true => why.replace("characters", "bytes"),
        false => why,
    };
    errors.into_iter().map(in_bytes).collect()
}

/// Exactly one of the members must be set.
pub(crate) fn exactly_one(part: &Part<'_>, members: &[&str]) {
    let all: Vec<String> = members.iter().map(|member| format!("`{member}`")).collect();
    let set: Vec<&str> = members.iter().copied().filter(|member| part.has(member)).collect();
    match set.len() {
        0 => part.invalid("", "", &format!("must specify one of: {}", all.join(", "))),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            part.invalid("", shown, &format!("must specify exactly one of: {}", all.join(", ")));
        }
    }
}

/// Refuses the change of a field, whose value is not shown.
pub(crate) fn unchangeable(new: &Part<'_>, field: &str) {
    new.invalid(field, Value::Null, IMMUTABLE);
}

/// Refuses a field that belongs to a feature gate that is off.
pub(crate) fn gated(new: &Part<'_>, field: &str) {
    new.push(Cause::forbidden(new.path(field), ""));
}
