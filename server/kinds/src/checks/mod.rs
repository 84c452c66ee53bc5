//! Validation: checks are rows, nested as the object is, and [`validate`] is the only code that reads them.
//!
//! What no row can express is a function, named in a [`Check::By`] row. Paths, reasons and messages are
//! upstream's (kubernetes `pkg/apis/*/validation`), because clients match on them.

pub(crate) mod address;
pub(crate) mod comparison;
pub(crate) mod immutable;
pub(crate) mod int_or_percent;
pub(crate) mod ports;
pub(crate) mod qualified_names;
pub mod quantities;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::{names, Map, Value};

use crate::checks::ports::{is_port, PORT};
use crate::path::{at, int, is_empty, list, text, texts};

/// One check, or a part of the object with nested checks. Fields are keys joined by dots.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// The field must be set and not empty; the second string is upstream's detail.
    Required(&'static str, &'static str),
    /// A string that is not empty must be one of these.
    OneOf(&'static str, &'static [&'static str]),
    /// As `OneOf`, and the string must not be empty.
    RequiredOneOf(&'static str, &'static [&'static str]),
    /// A string that is set, even to an empty value, must be one of these.
    Enum(&'static str, &'static [&'static str]),
    /// A string must be one of these; an absent one counts as empty.
    MustBe(&'static str, &'static [&'static str]),
    /// A number that is set must lie between the two, inclusive.
    Range(&'static str, i64, i64),
    /// A number must be greater than zero; an absent one counts as zero.
    Positive(&'static str),
    /// A number that is set must not be smaller.
    AtLeast(&'static str, i64),
    /// A number that is set must be a port.
    Port(&'static str),
    /// A string that is not empty must pass the function, which returns its errors.
    Text(&'static str, fn(&str) -> Vec<String>),
    /// A string that is set, even to an empty value, must pass the function.
    OptionalText(&'static str, fn(&str) -> Vec<String>),
    /// As `Text`, and the string must not be empty.
    RequiredText(&'static str, fn(&str) -> Vec<String>),
    /// The elements of the list must be unique by that field.
    Unique(&'static str, &'static str),
    /// A map of resource names to quantities, none of them negative.
    Quantities(&'static str),
    /// Labels must be valid.
    Labels(&'static str),
    /// A label selector must be valid.
    Selector(&'static str),
    /// The checks apply to the object at that path, if it is set.
    In(&'static str, &'static [Check]),
    /// The checks apply to each element of the list.
    Each(&'static str, &'static [Check]),
    /// A function for what no row can express: object, its path (empty for the root or ending in a dot),
    /// errors.
    By(fn(&Value, FieldPath<'_>, &mut Vec<Cause>)),
}

/// Runs the checks on an object and appends errors; `path` is empty for the root and ends in a dot otherwise.
pub(crate) fn validate(checks: &[Check], object: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for check in checks {
        if errors.len() >= field::MOST_ERRORS {
            return;
        }
        match *check {
            Check::Required(key, why) => {
                if is_empty(at(object, key)) {
                    errors.push(field::required(format_args!("{path}{key}"), why));
                }
            }
            Check::OneOf(key, supported) => one_of(object, path, key, supported, errors),
            Check::RequiredOneOf(key, supported) => {
                if is_empty(at(object, key)) {
                    errors.push(field::required(format_args!("{path}{key}"), ""));
                }
                one_of(object, path, key, supported, errors);
            }
            Check::Enum(key, supported) => {
                if at(object, key).is_some() {
                    must_be(object, path, key, supported, errors);
                }
            }
            Check::MustBe(key, supported) => must_be(object, path, key, supported, errors),
            Check::Range(..) | Check::Positive(_) | Check::AtLeast(..) | Check::Port(_) => {
                number(check, object, path, errors);
            }
            Check::Text(key, rule) => text_rule(object, path, key, rule, errors),
            Check::OptionalText(key, rule) => {
                if let Some(given) = at(object, key).and_then(Value::as_str) {
                    check_text(format_args!("{path}{key}"), given, rule, errors);
                }
            }
            Check::RequiredText(key, rule) => {
                if text(object, key).is_empty() {
                    errors.push(field::required(format_args!("{path}{key}"), ""));
                }
                text_rule(object, path, key, rule, errors);
            }
            Check::Unique(list, key) => unique(object, path, list, key, errors),
            Check::Quantities(key) => amounts(at(object, key), format_args!("{path}{key}"), errors),
            Check::Labels(key) => {
                errors
                    .extend(plinth_api::metadata::label_errors(at(object, key), format_args!("{path}{key}")));
            }
            Check::Selector(key) => {
                if let Some(selector) = at(object, key) {
                    selector_errors(selector, format_args!("{path}{key}"), errors);
                }
            }
            Check::In(key, checks) => {
                if let Some(part) = at(object, key).filter(|part| part.as_object().is_some()) {
                    validate(checks, part, format_args!("{path}{key}."), errors);
                }
            }
            Check::Each(key, checks) => {
                for (i, element) in list(object, key).iter().enumerate() {
                    validate(checks, element, format_args!("{path}{key}[{i}]."), errors);
                }
            }
            Check::By(rule) => rule(object, path, errors),
        }
    }
}

/// The checks of numbers.
fn number(check: &Check, object: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let mut refuse = |key: &str, number: i64, why: &str| {
        errors.push(field::invalid(format_args!("{path}{key}"), number, why));
    };
    match *check {
        Check::Range(key, least, most) => {
            if let Some(number) = int(object, key).filter(|n| !(least..=most).contains(n)) {
                refuse(key, number, &format!("must be between {least} and {most}, inclusive"));
            }
        }
        Check::Positive(key) => {
            let number = int(object, key).unwrap_or(0);
            if number <= 0 {
                refuse(key, number, "must be greater than zero");
            }
        }
        Check::AtLeast(key, least) => {
            if let Some(number) = int(object, key).filter(|n| *n < least) {
                refuse(key, number, &format!("must be greater than or equal to {least}"));
            }
        }
        Check::Port(key) => {
            if let Some(number) = int(object, key).filter(|n| !is_port(*n)) {
                refuse(key, number, PORT);
            }
        }
        _ => {}
    }
}

/// Appends the errors that a function returns for a string, which may be empty.
pub(crate) fn check_text(
    path: FieldPath<'_>,
    given: &str,
    rule: fn(&str) -> Vec<String>,
    errors: &mut Vec<Cause>,
) {
    errors.extend(rule(given).iter().map(|why| field::invalid(path, given, why)));
}

fn one_of(object: &Value, path: FieldPath<'_>, key: &str, supported: &[&str], errors: &mut Vec<Cause>) {
    let given = text(object, key);
    if !given.is_empty() && !supported.contains(&given) {
        errors.push(field::not_supported(format_args!("{path}{key}"), given, supported));
    }
}

fn must_be(object: &Value, path: FieldPath<'_>, key: &str, supported: &[&str], errors: &mut Vec<Cause>) {
    let given = text(object, key);
    if !supported.contains(&given) {
        errors.push(field::not_supported(format_args!("{path}{key}"), given, supported));
    }
}

fn text_rule(
    object: &Value,
    path: FieldPath<'_>,
    key: &str,
    rule: fn(&str) -> Vec<String>,
    errors: &mut Vec<Cause>,
) {
    let given = text(object, key);
    if !given.is_empty() {
        check_text(format_args!("{path}{key}"), given, rule, errors);
    }
}

fn unique(object: &Value, path: FieldPath<'_>, key: &str, member: &str, errors: &mut Vec<Cause>) {
    let mut seen = std::collections::HashSet::new();
    for (i, element) in list(object, key).iter().enumerate() {
        let name = text(element, member);
        if !name.is_empty() && !seen.insert(name) {
            errors.push(field::duplicate(format_args!("{path}{key}[{i}].{member}"), name));
        }
    }
}

/// Validates quantities by name; the path of one is `resources.requests[cpu]`.
pub(crate) fn amounts(amounts: Option<&Value>, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    use plinth_codec::quantity::Quantity;
    for (name, amount) in amounts.and_then(Value::as_object).into_iter().flat_map(Map::iter) {
        let path = format_args!("{path}[{name}]");
        let bad_name = names::qualified_name_errors(name);
        errors.extend(bad_name.iter().map(|why| field::invalid(path, name.clone(), why)));
        let Some(shown) = amount.as_str() else { continue };
        if Quantity::parse(shown).is_ok_and(|amount| amount.sign() < 0) {
            errors.push(field::invalid(path, shown, "must be greater than or equal to 0"));
        }
    }
}

pub(crate) fn selector_errors(selector: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    errors.extend(plinth_api::metadata::label_errors(
        selector.get("matchLabels"),
        format_args!("{path}.matchLabels"),
    ));
    for (i, term) in list(selector, "matchExpressions").iter().enumerate() {
        let path = format_args!("{path}.matchExpressions[{i}]");
        let has_values = !list(term, "values").is_empty();
        match text(term, "operator") {
            "In" | "NotIn" if !has_values => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(field::required(format_args!("{path}.values"), why));
            }
            "Exists" | "DoesNotExist" if has_values => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(field::forbidden(format_args!("{path}.values"), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                errors.push(field::invalid(
                    format_args!("{path}.operator"),
                    other,
                    "not a valid selector operator",
                ));
            }
        }
        check_text(format_args!("{path}.key"), text(term, "key"), names::qualified_name_errors, errors);
        for (j, value) in texts(term, "values").iter().enumerate() {
            check_text(format_args!("{path}.values[{j}]"), value, names::label_value_errors, errors);
        }
    }
}
