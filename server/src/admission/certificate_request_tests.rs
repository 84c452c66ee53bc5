//! All readers of a certificate request see the same value.

use plinth_pki::{
    testing::encode_name, testing::key, testing::pem, testing::sign, testing::Raw, CertificateRequest,
    COMMON_NAME, ORGANIZATION, UID,
};
use proptest::prelude::*;
use rcgen::KeyPair;
use x509_parser::prelude::FromDer as _;

use plinth_apiserver::authn::CertificateAuthenticator;

const UTF8: u8 = 0x0c;

/// A string of a subject: harmless, dangerous, or odd.
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

/// Texts built from two requests: complete, truncated, changed, concatenated.
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

/// An authority, and an authenticator that trusts it.
fn authority() -> (plinth_pki::Authority, CertificateAuthenticator) {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key_file) = (dir.path().join("ca.crt"), dir.path().join("ca.key"));
    let key = KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    std::fs::write(&cert, params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let authority = plinth_pki::Authority::read(&cert, &key_file).unwrap();
    (authority, CertificateAuthenticator::new(&cert).unwrap())
}

/// The user that a certificate issued for a request authenticates.
fn authenticated(
    request: &CertificateRequest,
    (authority, authenticator): &(plinth_pki::Authority, CertificateAuthenticator),
) -> Option<std::sync::Arc<plinth_api::User>> {
    let now = time::OffsetDateTime::now_utc();
    let text = authority.sign(&plinth_pki::Template {
        subject: &request.subject.issued(),
        public_key: &request.public_key,
        names: &request.names,
        uses: plinth_pki::certificate_uses(&["client auth"]).unwrap(),
        not_before: now - time::Duration::minutes(5),
        not_after: now + time::Duration::hours(1),
    });
    let chain = plinth_pki::parse_certificates(text.unwrap().as_bytes()).unwrap();
    // Another parser of certificates finds the same names.
    let parsed = x509_parser::prelude::X509Certificate::from_der(&chain[0]).unwrap().1;
    let subject = parsed.subject();
    let names: Vec<&str> = subject.iter_common_name().map(|name| name.as_str().unwrap()).collect();
    let name = Some(request.subject.common_name()).filter(|name| !name.is_empty());
    assert_eq!(names, name.into_iter().collect::<Vec<_>>());
    let organizations: Vec<&str> = subject.iter_organization().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(organizations, request.subject.organizations());
    authenticator.authenticate(&plinth_apiserver::authn::Peer::new(Some(&chain))).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PLINTH_REQUEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(256)
    ))]

    /// Admission, validation, storage, signer and authentication see one value, whatever the layout of the
    /// text and the encoding of the subject. `PLINTH_REQUEST_CASES` sets the number of cases.
    #[test]
    fn every_reader_sees_one_value(
        first in sets(),
        second in sets(),
        how in proptest::collection::vec((0u8..16, any::<u16>()), 0..3),
    ) {
        use crate::admission::{certificate_subject_restriction, node_restriction};
        use plinth_kinds::certificate_signing_request as csr;
        use plinth_codec::{json, protobuf, schema};
        thread_local! {
            static AUTHORITY: (plinth_pki::Authority, CertificateAuthenticator) = authority();
        }
        let der = |sets: &[Vec<(Vec<u8>, u8, Vec<u8>)>]| {
            let sets: Vec<Vec<Raw<'_>>> =
                sets.iter().map(|set| set.iter().map(|(k, t, v)| (&**k, *t, &**v)).collect()).collect();
            let sets: Vec<&[Raw<'_>]> = sets.iter().map(Vec::as_slice).collect();
            sign(&key(), &encode_name(&sets), &[])
        };
        let text = layout(&pem(&der(&first)), &pem(&der(&second)), &how);
        for signer in [plinth_pki::CLIENT_SIGNER, plinth_pki::KUBELET_CLIENT_SIGNER] {
            let object = plinth_codec::tree!({
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": plinth_codec::tree!({ "name": "c" }),
                "spec": plinth_codec::tree!({
                    "request": plinth_codec::base64_text::encode(&text), "signerName": signer, "usages": plinth_codec::tree!(["client auth"]),
                }),
            });
            let seen = csr::read(&object);
            // The stored form, and another encoding.
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
            let strategy = plinth_kinds::of("certificates.k8s.io", "certificatesigningrequests");
            let errors = strategy.errors(&object);
            let is_valid = !errors.iter().any(|error| error.field == "spec.request");
            prop_assert_eq!(is_valid, seen.is_ok());
            let Ok(request) = seen else {
                // Nothing is admitted that cannot be signed.
                prop_assert!(restricted || signer != plinth_pki::CLIENT_SIGNER);
                prop_assert!(!is_n1 || signer == plinth_pki::CLIENT_SIGNER);
                continue;
            };
            let user = AUTHORITY.with(|authority| authenticated(&request, authority));
            let name = request.subject.common_name();
            prop_assert_eq!(user.as_ref().map(|user| user.name.as_str()), Some(name).filter(|name| !name.is_empty()));
            let Some(user) = user else { continue };
            let groups = [request.subject.organizations(), vec!["system:authenticated"]].concat();
            prop_assert_eq!(&user.groups, &groups);
            prop_assert_eq!(&user.uid, "");
            if signer == plinth_pki::CLIENT_SIGNER {
                prop_assert_eq!(restricted, groups.contains(&"system:masters"));
            } else {
                prop_assert_eq!(is_n1, user.name == "system:node:n1");
            }
        }
    }
}
