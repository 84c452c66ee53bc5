//! Approves nodes' requests for their own client certificates if their sender is authorized.

use std::sync::Arc;

use plinth_codec::Value;

use super::request::{add_condition, update};
use plinth_api::{ApiError, User, UserFields};
use plinth_apiserver::authz::{Attributes, ResourceTarget};
use plinth_apiserver::context::Server;
use plinth_kinds::certificate_signing_request as csr;
use plinth_pki::{kubelet_client_error, CertificateRequest, KUBELET_CLIENT_SIGNER};

/// Approves one request, if one of the two permissions allows it.
pub(super) async fn approve(server: &Arc<Server>, request: &Value) -> Result<(), ApiError> {
    let decided = csr::has(request, "Approved") || csr::has(request, "Denied");
    let Some(parsed) = parse_for_a_node(request).filter(|_| !decided) else { return Ok(()) };
    // Who created the request, as recorded in it.
    let sender = request.get("spec").map(|spec| User::of(spec, UserFields::USER_INFO)).unwrap_or_default();
    let own = parsed.subject.common_name() == sender.name;
    let permissions = [
        (own, "selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."),
        (true, "nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."),
    ];
    for (_, subresource, message) in permissions.iter().filter(|(applies, ..)| *applies) {
        let target = ResourceTarget {
            group: "certificates.k8s.io",
            version: "*",
            resource: "certificatesigningrequests",
            subresource,
            ..ResourceTarget::default()
        };
        if server.authorizer.authorize(&Attributes::resource(&sender, "create", target)).await.allowed() {
            return update(server, request, "approval", |request| {
                add_condition(request, "Approved", "AutoApproved", message);
            })
            .await;
        }
    }
    Ok(())
}

/// The request, if it is for a node's client certificate.
fn parse_for_a_node(request: &Value) -> Option<CertificateRequest> {
    if request.str_at(&["spec", "signerName"]) != Some(KUBELET_CLIENT_SIGNER) {
        return None;
    }
    let parsed = csr::read(request).ok()?;
    kubelet_client_error(&parsed, &csr::usages(request)).is_none().then_some(parsed)
}
