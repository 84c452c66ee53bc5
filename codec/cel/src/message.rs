//! Messages that expressions of a mutation construct: `Object{…}` and its parts, `JSONPatch{…}`
//! (k8s.io/apiserver `pkg/cel/mutation`).
//!
//! Nested messages are named by their path: `Object.spec.template{…}`. Their fields are not known when an
//! expression is compiled; after the evaluation the names of the messages must match their paths, and the
//! schema is checked when the configuration is applied.

use std::collections::BTreeMap;

use plinth_codec::error::quoted;
use plinth_codec::value::{Map, Value};
use smol_str::SmolStr;

use super::context::EvalError;
use super::library::duration_text;
use super::types::Type;
use super::value::{List, Message, Val};

/// The type of a whole apply configuration.
pub(crate) const OBJECT: &str = "Object";
/// The type of one operation of a JSON Patch.
pub(crate) const JSON_PATCH: &str = "JSONPatch";

/// Which messages an expression can construct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MessageTypes {
    #[default]
    None,
    /// `Object{…}`, its parts, and `JSONPatch{…}`.
    Patches,
}

impl MessageTypes {
    /// Whether a type of that name exists.
    pub(crate) fn has(self, name: &str) -> bool {
        let is_object =
            name.strip_prefix(OBJECT).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self == MessageTypes::Patches && (is_object || name == JSON_PATCH)
    }

    /// Whether a function of that name can be called.
    pub(crate) fn calls(self, name: &str) -> bool {
        self == MessageTypes::Patches || !name.starts_with("jsonpatch.")
    }
}

/// The type of a field; `None` when there is no such field.
pub(crate) fn field_type(name: &str, field: &str) -> Option<Type> {
    match (name, field) {
        (JSON_PATCH, "op" | "path" | "from") => Some(Type::String),
        (JSON_PATCH, "value") => Some(Type::Dyn),
        (JSON_PATCH, _) => None,
        _ => Some(Type::Dyn),
    }
}

impl<'a> Message<'a> {
    /// Constructs a message from its fields.
    pub(crate) fn new(name: SmolStr, fields: BTreeMap<SmolStr, Val<'a>>) -> Result<Message<'a>, EvalError> {
        for (field, value) in &fields {
            // Types that were not known at compilation.
            let wants_text = matches!(field_type(&name, field), Some(Type::String));
            if wants_text && value.as_str().is_none() {
                let found = go_type(value);
                let why = format!("unexpected type {found} for JSONPatchType '{field}' field");
                return Err(EvalError::other(why));
            }
        }
        Ok(Message { name, fields })
    }
}

/// The type of a value as upstream's error messages name it.
fn go_type(value: &Val<'_>) -> &'static str {
    match value {
        Val::Int(_) => "int64",
        Val::Uint(_) => "uint64",
        Val::Double(_) => "float64",
        Val::Bytes(_) => "[]uint8",
        other => other.type_name(),
    }
}

/// Maximum number of nodes of a result.
const MAX_PARTS: usize = 1_000_000;

/// Collects errors in the type names of messages below a value at `path`.
fn misnamed(value: &Val<'_>, path: &str, errors: &mut Vec<String>) {
    plinth_codec::value::level(|| match value {
        Val::Message(message) => {
            if message.name != path {
                errors.push(format!(
                    "unexpected type name {}, expected {}, which matches field name path from root Object type",
                    quoted(&message.name),
                    quoted(path)
                ));
            }
            for (field, value) in &message.fields {
                misnamed(value, &format!("{path}.{field}"), errors);
            }
        }
        Val::List(list) => list.iter().for_each(|value| misnamed(&value, path, errors)),
        Val::Map(map) => map.iter().for_each(|(_, value)| misnamed(&value, path, errors)),
        _ => {}
    });
}

fn check_names(message: &Message<'_>, value: &Val<'_>) -> Result<(), String> {
    let mut errors = Vec::new();
    misnamed(value, &message.name, &mut errors);
    match errors.is_empty() {
        true => Ok(()),
        false => Err(format!("type mismatch: {}", errors.join("\n"))),
    }
}

/// Converts an `Object{…}` to an apply configuration.
///
/// # Errors
/// Messages whose name does not match their path; values without a JSON form.
pub(crate) fn configuration(made: &std::sync::Arc<Message<'_>>) -> Result<Value, String> {
    let value = Val::Message(made.clone());
    check_names(made, &value)?;
    let mut path = String::new();
    let data = DataBuilder { exact: true, left: MAX_PARTS }.value(&value, &mut path);
    data.map_err(|why| {
        format!("error applying patch: failed to convert patch object to typed object: {path}: {why}")
    })
}

/// Converts a list of `JSONPatch{…}` to the operations of a JSON Patch.
///
/// # Errors
/// As [`configuration`].
pub(crate) fn patches(list: &List<'_>) -> Result<Value, String> {
    let mut operations = Vec::with_capacity(list.len());
    let mut data = DataBuilder { exact: false, left: MAX_PARTS };
    for value in list.iter() {
        let Val::Message(operation) = &value else {
            let what = value.type_name();
            return Err(format!(
                "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of {what}"
            ));
        };
        let mut members = Map::new();
        for field in ["op", "path", "from"] {
            let text = operation.fields.get(field).and_then(Val::as_str).unwrap_or_default();
            if field != "from" || !text.is_empty() {
                members.insert(field, text);
            }
        }
        if let Some(value) = operation.fields.get("value") {
            if let Val::Message(message) = value {
                check_names(message, value)?;
            }
            let made = data.value(value, &mut String::new()).map_err(|why| {
                format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}")
            })?;
            members.insert("value", made);
        }
        operations.push(Value::Object(members));
    }
    Ok(Value::Array(operations))
}

/// Converts values to data.
struct DataBuilder {
    /// Whether values must have a JSON type: upstream converts those of a JSON Patch, but not those of a
    /// configuration.
    exact: bool,
    /// Remaining number of nodes: an expression can refer to one list a thousand times.
    left: usize,
}

impl DataBuilder {
    /// `path` is the path of the value, and on an error that of the offending one.
    fn value(&mut self, value: &Val<'_>, path: &mut String) -> Result<Value, String> {
        self.left = self.left.checked_sub(1).ok_or("too many parts")?;
        let depth = path.len();
        let made = plinth_codec::value::level(|| {
            Ok(match value {
                Val::Message(message) => {
                    let mut map = Map::new();
                    for (field, value) in &message.fields {
                        path.push('.');
                        path.push_str(field);
                        map.insert(field.clone(), self.value(value, path)?);
                        path.truncate(depth);
                    }
                    Value::Object(map)
                }
                Val::List(list) => {
                    let mut items = Vec::with_capacity(list.len());
                    for (i, value) in list.iter().enumerate() {
                        path.push_str(&format!("[{i}]"));
                        // Data of the object are taken unchanged.
                        items.push(match list {
                            List::Data(elements, None) => elements.get(i).cloned().unwrap_or_default(),
                            _ => self.value(&value, path)?,
                        });
                        path.truncate(depth);
                    }
                    Value::Array(items)
                }
                Val::Map(table) => {
                    let mut map = Map::new();
                    for (key, value) in table.iter() {
                        let key = key
                            .as_str()
                            .ok_or_else(|| format!("a map key is of type {}, not string", go_type(&key)))?;
                        path.push('.');
                        path.push_str(key);
                        let of_data = match table {
                            super::value::Table::Data(members, None) => members.get(key).cloned(),
                            _ => None,
                        };
                        map.insert(key, of_data.map_or_else(|| self.value(&value, path), Ok)?);
                        path.truncate(depth);
                    }
                    Value::Object(map)
                }
                // JSON numbers have one type.
                Val::Double(n) if n.fract() == 0.0 && n.abs() < 9e15 => Value::Int(*n as i64),
                Val::Null | Val::Uint(_) | Val::Bytes(_) | Val::Duration(_) | Val::Timestamp(_)
                    if self.exact =>
                {
                    return Err(format!("{} is not a value that an object can have", go_type(value)));
                }
                // As in the JSON form of a message of that type.
                Val::Duration(nanoseconds) => Value::from(duration_text(*nanoseconds)),
                other => other
                    .to_value(&mut self.left)
                    .ok_or_else(|| format!("{} cannot be converted to JSON", other.type_name()))?,
            })
        });
        if made.is_ok() {
            path.truncate(depth);
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use crate::{Activation, Budget, Environment, Output, VariableType};
    use plinth_codec::json;

    fn environment() -> Environment {
        Environment::default().with("object", VariableType::Any).with_patches()
    }

    fn made(source: &str, output: Output) -> Result<String, String> {
        let environment = environment();
        let expression = environment.compile(source, &[output])?;
        let object = json::parse(br#"{"metadata":{"labels":{"a":"b"}},"list":[1,null],"n":null,"x":"y"}"#);
        let object = object.map_err(|e| e.to_string())?;
        let activation = Activation::new(&environment).with("object", &object);
        let outcome =
            expression.evaluate(&activation, &mut Budget::default()).map_err(|e| format!("{e:?}"))?;
        let mut text = Vec::new();
        json::write_untyped(&outcome?, &mut text);
        String::from_utf8(text).map_err(|e| e.to_string())
    }

    /// Asserts each row: expression, its result or part of the error.
    fn rows(output: Output, rows: &[(&str, Result<&str, &str>)]) {
        for (source, expected) in rows {
            match (made(source, output), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, *expected, "{source}"),
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{source}: {found}"),
                (found, _) => panic!("{source}: {found:?}"),
            }
        }
    }

    #[test]
    fn configurations_by_table() {
        rows(
            Output::Configuration,
            &[
                ("Object{}", Ok("{}")),
                (".Object{}", Ok("{}")),
                (
                    "Object{a: 1, b: [true, false], c: 2.0, d: 'x'}",
                    Ok(r#"{"a":1,"b":[true,false],"c":2,"d":"x"}"#),
                ),
                ("Object{a: 1, a: 2}", Ok(r#"{"a":2}"#)),
                (
                    "Object{metadata: Object.metadata{labels: {'x': 'y'}}}",
                    Ok(r#"{"metadata":{"labels":{"x":"y"}}}"#),
                ),
                ("Object{a: [Object.a{b: 1}, Object.a{}]}", Ok(r#"{"a":[{"b":1},{}]}"#)),
                ("Object{a: {'k': Object.a{b: 1}}}", Ok(r#"{"a":{"k":{"b":1}}}"#)),
                ("Object{?a: object.?nope, ?b: object.?x}", Ok(r#"{"b":"y"}"#)),
                ("Object{l: object.metadata.labels, m: object.list}", Ok(r#"{"l":{"a":"b"},"m":[1,null]}"#)),
                ("has(object.x) ? Object{a: 1} : Object{}", Ok(r#"{"a":1}"#)),
                ("Object{a: 1}.a == 1 && Object{} == Object{} ? Object{} : Object{b: 1}", Ok("{}")),
                ("has(Object{a: 1}.b) ? Object{a: 1} : Object{}", Ok("{}")),
                // Compilation errors.
                ("object", Err("must evaluate to Object but got dyn")),
                ("Object.spec{}", Err("must evaluate to Object but got Object.spec")),
                ("Objekt{}", Err("undeclared reference to 'Objekt'")),
                ("int{}", Err("'int' is not a message type")),
                ("Object{a: nope}", Err("undeclared reference to 'nope'")),
                ("Object{?a: 'b'}", Err("expected type 'optional_type(string)' but found 'string'")),
                ("true ? Object{} : Object.spec{}", Err("applied to '(bool, Object, Object.spec)'")),
                ("Object{a: [Object.a{}, Object.b{}]}", Err("expected type 'Object.a' but found 'Object.b'")),
                // Evaluation errors.
                ("Object{a: object.nope}", Err("no such key: nope")),
                (
                    "Object{metadata: Object.spec{}}",
                    Err("type mismatch: unexpected type name \"Object.spec\", expected \"Object.metadata\""),
                ),
                ("Object{a: [Object.b{}]}", Err("expected \"Object.a\"")),
                ("Object{a: {'k': Object.a.k{}}}", Err("expected \"Object.a\"")),
                (
                    "Object{a: Object.a{b: null}}",
                    Err("failed to convert patch object to typed object: .a.b: "),
                ),
                ("Object{a: object.n}", Err(": .a: null_type is not a value")),
                ("Object{a: [1u]}", Err(": .a[0]: uint64 is not a value")),
                ("Object{a: {1: 2}}", Err(": .a: a map key is of type int64")),
            ],
        );
    }

    #[test]
    fn patches_by_table() {
        rows(
            Output::Patches,
            &[
                (
                    "[JSONPatch{op: 'add', path: '/a', value: 1}, JSONPatch{op: 'move', from: '/a', path: '/b'}]",
                    Ok(r#"[{"op":"add","path":"/a","value":1},{"from":"/a","op":"move","path":"/b"}]"#),
                ),
                ("[JSONPatch{op: 'add', value: null}]", Ok(r#"[{"op":"add","path":"","value":null}]"#)),
                (
                    "[JSONPatch{value: Object.spec{a: Object.spec.a{}}}, JSONPatch{value: [Object{}]}]",
                    Ok(r#"[{"op":"","path":"","value":{"a":{}}},{"op":"","path":"","value":[{}]}]"#),
                ),
                (
                    "[JSONPatch{value: timestamp('2020-01-01T00:00:00Z')}, JSONPatch{value: duration('90m')}]",
                    Ok(r#"[{"op":"","path":"","value":"2020-01-01T00:00:00Z"},{"op":"","path":"","value":"5400s"}]"#),
                ),
                (
                    "[JSONPatch{path: '/' + jsonpatch.escapeKey('a/b~c')}]",
                    Ok(r#"[{"op":"","path":"/a~1b~0c"}]"#),
                ),
                ("true ? [JSONPatch{op: 'y'}].filter(p, p.op == 'x') : [JSONPatch{}]", Ok("[]")),
                ("[]", Err("must evaluate to list(JSONPatch) but got list(dyn)")),
                ("[JSONPatch{op: 1}]", Err("expected type of field 'op' is 'string' but provided type is 'int'")),
                ("[JSONPatch{foo: 1}]", Err("undefined field 'foo'")),
                ("[JSONPatch.op{}]", Err("undeclared reference to 'JSONPatch.op'")),
                ("[JSONPatch{op: dyn(5)}]", Err("unexpected type int64 for JSONPatchType 'op' field")),
                ("[JSONPatch{value: Object.a{b: Object.b{}}}]", Err("type mismatch: unexpected type name \"Object.b\"")),
            ],
        );
    }

    #[test]
    fn other_expressions_make_nothing_by_name() {
        let environment = Environment::default().with("object", VariableType::Any);
        for (source, error) in [
            ("Object{} == Object{}", "undeclared reference to 'Object'"),
            ("jsonpatch.escapeKey('a') == 'a'", "undeclared reference to 'jsonpatch'"),
        ] {
            let found = environment.compile(source, &[Output::Bool]).err().unwrap_or_default();
            assert!(found.contains(error), "{source}: {found}");
        }
    }

    #[test]
    fn large_configurations_end() {
        // A million elements out of one list that is referred to a thousand times.
        let wide = "[lists.range(1000)].map(r, Object{a: r.map(x, r)})[0]";
        let why = made(wide, Output::Configuration).unwrap_err();
        assert!(
            why.contains("cost limit") || why.contains("OutOfBudget") || why.contains("too many parts"),
            "{why}"
        );
    }
}
