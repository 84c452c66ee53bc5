//! Events, in the form of core/v1.

use super::read::{at, int_at, or, str_at};
use super::Computation;
use crate::Value;

/// When the event was first seen: the old field, else the new one.
fn first_seen(event: &Value) -> &str {
    or(str_at(event, "firstTimestamp"), str_at(event, "eventTime"))
}

pub const FIRST_SEEN: Computation = Computation {
    reads: &["firstTimestamp", "eventTime"],
    cell: |event, now| now.age(first_seen(event)).into(),
};

pub const LAST_SEEN: Computation = Computation {
    reads: &["firstTimestamp", "eventTime", "lastTimestamp", "series.lastObservedTime"],
    cell: |event, now| {
        let seen = match at(event, "series") {
            Some(series) => str_at(series, "lastObservedTime"),
            None => or(str_at(event, "lastTimestamp"), first_seen(event)),
        };
        now.age(seen).into()
    },
};

/// An event of the new form that happened once has no count.
pub const COUNT: Computation = Computation {
    reads: &["count", "series.count"],
    cell: |event, _| match (at(event, "series"), int_at(event, "count")) {
        (Some(series), _) => int_at(series, "count").into(),
        (None, 0) => 1.into(),
        (None, count) => count.into(),
    },
};

pub const OBJECT: Computation = Computation {
    reads: &["involvedObject.kind", "involvedObject.name"],
    cell: |event, _| {
        let kind = str_at(event, "involvedObject.kind").to_lowercase();
        match str_at(event, "involvedObject.name") {
            "" => kind.into(),
            name => format!("{kind}/{name}").into(),
        }
    },
};

pub const SOURCE: Computation = Computation {
    reads: &["source.component", "source.host", "reportingComponent", "reportingInstance"],
    cell: |event, _| {
        let component = or(str_at(event, "source.component"), str_at(event, "reportingComponent"));
        match or(str_at(event, "source.host"), str_at(event, "reportingInstance")) {
            "" => component.into(),
            instance => format!("{component}, {instance}").into(),
        }
    },
};

pub const MESSAGE: Computation =
    Computation { reads: &["message"], cell: |event, _| str_at(event, "message").trim().into() };
