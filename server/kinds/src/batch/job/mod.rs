//! Job (`batch`).

mod columns;
mod indexes;
pub(crate) mod status;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::error::quoted;
use plinth_codec::selector::{LabelSelector, Selectable, SelectableField};
use plinth_codec::{names, tree, Map, Value};

use crate::batch::job::indexes::count_indexes;
use crate::batch::job::status::uncounted_pods;
use crate::checks::comparison::{same, take};
use crate::checks::immutable::immutable;
use crate::checks::qualified_names::domain_prefixed_path;
use crate::checks::Check::{self, AtLeast, By, Enum, In, Selector};
use crate::checks::{self, validate};
use crate::defaults::DefaultRule::{self, Computed, Ensure, Field, ForEach};
use crate::defaults::Literal::{Bool, Str};
use crate::defaults::{self, is_empty_map};
use crate::path::{at, int, int_or_zero, list, text};
use crate::pod_template::defaults::TEMPLATE_DEFAULTS;
use crate::pod_template::warnings::warn_template;
use crate::pod_template::TEMPLATE_CHECKS;
use crate::strategy::{Generation, Strategy, BASE};
use crate::warnings::{is_same_generation, warn_pod_name, Warnings};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    orphans_by_default: true,
    defaults: DEFAULTS,
    prepare_for_create,
    checks: CHECKS,
    warnings,
    validate_update,
    status_checks: STATUS_CHECKS,
    validate_status: status::validate,
    orphan_warning: Some(ORPHAN_WARNING),
    columns: columns::COLUMNS,
    selectable: SELECTABLE,
    ..BASE
};

/// Warning on deletion without a propagation policy (kubernetes `pkg/registry/batch/job/strategy.go`,
/// `DefaultGarbageCollectionPolicy`).
const ORPHAN_WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

const DEFAULTS: &[DefaultRule] = &[
    Computed(default_parallelism),
    Computed(default_labels),
    Field("spec.completionMode", Str("NonIndexed")),
    Field("spec.suspend", Bool(false)),
    Field("spec.manualSelector", Bool(false)),
    Ensure("spec", SPEC_DEFAULTS),
];

/// Defaults that the spec of a Job and the job template of a CronJob share.
pub(crate) const SPEC_DEFAULTS: &[DefaultRule] = &[
    Ensure("template", TEMPLATE_DEFAULTS),
    ForEach("podFailurePolicy.rules", &[ForEach("onPodConditions", &[Field("status", Str("True"))])]),
];

/// `metadata.labels` defaults to the labels of the template, including those generated on create.
fn default_labels(object: &mut Map) {
    let is_manual = defaults::at(object, "spec.manualSelector").and_then(Value::as_bool) == Some(true);
    if !is_manual && defaults::at(object, "spec.selector").is_none_or(Value::is_null) {
        return;
    }
    let labels =
        defaults::at(object, "spec.template.metadata.labels").filter(|l| l.as_object().is_some()).cloned();
    if let Some(labels) = labels {
        defaults::set(object, "metadata.labels", &labels, is_empty_map);
    }
}

fn default_parallelism(object: &mut Map) {
    let has = |path: &str| defaults::at(object, path).is_some_and(|v| !v.is_null());
    let (completions, parallelism) = (has("spec.completions"), has("spec.parallelism"));
    let by_index = has("spec.backoffLimitPerIndex");
    let policy = has("spec.podFailurePolicy");
    if !completions && !parallelism {
        defaults::set(object, "spec.completions", &1.into(), Value::is_null);
    }
    defaults::set(object, "spec.parallelism", &1.into(), Value::is_null);
    let limit = if by_index { i64::from(i32::MAX) } else { 6 };
    defaults::set(object, "spec.backoffLimit", &limit.into(), Value::is_null);
    let replacement = if policy { "Failed" } else { "TerminatingOrFailed" };
    defaults::set(object, "spec.podReplacementPolicy", &replacement.into(), Value::is_null);
}

/// Generates the selector and labels with the Job's uid, unless `manualSelector` is set
/// (kubernetes `pkg/registry/batch/job/strategy.go`).
fn prepare_for_create(job: &mut Value) {
    if job.at(&["spec", "manualSelector"]).and_then(Value::as_bool) == Some(true) {
        return;
    }
    let text = |key: &str| job.str_at(&["metadata", key]).unwrap_or_default().to_owned();
    let (name, uid) = (text("name"), text("uid"));
    if let Some(labels) = job.object_at_mut(&["spec", "template", "metadata", "labels"]) {
        let generated = [
            ("job-name", &name),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("batch.kubernetes.io/controller-uid", &uid),
        ];
        // Labels that the client set are left for validation to refuse.
        for (key, value) in generated {
            if !labels.contains(key) {
                labels.insert(key, value.as_str());
            }
        }
    }
    if let Some(selected) = job.object_at_mut(&["spec", "selector", "matchLabels"]) {
        if !selected.contains("batch.kubernetes.io/controller-uid") {
            selected.insert("batch.kubernetes.io/controller-uid", uid);
        }
    }
    let labels = job.at(&["spec", "template", "metadata", "labels"]).cloned().unwrap_or_else(|| tree!({}));
    if let Some(own) = job.object_at_mut(&["metadata", "labels"]) {
        if own.is_empty() {
            if let Value::Object(labels) = labels {
                *own = labels;
            }
        }
    }
}

const CHECKS: &[Check] =
    &[By(generated), In("spec", SPEC_CHECKS), In("spec", &[By(selector)]), By(pod_names)];

/// Maximum of `parallelism` and `maxFailedIndexes` of an indexed Job.
const MAX_INDEXED: i64 = 100_000;

/// Above this number of completions the bound below applies.
const MANY_COMPLETIONS: i64 = 100_000;

const MAX_PARALLEL_OF_MANY: i64 = 10_000;

const MAX_RULES: usize = 20;

pub(crate) const SPEC_CHECKS: &[Check] = &[
    AtLeast("parallelism", 0),
    AtLeast("completions", 0),
    AtLeast("activeDeadlineSeconds", 0),
    AtLeast("backoffLimit", 0),
    AtLeast("ttlSecondsAfterFinished", 0),
    AtLeast("backoffLimitPerIndex", 0),
    AtLeast("maxFailedIndexes", 0),
    By(managed_by),
    Enum("completionMode", &["NonIndexed", "Indexed"]),
    By(indexed),
    By(failure_policy),
    By(success_policy),
    By(replacement_policy),
    By(template),
];

fn managed_by(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MAX_LENGTH: usize = 63;
    if int(spec, "maxFailedIndexes").is_some() && int(spec, "backoffLimitPerIndex").is_none() {
        let why = "when maxFailedIndexes is specified";
        errors.push(field::required(format_args!("{path}backoffLimitPerIndex"), why));
    }
    let Some(name) = at(spec, "managedBy").and_then(Value::as_str) else { return };
    let here = format_args!("{path}managedBy");
    domain_prefixed_path(name, here, errors);
    if name.len() > MAX_LENGTH {
        errors.push(field::too_long(here, MAX_LENGTH));
    }
}

fn indexed(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let completions = int(spec, "completions");
    let (parallelism, failed) = (int(spec, "parallelism"), int(spec, "maxFailedIndexes"));
    let mut refuse = |key: &str, value: i64, why: String| {
        errors.push(field::invalid(format_args!("{path}{key}"), value, &why));
    };
    if text(spec, "completionMode") != "Indexed" {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(value) =
                int(spec, key).filter(|_| matches!(text(spec, "completionMode"), "" | "NonIndexed"))
            {
                refuse(key, value, "requires indexed completion mode".into());
            }
        }
        return;
    }
    if let Some(count) = parallelism.filter(|count| *count > MAX_INDEXED) {
        let why = format!("must be less than or equal to {MAX_INDEXED} when completion mode is Indexed");
        refuse("parallelism", count, why);
    }
    if let (Some(completions), Some(failed)) = (completions, failed) {
        if failed > completions {
            refuse("maxFailedIndexes", failed, "must be less than or equal to completions".into());
        }
    }
    if let Some(failed) = failed.filter(|failed| *failed > MAX_INDEXED) {
        refuse("maxFailedIndexes", failed, format!("must be less than or equal to {MAX_INDEXED}"));
    }
    let many = completions.is_some_and(|count| count > MANY_COMPLETIONS);
    if many && int(spec, "backoffLimitPerIndex").is_some() {
        for (key, value) in [("parallelism", parallelism), ("maxFailedIndexes", failed)] {
            if let Some(value) = value.filter(|value| *value > MAX_PARALLEL_OF_MANY) {
                let why = format!("must be less than or equal to {MAX_PARALLEL_OF_MANY} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index");
                refuse(key, value, why);
            }
        }
        if failed.is_none() {
            let why = format!("must be specified when completions is above {MANY_COMPLETIONS}");
            errors.push(field::required(format_args!("{path}maxFailedIndexes"), &why));
        }
    }
    if completions.is_none() {
        errors.push(field::required(format_args!("{path}completions"), "when completion mode is Indexed"));
    }
}

/// Validates a required enum with upstream's messages.
fn chosen(holder: &Value, key: &str, supported: &[&str], path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    match text(holder, key) {
        "" => {
            let quoted: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
            let why = format!("valid values: [{}]", quoted.join(" "));
            errors.push(field::required(format_args!("{path}{key}"), &why));
        }
        given if !supported.contains(&given) => {
            errors.push(field::not_supported(format_args!("{path}{key}"), given, supported));
        }
        _ => {}
    }
}

fn failure_policy(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let Some(policy) = at(spec, "podFailurePolicy") else { return };
    let rules = list(policy, "rules");
    let path = format_args!("{path}podFailurePolicy.rules");
    if rules.len() > MAX_RULES {
        errors.push(field::too_many(path, rules.len(), MAX_RULES));
    }
    for (i, rule) in rules.iter().enumerate() {
        let here = format_args!("{path}[{i}]");
        chosen(rule, "action", &["Count", "FailIndex", "FailJob", "Ignore"], format_args!("{here}."), errors);
        if text(rule, "action") == "FailIndex" && int(spec, "backoffLimitPerIndex").is_none() {
            let why = "requires the backoffLimitPerIndex to be set";
            errors.push(field::invalid(format_args!("{here}.action"), "FailIndex", why));
        }
        let (codes, conditions) = (at(rule, "onExitCodes"), list(rule, "onPodConditions"));
        if let Some(codes) = codes {
            exit_codes(codes, spec, format_args!("{here}.onExitCodes."), errors);
        }
        if conditions.len() > MAX_RULES {
            errors.push(field::too_many(format_args!("{here}.onPodConditions"), conditions.len(), MAX_RULES));
        }
        for (j, pattern) in conditions.iter().enumerate() {
            let here = format_args!("{here}.onPodConditions[{j}].");
            checks::check_text(
                format_args!("{here}type"),
                text(pattern, "type"),
                names::qualified_name_errors,
                errors,
            );
            chosen(pattern, "status", &["False", "True", "Unknown"], here, errors);
        }
        let why = match (codes.is_some(), !conditions.is_empty()) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        let mut error = field::invalid(here, Value::Null, "");
        error.message = format!("Invalid value: {why}");
        errors.push(error);
    }
}

fn exit_codes(codes: &Value, spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MAX: usize = 255;
    chosen(codes, "operator", &["In", "NotIn"], path, errors);
    if let Some(name) = at(codes, "containerName").and_then(Value::as_str) {
        let parts = ["containers", "initContainers"];
        let containers = parts.iter().flat_map(|part| list(spec, &format!("template.spec.{part}")));
        if !containers.into_iter().any(|container| text(container, "name") == name) {
            let why = "must be one of the container or initContainer names in the pod template";
            errors.push(field::invalid(format_args!("{path}containerName"), name, why));
        }
    }
    let here = format_args!("{path}values");
    let values: Vec<i64> = list(codes, "values").iter().filter_map(Value::as_int).collect();
    if values.is_empty() {
        let shown = at(codes, "values").cloned().unwrap_or_default();
        errors.push(field::invalid(here, shown, "at least one value is required"));
    } else if values.len() > MAX {
        errors.push(field::too_many(here, values.len(), MAX));
    }
    for (j, value) in values.iter().enumerate() {
        let here = format_args!("{here}[{j}]");
        if *value == 0 && text(codes, "operator") == "In" {
            errors.push(field::invalid(here, 0, "must not be 0 for the In operator"));
        }
        if values.iter().take(j).any(|earlier| earlier == value) {
            errors.push(field::duplicate(here, *value));
        }
    }
    if !values.is_sorted() {
        errors.push(field::invalid(here, list(codes, "values").to_vec(), "must be ordered"));
    }
}

fn success_policy(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MAX_INDEXES: usize = 64 * 1024;
    let Some(policy) = at(spec, "successPolicy") else { return };
    let path = format_args!("{path}successPolicy");
    if text(spec, "completionMode") != "Indexed" {
        errors.push(field::invalid(path, policy.clone(), "requires indexed completion mode"));
        return;
    }
    let (rules, path) = (list(policy, "rules"), format_args!("{path}.rules"));
    if rules.is_empty() {
        let why = "at least one rules must be specified when the successPolicy is specified";
        errors.push(field::required(path, why));
    }
    if rules.len() > MAX_RULES {
        errors.push(field::too_many(path, rules.len(), MAX_RULES));
    }
    let completions = int(spec, "completions").unwrap_or(0);
    for (i, rule) in rules.iter().enumerate() {
        let here = format_args!("{path}[{i}]");
        let (count, indexes) =
            (int(rule, "succeededCount"), at(rule, "succeededIndexes").and_then(Value::as_str));
        if count.is_none() && indexes.is_none() {
            let why = "at least one of succeededCount or succeededIndexes must be specified";
            errors.push(field::required(here, why));
        }
        let mut named = None;
        if let Some(indexes) = indexes {
            if indexes.len() > MAX_INDEXES {
                errors.push(field::too_long(format_args!("{here}.succeededIndexes"), MAX_INDEXES));
            }
            match count_indexes(indexes, completions) {
                // Upstream counts malformed indexes as none.
                Err(why) => {
                    let why = format!("error parsing succeededIndexes: {why}");
                    errors.push(field::invalid(format_args!("{here}.succeededIndexes"), indexes, &why));
                    named = Some(0);
                }
                Ok(count) => named = Some(count),
            }
        }
        let Some(count) = count else { continue };
        let mut refuse = |why: String| {
            errors.push(field::invalid(format_args!("{here}.succeededCount"), count, &why));
        };
        if count < 0 {
            refuse("must be greater than or equal to 0".into());
        }
        if count > completions {
            refuse(format!(
                "must be less than or equal to {completions} (the number of specified completions)"
            ));
        }
        if let Some(named) = named.filter(|named| count > *named) {
            refuse(format!("must be less than or equal to {named} (the number of indexes in the specified succeededIndexes field)"));
        }
    }
}

fn replacement_policy(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let supported: &[&str] = match at(spec, "podFailurePolicy") {
        Some(_) => &["Failed"],
        None => &["Failed", "TerminatingOrFailed"],
    };
    if let Some(given) = at(spec, "podReplacementPolicy").and_then(Value::as_str) {
        if !supported.contains(&given) {
            errors.push(field::not_supported(format_args!("{path}podReplacementPolicy"), given, supported));
        }
    }
}

fn template(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let nothing = Value::object();
    let template = at(spec, "template").unwrap_or(&nothing);
    validate(TEMPLATE_CHECKS, template, format_args!("{path}template."), errors);
    let here = format_args!("{path}template.spec.restartPolicy");
    match text(template, "spec.restartPolicy") {
        "Always" | "" => errors.push(field::required(here, "valid values: \"OnFailure\", \"Never\"")),
        "Never" => {}
        "OnFailure" if at(spec, "podFailurePolicy").is_some() => {
            let why = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.push(field::invalid(here, "OnFailure", why));
        }
        "OnFailure" => {}
        other => errors.push(field::not_supported(here, other, &["OnFailure", "Never"])),
    }
}

fn selector(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let given = at(spec, "selector");
    if given.is_none() {
        errors.push(field::required(format_args!("{path}selector"), ""));
    }
    validate(&[Selector("selector")], spec, path, errors);
    let labels = at(spec, "template.metadata.labels");
    let label = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
    if LabelSelector::from_object(given).is_ok_and(|selector| given.is_none() || !selector.matches(label)) {
        let why = "`selector` does not match template `labels`";
        let shown = labels.cloned().unwrap_or_default();
        errors.push(field::invalid(format_args!("{path}template.metadata.labels"), shown, why));
    }
}

/// Validates that generated labels and selector are those that the server generates.
fn generated(job: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let manual = at(job, "spec.manualSelector").and_then(Value::as_bool) == Some(true);
    let Some(selector) = at(job, "spec.selector").filter(|_| !manual) else { return };
    let (uid, name) = (text(job, "metadata.uid"), text(job, "metadata.name"));
    let labels = job.at(&["spec", "template", "metadata", "labels"]);
    let expected = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    for (key, value) in expected {
        let here = format_args!("spec.template.metadata.labels[{key}]");
        match labels.and_then(|l| l.get(key)).and_then(Value::as_str) {
            None => errors.push(field::required(here, &format!("must be '{value}'"))),
            Some(given) if given != value => {
                errors.push(field::invalid(here, given, &format!("must be '{value}'")));
            }
            Some(_) => {}
        }
    }
    let label = |key: &str| expected.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
    if LabelSelector::from_object(Some(selector)).is_ok_and(|selector| !selector.matches(label)) {
        errors.push(field::invalid("spec.selector", selector.clone(), "`selector` not auto-generated"));
    }
}

/// The name of the last pod of an indexed Job must be a valid host name.
fn pod_names(job: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let completions = int(job, "spec.completions").unwrap_or(0);
    if text(job, "spec.completionMode") != "Indexed" || completions <= 0 {
        return;
    }
    let name = text(job, "metadata.name");
    let host = format!("{name}-{}", completions - 1);
    if !names::dns1123_label_errors(&host).is_empty() {
        let why = format!("will not able to create pod with invalid DNS label: {host}");
        errors.push(field::invalid("metadata.name", name, &why));
    }
}

/// The template is immutable, except for scheduling directives of a suspended Job that never started. An
/// indexed Job can change `completions` together with `parallelism`.
fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    const FIXED: &[&str] = &[
        "spec.completionMode",
        "spec.podFailurePolicy",
        "spec.backoffLimitPerIndex",
        "spec.managedBy",
        "spec.successPolicy",
    ];
    let mut errors = Vec::new();
    let count = |job: &Value, key: &str| at(job, &format!("spec.{key}")).and_then(Value::as_int);
    let completions = count(new, "completions");
    if completions != count(old, "completions") {
        let indexed = text(new, "spec.completionMode") == "Indexed";
        let shown = completions.map_or(Value::Null, Value::from);
        if !indexed || completions.is_none() || count(old, "completions").is_none() {
            errors.push(field::invalid("spec.completions", shown, "field is immutable"));
        } else if completions != count(new, "parallelism") {
            let why = "can only be modified in tandem with spec.parallelism";
            errors.push(field::invalid("spec.completions", shown, why));
        }
    }
    immutable(&["spec.selector"], new, old, &mut errors);
    let suspended = |job: &Value| at(job, "spec.suspend").and_then(Value::as_bool) == Some(true);
    let mut template = new.clone();
    if suspended(old) && at(old, "status.startTime").is_none() {
        const DIRECTIVES: [&[&str]; 6] = [
            &["spec", "template", "metadata", "annotations"],
            &["spec", "template", "metadata", "labels"],
            &["spec", "template", "spec", "nodeSelector"],
            &["spec", "template", "spec", "tolerations"],
            &["spec", "template", "spec", "schedulingGates"],
            &["spec", "template", "spec", "affinity", "nodeAffinity"],
        ];
        for path in DIRECTIVES {
            take(&mut template, old, path);
        }
        let containers = template.get_mut("spec").and_then(|s| s.get_mut("template"));
        let containers = containers.and_then(|t| t.get_mut("spec")).and_then(|s| s.get_mut("containers"));
        let before = list(old, "spec.template.spec.containers");
        for (container, before) in containers.and_then(Value::as_array_mut).into_iter().flatten().zip(before)
        {
            if container.get("name") == before.get("name") {
                take(container, before, &["resources"]);
            }
        }
    }
    if !same(at(&template, "spec.template"), at(old, "spec.template")) {
        let shown = at(new, "spec.template").cloned().unwrap_or_default();
        errors.push(field::invalid("spec.template", shown, "field is immutable"));
    }
    immutable(FIXED, new, old, &mut errors);
    errors
}

const STATUS_CHECKS: &[Check] = &[
    AtLeast("status.active", 0),
    AtLeast("status.succeeded", 0),
    AtLeast("status.failed", 0),
    AtLeast("status.ready", 0),
    AtLeast("status.terminating", 0),
    By(uncounted_pods),
];

fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut found = Warnings::default();
    warn_pod_name(new, old, "Pod names and hostnames", &mut found);
    if !is_same_generation(new, old) {
        warn_job_spec(new, "spec", &mut found);
    }
    found.into_vec()
}

/// Adds warnings about the spec of a Job at `path`.
pub(crate) fn warn_job_spec(new: &Value, path: &str, found: &mut Warnings) {
    // Beyond these numbers the list of completed indexes may become too large for the status.
    const COMPLETIONS: i64 = 100_000;
    const PARALLELISM: i64 = 10_000;
    let number = |member: &str| int_or_zero(new, &format!("{path}.{member}"));
    if text(new, &format!("{path}.completionMode")) == "Indexed"
        && number("completions") > COMPLETIONS
        && number("parallelism") > PARALLELISM
    {
        found.add(format!("{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"));
    }
    warn_template(new, &format!("{path}.template"), found);
}

const SELECTABLE: Selectable = Selectable {
    fields: &[
        SelectableField::NAME,
        SelectableField::NAMESPACE,
        SelectableField::new("status.successful").at("status.succeeded").absent("0"),
    ],
    unsupported: |label| format!("field label {} not supported for Job", quoted(label)),
};
