//! `DenyServiceExternalIPs`: a Service gets no external addresses, by which its owner could take over traffic to others. Off unless
//! a flag says otherwise.
//!
//! Upstream: kubernetes `plugin/pkg/admission/network/denyserviceexternalips`.

use plinth_codec::Value;

use super::Call;
use plinth_api::api_error::ApiError;

/// Refuses addresses that the Service did not have before.
///
/// # Errors
/// 403.
pub(super) fn validate(call: &Call<'_>, service: &Value) -> Result<(), ApiError> {
    let before = addresses(call.old.unwrap_or(&Value::Null));
    match addresses(service).iter().all(|address| before.contains(address)) {
        true => Ok(()),
        false => Err(call.forbidden(service, "Use of external IPs is denied by admission control")),
    }
}

fn addresses(service: &Value) -> &[Value] {
    service.at(&["spec", "externalIPs"]).and_then(Value::as_array).unwrap_or_default()
}
