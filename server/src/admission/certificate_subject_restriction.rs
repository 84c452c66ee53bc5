//! `CertificateSubjectRestriction`: nobody gets a client certificate of `system:masters` by asking for one.
//!
//! Upstream: kubernetes `plugin/pkg/admission/certificates/subjectrestriction`.

use base64::prelude::{Engine as _, BASE64_STANDARD};
use plinth_codec::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer;

use super::Call;
use crate::status::ApiError;

const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const GROUP: &str = "system:masters";

/// Refuses requests of that signer for that group.
///
/// # Errors
/// 403.
pub(super) fn validate(call: &Call<'_>, request: &Value) -> Result<(), ApiError> {
    if request.str_at(&["spec", "signerName"]) != Some(SIGNER) {
        return Ok(());
    }
    let text = request.str_at(&["spec", "request"]).unwrap_or_default();
    match organizations(text) {
        Err(why) => Err(call.forbidden(request, &format!("failed to parse CSR: {why}"))),
        Ok(groups) if groups.iter().any(|group| group == GROUP) => {
            let why = format!("use of {SIGNER} signer with {GROUP} group is not allowed");
            Err(call.forbidden(request, &why))
        }
        Ok(_) => Ok(()),
    }
}

/// The organizations in the subject of a request: base64 of PEM.
fn organizations(request: &str) -> Result<Vec<String>, &'static str> {
    const BAD: &str = "PEM block type must be CERTIFICATE REQUEST";
    let pem = BASE64_STANDARD.decode(request).map_err(|_| BAD)?;
    let (_, pem) = parse_x509_pem(&pem).map_err(|_| BAD)?;
    if pem.label != "CERTIFICATE REQUEST" {
        return Err(BAD);
    }
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).map_err(|_| "malformed request")?;
    let subject = &request.certification_request_info.subject;
    Ok(subject.iter_organization().filter_map(|o| o.as_str().ok().map(str::to_owned)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_is_read() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::default();
        parameters.distinguished_name.push(rcgen::DnType::OrganizationName, GROUP);
        let pem = parameters.serialize_request(&key).unwrap().pem().unwrap();
        assert_eq!(organizations(&BASE64_STANDARD.encode(pem)), Ok(vec![GROUP.to_owned()]));
        assert!(organizations("bm8=").is_err());
    }
}
