//! What the writer of an object has to be authorized for beside the object itself.
//!
//! | module | objects |
//! |---|---|
//! | `admission_policies` | admission policies and their bindings: who writes them must be able to read their parameters |
//! | `device_claims` | claims of devices: administrators' access, and the parts of a status that belong to schedulers and drivers |

pub(super) mod admission_policies;
pub(super) mod device_claims;

use std::future::Future;
use std::pin::Pin;

use plinth_codec::Value;

use crate::authz::{Attributes, Decision, ResourceTarget};
use crate::handlers::Context;
use plinth_api::api_error::{ApiError, Cause};

/// The outcome of a [`Check`].
pub type Outcome<'a> = Pin<Box<dyn Future<Output = Result<(), ApiError>> + Send + 'a>>;

/// Asks the authorizers, and adds to the errors of the object what its writer may not do.
pub type Check = for<'a> fn(Write<'a>, &'a mut Vec<Cause>) -> Outcome<'a>;

/// A write that has been validated.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// The request.
    pub cx: &'a Context,
    /// The object, defaulted and admitted.
    pub new: &'a Value,
    /// What it replaces.
    pub old: Option<&'a Value>,
}

impl Write<'_> {
    /// Asks whether the writer may do that to a resource.
    async fn authorize(&self, verb: &str, target: ResourceTarget<'_>) -> Decision {
        self.cx.server.authorizer.authorize(&Attributes::resource(&self.cx.user, verb, target)).await
    }
}

/// Runs the check of the part of an object that a request writes, where its kind has one.
///
/// # Errors
/// When what the check reads cannot be read.
pub async fn check(write: Write<'_>, errors: &mut Vec<Cause>) -> Result<(), ApiError> {
    let strategy = write.cx.resource.strategy;
    let check = match write.cx.info.subresource.as_str() {
        "" => strategy.permissions,
        "status" => strategy.status_permissions,
        _ => None,
    };
    match check {
        Some(check) => check(write, errors).await,
        None => Ok(()),
    }
}
