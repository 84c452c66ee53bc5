//! Checks as rows, and the one place that reads them.

use std::borrow::Cow;
use std::collections::HashSet;

use plinth_api::MOST_ERRORS;
use plinth_codec::names;
use plinth_codec::quantity::Quantity;

use super::messages::{NOT_NEGATIVE, PORT};
use super::part::{Part, TextRule};

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
    /// A quantity must be greater than zero; the second string is upstream's detail.
    PositiveQuantity(&'static str, &'static str),
    /// A quantity must not be negative.
    NonNegativeQuantity(&'static str),
    /// Exactly one of the fields must be set: the error where none is, the error where several are, and the
    /// checks that apply where one is.
    ExactlyOne(&'static [&'static str], PartError, PartError, &'static [Check]),
    /// At most one of the fields may be set.
    AtMostOne(&'static [&'static str], PartError),
    /// The list may have at most that many elements; the checks apply if it has.
    AtMostItems(&'static str, usize, &'static [Check]),
    /// The elements of the list must be unique by that field.
    Unique(&'static str, &'static str),
    /// As `Each`, and the elements must be unique by that field, even where it is empty.
    EachUnique(&'static str, &'static str, &'static [Check]),
    /// As `EachUnique`, where upstream reports the path of the element instead of the field.
    EachUniqueElement(&'static str, &'static str, &'static [Check]),
    /// As `EachUnique`, but the checks do not apply to duplicates.
    EachUnlessDuplicate(&'static str, &'static str, &'static [Check]),
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
    /// The checks apply to each value of the map.
    Entries(&'static str, &'static [Check]),
    /// The checks apply to the element itself, where upstream reports the path of the list.
    WithoutIndex(&'static [Check]),
    /// The text must pass the rule, which appends its errors; an absent one counts as empty.
    Is(&'static str, TextRule),
    /// A function for what no row can express.
    By(fn(&Part<'_>)),
}

/// The error of a part that is wrong as a whole, with upstream's detail.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PartError {
    /// A required value is missing.
    Required(&'static str),
    /// The value, which is shown, is invalid.
    Invalid(&'static str),
    /// The value is invalid, and an empty text is shown in its place.
    InvalidText(&'static str),
    /// The combination is forbidden.
    Forbidden(&'static str),
}

impl PartError {
    /// Reports the error at the part.
    fn report(self, part: &Part<'_>) {
        match self {
            PartError::Required(why) => part.required("", why),
            PartError::Invalid(why) => part.invalid("", part.shown(""), why),
            PartError::InvalidText(why) => part.invalid("", "", why),
            PartError::Forbidden(why) => part.forbidden("", why),
        }
    }
}

impl Part<'_> {
    /// Runs rows on the part.
    pub(crate) fn check(&self, checks: &[Check]) {
        run(checks, self);
    }
}

/// Runs checks on a part.
fn run(checks: &[Check], part: &Part<'_>) {
    for check in checks {
        if part.errors() >= MOST_ERRORS {
            return;
        }
        run_one(check, part);
    }
}

fn run_one(check: &Check, part: &Part<'_>) {
    match *check {
        Check::Required(key, why) => part.required_if(part.is_empty(key), key, why),
        Check::Set(key, why) => part.required_if(!part.has(key), key, why),
        Check::OneOf(key, supported) => {
            if !part.text(key).is_empty() {
                part.one_of(key, supported);
            }
        }
        Check::RequiredOneOf(key, supported) => part.required_one_of(key, supported, ""),
        Check::Enum(key, supported) => {
            if part.has(key) {
                part.one_of(key, supported);
            }
        }
        Check::MustBe(key, supported) => part.one_of(key, supported),
        Check::Range(key, least, most) => part.in_range(key, least, most, || {
            Cow::Owned(format!("must be between {least} and {most}, inclusive"))
        }),
        Check::Within(key, least, most, why) => part.in_range(key, least, most, || why.into()),
        Check::Positive(key) => {
            if part.number(key) <= 0 {
                part.invalid(key, part.number(key), "must be greater than zero");
            }
        }
        Check::AtLeast(key, least) => part.in_range(key, least, i64::MAX, || {
            Cow::Owned(format!("must be greater than or equal to {least}"))
        }),
        Check::Port(key) => part.in_range(key, 1, 65_535, || PORT.into()),
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
        Check::PositiveQuantity(key, why) => quantity(part, key, |sign| sign > 0, why),
        Check::NonNegativeQuantity(key) => quantity(part, key, |sign| sign >= 0, NOT_NEGATIVE),
        Check::ExactlyOne(keys, none, several, checks) => match part.count(keys) {
            0 => none.report(part),
            1 => run(checks, part),
            _ => several.report(part),
        },
        Check::AtMostOne(keys, several) => {
            if part.count(keys) > 1 {
                several.report(part);
            }
        }
        Check::AtMostItems(list, most, checks) => {
            if part.at_most_items(list, most) {
                run(checks, part);
            }
        }
        Check::Unique(list, key) => unique(part, list, key),
        Check::EachUnique(list, key, checks) => each_unique(part, list, key, key, checks),
        Check::EachUniqueElement(list, key, checks) => each_unique(part, list, key, "", checks),
        Check::EachUnlessDuplicate(list, key, checks) => each_unless_duplicate(part, list, key, checks),
        Check::Labels(key) => part.append(key, |path, errors| {
            errors.extend(plinth_api::label_errors(part.at(key), path));
        }),
        Check::Selector(key) => part.get(key).iter().for_each(selector_errors),
        Check::In(key, checks) => {
            if part.at(key).is_some_and(|part| part.as_object().is_some()) {
                run(checks, &part.field(key));
            }
        }
        Check::Always(key, checks) => run(checks, &part.field(key)),
        Check::Each(key, checks) => part.each(key).for_each(|element| run(checks, &element)),
        Check::Entries(key, checks) => part.entries(key).for_each(|(_, value)| run(checks, &value)),
        Check::WithoutIndex(checks) => run(checks, &part.without_index()),
        Check::Is(key, rule) => part.apply(key, rule),
        Check::By(rule) => rule(part),
    }
}

/// Reports elements whose field, if not empty, is that of an earlier element.
fn unique(part: &Part<'_>, list: &str, key: &str) {
    let mut seen = HashSet::new();
    for element in part.each(list).filter(|element| !element.is_empty(key)) {
        element.unique(key, element.text(key), &mut seen);
    }
}

/// Runs checks on each element and reports it, at the field `shown`, if its key is that of an earlier one.
fn each_unique(part: &Part<'_>, list: &str, key: &str, shown: &str, checks: &[Check]) {
    let mut seen = HashSet::new();
    for element in part.each(list) {
        run(checks, &element);
        element.unique(shown, element.text(key), &mut seen);
    }
}

/// Reports each element whose key is that of an earlier one, and runs checks on the others.
fn each_unless_duplicate(part: &Part<'_>, list: &str, key: &str, checks: &[Check]) {
    let mut seen = HashSet::new();
    for element in part.each(list) {
        match seen.insert(element.text(key)) {
            true => run(checks, &element),
            false => element.duplicate(key, element.text(key)),
        }
    }
}

/// Reports a quantity with a wrong sign; one that does not parse is an error of decoding.
fn quantity(part: &Part<'_>, key: &str, is_valid: fn(i32) -> bool, why: &str) {
    let shown = part.text(key);
    if Quantity::parse(shown).is_ok_and(|amount| !is_valid(amount.sign())) {
        part.invalid(key, shown, why);
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
