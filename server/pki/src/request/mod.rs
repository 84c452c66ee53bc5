//! PKCS#10 requests (RFC 2986), as CertificateSigningRequests contain them in PEM. All other code uses this
//! decoder.
//!
//! Admission, validation, approval and signing use the decoded value, and a certificate is issued from that
//! value, never from the request's bytes. A request is decoded completely or rejected; every request that is
//! accepted is accepted by upstream (`ParseCSR`), with the same names.

use plinth_codec::pem::{self, PemError};
use x509_parser::prelude::FromDer;
use x509_parser::x509::{AlgorithmIdentifier, SubjectPublicKeyInfo};

use super::alternative_names::AlternativeNames;
use super::der::{Reader, BIT_STRING, BOOLEAN, INTEGER, OCTET_STRING, SEQUENCE, SET};
use super::name::{Name, NameError};
use super::signature::{self, SignatureError};

/// PEM label of a request.
pub const CERTIFICATE_REQUEST_LABEL: &str = "CERTIFICATE REQUEST";
/// `[0] IMPLICIT SET OF Attribute`.
const ATTRIBUTES: u8 = 0xa0;
/// `1.2.840.113549.1.9.14`, the attribute `extensionRequest`.
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 9, 14];
/// `2.5.29.17`, the extension `subjectAltName`.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 29, 17];

/// An invalid request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not PEM, another label, or additional contents.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// Not the DER of a request.
    #[error("asn1: structure error: not a certificate request")]
    Malformed,
    /// The subject is invalid.
    #[error(transparent)]
    Subject(#[from] NameError),
    /// The requested extensions are invalid.
    #[error("x509: malformed requested extensions")]
    Extensions,
    /// An extension, or the attribute `extensionRequest`, is duplicated.
    #[error("x509: certificate request contains duplicate requested extensions")]
    DuplicateExtensions,
    /// The alternative names are invalid.
    #[error("x509: invalid subject alternative names")]
    AlternativeNames,
    /// The signature is invalid, or cannot be verified.
    #[error(transparent)]
    Signature(#[from] SignatureError),
}

/// A decoded request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRequest {
    /// Subject that is requested.
    pub subject: Name,
    /// The public key, DER of a SubjectPublicKeyInfo.
    pub public_key: Vec<u8>,
    /// The subject's alternative names.
    pub names: AlternativeNames,
    signed: Signed,
}

/// The signed bytes and the signature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Signed {
    message: Vec<u8>,
    algorithm: Vec<u8>,
    signature: Vec<u8>,
}

impl CertificateRequest {
    /// Decodes a request in PEM and verifies its signature, the proof of possession of the key.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn read(text: &[u8]) -> Result<CertificateRequest, RequestError> {
        let request = CertificateRequest::parse(text)?;
        request.check_signature()?;
        Ok(request)
    }

    /// Decodes a request in PEM. The signature is not verified.
    ///
    /// # Errors
    /// [`RequestError`] but for [`RequestError::Signature`].
    pub fn parse(text: &[u8]) -> Result<CertificateRequest, RequestError> {
        CertificateRequest::from_der(&pem::parse_one(text, CERTIFICATE_REQUEST_LABEL)?)
    }

    /// Decodes a request in DER. The signature is not verified.
    ///
    /// # Errors
    /// [`RequestError`] but for [`RequestError::Pem`] and [`RequestError::Signature`].
    pub fn from_der(der: &[u8]) -> Result<CertificateRequest, RequestError> {
        const MALFORMED: RequestError = RequestError::Malformed;
        let mut outer = Reader::new(der);
        let mut request = Reader::new(outer.read(SEQUENCE).ok_or(MALFORMED)?);
        outer.end().ok_or(MALFORMED)?;
        let message = request.read_raw(SEQUENCE).ok_or(MALFORMED)?;
        let algorithm = request.read_raw(SEQUENCE).ok_or(MALFORMED)?;
        // The library that decodes it also accepts another tag than that of an object identifier.
        let mut identifier = Reader::new(Reader::new(algorithm).read(SEQUENCE).ok_or(MALFORMED)?);
        identifier.object_identifier().ok_or(MALFORMED)?;
        // No unused bits in the last byte.
        let signature = request.read(BIT_STRING).and_then(|bits| bits.strip_prefix(&[0]));
        let signature = signature.ok_or(MALFORMED)?;
        request.end().ok_or(MALFORMED)?;

        let mut info = Reader::new(Reader::new(message).read(SEQUENCE).ok_or(MALFORMED)?);
        // Some tools write an invalid version; it has no meaning.
        let version = info.read(INTEGER).filter(|version| version.len() == 1);
        version.ok_or(MALFORMED)?;
        let subject = Name::from_der(info.read_raw(SEQUENCE).ok_or(MALFORMED)?)?;
        let public_key = info.read_raw(SEQUENCE).ok_or(MALFORMED)?;
        let attributes = info.read(ATTRIBUTES).ok_or(MALFORMED)?;
        info.end().ok_or(MALFORMED)?;
        let extensions = requested_extensions(attributes)?;
        let names = match extensions.iter().find(|(kind, _)| *kind == ALTERNATIVE_NAMES) {
            Some((_, value)) => AlternativeNames::from_der(value).ok_or(RequestError::AlternativeNames)?,
            None => AlternativeNames::default(),
        };
        Ok(CertificateRequest {
            subject,
            public_key: public_key.to_vec(),
            names,
            signed: Signed {
                message: message.to_vec(),
                algorithm: algorithm.to_vec(),
                signature: signature.to_vec(),
            },
        })
    }

    /// Verifies the signature.
    ///
    /// # Errors
    /// [`RequestError::Signature`], and [`RequestError::Malformed`] for an invalid key.
    pub fn check_signature(&self) -> Result<(), RequestError> {
        let (rest, key) =
            SubjectPublicKeyInfo::from_der(&self.public_key).map_err(|_| RequestError::Malformed)?;
        let (other_rest, algorithm) =
            AlgorithmIdentifier::from_der(&self.signed.algorithm).map_err(|_| RequestError::Malformed)?;
        if !rest.is_empty() || !other_rest.is_empty() {
            return Err(RequestError::Malformed);
        }
        Ok(signature::check_signature(&key, &algorithm, &self.signed.message, &self.signed.signature)?)
    }
}

/// The requested extensions: types and values. Other attributes are ignored.
fn requested_extensions(attributes: &[u8]) -> Result<Vec<(&[u8], &[u8])>, RequestError> {
    const MALFORMED: RequestError = RequestError::Malformed;
    const EXTENSIONS: RequestError = RequestError::Extensions;
    let (mut attributes, mut requested) = (Reader::new(attributes), None);
    while !attributes.is_empty() {
        let mut attribute = Reader::new(attributes.read(SEQUENCE).ok_or(MALFORMED)?);
        let kind = attribute.object_identifier().ok_or(MALFORMED)?;
        let mut values = Reader::new(attribute.read(SET).ok_or(MALFORMED)?);
        attribute.end().ok_or(MALFORMED)?;
        if kind != EXTENSION_REQUEST {
            continue;
        }
        let list = values.read(SEQUENCE).ok_or(EXTENSIONS)?;
        values.end().ok_or(EXTENSIONS)?;
        if requested.replace(list).is_some() {
            return Err(RequestError::DuplicateExtensions);
        }
    }
    let mut list = Reader::new(requested.unwrap_or_default());
    let mut extensions: Vec<(&[u8], &[u8])> = Vec::new();
    while !list.is_empty() {
        let mut extension = Reader::new(list.read(SEQUENCE).ok_or(EXTENSIONS)?);
        let kind = extension.object_identifier().ok_or(EXTENSIONS)?;
        if extension.peek() == Some(BOOLEAN) {
            let critical = extension.read(BOOLEAN).filter(|value| matches!(value, [0] | [0xff]));
            critical.ok_or(EXTENSIONS)?;
        }
        let value = extension.read(OCTET_STRING).ok_or(EXTENSIONS)?;
        extension.end().ok_or(EXTENSIONS)?;
        if extensions.iter().any(|(other, _)| *other == kind) {
            return Err(RequestError::DuplicateExtensions);
        }
        extensions.push((kind, value));
    }
    Ok(extensions)
}

#[cfg(test)]
pub(crate) mod tests;
