//! The encodings of stored objects on the wire.
//!
//! JSON is spliced: a prefix of the kind, the revision, the stored bytes. Every other encoding is derived
//! from the same bytes. A [`Representation`] is negotiated once per request; lists ([`ListWriter`]) and
//! watches then use it for each item.

mod item;
mod json;
mod list;
pub mod list_size_cache;
mod negotiated;
mod table;
mod tree;
mod write;

pub use item::{EventType, Item, ListMeta};
pub use list::{FirstPass, ListWriter, Totals};
pub use negotiated::{wants_pretty, Representation, RepresentationKey};
pub use tree::{write as write_tree, write_document};
