//! JSON text as the input of the decoders, and trees without a schema.

use std::borrow::Cow;

use smol_str::SmolStr;

use super::cursor::Cursor;
use super::report::{PathStep, Report};
use super::source::{Key, Number, Source, Token};
use crate::error::{DecodeError, TypeError};
use crate::schema::StructType;
use crate::value::{level, Encoded, Map, Value};

/// An object that stays text until it is read; without members when the text is not one JSON object.
pub(crate) fn encoded(text: impl Into<Box<str>>) -> Encoded {
    Encoded::new(text, |text| match parse(text.as_bytes(), &mut Report::new(false)) {
        Ok(Value::Object(members)) => members,
        _ => Map::new(),
    })
}

/// A cursor that makes values of what it passes.
pub(crate) struct Reader<'a> {
    cursor: Cursor<'a>,
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
        let (cursor, members, elements) = (Cursor::new(bytes), Vec::new(), Vec::new());
        Reader { cursor, members, elements, managed_fields: ManagedFieldsState::Ignored }
    }

    /// Checks that only white space is left.
    pub(super) fn end(&mut self) -> Result<(), DecodeError> {
        self.cursor.end()
    }

    fn untyped_array(&mut self, report: &mut Report<'_>) -> Result<Value, DecodeError> {
        let base = self.elements.len();
        let mut index = 0;
        while self.element(index == 0)? {
            report.path.push(PathStep::Index(index));
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
                report.path.push(PathStep::Key(key.clone()));
            }
            let value = match self.managed_fields {
                ManagedFieldsState::Outside if self.cursor.depth() == 2 && key == "managedFields" => {
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

/// An untyped number: an integer if its text has no point and fits, else a double.
pub(crate) fn plain_number(text: &str) -> Option<Value> {
    if let Ok(n) = text.parse() {
        return Some(Value::Int(n));
    }
    text.parse().ok().filter(|n: &f64| n.is_finite()).map(Value::Float)
}

impl<'a> Source<'a> for Reader<'a> {
    type Text = Cow<'a, str>;

    #[inline]
    fn token(&mut self) -> Result<Token<'a, Cow<'a, str>>, DecodeError> {
        self.cursor.token(Cursor::string)
    }

    #[inline]
    fn element(&mut self, first: bool) -> Result<bool, DecodeError> {
        self.cursor.element(first)
    }

    #[inline]
    fn key(&mut self, first: bool) -> Result<Option<Cow<'a, str>>, DecodeError> {
        match self.cursor.member(first)? {
            true => self.cursor.key().map(Some),
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
        let cursor = &mut self.cursor;
        if !cursor.member(first)? {
            return Ok(None);
        }
        if let Some(rank) = s.successors.expected(after).filter(|rank| cursor.takes_key(&s.names[*rank])) {
            return Ok(Some(Key::Field(rank)));
        }
        let key = cursor.key()?;
        Ok(Some(match s.rank(&key) {
            Some(rank) => {
                s.successors.record(rank, after);
                Key::Field(rank)
            }
            None => Key::Unknown(key),
        }))
    }

    #[inline]
    fn text(&mut self) -> Result<Option<SmolStr>, DecodeError> {
        match self.cursor.peek() {
            Some(b'"') => self.cursor.string().map(|text| Some(text.into())),
            _ => Ok(None),
        }
    }

    fn skip_rest(&mut self, begun: &Token<'a, Cow<'a, str>>) -> Result<(), DecodeError> {
        match begun {
            Token::Array => self.cursor.check_rest(false),
            Token::Object => self.cursor.check_rest(true),
            _ => Ok(()),
        }
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
        if self.cursor.peek() == Some(b'{') {
            let (start, mut cursor) = (self.cursor.at(), self.cursor);
            cursor.open()?;
            cursor.check_rest(true)?;
            if let Some(text) = cursor.text_since(start) {
                self.cursor = cursor;
                return Ok(Value::Encoded(encoded(text)));
            }
        }
        self.untyped(&mut Report::new(false))
    }
}
