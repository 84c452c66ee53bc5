//! `ExtendedResourceToleration`: a pod that requests an extended resource (`example.com/gpu`) tolerates the
//! taint of that name. Off by default.
//!
//! Upstream: kubernetes `plugin/pkg/admission/extendedresourcetoleration`.

use std::collections::BTreeSet;

use plinth_codec::{tree, Value};

use plinth_kinds::quantities::is_extended;

/// Adds a toleration for each extended resource.
pub(super) fn admit(pod: &mut Value) {
    let wanted: BTreeSet<String> = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| pod.list_at(&["spec", list]))
        .filter_map(|container| container.at(&["resources", "requests"])?.as_object())
        .flat_map(|requests| requests.keys())
        .filter(|name| is_extended(name))
        .map(|name| name.to_string())
        .collect();
    let Some(spec) = pod.object_at_mut(&["spec"]).filter(|_| !wanted.is_empty()) else { return };
    let mut tolerations = spec.get("tolerations").and_then(Value::as_array).unwrap_or_default().to_vec();
    for name in wanted {
        let toleration = tree!({ "key": name.as_str(), "operator": "Exists", "effect": "NoSchedule" });
        let is_same = |other: &&mut Value| {
            let text = |key: &str| other.str_at(&[key]).unwrap_or_default();
            let is_bare = text("operator") == "Exists" && text("value").is_empty();
            text("key") == name && text("effect") == "NoSchedule" && is_bare
        };
        match tolerations.iter_mut().find(is_same) {
            Some(other) => *other = toleration,
            None => tolerations.push(toleration),
        }
    }
    spec.insert("tolerations", tolerations);
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn resources_of_others_are_tolerated() {
        // requests, tolerations before, keys and seconds afterwards
        type Row = (&'static str, &'static str, &'static [(&'static str, Option<i64>)]);
        let rows: [Row; 5] = [
            (r#"{"cpu":"1","requests.a/b":"1","x.kubernetes.io/y":"1","hugepages-2Mi":"1"}"#, "[]", &[]),
            (r#"{"b.com/y":"1","a.com/x":"1"}"#, "[]", &[("a.com/x", None), ("b.com/y", None)]),
            (
                r#"{"a.com/x":"1"}"#,
                r#"[{"key":"a.com/x","operator":"Exists","effect":"NoSchedule","tolerationSeconds":1}]"#,
                &[("a.com/x", None)],
            ),
            (
                r#"{"a.com/x":"1"}"#,
                r#"[{"key":"a.com/x","operator":"Exists","effect":"NoExecute","tolerationSeconds":1}]"#,
                &[("a.com/x", Some(1)), ("a.com/x", None)],
            ),
            (r#"{"a b/x":"1"}"#, "[]", &[]),
        ];
        for (requests, tolerations, expected) in rows {
            let text = format!(
                r#"{{"spec":{{"tolerations":{tolerations},"containers":[{{"resources":{{"requests":{requests}}}}}]}}}}"#
            );
            let mut pod = json::parse(text.as_bytes()).unwrap();
            admit(&mut pod);
            let found = pod.at(&["spec", "tolerations"]).and_then(Value::as_array).unwrap();
            let found: Vec<(&str, Option<i64>)> = found
                .iter()
                .map(|t| (t.str_at(&["key"]).unwrap(), t.get("tolerationSeconds").and_then(Value::as_int)))
                .collect();
            assert_eq!(found, expected, "{requests}");
        }
    }
}
