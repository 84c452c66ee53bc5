//! StorageClass (`storage.k8s.io`).

use std::collections::HashSet;

use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::checks::Check::{self, By, EachUnique, OneOf, Required};
use crate::checks::Part;
use crate::columns::named_default;
use crate::defaults::DefaultRule::{self, Field};
use crate::defaults::Literal::OptionalStr;
use crate::path::{list, text};
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
    By(|class| provisioner(class, "provisioner")),
    By(|class| parameters(class, true)),
    OneOf("reclaimPolicy", &["Delete", "Retain"]),
    Check::Enum("volumeBindingMode", &["Immediate", "WaitForFirstConsumer"]),
    By(topologies),
];

fn topologies(class: &Part<'_>) {
    let mut seen: HashSet<Vec<(String, Vec<String>)>> = HashSet::new();
    for term in class.each("allowedTopologies") {
        let mut keys: Vec<(String, Vec<String>)> = Vec::new();
        let mut keys_seen = HashSet::new();
        for wanted in term.each("matchLabelExpressions") {
            wanted.check(&[Required("values", ""), EachUnique("values", "", &[])]);
            let key = wanted.text("key");
            wanted.check_text("key", key, names::qualified_name_errors);
            wanted.unique("key", key, &mut keys_seen);
            let mut values: Vec<String> = wanted.texts("values").into_iter().map(str::to_owned).collect();
            values.sort_unstable();
            values.dedup();
            keys.push((key.to_owned(), values));
        }
        keys.sort_unstable();
        // Upstream reports a term without expressions as a duplicate.
        if keys.is_empty() || !seen.insert(keys) {
            term.duplicate("matchLabelExpressions", "");
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
