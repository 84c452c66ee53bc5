//! PKCS#10 requests (RFC 2986), as CertificateSigningRequests hold them in PEM.

use std::net::IpAddr;

use rustls::pki_types::pem::{PemObject, SectionKind};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;

use crate::p521;

/// What is wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No PEM, or PEM of something else.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Pem,
    /// Not the DER of a request.
    #[error("asn1: structure error: not a certificate request")]
    Malformed,
    /// The sender does not hold the key.
    #[error("x509: the signature of the certificate request does not verify")]
    Signature,
}

/// A request, read and copied out of its encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The subject, DER of a Name.
    pub subject: Vec<u8>,
    /// The public key, DER of a SubjectPublicKeyInfo.
    pub public_key: Vec<u8>,
    /// The extension `subjectAltName`, DER of GeneralNames.
    pub alternative_names: Option<Vec<u8>>,
    /// The common name of the subject; empty without one.
    pub common_name: String,
    /// The organizations of the subject.
    pub organizations: Vec<String>,
    /// DNS names.
    pub dns_names: Vec<String>,
    /// E-mail addresses.
    pub emails: Vec<String>,
    /// IP addresses.
    pub ips: Vec<IpAddr>,
    /// URIs.
    pub uris: Vec<String>,
}

/// Whether the request is signed with its own key of the curve that ring does not have.
fn signed_on_p521(request: &X509CertificationRequest<'_>) -> bool {
    let info = &request.certification_request_info;
    let Ok(PublicKey::EC(point)) = info.subject_pki.parsed() else { return false };
    // ECDSA's algorithms have no parameters: the identifier is the name alone (RFC 5758, 3.2).
    let name = request.signature_algorithm.algorithm.as_bytes();
    let Ok(length) = u8::try_from(name.len()) else { return false };
    let algorithm = [&[6, length], name].concat();
    request.signature_algorithm.parameters.is_none()
        && p521::verifies_x509(point.data(), &algorithm, info.raw, &request.signature_value.data)
}

impl CertificateRequest {
    /// Reads a request in PEM and checks that its sender holds the key.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn read(pem: &[u8]) -> Result<CertificateRequest, RequestError> {
        let first = <(SectionKind, Vec<u8>)>::pem_slice_iter(pem).next();
        let Some(Ok((SectionKind::Csr, der))) = first else { return Err(RequestError::Pem) };
        let (rest, request) =
            X509CertificationRequest::from_der(&der).map_err(|_| RequestError::Malformed)?;
        if !rest.is_empty() {
            return Err(RequestError::Malformed);
        }
        if request.verify_signature().is_err() && !signed_on_p521(&request) {
            return Err(RequestError::Signature);
        }
        let info = &request.certification_request_info;
        let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            attribute.as_str().map(str::to_owned).map_err(|_| RequestError::Malformed)
        };
        let mut out = CertificateRequest {
            subject: info.subject.as_raw().to_vec(),
            public_key: info.subject_pki.raw.to_vec(),
            common_name: info.subject.iter_common_name().last().map(text).transpose()?.unwrap_or_default(),
            organizations: info.subject.iter_organization().map(text).collect::<Result<_, _>>()?,
            ..CertificateRequest::default()
        };
        for attribute in info.iter_attributes() {
            let ParsedCriAttribute::ExtensionRequest(requested) = attribute.parsed_attribute() else {
                continue;
            };
            for extension in &requested.extensions {
                if let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() {
                    out.alternative_names = Some(extension.value.to_vec());
                    for name in &names.general_names {
                        out.add(name)?;
                    }
                }
            }
        }
        Ok(out)
    }

    fn add(&mut self, name: &GeneralName<'_>) -> Result<(), RequestError> {
        match name {
            GeneralName::DNSName(name) => self.dns_names.push((*name).to_owned()),
            GeneralName::RFC822Name(name) => self.emails.push((*name).to_owned()),
            GeneralName::URI(name) => self.uris.push((*name).to_owned()),
            GeneralName::IPAddress(octets) => {
                let v4 = <[u8; 4]>::try_from(*octets).map(IpAddr::from);
                let ip = v4.or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from));
                self.ips.push(ip.map_err(|_| RequestError::Malformed)?);
            }
            // What no rule looks at must not come into a certificate either.
            _ => return Err(RequestError::Malformed),
        }
        Ok(())
    }
}
