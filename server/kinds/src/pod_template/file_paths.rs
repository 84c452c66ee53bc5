//! Paths of files in a volume.

use plinth_api::{Cause, FieldPath};

/// Whether a path leads upwards.
pub(crate) fn has_backsteps(given: &str) -> bool {
    given.split('/').any(|part| part == "..")
}

/// Reports a path that contains `..`.
pub(crate) fn no_backsteps(given: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    if has_backsteps(given) {
        errors.push(Cause::invalid(path, given, "must not contain '..'"));
    }
}

/// Validates a relative path without `..`.
pub(crate) fn local_path(given: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    if given.starts_with('/') {
        errors.push(Cause::invalid(path, given, "must be a relative path"));
    }
    no_backsteps(given, path, errors);
}

/// As [`local_path`]; names that start with two dots are reserved for the kubelet.
pub(crate) fn file_path(given: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    local_path(given, path, errors);
    if given.starts_with("..") && !given.starts_with("../") {
        errors.push(Cause::invalid(path, given, "must not start with '..'"));
    }
}
