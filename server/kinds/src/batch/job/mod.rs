//! Job (`batch`).

mod columns;
mod indexes;
pub(crate) mod status;
mod template;

use plinth_codec::error::quoted;
use plinth_codec::selector::{LabelSelector, Selectable, SelectableField};
use plinth_codec::{names, tree, Map, Value};

use crate::batch::job::indexes::count_indexes;
use crate::batch::job::status::uncounted_pods;
use crate::checks::immutable::{immutable, IMMUTABLE};
use crate::checks::qualified_names::domain_prefixed_path;
use crate::checks::Check::{self, Always, AnyText, AtLeast, By, Enum, In, Required, Selector, Set};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, Computed, Ensure, Field, ForEach};
use crate::defaults::Literal::{Bool, Str};
use crate::defaults::{self, is_empty_map};
use crate::gated_fields;
use crate::path::{int, int_or_zero, text};
use crate::pod_template::controller::labels_do_not_match;
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
    gated_fields: &gated_fields::of_pods(gated_fields::TEMPLATE),
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

fn managed_by(spec: &Part<'_>) {
    if spec.has("maxFailedIndexes") {
        spec.check(&[Set("backoffLimitPerIndex", "when maxFailedIndexes is specified")]);
    }
    if let Some(name) = spec.set_text("managedBy") {
        spec.apply("managedBy", domain_prefixed_path);
        spec.at_most_bytes("managedBy", name, 63);
    }
}

fn indexed(spec: &Part<'_>) {
    let mode = spec.text("completionMode");
    let completions = spec.int("completions");
    let (parallelism, failed) = (spec.int("parallelism"), spec.int("maxFailedIndexes"));
    let refuse = |key: &str, value: i64, why: String| spec.invalid(key, value, &why);
    if mode != "Indexed" {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(value) = spec.int(key).filter(|_| matches!(mode, "" | "NonIndexed")) {
                spec.invalid(key, value, "requires indexed completion mode");
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
    if many && spec.has("backoffLimitPerIndex") {
        for (key, value) in [("parallelism", parallelism), ("maxFailedIndexes", failed)] {
            if let Some(value) = value.filter(|value| *value > MAX_PARALLEL_OF_MANY) {
                let why = format!("must be less than or equal to {MAX_PARALLEL_OF_MANY} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index");
                refuse(key, value, why);
            }
        }
        if failed.is_none() {
            let why = format!("must be specified when completions is above {MANY_COMPLETIONS}");
            spec.required("maxFailedIndexes", &why);
        }
    }
    spec.check(&[Set("completions", "when completion mode is Indexed")]);
}

/// Validates a required enum with upstream's messages.
fn chosen(holder: &Part<'_>, key: &str, supported: &[&str]) {
    let quoted: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
    holder.required_one_of(key, supported, &format!("valid values: [{}]", quoted.join(" ")));
}

fn failure_policy(spec: &Part<'_>) {
    spec.at_most_items("podFailurePolicy.rules", MAX_RULES);
    for rule in spec.each("podFailurePolicy.rules") {
        chosen(&rule, "action", &["Count", "FailIndex", "FailJob", "Ignore"]);
        if rule.text("action") == "FailIndex" && !spec.has("backoffLimitPerIndex") {
            rule.invalid("action", "FailIndex", "requires the backoffLimitPerIndex to be set");
        }
        let codes = rule.get("onExitCodes");
        if let Some(codes) = &codes {
            exit_codes(codes, spec);
        }
        rule.at_most_items("onPodConditions", MAX_RULES);
        for pattern in rule.each("onPodConditions") {
            pattern.check(&[AnyText("type", names::qualified_name_errors)]);
            chosen(&pattern, "status", &["False", "True", "Unknown"]);
        }
        match (codes.is_some(), !rule.is_empty("onPodConditions")) {
            (true, true) => {
                rule.invalid_unshown("", "specifying both OnExitCodes and OnPodConditions is not supported");
            }
            (false, false) => {
                rule.invalid_unshown("", "specifying one of OnExitCodes and OnPodConditions is required");
            }
            _ => {}
        }
    }
}

fn exit_codes(codes: &Part<'_>, spec: &Part<'_>) {
    chosen(codes, "operator", &["In", "NotIn"]);
    if let Some(name) = codes.set_text("containerName") {
        let parts = ["template.spec.containers", "template.spec.initContainers"];
        if !parts.iter().flat_map(|part| spec.list(part)).any(|container| text(container, "name") == name) {
            let why = "must be one of the container or initContainer names in the pod template";
            codes.invalid("containerName", name, why);
        }
    }
    let values: Vec<i64> = codes.list("values").iter().filter_map(Value::as_int).collect();
    if values.is_empty() {
        codes.invalid("values", codes.shown("values"), "at least one value is required");
    }
    codes.at_most_items("values", 255);
    for (j, value) in codes.each("values").enumerate() {
        let code = value.number("");
        if code == 0 && codes.text("operator") == "In" {
            value.invalid("", 0, "must not be 0 for the In operator");
        }
        if values.iter().take(j).any(|earlier| *earlier == code) {
            value.duplicate("", code);
        }
    }
    if !values.is_sorted() {
        codes.invalid("values", codes.list("values").to_vec(), "must be ordered");
    }
}

fn success_policy(spec: &Part<'_>) {
    let Some(policy) = spec.get("successPolicy") else { return };
    if spec.text("completionMode") != "Indexed" {
        policy.invalid("", policy.shown(""), "requires indexed completion mode");
        return;
    }
    policy.check(&[Required(
        "rules",
        "at least one rules must be specified when the successPolicy is specified",
    )]);
    policy.at_most_items("rules", MAX_RULES);
    for rule in policy.each("rules") {
        success_rule(&rule, spec.number("completions"));
    }
}

fn success_rule(rule: &Part<'_>, completions: i64) {
    if rule.count(&["succeededCount", "succeededIndexes"]) == 0 {
        let why = "at least one of succeededCount or succeededIndexes must be specified";
        rule.required("", why);
    }
    let named = rule.set_text("succeededIndexes").map(|indexes| {
        rule.at_most_bytes("succeededIndexes", indexes, 64 * 1024);
        count_indexes(indexes, completions).unwrap_or_else(|why| {
            rule.invalid("succeededIndexes", indexes, &format!("error parsing succeededIndexes: {why}"));
            // Upstream counts malformed indexes as none.
            0
        })
    });
    let Some(count) = rule.int("succeededCount") else { return };
    let refuse = |why: String| rule.invalid("succeededCount", count, &why);
    if count < 0 {
        refuse("must be greater than or equal to 0".into());
    }
    if count > completions {
        refuse(format!("must be less than or equal to {completions} (the number of specified completions)"));
    }
    if let Some(named) = named.filter(|named| count > *named) {
        refuse(format!("must be less than or equal to {named} (the number of indexes in the specified succeededIndexes field)"));
    }
}

fn replacement_policy(spec: &Part<'_>) {
    spec.check(match spec.has("podFailurePolicy") {
        true => &[Enum("podReplacementPolicy", &["Failed"])],
        false => &[Enum("podReplacementPolicy", &["Failed", "TerminatingOrFailed"])],
    });
}

fn template(spec: &Part<'_>) {
    const PATH: &str = "template.spec.restartPolicy";
    spec.check(&[Always("template", TEMPLATE_CHECKS)]);
    match spec.text(PATH) {
        "Always" | "" => spec.required(PATH, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if spec.has("podFailurePolicy") => {
            spec.invalid(PATH, "OnFailure", "only \"Never\" is supported when podFailurePolicy is specified");
        }
        _ => spec.one_of(PATH, &["OnFailure", "Never"]),
    }
}

fn selector(spec: &Part<'_>) {
    const LABELS: &str = "template.metadata.labels";
    spec.check(&[Set("selector", ""), Selector("selector")]);
    let given = spec.at("selector");
    let label = |key: &str| spec.at(LABELS).and_then(|l| l.get(key)).and_then(Value::as_str);
    if LabelSelector::from_object(given).is_ok_and(|selector| given.is_none() || !selector.matches(label)) {
        labels_do_not_match(spec, LABELS);
    }
}

/// Validates that generated labels and selector are those that the server generates.
fn generated(job: &Part<'_>) {
    let Some(selector) = job.at("spec.selector").filter(|_| !job.is_true("spec.manualSelector")) else {
        return;
    };
    let (uid, name) = (job.text("metadata.uid"), job.text("metadata.name"));
    let labels = job.at("spec.template.metadata.labels");
    let expected = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    for (key, value) in expected {
        let here = format_args!("spec.template.metadata.labels[{key}]");
        let why = format!("must be '{value}'");
        match labels.and_then(|l| l.get(key)).and_then(Value::as_str) {
            None => job.required(here, &why),
            Some(given) if given != value => job.invalid(here, given, &why),
            Some(_) => {}
        }
    }
    let label = |key: &str| expected.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
    if LabelSelector::from_object(Some(selector)).is_ok_and(|selector| !selector.matches(label)) {
        job.invalid("spec.selector", selector.clone(), "`selector` not auto-generated");
    }
}

/// The name of the last pod of an indexed Job must be a valid host name.
fn pod_names(job: &Part<'_>) {
    let completions = job.number("spec.completions");
    if job.text("spec.completionMode") != "Indexed" || completions <= 0 {
        return;
    }
    let name = job.text("metadata.name");
    let host = format!("{name}-{}", completions - 1);
    if !names::dns1123_label_errors(&host).is_empty() {
        let why = format!("will not able to create pod with invalid DNS label: {host}");
        job.invalid("metadata.name", name, &why);
    }
}

/// An indexed Job can change `completions` together with `parallelism`.
fn validate_update(new: &Part<'_>, old: &Value) {
    const FIXED: &[&str] = &[
        "spec.completionMode",
        "spec.podFailurePolicy",
        "spec.backoffLimitPerIndex",
        "spec.managedBy",
        "spec.successPolicy",
    ];
    const COMPLETIONS: &str = "spec.completions";
    let (completions, before) = (new.int(COMPLETIONS), int(old, COMPLETIONS));
    if completions != before {
        let indexed = new.text("spec.completionMode") == "Indexed";
        let shown = completions.map_or(Value::Null, Value::from);
        if !indexed || completions.is_none() || before.is_none() {
            new.invalid(COMPLETIONS, shown, IMMUTABLE);
        } else if completions != new.int("spec.parallelism") {
            new.invalid(COMPLETIONS, shown, "can only be modified in tandem with spec.parallelism");
        }
    }
    immutable(&["spec.selector"], new, old);
    template::validate_update(new, old);
    immutable(FIXED, new, old);
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
