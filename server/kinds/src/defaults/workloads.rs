//! Defaults of what makes pods: apps, batch, autoscaling, and core's ReplicationController and PodTemplate.

use plinth_codec::{tree, Map, Value};

use super::pod::{CLAIM_SPEC, TEMPLATE};
use super::DefaultRule::{Computed, Ensure, Field, ForEach, IfPresent, When};
use super::Literal::{Bool, EmptyObject, Int, Str};
use super::{at, set, DefaultRule};

/// core/v1 PodTemplate.
pub const POD_TEMPLATE: &[DefaultRule] = &[Ensure("template", TEMPLATE)];

/// core/v1 ReplicationController.
pub const REPLICATION_CONTROLLER: &[DefaultRule] =
    &[Computed(labels_of_template), Field("spec.replicas", Int(1)), IfPresent("spec.template", TEMPLATE)];

/// apps/v1 Deployment.
pub const DEPLOYMENT: &[DefaultRule] = &[
    Field("spec.replicas", Int(1)),
    Field("spec.strategy.type", Str("RollingUpdate")),
    When(
        "spec.strategy.type",
        "RollingUpdate",
        &[
            Field("spec.strategy.rollingUpdate.maxUnavailable", Str("25%")),
            Field("spec.strategy.rollingUpdate.maxSurge", Str("25%")),
        ],
    ),
    Field("spec.revisionHistoryLimit", Int(10)),
    Field("spec.progressDeadlineSeconds", Int(600)),
    Ensure("spec.template", TEMPLATE),
];

/// apps/v1 ReplicaSet.
pub const REPLICA_SET: &[DefaultRule] = &[Field("spec.replicas", Int(1)), Ensure("spec.template", TEMPLATE)];

/// apps/v1 DaemonSet.
pub const DAEMON_SET: &[DefaultRule] = &[
    Field("spec.updateStrategy.type", Str("RollingUpdate")),
    When(
        "spec.updateStrategy.type",
        "RollingUpdate",
        &[
            Field("spec.updateStrategy.rollingUpdate.maxUnavailable", Int(1)),
            Field("spec.updateStrategy.rollingUpdate.maxSurge", Int(0)),
        ],
    ),
    Field("spec.revisionHistoryLimit", Int(10)),
    Ensure("spec.template", TEMPLATE),
];

/// apps/v1 StatefulSet.
pub const STATEFUL_SET: &[DefaultRule] = &[
    Field("spec.podManagementPolicy", Str("OrderedReady")),
    Computed(update_strategy),
    When(
        "spec.updateStrategy.type",
        "RollingUpdate",
        &[IfPresent("spec.updateStrategy.rollingUpdate", &[Field("partition", Int(0))])],
    ),
    Field("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", Str("Retain")),
    Field("spec.persistentVolumeClaimRetentionPolicy.whenScaled", Str("Retain")),
    Field("spec.replicas", Int(1)),
    Field("spec.revisionHistoryLimit", Int(10)),
    Ensure("spec.template", TEMPLATE),
    ForEach(
        "spec.volumeClaimTemplates",
        &[
            Field("apiVersion", Str("v1")),
            Field("kind", Str("PersistentVolumeClaim")),
            Ensure("spec", CLAIM_SPEC),
            Field("status.phase", Str("Pending")),
        ],
    ),
];

/// batch/v1 Job.
pub const JOB: &[DefaultRule] = &[
    Computed(job_size),
    Computed(job_labels),
    Field("spec.completionMode", Str("NonIndexed")),
    Field("spec.suspend", Bool(false)),
    Field("spec.manualSelector", Bool(false)),
    Ensure("spec", JOB_PARTS),
];

/// What the spec of a Job and that of a CronJob's template have in common.
const JOB_PARTS: &[DefaultRule] = &[
    Ensure("template", TEMPLATE),
    ForEach("podFailurePolicy.rules", &[ForEach("onPodConditions", &[Field("status", Str("True"))])]),
];

/// batch/v1 CronJob.
pub const CRON_JOB: &[DefaultRule] = &[
    Field("spec.concurrencyPolicy", Str("Allow")),
    Field("spec.suspend", Bool(false)),
    Field("spec.successfulJobsHistoryLimit", Int(3)),
    Field("spec.failedJobsHistoryLimit", Int(1)),
    Ensure("spec.jobTemplate.spec", JOB_PARTS),
];

/// autoscaling HorizontalPodAutoscaler, both versions; the default metric of v1 comes with its conversion.
pub const HORIZONTAL_POD_AUTOSCALER: &[DefaultRule] = &[
    Field("spec.minReplicas", Int(1)),
    When("apiVersion", "autoscaling/v2", &[Computed(default_metric)]),
    IfPresent("spec.behavior", &[Computed(scaling_rules)]),
];

/// scheduling.k8s.io/v1 PriorityClass.
pub const PRIORITY_CLASS: &[DefaultRule] = &[Field("preemptionPolicy", Str("PreemptLowerPriority"))];

/// resource.k8s.io/v1 ResourceClaim.
pub const RESOURCE_CLAIM: &[DefaultRule] = &[IfPresent("spec", CLAIM_DEVICES)];
/// resource.k8s.io/v1 ResourceClaimTemplate.
pub const RESOURCE_CLAIM_TEMPLATE: &[DefaultRule] =
    &[Ensure("spec.metadata", &[]), IfPresent("spec.spec", CLAIM_DEVICES)];
const CLAIM_DEVICES: &[DefaultRule] = &[ForEach(
    "devices.requests",
    &[IfPresent("exactly", DEVICE_REQUEST), ForEach("firstAvailable", DEVICE_REQUEST)],
)];
const DEVICE_REQUEST: &[DefaultRule] = &[
    Field("allocationMode", Str("ExactCount")),
    When("allocationMode", "ExactCount", &[DefaultRule::NonZero("count", 1)]),
    ForEach("tolerations", &[Field("operator", Str("Equal"))]),
];

/// `metadata.labels` and `spec.selector` of a ReplicationController default to its template's labels.
fn labels_of_template(object: &mut Map) {
    let labels = at(object, "spec.template.metadata.labels").filter(|l| l.as_object().is_some()).cloned();
    let Some(labels) = labels else { return };
    set(object, "spec.selector", &labels, is_empty_map);
    set(object, "metadata.labels", &labels, is_empty_map);
}

/// A Job shows its template's labels as its own, those that are generated at create included.
fn job_labels(object: &mut Map) {
    let is_manual = at(object, "spec.manualSelector").and_then(Value::as_bool) == Some(true);
    if !is_manual && at(object, "spec.selector").is_none_or(Value::is_null) {
        return;
    }
    let labels = at(object, "spec.template.metadata.labels").filter(|l| l.as_object().is_some()).cloned();
    if let Some(labels) = labels {
        set(object, "metadata.labels", &labels, is_empty_map);
    }
}

fn is_empty_map(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

/// Only a strategy without a type gets a partition.
fn update_strategy(object: &mut Map) {
    let is_unset = at(object, "spec.updateStrategy.type").and_then(Value::as_str).is_none_or(str::is_empty);
    if is_unset {
        super::apply(
            &[
                Field("spec.updateStrategy.type", Str("RollingUpdate")),
                Field("spec.updateStrategy.rollingUpdate", EmptyObject),
            ],
            object,
        );
    }
}

fn job_size(object: &mut Map) {
    let has = |path: &str| at(object, path).is_some_and(|v| !v.is_null());
    let (completions, parallelism) = (has("spec.completions"), has("spec.parallelism"));
    let by_index = has("spec.backoffLimitPerIndex");
    let policy = has("spec.podFailurePolicy");
    if !completions && !parallelism {
        set(object, "spec.completions", &1.into(), Value::is_null);
    }
    set(object, "spec.parallelism", &1.into(), Value::is_null);
    let limit = if by_index { i64::from(i32::MAX) } else { 6 };
    set(object, "spec.backoffLimit", &limit.into(), Value::is_null);
    let replacement = if policy { "Failed" } else { "TerminatingOrFailed" };
    set(object, "spec.podReplacementPolicy", &replacement.into(), Value::is_null);
}

/// An autoscaler without metrics keeps the CPU at 80 percent of what is requested.
pub fn default_metric(object: &mut Map) {
    const CPU_PERCENT: i64 = 80;
    let target = tree!({ "type": "Utilization", "averageUtilization": CPU_PERCENT });
    let resource = tree!({ "name": "cpu", "target": target });
    let metrics = tree!([tree!({ "type": "Resource", "resource": resource })]);
    let is_absent = |v: &Value| v.is_null() || v.as_array().is_some_and(<[Value]>::is_empty);
    set(object, "spec.metrics", &metrics, is_absent);
}

/// Given one rule, both are filled up: fast up, and down as the cluster's window says.
fn scaling_rules(behavior: &mut Map) {
    const PERIOD_SECONDS: i64 = 15;
    let policy =
        |kind: &str, value: i64| tree!({ "type": kind, "value": value, "periodSeconds": PERIOD_SECONDS });
    let up = tree!([policy("Pods", 4), policy("Percent", 100)]);
    let down = tree!([policy("Percent", 100)]);
    for (direction, policies) in [("scaleUp", up), ("scaleDown", down)] {
        set(behavior, &format!("{direction}.selectPolicy"), &"Max".into(), Value::is_null);
        set(behavior, &format!("{direction}.policies"), &policies, Value::is_null);
    }
    set(behavior, "scaleUp.stabilizationWindowSeconds", &0.into(), Value::is_null);
}
