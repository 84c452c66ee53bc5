//! Pods, nodes and their subresources: binding, status, eviction, resize, scheduling gates.

use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::eventually;
use plinth_tests::requests::{create, send, Answer};
use plinth_tests::samples::pod;
use plinth_tests::server::{namespace, shared, shared_with_apis, unique};
use serde_json::{json, Value};

#[tokio::test]
async fn a_pod_is_bound_once() {
    let client = shared().await.client().await;
    let pods = format!("/api/v1/namespaces/{}/pods", namespace(&client, "binding").await);
    let made = create(&client, &pods, &pod("p")).await;
    let bind = |node: &str, uid: &str| {
        json!({
            "metadata": {"name": "p", "uid": uid, "annotations": {"by": "test"}},
            "target": {"kind": "Node", "name": node},
        })
    };
    let path = format!("{pods}/p/binding");
    let wrong = send(&client, "POST", &path, &bind("n1", "other")).await;
    assert_eq!((wrong.code, wrong.text_at("/reason")), (409, "Conflict"), "{}", wrong.body);
    let uid = made["metadata"]["uid"].as_str().expect("uid");
    let dry = send(&client, "POST", &format!("{path}?dryRun=All"), &bind("n1", uid)).await;
    assert_eq!(dry.code, 201);
    let bound = send(&client, "POST", &path, &bind("n1", uid)).await;
    assert_eq!((bound.code, bound.text_at("/status")), (201, "Success"), "{}", bound.body);
    let pod = send(&client, "GET", &format!("{pods}/p"), &Value::Null).await;
    assert_eq!((pod.text_at("/spec/nodeName"), pod.text_at("/metadata/annotations/by")), ("n1", "test"));
    let condition = &pod.body["status"]["conditions"][0];
    assert_eq!(
        (condition["type"].as_str(), condition["status"].as_str()),
        (Some("PodScheduled"), Some("True"))
    );
    let again = send(&client, "POST", &path, &bind("n2", "")).await;
    assert_eq!(again.code, 409);
    assert_eq!(
        again.text_at("/message"),
        r#"Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1""#
    );
}

#[tokio::test]
async fn a_node_registers_with_its_status() {
    let client = shared().await.client().await;
    let name = unique("node");
    let status =
        json!({ "allocatable": { "cpu": "8" }, "conditions": [{ "type": "Ready", "status": "True" }] });
    let node = json!({ "metadata": { "name": name }, "status": status });
    let made = create(&client, "/api/v1/nodes", &node).await;
    assert_eq!(made.pointer("/status/allocatable/cpu"), Some(&json!("8")), "{made}");
    assert_eq!(made.pointer("/status/conditions/0/type"), Some(&json!("Ready")), "{made}");
    // A change of the node is not one of its status.
    let mut changed = made.clone();
    changed["status"]["allocatable"]["cpu"] = json!("16");
    let put = send(&client, "PUT", &format!("/api/v1/nodes/{name}"), &changed).await;
    assert_eq!(put.text_at("/status/allocatable/cpu"), "8");
    send(&client, "DELETE", &format!("/api/v1/nodes/{name}"), &Value::Null).await;
}

#[tokio::test]
async fn a_budget_lets_evictions_pass_one_by_one() {
    let access = shared().await;
    let client = access.client().await;
    let namespace = namespace(&client, "eviction").await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let budgets = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
    for name in ["a", "b"] {
        let mut pod = pod(name);
        pod["spec"]["nodeName"] = json!("n1");
        create(&client, &pods, &pod).await;
        let running =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(send(&client, "PATCH", &format!("{pods}/{name}/status"), &running).await.code, 200);
    }
    let selector = json!({"matchLabels": {"app": "x"}});
    create(
        &client,
        &budgets,
        &json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": selector}}),
    )
    .await;
    // A client of `kube` would try again by itself whenever the server asks it to.
    let mut connection = access.connect(Protocol::Http1).await;
    let mut evict = async |name: &str, query: &str| {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        let call = Call::new(http::Method::POST, format!("{pods}/{name}/eviction{query}"));
        let reply = connection.call(&call.body("application/json", body.to_string())).await.expect("answer");
        let body = serde_json::from_slice(&reply.body).unwrap_or(Value::Null);
        Answer { code: reply.status.as_u16(), body, text: reply.text(), warnings: Vec::new() }
    };
    let early = evict("a", "").await;
    assert_eq!(
        (early.code, early.text_at("/details/causes/0/reason")),
        (429, "DisruptionBudget"),
        "{}",
        early.body
    );
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
    }});
    assert_eq!(send(&client, "PATCH", &format!("{budgets}/b/status"), &status).await.code, 200);
    let dry = evict("a", "?dryRun=All").await;
    assert_eq!(dry.code, 201, "{}", dry.body);
    for options in [
        json!({"propagationPolicy": "bogus"}),
        json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
        json!({"dryRun": ["foo"]}),
    ] {
        let eviction = json!({"metadata": {"name": "a"}, "deleteOptions": options});
        let refused = send(&client, "POST", &format!("{pods}/a/eviction"), &eviction).await;
        let of = (refused.code, refused.text_at("/details/kind"));
        assert_eq!(of, (422, "DeleteOptions"), "{options}: {}", refused.body);
    }
    let first = evict("a", "").await;
    assert_eq!(first.code, 201, "{}", first.body);
    let budget = send(&client, "GET", &format!("{budgets}/b"), &Value::Null).await.body;
    assert_eq!(budget["status"]["disruptionsAllowed"], json!(0));
    assert!(budget["status"]["disruptedPods"]["a"].is_string(), "{budget}");
    let going = send(&client, "GET", &format!("{pods}/a"), &Value::Null).await.body;
    assert!(going["metadata"]["deletionTimestamp"].is_string(), "{going}");
    assert!(going["status"]["conditions"].to_string().contains("EvictionByEvictionAPI"), "{going}");
    let second = evict("b", "").await;
    assert_eq!((second.code, second.text_at("/reason")), (429, "TooManyRequests"));
}

/// Admission is asked about the eviction, as by upstream, and not about the deletion that follows from it: a
/// policy on deletions does not keep a node from being drained, and leaves nothing half done.
#[tokio::test]
async fn an_eviction_is_admitted_as_an_eviction() {
    let access = shared_with_apis().await;
    let client = access.client().await;
    let namespace = namespace(&client, "evicted").await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let api = "/apis/admissionregistration.k8s.io/v1";
    let name = format!("no-deletions-{namespace}");
    let policy = |operation: &str, resource: &str| {
        json!({"metadata": {"name": format!("{name}-{}", operation.to_lowercase())}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": [operation], "resources": [resource]}]},
            "validations": [{"expression": "object != null && object.metadata.name == 'leaves'",
                "message": format!("no {operation}")}],
        }})
    };
    for policy in [policy("DELETE", "pods"), policy("CREATE", "pods/eviction")] {
        create(&client, &format!("{api}/validatingadmissionpolicies"), &policy).await;
        let of_here = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
        let binding = json!({"metadata": {"name": policy["metadata"]["name"]}, "spec": {
            "policyName": policy["metadata"]["name"], "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": of_here}}});
        create(&client, &format!("{api}/validatingadmissionpolicybindings"), &binding).await;
    }
    for pod_name in ["leaves", "stays"] {
        create(&client, &pods, &pod(pod_name)).await;
    }
    eventually("policies are in force", || async {
        send(&client, "DELETE", &format!("{pods}/leaves?dryRun=All"), &Value::Null).await.code == 422
    })
    .await;
    for (pod_name, code) in [("stays", 422), ("leaves", 201)] {
        let eviction = json!({"metadata": {"name": pod_name}});
        let answer = send(&client, "POST", &format!("{pods}/{pod_name}/eviction"), &eviction).await;
        assert_eq!(answer.code, code, "{pod_name}: {}", answer.text);
    }
    let stayed = send(&client, "GET", &format!("{pods}/stays"), &Value::Null).await;
    assert!(stayed.code == 200 && !stayed.text.contains("DisruptionTarget"), "{}", stayed.text);
    let left = send(&client, "GET", &format!("{pods}/leaves"), &Value::Null).await;
    assert!(left.code == 404 || left.text.contains("deletionTimestamp"), "{}", left.text);
}

/// Clients of old send evictions in the version that has no resources any more.
#[tokio::test]
async fn evictions_come_in_two_versions() {
    let client = shared().await.client().await;
    let pods = format!("/api/v1/namespaces/{}/pods", namespace(&client, "versions").await);
    // version, code
    for (version, code) in [("v1", 201), ("v1beta1", 201), ("v1alpha1", 400)] {
        create(&client, &pods, &pod(version)).await;
        let eviction = |version: &str, name: &str| {
            json!({"apiVersion": format!("policy/{version}"), "kind": "Eviction", "metadata": {"name": name},
                "deleteOptions": {"gracePeriodSeconds": 0}})
        };
        let path = format!("{pods}/{version}");
        let answer = send(&client, "POST", &format!("{path}/eviction"), &eviction(version, version)).await;
        assert_eq!(answer.code, code, "{version}: {}", answer.text);
        let is_there = send(&client, "GET", &path, &Value::Null).await.code == 200;
        assert_eq!(is_there, code == 400, "{version}");
        let mut other = eviction(version, version);
        other["kind"] = json!("PodDisruptionBudget");
        let answer = send(&client, "POST", &format!("{path}/eviction"), &other).await;
        assert_eq!(answer.code, 400, "{version}: {}", answer.text);
    }
}

#[tokio::test]
async fn what_is_fixed_once_a_pod_is_there() {
    let client = shared().await.client().await;
    let pods = format!("/api/v1/namespaces/{}/pods", namespace(&client, "fixed").await);
    create(&client, &pods, &pod("p")).await;
    let container = |more: Value| {
        let mut container = json!({"name": "c"});
        for (key, value) in more.as_object().expect("an object") {
            container[key] = value.clone();
        }
        json!({"spec": {"containers": [container]}})
    };
    // patch, code, fields
    let rows: [(Value, u16, &[&str]); 7] = [
        (container(json!({"image": "registry.example/x:2"})), 200, &[]),
        (container(json!({"command": ["sh"]})), 422, &["spec"]),
        (json!({"spec": {"containers": [{"name": "new", "image": "y"}]}}), 422, &["spec.containers"]),
        (json!({"spec": {"nodeName": "n"}}), 422, &["spec"]),
        (json!({"spec": {"activeDeadlineSeconds": 50}}), 200, &[]),
        (json!({"spec": {"activeDeadlineSeconds": 60}}), 422, &["spec.activeDeadlineSeconds"]),
        (json!({"metadata": {"labels": {"app": "y"}}}), 200, &[]),
    ];
    for (patch, code, fields) in rows {
        let answer = send(&client, "PATCH", &format!("{pods}/p"), &patch).await;
        assert_eq!((answer.code, answer.fields()), (code, fields.to_vec()), "{patch}: {}", answer.body);
    }
    let ephemeral = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "y"}]}});
    let added = send(&client, "PATCH", &format!("{pods}/p/ephemeralcontainers"), &ephemeral).await;
    assert_eq!(
        (added.code, added.text_at("/spec/ephemeralContainers/0/name")),
        (200, "debug"),
        "{}",
        added.body
    );
    // A PUT needs no more of the pod than these, not even its account, which stays.
    let debug = json!([{"name": "debug", "image": "y"}, {"name": "more", "image": "y"}]);
    for account in [Value::Null, json!("no-such")] {
        let bare = json!({
            "metadata": {"name": "p"},
            "spec": {"serviceAccountName": account, "ephemeralContainers": debug},
        });
        let put = send(&client, "PUT", &format!("{pods}/p/ephemeralcontainers?dryRun=All"), &bare).await;
        assert_eq!((put.code, put.text_at("/spec/serviceAccountName")), (200, "default"), "{}", put.body);
        assert_eq!(put.text_at("/spec/ephemeralContainers/1/name"), "more", "{}", put.body);
    }
    let through_pod = json!({"spec": {"ephemeralContainers": [{"name": "more", "image": "y"}]}});
    assert_eq!(send(&client, "PATCH", &format!("{pods}/p"), &through_pod).await.code, 422);
    let resize = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    let refused = send(&client, "PATCH", &format!("{pods}/p/resize"), &resize).await;
    assert_eq!((refused.code, refused.fields()), (422, vec!["spec"]), "{}", refused.body);
    // Claims of devices are no resource that can be resized.
    let claims = json!({"metadata": {"name": "claims"}, "spec": {
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
        "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}],
    }});
    create(&client, &pods, &claims).await;
    let resize = |resources: Value| {
        let resize = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
        async { send(&client, "PATCH", &format!("{pods}/claims/resize"), &{ resize }).await }
    };
    let refused = resize(json!({"claims": [{"name": "gpu"}]})).await;
    assert_eq!((refused.code, refused.fields()), (422, vec!["spec"]), "{}", refused.body);
    assert!(
        refused.text_at("/message").ends_with("only cpu and memory resources are mutable"),
        "{}",
        refused.body
    );
    let resized = resize(json!({"requests": {"cpu": "2"}})).await;
    assert_eq!(resized.code, 200, "{}", resized.body);
}

#[tokio::test]
async fn a_pod_is_resized_as_its_node_allows() {
    let client = shared().await.client().await;
    let pods = format!("/api/v1/namespaces/{}/pods", namespace(&client, "resizing").await);
    let node = unique("resizing");
    let object = json!({"metadata": {"name": node, "labels": {"kubernetes.io/os": "linux"}},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "9"}}});
    create(&client, "/api/v1/nodes", &object).await;
    let pod = |node: &str| {
        json!({"metadata": {"name": node}, "spec": {"nodeName": node,
        "initContainers": [{"name": "i", "image": "x", "resources": {"requests": {"cpu": "1"}}}],
        "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}})
    };
    create(&client, &pods, &pod(&node)).await;
    create(&client, &pods, &pod("absent")).await;
    let resize = async |name: &str, part: &str, container: &str, cpu: &str| {
        let change = json!({"spec": {part: [{"name": container, "resources": {"requests": {"cpu": cpu}}}]}});
        send(&client, "PATCH", &format!("{pods}/{name}/resize"), &change).await
    };
    let refused = resize(&node, "containers", "c", "3").await;
    let why = "node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000";
    assert_eq!(refused.code, 403, "{}", refused.body);
    assert!(refused.text_at("/message").ends_with(why), "{}", refused.body);
    assert_eq!(refused.text_at("/details/causes/0/reason"), "NodeCapacity");
    assert_eq!(resize(&node, "containers", "c", "2").await.code, 200);
    let refused = resize("absent", "containers", "c", "2").await;
    assert!(refused.text_at("/message").ends_with("node \"absent\" not found"), "{}", refused.body);

    // Init containers only where the kubelet can.
    let refused = resize(&node, "initContainers", "i", "2").await;
    let why = format!(
        "pod update requires features InPlacePodVerticalScalingInitContainers which are not available on node {node:?}"
    );
    assert_eq!(refused.code, 403, "{}", refused.body);
    assert!(refused.text_at("/message").ends_with(&why), "{}", refused.body);
    let declared = json!({"status": {"declaredFeatures": ["InPlacePodVerticalScalingInitContainers"]}});
    assert_eq!(send(&client, "MERGE", &format!("/api/v1/nodes/{node}/status"), &declared).await.code, 200);
    let resized = resize(&node, "initContainers", "i", "2").await;
    assert_eq!(resized.code, 200, "{}", resized.body);
    assert_eq!(send(&client, "DELETE", &format!("/api/v1/nodes/{node}"), &Value::Null).await.code, 200);
}

#[tokio::test]
async fn scheduling_gates_set_a_condition_and_claims_name_their_source_in_both_fields() {
    let server = shared().await;
    let client = server.client().await;
    let namespace = namespace(&client, "gates").await;
    let mut waiting = pod("waiting");
    waiting["spec"]["schedulingGates"] = json!([{"name": "example.com/gate"}]);
    let made = create(&client, &format!("/api/v1/namespaces/{namespace}/pods"), &waiting).await;
    let condition = &made["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("PodScheduled"), &json!("False")));
    assert_eq!(condition["reason"], "SchedulingGated");
    let snapshot = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"});
    let claim = |source: Value| {
        json!({
            "metadata": {"generateName": "c"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                "dataSource": source["old"], "dataSourceRef": source["new"],
            },
        })
    };
    let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
    for source in [json!({"old": snapshot}), json!({"new": snapshot})] {
        let made = create(&client, &path, &claim(source)).await;
        assert_eq!(made["spec"]["dataSource"], snapshot);
        assert_eq!(made["spec"]["dataSourceRef"], snapshot);
    }
}
