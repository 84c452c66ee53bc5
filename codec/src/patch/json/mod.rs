//! JSON Patch (RFC 6902) with the semantics of evanphx/json-patch v4, which kube-apiserver uses:
//!
//! - `replace` of a missing object member sets it, `copy` of one sets `null`, `test` of one against `null`
//!   passes;
//! - an operation without `value` has the value `null`;
//! - negative indices count from the end (`add` at `-1` appends), `+1` and `01` are indices;
//! - `add` and `remove` do not take the whole document (path `""`), `replace` and `test` do.

use std::borrow::Cow;

use super::PatchError;
use crate::error::MAX_STRICT_ERRORS;
use crate::value::{Map, Value};

/// Operations in one patch; more are 413.
pub(crate) const MAX_OPERATIONS: usize = 10_000;

/// Maximum number of bytes that the `copy` operations of one patch may add together.
pub(crate) const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Maximum nesting of the result, which is also that of the decoders.
pub const MAX_DEPTH: usize = 10_000;

/// Elements moved plus nodes visited by one patch: about a second of work. Legitimate patches reach at most
/// the operation limit times the length of a list.
const MAX_STEPS: usize = 200_000_000;

/// Applies a JSON Patch. Nothing is changed unless every operation succeeds.
///
/// # Errors
/// 400 when `patch` is not a list of objects, 413 for more than `MAX_OPERATIONS`, 422 for an operation
/// that does not apply, copies above `MAX_COPIED_BYTES`, nesting below [`MAX_DEPTH`].
pub fn json_patch(target: Value, patch: Value) -> Result<Value, PatchError> {
    let operations = operations(patch)?;
    let mut doc = target;
    // Operations may address any part.
    doc.read_all();
    let mut patching = Patcher { doc, copied: 0, steps: 0 };
    for operation in operations {
        patching.apply(operation).map_err(refused)?;
    }
    Ok(patching.doc)
}

/// The end of the message of a failed test.
const TEST_FAILED: &str = "test failed";

fn refused(why: String) -> PatchError {
    match why.ends_with(TEST_FAILED) {
        true => PatchError::TestFailed(why),
        false => PatchError::NotApplicable(why),
    }
}

/// The unknown members of operations, as strict field validation reports them, at most [`MAX_STRICT_ERRORS`]:
/// `json patch unknown field "[0].values"`.
pub fn json_patch_unknown_fields(patch: &Value) -> Vec<String> {
    let operations = patch.as_array().unwrap_or_default().iter().enumerate();
    let unknown = operations.flat_map(|(i, operation)| {
        let keys = operation.as_object().into_iter().flat_map(Map::keys);
        let unknown = keys.filter(|key| !matches!(key.as_str(), "op" | "path" | "from" | "value"));
        unknown.map(move |key| format!("json patch unknown field \"[{i}].{key}\""))
    });
    unknown.take(MAX_STRICT_ERRORS).collect()
}

/// Decodes a JSON Patch as upstream's server does before it applies it, unless field validation is off.
///
/// # Errors
/// 400 when it is no list of objects, or the `op`, `path` or `from` of one is no text.
pub fn check_json_patch(patch: &Value) -> Result<(), PatchError> {
    let wrong = |v: &Value, place: &str| {
        let found = v.type_name();
        Err(PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go {place}"
        )))
    };
    let Some(list) = patch.as_array() else {
        return match patch.is_null() {
            true => Ok(()),
            false => wrong(patch, "value of type []handlers.jsonPatchOp"),
        };
    };
    for item in list.iter().filter(|item| !item.is_null()) {
        let Some(operation) = item.as_object() else {
            return wrong(item, "value of type handlers.jsonPatchOp");
        };
        for key in ["op", "path", "from"] {
            match operation.get(key) {
                None | Some(Value::Null | Value::String(_)) => {}
                Some(other) => {
                    return wrong(other, &format!("struct field jsonPatchOp.{key} of type string"))
                }
            }
        }
    }
    Ok(())
}

fn operations(patch: Value) -> Result<Vec<Map>, PatchError> {
    let wrong = |v: &Value, into: &str| {
        PatchError::Malformed(format!(
            "json: cannot unmarshal {} into Go value of type jsonpatch.{into}",
            v.type_name()
        ))
    };
    let list = match patch {
        Value::Null => Vec::new(),
        Value::Array(list) => list,
        other => return Err(wrong(&other, "Patch")),
    };
    if list.len() > MAX_OPERATIONS {
        return Err(PatchError::TooManyOperations { limit: MAX_OPERATIONS, got: list.len() });
    }
    list.into_iter()
        .map(|item| match item {
            Value::Object(operation) => Ok(operation),
            Value::Null => Ok(Map::new()),
            other => Err(wrong(&other, "Operation")),
        })
        .collect()
}

struct Patcher {
    doc: Value,
    copied: usize,
    steps: usize,
}

const MISSING: &str = "missing value";

impl Patcher {
    fn apply(&mut self, mut operation: Map) -> Result<(), String> {
        let value = operation.remove("value");
        let text = |key: &str| operation.get(key).and_then(Value::as_str);
        let (path, from) = (text("path"), text("from"));
        let op = text("op").unwrap_or("unknown");
        let need = |operand: Option<&str>, name: &str| match operand {
            Some(operand) => Ok(operand.to_owned()),
            None => Err(format!("{op} operation failed to decode {name}: {MISSING}")),
        };
        match op {
            "add" => self.add(&need(path, "path")?, value.unwrap_or_default()),
            "remove" => self.remove(&need(path, "path")?),
            "replace" => self.replace(&need(path, "path")?, value),
            "move" => self.shift(&need(from, "from")?, &need(path, "path")?),
            "copy" => self.copy(&need(from, "from")?, &need(path, "path")?),
            "test" => self.test(&need(path, "path")?, value),
            other => Err(format!("Unexpected kind: {other}")),
        }
    }

    fn add(&mut self, path: &str, value: Value) -> Result<(), String> {
        self.check_depth(path, &value)?;
        let Some(at) = PointerTarget::find(&mut self.doc, path) else {
            return Err(format!("add operation does not apply: doc is missing path: \"{path}\": {MISSING}"));
        };
        let moved = at.add(value).map_err(|e| format!("error in add for path: '{path}': {e}"))?;
        self.count(moved)
    }

    fn remove(&mut self, path: &str) -> Result<(), String> {
        let Some(at) = PointerTarget::find(&mut self.doc, path) else {
            return Err(format!(
                "remove operation does not apply: doc is missing path: \"{path}\": {MISSING}"
            ));
        };
        let (_, moved) = at.remove().map_err(|e| format!("error in remove for path: '{path}': {e}"))?;
        self.count(moved)
    }

    fn replace(&mut self, path: &str, value: Option<Value>) -> Result<(), String> {
        if path.is_empty() {
            return match value {
                Some(value @ (Value::Object(_) | Value::Array(_))) => {
                    self.doc = value;
                    Ok(())
                }
                _ => Err("replace operation value must be object or array".into()),
            };
        }
        let value = value.unwrap_or_default();
        self.check_depth(path, &value)?;
        let Some(at) = PointerTarget::find(&mut self.doc, path) else {
            return Err(format!("replace operation does not apply: doc is missing path: {path}: {MISSING}"));
        };
        let Ok(moved) = at.set(value) else {
            return Err(format!("replace operation does not apply: doc is missing key: {path}: {MISSING}"));
        };
        self.count(moved)
    }

    fn shift(&mut self, from: &str, path: &str) -> Result<(), String> {
        let Some(source) = PointerTarget::find(&mut self.doc, from) else {
            return Err(format!(
                "move operation does not apply: doc is missing from path: {from}: {MISSING}"
            ));
        };
        let key = source.key.to_string();
        let (value, moved) = source.remove().map_err(|e| format!("error in move for path: '{key}': {e}"))?;
        self.count(moved)?;
        self.check_depth(path, &value)?;
        let Some(at) = PointerTarget::find(&mut self.doc, path) else {
            return Err(format!(
                "move operation does not apply: doc is missing destination path: {path}: {MISSING}"
            ));
        };
        let moved = at.add(value).map_err(|e| format!("error in move for path: '{path}': {e}"))?;
        self.count(moved)
    }

    fn copy(&mut self, from: &str, path: &str) -> Result<(), String> {
        let Some(source) = PointerTarget::find(&mut self.doc, from) else {
            return Err(format!(
                "copy operation does not apply: doc is missing from path: {from}: {MISSING}"
            ));
        };
        let key = source.key.to_string();
        let value = match source.get() {
            Ok(Some(value)) => {
                // Measured before it is copied, so that a refused copy allocates nothing.
                self.copied += encoded_len(value);
                if self.copied > MAX_COPIED_BYTES {
                    return Err(format!(
                        "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {MAX_COPIED_BYTES}",
                        self.copied
                    ));
                }
                value.clone()
            }
            Ok(None) => Value::Null,
            Err(e) => return Err(format!("error in copy for from: '{key}': {e}")),
        };
        self.check_depth(path, &value)?;
        let Some(at) = PointerTarget::find(&mut self.doc, path) else {
            return Err(format!(
                "copy operation does not apply: doc is missing destination path: {path}: {MISSING}"
            ));
        };
        let moved = at.add(value).map_err(|e| format!("error while adding value during copy: {e}"))?;
        self.count(moved)
    }

    fn test(&mut self, path: &str, value: Option<Value>) -> Result<(), String> {
        let failed = || format!("testing value {path} failed: {TEST_FAILED}");
        if path.is_empty() {
            return if value.as_ref() == Some(&self.doc) { Ok(()) } else { Err(failed()) };
        }
        let Some(at) = PointerTarget::find(&mut self.doc, path) else {
            return Err(format!("test operation does not apply: is missing path: {path}: {MISSING}"));
        };
        match (at.get().map_err(|e| format!("error in test for path: '{path}': {e}"))?, value) {
            (None | Some(Value::Null), None | Some(Value::Null)) => Ok(()),
            (Some(found), Some(value)) if *found == value => Ok(()),
            _ => Err(failed()),
        }
    }

    /// Every operation may nest deeper, a copy doubles the depth; the tree must not be deeper than a decoded
    /// one.
    fn check_depth(&mut self, path: &str, value: &Value) -> Result<(), String> {
        let (depth, nodes) = measure(value);
        self.count(nodes)?;
        match depth + path.matches('/').count() > MAX_DEPTH {
            true => Err("exceeded max depth".into()),
            false => Ok(()),
        }
    }

    fn count(&mut self, steps: usize) -> Result<(), String> {
        self.steps += steps;
        match self.steps > MAX_STEPS {
            true => Err("the JSON patch moves too many list elements".into()),
            false => Ok(()),
        }
    }
}

/// The target of a JSON pointer: an object or list, and the name or index in it, which need not exist.
struct PointerTarget<'d, 'p> {
    container: &'d mut Value,
    key: Cow<'p, str>,
}

impl<'d, 'p> PointerTarget<'d, 'p> {
    /// `None` when the path has no `/` or passes an absent value or a scalar. Text before the first `/` is
    /// ignored.
    fn find(doc: &'d mut Value, path: &'p str) -> Option<PointerTarget<'d, 'p>> {
        let mut tokens = path.split('/').skip(1).map(unescape);
        let mut key = tokens.next()?;
        let mut container = doc;
        for next in tokens {
            container = PointerTarget { container, key }.into_value()?;
            key = next;
        }
        matches!(container, Value::Object(_) | Value::Array(_)).then_some(PointerTarget { container, key })
    }

    fn into_value(self) -> Option<&'d mut Value> {
        match self.container {
            Value::Object(map) => map.get_mut(&self.key),
            Value::Array(items) => {
                let i = index(&self.key, items.len()).ok()?;
                items.get_mut(i)
            }
            _ => None,
        }
    }

    fn get(&self) -> Result<Option<&Value>, String> {
        match &*self.container {
            Value::Array(items) => Ok(items.get(existing(&self.key, items.len())?)),
            container => Ok(container.get(&self.key)),
        }
    }

    /// Returns how many elements were moved, as the next two do.
    fn set(self, value: Value) -> Result<usize, String> {
        match self.container {
            Value::Array(items) => {
                let i = existing(&self.key, items.len())?;
                if let Some(item) = items.get_mut(i) {
                    *item = value;
                }
                Ok(0)
            }
            _ => self.add(value),
        }
    }

    fn add(self, value: Value) -> Result<usize, String> {
        match self.container {
            Value::Object(map) => {
                map.insert(self.key.as_ref(), value);
                Ok(map.len())
            }
            Value::Array(items) => {
                let len = items.len();
                let i = match self.key.as_ref() {
                    "-" => len,
                    // Adding at one past the end is allowed, so negative indices count from there.
                    key => index(key, len + 1).map_err(|e| match e {
                        IndexError::NotANumber => {
                            format!("value was not a proper array index: '{key}': {}", e.text(key))
                        }
                        IndexError::OutOfRange(_) => e.text(key),
                    })?,
                };
                items.insert(i, value);
                Ok(len - i)
            }
            _ => Ok(0),
        }
    }

    fn remove(self) -> Result<(Value, usize), String> {
        match self.container {
            Value::Array(items) => {
                let i = existing(&self.key, items.len())?;
                Ok((items.remove(i), items.len() - i))
            }
            container => {
                let map = container.as_object_mut();
                let len = map.as_ref().map_or(0, |m| m.len());
                match map.and_then(|m| m.remove(&self.key)) {
                    Some(value) => Ok((value, len)),
                    None => Err(format!("Unable to remove nonexistent key: {}: {MISSING}", self.key)),
                }
            }
        }
    }
}

enum IndexError {
    NotANumber,
    OutOfRange(i64),
}

impl IndexError {
    fn text(&self, key: &str) -> String {
        match self {
            IndexError::NotANumber => format!("strconv.Atoi: parsing \"{key}\": invalid syntax"),
            IndexError::OutOfRange(i) => {
                format!("Unable to access invalid index: {i}: invalid index referenced")
            }
        }
    }
}

/// An index below `len`; negative ones count back from `len`.
fn index(key: &str, len: usize) -> Result<usize, IndexError> {
    let i: i64 = key.parse().map_err(|_| IndexError::NotANumber)?;
    let from_start = if i < 0 { i.checked_add_unsigned(len as u64) } else { Some(i) };
    from_start.and_then(|i| usize::try_from(i).ok()).filter(|&i| i < len).ok_or(IndexError::OutOfRange(i))
}

fn existing(key: &str, len: usize) -> Result<usize, String> {
    index(key, len).map_err(|e| e.text(key))
}

/// A reference token, unescaped (RFC 6901): `~1` is `/`, `~0` is `~`.
fn unescape(token: &str) -> Cow<'_, str> {
    match token.contains('~') {
        // In this order, so that `~01` becomes `~1`.
        true => Cow::Owned(token.replace("~1", "/").replace("~0", "~")),
        false => Cow::Borrowed(token),
    }
}

/// The size of a value as compact JSON, without escapes in strings.
fn encoded_len(v: &Value) -> usize {
    let mut work = vec![v];
    let mut len = 0;
    while let Some(v) = work.pop() {
        len += match v {
            Value::Null | Value::Bool(true) => 4,
            Value::Bool(false) => 5,
            Value::Int(n) => n.checked_ilog10().unwrap_or(0) as usize + 1,
            Value::Float(_) => 8,
            Value::String(s) => s.len() + 2,
            Value::Array(items) => {
                work.extend(items);
                items.len().max(1) + 1
            }
            Value::Object(map) => {
                work.extend(map.values());
                map.keys().map(|k| k.len() + 3).sum::<usize>() + map.len().max(1) + 1
            }
            Value::Encoded(encoded) => encoded.text().len(),
        };
    }
    len
}

/// Levels and nodes of a tree; a scalar is one of each.
fn measure(v: &Value) -> (usize, usize) {
    let (mut deepest, mut nodes) = (0, 0);
    let mut work = vec![(v, 1)];
    while let Some((v, depth)) = work.pop() {
        nodes += 1;
        deepest = deepest.max(depth);
        match v {
            Value::Array(items) => work.extend(items.iter().map(|v| (v, depth + 1))),
            Value::Object(map) => work.extend(map.values().map(|v| (v, depth + 1))),
            _ => {}
        }
    }
    (deepest, nodes)
}

#[cfg(test)]
mod tests;
