//! `AdmissionReview`: the request, and the validation of a response.
//!
//! Upstream: k8s.io/apiserver `pkg/admission/plugin/webhook/request/admissionreview.go`.

use plinth_codec::{base64_text, json, tree, Map, Value};

use super::super::call::Call;
use plinth_apiserver::context::Operation;
use plinth_apiserver::egress::conform_review;
use plinth_registry::ResourceType;

const GROUP: &str = "admission.k8s.io";
const VERSION: &str = "v1";
const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// The request, with the object in the version of `matched`.
pub(super) fn request(
    call: &Call<'_>,
    matched: &ResourceType,
    uid: &str,
    object: &Value,
    old: &Value,
) -> Value {
    let mut request = attributes(call, matched, object);
    if let Some(map) = request.as_object_mut() {
        map.insert("uid", uid);
        map.insert("object", object.clone());
        map.insert("oldObject", old.clone());
    }
    tree!({ "kind": KIND, "apiVersion": API_VERSION, "request": request })
}

/// The request without the objects: also the variable `request` of expressions.
pub(in crate::admission) fn attributes(call: &Call<'_>, matched: &ResourceType, object: &Value) -> Value {
    let (info, requested) = (&call.cx.info, &call.cx.resource);
    let kind_of = |resource: &ResourceType| {
        let row = &resource.row;
        let gvk = match row.subresource(&info.subresource) {
            Some(subresource) => subresource.gvk.clone(),
            None => row.gvk(),
        };
        tree!({ "group": gvk.group.as_str(), "version": gvk.version.as_str(), "kind": gvk.kind.as_str() })
    };
    let resource_of = |resource: &ResourceType| {
        let row = &resource.row;
        tree!({ "group": row.group.as_str(), "version": row.version.as_str(), "resource": row.plural.as_str() })
    };
    let mut request = tree!({
        "kind": kind_of(matched),
        "resource": resource_of(matched),
        "requestKind": kind_of(requested),
        "requestResource": resource_of(requested),
        "operation": call.operation.as_str(),
        "userInfo": call.cx.user.to_user_info(),
        "dryRun": call.dry_run,
        "options": options(call),
    });
    if let Some(map) = request.as_object_mut() {
        let texts = [
            ("subResource", info.subresource.as_str()),
            ("requestSubResource", info.subresource.as_str()),
            ("name", call.object_name(object)),
            ("namespace", call.request_namespace(object)),
        ];
        for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            map.insert(key, text);
        }
    }
    request
}

fn options(call: &Call<'_>) -> Value {
    let kind = match call.operation {
        Operation::Create => "CreateOptions",
        Operation::Update if call.cx.info.verb == plinth_api::Verb::Patch => "PatchOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
        Operation::Connect => return Value::Null,
    };
    let mut options = Map::new();
    options.insert("kind", kind);
    options.insert("apiVersion", "meta.k8s.io/v1");
    if call.dry_run {
        options.insert("dryRun", tree!(["All"]));
    }
    let query = &call.cx.query;
    if call.operation != Operation::Delete {
        if let Some(manager) = &query.field_manager {
            options.insert("fieldManager", manager.as_str());
        }
        if !query.field_validation.is_empty() {
            options.insert("fieldValidation", query.field_validation.as_str());
        }
    }
    if let Some(force) = query.force.filter(|_| kind == "PatchOptions") {
        options.insert("force", force);
    }
    for (key, value) in call.options.iter() {
        options.insert(key.clone(), value.clone());
    }
    Value::Object(options)
}

/// A valid response.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub allowed: bool,
    /// A JSON patch.
    pub patch: Option<Value>,
    /// The Status of a denial.
    pub result: Option<Value>,
    pub warnings: Vec<String>,
    /// For the audit log; the webhook's name is prefixed to each key.
    pub audit_annotations: Vec<(String, String)>,
}

/// Validates a response.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn answer(mut review: Value, uid: &str, mutating: bool) -> Result<Answer, String> {
    let wrong = |why: String| Err(format!("received invalid webhook response: {why}"));
    let kind = [review.str_at(&["apiVersion"]), review.str_at(&["kind"])]
        .map(|text| text.unwrap_or_default().to_owned());
    if kind == [API_VERSION, KIND] {
        review = conform_review(review, (GROUP, VERSION, KIND))
            .map_err(|error| format!("failed to call webhook: {error}"))?;
    }
    let Some(response) = review.get("response").filter(|response| !response.is_null()) else {
        return wrong("webhook response was absent".into());
    };
    let text = |key: &str| response.str_at(&[key]).unwrap_or_default();
    if text("uid") != uid {
        return wrong(format!("expected response.uid={uid:?}, got {:?}", text("uid")));
    }
    if kind != [API_VERSION, KIND] {
        return wrong(format!(
            "expected webhook response of {API_VERSION}, Kind={KIND}, got {}, Kind={}",
            kind[0], kind[1]
        ));
    }
    let (patch, patch_type) = (text("patch"), response.get("patchType").filter(|t| !t.is_null()));
    let patch = match (patch.is_empty(), patch_type) {
        (true, None) => None,
        (false, _) if !mutating => return wrong("validating webhook may not return response.patch".into()),
        (_, Some(_)) if !mutating => {
            return wrong("validating webhook may not return response.patchType".into())
        }
        (false, None) => return wrong("webhook returned response.patch but not response.patchType".into()),
        (true, Some(_)) => return wrong("webhook returned response.patchType but not response.patch".into()),
        (false, Some(kind)) if kind.as_str() != Some("JSONPatch") => {
            return wrong(format!("unsupported patch type {:?}", kind.as_str().unwrap_or_default()));
        }
        (false, Some(_)) => {
            let decoded = base64_text::decode(patch)
                .map_err(|at| format!("response.patch: illegal base64 data at input byte {at}"))?;
            Some(json::parse(&decoded).map_err(|e| format!("response.patch: {e}"))?)
        }
    };
    let annotations = response.get("auditAnnotations").and_then(Value::as_object);
    let annotations = annotations.into_iter().flat_map(plinth_codec::Map::iter);
    let annotations =
        annotations.filter_map(|(key, value)| Some((key.to_string(), value.as_str()?.to_owned())));
    Ok(Answer {
        allowed: response.get("allowed").and_then(Value::as_bool) == Some(true),
        patch,
        result: response.get("status").filter(|status| !status.is_null()).cloned(),
        warnings: response.texts_at(&["warnings"]),
        audit_annotations: annotations.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_checked() {
        const HEAD: &str = r#""kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1""#;
        // review, mutating, allowed or the end of the error
        let rows = [
            (format!(r#"{{{HEAD},"response":{{"uid":"u","allowed":true}}}}"#), false, Ok(true)),
            (format!(r#"{{{HEAD},"response":{{"uid":"u","allowed":false}}}}"#), true, Ok(false)),
            (format!("{{{HEAD}}}"), true, Err("webhook response was absent")),
            (
                format!(r#"{{{HEAD},"response":{{"uid":"v"}}}}"#),
                true,
                Err(r#"expected response.uid="u", got "v""#),
            ),
            (
                r#"{"kind":"X","apiVersion":"y","response":{"uid":"u"}}"#.to_owned(),
                true,
                Err("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got y, Kind=X"),
            ),
            (
                format!(r#"{{{HEAD},"response":{{"uid":"u","allowed":true,"patch":"W10="}}}}"#),
                true,
                Err("webhook returned response.patch but not response.patchType"),
            ),
            (
                format!(
                    r#"{{{HEAD},"response":{{"uid":"u","allowed":true,"patch":"W10=","patchType":"JSONPatch"}}}}"#
                ),
                true,
                Ok(true),
            ),
            (
                format!(
                    r#"{{{HEAD},"response":{{"uid":"u","allowed":true,"patch":"W10=","patchType":"JSONPatch"}}}}"#
                ),
                false,
                Err("validating webhook may not return response.patch"),
            ),
            (
                format!(r#"{{{HEAD},"response":{{"uid":"u","allowed":"true"}}}}"#),
                false,
                Err("Go struct field AdmissionResponse.response.allowed of type bool"),
            ),
            (
                format!(r#"{{{HEAD},"response":{{"uid":"u","allowed":true,"patch":[{{}}]}}}}"#),
                true,
                Err("AdmissionResponse.response.patch of type uint8"),
            ),
        ];
        for (review, mutating, expected) in rows {
            let found = answer(json::parse(review.as_bytes()).unwrap(), "u", mutating);
            match (found, expected) {
                (Ok(answer), Ok(allowed)) => assert_eq!(answer.allowed, allowed, "{review}"),
                (Err(why), Err(end)) => assert!(why.ends_with(end), "{why}"),
                (found, _) => panic!("{review}: {found:?}"),
            }
        }
    }
}
