//! The status of a PodCertificateRequest: a signer issues a certificate for the requested key, or denies or
//! fails the request, once.
//!
//! Facts: kubernetes `pkg/apis/certificates/validation`, `ValidatePodCertificateRequestStatusUpdate`.

use plinth_api::Cause;
use plinth_codec::time::Timestamp;
use plinth_codec::{pem, Value};
use plinth_pki::{AlternativeNames, SubjectKey, CERTIFICATE_LABEL};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::requested_key::requested_key;
use crate::checks::comparison::same;
use crate::checks::conditions::conditions;
use crate::checks::Part;
use crate::path::{at, list, text};

const ISSUED: &str = "Issued";
/// The conditions that end a request.
pub(super) const OUTCOMES: [&str; 3] = [ISSUED, "Denied", "Failed"];

const CONDITIONS: &str = "status.conditions";
const CHAIN: &str = "status.certificateChain";
const NOT_BEFORE: &str = "status.notBefore";
const NOT_AFTER: &str = "status.notAfter";
const REFRESH: &str = "status.beginRefreshAt";
const MAX_CHAIN: usize = 100 * 1024;
const NOT_EMPTY: &str =
    "non-condition status fields must be empty when denying or failing the PodCertificateRequest";
const MINUTE: i64 = 60;
const SECOND_NANOS: i64 = 1_000_000_000;
/// The shortest lifetime, in seconds.
const MIN_LIFETIME: i64 = 60 * MINUTE;
/// How much clocks of signers may differ, in seconds.
const SKEW: i64 = 5 * MINUTE;
/// How far within a certificate's lifetime its renewal begins and ends, in seconds.
const MARGIN: i64 = 10 * MINUTE;

/// Validates a change of the status.
pub(super) fn validate_status(new: &Part<'_>, old: &Value) {
    let before = new.errors();
    outcome_conditions(new);
    conditions(new, CONDITIONS);
    if new.errors() > before {
        return;
    }
    let (now, stored) = (outcome(new.value()), outcome(old));
    let refuse_change = |why: &str| {
        if !same(new.at("status"), at(old, "status")) {
            new.invalid_unshown("status", why);
        }
    };
    match (stored, now) {
        (Some(_), _) => refuse_change("immutable after PodCertificateRequest is issued, denied, or failed"),
        (None, Some(ISSUED)) => issued(new, old),
        (None, Some(_)) => {
            if [CHAIN, NOT_BEFORE, NOT_AFTER, REFRESH].iter().any(|field| !new.is_empty(field)) {
                new.invalid_unshown("status", NOT_EMPTY);
            }
        }
        (None, None) => {
            refuse_change("status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"")
        }
    }
}

/// At most one of the outcomes, which is true, and no other condition.
fn outcome_conditions(request: &Part<'_>) {
    let mut is_known = false;
    for (i, condition) in list(request.value(), CONDITIONS).iter().enumerate() {
        let [kind, status] = ["type", "status"].map(|key| text(condition, key));
        let path = |key: &str| format!("{CONDITIONS}.[{i}].{key}");
        if !OUTCOMES.contains(&kind) {
            request.push(Cause::not_supported(path("type"), kind, &OUTCOMES));
            continue;
        }
        if is_known {
            let why = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            request.push(Cause::invalid(path("type"), kind, why));
        }
        is_known = true;
        if status != "True" {
            request.push(Cause::not_supported(path("status"), status, &["True"]));
        }
    }
}

/// The outcome of a request that has one.
fn outcome(request: &Value) -> Option<&'static str> {
    let conditions = list(request, CONDITIONS);
    let is_true = |kind: &&str| {
        let of_kind = |c: &&Value| text(c, "type") == *kind && text(c, "status") == "True";
        conditions.iter().any(|condition| of_kind(&condition))
    };
    OUTCOMES.into_iter().find(is_true)
}

/// A point of the status in time; `None` where it is absent.
fn time(request: &Part<'_>, field: &str) -> Option<Timestamp> {
    Timestamp::parse(request.text(field)).ok()
}

/// The certificates of a chain: the pod's first. An error where it is none.
fn issued(new: &Part<'_>, old: &Value) {
    let chain = new.text(CHAIN);
    if chain.len() > MAX_CHAIN {
        return new.at_most_bytes(CHAIN, chain, MAX_CHAIN);
    }
    let invalid = |why: &str| new.invalid(CHAIN, chain, why);
    let blocks = match pem::parse(chain.as_bytes()) {
        Ok(blocks) => blocks,
        // Upstream skips what it cannot read.
        Err(error) => return invalid(&error.to_string()),
    };
    let Some((first, rest)) = blocks.split_first() else {
        return invalid("issued certificate chain must contain at least one certificate");
    };
    if first.label != CERTIFICATE_LABEL {
        return invalid("issued certificate chain must consist entirely of CERTIFICATE PEM blocks");
    }
    let parsed = X509Certificate::from_der(&first.contents).ok().filter(|(rest, _)| rest.is_empty());
    let names = parsed.as_ref().and_then(|(_, leaf)| AlternativeNames::of_certificate(leaf));
    let (Some((_, leaf)), Some(names)) = (parsed, names) else {
        return invalid("leaf certificate does not parse as valid X.509");
    };
    let before = new.errors();
    alternative_names(new, &names);
    let requested = match requested_key(old) {
        Ok(key) => key,
        Err((field, why)) => return new.invalid_unshown(field, why),
    };
    if requested != SubjectKey::Other && SubjectKey::from_spki(leaf.public_key().raw) != Ok(requested) {
        return invalid("leaf certificate was not issued to the requested public key");
    }
    lifetime(new, &leaf, before);
    if new.errors() > before {
        return;
    }
    for block in rest {
        if block.label != CERTIFICATE_LABEL {
            return invalid("issued certificate chain must consist entirely of CERTFICATE PEM blocks");
        }
        if !matches!(X509Certificate::from_der(&block.contents), Ok(([], _))) {
            return invalid("intermediate certificate does not parse as valid X.509");
        }
    }
}

fn alternative_names(new: &Part<'_>, names: &AlternativeNames) {
    for name in &names.dns {
        let invalid = |why: &str| new.invalid(CHAIN, name.as_str(), why);
        if name.is_empty() {
            invalid("leaf certificate should not contain empty DNSName");
        }
        if name.contains("..") {
            invalid("leaf certificate's DNSName should not contain '..'");
        }
        if name.starts_with('.') || name.ends_with('.') {
            invalid("leaf certificate's DNSName should not start or end with '.'");
        }
    }
    for address in names.emails.iter().filter(|address| !is_mailbox(address)) {
        let why = "leaf certificate should not contain invalid EmailAddress";
        new.invalid(CHAIN, address.as_str(), why);
    }
}

/// `local@domain` of atoms with dots between (RFC 5322, 3.4.1); quoted local parts and bracketed domains are
/// not looked into.
fn is_mailbox(address: &str) -> bool {
    let is_atom_text = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&b);
    let is_dot_atom =
        |text: &str| text.split('.').all(|atom| !atom.is_empty() && atom.bytes().all(is_atom_text));
    let is_within = |text: &str, open: char, close: char| {
        text.len() > 1 && text.starts_with(open) && text.ends_with(close)
    };
    address.rsplit_once('@').is_some_and(|(local, domain)| {
        (is_dot_atom(local) || is_within(local, '"', '"'))
            && (is_dot_atom(domain) || is_within(domain, '[', ']'))
    })
}

/// The times of the status against those of the certificate and the request; that they are set alone where
/// there were errors `before`.
fn lifetime(new: &Part<'_>, leaf: &X509Certificate<'_>, before: usize) {
    const CONSISTENT: &str = "must be present and consistent with the issued certificate";
    let times = [NOT_BEFORE, NOT_AFTER, REFRESH].map(|field| time(new, field));
    let [Some(not_before), Some(not_after), Some(refresh)] = times else {
        let why = "must be present and in the range [notbefore+10min, notafter-10min]";
        for (field, why) in [(NOT_BEFORE, CONSISTENT), (NOT_AFTER, CONSISTENT), (REFRESH, why)] {
            new.required_if(time(new, field).is_none(), field, why);
        }
        return;
    };
    if new.errors() > before {
        return;
    }
    let invalid = |field: &str, time: Timestamp, why: &str| {
        new.invalid(field, time.to_rfc3339().as_str(), why);
    };
    let validity = leaf.validity();
    let (begin, end) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let of_leaf = |seconds| Timestamp { seconds, nanos: 0 };
    if not_before != of_leaf(begin) {
        let why = "must be set to the NotBefore time encoded in the leaf certificate";
        return invalid(NOT_BEFORE, not_before, why);
    }
    let now = Timestamp::now();
    let of_now = |skew: i64| Timestamp { seconds: now.seconds.saturating_add(skew), ..now };
    if not_before <= of_now(-SKEW) || not_before >= of_now(SKEW) {
        let why = "must be set to within 5 minutes of kube-apiserver's current time";
        return invalid(NOT_BEFORE, not_before, why);
    }
    if not_after != of_leaf(end) {
        let why = "must be set to the NotAfter time encoded in the leaf certificate";
        return invalid(NOT_AFTER, not_after, why);
    }
    let lifetime = end.saturating_sub(begin);
    // Upstream shows nanoseconds.
    let of_chain = |why: &str| new.invalid(CHAIN, lifetime.saturating_mul(SECOND_NANOS), why);
    if lifetime < MIN_LIFETIME {
        return of_chain("leaf certificate lifetime must be >= 1 hour");
    }
    let most = new.number("spec.maxExpirationSeconds");
    if lifetime > most {
        return of_chain(&format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})"));
    }
    if refresh < of_leaf(begin.saturating_add(MARGIN)) {
        return invalid(REFRESH, refresh, "must be at least 10 minutes after status.notBefore");
    }
    if refresh > of_leaf(end.saturating_sub(MARGIN)) {
        invalid(REFRESH, refresh, "must be at least 10 minutes before status.notAfter");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::requested_key::tests::request;
    use crate::checks::ErrorList;
    use plinth_codec::tree;
    use rcgen::{date_time_ymd, CertificateParams, KeyPair};

    fn conditions(of: &[(&str, &str)]) -> Value {
        let condition = |(kind, status): &(&str, &str)| {
            tree!({
                "type": *kind,
                "status": *status,
                "reason": "R",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        of.iter().map(condition).collect::<Vec<_>>().into()
    }

    fn with_status(request: &Value, status: Value) -> Value {
        let mut request = request.clone();
        request.as_object_mut().unwrap().insert("status", status);
        request
    }

    fn errors(new: &Value, old: &Value) -> Vec<String> {
        let errors = ErrorList::of(new, |new| validate_status(new, old));
        errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    /// The status of a certificate for that key, which begins so many seconds from now, and lasts so long.
    fn issued(
        key: &KeyPair,
        begin: i64,
        lifetime: i64,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Value {
        let begin = Timestamp::now().seconds + begin;
        let mut params = CertificateParams::default();
        let at = |seconds: i64| {
            date_time_ymd(1970, 1, 1)
                .checked_add(std::time::Duration::from_secs(seconds as u64).try_into().unwrap())
        };
        (params.not_before, params.not_after) = (at(begin).unwrap(), at(begin + lifetime).unwrap());
        change(&mut params);
        let time = |seconds| Timestamp { seconds, nanos: 0 }.to_rfc3339().to_string();
        tree!({
            "conditions": conditions(&[("Issued", "True")]),
            "certificateChain": params.self_signed(key).unwrap().pem(),
            "notBefore": time(begin),
            "notAfter": time(begin + lifetime),
            "beginRefreshAt": time(begin + lifetime / 2),
        })
    }

    fn without(mut status: Value, change: &[(&str, Value)]) -> Value {
        for (field, value) in change {
            status.as_object_mut().unwrap().insert(*field, value.clone());
        }
        status
    }

    #[test]
    fn certificates_by_table() {
        const HOUR: i64 = 3600;
        let (old, key) = request();
        let other = KeyPair::generate().unwrap();
        let good = || issued(&key, 0, 24 * HOUR, |_| ());
        let named = |name: &str| {
            issued(&key, 0, 24 * HOUR, |params| {
                params.subject_alt_names = vec![rcgen::SanType::DnsName(name.try_into().unwrap())];
            })
        };
        let chain = good().str_at(&["certificateChain"]).unwrap().to_owned();
        let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let label = "-----BEGIN KEY-----\nAAAA\n-----END KEY-----\n";
        assert_eq!(errors(&with_status(&old, good()), &old), [""; 0]);
        assert_eq!(
            errors(
                &with_status(
                    &old,
                    without(
                        good(),
                        &[
                            ("certificateChain", format!("{chain}{chain}").into()),
                            ("notBefore", good().get("notBefore").unwrap().clone())
                        ]
                    )
                ),
                &old
            )
            .len(),
            0
        );
        let rows = [
            (issued(&other, 0, 24 * HOUR, |_| ()), "was not issued to the requested public key"),
            (issued(&key, -400, 24 * HOUR, |_| ()), "Z\": must be set to within 5 minutes of kube-"),
            (
                issued(&key, 0, HOUR - 1, |_| ()),
                "Invalid value: 3599000000000: leaf certificate lifetime must be >=",
            ),
            (
                issued(&key, 0, 25 * HOUR, |_| ()),
                "90000000000000: leaf certificate lifetime must be <= spec.maxEx",
            ),
            (named("a..b"), "leaf certificate's DNSName should not contain '..'"),
            (named(".b"), "leaf certificate's DNSName should not start or end with '.'"),
            (
                without(good(), &[("notBefore", Value::Null)]),
                "status.notBefore: Required value: must be present",
            ),
            (
                without(good(), &[("notAfter", "2026-01-01T00:00:00Z".into())]),
                "status.notAfter: Invalid value: \"2026-01-01T00:00:00Z\": must be set to the NotAfter",
            ),
            (
                without(good(), &[("beginRefreshAt", "2026-01-01T00:00:00Z".into())]),
                "must be at least 10 minutes after",
            ),
            (
                without(good(), &[("beginRefreshAt", "2999-01-01T00:00:00Z".into())]),
                "must be at least 10 minutes before",
            ),
            (without(good(), &[("certificateChain", "".into())]), "must contain at least one certificate"),
            (without(good(), &[("certificateChain", junk.into())]), "leaf certificate does not parse"),
            (
                without(good(), &[("certificateChain", label.into())]),
                "consist entirely of CERTIFICATE PEM blocks",
            ),
            (
                without(good(), &[("certificateChain", format!("{chain}{label}").into())]),
                "consist entirely of CERTFICATE",
            ),
            (
                without(good(), &[("certificateChain", format!("{chain}{junk}").into())]),
                "intermediate certificate does",
            ),
            (without(good(), &[("certificateChain", "x".repeat(MAX_CHAIN + 1).into())]), "Too long"),
        ];
        for (status, expected) in rows {
            let found = errors(&with_status(&old, status), &old);
            assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
        }
    }

    #[test]
    fn requests_end_once() {
        let (old, _) = request();
        let ended = |kind| with_status(&old, tree!({ "conditions": conditions(&[(kind, "True")]) }));
        let denied = ended("Denied");
        assert_eq!(errors(&denied, &old), [""; 0]);
        assert_eq!(errors(&denied, &denied), [""; 0]);
        let status = |of: &[(&str, &str)]| with_status(&old, tree!({ "conditions": conditions(of) }));
        let chained = with_status(
            &old,
            tree!({ "conditions": conditions(&[("Failed", "True")]), "certificateChain": "x" }),
        );
        for (new, old, expected) in [
            (
                &ended("Failed"),
                &denied,
                "status: Invalid value: immutable after PodCertificateRequest is issued",
            ),
            (&old, &denied, "status: Invalid value: immutable after PodCertificateRequest is issued"),
            (&chained, &old, "status: Invalid value: non-condition status fields must be empty when denying"),
            (
                &status(&[("Denied", "False")]),
                &old,
                "status.conditions.[0].status: Unsupported value: \"False\"",
            ),
            (&status(&[("Other", "True")]), &old, "status.conditions.[0].type: Unsupported value: \"Other\""),
            (
                &status(&[("Denied", "True"), ("Failed", "True")]),
                &old,
                "status.conditions.[1].type: Invalid value",
            ),
            (
                &with_status(&old, tree!({ "certificateChain": "x" })),
                &old,
                "status: Invalid value: status is immutable unless transitioning to \"Issued\"",
            ),
        ] {
            let found = errors(new, old);
            assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
        }
    }

    #[test]
    fn mailboxes_by_table() {
        for (address, expected) in [
            ("a@b.example", true),
            ("a.b+c@[127.0.0.1]", true),
            ("\"a b\"@b", true),
            ("a", false),
            ("@b", false),
            ("a..b@c", false),
            ("a@b@c", false),
        ] {
            assert_eq!(is_mailbox(address), expected, "{address}");
        }
    }
}
