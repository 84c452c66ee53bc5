//! Pod (`core`).

pub(crate) mod ephemeral_containers;
pub(crate) mod label_keys;
pub(crate) mod resize;
pub(crate) mod status;
pub(crate) mod subresources;
pub(crate) mod update;

use plinth_api::api_error::Cause;
use plinth_api::conditions;
use plinth_api::field::{self, FieldPath};
use plinth_codec::quantity::Quantity;
use plinth_codec::{tree, Map, Value};

use crate::checks::Check::{self, By};
use crate::core::pod::subresources::SUBRESOURCES;
use crate::defaults;
use crate::defaults::DefaultRule::{self, Computed, Ensure, Field, IfPresent};
use crate::defaults::Literal::Bool;
use crate::path::{at, list, text};
use crate::pod_template::defaults::SPEC_DEFAULTS;
use crate::pod_template::warnings::{warn_app_armor_of_pod, warn_pod};
use crate::pod_template::{annotations, app_armor, container, validate_spec};
use crate::strategy::{Deletion, Generation, Strategy, BASE};
use crate::warnings::{warn_pod_name, Warnings};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    deletion: Deletion::Pod,
    returns_deleted_object: true,
    defaults: DEFAULTS,
    prepare_for_create,
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
        conditions::set_of_pod(pod, "PodScheduled", "False", "SchedulingGated", why);
    }
    label_keys::merge(pod);
    app_armor::fill(pod);
}

/// Resources that determine the QoS class.
const COUNTED: [&str; 2] = ["cpu", "memory"];

/// The QoS class: `Guaranteed` when every container has limits of CPU and memory and equal requests,
/// `BestEffort` when none has any (kubernetes `pkg/apis/core/v1/helper/qos`).
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

const CHECKS: &[Check] = &[By(validate_pod)];

fn validate_pod(object: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let nothing = Value::object();
    let spec = object.get("spec").unwrap_or(&nothing);
    annotations(object, format_args!("metadata.annotations"), errors);
    validate_spec(spec, text(object, "metadata.name"), format_args!("spec."), errors);
    if text(spec, "serviceAccountName").is_empty() {
        for (i, volume) in list(spec, "volumes").iter().enumerate() {
            let path = format_args!("spec.volumes[{i}].projected");
            for (j, source) in list(volume, "projected.sources").iter().enumerate() {
                if at(source, "serviceAccountToken").is_some() {
                    let here = format_args!("{path}.sources[{j}].serviceAccountToken");
                    let why = "must not be specified when serviceAccountName is not set";
                    errors.push(field::forbidden(here, why));
                }
            }
        }
    }
    container::images(spec, format_args!("spec."), errors);
}

/// Errors of new pods only.
fn validate_create(pod: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    if !list(pod, "spec.ephemeralContainers").is_empty() {
        errors.push(field::forbidden("spec.ephemeralContainers", "cannot be set on create"));
    }
    if !text(pod, "spec.nodeName").is_empty() && !list(pod, "spec.schedulingGates").is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        errors.push(field::forbidden("spec.nodeName", why));
    }
    errors.extend(app_armor::errors(pod));
    errors
}

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
            let mut pod = json::parse(text.as_bytes()).unwrap();
            prepare_for_create(&mut pod);
            assert_eq!(pod.str_at(&["status", "qosClass"]), Some(class), "{containers}");
        }
    }
}
