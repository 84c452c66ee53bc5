//! What a built-in kind does in the request path beyond its strategy: what reads the store, asks the
//! authorizers or calls others.
//!
//! The path asks the handler of the request's resource and names no kind. The table of handlers lies above
//! the path (`kind_handlers`); the server is given the function that finds a resource's.

use hyper::Response;
use plinth_codec::Value;

use super::{Context, Outcome, TransactionParts};
use crate::authz::{Attributes, Decision, ResourceTarget};
use plinth_api::{metadata_text, ApiError, Cause};
use plinth_http::{Body, RequestBody};
use plinth_registry::ResourceType;

/// Answers a request.
pub type Endpoint = fn(Box<Context>, RequestBody) -> Outcome<'static, Response<Body>>;
/// Fills in what the server allocates for a new or changed object; the parts hold it, and release what the
/// object had before.
pub(super) type Allocate =
    for<'a> fn(&'a Context, Option<&'a Value>, &'a mut Value) -> Outcome<'a, TransactionParts>;
/// Adds to the errors of an object what its writer may not do.
pub(crate) type CheckPermissions = for<'a> fn(Write<'a>, &'a mut Vec<Cause>) -> Outcome<'a, ()>;
/// Refuses a write by which its writer would grant more than it has.
pub(crate) type CheckGrant = for<'a> fn(Write<'a>) -> Outcome<'a, ()>;

/// Finds the handler of a resource.
pub type FindKindHandler = fn(&ResourceType) -> &'static KindHandler;

/// A write whose object is known.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// The request that writes it.
    pub cx: &'a Context,
    /// The object, defaulted and admitted.
    pub new: &'a Value,
    /// What it replaces.
    pub old: Option<&'a Value>,
}

impl Write<'_> {
    /// Asks whether the writer may do that to a resource.
    pub(crate) async fn authorize(self, verb: &str, target: ResourceTarget<'_>) -> Decision {
        let cx = self.cx;
        cx.server.authorizer.authorize(&Attributes::resource(&cx.user, verb, target)).await
    }
}

/// What one kind does; the default is nothing.
pub struct KindHandler {
    /// Allocates what the object needs.
    pub allocate: Option<Allocate>,
    /// Releases what a deleted object was allocated.
    pub release: Option<fn(&Value) -> TransactionParts>,
    /// Asks for permissions that the writer needs beside the object's own.
    pub check_permissions: Option<CheckPermissions>,
    /// Keeps writers from granting more than they have.
    pub check_grant: Option<CheckGrant>,
    /// What of an object only its writer may decide: mutating admission, which others configure, must leave
    /// it. `None` for an object without such a part.
    pub requester_only_fields: Option<fn(&Value) -> Option<Value>>,
    /// Answers requests for the resource itself, where it is not stored.
    pub unstored: Option<Endpoint>,
    /// Subresources with a type of their own.
    pub subresources: &'static [(&'static str, Endpoint)],
}

impl KindHandler {
    /// Of a kind without any.
    pub const NONE: KindHandler = KindHandler {
        allocate: None,
        release: None,
        check_permissions: None,
        check_grant: None,
        requester_only_fields: None,
        unstored: None,
        subresources: &[],
    };

    /// Refuses a write by which its writer would grant more than it has.
    ///
    /// # Errors
    /// 403.
    pub(crate) async fn check_grant(&self, write: Write<'_>) -> Result<(), ApiError> {
        match self.check_grant {
            Some(check) => check(write).await,
            None => Ok(()),
        }
    }

    /// What of an object only its writer may decide.
    pub(crate) fn requester_only_fields(&self, object: &Value) -> Option<Value> {
        self.requester_only_fields.and_then(|part| part(object))
    }

    /// Refuses what mutating admission has made of an object that had this part before.
    ///
    /// # Errors
    /// 403 where the part is another one now.
    pub(crate) fn check_admitted(
        &self,
        cx: &Context,
        sent: Option<Value>,
        new: &Value,
    ) -> Result<(), ApiError> {
        if self.requester_only_fields(new) == sent {
            return Ok(());
        }
        let why = "an admission webhook or policy has changed what only the sender of the request may grant";
        let name = metadata_text(new, "name");
        Err(ApiError::forbidden(cx.resource.group(), cx.resource.plural(), name, why))
    }

    /// Adds to the errors of an object what its writer may not do.
    ///
    /// # Errors
    /// When an authorizer cannot be called.
    pub(crate) async fn check_permissions(
        &self,
        write: Write<'_>,
        errors: &mut Vec<Cause>,
    ) -> Result<(), ApiError> {
        match self.check_permissions {
            Some(check) => check(write, errors).await,
            None => Ok(()),
        }
    }

    /// Allocates what an object needs.
    ///
    /// # Errors
    /// When nothing is free, or the store cannot be read.
    pub async fn allocate(
        &self,
        cx: &Context,
        old: Option<&Value>,
        new: &mut Value,
    ) -> Result<TransactionParts, ApiError> {
        match self.allocate {
            Some(allocate) => allocate(cx, old, new).await,
            None => Ok(TransactionParts::default()),
        }
    }

    /// Releases what a deleted object was allocated.
    pub fn release(&self, object: &Value) -> TransactionParts {
        self.release.map_or_else(TransactionParts::default, |release| release(object))
    }

    /// What answers requests for a subresource.
    pub fn subresource(&self, name: &str) -> Option<Endpoint> {
        self.subresources.iter().find(|(known, _)| *known == name).map(|(_, endpoint)| *endpoint)
    }
}
