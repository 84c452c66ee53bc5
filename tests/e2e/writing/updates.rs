//! Updates: conflicts, generations, ownership through subresources, malformed patches, objects that are too
//! large.

use futures::stream::{self, StreamExt};
use plinth_tests::requests::{create, send, send_bytes, Answer};
use plinth_tests::samples::pod;
use plinth_tests::server::{namespace, shared};
use serde_json::{json, Value};

#[tokio::test]
async fn what_does_not_fit_into_the_storage_is_refused() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "oversized").await;
    // Defaults make each port three times as long.
    let ports: Vec<Value> = (1..50_000).map(|i| json!({"name": format!("p{i}"), "port": i})).collect();
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": ports}});
    let services = format!("/api/v1/namespaces/{namespace}/services");
    let refused = send(&client, "POST", &services, &service).await;
    assert_eq!(
        (refused.code, refused.text_at("/reason")),
        (413, "RequestEntityTooLarge"),
        "{}",
        refused.body
    );
    assert!(
        refused.text_at("/message").starts_with("Request entity too large: value has "),
        "{}",
        refused.body
    );
}

/// Manager, operation and subresource of the owners of a deployment's replicas, and whether each owns
/// anything else.
fn owners_of_replicas(deployment: &Value) -> Vec<(String, String, String)> {
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let entries = deployment["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let owning = entries.iter().filter(|entry| entry["fieldsV1"]["f:spec"].get("f:replicas").is_some());
    owning.map(|e| (text(e, "manager"), text(e, "operation"), text(e, "subresource"))).collect()
}

#[tokio::test]
async fn replicas_are_owned_through_scale_as_through_the_parent() {
    let server = shared().await;
    let client = server.client().await;
    let namespace = namespace(&client, "scale").await;
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/web");
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "registry.example/x:1"}]},
            },
        },
    });
    let scale = |replicas: u32| {
        json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"},
            "spec": {"replicas": replicas},
        })
    };
    let owner = |manager: &str, operation: &str, subresource: &str| {
        vec![(manager.to_owned(), operation.to_owned(), subresource.to_owned())]
    };
    let live = || async { send(&client, "GET", &path, &Value::Null).await.body };
    let answer = send(&client, "APPLY", &format!("{path}?fieldManager=one"), &deployment).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    let refused = send(&client, "APPLY", &format!("{path}/scale?fieldManager=two"), &scale(5)).await;
    assert_eq!((refused.code, refused.text_at("/details/causes/0/field")), (409, ".spec.replicas"));
    assert_eq!(
        refused.text_at("/message"),
        "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas"
    );
    assert_eq!(live().await["spec"]["replicas"], 3);
    let forced = format!("{path}/scale?fieldManager=two&force=true");
    let answer = send(&client, "APPLY", &forced, &scale(5)).await;
    assert_eq!((answer.code, answer.text_at("/kind")), (200, "Scale"), "{}", answer.body);
    assert_eq!(answer.body["spec"]["replicas"], 5);
    assert!(answer.body["metadata"].get("managedFields").is_none());
    let after = live().await;
    assert_eq!(owners_of_replicas(&after), owner("two", "Apply", "scale"));
    let again = send(&client, "APPLY", &forced, &scale(5)).await;
    assert_eq!(again.code, 200);
    assert_eq!(live().await["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
    let answer = send(&client, "PUT", &format!("{path}/scale?fieldManager=three"), &scale(2)).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert_eq!(owners_of_replicas(&live().await), owner("three", "Update", "scale"));
    let refused = send(&client, "APPLY", &format!("{path}?fieldManager=one"), &deployment).await;
    assert_eq!(refused.code, 409);
    assert!(refused.text_at("/message").contains("conflict with \"three\" with subresource \"scale\""));
    let forced = format!("{path}?fieldManager=one&force=true");
    assert_eq!(send(&client, "APPLY", &forced, &deployment).await.code, 200);
    assert_eq!(owners_of_replicas(&live().await), owner("one", "Apply", ""));
    let absent = format!("/apis/apps/v1/namespaces/{namespace}/deployments/none/scale?fieldManager=one");
    assert_eq!(send(&client, "APPLY", &absent, &scale(1)).await.code, 404);
}

/// k8s.io/apiserver `pkg/storage/etcd3/store.go` (`Create`) and `pkg/registry/generic/registry/store.go`
/// (`Update`).
#[tokio::test]
async fn a_resource_version_of_zero_is_none() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "zero").await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let map = |name: &str, version: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": version},
            "data": {"a": "1"},
        })
    };
    const SET: &str = "resourceVersion should not be set on objects to be created";
    // name, version, query, code of a POST, part of the message
    for (name, version, query, code, message) in [
        ("none", "", "", 201, ""),
        ("zero", "0", "", 201, ""),
        ("zeros", "00", "", 201, ""),
        // What is no number counts as none.
        ("text", "x", "", 201, ""),
        ("signed", "+5", "", 201, ""),
        ("huge", "18446744073709551616", "", 201, ""),
        ("set", "5", "", 500, SET),
        ("set", "5", "?dryRun=All", 201, ""),
        // Before the name is looked up, and after the object is validated.
        ("zero", "5", "", 500, SET),
        ("Bad_Name", "5", "", 422, "metadata.name"),
    ] {
        let answer = send(&client, "POST", &format!("{maps}{query}"), &map(name, version)).await;
        assert_eq!(answer.code, code, "{name} {version}: {}", answer.body);
        assert!(answer.text_at("/message").contains(message), "{}", answer.body);
        if code == 201 && query.is_empty() {
            let stored = answer.text_at("/metadata/resourceVersion");
            assert!(stored.parse::<u64>().is_ok_and(|stored| stored > 0), "{}", answer.body);
        }
    }
    // An update by an absent version or zero is unconditional.
    for (version, code, message) in [
        ("", 200, ""),
        ("0", 200, ""),
        ("00", 200, ""),
        ("1", 409, "the object has been modified"),
        ("x", 500, "strconv.ParseUint: parsing \"x\": invalid syntax"),
        ("+5", 500, "strconv.ParseUint: parsing \"+5\": invalid syntax"),
        (
            "18446744073709551616",
            500,
            "strconv.ParseUint: parsing \"18446744073709551616\": value out of range",
        ),
    ] {
        let answer = send(&client, "PUT", &format!("{maps}/zero"), &map("zero", version)).await;
        assert_eq!(answer.code, code, "{version}: {}", answer.body);
        assert!(answer.text_at("/message").contains(message), "{}", answer.body);
    }
    // What an apply or an update creates may have any version that is a number.
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    for (number, (version, code)) in [("0", 201), ("5", 201), ("x", 500)].into_iter().enumerate() {
        let name = format!("made-{number}");
        let applied = format!("{maps}/{name}?fieldManager=one");
        let answer = send(&client, "APPLY", &applied, &map(&name, version)).await;
        assert_eq!(answer.code, code, "{version}: {}", answer.body);
        let lease = json!({"metadata": {"name": name, "resourceVersion": version}, "spec": {}});
        let answer = send(&client, "PUT", &format!("{leases}/{name}"), &lease).await;
        assert_eq!(answer.code, code, "{version}: {}", answer.body);
    }
}

/// k8s.io/apimachinery `pkg/util/managedfields/internal/fieldmanager.go`, `isResetManagedFields`.
#[tokio::test]
async fn an_empty_list_of_managed_fields_strips_them() {
    let client = shared().await.client().await;
    let maps = format!("/api/v1/namespaces/{}/configmaps", namespace(&client, "reset").await);
    // the list, whether the owners go
    for (n, (sent, strips)) in
        [(json!([]), true), (json!([{}]), true), (Value::Null, false)].into_iter().enumerate()
    {
        let created =
            create(&client, &maps, &json!({"metadata": {"name": format!("m{n}")}, "data": {"a": "1"}})).await;
        assert!(created["metadata"]["managedFields"].is_array(), "{created}");
        let mut put = created.clone();
        put["metadata"]["managedFields"] = sent.clone();
        put["data"]["a"] = json!("2");
        let answer = send(&client, "PUT", &format!("{maps}/m{n}"), &put).await;
        assert_eq!(answer.code, 200, "{}", answer.body);
        let left = answer.body["metadata"].get("managedFields");
        assert_eq!(left.is_none(), strips, "{sent}: {left:?}");
        // An object without owners stays so until it is applied.
        put["metadata"] = answer.body["metadata"].clone();
        put["data"]["a"] = json!("3");
        let answer = send(&client, "PUT", &format!("{maps}/m{n}"), &put).await;
        assert_eq!(answer.body["metadata"].get("managedFields").is_none(), strips, "{sent}");
    }
}

#[tokio::test]
async fn of_many_puts_of_a_revision_one_succeeds() {
    const WRITERS: usize = 16;
    const ROUNDS: usize = 20;
    let client = shared().await.client().await;
    let maps = format!("/api/v1/namespaces/{}/configmaps", namespace(&client, "puts").await);
    let mut live = create(&client, &maps, &json!({"metadata": {"name": "m"}})).await;
    for round in 0..ROUNDS {
        let (client, maps, base) = (&client, &maps, &live);
        let answers: Vec<Answer> = stream::iter(0..WRITERS)
            .map(|i| async move {
                let mut new = base.clone();
                new["data"] = json!({"by": format!("{round}-{i}")});
                send(client, "PUT", &format!("{maps}/m"), &new).await
            })
            .buffer_unordered(WRITERS)
            .collect()
            .await;
        let mut won = answers.into_iter().filter(|answer| {
            assert!(matches!(answer.code, 200 | 409), "{}", answer.body);
            answer.code == 200
        });
        let winner = won.next().expect("one succeeds").body;
        assert_eq!(won.count(), 0, "round {round}");
        live = winner;
    }
}

/// What kube-apiserver counts as a change of the desired state: an empty struct where none was, but no empty
/// list or map, and nothing that defaults fill in again.
#[tokio::test]
async fn a_generation_counts_what_is_wanted_and_nothing_that_is_empty() {
    let server = shared().await;
    let client = server.client().await;
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", namespace(&client, "generation").await);
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": pod("x")["spec"] });
    let spec = json!({ "selector": { "matchLabels": { "a": "b" } }, "template": template });
    create(&client, &path, &json!({ "metadata": { "name": "d" }, "spec": spec })).await;
    let template = |spec: Value| json!({ "spec": { "template": { "spec": spec } } });
    let mut generation = 1;
    // patch, by how much
    let rows = [
        (template(json!({ "volumes": [], "nodeSelector": {}, "tolerations": [] })), 0),
        (template(json!({ "affinity": {} })), 1),
        (template(json!({ "affinity": { "nodeAffinity": {} } })), 1),
        (template(json!({ "affinity": null })), 1),
        (template(json!({ "securityContext": {} })), 0),
        (template(json!({ "securityContext": null, "dnsPolicy": null, "restartPolicy": null })), 0),
        (json!({ "spec": { "strategy": null, "replicas": null, "revisionHistoryLimit": null } }), 0),
        (json!({ "spec": { "minReadySeconds": 0, "paused": false } }), 0),
        (json!({ "metadata": { "labels": { "x": "y" }, "generation": 9 }, "status": { "replicas": 5 } }), 0),
        (json!({ "metadata": { "annotations": { "x": "y" } } }), 1),
        (json!({ "spec": { "replicas": 2 } }), 1),
    ];
    for (patch, change) in rows {
        let patched = send(&client, "MERGE", &format!("{path}/d"), &patch).await;
        generation += change;
        assert_eq!(
            (patched.code, &patched.body["metadata"]["generation"]),
            (200, &json!(generation)),
            "{patch}"
        );
        // The same by PUT of what was answered.
        let put = send(&client, "PUT", &format!("{path}/d"), &patched.body).await;
        assert_eq!((put.code, &put.body["metadata"]["generation"]), (200, &json!(generation)), "{patch}");
    }
}

/// Patches that cannot be what was meant, with kube-apiserver's codes, reasons and texts.
#[tokio::test]
async fn malformed_patches_are_refused_in_upstreams_words() {
    let server = shared().await;
    let client = server.client().await;
    let path = format!("/api/v1/namespaces/{}/serviceaccounts", namespace(&client, "malformed").await);
    let owners = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u" }]);
    let metadata = json!({ "name": "s", "finalizers": ["example.com/a"], "ownerReferences": owners });
    create(&client, &path, &json!({ "metadata": metadata, "secrets": [{ "name": "a" }] })).await;
    let path = format!("{path}/s?dryRun=All");
    let at_metadata = |change: Value| json!({ "metadata": change });
    let wrong =
        |patch: &str, what: &str| format!(" \"\" is invalid: patch: Invalid value: \"{patch}\": {what}");
    // kind of patch, patch, code, reason, message or its end
    let rows = [
        ("PATCH", at_metadata(json!([])), 422, "Invalid", wrong("map[metadata:[]]", "cannot restore struct from: slice")),
        ("PATCH", at_metadata(json!({ "labels": { "a": true } })), 422, "Invalid", wrong("map[metadata:map[labels:map[a:true]]]", "unrecognized type: string")),
        ("PATCH", at_metadata(json!({ "finalizers": "x" })), 422, "Invalid", wrong("map[metadata:map[finalizers:x]]", "cannot restore slice from string")),
        ("PATCH", at_metadata(json!({ "finalizers": [1] })), 500, "", "list element types are not identical: [[example.com/a] [1]]".into()),
        ("PATCH", at_metadata(json!({ "ownerReferences": [{ "x": 1 }] })), 500, "", "map: map[x:1] does not contain declared merge key: uid".into()),
        ("PATCH", at_metadata(json!({ "$patch": 1 })), 500, "", "unknown patch type: %!s(int64=1) in map: map[$patch:1]".into()),
        ("PATCH", at_metadata(json!({ "$retainKeys": "x" })), 400, "BadRequest", "invalid patch format of retainKeys".into()),
        ("PATCH", json!([]), 400, "BadRequest", "json: cannot unmarshal array into Go value of type map[string]interface {}".into()),
        ("MERGE", json!({ "kind": 1 }), 422, "Invalid", "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string".into()),
        ("MERGE", json!([]), 400, "BadRequest", "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}".into()),
        ("JSON", json!([{ "op": 1 }]), 400, "BadRequest", "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string".into()),
        ("JSON", json!([{ "op": "test", "path": "/kind", "value": "ServiceAccount", "from": 1 }]), 400, "BadRequest", "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.from of type string".into()),
        ("JSON", json!([{ "op": "remove", "path": "/secrets/-" }]), 422, "Invalid", "the server rejected our request due to an error in our request".into()),
    ];
    for (how, patch, code, reason, message) in rows {
        let answer = send(&client, how, &path, &patch).await;
        assert_eq!((answer.code, answer.text_at("/reason")), (code, reason), "{patch}: {}", answer.body);
        assert!(answer.text_at("/message").ends_with(&message), "{patch}: {}", answer.body);
    }
    // A strategic merge patch's `kind` is ignored.
    for patch in [json!({ "kind": "Pod", "apiVersion": "v7" }), json!({ "kind": null }), Value::Null] {
        let text = patch.to_string();
        let answer = send_bytes(&client, "PATCH", &path, text.into_bytes()).await;
        assert_eq!(
            (answer.code, answer.text_at("/kind")),
            (200, "ServiceAccount"),
            "{patch}: {}",
            answer.body
        );
    }
}
