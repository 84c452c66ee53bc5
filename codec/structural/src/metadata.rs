//! The metadata of custom resources and of objects embedded in them: decoded as for built-in kinds
//! (apiextensions-apiserver, `pkg/apiserver/schema/objectmeta`).

use std::sync::OnceLock;

use plinth_codec::error::{DecodeError, StrictError};
use plinth_codec::field::{FieldError, Path};
use plinth_codec::json::{self, DecodeOptions, Decoded};
use plinth_codec::schema::{self, TypeId};
use plinth_codec::value::{level, Map, Value};
use smol_str::{format_smolstr, SmolStr};

use super::node::{Additional, Node};
use super::prune::is_meta_field;

/// The type of `metadata` in the built-in schema.
pub(super) fn object_meta() -> TypeId {
    static ID: OnceLock<TypeId> = OnceLock::new();
    *ID.get_or_init(|| {
        let named = schema::builtin().named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
        // The built-in table always has it.
        named.unwrap_or(TypeId(0))
    })
}

/// Decodes a `metadata` as upstream's types hold it. With `drop_invalid`, fields of wrong types are dropped;
/// then only metadata that is not an object is an error.
pub(super) fn decode(metadata: Value, strict: bool, drop_invalid: bool) -> Result<Decoded, DecodeError> {
    let options = DecodeOptions { strict };
    let conform = |value| json::conform(value, schema::builtin(), object_meta(), &options);
    if !drop_invalid {
        return conform(metadata);
    }
    match (conform(metadata.clone()), metadata) {
        (Err(_), Value::Object(fields)) => {
            let mut all = Decoded { value: Value::object(), strict: Vec::new() };
            for (name, value) in fields {
                let one = Value::Object([(name, value)].into_iter().collect());
                let Ok(decoded) = conform(one) else { continue };
                all.strict.extend(decoded.strict);
                if let (Value::Object(fields), Some(all)) = (decoded.value, all.value.as_object_mut()) {
                    fields.into_iter().for_each(|(name, value)| drop(all.insert(name, value)));
                }
            }
            Ok(all)
        }
        (outcome, _) => outcome,
    }
}

/// Decodes the metadata of embedded objects wherever they are.
pub(super) struct Coercer<'a> {
    pub nodes: &'a [Node],
    pub drop_invalid: bool,
    pub strict: bool,
    /// Unknown fields of embedded metadata.
    pub unknown: Vec<SmolStr>,
}

impl<'a> Coercer<'a> {
    /// A coercer that refuses wrong types.
    pub(crate) fn strict(nodes: &'a [Node]) -> Coercer<'a> {
        Coercer { nodes, drop_invalid: false, strict: false, unknown: Vec::new() }
    }

    /// `embedded` is true if the value itself is an embedded object.
    ///
    /// # Errors
    /// The first field of a wrong type, unless these are dropped.
    pub(crate) fn value(
        &mut self,
        path: &Path<'_>,
        value: &mut Value,
        node: &Node,
        embedded: bool,
    ) -> Result<(), FieldError> {
        level(|| match value {
            Value::Object(map) => {
                if embedded {
                    self.embedded(path, map)?;
                }
                for (name, value) in map.iter_mut() {
                    if embedded && is_meta_field(name) {
                        continue;
                    }
                    let (id, path) = match (node.property(name), node.additional) {
                        (Some(id), _) => (id, path.child(name)),
                        (None, Additional::Schema(id)) => (id, path.key(name)),
                        _ => continue,
                    };
                    let Some(node) = self.nodes.get(id.0 as usize) else { continue };
                    self.value(&path, value, node, node.embedded_resource)?;
                }
                Ok(())
            }
            Value::Array(items) => {
                let node = node.items.and_then(|id| self.nodes.get(id.0 as usize));
                let Some(node) = node else { return Ok(()) };
                for (i, item) in items.iter_mut().enumerate() {
                    self.value(&path.index(i), item, node, node.embedded_resource)?;
                }
                Ok(())
            }
            _ => Ok(()),
        })
    }

    fn embedded(&mut self, path: &Path<'_>, object: &mut Map) -> Result<(), FieldError> {
        for name in ["apiVersion", "kind"] {
            match object.get(name) {
                None | Some(Value::String(_)) => {}
                Some(_) if self.drop_invalid => drop(object.remove(name)),
                Some(other) => return Err(FieldError::invalid(path.child(name), other, "must be a string")),
            }
        }
        let Some(metadata) = object.get("metadata") else { return Ok(()) };
        match decode(metadata.clone(), self.strict, self.drop_invalid) {
            Ok(decoded) => {
                let prefix = path.child("metadata");
                self.unknown.extend(decoded.strict.iter().filter_map(|error| match error {
                    StrictError::UnknownField(field) | StrictError::DuplicateField(field) => {
                        Some(format_smolstr!("{prefix}.{field}"))
                    }
                    StrictError::Yaml(_) => None,
                }));
                object.insert("metadata", decoded.value);
                Ok(())
            }
            // Metadata that cannot be decoded is left unchanged.
            Err(_) if self.drop_invalid => Ok(()),
            Err(error) => Err(FieldError::invalid(path.child("metadata"), metadata, error)),
        }
    }
}

/// Decodes the metadata of objects in a default value; invalid fields are dropped.
pub(super) fn coerce_default(nodes: &[Node], node: &Node, value: &mut Value) {
    let mut coercer = Coercer { nodes, drop_invalid: true, strict: false, unknown: Vec::new() };
    // Nothing is refused where invalid fields are dropped.
    drop(coercer.value(&Path::Root, value, node, node.embedded_resource));
}

/// Decodes an object that has only metadata; invalid fields are dropped.
pub(super) fn coerce_surrounding(mut object: Value) -> Value {
    let mut coercer = Coercer { nodes: &[], drop_invalid: true, strict: false, unknown: Vec::new() };
    if let Value::Object(map) = &mut object {
        drop(coercer.embedded(&Path::Root, map));
    }
    object
}
