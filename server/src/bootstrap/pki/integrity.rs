//! Whether a certificate or key file is still what was written: the strict half of `plinth verify`.
//!
//! Files that users put into `DIR/pki` have layouts of their own: bundles, comments, other line breaks, other issuers. So nothing is
//! compared with what Plinth would have written, and damage is reported only where a file cannot be what anybody meant: it does not
//! decode, the DER around the signed part of a certificate is not canonical, a signature does not verify, or a key is not its
//! certificate's. Every single flipped bit in a file that Plinth wrote is one of these. A change of several bytes that leaves the
//! same DER behind (a line break that moved) is no damage.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::SubjectPublicKeyInfo;
use yasna::ASN1Result;

use plinth_pki::signature::{self, SignatureError};

/// Why a certificate is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CertificateDamage {
    /// It cannot be read.
    #[error("it holds no certificate that can be read")]
    Unreadable,
    /// Its outer structure is not DER, or names another signature algorithm than the signed part.
    #[error("its encoding is not canonical DER")]
    Encoding,
    /// The signature is not that of its issuer.
    #[error("its signature is wrong")]
    Signature,
}

/// A certificate in its parts.
struct Parts {
    /// The elements of TBSCertificate (RFC 5280, 4.1), each in DER.
    signed: Vec<Vec<u8>>,
    /// The algorithm beside the signature.
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

    /// Where the algorithm is among the elements of the signed part: behind the version, which the oldest certificates lack, and
    /// the serial number.
    fn algorithm_at(&self) -> usize {
        match self.signed.first().and_then(|element| element.first()) {
            Some(0xa0) => 2,
            _ => 1,
        }
    }

    /// Whether algorithm, issuer, validity, subject and public key are there and each is a SEQUENCE, which readers do not insist on.
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

    /// TBSCertificate.
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

/// Checks a file's certificates: all bytes of the first, as [`check_certificate`] does; of the others, which users add, the encoding
/// alone: that an authority changed its key leaves certificates in its own name that it did not sign with this one.
///
/// # Errors
/// [`CertificateDamage`]; a file without any is unreadable.
pub(super) fn check_certificates(
    certificates: &[CertificateDer<'_>],
    authority: &CertificateDer<'_>,
) -> Result<(), CertificateDamage> {
    let [first, others @ ..] = certificates else { return Err(CertificateDamage::Unreadable) };
    check_certificate(first, authority)?;
    others.iter().try_for_each(|other| check_encoding(other).map(|_| ()))
}

/// Checks all bytes of a certificate; `authority` is the certificate that signed it, if that is where it is from.
///
/// Of a certificate by another issuer, and of one that is signed in a way that is not known here, only the encoding is checked. An
/// issuer that is another one because of damage in its name is recognized by the signature, which is right for the authority's name.
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

/// Whether the signature is by that key; none when the algorithm or the key is of a kind that is not known here.
fn is_signed(
    certificate: &X509Certificate<'_>,
    key: &SubjectPublicKeyInfo<'_>,
    parts: &Parts,
) -> Option<bool> {
    let algorithm = &certificate.signature_algorithm;
    match signature::check(key, algorithm, &parts.to_signed_der(), &parts.signature.0) {
        Ok(()) => Some(true),
        Err(SignatureError::Unimplemented | SignatureError::Insecure(_) | SignatureError::ShortKey(_)) => {
            None
        }
        Err(_) => Some(false),
    }
}
