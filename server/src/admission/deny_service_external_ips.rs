//! `DenyServiceExternalIPs`: denies external IPs of Services, with which their owner could intercept traffic
//! to other addresses. Off by default.
//!
//! Upstream: kubernetes `plugin/pkg/admission/network/denyserviceexternalips`.

use plinth_codec::Value;

use super::call::Call;
use plinth_api::ApiError;

/// Denies addresses that are new.
///
/// # Errors
/// 403 where a Service gets an external IP that it does not have.
pub(super) fn validate(call: &Call<'_>, service: &Value) -> Result<(), ApiError> {
    let before = addresses(call.old.unwrap_or(&Value::Null));
    match addresses(service).iter().all(|address| before.contains(address)) {
        true => Ok(()),
        false => Err(call.forbidden(service, "Use of external IPs is denied by admission control")),
    }
}

fn addresses(service: &Value) -> &[Value] {
    service.list_at(&["spec", "externalIPs"])
}
