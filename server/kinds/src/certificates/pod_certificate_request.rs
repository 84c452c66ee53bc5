//! PodCertificateRequest (`certificates.k8s.io`): a kubelet asks a signer for a certificate of a pod. The
//! version that has the kind is off by default, and so is its gate (`PodCertificateRequest`).
//!
//! Facts: kubernetes `pkg/registry/certificates/podcertificaterequest` and
//! `pkg/apis/certificates/validation`.

use plinth_api::Cause;
use plinth_codec::apply::Reset;
use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::{names, Value};
use plinth_pki::{CertificateRequest, SubjectKey};

use super::issued_certificate;
use super::requested_key::{bytes, key_of, PUBLIC_KEY, REQUEST};
use super::signer_name::{is_kubernetes_signer, signer_name};
use crate::checks::qualified_names::user_annotations;
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, Field};
use crate::defaults::Literal::Int;
use crate::path::{list, text};
use crate::strategy::{Strategy, BASE, STATUS_KEEPS_METADATA};

pub(crate) const STRATEGY: Strategy = Strategy {
    unconditional_update: false,
    defaults: DEFAULTS,
    immutable: &["spec"],
    validate_create,
    status_keeps: STATUS_KEEPS_METADATA,
    validate_status: issued_certificate::validate_status,
    columns: COLUMNS,
    selectable: Selectable::new(&[
        SelectableField::NAME,
        SelectableField::new("spec.signerName"),
        SelectableField::new("spec.podName"),
        SelectableField::new("spec.nodeName"),
    ]),
    reset_fields: &[("", Reset::Nothing)],
    ..BASE
};

const DAY: i64 = 24 * 60 * 60;
const DEFAULTS: &[DefaultRule] = &[Field("spec.maxExpirationSeconds", Int(DAY))];

const SIGNER: &str = "spec.signerName";
const EXPIRATION: &str = "spec.maxExpirationSeconds";
/// The shortest lifetime of certificates that can be requested, in seconds.
pub(crate) const MIN_EXPIRATION: i64 = 60 * 60;
/// The longest lifetime of certificates, in seconds.
pub(crate) const MAX_EXPIRATION: i64 = 91 * DAY;
/// The longest lifetime of certificates of Kubernetes' own signers, in seconds.
pub(crate) const MAX_KUBERNETES_EXPIRATION: i64 = DAY;
const MAX_UID: usize = 128;
const MAX_KEY: usize = 10 * 1024;

const PROOF: &str = "spec.proofOfPossession";

fn validate_create(request: &Part<'_>) {
    signer_name(&request.field(SIGNER));
    user_annotations(request, "spec.unverifiedUserAnnotations");
    for (name, uid) in [
        ("spec.podName", "spec.podUID"),
        ("spec.serviceAccountName", "spec.serviceAccountUID"),
        ("spec.nodeName", "spec.nodeUID"),
    ] {
        request.check_text(name, request.text(name), names::dns1123_subdomain_errors);
        if request.text(uid).is_empty() {
            request.invalid(uid, "", "must not be empty");
        }
        request.at_most_bytes(uid, request.text(uid), MAX_UID);
    }
    let most = match is_kubernetes_signer(request.text(SIGNER)) {
        true => MAX_KUBERNETES_EXPIRATION,
        false => MAX_EXPIRATION,
    };
    request.in_range(EXPIRATION, MIN_EXPIRATION, most, || {
        format!("must be in the range [{MIN_EXPIRATION}, {most}]").into()
    });
    match [REQUEST, PUBLIC_KEY, PROOF].map(|field| request.text(field).is_empty()) {
        [false, true, true] => pkcs10_request(request),
        [true, false, false] => public_key(request),
        _ => {
            let why = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
            request.invalid_unshown("spec", why);
        }
    }
}

/// The key for which the certificate is requested, as kubelets before v1.35 sent it.
fn public_key(request: &Part<'_>) {
    let [key, proof] = [PUBLIC_KEY, PROOF].map(|field| bytes(request.value(), field));
    for (field, length) in [(PUBLIC_KEY, key.len()), (PROOF, proof.len())] {
        if length > MAX_KEY {
            return request.push(Cause::too_long(field, MAX_KEY));
        }
    }
    let invalid = |why: &str| request.invalid(PUBLIC_KEY, request.text(PUBLIC_KEY), why);
    let Ok(subject) = SubjectKey::from_spki(&key) else {
        return invalid("must be a valid PKIX-serialized public key");
    };
    // Upstream forgets a curve in this message.
    if let Err(unusable) = usable(&subject, "elliptic public keys must use curve P256 or P384") {
        return match unusable {
            Unusable::Kind => invalid(UNKNOWN_KIND),
            Unusable::Size(shown, why) => request.invalid(PUBLIC_KEY, shown, why),
        };
    }
    if !subject.has_signed(request.text("spec.podUID").as_bytes(), &proof) {
        request.invalid_unshown(PROOF, "could not verify proof-of-possession signature");
    }
}

/// A signed request that has a key and nothing else; signers refuse what else it may have.
fn pkcs10_request(request: &Part<'_>) {
    let der = bytes(request.value(), REQUEST);
    if der.len() > MAX_KEY {
        return request.push(Cause::too_long(REQUEST, MAX_KEY));
    }
    let parsed = CertificateRequest::from_der(&der).ok();
    let Some((key, parsed)) = parsed.and_then(|parsed| Some((key_of(&parsed)?, parsed))) else {
        return request.invalid_unshown(REQUEST, "must be a valid PKCS#10 CSR");
    };
    match usable(&key, "elliptic public keys must use curve P256, P384, or P521") {
        Err(Unusable::Kind) => request.invalid_unshown(REQUEST, UNKNOWN_KIND),
        Err(Unusable::Size(shown, why)) => request.invalid(REQUEST, shown, why),
        Ok(()) if parsed.check_signature().is_err() => {
            request.invalid_unshown(REQUEST, "invalid signature");
        }
        Ok(()) => {}
    }
}

const UNKNOWN_KIND: &str = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";

/// Why a key cannot be used.
enum Unusable {
    /// It is of another kind than those that sign.
    Kind,
    /// The curve or size, and the message.
    Size(String, &'static str),
}

fn usable(key: &SubjectKey, curves: &'static str) -> Result<(), Unusable> {
    match key {
        SubjectKey::Ed25519(_) | SubjectKey::Ecdsa("P-256" | "P-384" | "P-521", _) => Ok(()),
        SubjectKey::Ecdsa(curve, _) => Err(Unusable::Size(format!("curve {curve}"), curves)),
        SubjectKey::Rsa(..) => match key.rsa_bits() {
            3072 | 4096 => Ok(()),
            bits => {
                let why = "RSA keys must have modulus size 3072 or 4096";
                Err(Unusable::Size(format!("{bits}-bit modulus"), why))
            }
        },
        SubjectKey::Other => Err(Unusable::Kind),
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("PodName", "spec.podName", ""),
    Column::text("ServiceAccountName", "spec.serviceAccountName", ""),
    Column::text("NodeName", "spec.nodeName", ""),
    Column::text("SignerName", SIGNER, ""),
    Column::computed("State", &["status.conditions[].type"], state_cell),
    Column::labels("UnverifiedUserAnnotations", "spec.unverifiedUserAnnotations"),
];

fn state_cell(request: &Value, _: Now) -> Cell<'_> {
    let mut kinds = list(request, "status.conditions").iter().map(|condition| text(condition, "type"));
    let last = kinds.rfind(|kind| issued_certificate::OUTCOMES.contains(kind));
    last.unwrap_or("Pending").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::requested_key::tests::request;
    use plinth_codec::{base64_text, tree};

    fn errors(change: impl FnOnce(&mut plinth_codec::Map)) -> Vec<String> {
        let (mut request, _) = request();
        STRATEGY.default(&mut request);
        change(request.object_at_mut(&["spec"]).unwrap());
        let errors = STRATEGY.create_errors(&request);
        errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn requests_by_table() {
        assert_eq!(errors(|_| ()), [""; 0]);
        let long = "x".repeat(MAX_UID + 1);
        let rows: &[(&str, Value, &str)] = &[
            ("signerName", "s".into(), "spec.signerName: Invalid value: \"s\": must be a fully qualified"),
            ("podName", "".into(), "spec.podName: Invalid value: \"\": a lowercase RFC 1123 subdomain"),
            ("podUID", "".into(), "spec.podUID: Invalid value: \"\": must not be empty"),
            ("nodeUID", long.into(), "spec.nodeUID: Too long: may not be more than 128 bytes"),
            ("serviceAccountName", "A".into(), "spec.serviceAccountName: Invalid value: \"A\""),
            (
                "maxExpirationSeconds",
                3599.into(),
                "Invalid value: 3599: must be in the range [3600, 7862400]",
            ),
            ("unverifiedUserAnnotations", tree!({ "a": "b" }), "\"a\": must be a domain-prefixed key"),
            ("stubPKCS10Request", "AAAA".into(), "spec.stubPKCS10Request: Invalid value: must be a valid"),
            ("stubPKCS10Request", "".into(), "spec: Invalid value: exactly one of (stubPKCS10Request) or"),
            ("pkixPublicKey", "AAAA".into(), "spec: Invalid value: exactly one of (stubPKCS10Request) or"),
        ];
        for (field, value, expected) in rows {
            let found = errors(|spec| drop(spec.insert(*field, value.clone())));
            assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
        }
        let of_kubernetes = errors(|spec| {
            spec.insert("signerName", "a.kubernetes.io/s");
            spec.insert("maxExpirationSeconds", DAY + 1);
        });
        assert_eq!(
            of_kubernetes,
            ["spec.maxExpirationSeconds: Invalid value: 86401: must be in the range [3600, 86400]"]
        );
    }

    fn pkcs10(algorithm: &'static rcgen::SignatureAlgorithm) -> Vec<u8> {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        rcgen::CertificateParams::default().serialize_request(&key).unwrap().der().to_vec()
    }

    #[test]
    fn keys_prove_possession() {
        let with =
            |der: &[u8]| errors(|spec| drop(spec.insert("stubPKCS10Request", base64_text::encode(der))));
        for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384] {
            assert_eq!(with(&pkcs10(algorithm)), [""; 0]);
        }
        let mut forged = pkcs10(&rcgen::PKCS_ED25519);
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(with(&forged), ["spec.stubPKCS10Request: Invalid value: invalid signature"]);

        let of_key = |name: &str, proof: &str| {
            let path =
                std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../pki/src/testdata/possession");
            let read = |file: String| base64_text::encode(std::fs::read(path.join(file)).unwrap());
            errors(|spec| {
                spec.remove("stubPKCS10Request");
                spec.insert("pkixPublicKey", read(format!("{name}.der")));
                spec.insert("proofOfPossession", read(format!("{proof}.sig")));
            })
        };
        for name in ["ed25519", "p256", "p384", "p521", "rsa3072", "rsa3072-long-salt"] {
            assert_eq!(of_key(name, name), [""; 0], "{name}");
        }
        for (name, expected) in [
            ("p256", "proofOfPossession: Invalid value: could not verify proof-of-possession signature"),
            ("p224", "pkixPublicKey: Invalid value: \"curve P-224\": elliptic public keys must use"),
            ("x25519", "pkixPublicKey: Invalid value: \"MCowBQYDK2VuAyEA"),
            ("x448", "must be a valid PKIX-serialized public key"),
        ] {
            let found = of_key(name, "p384");
            assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
        }
    }

    #[test]
    fn the_spec_stays() {
        let (old, _) = request();
        let mut new = old.clone();
        new.object_at_mut(&["metadata"]).unwrap().insert("labels", tree!({ "a": "b" }));
        assert_eq!(STRATEGY.update_errors(&new, &old), []);
        new.object_at_mut(&["spec"]).unwrap().insert("podName", "other");
        let errors = STRATEGY.update_errors(&new, &old);
        assert_eq!((errors.len(), errors[0].field.as_str()), (1, "spec"));
    }

    #[test]
    fn rows_show_the_outcome() {
        let state = |kinds: &[&str]| {
            let conditions = kinds.iter().map(|kind| tree!({ "type": *kind })).collect::<Vec<_>>();
            let request = tree!({ "status": tree!({ "conditions": conditions }) });
            let Cell::Text(text) = state_cell(&request, Now::from(std::time::SystemTime::UNIX_EPOCH)) else {
                panic!("no text")
            };
            text.into_owned()
        };
        assert_eq!((state(&[]), state(&["Issued"])), ("Pending".to_owned(), "Issued".to_owned()));
        assert_eq!(state(&["Denied", "Other"]), "Denied");
    }
}
