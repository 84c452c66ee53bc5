//! `paramKind` of admission policies and `paramRef` of their bindings.

use plinth_codec::names;

use crate::checks::Check::{RequiredOneOf, Selector, Text};
use crate::checks::Part;

pub(crate) fn param_kind(reference: &Part<'_>) {
    let given = reference.text("apiVersion");
    let (group, version) = given.rsplit_once('/').unwrap_or(("", given));
    let invalid = |value: &str, why: &str| reference.invalid("apiVersion", value, why);
    if given.is_empty() {
        reference.required("apiVersion", "");
    } else if group.contains('/') {
        invalid(given, &format!("unexpected GroupVersion string: {given}"));
    } else {
        let bad = names::dns1123_subdomain_errors(group);
        if !group.is_empty() && !bad.is_empty() {
            invalid(group, &bad.join(","));
        }
        let bad = names::dns1035_label_errors(version);
        if version.is_empty() {
            invalid(given, "version must be specified");
        } else if !bad.is_empty() {
            invalid(version, &bad.join(","));
        }
    }
    let kind = reference.text("kind");
    let bad = names::dns1035_label_errors(&kind.to_lowercase());
    if kind.is_empty() {
        reference.required("kind", "");
    } else if !bad.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", bad.join(","));
        reference.invalid("kind", kind, &why);
    }
}

pub(crate) fn param_ref(reference: &Part<'_>) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (has_name, has_selector) = (!reference.text("name").is_empty(), reference.has("selector"));
    reference.check(&[Text("name", names::path_segment_errors)]);
    if has_name && has_selector {
        reference.forbidden("name", EXCLUSIVE);
    }
    reference.check(&[Selector("selector")]);
    if has_name && has_selector {
        reference.forbidden("selector", EXCLUSIVE);
    }
    if !has_name && !has_selector {
        reference.required("", "one of name or selector must be specified");
    }
    reference.check(&[RequiredOneOf("parameterNotFoundAction", &["Deny", "Allow"])]);
}
