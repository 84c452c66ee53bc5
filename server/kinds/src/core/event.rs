//! Event of the core group, and the rules that it shares with `events.k8s.io`.
//!
//! Upstream: kubernetes `pkg/apis/core/validation/events.go`. Paths of errors are those of core/v1 in both groups, except for the
//! reporting controller's.

use plinth_api::api_error::Cause;
use plinth_api::field;
use plinth_codec::{names, Value};

use crate::path::text;
use crate::strategy::{NameRule, Strategy, BASE};

pub(crate) const STRATEGY: Strategy =
    Strategy { name: NameRule::PathSegment, create_on_update: true, collected: false, validate, ..BASE };

/// The longest name of a reporter's instance, action and reason, and the longest note, in bytes.
const NAME_MAX: usize = 128;

const NOTE_MAX: usize = 1024;

/// Where a face has what the rules look at.
pub(crate) struct EventFields {
    pub(crate) about: &'static str,
    pub(crate) controller: &'static str,
    pub(crate) note: &'static str,
}

const CORE_FIELDS: EventFields =
    EventFields { about: "involvedObject", controller: "reportingComponent", note: "message" };

/// What holds in both faces: an event without a time is of the old kind, which says less.
pub(crate) fn common(event: &Value, face: &EventFields) -> Vec<Cause> {
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
pub(crate) fn validate(event: &Value) -> Vec<Cause> {
    common(event, &CORE_FIELDS)
}
