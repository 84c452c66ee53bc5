//! The QoS class of a pod.

use plinth_codec::quantity::Quantity;
use plinth_codec::Value;

/// Resources that determine the QoS class.
const COUNTED: [&str; 2] = ["cpu", "memory"];

/// The QoS class: `Guaranteed` when every container has limits of CPU and memory and equal requests,
/// `BestEffort` when none has any (kubernetes `pkg/apis/core/v1/helper/qos`).
pub fn quality_of_service(pod: &Value) -> &'static str {
    let whole = pod.at(&["spec", "resources"]).filter(|r| r.get("limits").or(r.get("requests")).is_some());
    let lists = ["containers", "initContainers"].into_iter();
    let containers = lists.flat_map(|part| pod.list_at(&["spec", part]));
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
    fn qos_class() {
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
            let pod = json::parse(text.as_bytes()).unwrap();
            assert_eq!(quality_of_service(&pod), class, "{containers}");
        }
    }
}
