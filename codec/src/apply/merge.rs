//! Merging an applied configuration into the live object.

use super::path::{same, PathElement};
use super::typed::{self, MergeShape, Ref};
use super::MAX_DEPTH;
use crate::schema::{Schema, TypeId};
use crate::value::{Map, Value};

/// Merges a configuration into an object: fields that it sets win, fields that it omits are kept.
/// `O(n log n)`.
pub fn merge(schema: &Schema, root: TypeId, live: &mut Value, applied: &Value) {
    Walk { schema }.merge(live, applied, Ref::root(root), 0);
}

/// Whether [`merge`] would leave the object unchanged. May return `false` where the check would be too
/// expensive. Allocates nothing; linear for lists in the order of the live ones.
pub fn is_merged(schema: &Schema, root: TypeId, live: &Value, applied: &Value) -> bool {
    Walk { schema }.covers(live, applied, Ref::root(root), 0)
}

/// Down to this level whole members are compared before they are walked.
const LOOK_AHEAD: usize = 6;

/// Lists longer than this are merged and compared rather than checked for duplicates pairwise.
const MAX_PAIRWISE: usize = 64;

struct Walk<'s> {
    schema: &'s Schema,
}

impl<'s> Walk<'s> {
    fn shape(&self, of: Ref<'s>, depth: usize) -> MergeShape<'s> {
        if depth < MAX_DEPTH {
            of.shape(self.schema)
        } else {
            MergeShape::Leaf
        }
    }

    fn merge(&self, live: &mut Value, applied: &Value, of: Ref<'s>, depth: usize) {
        let shape = self.shape(of, depth);
        match (shape, &mut *live, applied) {
            (
                MergeShape::Struct(_) | MergeShape::Map(_) | MergeShape::Deduced,
                Value::Object(old),
                Value::Object(new),
            ) if !old.is_empty() => {
                self.members(old, new, shape, depth);
            }
            (MergeShape::Set | MergeShape::Keyed(..), Value::Array(old), Value::Array(new))
                if !old.is_empty() =>
            {
                if !new.is_empty() {
                    *old = self.elements(std::mem::take(old), new, shape, depth);
                }
            }
            // A null for a granular value removes nothing of it.
            (
                MergeShape::Struct(_) | MergeShape::Map(_) | MergeShape::Deduced,
                Value::Object(old),
                Value::Null,
            ) if !old.is_empty() => {}
            (MergeShape::Set | MergeShape::Keyed(..), Value::Array(old), Value::Null) if !old.is_empty() => {}
            (_, live, applied) => *live = applied.clone(),
        }
    }

    fn members(&self, old: &mut Map, new: &Map, shape: MergeShape<'s>, depth: usize) {
        let mut added = Vec::new();
        for (key, value) in new.iter() {
            match old.get_mut(key) {
                Some(live) => self.merge(live, value, shape.member(key).0, depth + 1),
                None => added.push((key.clone(), value.clone())),
            }
        }
        if !added.is_empty() {
            *old = std::mem::take(old).into_iter().chain(added).collect();
        }
    }

    /// The order of structured-merge-diff: the applied order among elements of the configuration, the live
    /// order among the rest, and elements of the rest before the next shared element that they preceded.
    fn elements(&self, old: Vec<Value>, new: &[Value], shape: MergeShape<'s>, depth: usize) -> Vec<Value> {
        let NumberedNames { old: old_names, new: new_names, count } = number(self.schema, shape, &old, new);
        // By name: its position in each list, and its count in the old one.
        let mut in_new: Vec<Option<usize>> = vec![None; count];
        for (i, name) in new_names.iter().enumerate() {
            if let Some(name) = name {
                in_new[*name].get_or_insert(i);
            }
        }
        let mut old_counts = vec![0usize; count];
        old_names.iter().flatten().for_each(|name| old_counts[*name] += 1);

        // Shared elements in applied order: the next one determines whether a live element is out of order.
        let mut shared = new_names.iter().flatten().filter(|name| old_counts[**name] > 0).copied().peekable();
        let mut merged_names = vec![false; count];
        // Shared live elements, set aside until their position in the configuration. Duplicates are dropped,
        // not merged.
        let mut set_aside: Vec<Option<Value>> = vec![None; count];
        let mut slots: Vec<Option<Value>> = Vec::with_capacity(old.len());
        for (name, item) in old_names.iter().zip(old) {
            match name {
                Some(name) if in_new[*name].is_some() => {
                    if old_counts[*name] == 1 {
                        set_aside[*name] = Some(item);
                    }
                    slots.push(None);
                }
                _ => slots.push(Some(item)),
            }
        }

        let mut out = Vec::with_capacity(slots.len().max(new.len()));
        let (mut l, mut r) = (0, 0);
        while l < slots.len() || r < new.len() {
            if l < slots.len() {
                if let Some(only_live) = slots[l].take() {
                    out.push(only_live);
                    l += 1;
                    continue;
                }
                let name = old_names[l];
                let here = r < new.len() && name == new_names[r];
                if !here {
                    let out_of_turn = r < new.len() && shared.peek().is_some_and(|next| Some(*next) != name);
                    if out_of_turn {
                        l += 1;
                        continue;
                    }
                    if name.is_some_and(|name| merged_names[name]) {
                        l += 1;
                    } else if r >= new.len() {
                        // All shared elements have been merged at the end of the configuration.
                        l += 1;
                        continue;
                    }
                } else {
                    l += 1;
                }
            }
            if r < new.len() {
                let name = new_names[r];
                let live = name.and_then(|name| set_aside[name].take());
                if let Some(name) = name {
                    merged_names[name] = true;
                    shared.next_if_eq(&name);
                }
                out.push(match live {
                    Some(mut live) => {
                        self.merge(&mut live, &new[r], shape.element(), depth + 1);
                        live
                    }
                    None => new[r].clone(),
                });
                r += 1;
            }
        }
        out
    }

    fn covers(&self, live: &Value, applied: &Value, of: Ref<'s>, depth: usize) -> bool {
        let shape = self.shape(of, depth);
        match (shape, live, applied) {
            (
                MergeShape::Struct(_) | MergeShape::Map(_) | MergeShape::Deduced,
                Value::Object(old),
                Value::Object(new),
            ) => {
                new.iter().all(|(key, value)| match old.get(key) {
                    // Without consulting the schema.
                    Some(live) if depth < LOOK_AHEAD && live == value && !live.is_null() => true,
                    Some(live) => self.covers(live, value, shape.member(key).0, depth + 1),
                    None => false,
                })
            }
            (MergeShape::Set | MergeShape::Keyed(..), Value::Array(old), Value::Array(new)) => {
                self.covers_list(old, new, shape, depth)
            }
            (
                MergeShape::Struct(_) | MergeShape::Map(_) | MergeShape::Deduced,
                Value::Object(old),
                Value::Null,
            ) => !old.is_empty(),
            (MergeShape::Set | MergeShape::Keyed(..), Value::Array(old), Value::Null) => !old.is_empty(),
            _ => same(live, applied),
        }
    }

    /// Whether the applied elements exist, in the same order, each once.
    fn covers_list(&self, old: &[Value], new: &[Value], shape: MergeShape<'s>, depth: usize) -> bool {
        if old.len() > MAX_PAIRWISE {
            return false;
        }
        let mut from = 0;
        new.iter().all(|applied| {
            let mut twins = old.iter().enumerate().filter(|(_, live)| self.is_twin(live, applied, shape));
            let (Some((at, live)), None) = (twins.next(), twins.next()) else { return false };
            let in_order = at >= from;
            from = at + 1;
            in_order && self.covers(live, applied, shape.element(), depth + 1)
        })
    }

    /// Whether two elements have one name.
    fn is_twin(&self, a: &Value, b: &Value, shape: MergeShape<'s>) -> bool {
        match shape {
            MergeShape::Keyed(keys, element) => {
                let mut has_name = false;
                let equal = keys.iter().all(|key| {
                    let default = typed::key_default(self.schema, element, key);
                    match (a.get(key).or(default), b.get(key).or(default)) {
                        (Some(a), Some(b)) => {
                            has_name = true;
                            same(a, b)
                        }
                        (None, None) => true,
                        _ => false,
                    }
                });
                equal && has_name
            }
            _ => same(a, b),
        }
    }
}

/// The names of two lists' elements as numbers below `count`, equal for equal names; `None` for elements
/// without a name.
struct NumberedNames {
    old: Vec<Option<usize>>,
    new: Vec<Option<usize>>,
    count: usize,
}

fn number(schema: &Schema, shape: MergeShape<'_>, old: &[Value], new: &[Value]) -> NumberedNames {
    let items = old.iter().chain(new).enumerate();
    let mut names: Vec<(PathElement, usize)> =
        items.filter_map(|(i, item)| Some((typed::element_name(schema, shape, item).ok()?, i))).collect();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    let mut numbers = vec![None; old.len() + new.len()];
    let mut count = 0;
    for (i, (name, at)) in names.iter().enumerate() {
        if i > 0 && names[i - 1].0 != *name {
            count += 1;
        }
        numbers[*at] = Some(count);
    }
    let new_numbers = numbers.split_off(old.len());
    NumberedNames { old: numbers, new: new_numbers, count: count + 1 }
}
