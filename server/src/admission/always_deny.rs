//! `AlwaysDeny`: nothing is written. Off unless a flag says otherwise.
//!
//! Upstream: kubernetes `plugin/pkg/admission/deny`.

use plinth_codec::Value;

use super::Call;
use crate::status::ApiError;

/// Refuses.
///
/// # Errors
/// 403, always.
pub(super) fn refuse(call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
    Err(call.forbidden(object, "admission control is denying all modifications"))
}
