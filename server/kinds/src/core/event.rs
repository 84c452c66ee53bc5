//! Event of the core group, and the rules that it shares with `events.k8s.io`.
//!
//! Upstream: kubernetes `pkg/apis/core/validation/events.go`. Paths of errors are those of core/v1 in both
//! groups, except for the reporting controller's.

use plinth_codec::names;

use crate::checks::Check::{AnyText, Required};
use crate::checks::Part;
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
pub(crate) fn common(event: &Part<'_>, fields: &EventFields) {
    let (own, about) = (event.text("metadata.namespace"), event.text(&format!("{}.namespace", fields.about)));
    let is_old = event.text("eventTime").is_empty();
    let fits = match (about, is_old) {
        ("", true) => matches!(own, "" | "default"),
        ("", false) => matches!(own, "default" | "kube-system"),
        (about, true) => own == about,
        (_, false) => true,
    };
    if !fits {
        event.invalid("involvedObject.namespace", about, "does not match event.namespace");
    }
    if is_old {
        return;
    }
    event.check(&[Required(fields.controller, ""), AnyText(fields.controller, names::qualified_name_errors)]);
    for key in ["reportingInstance", "action", "reason"] {
        match event.text(key).len() {
            0 => event.required(key, ""),
            1..=MAX_NAME_LENGTH => {}
            _ => event.invalid(key, "", &format!("can have at most {MAX_NAME_LENGTH} characters")),
        }
    }
    if event.text(fields.note).len() > MAX_NOTE_LENGTH {
        event.invalid("message", "", &format!("can have at most {MAX_NOTE_LENGTH} characters"));
    }
}

/// Errors of a core/v1 Event.
pub(crate) fn validate(event: &Part<'_>) {
    common(event, &FIELDS);
}
