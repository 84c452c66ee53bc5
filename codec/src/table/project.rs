//! Reading only the values that a table needs from a JSON body.
//!
//! The paths of a table's columns form a tree ([`Paths`]). One pass over the body descends along the paths
//! and skips everything else. Reading a pod of 3 KiB takes less time than copying its parsed tree would.
//!
//! A path is a sequence of keys separated by dots. `[]` after a key descends into each element of a list, `#`
//! at the end reads the number of elements only. Keys with dots cannot be addressed; read the map that has
//! them.

use crate::blocks::{container_len, quote_or_backslash};
use crate::{Map, Value};
use smol_str::SmolStr;

/// Maximum depth; deeper values are read as `null`. No column reads that deep, and the recursion must be
/// bounded.
const MAX_DEPTH: usize = 128;

/// A body that is not JSON, with the offset of the error in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed JSON at byte {0}")]
pub struct MalformedJson(pub usize);

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
        Reader { json, at: 0 }.value(self, MAX_DEPTH)
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

struct Reader<'a> {
    json: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn malformed<T>(&self) -> Result<T, MalformedJson> {
        Err(MalformedJson(self.at))
    }

    /// The next byte that is not white space, without consuming it; NUL, which starts no value, at the end.
    #[inline]
    fn peek(&mut self) -> u8 {
        loop {
            match self.json.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(byte) => return *byte,
                None => return 0,
            }
        }
    }

    /// Consumes a byte if it is next.
    #[inline]
    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == byte;
        self.at += usize::from(there);
        there
    }

    /// Consumes a byte that must be next.
    #[inline]
    fn expect(&mut self, byte: u8) -> Result<(), MalformedJson> {
        if self.take(byte) {
            Ok(())
        } else {
            self.malformed()
        }
    }

    fn value(&mut self, paths: &Paths, depth: usize) -> Result<Value, MalformedJson> {
        let Some(depth) = depth.checked_sub(1) else {
            self.skip()?;
            return Ok(Value::Null);
        };
        match self.peek() {
            b'{' if paths.count_only() => self.count(b'{', b'}'),
            b'[' if paths.count_only() => self.count(b'[', b']'),
            b'{' => self.object(paths, depth),
            b'[' => self.array(paths, depth),
            b'"' => Ok(Value::String(self.string()?.text().ok_or(MalformedJson(self.at))?)),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            b'n' => self.word("null", Value::Null),
            _ => self.number(),
        }
    }

    fn object(&mut self, paths: &Paths, depth: usize) -> Result<Value, MalformedJson> {
        let mut members = Vec::with_capacity(paths.keys.len());
        self.expect(b'{')?;
        if !self.take(b'}') {
            loop {
                let key = self.key()?;
                if paths.whole {
                    let key = key.text().ok_or(MalformedJson(self.at))?;
                    members.push((key, self.value(&WHOLE, depth)?));
                } else if let Some((key, below)) = paths.below(key.bytes) {
                    // Inserting a few members in order costs less than sorting them.
                    let place = members.partition_point(|(k, _)| k < key);
                    members.insert(place, (key.clone(), self.value(below, depth)?));
                } else {
                    self.skip()?;
                }
                if self.take(b'}') {
                    break;
                }
                self.expect(b',')?;
            }
        }
        Ok(Value::Object(Map::from_members(members).0))
    }

    fn array(&mut self, paths: &Paths, depth: usize) -> Result<Value, MalformedJson> {
        let mut items = Vec::new();
        let each = if paths.whole { Some(&WHOLE) } else { paths.each.as_deref() };
        let Some(each) = each else {
            self.skip()?;
            return Ok(Value::Array(items));
        };
        self.expect(b'[')?;
        if !self.take(b']') {
            loop {
                items.push(self.value(each, depth)?);
                if self.take(b']') {
                    break;
                }
                self.expect(b',')?;
            }
        }
        Ok(Value::Array(items))
    }

    /// The number of elements of the list or object that begins here.
    fn count(&mut self, open: u8, close: u8) -> Result<Value, MalformedJson> {
        let mut count = 0;
        self.expect(open)?;
        if !self.take(close) {
            loop {
                if open == b'{' {
                    self.key()?;
                }
                self.skip()?;
                count += 1;
                if self.take(close) {
                    break;
                }
                self.expect(b',')?;
            }
        }
        Ok(Value::Int(count))
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, MalformedJson> {
        if !self.json[self.at..].starts_with(word.as_bytes()) {
            return self.malformed();
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, MalformedJson> {
        let rest = &self.json[self.at..];
        let end = rest
            .iter()
            .position(|b| !matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
            .unwrap_or(rest.len());
        let number = std::str::from_utf8(&rest[..end]).ok().and_then(|text| {
            let float = || text.parse().ok().filter(|n: &f64| n.is_finite()).map(Value::Float);
            text.parse().ok().map(Value::Int).or_else(float)
        });
        match number {
            Some(number) => {
                self.at += end;
                Ok(number)
            }
            None => self.malformed(),
        }
    }

    /// Skips a key and its colon.
    #[inline]
    fn key(&mut self) -> Result<Raw<'a>, MalformedJson> {
        let key = self.string()?;
        self.expect(b':')?;
        Ok(key)
    }

    /// Skips a string.
    #[inline]
    fn string(&mut self) -> Result<Raw<'a>, MalformedJson> {
        self.expect(b'"')?;
        let start = self.at;
        match string_end(self.json, start) {
            Some((end, escaped)) => {
                self.at = end + 1;
                Ok(Raw { bytes: &self.json[start..end], escaped })
            }
            None => self.malformed(),
        }
    }

    /// Skips a value without parsing it, up to the `,`, `}` or `]` after it.
    fn skip(&mut self) -> Result<(), MalformedJson> {
        match self.peek() {
            b'{' | b'[' => match container_len(&self.json[self.at..]) {
                Some(len) => self.at += len,
                None => return self.malformed(),
            },
            b'"' => drop(self.string()?),
            _ => {
                let scalar = |byte: &u8| !matches!(byte, b',' | b'}' | b']');
                self.at += self.json[self.at..].iter().take_while(|byte| scalar(byte)).count();
            }
        }
        match self.peek() {
            b',' | b'}' | b']' => Ok(()),
            _ => self.malformed(),
        }
    }
}

/// Where the string that begins at `at` has its closing quote, and whether there are escapes before it.
#[inline]
fn string_end(json: &[u8], mut at: usize) -> Option<(usize, bool)> {
    let mut escaped = false;
    loop {
        at += quote_or_backslash(json.get(at..)?);
        match json.get(at)? {
            b'"' => return Some((at, escaped)),
            _ => at += 2,
        }
        escaped = true;
    }
}

/// The raw content of a string.
#[derive(Clone, Copy)]
struct Raw<'a> {
    bytes: &'a [u8],
    escaped: bool,
}

impl Raw<'_> {
    /// The text; `None` when it is not UTF-8 or an escape is wrong.
    fn text(self) -> Option<SmolStr> {
        let text = std::str::from_utf8(self.bytes).ok()?;
        if self.escaped {
            unescape(text)
        } else {
            Some(text.into())
        }
    }
}

/// Text with its escapes resolved; `None` when one is wrong.
fn unescape(raw: &str) -> Option<SmolStr> {
    let mut plain = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((before, escape)) = rest.split_once('\\') {
        plain.push_str(before);
        let mut chars = escape.chars();
        match chars.next()? {
            c @ ('"' | '\\' | '/') => plain.push(c),
            'b' => plain.push('\u{8}'),
            'f' => plain.push('\u{c}'),
            'n' => plain.push('\n'),
            'r' => plain.push('\r'),
            't' => plain.push('\t'),
            'u' => {
                let unit = |text: &str| u16::from_str_radix(text.get(..4)?, 16).ok();
                let first = unit(chars.as_str())?;
                let second = chars.as_str()[4..].strip_prefix("\\u").and_then(unit);
                let pair = second.filter(|_| (0xd800..0xdc00).contains(&first));
                let units = [first, pair.unwrap_or_default()];
                let decoded = char::decode_utf16(units).next()?;
                let length = if pair.is_some() && decoded.is_ok() { 10 } else { 4 };
                plain.push(decoded.unwrap_or(char::REPLACEMENT_CHARACTER));
                chars = chars.as_str()[length..].chars();
            }
            _ => return None,
        }
        rest = chars.as_str();
    }
    plain.push_str(rest);
    Some(plain.into())
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
    fn reads_what_is_asked_for() {
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
        assert!(Paths { whole: true, ..Paths::default() }.read(b"{\"a\":\"\xff\"}").is_err());
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
