//! `CertificateSubjectRestriction`: rejects requests for client certificates with the group `system:masters`.
//!
//! Upstream: kubernetes `plugin/pkg/admission/certificates/subjectrestriction`.

use plinth_codec::Value;

use super::call::Call;
use plinth_api::{ApiError, MASTERS_GROUP};
use plinth_kinds::certificate_signing_request as csr;
use plinth_pki::CLIENT_SIGNER;

/// Denies requests for that signer with that group.
///
/// # Errors
/// 403.
pub(super) fn validate(call: &Call<'_>, request: &Value) -> Result<(), ApiError> {
    match error(request) {
        Some(why) => Err(call.forbidden(request, &why)),
        None => Ok(()),
    }
}

pub(crate) fn error(request: &Value) -> Option<String> {
    if request.str_at(&["spec", "signerName"]) != Some(CLIENT_SIGNER) {
        return None;
    }
    match csr::parse(request) {
        Err(error) => Some(format!("failed to parse CSR: {error}")),
        Ok(parsed) if parsed.subject.organizations().contains(&MASTERS_GROUP) => {
            Some(format!("use of {} signer with {MASTERS_GROUP} group is not allowed", CLIENT_SIGNER))
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::tree;
    use plinth_pki::{testing::encode, testing::pem, Name, CLIENT_SIGNER, KUBELET_CLIENT_SIGNER};

    #[test]
    fn the_subject_is_read() {
        let request = |groups: &[&str], signer: &str| {
            let pem = pem(&encode(&Name::of_user("jane", groups, "").to_der(), None));
            let text = plinth_codec::base64_text::encode(&pem);
            tree!({ "spec": tree!({ "request": text, "signerName": signer }) })
        };
        assert_eq!(error(&request(&["dev"], CLIENT_SIGNER)), None);
        assert_eq!(error(&request(&[MASTERS_GROUP], KUBELET_CLIENT_SIGNER)), None);
        let why =
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
        assert_eq!(error(&request(&["dev", MASTERS_GROUP], CLIENT_SIGNER)).as_deref(), Some(why));
        let bad = tree!({ "spec": tree!({ "request": "bm8=", "signerName": CLIENT_SIGNER }) });
        let why = "failed to parse CSR: PEM block type must be CERTIFICATE REQUEST";
        assert_eq!(error(&bad).as_deref(), Some(why));
    }
}
