//! Scenarios: who writes what, and who owns what then.

use super::*;
use crate::apply::managed::{manager_or_user_agent, Operation, ANCIENT, MAX_UPDATE_MANAGERS};
use crate::patch::testkit::{deployment, json};
use crate::schema::{self, Schema, TypeId, GVK};
use crate::Value;

/// One object and those who write it. Time moves a second with each write.
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

    /// Applies; whether something changed.
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
                let managed = Managed::decode(Some(&list)).unwrap();
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
    // Nor does the same number written otherwise.
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
    // What decoding makes of it.
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
    // Nothing happened.
    assert_eq!(w.body(), json(r#"{"metadata":{"labels":{"l":"1"}},"spec":{"paused":true,"replicas":3}}"#));
}

#[test]
fn force_takes_the_field() {
    let mut w = World::new();
    w.apply("a", r#"{"spec":{"replicas":3,"paused":true}}"#);
    w.try_apply("b", r#"{"spec":{"replicas":4}}"#, true).unwrap();
    assert_eq!(w.owners(), ["a Apply 01: .spec.paused", "b Apply 02: .spec.replicas"]);
    // Who loses the last field loses the entry.
    w.try_apply("b", r#"{"spec":{"replicas":4,"paused":false}}"#, true).unwrap();
    assert_eq!(w.owners(), ["b Apply 03: .spec.paused .spec.replicas"]);
}

#[test]
fn equal_values_are_shared() {
    let mut w = World::new();
    w.apply("a", r#"{"spec":{"replicas":3}}"#);
    assert!(w.apply("b", r#"{"spec":{"replicas":3}}"#));
    // Nothing changed but who owns it: no time.
    assert_eq!(w.owners(), ["b Apply -: .spec.replicas", "a Apply 01: .spec.replicas"]);
    assert_eq!(
        w.conflicts("a", r#"{"spec":{"replicas":4}}"#),
        "Apply failed with 1 conflict: conflict with \"b\": .spec.replicas"
    );
    // One gives it up: it stays, the other one owns it alone.
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
    // The server fills in what nobody owns.
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

#[test]
fn lists_keep_their_order_by_table() {
    // The live order (names of containers), the applied order, the outcome.
    let rows = [
        ("a b c", "a b c", "a b c"),
        ("a b c", "c", "a b c"),
        ("a b c", "c a", "b c a"),
        ("a b", "c", "a b c"),
        ("a b", "c a", "c a b"),
        ("a b", "a c b", "a c b"),
        ("a b c", "b d", "a b c d"),
        ("a b c d", "d b", "a c d b"),
        ("", "a b", "a b"),
        ("a b c", "c b a", "c b a"),
    ];
    for (live, applied, want) in rows {
        let list = |names: &str| {
            let items: Vec<Value> = names.split_whitespace().map(|n| crate::tree!({ "name": n })).collect();
            crate::tree!({ "spec": crate::tree!({ "template": crate::tree!({ "containers": items }) }) })
        };
        let (schema, root) = deployment();
        let mut object = list(live);
        merge::merge(&schema, root, &mut object, &list(applied));
        assert_eq!(object, list(want), "{live} + {applied}");
        assert_eq!(
            merge::is_merged(&schema, root, &list(live), &list(applied)),
            live == want,
            "{live} + {applied}"
        );
    }
}

#[test]
fn merges_by_table() {
    let rows = [
        (
            "null of a scalar",
            r#"{"spec":{"replicas":1}}"#,
            r#"{"spec":{"replicas":null}}"#,
            r#"{"spec":{"replicas":null}}"#,
        ),
        (
            "null of a struct keeps it",
            r#"{"spec":{"strategy":{"type":"x"}}}"#,
            r#"{"spec":{"strategy":null}}"#,
            r#"{"spec":{"strategy":{"type":"x"}}}"#,
        ),
        (
            "empty of a map keeps it",
            r#"{"metadata":{"labels":{"a":"1"}}}"#,
            r#"{"metadata":{"labels":{}}}"#,
            r#"{"metadata":{"labels":{"a":"1"}}}"#,
        ),
        (
            "empty of a keyed list keeps it",
            r#"{"spec":{"template":{"containers":[{"name":"a"}]}}}"#,
            r#"{"spec":{"template":{"containers":[]}}}"#,
            r#"{"spec":{"template":{"containers":[{"name":"a"}]}}}"#,
        ),
        (
            "an atomic list is replaced",
            r#"{"spec":{"template":{"tolerations":[{"key":"a"}]}}}"#,
            r#"{"spec":{"template":{"tolerations":[]}}}"#,
            r#"{"spec":{"template":{"tolerations":[]}}}"#,
        ),
        (
            "an atomic map is replaced",
            r#"{"spec":{"template":{"nodeSelector":{"a":"1"}}}}"#,
            r#"{"spec":{"template":{"nodeSelector":{"b":"2"}}}}"#,
            r#"{"spec":{"template":{"nodeSelector":{"b":"2"}}}}"#,
        ),
        (
            "an atomic struct is replaced",
            r#"{"spec":{"template":{"containers":[{"name":"c","env":[{"name":"e","valueFrom":{"key":"k"}}]}]}}}"#,
            r#"{"spec":{"template":{"containers":[{"name":"c","env":[{"name":"e","valueFrom":{"name":"n"}}]}]}}}"#,
            r#"{"spec":{"template":{"containers":[{"name":"c","env":[{"name":"e","valueFrom":{"name":"n"}}]}]}}}"#,
        ),
        (
            "sets are united",
            r#"{"metadata":{"finalizers":["a","b"]}}"#,
            r#"{"metadata":{"finalizers":["c","b"]}}"#,
            r#"{"metadata":{"finalizers":["a","c","b"]}}"#,
        ),
        (
            "key fields have defaults",
            r#"{"spec":{"template":{"containers":[{"name":"c","ports":[{"containerPort":80,"protocol":"TCP"}]}]}}}"#,
            r#"{"spec":{"template":{"containers":[{"name":"c","ports":[{"containerPort":80,"name":"w"}]}]}}}"#,
            r#"{"spec":{"template":{"containers":[{"name":"c","ports":[{"containerPort":80,"name":"w","protocol":"TCP"}]}]}}}"#,
        ),
        (
            "several keys tell elements apart",
            r#"{"spec":{"template":{"containers":[{"name":"c","ports":[{"containerPort":80,"protocol":"UDP"}]}]}}}"#,
            r#"{"spec":{"template":{"containers":[{"name":"c","ports":[{"containerPort":80,"protocol":"TCP"}]}]}}}"#,
            r#"{"spec":{"template":{"containers":[{"name":"c","ports":[{"containerPort":80,"protocol":"UDP"},{"containerPort":80,"protocol":"TCP"}]}]}}}"#,
        ),
        (
            "a raw part is one value",
            r#"{"spec":{"data":{"a":1}}}"#,
            r#"{"spec":{"data":{"b":2}}}"#,
            r#"{"spec":{"data":{"b":2}}}"#,
        ),
    ];
    let (schema, root) = deployment();
    for (what, live, applied, want) in rows {
        let mut object = json(live);
        merge::merge(&schema, root, &mut object, &json(applied));
        assert_eq!(object, json(want), "{what}");
        assert_eq!(merge::is_merged(&schema, root, &json(live), &json(applied)), live == want, "{what}");
    }
}

#[test]
fn comparisons_by_table() {
    // Old, new, added, modified, removed.
    let rows: [(&str, &str, &str, &str, &str, &str); 11] = [
        ("nothing", r#"{"spec":{"replicas":1}}"#, r#"{"spec":{"replicas":1}}"#, "", "", ""),
        (
            "a scalar",
            r#"{"spec":{"replicas":1}}"#,
            r#"{"spec":{"replicas":2,"paused":true}}"#,
            ".spec.paused",
            ".spec.replicas",
            "",
        ),
        (
            "a map with its keys",
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"labels":{"a":"1"}}}"#,
            ".metadata.labels .metadata.labels.a",
            "",
            "",
        ),
        (
            "a map that goes",
            r#"{"metadata":{"labels":{"a":"1"}}}"#,
            r#"{"metadata":{}}"#,
            "",
            "",
            ".metadata.labels .metadata.labels.a",
        ),
        ("an empty map", r#"{"metadata":{}}"#, r#"{"metadata":{"labels":{}}}"#, ".metadata.labels", "", ""),
        (
            "an element",
            r#"{"spec":{"template":{"containers":[{"name":"a"}]}}}"#,
            r#"{"spec":{"template":{"containers":[{"name":"b"}]}}}"#,
            ".spec.template.containers[name=\"b\"] .spec.template.containers[name=\"b\"].name",
            "",
            ".spec.template.containers[name=\"a\"] .spec.template.containers[name=\"a\"].name",
        ),
        (
            "the order of elements does not count",
            r#"{"metadata":{"finalizers":["a","b"]}}"#,
            r#"{"metadata":{"finalizers":["b","a"]}}"#,
            "",
            "",
            "",
        ),
        (
            "duplicates come",
            r#"{"metadata":{"finalizers":["a"]}}"#,
            r#"{"metadata":{"finalizers":["a","a"]}}"#,
            ".metadata.finalizers[=\"a\"]",
            "",
            ".metadata.finalizers[=\"a\"]",
        ),
        (
            "duplicates go",
            r#"{"metadata":{"finalizers":["a","a"]}}"#,
            r#"{"metadata":{"finalizers":["a"]}}"#,
            ".metadata.finalizers[=\"a\"]",
            "",
            ".metadata.finalizers[=\"a\"]",
        ),
        (
            "duplicates that stay are one value",
            r#"{"spec":{"template":{"containers":[{"name":"a"},{"name":"a"}]}}}"#,
            r#"{"spec":{"template":{"containers":[{"name":"a"},{"name":"a","image":"i"}]}}}"#,
            "",
            ".spec.template.containers[name=\"a\"]",
            "",
        ),
        (
            "an atomic list",
            r#"{"spec":{"template":{"tolerations":[{"key":"a"}]}}}"#,
            r#"{"spec":{"template":{"tolerations":[{"key":"b"}]}}}"#,
            "",
            ".spec.template.tolerations",
            "",
        ),
    ];
    let (schema, root) = deployment();
    let show = |set: &Set| set.paths().iter().map(|p| path::describe(p)).collect::<Vec<_>>().join(" ");
    for (what, old, new, added, modified, removed) in rows {
        let c = compare::compare(&schema, root, &json(old), &json(new));
        assert_eq!(
            (show(&c.added).as_str(), show(&c.modified).as_str(), show(&c.removed).as_str()),
            (added, modified, removed),
            "{what}"
        );
        let back = compare::compare(&schema, root, &json(new), &json(old));
        assert_eq!((back.added, back.modified, back.removed), (c.removed, c.modified, c.added), "{what}");
    }
}

#[test]
fn field_sets_by_table() {
    let rows = [
        (r#"{"spec":{"replicas":1}}"#, ".spec.replicas"),
        (r#"{"spec":{"replicas":null,"strategy":null,"template":{"containers":null,"tolerations":[]}}}"#, ".spec.replicas .spec.strategy .spec.template.containers .spec.template.tolerations"),
        (r#"{"spec":{"template":{"containers":[]}}}"#, ""),
        (r#"{"spec":{"strategy":{}}}"#, ".spec.strategy"),
        (r#"{"metadata":{"labels":{"a":"1"}}}"#, ".metadata.labels.a"),
        (r#"{"metadata":{"finalizers":["a","b"]}}"#, ".metadata.finalizers[=\"a\"] .metadata.finalizers[=\"b\"]"),
        (r#"{"spec":{"template":{"nodeSelector":{"a":"1"}}}}"#, ".spec.template.nodeSelector"),
        (r#"{"spec":{"data":{"a":{"b":1}}}}"#, ".spec.data"),
        (r#"{"spec":{"template":{"containers":[{"name":"c","ports":[{"containerPort":80}]}]}}}"#, ".spec.template.containers[name=\"c\"] .spec.template.containers[name=\"c\"].name .spec.template.containers[name=\"c\"].ports[containerPort=80,protocol=\"TCP\"] .spec.template.containers[name=\"c\"].ports[containerPort=80,protocol=\"TCP\"].containerPort"),
    ];
    let (schema, root) = deployment();
    for (value, want) in rows {
        let set = extract::field_set(&schema, root, &json(value));
        let shown: Vec<String> = set.paths().iter().map(|p| path::describe(p)).collect();
        assert_eq!(shown.join(" "), want, "{value}");
    }
}

#[test]
fn parts_without_schema_are_deduced() {
    let mut b = crate::patch::testkit::Builder::default();
    let any = b.scalar(schema::Scalar::Any);
    let string = b.scalar(schema::Scalar::String { values: vec![] });
    let root = b.structure(
        "",
        &[("apiVersion", string, ""), ("kind", string, ""), ("metadata", any, ""), ("spec", any, "")],
    );
    let kind = GVK::new("test", "v1", "Deployment");
    let (schema, root) = b.finish(kind, root);
    let mut w = World { schema: Box::new(schema), root, ..World::new() };
    w.apply("a", r#"{"spec":{"map":{"x":1},"list":[1,2],"deep":{"er":{"y":true}}}}"#);
    assert_eq!(
        w.owners(),
        ["a Apply 01: .spec.deep .spec.list .spec.map .spec.deep.er .spec.deep.er.y .spec.map.x"]
    );
    // Lists are atomic, maps are not.
    w.apply("b", r#"{"spec":{"map":{"z":2}}}"#);
    assert_eq!(w.body(), json(r#"{"spec":{"map":{"x":1,"z":2},"list":[1,2],"deep":{"er":{"y":true}}}}"#));
    assert_eq!(
        w.conflicts("b", r#"{"spec":{"map":{"z":2},"list":[3]}}"#),
        "Apply failed with 1 conflict: conflict with \"a\": .spec.list"
    );
    // What changes its kind of value conflicts too.
    assert!(w.conflicts("b", r#"{"spec":{"deep":{"er":1}}}"#).contains(".spec.deep.er"));
    w.apply("a", r#"{"spec":{"list":[1,2]}}"#);
    assert_eq!(w.body(), json(r#"{"spec":{"map":{"z":2},"list":[1,2]}}"#));
}

#[test]
fn other_verbs_own_what_they_change() {
    let mut w = World::new();
    w.put("create", r#"{"metadata":{"name":"x","labels":{"l":"1"}},"spec":{"replicas":1}}"#);
    assert_eq!(w.owners(), ["create Update 01: .spec .metadata.labels .metadata.labels.l .spec.replicas"]);
    w.change("scaler", |o| drop(o.object_at_mut(&["spec"]).unwrap().insert("replicas", 5)));
    assert_eq!(
        w.owners(),
        ["create Update 01: .spec .metadata.labels .metadata.labels.l", "scaler Update 02: .spec.replicas"]
    );
    // The same value again gives nothing to anybody.
    let before = w.object.clone();
    w.change("other", |o| drop(o.object_at_mut(&["spec"]).unwrap().insert("replicas", 5)));
    assert_eq!(w.object, before);
    // What is removed is nobody's.
    w.change("other", |o| drop(o.object_at_mut(&["metadata"]).unwrap().remove("labels")));
    assert_eq!(w.owners(), ["create Update 01: .spec", "scaler Update 02: .spec.replicas"]);
    // A manager has one entry for each version and subresource.
    w.change("scaler", |o| drop(o.object_at_mut(&["spec"]).unwrap().insert("paused", true)));
    assert_eq!(w.owners(), ["create Update 01: .spec", "scaler Update 05: .spec.paused .spec.replicas"]);
    w.subresource = "status";
    w.change("scaler", |o| drop(o.object_at_mut(&["status"]).unwrap().insert("replicas", 5)));
    assert_eq!(
        w.owners()[1..],
        [
            "scaler Update 05: .spec.paused .spec.replicas",
            "scaler/status Update 06: .status .status.replicas"
        ]
    );
}

#[test]
fn an_update_takes_from_an_applier_what_it_changes() {
    let mut w = World::new();
    w.apply("a", r#"{"spec":{"replicas":1,"paused":true}}"#);
    w.change("u", |o| drop(o.object_at_mut(&["spec"]).unwrap().insert("replicas", 5)));
    assert_eq!(w.owners(), ["a Apply 01: .spec.paused", "u Update 02: .spec.replicas"]);
    assert_eq!(
        w.conflicts("a", r#"{"spec":{"replicas":1,"paused":true}}"#),
        "Apply failed with 1 conflict: conflict with \"u\" using test/v1: .spec.replicas"
    );
    // Left out, it is the updater's to keep.
    w.apply("a", r#"{"spec":{"paused":true}}"#);
    assert_eq!(w.body(), json(r#"{"spec":{"replicas":5,"paused":true}}"#));
}

#[test]
fn what_was_there_before_the_first_apply() {
    let mut w = World::new();
    w.object = Some(World::typed(r#"{"metadata":{"uid":"u"},"spec":{"replicas":1,"paused":true}}"#));
    // Without any owner, updates own nothing.
    w.change("u", |o| drop(o.object_at_mut(&["spec"]).unwrap().insert("replicas", 5)));
    assert_eq!(w.owners(), [""; 0]);
    assert_eq!(
        w.conflicts("a", r#"{"spec":{"replicas":1}}"#),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using test/v1: .spec.replicas"
    );
    w.apply("a", r#"{"spec":{"paused":true}}"#);
    assert_eq!(
        w.owners(),
        ["a Apply -: .spec.paused", "before-first-apply Update 03: .spec .spec.paused .spec.replicas"]
    );
}

#[test]
fn resets_forget_everybody() {
    for reset in ["[]", "[{}]", r#"[{"manager":""}]"#] {
        let mut w = World::new();
        w.apply("a", r#"{"spec":{"replicas":1}}"#);
        w.change("u", |o| {
            o.object_at_mut(&["metadata"]).unwrap().insert("managedFields", json(reset));
            o.object_at_mut(&["spec"]).unwrap().insert("replicas", 2);
        });
        assert_eq!(w.owners(), [""; 0], "{reset}");
        assert!(w.object.as_ref().unwrap().at(&["metadata", "managedFields"]).is_none());
        w.change("u", |o| drop(o.object_at_mut(&["spec"]).unwrap().insert("replicas", 3)));
        assert_eq!(w.owners(), [""; 0], "{reset}");
    }
}

#[test]
fn clients_without_the_field_lose_nothing_and_bad_ones_change_nothing() {
    for sent in [
        None,
        Some("null"),
        Some(r#"[{"manager":"x"}]"#),
        Some(
            r#"[{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"bad":{}}}]"#,
        ),
        Some("[1]"),
    ] {
        let mut w = World::new();
        w.apply("a", r#"{"spec":{"replicas":1}}"#);
        w.change("u", |o| {
            let metadata = o.object_at_mut(&["metadata"]).unwrap();
            match sent {
                None => drop(metadata.remove("managedFields")),
                Some(text) => drop(metadata.insert("managedFields", json(text))),
            }
        });
        assert_eq!(w.owners(), ["a Apply 01: .spec.replicas"], "{sent:?}");
    }
    // Through a subresource nobody can say who owns what.
    let mut w = World::new();
    w.apply("a", r#"{"spec":{"replicas":1}}"#);
    w.subresource = "status";
    w.change("u", |o| drop(o.object_at_mut(&["metadata"]).unwrap().insert("managedFields", json("[]"))));
    assert_eq!(w.owners(), ["a Apply 01: .spec.replicas"]);
    // On the object itself they can.
    w.subresource = "";
    w.change("u", |o| {
        let list = r#"[{"manager":"x","operation":"Update","apiVersion":"test/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}}}]"#;
        o.object_at_mut(&["metadata"]).unwrap().insert("managedFields", json(list));
    });
    assert_eq!(w.owners(), ["x Update -: .spec.replicas"]);
}

#[test]
fn old_updates_are_merged() {
    let mut w = World::new();
    w.put("creator", r#"{"metadata":{"labels":{"l":"1"}}}"#);
    w.apply("applier", r#"{"spec":{"replicas":1}}"#);
    for i in 0..15 {
        w.change(&format!("m{i:02}"), |o| {
            o.object_at_mut(&["metadata", "annotations"]).unwrap().insert(format!("a{i:02}"), "x");
        });
        let updates = w.owners().iter().filter(|o| o.contains("Update")).count();
        assert!(updates <= MAX_UPDATE_MANAGERS);
    }
    let owners = w.owners();
    assert!(owners[0].starts_with("applier Apply"), "{owners:?}");
    assert!(owners[1].starts_with(&format!("{ANCIENT} Update")), "{owners:?}");
    assert!(
        owners[1].contains(".metadata.labels.l") && owners[1].contains(".metadata.annotations.a00"),
        "{owners:?}"
    );
    assert!(owners[10].starts_with("m14 Update"), "{owners:?}");
    // Nothing is lost.
    for i in 0..15 {
        assert_eq!(owners.iter().filter(|o| o.contains(&format!(".a{i:02}"))).count(), 1, "{owners:?}");
    }
}

#[test]
fn entries_are_sorted() {
    let entry = |manager: &str, operation: &str, version: &str, time: &str, subresource: &str| {
        crate::tree!({
            "manager": manager, "operation": operation, "apiVersion": version, "time": time, "subresource": subresource,
            "fieldsType": "FieldsV1", "fieldsV1": json(r#"{"f:a":{}}"#),
        })
    };
    let sorted = [
        entry("z", "Apply", "v1", "2026-01-01T00:00:02Z", ""),
        entry("a", "Apply", "v1", "2026-01-01T00:00:03Z", ""),
        entry("b", "Update", "v1", "2026-01-01T00:00:01Z", ""),
        entry("a", "Update", "v1", "2026-01-01T00:00:02Z", ""),
        entry("a", "Update", "v1", "2026-01-01T00:00:02Z", "status"),
        entry("a", "Update", "v2", "2026-01-01T00:00:02Z", ""),
        entry("b", "Update", "v1", "2026-01-01T00:00:02Z", "scale"),
    ];
    let mut shuffled = sorted.to_vec();
    shuffled.reverse();
    shuffled.swap(1, 4);
    let encoded = Managed::decode(Some(&shuffled.into())).unwrap().encode().unwrap();
    let managers = |list: &[Value]| {
        list.iter()
            .map(|e| format!("{:?}{:?}", e.str_at(&["manager"]), e.str_at(&["time"])))
            .collect::<Vec<_>>()
    };
    assert_eq!(managers(encoded.as_array().unwrap()), managers(&sorted));
}

#[test]
fn bad_entries_are_named() {
    let rows = [
        (r#"{}"#, "managedFields must be a list of objects"),
        (r#"[{"operation":"Delete"}]"#, "operation must be `Apply` or `Update`"),
        (r#"[{"operation":"Apply"}]"#, "apiVersion must not be empty"),
        (r#"[{"operation":"Apply","apiVersion":"v1"}]"#, "missing fieldsType in managed fields entry 0"),
        (
            r#"[{"operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV2"}]"#,
            "invalid fieldsType \"FieldsV2\" in managed fields entry 0",
        ),
        (
            r#"[{"operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"a":{}}}]"#,
            "error decoding set: key must be 2 characters long: a",
        ),
    ];
    for (text, want) in rows {
        assert_eq!(Managed::decode(Some(&json(text))).unwrap_err().to_string(), want, "{text}");
    }
    // Of two entries of one manager the later one stands; an applier's version does not make it another one.
    let list = json(
        r#"[{"manager":"a","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:a":{}}},
            {"manager":"a","operation":"Apply","apiVersion":"v2","fieldsType":"FieldsV1","fieldsV1":{"f:b":{}}},
            {"manager":"a","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:c":{}}},
            {"manager":"a","operation":"Update","apiVersion":"v2","fieldsType":"FieldsV1","fieldsV1":{"f:d":{}}}]"#,
    );
    let managed = Managed::decode(Some(&list)).unwrap();
    let entries: Vec<_> = managed.entries.iter().map(|e| (e.operation, e.api_version.as_str())).collect();
    assert_eq!(entries, [(Operation::Apply, "v2"), (Operation::Update, "v1"), (Operation::Update, "v2")]);
}

#[test]
fn bad_configurations_are_refused() {
    let rows = [
        (r#"{"spec":{"nothing":1}}"#, ".spec.nothing: field not declared in schema"),
        (r#"{"spec":{"replicas":"3"}}"#, ".spec.replicas: expected numeric (int or float), got string"),
        (r#"{"spec":{"paused":"x"}}"#, ".spec.paused: expected boolean, got &{x}"),
        (r#"{"spec":{"strategy":"x"}}"#, ".spec.strategy: expected map, got &{x}"),
        (r#"{"spec":{"template":{"containers":{}}}}"#, ".spec.template.containers: expected list, got &{map[]}"),
        (r#"{"spec":{"strategy":{"type":1}}}"#, ".spec.strategy.type: expected string, got &value.valueUnstructured{Value:1}"),
        (r#"{"spec":{"template":{"containers":[{"image":"i"}]}}}"#, ".spec.template.containers: element 0: associative list with keys has an element that omits all key fields [\"name\"] (and doesn't have default values for any key fields)"),
        (r#"{"spec":{"template":{"containers":[{"name":"a"},{"name":"a"}]}}}"#, ".spec.template.containers: duplicate entries for key [name=\"a\"]"),
        (r#"{"spec":{"template":{"containers":[{"name":"a","imag":"i"}]}}}"#, ".spec.template.containers[name=\"a\"].imag: field not declared in schema"),
        (r#"{"spec":{"template":{"tolerations":[{"ky":"a"}]}}}"#, ".spec.template.tolerations[0].ky: field not declared in schema"),
        (r#"{"metadata":{"finalizers":[{}]}}"#, ".metadata.finalizers: element 0: associative list without keys has an element that's a map type"),
        // What is no text is shown in the syntax of upstream's language, and a key without braces.
        (r#"{"spec":{"strategy":{"type":[1,"a",{"b":true,"c":1.5,"d":null}]}}}"#, ".spec.strategy.type: expected string, got &value.valueUnstructured{Value:[]interface {}{1, \"a\", map[string]interface {}{\"b\":true, \"c\":1.5, \"d\":interface {}(nil)}}}"),
        (r#"{"spec":{"template":{"containers":[{"name":{"a":1,"b":[2,"c"]}}]}}}"#, ".spec.template.containers[name=a=1b=[2,\"c\"]].name: expected string, got &value.valueUnstructured{Value:map[string]interface {}{\"a\":1, \"b\":[]interface {}{2, \"c\"}}}"),
        // A list is not looked at any further behind an element that has no name.
        (r#"{"metadata":{"finalizers":["a","a",{},"b","b",{}]}}"#, "errors:\n  .metadata.finalizers: element 2: associative list without keys has an element that's a map type\n  .metadata.finalizers: duplicate entries for key [=\"a\"]"),
        (r#"{"spec":{"a":1,"b":2}}"#, "errors:\n  .spec.a: field not declared in schema\n  .spec.b: field not declared in schema"),
    ];
    let mut w = World::new();
    for (config, want) in rows {
        let error = w.try_apply("a", config, false).unwrap_err();
        assert_eq!(error.code(), 400);
        assert_eq!(
            error.to_string(),
            format!("failed to create typed patch object (/; test/v1, Kind=Deployment): {want}"),
        );
    }
    for fields in ["[]", "[{}]"] {
        let error =
            w.try_apply("a", &format!(r#"{{"metadata":{{"managedFields":{fields}}}}}"#), false).unwrap_err();
        assert_eq!(error, ApplyError::HasManagedFields);
    }
    let other = json(r#"{"apiVersion":"test/v2","kind":"Deployment"}"#);
    let error = w.with("a", |live, context| apply(live, &other, false, context)).unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        (400, "invalid object type: test/v2, Kind=Deployment")
    );
}

#[test]
fn what_a_write_cannot_own_is_left_out() {
    let mut w = World::new();
    w.reset = reset::custom("", true).clone();
    w.put("u", r#"{"spec":{"replicas":1},"status":{"replicas":1}}"#);
    assert_eq!(w.owners(), ["u Update 01: .spec .spec.replicas"]);
    w.apply("a", r#"{"spec":{"paused":true},"status":{"replicas":7}}"#);
    assert_eq!(w.owners(), ["a Apply 02: .spec.paused", "u Update 01: .spec .spec.replicas"]);
    w.reset = reset::custom("status", true).clone();
    w.subresource = "status";
    w.apply("a", r#"{"metadata":{"labels":{"l":"1"}},"status":{"replicas":7}}"#);
    assert_eq!(w.owners()[1], "a/status Apply 03: .status.replicas");
}

#[test]
fn schema_changes_move_ownership_up() {
    // Written when nodeSelector had an owner for each key.
    let mut w = World::new();
    w.object = Some(World::typed(
        r#"{"metadata":{"uid":"u","managedFields":[
            {"manager":"a","operation":"Apply","apiVersion":"test/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:template":{"f:nodeSelector":{"f:x":{}}}}}},
            {"manager":"u","operation":"Update","apiVersion":"test/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:data":{"f:x":{}},"f:replicas":{},"f:unknown":{"f:x":{}}}}}
        ]},"spec":{"replicas":1,"template":{"nodeSelector":{"x":"1"}}}}"#,
    ));
    assert!(w.apply("a", r#"{"spec":{"template":{"nodeSelector":{"x":"1"}}}}"#));
    assert_eq!(
        w.owners(),
        ["a Apply -: .spec.template.nodeSelector", "u Update -: .spec.data .spec.replicas .spec.unknown.x"]
    );
    assert!(!w.apply("a", r#"{"spec":{"template":{"nodeSelector":{"x":"1"}}}}"#));
}

#[test]
fn kubectl_takes_over_what_it_applied_before() {
    let annotate = |live: &str, last: &str| {
        let mut object = World::typed(live);
        let metadata = object.object_at_mut(&["metadata", "annotations"]).unwrap();
        metadata.insert(last_applied::ANNOTATION, last);
        object.object_at_mut(&["metadata"]).unwrap().insert("uid", "u");
        object
    };
    let last = r#"{"apiVersion":"test/v1","kind":"Deployment","spec":{"replicas":1,"paused":true}}"#;
    let mut w = World::new();
    w.object = Some(annotate(r#"{"spec":{"replicas":1,"paused":false}}"#, last));
    // `replicas` is as kubectl left it, `paused` is not.
    let config = r#"{"metadata":{"annotations":{"n":"<1>"}},"spec":{"replicas":2}}"#;
    w.apply("kubectl", config);
    assert_eq!(w.object.as_ref().unwrap().at(&["spec", "replicas"]), Some(&Value::Int(2)));
    assert!(
        w.owners()[0].starts_with("kubectl Apply 01: .metadata.annotations.n .spec.replicas"),
        "{:?}",
        w.owners()
    );
    assert_eq!(
        w.object.as_ref().unwrap().str_at(&["metadata", "annotations", last_applied::ANNOTATION]),
        Some("{\"apiVersion\":\"test/v1\",\"kind\":\"Deployment\",\"metadata\":{\"annotations\":{\"n\":\"\\u003c1\\u003e\"}},\"spec\":{\"replicas\":2}}\n"),
    );
    assert!(!w.apply("kubectl", config));
    assert_eq!(
        w.conflicts("kubectl", r#"{"spec":{"replicas":2,"paused":true}}"#),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using test/v1: .spec.paused"
    );
    // Not for others, not for another version, not for what cannot be read.
    for (manager, last) in
        [("me", last), ("kubectl", &last.replace("test/v1", "test/v0")), ("kubectl", "{"), ("kubectl", "")]
    {
        let mut w = World::new();
        w.object = Some(annotate(r#"{"spec":{"replicas":1}}"#, last));
        assert!(
            w.conflicts(manager, r#"{"spec":{"replicas":2}}"#).contains(".spec.replicas"),
            "{manager} {last}"
        );
    }
}

/// A kind with a version in which `replicas` is called `count`.
struct TwoVersions<'a> {
    v1: &'a Schema,
    v2: Schema,
    root: TypeId,
}

impl Versions for TwoVersions<'_> {
    fn typed(&self, version: &str) -> Option<(&Schema, TypeId)> {
        match version {
            "test/v1" => Some((self.v1, self.root)),
            "test/v2" => Some((&self.v2, self.root)),
            _ => None,
        }
    }

    fn convert(&self, object: &Value, version: &str) -> Option<Value> {
        let (from, to) = match version {
            "test/v1" => ("count", "replicas"),
            "test/v2" => ("replicas", "count"),
            _ => return None,
        };
        let mut object = object.clone();
        object.as_object_mut()?.insert("apiVersion", version);
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            if let Some(value) = spec.remove(from) {
                spec.insert(to, value);
            }
        }
        Some(object)
    }
}

#[test]
fn ownership_follows_across_versions() {
    let (v1, root) = deployment();
    let (mut v2, _) = deployment();
    for t in &mut v2.types {
        if let schema::Type::Struct(s) = t {
            if s.name == "io.test.DeploymentSpec" {
                let field = s.fields.iter_mut().find(|f| f.name == "replicas").unwrap();
                field.name = "count".into();
                s.index_fields();
            }
        }
    }
    let versions = TwoVersions { v1: &v1, v2, root };
    let kinds = [GVK::new("test", "v1", "Deployment"), GVK::new("test", "v2", "Deployment")];
    let run = |live: Option<&Value>, version: usize, manager: &str, config: &str, force: bool| {
        let (schema, root) = versions.typed(&kinds[version].api_version()).unwrap();
        let context = Context {
            manager,
            time: "2026-01-01T00:00:00Z",
            kind: &kinds[version],
            subresource: "",
            schema,
            root,
            reset: &Reset::Nothing,
            versions: &versions,
        };
        let mut config = json(config);
        config.as_object_mut().unwrap().insert("apiVersion", kinds[version].api_version());
        config.as_object_mut().unwrap().insert("kind", "Deployment");
        apply(live, &config, force, &context).map(|o| {
            o.map(|mut o| {
                o.object_at_mut(&["metadata"]).unwrap().insert("uid", "u");
                o
            })
        })
    };
    let object = run(None, 0, "a", r#"{"spec":{"replicas":1,"paused":true}}"#, false).unwrap().unwrap();
    // Another applier in the other version conflicts with the field by its name in the version of its owner.
    let as_v2 = versions.convert(&object, "test/v2").unwrap();
    let error = run(Some(&as_v2), 1, "b", r#"{"spec":{"count":2}}"#, false).unwrap_err();
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"a\": .spec.replicas");
    // The same applier may change the version: what it leaves out there goes.
    let moved = run(Some(&as_v2), 1, "a", r#"{"spec":{"paused":true}}"#, false).unwrap().unwrap();
    assert_eq!(moved.at(&["spec"]), Some(&json(r#"{"paused":true}"#)));
    let moved = run(Some(&as_v2), 1, "a", r#"{"spec":{"count":1}}"#, false).unwrap().unwrap();
    assert_eq!(moved.at(&["spec"]), Some(&json(r#"{"count":1}"#)));
    // What another one owns in another version stays.
    let shared = run(Some(&as_v2), 1, "b", r#"{"spec":{"count":1}}"#, false).unwrap().unwrap();
    let as_v1 = versions.convert(&shared, "test/v1").unwrap();
    let left = run(Some(&as_v1), 0, "a", r#"{"spec":{"paused":true}}"#, false).unwrap().unwrap();
    assert_eq!(left.at(&["spec"]), Some(&json(r#"{"paused":true,"replicas":1}"#)));
    // Entries of a version that is gone are dropped by the next change.
    let text = |v: &Value| format!("{v:?}");
    let mut old = as_v1.clone();
    let list = r#"[{"manager":"old","operation":"Update","apiVersion":"test/v0","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:size":{}}}}]"#;
    old.object_at_mut(&["metadata"]).unwrap().insert("managedFields", json(list));
    let new = run(Some(&old), 0, "a", r#"{"spec":{"replicas":9}}"#, true).unwrap().unwrap();
    assert!(!text(&new).contains("test/v0"));
}

#[test]
fn scale_shares_the_replicas() {
    let path = vec![path::PathElement::field("spec"), path::PathElement::field("replicas")];
    let paths = [("test/v1", Some(path))];
    let mut w = World::new();
    w.apply("a", r#"{"spec":{"replicas":1,"paused":true}}"#);
    let parent = w.object.as_ref().unwrap().at(&["metadata", "managedFields"]).unwrap().clone();
    let scale = scale::to_scale(Some(&parent), &paths).unwrap().unwrap();
    let entry = &scale.as_array().unwrap()[0];
    assert_eq!(entry.str_at(&["apiVersion"]), Some("autoscaling/v1"));
    assert_eq!(entry.at(&["fieldsV1"]), Some(&json(r#"{"f:spec":{"f:replicas":{}}}"#)));
    // Unchanged through scale: unchanged in the parent.
    assert_eq!(
        scale::to_parent(Some(&parent), Some(&scale), "test/v1", &paths).unwrap().as_ref(),
        Some(&parent)
    );
    // Taken through scale: taken in the parent.
    let taken = json(
        r#"[{"manager":"hpa","operation":"Update","apiVersion":"autoscaling/v1","subresource":"scale","time":"2026-01-01T00:00:09Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}}}]"#,
    );
    let after = scale::to_parent(Some(&parent), Some(&taken), "test/v1", &paths).unwrap().unwrap();
    let managed = Managed::decode(Some(&after)).unwrap();
    let show: Vec<_> = managed
        .entries
        .iter()
        .map(|e| (e.manager.as_str(), e.api_version.as_str(), e.fields.set().len()))
        .collect();
    assert_eq!(show, [("a", "test/v1", 1), ("hpa", "test/v1", 1)]);
    // The one who took them writes them again, in another version.
    let both = [paths[0].clone(), ("test/v2", paths[0].1.clone())];
    let again = scale::to_parent(Some(&after), Some(&taken), "test/v2", &both).unwrap().unwrap();
    let managed = Managed::decode(Some(&again)).unwrap();
    let show: Vec<_> = managed.entries.iter().map(|e| (e.manager.as_str(), e.api_version.as_str())).collect();
    assert_eq!(show, [("a", "test/v1"), ("hpa", "test/v2")]);
    // A version without replicas, and one that is gone.
    assert_eq!(scale::to_scale(Some(&parent), &[("test/v1", None)]).unwrap(), None);
    assert_eq!(scale::to_parent(Some(&parent), None, "test/v2", &[]).unwrap(), None);
}

#[test]
fn the_default_manager_is_the_user_agent() {
    let long = "é".repeat(100);
    let rows = [
        ("me", "kubectl/v1.36", "me"),
        ("", "kubectl/v1.36 (linux/amd64)", "kubectl"),
        ("", "Mozilla 5.0", "Mozilla 5.0"),
        ("", "a\u{7}\u{200b}b\n/", "ab"),
        ("", "", ""),
        ("", &long, &long[..128]),
    ];
    for (manager, agent, want) in rows {
        assert_eq!(manager_or_user_agent(manager, agent), want);
    }
}

#[test]
fn a_create_of_a_built_in_kind_owns_what_upstream_says() {
    let schema = schema::builtin();
    let kind = GVK::new("apps", "v1", "Deployment");
    let context = Context {
        manager: "kubectl-create",
        time: "2026-01-01T00:00:00Z",
        kind: &kind,
        subresource: "",
        schema,
        root: schema.kind(&kind).unwrap(),
        reset: reset::builtin("apps", "deployments", "", true),
        versions: &NoOtherVersions,
    };
    let mut object = json(
        r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"default","labels":{"app":"web"}},
        "spec":{"progressDeadlineSeconds":600,"replicas":1,"revisionHistoryLimit":10,"selector":{"matchLabels":{"app":"web"}},
        "strategy":{"rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"},"type":"RollingUpdate"},
        "template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"image":"nginx","imagePullPolicy":"Always","name":"nginx",
        "ports":[{"containerPort":80,"protocol":"TCP"}],"resources":{},"terminationMessagePath":"/dev/termination-log"}],
        "dnsPolicy":"ClusterFirst","securityContext":{}}}},"status":{"replicas":1}}"#,
    );
    track_update(None, &mut object, &context);
    let fields =
        object.at(&["metadata", "managedFields"]).unwrap().as_array().unwrap()[0].at(&["fieldsV1"]).unwrap();
    assert_eq!(
        fields,
        &json(
            r#"{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:progressDeadlineSeconds":{},"f:replicas":{},"f:revisionHistoryLimit":{},
            "f:selector":{},"f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{},"f:maxUnavailable":{}},"f:type":{}},
            "f:template":{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{".":{},
            "f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},
            "f:resources":{},"f:terminationMessagePath":{}}},"f:dnsPolicy":{},"f:securityContext":{}}}}}"#
        )
    );
}

#[test]
fn a_key_field_that_is_always_there_has_a_default() {
    // In upstream's OpenAPI the name of a container has the default "": a container without one is an
    // element too, for validation to refuse.
    let schema = schema::builtin();
    let kind = GVK::new("", "v1", "Pod");
    let root = schema.kind(&kind).unwrap();
    let config = json(r#"{"spec":{"containers":[{"image":"i"}],"ephemeralContainers":[{"image":"i"}]}}"#);
    let set = extract::field_set(schema, root, &config);
    let shown: Vec<String> = set.paths().iter().map(|p| path::describe(p)).collect();
    assert_eq!(
        shown,
        [
            ".spec.containers[name=\"\"]",
            ".spec.containers[name=\"\"].image",
            ".spec.ephemeralContainers[name=\"\"]",
            ".spec.ephemeralContainers[name=\"\"].image"
        ]
    );
}

#[test]
fn hostile_sizes_cost_no_square_and_no_stack() {
    let (schema, root) = deployment();
    let n = 50_000;
    let list = |from: usize| -> Value {
        let items: Vec<Value> =
            (0..n).map(|i| crate::tree!({ "name": format!("c{}", (i * 7919 + from) % n) })).collect();
        crate::tree!({ "spec": crate::tree!({ "template": crate::tree!({ "containers": items }) }) })
    };
    let (old, new) = (list(0), list(1));
    let mut merged = old.clone();
    merge::merge(&schema, root, &mut merged, &new);
    assert_eq!(merged, new);
    assert!(compare::compare(&schema, root, &old, &new).is_same());
    let set = extract::field_set(&schema, root, &new);
    assert_eq!(set.len(), 2 * n);
    assert_eq!(fields_v1::decode(&fields_v1::encode(&set)).unwrap(), set);

    let entries: Vec<Value> = (0..n)
        .map(|i| crate::tree!({ "manager": format!("m{i}"), "operation": "Update", "apiVersion": "test/v1", "fieldsType": "FieldsV1", "fieldsV1": json(r#"{"f:spec":{"f:replicas":{}}}"#) }))
        .collect();
    let entries = Value::from(entries);
    let mut managed = Managed::decode(Some(&entries)).unwrap();
    managed.cap_updates();
    assert_eq!(managed.entries.len(), MAX_UPDATE_MANAGERS);

    // Nesting below the limit is owned as a whole, and what is written can be read again.
    let mut b = crate::patch::testkit::Builder::default();
    let any = b.scalar(schema::Scalar::Any);
    let root = b.structure("", &[("spec", any, "")]);
    let (schema, root) = b.finish(GVK::new("t", "v1", "T"), root);
    let deep = |leaf: i64| crate::tree!({ "spec": (0..9_000).fold(Value::Int(leaf), |v, _| crate::tree!({ "a": v })) });
    let set = extract::field_set(&schema, root, &deep(1));
    assert_eq!(set.paths().iter().map(Vec::len).max(), Some(MAX_DEPTH));
    assert_eq!(fields_v1::decode(&fields_v1::encode(&set)).unwrap(), set);
    assert_eq!(compare::compare(&schema, root, &deep(1), &deep(2)).modified.len(), 1);
}
