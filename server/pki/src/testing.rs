//! Requests with arbitrary contents and valid signatures, for tests of this crate and of users of
//! certificates.

use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
use yasna::models::ObjectIdentifier;
use yasna::{Tag, TagClass};

use crate::files;
use crate::request::CERTIFICATE_REQUEST_LABEL;
use crate::AlternativeNames;

/// An attribute's type, the tag of its value, and the value.
pub type Raw<'a> = (&'a [u8], u8, &'a [u8]);

fn universal(number: u8) -> Tag {
    Tag { tag_class: TagClass::Universal, tag_number: number.into() }
}

/// The DER of a name of these relative distinguished names, valid or not.
pub fn encode_name(sets: &[&[Raw<'_>]]) -> Vec<u8> {
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            for set in sets {
                // Not `write_set`, which sorts.
                writer.next().write_tagged_implicit(universal(0x11), |writer| {
                    writer.write_sequence(|writer| {
                        for (kind, tag, value) in *set {
                            writer.next().write_sequence(|writer| {
                                writer
                                    .next()
                                    .write_tagged_implicit(yasna::tags::TAG_OID, |w| w.write_bytes(kind));
                                writer
                                    .next()
                                    .write_tagged_implicit(universal(*tag), |w| w.write_bytes(value));
                            });
                        }
                    });
                });
            }
        });
    })
}

/// The value of `subjectAltName` for DNS names.
pub fn dns(names: &[&str]) -> Vec<u8> {
    let dns = names.iter().map(|name| (*name).to_owned()).collect();
    AlternativeNames { dns, ..AlternativeNames::default() }.to_der().unwrap_or_default()
}

fn oid(numbers: &[u64]) -> ObjectIdentifier {
    ObjectIdentifier::from_slice(numbers)
}

/// An `extensionRequest` with these values of `subjectAltName`.
pub(crate) fn extension_request(values: &[&[u8]]) -> Vec<u8> {
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_oid(&oid(&[1, 2, 840, 113549, 1, 9, 14]));
            writer.next().write_set(|writer| {
                writer.next().write_sequence(|writer| {
                    for value in values {
                        writer.next().write_sequence(|writer| {
                            writer.next().write_oid(&oid(&[2, 5, 29, 17]));
                            writer.next().write_bytes(value);
                        });
                    }
                });
            });
        });
    })
}

/// The DER of a request with that subject and those attributes, valid or not, signed with that key.
pub fn sign(key: &KeyPair, subject: &[u8], attributes: &[Vec<u8>]) -> Vec<u8> {
    const ECDSA_SHA256: &[u8] = &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    let info = yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_u8(0);
            writer.next().write_der(subject);
            writer.next().write_der(&key.subject_public_key_info());
            writer.next().write_tagged_implicit(Tag::context(0), |writer| {
                writer.write_sequence(|writer| {
                    attributes.iter().for_each(|attribute| writer.next().write_der(attribute));
                });
            });
        });
    });
    let signature = key.sign(&info).unwrap();
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_der(&info);
            writer.next().write_der(ECDSA_SHA256);
            writer.next().write_bitvec_bytes(&signature, signature.len() * 8);
        });
    })
}

/// The DER of a request with a new key, with that subject and value of `subjectAltName`.
pub fn encode(subject: &[u8], names: Option<&[u8]>) -> Vec<u8> {
    let attributes: Vec<_> = names.iter().map(|names| extension_request(&[names])).collect();
    sign(&KeyPair::generate().unwrap(), subject, &attributes)
}

/// A request in PEM.
pub fn pem(der: &[u8]) -> String {
    plinth_codec::pem::encode(CERTIFICATE_REQUEST_LABEL, der)
}

/// The key of every request in the data file.
pub fn key() -> KeyPair {
    let der = files::parse_private_key(include_bytes!("testdata/judged-key.pem")).unwrap();
    KeyPair::try_from(&der).unwrap()
}
