//! The position in a JSON text: the one place that knows JSON's grammar, with the errors of Go's scanner.
//!
//! Every reader of JSON stands on it: the decoders ([`super::text`]), the tape and the transcoder of
//! [`crate::protobuf`] and [`crate::cbor`], the columns of a Table. It builds nothing, and allocates nothing
//! but strings with escapes. Two ways lead past what is not needed: [`Cursor::check_rest`] validates each
//! byte, for text from outside; [`Cursor::skip_value`] only searches the end, for text that was validated
//! when it was written.

use std::borrow::Cow;

use super::source::{Number, Token};
use crate::blocks::{begins_with, container_len, plain_prefix};
use crate::error::DecodeError;
use crate::value::MAX_DEPTH;

/// A position in a JSON text, and the number of containers that are open there.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    /// The same as text if all of it is known to be UTF-8, so that strings need no further validation.
    text: Option<&'a str>,
    at: usize,
    depth: usize,
}

/// Where the inside of a string stands. Its escapes are valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawString {
    start: usize,
    end: usize,
    /// Whether there are escapes.
    pub escaped: bool,
}

impl<'a> Cursor<'a> {
    /// At the beginning of a text from outside.
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, text: std::str::from_utf8(bytes).ok(), at: 0, depth: 0 }
    }

    /// At the beginning of a text that is known to be UTF-8.
    pub(crate) fn of_text(text: &'a str) -> Cursor<'a> {
        Cursor { bytes: text.as_bytes(), text: Some(text), at: 0, depth: 0 }
    }

    /// At the beginning of a text of which little is read: UTF-8 is validated string by string.
    pub(crate) fn sparse(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, text: None, at: 0, depth: 0 }
    }

    /// How many bytes are consumed.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The same text from another position.
    pub(crate) fn moved_to(&self, at: usize) -> Cursor<'a> {
        Cursor { at, ..*self }
    }

    /// How many containers are open.
    #[inline]
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The text since a position; `None` where the whole is not known to be UTF-8.
    #[inline]
    pub(crate) fn text_since(&self, start: usize) -> Option<&'a str> {
        self.text?.get(start..self.at)
    }

    /// Checks that only white space is left.
    pub(crate) fn end(&mut self) -> Result<(), DecodeError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error("after top-level value")),
        }
    }

    /// The next byte that is not white space, not consumed.
    #[inline(always)]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    /// The error at the current byte, inside of a word, number or escape. There Go sees a space at the end.
    #[cold]
    fn inner_error(&self, context: &str) -> DecodeError {
        if self.at < self.bytes.len() {
            return self.error(context);
        }
        DecodeError::Syntax {
            message: format!("invalid character ' ' {context}").into(),
            offset: self.at + 1,
        }
    }

    /// The error at the current byte, or at the end.
    #[cold]
    pub(crate) fn error(&self, context: &str) -> DecodeError {
        let Some(&byte) = self.bytes.get(self.at) else {
            return DecodeError::Syntax {
                message: "unexpected end of JSON input".into(),
                offset: self.bytes.len(),
            };
        };
        let shown = match byte {
            b'\'' => r"\'".to_string(),
            b'"' => "\"".to_string(),
            byte => crate::error::quoted(&char::from(byte).to_string()).trim_matches('"').to_string(),
        };
        DecodeError::Syntax {
            message: format!("invalid character '{shown}' {context}").into(),
            offset: self.at + 1,
        }
    }

    /// Consumes the opening bracket of a container.
    #[inline]
    pub(crate) fn open(&mut self) -> Result<(), DecodeError> {
        if self.depth == MAX_DEPTH {
            return Err(self.error("exceeded max depth"));
        }
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    #[inline]
    fn close(&mut self) {
        self.depth -= 1;
        self.at += 1;
    }

    /// Advances to the next element of the open list, `first` to the first one; `false` at its end.
    #[inline]
    pub(crate) fn element(&mut self, first: bool) -> Result<bool, DecodeError> {
        match self.peek() {
            Some(b']') => {
                self.close();
                return Ok(false);
            }
            _ if first => {}
            Some(b',') => self.at += 1,
            _ => return Err(self.error("after array element")),
        }
        Ok(true)
    }

    /// Advances to the opening quote of the next key of the open object; `false` at its end.
    #[inline(always)]
    pub(crate) fn member(&mut self, first: bool) -> Result<bool, DecodeError> {
        match self.peek() {
            Some(b'}') => {
                self.close();
                return Ok(false);
            }
            _ if first => {}
            Some(b',') => self.at += 1,
            _ => return Err(self.error("after object key:value pair")),
        }
        match self.peek() {
            Some(b'"') => Ok(true),
            _ => Err(self.error("looking for beginning of object key string")),
        }
    }

    /// The key at the current quote, and the colon after it.
    #[inline]
    pub(crate) fn key(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        let key = self.string()?;
        self.colon()?;
        Ok(key)
    }

    /// As [`Cursor::key`], as it stands in the text.
    #[inline]
    pub(crate) fn raw_key(&mut self) -> Result<RawString, DecodeError> {
        let key = self.raw_string()?;
        self.colon()?;
        Ok(key)
    }

    #[inline]
    fn colon(&mut self) -> Result<(), DecodeError> {
        if self.peek() != Some(b':') {
            return Err(self.error("after object key"));
        }
        self.at += 1;
        Ok(())
    }

    /// Consumes the key at the current quote if it is this one, without white space before its colon.
    #[inline(always)]
    pub(crate) fn takes_key(&mut self, name: &str) -> bool {
        let rest = &self.bytes[self.at + 1..];
        let is_it = begins_with(rest, name.as_bytes()) && begins_with(&rest[name.len()..], b"\":");
        if is_it {
            self.at += name.len() + 3;
        }
        is_it
    }

    /// As [`Cursor::takes_key`], of a key with its quotes and colon.
    #[inline(always)]
    pub(crate) fn takes_quoted_key(&mut self, key: &str) -> bool {
        let is_it = begins_with(&self.bytes[self.at..], key.as_bytes());
        if is_it {
            self.at += key.len();
        }
        is_it
    }

    /// The string at the current quote.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        let start = self.at + 1;
        let end = start + plain_prefix(&self.bytes[start..]);
        match (self.bytes.get(end), self.text) {
            (Some(b'"'), Some(text)) => {
                self.at = end + 1;
                Ok(Cow::Borrowed(text.get(start..end).unwrap_or_default()))
            }
            _ => self.unusual_string(),
        }
    }

    /// A string with escapes, or of a text that is not known to be UTF-8: there, a byte that is none is
    /// read as U+FFFD.
    #[inline(never)]
    fn unusual_string(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        let raw = self.raw_string()?;
        let inside = self.inside(raw);
        match std::str::from_utf8(inside) {
            Ok(text) if !raw.escaped => Ok(Cow::Borrowed(text)),
            _ => Ok(Cow::Owned(unescape(inside))),
        }
    }

    /// The string at the current quote as it stands in the text.
    #[inline]
    pub(crate) fn raw_string(&mut self) -> Result<RawString, DecodeError> {
        let start = self.at + 1;
        self.at = start + plain_prefix(&self.bytes[start..]);
        let escaped = self.bytes.get(self.at) != Some(&b'"');
        if escaped {
            self.rest_of_string()?;
        }
        let end = self.at;
        self.at += 1;
        Ok(RawString { start, end, escaped })
    }

    /// The bytes of the inside of a string.
    #[inline]
    pub(crate) fn inside(&self, raw: RawString) -> &'a [u8] {
        &self.bytes[raw.start..raw.end]
    }

    /// The inside of a string as text; empty where the whole is not known to be UTF-8.
    #[inline]
    pub(crate) fn inside_text(&self, raw: RawString) -> &'a str {
        self.text.and_then(|text| text.get(raw.start..raw.end)).unwrap_or_default()
    }

    /// Advances to the closing quote of a string that has escapes or does not end.
    fn rest_of_string(&mut self) -> Result<(), DecodeError> {
        loop {
            match self.bytes.get(self.at) {
                Some(b'"') => return Ok(()),
                Some(b'\\') => {
                    self.at += 1;
                    match self.bytes.get(self.at) {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
                        Some(b'u') => self.four_hex_digits()?,
                        _ => return Err(self.inner_error("in string escape code")),
                    }
                }
                _ => return Err(self.error("in string literal")),
            }
            self.at += plain_prefix(&self.bytes[self.at..]);
        }
    }

    fn four_hex_digits(&mut self) -> Result<(), DecodeError> {
        self.at += 1;
        for _ in 0..4 {
            if !self.bytes.get(self.at).is_some_and(u8::is_ascii_hexdigit) {
                return Err(self.inner_error("in \\u hexadecimal character escape"));
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Consumes a literal of which the first character is the current byte.
    pub(crate) fn literal(&mut self, word: &'static str) -> Result<(), DecodeError> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(());
        }
        for expected in word.bytes() {
            if self.bytes.get(self.at) != Some(&expected) {
                return Err(
                    self.inner_error(&format!("in literal {word} (expecting '{}')", char::from(expected)))
                );
            }
            self.at += 1;
        }
        Ok(())
    }

    #[inline]
    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        self.at - start
    }

    /// The number that begins at the current byte.
    pub(crate) fn number(&mut self) -> Result<&'a str, DecodeError> {
        let start = self.at;
        if self.bytes.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        if self.bytes.get(self.at) == Some(&b'0') {
            self.at += 1;
        } else if self.digits() == 0 {
            return Err(self.inner_error("in numeric literal"));
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return Err(self.inner_error("after decimal point in numeric literal"));
            }
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(self.inner_error("in exponent of numeric literal"));
            }
        }
        // Digits and signs only.
        Ok(std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or_default())
    }

    /// Begins the next value; a leaf is complete with it. `string` reads a string, one way or the other.
    // Inlined, so that a token is not moved through memory on its way to what is made of it.
    #[inline(always)]
    pub(crate) fn token<T>(
        &mut self,
        string: impl FnOnce(&mut Cursor<'a>) -> Result<T, DecodeError>,
    ) -> Result<Token<'a, T>, DecodeError> {
        match self.peek() {
            Some(b'"') => string(self).map(Token::String),
            Some(b'{') => self.open().map(|()| Token::Object),
            Some(b'[') => self.open().map(|()| Token::Array),
            Some(b'-' | b'0'..=b'9') => self.number().map(|text| Token::Number(Number::Text(text))),
            Some(b't') => self.literal("true").map(|()| Token::Bool(true)),
            Some(b'f') => self.literal("false").map(|()| Token::Bool(false)),
            Some(b'n') => self.literal("null").map(|()| Token::Null),
            _ => Err(self.error("looking for beginning of value")),
        }
    }

    /// Skips a value of text that was validated when it was written: of a container only the end is searched.
    pub(crate) fn skip_value(&mut self) -> Result<(), DecodeError> {
        if !matches!(self.peek(), Some(b'{' | b'[')) {
            return self.token(Cursor::raw_string).map(drop);
        }
        match container_len(&self.bytes[self.at..]) {
            Some(len) => {
                self.at += len;
                Ok(())
            }
            None => Err(self.moved_to(self.bytes.len()).error("")),
        }
    }

    /// Skips and validates the rest of the container that was opened last.
    pub(crate) fn check_rest(&mut self, is_object: bool) -> Result<(), DecodeError> {
        // True for an object, false for an array; on the heap, so that depth costs no stack.
        let mut open = vec![is_object];
        let mut first = true;
        while let Some(&is_object) = open.last() {
            let more = match is_object {
                true => self.member(first)?,
                false => self.element(first)?,
            };
            first = false;
            if !more {
                open.pop();
                continue;
            }
            if is_object {
                self.raw_key()?;
            }
            match self.token(Cursor::raw_string)? {
                Token::Array => open.push(false),
                Token::Object => open.push(true),
                _ => continue,
            }
            first = true;
        }
        Ok(())
    }
}

/// The text of the inside of a string whose escapes are valid.
pub(crate) fn unescape(inside: &[u8]) -> String {
    let mut text = String::with_capacity(inside.len());
    let mut rest = inside;
    loop {
        let (plain, escape) = rest.split_at(plain_prefix(rest));
        push_lossy(&mut text, plain);
        let [_, letter, after @ ..] = escape else { return text };
        rest = after;
        text.push(match letter {
            b'b' => '\x08',
            b'f' => '\x0c',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => unicode_escape(&mut rest),
            other => char::from(*other),
        });
    }
}

/// The character of an escape, after its `u`, and of the escape behind it if both are a surrogate pair. Half
/// of a pair is U+FFFD, as in Go.
fn unicode_escape(rest: &mut &[u8]) -> char {
    let unit = |digits: &[u8]| {
        digits.iter().try_fold(0, |n, digit| Some(n << 4 | char::from(*digit).to_digit(16)? as u16))
    };
    let Some((first, after)) = rest.split_first_chunk::<4>() else { return char::REPLACEMENT_CHARACTER };
    *rest = after;
    let second = after.strip_prefix(b"\\u").and_then(|after| after.split_first_chunk::<4>());
    let pair = [unit(first), second.and_then(|(second, _)| unit(second))];
    match char::decode_utf16(pair.into_iter().flatten()).next() {
        Some(Ok(c)) => {
            if let (2, Some((_, after))) = (c.len_utf16(), second) {
                *rest = after;
            }
            c
        }
        _ => char::REPLACEMENT_CHARACTER,
    }
}

/// Appends text, U+FFFD for each byte that is no valid UTF-8 (Go's rule; Rust's own lossy conversion writes
/// one for a whole broken sequence).
pub(crate) fn push_lossy(text: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::Tape;
    use crate::json::{parse, text::syntax_error};

    #[test]
    fn escapes_stand_for_their_characters() {
        let text = |inside: &str| unescape(inside.as_bytes());
        assert_eq!(text("a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9z"), "a\"\\/\u{8}\u{c}\n\r\t\u{e9}z");
        assert_eq!(text("\\ud83d\\ude00!"), "\u{1f600}!");
        assert_eq!(text("\\ud83d!"), "\u{fffd}!");
        assert_eq!(text("\\ud83d\\u0041"), "\u{fffd}A");
        assert_eq!(text("\\ude00\\ud83d\\ude00"), "\u{fffd}\u{1f600}");
        assert_eq!(unescape(b"\xe2\x80\\n\xff"), "\u{fffd}\u{fffd}\n\u{fffd}");
    }

    #[test]
    fn what_is_skipped_unread_ends_where_what_is_read_ends() {
        for value in [r#"{"a":["}",{"b":"\\\""}],"c":{}}"#, "[[],{}]", r#""a\"b""#, "-1.5e3", "true", "null"]
        {
            let text = format!(" {value} ,1");
            let mut skipped = Cursor::new(text.as_bytes());
            skipped.skip_value().unwrap();
            let mut read = Cursor::new(text.as_bytes());
            match read.token(Cursor::raw_string).unwrap() {
                Token::Object => read.check_rest(true).unwrap(),
                Token::Array => read.check_rest(false).unwrap(),
                _ => {}
            }
            assert_eq!((skipped.at(), skipped.text_since(1)), (read.at(), Some(value)));
        }
        assert!(Cursor::new(b"[{}").skip_value().is_err());
    }

    proptest! {
        /// The grammar is that of another reader. That one refuses half of a surrogate pair.
        #[test]
        fn text_is_refused_where_serde_refuses_it(text in "[\\[\\]{}\":,\\\\ bu0-3eE.+-]{0,24}|(\"(\\\\u00[0-9a-g]{2}|\\\\[a-u]|[a-c\n])*\"?,?){0,4}") {
            let text = format!("[{text}]");
            let expected = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            prop_assert_eq!(parse(text.as_bytes()).is_ok(), expected, "{}", text);
            prop_assert_eq!(Tape::from_json(text.as_bytes()).is_ok(), expected, "{}", text);
            if expected {
                prop_assert_eq!(syntax_error(text.as_bytes()), None);
            }
        }
    }
}
