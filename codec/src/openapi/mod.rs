//! OpenAPI documents, versions 3 and 2, generated from the schema model and the resource table.
//!
//! Clients read them to explain fields (`kubectl explain`), to merge (`kubectl apply`, `diff`), to determine
//! which query parameters a resource takes and to generate code.
//!
//! | path | function |
//! |---|---|
//! | `/openapi/v3` | [`v3::index`] |
//! | `/openapi/v3/api/V`, `/openapi/v3/apis/G/V` | [`v3::version`] |
//! | `/openapi/v3/apis/G`, `/openapi/v3/api`, `…/apis`, `…/version` | [`v3::group`], [`v3::root`] |
//! | `/openapi/v2` | [`v2::document`] |
//! | either in protobuf | [`gnostic`] |
//! | the second with parts of other API servers | [`merge::v2`] |
//!
//! Documents are written directly as JSON text, without a tree. Writing core/v1 takes some milliseconds, so a
//! server builds documents on request and caches them compressed.
//!
//! In addition to the model, the documents carry what upstream's do: kinds, actions, merge markers, unions.
//! The descriptions of fields are supplied separately ([`Descriptions`]): none is part of this source, the
//! build includes them in the program ([`descriptions`]).
//!
//! ```
//! use plinth_codec::openapi::{v3, NoDescriptions, PublishedResource};
//! use plinth_codec::{resources, schema};
//!
//! let rows = resources::builtin().resources.iter().filter(|r| r.group == "policy");
//! let published: Vec<PublishedResource> = rows.map(PublishedResource::builtin).collect();
//! let json = v3::version(schema::builtin(), "policy", "v1", &published, &NoDescriptions);
//! let document: serde_json::Value = serde_json::from_slice(&json).unwrap();
//! let patch = &document["paths"]["/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}"]["patch"];
//! assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "PodDisruptionBudget");
//! let budget = &document["components"]["schemas"]["io.k8s.api.policy.v1.PodDisruptionBudgetSpec"];
//! assert_eq!(budget["properties"]["selector"]["x-kubernetes-patch-strategy"], "replace");
//! ```

mod custom;
pub mod descriptions;
mod edition;
pub mod gnostic;
mod ids;
pub mod merge;
mod operations;
mod schemas;
#[cfg(test)]
mod tests;
pub mod v2;
pub mod v3;
mod writer;

pub use edition::{Descriptions, NoDescriptions};

use edition::Edition;

use smol_str::{format_smolstr, SmolStr};

use crate::resources::Resource;
use crate::schema::Schema;
use crate::value::Value;

/// The Kubernetes release of the API.
const API_VERSION: &str = "1.36";

/// A resource to be published.
#[derive(Clone, Copy, Debug)]
pub struct PublishedResource<'a> {
    /// Its row in the resource table.
    pub resource: &'a Resource,
    /// The schema of its CustomResourceDefinition; `None` for built-in resources.
    pub custom: Option<CustomSchema<'a>>,
    /// Whether deleting an object returns it, not a Status (upstream's `ReturnDeletedObject`).
    pub deletion_returns_object: bool,
}

/// The schema of one version of a CustomResourceDefinition.
#[derive(Clone, Copy, Debug)]
pub struct CustomSchema<'a> {
    /// `openAPIV3Schema`, as given.
    pub schema: Option<&'a Value>,
    /// `spec.preserveUnknownFields`.
    pub preserve_unknown_fields: bool,
    /// The JSON paths of `selectableFields`, as given (`.spec.color`).
    pub selectable_fields: &'a [SmolStr],
}

impl<'a> PublishedResource<'a> {
    /// A resource of the built-in table, deletions of which return a Status.
    pub fn builtin(resource: &'a Resource) -> PublishedResource<'a> {
        PublishedResource { resource, custom: None, deletion_returns_object: false }
    }

    /// A resource that a CustomResourceDefinition makes.
    pub fn custom(resource: &'a Resource, schema: CustomSchema<'a>) -> PublishedResource<'a> {
        PublishedResource { resource, custom: Some(schema), deletion_returns_object: false }
    }

    fn names(&self, schema: &Schema) -> operations::Names {
        let resource = self.resource;
        let name = |kind: &SmolStr| match self.custom {
            Some(_) => custom_name(&resource.group, &resource.version, kind),
            None => {
                let gvk =
                    crate::schema::GVK::new(resource.group.clone(), resource.version.clone(), kind.clone());
                let found = schema.kind(&gvk).and_then(|id| schema.structure(id));
                found.map(|s| s.name.clone()).unwrap_or_default()
            }
        };
        operations::Names {
            object: name(&resource.kind),
            list: name(&resource.list_kind),
            custom: self.custom.is_some(),
            deletion_returns_object: self.deletion_returns_object,
        }
    }
}

/// The definition of a custom kind: the group's labels in reverse order, `com.example.v1.CronTab`.
fn custom_name(group: &str, version: &str, kind: &str) -> SmolStr {
    let labels: Vec<&str> = group.rsplit('.').collect();
    format_smolstr!("{}.{version}.{kind}", labels.join("."))
}

/// The group versions of some resources, each once.
fn versions_of(resources: &[PublishedResource]) -> Vec<(SmolStr, SmolStr)> {
    let mut versions: Vec<_> =
        resources.iter().map(|p| (p.resource.group.clone(), p.resource.version.clone())).collect();
    versions.sort();
    versions.dedup();
    versions
}
