//! The status of device claims.

use std::collections::BTreeSet;

use plinth_codec::{Map, Value};

/// Devices that were allocated and are not any more lose what drivers reported of them
/// (`dropDeallocatedStatusDevices`).
pub fn prepare_status(new: &mut Value, old: &Value) {
    fn allocated(claim: &Value) -> BTreeSet<[String; 4]> {
        let results = claim.at(&["status", "allocation", "devices", "results"]).and_then(Value::as_array);
        results.unwrap_or_default().iter().map(device).collect()
    }
    fn device(object: &Value) -> [String; 4] {
        ["driver", "pool", "device", "shareID"]
            .map(|member| object.str_at(&[member]).unwrap_or_default().to_owned())
    }
    let kept = allocated(new);
    let gone: BTreeSet<_> = allocated(old).into_iter().filter(|device| !kept.contains(device)).collect();
    let devices: Vec<Value> = new
        .at(&["status", "devices"])
        .and_then(Value::as_array)
        .unwrap_or_default()
        .iter()
        .filter(|reported| !gone.contains(&device(reported)))
        .cloned()
        .collect();
    let Some(status) = new.object_at_mut(&["status"]) else { return };
    set_or_remove(status, "devices", devices);
}

fn set_or_remove(status: &mut Map, member: &str, list: Vec<Value>) {
    match list.is_empty() {
        true => drop(status.remove(member)),
        false => drop(status.insert(member, list)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_not_allocated_any_more_is_not_reported() {
        let old = parse(
            r#"{"status":{"allocation":{"devices":{"results":[{"driver":"a","pool":"p","device":"d"}]}},"devices":[{"driver":"a","pool":"p","device":"d"}]}}"#,
        );
        let mut new = parse(r#"{"status":{"devices":[{"driver":"a","pool":"p","device":"d"}]}}"#);
        prepare_status(&mut new, &old);
        assert_eq!(new, parse(r#"{"status":{}}"#));
    }
}
