//! StorageVersionMigration (`storagemigration.k8s.io`): has a controller write every object of a resource
//! again, in the version in which it is stored today. Both the version that has the kind and its gate
//! (`StorageVersionMigrator`) are off by default.
//!
//! Facts: kubernetes `pkg/registry/storagemigration` and `pkg/apis/storagemigration/validation`.

use plinth_codec::table::{condition, Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::checks::conditions::conditions;
use crate::checks::immutable::IMMUTABLE;
use crate::checks::Check::{self, By};
use crate::checks::Part;
use crate::path::{list, text};
use crate::strategy::{Strategy, BASE, STATUS_KEEPS_METADATA, STATUS_OWNS_NO_METADATA};

pub(crate) const STRATEGY: Strategy = Strategy {
    unconditional_update: false,
    checks: CHECKS,
    immutable: &["spec"],
    status_keeps: STATUS_KEEPS_METADATA,
    validate_status,
    columns: COLUMNS,
    reset_fields: STATUS_OWNS_NO_METADATA,
    ..BASE
};

const CONDITIONS: &str = "status.conditions";
const RESOURCE_VERSION: &str = "status.resourceVersion";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";

const CHECKS: &[Check] = &[By(|migration| {
    // All that is wrong with a name is one error.
    let name = |part: &Part<'_>, key: &str, rule: fn(&str) -> Vec<String>| {
        let errors = rule(part.text(key));
        if !errors.is_empty() {
            part.invalid(key, part.text(key), &errors.join(","));
        }
    };
    let resource = migration.field("spec.resource");
    match resource.text("resource") {
        "" => resource.required("resource", "resource is required to be set"),
        _ => name(&resource, "resource", names::dns1035_label_errors),
    }
    if !resource.text("group").is_empty() {
        name(&resource, "group", names::dns1123_subdomain_errors);
    }
})];

/// The version up to which objects are migrated stays, and so does a result.
fn validate_status(new: &Part<'_>, old: &Value) {
    let (before, after) = (text(old, RESOURCE_VERSION), new.text(RESOURCE_VERSION));
    let is_number = |text: &str| !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    if !after.is_empty() && !is_number(after) {
        let why = format!("resource version is not well formed: {after}");
        new.invalid(RESOURCE_VERSION, after, &why);
    }
    conditions(new, CONDITIONS);
    if !before.is_empty() && before != after {
        new.invalid(RESOURCE_VERSION, after, IMMUTABLE);
    }
    let refuse = |why: &str| new.invalid(CONDITIONS, new.shown(CONDITIONS), why);
    if is_true(new.value(), SUCCEEDED) && is_true(new.value(), FAILED) {
        refuse("Both success and failed conditions cannot be true at the same time");
    }
    for (kind, shown) in [(SUCCEEDED, "Success"), (FAILED, "Failed")] {
        if is_true(old, kind) && !is_true(new.value(), kind) {
            refuse(&format!("{shown} condition cannot be set to false once it is true"));
        }
    }
}

fn is_true(migration: &Value, kind: &str) -> bool {
    let of_kind = condition(list(migration, CONDITIONS), kind);
    of_kind.is_some_and(|condition| text(condition, "status") == "True")
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::computed("Resource", &["spec.resource"], resource_cell),
    Column::computed("Status", &["status.conditions[].type", "status.conditions[].status"], status_cell),
];

/// `RESOURCE.GROUP`.
fn resource_cell(migration: &Value, _: Now) -> Cell<'_> {
    let [group, resource] =
        ["spec.resource.group", "spec.resource.resource"].map(|path| text(migration, path));
    match group {
        "" => resource.into(),
        group => format!("{resource}.{group}").into(),
    }
}

/// The last condition that is true.
fn status_cell(migration: &Value, _: Now) -> Cell<'_> {
    let is_shown = |condition: &&Value| {
        text(condition, "status") == "True"
            && ["Running", SUCCEEDED, FAILED].contains(&text(condition, "type"))
    };
    let last = list(migration, CONDITIONS).iter().rfind(is_shown);
    last.map_or("Unknown", |condition| text(condition, "type")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::tree;

    fn migration(group: &str, resource: &str, conditions: &[(&str, &str)], version: &str) -> Value {
        let conditions = conditions.iter().map(|(kind, status)| {
            tree!({
                "type": *kind,
                "status": *status,
                "reason": "StorageVersionMigration",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        });
        tree!({
            "metadata": tree!({ "name": "m" }),
            "spec": tree!({ "resource": tree!({ "group": group, "resource": resource }) }),
            "status": tree!({ "conditions": conditions.collect::<Vec<_>>(), "resourceVersion": version }),
        })
    }

    #[test]
    fn resources_have_names() {
        let errors = |group, resource| {
            let errors = STRATEGY.errors(&migration(group, resource, &[], ""));
            errors.into_iter().map(|error| error.field.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(errors("apps", "deployments"), [""; 0]);
        assert_eq!(errors("", "secrets"), [""; 0]);
        assert_eq!(errors("", ""), ["spec.resource.resource"]);
        assert_eq!(errors("Apps", "Deployments.x"), ["spec.resource.resource", "spec.resource.group"]);
    }

    #[test]
    fn a_result_and_its_version_stay() {
        let errors = |new: &[(&str, &str)], version, old: &[(&str, &str)], before| {
            let [new, old] = [(new, version), (old, before)].map(|(c, v)| migration("", "secrets", c, v));
            let errors = STRATEGY.status_errors(&new, &old);
            errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect::<Vec<_>>()
        };
        assert_eq!(errors(&[("Succeeded", "True")], "12", &[("Running", "True")], "12"), [""; 0]);
        for (new, version, old, before, expected) in [
            (&[("Succeeded", "True"), ("Failed", "True")][..], "", &[][..], "", "Both success and failed"),
            (&[("Succeeded", "False")], "", &[("Succeeded", "True")], "", "Success condition cannot"),
            (&[], "", &[("Failed", "True")], "", "Failed condition cannot"),
            (&[], "13", &[], "12", "field is immutable"),
            (&[], "012", &[], "", "resource version is not well formed: 012"),
            (&[("Running", "maybe")], "", &[], "", "status.conditions[0].status"),
        ] {
            let found = errors(new, version, old, before);
            assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
        }
    }

    #[test]
    fn rows_show_the_last_state() {
        let state = |conditions| {
            let migration = migration("apps", "deployments", conditions, "");
            let Cell::Text(text) = status_cell(&migration, Now::from(std::time::SystemTime::UNIX_EPOCH))
            else {
                panic!("no text")
            };
            text.into_owned()
        };
        assert_eq!(state(&[]), "Unknown");
        assert_eq!(state(&[("Running", "False"), ("Succeeded", "True")]), "Succeeded");
        assert_eq!(state(&[("Running", "True"), ("Other", "True")]), "Running");
    }
}
