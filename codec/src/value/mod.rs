//! The object tree: the in-memory form of API objects.
//!
//! One tree for every kind. Keys of an object are kept sorted, so that equal objects have equal trees, a
//! lookup costs `log n`, and a hostile body with half a million keys costs no more than its size times a
//! logarithm. The order of fields on the wire is determined by the schema (see [`crate::json::write`]), as in
//! upstream, where struct fields come in declaration order and map keys sorted.
//!
//! Numbers are decoded as by Go's `UnmarshalCaseSensitivePreserveInts`: an `i64` where the text is an integer
//! that fits, else an `f64` (k8s.io/apimachinery, `pkg/util/json`).

mod encoded;
mod tree;

pub use tree::{Encoded, Map, Value};

use std::borrow::Cow;

use smol_str::SmolStr;

impl Value {
    /// An empty object.
    pub fn object() -> Value {
        Value::Object(Map::new())
    }

    /// The text, if this is a string.
    #[inline]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(s) => Some(s),
            _ => None,
        }
    }

    /// A scalar as text, as Go's `fmt` prints it; lists and objects give nothing.
    pub(crate) fn scalar_text(&self) -> Cow<'_, str> {
        match self {
            Value::String(s) => Cow::Borrowed(s.as_str()),
            Value::Bool(true) => Cow::Borrowed("true"),
            Value::Bool(false) => Cow::Borrowed("false"),
            Value::Int(n) => Cow::Owned(n.to_string()),
            Value::Float(n) => Cow::Owned(n.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) | Value::Encoded(_) => Cow::Borrowed(""),
        }
    }

    /// The integer, if this is one.
    #[inline]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// The truth value, if this is one.
    #[inline]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The elements, if this is a list.
    #[inline]
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(a) => Some(a),
            _ => None,
        }
    }

    /// The elements, if this is a list.
    #[inline]
    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Value::Array(a) => Some(a),
            _ => None,
        }
    }

    /// The members, if this is an object.
    #[inline]
    pub fn as_object(&self) -> Option<&Map> {
        match self {
            Value::Object(m) => Some(m),
            Value::Encoded(encoded) => Some(encoded.members()),
            _ => None,
        }
    }

    /// The members, if this is an object.
    #[inline]
    pub fn as_object_mut(&mut self) -> Option<&mut Map> {
        if let Value::Encoded(encoded) = self {
            *self = Value::Object(encoded.members().clone());
        }
        match self {
            Value::Object(m) => Some(m),
            _ => None,
        }
    }

    /// Whether this is `null`.
    #[inline]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// A member of an object; `None` when absent or when this is no object.
    #[inline]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_object()?.get(key)
    }

    /// A mutable member of an object.
    #[inline]
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.as_object_mut()?.get_mut(key)
    }

    /// The value at a path of object keys: `at(&["metadata", "name"])`.
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(self, |v, key| v.get(key))
    }

    /// The text at a path of object keys.
    pub fn str_at(&self, path: &[&str]) -> Option<&str> {
        self.at(path)?.as_str()
    }

    /// The elements of the list at a path of object keys; none where there is no list.
    pub fn list_at(&self, path: &[&str]) -> &[Value] {
        self.at(path).and_then(Value::as_array).unwrap_or_default()
    }

    /// The strings of the list at a path of object keys; its other elements are left out.
    pub fn texts_at(&self, path: &[&str]) -> Vec<String> {
        self.list_at(path).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// The object at a path of keys, created (with its parents) where absent or `null`. `None` when a value
    /// on the path is neither absent, `null` nor an object.
    pub fn object_at_mut(&mut self, path: &[&str]) -> Option<&mut Map> {
        let mut v = self;
        for key in path {
            v = v.as_object_mut()?.entry(key);
            if v.is_null() {
                *v = Value::object();
            }
        }
        v.as_object_mut()
    }

    /// Parses all [`Value::Encoded`] in the tree.
    pub fn read_all(&mut self) {
        match self {
            Value::Array(elements) => level(|| elements.iter_mut().for_each(Value::read_all)),
            Value::Object(members) => level(|| members.iter_mut().for_each(|(_, member)| member.read_all())),
            Value::Encoded(encoded) => *self = Value::Object(encoded.members().clone()),
            _ => {}
        }
    }

    /// The name of the JSON type in upstream's errors: `string`, `number`, `bool`, `array`, `object`, `null`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::Float(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) | Value::Encoded(_) => "object",
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Int(a), Value::Int(b)) => a == b,
            (Value::Float(a), Value::Float(b)) => a == b,
            (Value::String(a), Value::String(b)) => a == b,
            (Value::Array(a), Value::Array(b)) => a == b,
            (Value::Object(a), Value::Object(b)) => a == b,
            (Value::Encoded(a), Value::Encoded(b)) => a == b,
            (Value::Object(a), Value::Encoded(b)) | (Value::Encoded(b), Value::Object(a)) => a == b.members(),
            _ => false,
        }
    }
}

impl From<&str> for Value {
    fn from(s: &str) -> Value {
        Value::String(SmolStr::new(s))
    }
}

impl From<String> for Value {
    fn from(s: String) -> Value {
        Value::String(SmolStr::from(s))
    }
}

impl From<SmolStr> for Value {
    fn from(s: SmolStr) -> Value {
        Value::String(s)
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Value {
        Value::Bool(b)
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Value {
        Value::Int(n)
    }
}

impl From<Map> for Value {
    fn from(m: Map) -> Value {
        Value::Object(m)
    }
}

impl From<Vec<Value>> for Value {
    fn from(a: Vec<Value>) -> Value {
        Value::Array(a)
    }
}

/// Maximum depth of a tree; deeper input is refused (upstream's limit).
pub const MAX_DEPTH: usize = 10_000;

/// Runs one level of a recursion over a tree, on a new stack segment when little is left of the current one.
/// A tree of [`MAX_DEPTH`] levels overflows an ordinary stack, so every recursive walk of a tree goes through
/// this at each container (it costs a nanosecond or two).
pub fn level<R>(walk: impl FnOnce() -> R) -> R {
    stacker::maybe_grow(96 * 1024, 2 * 1024 * 1024, walk)
}

/// Maximum number of members for a linear search.
const FEW: usize = 16;

impl Map {
    /// An empty map; allocates nothing.
    pub fn new() -> Map {
        Map::default()
    }

    /// A map of members in any order; of equal keys the last one wins. The second result lists the duplicate
    /// keys. `O(n log n)`.
    pub fn from_members(mut members: Vec<(SmolStr, Value)>) -> (Map, Vec<SmolStr>) {
        let mut duplicates = Vec::new();
        if !members.is_sorted_by(|a, b| a.0 < b.0) {
            // Stable, so that of equal keys the last one written stays last.
            members.sort_by(|a, b| a.0.cmp(&b.0));
            members.dedup_by(|later, earlier| {
                let same = later.0 == earlier.0;
                if same {
                    std::mem::swap(&mut later.1, &mut earlier.1);
                    duplicates.push(later.0.clone());
                }
                same
            });
        }
        (Map { members }, duplicates)
    }

    /// A map of members that are sorted by key, each key once.
    pub(crate) fn from_sorted(members: Vec<(SmolStr, Value)>) -> Map {
        debug_assert!(members.is_sorted_by(|a, b| a.0 < b.0));
        Map { members }
    }

    #[inline]
    fn find(&self, key: &str) -> Result<usize, usize> {
        self.members.binary_search_by(|(k, _)| k.as_str().cmp(key))
    }

    /// The position of a key. In small maps comparing lengths first distinguishes nearly all keys, which is
    /// faster than comparing bytes.
    #[inline]
    fn place(&self, key: &str) -> Option<usize> {
        match self.members.len() <= FEW {
            true => self.members.iter().position(|(k, _)| k.len() == key.len() && k.as_str() == key),
            false => self.find(key).ok(),
        }
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.place(key).map(|i| &self.members[i].1)
    }

    /// The mutable value of a key.
    #[inline]
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.place(key).map(|i| &mut self.members[i].1)
    }

    /// Whether the key is present.
    #[inline]
    pub fn contains(&self, key: &str) -> bool {
        self.place(key).is_some()
    }

    /// Sets a key; returns the previous value. Moves the later members, so to build a large map use
    /// [`Map::from_members`].
    pub fn insert(&mut self, key: impl Into<SmolStr>, value: impl Into<Value>) -> Option<Value> {
        let key = key.into();
        match self.find(&key) {
            Ok(i) => Some(std::mem::replace(&mut self.members[i].1, value.into())),
            Err(i) => {
                self.members.insert(i, (key, value.into()));
                None
            }
        }
    }

    /// The value of a key, `Null` put there first when absent.
    pub fn entry(&mut self, key: &str) -> &mut Value {
        let i = match self.find(key) {
            Ok(i) => i,
            Err(i) => {
                self.members.insert(i, (SmolStr::new(key), Value::Null));
                i
            }
        };
        &mut self.members[i].1
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.find(key).ok().map(|i| self.members.remove(i).1)
    }

    /// Keeps the members for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&SmolStr, &mut Value) -> bool) {
        self.members.retain_mut(|(k, v)| keep(k, v));
    }

    /// How many members there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The members in key order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&SmolStr, &Value)> {
        self.members.iter().map(|(k, v)| (k, v))
    }

    /// The members in key order, with mutable values.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (&SmolStr, &mut Value)> {
        self.members.iter_mut().map(|(k, v)| (&*k, v))
    }

    /// The keys in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &SmolStr> {
        self.members.iter().map(|(k, _)| k)
    }

    /// The values in key order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &Value> {
        self.members.iter().map(|(_, v)| v)
    }
}

impl IntoIterator for Map {
    type Item = (SmolStr, Value);
    type IntoIter = std::vec::IntoIter<(SmolStr, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.members.into_iter()
    }
}

impl FromIterator<(SmolStr, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (SmolStr, Value)>>(members: I) -> Map {
        Map::from_members(members.into_iter().collect()).0
    }
}

/// Builds an object tree from JSON-like syntax: `tree!({"kind": "Status", "code": 404})`. Values are
/// expressions that convert into [`Value`]; nest with an inner `tree!` for lists and objects.
#[macro_export]
macro_rules! tree {
    ({ $($key:literal : $value:expr),* $(,)? }) => {{
        #[allow(unused_mut)]
        let mut map = $crate::value::Map::new();
        $( map.insert($key, $crate::value::Value::from($value)); )*
        $crate::value::Value::Object(map)
    }};
    ([ $($value:expr),* $(,)? ]) => {
        $crate::value::Value::Array(vec![ $( $crate::value::Value::from($value) ),* ])
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_duplicate_wins_and_is_named() {
        let (map, duplicates) = Map::from_members(vec![
            ("b".into(), 1i64.into()),
            ("a".into(), 2i64.into()),
            ("b".into(), 3i64.into()),
        ]);
        assert_eq!(map.get("b"), Some(&Value::Int(3)));
        assert_eq!(map.get("a"), Some(&Value::Int(2)));
        assert_eq!(duplicates, ["b"]);
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn texts_are_the_strings_of_a_list() {
        let v = tree!({ "a": tree!({ "b": tree!(["x", 1, "y"]), "c": "z" }) });
        assert_eq!(v.texts_at(&["a", "b"]), ["x", "y"]);
        assert!(v.texts_at(&["a", "c"]).is_empty() && v.texts_at(&["a", "d"]).is_empty());
    }

    #[test]
    fn object_at_mut_makes_parents_but_never_overwrites() {
        let mut v = tree!({ "metadata": tree!({ "name": "x" }), "spec": "text" });
        v.object_at_mut(&["metadata", "labels"]).unwrap().insert("a", "b");
        assert_eq!(v.str_at(&["metadata", "labels", "a"]), Some("b"));
        assert!(v.object_at_mut(&["spec", "x"]).is_none());
    }
}
