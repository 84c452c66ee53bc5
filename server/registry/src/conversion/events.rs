//! Events: the newer group renamed fields (kubernetes `pkg/apis/events/v1/conversion.go`).

use plinth_codec::Value;

/// core/v1 name, events.k8s.io/v1 name.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

pub(super) fn to_events_v1(event: &mut Value) {
    for (core, events) in NAMES {
        rename(event, core, events);
    }
}

pub(super) fn to_core_v1(event: &mut Value) {
    for (core, events) in NAMES {
        rename(event, events, core);
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
    use plinth_codec::tree;

    #[test]
    fn there_and_back() {
        let core = tree!({
            "involvedObject": tree!({ "name": "web" }),
            "message": "m",
            "count": 3,
            "reportingComponent": "kubelet",
            "reason": "Started",
        });
        let mut event = core.clone();
        to_events_v1(&mut event);
        assert_eq!(event.str_at(&["regarding", "name"]), Some("web"));
        assert_eq!(event.str_at(&["note"]), Some("m"));
        assert_eq!(event.get("count"), None);
        to_core_v1(&mut event);
        assert_eq!(event, core);
    }
}
