use proptest::prelude::*;
use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
use yasna::models::ObjectIdentifier;
use yasna::Tag;

use super::*;
use crate::certificates::files;
use crate::certificates::name::tests::{encode as encode_name, Raw};
use crate::certificates::name::{COMMON_NAME, ORGANIZATION, UID};

/// The value of `subjectAltName` for DNS names.
pub(crate) fn dns(names: &[&str]) -> Vec<u8> {
    let dns = names.iter().map(|name| (*name).to_owned()).collect();
    AlternativeNames { dns, ..AlternativeNames::default() }.to_der().unwrap_or_default()
}

fn oid(numbers: &[u64]) -> ObjectIdentifier {
    ObjectIdentifier::from_slice(numbers)
}

/// An attribute that asks for extensions with these values of `subjectAltName`.
fn extension_request(values: &[&[u8]]) -> Vec<u8> {
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

/// The DER of a request with that subject and those attributes, whatever they hold, properly signed by that key.
fn sign(key: &KeyPair, subject: &[u8], attributes: &[Vec<u8>]) -> Vec<u8> {
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

/// The DER of a request of a new key, with that subject and value of `subjectAltName`.
pub(crate) fn encode(subject: &[u8], names: Option<&[u8]>) -> Vec<u8> {
    let attributes: Vec<_> = names.iter().map(|names| extension_request(&[names])).collect();
    sign(&KeyPair::generate().unwrap(), subject, &attributes)
}

/// A request as text.
pub(crate) fn pem(der: &[u8]) -> String {
    pem::encode(LABEL, der)
}

const UTF8: u8 = 0x0c;

fn cn(value: &str) -> Raw<'_> {
    (COMMON_NAME, UTF8, value.as_bytes())
}

fn o(value: &str) -> Raw<'_> {
    (ORGANIZATION, UTF8, value.as_bytes())
}

fn jane() -> Vec<u8> {
    encode_name(&[&[o("dev")], &[cn("jane")]])
}

/// The key of every request in the data file.
fn key() -> KeyPair {
    let der = files::private_key(include_bytes!("../testdata/judged-key.pem")).unwrap();
    KeyPair::try_from(&der).unwrap()
}

/// A request as a line of the data file.
fn shown(outcome: Result<CertificateRequest, RequestError>) -> serde_json::Value {
    match outcome {
        Err(error) => serde_json::json!({ "error": error.to_string() }),
        Ok(request) => serde_json::json!({
            "commonName": request.subject.common_name(),
            "organizations": request.subject.organizations(),
            "dns": request.names.dns,
            "ips": request.names.ips.iter().map(ToString::to_string).collect::<Vec<_>>(),
        }),
    }
}

/// What is accepted here is accepted by upstream's `ParseCSR`, as the same value: `testdata/judged.json` holds what it
/// made of each request, and `testdata/judge.go` makes that file.
#[test]
fn what_is_accepted_means_the_same_to_upstream() {
    use base64::Engine as _;
    let (mut accepted, mut stricter) = (0, Vec::new());
    for line in include_str!("../testdata/judged.json").lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = base64::engine::general_purpose::STANDARD.decode(row["text"].as_str().unwrap()).unwrap();
        let ours = shown(CertificateRequest::parse(&text));
        let (name, theirs) = (row["name"].as_str().unwrap(), &row["outcome"]);
        if ours.get("error").is_none() {
            assert_eq!(&ours, theirs, "{name}");
            accepted += 1;
        } else if theirs.get("error").is_none() {
            stricter.push(name.to_owned());
        }
    }
    assert_eq!(accepted, ACCEPTED, "accepted here and by upstream");
    assert_eq!(stricter, STRICTER, "refused here alone");
}

const ACCEPTED: usize = 42;
/// Text around the block, headers, values that upstream overlooks, what stands behind what it reads.
const STRICTER: &[&str] = &[
    "layout: two blocks",
    "layout: two blocks, the other order",
    "layout: first block with another end",
    "layout: first block is not base64",
    "layout: first block is cut",
    "layout: first block without an end",
    "layout: first beginning followed by text",
    "layout: first end followed by text",
    "layout: first beginning indented",
    "layout: first beginning behind text",
    "layout: first beginning behind a carriage return",
    "layout: first end behind text",
    "layout: headers",
    "layout: headers that hold a beginning",
    "layout: headers that go on",
    "layout: headers and nothing else",
    "layout: text before",
    "layout: text after",
    "layout: byte order mark",
    "layout: a block within",
    "layout: dashes before",
    "layout: an end before",
    "node: an empty one between",
    "node: a name of a type that is not read",
    "node: another's behind an end that is another's",
    "node: another's behind a beginning followed by text",
    "node: another's behind an end followed by text",
    "node: two blocks",
    "subject: an empty one first",
    "subject: an empty one between",
    "subject: an empty one last",
    "subject: BMPString with an end",
    "subject: UniversalString",
    "subject: VisibleString",
    "subject: GeneralString",
    "subject: GraphicString",
    "subject: OCTET STRING",
    "subject: BIT STRING",
    "subject: INTEGER",
    "subject: a name of type UniversalString",
    "subject: a name of type VisibleString",
    "subject: a name of type OCTET STRING",
    "subject: UTF8String with NUL",
    "subject: a third member of an attribute",
    "attributes: a name with NUL",
    "attributes: a name with a blank",
    "attributes: a name that is empty",
    "attributes: bytes behind the names",
    "attributes: no attribute",
];

/// A text of a subject: harmless, dangerous, or odd.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("system:masters".to_owned()),
        Just("system:nodes".to_owned()),
        Just("system:node:n1".to_owned()),
        "[a-z:*&@]{0,6}",
        "\\PC{0,4}",
        Just("system:masters\0".to_owned()),
    ]
}

/// An attribute: a type, the tag of a string, and its bytes in that encoding or in UTF-8.
fn attribute() -> impl Strategy<Value = (Vec<u8>, u8, Vec<u8>)> {
    let kinds = prop_oneof![
        3 => Just(COMMON_NAME),
        3 => Just(ORGANIZATION),
        1 => Just(UID),
        1 => Just(&[0x55, 4, 11][..]),
        1 => Just(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 9, 1][..]),
    ];
    let tags = prop_oneof![
        6 => Just(UTF8), 2 => Just(0x13), 1 => Just(0x12), 1 => Just(0x14), 1 => Just(0x16), 1 => Just(0x1e),
        1 => Just(0x1c), 1 => Just(0x1a), 1 => Just(4),
    ];
    (kinds, tags, value(), proptest::bool::weighted(0.9)).prop_map(|(kind, tag, value, is_encoded)| {
        let bytes = match tag {
            0x1e if is_encoded => value.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            0x1c if is_encoded => value.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect(),
            0x14 if is_encoded => value.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect(),
            _ => value.into_bytes(),
        };
        (kind.to_vec(), tag, bytes)
    })
}

fn sets() -> impl Strategy<Value = Vec<Vec<(Vec<u8>, u8, Vec<u8>)>>> {
    proptest::collection::vec(proptest::collection::vec(attribute(), 0..3), 0..5)
}

/// Texts made of two requests: whole, cut, changed, one behind the other.
fn layout(first: &str, second: &str, how: &[(u8, u16)]) -> String {
    let mut text = format!("{first}{second}");
    for (what, at) in how {
        let mut at = usize::from(*at) % (text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        match what {
            0 => text = first.to_owned(),
            1 => text.insert(at, '\n'),
            2 => text.insert(at, '\r'),
            3 => text.insert(at, ' '),
            4 => text.insert_str(at, "-----"),
            5 => text.insert_str(at, "\nK: v\n"),
            6 => drop(text.drain(at..(at + 7).min(text.len()))),
            7 => text = text.replacen("-----\n", "----- \n", 1),
            8 => text = text.replacen("END CERT", "END OTHER CERT", 1),
            _ => {}
        }
    }
    text
}

/// An authority that signs, and trusts what it signed.
fn authority() -> (crate::certificates::Authority, crate::authn::x509::CertificateAuthenticator) {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key_file) = (dir.path().join("ca.crt"), dir.path().join("ca.key"));
    let key = KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    std::fs::write(&cert, params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let authority = crate::certificates::Authority::read(&cert, &key_file).unwrap();
    (authority, crate::authn::x509::CertificateAuthenticator::new(&cert).unwrap())
}

/// Whom a certificate that is made of a request authenticates.
fn authenticated(
    request: &CertificateRequest,
    (authority, authenticator): &(
        crate::certificates::Authority,
        crate::authn::x509::CertificateAuthenticator,
    ),
) -> Option<std::sync::Arc<plinth_api::user::User>> {
    let now = time::OffsetDateTime::now_utc();
    let text = authority.sign(&crate::certificates::Template {
        subject: &request.subject.issued(),
        public_key: &request.public_key,
        names: &request.names,
        uses: crate::certificates::signers::uses(&["client auth"]).unwrap(),
        not_before: now - time::Duration::minutes(5),
        not_after: now + time::Duration::hours(1),
    });
    let chain = files::certificates(text.unwrap().as_bytes()).unwrap();
    // Another reader of certificates finds the same names.
    let parsed = x509_parser::prelude::X509Certificate::from_der(&chain[0]).unwrap().1;
    let subject = parsed.subject();
    let names: Vec<&str> = subject.iter_common_name().map(|name| name.as_str().unwrap()).collect();
    let name = Some(request.subject.common_name()).filter(|name| !name.is_empty());
    assert_eq!(names, name.into_iter().collect::<Vec<_>>());
    let organizations: Vec<&str> = subject.iter_organization().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(organizations, request.subject.organizations());
    authenticator.authenticate(&crate::authn::Peer::new(Some(&chain))).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PLINTH_REQUEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(256)
    ))]

    /// Admission, validation, storage, signer and authentication see one value, whatever the layout of the text and the
    /// encoding of the subject. `PLINTH_REQUEST_CASES` for more.
    #[test]
    fn every_reader_sees_one_value(
        first in sets(),
        second in sets(),
        how in proptest::collection::vec((0u8..16, any::<u16>()), 0..3),
    ) {
        use crate::admission::{certificate_subject_restriction, node_restriction};
        use crate::strategy::certificates as csr;
        use plinth_codec::{json, protobuf, schema};
        thread_local! {
            static AUTHORITY: (crate::certificates::Authority, crate::authn::x509::CertificateAuthenticator) = authority();
        }
        let der = |sets: &[Vec<(Vec<u8>, u8, Vec<u8>)>]| {
            let sets: Vec<Vec<Raw<'_>>> =
                sets.iter().map(|set| set.iter().map(|(k, t, v)| (&**k, *t, &**v)).collect()).collect();
            let sets: Vec<&[Raw<'_>]> = sets.iter().map(Vec::as_slice).collect();
            sign(&key(), &encode_name(&sets), &[])
        };
        let text = layout(&pem(&der(&first)), &pem(&der(&second)), &how);
        for signer in [crate::certificates::signers::CLIENT, crate::certificates::signers::KUBELET_CLIENT] {
            let object = plinth_codec::tree!({
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": plinth_codec::tree!({ "name": "c" }),
                "spec": plinth_codec::tree!({
                    "request": csr::tests::base64(&text), "signerName": signer, "usages": plinth_codec::tree!(["client auth"]),
                }),
            });
            let seen = csr::read(&object);
            // What is stored, and what comes in another encoding.
            let gvk = schema::GVK::new("certificates.k8s.io", "v1", "CertificateSigningRequest");
            let id = schema::builtin().kind(&gvk).unwrap();
            let mut wire = Vec::new();
            protobuf::encode_message(&object, schema::builtin(), id, &mut wire).unwrap();
            let stored = protobuf::decode_object(&wire, Some(&gvk), schema::builtin(), id).unwrap();
            prop_assert_eq!(&csr::read(&stored), &seen);
            let mut body = Vec::new();
            json::write(&stored, schema::builtin(), id, &mut body);
            let again = json::decode(&body, schema::builtin(), id, &json::DecodeOptions { strict: true }).unwrap();
            prop_assert_eq!(&csr::read(&again.value), &seen);

            let restricted = certificate_subject_restriction::error(&object).is_some();
            let is_n1 = node_restriction::check_csr("n1", &object).is_ok();
            let is_valid = !csr::validate(&object).iter().any(|error| error.field == "spec.request");
            prop_assert_eq!(is_valid, seen.is_ok());
            let Ok(request) = seen else {
                // Nobody lets pass what nobody signs.
                prop_assert!(restricted || signer != crate::certificates::signers::CLIENT);
                prop_assert!(!is_n1 || signer == crate::certificates::signers::CLIENT);
                continue;
            };
            let user = AUTHORITY.with(|authority| authenticated(&request, authority));
            let name = request.subject.common_name();
            prop_assert_eq!(user.as_ref().map(|user| user.name.as_str()), Some(name).filter(|name| !name.is_empty()));
            let Some(user) = user else { continue };
            let groups = [request.subject.organizations(), vec!["system:authenticated"]].concat();
            prop_assert_eq!(&user.groups, &groups);
            prop_assert_eq!(&user.uid, "");
            if signer == crate::certificates::signers::CLIENT {
                prop_assert_eq!(restricted, groups.contains(&"system:masters"));
            } else {
                prop_assert_eq!(is_n1, user.name == "system:node:n1");
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes: Vec<u8>, text in "\\PC{0,80}") {
        for input in [&bytes, text.as_bytes()] {
            crate::certificates::fuzzing::certificate_request(input);
            crate::certificates::fuzzing::pem_blocks(input);
        }
    }

    /// The fuzz targets over requests with small changes.
    #[test]
    fn no_change_breaks_a_fuzz_target(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let der = sign(&key(), &jane(), &[extension_request(&[&dns(&["a.example"])])]);
        for mut input in [der.clone(), pem(&der).into_bytes(), jane()] {
            for (at, byte) in &changes {
                let at = at.index(input.len());
                input[at] = *byte;
            }
            crate::certificates::fuzzing::certificate_request(&input);
            crate::certificates::fuzzing::pem_blocks(&input);
        }
    }

    /// One byte of a request changed: an error, or a value of which the signature is not the sender's.
    #[test]
    fn a_changed_byte_is_noticed(at: prop::sample::Index, change in 1u8..) {
        let mut der = sign(&key(), &jane(), &[extension_request(&[&dns(&["a.example"])])]);
        let at = at.index(der.len());
        der[at] ^= change;
        let read = CertificateRequest::from_der(&der).and_then(|request| request.check_signature());
        prop_assert!(read.is_err(), "byte {}", at);
    }
}
