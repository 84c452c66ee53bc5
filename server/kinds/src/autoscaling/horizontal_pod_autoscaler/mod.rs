//! HorizontalPodAutoscaler (`autoscaling`).

mod columns;
mod conversion;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::quantity::Quantity;
use plinth_codec::{names, tree, Map, Value};

use crate::checks::Check::{self, AtLeast, By, Each, In, Positive, Required};
use crate::checks::{check_text, quantities, validate};
use crate::defaults;
use crate::defaults::DefaultRule::{self, Computed, Field, IfPresent, When};
use crate::defaults::Literal::Int;
use crate::path::{at, int, list, text};
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
    When("apiVersion", "autoscaling/v2", &[Computed(default_metric)]),
    IfPresent("spec.behavior", &[Computed(default_scaling_rules)]),
];

/// Without metrics, the target is a CPU utilization of 80 percent of the request.
fn default_metric(object: &mut Map) {
    const CPU_PERCENT: i64 = 80;
    let target = tree!({ "type": "Utilization", "averageUtilization": CPU_PERCENT });
    let resource = tree!({ "name": "cpu", "target": target });
    let metrics = tree!([tree!({ "type": "Resource", "resource": resource })]);
    let is_absent = |v: &Value| v.is_null() || v.as_array().is_some_and(<[Value]>::is_empty);
    defaults::set(object, "spec.metrics", &metrics, is_absent);
}

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
    By(|scaler, _, errors| reference(scaler, "spec.scaleTargetRef", true, errors)),
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

fn replicas(scaler: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let least = int(scaler, "spec.minReplicas");
    let most = int(scaler, "spec.maxReplicas").unwrap_or(0);
    let mut refuse =
        |path: FieldPath<'_>, number: i64, why: &str| errors.push(field::invalid(path, number, why));
    if let Some(least) = least.filter(|n| *n < 1) {
        refuse(format_args!("spec.minReplicas"), least, "must be greater than or equal to 1");
    }
    if most < 0 {
        refuse(format_args!("spec.maxReplicas"), most, "must be greater than or equal to 1");
    }
    if least.is_some_and(|least| most < least) {
        refuse(format_args!("spec.maxReplicas"), most, "must be greater than or equal to `minReplicas`");
    }
    if most == 0 {
        errors.push(field::required("spec.maxReplicas", "must be set and greater than 0"));
    }
}

/// Validates a reference to an object; that of the scaled object must have an API group.
fn reference(holder: &Value, path: &str, needs_group: bool, errors: &mut Vec<Cause>) {
    for key in ["kind", "name"] {
        let path = format!("{path}.{key}");
        match text(holder, &path) {
            "" => errors.push(field::required(path, "")),
            given => check_text(format_args!("{path}"), given, names::path_segment_errors, errors),
        }
    }
    let here = format!("{path}.apiVersion");
    let version = text(holder, &here);
    let core = text(holder, &format!("{path}.kind")) == "ReplicationController";
    let why = match version.matches('/').count() {
        0 if needs_group && !core => "apiVersion must specify API group".to_owned(),
        0 | 1 => return,
        _ => format!("unexpected GroupVersion string: {version}"),
    };
    errors.push(field::invalid(here, version, &why));
}

fn scales_to_zero(scaler: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let measured = |metric: &Value| matches!(text(metric, "type"), "Object" | "External");
    if int(scaler, "spec.minReplicas") == Some(0) && !list(scaler, "spec.metrics").iter().any(measured) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(field::forbidden("spec.metrics", why));
    }
}

fn metric(metric: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let kind = text(metric, "type");
    let here = format_args!("{path}type");
    if kind.is_empty() {
        errors.push(field::required(here, "must specify a metric source type"));
    }
    let expected = SOURCES.iter().find(|(known, _)| *known == kind).map(|(_, key)| *key);
    if expected.is_none() {
        // Upstream reports this error twice.
        errors.push(field::not_supported(here, kind, KINDS));
        errors.push(field::not_supported(here, kind, KINDS));
    }
    let present: Vec<&str> =
        SOURCES.iter().map(|(_, key)| *key).filter(|key| at(metric, key).is_some()).collect();
    if let Some((key, source)) = present.first().and_then(|key| Some((*key, at(metric, key)?))) {
        one_source(key, source, format_args!("{path}{key}."), errors);
    }
    if let Some(key) = expected.filter(|key| !present.contains(key)) {
        let why = "must populate information for the given metric source";
        errors.push(field::required(format_args!("{path}{key}"), why));
    }
    if present.len() > 1 {
        for key in present.iter().filter(|key| Some(**key) != expected) {
            let why = "must populate the given metric source only";
            errors.push(field::forbidden(format_args!("{path}{key}"), why));
        }
    }
}

fn one_source(kind: &str, source: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const PART: &str = "must specify a resource name";
    match kind {
        "object" => {
            let mut found = Vec::new();
            reference(source, "describedObject", false, &mut found);
            errors.extend(found.into_iter().map(|mut error| {
                error.field = format!("{path}{}", error.field);
                error
            }));
        }
        "containerResource" => {
            match text(source, "name") {
                "" => errors.push(field::required(format_args!("{path}name"), PART)),
                name => quantities::container_resource_name(name, format_args!("{path}name"), errors),
            }
            match text(source, "container") {
                "" => {
                    errors.push(field::required(format_args!("{path}container"), "must specify a container"))
                }
                name => {
                    check_text(format_args!("{path}container"), name, names::dns1123_label_errors, errors)
                }
            }
        }
        "resource" => validate(&[Required("name", PART)], source, path, errors),
        _ => {}
    }
    if matches!(kind, "object" | "external" | "pods") {
        match text(source, "metric.name") {
            "" => {
                errors.push(field::required(format_args!("{path}metric.name"), "must specify a metric name"))
            }
            name => check_text(format_args!("{path}metric.name"), name, names::path_segment_errors, errors),
        }
    }
    let nothing = Value::object();
    target(at(source, "target").unwrap_or(&nothing), kind, format_args!("{path}target."), errors);
}

fn target(target: &Value, kind: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let given = text(target, "type");
    if given.is_empty() {
        errors.push(field::required(format_args!("{path}type"), "must specify a metric target type"));
    }
    if !matches!(given, "Utilization" | "Value" | "AverageValue") {
        let why = "must be either Utilization, Value, or AverageValue";
        errors.push(field::invalid(format_args!("{path}type"), given, why));
    }
    for key in ["value", "averageValue"] {
        let shown = text(target, key);
        if Quantity::parse(shown).is_ok_and(|amount| amount.sign() <= 0) {
            errors.push(field::invalid(format_args!("{path}{key}"), shown, "must be positive"));
        }
    }
    if let Some(share) = int(target, "averageUtilization").filter(|share| *share < 1) {
        errors.push(field::invalid(
            format_args!("{path}averageUtilization"),
            share,
            "must be greater than 0",
        ));
    }
    let has = |key: &str| at(target, key).is_some();
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
    match (has(either), has(or), both) {
        (false, false, _) => errors.push(field::required(format_args!("{path}{either}"), needed)),
        (true, true, Some((key, why))) => errors.push(field::forbidden(format_args!("{path}{key}"), why)),
        _ => {}
    }
}

const RULES: &[Check] = &[
    By(|rules, path, errors| {
        const MAX_LENGTH: i64 = 3600;
        let here = format_args!("{path}stabilizationWindowSeconds");
        match int(rules, "stabilizationWindowSeconds") {
            Some(seconds) if seconds < 0 => {
                errors.push(field::invalid(here, seconds, "must be greater than or equal to zero"));
            }
            Some(seconds) if seconds > MAX_LENGTH => {
                errors.push(field::invalid(here, seconds, "must be less than or equal to 3600"));
            }
            _ => {}
        }
    }),
    Check::Enum("selectPolicy", &["Disabled", "Max", "Min"]),
    Required("policies", "must specify at least one Policy"),
    Each(
        "policies",
        &[
            Check::MustBe("type", &["Percent", "Pods"]),
            Positive("value"),
            Positive("periodSeconds"),
            By(|policy, path, errors| {
                const MAX_LENGTH: i64 = 1800;
                if let Some(seconds) = int(policy, "periodSeconds").filter(|seconds| *seconds > MAX_LENGTH) {
                    let why = "must be less than or equal to 1800";
                    errors.push(field::invalid(format_args!("{path}periodSeconds"), seconds, why));
                }
            }),
        ],
    ),
];

const STATUS_CHECKS: &[Check] = &[AtLeast("status.currentReplicas", 0), AtLeast("status.desiredReplicas", 0)];
