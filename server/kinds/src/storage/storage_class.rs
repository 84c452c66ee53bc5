//! StorageClass (`storage.k8s.io`).

use std::collections::HashSet;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::checks::check_text;
use crate::checks::Check::{self, By, OneOf};
use crate::columns::named_default;
use crate::defaults::DefaultRule::{self, Field};
use crate::defaults::Literal::OptionalStr;
use crate::path::{list, text, texts};
use crate::storage::class::{parameters, provisioner};
use crate::strategy::{Strategy, BASE};
use crate::warnings::node_labels::deprecated_label;
use crate::warnings::Warnings;

pub(crate) const STRATEGY: Strategy = Strategy {
    returns_deleted_object: true,
    defaults: DEFAULTS,
    checks: CHECKS,
    immutable: &["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"],
    warnings,
    columns: COLUMNS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] =
    &[Field("reclaimPolicy", OptionalStr("Delete")), Field("volumeBindingMode", OptionalStr("Immediate"))];

const CHECKS: &[Check] = &[
    By(|class, _, errors| provisioner(text(class, "provisioner"), format_args!("provisioner"), errors)),
    By(|class, _, errors| parameters(class, "parameters", true, errors)),
    OneOf("reclaimPolicy", &["Delete", "Retain"]),
    Check::Enum("volumeBindingMode", &["Immediate", "WaitForFirstConsumer"]),
    By(topologies),
];

fn topologies(class: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let all = list(class, "allowedTopologies");
    let mut seen: HashSet<Vec<(&str, Vec<&str>)>> = HashSet::new();
    for (i, term) in all.iter().enumerate() {
        let path = format_args!("allowedTopologies[{i}].matchLabelExpressions");
        let mut keys: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut keys_seen = HashSet::new();
        for (j, wanted) in list(term, "matchLabelExpressions").iter().enumerate() {
            let (key, mut values) = (text(wanted, "key"), texts(wanted, "values"));
            let here = format_args!("{path}[{j}]");
            if values.is_empty() {
                errors.push(field::required(format_args!("{here}.values"), ""));
            }
            let mut once = HashSet::new();
            for (k, value) in values.iter().enumerate().filter(|(_, value)| !once.insert(**value)) {
                errors.push(field::duplicate(format_args!("{here}.values[{k}]"), *value));
            }
            check_text(format_args!("{here}.key"), key, names::qualified_name_errors, errors);
            if !keys_seen.insert(key) {
                errors.push(field::duplicate(format_args!("{here}.key"), key));
            }
            values.sort_unstable();
            values.dedup();
            keys.push((key, values));
        }
        keys.sort_unstable();
        // Upstream reports a term without expressions as a duplicate.
        if keys.is_empty() || !seen.insert(keys) {
            errors.push(field::duplicate(path, ""));
        }
    }
}

fn warnings(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Warnings::default();
    for (i, topology) in list(new, "allowedTopologies").iter().enumerate() {
        for (j, expression) in list(topology, "matchLabelExpressions").iter().enumerate() {
            if let Some(why) = deprecated_label(text(expression, "key")) {
                found.add(format!("allowedTopologies[{i}].matchLabelExpressions[{j}].key: {why}"));
            }
        }
    }
    found.into_vec()
}

const COLUMNS: &[Column] = &[
    Column::computed("Name", &["metadata.name", "metadata.annotations"], name_cell).identity(),
    Column::text("Provisioner", "provisioner", ""),
    Column::text("ReclaimPolicy", "reclaimPolicy", "Delete"),
    Column::text("VolumeBindingMode", "volumeBindingMode", "Immediate"),
    Column::boolean("AllowVolumeExpansion", "allowVolumeExpansion", false).declared("string"),
    Column::AGE,
];

fn name_cell(class: &Value, _: Now) -> Cell<'_> {
    named_default(
        class,
        &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"],
    )
}
