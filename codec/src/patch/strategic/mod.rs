//! Strategic merge patch: a merge patch that uses the types, so that lists can be merged by key.
//!
//! The semantics of upstream's `strategicpatch.StrategicMergeMapPatch`, by the patch tags of the schema:
//!
//! | in the patch | effect |
//! |---|---|
//! | `$patch: replace` in an object | the object becomes the rest of the patch's |
//! | `$patch: delete` in an object | the object becomes empty; one that was absent stays so |
//! | `$patch: delete` in an element of a merged list | the elements with its merge key go |
//! | `$patch: replace` as an element of a merged list | the list becomes the rest of the patch's |
//! | `$retainKeys: [..]` | other members of the object go |
//! | `$setElementOrder/f: [..]` | the elements of list `f` named there come in that order |
//! | `$deleteFromPrimitiveList/f: [..]` | these scalars leave list `f` |
//!
//! Merged lists keep the server's order among elements that the patch does not name and the patch's order
//! among those that it names; new elements come first unless `$setElementOrder` gives their places.
//!
//! `order` has the ordering of lists, `restore` upstream's errors for values of wrong types in the result,
//! this file the merge.

mod directive;
mod order;
mod restore;

pub use restore::restore;

use smol_str::SmolStr;

use super::merge::drop_nulls;
use super::{goprint, PatchError};
use crate::schema::{PatchStrategy, Schema, Type, TypeId};
use crate::value::{Map, Value};
use directive::{bad_type, unmergeable, DIRECTIVE, SET_ORDER};
use order::{ElementKey, KeySet};

const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";

/// Levels at which both object and patch have an object or list. Only recursive types (JSONSchemaProps)
/// exceed thirty.
const MAX_DEPTH: usize = 256;

/// Merges a strategic merge patch into an object of type `root`.
///
/// `target` is the object in the version that `root` describes. The result still has to be decoded against
/// the schema: members of wrong types and unknown members of the patch are copied. Costs `O(n log n)` in the
/// sizes of both, whatever the lists hold.
///
/// # Errors
/// 400 when the patch is neither an object nor `null` or a directive is malformed; 500, as upstream, when it
/// does not fit the object: a missing merge key, an unknown directive, an element of another type; 422 for
/// lists of lists.
pub fn strategic_merge(
    target: Value,
    patch: Value,
    schema: &Schema,
    root: TypeId,
) -> Result<Value, PatchError> {
    let patch = match patch {
        Value::Object(patch) => patch,
        Value::Null => Map::new(),
        other => {
            return Err(PatchError::Malformed(format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                other.type_name()
            )));
        }
    };
    let mut target = match target {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    Merge { schema }.object(&mut target, patch, root, 0)?;
    Ok(target.into())
}

fn malformed(text: &str) -> PatchError {
    PatchError::Malformed(text.into())
}

fn bad_order() -> PatchError {
    malformed("invalid patch format of setElementOrder list")
}

fn unknown_directive(directive: &Value, holder: &Map) -> PatchError {
    let holder = goprint::value(&Value::Object(holder.clone()));
    unmergeable(format!("unknown patch type: {} in map: {holder}", goprint::text(directive)))
}

struct Merge<'s> {
    schema: &'s Schema,
}

/// A member's type and patch strategy.
struct Member<'s> {
    type_id: TypeId,
    strategy: Option<&'s PatchStrategy>,
}

impl<'s> Member<'s> {
    fn merges(&self) -> bool {
        self.strategy.is_some_and(|s| s.merge)
    }

    fn replaces(&self) -> bool {
        self.strategy.is_some_and(|s| s.replace)
    }

    fn merge_key(&self) -> Option<&'s str> {
        self.strategy.and_then(|s| s.merge_key.as_deref())
    }
}

impl<'s> Merge<'s> {
    fn object(
        &self,
        target: &mut Map,
        mut patch: Map,
        type_id: TypeId,
        depth: usize,
    ) -> Result<(), PatchError> {
        if depth > MAX_DEPTH {
            return Err(malformed("exceeded max depth"));
        }
        if let Some(directive) = patch.remove(DIRECTIVE) {
            *target = match directive.as_str() {
                Some("replace") => patch,
                Some("delete") => Map::new(),
                _ => {
                    patch.insert(DIRECTIVE, directive.clone());
                    return Err(unknown_directive(&directive, &patch));
                }
            };
            return Ok(());
        }
        if let Some(keys) = patch.remove(RETAIN_KEYS) {
            retain_keys(target, &patch, keys)?;
        }
        // New members, collected so that a wide patch costs no more than its size.
        let mut added = Vec::new();
        let (patch, ordered) = self.split_ordered(patch)?;
        for (name, list) in ordered {
            if let Some(merged) = self.ordered_list(target.get_mut(&name), list, &name, type_id, depth)? {
                match target.get_mut(&name) {
                    Some(live) => *live = merged,
                    None => added.push((name, merged)),
                }
            }
        }
        let mut removed = Vec::new();
        for (key, value) in patch {
            let (name, is_deletion) = match key.strip_prefix(DELETE_FROM_LIST) {
                None => (key.as_str(), false),
                Some(rest) => {
                    let name = rest.strip_prefix('/');
                    (name.ok_or_else(|| malformed("invalid patch format of primitive list"))?, true)
                }
            };
            match (target.get_mut(name), value) {
                (live, Value::Null) => {
                    if let Some(live) = live {
                        *live = Value::Null;
                        removed.push(name.to_owned());
                    }
                }
                (Some(live), value) => {
                    if !self.member(live, value, name, is_deletion, type_id, depth)? {
                        removed.push(name.to_owned());
                    }
                }
                (None, _) if is_deletion => {}
                (None, value) => added.extend(cleaned(value, true).map(|value| (name.into(), value))),
            }
        }
        if !removed.is_empty() {
            removed.sort_unstable();
            target.retain(|k, _| removed.binary_search_by(|r| r.as_str().cmp(k)).is_err());
        }
        if !added.is_empty() {
            *target = std::mem::take(target).into_iter().chain(added).collect();
        }
        Ok(())
    }

    /// Merges a member that both have. Returns `false` if it is to be removed.
    fn member(
        &self,
        live: &mut Value,
        value: Value,
        name: &str,
        is_deletion: bool,
        type_id: TypeId,
        depth: usize,
    ) -> Result<bool, PatchError> {
        match (&mut *live, value) {
            (Value::Object(live), Value::Object(value)) => {
                let member = self.lookup(type_id, name)?;
                if member.replaces() {
                    *live = value;
                } else {
                    self.object(live, value, member.type_id, depth + 1)?;
                }
            }
            (Value::Array(live), Value::Array(value)) => {
                let member = self.lookup_list(type_id, name)?;
                self.list(live, value, &member, is_deletion, depth)?;
            }
            _ if is_deletion => {}
            (_, value) => match cleaned(value, true) {
                Some(value) => *live = value,
                None => return Ok(false),
            },
        }
        Ok(true)
    }

    /// The member of that name in a type, as upstream looks it up in Go's types. Upstream refuses patches of
    /// map values; here they have their type and no strategy.
    fn lookup(&self, type_id: TypeId, name: &str) -> Result<Member<'s>, PatchError> {
        match self.schema.get(type_id) {
            Type::Struct(s) => match s.field(name) {
                Some(field) => Ok(Member { type_id: field.type_id, strategy: Some(&field.patch) }),
                None => {
                    let short = s.name.rsplit('.').next().unwrap_or_default();
                    Err(unmergeable(format!(
                        "unable to find api field in struct {short} for the json field \"{name}\""
                    )))
                }
            },
            Type::Map { value, .. } => Ok(Member { type_id: *value, strategy: None }),
            Type::List { .. } => {
                Err(unmergeable("merging an object in json but data type is not struct, instead is: slice"))
            }
            Type::Scalar(_) => {
                Err(unmergeable(format!("unable to find api field for the json field \"{name}\"")))
            }
        }
    }

    /// As [`Merge::lookup`], for a list: the type is that of the elements.
    fn lookup_list(&self, type_id: TypeId, name: &str) -> Result<Member<'s>, PatchError> {
        let member = self.lookup(type_id, name)?;
        match self.schema.get(member.type_id) {
            Type::List { element, .. } => match self.schema.get(*element) {
                Type::List { .. } => Err(unmergeable("unexpected slice of slice")),
                _ => Ok(Member { type_id: *element, ..member }),
            },
            _ => Err(unmergeable("expected slice or array type, but got: struct")),
        }
    }

    fn list(
        &self,
        live: &mut Vec<Value>,
        patch: Vec<Value>,
        member: &Member<'s>,
        is_deletion: bool,
        depth: usize,
    ) -> Result<(), PatchError> {
        if !member.merges() && !is_deletion {
            *live = patch;
            return Ok(());
        }
        if live.is_empty() && patch.is_empty() {
            return Ok(());
        }
        if !elements_are_objects(live, &patch)? {
            if is_deletion {
                let gone: KeySet = patch.iter().map(ElementKey::of).collect();
                live.retain(|v| !gone.contains(&ElementKey::of(v)));
            } else {
                *live = order::merge_scalars(std::mem::take(live), patch);
            }
            return Ok(());
        }
        let key = member
            .merge_key()
            .ok_or_else(|| unmergeable("cannot merge lists without merge key for struct"))?;
        let (replace, patch) = list_directives(live, patch, key)?;
        if replace {
            *live = patch;
            order::require_keys(live, key)?;
            return Ok(());
        }
        self.keyed_list(live, patch, key, member.type_id, depth)
    }

    /// Merges elements by key; new ones come before those that the patch does not name.
    fn keyed_list(
        &self,
        live: &mut Vec<Value>,
        patch: Vec<Value>,
        key: &str,
        element: TypeId,
        depth: usize,
    ) -> Result<(), PatchError> {
        let server_order = order::positions(live, key)?;
        let patch_order = order::positions(&patch, key)?;
        let mut place = server_order.clone();
        for item in patch {
            let id = order::element_key(&item, key)?;
            match place.get(&id).and_then(|&i| live.get_mut(i)) {
                Some(Value::Object(live)) => {
                    if let Value::Object(item) = item {
                        self.object(live, item, element, depth + 1)?;
                    }
                }
                _ => {
                    place.insert(id, live.len());
                    live.push(item);
                }
            }
        }
        *live = order::arrange(std::mem::take(live), key, &patch_order, &server_order)?;
        Ok(())
    }

    /// Removes the `$setElementOrder` members and the lists that they order from a patch.
    fn split_ordered(&self, patch: Map) -> Result<(Map, Vec<(SmolStr, OrderedList)>), PatchError> {
        if !patch.keys().any(|k| k.starts_with(SET_ORDER)) {
            return Ok((patch, Vec::new()));
        }
        let mut rest = Vec::with_capacity(patch.len());
        let mut ordered: Vec<(SmolStr, OrderedList)> = Vec::new();
        for (key, value) in patch {
            // Directives sort before every field, so that each order is known before its list.
            if let Some(name) = key.strip_prefix(SET_ORDER) {
                let Value::Array(order) = value else { return Err(bad_type(goprint::LIST, &value)) };
                let name = name.strip_prefix('/').ok_or_else(bad_order)?;
                ordered.push((name.into(), OrderedList { order, patch: None }));
            } else if let Ok(i) = ordered.binary_search_by(|(name, _)| name.cmp(&key)) {
                let Value::Array(list) = value else { return Err(bad_type(goprint::LIST, &value)) };
                ordered[i].1.patch = Some(list);
            } else {
                rest.push((key, value));
            }
        }
        Ok((Map::from_members(rest).0, ordered))
    }

    /// Merges a list whose order the patch gives. `None` if neither side has the list.
    fn ordered_list(
        &self,
        live: Option<&mut Value>,
        given: OrderedList,
        name: &str,
        type_id: TypeId,
        depth: usize,
    ) -> Result<Option<Value>, PatchError> {
        let live = match live {
            None => None,
            Some(Value::Array(list)) => Some(std::mem::take(list)),
            Some(other) => return Err(bad_type(goprint::LIST, other)),
        };
        let member = self.lookup_list(type_id, name)?;
        let key = member.merge_key();
        let OrderedList { order, patch } = given;
        order::check_patch_against_order(patch.as_deref().unwrap_or_default(), &order, key)?;
        let objects = match (&live, &patch) {
            (None, None) => return Ok(None),
            (live, patch) => {
                let (live, patch) =
                    (live.as_deref().unwrap_or_default(), patch.as_deref().unwrap_or_default());
                if live.is_empty() && patch.is_empty() {
                    return Err(unmergeable("no elements in any of the given slices"));
                }
                elements_are_objects(live, patch)?
            }
        };
        // Upstream takes the server's order from the list before the patch.
        let server_order = match &live {
            None => Default::default(),
            Some(live) if objects => order::positions(live, key.unwrap_or_default())?,
            Some(live) => order::scalar_positions(live),
        };
        let merged = match (live, patch) {
            (Some(mut live), Some(patch)) => {
                self.list(&mut live, patch, &member, false, depth)?;
                live
            }
            (Some(live), None) => live,
            (None, patch) => match cleaned(Value::Array(patch.unwrap_or_default()), false) {
                Some(Value::Array(list)) => list,
                _ => Vec::new(),
            },
        };
        let merged = match key {
            Some(key) => order::arrange(merged, key, &order::positions(&order, key)?, &server_order)?,
            None if objects => {
                return Err(unmergeable("cannot merge lists without merge key for struct"));
            }
            None => order::arrange_scalars(merged, &order::scalar_positions(&order), &server_order),
        };
        Ok(Some(Value::Array(merged)))
    }
}

/// A list of the patch with its `$setElementOrder`.
struct OrderedList {
    order: Vec<Value>,
    patch: Option<Vec<Value>>,
}

/// Clears the members that `$retainKeys` does not name; the patch may only set what it names.
fn retain_keys(target: &mut Map, patch: &Map, keys: Value) -> Result<(), PatchError> {
    let bad = || malformed("invalid patch format of retainKeys");
    let keys: KeySet = keys.as_array().ok_or_else(bad)?.iter().map(ElementKey::of).collect();
    let named = |k: &SmolStr| keys.contains(&ElementKey::String(k.clone()));
    let exempt =
        |k: &str, v: &Value| v.is_null() || k.starts_with(DELETE_FROM_LIST) || k.starts_with(SET_ORDER);
    if patch.iter().any(|(k, v)| !exempt(k, v) && !named(k)) {
        return Err(bad());
    }
    target.retain(|k, _| named(k));
    Ok(())
}

/// Processes the elements that are directives: deletions are applied, the rest of the patch is returned with
/// whether it replaces the list.
fn list_directives(
    live: &mut Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(bool, Vec<Value>), PatchError> {
    let mut replace = false;
    let mut gone = KeySet::new();
    let mut rest = Vec::with_capacity(patch.len());
    for item in patch {
        let Some(map) = item.as_object() else { continue };
        match map.get(DIRECTIVE).map(|d| (d, d.as_str())) {
            None => rest.push(item),
            Some((_, Some("delete"))) => {
                gone.insert(order::element_key(&item, key)?);
            }
            Some((_, Some("replace"))) => replace = true,
            Some((_, Some("merge"))) => {
                return Err(unmergeable("merging lists cannot yet be specified in the patch"));
            }
            Some((directive, _)) => return Err(unknown_directive(directive, map)),
        }
    }
    if !gone.is_empty() {
        live.retain(|v| v.get(key).is_none_or(|k| !gone.contains(&ElementKey::of(k))));
    }
    Ok((replace, rest))
}

/// Whether the elements of both lists are objects; they must be of one type, and not lists.
fn elements_are_objects(live: &[Value], patch: &[Value]) -> Result<bool, PatchError> {
    let mut all = live.iter().chain(patch);
    let Some(first) = all.next() else { return Ok(false) };
    if matches!(first, Value::Array(_)) {
        return Err(PatchError::NotApplicable("lists of lists are not supported".into()));
    }
    let kind = std::mem::discriminant(first);
    if first.is_null() || all.any(|v| std::mem::discriminant(v) != kind) {
        return Err(unmergeable(format!(
            "list element types are not identical: [{} {}]",
            goprint::list(live),
            goprint::list(patch)
        )));
    }
    Ok(matches!(first, Value::Object(_)))
}

/// A part of the patch without a counterpart in the object: without directive objects and, if `nulls`,
/// without `null` members. `None` when it is a directive itself.
fn cleaned(mut value: Value, nulls: bool) -> Option<Value> {
    let is_directive = |v: &Value| v.as_object().is_some_and(|m| m.contains(DIRECTIVE));
    if nulls {
        drop_nulls(&mut value);
    }
    if is_directive(&value) {
        return None;
    }
    let mut work = vec![&mut value];
    while let Some(v) = work.pop() {
        match v {
            Value::Object(map) => {
                map.retain(|_, v| !is_directive(v));
                work.extend(map.iter_mut().map(|(_, v)| v));
            }
            Value::Array(items) => {
                items.retain(|v| !is_directive(v));
                work.extend(items);
            }
            _ => {}
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests;
