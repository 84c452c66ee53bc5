//! Namespace (`core`).

use plinth_api::{is_deleting, is_standard_or_qualified_finalizer};
use plinth_codec::apply::Reset;
use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::table::Column;
use plinth_codec::{names, tree, Map, Value};

use crate::checks::Check::{self, By};
use crate::checks::Part;
use crate::defaults;
use crate::defaults::DefaultRule::{self, Computed, Field};
use crate::defaults::Literal::Str;
use crate::deletion::{has_grace_left, start_deletion, Deletion, DeletionRequest};
use crate::strategy::{as_stored, NameRule, Strategy, Unwritten, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    name: NameRule::Label,
    deletion: DELETION,
    is_namespace_of_itself: true,
    unwritten,
    returns_deleted_object: true,
    defaults: DEFAULTS,
    prepare_for_create,
    checks: CHECKS,
    validate_status,
    columns: &[Column::NAME, Column::text("Status", "status.phase", ""), Column::AGE],
    selectable: Selectable::new(&[SelectableField::NAME, SelectableField::new("status.phase")]),
    reset_fields: &[("finalize", Reset::Except(&["status"]))],
    ..BASE
};

/// A namespace is deleted when its content is deleted and the finalizers of its spec are removed.
const DELETION: Deletion = Deletion {
    keeps_finalizers: |_, _| false,
    mark,
    is_held: |namespace| has_own_finalizers(namespace) || has_grace_left(namespace),
    is_always_marked_first: true,
};

fn mark(namespace: &mut Value, request: &DeletionRequest) -> bool {
    if !is_deleting(namespace) {
        start_deletion(namespace, request.now, None);
        if let Some(status) = namespace.object_at_mut(&["status"]) {
            status.insert("phase", "Terminating");
        }
    }
    has_own_finalizers(namespace)
}

fn has_own_finalizers(namespace: &Value) -> bool {
    namespace.at(&["spec", "finalizers"]).and_then(Value::as_array).is_some_and(|own| !own.is_empty())
}

/// The spec of a namespace is its finalizers, which only `/finalize` changes.
fn unwritten<'v>(subresource: &str, _: &'v Value, old: &'v Value) -> Option<Vec<Unwritten<'v>>> {
    match subresource {
        "" => Some(vec![as_stored("spec", old), as_stored("status", old)]),
        "finalize" => Some(vec![as_stored("status", old)]),
        _ => None,
    }
}

const DEFAULTS: &[DefaultRule] = &[Computed(default_name_label), Field("status.phase", Str("Active"))];

fn default_name_label(object: &mut Map) {
    let name = defaults::at(object, "metadata.name").and_then(Value::as_str).filter(|name| !name.is_empty());
    if let Some(label) = name.map(|name| tree!({ "kubernetes.io/metadata.name": name })) {
        defaults::set(object, "metadata.labels", &label, Value::is_null);
        let labels = object.get_mut("metadata").and_then(|m| m.get_mut("labels"));
        if let (Some(Value::Object(labels)), Value::Object(label)) = (labels, label) {
            label.into_iter().for_each(|(key, value)| drop(labels.insert(key, value)));
        }
    }
}

/// Adds the finalizer of the namespace controller to a new namespace's own, and sets its label.
fn prepare_for_create(object: &mut Value) {
    if let Some(spec) = object.object_at_mut(&["spec"]) {
        let finalizers = spec.entry("finalizers");
        match finalizers.as_array_mut() {
            Some(own) if own.iter().any(|finalizer| finalizer.as_str() == Some("kubernetes")) => {}
            Some(own) => own.push("kubernetes".into()),
            None => *finalizers = tree!(["kubernetes"]),
        }
    }
    if let Some(status) = object.object_at_mut(&["status"]) {
        *status = plinth_codec::Map::new();
        status.insert("phase", "Active");
    }
    let name = object.str_at(&["metadata", "name"]).unwrap_or_default().to_owned();
    if let Some(labels) = object.object_at_mut(&["metadata", "labels"]) {
        labels.insert("kubernetes.io/metadata.name", name);
    }
}

const CHECKS: &[Check] = &[By(|namespace| {
    const PATH: &str = "spec.finalizers";
    const WHY: &str = "name is neither a standard finalizer name nor is it fully qualified";
    for finalizer in namespace.texts(PATH) {
        namespace.check_text(PATH, finalizer, names::qualified_name_errors);
        if !is_standard_or_qualified_finalizer(finalizer) {
            namespace.invalid(PATH, finalizer, WHY);
        }
    }
})];

/// The phase must be `Active` without a deletion timestamp, and `Terminating` with one.
fn validate_status(new: &Part<'_>, _: &Value) {
    let phase = new.text("status.phase");
    let (right, when) = match new.has("metadata.deletionTimestamp") {
        false => ("Active", "empty"),
        true => ("Terminating", "not empty"),
    };
    if phase != right {
        // Upstream reports the field by its Go name.
        let why = format!("may only be '{right}' if `deletionTimestamp` is {when}");
        new.invalid("status.Phase", phase, &why);
    }
}
