//! FieldsV1: a set of paths as an object tree, the form in `managedFields`.
//!
//! Every step is a key, `{}` below it means that the path is a member, `"."` that it is a member in addition
//! to paths below it: `{"f:spec":{"f:ports":{".":{},"k:{\"port\":80}":{"f:name":{}}}}}`. Unknown types of
//! steps are dropped.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{self, AtomicU64};
use std::sync::LazyLock;

use smol_str::SmolStr;

use super::path::{PathElement, PathElementError};
use super::set::{Builder, Set, SetNode, View};
use super::typed::Ref;
use super::MAX_DEPTH;
use crate::json::{self, Reader, Source, Token};
use crate::schema::{builtin, Schema, TypeId};
use crate::value::{Map, Value};

/// Why a FieldsV1 tree was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldsV1Error {
    /// A key is not a path element.
    #[error(transparent)]
    Element(#[from] PathElementError),
    /// A value that is not an object where paths continue.
    #[error("fieldsV1 holds a {0} where an object belongs")]
    NotAnObject(&'static str),
    /// Nested deeper than any set that this server writes.
    #[error("fieldsV1 is nested too deep")]
    TooDeep,
}

/// Reads a set. `O(n log n)`; text in the order of the set, as [`encode`] writes it if all names are strings,
/// is read in one pass.
pub fn decode(fields: &Value) -> Result<Set, FieldsV1Error> {
    match fields {
        Value::Null => Ok(Set::new()),
        Value::Encoded(encoded) => in_order(encoded.text()).map_or_else(|| of_members(encoded.members()), Ok),
        Value::Object(members) => of_members(members),
        other => Err(FieldsV1Error::NotAnObject(other.type_name())),
    }
}

/// The set of text in the order of the set; `None` for any other text.
fn in_order(text: &str) -> Option<Set> {
    let mut out = Builder::default();
    let mut reader = reader(text)?;
    level_in_order(&mut reader, &mut out, 0)?;
    Some(out.finish())
}

fn level_in_order(reader: &mut Reader<'_>, out: &mut Builder, depth: usize) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    let (mut first, mut last) = (true, None);
    while let Some(key) = reader.key(first).ok()? {
        first = false;
        let token = reader.token().ok()?;
        if key == "." {
            out.add();
            reader.skip_rest(&token).ok()?;
            continue;
        }
        let Some(element) = PathElement::parse(&key).ok()? else {
            reader.skip_rest(&token).ok()?;
            continue;
        };
        if last.as_ref().is_some_and(|last| *last >= element) {
            return None;
        }
        last = Some(element.clone());
        out.enter(element);
        let before = out.added();
        match token {
            Token::Object => level_in_order(reader, out, depth + 1)?,
            Token::Null => {}
            _ => return None,
        }
        if out.added() == before {
            out.add();
        }
        out.leave();
    }
    Some(())
}

/// A reader at the members of an object.
fn reader(text: &str) -> Option<Reader<'_>> {
    let mut reader = Reader::new(text.as_bytes());
    matches!(reader.token(), Ok(Token::Object)).then_some(reader)
}

fn text_of(fields: &Value) -> Cow<'_, str> {
    match fields {
        Value::Encoded(encoded) => Cow::Borrowed(encoded.text()),
        other => {
            let mut text = Vec::new();
            json::write_untyped(other, &mut text);
            // A tree holds UTF-8 text only.
            Cow::Owned(String::from_utf8(text).unwrap_or_default())
        }
    }
}

fn of_members(members: &Map) -> Result<Set, FieldsV1Error> {
    let mut out = Builder::default();
    level(members, &mut out, 0)?;
    Ok(out.finish())
}

fn level(map: &Map, out: &mut Builder, depth: usize) -> Result<(), FieldsV1Error> {
    if depth > MAX_DEPTH {
        return Err(FieldsV1Error::TooDeep);
    }
    // Fields are sorted, since the tree's keys are; the text of list keys and values has another order than
    // their values.
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

fn node(element: PathElement, below: &Value, out: &mut Builder, depth: usize) -> Result<(), FieldsV1Error> {
    let map = match below {
        Value::Null => &Map::new(),
        other => other.as_object().ok_or(FieldsV1Error::NotAnObject(other.type_name()))?,
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

/// Whether one of the paths is among the fields; stops at the first one.
pub(super) fn has_any_of(fields: &Value, paths: &Set) -> bool {
    // Unreadable fields count as a match.
    found(fields, paths, 1).is_none_or(|found| found > 0)
}

/// Whether all of the paths are among the fields.
pub(super) fn has_all_of(fields: &Value, paths: &Set) -> bool {
    let all = paths.len();
    found(fields, paths, all).is_some_and(|found| found == all)
}

/// How many of the paths are among the fields; stops when that is `enough`.
fn found(fields: &Value, paths: &Set, enough: usize) -> Option<usize> {
    let text = text_of(fields);
    let mut reader = reader(&text)?;
    Some(count_matches(&mut reader, paths.view(), enough)?.found)
}

/// The matches in the object below a step.
struct SubtreeMatch {
    /// Number of the paths found.
    found: usize,
    /// Whether the step itself is a member.
    is_member: bool,
}

fn count_matches(reader: &mut Reader<'_>, paths: View<'_>, enough: usize) -> Option<SubtreeMatch> {
    let (mut first, mut has_dot, mut found) = (true, false, 0);
    let mut steps = StepIndex::of(paths);
    while let Some(key) = reader.key(first).ok()? {
        first = false;
        has_dot |= key == ".";
        let token = reader.token().ok()?;
        match (steps.find(&key), &token) {
            (Some(node), Token::Object) => {
                let below = count_matches(reader, node.below, enough - found)?;
                found += below.found;
                if found < enough && node.member && below.is_member {
                    found += 1;
                }
                if found >= enough {
                    return Some(SubtreeMatch { found, is_member: false });
                }
            }
            _ => reader.skip_rest(&token).ok()?,
        }
    }
    Some(SubtreeMatch { found, is_member: has_dot || first })
}

/// The steps of one level of a set by their keys in a tree. The keys have any order, so each one is searched
/// for.
struct StepIndex<'s> {
    /// Steps to fields: the first ones of a level, sorted by name.
    fields: Vec<SetNode<'s>>,
    /// The other steps of the level, as the set has them.
    others: Vec<SetNode<'s>>,
    /// The other steps by the text of their keys; built at the first such key.
    by_key: Option<Vec<(SmolStr, SetNode<'s>)>>,
}

impl<'s> StepIndex<'s> {
    fn of(paths: View<'s>) -> StepIndex<'s> {
        let (fields, others) = paths.nodes().partition(|node| matches!(node.element, PathElement::Field(_)));
        StepIndex { fields, others, by_key: None }
    }

    /// The step with that key. `O(log n)`.
    fn find(&mut self, key: &str) -> Option<SetNode<'s>> {
        if let Some(name) = key.strip_prefix("f:") {
            let at = self.fields.binary_search_by(|node| match node.element {
                PathElement::Field(field) => field.as_str().cmp(name),
                _ => Ordering::Greater,
            });
            return at.ok().and_then(|at| self.fields.get(at)).copied();
        }
        let others = &self.others;
        let by_key = self.by_key.get_or_insert_with(|| {
            let mut by_key: Vec<_> = others.iter().map(|node| (node.element.to_key(), *node)).collect();
            by_key.sort_by(|(a, _), (b, _)| a.cmp(b));
            by_key
        });
        let at = by_key.binary_search_by(|(text, _)| text.as_str().cmp(key)).ok()?;
        by_key.get(at).map(|(_, node)| *node)
    }
}

/// Whether the fields equal a set.
pub(super) fn is(fields: &Value, set: &Set) -> bool {
    *text_of(fields) == *text(set) || decode(fields).is_ok_and(|fields| fields == *set)
}

/// Whether there are no fields.
pub(super) fn is_empty(fields: &Value) -> bool {
    match fields {
        Value::Encoded(encoded) => {
            encoded.text().bytes().filter(|byte| !byte.is_ascii_whitespace()).take(3).eq(*b"{}")
        }
        other => other.as_object().is_none_or(Map::is_empty),
    }
}

/// Whether the fields fit the schema: no field is owned inside of an atomic value.
///
/// Every write checks this for every manager, and most objects of a kind have the same owned fields; so texts
/// that fit the schema of the built-in kinds, which never changes, are recognized by their hash.
pub(super) fn fits(fields: &Value, schema: &Schema, root: TypeId) -> bool {
    let text = text_of(fields);
    let known = std::ptr::eq(schema, builtin()).then(|| FIT_CACHE.place(&text, root));
    if known.is_some_and(|(slot, hash)| slot.load(atomic::Ordering::Relaxed) == hash) {
        return true;
    }
    let parts = reader(&text).and_then(|mut reader| parts_of(&mut reader, schema, Ref::root(root)));
    let fits = parts.is_none_or(|parts| parts != Parts::OfAnAtom);
    if let Some((slot, hash)) = known.filter(|_| fits) {
        slot.store(hash, atomic::Ordering::Relaxed);
    }
    fits
}

/// A lock-free cache of hashes of texts that fit, one per slot. The key of the hash is random, so that
/// collisions cannot be forged; by chance one occurs in 2^63 lookups.
struct FitCache {
    key: RandomState,
    slots: [AtomicU64; 1024],
}

static FIT_CACHE: LazyLock<FitCache> =
    LazyLock::new(|| FitCache { key: RandomState::new(), slots: [const { AtomicU64::new(0) }; 1024] });

impl FitCache {
    fn place(&self, text: &str, root: TypeId) -> (&AtomicU64, u64) {
        // Odd, to differ from an empty slot.
        let hash = self.key.hash_one((text, root)) | 1;
        let slot = (hash >> 1) as usize % self.slots.len();
        (&self.slots[slot], hash)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parts {
    None,
    Some,
    /// A field inside of an atomic value, here or below.
    OfAnAtom,
}

fn parts_of(reader: &mut Reader<'_>, schema: &Schema, of: Ref<'_>) -> Option<Parts> {
    let shape = of.shape(schema);
    let (mut first, mut parts) = (true, Parts::None);
    while let Some(key) = reader.key(first).ok()? {
        first = false;
        let token = reader.token().ok()?;
        if key == "." {
            reader.skip_rest(&token).ok()?;
            continue;
        }
        parts = Parts::Some;
        match (shape.step(key.strip_prefix("f:")), &token) {
            (Some(below), Token::Object) => match parts_of(reader, schema, below)? {
                Parts::OfAnAtom => return Some(Parts::OfAnAtom),
                Parts::Some if below.is_atomic(schema) => return Some(Parts::OfAnAtom),
                _ => {}
            },
            _ => reader.skip_rest(&token).ok()?,
        }
    }
    Some(parts)
}

/// Encodes a set as an object that stays text.
pub fn encode(set: &Set) -> Value {
    Value::Encoded(json::encoded(text(set)))
}

fn text(set: &Set) -> String {
    let mut out = Vec::with_capacity(1024);
    write(set.view(), false, &mut out);
    // Names are UTF-8, and so is the syntax around them.
    String::from_utf8(out).unwrap_or_default()
}

/// Keys come sorted as text.
fn write(view: View<'_>, is_member: bool, out: &mut Vec<u8>) {
    let begin = out.len();
    out.push(b'{');
    let mut member = |key: &str, below: Option<SetNode<'_>>| {
        if out.len() > begin + 1 {
            out.push(b',');
        }
        json::write_string(key, out);
        out.push(b':');
        match below {
            Some(node) => write(node.below, node.member && !node.below.is_empty(), out),
            None => out.extend_from_slice(b"{}"),
        }
    };
    if is_member {
        member(".", None);
    }
    // Names of fields come first in a set as in the text; the others are ordered differently in the set.
    let mut others = Vec::new();
    for node in view.nodes() {
        match node.element {
            PathElement::Field(_) => member(&node.element.to_key(), Some(node)),
            other => others.push((other.to_key(), node)),
        }
    }
    others.sort_by(|(a, _), (b, _)| a.cmp(b));
    others.into_iter().for_each(|(key, node)| member(&key, Some(node)));
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::testkit::json;

    fn unread(text: &str) -> Value {
        Value::Encoded(crate::json::encoded(text))
    }

    #[test]
    fn what_is_read_is_written() {
        for text in [
            r#"{}"#,
            r#"{"f:a":{}}"#,
            r#"{"f:a":{".":{},"f:b":{}},"f:c":{"f:d":{}}}"#,
            r#"{"f:l":{".":{},"i:3":{},"k:{\"n\":\"a\"}":{".":{},"f:x":{}},"v:1":{}}}"#,
        ] {
            let set = decode(&json(text)).unwrap();
            let Value::Encoded(written) = encode(&set) else { panic!("{text}") };
            assert_eq!(written.text(), text);
            assert_eq!(decode(&unread(text)).unwrap(), set, "{text}");
            assert!(is(&unread(text), &set) && is(&json(text), &set), "{text}");
            assert_eq!(is_empty(&unread(text)), set.is_empty(), "{text}");
        }
    }

    #[test]
    fn odd_forms_are_made_regular() {
        let rows = [
            (r#"{ "f:b" : {}, "f:a" : {} }"#, r#"{"f:a":{},"f:b":{}}"#),
            (r#"{"f:a":{},"f:a":{"f:b":{}}}"#, r#"{"f:a":{"f:b":{}}}"#),
            (r#"{"f:a":{"f:b":{},".":{}}}"#, r#"{"f:a":{".":{},"f:b":{}}}"#),
            (r#"{"f:a":null}"#, r#"{"f:a":{}}"#),
            (r#"{"f:a":{".":{}}}"#, r#"{"f:a":{}}"#),
            (r#"{"f:a":{"x:new":{}}}"#, r#"{"f:a":{}}"#),
            (r#"{"x:new":{"f:a":{}}}"#, r#"{}"#),
            (r#"{".":{},"f:a":{}}"#, r#"{"f:a":{}}"#),
            (r#"{"v:1":{},"v:1.0":{}}"#, r#"{"v:1":{}}"#),
        ];
        for (text, want) in rows {
            let set = decode(&json(text)).unwrap();
            assert_eq!(encode(&set), json(want), "{text}");
            assert_eq!(decode(&unread(text)).unwrap(), set, "{text}");
            assert!(is(&unread(text), &set), "{text}");
        }
        assert_eq!(decode(&Value::Null), Ok(Set::new()));
        // Numbers sort as numbers in a set, as text in a tree.
        let set = decode(&json(r#"{"k:{\"p\":443}":{},"k:{\"p\":80}":{}}"#)).unwrap();
        let order: Vec<_> = set.view().nodes().map(|n| n.element.to_key()).collect();
        assert_eq!(order, [r#"k:{"p":80}"#, r#"k:{"p":443}"#]);
    }

    #[test]
    fn paths_are_found_in_text_and_tree() {
        let text = r#"{"f:a":{},"f:l":{".":{},"k:{\"n\":\"a\"}":{".":{},"f:x":{}},"k:{\"n\":\"b\"}":{"f:y":{}},"v:1":{}},"x:new":{}}"#;
        let rows = [
            ("{}", false),
            (r#"{"f:a":{}}"#, true),
            (r#"{"f:a":{},"f:b":{}}"#, true),
            (r#"{"f:a":{},"f:l":{".":{},"k:{\"n\":\"a\"}":{".":{},"f:x":{}}}}"#, true),
            (r#"{"f:l":{".":{},"k:{\"n\":\"b\"}":{".":{},"f:y":{}}}}"#, true),
            (r#"{"f:b":{},"f:c":{"f:a":{}}}"#, false),
            // Parents and children of members are none.
            (r#"{"f:a":{"f:b":{}}}"#, false),
            (r#"{"f:l":{}}"#, true),
            (r#"{"f:l":{"k:{\"n\":\"b\"}":{}}}"#, false),
            (r#"{"f:l":{"k:{\"n\":\"b\"}":{"f:y":{}}}}"#, true),
            (r#"{"f:l":{"k:{\"n\":\"c\"}":{},"v:1":{}}}"#, true),
            (r#"{"f:l":{"k:{\"n\":\"a\"}":{"f:y":{}}}}"#, false),
            (r#"{"f:l":{"v:2":{}}}"#, false),
        ];
        for (paths, found) in rows {
            let paths = decode(&json(paths)).unwrap();
            assert_eq!(has_any_of(&unread(text), &paths), found, "{paths:?}");
            assert_eq!(has_any_of(&json(text), &paths), found, "{paths:?}");
            let all = paths.is_subset(&decode(&json(text)).unwrap());
            assert_eq!(has_all_of(&unread(text), &paths), all, "{paths:?}");
            assert_eq!(!decode(&json(text)).unwrap().intersection(&paths).is_empty(), found, "{paths:?}");
        }
    }

    #[test]
    fn errors_are_named() {
        assert_eq!(decode(&unread(r#"{"f:a":1}"#)), Err(FieldsV1Error::NotAnObject("number")));
        assert!(matches!(decode(&unread(r#"{"name":{}}"#)), Err(FieldsV1Error::Element(_))));
        let nested = format!("{}{{}}{}", r#"{"f:a":"#.repeat(5_000), "}".repeat(5_000));
        assert_eq!(decode(&unread(&nested)), Err(FieldsV1Error::TooDeep));
        assert_eq!(decode(&json("[]")), Err(FieldsV1Error::NotAnObject("array")));
        assert_eq!(decode(&json(r#"{"f:a":1}"#)), Err(FieldsV1Error::NotAnObject("number")));
        assert!(matches!(decode(&json(r#"{"name":{}}"#)), Err(FieldsV1Error::Element(_))));
        let deep = (0..5_000).fold(json("{}"), |v, _| crate::tree!({ "f:a": v }));
        assert_eq!(decode(&deep), Err(FieldsV1Error::TooDeep));
    }
}
