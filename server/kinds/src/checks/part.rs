//! A part of an object together with its path and the list of errors: what rules read and report with.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::{self, Display};

use plinth_api::{Cause, FieldPath};
use plinth_codec::{Map, Value};

use crate::path;

/// Errors of a text, appended with the path given.
pub(crate) type TextRule = fn(&str, FieldPath<'_>, &mut Vec<Cause>);

/// The errors of one object, in the order in which its rules report them.
#[derive(Debug, Default)]
pub(crate) struct ErrorList(RefCell<Vec<Cause>>);

impl ErrorList {
    /// The errors that a rule reports for an object.
    pub(crate) fn of(object: &Value, rule: impl FnOnce(&Part<'_>)) -> Vec<Cause> {
        let mut errors = Vec::new();
        Part::within(object, "", &mut errors, rule);
        errors
    }
}

/// A part of the object that is validated: its value, its path, and the list that its errors go to.
///
/// Fields are keys joined by dots, the empty key is the part itself. The path is formatted only when an error
/// is reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    value: &'a Value,
    path: Path<'a>,
    errors: &'a ErrorList,
}

/// A path as the steps that lead to it.
#[derive(Clone, Copy, Debug)]
enum Path<'a> {
    Root(&'a str),
    Field(&'a Path<'a>, &'a str),
    Element(&'a Path<'a>, &'a str, usize),
    Entry(&'a Path<'a>, &'a str, &'a str),
}

impl Path<'_> {
    fn is_empty(&self) -> bool {
        match self {
            Path::Root(path) => path.is_empty(),
            Path::Field(parent, key) => key.is_empty() && parent.is_empty(),
            Path::Element(..) | Path::Entry(..) => false,
        }
    }
}

/// A key below a path; `[name]` follows without a dot.
struct Below<'a>(&'a Path<'a>, &'a str);

impl Display for Below<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.0.is_empty() || self.1.is_empty() || self.1.starts_with('[') { "" } else { "." };
        write!(f, "{}{dot}{}", self.0, self.1)
    }
}

impl Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root(path) => f.write_str(path),
            Path::Field(parent, key) => Below(parent, key).fmt(f),
            Path::Element(parent, key, index) => write!(f, "{}[{index}]", Below(parent, key)),
            Path::Entry(parent, key, name) => write!(f, "{}[{name}]", Below(parent, key)),
        }
    }
}

/// The part itself.
impl<'a> Part<'a> {
    /// Runs a rule on an object at that path; its errors are appended.
    pub(crate) fn within(object: &Value, path: &str, errors: &mut Vec<Cause>, rule: impl FnOnce(&Part<'_>)) {
        let list = ErrorList(RefCell::new(std::mem::take(errors)));
        rule(&Part { value: object, path: Path::Root(path), errors: &list });
        *errors = list.0.into_inner();
    }

    /// The value of the part.
    pub(crate) fn value(&self) -> &'a Value {
        self.value
    }

    /// The value of a field, unless it is absent or null.
    pub(crate) fn at(&self, key: &str) -> Option<&'a Value> {
        match key {
            "" => Some(self.value).filter(|value| !value.is_null()),
            key => path::at(self.value, key),
        }
    }

    /// A copy of a field for an error; null where it is absent.
    pub(crate) fn shown(&self, key: &str) -> Value {
        self.at(key).cloned().unwrap_or_default()
    }

    /// Whether the field is set.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.at(key).is_some()
    }

    /// Whether the field is absent, or an empty text, list or object.
    pub(crate) fn is_empty(&self, key: &str) -> bool {
        path::is_empty(self.at(key))
    }

    /// How many of the fields are set.
    pub(crate) fn count(&self, keys: &[&str]) -> usize {
        keys.iter().filter(|key| self.has(key)).count()
    }

    /// A text; empty where it is absent.
    pub(crate) fn text(&self, key: &str) -> &'a str {
        self.set_text(key).unwrap_or_default()
    }

    /// A text that is set, even to an empty value.
    pub(crate) fn set_text(&self, key: &str) -> Option<&'a str> {
        self.at(key).and_then(Value::as_str)
    }

    /// The number at the key, unless it is absent or of another type.
    pub(crate) fn int(&self, key: &str) -> Option<i64> {
        self.at(key).and_then(Value::as_int)
    }

    /// An integer; 0 where it is absent.
    pub(crate) fn number(&self, key: &str) -> i64 {
        self.int(key).unwrap_or(0)
    }

    /// The boolean at the key, unless it is absent or of another type.
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.at(key).and_then(Value::as_bool)
    }

    /// Whether the boolean is set and true.
    pub(crate) fn is_true(&self, key: &str) -> bool {
        self.flag(key) == Some(true)
    }

    /// A list; empty where it is absent.
    pub(crate) fn list(&self, key: &str) -> &'a [Value] {
        self.at(key).and_then(Value::as_array).unwrap_or_default()
    }

    /// The texts of a list.
    pub(crate) fn texts(&self, key: &str) -> Vec<&'a str> {
        self.list(key).iter().map(|text| text.as_str().unwrap_or_default()).collect()
    }

    /// The members of an object; none where it is absent.
    pub(crate) fn members(&self, key: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let map = self.at(key).and_then(Value::as_object);
        map.into_iter().flat_map(Map::iter).map(|(name, value)| (name.as_str(), value))
    }
}

/// Parts of the part.
impl<'a> Part<'a> {
    fn child(&'a self, value: &'a Value, path: Path<'a>) -> Part<'a> {
        Part { value, path, errors: self.errors }
    }

    /// The part at that field; null where the field is absent.
    pub(crate) fn field(&'a self, key: &'a str) -> Part<'a> {
        self.field_as(key, key)
    }

    /// As [`Part::field`], where upstream reports another path.
    pub(crate) fn field_as(&'a self, key: &str, shown: &'a str) -> Part<'a> {
        static NULL: Value = Value::Null;
        self.child(self.at(key).unwrap_or(&NULL), Path::Field(&self.path, shown))
    }

    /// The part at that field, if it is set.
    pub(crate) fn get(&'a self, key: &'a str) -> Option<Part<'a>> {
        self.has(key).then(|| self.field(key))
    }

    /// The elements of a list.
    pub(crate) fn each(&'a self, key: &'a str) -> impl Iterator<Item = Part<'a>> {
        self.each_as(key, key)
    }

    /// As [`Part::each`], where upstream reports another path.
    pub(crate) fn each_as(&'a self, key: &str, shown: &'a str) -> impl Iterator<Item = Part<'a>> {
        let elements = self.list(key).iter().enumerate();
        elements.map(move |(i, value)| self.child(value, Path::Element(&self.path, shown, i)))
    }

    /// The same value, where upstream reports the path of the list instead of the element.
    pub(crate) fn without_index(&self) -> Part<'a> {
        let path = match self.path {
            Path::Element(parent, key, _) => Path::Field(parent, key),
            path => path,
        };
        Part { path, ..*self }
    }

    /// The same value, where upstream reports the path of that field of another part.
    pub(crate) fn in_place_of(&'a self, other: &'a Part<'_>, key: &'a str) -> Part<'a> {
        self.child(self.value, Path::Field(&other.path, key))
    }

    /// Runs a rule on a value that is not quite that of the field.
    pub(crate) fn with_value(&self, value: &Value, key: &str, rule: impl FnOnce(&Part<'_>)) {
        rule(&Part { value, path: Path::Field(&self.path, key), errors: self.errors });
    }

    /// The members of an object, each at `key[name]`.
    pub(crate) fn entries(&'a self, key: &'a str) -> impl Iterator<Item = (&'a str, Part<'a>)> {
        self.members(key)
            .map(move |(name, value)| (name, self.child(value, Path::Entry(&self.path, key, name))))
    }
}

/// Errors. The key may have an index: `values[0]`.
impl<'a> Part<'a> {
    /// How many errors there are.
    pub(crate) fn errors(&self) -> usize {
        self.errors.0.borrow().len()
    }

    /// Reports an error that no method below makes.
    pub(crate) fn push(&self, error: Cause) {
        self.errors.0.borrow_mut().push(error);
    }

    /// The path of a field, as errors show it.
    pub(crate) fn path(&self, key: impl Display) -> String {
        Below(&self.path, &key.to_string()).to_string()
    }

    /// The field must be set.
    pub(crate) fn required(&self, key: impl Display, why: &str) {
        self.push(Cause::required(self.path(key), why));
    }

    /// As [`Part::required`], if the condition holds.
    pub(crate) fn required_if(&self, is_missing: bool, key: &str, why: &str) {
        if is_missing {
            self.required(key, why);
        }
    }

    /// A number that is set must lie between the two, inclusive.
    pub(crate) fn in_range(&self, key: &str, least: i64, most: i64, why: impl FnOnce() -> Cow<'static, str>) {
        if let Some(number) = self.int(key).filter(|number| !(least..=most).contains(number)) {
            self.invalid(key, number, &why());
        }
    }

    /// Reports an invalid value that the message does not show.
    pub(crate) fn invalid_unshown(&self, key: &str, why: &str) {
        let mut error = Cause::invalid(self.path(key), Value::Null, "");
        error.message = format!("Invalid value: {why}");
        self.push(error);
    }

    /// The value is not valid.
    pub(crate) fn invalid(&self, key: impl Display, value: impl Into<Value>, why: &str) {
        self.push(Cause::invalid(self.path(key), value, why));
    }

    /// The field must not be set.
    pub(crate) fn forbidden(&self, key: impl Display, why: &str) {
        self.push(Cause::forbidden(self.path(key), why));
    }

    /// The value is not one of an enum.
    pub(crate) fn not_supported(&self, key: impl Display, value: impl Into<Value>, supported: &[&str]) {
        self.push(Cause::not_supported(self.path(key), value, supported));
    }

    /// The value is there already.
    pub(crate) fn duplicate(&self, key: impl Display, value: impl Into<Value>) {
        self.push(Cause::duplicate(self.path(key), value));
    }

    /// A text of the elements of a list may occur once; reported at a field of the element.
    pub(crate) fn unique(&self, key: &str, text: &'a str, seen: &mut HashSet<&'a str>) {
        if !seen.insert(text) {
            self.duplicate(key, text);
        }
    }

    /// The value names nothing that exists.
    pub(crate) fn not_found(&self, key: impl Display, value: impl Into<Value>) {
        self.push(Cause::not_found(self.path(key), value));
    }

    /// A text may have at most that many bytes.
    pub(crate) fn at_most_bytes(&self, key: &str, text: &str, most: usize) {
        if text.len() > most {
            self.push(Cause::too_long(self.path(key), most));
        }
    }

    /// A list may have at most that many elements; returns whether it has.
    pub(crate) fn at_most_items(&self, key: &str, most: usize) -> bool {
        let count = self.list(key).len();
        if count > most {
            self.push(Cause::too_many(self.path(key), count, most));
        }
        count <= most
    }

    /// Reports each error that the function returns for a text.
    pub(crate) fn check_text(&self, key: impl Display + Copy, text: &str, rule: fn(&str) -> Vec<String>) {
        rule(text).iter().for_each(|why| self.invalid(key, text, why));
    }

    /// Runs a rule on the text of a field.
    pub(crate) fn apply(&self, key: &str, rule: TextRule) {
        self.apply_to(key, self.text(key), rule);
    }

    /// Runs a rule on a text that is not quite that of the field.
    pub(crate) fn apply_to(&self, key: impl Display, text: &str, rule: TextRule) {
        self.append(key, |path, errors| rule(text, path, errors));
    }

    /// Runs a function that appends errors to a list, with the path of a field.
    pub(crate) fn append(&self, key: impl Display, rule: impl FnOnce(FieldPath<'_>, &mut Vec<Cause>)) {
        let key = key.to_string();
        rule(format_args!("{}", Below(&self.path, &key)), &mut self.errors.0.borrow_mut());
    }

    /// None of the fields may be set.
    pub(crate) fn forbid_each(&self, keys: &[&str], why: &str) {
        keys.iter().filter(|key| self.has(key)).for_each(|key| self.forbidden(key, why));
    }

    /// A text must be one of the supported ones; an absent one counts as empty.
    pub(crate) fn one_of(&self, key: &str, supported: &[&str]) {
        let given = self.text(key);
        if !supported.contains(&given) {
            self.not_supported(key, given, supported);
        }
    }

    /// A text must be set, and one of the supported ones.
    pub(crate) fn required_one_of(&self, key: &str, supported: &[&str], why: &str) {
        match self.text(key) {
            "" => self.required(key, why),
            _ => self.one_of(key, supported),
        }
    }

    /// A text must be set, and pass the function.
    pub(crate) fn required_text(&self, key: &str, why: &str, rule: fn(&str) -> Vec<String>) {
        match self.text(key) {
            "" => self.required(key, why),
            text => self.check_text(key, text, rule),
        }
    }
}
