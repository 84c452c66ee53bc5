//! Defaults: what the server fills in where the client left something out.
//!
//! Each kind's defaults are rows, nested as the object is; [`apply`] is the only code that reads them. What
//! no row can express (a value that follows from another field) is a function, named in a
//! [`DefaultRule::Computed`] row.
//!
//! Facts: kubernetes `pkg/apis/*/v1/defaults.go` and `zz_generated.defaults.go`.

use plinth_codec::quantity::Quantity;
use plinth_codec::{Map, Value};

use crate::path::first_key;
use DefaultRule::Field;
use Literal::{Bool, EmptyObject, Int, OptionalStr, Str, Strs};

const HTTPS_PORT: i64 = 443;

pub(crate) const SERVICE_REFERENCE: &[DefaultRule] = &[Field("port", Int(HTTPS_PORT))];

/// One default, or a part of the object with nested defaults. Fields are paths of keys joined by dots.
#[derive(Clone, Copy, Debug)]
pub enum DefaultRule {
    /// Sets the field to the value if it is absent; creates its parents.
    Field(&'static str, Literal),
    /// As `Field`, but zero counts as absent, because the field is not a pointer upstream.
    NonZero(&'static str, i64),
    /// The rows apply to the object at that path, if it is set.
    IfPresent(&'static str, &'static [DefaultRule]),
    /// The rows apply to the object at that path, which is created if absent.
    Ensure(&'static str, &'static [DefaultRule]),
    /// The rows apply to each element of the list at that path.
    ForEach(&'static str, &'static [DefaultRule]),
    /// The rows apply if the field has that value.
    When(&'static str, &'static str, &'static [DefaultRule]),
    /// Rounds quantities of a map up to thousandths.
    RoundQuantities(&'static str),
    /// A function for defaults that depend on other fields.
    Computed(fn(&mut Map)),
}

/// A default value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Literal {
    /// A string; an empty string in the object counts as absent.
    Str(&'static str),
    /// A string whose field is a pointer upstream: an empty string in the object is kept.
    OptionalStr(&'static str),
    /// A JSON number.
    Int(i64),
    /// `true` or `false`.
    Bool(bool),
    /// An empty object.
    EmptyObject,
    /// A list of strings; an empty list in the object counts as absent.
    Strs(&'static [&'static str]),
}

impl Literal {
    fn value(self) -> Value {
        match self {
            Str(text) | OptionalStr(text) => text.into(),
            Int(number) => number.into(),
            Bool(flag) => flag.into(),
            EmptyObject => Value::object(),
            Strs(texts) => texts.iter().map(|t| Value::from(*t)).collect::<Vec<_>>().into(),
        }
    }

    fn is_absent(self, present: &Value) -> bool {
        match (self, present) {
            (_, Value::Null) => true,
            (Str(_), Value::String(text)) => text.is_empty(),
            (Strs(_), Value::Array(list)) => list.is_empty(),
            _ => false,
        }
    }
}

/// Applies the rows; idempotent. Values of a wrong type are left alone.
pub(crate) fn apply(rows: &[DefaultRule], object: &mut Map) {
    for row in rows {
        match *row {
            Field(path, literal) => {
                make(object, path, || literal.value(), |present| literal.is_absent(present));
            }
            DefaultRule::NonZero(path, number) => {
                make(object, path, || number.into(), |v| matches!(v, Value::Null | Value::Int(0)));
            }
            DefaultRule::IfPresent(path, rows) => {
                if let Some(part) = at_mut(object, path).and_then(Value::as_object_mut) {
                    apply(rows, part);
                }
            }
            DefaultRule::Ensure(path, rows) => {
                make(object, path, Value::object, Value::is_null);
                if let Some(part) = at_mut(object, path).and_then(Value::as_object_mut) {
                    apply(rows, part);
                }
            }
            DefaultRule::ForEach(path, rows) => {
                let list = at_mut(object, path).and_then(Value::as_array_mut);
                for element in list.into_iter().flatten().filter_map(Value::as_object_mut) {
                    apply(rows, element);
                }
            }
            DefaultRule::When(path, text, rows) => {
                if at(object, path).and_then(Value::as_str) == Some(text) {
                    apply(rows, object);
                }
            }
            DefaultRule::RoundQuantities(path) => round(at_mut(object, path)),
            DefaultRule::Computed(rule) => rule(object),
        }
    }
}

/// Quantities are canonical here: those finer than thousandths end in `u` or `n`, or have an exponent.
fn round(amounts: Option<&mut Value>) {
    const THOUSANDTHS: i32 = -3;
    let amounts = amounts.and_then(Value::as_object_mut);
    for (_, amount) in amounts.into_iter().flat_map(Map::iter_mut) {
        let Some(text) = amount.as_str().filter(|text| text.ends_with(['u', 'n']) || text.contains("e-"))
        else {
            continue;
        };
        if let Ok(quantity) = Quantity::parse(text) {
            let rounded = format!("{}m", quantity.value(THOUSANDTHS));
            *amount = Quantity::canonicalize(&rounded).map_or(Value::Null, Value::from);
        }
    }
}

/// Makes a singular field and its plural counterpart consistent, since a client may know only one of them.
/// The singular one wins (kubernetes `pkg/apis/core/v1/conversion.go`).
pub(crate) fn agree(object: &mut Map, one: &str, all: &str, key: Option<&str>) {
    let first = object.get(all).and_then(Value::as_array).and_then(<[Value]>::first);
    let first = first.and_then(|entry| match key {
        Some(key) => entry.str_at(&[key]),
        None => entry.as_str(),
    });
    let first = first.unwrap_or_default().to_owned();
    let given = object.get(one).and_then(Value::as_str).unwrap_or_default().to_owned();
    if given.is_empty() {
        if !first.is_empty() {
            object.insert(one, first);
        }
    } else if given != first {
        let entry = match key {
            Some(key) => Value::Object([(key.into(), given.into())].into_iter().collect()),
            None => given.into(),
        };
        object.insert(all, vec![entry]);
    }
}

/// The value at a dotted path.
pub(crate) fn at<'a>(object: &'a Map, path: &str) -> Option<&'a Value> {
    match first_key(path) {
        (key, None) => object.get(key),
        (key, Some(rest)) => at(object.get(key)?.as_object()?, rest),
    }
}

fn at_mut<'a>(object: &'a mut Map, path: &str) -> Option<&'a mut Value> {
    match first_key(path) {
        (key, None) => object.get_mut(key),
        (key, Some(rest)) => at_mut(object.get_mut(key)?.as_object_mut()?, rest),
    }
}

/// Sets the field at a dotted path where `is_absent` holds, parents included.
pub(crate) fn set(object: &mut Map, path: &str, value: &Value, is_absent: impl Fn(&Value) -> bool) {
    make(object, path, || value.clone(), is_absent);
}

/// As [`set`], with a value that is only computed if needed.
fn make(object: &mut Map, path: &str, value: impl FnOnce() -> Value, is_absent: impl Fn(&Value) -> bool) {
    match first_key(path) {
        (key, Some(rest)) => {
            let part = object.entry(key);
            if part.is_null() {
                *part = Value::object();
            }
            if let Some(part) = part.as_object_mut() {
                make(part, rest, value, is_absent);
            }
        }
        (key, None) => {
            if object.get(key).is_none_or(is_absent) {
                object.insert(key, value());
            }
        }
    }
}

/// Copies the members of `from` that the object at `path` does not have.
pub(crate) fn fill_from(object: &mut Map, path: &str, from: &Map) {
    make(object, path, Value::object, Value::is_null);
    let Some(target) = at_mut(object, path).and_then(Value::as_object_mut) else { return };
    for (key, value) in from.iter() {
        if !target.contains(key) {
            target.insert(key.clone(), value.clone());
        }
    }
}

pub(crate) fn is_empty_map(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}
