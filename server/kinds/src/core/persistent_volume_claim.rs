//! PersistentVolumeClaim (`core`).

use plinth_codec::quantity::Quantity;
use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::Value;

use crate::checks::comparison::{same, take};
use crate::checks::immutable::immutable_as;
use crate::checks::Check::{self, Always, By, Entries};
use crate::checks::{quantities, Part};
use crate::columns::{self, or, short_access_modes};
use crate::defaults::DefaultRule::{self, Ensure, Field};
use crate::defaults::Literal::Str;
use crate::path::{at, list, text};
use crate::strategy::{Strategy, BASE};
use crate::volume_claim::{
    warn_spec, CLAIM_SPEC_DEFAULTS, CLASS_ANNOTATION, CLASS_ANNOTATION_WARNING, SPEC_CHECKS,
};
use crate::warnings::{annotation, Warnings};

pub(crate) const STRATEGY: Strategy = Strategy {
    returns_deleted_object: true,
    defaults: DEFAULTS,
    prepare_for_create,
    prepare_for_update,
    checks: CHECKS,
    warnings,
    validate_update,
    status_checks: STATUS_CHECKS,
    columns: COLUMNS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] =
    &[Ensure("spec", CLAIM_SPEC_DEFAULTS), Field("status.phase", Str("Pending"))];

/// Copies `dataSource` to `dataSourceRef`, or the reverse, where only one is set (kubernetes
/// `pkg/api/persistentvolumeclaim`).
fn prepare_for_create(claim: &mut Value) {
    agree_on_source(claim, None);
}

/// As [`prepare_for_create`]; where the stored claim has a source, an invalid `dataSource` is left for
/// validation.
fn prepare_for_update(new: &mut Value, old: &Value) {
    agree_on_source(new, Some(old));
}

fn agree_on_source(claim: &mut Value, old: Option<&Value>) {
    let had_source = old.is_some_and(|old| {
        ["dataSource", "dataSourceRef"].iter().any(|key| old.at(&["spec", key]).is_some_and(|v| !v.is_null()))
    });
    let Some(spec) = claim.object_at_mut(&["spec"]) else { return };
    let text = |source: &Value, key: &str| source.str_at(&[key]).unwrap_or_default().to_owned();
    // `dataSource` accepts claims and snapshots; anything else is dropped.
    let known = |source: &Value| {
        let named = (text(source, "apiGroup"), text(source, "kind"));
        let named = (named.0.as_str(), named.1.as_str());
        matches!(named, ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot"))
    };
    if !had_source && spec.get("dataSource").is_some_and(|source| !known(source)) {
        spec.remove("dataSource");
    }
    let present = |value: Option<&Value>| value.filter(|value| !value.is_null()).cloned();
    match (present(spec.get("dataSource")), present(spec.get("dataSourceRef"))) {
        (Some(source), None) => {
            spec.insert("dataSourceRef", source);
        }
        (None, Some(reference)) if text(&reference, "namespace").is_empty() => {
            let mut source = reference;
            if let Some(source) = source.as_object_mut() {
                source.remove("namespace");
            }
            spec.insert("dataSource", source);
        }
        _ => {}
    }
}

const CHECKS: &[Check] = &[Always("spec", SPEC_CHECKS)];

const IMMUTABLE_SPEC: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n";

/// `volumeName` can be set once; on a bound claim the storage request and the attributes class can change.
fn validate_update(new: &Part<'_>, old: &Value) {
    const SIZE: &str = "spec.resources.requests.storage";
    let mut munged = new.value().clone();
    if text(old, "spec.volumeName").is_empty() {
        take(&mut munged, old, &["spec", "volumeName"]);
    }
    if new.text("status.phase") == "Bound" {
        take(&mut munged, old, &["spec", "resources", "requests", "storage"]);
        take(&mut munged, old, &["spec", "volumeAttributesClassName"]);
    }
    if !same(munged.get("spec"), old.get("spec")) {
        new.forbidden("spec", IMMUTABLE_SPEC);
    }
    let amount = |claim: &Value, path: &str| Quantity::parse(text(claim, path)).unwrap_or(Quantity::ZERO);
    let size = amount(new.value(), SIZE);
    if size < amount(old, SIZE) && size <= amount(old, "status.capacity.storage") {
        new.forbidden(SIZE, "field can not be less than status.capacity");
    }
    immutable_as("spec.volumeMode", "volumeMode", new, old);
}

const STATUS_CHECKS: &[Check] = &[Entries("status.capacity", &[By(quantities::resource_quantity)])];

fn warnings(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Warnings::default();
    if annotation(new, CLASS_ANNOTATION).is_some() {
        found.add(format!("metadata.annotations[{CLASS_ANNOTATION}]: {CLASS_ANNOTATION_WARNING}"));
    }
    warn_spec(at(new, "spec"), "spec", &mut found);
    found.into_vec()
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    columns::PHASE,
    Column::text("Volume", "spec.volumeName", ""),
    Column::computed("Capacity", &["spec.volumeName", "status.capacity.storage"], capacity_cell),
    Column::computed("Access Modes", &["spec.volumeName", "status.accessModes"], access_modes_cell),
    columns::STORAGE_CLASS,
    Column::text("VolumeAttributesClass", "spec.volumeAttributesClassName", "<unset>"),
    Column::AGE,
    Column::text("VolumeMode", "spec.volumeMode", "<unset>").wide(),
];

fn capacity_cell(claim: &Value, _: Now) -> Cell<'_> {
    match is_bound(claim) {
        true => or(text(claim, "status.capacity.storage"), "0").into(),
        false => "".into(),
    }
}

fn access_modes_cell(claim: &Value, _: Now) -> Cell<'_> {
    match is_bound(claim) {
        true => short_access_modes(list(claim, "status.accessModes")).into(),
        false => "".into(),
    }
}

fn is_bound(claim: &Value) -> bool {
    !text(claim, "spec.volumeName").is_empty()
}
