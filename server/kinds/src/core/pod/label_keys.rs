//! `matchLabelKeys` and `mismatchLabelKeys` of affinity and topology spread constraints: their values are
//! taken from the labels of a new pod and merged into the selector, so that the scheduler reads selectors
//! alone.
//!
//! Upstream: kubernetes `pkg/registry/core/pod/strategy.go`.

use plinth_codec::{tree, Value};

const WHEN: [&str; 2] =
    ["requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"];

/// Merges label keys into the selectors of affinities and topology spread constraints.
pub(crate) fn merge(pod: &mut Value) {
    let labels = pod.at(&["metadata", "labels"]).cloned().unwrap_or_else(Value::object);
    let has = |pod: &Value, member: &str| pod.at(&["spec", member]).is_some_and(|value| !value.is_null());
    if has(pod, "topologySpreadConstraints") {
        let constraints =
            pod.object_at_mut(&["spec"]).and_then(|spec| spec.get_mut("topologySpreadConstraints"));
        each(constraints, |constraint| add(constraint, &labels, &[("matchLabelKeys", "In")]));
    }
    if !has(pod, "affinity") {
        return;
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        for when in WHEN {
            if pod.at(&["spec", "affinity", kind, when]).is_none() {
                continue;
            }
            let terms = pod.object_at_mut(&["spec", "affinity", kind]).and_then(|kind| kind.get_mut(when));
            each(terms, |term| {
                let term = match when == WHEN[0] {
                    true => Some(term),
                    false => term.get_mut("podAffinityTerm"),
                };
                if let Some(term) = term {
                    add(term, &labels, &[("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")]);
                }
            });
        }
    }
}

fn each(list: Option<&mut Value>, change: impl Fn(&mut Value)) {
    list.and_then(Value::as_array_mut).into_iter().flatten().for_each(change);
}

/// Merges the label keys of each member into the owner's selector; a null selector matches nothing and is
/// left alone.
fn add(owner: &mut Value, labels: &Value, members: &[(&str, &str)]) {
    let texts = |member: &str| owner.list_at(&[member]);
    let requirements: Vec<Value> = members
        .iter()
        .flat_map(|(member, operator)| texts(member).iter().map(move |key| (key, *operator)))
        .filter_map(|(key, operator)| {
            let key = key.as_str()?;
            let value = labels.get(key).and_then(Value::as_str)?;
            Some(tree!({ "key": key, "operator": operator, "values": Value::from(vec![Value::from(value)]) }))
        })
        .collect();
    if requirements.is_empty() || owner.get("labelSelector").is_none_or(Value::is_null) {
        return;
    }
    let Some(selector) = owner.object_at_mut(&["labelSelector"]) else { return };
    let before = selector.get("matchExpressions").and_then(Value::as_array).unwrap_or_default();
    let all: Vec<Value> = before.iter().cloned().chain(requirements).collect();
    selector.insert("matchExpressions", Value::from(all));
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn label_keys_become_requirements() {
        let pod = |spec: &str| {
            let text = format!(r#"{{"metadata":{{"labels":{{"a":"1","b":"2"}}}},"spec":{spec}}}"#);
            json::parse(text.as_bytes()).unwrap()
        };
        // spec before and after
        let rows = [
            (
                r#"{"topologySpreadConstraints":[{"matchLabelKeys":["a","c"],"labelSelector":{}},{"matchLabelKeys":["a"]}]}"#,
                r#"{"topologySpreadConstraints":[{"matchLabelKeys":["a","c"],"labelSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["1"]}]}},{"matchLabelKeys":["a"]}]}"#,
            ),
            (
                r#"{"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"matchLabelKeys":["a"],"mismatchLabelKeys":["b"],"labelSelector":{"matchExpressions":[{"key":"x","operator":"Exists"}]}}]}}}"#,
                r#"{"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"matchLabelKeys":["a"],"mismatchLabelKeys":["b"],"labelSelector":{"matchExpressions":[{"key":"x","operator":"Exists"},{"key":"a","operator":"In","values":["1"]},{"key":"b","operator":"NotIn","values":["2"]}]}}]}}}"#,
            ),
            (
                r#"{"affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"podAffinityTerm":{"matchLabelKeys":["b"],"labelSelector":{}}}]}}}"#,
                r#"{"affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"podAffinityTerm":{"matchLabelKeys":["b"],"labelSelector":{"matchExpressions":[{"key":"b","operator":"In","values":["2"]}]}}}]}}}"#,
            ),
            (r#"{"affinity":{}}"#, r#"{"affinity":{}}"#),
        ];
        for (before, after) in rows {
            let mut changed = pod(before);
            merge(&mut changed);
            assert_eq!(changed, pod(after), "{before}");
        }
    }
}
