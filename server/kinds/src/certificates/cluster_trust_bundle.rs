//! ClusterTrustBundle (`certificates.k8s.io`): certificates of authorities that workloads trust, of a signer
//! or of none. Both the versions that have the kind and its gate (`ClusterTrustBundle`) are off by default.
//!
//! Facts: kubernetes `pkg/registry/certificates/clustertrustbundle` and `pkg/apis/certificates/validation`.

use std::collections::BTreeMap;

use plinth_codec::pem::{self, Block};
use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::table::Column;
use plinth_codec::{names, Value};
use plinth_pki::CERTIFICATE_LABEL;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::signer_name::signer_name;
use crate::checks::Part;
use crate::path::text;
use crate::strategy::{Conversion, Deprecation, NameRule, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    name: NameRule::ByObject(|bundle, name| name_errors(name, text(bundle, SIGNER))),
    unconditional_update: false,
    immutable: &[SIGNER],
    validate,
    validate_create: trust_bundle,
    validate_update,
    columns: &[Column::NAME, Column::text("SignerName", SIGNER, "<none>")],
    selectable: Selectable::new(&[SelectableField::NAME, SelectableField::new(SIGNER)]),
    deprecations: &[Deprecation::new(
        "v1alpha1",
        "certificates.k8s.io/v1alpha1 ClusterTrustBundle is deprecated in v1.34+, unavailable in v1.37+",
        "1.37",
    )],
    conversions: &[Conversion::same("v1alpha1", ("certificates.k8s.io", "v1beta1"))],
    ..BASE
};

const SIGNER: &str = "spec.signerName";
const BUNDLE: &str = "spec.trustBundle";
const MAX_BUNDLE: usize = 1024 * 1024;

fn validate(bundle: &Part<'_>) {
    if !bundle.text(SIGNER).is_empty() {
        signer_name(&bundle.field(SIGNER));
    }
}

/// A bundle of a signer begins with the signer's name, which no other bundle may have.
fn name_errors(name: &str, signer: &str) -> Vec<String> {
    if signer.is_empty() {
        return match name.contains(':') {
            true => vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()],
            false => names::dns1123_subdomain_errors(name),
        };
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    match name.strip_prefix(&prefix) {
        Some(rest) => names::dns1123_subdomain_errors(rest),
        None => {
            vec![format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}")]
        }
    }
}

/// A stored bundle that stays as it is may have been accepted by other rules.
fn validate_update(new: &Part<'_>, old: &Value) {
    if new.text(BUNDLE) != text(old, BUNDLE) {
        trust_bundle(new);
    }
}

/// Different certificates of authorities, one at least.
fn trust_bundle(bundle: &Part<'_>) {
    let text = bundle.text(BUNDLE);
    if text.len() > MAX_BUNDLE {
        return bundle.at_most_bytes(BUNDLE, text, MAX_BUNDLE);
    }
    let invalid = |why: &str| bundle.invalid(BUNDLE, "<value omitted>", why);
    let blocks = match pem::parse(text.as_bytes()) {
        Ok(blocks) => blocks,
        // Upstream skips what it cannot read.
        Err(error) => return invalid(&error.to_string()),
    };
    let before = bundle.errors();
    let mut anchors: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
    for (i, block) in blocks.iter().enumerate() {
        match anchor_error(block) {
            Some(why) => invalid(&format!("entry {i} {why}")),
            None => anchors.entry(&block.contents).or_default().push(i),
        }
    }
    if bundle.errors() > before {
        return;
    }
    if anchors.is_empty() {
        invalid("at least one trust anchor must be provided");
    }
    for indices in anchors.into_values().filter(|indices| indices.len() > 1) {
        let indices: Vec<String> = indices.iter().map(usize::to_string).collect();
        invalid(&format!("duplicate trust anchor (indices [{}])", indices.join(" ")));
    }
}

/// Why a block is no certificate of an authority.
fn anchor_error(block: &Block) -> Option<String> {
    if block.label != CERTIFICATE_LABEL {
        return Some(format!("has bad block type: {}", block.label));
    }
    if block.has_headers {
        return Some("has PEM block headers".to_owned());
    }
    let Ok(([], certificate)) = X509Certificate::from_der(&block.contents) else {
        return Some("does not parse as X.509".to_owned());
    };
    let constraints = certificate.basic_constraints();
    match constraints {
        Err(_) => Some("has invalid basic constraints".to_owned()),
        Ok(constraints) => {
            let is_authority = constraints.is_some_and(|constraints| constraints.value.ca);
            (!is_authority).then(|| "does not have the CA bit set".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::tree;

    fn certificate(is_authority: bool) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        if is_authority {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        params.self_signed(&key).unwrap().pem()
    }

    fn bundle(name: &str, signer: &str, certificates: &str) -> Value {
        tree!({
            "metadata": tree!({ "name": name }),
            "spec": tree!({ "signerName": signer, "trustBundle": certificates }),
        })
    }

    fn errors(bundle: &Value) -> Vec<String> {
        let errors = STRATEGY.create_errors(bundle);
        errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn a_name_begins_with_the_signer() {
        for (name, signer, expected) in [
            ("roots", "", ""),
            ("example.com:s:roots", "example.com/s", ""),
            ("a:b", "", "must not have \":\" in its name"),
            ("roots", "example.com/s", "must be named with prefix example.com:s:"),
            ("example.com:s:", "example.com/s", "a lowercase RFC 1123 subdomain"),
        ] {
            let found = name_errors(name, signer);
            let is_expected = match expected {
                "" => found.is_empty(),
                expected => found.len() == 1 && found[0].contains(expected),
            };
            assert!(is_expected, "{name} {signer}: {found:?}");
        }
    }

    #[test]
    fn anchors_are_different_certificates_of_authorities() {
        let [one, other, leaf] = [certificate(true), certificate(true), certificate(false)];
        let of_nobody = errors(&bundle("nodomain:roots", "nodomain", &one));
        assert!(of_nobody.len() == 1 && of_nobody[0].contains("fully qualified domain"), "{of_nobody:?}");
        assert_eq!(errors(&bundle("roots", "", &format!("# of the company\n{one}{other}"))), [""; 0]);
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let headers = one.replace("CERTIFICATE-----\nM", "CERTIFICATE-----\na: b\n\nM");
        for (certificates, expected) in [
            (String::new(), "at least one trust anchor must be provided"),
            (format!("{one}{other}{one}"), "duplicate trust anchor (indices [0 2])"),
            (format!("{one}{leaf}"), "entry 1 does not have the CA bit set"),
            (key.to_owned(), "entry 0 has bad block type: PRIVATE KEY"),
            (junk.to_owned(), "entry 0 does not parse as X.509"),
            (headers, "entry 0 has PEM block headers"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n".to_owned(), "PEM block without an end"),
            ("x".repeat(MAX_BUNDLE + 1), "Too long"),
        ] {
            let found = errors(&bundle("roots", "", &certificates));
            assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
            assert!(found[0].starts_with("spec.trustBundle: "), "{found:?}");
        }
    }

    #[test]
    fn what_is_stored_is_not_parsed_again() {
        let old = bundle("roots", "", "of an older version");
        let relabeled = tree!({
            "metadata": tree!({ "name": "roots", "labels": tree!({ "a": "b" }) }),
            "spec": old.get("spec").unwrap().clone(),
        });
        assert_eq!(STRATEGY.changed_errors(&relabeled, &old), []);
        assert_eq!(STRATEGY.update_errors(&relabeled, &old), []);
        let changed = bundle("roots", "", "of nobody");
        assert_eq!(STRATEGY.update_errors(&changed, &old).len(), 1);
        let signed = bundle("roots", "example.com/s", "of an older version");
        assert!(STRATEGY.update_errors(&signed, &old)[0].message.contains("field is immutable"));
    }
}
