//! Fields that may not change.

use plinth_codec::Value;

use crate::checks::Part;
use crate::path::at;

pub(crate) const IMMUTABLE: &str = "field is immutable";

/// Strings that are pointers upstream: absent ones appear as `null` in messages.
const POINTERS: [&str; 4] = ["eventTime", "preemptionPolicy", "spec.managedBy", "spec.nodeName"];

/// Reports each of the fields that changed.
pub(crate) fn immutable(paths: &[&str], new: &Part<'_>, old: &Value) {
    for path in paths {
        if new.at(path) != at(old, path) {
            // A removed string appears as empty, unless it is a pointer upstream.
            let is_text = at(old, path).is_some_and(|old| old.as_str().is_some()) && !POINTERS.contains(path);
            let gone = if is_text { "".into() } else { Value::Null };
            new.invalid(path, new.at(path).cloned().unwrap_or(gone), IMMUTABLE);
        }
    }
}

/// As [`immutable`], for one field that errors report by another path.
pub(crate) fn immutable_as(path: &str, shown: &str, new: &Part<'_>, old: &Value) {
    if new.at(path) != at(old, path) {
        new.invalid(shown, new.shown(path), IMMUTABLE);
    }
}
