//! Merging, comparing and naming fields, by tables.

use super::*;

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
