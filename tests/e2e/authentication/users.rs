//! Impersonation, token files, bootstrap tokens, anonymous requests, and kubeconfigs.

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use plinth_benches::api::client::{Call, Identity, Protocol, JSON};
use plinth_tests::kubectl::Kubectl;
use plinth_tests::requests::{post, self_subject_review, SELF_SUBJECT_REVIEWS};
use plinth_tests::server::{launch, TestServer};
use serde_json::{json, Value};

use super::{admin, claims, create_account, send, token, until_refused, whoami};

#[tokio::test]
async fn users_impersonate_others_when_allowed() {
    let server = TestServer::start(&[]).await;
    let call = self_subject_review();
    let as_admin = |headers: Vec<(&'static str, &'static str)>| {
        let (server, call) = (&server, &call);
        async move {
            let mut connection = server.connect(Protocol::Http1).await;
            let mut request = Request::builder()
                .method(Method::POST)
                .uri(SELF_SUBJECT_REVIEWS)
                .header("content-type", JSON);
            for (name, value) in headers {
                request = request.header(name, value);
            }
            let request = request.body(Full::new(Bytes::clone(&call.body))).expect("request");
            let response = connection.send(request, SELF_SUBJECT_REVIEWS).await.expect("answer");
            let status = response.status();
            let body = http_body_util::BodyExt::collect(response).await.expect("body").to_bytes();
            (status, serde_json::from_slice::<Value>(&body).expect("JSON"))
        }
    };
    let (status, body) = as_admin(vec![
        ("impersonate-user", "jane"),
        ("impersonate-group", "dev"),
        ("impersonate-uid", "u-1"),
        ("impersonate-extra-acme.io%2fscope", "read"),
    ])
    .await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    assert_eq!(
        body["status"]["userInfo"],
        json!({ "username": "jane", "uid": "u-1", "groups": ["dev", "system:authenticated"], "extra": { "acme.io/scope": ["read"] } })
    );
    let (status, body) = as_admin(vec![("impersonate-group", "dev")]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(body["message"].as_str().unwrap().ends_with("without impersonating a user name"), "{body}");
    // A refusal has the text of constrained impersonation.
    let account = create_account(&server, "default").await;
    let token = token(&server, "default", &account, json!({})).await;
    let authorization = format!("Bearer {token}");
    let (status, body) = send(
        &server,
        Identity::Anonymous,
        &Call::get("/api/v1/namespaces/default/pods"),
        &[("authorization", &authorization), ("impersonate-user", "jane")],
    )
    .await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(body["message"], format!("pods is forbidden: User \"system:serviceaccount:default:{account}\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the namespace \"default\""));
}

#[tokio::test]
async fn token_files_bootstrap_tokens_and_anonymous_requests_are_switched_by_flags() {
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("tokens.csv");
    std::fs::write(&file, "file-token,jane,u-1,\"dev,ops\"\n").expect("token file");
    let flag = format!("--token-auth-file={}", file.display());
    let server = TestServer::start(&[&flag, "--enable-bootstrap-token-auth", "--anonymous-auth=false"]).await;
    let (status, user) = whoami(&server, "file-token").await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(
        user,
        json!({ "username": "jane", "uid": "u-1", "groups": ["dev", "ops", "system:authenticated"] })
    );
    let secret = json!({
        "metadata": { "name": "bootstrap-token-abcdef" },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": { "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true" },
    });
    let (status, body) = admin(&server, &post("/api/v1/namespaces/kube-system/secrets", secret)).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let (status, user) = whoami(&server, "abcdef.0123456789abcdef").await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(
        user,
        json!({ "username": "system:bootstrap:abcdef", "groups": ["system:bootstrappers", "system:authenticated"] })
    );
    assert_eq!(whoami(&server, "abcdef.0123456789abcdeg").await.0, StatusCode::UNAUTHORIZED);
    let (status, _) = send(&server, Identity::Anonymous, &Call::get("/livez"), &[]).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn kubeconfigs_are_issued_for_a_user_and_groups() {
    let server = TestServer::start(&[]).await;
    let output = launch()
        .command([
            "kubeconfig",
            "--user",
            "jane",
            "--group",
            "dev",
            "--group",
            "ops",
            "--uid",
            "u-1",
            "--data-dir",
        ])
        .arg(server.data())
        .output()
        .expect("plinth kubeconfig");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = tempfile::NamedTempFile::new().expect("file");
    std::fs::write(file.path(), &output.stdout).expect("kubeconfig");
    let endpoint = plinth_benches::api::kubeconfig::endpoint(file.path()).expect("endpoint");
    let mut connection = endpoint.connect(Protocol::Http1).await.expect("connection");
    let call = self_subject_review();
    let reply = connection.call(&call).await.expect("answer");
    assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text());
    let review: Value = serde_json::from_slice(&reply.body).expect("JSON");
    let user = &review["status"]["userInfo"];
    assert_eq!((&user["username"], &user["uid"]), (&json!("jane"), &json!("u-1")));
    assert_eq!(user["groups"], json!(["dev", "ops", "system:authenticated"]));
    let id = user["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().expect("a credential");
    assert!(id.starts_with("X509SHA256="), "{id}");
}

#[tokio::test]
async fn kubectl_whoami_tokens_and_impersonation() {
    let server = TestServer::start(&[]).await;
    let Some(kubectl) = Kubectl::find("identity", server.kubeconfig()) else { return };
    let me = kubectl.ok("auth whoami -o json");
    assert_eq!(
        serde_json::from_str::<Value>(&me).unwrap()["status"]["userInfo"]["username"],
        "kubernetes-admin"
    );
    kubectl.ok("create serviceaccount robot");
    let token = kubectl.ok("create token robot --duration=15m");
    let claims = claims(token.trim());
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 900);
    let (status, user) = whoami(&server, token.trim()).await;
    assert_eq!(
        (status, &user["username"]),
        (StatusCode::CREATED, &json!("system:serviceaccount:default:robot"))
    );
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: runner}\nspec:\n  serviceAccountName: robot\n  containers: [{name: c, image: example.com/c}]\n";
    kubectl.ok_with_input("create -f -", pod);
    let bound = kubectl.ok("create token robot --bound-object-kind=Pod --bound-object-name=runner");
    assert_eq!(whoami(&server, bound.trim()).await.0, StatusCode::CREATED);
    kubectl.ok("delete pod runner --wait=false --grace-period=0 --force");
    until_refused(&server, bound.trim()).await;
    let other = kubectl.ok("auth whoami -o json --as=jane --as-group=dev");
    let other: Value = serde_json::from_str(&other).unwrap();
    assert_eq!(other["status"]["userInfo"]["groups"], json!(["dev", "system:authenticated"]));
    assert!(kubectl.fails("get pods --as=jane").contains("User \"jane\" cannot list resource \"pods\""));
}
