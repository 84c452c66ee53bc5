//! FieldsV1: a set of paths as an object tree, the form in `managedFields`.
//!
//! Every step is a key, `{}` below it means that the path is a member, `"."` that it is one beside what is
//! below: `{"f:spec":{"f:ports":{".":{},"k:{\"port\":80}":{"f:name":{}}}}}`. Unknown types of steps are
//! dropped.

use smol_str::SmolStr;

use super::path::{BadElement, PathElement};
use super::set::{Builder, Node, Set, View};
use super::MAX_DEPTH;
use crate::value::{Map, Value};

/// Why a FieldsV1 tree was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFields {
    /// A key is no path element.
    #[error(transparent)]
    Element(#[from] BadElement),
    /// Something that is not an object where paths go on.
    #[error("fieldsV1 holds a {0} where an object belongs")]
    NotAnObject(&'static str),
    /// Nested deeper than any set that this server writes.
    #[error("fieldsV1 is nested too deep")]
    TooDeep,
}

/// Reads a set. `O(n log n)`.
pub fn decode(fields: &Value) -> Result<Set, BadFields> {
    let mut out = Builder::default();
    match fields {
        Value::Null => {}
        Value::Object(map) => level(map, &mut out, 0)?,
        other => return Err(BadFields::NotAnObject(other.type_name())),
    }
    Ok(out.finish())
}

fn level(map: &Map, out: &mut Builder, depth: usize) -> Result<(), BadFields> {
    if depth > MAX_DEPTH {
        return Err(BadFields::TooDeep);
    }
    // Fields come sorted, since the tree's keys are; the text of list keys and values sorts otherwise than
    // they do.
    let mut others: Vec<(PathElement, &Value)> = Vec::new();
    for (key, below) in map.iter() {
        if key == "." {
            continue;
        }
        match PathElement::parse(key)? {
            Some(element @ PathElement::Field(_)) => node(element, below, out, depth)?,
            Some(element) => others.push((element, below)),
            None => {}
        }
    }
    if !others.is_sorted_by(|a, b| a.0 < b.0) {
        // Two texts of one value (`v:1` and `v:1.0`) are one element; the first one stands.
        others.sort_by(|a, b| a.0.cmp(&b.0));
        others.dedup_by(|later, earlier| later.0 == earlier.0);
    }
    others.into_iter().try_for_each(|(element, below)| node(element, below, out, depth))
}

fn node(element: PathElement, below: &Value, out: &mut Builder, depth: usize) -> Result<(), BadFields> {
    let map = match below {
        Value::Object(map) => map,
        Value::Null => &Map::new(),
        other => return Err(BadFields::NotAnObject(other.type_name())),
    };
    out.enter(element);
    let before = out.added();
    if map.contains(".") {
        out.add();
    }
    if !map.is_empty() {
        level(map, out, depth + 1)?;
    }
    if out.added() == before {
        out.add();
    }
    out.leave();
    Ok(())
}

/// Whether a tree that [`encode`] wrote has one of the paths, found key by key.
pub(super) fn has_any_of(tree: &Map, paths: View<'_>) -> bool {
    paths.nodes().any(|node| match tree.get(&node.element.to_key()) {
        Some(Value::Object(below)) => {
            let is_member = below.is_empty() || below.contains(".");
            (node.member && is_member) || has_any_of(below, node.below)
        }
        _ => false,
    })
}

/// Whether a tree that [`encode`] wrote is that of a set.
pub(super) fn is(tree: &Map, set: View<'_>) -> bool {
    let mut members = tree.iter().filter(|(key, _)| *key != ".").peekable();
    let mut found = usize::from(tree.contains("."));
    set.nodes().all(|node| {
        found += 1;
        let below = match node.element {
            // Fields have the same order in both.
            PathElement::Field(name) => {
                members.next_if(|(key, _)| key.strip_prefix("f:") == Some(name)).map(|(_, below)| below)
            }
            other => tree.get(&other.to_key()),
        };
        below.and_then(Value::as_object).is_some_and(|below| {
            let is_member = below.is_empty() || below.contains(".");
            node.member == is_member && is(below, node.below)
        })
    }) && found == tree.len()
}

/// Writes a set.
pub fn encode(set: &Set) -> Value {
    Value::Object(members(set.view(), false))
}

fn members(view: View<'_>, include_self: bool) -> Map {
    let nodes = view.nodes().map(|Node { element, member, below, .. }| {
        (element.to_key(), Value::Object(members(below, member && !below.is_empty())))
    });
    let mut members = Vec::with_capacity(view.nodes().count() + usize::from(include_self));
    members.extend(include_self.then(|| (SmolStr::new_static("."), Value::object())));
    members.extend(nodes);
    Map::from_members(members).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::testkit::json;

    #[test]
    fn what_is_read_is_written() {
        for text in [
            r#"{}"#,
            r#"{"f:a":{}}"#,
            r#"{"f:a":{".":{},"f:b":{}},"f:c":{"f:d":{}}}"#,
            r#"{"f:l":{".":{},"k:{\"n\":\"a\"}":{".":{},"f:x":{}},"v:1":{},"i:3":{}}}"#,
        ] {
            let tree = json(text);
            assert_eq!(encode(&decode(&tree).unwrap()), tree, "{text}");
        }
    }

    #[test]
    fn odd_forms_are_made_regular() {
        let rows = [
            ("null", "{}"),
            (r#"{"f:a":null}"#, r#"{"f:a":{}}"#),
            (r#"{"f:a":{".":{}}}"#, r#"{"f:a":{}}"#),
            (r#"{"f:a":{"x:new":{}}}"#, r#"{"f:a":{}}"#),
            (r#"{"x:new":{"f:a":{}}}"#, r#"{}"#),
            (r#"{".":{},"f:a":{}}"#, r#"{"f:a":{}}"#),
            (r#"{"v:1":{},"v:1.0":{}}"#, r#"{"v:1":{}}"#),
        ];
        for (text, want) in rows {
            assert_eq!(encode(&decode(&json(text)).unwrap()), json(want), "{text}");
        }
        // Numbers sort as numbers in a set, as text in a tree.
        let set = decode(&json(r#"{"k:{\"p\":443}":{},"k:{\"p\":80}":{}}"#)).unwrap();
        let order: Vec<_> = set.view().nodes().map(|n| n.element.to_key()).collect();
        assert_eq!(order, [r#"k:{"p":80}"#, r#"k:{"p":443}"#]);
    }

    #[test]
    fn faults_are_named() {
        assert_eq!(decode(&json("[]")), Err(BadFields::NotAnObject("array")));
        assert_eq!(decode(&json(r#"{"f:a":1}"#)), Err(BadFields::NotAnObject("number")));
        assert!(matches!(decode(&json(r#"{"name":{}}"#)), Err(BadFields::Element(_))));
        let deep = (0..5_000).fold(json("{}"), |v, _| crate::tree!({ "f:a": v }));
        assert_eq!(decode(&deep), Err(BadFields::TooDeep));
    }
}
