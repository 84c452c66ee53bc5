//! Handlers act on what was authorized: no path, body or verb leads to another object or to another verb.

use http::Method;
use plinth_benches::api::client::JSON;
use plinth_tests::server::{namespace, shared, unique, Access};
use serde_json::{json, Value};

use super::{admin, send_as, GROUP, RBAC};

const APPLY: &str = "application/apply-patch+yaml";

const MERGE: &str = "application/merge-patch+json";

/// One request of a user, or of the administrator where the name is empty: code and body.
async fn send(
    access: &Access,
    user: &str,
    method_and_type: (Method, &str),
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let (status, body) = send_as(access, (user, &[]), method_and_type, path, body).await;
    (status.as_u16(), body)
}

/// A user with these rules in a namespace.
async fn user_in(access: &Access, namespace: &str, prefix: &str, rules: Value) -> String {
    let user = unique(prefix);
    let role = json!({ "metadata": { "name": user }, "rules": rules });
    admin(access, Method::POST, &format!("{RBAC}/namespaces/{namespace}/roles"), role).await;
    let binding = json!({
        "metadata": { "name": user },
        "roleRef": { "apiGroup": GROUP, "kind": "Role", "name": user },
        "subjects": [{ "apiGroup": GROUP, "kind": "User", "name": user }],
    });
    admin(access, Method::POST, &format!("{RBAC}/namespaces/{namespace}/rolebindings"), binding).await;
    user
}

/// A user who may do everything in one namespace can change no other namespace and no cluster-scoped object.
#[tokio::test]
async fn a_namespace_leads_to_no_other_object_of_the_cluster() {
    let access = shared().await;
    let client = access.client().await;
    let (own, victim) = (namespace(&client, "own").await, namespace(&client, "victim").await);
    let everything = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
    let user = user_in(access, &own, "namespace-admin", everything).await;
    let body = |name: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": { "taken": "yes" } } });
    let below = format!("/api/v1/namespaces/{own}/namespaces");
    let escaped = format!("/api/v1/namespaces/{own}%2Fnamespaces%2F{victim}");
    let fresh = unique("fresh");
    let patch = format!("{below}/{fresh}?fieldManager=test");
    let rows = [
        (Method::GET, JSON, format!("{below}/{victim}"), Value::Null),
        (Method::GET, JSON, escaped.clone(), Value::Null),
        (Method::GET, JSON, below.clone(), Value::Null),
        (Method::GET, JSON, format!("{below}?watch=1&timeoutSeconds=1"), Value::Null),
        (Method::GET, JSON, format!("/api/v1/watch/namespaces/{own}/namespaces"), Value::Null),
        (Method::GET, JSON, format!("{below}/{victim}/status"), Value::Null),
        (Method::POST, JSON, below.clone(), body(&fresh)),
        (Method::PUT, JSON, format!("{below}/{victim}"), body(&victim)),
        (Method::PUT, JSON, format!("{below}/{victim}/finalize"), body(&victim)),
        (Method::PATCH, MERGE, format!("{below}/{victim}"), body(&victim)),
        (Method::PATCH, MERGE, escaped, body(&victim)),
        (Method::PATCH, APPLY, patch, body(&fresh)),
        (Method::DELETE, JSON, format!("{below}/{victim}"), Value::Null),
        (Method::DELETE, JSON, below.clone(), Value::Null),
        (Method::GET, JSON, format!("/api/v1/namespaces/{own}/nodes"), Value::Null),
        (Method::GET, JSON, format!("{RBAC}/namespaces/{own}/clusterroles/cluster-admin"), Value::Null),
    ];
    for (method, content_type, path, body) in rows {
        let (code, answer) = send(access, &user, (method.clone(), content_type), &path, &body).await;
        assert!((400..500).contains(&code), "{method} {path}: {code} {answer}");
    }
    let victim = admin(access, Method::GET, &format!("/api/v1/namespaces/{victim}"), Value::Null).await;
    assert_eq!(victim["status"]["phase"], "Active", "{victim}");
    assert_eq!(victim["metadata"]["labels"]["taken"], Value::Null, "{victim}");
    let (code, _) =
        send(access, "", (Method::GET, JSON), &format!("/api/v1/namespaces/{fresh}"), &Value::Null).await;
    assert_eq!(code, 404);
    // Its own is still its own.
    let (code, _) =
        send(access, &user, (Method::GET, JSON), &format!("/api/v1/namespaces/{own}"), &Value::Null).await;
    assert_eq!(code, 200);
}

/// PUT and apply create only with the permission to create, and only under the name in the path.
#[tokio::test]
async fn what_creates_takes_the_right_to_create() {
    let access = shared().await;
    let own = namespace(&access.client().await, "creates").await;
    let rule = |verbs: Value, names: Value| json!({ "apiGroups": ["", "coordination.k8s.io"], "resources": ["configmaps", "leases"], "verbs": verbs, "resourceNames": names });
    let changes =
        user_in(access, &own, "changes", json!([rule(json!(["get", "patch", "update"]), json!([]))])).await;
    let named =
        user_in(access, &own, "named", json!([rule(json!(["create", "patch", "update"]), json!(["mine"]))]))
            .await;
    let creates =
        user_in(access, &own, "creates", json!([rule(json!(["create", "patch", "update"]), json!([]))]))
            .await;
    let maps = format!("/api/v1/namespaces/{own}/configmaps");
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{own}/leases");
    let map = |name: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    let lease = |name: &str| json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name } });
    let nameless = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {} });
    let apply = |name: &str| format!("{maps}/{name}?fieldManager=test");
    let put = |name: &str| format!("{leases}/{name}");
    let forbidden = |user: &str, plural: &str, group: &str, name: &str| {
        let qualified = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        format!("{qualified} \"{name}\" is forbidden: User \"{user}\" cannot create resource \"{plural}\" in API group \"{group}\" in the namespace \"{own}\"")
    };
    let other = |body: &str, path: &str| {
        format!("the name of the object ({body}) does not match the name on the URL ({path})")
    };
    let undeterminable = |path: &str| {
        format!("the name of the object ({path} based on URL) was undeterminable: name must be provided")
    };
    let coordination = "coordination.k8s.io";
    let rows = [
        // user, method, path, body, code, message
        (
            &changes,
            (Method::PATCH, APPLY),
            apply("a"),
            map("a"),
            403,
            forbidden(&changes, "configmaps", "", "a"),
        ),
        (
            &changes,
            (Method::PUT, JSON),
            put("a"),
            lease("a"),
            403,
            forbidden(&changes, "leases", coordination, "a"),
        ),
        (&named, (Method::PATCH, APPLY), apply("mine"), map("other"), 400, other("other", "mine")),
        (&named, (Method::PUT, JSON), put("mine"), lease("other"), 400, other("other", "mine")),
        (&named, (Method::PATCH, APPLY), apply("mine"), nameless.clone(), 400, undeterminable("mine")),
        (&creates, (Method::PATCH, APPLY), apply("b"), map("c"), 400, other("c", "b")),
        (&creates, (Method::PATCH, APPLY), apply("b"), nameless.clone(), 400, undeterminable("b")),
    ];
    for (user, what, path, body, code, message) in rows {
        let (got, answer) = send(access, user, what.clone(), &path, &body).await;
        assert_eq!((got, answer["message"].as_str()), (code, Some(message.as_str())), "{what:?} {path}");
    }
    for path in [&maps, &leases] {
        let list = admin(access, Method::GET, path, Value::Null).await;
        let names = list["items"].as_array().expect("items").iter().map(|item| &item["metadata"]["name"]);
        let names: Vec<&str> = names.filter_map(Value::as_str).filter(|n| *n != "kube-root-ca.crt").collect();
        assert!(names.is_empty(), "{names:?}");
    }
    let allowed = [
        (&named, (Method::PATCH, APPLY), apply("mine"), map("mine"), 201),
        (&named, (Method::PUT, JSON), put("mine"), lease("mine"), 201),
        (&creates, (Method::PATCH, APPLY), apply("b"), map("b"), 201),
        // Nothing is created any more: the right to change is enough, and the object lends its name.
        (&changes, (Method::PATCH, APPLY), apply("b"), map("b"), 200),
        (&changes, (Method::PATCH, APPLY), apply("b"), nameless, 200),
    ];
    for (user, what, path, body, code) in allowed {
        let (got, answer) = send(access, user, what.clone(), &path, &body).await;
        assert_eq!(got, code, "{what:?} {path}: {answer}");
    }
}

/// Names of unserved resources are not used as metric labels: each would be a time series that stays.
#[tokio::test]
async fn unknown_names_create_no_metric_series() {
    let access = shared().await;
    let user = unique("metrics-user");
    for name in ["made-up-a", "made-up-b"] {
        let paths = [
            format!("/apis/{name}/v1/things"),
            format!("/api/v1/{name}"),
            format!("/api/{name}/pods"),
            format!("/api/v1/namespaces/default/pods/p/{name}"),
        ];
        for path in paths {
            let (code, _) = send(access, &user, (Method::GET, JSON), &path, &Value::Null).await;
            assert_eq!(code, 403, "{path}");
            let (code, _) = send(access, "", (Method::GET, JSON), &path, &Value::Null).await;
            assert_eq!(code, 404, "{path}");
        }
    }
    let (_, metrics) = send(access, "", (Method::GET, JSON), "/metrics", &Value::Null).await;
    let metrics = metrics.as_str().expect("text");
    assert!(metrics.contains("apiserver_request_total"), "{metrics}");
    assert!(!metrics.contains("made-up"), "a series of a made-up name");
}

/// Paths for which upstream's router has no handler are authorized by their form and answered with 404.
#[tokio::test]
async fn what_has_no_route_is_served_by_nobody() {
    let access = shared().await;
    let own = namespace(&access.client().await, "routes").await;
    let map = json!({ "metadata": { "name": "there" } });
    admin(access, Method::POST, &format!("/api/v1/namespaces/{own}/configmaps"), map).await;
    let pods = format!("/api/v1/namespaces/{own}/pods");
    let rows = [
        (Method::GET, format!("{pods}/p/log/tail"), 404),
        (Method::GET, format!("{pods}/p/status/tail"), 404),
        (Method::GET, format!("/api/v1/namespaces/{own}/status/tail"), 404),
        (Method::GET, format!("/api/v1/proxy/namespaces/{own}/pods/p"), 404),
        (Method::GET, format!("/api/v1/namespaces/{own}//configmaps/there"), 404),
        (Method::GET, format!("//api/v1/namespaces/{own}/configmaps/there"), 404),
        (Method::GET, "//version".to_owned(), 404),
        (Method::GET, "/livez//ping".to_owned(), 404),
        (Method::GET, format!("/api/v1/namespaces/{own}/configmaps/%zz"), 400),
        (Method::GET, "/version%".to_owned(), 400),
        (Method::GET, "/api/v1/watch".to_owned(), 500),
        (Method::HEAD, format!("/api/v1/namespaces/{own}/configmaps"), 405),
        (Method::HEAD, format!("/api/v1/namespaces/{own}/configmaps/there"), 405),
        (Method::POST, format!("/api/v1/watch/namespaces/{own}/configmaps"), 405),
        (Method::GET, format!("/api/v1/namespaces/{own}%2Fconfigmaps%2Fthere"), 200),
        (Method::GET, format!("/api/v1/namespaces/{own}/configmaps/there/"), 200),
        (Method::GET, "/%76ersion".to_owned(), 200),
    ];
    for (method, path, code) in rows {
        let (got, answer) = send(access, "", (method.clone(), JSON), &path, &Value::Null).await;
        assert_eq!(got, code, "{method} {path}: {answer}");
    }
}
