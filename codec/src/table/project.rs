//! Reading only the values that a table needs from a JSON body.
//!
//! The paths of a table's columns form a tree ([`Paths`]). One pass over the body descends along the paths
//! and skips everything else. Reading a pod of 3 KiB takes less time than copying its parsed tree would.
//!
//! A path is a sequence of keys separated by dots. `[]` after a key descends into each element of a list, `#`
//! at the end reads the number of elements only. Keys with dots cannot be addressed; read the map that has
//! them.

use crate::error::DecodeError;
use crate::json::{plain_number, Cursor, Number, Token};
use crate::{Map, Value};
use smol_str::SmolStr;

/// Maximum depth; deeper values are read as `null`. No column reads that deep, and the recursion must be
/// bounded.
const MAX_DEPTH: usize = 128;

/// A body that is not JSON, with the offset of the error in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed JSON at byte {0}")]
pub struct MalformedJson(pub usize);

impl From<DecodeError> for MalformedJson {
    fn from(error: DecodeError) -> MalformedJson {
        MalformedJson(if let DecodeError::Syntax { offset, .. } = error { offset } else { 0 })
    }
}

/// The paths to read of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Paths {
    /// Members to descend into. Few, so they are searched linearly.
    keys: Vec<(SmolStr, Paths)>,
    /// The paths to read of each element of a list.
    each: Option<Box<Paths>>,
    /// Read the whole value.
    whole: bool,
    /// Read the number of elements.
    count: bool,
}

impl Paths {
    /// Adds a path.
    pub fn insert(&mut self, path: &str) {
        let mut node = self;
        let (path, count) = match path.strip_suffix('#') {
            Some(path) => (path, true),
            None => (path, false),
        };
        for step in path.split('.').filter(|step| !step.is_empty()) {
            let (key, each) = match step.strip_suffix("[]") {
                Some(key) => (key, true),
                None => (step, false),
            };
            let at = match node.keys.iter().position(|(k, _)| k == key) {
                Some(at) => at,
                None => {
                    node.keys.push((key.into(), Paths::default()));
                    node.keys.len() - 1
                }
            };
            node = &mut node.keys[at].1;
            if each {
                node = node.each.get_or_insert_default();
            }
        }
        if count {
            node.count = true;
        } else {
            node.whole = true;
        }
    }

    /// The selected parts of a JSON object: objects with these members only, lists with elements reduced
    /// likewise, and numbers for counts. One pass over the body.
    ///
    /// # Errors
    /// [`MalformedJson`] where the text is found not to be JSON. Skipped parts are not fully validated.
    pub fn read(&self, json: &[u8]) -> Result<Value, MalformedJson> {
        Ok(value(&mut Cursor::sparse(json), self, MAX_DEPTH)?)
    }

    /// Whether the value at a sequence of keys is read.
    pub fn covers(&self, keys: &[&str]) -> bool {
        match keys.split_first() {
            _ if self.whole => true,
            None => self.count || self.each.is_some() || !self.keys.is_empty(),
            Some((key, rest)) => self.below(key.as_bytes()).is_some_and(|(_, below)| below.covers(rest)),
        }
    }

    /// Whether only the number of elements is read; otherwise it can be counted from the value.
    fn count_only(&self) -> bool {
        self.count && !self.whole && self.each.is_none() && self.keys.is_empty()
    }

    fn below(&self, key: &[u8]) -> Option<&(SmolStr, Paths)> {
        // Comparing the last byte first distinguishes most keys of one length, without a call.
        let last = key.last();
        self.keys.iter().find(|(k, _)| {
            let k = k.as_bytes();
            k.len() == key.len() && k.last() == last && k == key
        })
    }
}

/// Reads everything; used below a path that is read whole.
static WHOLE: Paths = Paths { keys: Vec::new(), each: None, whole: true, count: false };

fn value(cursor: &mut Cursor<'_>, paths: &Paths, depth: usize) -> Result<Value, DecodeError> {
    let Some(depth) = depth.checked_sub(1) else {
        cursor.skip_value()?;
        return Ok(Value::Null);
    };
    match cursor.peek() {
        Some(b'{' | b'[') if paths.count_only() => return count(cursor),
        Some(b'[') if !paths.whole && paths.each.is_none() => {
            cursor.skip_value()?;
            return Ok(Value::Array(Vec::new()));
        }
        _ => {}
    }
    Ok(match cursor.token(Cursor::string)? {
        Token::Object => object(cursor, paths, depth)?,
        Token::Array => {
            array(cursor, paths.each.as_deref().filter(|_| !paths.whole).unwrap_or(&WHOLE), depth)?
        }
        Token::String(text) => Value::String(text.into()),
        Token::Bool(b) => Value::Bool(b),
        Token::Null => Value::Null,
        Token::Number(Number::Int(n)) => Value::Int(n),
        Token::Number(Number::Float(n)) => Value::Float(n),
        Token::Number(Number::Text(text)) => {
            plain_number(text).ok_or_else(|| cursor.error("after number out of range"))?
        }
    })
}

/// The rest of an object.
fn object(cursor: &mut Cursor<'_>, paths: &Paths, depth: usize) -> Result<Value, DecodeError> {
    let mut members = Vec::with_capacity(paths.keys.len());
    let mut first = true;
    while cursor.member(first)? {
        first = false;
        if paths.whole {
            let key = cursor.key()?.into();
            members.push((key, value(cursor, &WHOLE, depth)?));
            continue;
        }
        let key = cursor.raw_key()?;
        if let Some((key, below)) = paths.below(cursor.inside(key)) {
            // Inserting a few members in order costs less than sorting them.
            let place = members.partition_point(|(k, _)| k < key);
            members.insert(place, (key.clone(), value(cursor, below, depth)?));
        } else {
            cursor.skip_value()?;
        }
    }
    Ok(Value::Object(Map::from_members(members).0))
}

/// The rest of a list.
fn array(cursor: &mut Cursor<'_>, each: &Paths, depth: usize) -> Result<Value, DecodeError> {
    let mut items = Vec::new();
    while cursor.element(items.is_empty())? {
        items.push(value(cursor, each, depth)?);
    }
    Ok(Value::Array(items))
}

/// The number of elements of the list or object that begins here.
fn count(cursor: &mut Cursor<'_>) -> Result<Value, DecodeError> {
    let is_object = matches!(cursor.token(Cursor::raw_string)?, Token::Object);
    let mut count = 0;
    while if is_object { cursor.member(count == 0)? } else { cursor.element(count == 0)? } {
        if is_object {
            cursor.raw_key()?;
        }
        cursor.skip_value()?;
        count += 1;
    }
    Ok(Value::Int(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;
    use proptest::prelude::*;

    fn read(paths: &[&str], json: &str) -> Result<Value, MalformedJson> {
        let mut all = Paths::default();
        paths.iter().for_each(|path| all.insert(path));
        all.read(json.as_bytes())
    }

    const OBJECT: &str = r#"{"metadata":{"name":"x","labels":{"a.b/c":"d","e":"f"},"skip":{"name":"y"}},
        "spec" : { "list": [ {"a":1,"b":[2]}, {"b":3} ], "empty": [], "none": null, "n": -1.5, "big": 12345678901 },
        "text": "q\"\\\u00e9\ud83d\ude00\n", "flags": [true, false, null]}"#;

    #[test]
    fn reads_the_wanted_paths() {
        let cases: &[(&[&str], Value)] = &[
            (&[], tree!({})),
            (&["metadata.name"], tree!({ "metadata": tree!({ "name": "x" }) })),
            (
                &["metadata.labels", "absent.path"],
                tree!({ "metadata": tree!({ "labels": tree!({ "a.b/c": "d", "e": "f" }) }) }),
            ),
            (
                &["spec.list[].a", "spec.empty[].a"],
                tree!({ "spec": tree!({ "list": tree!([tree!({ "a": 1i64 }), tree!({})]), "empty": tree!([]) }) }),
            ),
            (
                &["spec.list#", "spec.empty#", "metadata#"],
                tree!({ "spec": tree!({ "list": 2i64, "empty": 0i64 }), "metadata": 3i64 }),
            ),
            (
                &["spec.none", "spec.big", "spec.n"],
                tree!({ "spec": tree!({
                    "none": Value::Null, "big": 12_345_678_901i64, "n": Value::Float(-1.5)
                }) }),
            ),
            (&["text"], tree!({ "text": "q\"\\é😀\n" })),
            (&["flags"], tree!({ "flags": tree!([true, false, Value::Null]) })),
            // A path into a scalar gives the scalar.
            (&["text.deeper"], tree!({ "text": "q\"\\é😀\n" })),
        ];
        for (paths, expected) in cases {
            assert_eq!(read(paths, OBJECT).as_ref(), Ok(expected), "{paths:?}");
        }
    }

    #[test]
    fn refuses_what_is_not_json() {
        let deep = format!("{{\"a\":{}", "[".repeat(200));
        for json in [
            "",
            "{",
            "{\"a",
            "{\"a\":",
            "{\"a\":[1,",
            "{\"a\":1",
            "{\"a\" 1}",
            "{a:1}",
            "{\"a\":tru}",
            "{\"a\":-}",
            "{\"a\":\"\\q\"}",
            "{\"a\":\"\\",
            &deep,
        ] {
            assert!(read(&["a"], json).is_err(), "{json:?}");
        }
        assert!(read(&[], "{\"a\":[[[").is_err());
        // As in every other reader.
        let invalid = Paths { whole: true, ..Paths::default() }.read(b"{\"a\":\"\xff\"}");
        assert_eq!(invalid, Ok(tree!({ "a": "\u{fffd}" })));
    }

    fn any_value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            "[ -~\\\\\"é\n\u{1}😀]{0,20}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                prop::collection::btree_map("[abc\\\\\"]{1,2}", inner, 0..5)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn tree_of(value: &serde_json::Value) -> Value {
        match value {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(b) => (*b).into(),
            serde_json::Value::Number(n) => n.as_i64().unwrap().into(),
            serde_json::Value::String(s) => s.as_str().into(),
            serde_json::Value::Array(items) => items.iter().map(tree_of).collect::<Vec<_>>().into(),
            serde_json::Value::Object(map) => {
                Value::Object(map.iter().map(|(k, v)| (k.as_str().into(), tree_of(v))).collect())
            }
        }
    }

    proptest! {
        #[test]
        fn whole_values_equal_what_serde_reads(value in any_value(), pretty in any::<bool>()) {
            let json = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let whole = Paths { whole: true, ..Paths::default() };
            prop_assert_eq!(whole.read(json.unwrap().as_bytes()), Ok(tree_of(&value)));
        }

        #[test]
        fn one_member_is_the_same_read_alone(members in prop::collection::btree_map("[abc]", any_value(), 0..4)) {
            let json = serde_json::to_string(&members).unwrap();
            for key in ["a", "b", "c"] {
                let alone = read(&[key], &json).unwrap();
                prop_assert_eq!(alone.get(key).cloned(), members.get(key).map(tree_of));
            }
        }

        #[test]
        fn any_bytes_give_a_value_or_an_error(json in "[\\[\\]{}\":,\\\\u0-9a-z -]{0,60}") {
            // Reading must not panic; whether it succeeds is for the other tests.
            let _ = read(&["a[].b", "c#", "d"], &json);
        }
    }
}
