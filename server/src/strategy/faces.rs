//! Subresources that show the whole object and let a part of it be written: each says which part, and what may not change.
//!
//! `status` and `finalize` are the same for every kind and are not here. Upstream: kubernetes
//! `pkg/registry/core/pod/strategy.go`.

use std::collections::{HashMap, HashSet};

use plinth_codec::{Map, Value};

use super::core::pod::quality_of_service;
use super::validation;
use super::validation::pod::Surroundings;
use crate::field;
use crate::metadata;
use crate::status::Cause;

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
    Face { name: "ephemeralcontainers", prepare: keep_all_but_ephemeral, validate: ephemeral_faults },
    Face { name: "resize", prepare: keep_all_but_resources, validate: resize_faults },
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

fn ephemeral_faults(new: &Value, old: &Value) -> Vec<Cause> {
    const PATH: &str = "spec.ephemeralContainers";
    if is_static(old) {
        return vec![field::forbidden("", "static pods do not support ephemeral containers")];
    }
    let mut faults = Vec::new();
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
        faults.push(field::forbidden(PATH, &why));
    }
    faults
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

fn resize_faults(new: &Value, old: &Value) -> Vec<Cause> {
    const ORDER: &str = "containers may not be added or removed on resize";
    if is_static(old) {
        return vec![field::forbidden("", "static pods cannot be resized")];
    }
    if old.str_at(&["spec", "os", "name"]) == Some("windows") {
        return vec![field::forbidden("", "windows pods cannot be resized")];
    }
    let mut faults = Vec::new();
    let class = quality_of_service(old);
    if quality_of_service(new) != class {
        faults.push(field::invalid("spec", class, "Pod QOS Class may not change as a result of resizing"));
    }
    for part in ["containers", "initContainers"] {
        let (now, before) = (list(new, &["spec", part]), list(old, &["spec", part]));
        let path = format!("spec.{part}");
        if now.len() != before.len() {
            faults.push(field::forbidden(path, ORDER));
            return faults;
        }
        for (i, (now, before)) in now.iter().zip(before).enumerate() {
            if name(now) != name(before) {
                let why = "containers may not be renamed or reordered on resize";
                faults.push(field::forbidden(format!("{path}[{i}].name"), why));
                return faults;
            }
            removed_amounts(now, before, &format!("{path}[{i}].resources"), &mut faults);
            let fixed = |container: &Value| container.get("resizePolicy").cloned();
            if other_amounts(now) == other_amounts(before) && fixed(now) == fixed(before) {
                continue;
            }
            faults.push(match part {
                "containers" => field::forbidden("spec", "only cpu and memory resources are mutable"),
                _ => {
                    let why = "only cpu and memory resources for init or sidecar containers are mutable";
                    field::forbidden(format!("{path}[{i}]"), why)
                }
            });
        }
    }
    faults
}

/// The amounts of a container that a resize cannot change.
fn other_amounts(container: &Value) -> Vec<(String, Value)> {
    let mut others = Vec::new();
    for part in ["requests", "limits"] {
        let amounts = container.at(&["resources", part]).and_then(Value::as_object);
        for (resource, amount) in amounts.into_iter().flat_map(Map::iter) {
            if !matches!(resource.as_str(), "cpu" | "memory") {
                others.push((format!("{part}.{resource}"), amount.clone()));
            }
        }
    }
    others
}

fn removed_amounts(new: &Value, old: &Value, path: &str, faults: &mut Vec<Cause>) {
    for part in ["limits", "requests"] {
        let has = |container: &Value, resource: &str| container.at(&["resources", part, resource]).is_some();
        for resource in ["cpu", "memory"] {
            if has(old, resource) && !has(new, resource) {
                let why = format!("resource {part} cannot be removed");
                faults.push(field::forbidden(format!("{path}.{part}"), &why));
            }
        }
    }
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
    let mut faults = Vec::new();
    let others: HashSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|part| list(pod, &["spec", part]))
        .map(name)
        .collect();
    let mut seen = others.clone();
    let Some(around) = Surroundings::of_running(pod) else { return faults };
    for (i, container) in list(pod, &["spec", "ephemeralContainers"]).iter().enumerate() {
        let path = format!("spec.ephemeralContainers[{i}]");
        validation::pod::ephemeral(container, &around, format_args!("{path}."), &mut faults);
        if !seen.insert(name(container)) {
            faults.push(field::duplicate(format!("{path}.name"), name(container)));
        }
        let target = container.str_at(&["targetContainerName"]).filter(|target| !target.is_empty());
        if let Some(target) = target.filter(|target| !others.contains(*target)) {
            faults.push(field::not_found(format!("{path}.targetContainerName"), target));
        }
        let is_set = |key: &str| match container.get(key) {
            Some(Value::Object(map)) => !map.is_empty(),
            Some(Value::Array(list)) => !list.is_empty(),
            other => other.is_some_and(|v| !v.is_null()),
        };
        let set = FORBIDDEN.iter().filter(|key| is_set(key));
        faults.extend(set.map(|key| field::forbidden(format!("{path}.{key}"), WHY)));
        for (j, mount) in list(container, &["volumeMounts"]).iter().enumerate() {
            let set = ["subPath", "subPathExpr"].into_iter();
            let set = set.filter(|key| mount.str_at(&[key]).is_some_and(|path| !path.is_empty()));
            faults.extend(set.map(|key| field::forbidden(format!("{path}.volumeMounts[{j}].{key}"), WHY)));
        }
    }
    faults
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
        let faults = (face.validate)(&new, &old);
        (new, faults.into_iter().map(|fault| fault.field).collect())
    }

    #[test]
    fn ephemeral_containers_are_added_and_stay() {
        const OLD: &str = r#"{"metadata":{"labels":{"a":"b"}},"spec":{"nodeName":"n","ephemeralContainers":[{"name":"e"}]}}"#;
        let (pod, faults) = through(
            "ephemeralcontainers",
            r#"{"metadata":{"labels":{"a":"c"}},"spec":{"nodeName":"m","ephemeralContainers":[{"name":"e"},{"name":"f"}]}}"#,
            OLD,
        );
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!(
            (pod.str_at(&["metadata", "labels", "a"]), pod.str_at(&["spec", "nodeName"])),
            (Some("b"), Some("n"))
        );
        assert_eq!(list(&pod, &["spec", "ephemeralContainers"]).len(), 2);
        let (_, faults) = through("ephemeralcontainers", r#"{"spec":{"ephemeralContainers":[]}}"#, OLD);
        assert_eq!(faults, ["spec.ephemeralContainers"]);
        let (_, faults) = through(
            "ephemeralcontainers",
            r#"{"spec":{"ephemeralContainers":[{"name":"e","tty":true}]}}"#,
            OLD,
        );
        assert_eq!(faults, ["spec.ephemeralContainers"]);
    }

    #[test]
    fn a_resize_changes_cpu_and_memory() {
        let pod = |resources: &str, more: &str| {
            format!(r#"{{"spec":{{"containers":[{{"name":"a","resources":{resources}{more}}}]}}}}"#)
        };
        const OLD: &str = r#"{"requests":{"cpu":"1","x.io/g":"1"}}"#;
        let (resized, faults) = through(
            "resize",
            &pod(r#"{"requests":{"cpu":"2","x.io/g":"1"}}"#, r#","image":"other""#),
            &pod(OLD, r#","image":"x""#),
        );
        assert_eq!(faults, Vec::<String>::new());
        let container = &list(&resized, &["spec", "containers"])[0];
        assert_eq!(container.str_at(&["resources", "requests", "cpu"]), Some("2"));
        assert_eq!(container.str_at(&["image"]), Some("x"));
        // resources, paths of the faults
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
        let renamed = r#"{"spec":{"containers":[{"name":"b","resources":{"requests":{"cpu":"1"}}}]}}"#;
        assert_eq!(
            through("resize", renamed, &pod(r#"{"requests":{"cpu":"1"}}"#, "")).1,
            ["spec.containers[0].name"]
        );
    }

    #[test]
    fn what_an_ephemeral_container_cannot_have() {
        let pod = parse(
            r#"{"spec":{"containers":[{"name":"a"}],"ephemeralContainers":[{"name":"a","image":"x"},{"name":"e","image":"x","targetContainerName":"z","ports":[{"containerPort":80}],"resources":{}}]}}"#,
        );
        let faults = ephemeral_containers(&pod);
        let found: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
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
