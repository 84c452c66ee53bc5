//! The input of the typed decoder: JSON text, or a tree of another reader.

use smol_str::SmolStr;

use super::report::Report;
use crate::error::DecodeError;
use crate::schema::StructType;
use crate::value::{Map, Value};

/// The beginning of a value; a leaf is complete with it. `T` is the source's text.
#[derive(Debug)]
pub(crate) enum Token<'a, T> {
    Null,
    Bool(bool),
    Number(Number<'a>),
    String(T),
    Array,
    Object,
}

/// A number as text, or as another reader parsed it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number<'a> {
    Text(&'a str),
    Int(i64),
    Float(f64),
}

/// The key of a struct's member.
#[derive(Debug)]
pub(crate) enum Key<T> {
    /// The key of a field, by its rank.
    Field(usize),
    /// A key that names no field.
    Unknown(T),
}

/// A walk along a value, in order.
pub(crate) trait Source<'a> {
    /// The source's text type, so that text that is only compared (the names of fields) is never copied.
    type Text: AsRef<str> + Into<SmolStr>;

    /// Begins the next value.
    fn token(&mut self) -> Result<Token<'a, Self::Text>, DecodeError>;

    /// Whether the open array has another element; `first` before the first one.
    fn element(&mut self, first: bool) -> Result<bool, DecodeError>;

    /// The key of the next member of the open object.
    fn key(&mut self, first: bool) -> Result<Option<Self::Text>, DecodeError>;

    /// The same for a struct; `after` is the rank of the previous field plus one, 0 for none.
    #[inline]
    fn field(
        &mut self,
        first: bool,
        _after: usize,
        s: &StructType,
    ) -> Result<Option<Key<Self::Text>>, DecodeError> {
        let key = self.key(first)?;
        Ok(key.map(|key| match s.rank(key.as_ref()) {
            Some(rank) => Key::Field(rank),
            None => Key::Unknown(key),
        }))
    }

    /// Takes the next value if it is an object or a list that is known to conform.
    #[inline]
    fn take_unchanged(&mut self) -> Option<Value> {
        None
    }

    /// Takes the next value if it is a string.
    fn text(&mut self) -> Result<Option<SmolStr>, DecodeError>;

    /// Skips the rest of the value that the token began.
    fn skip_rest(&mut self, begun: &Token<'a, Self::Text>) -> Result<(), DecodeError>;

    /// The next value without a schema; duplicate keys are reported.
    fn untyped(&mut self, report: &mut Report<'_>) -> Result<Value, DecodeError>;

    /// The next value, which may stay text ([`Value::Encoded`]) if it is an object.
    fn unread(&mut self) -> Result<Value, DecodeError> {
        self.untyped(&mut Report::new(false))
    }
}

/// A tree, consumed as it is read.
pub(super) struct Tree<'b> {
    next: Value,
    open: Vec<Open<'b>>,
    /// The value in the place of `next` in a tree that conforms.
    before: Option<&'b Value>,
}

/// A list or an object that is being read, and its counterpart before the change.
enum Open<'b> {
    Array(std::vec::IntoIter<Value>, std::slice::Iter<'b, Value>),
    Object(std::vec::IntoIter<(SmolStr, Value)>, Option<&'b Map>),
}

impl<'b> Tree<'b> {
    pub(super) fn new(root: Value) -> Tree<'b> {
        Tree { next: root, open: Vec::new(), before: None }
    }

    /// A changed tree, with the conforming tree before the change.
    pub(super) fn changed(root: Value, before: &'b Value) -> Tree<'b> {
        Tree { next: root, open: Vec::new(), before: Some(before) }
    }
}

impl<'a> Source<'a> for Tree<'_> {
    type Text = SmolStr;

    fn take_unchanged(&mut self) -> Option<Value> {
        let before = self.before?;
        let deep = matches!(self.next, Value::Object(_) | Value::Array(_));
        (deep && self.next == *before).then(|| std::mem::take(&mut self.next))
    }

    fn token(&mut self) -> Result<Token<'a, Self::Text>, DecodeError> {
        let before = self.before;
        Ok(match std::mem::take(&mut self.next) {
            Value::Null => Token::Null,
            Value::Bool(b) => Token::Bool(b),
            Value::Int(n) => Token::Number(Number::Int(n)),
            Value::Float(n) => Token::Number(Number::Float(n)),
            Value::String(text) => Token::String(text),
            Value::Array(elements) => {
                let before = before.and_then(Value::as_array).unwrap_or_default();
                self.open.push(Open::Array(elements.into_iter(), before.iter()));
                Token::Array
            }
            Value::Object(members) => {
                self.open.push(Open::Object(members.into_iter(), before.and_then(Value::as_object)));
                Token::Object
            }
            Value::Encoded(encoded) => {
                self.open.push(Open::Object(encoded.members().clone().into_iter(), None));
                Token::Object
            }
        })
    }

    fn element(&mut self, _first: bool) -> Result<bool, DecodeError> {
        if let Some(Open::Array(elements, before)) = self.open.last_mut() {
            if let Some(next) = elements.next() {
                (self.next, self.before) = (next, before.next());
                return Ok(true);
            }
        }
        self.open.pop();
        Ok(false)
    }

    fn key(&mut self, _first: bool) -> Result<Option<Self::Text>, DecodeError> {
        if let Some(Open::Object(members, before)) = self.open.last_mut() {
            if let Some((key, next)) = members.next() {
                (self.next, self.before) = (next, before.and_then(|before| before.get(&key)));
                return Ok(Some(key));
            }
        }
        self.open.pop();
        Ok(None)
    }

    fn skip_rest(&mut self, begun: &Token<'a, Self::Text>) -> Result<(), DecodeError> {
        if matches!(begun, Token::Array | Token::Object) {
            self.open.pop();
        }
        Ok(())
    }

    fn text(&mut self) -> Result<Option<SmolStr>, DecodeError> {
        Ok(match &mut self.next {
            Value::String(text) => Some(std::mem::take(text)),
            _ => None,
        })
    }

    fn untyped(&mut self, _report: &mut Report<'_>) -> Result<Value, DecodeError> {
        Ok(std::mem::take(&mut self.next))
    }
}
