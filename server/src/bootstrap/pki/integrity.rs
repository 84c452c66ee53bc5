//! Integrity of certificate and key files: the strict part of `plinth verify`.
//!
//! Files that users put into `DIR/pki` have their own layout: bundles, comments, other line breaks, other
//! issuers. So nothing is compared with what Plinth would have written, and damage is reported only where a
//! file is certainly invalid: it does not decode, the DER around the signed part of a certificate is not
//! canonical, a signature does not verify, or a key does not match its certificate. Every single flipped bit
//! in a file that Plinth wrote is one of these. A change of several bytes that preserves the DER (a moved
//! line break) is not damage.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::SubjectPublicKeyInfo;
use yasna::ASN1Result;

use plinth_pki::{check_signature, SignatureError};

/// Damage of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CertificateDamage {
    /// It cannot be decoded.
    #[error("it contains no readable certificate")]
    Unreadable,
    /// Its outer structure is not DER, or has another signature algorithm than the signed part.
    #[error("its encoding is not canonical DER")]
    Encoding,
    /// The signature is not its issuer's.
    #[error("its signature is wrong")]
    Signature,
}

/// The parts of a certificate.
struct Parts {
    /// The elements of TBSCertificate (RFC 5280, 4.1), each in DER.
    signed: Vec<Vec<u8>>,
    /// The algorithm next to the signature.
    algorithm: Vec<u8>,
    signature: (Vec<u8>, usize),
}

impl Parts {
    fn read(der: &[u8]) -> ASN1Result<Parts> {
        yasna::parse_der(der, |reader| {
            reader.read_sequence(|reader| {
                Ok(Parts {
                    signed: reader.next().collect_sequence_of(|reader| reader.read_der())?,
                    algorithm: reader.next().read_der()?,
                    signature: reader.next().read_bitvec_bytes()?,
                })
            })
        })
    }

    /// Index of the algorithm in the signed part: after the version, which version 1 certificates lack, and
    /// the serial number.
    fn algorithm_at(&self) -> usize {
        match self.signed.first().and_then(|element| element.first()) {
            Some(0xa0) => 2,
            _ => 1,
        }
    }

    /// Whether algorithm, issuer, validity, subject and public key exist and each is a SEQUENCE, which
    /// parsers do not check.
    fn has_structure(&self) -> bool {
        let elements = self.signed.iter().skip(self.algorithm_at()).take(5);
        elements.filter(|element| element.first() == Some(&0x30)).count() == 5
    }

    fn issuer_at(&self) -> usize {
        self.algorithm_at() + 1
    }

    fn subject_at(&self) -> usize {
        self.algorithm_at() + 3
    }

    /// The part that the signature is of (`TBSCertificate`).
    fn to_signed_der(&self) -> Vec<u8> {
        yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                for element in &self.signed {
                    writer.next().write_der(element);
                }
            });
        })
    }

    /// The whole certificate.
    fn to_der(&self) -> Vec<u8> {
        let (signature, bits) = &self.signature;
        yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                writer.next().write_der(&self.to_signed_der());
                writer.next().write_der(&self.algorithm);
                writer.next().write_bitvec_bytes(signature, *bits);
            });
        })
    }
}

/// Verifies a file's certificates: all bytes of the first, as [`check_certificate`] does; only the encoding
/// of the others, which users add: after a change of the authority's key there are certificates with its name
/// that this key did not sign.
///
/// # Errors
/// [`CertificateDamage`]; a file without certificates is unreadable.
pub(super) fn check_certificates(
    certificates: &[CertificateDer<'_>],
    authority: &CertificateDer<'_>,
) -> Result<(), CertificateDamage> {
    let [first, others @ ..] = certificates else { return Err(CertificateDamage::Unreadable) };
    check_certificate(first, authority)?;
    others.iter().try_for_each(|other| check_encoding(other).map(|_| ()))
}

/// Verifies all bytes of a certificate; `authority` is the certificate that signed it, unless it has another
/// issuer.
///
/// Of a certificate by another issuer, and of one with an unsupported signature algorithm, only the encoding
/// is verified. An issuer name that differs because of damage is recognized by the signature, which is valid
/// for the authority's name.
///
/// # Errors
/// [`CertificateDamage`].
fn check_certificate(
    certificate: &CertificateDer<'_>,
    authority: &CertificateDer<'_>,
) -> Result<(), CertificateDamage> {
    use CertificateDamage::{Signature, Unreadable};
    let (parsed, parts) = check_encoding(certificate)?;
    let (_, authority_parsed) = X509Certificate::from_der(authority).map_err(|_| Unreadable)?;
    let key = authority_parsed.public_key();
    if parsed.issuer().as_raw() == authority_parsed.subject().as_raw() {
        return match is_signed(&parsed, key, &parts) {
            Some(false) => Err(Signature),
            Some(true) | None => Ok(()),
        };
    }
    let (issuer, subject) = (parts.issuer_at(), parts.subject_at());
    let mut candidates = vec![(issuer, authority_parsed.subject().as_raw().to_vec())];
    if certificate == authority {
        candidates.push((subject, parsed.issuer().as_raw().to_vec()));
    }
    for (at, name) in candidates {
        let mut signed = parts.signed.clone();
        if let Some(element) = signed.get_mut(at) {
            *element = name;
        }
        let (algorithm, signature) = (parts.algorithm.clone(), parts.signature.clone());
        if is_signed(&parsed, key, &Parts { signed, algorithm, signature }) == Some(true) {
            return Err(Signature);
        }
    }
    Ok(())
}

fn check_encoding<'a>(
    certificate: &'a CertificateDer<'_>,
) -> Result<(X509Certificate<'a>, Parts), CertificateDamage> {
    use CertificateDamage::{Encoding, Unreadable};
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| Unreadable)?;
    let parts = Parts::read(certificate).map_err(|_| Encoding)?;
    let is_whole_bytes = parts.signature.1 == parts.signature.0.len() * 8;
    let is_canonical = is_whole_bytes && parts.to_der() == certificate.as_ref();
    let is_same_algorithm = parts.signed.get(parts.algorithm_at()) == Some(&parts.algorithm);
    match is_canonical && is_same_algorithm && parts.has_structure() {
        true => Ok((parsed, parts)),
        false => Err(Encoding),
    }
}

/// Whether the signature is by that key; none if the algorithm or the kind of key is not supported.
fn is_signed(
    certificate: &X509Certificate<'_>,
    key: &SubjectPublicKeyInfo<'_>,
    parts: &Parts,
) -> Option<bool> {
    let algorithm = &certificate.signature_algorithm;
    match check_signature(key, algorithm, &parts.to_signed_der(), &parts.signature.0) {
        Ok(()) => Some(true),
        Err(SignatureError::Unimplemented | SignatureError::Insecure(_) | SignatureError::ShortKey(_)) => {
            None
        }
        Err(_) => Some(false),
    }
}
