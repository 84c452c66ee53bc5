//! Parts of custom resources with rules of their own: status and scale, generations, lists in lists, rules in
//! CEL.

use http::Method;
use kube::Client;
use plinth_tests::definitions::{definition, establish, with_versions, DEFINITIONS};
use plinth_tests::requests::{call, call_with, fields};
use plinth_tests::server::{shared_with_apis, unique};
use serde_json::{json, Value};

const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

async fn patch(client: &Client, path: &str, media: &str, body: &Value) -> Value {
    let (code, answer) = call_with(client, Method::PATCH, path, media, body.to_string()).await;
    assert!(matches!(code, 200 | 201), "{path} {body}: {answer}");
    answer
}

#[tokio::test]
async fn generations_count_what_is_wanted_and_subresources_keep_to_their_part() {
    let client = shared_with_apis().await.client().await;
    let group = format!("{}.example.com", unique("parts"));
    let spec =
        json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "a": {"type": "string"}}});
    let status = json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "ready": {"type": "boolean"}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status, "data": {"type": "string"}}}});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    let with = json!([{"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}, "scale": scale}}]);
    let without = json!([{"name": "v1", "served": true, "storage": true, "schema": schema}]);
    establish(&client, &with_versions(&group, "Part", "Cluster", with)).await;
    establish(&client, &with_versions(&group, "Whole", "Cluster", without)).await;
    let (parts, wholes) = (format!("/apis/{group}/v1/parts"), format!("/apis/{group}/v1/wholes"));
    let object = |kind: &str| {
        json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": "x", "generation": 9},
            "spec": {"a": "1", "replicas": 1}, "status": {"ready": true}, "data": "d"})
    };
    let (_, made) = call(&client, Method::POST, &parts, Some(&object("Part"))).await;
    assert_eq!((&made["metadata"]["generation"], made.get("status")), (&json!(1), None), "{made}");
    let (_, made) = call(&client, Method::POST, &wholes, Some(&object("Whole"))).await;
    assert_eq!(
        (&made["metadata"]["generation"], &made["status"]["ready"]),
        (&json!(1), &json!(true)),
        "{made}"
    );

    let (one, status, scale) =
        (format!("{parts}/x"), format!("{parts}/x/status"), format!("{parts}/x/scale"));
    // path, merge patch, generation then, what stands at a place then
    let rows: [(&str, Value, i64, &str, Value); 9] = [
        (&one, json!({"spec": {"a": "2"}}), 2, "/spec/a", json!("2")),
        (&one, json!({"metadata": {"labels": {"l": "m"}}}), 2, "/metadata/labels/l", json!("m")),
        // Everything but metadata and status is desired state.
        (&one, json!({"data": "e"}), 3, "/data", json!("e")),
        (&one, json!({"status": {"ready": true}}), 3, "/status", Value::Null),
        (
            &status,
            json!({"status": {"ready": true}, "spec": {"a": "9"}, "data": "f"}),
            3,
            "/status/ready",
            json!(true),
        ),
        (
            &status,
            json!({"metadata": {"labels": {"l": "n"}, "annotations": {"k": "v"}}}),
            3,
            "/metadata/labels/l",
            json!("m"),
        ),
        (&one, json!({"spec": {"a": "2"}}), 3, "/spec/a", json!("2")),
        (&scale, json!({"spec": {"replicas": 4}}), 4, "/spec/replicas", json!(4)),
        (&one, json!({"metadata": {"generation": 70}}), 4, "/data", json!("e")),
    ];
    for (path, body, generation, place, expected) in rows {
        patch(&client, path, MERGE, &body).await;
        let (_, seen) = call(&client, Method::GET, &one, None).await;
        let found = seen.pointer(place).cloned().unwrap_or_default();
        assert_eq!(
            (&seen["metadata"]["generation"], &found),
            (&json!(generation), &expected),
            "{path} {body}: {seen}"
        );
    }
    // Without the subresource the status is like any other member.
    let changed = patch(&client, &format!("{wholes}/x"), MERGE, &json!({"status": {"ready": false}})).await;
    assert_eq!((&changed["metadata"]["generation"], &changed["status"]["ready"]), (&json!(2), &json!(false)));
    for path in ["status", "scale"] {
        assert_eq!(call(&client, Method::GET, &format!("{wholes}/x/{path}"), None).await.0, 404);
    }
    // Each subresource has its owners.
    let owners = |object: &Value| -> Vec<(String, String)> {
        let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        entries.iter().map(|e| (text(e, "manager"), text(e, "subresource"))).collect()
    };
    patch(&client, &format!("{status}?fieldManager=reporter"), MERGE, &json!({"status": {"replicas": 4}}))
        .await;
    patch(&client, &format!("{scale}?fieldManager=scaler"), MERGE, &json!({"spec": {"replicas": 5}})).await;
    let (_, seen) = call(&client, Method::GET, &one, None).await;
    for owner in [("reporter", "status"), ("scaler", "scale")] {
        let owner = (owner.0.to_owned(), owner.1.to_owned());
        assert!(owners(&seen).contains(&owner), "{owner:?}: {seen}");
    }
    // A Scale of another object, and fewer than none.
    let scaled = |name: &str, replicas: i64| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": replicas}});
    let (code, refused) = call(&client, Method::PUT, &scale, Some(&scaled("y", 1))).await;
    assert_eq!(
        (code, refused["message"].as_str()),
        (400, Some("the name of the object (y) does not match the name on the URL (x)"))
    );
    let (code, refused) = call(&client, Method::PUT, &scale, Some(&scaled("x", -1))).await;
    assert_eq!((code, fields(&refused)), (422, vec![".spec.replicas"]), "{refused}");
}

#[tokio::test]
async fn lists_in_maps_and_lists_have_owners_of_their_own() {
    let client = shared_with_apis().await.client().await;
    let group = format!("{}.example.com", unique("nested"));
    let keyed = |properties: Value| {
        let mut properties = properties;
        properties["name"] = json!({"type": "string"});
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": properties}})
    };
    let tags = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    let spec = json!({"type": "object", "properties": {
        "rows": keyed(json!({"tags": tags, "cells": keyed(json!({"v": {"type": "integer"}}))})),
        "shelves": {"type": "object", "additionalProperties": keyed(json!({"v": {"type": "integer"}}))},
        "sets": {"type": "object", "additionalProperties": tags},
        "pairs": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string"}, "port": {"type": "integer", "default": 80}, "v": {"type": "integer"}}}},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
    }});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    establish(&client, &definition(&group, "Nest", "Cluster", schema)).await;
    let path = format!("/apis/{group}/v1/nests/x");
    let apply = async |manager: &str, spec: Value| {
        let body = json!({"apiVersion": format!("{group}/v1"), "kind": "Nest", "metadata": {"name": "x"}, "spec": spec});
        let path = format!("{path}?fieldManager={manager}");
        call_with(&client, Method::PATCH, &path, APPLY, body.to_string()).await
    };
    // manager, what it applies, the spec then
    let rows = [
        (
            "one",
            json!({"rows": [{"name": "a", "tags": ["x"], "cells": [{"name": "c", "v": 1}]}], "shelves": {"s": [{"name": "b", "v": 1}]}, "sets": {"k": ["p"]}, "pairs": [{"name": "n", "v": 1}], "whole": {"w": "1"}}),
            json!({"rows": [{"name": "a", "tags": ["x"], "cells": [{"name": "c", "v": 1}]}], "shelves": {"s": [{"name": "b", "v": 1}]}, "sets": {"k": ["p"]}, "pairs": [{"name": "n", "port": 80, "v": 1}], "whole": {"w": "1"}}),
        ),
        // Another one adds elements everywhere, at each depth.
        (
            "two",
            json!({"rows": [{"name": "a", "tags": ["y"], "cells": [{"name": "d", "v": 2}]}], "shelves": {"s": [{"name": "e", "v": 2}], "t": [{"name": "b"}]}, "sets": {"k": ["q"]}, "pairs": [{"name": "n", "port": 81}]}),
            json!({"rows": [{"name": "a", "tags": ["x", "y"], "cells": [{"name": "c", "v": 1}, {"name": "d", "v": 2}]}], "shelves": {"s": [{"name": "b", "v": 1}, {"name": "e", "v": 2}], "t": [{"name": "b"}]}, "sets": {"k": ["p", "q"]}, "pairs": [{"name": "n", "port": 80, "v": 1}, {"name": "n", "port": 81}], "whole": {"w": "1"}}),
        ),
        // What the first one leaves out goes, what the other one owns stays.
        (
            "one",
            json!({"rows": [{"name": "a"}], "shelves": {"s": []}, "whole": {"w": "1"}}),
            json!({"rows": [{"name": "a", "tags": ["y"], "cells": [{"name": "d", "v": 2}]}], "shelves": {"s": [{"name": "e", "v": 2}], "t": [{"name": "b"}]}, "sets": {"k": ["q"]}, "pairs": [{"name": "n", "port": 81}], "whole": {"w": "1"}}),
        ),
    ];
    for (i, (manager, spec, expected)) in rows.into_iter().enumerate() {
        let (code, seen) = apply(manager, spec).await;
        assert!(matches!(code, 200 | 201), "{i}: {seen}");
        assert_eq!(seen["spec"], expected, "{i}");
    }
    // A map of one owner is owned as a whole; an element deep below is named by its way.
    let (code, conflict) = apply("two", json!({"whole": {"z": "2"}})).await;
    assert_eq!((code, fields(&conflict)), (409, vec![".spec.whole"]), "{conflict}");
    let (code, conflict) = apply("three", json!({"rows": [{"name": "a", "cells": [{"name": "d", "v": 3}]}], "shelves": {"s": [{"name": "e", "v": 3}]}})).await;
    let mut conflicting = fields(&conflict);
    conflicting.sort_unstable();
    assert_eq!(
        (code, conflicting),
        (409, vec![".spec.rows[name=\"a\"].cells[name=\"d\"].v", ".spec.shelves.s[name=\"e\"].v"]),
        "{conflict}"
    );
    // Elements that stand there twice are refused with their place.
    let (code, refused) = apply("two", json!({"pairs": [{"name": "n", "port": 80}, {"name": "n"}]})).await;
    assert!(matches!(code, 400 | 500), "{refused}");
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(message.contains(".spec.pairs: duplicate entries for key [name=\"n\",port=80]"), "{message}");
}

#[tokio::test]
async fn rules_that_cannot_be_kept_are_refused_when_they_are_written() {
    let client = shared_with_apis().await.client().await;
    let group = format!("{}.example.com", unique("rules"));
    let schema = |spec: Value| json!({"type": "object", "properties": {"spec": spec}});
    let ruled = |rule: &str, list: Value| json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}], "properties": {"n": {"type": "integer"}, "list": list}});
    let open = json!({"type": "array", "items": {"type": "string"}});
    let bounded = json!({"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 10}});
    const RULE: &str = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule";
    // rule, list, a part of what is wrong with it
    let rows = [
        ("self.nope == 1", open.clone(), "undefined field 'nope'"),
        ("self.n", open.clone(), "cel expression must evaluate to a bool"),
        ("self.n == 'a'", open.clone(), "found no matching overload for '_==_'"),
        ("self.n ==", open.clone(), "Syntax error"),
        (
            "self.list.all(a, self.list.all(b, a != b))",
            open.clone(),
            "estimated rule cost exceeds budget by factor of more than 100x",
        ),
    ];
    for (rule, list, why) in rows {
        let definition = definition(&group, "Rule", "Cluster", schema(ruled(rule, list)));
        let (code, refused) = call(&client, Method::POST, DEFINITIONS, Some(&definition)).await;
        assert_eq!(code, 422, "{rule}: {refused}");
        let cause = &refused["details"]["causes"][0];
        assert_eq!(cause["field"], RULE, "{refused}");
        assert!(cause["message"].as_str().is_some_and(|message| message.contains(why)), "{rule}: {refused}");
    }
    let path = format!("{DEFINITIONS}/rules.{group}");
    assert_eq!(call(&client, Method::GET, &path, None).await.0, 404, "nothing is stored");
    // With bounds the same rule is accepted, and enforced.
    let rule = "self.list.all(a, self.list.exists_one(b, a == b)) && self.n / 2 * 2 == self.n";
    establish(&client, &definition(&group, "Rule", "Cluster", schema(ruled(rule, bounded)))).await;
    let path = format!("/apis/{group}/v1/rules");
    let object = |name: &str, n: i64, list: &[&str]| json!({"apiVersion": format!("{group}/v1"), "kind": "Rule", "metadata": {"name": name}, "spec": {"n": n, "list": list}});
    assert_eq!(call(&client, Method::POST, &path, Some(&object("good", 2, &["a", "b"]))).await.0, 201);
    for (n, list) in [(3, ["a", "b"]), (2, ["a", "a"])] {
        let (code, refused) = call(&client, Method::POST, &path, Some(&object("bad", n, &list))).await;
        assert_eq!((code, fields(&refused)), (422, vec!["spec"]), "{refused}");
    }
    let (_, list) = call(&client, Method::GET, &path, None).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn empty_applied_metadata_is_removed_and_deletions_answer_with_the_last_state() {
    let client = shared_with_apis().await.client().await;
    let group = format!("{}.example.com", unique("gone"));
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    establish(&client, &definition(&group, "Leaf", "Cluster", schema)).await;
    let path = format!("/apis/{group}/v1/leafs/x");
    let mut object = json!({"apiVersion": format!("{group}/v1"), "kind": "Leaf", "spec": {"kept": {}},
        "metadata": {"name": "x", "labels": {}, "annotations": {}, "finalizers": [], "ownerReferences": []}});
    let applied = patch(&client, &format!("{path}?fieldManager=one"), APPLY, &object).await;
    for seen in [&applied, &call(&client, Method::GET, &path, None).await.1] {
        for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
            assert_eq!(seen["metadata"].get(field), None, "{seen}");
        }
        assert_eq!(seen["spec"], json!({"kept": {}}));
    }
    let owned = &applied["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"];
    assert_eq!(owned, &json!({"f:annotations": {}, "f:labels": {}}), "who said so owns it all the same");

    // The write that removes the last finalizer is answered with the object as sent.
    object["metadata"] = json!({"name": "x", "finalizers": ["example.com/hold"]});
    patch(&client, &format!("{path}?fieldManager=one"), APPLY, &object).await;
    let (code, held) = call(&client, Method::DELETE, &path, None).await;
    assert!(code == 200 && held["metadata"].get("deletionTimestamp").is_some(), "{held}");
    let last = patch(&client, &path, MERGE, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(last["metadata"]["resourceVersion"], held["metadata"]["resourceVersion"]);
    assert_eq!(call(&client, Method::GET, &path, None).await.0, 404);

    // A deletion that is answered with the object has the revision of the deletion.
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let name = unique("gone");
    let revision = |answer: (u16, Value)| -> u64 {
        answer.1["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap()
    };
    let account = json!({"metadata": {"name": name}});
    let made = revision(call(&client, Method::POST, accounts, Some(&account)).await);
    let gone = revision(call(&client, Method::DELETE, &format!("{accounts}/{name}"), None).await);
    assert!(gone > made, "{gone} {made}");
}

/// Numbers of a schema are doubles, and integers where they are read from the store.
#[tokio::test]
async fn a_definition_that_is_replaced_by_itself_does_not_change() {
    let client = shared_with_apis().await.client().await;
    let group = format!("{}.example.com", unique("itself"));
    let number = json!({"type": "number", "minimum": 1, "maximum": 2.5, "multipleOf": 0.5, "default": 2});
    let count = json!({"type": "integer", "minimum": 0, "maximum": 10.0, "enum": [0, 5, 10]});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"n": number, "c": count}}});
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": schema}]);
    let mut itself = with_versions(&group, "Itself", "Cluster", versions);
    itself["metadata"]["creationTimestamp"] = Value::Null;
    itself["metadata"]["annotations"] = json!({});
    establish(&client, &itself).await;
    let path = format!("{DEFINITIONS}/{}", itself["metadata"]["name"].as_str().expect("a name"));
    let (_, before) = call(&client, Method::GET, &path, None).await;
    let at = |version: &Value| {
        let mut itself = itself.clone();
        itself["metadata"]["resourceVersion"] = version["metadata"]["resourceVersion"].clone();
        itself
    };
    let (code, after) = call(&client, Method::PUT, &path, Some(&at(&before))).await;
    assert_eq!(code, 200, "{after}");
    assert_eq!(after["metadata"], before["metadata"]);
    let mut applied = itself.clone();
    applied["metadata"].as_object_mut().expect("an object").remove("creationTimestamp");
    let again = format!("{path}?fieldManager=itself&force=true");
    let first = patch(&client, &again, APPLY, &applied).await;
    let second = patch(&client, &again, APPLY, &applied).await;
    assert_eq!(first["metadata"]["generation"], before["metadata"]["generation"]);
    assert_eq!(second["metadata"], first["metadata"]);
    // The apply has a manager of its own, which is a change once.
    let (code, there) = call(&client, Method::PUT, &path, Some(&at(&second))).await;
    assert_eq!(code, 200, "{there}");
    assert_eq!(there["metadata"]["generation"], before["metadata"]["generation"]);
    assert_eq!(there["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
}

/// The rules before it are evaluated, the rule itself and none after it (k8s.io/apiextensions-apiserver
/// `pkg/apiserver/schema/cel/validation.go`).
#[tokio::test]
async fn a_rule_that_runs_out_of_its_cost_ends_the_evaluation() {
    let client = shared_with_apis().await.client().await;
    let group = format!("{}.example.com", unique("cost"));
    const COSTLY: &str = "self.large.all(x, self.large.all(y, y == x))";
    let rules = json!([{"rule": "self.x > 0"}, {"rule": COSTLY}, {"rule": "self.y > 0"}]);
    let integers = json!({"type": "array", "maxItems": 725, "items": {"type": "integer"}});
    let spec = json!({
        "type": "object",
        "x-kubernetes-validations": rules,
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}, "large": integers},
    });
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    establish(&client, &definition(&group, "Cost", "Cluster", schema)).await;
    let object = |spec: Value| json!({"apiVersion": format!("{group}/v1"), "kind": "Cost", "metadata": {"name": "a"}, "spec": spec});
    let path = format!("/apis/{group}/v1/costs");
    let large = object(json!({"large": vec![20; 725]}));
    let (code, refused) = call(&client, Method::POST, &path, Some(&large)).await;
    let causes = refused["details"]["causes"].as_array().cloned().unwrap_or_default();
    let messages: Vec<&str> = causes.iter().filter_map(|cause| cause["message"].as_str()).collect();
    let out_of_cost = format!(
        "Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation rules \
         will be run due to call cost exceeds limit for rule: {COSTLY}"
    );
    let expected = ["Invalid value: \"object\": no such key: x evaluating rule: self.x > 0", &out_of_cost];
    assert_eq!((code, messages), (422, expected.to_vec()), "{refused}");
    assert!(causes.iter().all(|cause| cause["field"] == "spec"), "{refused}");
    let small = object(json!({"x": 1, "y": 1, "large": vec![20; 7]}));
    assert_eq!(call(&client, Method::POST, &path, Some(&small)).await.0, 201);
}
