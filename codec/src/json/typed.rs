//! The typed decoder: checks a value against the schema and normalizes it to what upstream would hold.

use smol_str::SmolStr;

use super::go_type::go_type;
use super::number::{double, integer, number_text};
use super::peek::name;
use super::report::{PathStep, Report};
use super::source::{Key, Source, Token, Tree};
use super::text::{syntax_error, Reader};
use super::{DecodeOptions, Decoded};
use crate::base64_text;
use crate::error::{DecodeError, TypeError};
use crate::quantity::{Quantity, QuantityError};
use crate::schema::{Field, Omit, Scalar, Schema, SchemaOr, StructType, Type, TypeId};
use crate::time::{format_duration, parse_duration, Timestamp};
use crate::value::{level, Map, Value};

/// Reads JSON as a value of a type.
///
/// One pass over the bytes; unknown parts are skipped without being built. Syntax errors take precedence,
/// then malformed scalars (quantities, times), then the first wrong type.
pub fn decode(
    body: &[u8],
    schema: &Schema,
    id: TypeId,
    options: &DecodeOptions,
) -> Result<Decoded, DecodeError> {
    let mut decoder = Decoder::new(schema, Reader::new(body), options);
    match decoder.root(id).and_then(|value| decoder.source.end().map(|()| value)) {
        Ok(value) => decoder.finish(value),
        Err(error @ DecodeError::Syntax { .. }) => Err(error),
        Err(error) => Err(syntax_error(body).unwrap_or(error)),
    }
}

/// Checks a tree as [`decode`] checks text: for trees of YAML, CBOR or a patch.
pub fn conform(
    tree: Value,
    schema: &Schema,
    id: TypeId,
    options: &DecodeOptions,
) -> Result<Decoded, DecodeError> {
    let mut decoder = Decoder::new(schema, Tree::new(tree), options);
    let value = decoder.root(id)?;
    decoder.finish(value)
}

/// As [`conform`], for a tree that was made by changing a part of one that conforms: unchanged lists and
/// objects are not checked again.
pub fn conform_changed(
    tree: Value,
    before: &Value,
    schema: &Schema,
    id: TypeId,
    options: &DecodeOptions,
) -> Result<Decoded, DecodeError> {
    let mut decoder = Decoder::new(schema, Tree::changed(tree, before), options);
    let value = decoder.root(id)?;
    decoder.finish(value)
}

struct Decoder<'s, S> {
    schema: &'s Schema,
    source: S,
    report: Report<'s>,
    /// The first value of a wrong type; the walk continues, since a more important error may follow.
    wrong: Option<DecodeError>,
    /// Values of open containers, so that each is allocated once, in its final size. Values are built in
    /// place here and moved once: returning them from function to function costs more than reading them.
    values: Vec<Value>,
    /// Ranks of the collected fields of open structs.
    ranks: Vec<u16>,
    /// Keys of open maps.
    keys: Vec<SmolStr>,
    /// Used to close a struct whose fields are not in the order of their names.
    order: Vec<(u16, u16)>,
}

impl<'s, S> Decoder<'s, S> {
    fn new(schema: &'s Schema, source: S, options: &DecodeOptions) -> Decoder<'s, S> {
        Decoder {
            schema,
            source,
            report: Report::new(options.strict),
            wrong: None,
            values: Vec::new(),
            ranks: Vec::new(),
            keys: Vec::new(),
            order: Vec::new(),
        }
    }

    fn finish(self, value: Value) -> Result<Decoded, DecodeError> {
        match self.wrong {
            Some(error) => Err(error),
            None => Ok(Decoded { value, strict: self.report.errors }),
        }
    }

    #[cold]
    fn type_error(&self, found: String, expected: String) -> DecodeError {
        let (structure, path) = self.report.go_field();
        DecodeError::Type(Box::new(TypeError { found, structure, path, expected }))
    }

    /// Records a value of a wrong type, unless one was recorded before.
    #[cold]
    fn note(&mut self, found: String, id: TypeId) {
        if self.wrong.is_none() {
            self.wrong = Some(self.type_error(found, go_type(self.schema, id)));
        }
    }
}

impl<'a, 's, S: Source<'a>> Decoder<'s, S> {
    fn root(&mut self, id: TypeId) -> Result<Value, DecodeError> {
        self.value(id)?;
        // A `null` leaves Go's target unchanged: empty.
        Ok(or_else(self.take(), || self.schema.zero(id)))
    }

    /// The value that was read last.
    fn take(&mut self) -> Value {
        self.values.pop().unwrap_or_default()
    }

    /// Reads the next value onto the stack; `Null` also for a wrong type, which is recorded.
    #[inline]
    fn value(&mut self, id: TypeId) -> Result<(), DecodeError> {
        let schema = self.schema;
        let found = match schema.get(id) {
            Type::Scalar(Scalar::String { .. }) => match self.source.text()? {
                Some(text) => {
                    self.values.push(Value::String(text));
                    return Ok(());
                }
                None => self.source.token()?,
            },
            Type::Scalar(scalar) => {
                let value = self.scalar(id, scalar)?;
                self.values.push(value);
                return Ok(());
            }
            Type::Struct(_) | Type::List { .. } | Type::Map { .. } if self.push_unchanged() => return Ok(()),
            Type::Struct(structure) => match self.source.token()? {
                Token::Object => return level(|| self.structure(structure)),
                other => other,
            },
            Type::List { element, .. } => match self.source.token()? {
                Token::Array => return level(|| self.list(*element)),
                other => other,
            },
            Type::Map { value, .. } => match self.source.token()? {
                Token::Object => return level(|| self.map(*value)),
                other => other,
            },
        };
        let nothing = self.mismatch(found, id)?;
        self.values.push(nothing);
        Ok(())
    }

    /// Takes the next value unchanged if it is known to conform.
    #[inline]
    fn push_unchanged(&mut self) -> bool {
        match self.source.take_unchanged() {
            Some(value) => {
                self.values.push(value);
                true
            }
            None => false,
        }
    }

    fn mismatch(&mut self, found: Token<'a, S::Text>, id: TypeId) -> Result<Value, DecodeError> {
        if !matches!(found, Token::Null) {
            self.note(name(&found).to_string(), id);
            self.source.skip_rest(&found)?;
        }
        Ok(Value::Null)
    }

    fn structure(&mut self, s: &'s StructType) -> Result<(), DecodeError> {
        let (base, ranks) = (self.values.len(), self.ranks.len());
        let (mut first, mut after) = (true, 0);
        let mut seen = SeenFields::default();
        while let Some(key) = self.source.field(first, after, s)? {
            first = false;
            let rank = match key {
                Key::Field(rank) => rank,
                Key::Unknown(key) => {
                    self.report.unknown(key.as_ref());
                    let token = self.source.token()?;
                    self.source.skip_rest(&token)?;
                    continue;
                }
            };
            after = rank + 1;
            let field = s.by_rank(rank);
            let again = seen.insert(rank);
            if again {
                self.report.duplicate(&field.name);
            }
            self.report.path.push(PathStep::Field(s, field));
            self.value(field.type_id)?;
            self.report.path.pop();
            if again {
                self.forget(base, ranks, rank as u16);
            }
            match self.values.last().is_some_and(|value| self.is_written(field, value)) {
                true => self.ranks.push(rank as u16),
                false => drop(self.values.pop()),
            }
        }
        let map = self.close(s, base, ranks);
        self.values.push(Value::Object(map));
        Ok(())
    }

    /// Removes the previous value of a field from the struct that is open since `base` and `ranks`.
    #[cold]
    fn forget(&mut self, base: usize, ranks: usize, rank: u16) {
        let fields = self.ranks.get(ranks..).unwrap_or_default();
        if let Some(at) = fields.iter().position(|r| *r == rank) {
            self.ranks.remove(ranks + at);
            self.values.remove(base + at);
        }
    }

    /// Makes the object of the fields collected since `base` and `ranks`, in the order of their names, with
    /// those filled in that upstream always writes.
    fn close(&mut self, s: &StructType, base: usize, ranks: usize) -> Map {
        let fields = &self.ranks[ranks..];
        let mut members = Vec::with_capacity(fields.len() + s.always.len());
        let mut always = &s.always[..];
        let named = |rank: u16, value| (s.names[usize::from(rank)].clone(), value);
        let mut push = |rank: u16, value: Value| {
            while let Some(((before, filled), rest)) = always.split_first().filter(|((r, _), _)| *r <= rank) {
                always = rest;
                if *before < rank {
                    members.push(named(*before, filled.clone()));
                }
            }
            members.push(named(rank, value));
        };
        if fields.is_sorted() {
            for (rank, value) in fields.iter().zip(self.values.drain(base..)) {
                push(*rank, value);
            }
        } else {
            self.order.clear();
            self.order.extend(fields.iter().zip(0..).map(|(rank, at)| (*rank, at)));
            self.order.sort_unstable();
            for (rank, at) in &self.order {
                push(*rank, std::mem::take(&mut self.values[base + usize::from(*at)]));
            }
            self.values.truncate(base);
        }
        members.extend(always.iter().map(|(rank, value)| named(*rank, value.clone())));
        self.ranks.truncate(ranks);
        Map::from_sorted(members)
    }

    /// Whether upstream writes a field that has this value.
    #[inline]
    fn is_written(&self, field: &Field, value: &Value) -> bool {
        match value {
            // Filled in again if upstream writes a value for it.
            Value::Null => false,
            // A client resets the owners of an object with it; field ownership replaces it before anything is
            // stored. That of a template has no meaning.
            Value::Array(a) if a.is_empty() && field.name == "managedFields" => self.report.path.len() == 1,
            // Upstream stores protobuf, which cannot tell an empty list from none unless the list is a
            // message; the items of a list of objects are not stored.
            Value::Array(a) if a.is_empty() && field.omit == Omit::Never && !field.pointer => {
                match self.schema.get(field.type_id) {
                    Type::List { message, .. } => *message || field.name == "items",
                    // Raw JSON, whose bytes are stored.
                    _ => true,
                }
            }
            _ if field.pointer || field.omit == Omit::Never => true,
            Value::Object(map) => match self.schema.get(field.type_id) {
                Type::Map { .. } => !map.is_empty(),
                Type::Struct(s) => field.omit != Omit::Zero || !is_empty(s, map),
                Type::Scalar(_) | Type::List { .. } => true,
            },
            Value::Encoded(_) => true,
            leaf => !is_zero(leaf) || self.keeps_zero(field, leaf),
        }
    }

    /// Whether upstream writes an omittable field with this zero value: if its Go type is a struct with a
    /// number, and for bytes.
    fn keeps_zero(&self, field: &Field, zero: &Value) -> bool {
        match self.schema.get(field.type_id) {
            Type::Scalar(Scalar::IntOrString) => matches!(zero, Value::Int(_)),
            Type::Scalar(Scalar::RawExtension) => true,
            _ => false,
        }
    }

    fn list(&mut self, element: TypeId) -> Result<(), DecodeError> {
        let base = self.values.len();
        let mut index = 0;
        while self.source.element(index == 0)? {
            self.report.path.push(PathStep::Index(index));
            self.value(element)?;
            self.report.path.pop();
            self.fill(|schema| schema.zero(element));
            index += 1;
        }
        let elements = self.values.drain(base..).collect();
        self.values.push(Value::Array(elements));
        Ok(())
    }

    /// Replaces the last value if it is null.
    fn fill(&mut self, empty: impl FnOnce(&Schema) -> Value) {
        let schema = self.schema;
        if let Some(value @ Value::Null) = self.values.last_mut() {
            *value = empty(schema);
        }
    }

    fn map(&mut self, value_type: TypeId) -> Result<(), DecodeError> {
        let (base, keys) = (self.values.len(), self.keys.len());
        let mut first = true;
        while let Some(key) = self.source.key(first)? {
            first = false;
            let key: SmolStr = key.into();
            self.report.path.push(PathStep::Key(key.clone()));
            self.keys.push(key);
            self.value(value_type)?;
            self.report.path.pop();
            self.fill(|schema| match schema.get(value_type) {
                // Upstream stores these as protobuf, from which a missing value comes back empty.
                Type::Scalar(Scalar::Bytes) => Value::String(SmolStr::default()),
                _ => schema.zero(value_type),
            });
        }
        let members = self.keys.drain(keys..).zip(self.values.drain(base..)).collect();
        let (map, duplicates) = Map::from_members(members);
        for key in &duplicates {
            self.report.duplicate(key);
        }
        self.values.push(Value::Object(map));
        Ok(())
    }

    fn scalar(&mut self, id: TypeId, scalar: &'s Scalar) -> Result<Value, DecodeError> {
        match scalar {
            Scalar::String { .. } => match self.source.token()? {
                Token::String(text) => Ok(Value::String(text.into())),
                other => self.mismatch(other, id),
            },
            Scalar::Bool => match self.source.token()? {
                Token::Bool(b) => Ok(Value::Bool(b)),
                other => self.mismatch(other, id),
            },
            Scalar::Int32 | Scalar::Int64 => match self.source.token()? {
                Token::Number(number) => {
                    let n = integer(number).filter(|n| *scalar == Scalar::Int64 || i32::try_from(*n).is_ok());
                    if n.is_none() {
                        self.note(format!("number {}", number_text(number)), id);
                    }
                    Ok(n.map_or(Value::Null, Value::Int))
                }
                other => self.mismatch(other, id),
            },
            Scalar::Double => match self.source.token()? {
                Token::Number(number) => {
                    let n = double(number).filter(|n| n.is_finite());
                    if n.is_none() {
                        self.note(format!("number {}", number_text(number)), id);
                    }
                    Ok(n.map_or(Value::Null, Value::Float))
                }
                other => self.mismatch(other, id),
            },
            Scalar::Bytes => self.bytes(id),
            Scalar::IntOrString => {
                let wrong = match self.source.token()? {
                    Token::String(text) => return Ok(Value::String(text.into())),
                    Token::Null => return Ok(Value::Null),
                    Token::Number(number) => match integer(number).filter(|n| i32::try_from(*n).is_ok()) {
                        Some(n) => return Ok(Value::Int(n)),
                        None => format!("number {}", number_text(number)),
                    },
                    other => name(&other).to_string(),
                };
                Err(self.type_error(wrong, "int32".into()))
            }
            Scalar::Quantity => self.quantity(),
            Scalar::Time => self.time(|text| match Timestamp::parse(text)? {
                Timestamp::ZERO => Ok(Value::Null),
                time => Ok(Value::String(time.to_rfc3339())),
            }),
            Scalar::MicroTime => self.time(|text| match Timestamp::parse_micro(text)? {
                Timestamp::ZERO => Ok(Value::Null),
                time => Ok(Value::String(time.to_rfc3339_micro())),
            }),
            Scalar::Duration => self.time(|text| Ok(Value::String(format_duration(parse_duration(text)?)))),
            // Kept as sent: upstream does not decode it, so nothing in it is reported.
            Scalar::RawExtension | Scalar::Json => self.source.untyped(&mut Report::new(false)),
            Scalar::FieldsV1 => self.source.unread(),
            Scalar::Any => self.source.untyped(&mut self.report),
            Scalar::SchemaOr(alternative, id) => self.schema_or(*alternative, *id),
        }
    }

    fn bytes(&mut self, id: TypeId) -> Result<Value, DecodeError> {
        let text = match self.source.token()? {
            Token::String(text) => text,
            Token::Array => return self.bytes_of_numbers(),
            other => return self.mismatch(other, id),
        };
        match base64_text::canonical(text.into()) {
            Ok(text) => Ok(Value::String(text)),
            Err(at) => {
                self.wrong.get_or_insert(DecodeError::Base64(at));
                Ok(Value::Null)
            }
        }
    }

    /// Go's decoder also takes a list of numbers for bytes.
    fn bytes_of_numbers(&mut self) -> Result<Value, DecodeError> {
        let (mut bytes, mut first) = (Vec::new(), true);
        while self.source.element(first)? {
            first = false;
            let token = self.source.token()?;
            let found = match &token {
                Token::Null => Ok(0),
                Token::Number(number) => {
                    let byte = integer(*number).and_then(|n| u8::try_from(n).ok());
                    byte.ok_or_else(|| format!("number {}", number_text(*number)))
                }
                other => Err(name(other).to_string()),
            };
            bytes.push(found.unwrap_or_else(|found| {
                let error = self.type_error(found, "uint8".into());
                self.wrong.get_or_insert(error);
                0
            }));
            self.source.skip_rest(&token)?;
        }
        Ok(Value::String(base64_text::encode(bytes).into()))
    }

    fn quantity(&mut self) -> Result<Value, DecodeError> {
        let canonical = match self.source.token()? {
            Token::Null => return Ok(Value::Null),
            Token::String(text) => Quantity::canonicalize(text.as_ref().trim()),
            Token::Number(number) => Quantity::canonicalize(&number_text(number)),
            // Upstream reads the raw bytes of any value.
            Token::Bool(_) | Token::Array | Token::Object => Err(QuantityError::Format),
        };
        Ok(Value::String(canonical?))
    }

    fn time(
        &mut self,
        read: impl FnOnce(&str) -> Result<Value, crate::time::TimeError>,
    ) -> Result<Value, DecodeError> {
        match self.source.token()? {
            Token::Null => Ok(Value::Null),
            Token::String(text) => Ok(read(text.as_ref())?),
            other => Err(self.type_error(name(&other).to_string(), "string".into())),
        }
    }

    fn schema_or(&mut self, alternative: SchemaOr, id: TypeId) -> Result<Value, DecodeError> {
        // Upstream decodes these separately and without strictness.
        let strict = std::mem::replace(&mut self.report.strict, false);
        let value = level(|| self.schema_or_inner(alternative, id));
        self.report.strict = strict;
        value
    }

    fn schema_or_inner(&mut self, alternative: SchemaOr, id: TypeId) -> Result<Value, DecodeError> {
        let schema = self.schema;
        let token = self.source.token()?;
        match (alternative, token) {
            (_, Token::Object) => match schema.get(id) {
                Type::Struct(s) => {
                    self.structure(s)?;
                    Ok(self.take())
                }
                _ => self.mismatch(Token::Object, id),
            },
            (_, Token::Null) => Ok(Value::Null),
            (SchemaOr::Bool, Token::Bool(b)) => Ok(Value::Bool(b)),
            (SchemaOr::Bool, _) => Err(DecodeError::SchemaOrBool),
            (SchemaOr::Array, Token::Array) => {
                self.list(id)?;
                Ok(none_if_empty(self.take()))
            }
            (SchemaOr::StringArray, Token::Array) => {
                let mut texts = Vec::new();
                while self.source.element(texts.is_empty())? {
                    match self.source.token()? {
                        Token::String(text) => texts.push(Value::String(text.into())),
                        Token::Null => texts.push(Value::String(SmolStr::default())),
                        other => {
                            let error = self.type_error(name(&other).to_string(), "string".into());
                            self.wrong.get_or_insert(error);
                            self.source.skip_rest(&other)?;
                            texts.push(Value::Null);
                        }
                    }
                }
                Ok(none_if_empty(Value::Array(texts)))
            }
            // Upstream treats anything else as null.
            (_, other) => self.source.skip_rest(&other).map(|()| Value::Null),
        }
    }
}

#[inline]
fn or_else(value: Value, other: impl FnOnce() -> Value) -> Value {
    match value {
        Value::Null => other(),
        value => value,
    }
}

/// Upstream writes `null` for an empty alternative.
fn none_if_empty(value: Value) -> Value {
    match value {
        Value::Array(list) if list.is_empty() => Value::Null,
        value => value,
    }
}

/// Whether a struct's object equals what upstream writes for an empty one.
fn is_empty(s: &StructType, map: &Map) -> bool {
    map.len() == s.always.len()
        && map
            .iter()
            .zip(&s.always)
            .all(|((key, value), (rank, filled))| *key == s.names[usize::from(*rank)] && value == filled)
}

/// Whether a scalar or a list is Go's zero of its type.
#[inline]
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Int(n) => *n == 0,
        Value::Float(n) => *n == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::Object(_) | Value::Encoded(_) => false,
    }
}

/// The fields of a struct that were seen.
#[derive(Default)]
struct SeenFields {
    low: u64,
    high: Vec<usize>,
}

impl SeenFields {
    /// Adds a field; returns whether it was there before.
    #[inline]
    fn insert(&mut self, rank: usize) -> bool {
        if rank < 64 {
            let bit = 1 << rank;
            let before = self.low & bit != 0;
            self.low |= bit;
            return before;
        }
        let before = self.high.contains(&rank);
        if !before {
            self.high.push(rank);
        }
        before
    }
}
