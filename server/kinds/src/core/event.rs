//! Event of the core group, and the rules that it shares with `events.k8s.io`.
//!
//! Upstream: kubernetes `pkg/apis/core/validation/events.go`. Paths of errors are those of core/v1 in both
//! groups, except for the reporting controller's.

use plinth_api::api_error::Cause;
use plinth_api::field;
use plinth_codec::{names, Value};

use crate::path::text;
use crate::strategy::{NameRule, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    name: NameRule::PathSegment,
    create_on_update: true,
    garbage_collected: false,
    validate,
    expires: true,
    error_group: Some(""),
    ..BASE
};

/// Maximum length of the reporting instance, the action and the reason, in bytes.
const MAX_NAME_LENGTH: usize = 128;

const MAX_NOTE_LENGTH: usize = 1024;

/// The names of fields that differ between the two groups.
pub(crate) struct EventFields {
    pub(crate) about: &'static str,
    pub(crate) controller: &'static str,
    pub(crate) note: &'static str,
}

const FIELDS: EventFields =
    EventFields { about: "involvedObject", controller: "reportingComponent", note: "message" };

/// Errors of an event of either group. An event without `eventTime` is of the deprecated form, of which less
/// is required.
pub(crate) fn common(event: &Value, fields: &EventFields) -> Vec<Cause> {
    let mut errors = Vec::new();
    let (own, about) =
        (text(event, "metadata.namespace"), text(event, &format!("{}.namespace", fields.about)));
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
    let controller = text(event, fields.controller);
    if controller.is_empty() {
        errors.push(field::required(fields.controller, ""));
    }
    let bad = names::qualified_name_errors(controller);
    errors.extend(bad.iter().map(|why| field::invalid(fields.controller, controller, why)));
    for key in ["reportingInstance", "action", "reason"] {
        let given = text(event, key);
        if given.is_empty() {
            errors.push(field::required(key, ""));
        } else if given.len() > MAX_NAME_LENGTH {
            errors.push(field::invalid(key, "", &format!("can have at most {MAX_NAME_LENGTH} characters")));
        }
    }
    if text(event, fields.note).len() > MAX_NOTE_LENGTH {
        errors.push(field::invalid("message", "", &format!("can have at most {MAX_NOTE_LENGTH} characters")));
    }
    errors
}

/// Errors of a core/v1 Event.
pub(crate) fn validate(event: &Value) -> Vec<Cause> {
    common(event, &FIELDS)
}
