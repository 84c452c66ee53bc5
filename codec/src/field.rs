//! Field errors, which become the causes of a 422, with upstream's messages (k8s.io/apimachinery,
//! `pkg/util/validation/field`).

use std::fmt::{self, Display, Write};

use crate::error::quoted;
use crate::json;
use crate::value::Value;

/// `metav1.CauseType` of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// A required value is missing.
    Required,
    /// A value that must be unique is duplicated.
    Duplicate,
    /// A malformed value.
    Invalid,
    /// A value that is none of the allowed ones.
    NotSupported,
    /// A value that is not allowed here.
    Forbidden,
    /// A text that is too long.
    TooLong,
    /// A list or map with too many members.
    TooMany,
    /// A value of a wrong type.
    TypeInvalid,
    /// What the value names is not there.
    NotFound,
    /// An internal error.
    Internal,
}

impl Reason {
    /// As `causes[].reason` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Required => "FieldValueRequired",
            Reason::Duplicate => "FieldValueDuplicate",
            Reason::Invalid => "FieldValueInvalid",
            Reason::NotSupported => "FieldValueNotSupported",
            Reason::Forbidden => "FieldValueForbidden",
            Reason::TooLong => "FieldValueTooLong",
            Reason::TooMany => "FieldValueTooMany",
            Reason::TypeInvalid => "FieldValueTypeInvalid",
            Reason::NotFound => "FieldValueNotFound",
            Reason::Internal => "InternalError",
        }
    }

    /// The beginning of the message.
    fn heading(self) -> &'static str {
        match self {
            Reason::Required => "Required value",
            Reason::Duplicate => "Duplicate value",
            Reason::Invalid | Reason::TypeInvalid => "Invalid value",
            Reason::NotSupported => "Unsupported value",
            Reason::Forbidden => "Forbidden",
            Reason::TooLong => "Too long",
            Reason::TooMany => "Too many",
            Reason::NotFound => "Not found",
            Reason::Internal => "Internal error",
        }
    }
}

/// A field error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The kind of error.
    pub reason: Reason,
    /// Path of the field, like `spec.ports[0].name`; `<nil>` when the error concerns no field, as upstream
    /// writes it.
    pub field: String,
    /// The message, without the field: `Invalid value: "x": must be …`.
    pub message: String,
}

impl Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl FieldError {
    fn new(reason: Reason, field: impl Display, value: Option<&Value>, detail: impl Display) -> FieldError {
        FieldError::with_shown(reason, field, value.map(DisplayValue), detail)
    }

    fn with_shown(
        reason: Reason,
        field: impl Display,
        shown: Option<impl Display>,
        detail: impl Display,
    ) -> FieldError {
        let mut message = reason.heading().to_owned();
        // Writing to a string cannot fail.
        if let Some(shown) = shown {
            let _ = write!(message, ": {shown}");
        }
        let before = message.len();
        let _ = write!(message, ": {detail}");
        if message.len() == before + 2 {
            message.truncate(before);
        }
        FieldError { reason, field: named(field), message }
    }

    /// `Required value: why`, or `Required value` alone.
    pub fn required(field: impl Display, why: impl Display) -> FieldError {
        FieldError::new(Reason::Required, field, None, why)
    }

    /// `Invalid value: "x": why`.
    pub fn invalid(field: impl Display, value: &Value, why: impl Display) -> FieldError {
        FieldError::new(Reason::Invalid, field, Some(value), why)
    }

    /// As [`FieldError::invalid`], for a value that is formatted already: structs come in the order of their
    /// members upstream.
    pub fn invalid_shown(field: impl Display, shown: &str, why: impl Display) -> FieldError {
        FieldError::with_shown(Reason::Invalid, field, Some(shown), why)
    }

    /// As [`FieldError::invalid`], of a value of a wrong type.
    pub fn type_invalid(field: impl Display, value: &Value, why: impl Display) -> FieldError {
        FieldError::new(Reason::TypeInvalid, field, Some(value), why)
    }

    /// `Forbidden: why`.
    pub fn forbidden(field: impl Display, why: impl Display) -> FieldError {
        FieldError::new(Reason::Forbidden, field, None, why)
    }

    /// `Duplicate value: "x"`.
    pub fn duplicate(field: impl Display, value: &Value) -> FieldError {
        FieldError::new(Reason::Duplicate, field, Some(value), "")
    }

    /// As [`FieldError::duplicate`], for a value that is formatted already.
    pub fn duplicate_shown(field: impl Display, shown: &str) -> FieldError {
        FieldError::with_shown(Reason::Duplicate, field, Some(shown), "")
    }

    /// `Not found: "x"`.
    pub fn not_found(field: impl Display, value: &Value) -> FieldError {
        FieldError::new(Reason::NotFound, field, Some(value), "")
    }

    /// `Unsupported value: "x": supported values: "a", "b"`, in the order given.
    pub fn not_supported<T: AsRef<str>>(field: impl Display, value: &Value, supported: &[T]) -> FieldError {
        let texts: Vec<String> = supported.iter().map(|s| quoted(s.as_ref())).collect();
        let detail = match texts.is_empty() {
            true => String::new(),
            false => format!("supported values: {}", texts.join(", ")),
        };
        FieldError::new(Reason::NotSupported, field, Some(value), detail)
    }

    /// `Too long: may not be more than 5 bytes`.
    pub fn too_long(field: impl Display, most: i64) -> FieldError {
        let detail = match most {
            1 => "may not be more than 1 byte".to_owned(),
            0.. => format!("may not be more than {most} bytes"),
            _ => "value is too long".to_owned(),
        };
        FieldError::new(Reason::TooLong, field, None, detail)
    }

    /// `Too many: 3: must have at most 2 items`.
    pub fn too_many(field: impl Display, there_are: i64, most: i64) -> FieldError {
        let detail = match most {
            1 => "must have at most 1 item".to_owned(),
            0.. => format!("must have at most {most} items"),
            _ => "has too many items".to_owned(),
        };
        FieldError::new(Reason::TooMany, field, Some(&Value::Int(there_are)), detail)
    }

    /// `Internal error: why`.
    pub fn internal(field: impl Display, why: impl Display) -> FieldError {
        FieldError::new(Reason::Internal, field, None, why)
    }
}

/// Upstream's path of no field.
pub const NO_FIELD: &str = "<nil>";

fn named(field: impl Display) -> String {
    let text = field.to_string();
    match text.is_empty() {
        true => NO_FIELD.to_owned(),
        false => text,
    }
}

/// Maximum size of a value in a message, in bytes: each error may contain the whole object.
pub const MAX_SHOWN: usize = 16 << 10;

/// A value for display in a message: strings quoted, numbers as Go's `%v` prints them, lists and objects as
/// JSON; cut after [`MAX_SHOWN`] bytes.
pub struct DisplayValue<'a>(pub &'a Value);

impl Display for DisplayValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            Value::String(s) => quoted(s),
            Value::Float(n) => go_float(*n),
            other => {
                let mut json = Vec::new();
                json::write_untyped(other, &mut json);
                String::from_utf8_lossy(&json).into_owned()
            }
        };
        match text.len() > MAX_SHOWN {
            true => write!(f, "{}...", &text[..text.floor_char_boundary(MAX_SHOWN)]),
            false => f.write_str(&text),
        }
    }
}

/// A float as Go's `%v` prints it: the shortest digits that round-trip, with an exponent from 1e+06 on and
/// below 1e-4.
pub fn go_float(n: f64) -> String {
    let magnitude = n.abs();
    if magnitude != 0.0 && !(1e-4..1e6).contains(&magnitude) {
        let text = format!("{n:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(rest) => ('-', rest),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{n}")
}

/// A path to a field, built on the stack of the walk; formatted only when there is an error.
#[derive(Clone, Copy, Debug)]
pub enum Path<'a> {
    /// No field: the object itself.
    Root,
    /// A field: `.name`.
    Child(&'a Path<'a>, &'a str),
    /// A key of a map: `[key]`.
    Key(&'a Path<'a>, &'a str),
    /// An element of a list: `[0]`.
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    /// The path to a field of this value.
    pub fn child(&'a self, name: &'a str) -> Path<'a> {
        Path::Child(self, name)
    }

    /// The path to the value of a key.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    /// The path to an element.
    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    /// The steps from the root, each the path up to and including it; empty for [`Path::Root`].
    pub fn steps(&self) -> Vec<&Path<'a>> {
        let mut steps = Vec::new();
        let mut step = self;
        loop {
            match step {
                Path::Root => break,
                Path::Child(parent, _) | Path::Key(parent, _) | Path::Index(parent, _) => {
                    steps.push(step);
                    step = parent;
                }
            }
        }
        steps.reverse();
        steps
    }
}

impl Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.steps().into_iter().enumerate() {
            match step {
                Path::Root => {}
                Path::Child(_, name) if i == 0 => f.write_str(name)?,
                Path::Child(_, name) => write!(f, ".{name}")?,
                Path::Key(_, key) => write!(f, "[{key}]")?,
                Path::Index(_, index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn messages_are_those_of_upstream() {
        let root = Path::Root;
        let spec = root.child("spec");
        let labels = spec.child("labels");
        let key = labels.key("a.b/c");
        let items = spec.child("items");
        let item = items.index(3);
        let cases = [
            (FieldError::required(spec, ""), "spec: Required value"),
            (FieldError::required(Path::Root, "why"), "<nil>: Required value: why"),
            (
                FieldError::invalid(key, &"x\"".into(), "no"),
                r#"spec.labels[a.b/c]: Invalid value: "x\"": no"#,
            ),
            (FieldError::invalid(item, &Value::Int(7), "no"), "spec.items[3]: Invalid value: 7: no"),
            (FieldError::type_invalid(item, &Value::Null, "no"), "spec.items[3]: Invalid value: null: no"),
            (
                FieldError::duplicate(item, &tree!({ "a": 1i64 })),
                r#"spec.items[3]: Duplicate value: {"a":1}"#,
            ),
            (
                FieldError::not_supported(item, &true.into(), &["a", "b"]),
                r#"spec.items[3]: Unsupported value: true: supported values: "a", "b""#,
            ),
            (FieldError::too_long(spec, 1), "spec: Too long: may not be more than 1 byte"),
            (FieldError::too_many(spec, 3, 2), "spec: Too many: 3: must have at most 2 items"),
            (FieldError::forbidden(spec, "why"), "spec: Forbidden: why"),
            (
                FieldError::not_found(spec, &"a\u{1b}\u{301}\0".into()),
                "spec: Not found: \"a\\x1b\u{301}\\x00\"",
            ),
            (FieldError::invalid_shown(spec, "{1 2}", "no"), "spec: Invalid value: {1 2}: no"),
            (FieldError::duplicate_shown(spec, "{1 2}"), "spec: Duplicate value: {1 2}"),
            (FieldError::internal(spec, "why"), "spec: Internal error: why"),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn a_long_value_is_cut_between_characters() {
        let text = DisplayValue(&"ä".repeat(MAX_SHOWN).into()).to_string();
        assert_eq!(text.len(), MAX_SHOWN - 1 + "...".len());
        assert!(text.ends_with("ä..."));
    }

    #[test]
    fn floats_are_printed_as_go_prints_them() {
        for (n, text) in [
            (0.0, "0"),
            (1.5, "1.5"),
            (-2.0, "-2"),
            (100000.0, "100000"),
            (1000000.0, "1e+06"),
            (12345678.5, "1.23456785e+07"),
            (1e21, "1e+21"),
            (1.25e-7, "1.25e-07"),
            (0.0001, "0.0001"),
            (-3.5e100, "-3.5e+100"),
        ] {
            assert_eq!(go_float(n), text);
        }
    }
}
