//! The parameters of a write that changes ownership.

use super::reset::Reset;
use crate::schema::{Schema, TypeId, GVK};
use crate::value::Value;

/// Other served versions of a kind, for fields that were written through them.
pub trait Versions {
    /// The type of the kind in an `apiVersion` such as `apps/v1beta1`. `None` when it is not served: then
    /// entries of that version are dropped.
    fn typed(&self, api_version: &str) -> Option<(&Schema, TypeId)>;

    /// An object in another version. `None` when it cannot be converted.
    fn convert(&self, object: &Value, api_version: &str) -> Option<Value>;
}

/// For kinds with one version.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOtherVersions;

impl Versions for NoOtherVersions {
    fn typed(&self, _: &str) -> Option<(&Schema, TypeId)> {
        None
    }

    fn convert(&self, _: &Value, _: &str) -> Option<Value> {
        None
    }
}

/// The parameters of a write.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// The time of the request: RFC 3339 in UTC, whole seconds, ending in `Z`.
    pub time: &'a str,
    /// The kind in the version of the request.
    pub kind: &'a GVK,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The schema of that version.
    pub schema: &'a Schema,
    /// The type of the kind in it.
    pub root: TypeId,
    /// Fields that this write cannot own.
    pub reset: &'a Reset,
    /// Other versions of the kind.
    pub versions: &'a dyn Versions,
}
