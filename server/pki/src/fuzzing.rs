//! Entry points for fuzz targets. Not part of the interface.

use plinth_codec::pem;

use super::request::CERTIFICATE_REQUEST_LABEL;
use super::{AlternativeNames, CertificateRequest, Name, SubjectKey};

/// PEM: blocks survive a round trip, and a text accepted as one block contains no other.
pub fn pem_blocks(input: &[u8]) {
    let Ok(blocks) = pem::parse(input) else {
        assert!(pem::parse_one(input, CERTIFICATE_REQUEST_LABEL).is_err());
        return;
    };
    let written: String = blocks.iter().map(|block| pem::encode(&block.label, &block.contents)).collect();
    let again = pem::parse(written.as_bytes()).unwrap_or_default();
    assert_eq!(again.len(), blocks.len());
    for (block, again) in blocks.iter().zip(&again) {
        assert_eq!((&block.label, &block.contents), (&again.label, &again.contents));
    }
    if let Ok(contents) = pem::parse_one(input, CERTIFICATE_REQUEST_LABEL) {
        assert!(blocks.len() == 1 && blocks.first().is_some_and(|block| block.contents == contents));
    }
}

/// Certificate requests in PEM and DER, and their names: a certificate has the names that were read. Keys in
/// DER.
pub fn certificate_request(input: &[u8]) {
    for request in
        [CertificateRequest::parse(input), CertificateRequest::from_der(input)].into_iter().flatten()
    {
        let _ = request.check_signature();
        check_name(&request.subject);
        if let Some(der) = request.names.to_der() {
            assert_eq!(AlternativeNames::from_der(&der).as_ref(), Some(&request.names));
        }
    }
    if let Ok(name) = Name::from_der(input) {
        check_name(&name);
    }
    if let Ok(key) = SubjectKey::from_spki(input) {
        assert!(!key.has_signed(input, input));
    }
}

fn check_name(name: &Name) {
    assert_eq!(Name::from_der(&name.to_der()).as_ref(), Ok(name));
    let issued = name.issued();
    assert_eq!(Name::from_der(&issued.to_der()).as_ref(), Ok(&issued));
    assert_eq!((issued.common_name(), issued.organizations()), (name.common_name(), name.organizations()));
}
