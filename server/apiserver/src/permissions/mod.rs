//! What the writer of an object has to be authorized for beside the object itself.
//!
//! | module | objects |
//! |---|---|
//! | `admission_policies` | admission policies and their bindings: who writes them must be able to read their parameters |
//! | `device_claims` | claims of devices: administrators' access, and the parts of a status that belong to schedulers and drivers |

mod admission_policies;
mod device_claims;

use plinth_codec::Value;

use crate::authz::{Attributes, Decision, ResourceTarget};
use crate::context::Context;
use plinth_api::api_error::{ApiError, Cause};
use plinth_kinds::Permission;

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

/// Asks the authorizers where the kind of the object, or of the part of it that a request writes, says so, and adds to the errors of the
/// object what its writer may not do.
///
/// # Errors
/// When what the check reads cannot be read.
pub async fn check(write: Write<'_>, errors: &mut Vec<Cause>) -> Result<(), ApiError> {
    let strategy = write.cx.resource.strategy;
    let permission = match write.cx.info.subresource.as_str() {
        "" => strategy.permissions,
        "status" => strategy.status_permissions,
        _ => None,
    };
    match permission {
        None => {}
        Some(Permission::PolicyParameters) => admission_policies::policy(write, errors).await,
        Some(Permission::BindingParameters) => admission_policies::binding(write, errors).await,
        Some(Permission::DeviceClaim) => device_claims::claim(write, errors).await?,
        Some(Permission::DeviceClaimTemplate) => device_claims::template(write, errors).await?,
        Some(Permission::DeviceClaimStatus) => device_claims::claim_status(write, errors).await?,
    }
    Ok(())
}
