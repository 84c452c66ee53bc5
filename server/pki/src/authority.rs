//! A certificate authority.

use std::path::{Path, PathBuf};

use plinth_codec::pem;
use rcgen::{KeyPair, PublicKeyData, SigningKey as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};
use yasna::models::{GeneralizedTime, ObjectIdentifier, UTCTime};
use yasna::{DERWriter, Tag};

use super::alternative_names::AlternativeNames;
use super::files::{self, FileError};
use super::name::Name;
use crate::{p521, pkcs8};

/// An unusable authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The certificate or key file cannot be read as PEM.
    #[error(transparent)]
    File(#[from] FileError),
    /// The certificate is malformed.
    #[error("{path} holds no certificate that can be read")]
    Certificate {
        /// Path of the file.
        path: PathBuf,
    },
    /// The key cannot sign, or does not belong to the certificate.
    #[error("{path} holds no key of the authority's certificate")]
    Key {
        /// Path of the file.
        path: PathBuf,
    },
    /// The authority's own certificate has expired.
    #[error("the signer has expired: NotAfter={0}")]
    Expired(OffsetDateTime),
    /// Signing failed.
    #[error("failed to sign certificate: {0}")]
    Sign(#[from] rcgen::Error),
}

/// The usages of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// The bits of `keyUsage` (RFC 5280, 4.2.1.3): bit 0 is `digitalSignature`.
    pub key: u16,
    /// The purposes of `extKeyUsage`, in order.
    pub extended: Vec<&'static [u64]>,
}

/// The contents of a certificate to be issued.
#[derive(Clone, Debug)]
pub struct Template<'a> {
    /// Subject of the new certificate.
    pub subject: &'a Name,
    /// The public key, DER of a SubjectPublicKeyInfo.
    pub public_key: &'a [u8],
    /// The subject's alternative names.
    pub names: &'a AlternativeNames,
    /// Extended key usages of the new certificate.
    pub uses: Uses,
    /// Start of the validity.
    pub not_before: OffsetDateTime,
    /// End of the validity; at most the authority's own.
    pub not_after: OffsetDateTime,
}

/// A signing key.
enum Key {
    Ring(KeyPair),
    P521(p521::PrivateKey),
}

impl Key {
    fn from_pkcs8(der: &[u8]) -> Option<Key> {
        if let Some(key) = p521::PrivateKey::from_pkcs8(der) {
            return Some(Key::P521(key));
        }
        KeyPair::try_from(&PrivatePkcs8KeyDer::from(der)).ok().map(Key::Ring)
    }

    fn public(&self) -> Option<Vec<u8>> {
        match self {
            Key::Ring(pair) => Some(pair.subject_public_key_info()),
            Key::P521(key) => key.public_spki(),
        }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        match self {
            Key::Ring(pair) => pair.sign(message),
            Key::P521(key) => key.sign_der(message).ok_or(rcgen::Error::RingUnspecified),
        }
    }
}

/// A certificate and its key. Immutable.
pub struct Authority {
    key: Key,
    /// The subject of the certificate, DER.
    name: Vec<u8>,
    /// The subject key identifier.
    key_id: Vec<u8>,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
}

/// `2.5.29`, the arc of the extensions.
const EXTENSION: [u64; 3] = [2, 5, 29];

impl Authority {
    /// Reads the certificate and its key.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn read(certificate: &Path, key: &Path) -> Result<Authority, AuthorityError> {
        let certificates = files::read_certificates(certificate)?;
        let private = files::read_key(key)?;
        Authority::new((certificate, &certificates), (key, &private))
    }

    /// Creates an authority from the contents of two files, whose paths are for errors: the first of the
    /// certificates and its key.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn new(
        (certificate, certificates): (&Path, &[CertificateDer<'_>]),
        (key, private): (&Path, &PrivateKeyDer<'_>),
    ) -> Result<Authority, AuthorityError> {
        let bad_certificate = || AuthorityError::Certificate { path: certificate.to_owned() };
        let der = certificates.first().ok_or_else(bad_certificate)?;
        let (_, cert) = X509Certificate::from_der(der).map_err(|_| bad_certificate())?;
        let path = key;
        let bad_key = || AuthorityError::Key { path: path.to_owned() };
        let key = pkcs8::pkcs8_from_key(private).and_then(|der| Key::from_pkcs8(&der)).ok_or_else(bad_key)?;
        if key.public().as_deref() != Some(cert.public_key().raw) || algorithm(&key).is_none() {
            return Err(bad_key());
        }
        let stated = cert.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            x509_parser::extensions::ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        Ok(Authority {
            key_id: stated.unwrap_or_else(|| key_id(cert.public_key().raw)),
            key,
            name: cert.subject().as_raw().to_vec(),
            not_before: cert.validity().not_before.to_datetime(),
            not_after: cert.validity().not_after.to_datetime(),
        })
    }

    /// From when on the authority's certificate is valid.
    pub fn not_before(&self) -> OffsetDateTime {
        self.not_before
    }

    /// When the authority's certificate expires.
    pub fn not_after(&self) -> OffsetDateTime {
        self.not_after
    }

    /// Issues a certificate, PEM.
    ///
    /// # Errors
    /// [`AuthorityError::Expired`], [`AuthorityError::Sign`].
    pub fn sign(&self, template: &Template<'_>) -> Result<String, AuthorityError> {
        if OffsetDateTime::now_utc() >= self.not_after || template.not_before >= self.not_after {
            return Err(AuthorityError::Expired(self.not_after));
        }
        let Some(algorithm) = algorithm(&self.key) else {
            return Err(AuthorityError::Sign(rcgen::Error::UnsupportedSignatureAlgorithm));
        };
        let body = yasna::construct_der(|writer| self.write(writer, template, algorithm));
        let signature = self.key.sign(&body)?;
        let der = yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                writer.next().write_der(&body);
                writer.next().write_der(algorithm);
                writer.next().write_bitvec_bytes(&signature, signature.len() * 8);
            });
        });
        Ok(pem::encode(files::CERTIFICATE_LABEL, &der))
    }

    /// TBSCertificate (RFC 5280, 4.1).
    fn write(&self, writer: DERWriter<'_>, template: &Template<'_>, algorithm: &[u8]) {
        writer.write_sequence(|writer| {
            writer.next().write_tagged(Tag::context(0), |writer| writer.write_u8(2));
            // 122 random bits; the first bit is 0, so that the number is positive in 16 bytes.
            let mut serial = *uuid::Uuid::new_v4().as_bytes();
            serial[0] &= 0x7f;
            writer.next().write_bigint_bytes(&serial, true);
            writer.next().write_der(algorithm);
            writer.next().write_der(&self.name);
            writer.next().write_sequence(|writer| {
                write_time(writer.next(), template.not_before);
                write_time(writer.next(), template.not_after.min(self.not_after));
            });
            writer.next().write_der(&template.subject.to_der());
            writer.next().write_der(template.public_key);
            writer.next().write_tagged(Tag::context(3), |writer| {
                writer.write_sequence(|writer| {
                    if template.uses.key != 0 {
                        write_extension(writer.next(), 15, true, &key_usage(template.uses.key));
                    }
                    if !template.uses.extended.is_empty() {
                        let purposes = yasna::construct_der(|writer| {
                            writer.write_sequence(|writer| {
                                for purpose in &template.uses.extended {
                                    writer.next().write_oid(&ObjectIdentifier::from_slice(purpose));
                                }
                            });
                        });
                        write_extension(writer.next(), 37, false, &purposes);
                    }
                    // basicConstraints: not a CA.
                    write_extension(writer.next(), 19, true, &[0x30, 0]);
                    let authority = yasna::construct_der(|writer| {
                        writer.write_sequence(|writer| {
                            writer.next().write_tagged_implicit(Tag::context(0), |writer| {
                                writer.write_bytes(&self.key_id)
                            });
                        });
                    });
                    write_extension(writer.next(), 35, false, &authority);
                    if let Some(names) = template.names.to_der() {
                        // The extension is critical if the subject is empty.
                        write_extension(writer.next(), 17, template.subject.is_empty(), &names);
                    }
                });
            });
        });
    }
}

fn write_extension(writer: DERWriter<'_>, last: u64, critical: bool, value: &[u8]) {
    writer.write_sequence(|writer| {
        let [a, b, c] = EXTENSION;
        writer.next().write_oid(&ObjectIdentifier::from_slice(&[a, b, c, last]));
        if critical {
            writer.next().write_bool(true);
        }
        writer.next().write_bytes(value);
    });
}

/// The bit string of `keyUsage`, without trailing zeros, as DER requires.
fn key_usage(bits: u16) -> Vec<u8> {
    // The first bit of a bit string is the most significant one.
    let bytes = bits.reverse_bits().to_be_bytes();
    let length = 16 - bits.leading_zeros() as usize;
    yasna::construct_der(|writer| writer.write_bitvec_bytes(&bytes[..length.div_ceil(8)], length))
}

/// UTCTime until 2049, then GeneralizedTime (RFC 5280, 4.1.2.5). Whole seconds.
fn write_time(writer: DERWriter<'_>, time: OffsetDateTime) {
    let time = time.replace_nanosecond(0).unwrap_or(time);
    match (1950..2050).contains(&time.year()) {
        true => writer.write_utctime(&UTCTime::from_datetime(time)),
        false => writer.write_generalized_time(&GeneralizedTime::from_datetime(time)),
    }
}

/// AlgorithmIdentifier of a key's signatures.
fn algorithm(key: &Key) -> Option<&'static [u8]> {
    const RSA_SHA256: &[u8] = &[0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 11, 5, 0];
    const ECDSA_SHA256: &[u8] = &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    const ECDSA_SHA384: &[u8] = &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3];
    const ECDSA_SHA512: &[u8] = &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4];
    const ED25519: &[u8] = &[0x30, 5, 6, 3, 0x2b, 0x65, 0x70];
    let table = [
        (&rcgen::PKCS_RSA_SHA256, RSA_SHA256),
        (&rcgen::PKCS_ECDSA_P256_SHA256, ECDSA_SHA256),
        (&rcgen::PKCS_ECDSA_P384_SHA384, ECDSA_SHA384),
        (&rcgen::PKCS_ED25519, ED25519),
    ];
    match key {
        Key::Ring(pair) => table.into_iter().find(|(kind, _)| *kind == pair.algorithm()).map(|(_, der)| der),
        Key::P521(_) => Some(ECDSA_SHA512),
    }
}

/// Key identifier for certificates that have none: the first 20 bytes of the key's hash (RFC 7093).
fn key_id(public_key: &[u8]) -> Vec<u8> {
    Sha256::digest(public_key).iter().take(20).copied().collect()
}
