//! PodGroup (`scheduling.k8s.io`): pods that are scheduled together. The version that has the kind is off by
//! default, and so is its gate (`GenericWorkload`).
//!
//! Facts: kubernetes `pkg/registry/scheduling/podgroup`, and the declarative validation of
//! `pkg/apis/scheduling/v1alpha2`.

use plinth_codec::apply::Reset;
use plinth_codec::table::{condition, Cell, Column, Now};
use plinth_codec::Value;

use super::pod_group_spec::{
    drop_priority, gated_fields, policy, CLAIMS, CLAIMS_GATE, CONSTRAINTS, DISRUPTION, PREEMPTION_GATE,
    TOPOLOGY_GATE,
};
use crate::checks::comparison::same;
use crate::checks::conditions::conditions;
use crate::checks::declarative::{exactly_one, gated, long_name_errors, short_name_errors, unchangeable};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, Field};
use crate::defaults::Literal::Str;
use crate::gated_fields::{drop_field, GatedFields};
use crate::path::{at, list, text};
use crate::strategy::{Strategy, BASE, STATUS_KEEPS_METADATA};

pub(crate) const STRATEGY: Strategy = Strategy {
    defaults: DEFAULTS,
    gated_fields: GATED,
    validate_create,
    validate_update,
    status_keeps: STATUS_KEEPS_METADATA,
    validate_status,
    columns: COLUMNS,
    reset_fields: &[("", Reset::Nothing), ("status", Reset::Except(&["spec", "metadata"]))],
    ..BASE
};

const REFERENCE: &str = "podGroupTemplateRef";
const POLICY: &str = "schedulingPolicy";
const CLAIM_STATUSES: &str = "resourceClaimStatuses";
const CONDITIONS: &str = "status.conditions";

const DEFAULTS: &[DefaultRule] = &[Field("spec.disruptionMode", Str(POD_MODE))];
const POD_MODE: &str = "Pod";

const GATED: &[GatedFields] = &[
    GatedFields::new(TOPOLOGY_GATE, &["spec"], |new, old| drop_field(new, old, CONSTRAINTS)),
    GatedFields::new(CLAIMS_GATE, &["spec"], |new, old| drop_field(new, old, CLAIMS)),
    GatedFields::new(PREEMPTION_GATE, &["spec"], |new, old| {
        // Upstream drops the mode, which then gets its default when it is read.
        if let Some(new) = new.as_object_mut().filter(|_| old.is_none()) {
            new.insert(DISRUPTION, POD_MODE);
        }
        drop_priority(new, old);
    }),
    GatedFields::new(CLAIMS_GATE, &[], |new, old| {
        let has_claims = old.is_some_and(|old| !list(old, "spec.resourceClaims").is_empty());
        if let Some(status) = new.object_at_mut(&["status"]).filter(|_| !has_claims) {
            status.remove(CLAIM_STATUSES);
        }
    }),
];

fn validate_create(group: &Part<'_>) {
    let spec = group.field("spec");
    if let Some(reference) = spec.get(REFERENCE) {
        exactly_one(&reference, &["workload"]);
        if let Some(workload) = reference.get("workload") {
            workload.required_text("workloadName", "", long_name_errors);
            workload.required_text("podGroupTemplateName", "", short_name_errors);
        }
    }
    policy(&spec.field(POLICY));
}

/// The spec stays; of what belongs to a gate that is off, a part may be removed.
fn validate_update(new: &Part<'_>, old: &Value) {
    let (new, old) = (new.field("spec"), at(old, "spec").unwrap_or(&Value::Null));
    let has_changed = |field: &&str| !same(new.at(field), old.get(field));
    [REFERENCE, POLICY, CLAIMS].iter().filter(|f| has_changed(f)).for_each(|field| unchangeable(&new, field));
    gated_fields()
        .filter(has_changed)
        .filter(|field| !new.is_empty(field))
        .for_each(|field| gated(&new, field));
}

fn validate_status(new: &Part<'_>, _: &Value) {
    conditions(new, CONDITIONS);
    let claims = list(new.value(), "spec.resourceClaims");
    for status in new.field("status").each(CLAIM_STATUSES) {
        let name = status.text("name");
        if !claims.iter().any(|claim| text(claim, "name") == name) {
            status.invalid("name", name, "must match the name of an entry in `spec.resourceClaims`");
        }
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::computed("Policy", &["spec.schedulingPolicy.gang"], policy_cell),
    Column::text("Workload", "spec.podGroupTemplateRef.workload.workloadName", "<none>"),
    Column::computed("Status", &[CONDITIONS], status_cell),
    Column::AGE,
];

fn policy_cell(group: &Value, _: Now) -> Cell<'_> {
    let is_gang = at(group, "spec.schedulingPolicy.gang").is_some();
    if is_gang { "Gang" } else { "Basic" }.into()
}

fn status_cell(group: &Value, _: Now) -> Cell<'_> {
    let of_kind = |kind| condition(list(group, CONDITIONS), kind);
    if let Some(disruption) = of_kind("DisruptionTarget") {
        return text(disruption, "reason").into();
    }
    match of_kind("PodGroupScheduled").map(|scheduled| text(scheduled, "status")) {
        None => "Pending",
        Some("True") => "Scheduled",
        Some(_) => "Unschedulable",
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::tree;

    fn group(spec: &[(&str, Value)]) -> Value {
        let mut object = tree!({ "spec": tree!({ "schedulingPolicy": tree!({ "basic": tree!({}) }) }) });
        let members = object.object_at_mut(&["spec"]).unwrap();
        spec.iter().for_each(|(field, value)| drop(members.insert(*field, value.clone())));
        STRATEGY.default(&mut object);
        object
    }

    fn errors(found: Vec<plinth_api::Cause>) -> Vec<String> {
        found.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn groups_by_table() {
        let gang = |count: i64| tree!({ "gang": tree!({ "minCount": count }) });
        let reference = |name: &str, template: &str| {
            let workload = tree!({ "workloadName": name, "podGroupTemplateName": template });
            tree!({ "workload": workload })
        };
        let basic_gang = tree!({ "basic": tree!({}), "gang": tree!({ "minCount": 1 }) });
        const UNION: &str = "spec.schedulingPolicy: Invalid value";
        const COUNT: &str = "spec.schedulingPolicy.gang.minCount";
        const WORKLOAD: &str = "spec.podGroupTemplateRef.workload";
        let rows = [
            (POLICY, gang(2), String::new()),
            (POLICY, tree!({}), format!("{UNION}: \"\": must specify one of: `basic`, `gang`")),
            (
                POLICY,
                basic_gang,
                format!("{UNION}: \"{{basic, gang}}\": must specify exactly one of: `basic`, `gang`"),
            ),
            (POLICY, gang(0), format!("{COUNT}: Required value")),
            (POLICY, gang(-1), format!("{COUNT}: Invalid value: -1: must be greater than or equal to 1")),
            (REFERENCE, reference("w", "t"), String::new()),
            (
                REFERENCE,
                tree!({}),
                "spec.podGroupTemplateRef: Invalid value: \"\": must specify one of: `workload`".to_owned(),
            ),
            (REFERENCE, reference("", "t"), format!("{WORKLOAD}.workloadName: Required value")),
            (
                REFERENCE,
                reference("w", "a.b"),
                format!("{WORKLOAD}.podGroupTemplateName: Invalid value: \"a.b\": must not contain dots"),
            ),
        ];
        for (field, value, expected) in rows {
            let found = errors(STRATEGY.create_errors(&group(&[(field, value)])));
            assert_eq!(found.join("; "), expected);
        }
    }

    #[test]
    fn the_spec_stays() {
        let old = group(&[]);
        assert_eq!(STRATEGY.update_errors(&old, &old), []);
        let new =
            group(&[(POLICY, tree!({ "gang": tree!({ "minCount": 1 }) })), (DISRUPTION, "PodGroup".into())]);
        let immutable = "Invalid value: null: field is immutable";
        assert_eq!(
            errors(STRATEGY.update_errors(&new, &old)),
            [format!("spec.schedulingPolicy: {immutable}"), "spec.disruptionMode: Forbidden".to_owned()]
        );
    }

    #[test]
    fn fields_of_gates_that_are_off_are_dropped_unless_they_are_stored() {
        let claims = tree!([tree!({ "name": "c", "resourceClaimName": "d" })]);
        let full = group(&[
            (CONSTRAINTS, tree!({ "topology": tree!([tree!({ "key": "a" })]) })),
            (CLAIMS, claims),
            (DISRUPTION, "PodGroup".into()),
            ("priorityClassName", "high".into()),
            ("priority", 7.into()),
        ]);
        let mut with_status = full.clone();
        let statuses = tree!([tree!({ "name": "c" })]);
        with_status.as_object_mut().unwrap().insert("status", tree!({ "resourceClaimStatuses": statuses }));
        let written = |old: Option<&Value>| {
            let mut new = with_status.clone();
            STRATEGY.drop_disabled(&mut new, old, |_| false);
            new
        };
        let mut empty = group(&[]);
        empty.as_object_mut().unwrap().insert("status", tree!({}));
        assert_eq!(written(None), empty);
        assert_eq!(written(Some(&full)), with_status);
    }

    #[test]
    fn rows_show_policy_and_status() {
        let now = || Now::from(std::time::SystemTime::UNIX_EPOCH);
        let shown = |cell: Cell<'_>| match cell {
            Cell::Text(text) => text.into_owned(),
            _ => panic!("no text"),
        };
        let status = |of: &[(&str, &str)]| {
            let of =
                of.iter().map(|(kind, status)| tree!({ "type": *kind, "status": *status, "reason": "R" }));
            let group = tree!({ "status": tree!({ "conditions": of.collect::<Vec<_>>() }) });
            shown(status_cell(&group, now()))
        };
        assert_eq!(status(&[]), "Pending");
        assert_eq!(status(&[("PodGroupScheduled", "True")]), "Scheduled");
        assert_eq!(status(&[("PodGroupScheduled", "False")]), "Unschedulable");
        assert_eq!(status(&[("DisruptionTarget", "True"), ("PodGroupScheduled", "True")]), "R");
        assert_eq!(shown(policy_cell(&group(&[]), now())), "Basic");
        let gang = tree!({ "gang": tree!({ "minCount": 1 }) });
        assert_eq!(shown(policy_cell(&group(&[(POLICY, gang)]), now())), "Gang");
    }
}
