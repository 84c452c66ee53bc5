//! Access reviews as an API.

use http::{Method, StatusCode};
use plinth_benches::api::client::Protocol;
use plinth_tests::kubectl::Kubectl;
use plinth_tests::server::{namespace, shared, unique};
use serde_json::{json, Value};

use super::{admin, ask, binding, RBAC};

#[tokio::test]
async fn reviews_answer_for_others_and_oneself() {
    let access = shared().await;
    let namespace = namespace(&access.client().await, "reviews").await;
    let user = unique("reviewed");
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let pods = json!({ "verb": "get", "resource": "pods", "namespace": namespace });
    let review =
        async |spec: Value| admin(access, Method::POST, path, json!({ "spec": spec })).await["status"].take();
    assert_eq!(
        review(json!({ "user": user, "resourceAttributes": pods })).await,
        json!({ "allowed": false })
    );
    let bindings = format!("{RBAC}/namespaces/{namespace}/rolebindings");
    admin(access, Method::POST, &bindings, binding("v", ("ClusterRole", "view"), &user)).await;
    let reason =
        format!("RBAC: allowed by RoleBinding \"v/{namespace}\" of ClusterRole \"view\" to User \"{user}\"");
    let allowed = json!({ "allowed": true, "reason": reason });
    assert_eq!(review(json!({ "user": user, "resourceAttributes": pods })).await, allowed);
    let local = format!("/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews");
    let spec = json!({ "spec": { "user": user, "resourceAttributes": pods } });
    assert_eq!(admin(access, Method::POST, &local, spec).await["status"], allowed);
    let health = json!({ "user": user, "groups": ["system:unauthenticated"], "nonResourceAttributes": { "verb": "get", "path": "/healthz" } });
    assert_eq!(review(health).await["reason"], "RBAC: allowed by ClusterRoleBinding \"system:public-info-viewer\" of ClusterRole \"system:public-info-viewer\" to Group \"system:unauthenticated\"");
    let masters = json!({ "user": "x", "groups": ["system:masters"], "resourceAttributes": { "verb": "*", "resource": "*", "group": "*" } });
    assert_eq!(review(masters).await, json!({ "allowed": true }));
    let unread = json!({ "user": user, "resourceAttributes": { "verb": "list", "resource": "pods", "namespace": namespace, "labelSelector": { "rawSelector": "a in (" } } });
    assert_eq!(
        review(unread).await["evaluationError"],
        "spec.resourceAttributes.labelSelector ignored due to parse error"
    );
    // Invalid reviews.
    let rows = [
        (json!({ "user": "x" }), "spec.resourceAttributes", "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"),
        (json!({ "resourceAttributes": pods }), "spec.user", "Invalid value: \"\": at least one of user or group must be specified"),
        (
            json!({ "user": "x", "resourceAttributes": pods, "nonResourceAttributes": { "path": "/x" } }),
            "spec.nonResourceAttributes",
            "Invalid value: {\"Path\":\"/x\",\"Verb\":\"\"}: cannot be specified in combination with resourceAttributes",
        ),
        (
            json!({ "user": "x", "resourceAttributes": { "fieldSelector": {} } }),
            "spec.resourceAttributes.fieldSelector.requirements",
            "Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required",
        ),
    ];
    for (spec, field, message) in rows {
        let (status, answer) = ask(access, ("", &[]), Method::POST, path, json!({ "spec": spec })).await;
        let cause = &answer["details"]["causes"][0];
        assert_eq!(
            (status.as_u16(), cause["field"].as_str(), cause["message"].as_str()),
            (422, Some(field), Some(message))
        );
    }
}

#[tokio::test]
async fn kubectl_auth_can_i() {
    let access = shared().await;
    let Some(kubectl) = Kubectl::find("kubectl auth can-i", access.kubeconfig()) else { return };
    let namespace = namespace(&access.client().await, "can-i").await;
    let user = unique("asker");
    let can_i = |what: &str| kubectl.run(&format!("auth can-i {what} -n {namespace} --as {user}"));
    let no = can_i("list deployments.apps");
    assert_eq!((no.status.code(), String::from_utf8_lossy(&no.stdout).trim()), (Some(1), "no"));
    kubectl.ok(&format!("create role r -n {namespace} --verb=list,get --resource=deployments.apps"));
    kubectl.ok(&format!("create rolebinding r -n {namespace} --role=r --user={user}"));
    let yes = can_i("list deployments.apps");
    assert_eq!((yes.status.code(), String::from_utf8_lossy(&yes.stdout).trim()), (Some(0), "yes"));
    assert_eq!(can_i("delete deployments.apps").status.code(), Some(1));
    assert_eq!(can_i("get /healthz").status.code(), Some(0));
    let list = kubectl.ok(&format!("auth can-i --list -n {namespace} --as {user}"));
    let row = list.lines().find(|line| line.starts_with("deployments.apps")).expect("a row of deployments");
    assert!(row.contains("[get list]") || row.contains("[list get]"), "{row}");
    assert!(
        list.lines().any(|line| line.starts_with("selfsubjectaccessreviews.authorization.k8s.io")),
        "{list}"
    );
    assert_eq!(kubectl.ok("auth can-i * *").trim(), "yes");
    let denied = kubectl.fails(&format!("get deployments -n {namespace}-x --as {user}"));
    assert!(denied.contains("cannot list resource \"deployments\" in API group \"apps\""), "{denied}");
}

/// Reviews are requested and answered in each encoding; the answer of one is the request of the next. (The
/// answer of a SelfSubjectRulesReview does not have the namespace any more.)
#[tokio::test]
async fn reviews_speak_every_encoding() {
    use plinth_benches::api::client::Call;
    const ENCODINGS: [&str; 4] =
        ["application/yaml", "application/cbor", "application/vnd.kubernetes.protobuf", "application/json"];
    const AUTHN: &str = "authentication.k8s.io/v1";
    const AUTHZ: &str = "authorization.k8s.io/v1";
    let access = shared().await;
    let attributes = json!({ "verb": "list", "resource": "pods", "namespace": "default" });
    // group version, kind, path, spec, a place in the answer and what is there
    let rows = [
        (
            AUTHZ,
            "SubjectAccessReview",
            format!("/apis/{AUTHZ}/subjectaccessreviews"),
            json!({ "user": "nobody", "resourceAttributes": attributes }),
            ("/status/allowed", json!(false)),
        ),
        (
            AUTHZ,
            "LocalSubjectAccessReview",
            format!("/apis/{AUTHZ}/namespaces/default/localsubjectaccessreviews"),
            json!({ "user": "u", "groups": ["system:masters"], "resourceAttributes": attributes }),
            ("/status/allowed", json!(true)),
        ),
        (
            AUTHZ,
            "SelfSubjectAccessReview",
            format!("/apis/{AUTHZ}/selfsubjectaccessreviews"),
            json!({ "resourceAttributes": attributes }),
            ("/status/allowed", json!(true)),
        ),
        (
            AUTHN,
            "SelfSubjectReview",
            format!("/apis/{AUTHN}/selfsubjectreviews"),
            Value::Null,
            ("/status/userInfo/username", json!("kubernetes-admin")),
        ),
        (
            AUTHN,
            "TokenReview",
            format!("/apis/{AUTHN}/tokenreviews"),
            json!({ "token": "wrong" }),
            ("/status/user", json!({})),
        ),
        (
            AUTHN,
            "TokenRequest",
            "/api/v1/namespaces/kube-system/serviceaccounts/reviewed/token".to_owned(),
            json!({ "audiences": ["a"], "expirationSeconds": 700 }),
            ("/spec/expirationSeconds", json!(700)),
        ),
    ];
    let account = json!({ "metadata": { "name": "reviewed" } });
    admin(access, Method::POST, "/api/v1/namespaces/kube-system/serviceaccounts", account).await;
    let mut connection = access.connect(Protocol::Http1).await;
    for (version, kind, path, spec, (place, expected)) in rows {
        let mut body = json!({ "apiVersion": version, "kind": kind });
        if !spec.is_null() {
            body["spec"] = spec;
        }
        let mut question = (body.to_string().into_bytes(), "application/json");
        for encoding in ENCODINGS {
            let call = Call::new(Method::POST, &*path).body(question.1, question.0).accept(encoding);
            let reply = connection.call(&call).await.expect("answer");
            assert_eq!(reply.status, StatusCode::CREATED, "{kind} as {encoding}: {}", reply.text());
            assert_eq!(reply.headers.get("content-type").expect("a type"), encoding, "{kind}");
            question = (reply.body.to_vec(), encoding);
        }
        let answer: Value = serde_json::from_slice(&question.0).expect("JSON");
        assert_eq!((&answer["apiVersion"], &answer["kind"]), (&json!(version), &json!(kind)));
        let found = answer.pointer(place).cloned();
        // What is empty is left out.
        let found = found.unwrap_or_else(|| if expected.is_object() { json!({}) } else { json!(false) });
        assert_eq!(found, expected, "{kind}: {answer}");
    }
}
