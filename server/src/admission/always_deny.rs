//! `AlwaysDeny`: denies all writes. Off by default.
//!
//! Upstream: kubernetes `plugin/pkg/admission/deny`. There the server's own writes are denied, too, and it
//! never gets ready; here they pass, since the server needs its system objects to start. Those of controllers
//! that upstream has in kube-controller-manager are denied as there.

use plinth_codec::Value;

use super::call::Call;
use plinth_api::{ApiError, SERVER_USER};

/// Denies all requests but the server's own.
///
/// # Errors
/// 403.
pub(super) fn refuse(call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
    if call.cx.user.name == SERVER_USER {
        return Ok(());
    }
    Err(call.forbidden(object, "admission control is denying all modifications"))
}
