//! RoleBinding and ClusterRoleBinding (`rbac.authorization.k8s.io`).

use plinth_codec::table::{join, Cell, Column, Now};
use plinth_codec::{names, tree, Map, Value};

use crate::checks::Check::{self, By, Each, MustBe, Required, RequiredText, Text};
use crate::checks::Part;
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
    MustBe("roleRef.apiGroup", &[GROUP]),
    MustBe("roleRef.kind", &["Role", "ClusterRole"]),
    RequiredText("roleRef.name", names::path_segment_errors),
    Each("subjects", &[By(|subject| validate_subject(subject, true))]),
];

const CLUSTER_CHECKS: &[Check] = &[
    MustBe("roleRef.apiGroup", &[GROUP]),
    MustBe("roleRef.kind", &["ClusterRole"]),
    RequiredText("roleRef.name", names::path_segment_errors),
    Each("subjects", &[By(|subject| validate_subject(subject, false))]),
];

fn validate_subject(subject: &Part<'_>, namespaced: bool) {
    subject.check(&[Required("name", "")]);
    let group = match subject.text("kind") {
        "ServiceAccount" => {
            subject.check(&[Text("name", names::dns1123_subdomain_errors)]);
            ""
        }
        "User" | "Group" => GROUP,
        _ => return subject.one_of("kind", &["ServiceAccount", "User", "Group"]),
    };
    subject.one_of("apiGroup", &[group]);
    if group.is_empty() && !namespaced {
        subject.check(&[Required("namespace", "")]);
    }
}

/// `roleRef` is immutable.
fn validate_update(new: &Part<'_>, old: &Value) {
    if new.at("roleRef") == at(old, "roleRef") {
        return;
    }
    // Upstream reports the struct with its Go field names.
    let shown = tree!({
        "APIGroup": new.text("roleRef.apiGroup"),
        "Kind": new.text("roleRef.kind"),
        "Name": new.text("roleRef.name"),
    });
    new.invalid("roleRef", shown, "cannot change roleRef");
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
