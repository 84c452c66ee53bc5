//! Event (`events.k8s.io`).

use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::Value;

use crate::checks::immutable::{immutable, immutable_as};
use crate::checks::Check::Required;
use crate::checks::Part;
use crate::core::event::{common, EventFields, ANY_EVENT};
use crate::strategy::{Conversion, Strategy};

pub(crate) const STRATEGY: Strategy = Strategy {
    validate_create: validate,
    validate_update,
    selectable: SELECTABLE,
    conversions: CONVERSIONS,
    ..ANY_EVENT
};

const FIELDS: EventFields =
    EventFields { about: "regarding", controller: "reportingController", note: "note" };

/// Errors of a new event: fields of the deprecated form must not be set.
fn validate(event: &Part<'_>) {
    common(event, &FIELDS);
    if let Some(series) = event.get("series") {
        if series.number("count") < 2 {
            series.invalid("count", "", "should be at least 2");
        }
        series.check(&[Required("lastObservedTime", "")]);
    }
    event.check(&[Required("eventTime", "")]);
    let kind = event.text("type");
    if !matches!(kind, "Normal" | "Warning") {
        event.invalid("type", "", &format!("has invalid value: {kind}"));
    }
    let old = [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("deprecatedSource.component", "source"),
        ("deprecatedSource.host", "source"),
    ];
    let is_set = |key: &str| match event.at(key) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Int(number)) => *number != 0,
        other => other.is_some(),
    };
    for (_, shown) in old.iter().filter(|(key, _)| is_set(key)) {
        event.invalid(shown, "", "needs to be unset");
    }
}

/// Errors of an update: only the series can change.
fn validate_update(new: &Part<'_>, old: &Value) {
    const FIXED: &[&str] =
        &["reason", "type", "eventTime", "action", "related", "reportingController", "reportingInstance"];
    immutable(FIXED, new, old);
    immutable_as("regarding", "involvedObject", new, old);
    immutable_as("note", "message", new, old);
}

/// Stored under the names of core/v1, which is the stored form.
const SELECTABLE: Selectable = Selectable::new(&[
    SelectableField::NAME,
    SelectableField::NAMESPACE,
    SelectableField::new("regarding.kind").stored_as("involvedObject.kind"),
    SelectableField::new("regarding.namespace").stored_as("involvedObject.namespace"),
    SelectableField::new("regarding.name").stored_as("involvedObject.name"),
    SelectableField::new("regarding.uid").stored_as("involvedObject.uid"),
    SelectableField::new("regarding.apiVersion").stored_as("involvedObject.apiVersion"),
    SelectableField::new("regarding.resourceVersion").stored_as("involvedObject.resourceVersion"),
    SelectableField::new("regarding.fieldPath").stored_as("involvedObject.fieldPath"),
    SelectableField::new("reason"),
    SelectableField::new("reportingController").stored_as("reportingComponent"),
    SelectableField::new("type"),
]);

const CONVERSIONS: &[Conversion] =
    &[Conversion { version: "v1", stored: ("", "v1"), to_served: to_events_v1, to_stored: to_core_v1 }];

/// Fields that the newer group renamed (kubernetes `pkg/apis/events/v1/conversion.go`): name in core/v1,
/// name in events.k8s.io/v1.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Fields that core/v1 has even when they are empty, and events.k8s.io/v1 only when they are not.
const NEVER_OMITTED: [(&str, &str); 2] =
    [("reportingComponent", "reportingController"), ("reportingInstance", "reportingInstance")];

fn to_events_v1(event: &mut Value) {
    for (core, events) in RENAMED {
        rename(event, core, events);
    }
    for (_, field) in NEVER_OMITTED {
        if event.str_at(&[field]) == Some("") {
            event.as_object_mut().and_then(|map| map.remove(field));
        }
    }
}

fn to_core_v1(event: &mut Value) {
    for (core, events) in RENAMED {
        rename(event, events, core);
    }
    for (field, _) in NEVER_OMITTED {
        if let Some(map) = event.as_object_mut().filter(|map| map.get(field).is_none()) {
            map.insert(field, "");
        }
    }
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(map) = object.as_object_mut() {
        if let Some(value) = map.remove(from) {
            map.insert(to, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::ErrorList;
    use crate::core::event;
    use plinth_codec::{json, tree};

    const WHOLE: &str = r#"{"metadata":{"namespace":"n"},"regarding":{"namespace":"n"},"eventTime":"2026-01-01T00:00:00Z","reportingController":"x.io/c","reportingInstance":"i","action":"a","reason":"r","type":"Normal"}"#;

    #[test]
    fn events_and_their_errors() {
        type Rule = fn(&Part<'_>);
        // rule, event, paths of the errors
        let rows: [(Rule, &str, &[&str]); 7] = [
            (event::validate, r#"{"metadata":{"namespace":"n"},"involvedObject":{"namespace":"n"}}"#, &[]),
            (
                event::validate,
                r#"{"metadata":{"namespace":"n"},"involvedObject":{}}"#,
                &["involvedObject.namespace"],
            ),
            (
                event::validate,
                r#"{"metadata":{"namespace":"n"},"involvedObject":{"namespace":"o"}}"#,
                &["involvedObject.namespace"],
            ),
            (event::validate, r#"{"metadata":{"namespace":"default"},"involvedObject":{}}"#, &[]),
            (
                event::validate,
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
            let errors = ErrorList::of(&json::parse(event.as_bytes()).unwrap(), rule);
            let found: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
            assert_eq!(found, paths, "{event}");
        }
    }

    #[test]
    fn only_the_series_can_change() {
        let old = json::parse(WHOLE.as_bytes()).unwrap();
        let mut new = old.clone();
        new.object_at_mut(&["series"]).unwrap().insert("count", 2);
        let errors = |new: &Value| ErrorList::of(new, |new| validate_update(new, &old));
        assert_eq!(errors(&new), []);
        new.as_object_mut().unwrap().insert("note", "other");
        assert_eq!(errors(&new).len(), 1);
    }

    #[test]
    fn there_and_back() {
        let core = tree!({
            "involvedObject": tree!({ "name": "web" }),
            "message": "m",
            "count": 3,
            "reportingComponent": "kubelet",
            "reason": "Started",
            "reportingInstance": "",
        });
        let mut event = core.clone();
        to_events_v1(&mut event);
        assert_eq!(event.str_at(&["regarding", "name"]), Some("web"));
        assert_eq!(event.str_at(&["note"]), Some("m"));
        assert_eq!((event.get("count"), event.get("reportingInstance")), (None, None));
        to_core_v1(&mut event);
        assert_eq!(event, core);
    }
}
