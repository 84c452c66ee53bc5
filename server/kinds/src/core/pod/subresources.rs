//! Subresources of a pod that write a part of it (kubernetes `pkg/registry/core/pod/strategy.go`).

use plinth_codec::Value;

use crate::core::pod::{ephemeral_containers, resize};
use crate::pod_template::MIRROR_ANNOTATION;
use crate::strategy::Subresource;

/// `pods/ephemeralcontainers` and `pods/resize`.
pub(crate) const SUBRESOURCES: &[Subresource] = &[
    Subresource {
        name: "ephemeralcontainers",
        prepare: ephemeral_containers::prepare,
        validate: ephemeral_containers::validate_update,
    },
    Subresource { name: "resize", prepare: resize::prepare, validate: resize::validate },
];

pub(crate) fn list_at<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    object.at(path).and_then(Value::as_array).unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    object.str_at(&["name"]).unwrap_or_default()
}

/// The old object with the metadata of the write: `resourceVersion`, `uid` and `managedFields`.
pub(crate) fn old_with_write(new: &Value, old: &Value) -> Value {
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

pub(crate) fn is_static(pod: &Value) -> bool {
    pod.at(&["metadata", "annotations", MIRROR_ANNOTATION]).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    fn through(face: &str, new: &str, old: &str) -> (Value, Vec<String>) {
        let face = SUBRESOURCES.iter().find(|f| f.name == face).unwrap();
        let (mut new, old) = (parse(new), parse(old));
        (face.prepare)(&mut new, &old);
        let errors = (face.validate)(&new, &old);
        (new, errors.into_iter().map(|error| error.field).collect())
    }

    #[test]
    fn ephemeral_containers_can_only_be_added() {
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
        assert_eq!(list_at(&pod, &["spec", "ephemeralContainers"]).len(), 2);
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
        let container = &list_at(&resized, &["spec", "containers"])[0];
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
        // The same quantity in another notation.
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
    fn pods_that_cannot_be_resized() {
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
    fn fields_forbidden_in_ephemeral_containers() {
        let pod = parse(
            r#"{"spec":{"containers":[{"name":"a"}],"ephemeralContainers":[{"name":"a","image":"x"},{"name":"e","image":"x","targetContainerName":"z","ports":[{"containerPort":80}],"resources":{}}]}}"#,
        );
        let errors = ephemeral_containers::validate(&pod);
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
