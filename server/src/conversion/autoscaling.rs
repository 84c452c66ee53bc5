//! HorizontalPodAutoscaler: v1 knows one CPU target; what else v2 has travels in annotations
//! (kubernetes `pkg/apis/autoscaling/v1/conversion.go`).

use plinth_codec::{json, tree, Map, Value};

use crate::strategy::defaults::workloads::default_metric;

/// Annotation of v1, field of v2.
const ANNOTATIONS: &[(&str, &[&str])] = &[
    ("autoscaling.alpha.kubernetes.io/behavior", &["spec", "behavior"]),
    ("autoscaling.alpha.kubernetes.io/conditions", &["status", "conditions"]),
];
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";

pub(super) fn to_v1(hpa: &mut Value) {
    let mut annotations = Vec::new();
    for (annotation, path) in ANNOTATIONS {
        if let Some(value) = take(hpa, path) {
            annotations.push((*annotation, value));
        }
    }
    if let Some(Value::Array(metrics)) = take(hpa, &["spec", "metrics"]) {
        let (cpu, others): (Vec<_>, Vec<_>) = metrics.into_iter().partition(|m| cpu_target(m).is_some());
        if let Some(target) = cpu.first().and_then(cpu_target) {
            put(hpa, &["spec"], "targetCPUUtilizationPercentage", target.into());
        }
        if !others.is_empty() {
            annotations.push((METRICS, Value::Array(others)));
        }
    }
    if let Some(Value::Array(metrics)) = take(hpa, &["status", "currentMetrics"]) {
        let (cpu, others): (Vec<_>, Vec<_>) = metrics.into_iter().partition(|m| cpu_current(m).is_some());
        if let Some(current) = cpu.first().and_then(cpu_current) {
            put(hpa, &["status"], "currentCPUUtilizationPercentage", current.into());
        }
        if !others.is_empty() {
            annotations.push((CURRENT_METRICS, Value::Array(others)));
        }
    }
    for (annotation, value) in annotations {
        let mut text = Vec::new();
        json::write_untyped(&value, &mut text);
        let text = String::from_utf8_lossy(&text).into_owned();
        put(hpa, &["metadata", "annotations"], annotation, text.into());
    }
}

pub(super) fn to_v2(hpa: &mut Value) {
    for (annotation, path) in ANNOTATIONS {
        if let (Some(value), [parent, field]) = (take_annotation(hpa, annotation), path) {
            put(hpa, &[parent], field, value);
        }
    }
    let mut metrics = list(take_annotation(hpa, METRICS));
    if let Some(target) = take(hpa, &["spec", "targetCPUUtilizationPercentage"]) {
        let target = tree!({ "type": "Utilization", "averageUtilization": target });
        let resource = tree!({ "name": "cpu", "target": target });
        metrics.insert(0, tree!({ "type": "Resource", "resource": resource }));
    }
    put(hpa, &["spec"], "metrics", metrics.into());
    if let Some(object) = hpa.as_object_mut() {
        default_metric(object);
    }
    let mut current = list(take_annotation(hpa, CURRENT_METRICS));
    if let Some(value) = take(hpa, &["status", "currentCPUUtilizationPercentage"]) {
        let resource = tree!({ "name": "cpu", "current": tree!({ "averageUtilization": value }) });
        current.insert(0, tree!({ "type": "Resource", "resource": resource }));
    }
    if !current.is_empty() {
        put(hpa, &["status"], "currentMetrics", current.into());
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

/// An annotation's JSON; text that is none is dropped, as upstream does.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_v1_does_not_know_travels_in_annotations() {
        let cpu =
            tree!({ "name": "cpu", "target": tree!({ "type": "Utilization", "averageUtilization": 80 }) });
        let memory =
            tree!({ "name": "memory", "target": tree!({ "type": "Utilization", "averageUtilization": 70 }) });
        let metrics = tree!([
            tree!({ "type": "Resource", "resource": cpu }),
            tree!({ "type": "Resource", "resource": memory }),
        ]);
        let v2 = tree!({
            "metadata": tree!({ "name": "h" }),
            "spec": tree!({ "maxReplicas": 3, "metrics": metrics }),
        });
        let mut hpa = v2.clone();
        to_v1(&mut hpa);
        assert_eq!(hpa.at(&["spec", "targetCPUUtilizationPercentage"]), Some(&Value::Int(80)));
        assert!(hpa.str_at(&["metadata", "annotations", METRICS]).unwrap().contains("memory"));
        to_v2(&mut hpa);
        assert_eq!(hpa, v2);
    }
}
