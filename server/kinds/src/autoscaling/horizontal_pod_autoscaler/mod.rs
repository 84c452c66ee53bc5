//! HorizontalPodAutoscaler (`autoscaling`).

mod columns;
mod conversion;

use plinth_codec::{names, tree, Map, Value};

use crate::checks::Check::{
    self, AtLeast, By, Each, In, Positive, PositiveQuantity, Required, RequiredText, Within,
};
use crate::checks::{quantities, Part};
use crate::defaults;
use crate::defaults::DefaultRule::{self, Computed, Field, IfPresent, When};
use crate::defaults::Literal::Int;
use crate::path::text;
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    defaults: DEFAULTS,
    checks: CHECKS,
    status_checks: STATUS_CHECKS,
    columns: columns::COLUMNS,
    conversions: &[conversion::TO_V1],
    ..BASE
};

/// Defaults of both versions; the default metric of v1 is part of its conversion.
const DEFAULTS: &[DefaultRule] = &[
    Field("spec.minReplicas", Int(1)),
    When("apiVersion", "autoscaling/v2", &[Computed(conversion::default_metric)]),
    IfPresent("spec.behavior", &[Computed(default_scaling_rules)]),
];

/// Where `behavior` is set, both directions get defaults.
fn default_scaling_rules(behavior: &mut Map) {
    const PERIOD_SECONDS: i64 = 15;
    let policy =
        |kind: &str, value: i64| tree!({ "type": kind, "value": value, "periodSeconds": PERIOD_SECONDS });
    let up = tree!([policy("Pods", 4), policy("Percent", 100)]);
    let down = tree!([policy("Percent", 100)]);
    for (direction, policies) in [("scaleUp", up), ("scaleDown", down)] {
        defaults::set(behavior, &format!("{direction}.selectPolicy"), &"Max".into(), Value::is_null);
        defaults::set(behavior, &format!("{direction}.policies"), &policies, Value::is_null);
    }
    defaults::set(behavior, "scaleUp.stabilizationWindowSeconds", &0.into(), Value::is_null);
}

const CHECKS: &[Check] = &[
    By(replicas),
    By(|scaler| reference(&scaler.field("spec.scaleTargetRef"), true)),
    Each("spec.metrics", &[By(metric)]),
    By(scales_to_zero),
    In("spec.behavior.scaleUp", RULES),
    In("spec.behavior.scaleDown", RULES),
];

/// Types of metric sources, each with its field.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

const KINDS: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];

fn replicas(scaler: &Part<'_>) {
    let least = scaler.int("spec.minReplicas");
    let most = scaler.number("spec.maxReplicas");
    scaler.check(&[
        AtLeast("spec.minReplicas", 1),
        Within("spec.maxReplicas", 0, i64::MAX, "must be greater than or equal to 1"),
    ]);
    if least.is_some_and(|least| most < least) {
        scaler.invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`");
    }
    if most == 0 {
        scaler.required("spec.maxReplicas", "must be set and greater than 0");
    }
}

/// Validates a reference to an object; that of the scaled object must have an API group.
fn reference(reference: &Part<'_>, needs_group: bool) {
    reference.check(&[
        RequiredText("kind", names::path_segment_errors),
        RequiredText("name", names::path_segment_errors),
    ]);
    let version = reference.text("apiVersion");
    let core = reference.text("kind") == "ReplicationController";
    let why = match version.matches('/').count() {
        0 if needs_group && !core => "apiVersion must specify API group".to_owned(),
        0 | 1 => return,
        _ => format!("unexpected GroupVersion string: {version}"),
    };
    reference.invalid("apiVersion", version, &why);
}

fn scales_to_zero(scaler: &Part<'_>) {
    let measured = |metric: &Value| matches!(text(metric, "type"), "Object" | "External");
    if scaler.int("spec.minReplicas") == Some(0) && !scaler.list("spec.metrics").iter().any(measured) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        scaler.forbidden("spec.metrics", why);
    }
}

fn metric(metric: &Part<'_>) {
    let kind = metric.text("type");
    metric.check(&[Required("type", "must specify a metric source type")]);
    let expected = SOURCES.iter().find(|(known, _)| *known == kind).map(|(_, key)| *key);
    if expected.is_none() {
        // Upstream reports this error twice.
        metric.not_supported("type", kind, KINDS);
        metric.not_supported("type", kind, KINDS);
    }
    let present: Vec<&str> = SOURCES.iter().map(|(_, key)| *key).filter(|key| metric.has(key)).collect();
    if let Some(key) = present.first() {
        one_source(key, &metric.field(key));
    }
    if let Some(key) = expected.filter(|key| !present.contains(key)) {
        metric.required(key, "must populate information for the given metric source");
    }
    if present.len() > 1 {
        for key in present.iter().filter(|key| Some(**key) != expected) {
            metric.forbidden(key, "must populate the given metric source only");
        }
    }
}

fn one_source(kind: &str, source: &Part<'_>) {
    const UNNAMED: &str = "must specify a resource name";
    match kind {
        "object" => reference(&source.field("describedObject"), false),
        "containerResource" => {
            match source.text("name") {
                "" => source.required("name", UNNAMED),
                name => quantities::container_resource_name(name, &source.field("name")),
            }
            source.required_text("container", "must specify a container", names::dns1123_label_errors);
        }
        "resource" => source.check(&[Required("name", UNNAMED)]),
        _ => {}
    }
    if matches!(kind, "object" | "external" | "pods") {
        source.required_text("metric.name", "must specify a metric name", names::path_segment_errors);
    }
    target(&source.field("target"), kind);
}

fn target(target: &Part<'_>, kind: &str) {
    let given = target.text("type");
    target.check(&[Required("type", "must specify a metric target type")]);
    if !matches!(given, "Utilization" | "Value" | "AverageValue") {
        target.invalid("type", given, "must be either Utilization, Value, or AverageValue");
    }
    target.check(&[
        PositiveQuantity("value", "must be positive"),
        PositiveQuantity("averageValue", "must be positive"),
        Within("averageUtilization", 1, i64::MAX, "must be greater than 0"),
    ]);
    let (either, or, needed, both) = match kind {
        "object" => ("averageValue", "value", "must set either a target value or averageValue", None),
        "external" => (
            "averageValue",
            "value",
            "must set either a target value for metric or a per-pod target",
            Some(("value", "may not set both a target value for metric and a per-pod target")),
        ),
        "pods" => ("averageValue", "averageValue", "must specify a positive target averageValue", None),
        _ => (
            "averageUtilization",
            "averageValue",
            "must set either a target raw value or a target utilization",
            Some(("averageValue", "may not set both a target raw value and a target utilization")),
        ),
    };
    match (target.has(either), target.has(or), both) {
        (false, false, _) => target.required(either, needed),
        (true, true, Some((key, why))) => target.forbidden(key, why),
        _ => {}
    }
}

const RULES: &[Check] = &[
    Within("stabilizationWindowSeconds", 0, i64::MAX, "must be greater than or equal to zero"),
    Within("stabilizationWindowSeconds", i64::MIN, 3600, "must be less than or equal to 3600"),
    Check::Enum("selectPolicy", &["Disabled", "Max", "Min"]),
    Required("policies", "must specify at least one Policy"),
    Each(
        "policies",
        &[
            Check::MustBe("type", &["Percent", "Pods"]),
            Positive("value"),
            Positive("periodSeconds"),
            Within("periodSeconds", i64::MIN, 1800, "must be less than or equal to 1800"),
        ],
    ),
];

const STATUS_CHECKS: &[Check] = &[AtLeast("status.currentReplicas", 0), AtLeast("status.desiredReplicas", 0)];
