//! HorizontalPodAutoscaler: v1 has one CPU target; v2's other fields are kept in annotations, encoded as v1's
//! own types (kubernetes `pkg/apis/autoscaling/v1/conversion.go`). The JSON is identical to upstream's,
//! member by member.

use plinth_codec::{json, tree, Map, Value};

use crate::defaults;
use crate::strategy::Conversion;

/// autoscaling/v1 of the stored v2.
pub(super) const TO_V1: Conversion =
    Conversion { version: "v1", stored: ("autoscaling", "v2"), to_served: to_v1, to_stored: to_v2 };

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// Annotations that a round trip may have left.
const ANNOTATIONS: [&str; 4] = [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR];

/// How an absent member is encoded.
#[derive(Clone, Copy)]
enum Absent {
    /// The member is omitted.
    Omit,
    /// As a quantity of zero.
    Zero,
    /// As null.
    Null,
}

use Absent::{Null, Omit, Zero};

/// One member of a v1 form: its name there, its path in v2, and the encoding of its absence.
type Member = (&'static str, &'static [&'static str], Absent);

/// A metric source: its key, the members of its spec, and those of its status, in the order of v1's types.
struct Source {
    key: &'static str,
    spec: &'static [Member],
    status: &'static [Member],
}

const SOURCES: &[Source] = &[
    Source {
        key: "object",
        spec: &[
            ("target", &["describedObject"], Omit),
            ("metricName", &["metric", "name"], Omit),
            ("targetValue", &["target", "value"], Zero),
            ("selector", &["metric", "selector"], Omit),
            ("averageValue", &["target", "averageValue"], Omit),
        ],
        status: &[
            ("target", &["describedObject"], Omit),
            ("metricName", &["metric", "name"], Omit),
            ("currentValue", &["current", "value"], Zero),
            ("selector", &["metric", "selector"], Omit),
            ("averageValue", &["current", "averageValue"], Omit),
        ],
    },
    Source {
        key: "pods",
        spec: &[
            ("metricName", &["metric", "name"], Omit),
            ("targetAverageValue", &["target", "averageValue"], Zero),
            ("selector", &["metric", "selector"], Omit),
        ],
        status: &[
            ("metricName", &["metric", "name"], Omit),
            ("currentAverageValue", &["current", "averageValue"], Zero),
            ("selector", &["metric", "selector"], Omit),
        ],
    },
    Source {
        key: "resource",
        spec: &[
            ("name", &["name"], Omit),
            ("targetAverageUtilization", &["target", "averageUtilization"], Omit),
            ("targetAverageValue", &["target", "averageValue"], Omit),
        ],
        status: &[
            ("name", &["name"], Omit),
            ("currentAverageUtilization", &["current", "averageUtilization"], Omit),
            ("currentAverageValue", &["current", "averageValue"], Zero),
        ],
    },
    Source {
        key: "containerResource",
        spec: &[
            ("name", &["name"], Omit),
            ("targetAverageUtilization", &["target", "averageUtilization"], Omit),
            ("targetAverageValue", &["target", "averageValue"], Omit),
            ("container", &["container"], Omit),
        ],
        status: &[
            ("name", &["name"], Omit),
            ("currentAverageUtilization", &["current", "averageUtilization"], Omit),
            ("currentAverageValue", &["current", "averageValue"], Zero),
            ("container", &["container"], Omit),
        ],
    },
    Source {
        key: "external",
        spec: &[
            ("metricName", &["metric", "name"], Omit),
            ("metricSelector", &["metric", "selector"], Omit),
            ("targetValue", &["target", "value"], Omit),
            ("targetAverageValue", &["target", "averageValue"], Omit),
        ],
        status: &[
            ("metricName", &["metric", "name"], Omit),
            ("metricSelector", &["metric", "selector"], Omit),
            ("currentValue", &["current", "value"], Zero),
            ("currentAverageValue", &["current", "averageValue"], Omit),
        ],
    },
];

const CONDITION: &[Member] = &[
    ("type", &["type"], Omit),
    ("status", &["status"], Omit),
    ("lastTransitionTime", &["lastTransitionTime"], Null),
    ("reason", &["reason"], Omit),
    ("message", &["message"], Omit),
];
const REFERENCE: &[Member] =
    &[("kind", &["kind"], Omit), ("name", &["name"], Omit), ("apiVersion", &["apiVersion"], Omit)];
/// Behavior is encoded as upstream's internal type, with Go's names.
const RULES: &[Member] = &[
    ("StabilizationWindowSeconds", &["stabilizationWindowSeconds"], Null),
    ("SelectPolicy", &["selectPolicy"], Null),
    ("Policies", &["policies"], Null),
    ("Tolerance", &["tolerance"], Null),
];
const POLICY: &[Member] =
    &[("Type", &["type"], Null), ("Value", &["value"], Null), ("PeriodSeconds", &["periodSeconds"], Null)];

fn text_of(value: &Value) -> String {
    let mut text = Vec::new();
    json::write_untyped(value, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Encodes an object with the given members in order.
fn written(object: &Value, members: &[Member]) -> String {
    let mut parts = Vec::new();
    for (name, path, absent) in members {
        let text = match (object.at(path).filter(|v| !v.is_null()), absent) {
            (Some(value), _) if *name == "target" => written(value, REFERENCE),
            (Some(Value::Array(policies)), _) if *name == "Policies" => {
                let each: Vec<String> = policies.iter().map(|policy| written(policy, POLICY)).collect();
                format!("[{}]", each.join(","))
            }
            (Some(value), _) => text_of(value),
            (None, Omit) => continue,
            (None, Zero) => "\"0\"".to_owned(),
            (None, Null) => "null".to_owned(),
        };
        parts.push(format!("\"{name}\":{text}"));
    }
    format!("{{{}}}", parts.join(","))
}

/// Encodes a metric in v1's form.
fn metric_text(metric: &Value, members: fn(&Source) -> &'static [Member]) -> String {
    let mut parts = vec![format!("\"type\":{}", text_of(metric.get("type").unwrap_or(&Value::Null)))];
    for source in SOURCES {
        if let Some(own) = metric.get(source.key).filter(|own| !own.is_null()) {
            parts.push(format!("\"{}\":{}", source.key, written(own, members(source))));
        }
    }
    format!("{{{}}}", parts.join(","))
}

fn list_text(items: &[Value], text: impl Fn(&Value) -> String) -> String {
    let each: Vec<String> = items.iter().map(text).collect();
    format!("[{}]", each.join(","))
}

/// Decodes an object of v2 from the members of its v1 form.
fn read(form: &Value, members: &[Member]) -> Value {
    let mut object = Value::object();
    for (name, path, _) in members {
        let Some(value) = form.get(name).filter(|v| !v.is_null()) else { continue };
        let Some((key, parents)) = path.split_last() else { continue };
        let value = match value {
            Value::Array(policies) if *name == "Policies" => {
                policies.iter().map(|policy| read(policy, POLICY)).collect::<Vec<_>>().into()
            }
            value => value.clone(),
        };
        put(&mut object, parents, key, value);
    }
    object
}

/// Sets the type of a target according to its value.
fn set_target_type(source: &mut Value) {
    let Some(target) = source.get("target").cloned() else { return };
    let kind = [("averageUtilization", "Utilization"), ("averageValue", "AverageValue"), ("value", "Value")]
        .into_iter()
        .find(|(key, _)| target.get(key).is_some())
        .map_or("", |(_, kind)| kind);
    put(source, &["target"], "type", kind.into());
}

fn metric_of(form: &Value, is_spec: bool) -> Value {
    let mut metric = Map::new();
    metric.insert("type", form.get("type").cloned().unwrap_or_default());
    for source in SOURCES {
        if let Some(own) = form.get(source.key).filter(|own| !own.is_null()) {
            let mut read = read(own, if is_spec { source.spec } else { source.status });
            // A value of zero next to an average means that the value is absent.
            let part = if is_spec { "target" } else { "current" };
            if read.at(&[part, "averageValue"]).is_some() && read.str_at(&[part, "value"]) == Some("0") {
                take(&mut read, &[part, "value"]);
            }
            if is_spec {
                set_target_type(&mut read);
            }
            metric.insert(source.key, read);
        }
    }
    Value::Object(metric)
}

fn to_v1(hpa: &mut Value) {
    for annotation in ANNOTATIONS {
        take(hpa, &["metadata", "annotations", annotation]);
    }
    let mut annotations = Vec::new();
    if let Some(Value::Array(metrics)) = take(hpa, &["spec", "metrics"]) {
        let (cpu, others): (Vec<_>, Vec<_>) = metrics.into_iter().partition(|m| cpu_target(m).is_some());
        if let Some(target) = cpu.first().and_then(cpu_target) {
            put(hpa, &["spec"], "targetCPUUtilizationPercentage", target.into());
        }
        if !others.is_empty() {
            annotations.push((METRICS, list_text(&others, |m| metric_text(m, |source| source.spec))));
        }
    }
    if let Some(Value::Array(metrics)) = take(hpa, &["status", "currentMetrics"]) {
        if let Some(current) = metrics.iter().find_map(cpu_current) {
            put(hpa, &["status"], "currentCPUUtilizationPercentage", current.into());
        }
        if !metrics.is_empty() {
            annotations
                .push((CURRENT_METRICS, list_text(&metrics, |m| metric_text(m, |source| source.status))));
        }
    }
    if let Some(behavior) = take(hpa, &["spec", "behavior"]) {
        let rules = |key: &str| match behavior.get(key).filter(|rules| !rules.is_null()) {
            Some(rules) => written(rules, RULES),
            None => "null".to_owned(),
        };
        let text = format!("{{\"ScaleUp\":{},\"ScaleDown\":{}}}", rules("scaleUp"), rules("scaleDown"));
        annotations.push((BEHAVIOR, text));
    }
    if let Some(Value::Array(conditions)) = take(hpa, &["status", "conditions"]) {
        if !conditions.is_empty() {
            annotations.push((CONDITIONS, list_text(&conditions, |condition| written(condition, CONDITION))));
        }
    }
    for (annotation, text) in annotations {
        put(hpa, &["metadata", "annotations"], annotation, text.into());
    }
    // The replica counts are required in v1, optional in v2.
    if let Some(status) = hpa.get_mut("status").and_then(Value::as_object_mut) {
        if !status.contains("currentReplicas") {
            status.insert("currentReplicas", 0);
        }
    }
}

fn to_v2(hpa: &mut Value) {
    let [metrics, current, conditions, behavior] =
        ANNOTATIONS.map(|annotation| take_annotation(hpa, annotation));
    let mut metrics: Vec<Value> = list(metrics).iter().map(|form| metric_of(form, true)).collect();
    if let Some(target) = take(hpa, &["spec", "targetCPUUtilizationPercentage"]) {
        let target = tree!({ "type": "Utilization", "averageUtilization": target });
        let resource = tree!({ "name": "cpu", "target": target });
        metrics.push(tree!({ "type": "Resource", "resource": resource }));
    }
    put(hpa, &["spec"], "metrics", metrics.into());
    if let Some(object) = hpa.as_object_mut() {
        default_metric(object);
    }
    if let Some(behavior) = behavior {
        let rules =
            |key: &str| behavior.get(key).filter(|rules| !rules.is_null()).map(|rules| read(rules, RULES));
        for (key, rules) in [("scaleUp", rules("ScaleUp")), ("scaleDown", rules("ScaleDown"))] {
            if let Some(rules) = rules {
                put(hpa, &["spec", "behavior"], key, rules);
            }
        }
    }
    let utilization = take(hpa, &["status", "currentCPUUtilizationPercentage"]);
    let mut current: Vec<Value> = list(current).iter().map(|form| metric_of(form, false)).collect();
    if let (Some(value), true) = (utilization, current.is_empty()) {
        let resource = tree!({ "name": "cpu", "current": tree!({ "averageUtilization": value }) });
        current.push(tree!({ "type": "Resource", "resource": resource }));
    }
    if !current.is_empty() {
        put(hpa, &["status"], "currentMetrics", current.into());
    }
    let conditions: Vec<Value> = list(conditions).iter().map(|form| read(form, CONDITION)).collect();
    if !conditions.is_empty() {
        put(hpa, &["status"], "conditions", conditions.into());
    }
    if hpa.at(&["status", "currentReplicas"]) == Some(&Value::Int(0)) {
        take(hpa, &["status", "currentReplicas"]);
    }
    let annotations = hpa.at(&["metadata", "annotations"]).and_then(Value::as_object);
    if annotations.is_some_and(Map::is_empty) {
        take(hpa, &["metadata", "annotations"]);
    }
}

fn cpu_target(metric: &Value) -> Option<i64> {
    let is_cpu =
        metric.str_at(&["type"]) == Some("Resource") && metric.str_at(&["resource", "name"]) == Some("cpu");
    metric.at(&["resource", "target", "averageUtilization"]).and_then(Value::as_int).filter(|_| is_cpu)
}

fn cpu_current(metric: &Value) -> Option<i64> {
    let is_cpu =
        metric.str_at(&["type"]) == Some("Resource") && metric.str_at(&["resource", "name"]) == Some("cpu");
    metric.at(&["resource", "current", "averageUtilization"]).and_then(Value::as_int).filter(|_| is_cpu)
}

fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// Decodes and removes an annotation; invalid JSON is dropped, as upstream does.
fn take_annotation(hpa: &mut Value, name: &str) -> Option<Value> {
    let text = take(hpa, &["metadata", "annotations", name])?;
    json::parse(text.as_str()?.as_bytes()).ok()
}

fn take(object: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(object, |v, key| v.get_mut(key))?;
    parent.as_object_mut()?.remove(last)
}

fn put(object: &mut Value, parents: &[&str], field: &str, value: Value) {
    if let Some(parent) = object.object_at_mut(parents) {
        parent.insert(field, value);
    }
}

/// Without metrics, the target is a CPU utilization of 80 percent of the request.
pub(super) fn default_metric(object: &mut Map) {
    const CPU_PERCENT: i64 = 80;
    let target = tree!({ "type": "Utilization", "averageUtilization": CPU_PERCENT });
    let resource = tree!({ "name": "cpu", "target": target });
    let metrics = tree!([tree!({ "type": "Resource", "resource": resource })]);
    let is_absent = |v: &Value| v.is_null() || v.as_array().is_some_and(<[Value]>::is_empty);
    defaults::set(object, "spec.metrics", &metrics, is_absent);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What v2 has, the annotation that v1 has for it, and its text.
    const ROWS: &[(&str, &str, &str)] = &[
        (
            r#"{"spec":{"metrics":[{"type":"Resource","resource":{"name":"memory","target":{"type":"AverageValue","averageValue":"1Gi"}}},{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]}}"#,
            METRICS,
            r#"[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Gi"}}]"#,
        ),
        (
            r#"{"spec":{"metrics":[{"type":"Object","object":{"describedObject":{"apiVersion":"v1","kind":"Service","name":"s"},"metric":{"name":"m"},"target":{"type":"Value","value":"5"}}}]}}"#,
            METRICS,
            r#"[{"type":"Object","object":{"target":{"kind":"Service","name":"s","apiVersion":"v1"},"metricName":"m","targetValue":"5"}}]"#,
        ),
        (
            r#"{"spec":{"metrics":[{"type":"External","external":{"metric":{"name":"m"},"target":{"type":"AverageValue","averageValue":"7"}}}]}}"#,
            METRICS,
            r#"[{"type":"External","external":{"metricName":"m","targetAverageValue":"7"}}]"#,
        ),
        (
            r#"{"spec":{"behavior":{"scaleDown":{"policies":[{"type":"Pods","value":1,"periodSeconds":5}],"selectPolicy":"Max"}},"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]}}"#,
            BEHAVIOR,
            r#"{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":null,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":1,"PeriodSeconds":5}],"Tolerance":null}}"#,
        ),
        (
            r#"{"spec":{"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]},"status":{"conditions":[{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"r"}]}}"#,
            CONDITIONS,
            r#"[{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"r"}]"#,
        ),
        (
            r#"{"spec":{"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]},"status":{"currentMetrics":[{"type":"Resource","resource":{"name":"cpu","current":{"averageUtilization":3,"averageValue":"5m"}}}]}}"#,
            CURRENT_METRICS,
            r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":3,"currentAverageValue":"5m"}}]"#,
        ),
    ];

    #[test]
    fn what_v1_does_not_know_travels_in_annotations() {
        for (v2, annotation, text) in ROWS {
            let before = json::parse(v2.as_bytes()).unwrap();
            let mut hpa = before.clone();
            to_v1(&mut hpa);
            assert_eq!(hpa.str_at(&["metadata", "annotations", annotation]), Some(*text), "{v2}");
            to_v2(&mut hpa);
            take(&mut hpa, &["metadata"]);
            assert_eq!(hpa, before, "{v2}");
        }
    }

    #[test]
    fn v1_has_a_target_of_its_own() {
        let mut hpa = json::parse(br#"{"spec":{"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":70}}}]},"status":{}}"#).unwrap();
        to_v1(&mut hpa);
        assert_eq!(hpa.at(&["spec", "targetCPUUtilizationPercentage"]), Some(&Value::Int(70)));
        assert_eq!(hpa.at(&["status", "currentReplicas"]), Some(&Value::Int(0)));
        assert_eq!(hpa.get("metadata"), None);
    }
}
