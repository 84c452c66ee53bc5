//! Whether an applied configuration fits the schema, with the messages of structured-merge-diff.

use super::path::PathElement;
use super::typed::{self, MergeShape, Ref};
use super::{path, MAX_DEPTH};
use crate::patch::goprint;
use crate::schema::{ListType, Scalar, Schema, Type, TypeId};
use crate::value::Value;

/// Maximum number of errors reported.
const MAX_ERRORS: usize = 100;

/// The errors, one line each (`.spec.replicas: expected numeric (int or float), got string`). Several have a
/// heading, as upstream writes it. `None` when everything fits. `O(n log n)`.
pub(super) fn errors(schema: &Schema, root: TypeId, value: &Value) -> Option<String> {
    let mut walk = Walk { schema, path: Vec::new(), errors: Vec::new() };
    walk.value(value, Ref::root(root));
    match walk.errors.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("errors:\n  {}", many.join("\n  "))),
    }
}

struct Walk<'s> {
    schema: &'s Schema,
    path: Vec<PathElement>,
    errors: Vec<String>,
}

impl<'s> Walk<'s> {
    fn error(&mut self, what: impl std::fmt::Display) {
        if self.errors.len() < MAX_ERRORS {
            let at = path::describe(&self.path);
            self.errors.push(if at.is_empty() { what.to_string() } else { format!("{at}: {what}") });
        }
    }

    fn value(&mut self, value: &Value, of: Ref<'s>) {
        // Deeper values have no owner of their own, and no schema is as deep.
        if self.path.len() >= MAX_DEPTH || value.is_null() {
            return;
        }
        let Some(t) = of.get(self.schema) else { return };
        match (t, value) {
            (Type::Struct(_) | Type::Map { .. }, Value::Object(map)) => {
                // Parts of an atomic struct or map have types too.
                let shape = of.granular(self.schema);
                for (key, member) in map.iter() {
                    let (of, field) = shape.member(key);
                    self.path.push(PathElement::Field(key.clone()));
                    if matches!(shape, MergeShape::Struct(s) if !s.preserves_unknown) && field.is_none() {
                        self.error("field not declared in schema");
                    } else {
                        self.value(member, of);
                    }
                    self.path.pop();
                }
            }
            (Type::Struct(_) | Type::Map { .. }, other) => {
                self.error(format_args!("expected map, got &{{{}}}", goprint::value(other)));
            }
            (Type::List { element, .. }, Value::Array(items)) => {
                self.items(items, of, Ref::root(*element));
            }
            (Type::List { .. }, other) => {
                self.error(format_args!("expected list, got &{{{}}}", goprint::value(other)));
            }
            (Type::Scalar(scalar), value) => self.scalar(scalar, value),
        }
    }

    fn items(&mut self, items: &[Value], of: Ref<'s>, element: Ref<'s>) {
        if matches!(of.list(self.schema), ListType::Atomic) {
            for (i, item) in items.iter().enumerate() {
                self.path.push(PathElement::Index(i as i64));
                self.value(item, element);
                self.path.pop();
            }
            return;
        }
        let shape = of.granular(self.schema);
        let mut names = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            match typed::element_name(self.schema, shape, item) {
                Ok(name) => {
                    self.path.push(name);
                    self.value(item, element);
                    names.extend(self.path.pop());
                }
                Err(error) => {
                    // An element without a name has no path; upstream checks no further in this list.
                    self.error(format_args!("element {i}: {error}"));
                    break;
                }
            }
        }
        names.sort();
        for pair in names.windows(2) {
            if pair[0] == pair[1] {
                self.error(format_args!("duplicate entries for key {}", path::describe(&pair[..1])));
            }
        }
    }

    fn scalar(&mut self, scalar: &Scalar, value: &Value) {
        let fits = match scalar {
            Scalar::Bool => matches!(value, Value::Bool(_)),
            Scalar::Int32 | Scalar::Int64 | Scalar::Double => {
                matches!(value, Value::Int(_) | Value::Float(_))
            }
            Scalar::String { .. } | Scalar::Bytes | Scalar::Duration => matches!(value, Value::String(_)),
            Scalar::Quantity | Scalar::IntOrString | Scalar::Time | Scalar::MicroTime => {
                !matches!(value, Value::Object(_) | Value::Array(_))
            }
            Scalar::RawExtension | Scalar::Json | Scalar::FieldsV1 | Scalar::SchemaOr(..) | Scalar::Any => {
                true
            }
        };
        if fits {
            return;
        }
        match scalar {
            Scalar::Bool => self.error(format_args!("expected boolean, got &{{{}}}", goprint::value(value))),
            Scalar::Int32 | Scalar::Int64 | Scalar::Double => {
                let got = goprint::type_name(value);
                self.error(format_args!("expected numeric (int or float), got {got}"));
            }
            Scalar::Quantity | Scalar::IntOrString | Scalar::Time | Scalar::MicroTime => {
                self.error(format_args!("expected any scalar, got &{{{}}}", goprint::value(value)));
            }
            _ => {
                let shown = goprint::syntax(value);
                self.error(format_args!("expected string, got &value.valueUnstructured{{Value:{shown}}}"));
            }
        }
    }
}
