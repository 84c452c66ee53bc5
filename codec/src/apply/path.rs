//! Path elements: the name of one step from a value to a part of it.
//!
//! As in structured-merge-diff: `f:name` a field of a struct or map, `k:{"name":"a"}` the element of a list
//! with these key fields, `v:"a"` the element of a set with this value, `i:3` the element at an index. In
//! errors they are displayed as `.name`, `[name="a"]`, `[="a"]`, `[3]`.

use std::cmp::Ordering;
use std::fmt::Write;
use std::sync::Arc;

use smol_str::SmolStr;

use super::text;
use crate::json;
use crate::value::{level, Value};

/// One step of a path. The order of the variants is their order in a set.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A field of a struct or a key of a map.
    Field(SmolStr),
    /// The element of a list with these values of its key fields, sorted by name; shared, since keys are
    /// copied from set to set.
    Key(Arc<[(SmolStr, Value)]>),
    /// The element of a set with this value.
    Value(Value),
    /// The element of a list at this index.
    Index(i64),
}

/// Why a path element's text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathElementError {
    /// Shorter than the two characters of the type.
    #[error("key must be 2 characters long: {0}")]
    TooShort(SmolStr),
    /// The second character is not a colon.
    #[error("missing colon: {0}")]
    NoColon(SmolStr),
    /// The text after the colon does not match the type.
    #[error("cannot parse path element: {0}")]
    Malformed(SmolStr),
}

impl PathElement {
    /// The step into the field of that name.
    pub fn field(name: impl Into<SmolStr>) -> PathElement {
        PathElement::Field(name.into())
    }

    /// Reads the form of FieldsV1. `None` for an unknown type, which is to be ignored.
    pub fn parse(key: &str) -> Result<Option<PathElement>, PathElementError> {
        if let Some(name) = key.strip_prefix("f:") {
            return Ok(Some(PathElement::field(name)));
        }
        let malformed = || PathElementError::Malformed(key.into());
        match key.as_bytes() {
            [] | [_] => Err(PathElementError::TooShort(key.into())),
            [b'k', b':', ..] => match text::parse(&key[2..]) {
                Some(Value::Object(fields)) => Ok(Some(PathElement::Key(fields.into_iter().collect()))),
                _ => Err(malformed()),
            },
            [b'v', b':', ..] => {
                text::parse(&key[2..]).map(|v| Some(PathElement::Value(v))).ok_or_else(malformed)
            }
            [b'i', b':', ..] => {
                key[2..].parse().map(|i| Some(PathElement::Index(i))).map_err(|_| malformed())
            }
            [_, b':', ..] => Ok(None),
            _ => Err(PathElementError::NoColon(key.into())),
        }
    }

    /// Writes the form of FieldsV1.
    pub fn to_key(&self) -> SmolStr {
        match self {
            PathElement::Field(name) => smol_str::format_smolstr!("f:{name}"),
            PathElement::Key(fields) => text::written("k:{", |out| {
                for (i, (name, value)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    json::write_string(name, out);
                    out.push(b':');
                    json::write_untyped(value, out);
                }
                out.push(b'}');
            }),
            PathElement::Value(value) => text::written("v:", |out| json::write_untyped(value, out)),
            PathElement::Index(i) => smol_str::format_smolstr!("i:{i}"),
        }
    }

    /// Appends the display form.
    pub fn describe(&self, out: &mut String) {
        // Writing to a `String` cannot fail.
        match self {
            PathElement::Field(name) => {
                out.push('.');
                out.push_str(name);
            }
            PathElement::Key(fields) => {
                out.push('[');
                for (i, (name, value)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    out.push_str(name);
                    out.push('=');
                    describe_value(value, out);
                }
                out.push(']');
            }
            PathElement::Value(value) => {
                out.push_str("[=");
                describe_value(value, out);
                out.push(']');
            }
            PathElement::Index(i) => drop(write!(out, "[{i}]")),
        }
    }
}

fn describe_value(v: &Value, out: &mut String) {
    match v {
        Value::Float(f) => drop(write!(out, "{f}")),
        Value::String(s) => text::write_quoted(s, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                describe_value(item, out);
            }
            out.push(']');
        }
        // Not a valid key; displayed as upstream does.
        Value::Object(members) => {
            for (name, value) in members.iter() {
                out.push_str(name);
                out.push('=');
                describe_value(value, out);
            }
        }
        other => out.push_str(&text::written("", |out| json::write_untyped(other, out))),
    }
}

/// A path for display.
pub fn describe(path: &[PathElement]) -> String {
    let mut out = String::new();
    path.iter().for_each(|element| element.describe(&mut out));
    out
}

impl PartialEq for PathElement {
    fn eq(&self, other: &PathElement) -> bool {
        match (self, other) {
            (PathElement::Field(a), PathElement::Field(b)) => a == b,
            _ => self.cmp(other) == Ordering::Equal,
        }
    }
}

impl Eq for PathElement {}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &PathElement) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &PathElement) -> Ordering {
        match (self, other) {
            (PathElement::Field(a), PathElement::Field(b)) => a.cmp(b),
            (PathElement::Key(a), PathElement::Key(b)) => {
                let by_field = a
                    .iter()
                    .zip(b.iter())
                    .map(|((an, av), (bn, bv))| an.cmp(bn).then_with(|| compare(av, bv)));
                by_field.fold(Ordering::Equal, Ordering::then).then_with(|| a.len().cmp(&b.len()))
            }
            (PathElement::Value(a), PathElement::Value(b)) => compare(a, b),
            (PathElement::Index(a), PathElement::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PathElement {
    fn rank(&self) -> u8 {
        match self {
            PathElement::Field(_) => 0,
            PathElement::Key(_) => 1,
            PathElement::Value(_) => 2,
            PathElement::Index(_) => 3,
        }
    }
}

/// A total order of values: numbers (by value, whatever their type), strings, booleans, lists, objects, null.
pub fn compare(a: &Value, b: &Value) -> Ordering {
    let rank = |v: &Value| match v {
        Value::Int(_) | Value::Float(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) | Value::Encoded(_) => 4,
        Value::Null => 5,
    };
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Int(a), Value::Float(b)) => (*a as f64).total_cmp(b),
        (Value::Float(a), Value::Int(b)) => a.total_cmp(&(*b as f64)),
        (Value::Float(a), Value::Float(b)) => a.total_cmp(b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let by_item = level(|| a.iter().zip(b).map(|(a, b)| compare(a, b)).find(|o| o.is_ne()));
            by_item.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let mut pairs = a.iter().zip(b.iter());
            let by_member = level(|| {
                let orders =
                    pairs.by_ref().map(|((ak, av), (bk, bv))| ak.cmp(bk).then_with(|| compare(av, bv)));
                orders.into_iter().find(|o| o.is_ne())
            });
            by_member.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Whether two values are equal for apply: as `==`, but numbers by value (`1` is `1.0`).
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Int(a), Value::Float(b)) | (Value::Float(b), Value::Int(a)) => *a as f64 == *b,
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && level(|| a.iter().zip(b).all(|(a, b)| same(a, b)))
        }
        (Value::Object(a), Value::Object(b)) => {
            let mut pairs = a.iter().zip(b.iter());
            a.len() == b.len() && level(|| pairs.all(|((ak, av), (bk, bv))| ak == bk && same(av, bv)))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::testkit::json;

    #[test]
    fn both_forms_by_table() {
        let rows = [
            ("f:name", ".name"),
            ("f:app.kubernetes.io/name", ".app.kubernetes.io/name"),
            ("f:", "."),
            (r#"k:{"name":"a"}"#, r#"[name="a"]"#),
            (r#"k:{"containerPort":80,"protocol":"TCP"}"#, r#"[containerPort=80,protocol="TCP"]"#),
            (r#"v:"a""#, r#"[="a"]"#),
            ("v:1", "[=1]"),
            ("v:true", "[=true]"),
            ("v:1.5", "[=1.5]"),
            ("i:3", "[3]"),
            (r#"k:{"n":"a\"b"}"#, r#"[n="a\"b"]"#),
        ];
        for (key, text) in rows {
            let element = PathElement::parse(key).unwrap().unwrap();
            assert_eq!(element.to_key(), key);
            assert_eq!(describe(&[element]), text);
        }
        // Written sorted, in whatever order it was read.
        let element = PathElement::parse(r#"k:{"b":1,"a":2}"#).unwrap().unwrap();
        assert_eq!(element.to_key(), r#"k:{"a":2,"b":1}"#);
    }

    #[test]
    fn bad_elements_are_refused_and_unknown_ones_ignored() {
        assert_eq!(PathElement::parse("x:future"), Ok(None));
        assert!(matches!(PathElement::parse(""), Err(PathElementError::TooShort(_))));
        assert!(matches!(PathElement::parse("f"), Err(PathElementError::TooShort(_))));
        assert!(matches!(PathElement::parse("name"), Err(PathElementError::NoColon(_))));
        for key in ["k:", "k:[1]", "k:{", "v:", "v:{", "i:", "i:x", "i:1.5"] {
            assert!(matches!(PathElement::parse(key), Err(PathElementError::Malformed(_))), "{key}");
        }
    }

    #[test]
    fn the_order_is_total() {
        let elements: Vec<PathElement> = [
            "f:a",
            "f:b",
            r#"k:{"n":1}"#,
            r#"k:{"n":1,"o":1}"#,
            r#"k:{"n":10}"#,
            r#"k:{"n":"1"}"#,
            r#"k:{"o":0}"#,
            "v:1",
            "v:2",
            r#"v:"1""#,
            "v:false",
            "v:true",
            "v:[1]",
            "v:{}",
            "v:null",
            "i:1",
            "i:2",
        ]
        .iter()
        .map(|key| PathElement::parse(key).unwrap().unwrap())
        .collect();
        for (i, a) in elements.iter().enumerate() {
            for (j, b) in elements.iter().enumerate() {
                assert_eq!(a.cmp(b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn numbers_are_the_same_by_value() {
        assert!(same(&json(r#"{"a":[1,{"b":2}]}"#), &json(r#"{"a":[1.0,{"b":2.0}]}"#)));
        assert!(!same(&json(r#"{"a":1}"#), &json(r#"{"a":"1"}"#)));
        assert!(!same(&json(r#"{"a":1}"#), &json(r#"{"b":1}"#)));
        assert_eq!(compare(&json("1"), &json("1.0")), Ordering::Equal);
    }
}
