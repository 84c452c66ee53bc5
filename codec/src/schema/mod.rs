//! The schema model: what the fields of each type are, for built-in kinds and custom resources alike.
//!
//! A [`Schema`] is an arena of [`Type`]s. Built-in types come from `builtin.table`, facts that the
//! generator in `codec/generate` derives from the upstream type definitions; the OpenAPI schema of a
//! CustomResourceDefinition compiles to the same model. Everything that walks objects (decoding,
//! unknown-field detection, pruning, defaulting, patch, apply, transcoding, OpenAPI) is written
//! once, against this model.
//!
//! Worked example: `Volume` in core/v1 embeds `VolumeSource`. In JSON its fields are flat
//! (`{"name": "v", "emptyDir": {}}`), in protobuf they sit in a message of their own at number 2. The
//! model keeps one flat list of fields in JSON order; `emptyDir` carries `number: 2` in its own message
//! and `embedded_in: 1`, the first of the struct's embedded messages, while `name` has `embedded_in: 0`:
//!
//! ```
//! use plinth_codec::schema;
//! let schema = schema::builtin();
//! let volume = schema.named("io.k8s.api.core.v1.Volume").and_then(|id| schema.structure(id)).unwrap();
//! let empty_dir = volume.field("emptyDir").unwrap();
//! assert_eq!((empty_dir.number, empty_dir.embedded_in), (2, 1));
//! assert_eq!(volume.embedded[0].number, 2);
//! assert_eq!(volume.field("name").unwrap().embedded_in, 0);
//! ```

mod arena;
mod builtin;
mod compile;
pub(crate) mod layout;
mod model;
mod successors;

pub use arena::Schema;
pub use builtin::builtin;
pub use model::{
    Embedded, Field, ListType, MapType, Omit, PatchStrategy, Scalar, SchemaOr, StructType, Type, TypeId,
    UnionType, GVK,
};
pub use successors::Successors;
