//! Discovery: what the server says about the groups, versions and resources that it serves.
//!
//! Pure functions from a [`Catalog`] to documents. A catalog is made from a snapshot of the
//! resource rows (those of the built-in table and those that CustomResourceDefinitions add), so whoever
//! keeps the rows rebuilds and caches documents when the rows change; nothing here holds state.
//!
//! | path | document | function |
//! |---|---|---|
//! | `/api` | `APIVersions`, or aggregated | [`lists::api_versions`], [`aggregated::core`] |
//! | `/apis` | `APIGroupList`, or aggregated | [`lists::groups`], [`aggregated::groups`] |
//! | `/apis/G` | `APIGroup` | [`lists::group`] |
//! | `/api/V`, `/apis/G/V` | `APIResourceList` | [`lists::resources`] |
//! | `/` | `RootPaths` | [`root::paths`] |
//! | `/version` | version `Info` | [`root::version`] |
//!
//! Which form of `/api` and `/apis` a client gets is negotiated by the caller: the aggregated one for
//! `Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList`.
//!
//! ```
//! use plinth_codec::resources;
//! use plinth_registry::discovery::{lists, Catalog};
//!
//! let catalog = Catalog::new(resources::builtin(), []);
//! let document = lists::group(&catalog, "autoscaling").unwrap();
//! assert_eq!(document.tree.str_at(&["preferredVersion", "groupVersion"]), Some("autoscaling/v2"));
//! assert!(lists::resources(&catalog, "autoscaling", "v3").is_none());
//! ```

pub mod aggregated;
mod catalog;
pub mod etag;
pub mod lists;
mod order;
pub mod root;
#[cfg(test)]
mod tests;

use plinth_codec::schema::GVK;
use plinth_codec::Value;

pub use catalog::{Catalog, Group, Version};
pub use order::compare_versions;

/// A discovery document before it is encoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The kind that tells the encoders its schema. What the document itself says is in the tree: `/api`
    /// and the lists of the core group leave `apiVersion` out, as they did in release 1.1.
    pub kind: GVK,
    /// The content.
    pub tree: Value,
}
