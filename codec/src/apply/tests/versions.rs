//! Other versions and other shapes of an object, what came before server-side apply, and sizes.

use super::*;

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
    // `replicas` is as kubectl applied it, `paused` is not.
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
    // The same applier may change the version: fields that it omits there are removed.
    let moved = run(Some(&as_v2), 1, "a", r#"{"spec":{"paused":true}}"#, false).unwrap().unwrap();
    assert_eq!(moved.at(&["spec"]), Some(&json(r#"{"paused":true}"#)));
    let moved = run(Some(&as_v2), 1, "a", r#"{"spec":{"count":1}}"#, false).unwrap().unwrap();
    assert_eq!(moved.at(&["spec"]), Some(&json(r#"{"count":1}"#)));
    // Fields that another manager owns in another version are kept.
    let shared = run(Some(&as_v2), 1, "b", r#"{"spec":{"count":1}}"#, false).unwrap().unwrap();
    let as_v1 = versions.convert(&shared, "test/v1").unwrap();
    let left = run(Some(&as_v1), 0, "a", r#"{"spec":{"paused":true}}"#, false).unwrap().unwrap();
    assert_eq!(left.at(&["spec"]), Some(&json(r#"{"paused":true,"replicas":1}"#)));
    // Entries of a version that is no longer served are dropped by the next change.
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
    let managed = ManagedFields::decode(Some(&after)).unwrap();
    let show: Vec<_> = managed
        .entries
        .iter()
        .map(|e| (e.manager.as_str(), e.api_version.as_str(), e.fields.set().len()))
        .collect();
    assert_eq!(show, [("a", "test/v1", 1), ("hpa", "test/v1", 1)]);
    // The new owner writes them again, in another version.
    let both = [paths[0].clone(), ("test/v2", paths[0].1.clone())];
    let again = scale::to_parent(Some(&after), Some(&taken), "test/v2", &both).unwrap().unwrap();
    let managed = ManagedFields::decode(Some(&again)).unwrap();
    let show: Vec<_> = managed.entries.iter().map(|e| (e.manager.as_str(), e.api_version.as_str())).collect();
    assert_eq!(show, [("a", "test/v1"), ("hpa", "test/v2")]);
    // A version without replicas, and one that is not served.
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
fn a_create_of_a_built_in_kind_owns_what_it_owns_upstream() {
    let schema = schema::builtin();
    let kind = GVK::new("apps", "v1", "Deployment");
    let context = Context {
        manager: "kubectl-create",
        time: "2026-01-01T00:00:00Z",
        kind: &kind,
        subresource: "",
        schema,
        root: schema.kind(&kind).unwrap(),
        reset: &Reset::Except(&["status"]),
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
    let list = |from: usize, prefix: &str| -> Value {
        let name = |i: usize| format!("{prefix}{}", (i * 7919 + from) % n);
        let items: Vec<Value> = (0..n).map(|i| crate::tree!({ "name": name(i) })).collect();
        crate::tree!({ "spec": crate::tree!({ "template": crate::tree!({ "containers": items }) }) })
    };
    let (old, new) = (list(0, "c"), list(1, "c"));
    let mut merged = old.clone();
    merge::merge(&schema, root, &mut merged, &new);
    assert_eq!(merged, new);
    assert!(compare::compare(&schema, root, &old, &new).is_same());
    let set = extract::field_set(&schema, root, &new);
    assert_eq!(set.len(), 2 * n);
    let fields = fields_v1::encode(&set);
    assert_eq!(fields_v1::decode(&fields).unwrap(), set);
    assert!(fields_v1::has_all_of(&fields, &set));
    assert!(!fields_v1::has_any_of(&fields, &extract::field_set(&schema, root, &list(0, "d"))));
    // The keys of maps are steps to fields.
    let labels = |prefix: &str| {
        let labels: Map = (0..n).map(|i| (format!("{prefix}{i}").into(), "v".into())).collect();
        extract::field_set(&schema, root, &crate::tree!({ "metadata": crate::tree!({ "labels": labels }) }))
    };
    let fields = fields_v1::encode(&labels("a"));
    assert!(fields_v1::has_all_of(&fields, &labels("a")));
    assert!(!fields_v1::has_any_of(&fields, &labels("b")));

    // Two managers of all elements, one in the reverse order of the other; and kubectl, which may take what
    // it applied before.
    let images = |image: &str, reversed: bool| {
        let name = |i: usize| if reversed { n - 1 - i } else { i };
        let items = (0..n).map(|i| format!(r#"{{"name":"c{}","image":"{image}"}}"#, name(i)));
        format!(r#"{{"spec":{{"template":{{"containers":[{}]}}}}}}"#, items.collect::<Vec<_>>().join(","))
    };
    let mut w = World::new();
    w.put("u", &images("a", false));
    assert!(w.try_apply("m", &images("b", true), true).unwrap());
    let mut last = World::typed(&images("b", true));
    last.object_at_mut(&["spec", "template"])
        .unwrap()
        .entry("containers")
        .as_array_mut()
        .unwrap()
        .truncate(n / 2);
    w.change("annotator", |object| {
        let mut text = Vec::new();
        crate::json::write_untyped(&last, &mut text);
        let annotations = object.object_at_mut(&["metadata", "annotations"]).unwrap();
        annotations.insert(last_applied::ANNOTATION, String::from_utf8(text).unwrap());
    });
    let Err(ApplyError::Conflicts(conflicts)) = w.try_apply("kubectl", &images("c", false), false) else {
        panic!("no conflicts");
    };
    assert_eq!(conflicts.0.len(), n - n / 2);

    let entries: Vec<Value> = (0..n)
        .map(|i| crate::tree!({ "manager": format!("m{i}"), "operation": "Update", "apiVersion": "test/v1", "fieldsType": "FieldsV1", "fieldsV1": json(r#"{"f:spec":{"f:replicas":{}}}"#) }))
        .collect();
    let entries = Value::from(entries);
    let mut managed = ManagedFields::decode(Some(&entries)).unwrap();
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
