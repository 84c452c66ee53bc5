//! The schema model of a custom resource, for server-side apply: equivalent to kube-openapi's
//! `pkg/schemaconv` on the definition's OpenAPI document.
//!
//! Markers of lists and maps are on the types, as in the definition, so that nested lists have their own.
//! Parts without a schema are [`Scalar::Any`]: their ownership is deduced from the values. Where a schema
//! preserves unknown fields, so do its subschemas.

use std::collections::HashMap;

use plinth_codec::schema::{
    self, Field, ListType, MapType, Omit, PatchStrategy, Scalar, Schema, StructType, Type, TypeId, GVK,
};
use plinth_codec::value::{level, Value};
use smol_str::SmolStr;

use super::metadata;
use super::node::{Additional, Kind, ListKind, Node, NodeId};

/// Builds the model; its one kind is `kind`.
pub(super) fn build(nodes: &[Node], root: NodeId, kind: GVK) -> Schema {
    let mut builder = Builder {
        nodes,
        schema: Schema::default(),
        scalars: Vec::new(),
        made: HashMap::new(),
        imported: HashMap::new(),
    };
    let id = builder.object(root, false, true);
    if let Some(Type::Struct(structure)) = builder.schema.types.get_mut(id.0 as usize) {
        structure.kinds.push(kind.clone());
    }
    builder.schema.kinds.insert(kind, id);
    builder.schema.types.shrink_to_fit();
    builder.schema.index();
    builder.schema
}

struct Builder<'a> {
    nodes: &'a [Node],
    schema: Schema,
    scalars: Vec<(Scalar, TypeId)>,
    /// Types of nodes, by whether unknown fields are preserved.
    made: HashMap<(NodeId, bool), TypeId>,
    /// Imported types of the built-in schema, by their id there.
    imported: HashMap<TypeId, TypeId>,
}

impl Builder<'_> {
    fn add(&mut self, t: Type) -> TypeId {
        self.schema.types.push(t);
        TypeId(self.schema.types.len() as u32 - 1)
    }

    fn scalar(&mut self, scalar: Scalar) -> TypeId {
        if let Some((_, id)) = self.scalars.iter().find(|(known, _)| *known == scalar) {
            return *id;
        }
        let id = self.add(Type::Scalar(scalar.clone()));
        self.scalars.push((scalar, id));
        id
    }

    fn string(&mut self) -> TypeId {
        self.scalar(Scalar::String { values: Vec::new() })
    }

    /// The type of a node; `preserved` is true if an enclosing schema preserves unknown fields.
    fn node(&mut self, id: NodeId, preserved: bool) -> TypeId {
        let Some(node) = self.nodes.get(id.index()) else { return self.scalar(Scalar::Any) };
        let preserved = preserved || node.preserves_unknown;
        if let Some(known) = self.made.get(&(id, preserved)) {
            return *known;
        }
        let made = match node.kind {
            _ if node.int_or_string => self.scalar(Scalar::IntOrString),
            Kind::Boolean => self.scalar(Scalar::Bool),
            Kind::Integer => self.scalar(Scalar::Int64),
            Kind::Number => self.scalar(Scalar::Double),
            Kind::String => self.string(),
            Kind::Array => level(|| {
                let element = match node.items {
                    Some(item) => self.node(item, preserved),
                    None => self.scalar(Scalar::Any),
                };
                let merge = match node.list {
                    ListKind::Atomic => ListType::Atomic,
                    ListKind::Set => ListType::Set,
                    ListKind::Map => ListType::Map(node.list_map_keys().to_vec()),
                };
                self.add(Type::List { element, message: false, merge })
            }),
            Kind::Any if node.properties.is_empty() && !node.embedded_resource => self.scalar(Scalar::Any),
            Kind::Any | Kind::Object => level(|| self.object(id, preserved, false)),
        };
        self.made.insert((id, preserved), made);
        made
    }

    /// The type of an object; at the root and where one is embedded, with the fields that every object has.
    fn object(&mut self, id: NodeId, preserved: bool, is_root: bool) -> TypeId {
        let Some(node) = self.nodes.get(id.index()) else { return self.scalar(Scalar::Any) };
        let preserved = preserved || node.preserves_unknown;
        let atomic = node.map == MapType::Atomic;
        let has_metadata = is_root || node.embedded_resource;
        if node.properties.is_empty() && !has_metadata && node.additional != Additional::Closed {
            let value = match node.additional {
                Additional::Schema(value) => self.node(value, preserved),
                _ => self.scalar(Scalar::Any),
            };
            return self.add(Type::Map { value, atomic });
        }
        let mut fields = Vec::with_capacity(node.properties.len() + 3);
        if has_metadata {
            let string = self.string();
            let meta = self.import(metadata::object_meta());
            fields.push(field("apiVersion".into(), string, None));
            fields.push(field("kind".into(), string, None));
            fields.push(field("metadata".into(), meta, None));
        }
        for (name, id) in &node.properties {
            if has_metadata && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                continue;
            }
            let type_id = self.node(*id, preserved);
            let default = self.nodes.get(id.index()).and_then(Node::default);
            // Defaults matter for the keys of lists, which are scalars.
            let default = default.filter(|d| !matches!(d, Value::Array(_) | Value::Object(_)));
            fields.push(field(name.clone(), type_id, default.cloned()));
        }
        let preserves_unknown = preserved
            || node.additional == Additional::Any
            || (has_metadata && node.properties.is_empty() && node.additional == Additional::Absent);
        self.add(Type::Struct(StructType { fields, atomic, preserves_unknown, ..StructType::default() }))
    }

    /// Imports a type of the built-in schema with the types that it refers to.
    fn import(&mut self, id: TypeId) -> TypeId {
        if let Some(known) = self.imported.get(&id) {
            return *known;
        }
        let builtin = schema::builtin();
        let made = match builtin.get(id) {
            Type::Scalar(scalar) => self.scalar(scalar.clone()),
            Type::List { element, message, merge } => {
                let element = self.import(*element);
                self.add(Type::List { element, message: *message, merge: merge.clone() })
            }
            Type::Map { value, atomic } => {
                let value = self.import(*value);
                self.add(Type::Map { value, atomic: *atomic })
            }
            Type::Struct(s) => {
                let fields = s
                    .fields
                    .iter()
                    .map(|f| Field {
                        name: f.name.clone(),
                        number: f.number,
                        embedded_in: f.embedded_in,
                        type_id: self.import(f.type_id),
                        omit: f.omit,
                        pointer: f.pointer,
                        required: f.required,
                        default: f.default.clone(),
                        patch: f.patch.clone(),
                        list: f.list.clone(),
                        map: f.map,
                    })
                    .collect();
                self.add(Type::Struct(StructType {
                    name: s.name.clone(),
                    fields,
                    embedded: s.embedded.clone(),
                    atomic: s.atomic,
                    ..StructType::default()
                }))
            }
        };
        self.imported.insert(id, made);
        made
    }
}

/// A field that is present only if set.
fn field(name: SmolStr, type_id: TypeId, default: Option<Value>) -> Field {
    Field {
        name,
        number: 0,
        embedded_in: 0,
        type_id,
        omit: Omit::Empty,
        pointer: true,
        required: false,
        default,
        patch: PatchStrategy::default(),
        list: ListType::Atomic,
        map: MapType::Granular,
    }
}
