//! Event of the core group, and the rules that it shares with `events.k8s.io`.
//!
//! Upstream: kubernetes `pkg/apis/core/validation/events.go`. Paths of errors are those of core/v1 in both
//! groups, except for the reporting controller's.

use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::checks::Check::{AnyText, Required};
use crate::checks::Part;
use crate::columns::or;
use crate::path::{at, int_or_zero, text};
use crate::strategy::{NameRule, Strategy, BASE};

pub(crate) const STRATEGY: Strategy =
    Strategy { name: NameRule::PathSegment, validate, selectable: SELECTABLE, ..ANY_EVENT };

/// What is the same in both groups. Their objects have one storage.
pub(crate) const ANY_EVENT: Strategy = Strategy {
    create_on_update: true,
    garbage_collected: false,
    expires: true,
    error_group: Some(""),
    columns: COLUMNS,
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

pub(crate) const COLUMNS: &[Column] = &[
    Column::computed(
        "Last Seen",
        &["firstTimestamp", "eventTime", "lastTimestamp", "series.lastObservedTime"],
        last_seen_cell,
    ),
    Column::text("Type", "type", ""),
    Column::text("Reason", "reason", ""),
    Column::computed("Object", &["involvedObject.kind", "involvedObject.name"], object_cell),
    Column::text("Subobject", "involvedObject.fieldPath", "").wide(),
    Column::computed(
        "Source",
        &["source.component", "source.host", "reportingComponent", "reportingInstance"],
        source_cell,
    )
    .wide(),
    Column::computed("Message", &["message"], message_cell),
    Column::computed("First Seen", &["firstTimestamp", "eventTime"], first_seen_cell).wide(),
    Column::computed("Count", &["count", "series.count"], count_cell).wide(),
    Column::NAME.wide(),
];

/// When the event was first seen: the old field, else the new one.
fn first_seen(event: &Value) -> &str {
    or(text(event, "firstTimestamp"), text(event, "eventTime"))
}

fn last_seen_cell(event: &Value, now: Now) -> Cell<'_> {
    let seen = match at(event, "series") {
        Some(series) => text(series, "lastObservedTime"),
        None => or(text(event, "lastTimestamp"), first_seen(event)),
    };
    now.age(seen).into()
}

fn object_cell(event: &Value, _: Now) -> Cell<'_> {
    let kind = text(event, "involvedObject.kind").to_lowercase();
    match text(event, "involvedObject.name") {
        "" => kind.into(),
        name => format!("{kind}/{name}").into(),
    }
}

fn source_cell(event: &Value, _: Now) -> Cell<'_> {
    let component = or(text(event, "source.component"), text(event, "reportingComponent"));
    match or(text(event, "source.host"), text(event, "reportingInstance")) {
        "" => component.into(),
        instance => format!("{component}, {instance}").into(),
    }
}

fn message_cell(event: &Value, _: Now) -> Cell<'_> {
    text(event, "message").trim().into()
}

fn first_seen_cell(event: &Value, now: Now) -> Cell<'_> {
    now.age(first_seen(event)).into()
}

/// An event of the new form that happened once has no count.
fn count_cell(event: &Value, _: Now) -> Cell<'_> {
    match (at(event, "series"), int_or_zero(event, "count")) {
        (Some(series), _) => int_or_zero(series, "count").into(),
        (None, 0) => 1.into(),
        (None, count) => count.into(),
    }
}

const SELECTABLE: Selectable = Selectable::new(&[
    SelectableField::NAME,
    SelectableField::NAMESPACE,
    SelectableField::new("involvedObject.kind"),
    SelectableField::new("involvedObject.namespace"),
    SelectableField::new("involvedObject.name"),
    SelectableField::new("involvedObject.uid"),
    SelectableField::new("involvedObject.apiVersion"),
    SelectableField::new("involvedObject.resourceVersion"),
    SelectableField::new("involvedObject.fieldPath"),
    SelectableField::new("reason"),
    SelectableField::new("reportingComponent"),
    SelectableField::new("source").at("source.component").or("reportingComponent"),
    SelectableField::new("type"),
]);
