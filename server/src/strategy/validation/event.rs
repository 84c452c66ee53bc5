//! Events, in both their faces.
//!
//! Upstream: kubernetes `pkg/apis/core/validation/events.go`.

use plinth_codec::{names, Value};

use super::text;
use crate::field;
use crate::status::Cause;

/// The namespace of an event is that of what it is about; what has none has its events in `default`.
fn namespace_faults(event: &Value, path: &str) -> Option<Cause> {
    let (own, about) = (text(event, "metadata.namespace"), text(event, &format!("{path}.namespace")));
    let fits = match about {
        "" => matches!(own, "" | "default"),
        about => own == about,
    };
    (!fits).then(|| field::invalid(format!("{path}.namespace"), about, "does not match event.namespace"))
}

/// core/v1: what old reporters leave out is let pass.
pub fn validate_core(event: &Value) -> Vec<Cause> {
    namespace_faults(event, "involvedObject").into_iter().collect()
}

/// events.k8s.io/v1: who reports, when and what is said in full.
pub fn validate(event: &Value) -> Vec<Cause> {
    const NAME_MAX: usize = 128;
    const NOTE_MAX: usize = 1024;
    let mut faults: Vec<Cause> = namespace_faults(event, "regarding").into_iter().collect();
    if text(event, "eventTime").is_empty() {
        faults.push(field::required("eventTime", ""));
    }
    let controller = text(event, "reportingController");
    if controller.is_empty() {
        faults.push(field::required("reportingController", ""));
    }
    let bad = names::qualified_name_faults(controller);
    faults.extend(
        bad.iter()
            .filter(|_| !controller.is_empty())
            .map(|why| field::invalid("reportingController", controller, why)),
    );
    for key in ["reportingInstance", "action", "reason"] {
        let given = text(event, key);
        if given.is_empty() {
            faults.push(field::required(key, ""));
        } else if given.len() > NAME_MAX {
            faults.push(field::invalid(key, given, &format!("can have at most {NAME_MAX} characters")));
        }
    }
    if text(event, "note").len() > NOTE_MAX {
        let why = format!("can have at most {NOTE_MAX} characters");
        faults.push(field::invalid("message", text(event, "note"), &why));
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        faults.push(field::invalid("type", kind, &format!("has invalid value: {kind}")));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn events_and_their_faults() {
        type Rule = fn(&Value) -> Vec<Cause>;
        const WHOLE: &str = r#"{"metadata":{"namespace":"n"},"regarding":{"namespace":"n"},"eventTime":"2026-01-01T00:00:00Z","reportingController":"x.io/c","reportingInstance":"i","action":"a","reason":"r","type":"Normal"}"#;
        // rule, event, paths of the faults
        let rows: [(Rule, &str, &[&str]); 5] = [
            (validate_core, r#"{"metadata":{"namespace":"n"},"involvedObject":{"namespace":"n"}}"#, &[]),
            (
                validate_core,
                r#"{"metadata":{"namespace":"n"},"involvedObject":{}}"#,
                &["involvedObject.namespace"],
            ),
            (validate_core, r#"{"metadata":{"namespace":"default"},"involvedObject":{}}"#, &[]),
            (validate, WHOLE, &[]),
            (
                validate,
                r#"{"metadata":{"namespace":"n"},"regarding":{"namespace":"o"}}"#,
                &[
                    "regarding.namespace",
                    "eventTime",
                    "reportingController",
                    "reportingInstance",
                    "action",
                    "reason",
                    "type",
                ],
            ),
        ];
        for (rule, event, paths) in rows {
            let faults = rule(&json::parse(event.as_bytes()).unwrap());
            let found: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
            assert_eq!(found, paths, "{event}");
        }
    }
}
