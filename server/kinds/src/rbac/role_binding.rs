//! RoleBinding and ClusterRoleBinding (`rbac.authorization.k8s.io`).

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::table::{join, Cell, Column, Now};
use plinth_codec::{names, tree, Map, Value};

use crate::checks::Check::{self, By, Each, RequiredText};
use crate::defaults;
use crate::defaults::DefaultRule::{self, Computed, Field, ForEach};
use crate::defaults::Literal::Str;
use crate::path::{at, list, text};
use crate::strategy::{NameRule, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    name: NameRule::PathSegment,
    create_on_update: true,
    defaults: DEFAULTS,
    checks: CHECKS,
    validate_update,
    columns: COLUMNS,
    ..BASE
};

pub(crate) const CLUSTER_STRATEGY: Strategy = Strategy {
    name: NameRule::PathSegment,
    create_on_update: true,
    defaults: DEFAULTS,
    checks: CLUSTER_CHECKS,
    validate_update,
    columns: COLUMNS,
    ..BASE
};

/// rbac.authorization.k8s.io/v1 RoleBinding and ClusterRoleBinding.
const DEFAULTS: &[DefaultRule] =
    &[Field("roleRef.apiGroup", Str(GROUP)), ForEach("subjects", &[Computed(default_subject)])];

fn default_subject(subject: &mut Map) {
    if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
        defaults::apply(&[Field("apiGroup", Str(GROUP))], subject);
    }
}

const GROUP: &str = "rbac.authorization.k8s.io";

const CHECKS: &[Check] = &[
    By(|binding, _, errors| role_ref(binding, &["Role", "ClusterRole"], errors)),
    RequiredText("roleRef.name", names::path_segment_errors),
    Each("subjects", &[By(|s, path, errors| subject(s, path, true, errors))]),
];

const CLUSTER_CHECKS: &[Check] = &[
    By(|binding, _, errors| role_ref(binding, &["ClusterRole"], errors)),
    RequiredText("roleRef.name", names::path_segment_errors),
    Each("subjects", &[By(|s, path, errors| subject(s, path, false, errors))]),
];

fn role_ref(binding: &Value, kinds: &[&str], errors: &mut Vec<Cause>) {
    let group = text(binding, "roleRef.apiGroup");
    if group != GROUP {
        errors.push(field::not_supported("roleRef.apiGroup", group, &[GROUP]));
    }
    let kind = text(binding, "roleRef.kind");
    if !kinds.contains(&kind) {
        errors.push(field::not_supported("roleRef.kind", kind, kinds));
    }
}

fn subject(subject: &Value, path: FieldPath<'_>, namespaced: bool, errors: &mut Vec<Cause>) {
    let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
    if name.is_empty() {
        errors.push(field::required(format_args!("{path}name"), ""));
    }
    let wanted_group = match text(subject, "kind") {
        "ServiceAccount" => {
            let bad = if name.is_empty() { Vec::new() } else { names::dns1123_subdomain_errors(name) };
            errors.extend(bad.iter().map(|why| field::invalid(format_args!("{path}name"), name, why)));
            ""
        }
        "User" | "Group" => GROUP,
        other => {
            let supported = &["ServiceAccount", "User", "Group"];
            errors.push(field::not_supported(format_args!("{path}kind"), other, supported));
            return;
        }
    };
    if group != wanted_group {
        errors.push(field::not_supported(format_args!("{path}apiGroup"), group, &[wanted_group]));
    }
    if wanted_group.is_empty() && !namespaced && text(subject, "namespace").is_empty() {
        errors.push(field::required(format_args!("{path}namespace"), ""));
    }
}

/// `roleRef` is immutable.
fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    if at(new, "roleRef") == at(old, "roleRef") {
        return Vec::new();
    }
    // Upstream reports the struct with its Go field names.
    let shown = tree!({
        "APIGroup": text(new, "roleRef.apiGroup"),
        "Kind": text(new, "roleRef.kind"),
        "Name": text(new, "roleRef.name"),
    });
    vec![field::invalid("roleRef", shown, "cannot change roleRef")]
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::computed("Role", &["roleRef.kind", "roleRef.name"], role_cell),
    Column::AGE,
    Column::computed("Users", SUBJECTS, users_cell).wide(),
    Column::computed("Groups", SUBJECTS, groups_cell).wide(),
    Column::computed("ServiceAccounts", SUBJECTS, service_accounts_cell).wide(),
];

const SUBJECTS: &[&str] = &["subjects[].kind", "subjects[].namespace", "subjects[].name"];

fn subjects<'a>(binding: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    list(binding, "subjects").iter().filter(move |s| text(s, "kind") == kind)
}

fn role_cell(binding: &Value, _: Now) -> Cell<'_> {
    format!("{}/{}", text(binding, "roleRef.kind"), text(binding, "roleRef.name")).into()
}

fn users_cell(binding: &Value, _: Now) -> Cell<'_> {
    join(subjects(binding, "User").map(|s| text(s, "name")), ", ").into()
}

fn groups_cell(binding: &Value, _: Now) -> Cell<'_> {
    join(subjects(binding, "Group").map(|s| text(s, "name")), ", ").into()
}

fn service_accounts_cell(binding: &Value, _: Now) -> Cell<'_> {
    let accounts: Vec<String> = subjects(binding, "ServiceAccount")
        .map(|s| format!("{}/{}", text(s, "namespace"), text(s, "name")))
        .collect();
    accounts.join(", ").into()
}
