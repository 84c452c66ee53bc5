//! Pod (`core`).

mod columns;
pub(crate) mod conditions;
mod deletion;
mod device_status;
pub(crate) mod ephemeral_containers;
pub(crate) mod label_keys;
pub(crate) mod qos;
pub(crate) mod resize;
pub(crate) mod status;
pub(crate) mod subresources;
pub(crate) mod update;

use plinth_codec::apply::Reset;
use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::{tree, Map, Value};

use crate::checks::Check::{self, By};
use crate::checks::Part;
use crate::core::pod::conditions::set_condition;
use crate::core::pod::qos::quality_of_service;
use crate::defaults;
use crate::defaults::DefaultRule::{self, Computed, Ensure, Field, IfPresent};
use crate::defaults::Literal::Bool;
use crate::gated_fields;
use crate::pod_template::defaults::SPEC_DEFAULTS;
use crate::pod_template::warnings::{warn_app_armor_of_pod, warn_pod};
use crate::pod_template::{annotations, app_armor, container, validate_spec};
use crate::strategy::{Generation, Strategy, SubresourceStrategy, BASE};
use crate::warnings::{warn_pod_name, Warnings};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    deletion: deletion::DELETION,
    returns_deleted_object: true,
    defaults: DEFAULTS,
    prepare_for_create,
    gated_fields: &gated_fields::of_pods(&["spec"]),
    checks: CHECKS,
    is_unchanged_since_validation: update::is_unchanged_since_validation,
    validate: ephemeral_containers::validate,
    validate_create,
    warnings,
    status_warnings: status::warnings,
    validate_update: update::validate_update,
    subresources: SUBRESOURCES,
    status_keeps: &["ownerReferences"],
    status_checks: status::CHECKS,
    validate_status: status::validate,
    prepare_status: status::prepare,
    columns: columns::COLUMNS,
    row_condition: Some(columns::ROW_CONDITION),
    selectable: SELECTABLE,
    reset_fields: RESET_FIELDS,
    ..BASE
};

/// Defaults of the spec that templates share, then those of pods only.
const DEFAULTS: &[DefaultRule] = &[
    Ensure("spec", SPEC_DEFAULTS),
    Ensure("spec", &[Field("enableServiceLinks", Bool(true)), Computed(default_requests_and_ports)]),
    IfPresent("status", &[Computed(|status| defaults::agree(status, "podIP", "podIPs", Some("ip")))]),
];

/// Requests default to limits, host ports to container ports on the host network, and a negative grace period
/// becomes 1 second.
fn default_requests_and_ports(spec: &mut Map) {
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_int).is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds", 1);
    }
    let on_host = spec.get("hostNetwork").and_then(Value::as_bool) == Some(true);
    for part in ["containers", "initContainers"] {
        let list = spec.get_mut(part).and_then(Value::as_array_mut);
        for container in list.into_iter().flatten().filter_map(Value::as_object_mut) {
            requests_from_limits(container);
            if on_host {
                let ports = container.get_mut("ports").and_then(Value::as_array_mut);
                ports.into_iter().flatten().filter_map(Value::as_object_mut).for_each(default_host_port);
            }
        }
    }
}

fn requests_from_limits(container: &mut Map) {
    let limits = defaults::at(container, "resources.limits").and_then(Value::as_object).cloned();
    if let Some(limits) = limits.filter(|limits| !limits.is_empty()) {
        defaults::fill_from(container, "resources.requests", &limits);
    }
}

fn default_host_port(port: &mut Map) {
    if port.get("hostPort").is_none_or(|v| matches!(v, Value::Null | Value::Int(0))) {
        if let Some(number) = port.get("containerPort").cloned() {
            port.insert("hostPort", number);
        }
    }
}

/// A new pod is `Pending`; its QoS class never changes.
fn prepare_for_create(pod: &mut Value) {
    let class = quality_of_service(pod);
    let status = tree!({ "phase": "Pending", "qosClass": class });
    if let Some(object) = pod.as_object_mut() {
        object.insert("status", status);
    }
    let gates = pod.at(&["spec", "schedulingGates"]).and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        let why = "Scheduling is blocked due to non-empty scheduling gates";
        set_condition(pod, "PodScheduled", "False", "SchedulingGated", why);
    }
    label_keys::merge(pod);
    app_armor::fill(pod);
}

const CHECKS: &[Check] = &[By(validate_pod)];

fn validate_pod(pod: &Part<'_>) {
    let spec = pod.field("spec");
    annotations(pod, "metadata.annotations");
    validate_spec(&spec, pod.text("metadata.name"));
    if spec.text("serviceAccountName").is_empty() {
        for volume in spec.each("volumes") {
            for source in volume.each("projected.sources") {
                let why = "must not be specified when serviceAccountName is not set";
                source.forbid_each(&["serviceAccountToken"], why);
            }
        }
    }
    container::images(&spec);
}

/// Errors of new pods only.
fn validate_create(pod: &Part<'_>) {
    if !pod.list("spec.ephemeralContainers").is_empty() {
        pod.forbidden("spec.ephemeralContainers", "cannot be set on create");
    }
    if !pod.text("spec.nodeName").is_empty() && !pod.list("spec.schedulingGates").is_empty() {
        pod.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared");
    }
    app_armor::validate_create(pod);
}

/// `pods/ephemeralcontainers` and `pods/resize`.
const SUBRESOURCES: &[SubresourceStrategy] = &[
    SubresourceStrategy {
        name: "ephemeralcontainers",
        prepare: ephemeral_containers::prepare,
        validate: ephemeral_containers::validate_update,
    },
    SubresourceStrategy { name: "resize", prepare: resize::prepare, validate: resize::validate },
];

/// Warnings about a new pod; updates come from controllers and get none.
fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some() {
        return Vec::new();
    }
    let mut found = Warnings::default();
    warn_app_armor_of_pod(new, &mut found);
    warn_pod_name(new, old, "the Pod's hostname", &mut found);
    warn_pod(new, "", &mut found);
    found.into_vec()
}

const RESET_FIELDS: &[(&str, Reset)] = &[
    ("status", Reset::Except(&["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"])),
    ("ephemeralcontainers", Reset::Only(&["spec.ephemeralContainers"])),
    (
        "resize",
        Reset::Only(&[
            "spec.containers.*.resources",
            "spec.containers.*.resizePolicy",
            "spec.initContainers.*.resources",
            "spec.initContainers.*.resizePolicy",
        ]),
    ),
];

const SELECTABLE: Selectable = Selectable::new(&[
    SelectableField::NAME,
    SelectableField::NAMESPACE,
    SelectableField::new("spec.nodeName"),
    SelectableField::new("spec.host").stored_as("spec.nodeName").at("spec.nodeName"),
    SelectableField::new("spec.restartPolicy"),
    SelectableField::new("spec.schedulerName"),
    SelectableField::new("spec.serviceAccountName").or("spec.serviceAccount"),
    SelectableField::new("spec.hostNetwork").absent("false"),
    SelectableField::new("status.phase"),
    SelectableField::new("status.podIP").or("status.podIPs.0.ip"), // Upstream accepts the label but has no value for it.
    SelectableField::new("status.podIPs").at(""),
    SelectableField::new("status.nominatedNodeName"),
]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::ErrorList;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    fn through(subresource: &str, new: &str, old: &str) -> (Value, Vec<String>) {
        let subresource = SUBRESOURCES.iter().find(|f| f.name == subresource).unwrap();
        let (mut new, old) = (parse(new), parse(old));
        (subresource.prepare)(&mut new, &old);
        let errors = subresource.errors(&new, &old);
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
        assert_eq!(pod.list_at(&["spec", "ephemeralContainers"]).len(), 2);
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
        let container = &resized.list_at(&["spec", "containers"])[0];
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
        let errors = ErrorList::of(&pod, ephemeral_containers::validate);
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
