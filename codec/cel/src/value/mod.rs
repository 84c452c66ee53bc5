//! Values while an expression is evaluated. Data of an object are not copied: lists, maps, objects and
//! strings refer to the tree that they are part of, together with their declaration.

mod compare;

use std::collections::BTreeMap;
use std::sync::Arc;

use plinth_codec::base64_text;
use plinth_codec::time::{parse_duration, Timestamp};
use plinth_codec::value::{Map, Value};
use smol_str::SmolStr;

use super::opaque::OpaqueValue;
use super::types::{DeclType, ListKind, Shape};

pub(crate) use self::compare::{contains, find_by_keys};

/// A value. Clones cost a reference count at most.
#[derive(Clone, Debug)]
pub(crate) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    /// A length of time in nanoseconds, also a negative one.
    Duration(i64),
    Timestamp(Timestamp),
    List(List<'a>),
    Map(Table<'a>),
    /// An object of the API with a declared form.
    Object(&'a Map, &'a DeclType),
    Optional(Option<Arc<Val<'a>>>),
    /// A type, by its name.
    Type(SmolStr),
    /// A constructed message.
    Message(Arc<Message<'a>>),
    /// A value of an opaque type.
    Opaque(Arc<OpaqueValue>),
}

/// A constructed message.
#[derive(Debug)]
pub(crate) struct Message<'a> {
    pub(crate) name: SmolStr,
    pub(crate) fields: BTreeMap<SmolStr, Val<'a>>,
}

/// A string, of data or computed.
#[derive(Clone, Debug)]
pub(crate) enum Text<'a> {
    Data(&'a str),
    Computed(SmolStr),
}

impl Text<'_> {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Text::Data(s) => s,
            Text::Computed(s) => s,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum List<'a> {
    /// Of data; without a declaration the elements are what they are in JSON.
    Data(&'a [Value], Option<&'a DeclType>),
    Computed(Arc<Vec<Val<'a>>>),
    /// The concatenation of two lists, without copying them.
    Sum(Arc<(List<'a>, List<'a>)>, usize),
}

/// Maximum nesting of concatenations; deeper ones are flattened.
const MAX_SUMS: usize = 16;

impl<'a> List<'a> {
    pub(crate) fn made(elements: Vec<Val<'a>>) -> List<'a> {
        List::Computed(Arc::new(elements))
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            List::Data(elements, _) => elements.len(),
            List::Computed(elements) => elements.len(),
            List::Sum(_, len) => *len,
        }
    }

    /// The element at an index. Concatenations are at most [`MAX_SUMS`] deep.
    pub(crate) fn get(&self, index: usize) -> Option<Val<'a>> {
        match self {
            List::Data(elements, None) => elements.get(index).map(Val::of_untyped),
            List::Data(elements, Some(declared)) => {
                let element = declared.element();
                elements
                    .get(index)
                    .map(|v| element.map_or_else(|| Val::of_untyped(v), |e| Val::of_data(v, e)))
            }
            List::Computed(elements) => elements.get(index).cloned(),
            List::Sum(both, _) => match index.checked_sub(both.0.len()) {
                None => both.0.get(index),
                Some(index) => both.1.get(index),
            },
        }
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Val<'a>> + '_ {
        (0..self.len()).map(|i| self.get(i).unwrap_or(Val::Null))
    }

    fn sums(&self) -> usize {
        match self {
            List::Sum(both, _) => 1 + both.0.sums().max(both.1.sums()),
            _ => 0,
        }
    }

    /// How the list is compared and concatenated.
    pub(crate) fn kind(&self) -> &ListKind {
        match self {
            List::Data(_, Some(declared)) => match declared.shape() {
                Shape::List { kind, .. } => kind,
                _ => &ListKind::Atomic,
            },
            _ => &ListKind::Atomic,
        }
    }

    /// Concatenates two lists. `None` when the result would be too long. Also returns how many elements were
    /// copied.
    pub(crate) fn plus(self, other: List<'a>) -> Option<(List<'a>, usize)> {
        let len = self.len().checked_add(other.len())?;
        if other.len() == 0 {
            return Some((self, 0));
        }
        if self.len() == 0 {
            return Some((other, 0));
        }
        let deep = self.sums().max(other.sums()) >= MAX_SUMS;
        let sum = List::Sum(Arc::new((self, other)), len);
        match deep {
            // Only repeated concatenation can give more elements than any data have.
            true if len > 16_000_000 => None,
            true => Some((List::made(sum.iter().collect()), len)),
            false => Some((sum, 0)),
        }
    }
}

/// A key of a map; integers are the same key for any integer type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Bool(bool),
    Int(i128),
    String(SmolStr),
}

/// The entries of a computed map.
pub(crate) type Entries<'a> = BTreeMap<Key, (Val<'a>, Val<'a>)>;

#[derive(Clone, Debug)]
pub(crate) enum Table<'a> {
    /// Of data; without a declaration the values are what they are in JSON.
    Data(&'a Map, Option<&'a DeclType>),
    Computed(Arc<Entries<'a>>),
}

impl<'a> Table<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Table::Data(members, _) => members.len(),
            Table::Computed(entries) => entries.len(),
        }
    }

    fn value_of(value: &'a Value, declared: &Option<&'a DeclType>) -> Val<'a> {
        match declared.and_then(|d| d.element()) {
            Some(element) => Val::of_data(value, element),
            None => Val::of_untyped(value),
        }
    }

    pub(crate) fn get_text(&self, key: &str) -> Option<Val<'a>> {
        match self {
            Table::Data(members, declared) => members.get(key).map(|v| Table::value_of(v, declared)),
            Table::Computed(entries) => entries.get(&Key::String(SmolStr::new(key))).map(|(_, v)| v.clone()),
        }
    }

    pub(crate) fn get(&self, key: &Val<'a>) -> Option<Val<'a>> {
        match (self, key) {
            (_, Val::String(text)) => self.get_text(text.as_str()),
            (Table::Computed(entries), key) => entries.get(&key.to_key()?).map(|(_, v)| v.clone()),
            _ => None,
        }
    }

    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = (Val<'a>, Val<'a>)> + '_> {
        match self {
            Table::Data(members, declared) => Box::new(
                members.iter().map(|(k, v)| (Val::String(Text::Data(k)), Table::value_of(v, declared))),
            ),
            Table::Computed(entries) => Box::new(entries.values().cloned()),
        }
    }
}

impl<'a> Val<'a> {
    /// A value of data. Data that do not match their declaration (which the schema's validation refuses) are
    /// taken by their JSON type.
    pub(crate) fn of_data(value: &'a Value, declared: &'a DeclType) -> Val<'a> {
        match (declared.shape(), value) {
            (Shape::Double, Value::Int(n)) => Val::Double(*n as f64),
            (Shape::Int, Value::Float(n)) if n.fract() == 0.0 && n.abs() < 9.2e18 => Val::Int(*n as i64),
            (Shape::Bytes, Value::String(s)) => match base64_text::decode(s) {
                Ok(bytes) => Val::Bytes(bytes.into()),
                Err(_) => Val::of_untyped(value),
            },
            (Shape::Duration, Value::String(s)) => {
                parse_duration(s).map_or_else(|_| Val::of_untyped(value), Val::Duration)
            }
            (Shape::Timestamp { date }, Value::String(s)) => {
                let time = match date {
                    true => Timestamp::parse(&format!("{s}T00:00:00Z")),
                    false => Timestamp::parse(s),
                };
                time.map_or_else(|_| Val::of_untyped(value), Val::Timestamp)
            }
            (Shape::List { .. }, Value::Array(elements)) => Val::List(List::Data(elements, Some(declared))),
            (Shape::Map { .. }, Value::Object(members)) => Val::Map(Table::Data(members, Some(declared))),
            (Shape::Object { .. }, Value::Object(members)) => Val::Object(members, declared),
            _ => Val::of_untyped(value),
        }
    }

    /// A value of data without a schema.
    pub(crate) fn of_untyped(value: &'a Value) -> Val<'a> {
        match value {
            Value::Null => Val::Null,
            Value::Bool(b) => Val::Bool(*b),
            Value::Int(n) => Val::Int(*n),
            Value::Float(n) => Val::Double(*n),
            Value::String(s) => Val::String(Text::Data(s)),
            Value::Array(elements) => Val::List(List::Data(elements, None)),
            Value::Object(members) => Val::Map(Table::Data(members, None)),
            Value::Encoded(encoded) => Val::Map(Table::Data(encoded.members(), None)),
        }
    }

    pub(crate) fn text(text: impl Into<SmolStr>) -> Val<'a> {
        Val::String(Text::Computed(text.into()))
    }

    pub(crate) fn optional(value: Option<Val<'a>>) -> Val<'a> {
        Val::Optional(value.map(Arc::new))
    }

    pub(crate) fn opaque(thing: OpaqueValue) -> Val<'a> {
        Val::Opaque(Arc::new(thing))
    }

    pub(crate) fn list(elements: Vec<Val<'a>>) -> Val<'a> {
        Val::List(List::made(elements))
    }

    /// The value as data: times as texts, bytes as base64. `None` for values without a JSON form, and when it
    /// has more nodes than `left`, which is reduced by them: an expression can refer to one list a thousand
    /// times.
    pub(crate) fn to_value(&self, left: &mut usize) -> Option<Value> {
        *left = left.checked_sub(1)?;
        plinth_codec::value::level(|| {
            Some(match self {
                Val::Null | Val::Optional(None) => Value::Null,
                Val::Bool(b) => Value::Bool(*b),
                Val::Int(n) => Value::Int(*n),
                Val::Uint(n) => Value::Int(i64::try_from(*n).ok()?),
                Val::Double(n) => Value::Float(*n),
                Val::String(text) => Value::String(SmolStr::new(text.as_str())),
                Val::Bytes(bytes) => Value::from(base64_text::encode(bytes)),
                Val::Duration(nanoseconds) => Value::from(plinth_codec::time::format_duration(*nanoseconds)),
                Val::Timestamp(time) => Value::String(time.to_rfc3339()),
                Val::List(list) => {
                    Value::Array(list.iter().map(|v| v.to_value(left)).collect::<Option<Vec<_>>>()?)
                }
                Val::Map(table) => {
                    let mut map = Map::new();
                    for (key, value) in table.iter() {
                        map.insert(key.as_str()?, value.to_value(left)?);
                    }
                    Value::Object(map)
                }
                Val::Object(members, _) => Value::Object((*members).clone()),
                Val::Message(message) => {
                    let mut map = Map::new();
                    for (field, value) in &message.fields {
                        map.insert(field.clone(), value.to_value(left)?);
                    }
                    Value::Object(map)
                }
                Val::Optional(Some(inner)) => inner.to_value(left)?,
                Val::Type(_) | Val::Opaque(_) => return None,
            })
        })
    }

    pub(crate) fn into_text(self) -> Option<String> {
        match self {
            Val::String(text) => Some(text.as_str().to_owned()),
            _ => None,
        }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Val::String(text) => Some(text.as_str()),
            _ => None,
        }
    }

    pub(crate) fn as_opaque(&self) -> Option<&OpaqueValue> {
        match self {
            Val::Opaque(thing) => Some(thing),
            _ => None,
        }
    }

    /// The name of the value's type, as `type()` gives it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Val::Null => "null_type",
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::Uint(_) => "uint",
            Val::Double(_) => "double",
            Val::String(_) => "string",
            Val::Bytes(_) => "bytes",
            Val::Duration(_) => "google.protobuf.Duration",
            Val::Timestamp(_) => "google.protobuf.Timestamp",
            Val::List(_) => "list",
            Val::Map(_) => "map",
            Val::Object(..) | Val::Message(_) => "object",
            Val::Optional(_) => "optional_type",
            Val::Type(_) => "type",
            Val::Opaque(thing) => thing.kind().name(),
        }
    }

    pub(crate) fn to_key(&self) -> Option<Key> {
        Some(match self {
            Val::Bool(b) => Key::Bool(*b),
            Val::Int(n) => Key::Int(i128::from(*n)),
            Val::Uint(n) => Key::Int(i128::from(*n)),
            Val::Double(n) if n.fract() == 0.0 && n.abs() < 1.9e19 => Key::Int(*n as i128),
            Val::String(s) => Key::String(SmolStr::new(s.as_str())),
            _ => return None,
        })
    }

    /// The size from which costs are computed: bytes, code points, elements or entries; 1 for all else. For
    /// long strings bytes are counted instead of code points.
    pub(crate) fn size(&self) -> u64 {
        let size = match self {
            Val::String(text) => match text.as_str() {
                long if long.len() > 256 => long.len(),
                short => short.chars().count(),
            },
            Val::Bytes(bytes) => bytes.len(),
            Val::List(list) => list.len(),
            Val::Map(map) => map.len(),
            Val::Optional(Some(inner)) => return inner.size(),
            Val::Opaque(thing) => return thing.size(),
            _ => 1,
        };
        size as u64
    }
}

/// A member of an object, by its declaration.
pub(crate) fn member<'a>(value: &'a Value, declared: &'a DeclType, name: &str) -> Val<'a> {
    match declared.property(name) {
        Some(declared) => Val::of_data(value, declared),
        None => Val::of_untyped(value),
    }
}
