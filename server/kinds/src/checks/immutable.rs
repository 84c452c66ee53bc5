//! Fields that may not change.

use plinth_api::api_error::Cause;
use plinth_api::field;
use plinth_codec::Value;

use crate::path::at;

pub(crate) const IMMUTABLE: &str = "field is immutable";

/// Strings that are pointers upstream: absent ones appear as `null` in messages.
const POINTERS: [&str; 4] = ["eventTime", "preemptionPolicy", "spec.managedBy", "spec.nodeName"];

/// Reports each of the fields that changed.
pub(crate) fn immutable(paths: &[&str], new: &Value, old: &Value, errors: &mut Vec<Cause>) {
    for path in paths {
        if at(new, path) != at(old, path) {
            // A removed string appears as empty, unless it is a pointer upstream.
            let is_text = at(old, path).is_some_and(|old| old.as_str().is_some()) && !POINTERS.contains(path);
            let gone = if is_text { "".into() } else { Value::Null };
            errors.push(field::invalid(*path, at(new, path).cloned().unwrap_or(gone), IMMUTABLE));
        }
    }
}
