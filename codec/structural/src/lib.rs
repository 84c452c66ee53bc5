//! Structural schemas of CustomResourceDefinitions, and their application to custom resources. No storage, no
//! sockets.
//!
//! | item | what it is |
//! |---|---|
//! | [`definition`] | checks whole CustomResourceDefinitions: functions from definitions to field errors and warnings |
//! | [`StructuralSchema`] | the compiled schema of one version: a fixed arena of nodes, equal ones once |
//! | [`Conform`] | the options of [`StructuralSchema::conform`] |
//! | [`CompileError`], [`ConformError`] | why a schema does not compile; why an object cannot be decoded by it |
//!
//! A [`StructuralSchema`] is compiled from `spec.versions[*].schema.openAPIV3Schema` of an
//! apiextensions.k8s.io/v1 definition and is immutable from then on: share it behind an `Arc`. Objects are
//! trees ([`Value`](plinth_codec::Value)), changed in place. Rules, paths, reasons and messages are those of
//! k8s.io/apiextensions-apiserver and k8s.io/kube-openapi.
//!
//! A write goes decode -> [`conform`](StructuralSchema::conform) -> [`default`](StructuralSchema::default) ->
//! … -> [`validate`](StructuralSchema::validate) or [`validate_update`](StructuralSchema::validate_update); a
//! read of a stored object takes the first two steps, conforming with `drop_invalid_metadata`.
//!
//! # Errors
//! Errors in valid JSON are returned as a list of [`FieldError`](plinth_codec::field::FieldError)s, in
//! upstream's order: empty means valid. A schema that passed [`definition::validate`] compiles. Work is
//! bounded for any schema and object; an object that would take too long is refused with a field error.
//!
//! # Example
//! ```
//! use plinth_codec::tree;
//! use plinth_structural::{Conform, StructuralSchema};
//!
//! let size = tree!({ "type": "integer", "default": 3i64, "maximum": 10i64 });
//! let spec = tree!({ "type": "object", "properties": tree!({ "size": size }) });
//! let schema = tree!({ "type": "object", "properties": tree!({ "spec": spec }) });
//! let schema = StructuralSchema::compile(&schema).unwrap();
//!
//! let mut object = tree!({
//!     "apiVersion": "example.com/v1", "kind": "Cron", "metadata": tree!({ "name": "a" }),
//!     "spec": tree!({ "sise": 1i64 }),
//! });
//! let strict = schema.conform(&mut object, &Conform { strict: true, ..Conform::default() }).unwrap();
//! assert_eq!(strict[0].to_string(), r#"unknown field "spec.sise""#);
//! assert!(schema.default(&mut object));
//! assert_eq!(object.at(&["spec", "size"]).and_then(|v| v.as_int()), Some(3));
//! assert_eq!(schema.validate(&object), []);
//!
//! object.get_mut("spec").and_then(|spec| spec.as_object_mut()).unwrap().insert("size", 11i64);
//! assert_eq!(schema.validate(&object)[0].field, "spec.size");
//! ```
//!
//! # Inside
//!
//! | module | subject | upstream |
//! |---|---|---|
//! | [`definition`] | whether a definition is valid | `pkg/apis/apiextensions/validation` |
//! | `check` | structural schemas, allowed keywords, defaults | `pkg/apiserver/schema` |
//! | `props`, `compile`, `node` | reading a schema, and its compiled form | |
//! | `structural_schema` | the steps of a write and a read | |
//! | `prune`, `defaulting`, `metadata` | pruning, defaulting and decoding of metadata | `pkg/apiserver/schema/{pruning,defaulting,objectmeta}` |
//! | `validate`, `format`, `list_type`, `embedded` | whether an object is valid | `pkg/apiserver/validation`, kube-openapi `validate`, `strfmt` |
//! | `rules` | `x-kubernetes-validations`: the walk that evaluates rules; the language is [`plinth_cel`] | `pkg/apiserver/schema/cel` |
//! | `model` | the schema model for server-side apply | `schemaconv` |

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "tables of tests"))]
#![warn(unreachable_pub)]

mod check;
mod compile;
mod defaulting;
pub mod definition;
mod embedded;
mod format;
mod list_type;
mod metadata;
mod model;
mod node;
mod props;
mod prune;
mod rules;
mod structural_schema;
#[cfg(test)]
mod tests;
mod validate;

pub use compile::CompileError;
pub use structural_schema::{Conform, ConformError, StructuralSchema};
