//! StatefulSet (`apps`).

use plinth_codec::table::Column;
use plinth_codec::{names, Map, Value};

use crate::checks::comparison::{same, take};
use crate::checks::Check::{self, Always, AtLeast, By, Each, Enum, Text};
use crate::checks::Part;
use crate::columns;
use crate::defaults;
use crate::defaults::DefaultRule::{self, Computed, Ensure, Field, ForEach, IfPresent, When};
use crate::defaults::Literal::{EmptyObject, Int, Str};
use crate::gated_fields;
use crate::path::{at, int_or_zero, list};
use crate::pod_template::controller::{self, replica_counts, selector, template_always};
use crate::pod_template::defaults::TEMPLATE_DEFAULTS;
use crate::pod_template::warnings::warn_template;
use crate::strategy::{Generation, NameRule, Strategy, BASE};
use crate::volume_claim::{self, CLAIM_SPEC_DEFAULTS};
use crate::warnings::{is_same_generation, Warnings};

pub(crate) const STRATEGY: Strategy = Strategy {
    name: NameRule::Label,
    generation: Generation::Changes,
    defaults: DEFAULTS,
    prepare_for_create,
    prepare_for_update,
    gated_fields: &gated_fields::of_pods(gated_fields::TEMPLATE),
    checks: CHECKS,
    validate_create,
    warnings,
    validate_update,
    status_checks: STATUS_CHECKS,
    validate_status: controller::collision_count,
    columns: COLUMNS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[
    Field("spec.podManagementPolicy", Str("OrderedReady")),
    Computed(default_update_strategy),
    When(
        "spec.updateStrategy.type",
        "RollingUpdate",
        &[IfPresent("spec.updateStrategy.rollingUpdate", &[Field("partition", Int(0))])],
    ),
    Field("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", Str("Retain")),
    Field("spec.persistentVolumeClaimRetentionPolicy.whenScaled", Str("Retain")),
    Field("spec.replicas", Int(1)),
    Field("spec.revisionHistoryLimit", Int(10)),
    Ensure("spec.template", TEMPLATE_DEFAULTS),
    ForEach(
        "spec.volumeClaimTemplates",
        &[
            Field("apiVersion", Str("v1")),
            Field("kind", Str("PersistentVolumeClaim")),
            Ensure("spec", CLAIM_SPEC_DEFAULTS),
            Field("status.phase", Str("Pending")),
        ],
    ),
];

/// An update strategy without a type becomes a rolling update, whose `partition` then gets a default.
fn default_update_strategy(object: &mut Map) {
    let is_unset =
        defaults::at(object, "spec.updateStrategy.type").and_then(Value::as_str).is_none_or(str::is_empty);
    if is_unset {
        defaults::apply(
            &[
                Field("spec.updateStrategy.type", Str("RollingUpdate")),
                Field("spec.updateStrategy.rollingUpdate", EmptyObject),
            ],
            object,
        );
    }
}

/// Drops `maxUnavailable`: the feature gate `MaxUnavailableStatefulSet` is off.
fn prepare_for_create(set: &mut Value) {
    drop_max_unavailable(set);
}

/// As [`prepare_for_create`], unless the stored object has the field.
fn prepare_for_update(new: &mut Value, old: &Value) {
    const PATH: [&str; 4] = ["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"];
    if old.at(&PATH).is_none() {
        drop_max_unavailable(new);
    }
}

fn drop_max_unavailable(set: &mut Value) {
    let strategy = set.get_mut("spec").and_then(|spec| spec.get_mut("updateStrategy"));
    let rolling =
        strategy.and_then(|strategy| strategy.get_mut("rollingUpdate")).and_then(Value::as_object_mut);
    if let Some(rolling) = rolling {
        rolling.remove("maxUnavailable");
    }
}

const CHECKS: &[Check] = &[
    By(policies),
    AtLeast("spec.updateStrategy.rollingUpdate.partition", 0),
    Enum("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", &["Retain", "Delete"]),
    Enum("spec.persistentVolumeClaimRetentionPolicy.whenScaled", &["Retain", "Delete"]),
    AtLeast("spec.replicas", 0),
    AtLeast("spec.minReadySeconds", 0),
    AtLeast("spec.ordinals.start", 0),
    By(|object| selector(object, "statefulset")),
    By(template_always),
];

fn policies(object: &Part<'_>) {
    match object.text("spec.podManagementPolicy") {
        "OrderedReady" | "Parallel" => {}
        "" => object.required("spec.podManagementPolicy", ""),
        other => {
            object.invalid("spec.podManagementPolicy", other, "must be 'OrderedReady' or 'Parallel'");
        }
    }
    match object.text("spec.updateStrategy.type") {
        "" => object.required("spec.updateStrategy", ""),
        "OnDelete" => {
            if object.has("spec.updateStrategy.rollingUpdate") {
                let why = "only allowed for updateStrategy 'RollingUpdate'";
                object.invalid("spec.updateStrategy.rollingUpdate", Value::Null, why);
            }
        }
        "RollingUpdate" => {}
        _ => {
            let shown = object.shown("spec.updateStrategy");
            object.invalid("spec.updateStrategy", shown, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

/// Errors of the service name and claim templates of a new StatefulSet; both are immutable.
fn validate_create(set: &Part<'_>) {
    set.check(&[
        Text("spec.serviceName", names::dns1123_label_errors),
        Each("spec.volumeClaimTemplates", &[Always("spec", volume_claim::SPEC_CHECKS)]),
    ]);
}

const IMMUTABLE_SPEC: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

/// The spec is immutable, except for the fields that the message lists.
fn validate_update(new: &Part<'_>, old: &Value) {
    const CHANGING: [&str; 7] = [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ];
    let mut munged = new.value().clone();
    for key in CHANGING {
        take(&mut munged, old, &["spec", key]);
    }
    if !same(munged.get("spec"), old.get("spec")) {
        new.forbidden("spec", IMMUTABLE_SPEC);
    }
}

const STATUS_CHECKS: &[Check] = &[
    AtLeast("status.replicas", 0),
    AtLeast("status.readyReplicas", 0),
    AtLeast("status.currentReplicas", 0),
    AtLeast("status.updatedReplicas", 0),
    AtLeast("status.availableReplicas", 0),
    AtLeast("status.observedGeneration", 0),
    AtLeast("status.collisionCount", 0),
    By(|object| {
        const PARTS: [&str; 4] = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
        replica_counts(object, &PARTS, "status.readyReplicas");
    }),
];

fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut found = Warnings::default();
    if !is_same_generation(new, old) {
        warn_template(new, "spec.template", &mut found);
    }
    // Upstream's paths: on create without `spec`, on update with the Go name of the field.
    let part = if old.is_some() { ".Spec" } else { "" };
    for (i, claim) in list(new, "spec.volumeClaimTemplates").iter().enumerate() {
        volume_claim::warn_spec(
            at(claim, "spec"),
            &format!("spec.volumeClaimTemplates[{i}]{part}"),
            &mut found,
        );
    }
    if int_or_zero(new, "spec.revisionHistoryLimit") < 0 {
        found.add("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended");
    }
    found.into_vec()
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::ratio("Ready", "status.readyReplicas", "spec.replicas"),
    Column::AGE,
    columns::containers("spec.template.spec.containers").wide(),
    columns::images("spec.template.spec.containers").wide(),
];
