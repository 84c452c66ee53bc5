//! A flat parse tree: the input of the encoder, made from JSON text or a [`Value`].
//!
//! Nodes are in document order in one vector and borrow their text from the source; a container stores where
//! its last descendant ends, so that skipping it is one addition. The members of an object are pairs of
//! nodes, key and value. Parsing JSON to a tape costs one pass over the bytes and one allocation.

use std::borrow::Cow;

use super::lexer::{hex4, Lexer};
use super::EncodeError;
use crate::value::{level, Map, Value, MAX_DEPTH as MAX_JSON_DEPTH};

/// One node of a [`Tape`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Node<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// A number that is not a 64-bit integer, as text.
    Number(&'a str),
    /// Text without escapes.
    Text(&'a str),
    /// The inside of a JSON string that holds escapes.
    Escaped(&'a str),
    /// A list; its elements are the nodes up to `end`.
    Array {
        end: u32,
    },
    /// An object; its keys and values are the nodes up to `end`.
    Object {
        end: u32,
    },
}

impl<'a> Node<'a> {
    /// The text of a string node.
    #[inline]
    pub fn text(&self) -> Option<Cow<'a, str>> {
        match *self {
            Node::Text(text) => Some(Cow::Borrowed(text)),
            Node::Escaped(inside) => Some(Cow::Owned(unescape(inside))),
            _ => None,
        }
    }

    /// The number if it is an integer. `-0` is one for Go's integers, though as a double it keeps its sign.
    #[inline]
    pub fn integer(&self) -> Option<i64> {
        match *self {
            Node::Int(n) => Some(n),
            Node::Number("-0") => Some(0),
            _ => None,
        }
    }

    /// The name of the JSON type for error texts.
    pub fn type_name(&self) -> &'static str {
        match self {
            Node::Null => "null",
            Node::Bool(_) => "bool",
            Node::Int(_) | Node::Float(_) | Node::Number(_) => "number",
            Node::Text(_) | Node::Escaped(_) => "string",
            Node::Array { .. } => "array",
            Node::Object { .. } => "object",
        }
    }
}

/// A flat parse tree; node 0 is the root. Never empty.
#[derive(Debug)]
pub(crate) struct Tape<'a> {
    nodes: Vec<Node<'a>>,
}

impl<'a> Tape<'a> {
    /// Flattens an object tree.
    pub fn from_value(value: &'a Value) -> Result<Tape<'a>, EncodeError> {
        let mut nodes = Vec::with_capacity(256);
        flatten(value, &mut nodes, 0)?;
        Ok(Tape { nodes })
    }

    /// Parses JSON. Validates everything but the uniqueness of keys.
    pub fn from_json(json: &'a [u8]) -> Result<Tape<'a>, EncodeError> {
        parse(Lexer::new(json)?)
    }

    #[inline]
    pub fn node(&self, index: u32) -> Node<'a> {
        self.nodes[index as usize]
    }

    /// The index after a node and its descendants.
    #[inline]
    pub fn after(&self, index: u32) -> u32 {
        match self.node(index) {
            Node::Array { end } | Node::Object { end } => end,
            _ => index + 1,
        }
    }

    /// Appends a node as compact JSON. Text from JSON is copied unchanged.
    pub fn write_json(&self, index: u32, out: &mut Vec<u8>) {
        // Open containers: where each ends and what closes it.
        let mut open: Vec<(u32, u8)> = Vec::new();
        let (mut i, end) = (index, self.after(index));
        let mut after_key = false;
        while i < end {
            let node = self.node(i);
            if !after_key && !matches!(out.last(), Some(b'{' | b'[')) && i != index {
                out.push(b',');
            }
            i += 1;
            match node {
                Node::Null => out.extend_from_slice(b"null"),
                Node::Bool(true) => out.extend_from_slice(b"true"),
                Node::Bool(false) => out.extend_from_slice(b"false"),
                Node::Int(n) => push_int(out, n),
                Node::Float(x) => crate::json::write_number(x, out),
                Node::Number(text) => out.extend_from_slice(text.as_bytes()),
                Node::Text(text) => crate::json::write_string(text, out),
                Node::Escaped(inside) => {
                    out.push(b'"');
                    out.extend_from_slice(inside.as_bytes());
                    out.push(b'"');
                }
                Node::Array { end } => {
                    out.push(b'[');
                    open.push((end, b']'));
                }
                Node::Object { end } => {
                    out.push(b'{');
                    open.push((end, b'}'));
                }
            }
            let in_object = matches!(open.last(), Some((_, b'}')));
            let opened = matches!(node, Node::Array { .. } | Node::Object { .. });
            after_key = in_object && !opened && !after_key;
            if after_key {
                out.push(b':');
                continue;
            }
            while let Some(&(end, close)) = open.last() {
                if end != i {
                    break;
                }
                out.push(close);
                open.pop();
            }
        }
    }
}

/// Appends a decimal integer.
pub(crate) fn push_int(out: &mut Vec<u8>, n: i64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = n.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if n < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

fn flatten<'a>(value: &'a Value, nodes: &mut Vec<Node<'a>>, depth: usize) -> Result<(), EncodeError> {
    if depth > MAX_JSON_DEPTH {
        return Err(EncodeError::TooDeep);
    }
    let place = nodes.len();
    if place >= u32::MAX as usize / 2 {
        return Err(EncodeError::TooLarge);
    }
    match value {
        Value::Null => nodes.push(Node::Null),
        Value::Bool(b) => nodes.push(Node::Bool(*b)),
        Value::Int(n) => nodes.push(Node::Int(*n)),
        Value::Float(x) => nodes.push(Node::Float(*x)),
        Value::String(text) => nodes.push(Node::Text(text)),
        Value::Array(elements) => {
            nodes.push(Node::Null);
            level(|| elements.iter().try_for_each(|element| flatten(element, nodes, depth + 1)))?;
            nodes[place] = Node::Array { end: nodes.len() as u32 };
        }
        Value::Object(members) => flatten_object(members, nodes, depth)?,
        Value::Encoded(encoded) => flatten_object(encoded.members(), nodes, depth)?,
    }
    Ok(())
}

fn flatten_object<'a>(members: &'a Map, nodes: &mut Vec<Node<'a>>, depth: usize) -> Result<(), EncodeError> {
    let place = nodes.len();
    nodes.push(Node::Null);
    level(|| {
        members.iter().try_for_each(|(key, value)| {
            nodes.push(Node::Text(key));
            flatten(value, nodes, depth + 1)
        })
    })?;
    nodes[place] = Node::Object { end: nodes.len() as u32 };
    Ok(())
}

/// Parses a whole text.
fn parse<'a>(mut lexer: Lexer<'a>) -> Result<Tape<'a>, EncodeError> {
    let mut nodes: Vec<Node<'a>> = Vec::with_capacity(lexer.text.len() / 10 + 4);
    let mut open: Vec<u32> = Vec::with_capacity(16);
    'value: loop {
        match lexer.peek() {
            b'{' => {
                lexer.at += 1;
                open.push(nodes.len() as u32);
                nodes.push(Node::Object { end: 0 });
                if open.len() > MAX_JSON_DEPTH {
                    return lexer.fail("exceeded max depth");
                }
                if lexer.peek() != b'}' {
                    nodes.push(lexer.key()?);
                    continue 'value;
                }
            }
            b'[' => {
                lexer.at += 1;
                open.push(nodes.len() as u32);
                nodes.push(Node::Array { end: 0 });
                if open.len() > MAX_JSON_DEPTH {
                    return lexer.fail("exceeded max depth");
                }
                if lexer.peek() != b']' {
                    continue 'value;
                }
            }
            _ => nodes.push(lexer.leaf()?),
        }
        // A value is complete: close the containers that end here, then continue with the next value.
        loop {
            let Some(&container) = open.last() else {
                return lexer.end().map(|()| Tape { nodes });
            };
            let after = nodes.len() as u32;
            let is_object = matches!(nodes[container as usize], Node::Object { .. });
            match (lexer.peek(), is_object) {
                (b',', true) => {
                    lexer.at += 1;
                    nodes.push(lexer.key()?);
                    continue 'value;
                }
                (b',', false) => {
                    lexer.at += 1;
                    continue 'value;
                }
                (b'}', true) => nodes[container as usize] = Node::Object { end: after },
                (b']', false) => nodes[container as usize] = Node::Array { end: after },
                _ => return lexer.fail("expected a comma or the end of the container"),
            }
            lexer.at += 1;
            open.pop();
        }
    }
}

/// The unescaped text of a JSON string. Half of a surrogate pair becomes U+FFFD, as in Go. The escapes were
/// checked when the tape was made.
fn unescape(inside: &str) -> String {
    let mut text = String::with_capacity(inside.len());
    let mut rest = inside;
    while let Some((plain, escape)) = rest.split_once('\\') {
        text.push_str(plain);
        let mut length = 1;
        match escape.as_bytes().first() {
            Some(b'b') => text.push('\u{8}'),
            Some(b'f') => text.push('\u{c}'),
            Some(b'n') => text.push('\n'),
            Some(b'r') => text.push('\r'),
            Some(b't') => text.push('\t'),
            Some(b'u') => {
                length = 5;
                let bytes = escape.as_bytes();
                let first = hex4(bytes.get(1..)).unwrap_or(0xfffd);
                let second = match bytes.get(5..7) {
                    Some(b"\\u") => hex4(bytes.get(7..)),
                    _ => None,
                };
                match char::decode_utf16([first].into_iter().chain(second)).next() {
                    Some(Ok(c)) => {
                        text.push(c);
                        length += if c.len_utf16() == 2 { 6 } else { 0 };
                    }
                    _ => text.push('\u{fffd}'),
                }
            }
            Some(&other) => text.push(other as char),
            None => break,
        }
        rest = escape.get(length..).unwrap_or_default();
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compact(json: &str) -> Result<String, EncodeError> {
        let tape = Tape::from_json(json.as_bytes())?;
        let mut out = Vec::new();
        tape.write_json(0, &mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn compacting_keeps_all_but_white_space() {
        let json = " { \"a\" : [ 1 , -2 , { } , [ ] , \"x\\n \\u00e9 y\" , 1.50 , -0, 1e3 ] , \"b\\\"\" : { \"c\" : null } , \"d\":true,\"e\":false } ";
        assert_eq!(
            compact(json).unwrap(),
            "{\"a\":[1,-2,{},[],\"x\\n \\u00e9 y\",1.50,-0,1e3],\"b\\\"\":{\"c\":null},\"d\":true,\"e\":false}"
        );
        for scalar in ["1", "\"\"", "null", "[]", "{}", "[[]]", "[{}]", "{\"a\":{}}", "9223372036854775808"] {
            assert_eq!(compact(scalar).unwrap(), scalar);
        }
    }

    #[test]
    fn malformed_json_is_refused() {
        for bad in [
            "",
            " ",
            "{",
            "[",
            "}",
            "{]",
            "[}",
            "[1,]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "-",
            "1.",
            "1e",
            ".5",
            "+1",
            "nul",
            "tru",
            "\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\n\"",
            "1 2",
            "[1 2]",
            "{\"a\" 1}",
            "{1:2}",
            "\u{1}",
            "[,1]",
        ] {
            assert!(compact(bad).is_err(), "{bad:?}");
        }
        assert!(Tape::from_json(b"\"\xff\"").is_err());
    }

    #[test]
    fn escapes_stand_for_their_characters() {
        assert_eq!(unescape("a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9z"), "a\"\\/\u{8}\u{c}\n\r\t\u{e9}z");
        assert_eq!(unescape("\\ud83d\\ude00!"), "\u{1f600}!");
        assert_eq!(unescape("\\ud83d!"), "\u{fffd}!");
        assert_eq!(unescape("\\ud83d\\u0041"), "\u{fffd}A");
        assert_eq!(unescape("\\ude00\\ud83d\\ude00"), "\u{fffd}\u{1f600}");
    }

    #[test]
    fn depth_is_bounded_and_needs_no_stack() {
        let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(compact(&deep(10_000)).is_ok());
        assert!(compact(&deep(10_001)).is_err());
        assert!(compact(&"[".repeat(1_000_000)).is_err());
    }
}
