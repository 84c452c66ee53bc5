//! Resource lists (`ResourceList`: quantities by resource name), and the total requests of a pod.

use std::collections::BTreeMap;

use plinth_codec::quantity::Quantity;
use plinth_codec::{Map, Value};

/// Quantities by resource name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceList(pub BTreeMap<String, Quantity>);

impl ResourceList {
    /// Parses a resource list; invalid quantities are skipped (validation has rejected them).
    pub(crate) fn of(list: Option<&Value>) -> ResourceList {
        let members = list.and_then(Value::as_object).into_iter().flat_map(Map::iter);
        let amount = |v: &Value| match v {
            Value::Int(number) => Quantity::parse(&number.to_string()).ok(),
            other => other.as_str().and_then(|text| Quantity::parse(text).ok()),
        };
        ResourceList(members.filter_map(|(name, v)| Some((name.to_string(), amount(v)?))).collect())
    }

    /// The quantity of a resource.
    pub(crate) fn get(&self, name: &str) -> Option<Quantity> {
        self.0.get(name).copied()
    }

    /// Adds the quantities of each resource.
    pub(crate) fn add(&mut self, other: &ResourceList) {
        for (name, amount) in &other.0 {
            let sum = self.get(name).map_or(*amount, |present| present.plus(*amount));
            self.0.insert(name.clone(), sum);
        }
    }

    /// Takes the maximum of each resource.
    pub(crate) fn raise(&mut self, other: &ResourceList) {
        for (name, amount) in &other.0 {
            if self.get(name).is_none_or(|present| *amount > present) {
                self.0.insert(name.clone(), *amount);
            }
        }
    }

    /// Encodes canonical quantities.
    pub(crate) fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (name, amount) in &self.0 {
            map.insert(name.as_str(), amount.canonical());
        }
        Value::Object(map)
    }
}

/// What the total of a pod is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Total {
    /// Its containers and itself, as its spec has them.
    Spec,
    /// The same and its overhead.
    WithOverhead,
    /// The same, with the sizes that containers have while they are resized.
    InEffect,
}

impl Total {
    /// Whether a resource can be requested for a pod as a whole. Limit ranges do not know huge pages there.
    fn is_pod_level(self, name: &str) -> bool {
        matches!(name, "cpu" | "memory") || self != Total::Spec && name.starts_with("hugepages-")
    }
}

/// Total requests or limits (`part`) of a pod. Init containers run one by one before the others, except for
/// sidecars (restartPolicy Always), which run beside all containers after them.
///
/// Upstream: k8s.io/component-helpers `resource/helpers.go`.
pub(super) fn of_pod(pod: &Value, part: &str, total: Total) -> ResourceList {
    let containers = |key: &str| pod.list_at(&["spec", key]);
    let own = |container: &Value, statuses: &str| {
        let spec = ResourceList::of(container.at(&["resources", part]));
        match total {
            Total::InEffect => in_effect(pod, container, statuses, part, spec),
            Total::Spec | Total::WithOverhead => spec,
        }
    };
    let mut sum = ResourceList::default();
    for container in containers("containers") {
        sum.add(&own(container, "containerStatuses"));
    }
    let (mut beside, mut most) = (ResourceList::default(), ResourceList::default());
    for container in containers("initContainers") {
        if container.str_at(&["restartPolicy"]) == Some("Always") {
            let needs = own(container, "initContainerStatuses");
            sum.add(&needs);
            beside.add(&needs);
            most.raise(&beside);
        } else {
            let mut needs = ResourceList::of(container.at(&["resources", part]));
            needs.add(&beside);
            most.raise(&needs);
        }
    }
    sum.raise(&most);
    let whole = ResourceList::of(pod.at(&["spec", "resources", part]));
    for (name, amount) in whole.0.into_iter().filter(|(name, _)| total.is_pod_level(name)) {
        sum.0.insert(name, amount);
    }
    if total != Total::Spec {
        let mut overhead = ResourceList::of(pod.at(&["spec", "overhead"]));
        if part == "limits" {
            // What is not limited stays so.
            overhead.0.retain(|name, _| sum.get(name).is_some_and(|limit| limit.sign() != 0));
        }
        sum.add(&overhead);
    }
    sum
}

/// The amounts of a container in effect: while it is resized, the larger of those that it should have, has
/// and was granted.
fn in_effect(pod: &Value, container: &Value, statuses: &str, part: &str, spec: ResourceList) -> ResourceList {
    let name = container.str_at(&["name"]);
    let statuses = pod.list_at(&["status", statuses]);
    // Of several statuses of a name the last, as in upstream's map.
    let status = statuses.iter().rev().find(|status| status.str_at(&["name"]) == name);
    let Some(status) = status.filter(|status| status.get("resources").is_some_and(|r| !r.is_null())) else {
        return spec;
    };
    let conditions = pod.list_at(&["status", "conditions"]);
    let pending = conditions.iter().find(|c| c.str_at(&["type"]) == Some("PodResizePending"));
    let is_infeasible = pending.is_some_and(|c| c.str_at(&["reason"]) == Some("Infeasible"));
    let mut amounts = if is_infeasible { ResourceList::default() } else { spec };
    amounts.raise(&ResourceList::of(status.at(&["resources", part])));
    if part == "requests" {
        amounts.raise(&ResourceList::of(status.get("allocatedResources")));
    }
    amounts
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn a_pod_needs_what_runs_at_a_time() {
        // spec, CPU requests
        let container =
            |cpu: &str, more: &str| format!(r#"{{"resources":{{"requests":{{"cpu":"{cpu}"}}}}{more}}}"#);
        let rows = [
            (format!(r#"{{"containers":[{},{}]}}"#, container("1", ""), container("500m", "")), "1500m"),
            (
                format!(
                    r#"{{"containers":[{}],"initContainers":[{}]}}"#,
                    container("1", ""),
                    container("3", "")
                ),
                "3",
            ),
            (
                format!(
                    r#"{{"containers":[{}],"initContainers":[{},{}]}}"#,
                    container("1", ""),
                    container("2", r#","restartPolicy":"Always""#),
                    container("2", "")
                ),
                "4",
            ),
            (
                format!(
                    r#"{{"resources":{{"requests":{{"cpu":"9"}}}},"containers":[{}]}}"#,
                    container("1", "")
                ),
                "9",
            ),
        ];
        for (spec, cpu) in rows {
            let pod = json::parse(format!(r#"{{"spec":{spec}}}"#).as_bytes()).unwrap();
            assert_eq!(
                of_pod(&pod, "requests", Total::Spec)
                    .get("cpu")
                    .map(|q| q.canonical().to_string())
                    .as_deref(),
                Some(cpu)
            );
        }
    }
    #[test]
    fn a_total_has_overhead_and_sizes_in_effect() {
        const RESIZED: &str = r#"{"spec":{"overhead":{"cpu":"250m","memory":"64Mi"},"containers":[{"name":"a",
            "resources":{"requests":{"cpu":"1"},"limits":{"cpu":"2","memory":"0"}}}],"initContainers":[
            {"name":"s","restartPolicy":"Always","resources":{"requests":{"cpu":"100m"}}}]},
            "status":{"containerStatuses":[{"name":"a","allocatedResources":{"cpu":"3"},
            "resources":{"requests":{"cpu":"2"},"limits":{"cpu":"4"}}}],"initContainerStatuses":[
            {"name":"s","resources":{"requests":{"cpu":"200m"}}}],"conditions":[CONDITION]}}"#;
        const INFEASIBLE: &str = r#"{"type":"PodResizePending","reason":"Infeasible"}"#;
        let large = RESIZED.replace(
            r#""requests":{"cpu":"1"},"limits":{"cpu":"2""#,
            r#""requests":{"cpu":"8"},"limits":{"cpu":"9""#,
        );
        let whole = r#"{"spec":{"resources":{"requests":{"hugepages-2Mi":"4Mi","example.com/x":"1"}},
            "overhead":{"memory":"1Mi"},"containers":[{"name":"a"}]}}"#;
        // pod, part, total, amounts
        let rows = [
            (RESIZED, "requests", Total::Spec, "cpu=1100m"),
            (RESIZED, "requests", Total::WithOverhead, "cpu=1350m,memory=64Mi"),
            (RESIZED, "requests", Total::InEffect, "cpu=3450m,memory=64Mi"),
            (RESIZED, "limits", Total::WithOverhead, "cpu=2250m,memory=0"),
            (RESIZED, "limits", Total::InEffect, "cpu=4250m,memory=0"),
            (&large, "requests", Total::InEffect, "cpu=8450m,memory=64Mi"),
            (&large.replace("CONDITION", INFEASIBLE), "requests", Total::InEffect, "cpu=3450m,memory=64Mi"),
            (&large.replace("CONDITION", INFEASIBLE), "limits", Total::InEffect, "cpu=4250m"),
            (whole, "requests", Total::InEffect, "hugepages-2Mi=4Mi,memory=1Mi"),
            (whole, "requests", Total::Spec, ""),
        ];
        for (pod, part, total, expected) in rows {
            let pod = json::parse(pod.replace("CONDITION", "").as_bytes()).unwrap();
            let amounts = of_pod(&pod, part, total).0;
            let amounts: Vec<_> = amounts.iter().map(|(n, q)| format!("{n}={}", q.canonical())).collect();
            assert_eq!(amounts.join(","), expected, "{pod:?} {part} {total:?}");
        }
    }
}
