//! `AlwaysDeny`: nothing is written. Off unless a flag says otherwise.
//!
//! Upstream: kubernetes `plugin/pkg/admission/deny`. There the server denies itself, too, and never gets ready; here its own
//! writes pass, since without the objects that every cluster has it does not start.

use plinth_codec::Value;

use super::Call;
use plinth_api::api_error::ApiError;

/// Who the server is to itself.
const OWN: &str = "system:apiserver";

/// Refuses everybody but the server itself.
///
/// # Errors
/// 403.
pub(super) fn refuse(call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
    if call.cx.user.name == OWN {
        return Ok(());
    }
    Err(call.forbidden(object, "admission control is denying all modifications"))
}
