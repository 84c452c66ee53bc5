//! JSON Merge Patch (RFC 7386) as evanphx/json-patch applies it.

use super::PatchError;
use crate::value::{Map, Value};

/// Merges a patch into an object: members of the patch win, `null` removes, objects are merged, everything
/// else replaces.
///
/// Where the RFC is silent it follows upstream: `null` members are dropped from objects that are new in
/// `target`, inside lists too, but stay in lists that replace an object. `O(n log n)`, no recursion.
///
/// # Errors
/// 400 when the patch is neither an object nor a list; a list replaces the object.
pub fn merge_patch(mut target: Value, patch: Value) -> Result<Value, PatchError> {
    let patch = match patch {
        Value::Object(patch) => patch,
        mut list @ Value::Array(_) => {
            drop_nulls(&mut list);
            return Ok(list);
        }
        _ => return Err(PatchError::Malformed("Invalid JSON Patch".into())),
    };
    if !matches!(target, Value::Object(_)) {
        target = Value::object();
    }
    let mut work = Vec::new();
    if let Value::Object(map) = &mut target {
        work.push((map, patch));
    }
    while let Some((map, patch)) = work.pop() {
        // Members first, then the pairs of objects below them, so that the work list borrows disjoint parts.
        let mut below = merge_members(map, patch).into_iter().peekable();
        for (i, (_, value)) in map.iter_mut().enumerate() {
            if let (Value::Object(inner), Some((_, inner_patch))) = (value, below.next_if(|(at, _)| *at == i))
            {
                work.push((inner, inner_patch));
            }
        }
    }
    Ok(target)
}

/// Decodes a merge patch as upstream's server does before it applies it, unless field validation is off.
///
/// # Errors
/// 400 when it is neither an object nor `null`.
pub fn check_merge_patch(patch: &Value) -> Result<(), PatchError> {
    match patch.is_null() || patch.as_object().is_some() {
        true => Ok(()),
        false => Err(PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            patch.type_name()
        ))),
    }
}

/// Merges one level; returns the objects still to be merged, by the index of the member they belong to.
fn merge_members(map: &mut Map, patch: Map) -> Vec<(usize, Map)> {
    let mut below = Vec::new();
    let mut merged = Vec::with_capacity(map.len() + patch.len());
    let mut old = std::mem::take(map).into_iter().peekable();
    for (key, new) in patch {
        while let Some(kept) = old.next_if(|(k, _)| *k < key) {
            merged.push(kept);
        }
        let current = old.next_if(|(k, _)| *k == key).map(|(_, v)| v);
        match (current, new) {
            (_, Value::Null) => {}
            (Some(current @ Value::Object(_)), Value::Object(inner)) => {
                below.push((merged.len(), inner));
                merged.push((key, current));
            }
            (Some(Value::Object(_)), new) => merged.push((key, new)),
            (_, mut new) => {
                drop_nulls(&mut new);
                merged.push((key, new));
            }
        }
    }
    merged.extend(old);
    *map = Map::from_members(merged).0;
    below
}

/// Drops the `null` members of every object in a tree. `null` elements of lists stay.
pub(super) fn drop_nulls(v: &mut Value) {
    let mut work = vec![v];
    while let Some(v) = work.pop() {
        match v {
            Value::Object(map) => {
                map.retain(|_, v| !v.is_null());
                work.extend(map.iter_mut().map(|(_, v)| v));
            }
            Value::Array(items) => work.extend(items),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn merges_by_table() {
        let null = || Value::Null;
        // Description, target, patch, result.
        let rows = [
            ("a member is set", tree!({ "a": 1 }), tree!({ "b": 2 }), tree!({ "a": 1, "b": 2 })),
            ("a member is replaced", tree!({ "a": 1 }), tree!({ "a": "x" }), tree!({ "a": "x" })),
            ("null removes", tree!({ "a": 1, "b": 2 }), tree!({ "a": null() }), tree!({ "b": 2 })),
            (
                "null for what is absent does nothing",
                tree!({ "a": 1 }),
                tree!({ "b": null() }),
                tree!({ "a": 1 }),
            ),
            (
                "objects are merged",
                tree!({ "a": tree!({ "x": 1, "y": 2 }) }),
                tree!({ "a": tree!({ "x": null(), "z": 3 }) }),
                tree!({ "a": tree!({ "y": 2, "z": 3 }) }),
            ),
            (
                "lists are replaced",
                tree!({ "a": tree!([1, 2]) }),
                tree!({ "a": tree!([3]) }),
                tree!({ "a": tree!([3]) }),
            ),
            (
                "nulls of a new object are dropped, deeply",
                tree!({}),
                tree!({ "a": tree!({ "b": tree!({ "c": null(), "d": 1 }) }) }),
                tree!({ "a": tree!({ "b": tree!({ "d": 1 }) }) }),
            ),
            (
                "an object replaces a scalar without its nulls",
                tree!({ "a": 1 }),
                tree!({ "a": tree!({ "b": null() }) }),
                tree!({ "a": tree!({}) }),
            ),
            (
                "objects in a new list lose their nulls, the list keeps its own",
                tree!({}),
                tree!({ "a": tree!([tree!({ "b": null(), "c": 1 }), null()]) }),
                tree!({ "a": tree!([tree!({ "c": 1 }), null()]) }),
            ),
            (
                "a list that replaces an object is taken as it is",
                tree!({ "a": tree!({}) }),
                tree!({ "a": tree!([tree!({ "b": null() })]) }),
                tree!({ "a": tree!([tree!({ "b": null() })]) }),
            ),
            (
                "a null in the target is like nothing",
                tree!({ "a": null() }),
                tree!({ "a": tree!({ "b": null(), "c": 1 }) }),
                tree!({ "a": tree!({ "c": 1 }) }),
            ),
            ("an empty patch changes nothing", tree!({ "a": 1 }), tree!({}), tree!({ "a": 1 })),
        ];
        for (what, target, patch, want) in rows {
            assert_eq!(merge_patch(target, patch).unwrap(), want, "{what}");
        }
    }

    #[test]
    fn refuses_what_is_no_object() {
        for patch in [Value::Null, Value::from("x"), Value::Int(1)] {
            let error = merge_patch(tree!({}), patch).unwrap_err();
            assert_eq!((error.code(), error.to_string().as_str()), (400, "Invalid JSON Patch"));
        }
        let list = tree!([Value::Null, tree!({ "a": Value::Null, "b": 1 })]);
        assert_eq!(check_merge_patch(&list).unwrap_err().code(), 400);
        assert_eq!(merge_patch(tree!({}), list), Ok(tree!([Value::Null, tree!({ "b": 1 })])));
        assert_eq!(check_merge_patch(&Value::Null), Ok(()));
    }

    #[test]
    fn deep_and_wide_patches_fit() {
        let nest = |leaf: Value| (0..10_000).fold(leaf, |v, _| tree!({ "a": v }));
        let merged = merge_patch(nest(tree!({ "x": 1 })), nest(tree!({ "y": 2 }))).unwrap();
        let mut at = &merged;
        while let Some(inner) = at.get("a") {
            at = inner;
        }
        assert_eq!(at, &tree!({ "x": 1, "y": 2 }));

        let wide = |from: i64| {
            (0..100_000).map(|i| (format!("k{}", from + 2 * i).into(), Value::Int(i))).collect::<Map>()
        };
        let merged = merge_patch(wide(0).into(), wide(1).into()).unwrap();
        assert_eq!(merged.as_object().map(Map::len), Some(200_000));
    }
}
