//! Events, in both their faces.
//!
//! Upstream: kubernetes `pkg/apis/core/validation/events.go`. Paths are those of core/v1 in both faces, but for the
//! reporter's.

use plinth_codec::{names, Value};

use super::update::immutable;
use super::{at, text};
use plinth_api::api_error::Cause;
use plinth_api::field;

/// The longest name of a reporter's instance, action and reason, and the longest note, in bytes.
const NAME_MAX: usize = 128;
const NOTE_MAX: usize = 1024;

/// Where a face has what the rules look at.
struct Face {
    about: &'static str,
    controller: &'static str,
    note: &'static str,
}

const CORE: Face = Face { about: "involvedObject", controller: "reportingComponent", note: "message" };
const EVENTS: Face = Face { about: "regarding", controller: "reportingController", note: "note" };

/// What holds in both faces: an event without a time is of the old kind, which says less.
fn common(event: &Value, face: &Face) -> Vec<Cause> {
    let mut errors = Vec::new();
    let (own, about) = (text(event, "metadata.namespace"), text(event, &format!("{}.namespace", face.about)));
    let is_old = text(event, "eventTime").is_empty();
    let fits = match (about, is_old) {
        ("", true) => matches!(own, "" | "default"),
        ("", false) => matches!(own, "default" | "kube-system"),
        (about, true) => own == about,
        (_, false) => true,
    };
    if !fits {
        errors.push(field::invalid("involvedObject.namespace", about, "does not match event.namespace"));
    }
    if is_old {
        return errors;
    }
    let controller = text(event, face.controller);
    if controller.is_empty() {
        errors.push(field::required(face.controller, ""));
    }
    let bad = names::qualified_name_errors(controller);
    errors.extend(bad.iter().map(|why| field::invalid(face.controller, controller, why)));
    for key in ["reportingInstance", "action", "reason"] {
        let given = text(event, key);
        if given.is_empty() {
            errors.push(field::required(key, ""));
        } else if given.len() > NAME_MAX {
            errors.push(field::invalid(key, "", &format!("can have at most {NAME_MAX} characters")));
        }
    }
    if text(event, face.note).len() > NOTE_MAX {
        errors.push(field::invalid("message", "", &format!("can have at most {NOTE_MAX} characters")));
    }
    errors
}

/// core/v1.
pub fn validate_core(event: &Value) -> Vec<Cause> {
    common(event, &CORE)
}

/// events.k8s.io/v1: nothing of the old kind.
pub fn validate(event: &Value) -> Vec<Cause> {
    let mut errors = common(event, &EVENTS);
    if let Some(series) = at(event, "series") {
        if at(series, "count").and_then(Value::as_int).unwrap_or(0) < 2 {
            errors.push(field::invalid("series.count", "", "should be at least 2"));
        }
        if text(series, "lastObservedTime").is_empty() {
            errors.push(field::required("series.lastObservedTime", ""));
        }
    }
    if text(event, "eventTime").is_empty() {
        errors.push(field::required("eventTime", ""));
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(field::invalid("type", "", &format!("has invalid value: {kind}")));
    }
    let old = [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("deprecatedSource.component", "source"),
        ("deprecatedSource.host", "source"),
    ];
    let is_set = |key: &str| match at(event, key) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Int(number)) => *number != 0,
        other => other.is_some(),
    };
    for (_, shown) in old.iter().filter(|(key, _)| is_set(key)) {
        errors.push(field::invalid(*shown, "", "needs to be unset"));
    }
    errors
}

/// events.k8s.io/v1: only a series goes on.
pub fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    const FIXED: &[&str] =
        &["reason", "type", "eventTime", "action", "related", "reportingController", "reportingInstance"];
    let mut errors = Vec::new();
    immutable(FIXED, new, old, &mut errors);
    for (key, shown) in [("regarding", "involvedObject"), ("note", "message")] {
        if at(new, key) != at(old, key) {
            let value = at(new, key).cloned().unwrap_or_default();
            errors.push(field::invalid(shown, value, "field is immutable"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    const WHOLE: &str = r#"{"metadata":{"namespace":"n"},"regarding":{"namespace":"n"},"eventTime":"2026-01-01T00:00:00Z","reportingController":"x.io/c","reportingInstance":"i","action":"a","reason":"r","type":"Normal"}"#;

    #[test]
    fn events_and_their_errors() {
        type Rule = fn(&Value) -> Vec<Cause>;
        // rule, event, paths of the errors
        let rows: [(Rule, &str, &[&str]); 7] = [
            (validate_core, r#"{"metadata":{"namespace":"n"},"involvedObject":{"namespace":"n"}}"#, &[]),
            (
                validate_core,
                r#"{"metadata":{"namespace":"n"},"involvedObject":{}}"#,
                &["involvedObject.namespace"],
            ),
            (
                validate_core,
                r#"{"metadata":{"namespace":"n"},"involvedObject":{"namespace":"o"}}"#,
                &["involvedObject.namespace"],
            ),
            (validate_core, r#"{"metadata":{"namespace":"default"},"involvedObject":{}}"#, &[]),
            (
                validate_core,
                r#"{"metadata":{"namespace":"n"},"involvedObject":{"namespace":"o"},"eventTime":"t","reportingComponent":"c","reportingInstance":"i","action":"a"}"#,
                &["reason"],
            ),
            (validate, WHOLE, &[]),
            (
                validate,
                r#"{"metadata":{"namespace":"n"},"regarding":{"namespace":"o"},"deprecatedCount":3}"#,
                &["involvedObject.namespace", "eventTime", "type", "count"],
            ),
        ];
        for (rule, event, paths) in rows {
            let errors = rule(&json::parse(event.as_bytes()).unwrap());
            let found: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
            assert_eq!(found, paths, "{event}");
        }
    }

    #[test]
    fn only_a_series_goes_on() {
        let old = json::parse(WHOLE.as_bytes()).unwrap();
        let mut new = old.clone();
        new.object_at_mut(&["series"]).unwrap().insert("count", 2);
        assert_eq!(validate_update(&new, &old), []);
        new.as_object_mut().unwrap().insert("note", "other");
        assert_eq!(validate_update(&new, &old).len(), 1);
    }
}
