//! apps, policy and core's ReplicationController.

use std::collections::HashSet;

use plinth_codec::selector::LabelSelector;
use plinth_codec::{names, tree, Value};

use super::pod::TEMPLATE;
use super::Check::{AtLeast, By, Enum, Selector};
use super::{at, claims, int, list, rule, text, validate, Check};
use plinth_api::api_error::Cause;
use plinth_api::field::{self, Place};

/// apps/v1 Deployment.
pub const DEPLOYMENT: &[Check] = &[
    AtLeast("spec.replicas", 0),
    By(selector_of_deployment),
    By(template_of_deployment),
    By(rolling_update),
    AtLeast("spec.minReadySeconds", 0),
    AtLeast("spec.revisionHistoryLimit", 0),
    By(progress_deadline),
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
    By(set_policies),
    AtLeast("spec.updateStrategy.rollingUpdate.partition", 0),
    Enum("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", &["Retain", "Delete"]),
    Enum("spec.persistentVolumeClaimRetentionPolicy.whenScaled", &["Retain", "Delete"]),
    AtLeast("spec.replicas", 0),
    AtLeast("spec.minReadySeconds", 0),
    AtLeast("spec.ordinals.start", 0),
    By(selector_of_stateful_set),
    By(template_always),
];
/// apps/v1 DaemonSet.
pub const DAEMON_SET: &[Check] = &[
    By(selector_of_daemon_set),
    By(template_always),
    AtLeast("spec.minReadySeconds", 0),
    AtLeast("spec.revisionHistoryLimit", 0),
    By(daemon_update),
];
/// core/v1 ReplicationController.
pub const REPLICATION_CONTROLLER: &[Check] =
    &[AtLeast("spec.replicas", 0), AtLeast("spec.minReadySeconds", 0), By(plain_selector)];
/// core/v1 PodTemplate.
pub const POD_TEMPLATE: &[Check] = &[By(|object, _, errors| {
    let nothing = Value::object();
    validate(TEMPLATE, at(object, "template").unwrap_or(&nothing), format_args!("template."), errors);
})];
/// apps/v1 ControllerRevision.
pub const CONTROLLER_REVISION: &[Check] = &[
    By(|revision, _, errors| match at(revision, "data") {
        None => errors.push(field::required("data", "data is mandatory")),
        Some(Value::Object(_) | Value::Encoded(_)) => {}
        Some(_) => errors.push(field::required("data", "data must be a valid JSON object")),
    }),
    AtLeast("revision", 0),
];
/// policy/v1 PodDisruptionBudget.
pub const POD_DISRUPTION_BUDGET: &[Check] = &[
    By(budget),
    Selector("spec.selector"),
    Enum("spec.unhealthyPodEvictionPolicy", &["AlwaysAllow", "IfHealthyBudget"]),
];

fn template(object: &Value, errors: &mut Vec<Cause>) {
    let nothing = Value::object();
    let template = at(object, "spec.template").unwrap_or(&nothing);
    let claims = object.at(&["spec", "volumeClaimTemplates"]).and_then(Value::as_array).unwrap_or_default();
    match claims {
        [] => super::validate(TEMPLATE, template, format_args!("spec.template."), errors),
        claims => {
            super::validate(TEMPLATE, &with_claims(template, claims), format_args!("spec.template."), errors)
        }
    }
}

/// The template of a StatefulSet as its pods will have it: with a volume for each claim that the set makes.
fn with_claims(template: &Value, claims: &[Value]) -> Value {
    let mut template = template.clone();
    let names: HashSet<Option<&str>> =
        claims.iter().map(|claim| claim.str_at(&["metadata", "name"])).collect();
    let volumes = claims.iter().map(|claim| {
        let name = claim.str_at(&["metadata", "name"]).unwrap_or_default();
        plinth_codec::tree!({ "name": name, "persistentVolumeClaim": plinth_codec::tree!({ "claimName": name }) })
    });
    if let Some(spec) = template.object_at_mut(&["spec"]) {
        let mut all = spec.get("volumes").and_then(Value::as_array).unwrap_or_default().to_vec();
        // The set's claim takes the place of a volume of that name.
        all.retain(|volume| !names.contains(&volume.str_at(&["name"])));
        all.extend(volumes);
        spec.insert("volumes", all);
    }
    template
}

fn selector_of_deployment(object: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    selector(object, "deployment", errors);
}
fn selector_of_replica_set(object: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    selector(object, "deployment", errors);
}
fn selector_of_stateful_set(object: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    selector(object, "statefulset", errors);
}
fn selector_of_daemon_set(object: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    selector(object, "daemonset", errors);
}

/// The selector must be there, select something, and select what the template makes.
fn selector(object: &Value, kind: &str, errors: &mut Vec<Cause>) {
    let given = at(object, "spec.selector");
    let selects_nothing =
        given.is_none_or(|s| at(s, "matchLabels").is_none() && list(s, "matchExpressions").is_empty());
    match given {
        // Upstream leaves this out for the one kind.
        None if kind == "daemonset" => {}
        None => errors.push(field::required("spec.selector", "")),
        Some(selector) => {
            super::selector_errors(selector, format_args!("spec.selector"), errors);
            if selects_nothing {
                let why = format!("empty selector is invalid for {kind}");
                errors.push(field::invalid("spec.selector", tree!({}), &why));
            }
        }
    }
    let labels = at(object, "spec.template.metadata.labels");
    let label = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
    let Ok(parsed) = LabelSelector::from_object(given) else {
        let shown = given.cloned().unwrap_or_default();
        match kind {
            "daemonset" => {}
            "statefulset" => {
                let mut error = field::invalid("spec.selector", shown, "");
                error.message.truncate(error.message.trim_end_matches([':', ' ']).len());
                errors.push(error);
            }
            _ => errors.push(field::invalid("spec.selector", shown, "invalid label selector")),
        }
        return;
    };
    if given.is_none() || (!selects_nothing && !parsed.matches(label)) {
        let why = "`selector` does not match template `labels`";
        let shown = labels.cloned().unwrap_or_default();
        errors.push(field::invalid("spec.template.metadata.labels", shown, why));
    }
}

/// A controller that keeps pods running wants pods that run on.
fn restarts_always(object: &Value, errors: &mut Vec<Cause>) {
    let policy = text(object, "spec.template.spec.restartPolicy");
    if !matches!(policy, "" | "Always") {
        errors.push(field::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
    if int(object, "spec.template.spec.activeDeadlineSeconds").is_some() {
        let what = match text(object, "kind") {
            "" => "this kind",
            kind => kind,
        };
        let why = format!("activeDeadlineSeconds in {what} is not Supported");
        errors.push(field::forbidden("spec.template.spec.activeDeadlineSeconds", &why));
    }
}

fn template_always(object: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    // Upstream gives up on the template of what it cannot match with it.
    let reads = LabelSelector::from_object(at(object, "spec.selector")).is_ok();
    if !reads && matches!(text(object, "kind"), "Deployment" | "ReplicaSet") {
        return;
    }
    template(object, errors);
    restarts_always(object, errors);
}

fn template_of_deployment(object: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    template_always(object, path, errors);
}

fn plain_selector(object: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    let selector = at(object, "spec.selector").and_then(Value::as_object).filter(|s| !s.is_empty());
    if selector.is_none() {
        errors.push(field::required("spec.selector", ""));
    }
    if at(object, "spec.template").is_none() {
        errors.push(field::required("spec.template", ""));
        return;
    }
    let labels = at(object, "spec.template.metadata.labels");
    let label = |key: &str| labels.and_then(|l| l.get(key));
    if selector.is_some_and(|selector| selector.iter().any(|(key, value)| label(key) != Some(value))) {
        let why = "`selector` does not match template `labels`";
        errors.push(field::invalid(
            "spec.template.metadata.labels",
            labels.cloned().unwrap_or_default(),
            why,
        ));
    }
    template(object, errors);
    restarts_always(object, errors);
}

/// A number of pods, or a share of them.
fn count_or_share(value: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    const FORM: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
    match value {
        Value::Int(n) if *n < 0 => {
            errors.push(field::invalid(path, *n, "must be greater than or equal to 0"));
        }
        Value::String(share) => {
            let digits = share.strip_suffix('%').unwrap_or_default();
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                errors.push(field::invalid(path, share.clone(), FORM));
            }
        }
        _ => {}
    }
}

/// The number of percent, where it is a share.
fn percent(value: &Value) -> Option<i64> {
    value.as_str()?.strip_suffix('%')?.parse().ok()
}

fn at_most_all(value: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    if percent(value).is_some_and(|percent| percent > 100) {
        errors.push(field::invalid(path, value.clone(), "must not be greater than 100%"));
    }
}

fn is_zero(value: Option<&Value>) -> bool {
    // A share that cannot be read counts as none.
    value.is_some_and(|value| value.as_int().or_else(|| percent(value)).unwrap_or(0) == 0)
}

/// Neither more nor fewer pods than wanted: then no pod can be replaced.
fn rolling_update(object: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.strategy.rollingUpdate";
    let update = at(object, PATH);
    match text(object, "spec.strategy.type") {
        "Recreate" if update.is_some() => {
            let why = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(field::forbidden(PATH, why));
        }
        "RollingUpdate" => {
            let part = |key: &str| update.and_then(|update| at(update, key));
            for key in ["maxUnavailable", "maxSurge"] {
                if let Some(value) = part(key) {
                    count_or_share(value, format_args!("{PATH}.{key}"), errors);
                }
            }
            if let Some(unavailable) = part("maxUnavailable") {
                if is_zero(Some(unavailable)) && is_zero(part("maxSurge")) {
                    let why = "may not be 0 when `maxSurge` is 0";
                    errors.push(field::invalid(
                        format_args!("{PATH}.maxUnavailable"),
                        unavailable.clone(),
                        why,
                    ));
                }
                at_most_all(unavailable, format_args!("{PATH}.maxUnavailable"), errors);
            }
        }
        "" | "Recreate" => {}
        // Upstream shows the whole strategy.
        _ => {
            let shown = at(object, "spec.strategy").cloned().unwrap_or_default();
            errors.push(field::not_supported("spec.strategy", shown, &["Recreate", "RollingUpdate"]));
        }
    }
}

fn progress_deadline(object: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.progressDeadlineSeconds";
    validate(&[AtLeast(PATH, 0)], object, format_args!(""), errors);
    let ready = int(object, "spec.minReadySeconds").unwrap_or(0);
    if let Some(seconds) = int(object, PATH).filter(|seconds| *seconds <= ready) {
        errors.push(field::invalid(PATH, seconds, "must be greater than minReadySeconds"));
    }
}

fn daemon_update(object: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.updateStrategy.rollingUpdate";
    match text(object, "spec.updateStrategy.type") {
        "OnDelete" | "" => {}
        "RollingUpdate" => {
            let part = |key: &str| at(object, &format!("{PATH}.{key}"));
            let (unavailable, surge) = (part("maxUnavailable"), part("maxSurge"));
            for (key, value) in [("maxUnavailable", unavailable), ("maxSurge", surge)] {
                if let Some(value) = value {
                    count_or_share(value, format_args!("{PATH}.{key}"), errors);
                    at_most_all(value, format_args!("{PATH}.{key}"), errors);
                }
            }
            let positive = |value: Option<&Value>| value.is_some() && !is_zero(value);
            match (positive(unavailable), positive(surge)) {
                (true, true) => {
                    let shown = surge.cloned().unwrap_or_default();
                    let why = "may not be set when maxUnavailable is non-zero";
                    errors.push(field::invalid(format_args!("{PATH}.maxSurge"), shown, why));
                }
                (false, false) => {
                    let why = "cannot be 0 when maxSurge is 0";
                    errors.push(field::required(format_args!("{PATH}.maxUnavailable"), why));
                }
                _ => {}
            }
        }
        _ => {
            let shown = at(object, "spec.updateStrategy").cloned().unwrap_or_default();
            let supported = &["RollingUpdate", "OnDelete"];
            errors.push(field::not_supported("spec.updateStrategy", shown, supported));
        }
    }
}

fn set_policies(object: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    match text(object, "spec.podManagementPolicy") {
        "OrderedReady" | "Parallel" => {}
        "" => errors.push(field::required("spec.podManagementPolicy", "")),
        other => {
            let why = "must be 'OrderedReady' or 'Parallel'";
            errors.push(field::invalid("spec.podManagementPolicy", other, why));
        }
    }
    match text(object, "spec.updateStrategy.type") {
        "" => errors.push(field::required("spec.updateStrategy", "")),
        "OnDelete" => {
            if at(object, "spec.updateStrategy.rollingUpdate").is_some() {
                let why = "only allowed for updateStrategy 'RollingUpdate'";
                errors.push(field::invalid("spec.updateStrategy.rollingUpdate", Value::Null, why));
            }
        }
        "RollingUpdate" => {}
        _ => {
            let shown = at(object, "spec.updateStrategy").cloned().unwrap_or_default();
            let why = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(field::invalid("spec.updateStrategy", shown, why));
        }
    }
}

/// What a new StatefulSet cannot say of its service and its claims: neither can be changed later.
pub fn stateful_set_create(set: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    let service = text(set, "spec.serviceName");
    if !service.is_empty() {
        rule(format_args!("spec.serviceName"), service, names::dns1123_label_errors, &mut errors);
    }
    for (i, claim) in list(set, "spec.volumeClaimTemplates").iter().enumerate() {
        let nothing = Value::object();
        let spec = at(claim, "spec").unwrap_or(&nothing);
        claims::spec(spec, format_args!("spec.volumeClaimTemplates[{i}].spec."), &mut errors);
    }
    errors
}

fn budget(object: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
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
        errors.push(field::invalid_shown("spec", &shown, why));
    }
    for (path, value) in [("spec.minAvailable", least), ("spec.maxUnavailable", most)] {
        if let Some(value) = value {
            count_or_share(value, format_args!("{path}"), errors);
            at_most_all(value, format_args!("{path}"), errors);
        }
    }
}
