//! Schemas as CEL types (k8s.io/apiserver, `pkg/cel/common/schemas.go`): which fields `self` has, how large
//! they can be, and how data are read.

use std::sync::Arc;

use smol_str::SmolStr;

use super::model::{DeclType, Field, ListKind, Node, OpaqueType, Shape, Type};
use crate::escape::{escape, is_reserved};
use crate::limits::MAX_REQUEST_BYTES;
use crate::schema::SchemaNode;

/// The name of the type of objects of a schema.
const OBJECT: &str = "object";

/// An object of a schema.
fn object(fields: Vec<Field>) -> Shape {
    Shape::Object { name: SmolStr::new_static(OBJECT), fields }
}

/// Maximum lengths of strings with a format, including quotes.
const DURATION_BYTES: i64 = 32;
const DATE_BYTES: i64 = 12;
const DATE_TIME_BYTES: i64 = 32;

impl DeclType {
    /// Declares a schema; `resource_root` is true for the root of a resource and for embedded resources,
    /// whose `apiVersion`, `kind`, `metadata.name` and `metadata.generateName` are always present. `None` for
    /// what is not visible to expressions: data without a type, and lists and maps of such. Work and memory
    /// are in proportion to the schema.
    pub fn of<S: SchemaNode>(schema: S, resource_root: bool) -> Option<DeclType> {
        plinth_codec::value::level(|| declare(schema, resource_root))
    }

    fn new(shape: Shape, max_elements: i64, min_bytes: i64) -> DeclType {
        let max_elements = u64::try_from(max_elements).unwrap_or(0);
        DeclType(Arc::new(Node { shape, max_elements, min_bytes }))
    }

    /// An object whose members are computed by expressions of these types. Of members with one name the last
    /// one counts.
    pub(crate) fn of_members(members: impl Iterator<Item = (SmolStr, Type)>) -> DeclType {
        let mut fields: Vec<Field> = Vec::new();
        for (name, made) in members {
            fields.retain(|field| field.name != name);
            let declared = DeclType::new(Shape::Computed(made), 0, 0);
            fields.push(Field { identifier: name.clone(), name, declared });
        }
        fields.sort_by(|a, b| a.identifier.cmp(&b.identifier));
        DeclType::new(object(fields), 0, 0)
    }

    /// The property of this name; `None` when there is none that is visible to expressions.
    pub fn property(&self, name: &str) -> Option<&DeclType> {
        escape(name).and_then(|identifier| self.field(&identifier)).map(|f| &f.declared)
    }

    /// The type of a list's elements or a map's values.
    pub fn element(&self) -> Option<&DeclType> {
        match &self.0.shape {
            Shape::List { element, .. } | Shape::Map { element, .. } => Some(element),
            _ => None,
        }
    }

    /// A text of at most that many bytes.
    pub fn text(max_bytes: u32) -> DeclType {
        DeclType::new(Shape::String, i64::from(max_bytes), 2)
    }

    /// A truth value that is counted as that many elements.
    pub fn boolean(elements: u32) -> DeclType {
        DeclType::new(Shape::Bool, i64::from(elements), 4)
    }

    /// A scalar of any type, whose text has at most that many bytes.
    pub fn any(max_bytes: u32) -> DeclType {
        DeclType::new(Shape::Any, i64::from(max_bytes), 1)
    }

    /// A quantity, of the library of that name.
    pub fn quantity() -> DeclType {
        DeclType::new(Shape::Computed(Type::Opaque(OpaqueType::Quantity)), 0, 8)
    }

    /// A map with that many entries at most, whose keys have at most that many bytes.
    pub fn map(element: DeclType, max_entries: u32, max_key_bytes: u32) -> DeclType {
        let key_bytes = u64::from(max_key_bytes);
        DeclType::new(Shape::Map { element, key_bytes }, i64::from(max_entries), 2)
    }

    /// An object, which messages show as a type of that name.
    pub fn object<'m>(name: &str, members: impl IntoIterator<Item = (&'m str, DeclType)>) -> DeclType {
        let mut fields = Vec::new();
        members.into_iter().for_each(|(member, declared)| push(&mut fields, member, declared));
        fields.sort_by(|a, b| a.identifier.cmp(&b.identifier));
        DeclType::new(Shape::Object { name: SmolStr::new(name), fields }, 0, 2)
    }

    /// The name of an object's type.
    pub(crate) fn name(&self) -> &str {
        match &self.0.shape {
            Shape::Object { name, .. } => name,
            _ => OBJECT,
        }
    }

    /// Most bytes that a key of a map is counted with.
    pub(crate) fn key_bytes(&self) -> u64 {
        match self.0.shape {
            Shape::Map { key_bytes, .. } => key_bytes,
            _ => 0,
        }
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.0.shape
    }

    pub(crate) fn max_elements(&self) -> u64 {
        self.0.max_elements
    }

    /// The property of an identifier. After a dot reserved words need no escape.
    pub(crate) fn field(&self, identifier: &str) -> Option<&Field> {
        let Shape::Object { fields, .. } = &self.0.shape else { return None };
        let find = |name: &str| fields.binary_search_by(|f| f.identifier.as_str().cmp(name)).ok();
        let place = find(identifier).or_else(|| match is_reserved(identifier) {
            true => find(&format!("__{identifier}__")),
            false => None,
        });
        place.map(|i| &fields[i])
    }

    /// Whether both are the same declaration.
    pub(crate) fn is(&self, other: &DeclType) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn to_type(&self) -> Type {
        match &self.0.shape {
            Shape::Dyn => Type::Dyn,
            Shape::Any => Type::Any,
            Shape::Bool => Type::Bool,
            Shape::Int => Type::Int,
            Shape::Double => Type::Double,
            Shape::String => Type::String,
            Shape::Bytes => Type::Bytes,
            Shape::Duration => Type::Duration,
            Shape::Timestamp { .. } => Type::Timestamp,
            Shape::List { element, .. } => Type::list(element.to_type()),
            Shape::Map { element, .. } => Type::map(Type::String, element.to_type()),
            Shape::Object { .. } => Type::Object(self.clone()),
            Shape::Computed(made) => made.clone(),
        }
    }

    /// How many values of this type fit into the largest request: the bound where the schema gives none.
    pub(crate) fn max_cardinality(&self) -> u64 {
        u64::try_from(MAX_REQUEST_BYTES / (self.0.min_bytes + 1)).unwrap_or(0)
    }
}

fn declare<S: SchemaNode>(schema: S, resource_root: bool) -> Option<DeclType> {
    if schema.int_or_string() {
        let max = schema.max_length().map_or(MAX_REQUEST_BYTES - 2, bytes_of);
        return Some(DeclType::new(Shape::Dyn, max, 1));
    }
    let declared = match schema.schema_type() {
        "object" => return declare_object(schema, resource_root),
        "array" => {
            let items = schema.items()?;
            let element = DeclType::of(items, items.embedded_resource())?;
            let most = (MAX_REQUEST_BYTES - 2) / (element.0.min_bytes + 1);
            let kind = match schema.list_type() {
                "set" => ListKind::Set,
                "map" => ListKind::Map(schema.list_map_keys().map(SmolStr::new).collect()),
                _ => ListKind::Atomic,
            };
            DeclType::new(Shape::List { element, kind }, schema.max_items().unwrap_or(most), 2)
        }
        "string" => declare_string(schema),
        "boolean" => DeclType::new(Shape::Bool, 0, 4),
        "integer" => DeclType::new(Shape::Int, 0, 1),
        "number" => DeclType::new(Shape::Double, 0, 1),
        _ => return None,
    };
    Some(declared)
}

fn declare_string<S: SchemaNode>(schema: S) -> DeclType {
    match schema.format() {
        "byte" => {
            let most = schema.max_length().unwrap_or(MAX_REQUEST_BYTES - 2);
            DeclType::new(Shape::Bytes, most, 2)
        }
        "duration" => DeclType::new(Shape::Duration, DURATION_BYTES, 3),
        "date" => DeclType::new(Shape::Timestamp { date: true }, DATE_BYTES, 12),
        "date-time" => DeclType::new(Shape::Timestamp { date: false }, DATE_TIME_BYTES, 21),
        _ => {
            let values = schema.enum_values();
            let most = match (schema.max_length(), values.is_empty()) {
                (Some(most), _) => bytes_of(most),
                (None, true) => MAX_REQUEST_BYTES - 2,
                (None, false) => {
                    let longest = values.iter().filter_map(|v| v.as_str()).map(str::len).max();
                    longest.map_or(0, |n| n as i64)
                }
            };
            DeclType::new(Shape::String, most, 2)
        }
    }
}

/// Maximum number of bytes of so many code points.
fn bytes_of(length: i64) -> i64 {
    length.max(0).saturating_mul(4)
}

fn declare_object<S: SchemaNode>(schema: S, resource_root: bool) -> Option<DeclType> {
    if let Some(values) = schema.additional_properties() {
        let element = DeclType::of(values, values.embedded_resource())?;
        // Besides the value: a key of two bytes, quotes, colon and comma.
        let most = (MAX_REQUEST_BYTES - 2) / (element.0.min_bytes + 6);
        let most = schema.max_properties().unwrap_or(most);
        return Some(DeclType::new(Shape::Map { element, key_bytes: 0 }, most, 2));
    }
    let mut fields = Vec::new();
    let mut min_bytes = 2;
    let mut declare_field = |name: &str, declared: DeclType, has_default: bool| {
        if schema.is_required(name) && !has_default {
            min_bytes += name.len() as i64 + declared.0.min_bytes + 4;
        }
        push(&mut fields, name, declared);
    };
    let replace_meta = resource_root && !declares_meta(schema);
    for (name, property) in schema.properties() {
        if replace_meta && is_meta(name) {
            continue;
        }
        if let Some(declared) = DeclType::of(property, property.embedded_resource()) {
            declare_field(name, declared, property.has_default());
        }
    }
    if replace_meta {
        let text = DeclType::new(Shape::String, MAX_REQUEST_BYTES - 2, 2);
        let mut metadata = Vec::new();
        push(&mut metadata, "generateName", text.clone());
        push(&mut metadata, "name", text.clone());
        declare_field("apiVersion", text.clone(), false);
        declare_field("kind", text, false);
        declare_field("metadata", DeclType::new(object(metadata), 0, 2), false);
    }
    fields.sort_by(|a, b| a.identifier.cmp(&b.identifier));
    Some(DeclType::new(object(fields), 0, min_bytes))
}

/// Whether the schema itself declares type and metadata.
fn declares_meta<S: SchemaNode>(schema: S) -> bool {
    let is = |node: Option<S>, kind: &str| node.is_some_and(|n| n.schema_type() == kind);
    let metadata = schema.property("metadata");
    is(schema.property("kind"), "string")
        && is(schema.property("apiVersion"), "string")
        && is(metadata, "object")
        && is(metadata.and_then(|m| m.property("name")), "string")
        && is(metadata.and_then(|m| m.property("generateName")), "string")
}

fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

fn push(fields: &mut Vec<Field>, name: &str, declared: DeclType) {
    if let Some(identifier) = escape(name) {
        fields.push(Field { identifier: SmolStr::new(identifier), name: SmolStr::new(name), declared });
    }
}
