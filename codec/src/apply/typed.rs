//! The schema's view of a value: how it is owned and merged, and how elements of its lists are named.

use smol_str::SmolStr;

use super::path::PathElement;
use crate::schema::{Field, ListType, MapType, Scalar, Schema, StructType, Type, TypeId};
use crate::value::{Map, Value};

/// A type with the markers of the field that holds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ref<'s> {
    id: Option<TypeId>,
    list: &'s ListType,
    map: MapType,
}

/// How a value is owned and merged.
#[derive(Clone, Copy, Debug)]
pub(super) enum MergeShape<'s> {
    /// One owner for the whole: scalars, atomic lists, maps and structs.
    Leaf,
    /// Each field has its owner.
    Struct(&'s StructType),
    /// Each key has its owner.
    Map(Ref<'s>),
    /// Each element has its owner and is identified by its value.
    Set,
    /// Each element has its owner and is identified by these fields.
    Keyed(&'s [SmolStr], Ref<'s>),
    /// No schema: objects are like maps of such parts, everything else is a leaf.
    Deduced,
}

static ATOMIC: ListType = ListType::Atomic;

impl<'s> Ref<'s> {
    pub(super) fn root(id: TypeId) -> Ref<'s> {
        Ref { id: Some(id), list: &ATOMIC, map: MapType::Granular }
    }

    /// A part without schema.
    pub(super) fn deduced() -> Ref<'s> {
        Ref { id: None, list: &ATOMIC, map: MapType::Granular }
    }

    pub(super) fn field(field: &'s Field) -> Ref<'s> {
        Ref { id: Some(field.type_id), list: &field.list, map: field.map }
    }

    /// The type itself; `None` for a part without schema.
    pub(super) fn get(self, schema: &'s Schema) -> Option<&'s Type> {
        self.id.map(|id| schema.get(id))
    }

    pub(super) fn shape(self, schema: &'s Schema) -> MergeShape<'s> {
        let Some(t) = self.get(schema) else { return MergeShape::Deduced };
        match t {
            Type::Scalar(Scalar::Any | Scalar::Json | Scalar::FieldsV1 | Scalar::SchemaOr(..)) => {
                MergeShape::Deduced
            }
            // An embedded object is one value, whatever it holds.
            Type::Scalar(_) => MergeShape::Leaf,
            Type::Struct(s) if s.atomic || self.map == MapType::Atomic => MergeShape::Leaf,
            Type::Struct(s) => MergeShape::Struct(s),
            Type::Map { atomic, .. } if *atomic || self.map == MapType::Atomic => MergeShape::Leaf,
            Type::Map { value, .. } => MergeShape::Map(Ref::root(*value)),
            Type::List { element, .. } => match self.list(schema) {
                ListType::Atomic => MergeShape::Leaf,
                ListType::Set => MergeShape::Set,
                ListType::Map(keys) => MergeShape::Keyed(keys, Ref::root(*element)),
            },
        }
    }

    /// The shape without regard to `atomic` on structs and maps.
    pub(super) fn granular(self, schema: &'s Schema) -> MergeShape<'s> {
        match self.get(schema) {
            Some(Type::Struct(s)) => MergeShape::Struct(s),
            Some(Type::Map { value, .. }) => MergeShape::Map(Ref::root(*value)),
            _ => self.shape(schema),
        }
    }

    /// How a list is merged: by the marker of its field, else by that of the list type.
    pub(super) fn list(self, schema: &'s Schema) -> &'s ListType {
        match (self.list, self.get(schema)) {
            (ListType::Atomic, Some(Type::List { merge, .. })) => merge,
            (list, _) => list,
        }
    }

    /// Whether the type is a list, map or struct with a single owner.
    pub(super) fn is_atomic(self, schema: &'s Schema) -> bool {
        match self.get(schema) {
            None => false,
            Some(Type::Scalar(s)) => matches!(s, Scalar::RawExtension),
            Some(_) => matches!(self.shape(schema), MergeShape::Leaf),
        }
    }
}

impl<'s> MergeShape<'s> {
    /// The type of a member of an object, with its field where it is a declared one.
    pub(super) fn member(self, name: &str) -> (Ref<'s>, Option<&'s Field>) {
        match self {
            MergeShape::Struct(s) => match s.field(name) {
                Some(field) => (Ref::field(field), Some(field)),
                None => (Ref::deduced(), None),
            },
            MergeShape::Map(value) => (value, None),
            _ => (Ref::deduced(), None),
        }
    }

    /// The type of a field or element that the schema declares; `None` for a field that it does not, and
    /// without a schema.
    pub(super) fn step(self, field: Option<&str>) -> Option<Ref<'s>> {
        match (self, field) {
            (MergeShape::Struct(s), Some(name)) => s.field(name).map(Ref::field),
            (MergeShape::Map(value), _) => Some(value),
            (MergeShape::Keyed(_, element), _) => Some(element),
            _ => None,
        }
    }

    /// The type of the elements of a list.
    pub(super) fn element(self) -> Ref<'s> {
        match self {
            MergeShape::Keyed(_, element) => element,
            _ => Ref::deduced(),
        }
    }
}

/// The members of an object; none of anything else.
pub(super) fn members(v: Option<&Value>) -> Option<&Map> {
    v.and_then(Value::as_object)
}

/// Whether a list or object is absent, `null` or without elements.
pub(super) fn is_void(v: Option<&Value>) -> bool {
    match v {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(_) => false,
    }
}

/// Why an element of a list has no name.
#[derive(Debug, thiserror::Error)]
pub(super) enum ElementNameError {
    #[error("associative list with keys may not have a null element")]
    Null,
    #[error("associative list with keys may not have non-map elements")]
    NotAnObject,
    #[error("associative list with keys has an element that omits all key fields [{0}] (and doesn't have default values for any key fields)")]
    NoKeys(String),
    #[error("associative list without keys has an element that's a map type")]
    ObjectInSet,
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
}

/// The name of an element of a set or keyed list.
pub(super) fn element_name(
    schema: &Schema,
    shape: MergeShape<'_>,
    item: &Value,
) -> Result<PathElement, ElementNameError> {
    match shape {
        MergeShape::Keyed(keys, element) => {
            let map = match item {
                Value::Object(map) => map,
                Value::Null => return Err(ElementNameError::Null),
                _ => return Err(ElementNameError::NotAnObject),
            };
            let mut fields: Vec<(SmolStr, Value)> = Vec::with_capacity(keys.len());
            for key in keys {
                if let Some(value) = map.get(key).or_else(|| key_default(schema, element, key)) {
                    fields.push((key.clone(), value.clone()));
                }
            }
            if fields.is_empty() {
                let quoted: Vec<String> = keys.iter().map(|k| format!("\"{k}\"")).collect();
                return Err(ElementNameError::NoKeys(quoted.join(" ")));
            }
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Ok(PathElement::Key(fields.into()))
        }
        _ => match item {
            Value::Object(_) => Err(ElementNameError::ObjectInSet),
            Value::Array(_) => Err(ElementNameError::ListInSet),
            Value::Null => Err(ElementNameError::NullInSet),
            scalar => Ok(PathElement::Value(scalar.clone())),
        },
    }
}

/// The value of a key field that an element leaves out: the declared default, or the zero value where
/// upstream's type cannot omit the field (its OpenAPI has `default: ""` for those).
pub(super) fn key_default<'s>(schema: &'s Schema, element: Ref<'s>, key: &str) -> Option<&'s Value> {
    let Some(Type::Struct(s)) = element.get(schema) else { return None };
    let rank = s.rank(key)?;
    let field = s.by_rank(rank);
    let always = || {
        let at = s.always.binary_search_by_key(&rank, |(rank, _)| usize::from(*rank)).ok()?;
        s.always.get(at).map(|(_, zero)| zero).filter(|zero| !zero.is_null() && !field.pointer)
    };
    field.default.as_ref().or_else(always)
}

/// An element of a list with its name.
pub(super) type NamedElement<'v> = (PathElement, &'v Value);

/// The elements of a list with their names, sorted by name, equal names in list order. Elements without a
/// name are left out. `O(n log n)`, `O(n)` when they are in order.
pub(super) fn named<'v>(
    schema: &Schema,
    shape: MergeShape<'_>,
    list: Option<&'v Value>,
) -> Vec<NamedElement<'v>> {
    let items = list.and_then(Value::as_array).unwrap_or_default();
    let mut named: Vec<_> =
        items.iter().filter_map(|item| Some((element_name(schema, shape, item).ok()?, item))).collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named
}

/// The run of equal names at the front of sorted elements, and the rest.
pub(super) fn run<'n, 'v>(items: &'n [NamedElement<'v>]) -> (&'n [NamedElement<'v>], &'n [NamedElement<'v>]) {
    match items.first() {
        None => (items, items),
        Some((first, _)) => items.split_at(items.partition_point(|(name, _)| name <= first)),
    }
}
