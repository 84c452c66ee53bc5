//! Tolerations of pods: which include others, and lists of them.
//!
//! Upstream: kubernetes `pkg/util/tolerations`.

use plinth_codec::Value;

/// A toleration without empty fields.
pub(super) fn normal(toleration: &Value) -> Value {
    let mut out = Value::object();
    for key in ["effect", "key", "operator", "value"] {
        if let Some(text) = toleration.str_at(&[key]).filter(|text| !text.is_empty()) {
            if let Some(members) = out.as_object_mut() {
                members.insert(key, text);
            }
        }
    }
    if let Some(seconds) = toleration.get("tolerationSeconds").and_then(Value::as_int) {
        if let Some(members) = out.as_object_mut() {
            members.insert("tolerationSeconds", seconds);
        }
    }
    out
}

/// Whether one toleration includes the other.
pub(super) fn covers(wide: &Value, narrow: &Value) -> bool {
    let text = |toleration: &'_ Value, key: &str| toleration.str_at(&[key]).unwrap_or_default().to_owned();
    let (key, operator) = (text(wide, "key"), text(wide, "operator"));
    if wide == narrow {
        return true;
    }
    if text(narrow, "key") != key && !(key.is_empty() && operator == "Exists") {
        return false;
    }
    let effect = text(wide, "effect");
    if text(narrow, "effect") != effect && !effect.is_empty() {
        return false;
    }
    let seconds = |toleration: &Value| toleration.get("tolerationSeconds").and_then(Value::as_int);
    if let ("NoExecute", Some(most)) = (effect.as_str(), seconds(wide)) {
        if seconds(narrow).is_none_or(|given| given > most) {
            return false;
        }
    }
    match operator.as_str() {
        "Exists" => true,
        "Equal" | "" => text(narrow, "operator") == "Equal" && text(narrow, "value") == text(wide, "value"),
        _ => false,
    }
}

/// Merges two lists, without tolerations that others include.
pub(super) fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut merged: Vec<Value> = Vec::new();
    for (i, toleration) in all.iter().enumerate() {
        let later = all.get(i + 1..).unwrap_or_default();
        let is_covered = merged.iter().any(|other| covers(other, toleration))
            || later.iter().any(|other| other != toleration && covers(other, toleration));
        if !is_covered {
            merged.push((*toleration).clone());
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn parse(text: &str) -> Vec<Value> {
        json::parse(text.as_bytes()).unwrap().as_array().unwrap().to_vec()
    }

    #[test]
    fn what_covers_what() {
        // wide, narrow, whether it covers
        let rows = [
            (r#"{"operator":"Exists"}"#, r#"{"key":"a","operator":"Exists"}"#, true),
            (r#"{"key":"a","operator":"Exists"}"#, r#"{"key":"a","operator":"Equal","value":"x"}"#, true),
            (r#"{"key":"a","operator":"Equal","value":"x"}"#, r#"{"key":"a","operator":"Exists"}"#, false),
            (r#"{"key":"a","value":"x"}"#, r#"{"key":"a","operator":"Equal","value":"x"}"#, true),
            (
                r#"{"key":"a","operator":"Exists","effect":"NoSchedule"}"#,
                r#"{"key":"a","operator":"Exists"}"#,
                false,
            ),
            (r#"{"key":"a","operator":"Exists"}"#, r#"{"key":"b","operator":"Exists"}"#, false),
            (
                r#"{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}"#,
                r#"{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":6}"#,
                false,
            ),
            (
                r#"{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}"#,
                r#"{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":4}"#,
                true,
            ),
            (r#"{"key":"a","operator":"Odd"}"#, r#"{"key":"a","operator":"Exists"}"#, false),
        ];
        for (wide, narrow, expected) in rows {
            let list = parse(&format!("[{wide},{narrow}]"));
            assert_eq!(covers(&list[0], &list[1]), expected, "{wide} {narrow}");
        }
    }

    #[test]
    fn lists_are_merged_without_what_others_cover() {
        let first = parse(r#"[{"key":"a","operator":"Equal","value":"x"},{"key":"b","operator":"Exists"}]"#);
        let second = parse(r#"[{"key":"a","operator":"Exists"},{"key":"b","operator":"Exists"}]"#);
        assert_eq!(
            merge(&first, &second),
            parse(r#"[{"key":"b","operator":"Exists"},{"key":"a","operator":"Exists"}]"#)
        );
    }
}
