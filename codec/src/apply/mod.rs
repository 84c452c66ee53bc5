//! Server-side apply: which manager owns which field, and how applied configurations are merged.
//!
//! The semantics of sigs.k8s.io/structured-merge-diff v6 and apimachinery's `managedfields`, by the schema
//! model:
//!
//! | module | subject |
//! |---|---|
//! | [`apply`](fn@apply) in `flow` | an apply request, from the live object to the merged one |
//! | [`track_update`] in `flow` | ownership after a create, update or patch |
//! | [`conflict`] | conflicts between managers, as causes and message |
//! | [`managed`] | `managedFields`: entries, their order, the limit on Update entries |
//! | [`set`], [`path`], [`fields_v1`] | sets of field paths, their steps, their wire form |
//! | [`compare`](mod@compare), [`merge`](mod@merge), [`extract`], `remove` | the walks over values |
//! | `typed` | how the schema has a value owned and merged |
//! | `validate` | whether an applied configuration fits the schema |
//! | `text` | path elements as text |
//! | [`configure`](fn@configure) | an apply without ownership, as in admission policies |
//! | [`Reset`] | fields that a resource or subresource cannot own |
//! | [`scale`] | ownership of `replicas` between an object and its `/scale` |
//! | [`last_applied`] | migration from client-side `kubectl apply` |
//!
//! All functions work on normalized trees: decoded against the schema and defaulted. The time is passed in
//! the [`Context`]. A part nested deeper than [`MAX_DEPTH`] is owned as a whole.
//!
//! ```
//! use plinth_codec::apply::{apply, Context, NoOtherVersions, Reset};
//! use plinth_codec::schema::{self, GVK};
//! use plinth_codec::tree;
//!
//! let kind = GVK::new("", "v1", "ConfigMap");
//! let schema = schema::builtin();
//! let context = Context {
//!     manager: "me",
//!     time: "2026-01-02T03:04:05Z",
//!     kind: &kind,
//!     subresource: "",
//!     schema,
//!     root: schema.kind(&kind).unwrap(),
//!     reset: &Reset::Nothing,
//!     versions: &NoOtherVersions,
//! };
//! let config = tree!({
//!     "apiVersion": "v1", "kind": "ConfigMap",
//!     "metadata": tree!({ "name": "x" }), "data": tree!({ "key": "value" }),
//! });
//! let object = apply(None, &config, false, &context).unwrap().unwrap();
//! let entry = &object.at(&["metadata", "managedFields"]).unwrap().as_array().unwrap()[0];
//! assert_eq!(entry.str_at(&["manager"]), Some("me"));
//! assert!(entry.at(&["fieldsV1", "f:data", "f:key"]).is_some());
//! ```

pub mod compare;
pub mod configure;
pub mod conflict;
mod context;
pub mod extract;
pub mod fields_v1;
mod flow;
pub mod last_applied;
pub mod managed;
pub mod merge;
pub mod path;
mod remove;
mod reset;
pub mod scale;
pub mod set;
mod text;
mod typed;
mod validate;

pub use configure::{configure, ConfigureError};
pub use conflict::{Conflict, Conflicts};
pub use context::{Context, NoOtherVersions, Versions};
pub use flow::{apply, keep_times, track_update, ApplyError};
pub use managed::ManagedFields;
pub use reset::Reset;
pub use set::Set;

/// Levels down to which fields have owners of their own. Real objects stay below thirty.
pub const MAX_DEPTH: usize = 128;

#[cfg(test)]
mod tests;
