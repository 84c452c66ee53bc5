//! Admission plugins that are on by default: quotas, limit ranges, Pod Security, priorities, storage
//! protection.

use futures::stream::{self, StreamExt};
use plinth_tests::eventually;
use plinth_tests::requests::{create, send};
use plinth_tests::samples::pod;
use plinth_tests::server::{namespace, shared, unique};
use serde_json::{json, Value};

#[tokio::test]
async fn a_quota_is_never_exceeded_and_given_back() {
    const WRITERS: usize = 16;
    const HARD: usize = 5;
    let client = shared().await.client().await;
    let namespace = namespace(&client, "quota").await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let quotas = format!("/api/v1/namespaces/{namespace}/resourcequotas");
    create(
        &client,
        &quotas,
        &json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": HARD.to_string()}}}),
    )
    .await;
    let used = || async {
        let quota = send(&client, "GET", &format!("{quotas}/q"), &Value::Null).await;
        quota.text_at("/status/used/count~1configmaps").to_owned()
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
        refused.text_at("/message"),
        "configmaps \"more\" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=5, limited: count/configmaps=5"
    );
    assert_eq!(send(&client, "DELETE", &maps, &Value::Null).await.code, 200);
    eventually("usage is given back", || async { used().await == "0" }).await;
    create(&client, &maps, &json!({"metadata": {"name": "more"}})).await;
    assert_eq!(used().await, "1");
}

/// Two numbers that are more together than a number may be.
#[tokio::test]
async fn claims_of_too_many_devices_exceed_a_quota() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "devices").await;
    let claims = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims");
    let request = |name: &str| {
        let exactly = json!({"deviceClassName": "dc", "allocationMode": "ExactCount", "count": i64::MAX});
        json!({"name": name, "exactly": exactly})
    };
    let requests = json!({"devices": {"requests": [request("a"), request("b")]}});
    let claim = |name: &str| json!({"metadata": {"name": name}, "spec": requests});
    create(&client, &claims, &claim("before")).await;
    let quotas = format!("/api/v1/namespaces/{namespace}/resourcequotas");
    let hard = json!({"dc.deviceclass.resource.k8s.io/devices": "5", "count/configmaps": "1"});
    create(&client, &quotas, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await;
    eventually("the controller counts", || async {
        let quota = send(&client, "GET", &format!("{quotas}/q"), &Value::Null).await;
        quota.text_at("/status/used/dc.deviceclass.resource.k8s.io~1devices") == "9223372036854775807"
    })
    .await;
    let refused = send(&client, "POST", &claims, &claim("after")).await;
    assert_eq!(refused.code, 403, "{}", refused.text_at("/message"));
    assert!(refused.text_at("/message").contains("exceeded quota: q"), "{}", refused.text_at("/message"));
}

/// A claim counts for each class that it asks for, has, or is being changed to.
#[tokio::test]
async fn a_claim_counts_in_the_quotas_of_all_its_classes() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "classes").await;
    let path = |plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    let (quotas, claims) = (path("resourcequotas"), path("persistentvolumeclaims"));
    for class in ["gold", "silver", "copper"] {
        let scope = json!({"scopeName": "VolumeAttributesClass", "operator": "In", "values": [class]});
        let spec =
            json!({"hard": {"persistentvolumeclaims": "1"}, "scopeSelector": {"matchExpressions": [scope]}});
        create(&client, &quotas, &json!({"metadata": {"name": class}, "spec": spec})).await;
    }
    let used = async || {
        let mut used = Vec::new();
        for class in ["gold", "silver", "copper"] {
            let quota = send(&client, "GET", &format!("{quotas}/{class}"), &Value::Null).await;
            used.push(quota.text_at("/status/used/persistentvolumeclaims").to_owned());
        }
        used.join(" ")
    };
    let counted = async |wanted: &str| {
        eventually(&format!("{wanted} are counted"), || async { used().await == wanted }).await;
    };
    counted("0 0 0").await;
    let claim = |name: &str, class: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}, "volumeAttributesClassName": class}})
    };
    let change = async |name: &str, change: Value| {
        let status = if change["status"].is_null() { "" } else { "/status" };
        let answer = send(&client, "PATCH", &format!("{claims}/{name}{status}"), &change).await;
        assert_eq!(answer.code, 200, "{}", answer.text);
    };
    create(&client, &claims, &claim("c", "gold")).await;
    assert_eq!(used().await, "1 0 0");
    change("c", json!({"status": {"phase": "Bound", "currentVolumeAttributesClassName": "gold"}})).await;
    change("c", json!({"spec": {"volumeAttributesClassName": "silver"}})).await;
    assert_eq!(used().await, "1 1 0");
    let modifies = json!({"targetVolumeAttributesClassName": "copper", "status": "InProgress"});
    change("c", json!({"status": {"modifyVolumeStatus": modifies}})).await;
    assert_eq!(used().await, "1 1 1");
    let done = json!({"currentVolumeAttributesClassName": "silver", "modifyVolumeStatus": null});
    change("c", json!({"status": done})).await;
    counted("0 1 0").await;
    let refused = send(&client, "POST", &claims, &claim("d", "silver")).await;
    assert!(refused.code == 403 && refused.text.contains("exceeded quota: silver"), "{}", refused.text);
    // What has happened to a claim is counted past the limit.
    create(&client, &claims, &claim("d", "gold")).await;
    change("d", json!({"status": {"phase": "Bound", "currentVolumeAttributesClassName": "silver"}})).await;
    assert_eq!(used().await, "1 2 0");
    assert_eq!(send(&client, "DELETE", &claims, &Value::Null).await.code, 200);
    counted("0 0 0").await;
}

/// Of a pod, what runs it and the sizes that its containers still have count, until it is overdue.
#[tokio::test]
async fn a_pod_counts_with_its_overhead_and_sizes_until_it_is_overdue() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "overhead").await;
    let path = |plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    let (quotas, pods) = (path("resourcequotas"), path("pods"));
    let hard = json!({"requests.cpu": "1", "limits.cpu": "4", "pods": "2", "count/pods": "3"});
    create(&client, &quotas, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await;
    let used = async || {
        let quota = send(&client, "GET", &format!("{quotas}/q"), &Value::Null).await;
        let used = |name: &str| quota.text_at(&format!("/status/used/{name}")).to_owned();
        ["requests.cpu", "limits.cpu", "pods", "count~1pods"].map(used).join(" ")
    };
    let counted = async |wanted: &str| {
        eventually(&format!("{wanted} are counted"), || async { used().await == wanted }).await;
    };
    counted("0 0 0 0").await;
    let class = unique("overhead");
    let sandbox =
        json!({"metadata": {"name": class}, "handler": "h", "overhead": {"podFixed": {"cpu": "250m"}}});
    create(&client, "/apis/node.k8s.io/v1/runtimeclasses", &sandbox).await;
    let sized = |name: &str, cpu: &str| {
        let mut pod = pod(name);
        pod["spec"]["runtimeClassName"] = json!(class);
        pod["spec"]["nodeName"] = json!("lost");
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}, "limits": {"cpu": "1"}});
        pod
    };
    let refused = send(&client, "POST", &pods, &sized("large", "800m")).await;
    let why =
        "exceeded quota: q, requested: requests.cpu=1050m, used: requests.cpu=0, limited: requests.cpu=1";
    assert!(refused.code == 403 && refused.text_at("/message").ends_with(why), "{}", refused.text);
    create(&client, &pods, &sized("p", "100m")).await;
    assert_eq!(used().await, "350m 1250m 1 1");
    let has = json!([{"name": "c", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
        "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "2"}}}]);
    let status = json!({"status": {"containerStatuses": has}});
    let answer = send(&client, "PATCH", &format!("{pods}/p/status"), &status).await;
    assert_eq!(answer.code, 200, "{}", answer.text);
    counted("750m 2250m 1 1").await;
    // No kubelet deletes it.
    let answer = send(&client, "DELETE", &format!("{pods}/p"), &json!({"gracePeriodSeconds": 1})).await;
    assert_eq!(answer.code, 200, "{}", answer.text);
    counted("0 0 0 1").await;
    create(&client, &pods, &sized("q", "100m")).await;
    assert_eq!(used().await, "350m 1250m 1 2");
}

/// Of the tolerations of a pod and its class those are kept that no other includes.
#[tokio::test]
async fn a_pod_gets_the_tolerations_of_its_runtime_class() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "tolerations").await;
    let class = unique("tolerating");
    let tolerates = |key: &str, effect: &str| json!({"key": key, "operator": "Exists", "effect": effect});
    let all = json!({"key": "a", "operator": "Exists"});
    let scheduling = json!({"tolerations": [all, tolerates("b", "NoSchedule")]});
    let object = json!({"metadata": {"name": class}, "handler": "h", "scheduling": scheduling});
    create(&client, "/apis/node.k8s.io/v1/runtimeclasses", &object).await;
    let mut pod = pod("p");
    pod["spec"]["runtimeClassName"] = json!(class);
    pod["spec"]["tolerations"] = json!([tolerates("a", "NoExecute"), tolerates("b", "NoSchedule")]);
    let made = create(&client, &format!("/api/v1/namespaces/{namespace}/pods"), &pod).await;
    let tolerations = made["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let of_test = |toleration: &&Value| ["a", "b"].map(Value::from).contains(&toleration["key"]);
    let found: Vec<&Value> = tolerations.iter().filter(of_test).collect();
    assert_eq!(found, [&tolerates("b", "NoSchedule"), &all]);
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
    create(&client, &format!("/api/v1/namespaces/{namespace}/limitranges"), &range).await;
    let made = create(&client, &pods, &pod("p")).await;
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
        refused.text_at("/message"),
        "pods \"large\" is forbidden: maximum cpu usage per Container is 2, but limit is 3"
    );
}

#[tokio::test]
async fn pod_security_follows_the_labels_of_the_namespace() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "security").await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let label = |mode: &str, level: &str| json!({"metadata": {"labels": {format!("pod-security.kubernetes.io/{mode}"): level}}});
    let path = format!("/api/v1/namespaces/{namespace}");
    let bad = send(&client, "PATCH", &path, &label("enforce", "none")).await;
    assert_eq!((bad.code, bad.fields()), (422, vec!["metadata.labels[pod-security.kubernetes.io/enforce]"]));
    let mut privileged = pod("privileged");
    privileged["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    create(&client, &pods, &privileged).await;
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
        (refused.code, refused.text_at("/message")),
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
    create(&client, CLASSES, &json!({"metadata": {"name": class}, "value": 7, "preemptionPolicy": "Never"}))
        .await;
    let mut with_class = pod("with");
    with_class["spec"]["priorityClassName"] = json!(class);
    let made = create(&client, &pods, &with_class).await;
    assert_eq!((&made["spec"]["priority"], &made["spec"]["preemptionPolicy"]), (&json!(7), &json!("Never")));
    let plain = create(&client, &pods, &pod("plain")).await;
    assert_eq!(plain["spec"]["priority"], json!(0));
    let mut forged = pod("forged");
    forged["spec"]["priority"] = json!(5);
    assert_eq!(send(&client, "POST", &pods, &forged).await.code, 403);
    let mut lost = pod("lost");
    lost["spec"]["priorityClassName"] = json!("nosuch");
    let refused = send(&client, "POST", &pods, &lost).await;
    assert_eq!(
        refused.text_at("/message"),
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
    let made = create(&client, &claims, &claim).await;
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let mut user = pod("p");
    user["spec"]["nodeName"] = json!("n1");
    user["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    create(&client, &pods, &user).await;
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

/// Quotas of an extended resource limit pods and claims together; the claim that the scheduler creates for a
/// pod does not count beside it.
#[tokio::test]
async fn devices_count_under_the_extended_resources_of_their_classes() {
    const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
    let client = shared().await.client().await;
    let namespace = namespace(&client, "extended").await;
    let class = unique("gpu");
    let resource = format!("{class}.example.com/gpu");
    let path = |plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    let claims = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims");
    let of_class = format!("deviceclass.resource.kubernetes.io/{class}");
    let names = [
        format!("requests.{resource}"),
        format!("requests.{of_class}"),
        format!("{class}.deviceclass.resource.k8s.io/devices"),
    ];
    let hard: serde_json::Map<String, Value> = names.iter().map(|name| (name.clone(), json!("3"))).collect();
    create(&client, &path("resourcequotas"), &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}))
        .await;
    let used = async || {
        let quota = send(&client, "GET", &format!("{}/q", path("resourcequotas")), &Value::Null).await;
        let used =
            names.iter().map(|name| quota.body["status"]["used"][name].as_str().unwrap_or("-").to_owned());
        used.collect::<Vec<_>>().join(" ")
    };
    let counted = async |wanted: &str| {
        eventually(&format!("{wanted} are counted"), || async { used().await == wanted }).await;
    };
    let claim = |name: &str, count: u32, pod: Option<&Value>| {
        let exactly = json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": count});
        let mut metadata = json!({"name": name});
        if let Some(pod) = pod {
            metadata["annotations"] = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
            metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "controller": true,
                "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}]);
        }
        json!({"metadata": metadata, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}})
    };
    let requests = |name: &str, resource: &str, count: u32| {
        let mut pod = pod(name);
        let amounts = json!({resource: count.to_string()});
        pod["spec"]["containers"][0]["resources"] = json!({"requests": amounts, "limits": amounts});
        pod
    };
    counted("0 0 0").await;
    // While there is no such class, names of extended resources are about pods alone.
    create(&client, &claims, &claim("before", 1, None)).await;
    assert_eq!(used().await, "0 0 1");
    let spec = json!({"extendedResourceName": resource});
    create(&client, CLASSES, &json!({"metadata": {"name": class}, "spec": spec})).await;
    counted("1 1 1").await;
    // By the extended resource, and the claim that is made for it.
    create(&client, &path("pods"), &requests("explicit", &resource, 1)).await;
    assert_eq!(used().await, "2 1 1");
    let explicit = send(&client, "GET", &format!("{}/explicit", path("pods")), &Value::Null).await.body;
    create(&client, &claims, &claim("of-explicit", 1, Some(&explicit))).await;
    assert_eq!(used().await, "2 2 2");
    create(&client, &path("pods"), &requests("implicit", &of_class, 1)).await;
    let implicit = send(&client, "GET", &format!("{}/implicit", path("pods")), &Value::Null).await.body;
    create(&client, &claims, &claim("of-implicit", 1, Some(&implicit))).await;
    assert_eq!(used().await, "3 3 3");
    for refused in [
        send(&client, "POST", &path("pods"), &requests("more", &resource, 1)).await,
        send(&client, "POST", &claims, &claim("more", 1, None)).await,
        // The second one of a pod counts.
        send(&client, "POST", &claims, &claim("z", 1, Some(&implicit))).await,
    ] {
        assert_eq!(refused.code, 403, "{}", refused.text);
        assert!(refused.text.contains(&format!("requests.{resource}=1")), "{}", refused.text);
    }
    // Without its pod a claim counts by itself.
    let pods = path("pods");
    let delete = json!({"gracePeriodSeconds": 0});
    assert_eq!(send(&client, "DELETE", &format!("{pods}/explicit"), &delete).await.code, 200);
    eventually("the claim of the pod goes with it", || async {
        send(&client, "GET", &format!("{claims}/of-explicit"), &Value::Null).await.code == 404
    })
    .await;
    counted("2 2 2").await;
    assert_eq!(send(&client, "DELETE", &format!("{claims}/before"), &Value::Null).await.code, 200);
    counted("1 1 1").await;
    let other = json!({"spec": {"extendedResourceName": format!("{class}.example.com/other")}});
    assert_eq!(send(&client, "PATCH", &format!("{CLASSES}/{class}"), &other).await.code, 200);
    counted("0 1 1").await;
    assert_eq!(send(&client, "DELETE", &format!("{CLASSES}/{class}"), &Value::Null).await.code, 200);
}
