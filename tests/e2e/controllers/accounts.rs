//! As whom the built-in controllers write, which is what admission sees.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use parking_lot::Mutex;
use plinth_tests::eventually;
use plinth_tests::https::HttpsServer;
use plinth_tests::requests::{create, send};
use plinth_tests::server::TestServer;
use serde_json::{json, Value};

/// Operation, resource and name of a write, and the user.
type Seen = Arc<Mutex<BTreeSet<(String, String)>>>;

/// A webhook that allows everything, and records service accounts whose groups are not those of accounts.
async fn webhook(seen: &Seen) -> HttpsServer {
    let seen = seen.clone();
    HttpsServer::start(move |request: Request<Incoming>| {
        let seen = seen.clone();
        async move {
            let body = request.into_body().collect().await.expect("body").to_bytes();
            let review: Value = serde_json::from_slice(&body).expect("a review");
            let (request, user) = (&review["request"], &review["request"]["userInfo"]);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let subresource = text(&request["subResource"]);
            let what = [&request["operation"], &request["resource"]["resource"], &request["name"]].map(text);
            let what = [what.join(" "), subresource].join(" ").trim_end().to_owned();
            let groups = json!([
                "system:serviceaccounts",
                "system:serviceaccounts:kube-system",
                "system:authenticated"
            ]);
            let name = text(&user["username"]);
            let account = name.strip_prefix("system:serviceaccount:kube-system:");
            let account = account.filter(|_| user["groups"] == groups).unwrap_or(&name).to_owned();
            seen.lock().insert((what, account));
            let response = json!({"uid": request["uid"], "allowed": true});
            let answer =
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            Response::new(Full::new(Bytes::from(answer.to_string())))
        }
    })
    .await
}

#[tokio::test]
async fn controllers_write_as_their_upstream_accounts() {
    let server = TestServer::start(&[]).await;
    let client = server.client().await;
    let seen = Seen::default();
    let hook = webhook(&seen).await;
    let hook = json!({
        "name": "users.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": format!("https://localhost:{}/", hook.port), "caBundle": BASE64_STANDARD.encode(&hook.certificate)},
        "rules": [{"operations": ["*"], "apiGroups": ["", "rbac.authorization.k8s.io"], "apiVersions": ["*"],
            "resources": ["configmaps", "secrets", "serviceaccounts", "persistentvolumeclaims", "namespaces/*", "clusterroles"]}],
    });
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    create(&client, configurations, &json!({"metadata": {"name": "users"}, "webhooks": [hook]})).await;
    let probe = json!({"metadata": {"name": "probe"}});
    eventually("the webhook is called", || async {
        send(&client, "POST", "/api/v1/namespaces/default/configmaps?dryRun=All", &probe).await;
        !seen.lock().is_empty()
    })
    .await;

    create(&client, "/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    let path = |plural: &str| format!("/api/v1/namespaces/n/{plural}");
    let until = async |what: &str, account: &str| {
        let wanted = (what.to_owned(), account.to_owned());
        eventually(&format!("{wanted:?} is seen"), || async { seen.lock().contains(&wanted) }).await;
    };
    until("CREATE serviceaccounts default", "service-account-controller").await;
    until("CREATE configmaps kube-root-ca.crt", "root-ca-cert-publisher").await;
    // What the webhook has seen is not written yet, and a token of no account is deleted.
    eventually("the account is there", || async {
        send(&client, "GET", &path("serviceaccounts/default"), &Value::Null).await.code == 200
    })
    .await;
    let annotations = json!({"kubernetes.io/service-account.name": "default"});
    let secret = json!({"metadata": {"name": "s", "annotations": annotations}, "type": "kubernetes.io/service-account-token"});
    create(&client, &path("secrets"), &secret).await;
    until("UPDATE secrets s", "system:kube-controller-manager").await;
    let owner = create(&client, &path("configmaps"), &json!({"metadata": {"name": "owner"}})).await;
    let owners =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    for name in ["owned", "orphan"] {
        let owned = json!({"metadata": {"name": name, "ownerReferences": owners}});
        create(&client, &path("configmaps"), &owned).await;
    }
    let options = json!({"propagationPolicy": "Background"});
    send(&client, "DELETE", &path("configmaps/owner"), &options).await;
    until("DELETE configmaps owned", "generic-garbage-collector").await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    create(&client, &path("persistentvolumeclaims"), &claim).await;
    send(&client, "DELETE", &path("persistentvolumeclaims/c"), &Value::Null).await;
    until("UPDATE persistentvolumeclaims c", "pvc-protection-controller").await;
    let selectors = json!([{"matchLabels": {"aggregated": "yes"}}]);
    let role = json!({"metadata": {"name": "whole"}, "aggregationRule": {"clusterRoleSelectors": selectors}});
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    create(&client, roles, &role).await;
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let part = json!({"metadata": {"name": "part", "labels": {"aggregated": "yes"}}, "rules": rules});
    create(&client, roles, &part).await;
    until("UPDATE clusterroles whole", "clusterrole-aggregation-controller").await;
    create(&client, &path("configmaps"), &json!({"metadata": {"name": "last"}})).await;
    send(&client, "DELETE", "/api/v1/namespaces/n", &Value::Null).await;
    until("DELETE configmaps last", "namespace-controller").await;
    until("UPDATE namespaces n finalize", "namespace-controller").await;
    let of_server =
        |(what, account): &&(String, String)| account == "system:apiserver" && what.contains(" n ");
    assert_eq!(seen.lock().iter().find(of_server), None);
}
