//! Ownership: updates, resets, entries that are malformed, old or too many.

use super::*;

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
    // Writing the same value does not change ownership.
    let before = w.object.clone();
    w.change("other", |o| drop(o.object_at_mut(&["spec"]).unwrap().insert("replicas", 5)));
    assert_eq!(w.object, before);
    // Removed fields have no owner.
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
    // If omitted, it stays with the updater.
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
    // Ownership cannot be written through a subresource.
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
    let encoded = ManagedFields::decode(Some(&shuffled.into())).unwrap().encode().unwrap();
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
        assert_eq!(ManagedFields::decode(Some(&json(text))).unwrap_err().to_string(), want, "{text}");
    }
    // Of two entries of one manager the later one is kept; an applier's version does not make it another one.
    let list = json(
        r#"[{"manager":"a","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:a":{}}},
            {"manager":"a","operation":"Apply","apiVersion":"v2","fieldsType":"FieldsV1","fieldsV1":{"f:b":{}}},
            {"manager":"a","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:c":{}}},
            {"manager":"a","operation":"Update","apiVersion":"v2","fieldsType":"FieldsV1","fieldsV1":{"f:d":{}}}]"#,
    );
    let managed = ManagedFields::decode(Some(&list)).unwrap();
    let entries: Vec<_> = managed.entries.iter().map(|e| (e.operation, e.api_version.as_str())).collect();
    assert_eq!(
        entries,
        [
            (ManagedFieldsOperationType::Apply, "v2"),
            (ManagedFieldsOperationType::Update, "v1"),
            (ManagedFieldsOperationType::Update, "v2")
        ]
    );
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
        // Non-string values are shown in Go syntax, and keys without braces.
        (r#"{"spec":{"strategy":{"type":[1,"a",{"b":true,"c":1.5,"d":null}]}}}"#, ".spec.strategy.type: expected string, got &value.valueUnstructured{Value:[]interface {}{1, \"a\", map[string]interface {}{\"b\":true, \"c\":1.5, \"d\":interface {}(nil)}}}"),
        (r#"{"spec":{"template":{"containers":[{"name":{"a":1,"b":[2,"c"]}}]}}}"#, ".spec.template.containers[name=a=1b=[2,\"c\"]].name: expected string, got &value.valueUnstructured{Value:map[string]interface {}{\"a\":1, \"b\":[]interface {}{2, \"c\"}}}"),
        // A list is not checked further after an element without a name.
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
    w.reset = Reset::Except(&["status"]);
    w.put("u", r#"{"spec":{"replicas":1},"status":{"replicas":1}}"#);
    assert_eq!(w.owners(), ["u Update 01: .spec .spec.replicas"]);
    w.apply("a", r#"{"spec":{"paused":true},"status":{"replicas":7}}"#);
    assert_eq!(w.owners(), ["a Apply 02: .spec.paused", "u Update 01: .spec .spec.replicas"]);
    w.reset = Reset::Except(&["spec", "metadata"]);
    w.subresource = "status";
    w.apply("a", r#"{"metadata":{"labels":{"l":"1"}},"status":{"replicas":7}}"#);
    assert_eq!(w.owners()[1], "a/status Apply 03: .status.replicas");
}
