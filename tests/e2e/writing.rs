//! What stands around a write: subresources of pods, quotas and limits, what is fixed, what is protected.

use futures::stream::{self, StreamExt};
use kube::client::Body;
use kube::Client;
use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::eventually;
use plinth_tests::server::{namespace, shared, unique, TestServer};
use serde_json::{json, Value};

/// An answer: code, body and warnings.
struct Answer {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

impl Answer {
    fn text(&self, path: &str) -> &str {
        self.body.pointer(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// The fields that a 422 complains about.
    fn fields(&self) -> Vec<&str> {
        let causes = self.body.pointer("/details/causes").and_then(Value::as_array);
        causes.into_iter().flatten().filter_map(|c| c["field"].as_str()).collect()
    }
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Answer {
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    send_text(client, method, path, bytes).await
}

async fn send_text(client: &Client, method: &str, path: &str, bytes: Vec<u8>) -> Answer {
    let (method, kind) = match method {
        "MERGE" => ("PATCH", "application/merge-patch+json"),
        "JSON" => ("PATCH", "application/json-patch+json"),
        "APPLY" => ("PATCH", "application/apply-patch+yaml"),
        "PATCH" => ("PATCH", "application/strategic-merge-patch+json"),
        method => (method, "application/json"),
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(Body::from(bytes))
        .expect("request");
    let response = client.send(request).await.expect("answer");
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.filter_map(|w| w.to_str().ok().map(str::to_owned)).collect();
    let bytes = response.into_body().collect_bytes().await.expect("body");
    Answer { code, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null), warnings }
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "registry.example/x:1"}]},
    })
}

async fn make(client: &Client, path: &str, body: &Value) -> Value {
    let answer = send(client, "POST", path, body).await;
    assert_eq!(answer.code, 201, "{path}: {}", answer.body);
    answer.body
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let client = shared().await.client().await;
    let pods = format!("/api/v1/namespaces/{}/pods", namespace(&client, "binding").await);
    let made = make(&client, &pods, &pod("p")).await;
    let bind = |node: &str, uid: &str| {
        json!({
            "metadata": {"name": "p", "uid": uid, "annotations": {"by": "test"}},
            "target": {"kind": "Node", "name": node},
        })
    };
    let path = format!("{pods}/p/binding");
    let wrong = send(&client, "POST", &path, &bind("n1", "other")).await;
    assert_eq!((wrong.code, wrong.text("/reason")), (409, "Conflict"), "{}", wrong.body);
    let uid = made["metadata"]["uid"].as_str().expect("uid");
    let dry = send(&client, "POST", &format!("{path}?dryRun=All"), &bind("n1", uid)).await;
    assert_eq!(dry.code, 201);
    let bound = send(&client, "POST", &path, &bind("n1", uid)).await;
    assert_eq!((bound.code, bound.text("/status")), (201, "Success"), "{}", bound.body);
    let pod = send(&client, "GET", &format!("{pods}/p"), &Value::Null).await;
    assert_eq!((pod.text("/spec/nodeName"), pod.text("/metadata/annotations/by")), ("n1", "test"));
    let condition = &pod.body["status"]["conditions"][0];
    assert_eq!(
        (condition["type"].as_str(), condition["status"].as_str()),
        (Some("PodScheduled"), Some("True"))
    );
    let again = send(&client, "POST", &path, &bind("n2", "")).await;
    assert_eq!(again.code, 409);
    assert_eq!(
        again.text("/message"),
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
    let made = make(&client, "/api/v1/nodes", &node).await;
    assert_eq!(made.pointer("/status/allocatable/cpu"), Some(&json!("8")), "{made}");
    assert_eq!(made.pointer("/status/conditions/0/type"), Some(&json!("Ready")), "{made}");
    // A change of the node is not one of its status.
    let mut changed = made.clone();
    changed["status"]["allocatable"]["cpu"] = json!("16");
    let put = send(&client, "PUT", &format!("/api/v1/nodes/{name}"), &changed).await;
    assert_eq!(put.text("/status/allocatable/cpu"), "8");
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
        make(&client, &pods, &pod).await;
        let running =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(send(&client, "PATCH", &format!("{pods}/{name}/status"), &running).await.code, 200);
    }
    let selector = json!({"matchLabels": {"app": "x"}});
    make(
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
        Answer { code: reply.status.as_u16(), body, warnings: Vec::new() }
    };
    let early = evict("a", "").await;
    assert_eq!(
        (early.code, early.text("/details/causes/0/reason")),
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
    let first = evict("a", "").await;
    assert_eq!(first.code, 201, "{}", first.body);
    let budget = send(&client, "GET", &format!("{budgets}/b"), &Value::Null).await.body;
    assert_eq!(budget["status"]["disruptionsAllowed"], json!(0));
    assert!(budget["status"]["disruptedPods"]["a"].is_string(), "{budget}");
    let going = send(&client, "GET", &format!("{pods}/a"), &Value::Null).await.body;
    assert!(going["metadata"]["deletionTimestamp"].is_string(), "{going}");
    assert!(going["status"]["conditions"].to_string().contains("EvictionByEvictionAPI"), "{going}");
    let second = evict("b", "").await;
    assert_eq!((second.code, second.text("/reason")), (429, "TooManyRequests"));
}

#[tokio::test]
async fn what_is_fixed_once_a_pod_is_there() {
    let client = shared().await.client().await;
    let pods = format!("/api/v1/namespaces/{}/pods", namespace(&client, "fixed").await);
    make(&client, &pods, &pod("p")).await;
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
        (added.code, added.text("/spec/ephemeralContainers/0/name")),
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
        assert_eq!((put.code, put.text("/spec/serviceAccountName")), (200, "default"), "{}", put.body);
        assert_eq!(put.text("/spec/ephemeralContainers/1/name"), "more", "{}", put.body);
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
    make(&client, &pods, &claims).await;
    let resize = |resources: Value| {
        let resize = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
        async { send(&client, "PATCH", &format!("{pods}/claims/resize"), &{ resize }).await }
    };
    let refused = resize(json!({"claims": [{"name": "gpu"}]})).await;
    assert_eq!((refused.code, refused.fields()), (422, vec!["spec"]), "{}", refused.body);
    assert!(
        refused.text("/message").ends_with("only cpu and memory resources are mutable"),
        "{}",
        refused.body
    );
    let resized = resize(json!({"requests": {"cpu": "2"}})).await;
    assert_eq!(resized.code, 200, "{}", resized.body);
}

#[tokio::test]
async fn what_does_not_fit_into_the_storage_is_refused() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "oversized").await;
    // Defaults make each port three times as long.
    let ports: Vec<Value> = (1..50_000).map(|i| json!({"name": format!("p{i}"), "port": i})).collect();
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": ports}});
    let services = format!("/api/v1/namespaces/{namespace}/services");
    let refused = send(&client, "POST", &services, &service).await;
    assert_eq!((refused.code, refused.text("/reason")), (413, "RequestEntityTooLarge"), "{}", refused.body);
    assert!(refused.text("/message").starts_with("Request entity too large: value has "), "{}", refused.body);
}

#[tokio::test]
async fn a_quota_is_never_exceeded_and_given_back() {
    const WRITERS: usize = 16;
    const HARD: usize = 5;
    let client = shared().await.client().await;
    let namespace = namespace(&client, "quota").await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let quotas = format!("/api/v1/namespaces/{namespace}/resourcequotas");
    make(
        &client,
        &quotas,
        &json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": HARD.to_string()}}}),
    )
    .await;
    let used = || async {
        let quota = send(&client, "GET", &format!("{quotas}/q"), &Value::Null).await;
        quota.text("/status/used/count~1configmaps").to_owned()
    };
    eventually("the controller counts", || async { used().await == "0" }).await;
    let codes: Vec<u16> =
        stream::iter(0..WRITERS)
            .map(|i| {
                let (client, maps) = (&client, &maps);
                async move {
                    send(client, "POST", maps, &json!({"metadata": {"name": format!("m{i}")}})).await.code
                }
            })
            .buffer_unordered(WRITERS)
            .collect()
            .await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), HARD, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 403).count(), WRITERS - HARD, "{codes:?}");
    assert_eq!(used().await, HARD.to_string());
    let refused = send(&client, "POST", &maps, &json!({"metadata": {"name": "more"}})).await;
    assert_eq!(
        refused.text("/message"),
        "configmaps \"more\" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=5, limited: count/configmaps=5"
    );
    assert_eq!(send(&client, "DELETE", &maps, &Value::Null).await.code, 200);
    eventually("usage is given back", || async { used().await == "0" }).await;
    make(&client, &maps, &json!({"metadata": {"name": "more"}})).await;
    assert_eq!(used().await, "1");
}

#[tokio::test]
async fn limit_ranges_fill_in_and_refuse() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "limits").await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let limits = json!([{
        "type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "2"},
    }]);
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": limits}});
    make(&client, &format!("/api/v1/namespaces/{namespace}/limitranges"), &range).await;
    let made = make(&client, &pods, &pod("p")).await;
    assert_eq!(
        made["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "1"}, "requests": {"cpu": "100m"}})
    );
    assert!(made["metadata"]["annotations"]["kubernetes.io/limit-ranger"].is_string(), "{made}");
    let mut large = pod("large");
    large["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "3"}});
    let refused = send(&client, "POST", &pods, &large).await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.text("/message"),
        "pods \"large\" is forbidden: maximum cpu usage per Container is 2, but limit is 3"
    );
}

#[tokio::test]
async fn a_namespace_says_how_much_its_pods_may_do() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "security").await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let label = |mode: &str, level: &str| json!({"metadata": {"labels": {format!("pod-security.kubernetes.io/{mode}"): level}}});
    let path = format!("/api/v1/namespaces/{namespace}");
    let bad = send(&client, "PATCH", &path, &label("enforce", "none")).await;
    assert_eq!((bad.code, bad.fields()), (422, vec!["metadata.labels[pod-security.kubernetes.io/enforce]"]));
    let mut privileged = pod("privileged");
    privileged["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    make(&client, &pods, &privileged).await;
    let stricter = send(&client, "PATCH", &path, &label("enforce", "baseline")).await;
    assert_eq!(stricter.code, 200);
    assert!(
        stricter.warnings.iter().any(|w| w.contains("privileged: privileged")),
        "{:?}",
        stricter.warnings
    );
    privileged["metadata"]["name"] = json!("second");
    let refused = send(&client, "POST", &pods, &privileged).await;
    assert_eq!(
        (refused.code, refused.text("/message")),
        (
            403,
            r#"pods "second" is forbidden: violates PodSecurity "baseline:latest": privileged (container "c" must not set securityContext.privileged=true)"#
        )
    );
    assert_eq!(send(&client, "PATCH", &path, &label("warn", "restricted")).await.code, 200);
    let warned = send(&client, "POST", &pods, &pod("plain")).await;
    assert_eq!(warned.code, 201);
    assert!(
        warned.warnings.iter().any(|w| w.contains(r#"would violate PodSecurity \"restricted:latest\""#)),
        "{:?}",
        warned.warnings
    );
}

#[tokio::test]
async fn priorities_follow_from_classes() {
    let client = shared().await.client().await;
    let pods = format!("/api/v1/namespaces/{}/pods", namespace(&client, "priority").await);
    const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
    for (name, value) in [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)]
    {
        let class = send(&client, "GET", &format!("{CLASSES}/{name}"), &Value::Null).await;
        assert_eq!(class.body["value"], json!(value), "{}", class.body);
        assert_eq!(send(&client, "DELETE", &format!("{CLASSES}/{name}"), &Value::Null).await.code, 403);
    }
    let class = unique("class");
    make(&client, CLASSES, &json!({"metadata": {"name": class}, "value": 7, "preemptionPolicy": "Never"}))
        .await;
    let mut with_class = pod("with");
    with_class["spec"]["priorityClassName"] = json!(class);
    let made = make(&client, &pods, &with_class).await;
    assert_eq!((&made["spec"]["priority"], &made["spec"]["preemptionPolicy"]), (&json!(7), &json!("Never")));
    let plain = make(&client, &pods, &pod("plain")).await;
    assert_eq!(plain["spec"]["priority"], json!(0));
    let mut forged = pod("forged");
    forged["spec"]["priority"] = json!(5);
    assert_eq!(send(&client, "POST", &pods, &forged).await.code, 403);
    let mut lost = pod("lost");
    lost["spec"]["priorityClassName"] = json!("nosuch");
    let refused = send(&client, "POST", &pods, &lost).await;
    assert_eq!(
        refused.text("/message"),
        "pods \"lost\" is forbidden: no PriorityClass with name nosuch was found"
    );
}

#[tokio::test]
async fn a_claim_stays_while_a_pod_uses_it() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "protection").await;
    let claims = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
    let claim = json!({
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let made = make(&client, &claims, &claim).await;
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let mut user = pod("p");
    user["spec"]["nodeName"] = json!("n1");
    user["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    make(&client, &pods, &user).await;
    assert_eq!(send(&client, "DELETE", &format!("{claims}/c"), &Value::Null).await.code, 200);
    let held = send(&client, "GET", &format!("{claims}/c"), &Value::Null).await;
    assert_eq!((held.code, held.body["metadata"]["deletionTimestamp"].is_string()), (200, true));
    let now = json!({"gracePeriodSeconds": 0});
    assert_eq!(send(&client, "DELETE", &format!("{pods}/p"), &now).await.code, 200);
    eventually("the claim goes", || async {
        send(&client, "GET", &format!("{claims}/c"), &Value::Null).await.code == 404
    })
    .await;
}

/// Manager, operation and subresource of the owners of a deployment's replicas, and whether each owns anything else.
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
    assert_eq!((refused.code, refused.text("/details/causes/0/field")), (409, ".spec.replicas"));
    assert_eq!(
        refused.text("/message"),
        "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas"
    );
    assert_eq!(live().await["spec"]["replicas"], 3);
    let forced = format!("{path}/scale?fieldManager=two&force=true");
    let answer = send(&client, "APPLY", &forced, &scale(5)).await;
    assert_eq!((answer.code, answer.text("/kind")), (200, "Scale"), "{}", answer.body);
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
    assert!(refused.text("/message").contains("conflict with \"three\" with subresource \"scale\""));
    let forced = format!("{path}?fieldManager=one&force=true");
    assert_eq!(send(&client, "APPLY", &forced, &deployment).await.code, 200);
    assert_eq!(owners_of_replicas(&live().await), owner("one", "Apply", ""));
    let absent = format!("/apis/apps/v1/namespaces/{namespace}/deployments/none/scale?fieldManager=one");
    assert_eq!(send(&client, "APPLY", &absent, &scale(1)).await.code, 404);
}

#[tokio::test]
async fn what_every_cluster_has_is_made_again_while_the_server_runs() {
    let server = TestServer::start(&[]).await;
    let client = server.client().await;
    let tracking =
        "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    let service = "/api/v1/namespaces/default/services/kubernetes";
    let endpoints = "/api/v1/namespaces/default/endpoints/kubernetes";
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let trust = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let range = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes";
    let believed = send(&client, "GET", trust, &Value::Null).await.body["data"].clone();
    let authority = std::fs::read_to_string(server.data().join("pki/ca.crt")).expect("the authority");
    assert_eq!(believed, json!({ "client-ca-file": authority }));
    let shown = send(&client, "GET", range, &Value::Null).await;
    assert_eq!(shown.body["spec"]["cidrs"], json!(["10.0.0.0/24"]));
    assert_eq!(
        (shown.text("/status/conditions/0/type"), shown.text("/status/conditions/0/status")),
        ("Ready", "True")
    );
    let since = send(&client, "GET", tracking, &Value::Null).await;
    assert_eq!(since.text("/data/since").len(), "2006-01-02".len(), "{}", since.body);
    let address = send(&client, "GET", service, &Value::Null).await.text("/spec/clusterIP").to_owned();
    let subsets = send(&client, "GET", endpoints, &Value::Null).await.body["subsets"].clone();
    let forged = json!({"subsets": [{"addresses": [{"ip": "10.9.9.9"}], "ports": [{"port": 1}]}]});
    assert_eq!(send(&client, "PATCH", endpoints, &forged).await.code, 200);
    // The endpoints of a service that is deleted go with it.
    for path in [tracking, trust, range, slice, service] {
        assert_eq!(send(&client, "DELETE", path, &Value::Null).await.code, 200, "{path}");
    }
    eventually("everything is there again", || async {
        let there = |path: &'static str| {
            let client = client.clone();
            async move { send(&client, "GET", path, &Value::Null).await }
        };
        there(tracking).await.code == 200
            && there(trust).await.body["data"] == believed
            && there(range).await.text("/status/conditions/0/status") == "True"
            && there(slice).await.code == 200
            && there(service).await.text("/spec/clusterIP") == address
            && there(endpoints).await.body["subsets"] == subsets
    })
    .await;
}

#[tokio::test]
async fn a_pod_that_waits_for_gates_says_so_and_claims_name_their_source_twice() {
    let server = shared().await;
    let client = server.client().await;
    let namespace = namespace(&client, "gates").await;
    let mut waiting = pod("waiting");
    waiting["spec"]["schedulingGates"] = json!([{"name": "example.com/gate"}]);
    let made = make(&client, &format!("/api/v1/namespaces/{namespace}/pods"), &waiting).await;
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
        let made = make(&client, &path, &claim(source)).await;
        assert_eq!(made["spec"]["dataSource"], snapshot);
        assert_eq!(made["spec"]["dataSourceRef"], snapshot);
    }
}

#[tokio::test]
async fn of_many_puts_of_a_revision_one_succeeds() {
    const WRITERS: usize = 16;
    const ROUNDS: usize = 20;
    let client = shared().await.client().await;
    let maps = format!("/api/v1/namespaces/{}/configmaps", namespace(&client, "puts").await);
    let mut live = make(&client, &maps, &json!({"metadata": {"name": "m"}})).await;
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

#[tokio::test]
async fn a_large_namespace_goes_though_the_server_is_killed_meanwhile() {
    const OBJECTS: usize = 10_000;
    const WRITERS: usize = 64;
    let mut server = TestServer::start(&[]).await;
    let client = server.client().await;
    let (going, staying) = (namespace(&client, "going").await, namespace(&client, "staying").await);
    let path = |namespace: &str, plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    let kept = make(&client, &path(&staying, "configmaps"), &json!({"metadata": {"name": "kept"}})).await;
    let owner = make(&client, &path(&going, "configmaps"), &json!({"metadata": {"name": "owner"}})).await;
    let reference = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
    }]);
    stream::iter(0..OBJECTS)
        .map(|i| {
            let (client, reference) = (&client, &reference);
            let (plural, mut object) = match i % 4 {
                0 => ("secrets", json!({})),
                1 => ("pods", pod("x")),
                2 => ("serviceaccounts", json!({})),
                _ => ("configmaps", json!({"data": {"k": "v"}})),
            };
            object["metadata"]["name"] = json!(format!("o{i}"));
            if i % 3 == 0 {
                object["metadata"]["ownerReferences"] = reference.clone();
            }
            if i % 500 == 0 {
                object["metadata"]["finalizers"] = json!(["example.com/hold"]);
            }
            let path = path(&going, plural);
            async move { make(client, &path, &object).await }
        })
        .buffer_unordered(WRITERS)
        .collect::<Vec<_>>()
        .await;
    let answer = send(&client, "DELETE", &format!("/api/v1/namespaces/{going}"), &Value::Null).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    eventually("the deletion is under way", || async {
        let list =
            send(&client, "GET", &format!("{}?limit=1", path(&going, "configmaps")), &Value::Null).await;
        list.body["metadata"]["remainingItemCount"].as_u64().unwrap_or(0) < (OBJECTS / 4) as u64 - 10
    })
    .await;
    server.kill();
    server.restart().await;
    let client = server.client().await;
    let held: Vec<usize> = (0..OBJECTS).step_by(500).collect();
    eventually("only what finalizers hold is left", || async {
        let mut left = 0;
        for plural in ["secrets", "pods", "serviceaccounts", "configmaps"] {
            let list = send(&client, "GET", &path(&going, plural), &Value::Null).await;
            left += list.body["items"].as_array().map_or(OBJECTS, Vec::len);
        }
        left == held.len()
    })
    .await;
    for i in held {
        let release = json!({"metadata": {"finalizers": null}});
        let path = format!("{}/o{i}", path(&going, "secrets"));
        assert_eq!(send(&client, "PATCH", &path, &release).await.code, 200);
    }
    eventually("the namespace goes", || async {
        send(&client, "GET", &format!("/api/v1/namespaces/{going}"), &Value::Null).await.code == 404
    })
    .await;
    let untouched =
        send(&client, "GET", &format!("{}/kept", path(&staying, "configmaps")), &Value::Null).await;
    assert_eq!(untouched.body["metadata"], kept["metadata"]);
}

/// Upstream lets a dry run pass with a node port outside of the range, and answers the real write to `healthCheckNodePort` with 500.
#[tokio::test]
async fn node_ports_are_refused_with_their_field_in_a_dry_run_too() {
    let server = shared().await;
    let client = server.client().await;
    let path = format!("/api/v1/namespaces/{}/services", namespace(&client, "node-ports").await);
    let service = |name: &str, spec: Value| json!({ "metadata": { "name": name }, "spec": spec });
    let held = json!({ "type": "NodePort", "ports": [{ "port": 1 }] });
    let held = make(&client, &path, &service("held", held)).await["spec"]["ports"][0]["nodePort"].clone();
    let checked = |health: Value| {
        let ports = json!([{ "port": 1, "nodePort": 0 }]);
        json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": health, "ports": ports })
    };
    let listed = |port: Value| json!({ "type": "NodePort", "ports": [{ "port": 1, "nodePort": port }] });
    let unasked = |port: Value| {
        let ports = json!([{ "port": 1, "nodePort": port }]);
        json!({ "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": ports })
    };
    let (range, taken) = ("provided port is not in the valid range", "provided port is already allocated");
    let (health, port) = ("spec.healthCheckNodePort", "spec.ports[0].nodePort");
    let rows = [
        (checked(json!(1)), health, range),
        (checked(json!(70_000)), health, range),
        (checked(json!(-1)), health, range),
        (checked(held.clone()), health, taken),
        (listed(json!(1)), port, range),
        (listed(json!(70_000)), port, range),
        (listed(json!(-1)), port, range),
        (listed(held.clone()), port, taken),
        (unasked(json!(-1)), port, range),
        (unasked(held.clone()), port, taken),
    ];
    for (spec, field, why) in rows {
        for query in ["?dryRun=All", ""] {
            let answer = send(&client, "POST", &format!("{path}{query}"), &service("s", spec.clone())).await;
            assert_eq!((answer.code, answer.fields()), (422, vec![field]), "{spec}{query}: {}", answer.body);
            assert!(answer.text("/message").contains(why), "{spec}{query}: {}", answer.body);
        }
    }
    // Health checks have a port of their own.
    let change = json!({ "spec": { "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": held } });
    let answer = send(&client, "PATCH", &format!("{path}/held"), &change).await;
    assert_eq!((answer.code, answer.fields()), (422, vec![health]), "{}", answer.body);
}

/// What kube-apiserver counts as a change of what is wanted: an empty struct where none was, but no empty list or map, and nothing that
/// defaults fill in again.
#[tokio::test]
async fn a_generation_counts_what_is_wanted_and_nothing_that_is_empty() {
    let server = shared().await;
    let client = server.client().await;
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", namespace(&client, "generation").await);
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": pod("x")["spec"] });
    let spec = json!({ "selector": { "matchLabels": { "a": "b" } }, "template": template });
    make(&client, &path, &json!({ "metadata": { "name": "d" }, "spec": spec })).await;
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
    make(&client, &path, &json!({ "metadata": metadata, "secrets": [{ "name": "a" }] })).await;
    let path = format!("{path}/s?dryRun=All");
    let at_metadata = |change: Value| json!({ "metadata": change });
    let wrong =
        |patch: &str, what: &str| format!(" \"\" is invalid: patch: Invalid value: \"{patch}\": {what}");
    // how, patch, code, reason, message or its end
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
        assert_eq!((answer.code, answer.text("/reason")), (code, reason), "{patch}: {}", answer.body);
        assert!(answer.text("/message").ends_with(&message), "{patch}: {}", answer.body);
    }
    // What a strategic merge patch says of the kind does not count.
    for patch in [json!({ "kind": "Pod", "apiVersion": "v7" }), json!({ "kind": null }), Value::Null] {
        let text = patch.to_string();
        let answer = send_text(&client, "PATCH", &path, text.into_bytes()).await;
        assert_eq!((answer.code, answer.text("/kind")), (200, "ServiceAccount"), "{patch}: {}", answer.body);
    }
}
