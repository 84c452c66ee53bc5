//! Workload (`scheduling.k8s.io`): templates of the PodGroups that a controller makes. The version that has
//! the kind is off by default, and so is its gate (`GenericWorkload`).
//!
//! Facts: kubernetes `pkg/registry/scheduling/workload`, and the declarative validation of
//! `pkg/apis/scheduling/v1alpha2`.

use std::collections::HashSet;

use plinth_api::{shown_value, Cause};
use plinth_codec::table::Column;
use plinth_codec::{names, Value};

use super::pod_group_spec::{
    drop_priority, policy, CLAIMS, CLAIMS_GATE, CONSTRAINTS, DISRUPTION, PREEMPTION_GATE, TOPOLOGY_GATE,
};
use crate::checks::comparison::same;
use crate::checks::declarative::{long_name_errors, short_name_errors, unchangeable};
use crate::checks::Check::{RequiredText, Text};
use crate::checks::Part;
use crate::gated_fields::{drop_field, GatedFields};
use crate::path::at;
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    gated_fields: GATED,
    validate_create,
    validate_update,
    columns: &[Column::NAME, Column::AGE],
    ..BASE
};

const CONTROLLER: &str = "spec.controllerRef";
const TEMPLATES: &str = "spec.podGroupTemplates";
const MAX_TEMPLATES: usize = 8;

const GATED: &[GatedFields] = &[
    GatedFields::new(TOPOLOGY_GATE, &["spec"], |new, old| {
        each_template(new, old, |new, old| {
            drop_field(new, old, CONSTRAINTS);
            // Upstream writes the field even if it is not set.
            if let Some(new) = new.as_object_mut().filter(|new| !new.contains(CONSTRAINTS)) {
                new.insert(CONSTRAINTS, Value::Null);
            }
        });
    }),
    GatedFields::new(CLAIMS_GATE, &["spec"], |new, old| {
        each_template(new, old, |new, old| drop_field(new, old, CLAIMS));
    }),
    GatedFields::new(PREEMPTION_GATE, &["spec"], |new, old| {
        each_template(new, old, |new, old| {
            drop_field(new, old, DISRUPTION);
            drop_priority(new, old);
        });
    }),
];

/// Calls the function with each template, and with the stored one in its place.
fn each_template(new: &mut Value, old: Option<&Value>, drop: fn(&mut Value, Option<&Value>)) {
    const KEY: &str = "podGroupTemplates";
    let stored = old.map(|old| old.list_at(&[KEY])).unwrap_or_default();
    let templates = new.get_mut(KEY).and_then(Value::as_array_mut).into_iter().flatten();
    templates.enumerate().for_each(|(i, template)| drop(template, stored.get(i)));
}

fn validate_create(workload: &Part<'_>) {
    if let Some(controller) = workload.get(CONTROLLER) {
        controller.check(&[
            Text("apiGroup", long_name_errors),
            RequiredText("kind", names::path_segment_errors),
            RequiredText("name", names::path_segment_errors),
        ]);
    }
    if !has_few_templates(workload) {
        return;
    }
    let mut names = HashSet::new();
    for template in workload.each(TEMPLATES).filter(|template| !names.insert(template.text("name"))) {
        template.push(Cause::duplicate_shown(template.path(""), &go_json(template.value())));
    }
    for template in workload.each(TEMPLATES) {
        template.check(&[RequiredText("name", short_name_errors)]);
        policy(&template.field("schedulingPolicy"));
    }
}

/// A template as upstream shows it: in the order of its type.
fn go_json(template: &Value) -> String {
    const FIELDS: [&str; 7] =
        ["name", "schedulingPolicy", CONSTRAINTS, CLAIMS, DISRUPTION, "priorityClassName", "priority"];
    let members = FIELDS.iter().filter_map(|field| Some((field, template.get(field)?)));
    let members: Vec<String> =
        members.map(|(field, value)| format!("{field:?}:{}", shown_value(value))).collect();
    format!("{{{}}}", members.join(","))
}

/// One template at least, and not too many.
fn has_few_templates(workload: &Part<'_>) -> bool {
    let is_empty = workload.is_empty(TEMPLATES);
    workload.required_if(is_empty, TEMPLATES, "");
    workload.at_most_items(TEMPLATES, MAX_TEMPLATES) && !is_empty
}

/// The spec stays.
fn validate_update(new: &Part<'_>, old: &Value) {
    let has_changed = |field: &str| !same(new.at(field), at(old, field));
    if has_changed(CONTROLLER) {
        unchangeable(new, CONTROLLER);
    }
    if has_changed(TEMPLATES) {
        unchangeable(new, TEMPLATES);
        has_few_templates(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::tree;

    fn template(name: &str) -> Value {
        tree!({ "name": name, "schedulingPolicy": tree!({ "basic": tree!({}) }) })
    }

    fn workload(templates: Vec<Value>, controller: Value) -> Value {
        tree!({ "spec": tree!({ "podGroupTemplates": templates, "controllerRef": controller }) })
    }

    fn errors(found: Vec<plinth_api::Cause>) -> Vec<String> {
        found.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn workloads_by_table() {
        let created =
            |templates, controller| errors(STRATEGY.create_errors(&workload(templates, controller)));
        let job = tree!({ "apiGroup": "batch", "kind": "Job", "name": "j" });
        assert_eq!(created(vec![template("a"), template("b")], job), [""; 0]);
        assert_eq!(created(vec![], Value::Null), ["spec.podGroupTemplates: Required value"]);
        let nine = (0..9).map(|i| template(&format!("a{i}"))).collect();
        assert_eq!(
            created(nine, Value::Null),
            ["spec.podGroupTemplates: Too many: 9: must have at most 8 items"]
        );
        let found = created(vec![template("a"), template("a"), template("")], tree!({ "apiGroup": "A" }));
        let fields: Vec<&str> = found.iter().filter_map(|error| error.split(": ").next()).collect();
        let duplicate = "Duplicate value: {\"name\":\"a\",\"schedulingPolicy\":{\"basic\":{}}}";
        assert!(found.iter().any(|error| error.ends_with(duplicate)), "{found:?}");
        let of_controller =
            ["spec.controllerRef.apiGroup", "spec.controllerRef.kind", "spec.controllerRef.name"];
        let of_templates = ["spec.podGroupTemplates[1]", "spec.podGroupTemplates[2].name"];
        assert_eq!(fields, [&of_controller[..], &of_templates].concat());
    }

    #[test]
    fn the_spec_stays() {
        let old = workload(vec![template("a")], Value::Null);
        assert_eq!(STRATEGY.update_errors(&old, &old), []);
        let new = workload(vec![], tree!({ "kind": "Job", "name": "j" }));
        assert_eq!(
            errors(STRATEGY.update_errors(&new, &old)),
            [
                "spec.controllerRef: Invalid value: null: field is immutable",
                "spec.podGroupTemplates: Invalid value: null: field is immutable",
                "spec.podGroupTemplates: Required value",
            ]
        );
    }

    #[test]
    fn fields_of_gates_that_are_off_are_dropped_unless_they_are_stored() {
        let mut full = template("a");
        let members = full.as_object_mut().unwrap();
        members.insert(CONSTRAINTS, tree!({ "topology": tree!([tree!({ "key": "a" })]) }));
        members.insert(CLAIMS, tree!([tree!({ "name": "c", "resourceClaimName": "d" })]));
        members.insert(DISRUPTION, "PodGroup");
        members.insert("priorityClassName", "high");
        members.insert("priority", 7);
        let mut empty = template("a");
        empty.as_object_mut().unwrap().insert(CONSTRAINTS, Value::Null);
        let stored = workload(vec![full.clone()], Value::Null);
        let written = |old: Option<&Value>| {
            let mut new = workload(vec![full.clone(), full.clone()], Value::Null);
            STRATEGY.drop_disabled(&mut new, old, |_| false);
            new
        };
        assert_eq!(written(None), workload(vec![empty.clone(), empty.clone()], Value::Null));
        assert_eq!(written(Some(&stored)), workload(vec![full.clone(), empty], Value::Null));
    }
}
