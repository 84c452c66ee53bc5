//! apps, batch, autoscaling, policy and core's ReplicationController.

use plinth_codec::selector::LabelSelector;
use plinth_codec::{names, tree, Value};

use super::pod::TEMPLATE;
use super::Check::{AtLeast, By, In, OneOf, Selector};
use super::{at, list, text, Check};
use crate::field;
use crate::status::Cause;

/// apps/v1 Deployment.
pub const DEPLOYMENT: &[Check] = &[
    AtLeast("spec.replicas", 0),
    By(selector_of_deployment),
    By(template_of_deployment),
    By(rolling_update),
    AtLeast("spec.minReadySeconds", 0),
    AtLeast("spec.revisionHistoryLimit", 0),
    OneOf("spec.strategy.type", &["Recreate", "RollingUpdate"]),
];
/// apps/v1 ReplicaSet.
pub const REPLICA_SET: &[Check] = &[
    AtLeast("spec.replicas", 0),
    AtLeast("spec.minReadySeconds", 0),
    By(selector_of_replica_set),
    By(template_always),
];
/// apps/v1 StatefulSet.
pub const STATEFUL_SET: &[Check] = &[
    OneOf("spec.podManagementPolicy", &["OrderedReady", "Parallel"]),
    AtLeast("spec.replicas", 0),
    AtLeast("spec.minReadySeconds", 0),
    By(selector_of_stateful_set),
    By(template_always),
];
/// apps/v1 DaemonSet.
pub const DAEMON_SET: &[Check] = &[
    By(selector_of_daemon_set),
    By(template_always),
    AtLeast("spec.minReadySeconds", 0),
    OneOf("spec.updateStrategy.type", &["OnDelete", "RollingUpdate"]),
];
/// core/v1 ReplicationController.
pub const REPLICATION_CONTROLLER: &[Check] =
    &[AtLeast("spec.replicas", 0), AtLeast("spec.minReadySeconds", 0), By(plain_selector)];
/// batch/v1 Job.
pub const JOB: &[Check] = &[In("spec", JOB_SPEC)];
const JOB_SPEC: &[Check] = &[
    AtLeast("parallelism", 0),
    AtLeast("completions", 0),
    AtLeast("activeDeadlineSeconds", 0),
    AtLeast("backoffLimit", 0),
    AtLeast("ttlSecondsAfterFinished", 0),
    OneOf("completionMode", &["Indexed", "NonIndexed"]),
    By(job_template),
];
/// batch/v1 CronJob.
pub const CRON_JOB: &[Check] = &[
    By(schedule),
    AtLeast("spec.startingDeadlineSeconds", 0),
    OneOf("spec.concurrencyPolicy", &["Allow", "Forbid", "Replace"]),
    In("spec.jobTemplate.spec", JOB_SPEC),
    AtLeast("spec.successfulJobsHistoryLimit", 0),
    AtLeast("spec.failedJobsHistoryLimit", 0),
];
/// autoscaling HorizontalPodAutoscaler.
pub const HORIZONTAL_POD_AUTOSCALER: &[Check] = &[By(replicas), By(scale_target)];
/// policy/v1 PodDisruptionBudget.
pub const POD_DISRUPTION_BUDGET: &[Check] = &[By(budget), Selector("spec.selector")];

fn template(object: &Value, faults: &mut Vec<Cause>) {
    let nothing = Value::object();
    let template = at(object, "spec.template").unwrap_or(&nothing);
    let claims = object.at(&["spec", "volumeClaimTemplates"]).and_then(Value::as_array).unwrap_or_default();
    match claims {
        [] => super::validate(TEMPLATE, template, "spec.template.", faults),
        claims => super::validate(TEMPLATE, &with_claims(template, claims), "spec.template.", faults),
    }
}

/// The template of a StatefulSet as its pods will have it: with a volume for each claim that the set makes.
fn with_claims(template: &Value, claims: &[Value]) -> Value {
    let mut template = template.clone();
    let volumes = claims.iter().map(|claim| {
        let name = claim.str_at(&["metadata", "name"]).unwrap_or_default();
        plinth_codec::tree!({ "name": name, "persistentVolumeClaim": plinth_codec::tree!({ "claimName": name }) })
    });
    if let Some(spec) = template.object_at_mut(&["spec"]) {
        let mut all = spec.get("volumes").and_then(Value::as_array).unwrap_or_default().to_vec();
        all.extend(volumes);
        spec.insert("volumes", all);
    }
    template
}

fn selector_of_deployment(object: &Value, _: &str, faults: &mut Vec<Cause>) {
    selector(object, "deployment", faults);
}
fn selector_of_replica_set(object: &Value, _: &str, faults: &mut Vec<Cause>) {
    selector(object, "deployment", faults);
}
fn selector_of_stateful_set(object: &Value, _: &str, faults: &mut Vec<Cause>) {
    selector(object, "statefulset", faults);
}
fn selector_of_daemon_set(object: &Value, _: &str, faults: &mut Vec<Cause>) {
    selector(object, "daemonset", faults);
}

/// The selector must be there, select something, and select what the template makes.
fn selector(object: &Value, kind: &str, faults: &mut Vec<Cause>) {
    let given = at(object, "spec.selector");
    match given {
        None => faults.push(field::required("spec.selector", "")),
        Some(selector) => {
            super::selector_faults(selector, "spec.selector", faults);
            if at(selector, "matchLabels").is_none() && list(selector, "matchExpressions").is_empty() {
                let why = format!("empty selector is invalid for {kind}");
                faults.push(field::invalid("spec.selector", tree!({}), &why));
            }
        }
    }
    let labels = at(object, "spec.template.metadata.labels");
    let label = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
    let parsed = LabelSelector::from_object(given);
    let selects_nothing =
        given.is_none_or(|s| at(s, "matchLabels").is_none() && list(s, "matchExpressions").is_empty());
    let matches = parsed.is_ok_and(|selector| selector.matches(label));
    if given.is_none() || (!selects_nothing && !matches) {
        let why = "`selector` does not match template `labels`";
        faults.push(field::invalid(
            "spec.template.metadata.labels",
            labels.cloned().unwrap_or_default(),
            why,
        ));
    }
}

/// A controller that keeps pods running wants pods that run on.
fn restarts_always(object: &Value, faults: &mut Vec<Cause>) {
    let policy = text(object, "spec.template.spec.restartPolicy");
    if matches!(policy, "OnFailure" | "Never") {
        faults.push(field::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
}

fn template_always(object: &Value, _: &str, faults: &mut Vec<Cause>) {
    template(object, faults);
    restarts_always(object, faults);
}

fn template_of_deployment(object: &Value, path: &str, faults: &mut Vec<Cause>) {
    template_always(object, path, faults);
}

fn plain_selector(object: &Value, _: &str, faults: &mut Vec<Cause>) {
    let Some(selector) = at(object, "spec.selector").and_then(Value::as_object).filter(|s| !s.is_empty())
    else {
        faults.push(field::required("spec.selector", ""));
        return;
    };
    let labels = at(object, "spec.template.metadata.labels");
    if selector.iter().any(|(key, value)| labels.and_then(|l| l.get(key)) != Some(value)) {
        let why = "`selector` does not match template `labels`";
        faults.push(field::invalid(
            "spec.template.metadata.labels",
            labels.cloned().unwrap_or_default(),
            why,
        ));
    }
    template(object, faults);
    restarts_always(object, faults);
}

/// Neither more nor fewer pods than wanted: then no pod can be replaced.
fn rolling_update(object: &Value, _: &str, faults: &mut Vec<Cause>) {
    if text(object, "spec.strategy.type") == "Recreate" && at(object, "spec.strategy.rollingUpdate").is_some()
    {
        let why = "may not be specified when strategy `type` is 'Recreate'";
        faults.push(field::forbidden("spec.strategy.rollingUpdate", why));
        return;
    }
    let part = |key: &str| at(object, &format!("spec.strategy.rollingUpdate.{key}")).cloned();
    let is_zero = |v: &Option<Value>| match v {
        Some(Value::Int(0)) => true,
        Some(Value::String(text)) => text == "0%",
        _ => false,
    };
    if let (Some(unavailable), surge) = (part("maxUnavailable"), part("maxSurge")) {
        if is_zero(&Some(unavailable.clone())) && is_zero(&surge) {
            let why = "may not be 0 when `maxSurge` is 0";
            faults.push(field::invalid("spec.strategy.rollingUpdate.maxUnavailable", unavailable, why));
        }
    }
}

fn job_template(spec: &Value, path: &str, faults: &mut Vec<Cause>) {
    let nothing = Value::object();
    super::validate(TEMPLATE, at(spec, "template").unwrap_or(&nothing), &format!("{path}template."), faults);
    if text(spec, "template.spec.restartPolicy") == "Always" {
        let why = "valid values: \"OnFailure\", \"Never\"";
        faults.push(field::required(format!("{path}template.spec.restartPolicy"), why));
    }
}

/// Five fields, or a descriptor such as `@hourly`.
fn schedule(object: &Value, _: &str, faults: &mut Vec<Cause>) {
    const PATH: &str = "spec.schedule";
    let schedule = text(object, PATH);
    if schedule.is_empty() {
        faults.push(field::required(PATH, ""));
        return;
    }
    if schedule.contains("TZ") {
        let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        faults.push(field::invalid(PATH, schedule, why));
        return;
    }
    let known = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    if schedule.starts_with('@') {
        if !known.contains(&schedule) && !schedule.starts_with("@every ") {
            faults.push(field::invalid(PATH, schedule, &format!("unrecognized descriptor: {schedule}")));
        }
        return;
    }
    let parts: Vec<&str> = schedule.split_whitespace().collect();
    if parts.len() != 5 {
        let why = format!("expected exactly 5 fields, found {}: [{}]", parts.len(), parts.join(" "));
        faults.push(field::invalid(PATH, schedule, &why));
    }
}

fn replicas(object: &Value, _: &str, faults: &mut Vec<Cause>) {
    let least = at(object, "spec.minReplicas").and_then(Value::as_int);
    let most = at(object, "spec.maxReplicas").and_then(Value::as_int).unwrap_or(0);
    if let Some(least) = least.filter(|n| *n < 1) {
        faults.push(field::invalid("spec.minReplicas", least, "must be greater than or equal to 1"));
    }
    if most < 1 {
        faults.push(field::invalid("spec.maxReplicas", most, "must be greater than 0"));
    }
    if least.is_some_and(|least| most < least) {
        faults.push(field::invalid(
            "spec.maxReplicas",
            most,
            "must be greater than or equal to `minReplicas`",
        ));
    }
}

fn scale_target(object: &Value, _: &str, faults: &mut Vec<Cause>) {
    for key in ["kind", "name"] {
        let path = format!("spec.scaleTargetRef.{key}");
        match text(object, &path) {
            "" => faults.push(field::required(path, "")),
            given => faults.extend(
                names::path_segment_faults(given).iter().map(|why| field::invalid(path.as_str(), given, why)),
            ),
        }
    }
    let version = text(object, "spec.scaleTargetRef.apiVersion");
    let is_core =
        !version.contains('/') && text(object, "spec.scaleTargetRef.kind") != "ReplicationController";
    if is_core {
        faults.push(field::invalid(
            "spec.scaleTargetRef.apiVersion",
            version,
            "apiVersion must specify API group",
        ));
    }
}

fn budget(object: &Value, _: &str, faults: &mut Vec<Cause>) {
    let (least, most) = (at(object, "spec.minAvailable"), at(object, "spec.maxUnavailable"));
    if let (Some(least), Some(most)) = (least, most) {
        // Upstream shows the struct with its Go names.
        let member = |key: &str| field::shown(at(object, &format!("spec.{key}")).unwrap_or(&Value::Null));
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            field::shown(least),
            member("selector"),
            field::shown(most),
            member("unhealthyPodEvictionPolicy")
        );
        let why = "minAvailable and maxUnavailable cannot be both set";
        faults.push(field::invalid_shown("spec", &shown, why));
    }
    for (path, value) in [("spec.minAvailable", least), ("spec.maxUnavailable", most)] {
        match value {
            Some(Value::Int(n)) if *n < 0 => {
                faults.push(field::invalid(path, *n, "must be greater than or equal to 0"));
            }
            Some(Value::String(share)) => {
                let percent = share.strip_suffix('%').and_then(|n| n.parse::<i64>().ok());
                match percent {
                    None => {
                        let why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                        faults.push(field::invalid(path, share.clone(), why));
                    }
                    Some(percent) if percent > 100 => {
                        faults.push(field::invalid(path, share.clone(), "must not be greater than 100%"));
                    }
                    Some(_) => {}
                }
            }
            _ => {}
        }
    }
}
