//! The set of fields that a configuration names: what its applier will own.

use super::path::PathElement;
use super::set::{Builder, Set};
use super::typed::{self, Ref, Shape};
use super::MAX_DEPTH;
use crate::schema::{Schema, TypeId};
use crate::Value;

/// Every leaf of a value; also the keys of maps, the elements of keyed lists and sets, and objects without members.
/// `O(n log n)`.
pub fn field_set(schema: &Schema, root: TypeId, value: &Value) -> Set {
    let mut walk = Walk { schema, out: Builder::default() };
    walk.value(value, Ref::root(root), 0);
    walk.out.finish()
}

struct Walk<'s> {
    schema: &'s Schema,
    out: Builder,
}

impl<'s> Walk<'s> {
    fn value(&mut self, value: &Value, of: Ref<'s>, depth: usize) {
        let shape = if depth < MAX_DEPTH { of.shape(self.schema) } else { Shape::Leaf };
        match (shape, value) {
            (Shape::Struct(_) | Shape::Map(_) | Shape::Deduced, Value::Object(map)) => {
                for (key, member) in map.iter() {
                    let (of, field) = shape.member(key);
                    self.out.enter(PathElement::Field(key.clone()));
                    let hollow =
                        matches!(member, Value::Null) || member.as_object().is_some_and(|m| m.is_empty());
                    if field.is_none() || hollow {
                        self.out.add();
                    }
                    self.value(member, of, depth + 1);
                    self.out.leave();
                }
            }
            (Shape::Set | Shape::Keyed(..), Value::Array(_)) => {
                let named = typed::named(self.schema, shape, Some(value));
                let mut rest = named.as_slice();
                while !rest.is_empty() {
                    let (same, others) = typed::run(rest);
                    rest = others;
                    if let [(name, item), more @ ..] = same {
                        self.out.enter(name.clone());
                        self.out.add();
                        // Of elements with one name none can be told from the other: owned as a whole.
                        if more.is_empty() {
                            self.value(item, shape.element(), depth + 1);
                        }
                        self.out.leave();
                    }
                }
            }
            (Shape::Struct(_) | Shape::Map(_) | Shape::Set | Shape::Keyed(..), Value::Null) => {}
            _ => self.out.add(),
        }
    }
}
