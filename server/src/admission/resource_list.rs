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

/// Resources that can be requested for a pod as a whole.
const POD_LEVEL: [&str; 2] = ["cpu", "memory"];

/// Total requests or limits (`part`) of a pod's containers. Init containers run one by one before the others,
/// except for sidecars (restartPolicy Always), which run beside all containers after them.
pub(super) fn of_pod(pod: &Value, part: &str) -> ResourceList {
    let containers = |key: &str| pod.list_at(&["spec", key]);
    let own = |container: &Value| ResourceList::of(container.at(&["resources", part]));
    let mut sum = ResourceList::default();
    for container in containers("containers") {
        sum.add(&own(container));
    }
    let (mut beside, mut most) = (ResourceList::default(), ResourceList::default());
    for container in containers("initContainers") {
        let mut needs = own(container);
        if container.str_at(&["restartPolicy"]) == Some("Always") {
            sum.add(&needs);
            beside.add(&needs);
            needs = beside.clone();
        } else {
            needs.add(&beside);
        }
        most.raise(&needs);
    }
    sum.raise(&most);
    let whole = ResourceList::of(pod.at(&["spec", "resources", part]));
    for (name, amount) in whole.0.into_iter().filter(|(name, _)| POD_LEVEL.contains(&name.as_str())) {
        sum.0.insert(name, amount);
    }
    sum
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
                of_pod(&pod, "requests").get("cpu").map(|q| q.canonical().to_string()).as_deref(),
                Some(cpu)
            );
        }
    }
}
