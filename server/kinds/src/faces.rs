//! Subresources that show the whole object and let a part of it be written: each says which part, and what may not change.
//!
//! `status` and `finalize` are the same for every kind and are not here. Upstream: kubernetes
//! `pkg/registry/core/pod/strategy.go`.

use std::collections::{HashMap, HashSet};

use plinth_codec::quantity::Quantity;
use plinth_codec::{Map, Value};
use smol_str::SmolStr;

use super::core::pod::quality_of_service;
use super::validation;
use super::validation::pod::Surroundings;
use plinth_api::api_error::Cause;
use plinth_api::field;
use plinth_api::metadata;

/// One subresource of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Face {
    /// Its name.
    pub name: &'static str,
    /// Puts back everything but the part that it is for.
    pub prepare: fn(new: &mut Value, old: &Value),
    /// What is wrong with the change.
    pub validate: fn(new: &Value, old: &Value) -> Vec<Cause>,
}

/// `pods/ephemeralcontainers` and `pods/resize`.
pub const POD: &[Face] = &[
    Face { name: "ephemeralcontainers", prepare: keep_all_but_ephemeral, validate: ephemeral_errors },
    Face { name: "resize", prepare: keep_all_but_resources, validate: resize_errors },
];

fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    object.at(path).and_then(Value::as_array).unwrap_or_default()
}

fn name(object: &Value) -> &str {
    object.str_at(&["name"]).unwrap_or_default()
}

/// The old object with what belongs to the write itself: versions and owners of fields.
fn old_with_write(new: &Value, old: &Value) -> Value {
    let mut kept = old.clone();
    if let Some(target) = kept.object_at_mut(&["metadata"]) {
        for key in ["resourceVersion", "uid", "managedFields"] {
            if let Some(value) = new.at(&["metadata", key]) {
                target.insert(key, value.clone());
            }
        }
    }
    kept
}

fn keep_all_but_ephemeral(new: &mut Value, old: &Value) {
    let mut kept = old_with_write(new, old);
    if let Some(spec) = kept.object_at_mut(&["spec"]) {
        match new.at(&["spec", "ephemeralContainers"]) {
            Some(containers) => spec.insert("ephemeralContainers", containers.clone()),
            None => spec.remove("ephemeralContainers"),
        };
    }
    *new = kept;
}

/// Static pods are files on a node.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

fn is_static(pod: &Value) -> bool {
    pod.at(&["metadata", "annotations", MIRROR]).is_some()
}

fn ephemeral_errors(new: &Value, old: &Value) -> Vec<Cause> {
    const PATH: &str = "spec.ephemeralContainers";
    if is_static(old) {
        return vec![field::forbidden("", "static pods do not support ephemeral containers")];
    }
    let mut errors = Vec::new();
    let now: HashMap<&str, &Value> = list(new, &["spec", "ephemeralContainers"])
        .iter()
        .map(|container| (name(container), container))
        .collect();
    for before in list(old, &["spec", "ephemeralContainers"]) {
        let verb = match now.get(name(before)) {
            None => "removed",
            Some(container) if *container != before => "changed",
            Some(_) => continue,
        };
        let why = format!("existing ephemeral containers {:?} may not be {verb}\n", name(before));
        errors.push(field::forbidden(PATH, &why));
    }
    errors
}

/// Takes the resources of the whole pod over, and container by container resources and how they are resized.
fn keep_all_but_resources(new: &mut Value, old: &Value) {
    let mut kept = old_with_write(new, old);
    if let Some(spec) = kept.object_at_mut(&["spec"]) {
        match new.at(&["spec", "resources"]) {
            Some(resources) => spec.insert("resources", resources.clone()),
            None => spec.remove("resources"),
        };
    }
    for part in ["containers", "initContainers"] {
        let wanted = list(new, &["spec", part]);
        // Containers that come, go or change places are shown to validation as they are.
        let same = wanted.len() == list(old, &["spec", part]).len()
            && wanted.iter().zip(list(old, &["spec", part])).all(|(a, b)| name(a) == name(b));
        if !same {
            if let Some(spec) = kept.object_at_mut(&["spec"]) {
                spec.insert(part, wanted.to_vec());
            }
            continue;
        }
        let containers = kept.get_mut("spec").and_then(|s| s.get_mut(part)).and_then(Value::as_array_mut);
        for (container, wanted) in containers.into_iter().flatten().zip(wanted) {
            let Some(container) = container.as_object_mut() else { continue };
            for key in ["resources", "resizePolicy"] {
                match wanted.get(key) {
                    Some(value) => container.insert(key, value.clone()),
                    None => container.remove(key),
                };
            }
        }
    }
    *new = kept;
}

const IMMUTABLE: &str = "only cpu and memory resources are mutable";

/// Kubernetes `pkg/apis/core/validation`, `ValidatePodResize`, after [`keep_all_but_resources`]: all but resources and resize
/// policies is as it was.
fn resize_errors(new: &Value, old: &Value) -> Vec<Cause> {
    if is_static(old) {
        return vec![field::forbidden("", "static pods cannot be resized")];
    }
    if old.str_at(&["spec", "os", "name"]) == Some("windows") {
        return vec![field::forbidden("", "windows pods cannot be resized")];
    }
    let mut errors = Vec::new();
    let class = quality_of_service(old);
    if quality_of_service(new) != class {
        errors.push(field::invalid("spec", class, "Pod QOS Class may not change as a result of resizing"));
    }
    let running = list(old, &["status", "containerStatuses"]);
    let running =
        running.iter().find(|status| status.at(&["state", "running"]).is_some_and(|r| !r.is_null()));
    if running.is_some_and(|status| status.get("resources").is_none_or(Value::is_null)) {
        errors.push(field::forbidden("spec", "Pod running on node without support for resize"));
    }
    let [now, before] = [new, old].map(|pod| pod.at(&["spec", "resources"]).filter(|r| !r.is_null()));
    let has_amounts =
        |resources: &&Value| amounts(resources, "requests").chain(amounts(resources, "limits")).count() > 0;
    match now.iter().chain(&before).any(has_amounts) {
        true => pod_resources_errors(now, before, &mut errors),
        false if now != before => errors.push(field::forbidden("spec", IMMUTABLE)),
        false => {}
    }
    if !list(old, &["status", "nodeAllocatableResourceClaimStatuses"]).is_empty() {
        let why = "pods with node allocatable resource claims cannot be resized";
        errors.push(field::forbidden("spec", why));
    }
    let order = order_errors(new, old);
    if !order.is_empty() {
        errors.extend(order);
        return errors;
    }
    let pairs = |part: &str| list(new, &["spec", part]).iter().zip(list(old, &["spec", part]));
    for part in ["initContainers", "containers"] {
        for (i, (now, before)) in pairs(part).enumerate() {
            for amounts in ["requests", "limits"] {
                if is_removed(now.get("resources"), before.get("resources"), amounts) {
                    let why = format!("resource {amounts} cannot be removed");
                    errors.push(field::forbidden(format!("spec.{part}[{i}].resources.{amounts}"), &why));
                }
            }
        }
    }
    let policy = |container: &Value| list(container, &["resizePolicy"]).to_vec();
    let is_fixed = |now: &Value, before: &Value| {
        let others = |container: &Value| container.get("resources").map(fixed_resources).unwrap_or_default();
        others(now) == others(before) && policy(now) == policy(before)
    };
    let changed = pairs("containers").filter(|(now, before)| !is_fixed(now, before));
    errors.extend(changed.map(|_| field::forbidden("spec", IMMUTABLE)));
    for (i, (now, before)) in pairs("initContainers").enumerate() {
        let path = || format!("spec.initContainers[{i}]");
        if !is_fixed(now, before) {
            let why = "only cpu and memory resources for init or sidecar containers are mutable";
            errors.push(field::forbidden(path(), why));
        }
        let is_sidecar = now.str_at(&["restartPolicy"]) == Some("Always");
        let restarts = |policy: &&Value| policy.str_at(&["restartPolicy"]) == Some("RestartContainer");
        if now != before && !is_sidecar {
            let why =
                "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
            let policies = policy(now);
            errors.extend(policies.iter().filter(restarts).map(|_| field::forbidden(path(), why)));
        }
    }
    errors
}

/// Resources of the pod as a whole (`validatePodLevelResourcesResize`).
fn pod_resources_errors(new: Option<&Value>, old: Option<&Value>, errors: &mut Vec<Cause>) {
    if old.is_some() && new.is_none() {
        errors.push(field::forbidden("spec.resources", "pod-level resources cannot be removed"));
        return;
    }
    for amounts in ["requests", "limits"] {
        if is_removed(new, old, amounts) {
            let why = format!("pod-level resource {amounts} cannot be removed");
            errors.push(field::forbidden(format!("spec.resources.{amounts}"), &why));
        }
    }
    let fixed = |resources: Option<&Value>| resources.map(fixed_resources).unwrap_or_default();
    if fixed(new) != fixed(old) {
        errors.push(field::forbidden("spec", "only cpu and memory resources are mutable at pod-level"));
    }
}

/// Containers that came, went or changed places.
fn order_errors(new: &Value, old: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    for part in ["containers", "initContainers"] {
        let (now, before) = (list(new, &["spec", part]), list(old, &["spec", part]));
        let path = format!("spec.{part}");
        if now.len() != before.len() {
            errors.push(field::forbidden(path, &format!("{part} may not be added or removed on resize")));
            continue;
        }
        let why = format!("{part} may not be renamed or reordered on resize");
        let renamed =
            now.iter().zip(before).enumerate().filter(|(_, (now, before))| name(now) != name(before));
        errors.extend(renamed.map(|(i, _)| field::forbidden(format!("{path}[{i}].name"), &why)));
    }
    errors
}

fn amounts<'a>(resources: &'a Value, part: &str) -> impl Iterator<Item = (&'a SmolStr, &'a Value)> {
    resources.get(part).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

/// What a resize cannot change of resources: all but the amounts of CPU and memory.
#[derive(Default, PartialEq)]
struct FixedResources {
    amounts: Vec<(&'static str, SmolStr, SmolStr)>,
    claims: Vec<Value>,
}

fn fixed_resources(resources: &Value) -> FixedResources {
    let mut fixed =
        FixedResources { claims: list(resources, &["claims"]).to_vec(), ..FixedResources::default() };
    for part in ["requests", "limits"] {
        let others = amounts(resources, part).filter(|(name, _)| !matches!(name.as_str(), "cpu" | "memory"));
        fixed.amounts.extend(others.map(|(name, amount)| {
            let amount = amount.as_str().unwrap_or_default();
            (part, name.clone(), Quantity::canonicalize(amount).unwrap_or_else(|_| amount.into()))
        }));
    }
    fixed
}

/// Whether amounts of some resource went (`resourcesRemoved`).
fn is_removed(new: Option<&Value>, old: Option<&Value>, part: &str) -> bool {
    let before = old.into_iter().flat_map(|resources| amounts(resources, part));
    before.map(|(name, _)| name).any(|name| new.is_none_or(|new| new.at(&[part, name]).is_none()))
}

/// What the metadata of an object keeps through writes of its status.
pub fn keep_metadata(new: &mut Value, old: &Value, keys: &[&str]) {
    let Ok(target) = metadata::of(new) else { return };
    for key in keys {
        match old.at(&["metadata", key]) {
            Some(value) => target.insert(*key, value.clone()),
            None => target.remove(key),
        };
    }
}

/// Ephemeral containers as they stand (kubernetes `pkg/apis/core/validation`, `validateEphemeralContainers`).
pub fn ephemeral_containers(pod: &Value) -> Vec<Cause> {
    const FORBIDDEN: [&str; 7] = [
        "ports",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
        "resources",
        "restartPolicy",
    ];
    const WHY: &str = "cannot be set for an Ephemeral Container";
    let mut errors = Vec::new();
    let others: HashSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|part| list(pod, &["spec", part]))
        .map(name)
        .collect();
    let mut seen = others.clone();
    let Some(around) = Surroundings::of_running(pod) else { return errors };
    for (i, container) in list(pod, &["spec", "ephemeralContainers"]).iter().enumerate() {
        let path = format!("spec.ephemeralContainers[{i}]");
        validation::pod::ephemeral(container, &around, format_args!("{path}."), &mut errors);
        if !seen.insert(name(container)) {
            errors.push(field::duplicate(format!("{path}.name"), name(container)));
        }
        let target = container.str_at(&["targetContainerName"]).filter(|target| !target.is_empty());
        if let Some(target) = target.filter(|target| !others.contains(*target)) {
            errors.push(field::not_found(format!("{path}.targetContainerName"), target));
        }
        let is_set = |key: &str| match container.get(key) {
            Some(Value::Object(map)) => !map.is_empty(),
            Some(Value::Array(list)) => !list.is_empty(),
            other => other.is_some_and(|v| !v.is_null()),
        };
        let set = FORBIDDEN.iter().filter(|key| is_set(key));
        errors.extend(set.map(|key| field::forbidden(format!("{path}.{key}"), WHY)));
        for (j, mount) in list(container, &["volumeMounts"]).iter().enumerate() {
            let set = ["subPath", "subPathExpr"].into_iter();
            let set = set.filter(|key| mount.str_at(&[key]).is_some_and(|path| !path.is_empty()));
            errors.extend(set.map(|key| field::forbidden(format!("{path}.volumeMounts[{j}].{key}"), WHY)));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    fn through(face: &str, new: &str, old: &str) -> (Value, Vec<String>) {
        let face = POD.iter().find(|f| f.name == face).unwrap();
        let (mut new, old) = (parse(new), parse(old));
        (face.prepare)(&mut new, &old);
        let errors = (face.validate)(&new, &old);
        (new, errors.into_iter().map(|error| error.field).collect())
    }

    #[test]
    fn ephemeral_containers_are_added_and_stay() {
        const OLD: &str = r#"{"metadata":{"labels":{"a":"b"}},"spec":{"nodeName":"n","ephemeralContainers":[{"name":"e"}]}}"#;
        let (pod, errors) = through(
            "ephemeralcontainers",
            r#"{"metadata":{"labels":{"a":"c"}},"spec":{"nodeName":"m","ephemeralContainers":[{"name":"e"},{"name":"f"}]}}"#,
            OLD,
        );
        assert_eq!(errors, Vec::<String>::new());
        assert_eq!(
            (pod.str_at(&["metadata", "labels", "a"]), pod.str_at(&["spec", "nodeName"])),
            (Some("b"), Some("n"))
        );
        assert_eq!(list(&pod, &["spec", "ephemeralContainers"]).len(), 2);
        let (_, errors) = through("ephemeralcontainers", r#"{"spec":{"ephemeralContainers":[]}}"#, OLD);
        assert_eq!(errors, ["spec.ephemeralContainers"]);
        let (_, errors) = through(
            "ephemeralcontainers",
            r#"{"spec":{"ephemeralContainers":[{"name":"e","tty":true}]}}"#,
            OLD,
        );
        assert_eq!(errors, ["spec.ephemeralContainers"]);
    }

    #[test]
    fn a_resize_changes_cpu_and_memory() {
        let pod = |resources: &str, more: &str| {
            format!(r#"{{"spec":{{"containers":[{{"name":"a","resources":{resources}{more}}}]}}}}"#)
        };
        const OLD: &str = r#"{"requests":{"cpu":"1","x.io/g":"1"}}"#;
        let (resized, errors) = through(
            "resize",
            &pod(r#"{"requests":{"cpu":"2","x.io/g":"1"}}"#, r#","image":"other""#),
            &pod(OLD, r#","image":"x""#),
        );
        assert_eq!(errors, Vec::<String>::new());
        let container = &list(&resized, &["spec", "containers"])[0];
        assert_eq!(container.str_at(&["resources", "requests", "cpu"]), Some("2"));
        assert_eq!(container.str_at(&["image"]), Some("x"));
        // resources, paths of the errors
        let rows: [(&str, &[&str]); 3] = [
            (r#"{"requests":{"cpu":"1","x.io/g":"2"}}"#, &["spec"]),
            (r#"{"requests":{"x.io/g":"1"}}"#, &["spec", "spec.containers[0].resources.requests"]),
            (
                r#"{"requests":{"cpu":"1","memory":"1","x.io/g":"1"},"limits":{"cpu":"1","memory":"1"}}"#,
                &["spec"],
            ),
        ];
        for (resources, paths) in rows {
            assert_eq!(through("resize", &pod(resources, ""), &pod(OLD, "")).1, paths, "{resources}");
        }
        let policy = r#","resizePolicy":[{"resourceName":"cpu","restartPolicy":"RestartContainer"}]"#;
        assert_eq!(through("resize", &pod(OLD, policy), &pod(OLD, "")).1, ["spec"]);
        let claims = |more: &str| format!(r#"{{"requests":{{"cpu":"1"}},"claims":[{{"name":"c"}}{more}]}}"#);
        const CPU: &str = r#"{"requests":{"cpu":"1"}}"#;
        for (new, old) in [
            (claims(""), CPU.to_owned()),
            (CPU.to_owned(), claims("")),
            (claims(r#",{"name":"d"}"#), claims("")),
        ] {
            assert_eq!(through("resize", &pod(&new, ""), &pod(&old, "")).1, ["spec"], "{new} {old}");
        }
        let other_cpu = claims("").replace('1', "2");
        assert_eq!(through("resize", &pod(&other_cpu, ""), &pod(&claims(""), "")).1, Vec::<String>::new());
        // The same amount in other words.
        const SAME: &str = r#"{"requests":{"cpu":"2","x.io/g":"1000m"}}"#;
        assert_eq!(through("resize", &pod(SAME, ""), &pod(OLD, "")).1, Vec::<String>::new());
        let renamed = r#"{"spec":{"containers":[{"name":"b","resources":{"requests":{"cpu":"1"}}}]}}"#;
        assert_eq!(
            through("resize", renamed, &pod(r#"{"requests":{"cpu":"1"}}"#, "")).1,
            ["spec.containers[0].name"]
        );
    }

    #[test]
    fn a_resize_of_the_whole_pod_changes_cpu_and_memory() {
        let pod = |resources: &str| {
            format!(
                r#"{{"spec":{{"resources":{resources},"containers":[{{"name":"a","resources":{{"requests":{{"cpu":"1"}}}}}}]}}}}"#
            )
        };
        const OLD: &str =
            r#"{"requests":{"cpu":"2","hugepages-2Mi":"2Mi"},"limits":{"hugepages-2Mi":"2Mi"}}"#;
        // resources, paths of the errors
        let rows: [(&str, &[&str]); 6] = [
            (OLD, &[]),
            (
                r#"{"requests":{"cpu":"3","memory":"1Gi","hugepages-2Mi":"2Mi"},"limits":{"cpu":"4","hugepages-2Mi":"2Mi"}}"#,
                &[],
            ),
            (r#"{"requests":{"cpu":"2","hugepages-2Mi":"4Mi"},"limits":{"hugepages-2Mi":"4Mi"}}"#, &["spec"]),
            (r#"{"requests":{"cpu":"2","hugepages-2Mi":"2Mi"}}"#, &["spec.resources.limits", "spec"]),
            (
                r#"{"requests":{"cpu":"2","hugepages-2Mi":"2Mi"},"limits":{"hugepages-2Mi":"2Mi"},"claims":[{"name":"c"}]}"#,
                &["spec"],
            ),
            ("null", &["spec.resources"]),
        ];
        for (resources, paths) in rows {
            assert_eq!(through("resize", &pod(resources), &pod(OLD)).1, paths, "{resources}");
        }
        assert_eq!(
            through("resize", &pod(r#"{"requests":{"cpu":"2"}}"#), &pod("null")).1,
            Vec::<String>::new()
        );
        assert_eq!(through("resize", &pod(OLD), &pod("null")).1, ["spec"]);
        assert_eq!(through("resize", &pod(r#"{"claims":[{"name":"c"}]}"#), &pod("null")).1, ["spec"]);
    }

    #[test]
    fn what_cannot_be_resized() {
        let pod = |cpu: &str, init: &str, status: &str| {
            format!(
                r#"{{"spec":{{"initContainers":[{{"name":"i","resources":{{"requests":{{"cpu":"{cpu}"}}}}{init}}}],"containers":[{{"name":"a"}}]}},"status":{{{status}}}}}"#
            )
        };
        const RESTARTS: &str =
            r#","resizePolicy":[{"resourceName":"cpu","restartPolicy":"RestartContainer"}]"#;
        let sidecar = format!(r#"{RESTARTS},"restartPolicy":"Always""#);
        // of the init container, of the status, paths of the errors
        let rows: [(&str, &str, &[&str]); 6] = [
            ("", "", &[]),
            (RESTARTS, "", &["spec.initContainers[0]"]),
            (&sidecar, "", &[]),
            ("", r#""containerStatuses":[{"state":{"running":{}}}]"#, &["spec"]),
            ("", r#""containerStatuses":[{"state":{"running":{}},"resources":{}}]"#, &[]),
            ("", r#""nodeAllocatableResourceClaimStatuses":[{}]"#, &["spec"]),
        ];
        for (init, status, paths) in rows {
            let errors = through("resize", &pod("2", init, status), &pod("1", init, status)).1;
            assert_eq!(errors, paths, "{init} {status}");
        }
        let other =
            pod("1", "", "").replace(r#""name":"i""#, r#""name":"j""#).replace(r#"[{"name":"a"}]"#, "[]");
        let errors = through("resize", &other, &pod("1", "", "")).1;
        assert_eq!(errors, ["spec.containers", "spec.initContainers[0].name"]);
    }

    #[test]
    fn what_an_ephemeral_container_cannot_have() {
        let pod = parse(
            r#"{"spec":{"containers":[{"name":"a"}],"ephemeralContainers":[{"name":"a","image":"x"},{"name":"e","image":"x","targetContainerName":"z","ports":[{"containerPort":80}],"resources":{}}]}}"#,
        );
        let errors = ephemeral_containers(&pod);
        let found: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(
            found,
            [
                "spec.ephemeralContainers[0].name",
                "spec.ephemeralContainers[1].targetContainerName",
                "spec.ephemeralContainers[1].ports"
            ]
        );
    }
}
