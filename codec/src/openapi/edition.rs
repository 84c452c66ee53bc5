//! The version of a document, and the descriptions in it.

use std::borrow::Cow;

/// The definition of the response of `/version`.
pub(super) const VERSION_INFO: &str = "io.k8s.apimachinery.pkg.version.Info";

/// The OpenAPI version of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edition {
    V2,
    V3,
}

impl Edition {
    /// The prefix of references to definitions.
    pub(super) fn definitions(self) -> &'static str {
        match self {
            Edition::V2 => "#/definitions/",
            Edition::V3 => "#/components/schemas/",
        }
    }
}

/// Descriptions of types and fields.
pub trait Descriptions {
    /// The description of a type, by its OpenAPI name, or of one of its fields.
    fn of(&self, type_name: &str, field: Option<&str>) -> Option<Cow<'_, str>>;
}

/// No descriptions.
#[derive(Clone, Copy, Debug)]
pub struct NoDescriptions;

impl Descriptions for NoDescriptions {
    fn of(&self, _: &str, _: Option<&str>) -> Option<Cow<'_, str>> {
        None
    }
}
