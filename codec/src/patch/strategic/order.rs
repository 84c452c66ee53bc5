//! The order of merged lists: elements of the patch in its order, the rest in the server's, merged so that
//! existing elements keep their relative order.

use std::collections::{HashMap, HashSet};

use smol_str::SmolStr;

use super::super::{goprint, PatchError};
use super::directive::{bad_type, unmergeable, DIRECTIVE, SET_ORDER};
use crate::Value;

/// A scalar that identifies an element; equal as Go compares interface values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum ElementKey {
    Null,
    Bool(bool),
    Int(i64),
    /// The bits, zero without sign.
    Float(u64),
    String(SmolStr),
    /// An object or list, which is not a key; all of them compare equal.
    Compound,
}

pub(super) type KeySet = HashSet<ElementKey>;
/// The first position of each key in a list.
pub(super) type Positions = HashMap<ElementKey, usize>;

impl ElementKey {
    pub(super) fn of(v: &Value) -> ElementKey {
        match v {
            Value::Null => ElementKey::Null,
            Value::Bool(b) => ElementKey::Bool(*b),
            Value::Int(n) => ElementKey::Int(*n),
            Value::Float(n) => ElementKey::Float((n + 0.0).to_bits()),
            Value::String(s) => ElementKey::String(s.clone()),
            Value::Array(_) | Value::Object(_) | Value::Encoded(_) => ElementKey::Compound,
        }
    }
}

/// The merge key's value in an element.
pub(super) fn element_key(item: &Value, key: &str) -> Result<ElementKey, PatchError> {
    let map = item.as_object().ok_or_else(|| bad_type(goprint::MAP, item))?;
    match map.get(key) {
        Some(value) => Ok(ElementKey::of(value)),
        None => Err(unmergeable(format!(
            "map: {} does not contain declared merge key: {key}",
            goprint::value(item)
        ))),
    }
}

pub(super) fn require_keys(items: &[Value], key: &str) -> Result<(), PatchError> {
    items.iter().try_for_each(|item| element_key(item, key).map(drop))
}

fn first_positions(keys: impl Iterator<Item = ElementKey>) -> Positions {
    let mut positions = Positions::new();
    for (i, key) in keys.enumerate() {
        positions.entry(key).or_insert(i);
    }
    positions
}

/// The first position of each merge key; an error when an element has none.
pub(super) fn positions(items: &[Value], key: &str) -> Result<Positions, PatchError> {
    let keys = items.iter().map(|item| element_key(item, key)).collect::<Result<Vec<_>, _>>()?;
    Ok(first_positions(keys.into_iter()))
}

pub(super) fn scalar_positions(items: &[Value]) -> Positions {
    first_positions(items.iter().map(ElementKey::of))
}

/// A set of scalars: both lists, each value once.
pub(super) fn merge_scalars(live: Vec<Value>, patch: Vec<Value>) -> Vec<Value> {
    let server_order = scalar_positions(&live);
    let patch_order = scalar_positions(&patch);
    let mut seen = KeySet::new();
    let merged = live.into_iter().chain(patch).filter(|v| seen.insert(ElementKey::of(v))).collect();
    arrange_scalars(merged, &patch_order, &server_order)
}

/// Orders elements with a merge key: those in `given` by it, the others by `server`.
pub(super) fn arrange(
    items: Vec<Value>,
    key: &str,
    given: &Positions,
    server: &Positions,
) -> Result<Vec<Value>, PatchError> {
    let items = items
        .into_iter()
        .map(|item| Ok((element_key(&item, key)?, item)))
        .collect::<Result<Vec<_>, PatchError>>()?;
    Ok(weave(items, given, server))
}

/// Orders scalars: those in `given` by it, the others by `server`.
pub(super) fn arrange_scalars(items: Vec<Value>, given: &Positions, server: &Positions) -> Vec<Value> {
    weave(items.into_iter().map(|v| (ElementKey::of(&v), v)).collect(), given, server)
}

/// Merges the two sorted parts as upstream does: an element of the server precedes only when the server had
/// both, and had it first.
fn weave(items: Vec<(ElementKey, Value)>, given: &Positions, server: &Positions) -> Vec<Value> {
    let size = items.len();
    let (mut named, mut others): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|(k, _)| given.contains_key(k));
    let rank = |order: &Positions, (key, item): &(ElementKey, Value)| match item.get(DIRECTIVE) {
        // Elements still marked for deletion come last.
        Some(directive) if directive.as_str() == Some("delete") => (true, 0),
        _ => (false, order.get(key).copied().unwrap_or(usize::MAX)),
    };
    named.sort_by_key(|item| rank(given, item));
    others.sort_by_key(|item| rank(server, item));

    let mut merged = Vec::with_capacity(size);
    let mut others = others.into_iter().peekable();
    for item in named {
        if let Some(at) = server.get(&item.0) {
            while let Some((_, other)) = others.next_if(|(k, _)| server.get(k).is_some_and(|i| i < at)) {
                merged.push(other);
            }
        }
        merged.push(item.1);
    }
    merged.extend(others.map(|(_, item)| item));
    merged
}

/// The list of a patch and its `$setElementOrder` must agree: every element is named there, in the same
/// order.
pub(super) fn check_patch_against_order(
    patch: &[Value],
    order: &[Value],
    key: Option<&str>,
) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let key_of = |item: &Value| match key {
        Some(key) => element_key(item, key),
        None => Ok(ElementKey::of(item)),
    };
    let mut order_left = order.iter();
    for item in patch {
        if item.get(DIRECTIVE).is_some() {
            continue;
        }
        let wanted = key_of(item)?;
        loop {
            let Some(next) = order_left.next() else {
                return Err(unmergeable(format!(
                    "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
                    goprint::list(patch),
                    goprint::list(order)
                )));
            };
            if key_of(next)? == wanted {
                break;
            }
        }
    }
    Ok(())
}
