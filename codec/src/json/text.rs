//! The JSON reader: bytes to tokens, with the errors of Go's scanner.

use std::borrow::Cow;

use smol_str::SmolStr;

use super::report::{Report, Step};
use super::source::{Key, Number, Source, Token};
use crate::blocks::{begins_with, plain_prefix};
use crate::error::{DecodeError, TypeError};
use crate::schema::StructType;
use crate::value::{level, Encoded, Map, Value, MAX_DEPTH};

/// A reader at a position in a body.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    /// The body as text if all of it is UTF-8, so that strings need no further validation.
    text: Option<&'a str>,
    at: usize,
    depth: usize,
    /// Members and elements of open containers, so that each is allocated once, in its final size.
    members: Vec<(SmolStr, Value)>,
    elements: Vec<Value>,
    managed_fields: ManagedFieldsState,
}

/// The position of an untyped reader relative to `metadata.managedFields[].fieldsV1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ManagedFieldsState {
    /// All values are parsed.
    Ignored,
    /// `fieldsV1` stays text; outside of `managedFields`.
    Outside,
    /// `fieldsV1` stays text; inside of `managedFields`.
    Inside,
}

/// Reads a whole body without a schema.
pub(super) fn parse(body: &[u8], report: &mut Report<'_>) -> Result<Value, DecodeError> {
    let mut reader = Reader::new(body);
    let value = reader.untyped(report)?;
    reader.end()?;
    Ok(value)
}

/// Reads a stored object. The values of `fieldsV1` stay text.
pub(super) fn parse_stored(body: &[u8]) -> Result<Value, DecodeError> {
    let mut reader = Reader { managed_fields: ManagedFieldsState::Outside, ..Reader::new(body) };
    let value = reader.untyped(&mut Report::new(false))?;
    reader.end()?;
    Ok(value)
}

/// The first syntax error of a body, if any. Upstream checks for these first.
pub(super) fn syntax_error(body: &[u8]) -> Option<DecodeError> {
    let mut reader = Reader::new(body);
    let check = reader.token().and_then(|token| reader.skip_rest(&token)).and_then(|()| reader.end());
    check.err()
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        let text = std::str::from_utf8(bytes).ok();
        let (members, elements) = (Vec::new(), Vec::new());
        Reader {
            bytes,
            text,
            at: 0,
            depth: 0,
            members,
            elements,
            managed_fields: ManagedFieldsState::Ignored,
        }
    }

    /// Checks that only white space is left.
    pub(super) fn end(&mut self) -> Result<(), DecodeError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error("after top-level value")),
        }
    }

    /// The next byte that is not white space, not consumed.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
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
    fn error(&self, context: &str) -> DecodeError {
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

    #[inline]
    fn open(&mut self) -> Result<(), DecodeError> {
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

    fn word(&mut self, word: &'static str) -> Result<(), DecodeError> {
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

    fn number(&mut self) -> Result<&'a str, DecodeError> {
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

    /// The string at the current opening quote.
    #[inline]
    fn string(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        self.at += 1;
        let start = self.at;
        let rest = &self.bytes[start..];
        let plain = plain_prefix(rest);
        self.at += plain;
        if self.bytes.get(self.at) == Some(&b'"') {
            if let Some(text) = self.text.and_then(|text| text.get(start..self.at)) {
                self.at += 1;
                return Ok(Cow::Borrowed(text));
            }
        }
        self.at = start;
        self.unusual_string().map(Cow::Owned)
    }

    /// Advances to the opening quote of the next key of an object; `false` at its end.
    #[inline]
    fn advance_to_key(&mut self, first: bool) -> Result<bool, DecodeError> {
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
    fn key_at_hand(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        let key = self.string()?;
        if self.peek() != Some(b':') {
            return Err(self.error("after object key"));
        }
        self.at += 1;
        Ok(key)
    }

    /// Consumes the key at the current quote if it is this one, without white space before its colon.
    #[inline]
    fn takes_key(&mut self, name: &str) -> bool {
        let rest = &self.bytes[self.at + 1..];
        let is_it = begins_with(rest, name.as_bytes()) && begins_with(&rest[name.len()..], b"\":");
        if is_it {
            self.at += name.len() + 3;
        }
        is_it
    }

    /// Skips the next key and its colon; `false` at the object's end.
    fn skip_key(&mut self, first: bool) -> Result<bool, DecodeError> {
        if !self.advance_to_key(first)? {
            return Ok(false);
        }
        self.skip_string()?;
        if self.peek() != Some(b':') {
            return Err(self.error("after object key"));
        }
        self.at += 1;
        Ok(true)
    }

    /// Skips the string at the current opening quote.
    fn skip_string(&mut self) -> Result<(), DecodeError> {
        self.at += 1;
        loop {
            self.at += plain_prefix(&self.bytes[self.at..]);
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                _ => return Err(self.error("in string literal")),
            }
        }
    }

    /// A string with escapes or invalid UTF-8, after its opening quote.
    #[cold]
    fn unusual_string(&mut self) -> Result<String, DecodeError> {
        // Capacity for the names of list elements in field paths, the most frequent ones.
        let mut text = String::with_capacity(64);
        loop {
            let rest = &self.bytes[self.at..];
            let plain = plain_prefix(rest);
            push_lossy(&mut text, &rest[..plain]);
            self.at += plain;
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    self.at += 1;
                    let c = self.escape()?;
                    text.push(c);
                }
                _ => return Err(self.error("in string literal")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, DecodeError> {
        let c = match self.bytes.get(self.at) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\x08',
            Some(b'f') => '\x0c',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode_escape();
            }
            _ => return Err(self.inner_error("in string escape code")),
        };
        self.at += 1;
        Ok(c)
    }

    fn unicode_escape(&mut self) -> Result<char, DecodeError> {
        let first = self.four_hex_digits()?;
        if let Some(c) = char::from_u32(first) {
            return Ok(c);
        }
        // Half of a surrogate pair. The other half is used only if it matches; else it is a character of its
        // own.
        if first < 0xdc00 && self.bytes[self.at..].starts_with(b"\\u") {
            let back = self.at;
            self.at += 2;
            let second = self.four_hex_digits()?;
            if (0xdc00..0xe000).contains(&second) {
                let both = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(both).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = back;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn four_hex_digits(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = self.bytes.get(self.at).and_then(|&b| char::from(b).to_digit(16));
            value =
                value * 16 + digit.ok_or_else(|| self.inner_error("in \\u hexadecimal character escape"))?;
            self.at += 1;
        }
        Ok(value)
    }

    fn untyped_array(&mut self, report: &mut Report<'_>) -> Result<Value, DecodeError> {
        let base = self.elements.len();
        let mut index = 0;
        while self.element(index == 0)? {
            report.path.push(Step::Index(index));
            let value = self.untyped(report)?;
            report.path.pop();
            self.elements.push(value);
            index += 1;
        }
        Ok(Value::Array(self.elements.drain(base..).collect()))
    }

    fn untyped_object(&mut self, report: &mut Report<'_>) -> Result<Value, DecodeError> {
        let base = self.members.len();
        let mut first = true;
        while let Some(key) = self.key(first)? {
            first = false;
            let key = SmolStr::from(key);
            if report.strict {
                report.path.push(Step::Key(key.clone()));
            }
            let value = match self.managed_fields {
                ManagedFieldsState::Outside if self.depth == 2 && key == "managedFields" => {
                    self.managed_fields = ManagedFieldsState::Inside;
                    let value = self.untyped(report)?;
                    self.managed_fields = ManagedFieldsState::Outside;
                    value
                }
                ManagedFieldsState::Inside if key == "fieldsV1" => self.unread()?,
                _ => self.untyped(report)?,
            };
            if report.strict {
                report.path.pop();
            }
            self.members.push((key, value));
        }
        let (map, duplicates) = Map::from_members(self.members.drain(base..).collect());
        for key in &duplicates {
            report.duplicate(key);
        }
        Ok(Value::Object(map))
    }
}

/// Appends text, U+FFFD for each byte that is no valid UTF-8 (Go's rule; Rust's own lossy conversion writes
/// one for a whole broken sequence).
fn push_lossy(text: &mut String, mut bytes: &[u8]) {
    loop {
        match std::str::from_utf8(bytes) {
            Ok(valid) => return text.push_str(valid),
            Err(error) => {
                let (valid, rest) = bytes.split_at(error.valid_up_to());
                text.push_str(std::str::from_utf8(valid).unwrap_or_default());
                text.push(char::REPLACEMENT_CHARACTER);
                bytes = &rest[1..];
            }
        }
    }
}

/// An untyped number: an integer if its text has no point and fits, else a double.
pub(super) fn plain_number(text: &str) -> Option<Value> {
    if let Ok(n) = text.parse() {
        return Some(Value::Int(n));
    }
    text.parse().ok().filter(|n: &f64| n.is_finite()).map(Value::Float)
}

impl<'a> Source<'a> for Reader<'a> {
    type Text = Cow<'a, str>;

    #[inline]
    fn token(&mut self) -> Result<Token<'a, Cow<'a, str>>, DecodeError> {
        match self.peek() {
            Some(b'"') => Ok(Token::String(self.string()?)),
            Some(b'{') => self.open().map(|()| Token::Object),
            Some(b'[') => self.open().map(|()| Token::Array),
            Some(b'-' | b'0'..=b'9') => Ok(Token::Number(Number::Text(self.number()?))),
            Some(b't') => self.word("true").map(|()| Token::Bool(true)),
            Some(b'f') => self.word("false").map(|()| Token::Bool(false)),
            Some(b'n') => self.word("null").map(|()| Token::Null),
            _ => Err(self.error("looking for beginning of value")),
        }
    }

    #[inline]
    fn element(&mut self, first: bool) -> Result<bool, DecodeError> {
        match self.peek() {
            Some(b']') => {
                self.close();
                Ok(false)
            }
            _ if first => Ok(true),
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            _ => Err(self.error("after array element")),
        }
    }

    #[inline]
    fn key(&mut self, first: bool) -> Result<Option<Cow<'a, str>>, DecodeError> {
        match self.advance_to_key(first)? {
            true => self.key_at_hand().map(Some),
            false => Ok(None),
        }
    }

    #[inline]
    fn field(
        &mut self,
        first: bool,
        after: usize,
        s: &StructType,
    ) -> Result<Option<Key<Cow<'a, str>>>, DecodeError> {
        if !self.advance_to_key(first)? {
            return Ok(None);
        }
        if let Some(rank) = s.successors.expected(after).filter(|rank| self.takes_key(&s.names[*rank])) {
            return Ok(Some(Key::Field(rank)));
        }
        let key = self.key_at_hand()?;
        Ok(Some(match s.rank(&key) {
            Some(rank) => {
                s.successors.came(rank, after);
                Key::Field(rank)
            }
            None => Key::Unknown(key),
        }))
    }

    #[inline]
    fn text(&mut self) -> Result<Option<SmolStr>, DecodeError> {
        match self.peek() {
            Some(b'"') => self.string().map(|text| Some(text.into())),
            _ => Ok(None),
        }
    }

    fn skip_rest(&mut self, begun: &Token<'a, Cow<'a, str>>) -> Result<(), DecodeError> {
        // True for an object, false for an array; on the heap, so that depth costs no stack.
        let mut open = match begun {
            Token::Array => vec![false],
            Token::Object => vec![true],
            _ => return Ok(()),
        };
        let mut first = true;
        while let Some(&object) = open.last() {
            let more = if object { self.skip_key(first)? } else { self.element(first)? };
            first = false;
            if !more {
                open.pop();
                continue;
            }
            if self.peek() == Some(b'"') {
                self.skip_string()?;
                continue;
            }
            match self.token()? {
                Token::Array => open.push(false),
                Token::Object => open.push(true),
                _ => continue,
            }
            first = true;
        }
        Ok(())
    }

    fn untyped(&mut self, report: &mut Report<'_>) -> Result<Value, DecodeError> {
        Ok(match self.token()? {
            Token::Null => Value::Null,
            Token::Bool(b) => Value::Bool(b),
            Token::String(text) => Value::String(text.into()),
            Token::Number(Number::Text(text)) => plain_number(text).ok_or_else(|| {
                let (structure, path) = report.go_field();
                {
                    let found = format!("number {text}");
                    DecodeError::Type(Box::new(TypeError {
                        found,
                        structure,
                        path,
                        expected: "float64".into(),
                    }))
                }
            })?,
            Token::Number(Number::Int(n)) => Value::Int(n),
            Token::Number(Number::Float(n)) => Value::Float(n),
            Token::Array => level(|| self.untyped_array(report))?,
            Token::Object => level(|| self.untyped_object(report))?,
        })
    }

    fn unread(&mut self) -> Result<Value, DecodeError> {
        if let (Some(b'{'), Some(text)) = (self.peek(), self.text) {
            let start = self.at;
            let begun = self.token()?;
            self.skip_rest(&begun)?;
            if let Some(text) = text.get(start..self.at) {
                return Ok(Value::Encoded(Encoded::new(text)));
            }
        }
        self.untyped(&mut Report::new(false))
    }
}
