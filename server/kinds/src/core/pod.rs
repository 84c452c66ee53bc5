//! Pods: where their life starts, and their quality of service.

use plinth_codec::quantity::Quantity;
use plinth_codec::{tree, Value};

use super::{app_armor, label_keys};
use plinth_api::conditions;

/// A new pod waits, and its class of service is set for good.
pub fn prepare_for_create(pod: &mut Value) {
    let class = quality_of_service(pod);
    let status = tree!({ "phase": "Pending", "qosClass": class });
    if let Some(object) = pod.as_object_mut() {
        object.insert("status", status);
    }
    let gates = pod.at(&["spec", "schedulingGates"]).and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        let why = "Scheduling is blocked due to non-empty scheduling gates";
        conditions::set_of_pod(pod, "PodScheduled", "False", "SchedulingGated", why);
    }
    label_keys::merge(pod);
    app_armor::fill(pod);
}

/// What counts for the class of service.
const COUNTED: [&str; 2] = ["cpu", "memory"];

/// `Guaranteed` when every container limits CPU and memory and requests the same, `BestEffort` when none says
/// anything of them (kubernetes `pkg/apis/core/v1/helper/qos`).
pub fn quality_of_service(pod: &Value) -> &'static str {
    let whole = pod.at(&["spec", "resources"]).filter(|r| r.get("limits").or(r.get("requests")).is_some());
    let lists = ["containers", "initContainers"].into_iter();
    let containers =
        lists.flat_map(|part| pod.at(&["spec", part]).and_then(Value::as_array).unwrap_or_default());
    let resources: Vec<Option<&Value>> = match whole {
        Some(whole) => vec![Some(whole)],
        None => containers.map(|c| c.get("resources")).collect(),
    };
    let amount = |resources: Option<&Value>, part: &str, name: &str| {
        let text = resources?.str_at(&[part, name])?;
        Quantity::parse(text).ok().filter(|q| q.sign() > 0)
    };
    let mut guaranteed = true;
    let mut best_effort = true;
    for part in &resources {
        for name in COUNTED {
            let (limit, request) = (amount(*part, "limits", name), amount(*part, "requests", name));
            best_effort &= limit.is_none() && request.is_none();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (best_effort, guaranteed) {
        (true, _) => "BestEffort",
        (_, true) => "Guaranteed",
        _ => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn class_of_service() {
        let rows = [
            ("[{}]", "BestEffort"),
            (r#"[{"resources":{"limits":{"cpu":"1","memory":"1Gi"}}}]"#, "Guaranteed"),
            (
                r#"[{"resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"500m"}}}]"#,
                "Burstable",
            ),
            (r#"[{"resources":{"limits":{"cpu":"1","memory":"1Gi"}}},{}]"#, "Burstable"),
            (r#"[{"resources":{"limits":{"cpu":"1"}}}]"#, "Burstable"),
            (r#"[{"resources":{"requests":{"example.com/gpu":"1"}}}]"#, "BestEffort"),
        ];
        for (containers, class) in rows {
            let text = format!(r#"{{"spec":{{"containers":{containers}}}}}"#);
            let mut pod = json::parse(text.as_bytes()).unwrap();
            prepare_for_create(&mut pod);
            assert_eq!(pod.str_at(&["status", "qosClass"]), Some(class), "{containers}");
        }
    }
}
