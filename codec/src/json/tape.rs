//! A flat parse tree: the input of the encoder, made from JSON text or a [`Value`].
//!
//! Nodes are in document order in one vector and borrow their text from the source; a container stores where
//! its last descendant ends, so that skipping it is one addition. The members of an object are pairs of
//! nodes, key and value. Parsing JSON to a tape costs one pass over the bytes and one allocation.

use std::borrow::Cow;

use super::{unescape, write_integer, write_number, write_string, Cursor, Number, RawString, Token};
use crate::error::EncodeError;
use crate::value::{level, Map, Value, MAX_DEPTH as MAX_JSON_DEPTH};

/// One node of a [`Tape`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TapeNode<'a> {
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

impl<'a> TapeNode<'a> {
    /// The text of a string node.
    #[inline]
    pub(crate) fn text(&self) -> Option<Cow<'a, str>> {
        match *self {
            TapeNode::Text(text) => Some(Cow::Borrowed(text)),
            TapeNode::Escaped(inside) => Some(Cow::Owned(unescape(inside.as_bytes()))),
            _ => None,
        }
    }

    /// The number if it is an integer. `-0` is one for Go's integers, though as a double it keeps its sign.
    #[inline]
    pub(crate) fn integer(&self) -> Option<i64> {
        match *self {
            TapeNode::Int(n) => Some(n),
            TapeNode::Number("-0") => Some(0),
            _ => None,
        }
    }

    /// The name of the JSON type for error texts.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            TapeNode::Null => "null",
            TapeNode::Bool(_) => "bool",
            TapeNode::Int(_) | TapeNode::Float(_) | TapeNode::Number(_) => "number",
            TapeNode::Text(_) | TapeNode::Escaped(_) => "string",
            TapeNode::Array { .. } => "array",
            TapeNode::Object { .. } => "object",
        }
    }
}

/// A flat parse tree; node 0 is the root. Never empty.
#[derive(Debug)]
pub(crate) struct Tape<'a> {
    nodes: Vec<TapeNode<'a>>,
}

impl<'a> Tape<'a> {
    /// Flattens an object tree.
    pub(crate) fn from_value(value: &'a Value) -> Result<Tape<'a>, EncodeError> {
        let mut nodes = Vec::with_capacity(256);
        flatten(value, &mut nodes, 0)?;
        Ok(Tape { nodes })
    }

    /// Parses JSON. Validates everything but the uniqueness of keys.
    pub(crate) fn from_json(json: &'a [u8]) -> Result<Tape<'a>, EncodeError> {
        parse(cursor(json)?)
    }

    #[inline]
    pub(crate) fn node(&self, index: u32) -> TapeNode<'a> {
        self.nodes[index as usize]
    }

    /// The index after a node and its descendants.
    #[inline]
    pub(crate) fn after(&self, index: u32) -> u32 {
        match self.node(index) {
            TapeNode::Array { end } | TapeNode::Object { end } => end,
            _ => index + 1,
        }
    }

    /// Appends a node as compact JSON. Text from JSON is copied unchanged.
    pub(crate) fn write_json(&self, index: u32, out: &mut Vec<u8>) {
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
                TapeNode::Null => out.extend_from_slice(b"null"),
                TapeNode::Bool(true) => out.extend_from_slice(b"true"),
                TapeNode::Bool(false) => out.extend_from_slice(b"false"),
                TapeNode::Int(n) => write_integer(n, out),
                TapeNode::Float(x) => write_number(x, out),
                TapeNode::Number(text) => out.extend_from_slice(text.as_bytes()),
                TapeNode::Text(text) => write_string(text, out),
                TapeNode::Escaped(inside) => {
                    out.push(b'"');
                    out.extend_from_slice(inside.as_bytes());
                    out.push(b'"');
                }
                TapeNode::Array { end } => {
                    out.push(b'[');
                    open.push((end, b']'));
                }
                TapeNode::Object { end } => {
                    out.push(b'{');
                    open.push((end, b'}'));
                }
            }
            let in_object = matches!(open.last(), Some((_, b'}')));
            let opened = matches!(node, TapeNode::Array { .. } | TapeNode::Object { .. });
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

fn flatten<'a>(value: &'a Value, nodes: &mut Vec<TapeNode<'a>>, depth: usize) -> Result<(), EncodeError> {
    if depth > MAX_JSON_DEPTH {
        return Err(EncodeError::TooDeep);
    }
    let place = nodes.len();
    if place >= u32::MAX as usize / 2 {
        return Err(EncodeError::TooLarge);
    }
    match value {
        Value::Null => nodes.push(TapeNode::Null),
        Value::Bool(b) => nodes.push(TapeNode::Bool(*b)),
        Value::Int(n) => nodes.push(TapeNode::Int(*n)),
        Value::Float(x) => nodes.push(TapeNode::Float(*x)),
        Value::String(text) => nodes.push(TapeNode::Text(text)),
        Value::Array(elements) => {
            nodes.push(TapeNode::Null);
            level(|| elements.iter().try_for_each(|element| flatten(element, nodes, depth + 1)))?;
            nodes[place] = TapeNode::Array { end: nodes.len() as u32 };
        }
        Value::Object(members) => flatten_object(members, nodes, depth)?,
        Value::Encoded(encoded) => flatten_object(encoded.members(), nodes, depth)?,
    }
    Ok(())
}

fn flatten_object<'a>(
    members: &'a Map,
    nodes: &mut Vec<TapeNode<'a>>,
    depth: usize,
) -> Result<(), EncodeError> {
    let place = nodes.len();
    nodes.push(TapeNode::Null);
    level(|| {
        members.iter().try_for_each(|(key, value)| {
            nodes.push(TapeNode::Text(key));
            flatten(value, nodes, depth + 1)
        })
    })?;
    nodes[place] = TapeNode::Object { end: nodes.len() as u32 };
    Ok(())
}

/// A cursor at the beginning of stored JSON.
pub(crate) fn cursor(json: &[u8]) -> Result<Cursor<'_>, EncodeError> {
    let invalid = |offset, problem: &str| EncodeError::Json { offset, problem: problem.into() };
    let text = std::str::from_utf8(json).map_err(|e| invalid(e.valid_up_to(), "invalid UTF-8"))?;
    match u32::try_from(text.len()) {
        Ok(_) => Ok(Cursor::of_text(text)),
        Err(_) => Err(invalid(u32::MAX as usize, "text too long")),
    }
}

/// The node of the next value; the end of a container is not known yet.
#[inline(always)]
pub(crate) fn begin<'a>(cursor: &mut Cursor<'a>) -> Result<TapeNode<'a>, EncodeError> {
    Ok(match cursor.token(Cursor::raw_string)? {
        Token::Null => TapeNode::Null,
        Token::Bool(b) => TapeNode::Bool(b),
        Token::String(raw) => string(cursor, raw),
        Token::Array => TapeNode::Array { end: 0 },
        Token::Object => TapeNode::Object { end: 0 },
        Token::Number(Number::Int(n)) => TapeNode::Int(n),
        Token::Number(Number::Float(x)) => TapeNode::Float(x),
        Token::Number(Number::Text(text)) => match text.parse::<i64>() {
            // See [`TapeNode::integer`].
            Ok(n) if n != 0 || !text.starts_with('-') => TapeNode::Int(n),
            _ if text.parse::<f64>().is_ok_and(f64::is_finite) => TapeNode::Number(text),
            _ => {
                return Err(EncodeError::Json { offset: cursor.at(), problem: "number out of range".into() })
            }
        },
    })
}

#[inline]
fn string<'a>(cursor: &Cursor<'a>, raw: RawString) -> TapeNode<'a> {
    let inside = cursor.inside_text(raw);
    match raw.escaped {
        true => TapeNode::Escaped(inside),
        false => TapeNode::Text(inside),
    }
}

/// Parses a whole text.
fn parse<'a>(mut cursor: Cursor<'a>) -> Result<Tape<'a>, EncodeError> {
    let mut nodes: Vec<TapeNode<'a>> = Vec::with_capacity(cursor.left() / 10 + 4);
    let mut open: Vec<u32> = Vec::with_capacity(16);
    loop {
        let node = begin(&mut cursor)?;
        let mut first = matches!(node, TapeNode::Array { .. } | TapeNode::Object { .. });
        if first {
            open.push(nodes.len() as u32);
        }
        nodes.push(node);
        // Advance to the next value; close the containers that end before it.
        loop {
            let Some(&container) = open.last() else {
                cursor.end()?;
                return Ok(Tape { nodes });
            };
            let is_object = matches!(nodes[container as usize], TapeNode::Object { .. });
            let more = if is_object { cursor.member(first)? } else { cursor.element(first)? };
            if more {
                if is_object {
                    let key = cursor.raw_key()?;
                    nodes.push(string(&cursor, key));
                }
                break;
            }
            let end = nodes.len() as u32;
            nodes[container as usize] =
                if is_object { TapeNode::Object { end } } else { TapeNode::Array { end } };
            open.pop();
            first = false;
        }
    }
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
    fn depth_is_bounded_and_needs_no_stack() {
        let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(compact(&deep(10_000)).is_ok());
        assert!(compact(&deep(10_001)).is_err());
        assert!(compact(&"[".repeat(1_000_000)).is_err());
    }
}
