//! The differences between two objects of one type, as sets of paths.

use std::cmp::Ordering;

use super::path::{same, PathElement};
use super::set::{Rows, Set};
use super::typed::{self, MergeShape, Ref};
use super::MAX_DEPTH;
use crate::schema::{Schema, TypeId};
use crate::value::{Map, Value};

/// The differences from one object to another; no path is in two of the sets unless duplicates of a list
/// element were added or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// In the new object only.
    pub added: Set,
    /// In both, with other values.
    pub modified: Set,
    /// In the old object only.
    pub removed: Set,
}

impl Comparison {
    /// Whether the objects are the same.
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Applies a function to each of the sets.
    pub(super) fn map(self, f: impl Fn(Set) -> Set) -> Comparison {
        Comparison { added: f(self.added), modified: f(self.modified), removed: f(self.removed) }
    }
}

/// Compares two objects. `metadata.managedFields` is ignored. `O(n log n)`.
pub fn compare(schema: &Schema, root: TypeId, old: &Value, new: &Value) -> Comparison {
    let mut walk = Walk {
        schema,
        path: Vec::with_capacity(16),
        added: Rows::default(),
        modified: Rows::default(),
        removed: Rows::default(),
    };
    walk.values(Some(old), Some(new), Ref::root(root));
    Comparison {
        added: walk.added.finish(),
        modified: walk.modified.finish(),
        removed: walk.removed.finish(),
    }
}

/// Down to this level whole members are compared before they are walked: unchanged members then cost little,
/// and changed ones are compared at most this many times.
const LOOK_AHEAD: usize = 6;

struct Walk<'s> {
    schema: &'s Schema,
    path: Vec<PathElement>,
    added: Rows,
    modified: Rows,
    removed: Rows,
}

impl<'s> Walk<'s> {
    fn values(&mut self, old: Option<&Value>, new: Option<&Value>, of: Ref<'s>) {
        let shape = if self.path.len() < MAX_DEPTH { of.shape(self.schema) } else { MergeShape::Leaf };
        // Empty against empty is a leaf, which keeps `{}` and `null` apart.
        if matches!(shape, MergeShape::Leaf) || (typed::is_void(old) && typed::is_void(new)) {
            return self.leaf(old, new);
        }
        match shape {
            MergeShape::Struct(_) | MergeShape::Map(_) | MergeShape::Deduced => {
                let is_part =
                    |v: Option<&Value>| v.is_none_or(|v| matches!(v, Value::Object(_) | Value::Null));
                if !is_part(old) || !is_part(new) {
                    self.leaf(old, new);
                    // Only a part without schema can change from an object to another type, or not be an
                    // object.
                    if old.is_none() || new.is_none() {
                        return;
                    }
                }
                self.members(typed::members(old), typed::members(new), shape);
            }
            _ => {
                let is_list =
                    |v: Option<&Value>| v.is_none_or(|v| matches!(v, Value::Array(_) | Value::Null));
                if !is_list(old) || !is_list(new) {
                    return self.leaf(old, new);
                }
                self.elements(old, new, shape);
            }
        }
        match (old, new) {
            (None, _) => self.added.add(&self.path),
            (_, None) => self.removed.add(&self.path),
            _ => {}
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, Some(_)) => self.added.add(&self.path),
            (Some(_), None) => self.removed.add(&self.path),
            (Some(old), Some(new)) if !same(old, new) => self.modified.add(&self.path),
            _ => {}
        }
    }

    fn enter(&mut self, element: PathElement) {
        self.path.push(element);
    }

    fn leave(&mut self) {
        self.path.pop();
        let depth = self.path.len();
        self.added.leave(depth);
        self.modified.leave(depth);
        self.removed.leave(depth);
    }

    fn members(&mut self, old: Option<&Map>, new: Option<&Map>, shape: MergeShape<'s>) {
        let in_metadata = matches!(self.path.as_slice(), [PathElement::Field(name)] if name == "metadata");
        let mut olds = old.into_iter().flat_map(Map::iter).peekable();
        let mut news = new.into_iter().flat_map(Map::iter).peekable();
        loop {
            let order = match (olds.peek(), news.peek()) {
                (None, None) => return,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((a, _)), Some((b, _))) => a.cmp(b),
            };
            let before = if order.is_le() { olds.next() } else { None };
            let after = if order.is_ge() { news.next() } else { None };
            let Some((key, _)) = before.or(after) else { return };
            if in_metadata && key == "managedFields" {
                continue;
            }
            let (before, after) = (before.map(|(_, v)| v), after.map(|(_, v)| v));
            // Most members of most objects did not change.
            if let (Some(a), Some(b)) = (before, after) {
                let is_scalar = !matches!(a, Value::Object(_) | Value::Array(_));
                if (is_scalar || self.path.len() < LOOK_AHEAD) && a == b {
                    continue;
                }
            }
            let (of, _) = shape.member(key);
            self.enter(PathElement::Field(key.clone()));
            self.values(before, after, of);
            self.leave();
        }
    }

    fn elements(&mut self, old: Option<&Value>, new: Option<&Value>, shape: MergeShape<'s>) {
        let (olds, news) = (typed::named(self.schema, shape, old), typed::named(self.schema, shape, new));
        let (mut olds, mut news) = (olds.as_slice(), news.as_slice());
        loop {
            let order = match (olds.first(), news.first()) {
                (None, None) => return,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((a, _)), Some((b, _))) => a.cmp(b),
            };
            let (mut before, mut after) = (&olds[..0], &news[..0]);
            if order.is_le() {
                (before, olds) = typed::run(olds);
            }
            if order.is_ge() {
                (after, news) = typed::run(news);
            }
            let Some((name, _)) = before.first().or(after.first()) else { return };
            self.enter(name.clone());
            self.element(before, after, shape.element());
            self.leave();
        }
    }

    /// The elements of one name on both sides. Several of one name are compared as one value.
    fn element(&mut self, old: &[(PathElement, &Value)], new: &[(PathElement, &Value)], of: Ref<'s>) {
        match (old, new) {
            ([_, _, ..], [_, _, ..]) => {
                let equal = old.len() == new.len() && old.iter().zip(new).all(|((_, a), (_, b))| same(a, b));
                if !equal {
                    self.modified.add(&self.path);
                }
            }
            ([_, _, ..], _) => {
                if let Some((_, new)) = new.first() {
                    self.values(None, Some(new), of);
                }
                self.removed.add(&self.path);
            }
            (_, [_, _, ..]) => {
                if let Some((_, old)) = old.first() {
                    self.values(Some(old), None, of);
                }
                self.added.add(&self.path);
            }
            _ => self.values(old.first().map(|(_, v)| *v), new.first().map(|(_, v)| *v), of),
        }
    }
}
