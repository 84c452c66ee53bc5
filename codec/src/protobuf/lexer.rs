//! A JSON tokenizer for stored JSON: no values are built, text is borrowed.

use super::tape::Node;
use super::EncodeError;
use crate::blocks::{container_len, plain_prefix};

/// A position in a JSON text.
pub(super) struct Lexer<'a> {
    pub text: &'a str,
    /// Bytes consumed.
    pub at: usize,
}

impl<'a> Lexer<'a> {
    /// At the beginning of a text.
    pub fn new(json: &'a [u8]) -> Result<Lexer<'a>, EncodeError> {
        let text = std::str::from_utf8(json)
            .map_err(|e| EncodeError::Json { offset: e.valid_up_to(), problem: "invalid UTF-8" })?;
        if text.len() > u32::MAX as usize {
            return Err(EncodeError::Json { offset: u32::MAX as usize, problem: "text too long" });
        }
        Ok(Lexer { text, at: 0 })
    }

    pub fn fail<T>(&self, problem: &'static str) -> Result<T, EncodeError> {
        Err(EncodeError::Json { offset: self.at, problem })
    }

    /// The next byte that is no white space, not yet consumed; 0 at the end.
    #[inline]
    pub fn peek(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(&byte) => return byte,
                None => return 0,
            }
        }
    }

    /// Checks that only white space is left.
    pub fn end(&mut self) -> Result<(), EncodeError> {
        match self.peek() {
            0 if self.at == self.text.len() => Ok(()),
            _ => self.fail("text after the value"),
        }
    }

    /// A scalar.
    #[inline]
    pub fn leaf(&mut self) -> Result<Node<'a>, EncodeError> {
        match self.peek() {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.literal("true", Node::Bool(true)),
            b'f' => self.literal("false", Node::Bool(false)),
            b'n' => self.literal("null", Node::Null),
            _ => self.fail("expected a value"),
        }
    }

    /// A key and its colon.
    pub fn key(&mut self) -> Result<Node<'a>, EncodeError> {
        if self.peek() != b'"' {
            return self.fail("expected a key");
        }
        let key = self.string()?;
        if self.peek() != b':' {
            return self.fail("expected a colon");
        }
        self.at += 1;
        Ok(key)
    }

    /// Skips a container; the next byte is its opening bracket. Only its end is searched for.
    pub fn container(&mut self) -> Result<&'a str, EncodeError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let Some(container) = container_len(rest.as_bytes()).and_then(|len| rest.get(..len)) else {
            return self.fail("container without an end");
        };
        self.at += container.len();
        Ok(container)
    }

    /// Skips a value, as [`Lexer::container`] does.
    pub fn value(&mut self) -> Result<&'a str, EncodeError> {
        match self.peek() {
            b'{' | b'[' => self.container(),
            _ => {
                let start = self.at;
                self.leaf()?;
                Ok(&self.text[start..self.at])
            }
        }
    }

    fn literal(&mut self, word: &str, node: Node<'a>) -> Result<Node<'a>, EncodeError> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return self.fail("expected a value");
        }
        self.at += word.len();
        Ok(node)
    }

    /// A string; the next byte is its opening quote.
    #[inline]
    pub fn string(&mut self) -> Result<Node<'a>, EncodeError> {
        let start = self.at + 1;
        let (end, escaped) = self.end_of_string(start)?;
        let Some(inside) = self.text.get(start..end) else {
            return self.fail("split character");
        };
        self.at = end + 1;
        Ok(if escaped { Node::Escaped(inside) } else { Node::Text(inside) })
    }

    /// Where the closing quote of a string is, and whether there are escapes before it.
    #[inline]
    fn end_of_string(&mut self, start: usize) -> Result<(usize, bool), EncodeError> {
        let bytes = self.text.as_bytes();
        let mut at = start;
        let mut escaped = false;
        loop {
            at += plain_prefix(bytes.get(at..).unwrap_or_default());
            match bytes.get(at) {
                Some(b'"') => return Ok((at, escaped)),
                Some(b'\\') => {
                    escaped = true;
                    match bytes.get(at + 1) {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => at += 2,
                        Some(b'u') if hex4(bytes.get(at + 2..)).is_some() => at += 6,
                        _ => {
                            self.at = at;
                            return self.fail("bad escape");
                        }
                    }
                }
                Some(_) => {
                    self.at = at;
                    return self.fail("control character in a string");
                }
                None => {
                    self.at = at;
                    return self.fail("string without an end");
                }
            }
        }
    }

    #[inline]
    fn number(&mut self) -> Result<Node<'a>, EncodeError> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut at = start;
        let digits = |at: &mut usize| {
            let from = *at;
            while bytes.get(*at).is_some_and(u8::is_ascii_digit) {
                *at += 1;
            }
            *at - from
        };
        let negative = bytes[at] == b'-';
        at += negative as usize;
        let first = at;
        let whole = digits(&mut at);
        let mut integer = true;
        if whole == 0 || (whole > 1 && bytes[first] == b'0') {
            return self.fail("bad number");
        }
        if bytes.get(at) == Some(&b'.') {
            integer = false;
            at += 1;
            if digits(&mut at) == 0 {
                return self.fail("bad number");
            }
        }
        if let Some(b'e' | b'E') = bytes.get(at) {
            integer = false;
            at += 1;
            at += matches!(bytes.get(at), Some(b'+' | b'-')) as usize;
            if digits(&mut at) == 0 {
                return self.fail("bad number");
            }
        }
        let text = &self.text[start..at];
        let node = match text.parse::<i64>() {
            // See [`Node::integer`].
            Ok(n) if integer && (n != 0 || !negative) => Node::Int(n),
            _ if text.parse::<f64>().is_ok_and(f64::is_finite) => Node::Number(text),
            _ => return self.fail("number out of range"),
        };
        self.at = at;
        Ok(node)
    }
}

/// The number of four hexadecimal digits at the beginning.
pub(super) fn hex4(bytes: Option<&[u8]>) -> Option<u16> {
    let digits = bytes?.first_chunk::<4>()?;
    digits.iter().try_fold(0, |n, &d| Some(n << 4 | (d as char).to_digit(16)? as u16))
}
