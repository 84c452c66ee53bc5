//! CertificateSigningRequests: what a request may be, and which of its parts each subresource may change
//! (kubernetes `pkg/registry/certificates` and `pkg/apis/certificates/validation`).

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use plinth_api::{timestamp_now, User, UserFields};
use plinth_codec::apply::Reset;
use plinth_codec::error::quoted;
use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::table::{condition, Cell, Column, Now};
use plinth_codec::{base64_text, pem, time, Value};
use plinth_pki::{
    allowed_usages, CertificateRequest, RequestError, CERTIFICATE_LABEL, LEGACY_UNKNOWN_SIGNER,
};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::signer_name::signer_name;
use crate::checks::Check::{By, EachUnique, Required, RequiredOneOf, Within};
use crate::checks::Part;
use crate::path::{at, list, text};
use crate::strategy::{NameRule, Strategy, Unwritten, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    name: NameRule::PathSegment,
    record_requester,
    prepare_for_update,
    unwritten,
    validate,
    validate_status: |new, _| validate(new),
    prepare_status,
    validate_subresource,
    columns: COLUMNS,
    selectable: Selectable::new(&[SelectableField::NAME, SelectableField::new("spec.signerName")]),
    reset_fields: &[
        ("", Reset::Except(&["spec", "status"])),
        ("approval", Reset::Except(&["spec", "status.certificate"])),
        ("status", Reset::Except(&["spec", "status.conditions"])),
    ],
    ..BASE
};

/// An approval changes the conditions, and nothing else in the status.
fn unwritten<'v>(subresource: &str, new: &'v Value, old: &'v Value) -> Option<Vec<Unwritten<'v>>> {
    if subresource != "approval" {
        return None;
    }
    let mut status = old.get("status").cloned().unwrap_or_else(Value::object);
    if let Some(status) = status.as_object_mut() {
        match new.at(&["status", "conditions"]) {
            Some(conditions) => status.insert("conditions", conditions.clone()),
            None => status.remove("conditions"),
        };
    }
    Some(vec![("status", Some(Cow::Owned(status)))])
}

/// The minimum of `spec.expirationSeconds`.
const MIN_EXPIRATION: i64 = 600;

/// The conditions of a decision: their status can only be `True`, and they are never removed.
const DECISIONS: [&str; 3] = ["Approved", "Denied", "Failed"];

/// Records the requester, on whom approvers and signers rely. Empties the status, whatever admission webhooks
/// put there.
fn record_requester(request: &mut Value, user: &User) {
    if let Some(object) = request.as_object_mut() {
        object.insert("status", Value::object());
    }
    let Some(spec) = request.object_at_mut(&["spec"]) else { return };
    for key in ["username", "uid", "groups", "extra"] {
        spec.remove(key);
    }
    user.insert_into(spec, UserFields::USER_INFO);
}

/// The spec is immutable; conditions get their timestamps.
fn prepare_for_update(new: &mut Value, old: &Value) {
    if let (Some(object), Some(spec)) = (new.as_object_mut(), old.get("spec")) {
        object.insert("spec", spec.clone());
    }
    let now = timestamp_now();
    let before: HashMap<(Option<&str>, Option<&str>), Option<&str>> = conditions(old)
        .iter()
        .rev()
        .map(|other| {
            let [kind, status, time] =
                ["type", "status", "lastTransitionTime"].map(|key| other.str_at(&[key]));
            ((kind, status), time)
        })
        .collect();
    let list = new.get_mut("status").and_then(|s| s.get_mut("conditions")).and_then(Value::as_array_mut);
    for condition in list.into_iter().flatten().filter_map(Value::as_object_mut) {
        let absent = |condition: &plinth_codec::Map, key: &str| condition.get(key).is_none_or(Value::is_null);
        if absent(condition, "lastUpdateTime") {
            condition.insert("lastUpdateTime", now.as_str());
        }
        if absent(condition, "lastTransitionTime") {
            let key = ["type", "status"].map(|key| condition.get(key).and_then(Value::as_str));
            let earlier = before.get(&(key[0], key[1])).copied().flatten();
            condition.insert("lastTransitionTime", earlier.unwrap_or(&now));
        }
    }
}

/// A write of the status keeps the stored decisions, whatever was sent for them. Decisions that it adds or
/// removes are left for validation to refuse.
fn prepare_status(new: &mut Value, old: &Value) {
    for kind in ["Approved", "Denied"] {
        let is_kind = |condition: &&Value| condition.str_at(&["type"]) == Some(kind);
        let kept: Vec<&Value> = conditions(old).iter().filter(is_kind).collect();
        if kept.len() != conditions(new).iter().filter(is_kind).count() {
            continue;
        }
        let list = new.get_mut("status").and_then(|s| s.get_mut("conditions")).and_then(Value::as_array_mut);
        let sent = list.into_iter().flatten().filter(|condition| is_kind(&&**condition));
        sent.zip(kept).for_each(|(sent, kept)| *sent = kept.clone());
    }
    prepare_for_update(new, old);
}

fn conditions(request: &Value) -> &[Value] {
    request.list_at(&["status", "conditions"])
}

fn texts(list: Option<&Value>) -> Vec<&str> {
    list.and_then(Value::as_array).unwrap_or_default().iter().filter_map(Value::as_str).collect()
}

/// The requested usages.
pub fn usages(request: &Value) -> Vec<&str> {
    texts(request.at(&["spec", "usages"]))
}

/// Whether the request has a condition of that type.
pub fn has(request: &Value, kind: &str) -> bool {
    conditions(request).iter().any(|condition| condition.str_at(&["type"]) == Some(kind))
}

/// Parses `spec.request` (PKCS#10) without checking its signature, that is, possession of the key. Everything
/// that acts on a request uses this value.
///
/// # Errors
/// [`RequestError`].
pub fn parse(request: &Value) -> Result<CertificateRequest, RequestError> {
    // Invalid base64 was refused when the body was decoded.
    let text = base64_text::decode(request.str_at(&["spec", "request"]).unwrap_or_default());
    CertificateRequest::parse(&text.unwrap_or_default())
}

/// As [`parse`], and checks the signature.
///
/// # Errors
/// [`RequestError`].
pub fn read(request: &Value) -> Result<CertificateRequest, RequestError> {
    let parsed = parse(request)?;
    parsed.check_signature()?;
    Ok(parsed)
}

/// Validates a request.
fn validate(request: &Part<'_>) {
    if let Err(why) = read(request.value()) {
        request.invalid("spec.request", request.shown("spec.request"), &why.to_string());
    }
    let usages = usages(request.value());
    if usages.is_empty() {
        request.required("spec.usages", "");
    }
    request.check(&[EachUnique("spec.usages", "", &[By(usage)])]);
    const SIGNER: &str = "spec.signerName";
    match request.text(SIGNER) {
        LEGACY_UNKNOWN_SIGNER => {
            let why = "the legacy signerName is not allowed via this API version";
            request.invalid(SIGNER, LEGACY_UNKNOWN_SIGNER, why);
        }
        _ => signer_name(&request.field(SIGNER)),
    }
    const SHORT: &str = "may not specify a duration less than 600 seconds (10 minutes)";
    request.check(&[Within("spec.expirationSeconds", MIN_EXPIRATION, i64::MAX, SHORT)]);
    validate_conditions(request);
    if let Some(why) = certificate_error(request.value()) {
        request.invalid("status.certificate", "<certificate data>", &why);
    }
}

fn usage(usage: &Part<'_>) {
    let allowed: Vec<&str> = allowed_usages().collect();
    usage.one_of("", &allowed);
}

fn validate_conditions(request: &Part<'_>) {
    let mut seen = HashSet::new();
    let (mut approved, mut denied) = (false, false);
    for condition in request.each("status.conditions") {
        let kind = condition.text("type");
        condition.check(&[Required("type", "")]);
        condition.check(match DECISIONS.contains(&kind) {
            true => &[RequiredOneOf("status", &["True"])],
            false => &[RequiredOneOf("status", &["False", "True", "Unknown"])],
        });
        approved |= kind == "Approved";
        denied |= kind == "Denied";
        if approved && denied && matches!(kind, "Approved" | "Denied") {
            let why = "Approved and Denied conditions are mutually exclusive";
            request.invalid("status.conditions", kind, why);
        }
        condition.unique("type", kind, &mut seen);
    }
}

/// The error of `status.certificate`, if any.
fn certificate_error(request: &Value) -> Option<String> {
    let text = request.str_at(&["status", "certificate"]).filter(|text| !text.is_empty())?;
    let text = base64_text::decode(text).unwrap_or_default();
    let mut is_none = true;
    let blocks = match pem::parse(&text) {
        Ok(blocks) => blocks,
        Err(error) => return Some(error.to_string()),
    };
    for block in blocks {
        if block.label != CERTIFICATE_LABEL {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {}", quoted(&block.label)));
        }
        if block.has_headers {
            return Some("no PEM block headers are permitted".into());
        }
        is_none = false;
        if block.contents.is_empty() {
            return Some("found CERTIFICATE PEM block containing 0 certificates".into());
        }
        // A PEM block may hold several certificates.
        let mut rest = block.contents.as_slice();
        while !rest.is_empty() {
            rest = match X509Certificate::from_der(rest) {
                Ok((rest, _)) => rest,
                Err(_) => return Some("x509: malformed certificate".into()),
            };
        }
    }
    is_none.then(|| "must contain at least one CERTIFICATE PEM block".into())
}

/// Validates an update through a subresource: `approval` adds decisions, `status` sets the certificate, and
/// neither can be removed.
fn validate_subresource(subresource: &str, new: &Part<'_>, old: &Value) {
    let of = |request: &Value, kind: &str| -> Vec<Value> {
        let of_kind = conditions(request).iter().filter(|c| c.str_at(&["type"]) == Some(kind));
        of_kind.cloned().collect()
    };
    let forbid = |what: &str, kind: &str| {
        new.forbidden("status.conditions", &format!("updates may not {what} a condition of type {kind:?}"));
    };
    let count = |request: &Value, kind: &str| of(request, kind).len();
    for kind in DECISIONS.into_iter().filter(|kind| count(new.value(), kind) < count(old, kind)) {
        forbid("remove", kind);
    }
    for kind in ["Approved", "Denied"].into_iter().filter(|_| subresource != "approval") {
        let (before, after) = (of(old, kind), of(new.value(), kind));
        match after.len().cmp(&before.len()) {
            Ordering::Greater => forbid("add", kind),
            Ordering::Equal if after != before => forbid("modify", kind),
            Ordering::Equal | Ordering::Less => {}
        }
    }
    const CERTIFICATE: &str = "status.certificate";
    let (before, after) = (text(old, CERTIFICATE), new.text(CERTIFICATE));
    if before != after && subresource != "status" {
        new.forbidden(CERTIFICATE, "updates may not set certificate content");
    } else if before != after && !before.is_empty() {
        new.forbidden(CERTIFICATE, "updates may not modify existing certificate content");
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::AGE,
    Column::text("SignerName", "spec.signerName", "<none>"),
    Column::text("Requestor", "spec.username", ""),
    Column::computed("RequestedDuration", &["spec.expirationSeconds"], duration_cell),
    Column::computed("Condition", &["status.conditions[].type", "status.certificate"], condition_cell),
];

fn duration_cell(request: &Value, _: Now) -> Cell<'_> {
    match at(request, "spec.expirationSeconds").and_then(Value::as_int) {
        Some(seconds) => time::human(seconds).to_string().into(),
        None => "<none>".into(),
    }
}

fn condition_cell(request: &Value, _: Now) -> Cell<'_> {
    let conditions = list(request, "status.conditions");
    let has = |kind| condition(conditions, kind).is_some();
    let mut state = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !text(request, "status.certificate").is_empty() {
        state.push_str(",Issued");
    }
    state.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::ErrorList;
    use plinth_api::Cause;
    use plinth_codec::{json, tree};
    use plinth_pki::CERTIFICATE_REQUEST_LABEL;

    fn errors(request: &Value) -> Vec<Cause> {
        ErrorList::of(request, validate)
    }

    fn subresource(name: &str, new: &Value, old: &Value) -> Vec<Cause> {
        ErrorList::of(new, |new| validate_subresource(name, new, old))
    }

    fn request(change: impl FnOnce(&mut Value)) -> Value {
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        let mut request = tree!({
            "spec": tree!({
                "request": base64_text::encode(pem),
                "signerName": "example.com/signer",
                "usages": tree!(["client auth"]),
            }),
            "status": tree!({}),
        });
        change(&mut request);
        request
    }

    fn set(request: &mut Value, part: &str, key: &str, text: &str) {
        let value = json::parse(text.as_bytes()).unwrap();
        request.object_at_mut(&[part]).unwrap().insert(key, value);
    }

    #[test]
    fn requests_by_table() {
        assert_eq!(errors(&request(|_| {})), []);
        let rows = [
            ("spec", "request", r#""bm8=""#, "spec.request", "PEM block type must be CERTIFICATE REQUEST"),
            ("spec", "usages", "[]", "spec.usages", "Required value"),
            ("spec", "usages", r#"["nothing"]"#, "spec.usages[0]", "Unsupported value: \"nothing\""),
            ("spec", "usages", r#"["any","any"]"#, "spec.usages[1]", "Duplicate value"),
            ("spec", "signerName", r#""""#, "spec.signerName", "Required value"),
            (
                "spec",
                "signerName",
                r#""kubernetes.io/legacy-unknown""#,
                "spec.signerName",
                "legacy signerName is not allowed",
            ),
            (
                "spec",
                "signerName",
                r#""nothing""#,
                "spec.signerName",
                "must be a fully qualified domain and path",
            ),
            ("spec", "signerName", r#""local/x""#, "spec.signerName", "at least two segments"),
            ("spec", "signerName", r#""a.b/-""#, "spec.signerName", "validating label \"-\""),
            ("spec", "expirationSeconds", "599", "spec.expirationSeconds", "less than 600 seconds"),
            (
                "status",
                "certificate",
                r#""bm8=""#,
                "status.certificate",
                "at least one CERTIFICATE PEM block",
            ),
            (
                "status",
                "conditions",
                r#"[{"type":"Approved","status":"False"}]"#,
                "status.conditions[0].status",
                "Unsupported value",
            ),
            (
                "status",
                "conditions",
                r#"[{"type":"","status":"True"}]"#,
                "status.conditions[0].type",
                "Required value",
            ),
            (
                "status",
                "conditions",
                r#"[{"type":"X","status":"True"},{"type":"X","status":"True"}]"#,
                "status.conditions[1].type",
                "Duplicate value",
            ),
            (
                "status",
                "conditions",
                r#"[{"type":"Approved","status":"True"},{"type":"Denied","status":"True"}]"#,
                "status.conditions",
                "mutually exclusive",
            ),
        ];
        for (part, key, value, field, message) in rows {
            let errors = errors(&request(|r| set(r, part, key, value)));
            let found = errors.iter().any(|f| f.field == field && f.message.contains(message));
            assert!(found, "{key}={value}: {errors:?}");
        }
    }

    #[test]
    fn a_modified_request_fails_verification() {
        let damaged = request(|r| {
            let text = base64_text::decode(r.str_at(&["spec", "request"]).unwrap()).unwrap();
            let mut der = pem::parse_one(&text, CERTIFICATE_REQUEST_LABEL).unwrap();
            let last = der.len() - 1;
            der[last] ^= 1;
            r.object_at_mut(&["spec"])
                .unwrap()
                .insert("request", base64_text::encode(pem::encode(CERTIFICATE_REQUEST_LABEL, &der)));
        });
        assert!(
            errors(&damaged)[0].message.contains("x509: ECDSA verification failure"),
            "{:?}",
            errors(&damaged)
        );
    }

    #[test]
    fn subresources_by_table() {
        let with = |conditions: &str, certificate: &str| {
            let text = format!(r#"{{"status":{{"conditions":{conditions},"certificate":"{certificate}"}}}}"#);
            json::parse(text.as_bytes()).unwrap()
        };
        let approved = r#"[{"type":"Approved","status":"True","reason":"a"}]"#;
        let changed = r#"[{"type":"Approved","status":"True","reason":"b"}]"#;
        let failed = r#"[{"type":"Failed","status":"True"}]"#;
        // subresource, old, new, what is refused
        let rows = [
            ("approval", with("[]", ""), with(approved, ""), None),
            ("approval", with(approved, ""), with(changed, ""), None),
            (
                "approval",
                with(approved, ""),
                with("[]", ""),
                Some("updates may not remove a condition of type \"Approved\""),
            ),
            ("approval", with("[]", ""), with("[]", "x"), Some("updates may not set certificate content")),
            (
                "status",
                with("[]", ""),
                with(approved, ""),
                Some("updates may not add a condition of type \"Approved\""),
            ),
            (
                "status",
                with(approved, ""),
                with(changed, ""),
                Some("updates may not modify a condition of type \"Approved\""),
            ),
            ("status", with(approved, ""), with(approved, "x"), None),
            (
                "status",
                with(approved, "x"),
                with(approved, "y"),
                Some("updates may not modify existing certificate content"),
            ),
            ("status", with("[]", ""), with(failed, ""), None),
            (
                "status",
                with(failed, ""),
                with("[]", ""),
                Some("updates may not remove a condition of type \"Failed\""),
            ),
        ];
        for (name, old, new, refused) in rows {
            let errors = subresource(name, &new, &old);
            let messages: Vec<&str> =
                errors.iter().map(|f| f.message.trim_start_matches("Forbidden: ")).collect();
            assert_eq!(messages, refused.into_iter().collect::<Vec<_>>(), "{name}");
        }
    }

    #[test]
    fn the_requester_is_recorded() {
        let mut request = request(|r| set(r, "spec", "groups", r#"["system:masters"]"#));
        request.as_object_mut().unwrap().insert("status", json::parse(br#"{"certificate":"eA=="}"#).unwrap());
        record_requester(&mut request, &User { uid: "u".into(), ..User::new("jane", &["dev"]) });
        assert_eq!(request.str_at(&["spec", "username"]), Some("jane"));
        assert_eq!(texts(request.at(&["spec", "groups"])), ["dev"]);
        assert_eq!(request.get("status"), Some(&Value::object()));
        record_requester(&mut request, &User::new("joe", &[]));
        assert_eq!(request.at(&["spec", "groups"]), None);
    }

    #[test]
    fn a_status_write_keeps_decisions() {
        let parse = |conditions: &str| {
            json::parse(format!(r#"{{"spec":{{}},"status":{{"conditions":[{conditions}]}}}}"#).as_bytes())
                .unwrap()
        };
        const DECIDED: &str = r#"{"type":"Approved","status":"True","lastUpdateTime":"a","lastTransitionTime":"b","reason":"r"}"#;
        const AGAIN: &str = r#"{"type":"Approved","status":"True"}"#;
        let old = parse(DECIDED);
        let mut new = parse(&format!(r#"{{"type":"X","status":"True"}},{AGAIN}"#));
        prepare_status(&mut new, &old);
        assert_eq!(conditions(&new)[1], conditions(&old)[0]);
        assert_eq!(subresource("status", &new, &old), []);
        let mut new = parse(&format!("{AGAIN},{AGAIN}"));
        prepare_status(&mut new, &old);
        let errors = subresource("status", &new, &old);
        assert!(errors[0].message.contains("may not add a condition of type \"Approved\""), "{errors:?}");
    }

    #[test]
    fn conditions_get_timestamps_once() {
        let old = json::parse(br#"{"spec":{"a":1},"status":{"conditions":[{"type":"A","status":"True","lastTransitionTime":"t"}]}}"#).unwrap();
        let mut new = json::parse(br#"{"spec":{"a":2},"status":{"conditions":[{"type":"A","status":"True"},{"type":"B","status":"True"}]}}"#).unwrap();
        prepare_for_update(&mut new, &old);
        assert_eq!(new.get("spec"), old.get("spec"));
        let [a, b] = conditions(&new) else { panic!("two conditions") };
        assert_eq!(a.str_at(&["lastTransitionTime"]), Some("t"));
        assert!(b.str_at(&["lastTransitionTime"]).is_some_and(|t| t.ends_with('Z')));
        assert!(a.str_at(&["lastUpdateTime"]).is_some());
    }
}
