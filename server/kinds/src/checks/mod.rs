//! Validation: checks are rows, nested as the object is, and [`Part::check`] is the only code that reads
//! them.
//!
//! What no row can express is a function, named in a [`Check::By`] row. Paths, reasons and messages are
//! upstream's (kubernetes `pkg/apis/*/validation`), because clients match on them.

pub(crate) mod address;
pub(crate) mod comparison;
pub(crate) mod immutable;
pub(crate) mod int_or_percent;
pub(crate) mod part;
pub(crate) mod ports;
pub(crate) mod qualified_names;
pub mod quantities;

use std::collections::HashSet;

use plinth_api::field;
use plinth_codec::names;

use crate::checks::part::TextRule;
use crate::checks::ports::PORT;

pub(crate) use crate::checks::part::{ErrorList, Part};

/// One check, or a part of the object with nested checks. Fields are keys joined by dots.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    /// The field must be set and not empty; the second string is upstream's detail.
    Required(&'static str, &'static str),
    /// As `Required`, but the field may be empty.
    Set(&'static str, &'static str),
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
    /// As `Range`, with a message of its own.
    Within(&'static str, i64, i64, &'static str),
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
    /// A string must pass the function; an absent one counts as empty.
    AnyText(&'static str, fn(&str) -> Vec<String>),
    /// As `Text`, and the string must not be empty.
    RequiredText(&'static str, fn(&str) -> Vec<String>),
    /// The elements of the list must be unique by that field.
    Unique(&'static str, &'static str),
    /// As `Each`, and the elements must be unique by that field, even where it is empty.
    EachUnique(&'static str, &'static str, &'static [Check]),
    /// Labels must be valid.
    Labels(&'static str),
    /// A label selector must be valid.
    Selector(&'static str),
    /// The checks apply to the object at that path, if it is set.
    In(&'static str, &'static [Check]),
    /// As `In`; an absent part counts as an empty one.
    Always(&'static str, &'static [Check]),
    /// The checks apply to each element of the list.
    Each(&'static str, &'static [Check]),
    /// The text must pass the rule, which appends its errors; an absent one counts as empty.
    Is(&'static str, TextRule),
    /// A function for what no row can express.
    By(fn(&Part<'_>)),
}

/// Runs checks on a part.
fn run(checks: &[Check], part: &Part<'_>) {
    for check in checks {
        if part.errors() >= field::MOST_ERRORS {
            return;
        }
        match *check {
            Check::Required(key, why) => {
                if part.is_empty(key) {
                    part.required(key, why);
                }
            }
            Check::Set(key, why) => {
                if !part.has(key) {
                    part.required(key, why);
                }
            }
            Check::OneOf(key, supported) => {
                if !part.text(key).is_empty() {
                    part.one_of(key, supported);
                }
            }
            Check::RequiredOneOf(key, supported) => {
                run(&[Check::Required(key, ""), Check::OneOf(key, supported)], part);
            }
            Check::Enum(key, supported) => {
                if part.has(key) {
                    part.one_of(key, supported);
                }
            }
            Check::MustBe(key, supported) => part.one_of(key, supported),
            Check::Range(key, least, most) => {
                if let Some(number) = part.int(key).filter(|n| !(least..=most).contains(n)) {
                    part.invalid(key, number, &format!("must be between {least} and {most}, inclusive"));
                }
            }
            Check::Within(key, least, most, why) => {
                if let Some(number) = part.int(key).filter(|n| !(least..=most).contains(n)) {
                    part.invalid(key, number, why);
                }
            }
            Check::Positive(key) => {
                if part.number(key) <= 0 {
                    part.invalid(key, part.number(key), "must be greater than zero");
                }
            }
            Check::AtLeast(key, least) => {
                if let Some(number) = part.int(key).filter(|n| *n < least) {
                    part.invalid(key, number, &format!("must be greater than or equal to {least}"));
                }
            }
            Check::Port(key) => run(&[Check::Within(key, 1, 65_535, PORT)], part),
            Check::Text(key, rule) => {
                if !part.text(key).is_empty() {
                    part.check_text(key, part.text(key), rule);
                }
            }
            Check::OptionalText(key, rule) => {
                if let Some(given) = part.set_text(key) {
                    part.check_text(key, given, rule);
                }
            }
            Check::AnyText(key, rule) => part.check_text(key, part.text(key), rule),
            Check::RequiredText(key, rule) => part.required_text(key, "", rule),
            Check::Unique(list, key) => {
                let mut seen = HashSet::new();
                for element in part.each(list).filter(|element| !element.is_empty(key)) {
                    element.unique(key, element.text(key), &mut seen);
                }
            }
            Check::EachUnique(list, key, checks) => {
                let mut seen = HashSet::new();
                for element in part.each(list) {
                    run(checks, &element);
                    element.unique(key, element.text(key), &mut seen);
                }
            }
            Check::Labels(key) => part.append(key, |path, errors| {
                errors.extend(plinth_api::metadata::label_errors(part.at(key), path));
            }),
            Check::Selector(key) => {
                if let Some(selector) = part.get(key) {
                    selector_errors(&selector);
                }
            }
            Check::In(key, checks) => {
                if part.at(key).is_some_and(|part| part.as_object().is_some()) {
                    run(checks, &part.field(key));
                }
            }
            Check::Always(key, checks) => run(checks, &part.field(key)),
            Check::Each(key, checks) => part.each(key).for_each(|element| run(checks, &element)),
            Check::Is(key, rule) => part.apply(key, rule),
            Check::By(rule) => rule(part),
        }
    }
}

/// Validates a label selector.
pub(crate) fn selector_errors(selector: &Part<'_>) {
    selector.check(&[Check::Labels("matchLabels")]);
    for term in selector.each("matchExpressions") {
        let has_values = !term.list("values").is_empty();
        match term.text("operator") {
            "In" | "NotIn" if !has_values => {
                term.required("values", "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if has_values => {
                term.forbidden(
                    "values",
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                );
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => term.invalid("operator", other, "not a valid selector operator"),
        }
        term.check_text("key", term.text("key"), names::qualified_name_errors);
        for value in term.each("values") {
            value.check_text("", value.text(""), names::label_value_errors);
        }
    }
}
