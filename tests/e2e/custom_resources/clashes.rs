//! Definitions that have the names of built-in kinds: their objects are objects of their own, in storage,
//! authorization, admission and for controllers.

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::Client;
use plinth_tests::definitions::{definition, establish, with_versions, DEFINITIONS};
use plinth_tests::eventually;
use plinth_tests::requests::call;
use plinth_tests::server::{namespace, shared_with_apis, unique, TestServer, BARE_NAMESPACES};
use serde_json::{json, Value};

const RBAC: &str = "/apis/rbac.authorization.k8s.io";

/// A definition in a group of the Kubernetes community, which says that nobody approved it. Every field is
/// kept.
fn clash(group: &str, kind: &str, plural: &str, scope: &str, version: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let versions = json!([{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                           "subresources": {"status": {}}}]);
    let mut definition = with_versions(group, kind, scope, versions);
    definition["metadata"]["name"] = format!("{plural}.{group}").into();
    definition["spec"]["names"]["plural"] = plural.into();
    definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, a test"});
    definition
}

async fn call_as(
    client: &Client,
    user: &str,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> (u16, Value) {
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header("impersonate-user", user);
    let request = request.header("content-type", "application/json").body(Body::from(body.into_bytes()));
    let response = client.send(request.expect("a request")).await.expect("an answer");
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.expect("the whole answer").to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

fn grant(name: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

async fn ok(client: &Client, method: Method, path: &str, body: Option<&Value>) -> Value {
    let (code, answer) = call(client, method, path, body).await;
    assert!(code < 300, "{path}: {code} {answer}");
    answer
}

/// Permission to create such custom resources, a rule with the same resource name as that for bindings,
/// grants nothing else.
#[tokio::test]
async fn a_custom_cluster_role_binding_binds_nobody() {
    let server = TestServer::start(&[BARE_NAMESPACES]).await;
    let client = server.client().await;
    let bindings = clash("rbac.authorization.k8s.io", "Grant", "clusterrolebindings", "Cluster", "v2");
    establish(&client, &bindings).await;
    let rule = json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterrolebindings"], "verbs": ["create", "update"]});
    let role = json!({"metadata": {"name": "author"}, "rules": [rule]});
    ok(&client, Method::POST, &format!("{RBAC}/v1/clusterroles"), Some(&role)).await;
    let mut author = grant("author", "author");
    author["roleRef"]["name"] = "author".into();
    ok(&client, Method::POST, &format!("{RBAC}/v1/clusterrolebindings"), Some(&author)).await;

    let mut evil = grant("evil", "mallory");
    evil["apiVersion"] = "rbac.authorization.k8s.io/v2".into();
    evil["kind"] = "Grant".into();
    let (v1, v2) = (format!("{RBAC}/v1/clusterrolebindings"), format!("{RBAC}/v2/clusterrolebindings"));
    let (code, answer) = call_as(&client, "author", Method::POST, &v2, Some(&evil)).await;
    assert_eq!(code, 201, "what grants nothing is no escalation: {answer}");
    let (code, _) = call_as(&client, "author", Method::POST, &v1, Some(&grant("evil", "mallory"))).await;
    assert_eq!(code, 403, "what grants is");
    // Under the name of a binding that is there.
    evil["metadata"]["name"] = "cluster-admin".into();
    evil["subjects"][0]["name"] = "mallory".into();
    assert_eq!(call_as(&client, "author", Method::POST, &v2, Some(&evil)).await.0, 201);
    assert_eq!(call_as(&client, "mallory", Method::GET, "/api/v1/secrets", None).await.0, 403);

    assert_eq!(call(&client, Method::GET, &format!("{v1}/evil"), None).await.0, 404);
    let (_, list) = call(&client, Method::GET, &v2, None).await;
    assert_eq!(names(&list), ["cluster-admin", "evil"]);
    let builtin = ok(&client, Method::GET, &v1, None).await;
    assert!(names(&builtin).contains(&"author") && !names(&builtin).contains(&"evil"));
    // Whether it is kept in memory or read from the store.
    let stored = ok(&client, Method::GET, &format!("{v1}/cluster-admin"), None).await;
    assert_eq!(stored["subjects"][0]["name"], "system:masters");
}

/// Local reviews are in namespaces that need not exist, since they are not stored; custom resources of their
/// group are.
#[tokio::test]
async fn a_custom_resource_of_the_group_of_reviews_needs_its_namespace() {
    let server = TestServer::start(&[]).await;
    let client = server.client().await;
    establish(&client, &clash("authorization.k8s.io", "Opinion", "opinions", "Namespaced", "v7")).await;
    let group = "/apis/authorization.k8s.io";
    let opinion =
        json!({"apiVersion": "authorization.k8s.io/v7", "kind": "Opinion", "metadata": {"name": "o"}});
    let path = |namespace: &str| format!("{group}/v7/namespaces/{namespace}/opinions");
    let (code, answer) = call(&client, Method::POST, &path("nowhere"), Some(&opinion)).await;
    assert_eq!((code, &answer["details"]["kind"]), (404, &json!("namespaces")), "{answer}");
    ok(&client, Method::POST, &path("default"), Some(&opinion)).await;
    let review = json!({"metadata": {"namespace": "nowhere"}, "spec": {"user": "jane", "resourceAttributes": {
        "namespace": "nowhere", "verb": "get", "resource": "pods"}}});
    let reviews = format!("{group}/v1/namespaces/nowhere/localsubjectaccessreviews");
    ok(&client, Method::POST, &reviews, Some(&review)).await;
}

/// Reviews and the configuration of admission are exempt from policies, custom resources of their groups are
/// not.
#[tokio::test]
async fn custom_resources_of_exempt_groups_are_subject_to_policies() {
    let server = TestServer::start(&[]).await;
    let client = server.client().await;
    let api = "/apis/admissionregistration.k8s.io/v1";
    let rule =
        json!({"apiGroups": ["*"], "apiVersions": ["v7"], "operations": ["CREATE"], "resources": ["*"]});
    let policy = json!({"metadata": {"name": "nothing"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "message": "policy says no"}]}});
    ok(&client, Method::POST, &format!("{api}/validatingadmissionpolicies"), Some(&policy)).await;
    let binding = json!({"metadata": {"name": "nothing"}, "spec": {
        "policyName": "nothing", "validationActions": ["Deny"]}});
    ok(&client, Method::POST, &format!("{api}/validatingadmissionpolicybindings"), Some(&binding)).await;
    let groups = ["admissionregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io"];
    for (n, group) in groups.into_iter().enumerate() {
        let (kind, plural) = (format!("Foo{n}"), format!("foo{n}s"));
        establish(&client, &clash(group, &kind, &plural, "Namespaced", "v7")).await;
        let foo = json!({"apiVersion": format!("{group}/v7"), "kind": kind, "metadata": {"name": "f"}});
        let path = format!("/apis/{group}/v7/namespaces/default/{plural}?dryRun=All");
        eventually("the policy is in force", || async {
            let (code, answer) = call(&client, Method::POST, &path, Some(&foo)).await;
            code == 422
                && answer["message"].as_str().is_some_and(|message| message.contains("policy says no"))
        })
        .await;
    }
}

#[tokio::test]
async fn deleting_a_definition_leaves_the_built_in_kind_alone() {
    let server = TestServer::start(&[BARE_NAMESPACES]).await;
    let client = server.client().await;
    let namespace = namespace(&client, "policies").await;
    let group = "/apis/networking.k8s.io";
    let (v1, v2) = (
        format!("{group}/v1/namespaces/{namespace}/networkpolicies"),
        format!("{group}/v2/namespaces/{namespace}/networkpolicies"),
    );
    let policy = json!({"metadata": {"name": "deny"}, "spec": {"podSelector": {}}});
    ok(&client, Method::POST, &v1, Some(&policy)).await;
    for scope in ["Namespaced", "Cluster"] {
        let custom = clash("networking.k8s.io", "Fence", "networkpolicies", scope, "v2");
        establish(&client, &custom).await;
        let collection = if scope == "Cluster" { format!("{group}/v2/networkpolicies") } else { v2.clone() };
        let fence = json!({"apiVersion": "networking.k8s.io/v2", "kind": "Fence", "metadata": {"name": "deny"}, "spec": {"a": 1}});
        let made = ok(&client, Method::POST, &collection, Some(&fence)).await;
        let list = ok(&client, Method::GET, &format!("{group}/v2/networkpolicies"), None).await;
        assert_eq!(names(&list), ["deny"], "{scope}: no built-in one, and none of the other scope");
        assert_eq!(list["items"][0]["metadata"]["uid"], made["metadata"]["uid"]);
        assert_eq!(names(&ok(&client, Method::GET, &v1, None).await), ["deny"]);

        let path = format!("{DEFINITIONS}/networkpolicies.networking.k8s.io");
        ok(&client, Method::DELETE, &path, None).await;
        eventually("the definition is gone", || async {
            call(&client, Method::GET, &path, None).await.0 == 404
        })
        .await;
        let left = ok(&client, Method::GET, &v1, None).await;
        assert_eq!(
            left["items"][0]["spec"],
            json!({"podSelector": {}, "policyTypes": ["Ingress"]}),
            "{scope}"
        );
    }
}

/// Subresources and other behavior that only built-in kinds have, for kinds of the same names.
#[tokio::test]
async fn kinds_with_the_names_of_built_in_ones_are_ordinary() {
    let access = shared_with_apis().await;
    let client = access.client().await;
    let namespace = namespace(&client, "kinds").await;
    ok(
        &client,
        Method::POST,
        &format!("/api/v1/namespaces/{namespace}/serviceaccounts"),
        Some(&json!({"metadata": {"name": "x"}})),
    )
    .await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false});
    ok(&client, Method::POST, &pods, Some(&json!({"metadata": {"name": "x"}, "spec": spec}))).await;
    let pod = format!("{pods}/x");
    for kind in
        ["TokenRequest", "Binding", "Eviction", "Scale", "Namespace", "Event", "Secret", "Status", "Lease"]
    {
        let group = format!("{}.example.com", unique("kinds"));
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = definition(&group, kind, "Namespaced", schema);
        establish(&client, &definition).await;
        let plural = definition["spec"]["names"]["plural"].as_str().expect("a plural");
        let collection = format!("/apis/{group}/v1/namespaces/{namespace}/{plural}");
        let mut object = json!({
            "apiVersion": format!("{group}/v1"), "kind": kind,
            "metadata": {"name": "x", "finalizers": ["example.com/hold"]},
            "spec": {"finalizers": ["kubernetes"], "n": 1},
        });
        let made = ok(&client, Method::POST, &collection, Some(&object)).await;
        object["metadata"] = made["metadata"].clone();
        object["status"] = json!({"said": kind});
        let path = format!("{collection}/x");
        let updated = ok(&client, Method::PUT, &format!("{path}/status"), Some(&object)).await;
        assert_eq!(
            (&updated["kind"], &updated["status"]),
            (&json!(kind), &json!({"said": kind})),
            "{updated}"
        );
        assert_eq!(updated["metadata"]["uid"], made["metadata"]["uid"], "{kind}");
        let patch = json!({"status": {"said": "more"}});
        let (code, patched) = plinth_tests::requests::call_with(
            &client,
            Method::PATCH,
            &format!("{path}/status"),
            "application/merge-patch+json",
            patch.to_string(),
        )
        .await;
        assert_eq!((code, &patched["status"]["said"]), (200, &json!("more")), "{kind}: {patched}");
        // Neither is the API of that name behind it.
        for foreign in [
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "x"}}),
            json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "x"}, "target": {"kind": "Node", "name": "n"}}),
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {"name": "x"}, "spec": {"audiences": []}}),
        ] {
            let (code, answer) = call(&client, Method::PUT, &format!("{path}/status"), Some(&foreign)).await;
            assert_eq!(code, 400, "{kind}: {answer}");
        }
        let still = ok(&client, Method::GET, &pod, None).await;
        assert!(
            still["metadata"]["deletionTimestamp"].is_null() && still["spec"]["nodeName"].is_null(),
            "{kind}"
        );
        // Of all these only a Namespace of the core group waits for finalizers in its spec.
        ok(&client, Method::DELETE, &path, None).await;
        let patch = json!({"metadata": {"finalizers": null}});
        let media_type = "application/merge-patch+json";
        let patched =
            plinth_tests::requests::call_with(&client, Method::PATCH, &path, media_type, patch.to_string());
        assert_eq!(patched.await.0, 200, "{kind}");
        assert_eq!(call(&client, Method::GET, &path, None).await.0, 404, "{kind}");
        ok(&client, Method::DELETE, &format!("{DEFINITIONS}/{plural}.{group}"), None).await;
    }
}

/// Admission plugins and controllers of a built-in kind do not act on custom resources of the same name.
#[tokio::test]
async fn plugins_and_retention_know_built_in_kinds_alone() {
    let server = TestServer::start(&[BARE_NAMESPACES, "--event-ttl=1s"]).await;
    let client = server.client().await;
    let namespace = namespace(&client, "plugins").await;
    // Protection puts a finalizer on the built-in kind, which nobody would take off a custom resource.
    establish(&client, &clash("storage.k8s.io", "Tier", "volumeattributesclasses", "Cluster", "v9")).await;
    let tier = json!({"apiVersion": "storage.k8s.io/v9", "kind": "Tier", "metadata": {"name": "gold"}, "driverName": "d"});
    let made =
        ok(&client, Method::POST, "/apis/storage.k8s.io/v9/volumeattributesclasses", Some(&tier)).await;
    assert!(made["metadata"]["finalizers"].is_null(), "{made}");

    // Events of the API expire; a custom resource of that name stays, and counts for quotas.
    let events = definition("events.example.com", "Event", "Namespaced", json!({"type": "object"}));
    establish(&client, &events).await;
    let quota =
        json!({"metadata": {"name": "few"}, "spec": {"hard": {"count/events.events.example.com": "1"}}});
    ok(&client, Method::POST, &format!("/api/v1/namespaces/{namespace}/resourcequotas"), Some(&quota)).await;
    let quota = format!("/api/v1/namespaces/{namespace}/resourcequotas/few");
    let is_counted = || async {
        let (_, quota) = call(&client, Method::GET, &quota, None).await;
        quota["status"]["used"]["count/events.events.example.com"] == "0"
    };
    eventually("the quota is counted", is_counted).await;
    let collection = format!("/apis/events.example.com/v1/namespaces/{namespace}/events");
    let event = |name: &str| json!({"apiVersion": "events.example.com/v1", "kind": "Event", "metadata": {"name": name}});
    ok(&client, Method::POST, &collection, Some(&event("kept"))).await;
    let (code, refused) = call(&client, Method::POST, &collection, Some(&event("second"))).await;
    assert_eq!(code, 403, "{refused}");
    let builtin = format!("/api/v1/namespaces/{namespace}/events");
    let event = json!({"metadata": {"name": "old"}, "involvedObject": {"namespace": namespace}});
    ok(&client, Method::POST, &builtin, Some(&event)).await;
    let is_gone = || async { names(&call(&client, Method::GET, &builtin, None).await.1).is_empty() };
    eventually("the Event has expired", is_gone).await;
    assert_eq!(names(&ok(&client, Method::GET, &collection, None).await), ["kept"]);
    // What is deleted is no longer counted.
    ok(&client, Method::DELETE, &format!("{collection}/kept"), None).await;
    eventually("the quota is counted again", is_counted).await;
}
