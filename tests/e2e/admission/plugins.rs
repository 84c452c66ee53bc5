//! Admission plugins that are off by default, and their configuration file; answers as of kube-apiserver with
//! the same flags and the same file.

use std::path::Path;

use http::{Method, StatusCode};
use plinth_benches::api::client::{Call, Protocol, JSON};
use plinth_tests::eventually;
use plinth_tests::requests::{create, send};
use plinth_tests::samples::pod;
use plinth_tests::server::{namespace, TestServer};
use serde_json::{json, Value};

const CONFIGURATION: &str = r#"
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, enforce-version: latest}
    exemptions: {namespaces: [exempt]}
- name: PodNodeSelector
  path: selectors.yaml
- name: PodTolerationRestriction
  configuration:
    apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1
    kind: Configuration
    default: [{key: dflt, operator: Exists}]
    whitelist:
    - {key: dflt, operator: Exists}
    - {key: ok, operator: Exists}
    - {key: example.com/gpu, operator: Exists}
    - {operator: Exists, effect: NoExecute}
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits: [{type: SourceAndObject, qps: 1, burst: 1}]
"#;

const SELECTORS: &str =
    "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: zone=a, limited: 'zone=a,disk=ssd'}";

const PLUGINS: &str = "NamespaceAutoProvision,LimitPodHardAntiAffinityTopology,PodNodeSelector,PodTolerationRestriction,EventRateLimit,ExtendedResourceToleration";

fn configured(dir: &Path) -> String {
    std::fs::write(dir.join("selectors.yaml"), SELECTORS).expect("selectors");
    let file = dir.join("admission.yaml");
    std::fs::write(&file, CONFIGURATION).expect("configuration");
    format!("--admission-control-config-file={}", file.display())
}

#[tokio::test]
async fn plugins_follow_their_configuration() {
    let dir = tempfile::tempdir().expect("directory");
    let server = TestServer::start(&[
        &configured(dir.path()),
        &format!("--enable-admission-plugins={PLUGINS}"),
        "--disable-admission-plugins=ServiceAccount",
    ])
    .await;
    let mut admin = server.connect(Protocol::Http2).await;
    let post = |path: &str, object: &Value| Call::new(Method::POST, path).body(JSON, object.to_string());
    let namespace =
        |name: &str, annotations: Value| json!({"metadata": {"name": name, "annotations": annotations}});
    const PREFIX: &str = "scheduler.alpha.kubernetes.io/";
    let made = [
        namespace("selecting", json!({format!("{PREFIX}node-selector"): "zone=b, x=y"})),
        namespace("odd", json!({format!("{PREFIX}node-selector"): "zone"})),
        namespace(
            "tolerant",
            json!({
                format!("{PREFIX}defaultTolerations"): r#"[{"key":"own","operator":"Equal","value":"x"}]"#,
                format!("{PREFIX}tolerationsWhitelist"): r#"[{"key":"own","operator":"Exists"},{"operator":"Exists","effect":"NoExecute"}]"#,
            }),
        ),
    ];
    for object in made {
        admin.must(&post("/api/v1/namespaces", &object)).await.expect("a namespace");
    }
    let spread = |key: &str| json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": {}}]}});
    let gpu = json!([{"name": "c", "image": "i", "resources": {"limits": {"example.com/gpu": "1"}}}]);
    let bare = json!({});
    let (zone_b, disk) = (json!({"nodeSelector": {"zone": "b"}}), json!({"nodeSelector": {"disk": "hdd"}}));
    let tolerating = |key: &str| json!({"tolerations": [{"key": key, "operator": "Exists"}]});
    // namespace, what the spec has besides a container, the selector afterwards with keys of tolerations, or
    // the refusal
    type Row<'a> = (&'a str, Value, Result<(Value, &'a [&'a str]), (u16, &'a str)>);
    let zone = || json!({"zone": "a"});
    let rows: Vec<Row<'_>> = vec![
        ("made-by-the-way", bare.clone(), Ok((zone(), &["dflt"]))),
        ("plain", json!({"hostNetwork": true}), Err((403, "violates PodSecurity \"baseline:latest\""))),
        ("exempt", json!({"hostNetwork": true}), Ok((zone(), &["dflt"]))),
        (
            "plain",
            zone_b,
            Err((403, "pod node label selector conflicts with its namespace node label selector")),
        ),
        ("limited", disk, Err((403, "pod node label selector labels conflict with its namespace whitelist"))),
        (
            "limited",
            json!({"nodeSelector": {"disk": "ssd"}}),
            Ok((json!({"disk": "ssd", "zone": "a"}), &["dflt"])),
        ),
        ("selecting", bare.clone(), Ok((json!({"x": "y", "zone": "b"}), &["dflt"]))),
        ("odd", bare.clone(), Err((500, "invalid selector: [zone]"))),
        ("plain", tolerating("ok"), Ok((zone(), &["ok", "dflt"]))),
        ("plain", tolerating("no"), Err((500, "conflict with its cluster whitelist"))),
        ("tolerant", bare, Ok((zone(), &["own"]))),
        ("tolerant", tolerating("ok"), Err((500, "conflict with its namespace whitelist"))),
        ("plain", json!({"containers": gpu}), Ok((zone(), &["dflt", "example.com/gpu"]))),
        (
            "plain",
            json!({"affinity": spread("zone")}),
            Err((403, "has TopologyKey zone but only key kubernetes.io/hostname is allowed")),
        ),
        ("plain", json!({"affinity": spread("kubernetes.io/hostname")}), Ok((zone(), &["dflt"]))),
    ];
    for (i, (namespace, more, expected)) in rows.into_iter().enumerate() {
        let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
        let more = more.as_object().expect("an object").clone();
        spec.as_object_mut().expect("an object").extend(more);
        let pod = json!({"metadata": {"name": format!("p{i}")}, "spec": spec});
        let reply =
            admin.call(&post(&format!("/api/v1/namespaces/{namespace}/pods"), &pod)).await.expect("answer");
        let answer: Value = serde_json::from_slice(&reply.body).expect("JSON");
        match expected {
            Ok((selector, keys)) => {
                assert_eq!(reply.status, StatusCode::CREATED, "row {i}: {answer}");
                assert_eq!(answer["spec"]["nodeSelector"], selector, "row {i}");
                let tolerations = answer["spec"]["tolerations"].as_array().expect("tolerations");
                // The two of failed nodes are another plugin's.
                let found: Vec<&str> = tolerations
                    .iter()
                    .filter(|toleration| toleration["effect"] != "NoExecute")
                    .filter_map(|toleration| toleration["key"].as_str())
                    .collect();
                assert_eq!(found, keys, "row {i}");
            }
            Err((code, why)) => {
                let message = answer["message"].as_str().unwrap_or_default();
                assert!(reply.status.as_u16() == code && message.contains(why), "row {i}: {answer}");
            }
        }
    }

    // A dry run creates no namespace.
    let map = json!({"metadata": {"name": "m"}});
    let reply =
        admin.call(&post("/api/v1/namespaces/never/configmaps?dryRun=All", &map)).await.expect("answer");
    assert_eq!(reply.status, StatusCode::NOT_FOUND);
    assert_eq!(admin.call(&Call::get("/api/v1/namespaces/never")).await.expect("answer").status, 404);
    let reply = admin.call(&post("/api/v1/namespaces/UPPER/configmaps", &map)).await.expect("answer");
    assert_eq!(reply.status, StatusCode::FORBIDDEN, "{}", reply.text());

    // One event a second about each object: a client that continues exceeds the limit.
    let about = |name: &str, i: usize| json!({"metadata": {"name": format!("{name}-{i}")}, "involvedObject": {"kind": "Pod", "namespace": "plain", "name": name}});
    let events = "/api/v1/namespaces/plain/events";
    admin.must(&post(events, &about("other", 0))).await.expect("an event");
    let mut i = 0;
    let refusal = loop {
        let reply = admin.call(&post(events, &about("one", i))).await.expect("answer");
        if reply.status != StatusCode::CREATED {
            break reply;
        }
        i += 1;
        assert!(i < 10_000, "all events pass");
    };
    assert_eq!(refusal.status, StatusCode::TOO_MANY_REQUESTS);
    let why = "Too many requests: limit reached on type SourceAndObject for key Podplainone";
    assert!(refusal.text().contains(why), "{}", refusal.text());
}

#[tokio::test]
async fn the_plugin_that_denies_everything_does() {
    let server = TestServer::start(&["--enable-admission-plugins=AlwaysDeny"]).await;
    let mut admin = server.connect(Protocol::Http2).await;
    let map = json!({"metadata": {"name": "m"}}).to_string();
    let call = Call::new(Method::POST, "/api/v1/namespaces/default/configmaps").body(JSON, map);
    let reply = admin.call(&call).await.expect("answer");
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
    assert!(reply.text().contains("admission control is denying all modifications"), "{}", reply.text());
}

const LIMITED: &str = r#"
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: services
      matchContains: [services.loadbalancers]
    - resource: pods
      matchScopes:
      - {scopeName: PriorityClass, operator: In, values: [system-cluster-critical, system-node-critical]}
"#;

/// What is limited is used in namespaces with a quota for it alone.
#[tokio::test]
async fn limited_resources_need_a_quota() {
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("admission.yaml");
    std::fs::write(&file, LIMITED).expect("configuration");
    let server = TestServer::start(&[&format!("--admission-control-config-file={}", file.display())]).await;
    let client = server.client().await;
    let namespace = namespace(&client, "limited").await;
    let path = |plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    let critical = |name: &str| {
        let mut pod = pod(name);
        pod["spec"]["priorityClassName"] = json!("system-node-critical");
        pod
    };
    let service = |name: &str, kind: &str| json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": [{"port": 80}]}});
    let post = async |plural: &str, object: &Value| send(&client, "POST", &path(plural), object).await;
    assert_eq!(post("pods", &pod("plain")).await.code, 201);
    assert_eq!(post("services", &service("inner", "ClusterIP")).await.code, 201);
    let refused = post("pods", &critical("c")).await;
    let scope = "{PriorityClass In [system-cluster-critical system-node-critical]}";
    let why = format!("insufficient quota to match these scopes: [{scope}]");
    assert_eq!((refused.code, refused.text_at("/message")), (500, why.as_str()), "{}", refused.text);
    let refused = post("services", &service("outer", "LoadBalancer")).await;
    let why = "services \"outer\" is forbidden: insufficient quota to consume: services.loadbalancers";
    assert_eq!((refused.code, refused.text_at("/message")), (403, why), "{}", refused.text);
    // What becomes limited is refused, and what was there stays as it is.
    let balanced = json!({"spec": {"type": "LoadBalancer"}});
    let change =
        async |change: &Value| send(&client, "PATCH", &format!("{}/inner", path("services")), change).await;
    assert_eq!(change(&balanced).await.code, 403);
    assert_eq!(change(&json!({"metadata": {"labels": {"a": "b"}}})).await.code, 200);
    let scope = json!({"scopeName": "PriorityClass", "operator": "Exists"});
    for spec in [
        json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [scope]}}),
        json!({"hard": {"services.loadbalancers": "1"}}),
    ] {
        let quota = create(
            &client,
            &path("resourcequotas"),
            &json!({"metadata": {"generateName": "q"}, "spec": spec}),
        )
        .await;
        let quota =
            format!("{}/{}", path("resourcequotas"), quota["metadata"]["name"].as_str().unwrap_or_default());
        let is_counted =
            async || send(&client, "GET", &quota, &Value::Null).await.body["status"]["used"].is_object();
        eventually("the controller counts", || async { is_counted().await }).await;
    }
    assert_eq!(post("pods", &critical("c")).await.code, 201);
    assert_eq!(change(&balanced).await.code, 200);
    let refused = post("pods", &critical("d")).await;
    assert!(refused.code == 403 && refused.text.contains("exceeded quota"), "{}", refused.text);
}
