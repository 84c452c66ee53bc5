//! Removing the fields of a set from a value, and two operations on sets that need the schema.

use super::fields_v1;
use super::managed::Fields;
use super::path::PathElement;
use super::set::{Builder, Set, View};
use super::typed::{self, MergeShape, Ref};
use crate::schema::{Schema, TypeId};
use crate::value::Value;

/// Removes every path of the set. An object or list that becomes empty is kept. `O(n log n)`.
pub(super) fn remove(schema: &Schema, root: TypeId, value: &mut Value, set: &Set) {
    below(schema, value, set.view(), Ref::root(root));
}

fn below(schema: &Schema, value: &mut Value, set: View<'_>, of: Ref<'_>) {
    let shape = of.shape(schema);
    match (shape, value) {
        (MergeShape::Struct(_) | MergeShape::Map(_) | MergeShape::Deduced, Value::Object(map)) => {
            let mut nodes = set.nodes().peekable();
            map.retain(|key, member| {
                let before = |e: &PathElement| matches!(e, PathElement::Field(name) if name < key);
                while nodes.next_if(|n| before(n.element)).is_some() {}
                let Some(node) =
                    nodes.next_if(|n| matches!(n.element, PathElement::Field(name) if name == key))
                else {
                    return true;
                };
                if !node.member {
                    below(schema, member, node.below, shape.member(key).0);
                }
                !node.member
            });
        }
        (MergeShape::Set | MergeShape::Keyed(..), Value::Array(items)) => {
            let nodes: Vec<_> = set.nodes().collect();
            items.retain_mut(|item| {
                let Ok(name) = typed::element_name(schema, shape, item) else { return true };
                let Ok(found) = nodes.binary_search_by(|n| n.element.cmp(&name)) else { return true };
                let node = nodes[found];
                if !node.member && !node.below.is_empty() {
                    below(schema, item, node.below, shape.element());
                }
                !node.member
            });
        }
        // Part of a value that is atomic now: removed as a whole.
        (MergeShape::Leaf, value @ Value::Object(_)) => *value = Value::object(),
        (MergeShape::Leaf, value @ Value::Array(_)) => *value = Value::Array(Vec::new()),
        _ => {}
    }
}

/// The set with every declared field on the way to one of its paths as a member, too.
pub(super) fn with_named_fields(schema: &Schema, root: TypeId, set: &Set) -> Set {
    fn walk(schema: &Schema, view: View<'_>, of: Ref<'_>, out: &mut Builder) {
        let shape = of.shape(schema);
        for node in view.nodes() {
            out.enter(node.element.clone());
            let (of, declared) = match node.element {
                PathElement::Field(name) => {
                    let (of, field) = shape.member(name);
                    (of, field.is_some())
                }
                _ => (shape.element(), false),
            };
            if node.member || (declared && !node.below.is_empty()) {
                out.add();
            }
            walk(schema, node.below, of, out);
            out.leave();
        }
    }
    let mut out = Builder::default();
    walk(schema, set.view(), Ref::root(root), &mut out);
    out.finish()
}

/// Adapts fields to a changed schema: the owner of a part of a value that is atomic now owns the whole.
/// `None` when they fit already.
pub(super) fn reconcile(schema: &Schema, root: TypeId, fields: &Fields) -> Option<Set> {
    let fits = match fields {
        Fields::Encoded(fields) => fields_v1::fits(fields, schema, root),
        Fields::Set(set) => set_fits(schema, set.view(), Ref::root(root)),
    };
    if fits {
        return None;
    }
    let mut out = Builder::default();
    fit(schema, fields.set().view(), Ref::root(root), &mut out);
    Some(out.finish())
}

fn field_name(element: &PathElement) -> Option<&str> {
    match element {
        PathElement::Field(name) => Some(name),
        _ => None,
    }
}

fn set_fits(schema: &Schema, view: View<'_>, of: Ref<'_>) -> bool {
    let shape = of.shape(schema);
    view.nodes().filter(|n| !n.below.is_empty()).all(|n| match shape.step(field_name(n.element)) {
        Some(of) => !of.is_atomic(schema) && set_fits(schema, n.below, of),
        None => true,
    })
}

fn fit(schema: &Schema, view: View<'_>, of: Ref<'_>, out: &mut Builder) {
    let shape = of.shape(schema);
    for node in view.nodes() {
        match shape.step(field_name(node.element)) {
            Some(of) if !node.below.is_empty() => {
                out.enter(node.element.clone());
                let atomic = of.is_atomic(schema);
                if node.member || atomic {
                    out.add();
                }
                if !atomic {
                    fit(schema, node.below, of, out);
                }
                out.leave();
            }
            _ => out.copy(node),
        }
    }
}
