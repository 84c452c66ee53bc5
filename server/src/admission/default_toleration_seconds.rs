//! `DefaultTolerationSeconds`: by default a pod tolerates a node that is not ready or unreachable for some
//! time.
//!
//! Upstream: kubernetes `plugin/pkg/admission/defaulttolerationseconds`.

use plinth_codec::{tree, Value};

/// Adds the missing ones of the two tolerations.
pub(super) fn admit(pod: &mut Value, not_ready_seconds: i64, unreachable_seconds: i64) {
    let added = [
        ("node.kubernetes.io/not-ready", not_ready_seconds),
        ("node.kubernetes.io/unreachable", unreachable_seconds),
    ];
    add(pod, &added);
}

fn add(pod: &mut Value, added: &[(&str, i64)]) {
    let Some(spec) = pod.object_at_mut(&["spec"]) else { return };
    let mut tolerations = spec.get("tolerations").and_then(Value::as_array).unwrap_or_default().to_vec();
    let present = tolerations.len();
    for (key, seconds) in added {
        let text = |t: &Value, key: &str| t.str_at(&[key]).unwrap_or_default().to_owned();
        let tolerates = |t: &Value| {
            (text(t, "key").is_empty() || text(t, "key") == *key)
                && matches!(text(t, "effect").as_str(), "" | "NoExecute")
        };
        if !tolerations.iter().take(present).any(tolerates) {
            tolerations.push(tree!({
                "key": *key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": *seconds,
            }));
        }
    }
    if tolerations.len() > present {
        spec.insert("tolerations", tolerations);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn only_missing_tolerations_are_added() {
        // tolerations of the pod, keys afterwards
        let rows: [(&str, &[&str]); 5] = [
            ("[]", &["a", "b"]),
            (r#"[{"key":"a","effect":"NoExecute"}]"#, &["a", "b"]),
            (r#"[{"key":"a","effect":"NoSchedule"}]"#, &["a", "a", "b"]),
            (r#"[{"operator":"Exists"}]"#, &[""]),
            (r#"[{"key":"b"}]"#, &["b", "a"]),
        ];
        for (tolerations, keys) in rows {
            let text = format!(r#"{{"spec":{{"tolerations":{tolerations}}}}}"#);
            let mut pod = json::parse(text.as_bytes()).unwrap();
            add(&mut pod, &[("a", 1), ("b", 2)]);
            let list = pod.at(&["spec", "tolerations"]).and_then(Value::as_array).unwrap();
            let found: Vec<&str> = list.iter().map(|t| t.str_at(&["key"]).unwrap_or_default()).collect();
            assert_eq!(found, keys, "{tolerations}");
        }
    }
}
