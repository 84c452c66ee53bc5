//! The schema: all types, found by their kinds and names.

use std::collections::HashMap;
use std::sync::OnceLock;

use smol_str::SmolStr;

use super::layout::Layouts;
use super::{Field, Omit, Scalar, SchemaOr, StructType, Type, TypeId, GVK};
use crate::value::Value;

/// An arena of types and the kinds that name some of them.
///
/// Immutable once built and shared behind an `Arc`; the built-in one is made once per process by
/// `schema::builtin()`, each version of a CustomResourceDefinition makes a small one of its own.
#[derive(Debug, Default)]
pub struct Schema {
    /// Every type; a [`TypeId`] is an index here.
    pub types: Vec<Type>,
    /// The struct of each kind, lists and option kinds included.
    pub kinds: HashMap<GVK, TypeId>,
    /// Each named struct by its OpenAPI name.
    pub named: HashMap<SmolStr, TypeId>,
    /// Go's names of strings with a type of their own, as package and name (`v1`, `RestartPolicy`): for the
    /// errors of decoding.
    pub go_strings: HashMap<TypeId, (SmolStr, SmolStr)>,
    /// The protobuf layouts, compiled on first use (`protobuf/empty.rs`); the types must be complete by then.
    pub(crate) layouts: OnceLock<Layouts>,
}

impl Schema {
    /// The type behind an id. Ids come from the same schema, which was checked when it was built.
    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    /// Computes the derived fields of each struct (`by_name`, `always`). To be called once, when all types
    /// have been added and before anything is decoded.
    pub fn index(&mut self) {
        for t in &mut self.types {
            if let Type::Struct(s) = t {
                s.index_fields();
            }
        }
        let mut done = vec![false; self.types.len()];
        for id in 0..self.types.len() {
            self.index_always(TypeId(id as u32), &mut done);
        }
    }

    fn index_always(&mut self, id: TypeId, done: &mut [bool]) {
        if std::mem::replace(&mut done[id.0 as usize], true) {
            return;
        }
        let Type::Struct(s) = self.get(id) else { return };
        // Structs held by value come first; such nesting is finite, since each level is a type of its own.
        let inner: Vec<TypeId> = s.fields.iter().filter(|f| !f.pointer).map(|f| f.type_id).collect();
        for id in inner {
            self.index_always(id, done);
        }
        let Type::Struct(s) = self.get(id) else { return };
        let ranked = s.by_name.iter().enumerate();
        let always = ranked
            .filter_map(|(rank, &i)| Some((rank as u16, self.when_absent(&s.fields[i as usize])?)))
            .collect();
        if let Type::Struct(s) = &mut self.types[id.0 as usize] {
            s.always = always;
        }
    }

    /// The value that upstream writes for an unset field; `None` when it is omitted.
    fn when_absent(&self, field: &Field) -> Option<Value> {
        match (field.pointer, field.omit) {
            (_, Omit::Zero) | (true, Omit::Empty) => None,
            (true, Omit::Never) => Some(Value::Null),
            (false, Omit::Never) => Some(self.zero(field.type_id)),
            // `omitempty` never omits a struct, and these scalars are structs in Go.
            (false, Omit::Empty) => match self.get(field.type_id) {
                Type::Struct(_) => Some(self.zero(field.type_id)),
                Type::Scalar(scalar) if scalar.is_go_struct() => Some(self.zero(field.type_id)),
                _ => None,
            },
        }
    }

    /// The value that upstream writes for the zero value of a type. A nil list or map is `null`.
    pub fn zero(&self, id: TypeId) -> Value {
        match self.get(id) {
            Type::Struct(s) => Value::Object(s.empty()),
            Type::List { .. } | Type::Map { .. } => Value::Null,
            Type::Scalar(scalar) => match scalar {
                Scalar::Bool => Value::Bool(false),
                Scalar::Int32 | Scalar::Int64 | Scalar::IntOrString => Value::Int(0),
                Scalar::Double => Value::Float(0.0),
                Scalar::String { .. } => Value::String(SmolStr::default()),
                Scalar::Quantity => Value::String(SmolStr::new_static("0")),
                Scalar::Duration => Value::String(SmolStr::new_static("0s")),
                Scalar::SchemaOr(SchemaOr::Bool, _) => Value::Bool(false),
                Scalar::Bytes
                | Scalar::Time
                | Scalar::MicroTime
                | Scalar::RawExtension
                | Scalar::Json
                | Scalar::FieldsV1
                | Scalar::SchemaOr(..)
                | Scalar::Any => Value::Null,
            },
        }
    }

    /// The struct behind an id, if the type is one.
    pub fn structure(&self, id: TypeId) -> Option<&StructType> {
        match self.get(id) {
            Type::Struct(s) => Some(s),
            _ => None,
        }
    }

    /// The type of a kind.
    pub fn kind(&self, gvk: &GVK) -> Option<TypeId> {
        self.kinds.get(gvk).copied()
    }

    /// The struct of an OpenAPI name, like `io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta`.
    pub fn named(&self, name: &str) -> Option<TypeId> {
        self.named.get(name).copied()
    }
}
