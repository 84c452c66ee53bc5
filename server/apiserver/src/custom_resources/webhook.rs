//! Conversion webhooks: sends a ConversionReview and validates the answer (k8s.io/apiextensions-apiserver,
//! `pkg/apiserver/conversion/webhook_converter.go`).

use std::time::{Duration, Instant};

use plinth_codec::patch::goprint;
use plinth_codec::{tree, Map, Value};

use super::Converter;
use crate::egress::client::Bounds;
use crate::egress::webhook::WebhookError;
use crate::metrics::ConversionFailure;
use plinth_api::{ApiError, Reason};
use plinth_registry::ConversionWebhook;

/// Limits of a call: upstream's timeout, and the largest list of objects.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(30), answer: 64 << 20 };
/// Converts trees to an `apiVersion`. Those that have it already are not sent.
///
/// # Errors
/// 500 with the webhook's message, or the error in its answer.
pub async fn convert(
    webhook: &ConversionWebhook,
    converter: &Converter,
    api_version: &str,
    trees: Vec<Value>,
) -> Result<Vec<Value>, ApiError> {
    let first = trees.first();
    let kind = first.and_then(|t| t.str_at(&["kind"])).unwrap_or_default().to_owned();
    let from = first.and_then(|t| t.str_at(&["apiVersion"])).unwrap_or_default().to_owned();
    let error = |what: String| {
        let message = format!("conversion webhook for {from}, Kind={kind} {what}");
        ApiError::new(500, Reason::Unknown, message)
    };
    let has_version = |t: &Value| t.str_at(&["apiVersion"]) == Some(api_version);
    let to_convert: Vec<&Value> = trees.iter().filter(|tree| !has_version(tree)).collect();
    if to_convert.is_empty() {
        return Ok(trees);
    }
    let Some(version) = webhook.review_version else {
        return Err(error("failed: no supported conversion review versions".into()));
    };
    let begun = Instant::now();
    let converted = call(webhook, (version, api_version), converter, &to_convert, error).await;
    converter.metrics.called(converted.as_ref().err().map(|(failure, _)| *failure), begun.elapsed());
    let mut converted = converted.map_err(|(_, error)| error)?.into_iter();
    let mut take = |original| if has_version(&original) { Some(original) } else { converted.next() };
    Ok(trees.into_iter().map_while(&mut take).collect())
}

/// The converted objects, each checked against its original; why not, and the error.
async fn call(
    webhook: &ConversionWebhook,
    (version, api_version): (&'static str, &str),
    converter: &Converter,
    originals: &[&Value],
    error: impl Fn(String) -> ApiError,
) -> Result<Vec<Value>, (ConversionFailure, ApiError)> {
    let uid = uuid::Uuid::new_v4().to_string();
    let count = originals.len();
    let objects: Vec<Value> = originals.iter().copied().cloned().collect();
    let review = tree!({
        "kind": "ConversionReview",
        "apiVersion": format!("apiextensions.k8s.io/{version}"),
        "request": tree!({ "uid": uid.as_str(), "desiredAPIVersion": api_version, "objects": objects }),
    });
    let answer = async {
        converter.webhooks.begin(&converter.store, &webhook.config, None, BOUNDS).await?.send(&review).await
    };
    let answer = answer.await.map_err(|why| match why {
        WebhookError::Busy => {
            let refusal = error(format!("was not called: {why}"));
            let error = ApiError::new(429, Reason::TooManyRequests, refusal.message).retry_after(1);
            (ConversionFailure::Call, error)
        }
        why => (ConversionFailure::Call, error(format!("failed: {why}"))),
    })?;
    let converted = converted_objects(version, &uid, answer)
        .map_err(|why| (ConversionFailure::MalformedResponse, error(format!("failed: {why}"))))?;
    if converted.len() != count {
        let what = format!("returned {} objects, expected {count}", converted.len());
        return Err((ConversionFailure::PartialResponse, error(what)));
    }
    let checked = |(index, (original, new)): (usize, (&&Value, Value))| {
        let at = (count > 1).then_some(index);
        checked(original, new, api_version)
            .map_err(|invalid| (ConversionFailure::InvalidObject, error(invalid.message(at))))
    };
    originals.iter().zip(converted).enumerate().map(checked).collect()
}

/// The converted objects of an answer, which must be valid, belong to that request, and be a success.
pub fn converted_objects(version: &str, uid: &str, mut answer: Value) -> Result<Vec<Value>, String> {
    let expected = format!("apiextensions.k8s.io/{version}");
    let (got_version, got_kind) =
        (answer.str_at(&["apiVersion"]).unwrap_or_default(), answer.str_at(&["kind"]).unwrap_or_default());
    if version == "v1" && (got_version != expected || got_kind != "ConversionReview") {
        return Err(format!(
            "expected webhook response of {expected}, Kind=ConversionReview, got {got_version}, \
                Kind={got_kind}"
        ));
    }
    let Some(response) = answer.get_mut("response").filter(|r| !r.is_null()) else {
        return Err("no response provided".into());
    };
    check_types(response)?;
    let got = response.str_at(&["uid"]).unwrap_or_default();
    if version == "v1" && got != uid {
        return Err(format!("expected response.uid={uid:?}, got {got:?}"));
    }
    let status = response.str_at(&["result", "status"]).unwrap_or_default();
    if status != "Success" {
        let message = response.str_at(&["result", "message"]).unwrap_or_default();
        return Err(match message.is_empty() {
            true => format!("response.result.status was '{status}', not 'Success'"),
            false => message.to_owned(),
        });
    }
    match response.get_mut("convertedObjects").map(std::mem::take) {
        Some(Value::Array(objects)) => Ok(objects),
        _ => Ok(Vec::new()),
    }
}

/// Checks the types of a response's fields: one of another type is not one that is absent.
fn check_types(response: &Value) -> Result<(), String> {
    let wrong = |what: &str, found: &Value| {
        Err(format!("the answer cannot be read: {what} is of type {}", goprint::type_name(found)))
    };
    if response.as_object().is_none() {
        return wrong("response", response);
    }
    let of = |path: &[&str]| response.at(path).filter(|found| !found.is_null());
    for path in [&["uid"][..], &["result", "status"], &["result", "message"]] {
        if let Some(found) = of(path).filter(|found| found.as_str().is_none()) {
            return wrong(&format!("response.{}", path.join(".")), found);
        }
    }
    if let Some(found) = of(&["result"]).filter(|found| found.as_object().is_none()) {
        return wrong("response.result", found);
    }
    match of(&["convertedObjects"]) {
        Some(found) if found.as_array().is_none() => wrong("response.convertedObjects", found),
        _ => Ok(()),
    }
}

/// Why a converted object is invalid, and in which part.
#[derive(Debug)]
pub enum InvalidConversion {
    /// Its type has changed.
    Type(String),
    /// Its identity has changed.
    Object(String),
    /// Its metadata has changed.
    Metadata(String),
}

impl InvalidConversion {
    /// Upstream's message, with the index where there are several objects.
    fn message(&self, at: Option<usize>) -> String {
        match (self, at) {
            (InvalidConversion::Type(why), None) => format!("returned invalid object at index 0: {why}"),
            (InvalidConversion::Object(why), None) => format!("returned invalid object: {why}"),
            (InvalidConversion::Metadata(why), None) => format!("returned invalid metadata: {why}"),
            (InvalidConversion::Type(why) | InvalidConversion::Object(why), Some(index)) => {
                format!("returned invalid converted object at index {index}: {why}")
            }
            (InvalidConversion::Metadata(why), Some(index)) => {
                format!("returned invalid metadata in object at index {index}: {why}")
            }
        }
    }
}

/// A converted object with the metadata of the original; only its labels and annotations are applied.
pub fn checked(original: &Value, mut new: Value, api_version: &str) -> Result<Value, InvalidConversion> {
    let text = |v: &Value, path: &[&str]| v.str_at(path).unwrap_or_default().to_owned();
    let got = text(&new, &["apiVersion"]);
    if got != api_version {
        return Err(InvalidConversion::Type(format!(
            "invalid groupVersion (expected {api_version}, received {got})"
        )));
    }
    let (expected, got) = (text(original, &["kind"]), text(&new, &["kind"]));
    if expected != got {
        return Err(InvalidConversion::Type(format!("invalid kind (expected {expected}, received {got})")));
    }
    for (key, what) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (expected, got) = (text(original, &["metadata", key]), text(&new, &["metadata", key]));
        if expected != got {
            return Err(InvalidConversion::Object(format!("must have the same {what}: {expected} != {got}")));
        }
    }
    let wrong = |what: &str, found: &Value| {
        InvalidConversion::Metadata(format!(
            "invalid {what} of type {} in converted object",
            goprint::type_name(found)
        ))
    };
    let Some(mut answered) = new.get_mut("metadata").map(std::mem::take) else {
        return Err(InvalidConversion::Metadata("missing metadata in converted object".into()));
    };
    if answered.as_object().is_none() {
        return Err(wrong("metadata", &answered));
    }
    let mut metadata = original.get("metadata").and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
    for field in ["labels", "annotations"] {
        let value = answered.get_mut(field).map(std::mem::take).unwrap_or_default();
        if value.is_null() {
            metadata.remove(field);
            continue;
        }
        let Some(texts) = value.as_object() else {
            return Err(wrong(&format!("metadata.{field}"), &value));
        };
        if let Some((key, other)) = texts.iter().find(|(_, v)| v.as_str().is_none()) {
            let found = goprint::type_name(other);
            let why = format!("metadata.{field}[{key}] must be a string, but is {found} in converted object");
            return Err(InvalidConversion::Metadata(why));
        }
        let errors = match field {
            "labels" => plinth_api::label_errors(Some(&value), format_args!("metadata.labels")),
            // Upstream's name of the field here.
            _ => plinth_api::annotation_errors(Some(&value), format_args!("metadata.annotation")),
        };
        let errors: Vec<String> =
            errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect();
        match errors.as_slice() {
            [] => drop(metadata.insert(field, value)),
            [one] => return Err(InvalidConversion::Metadata(one.clone())),
            several => return Err(InvalidConversion::Metadata(format!("[{}]", several.join(", ")))),
        }
    }
    if let Some(object) = new.as_object_mut() {
        object.insert("metadata", metadata);
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use plinth_codec::json;

    use super::*;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn answers_are_accepted_only_when_they_fit() {
        let rows = [
            (r#"{}"#, "expected webhook response of"),
            (r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1"}"#, "no response provided"),
            (
                r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"x"}}"#,
                r#"expected response.uid="u", got "x""#,
            ),
            (
                r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"u","result":{"status":"Failed","message":"no way"}}}"#,
                "no way",
            ),
            (
                r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"u","result":{}}}"#,
                "response.result.status was ''",
            ),
            (
                r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"u","result":{"status":"Success"},"convertedObjects":{}}}"#,
                "response.convertedObjects is of type map[string]interface {}",
            ),
            (
                r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"u","result":{"status":"Failed","message":1}}}"#,
                "response.result.message is of type int64",
            ),
        ];
        for (answer, expected) in rows {
            let error = converted_objects("v1", "u", parse(answer)).unwrap_err();
            assert!(error.contains(expected), "{answer}: {error}");
        }
        let good = r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"u","result":{"status":"Success"},"convertedObjects":[{}]}}"#;
        assert_eq!(converted_objects("v1", "u", parse(good)).unwrap().len(), 1);
    }

    #[test]
    fn of_metadata_only_labels_and_annotations_may_change() {
        let original = parse(
            r#"{"apiVersion":"g/v1","kind":"K","metadata":{"name":"n","uid":"u","labels":{"a":"1"},"finalizers":["x/y"]}}"#,
        );
        let convert = |text: &str| checked(&original, parse(text), "g/v2");
        let rows = [
            (
                r#"{"apiVersion":"g/v1","kind":"K"}"#,
                "returned invalid object at index 0: invalid groupVersion (expected g/v2, received g/v1)",
            ),
            (
                r#"{"apiVersion":"g/v2","kind":"L"}"#,
                "returned invalid object at index 0: invalid kind (expected K, received L)",
            ),
            (
                r#"{"apiVersion":"g/v2","kind":"K","metadata":{"name":"m","uid":"u"}}"#,
                "returned invalid object: must have the same name: n != m",
            ),
            (
                r#"{"apiVersion":"g/v2","kind":"K","metadata":{"name":"n","uid":"v"}}"#,
                "returned invalid object: must have the same UID: u != v",
            ),
            (r#"{"apiVersion":"g/v2","kind":"K","metadata":[]}"#, "returned invalid object: must have the same name: n != "),
            (
                r#"{"apiVersion":"g/v2","kind":"K","metadata":{"name":"n","uid":"u","labels":{"a":1}}}"#,
                "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
            ),
            (
                r#"{"apiVersion":"g/v2","kind":"K","metadata":{"name":"n","uid":"u","annotations":"x"}}"#,
                "returned invalid metadata: invalid metadata.annotations of type string in converted object",
            ),
            (
                r#"{"apiVersion":"g/v2","kind":"K","metadata":{"name":"n","uid":"u","labels":{"-":"!"}}}"#,
                "returned invalid metadata: [metadata.labels: Invalid value: \"-\": ",
            ),
        ];
        for (answer, expected) in rows {
            let error = convert(answer).unwrap_err();
            assert!(error.message(None).starts_with(expected), "{answer}: {}", error.message(None));
        }
        let error = convert(r#"{"apiVersion":"g/v1","kind":"K"}"#).unwrap_err();
        assert!(
            error.message(Some(2)).starts_with("returned invalid converted object at index 2: "),
            "{error:?}"
        );
        let good = convert(r#"{"apiVersion":"g/v2","kind":"K","metadata":{"name":"n","uid":"u","labels":{"b":"2"},"finalizers":[]},"spec":1}"#).unwrap();
        assert_eq!(good.str_at(&["metadata", "labels", "b"]), Some("2"));
        assert!(good.at(&["metadata", "labels", "a"]).is_none());
        assert_eq!(good.at(&["metadata", "finalizers"]), original.at(&["metadata", "finalizers"]));
    }
}
