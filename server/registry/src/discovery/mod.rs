//! Discovery documents of the served groups, versions and resources.
//!
//! Pure functions from a [`Catalog`] to documents. A catalog is built from a snapshot of the resource rows
//! (the built-in ones and those of CustomResourceDefinitions); the owner of the rows caches documents and
//! rebuilds them when the rows change.
//!
//! | path | document | function |
//! |---|---|---|
//! | `/api` | `APIVersions`, or aggregated | [`lists::api_versions_document`], [`aggregated::aggregated_core`] |
//! | `/apis` | `APIGroupList`, or aggregated | [`lists::api_group_list_document`], [`aggregated::aggregated_groups`] |
//! | `/apis/G` | `APIGroup` | [`lists::api_group_document`] |
//! | `/api/V`, `/apis/G/V` | `APIResourceList` | [`lists::api_resource_list_document`] |
//! | `/` | `RootPaths` | [`root::root_paths_document`] |
//! | `/version` | version `Info` | [`root::version_document`] |
//!
//! The caller negotiates the form of `/api` and `/apis`: aggregated for `Accept:
//! application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList`.
//!
//! ```
//! use plinth_codec::resources;
//! use plinth_registry::{api_group_document, api_resource_list_document, Catalog};
//!
//! let catalog = Catalog::new(resources::builtin(), []);
//! let document = api_group_document(&catalog, "autoscaling").unwrap();
//! assert_eq!(document.tree.str_at(&["preferredVersion", "groupVersion"]), Some("autoscaling/v2"));
//! assert!(api_resource_list_document(&catalog, "autoscaling", "v3").is_none());
//! ```

pub(crate) mod aggregated;
mod catalog;
pub(crate) mod etag;
pub(crate) mod lists;
mod order;
pub(crate) mod root;
#[cfg(test)]
mod tests;

use plinth_codec::schema::GVK;
use plinth_codec::Value;

pub use catalog::Catalog;
pub(crate) use catalog::{Group, Version};
pub use order::compare_versions;

/// A discovery document before it is encoded.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscoveryDocument {
    /// The kind whose schema encodes the document. The type metadata in the tree may differ: `/api` and the
    /// lists of the core group omit `apiVersion`, as release 1.1 did.
    pub kind: GVK,
    /// As an object, before it is encoded.
    pub tree: Value,
}
