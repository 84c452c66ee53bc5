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
//! model keeps one flat list of fields in JSON order; `emptyDir` carries `number: 2` of its own message
//! and `embedded_in: 2`, the number of the message that holds it, while `name` has `embedded_in: 0`.

pub mod model;

pub use model::{
    Field, ListType, MapType, Omit, PatchStrategy, Scalar, Schema, StructType, Type, TypeId, GVK,
};
