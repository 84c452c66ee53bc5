//! `CertificateApproval`, `CertificateSigning`, `ClusterTrustBundleAttest`: approving, signing and attesting
//! for a signer require authorization for that signer.
//!
//! Upstream: kubernetes `plugin/pkg/admission/certificates`.

use plinth_codec::Value;

use super::call::Call;
use plinth_api::ApiError;
use plinth_apiserver::authz::rbac::escalation;
use plinth_apiserver::authz::signers::may_act_for_signer;
use plinth_apiserver::context::Operation;

/// Approving and denying a request requires the verb `approve`.
pub(super) async fn approve(call: &Call<'_>, csr: &Value) -> Result<(), ApiError> {
    let signer = signer(call.old);
    let why = || format!("user not permitted to approve requests with signerName {signer:?}");
    require(call, csr, "approve", signer, why).await
}

/// Setting the certificate and conditions of a request requires the verb `sign`.
pub(super) async fn sign(call: &Call<'_>, csr: &Value) -> Result<(), ApiError> {
    let part = |csr: &Value, member: &str| csr.at(&["status", member]).cloned();
    let old = call.old.unwrap_or(&Value::Null);
    if ["certificate", "conditions"].iter().all(|member| part(csr, member) == part(old, member)) {
        return Ok(());
    }
    let signer = signer(call.old);
    let why = || format!("user not permitted to sign requests with signerName {signer:?}");
    require(call, csr, "sign", signer, why).await
}

/// Writing a trust bundle of a signer requires the verb `attest`.
pub(super) async fn attest(call: &Call<'_>, bundle: &Value) -> Result<(), ApiError> {
    let signer = signer(Some(bundle));
    let is_collectors = |old| escalation::changes_only_gc_fields(bundle, old);
    if signer.is_empty() || (call.operation == Operation::Update && call.old.is_some_and(is_collectors)) {
        return Ok(());
    }
    let why = || format!("user not permitted to attest for signerName {signer:?}");
    require(call, bundle, "attest", signer, why).await
}

fn signer(object: Option<&Value>) -> &str {
    object.and_then(|object| object.str_at(&["spec", "signerName"])).unwrap_or_default()
}

/// Requires the verb on the signer, or on all signers of its domain.
async fn require(
    call: &Call<'_>,
    object: &Value,
    verb: &str,
    signer: &str,
    why: impl Fn() -> String + Send,
) -> Result<(), ApiError> {
    if may_act_for_signer(&call.cx.server.authorizer, &call.cx.user, verb, signer).await {
        return Ok(());
    }
    Err(call.forbidden(object, &why()))
}
