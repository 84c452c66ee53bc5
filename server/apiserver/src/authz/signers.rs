//! What users may do in the name of signers of certificates (kubernetes `pkg/certauthorization`).

use plinth_api::User;

use super::{Attributes, Authorizer, ResourceTarget};

/// Whether a user has the verb (`approve`, `sign`, `attest`) on a signer, or on all signers of its domain.
pub async fn may_act_for_signer(authorizer: &Authorizer, user: &User, verb: &str, signer: &str) -> bool {
    let all = format!("{}/*", signer.split('/').next().unwrap_or_default());
    for name in [signer, &all] {
        let target = ResourceTarget {
            group: "certificates.k8s.io",
            version: "*",
            resource: "signers",
            name,
            ..ResourceTarget::default()
        };
        if authorizer.authorize(&Attributes::resource(user, verb, target)).await.allowed() {
            return true;
        }
    }
    false
}
