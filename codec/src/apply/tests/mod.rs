//! Scenarios: writes and the resulting ownership.

mod owners;
mod sets;
mod versions;

use super::*;
use crate::apply::managed::{
    manager_or_user_agent, ManagedFieldsOperationType, ANCIENT, MAX_UPDATE_MANAGERS,
};
use crate::patch::testkit::{deployment, json};
use crate::schema::{self, Schema, TypeId, GVK};
use crate::value::{Map, Value};

/// One object and its writers. Time advances by a second with each write.
struct World {
    schema: Box<Schema>,
    root: TypeId,
    kind: GVK,
    reset: Reset,
    subresource: &'static str,
    object: Option<Value>,
    clock: u32,
}

impl World {
    fn new() -> World {
        let (schema, root) = deployment();
        World {
            schema: Box::new(schema),
            root,
            kind: GVK::new("test", "v1", "Deployment"),
            reset: Reset::Nothing,
            subresource: "",
            object: None,
            clock: 0,
        }
    }

    fn with<R>(&mut self, manager: &str, f: impl FnOnce(Option<&Value>, &Context<'_>) -> R) -> R {
        self.clock += 1;
        let time = format!("2026-01-01T00:00:{:02}Z", self.clock);
        let context = Context {
            manager,
            time: &time,
            kind: &self.kind,
            subresource: self.subresource,
            schema: &self.schema,
            root: self.root,
            reset: &self.reset,
            versions: &NoOtherVersions,
        };
        f(self.object.as_ref(), &context)
    }

    fn typed(text: &str) -> Value {
        let mut object = json(text);
        let map = object.as_object_mut().unwrap();
        map.insert("apiVersion", "test/v1");
        map.insert("kind", "Deployment");
        object
    }

    /// Applies; returns whether something changed.
    fn try_apply(&mut self, manager: &str, text: &str, force: bool) -> Result<bool, ApplyError> {
        let config = World::typed(text);
        let object = self.with(manager, |live, context| apply(live, &config, force, context))?;
        let changed = object.is_some();
        if let Some(mut object) = object {
            object.object_at_mut(&["metadata"]).unwrap().insert("uid", "u");
            if let Some(live) = &self.object {
                keep_times(live, &mut object);
            }
            self.object = Some(object);
        }
        Ok(changed)
    }

    #[track_caller]
    fn apply(&mut self, manager: &str, text: &str) -> bool {
        self.try_apply(manager, text, false).unwrap_or_else(|e| panic!("{e}"))
    }

    #[track_caller]
    fn conflicts(&mut self, manager: &str, text: &str) -> String {
        self.try_apply(manager, text, false).unwrap_err().to_string()
    }

    /// Writes a whole object, as PUT does.
    fn put(&mut self, manager: &str, text: &str) {
        let mut new = World::typed(text);
        self.with(manager, |live, context| track_update(live, &mut new, context));
        new.object_at_mut(&["metadata"]).unwrap().insert("uid", "u");
        self.object = Some(new);
    }

    /// Changes the object as it is, as a client does that reads, changes and writes.
    fn change(&mut self, manager: &str, f: impl FnOnce(&mut Value)) {
        let mut new = self.object.clone().unwrap();
        f(&mut new);
        self.with(manager, |live, context| track_update(live, &mut new, context));
        self.object = Some(new);
    }

    /// The object without managedFields, uid and type.
    fn body(&self) -> Value {
        let mut object = self.object.clone().unwrap();
        let map = object.as_object_mut().unwrap();
        map.remove("apiVersion");
        map.remove("kind");
        let metadata = map.entry("metadata").as_object_mut().unwrap();
        metadata.remove("managedFields");
        metadata.remove("uid");
        if metadata.is_empty() {
            map.remove("metadata");
        }
        object
    }

    /// `manager operation second: paths`, a line per entry in order.
    fn owners(&self) -> Vec<String> {
        let list = self.object.as_ref().and_then(|o| o.at(&["metadata", "managedFields"]));
        let entries = list.and_then(Value::as_array).unwrap_or_default();
        entries
            .iter()
            .map(|entry| {
                let list = Value::Array(vec![entry.clone()]);
                let managed = ManagedFields::decode(Some(&list)).unwrap();
                let e = &managed.entries[0];
                let second = e.time.as_ref().map_or("-", |t| &t[17..19]);
                let subresource =
                    if e.subresource.is_empty() { String::new() } else { format!("/{}", e.subresource) };
                let paths: Vec<String> = e.fields.set().paths().iter().map(|p| path::describe(p)).collect();
                format!("{}{} {:?} {}: {}", e.manager, subresource, e.operation, second, paths.join(" "))
            })
            .collect()
    }
}

#[test]
fn an_apply_creates_and_owns_its_fields() {
    let mut w = World::new();
    assert!(w.apply("a", r#"{"metadata":{"name":"x","labels":{"l":"1"}},"spec":{"replicas":3,"template":{"containers":[{"name":"c","image":"i"}]}}}"#));
    assert_eq!(
        w.owners(),
        ["a Apply 01: .metadata.labels.l .spec.replicas .spec.template.containers[name=\"c\"] .spec.template.containers[name=\"c\"].image .spec.template.containers[name=\"c\"].name"]
    );
}

#[test]
fn applying_again_changes_nothing() {
    let mut w = World::new();
    let config = r#"{"metadata":{"labels":{"l":"1"}},"spec":{"replicas":3,"strategy":{},"template":{"containers":[{"name":"c","ports":[{"containerPort":80}],"env":[]}],"tolerations":[{"key":"k"}]}}}"#;
    assert!(w.apply("a", config));
    let before = w.object.clone();
    assert!(!w.apply("a", config));
    assert_eq!(w.object, before);
    // Nor does the same number written differently.
    assert!(!w.apply("a", &config.replace("\"replicas\":3", "\"replicas\":3.0")));
}

#[test]
fn a_value_that_normalises_to_the_same_keeps_the_time() {
    let mut w = World::new();
    w.apply(
        "a",
        r#"{"spec":{"template":{"containers":[{"name":"c","resources":{"limits":{"memory":"2Gi"}}}]}}}"#,
    );
    let before = w.object.clone().unwrap();
    let config = World::typed(
        r#"{"spec":{"template":{"containers":[{"name":"c","resources":{"limits":{"memory":"2048Mi"}}}]}}}"#,
    );
    let mut merged = w.with("a", |live, context| apply(live, &config, false, context)).unwrap().unwrap();
    // The decoded form.
    let path = ["spec", "template", "containers"];
    let containers = merged.object_at_mut(&path[..2]).unwrap().get_mut("containers").unwrap();
    containers.as_array_mut().unwrap()[0]
        .object_at_mut(&["resources", "limits"])
        .unwrap()
        .insert("memory", "2Gi");
    assert_ne!(merged, before);
    assert!(keep_times(&before, &mut merged));
    assert_eq!(merged, before);
    // Not so when something else differs.
    let mut other = merged.clone();
    other.object_at_mut(&["spec"]).unwrap().insert("replicas", 9);
    assert!(!keep_times(&before, &mut other));
}

#[test]
fn conflicts_name_field_and_manager() {
    let mut w = World::new();
    w.apply("a", r#"{"spec":{"replicas":3,"paused":true}}"#);
    assert_eq!(
        w.conflicts("b", r#"{"spec":{"replicas":4}}"#),
        "Apply failed with 1 conflict: conflict with \"a\": .spec.replicas"
    );
    w.change("editor", |o| drop(o.object_at_mut(&["metadata", "labels"]).unwrap().insert("l", "1")));
    let error = w
        .try_apply("b", r#"{"metadata":{"labels":{"l":"2"}},"spec":{"replicas":4,"paused":false}}"#, false)
        .unwrap_err();
    assert_eq!(error.code(), 409);
    assert_eq!(
        error.to_string(),
        "Apply failed with 3 conflicts: conflicts with \"a\":\n- .spec.paused\n- .spec.replicas\nconflicts with \"editor\" using test/v1:\n- .metadata.labels.l"
    );
    let ApplyError::Conflicts(conflicts) = error else { panic!() };
    assert_eq!(conflicts.0[2].message(), "conflict with \"editor\" using test/v1");
    assert_eq!(conflicts.0[2].field(), ".metadata.labels.l");
    // Nothing changed.
    assert_eq!(w.body(), json(r#"{"metadata":{"labels":{"l":"1"}},"spec":{"paused":true,"replicas":3}}"#));
}

#[test]
fn force_takes_the_field() {
    let mut w = World::new();
    w.apply("a", r#"{"spec":{"replicas":3,"paused":true}}"#);
    w.try_apply("b", r#"{"spec":{"replicas":4}}"#, true).unwrap();
    assert_eq!(w.owners(), ["a Apply 01: .spec.paused", "b Apply 02: .spec.replicas"]);
    // A manager that loses its last field loses its entry.
    w.try_apply("b", r#"{"spec":{"replicas":4,"paused":false}}"#, true).unwrap();
    assert_eq!(w.owners(), ["b Apply 03: .spec.paused .spec.replicas"]);
}

#[test]
fn equal_values_are_shared() {
    let mut w = World::new();
    w.apply("a", r#"{"spec":{"replicas":3}}"#);
    assert!(w.apply("b", r#"{"spec":{"replicas":3}}"#));
    // Only ownership changed: no new time.
    assert_eq!(w.owners(), ["b Apply -: .spec.replicas", "a Apply 01: .spec.replicas"]);
    assert_eq!(
        w.conflicts("a", r#"{"spec":{"replicas":4}}"#),
        "Apply failed with 1 conflict: conflict with \"b\": .spec.replicas"
    );
    // One releases it: it is kept, and the other one is the only owner.
    w.apply("a", r#"{"spec":{"paused":true}}"#);
    assert_eq!(w.body(), json(r#"{"spec":{"replicas":3,"paused":true}}"#));
    assert_eq!(w.owners(), ["b Apply -: .spec.replicas", "a Apply 04: .spec.paused"]);
}

#[test]
fn what_is_left_out_is_removed_when_nobody_else_owns_it() {
    // First what "a" applies, then what "u" sets as an updater, then what "a" applies, and what is left.
    let rows = [
        (
            "a scalar",
            r#"{"spec":{"replicas":3,"paused":true}}"#,
            "",
            r#"{"spec":{"replicas":3}}"#,
            r#"{"spec":{"replicas":3}}"#,
        ),
        (
            "a map key",
            r#"{"metadata":{"labels":{"a":"1","b":"2"}}}"#,
            "",
            r#"{"metadata":{"labels":{"a":"1"}}}"#,
            r#"{"metadata":{"labels":{"a":"1"}}}"#,
        ),
        (
            "an element",
            r#"{"spec":{"template":{"containers":[{"name":"a"},{"name":"b"}]}}}"#,
            "",
            r#"{"spec":{"template":{"containers":[{"name":"b"}]}}}"#,
            r#"{"spec":{"template":{"containers":[{"name":"b"}]}}}"#,
        ),
        (
            "a set element",
            r#"{"metadata":{"finalizers":["a/a","b/b"]}}"#,
            "",
            r#"{"metadata":{"finalizers":["b/b"]}}"#,
            r#"{"metadata":{"finalizers":["b/b"]}}"#,
        ),
        (
            "an atomic list",
            r#"{"spec":{"replicas":1,"template":{"tolerations":[{"key":"k"}]}}}"#,
            "",
            r#"{"spec":{"replicas":1}}"#,
            r#"{"spec":{"replicas":1}}"#,
        ),
        (
            "a struct goes when named alone",
            r#"{"spec":{"replicas":1,"strategy":{"type":"x"}}}"#,
            "",
            r#"{"spec":{"replicas":1}}"#,
            r#"{"spec":{"replicas":1}}"#,
        ),
        (
            "what an updater added stays",
            r#"{"spec":{"template":{"containers":[{"name":"a","image":"1"}]}}}"#,
            "image",
            r#"{"spec":{"template":{"containers":[{"name":"a"}]}}}"#,
            r#"{"spec":{"template":{"containers":[{"name":"a","image":"2"}]}}}"#,
        ),
        (
            "an element goes though an updater set a part of it",
            r#"{"spec":{"replicas":1,"template":{"containers":[{"name":"a","args":["x"]}]}}}"#,
            "image",
            r#"{"spec":{"replicas":1}}"#,
            r#"{"spec":{"replicas":1}}"#,
        ),
    ];
    for (what, first, update, second, want) in rows {
        let mut w = World::new();
        w.apply("a", first);
        if update == "image" {
            w.change("u", |o| {
                let list = o.object_at_mut(&["spec", "template"]).unwrap().get_mut("containers").unwrap();
                list.as_array_mut().unwrap()[0].as_object_mut().unwrap().insert("image", "2");
            });
        }
        w.apply("a", second);
        assert_eq!(w.body(), json(want), "{what}: {:?}", w.owners());
    }
}

#[test]
fn defaults_inside_of_a_removed_element_go_with_it() {
    let mut w = World::new();
    w.apply("a", r#"{"spec":{"replicas":1,"template":{"containers":[{"name":"c","ports":[{"containerPort":80},{"containerPort":81}]}]}}}"#);
    // Fields that the server defaults have no owner.
    let mut object = w.object.take().unwrap();
    let containers = object.object_at_mut(&["spec", "template"]).unwrap().get_mut("containers").unwrap();
    for port in containers.as_array_mut().unwrap()[0].get_mut("ports").unwrap().as_array_mut().unwrap() {
        port.as_object_mut().unwrap().insert("protocol", "TCP");
    }
    w.object = Some(object);
    w.apply(
        "a",
        r#"{"spec":{"replicas":1,"template":{"containers":[{"name":"c","ports":[{"containerPort":81}]}]}}}"#,
    );
    assert_eq!(
        w.body(),
        json(
            r#"{"spec":{"replicas":1,"template":{"containers":[{"name":"c","ports":[{"containerPort":81,"protocol":"TCP"}]}]}}}"#
        )
    );
}
