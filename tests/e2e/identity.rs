//! Who asks: credentials of every kind, acting as another user, and tokens checked by a library that the server does
//! not use.

use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use base64::Engine as _;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use jwt_compact::alg::Es256;
use jwt_compact::jwk::JsonWebKey;
use jwt_compact::{AlgorithmExt, Claims, Header, UntrustedToken};
use plinth_benches::api::client::{Call, Identity, Protocol, JSON};
use plinth_tests::kubectl::Kubectl;
use plinth_tests::server::{launch, namespace, shared, unique, Access, TestServer};
use serde_json::{json, Value};

type Es256Key = <Es256 as jwt_compact::Algorithm>::SigningKey;
type Es256Public = <Es256 as jwt_compact::Algorithm>::VerifyingKey;

const REVIEW: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Sends a request as the administrator, with further headers.
async fn send(
    access: &Access,
    identity: Identity,
    call: &Call,
    headers: &[(&str, &str)],
) -> (StatusCode, Value) {
    let endpoint = access.endpoint().with_identity(identity);
    let mut connection = endpoint.connect(Protocol::Http1).await.expect("connection");
    let mut request = Request::builder().method(call.method.clone()).uri(&call.path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if let Some(content_type) = call.content_type {
        request = request.header("content-type", content_type);
    }
    let request = request.body(Full::new(call.body.clone())).expect("request");
    let response = connection.send(request, &call.path).await.expect("answer");
    let status = response.status();
    let body = http_body_util::BodyExt::collect(response).await.expect("body").to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

fn post(path: impl Into<String>, body: Value) -> Call {
    Call::new(Method::POST, path).body(JSON, body.to_string())
}

/// The identity of the administrator, whose certificate the kubeconfig holds.
async fn admin(access: &Access, call: &Call) -> (StatusCode, Value) {
    let reply = access.connect(Protocol::Http1).await.call(call).await.expect("answer");
    (reply.status, serde_json::from_slice(&reply.body).unwrap_or_default())
}

/// Who the server takes a token for: code and user.
async fn whoami(access: &Access, token: &str) -> (StatusCode, Value) {
    let call = post(REVIEW, json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" }));
    let authorization = format!("Bearer {token}");
    let (status, review) =
        send(access, Identity::Anonymous, &call, &[("authorization", &authorization)]).await;
    (status, review["status"]["userInfo"].clone())
}

async fn create_account(access: &Access, namespace: &str) -> String {
    let name = unique("account");
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let (status, body) = admin(access, &post(path, json!({ "metadata": { "name": name } }))).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    name
}

async fn request_token(access: &Access, namespace: &str, account: &str, spec: Value) -> (StatusCode, Value) {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    admin(access, &post(path, json!({ "spec": spec }))).await
}

async fn token(access: &Access, namespace: &str, account: &str, spec: Value) -> String {
    let (status, body) = request_token(access, namespace, account, spec).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    body["status"]["token"].as_str().expect("a token").to_owned()
}

fn claims(token: &str) -> Value {
    let body = token.split('.').nth(1).expect("three parts");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).expect("base64")).expect("claims")
}

/// Waits until the server no longer takes a token. It hears of a deletion within milliseconds; the test's patience is
/// longer so that a busy machine does not fail it.
async fn until_refused(access: &Access, token: &str) {
    for _ in 0..500 {
        if whoami(access, token).await.0 == StatusCode::UNAUTHORIZED {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the token is still accepted");
}

#[tokio::test]
async fn a_token_is_its_account_until_the_account_goes() {
    let access = shared().await;
    let namespace = namespace(&access.client().await, "tokens").await;
    let account = create_account(access, &namespace).await;
    let token = token(access, &namespace, &account, json!({})).await;
    let (status, user) = whoami(access, &token).await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(user["username"], format!("system:serviceaccount:{namespace}:{account}"));
    let groups =
        ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}"), "system:authenticated"];
    assert_eq!(user["groups"], json!(groups));
    let claims = claims(&token);
    assert_eq!(user["uid"], claims["kubernetes.io"]["serviceaccount"]["uid"]);
    let id = format!("JTI={}", claims["jti"].as_str().unwrap());
    assert_eq!(user["extra"]["authentication.kubernetes.io/credential-id"], json!([id]));
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3600);
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}");
    admin(access, &Call::new(Method::DELETE, &*path)).await;
    until_refused(access, &token).await;
    // Another account of the same name is another account.
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    admin(access, &post(path, json!({ "metadata": { "name": account } }))).await;
    assert_eq!(whoami(access, &token).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn bound_tokens_go_with_their_object() {
    let access = shared().await;
    let namespace = namespace(&access.client().await, "bound").await;
    let account = create_account(access, &namespace).await;
    let pod = json!({
        "metadata": { "name": "runner" },
        "spec": {
            "serviceAccountName": account,
            "automountServiceAccountToken": false,
            "containers": [{ "name": "c", "image": "example.com/c" }],
        },
    });
    for (kind, plural, object) in
        [("Pod", "pods", pod), ("Secret", "secrets", json!({ "metadata": { "name": "runner" } }))]
    {
        let path = format!("/api/v1/namespaces/{namespace}/{plural}");
        let (status, made) = admin(access, &post(&*path, object)).await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
        let uid = made["metadata"]["uid"].clone();
        let reference = json!({ "apiVersion": "v1", "kind": kind, "name": "runner", "uid": uid });
        let token = token(access, &namespace, &account, json!({ "boundObjectRef": reference })).await;
        assert_eq!(claims(&token)["kubernetes.io"][kind.to_lowercase()]["uid"], uid);
        let (status, user) = whoami(access, &token).await;
        assert_eq!(status, StatusCode::CREATED);
        if kind == "Pod" {
            assert_eq!(user["extra"]["authentication.kubernetes.io/pod-uid"], json!([uid]));
        }
        let wrong = json!({ "apiVersion": "v1", "kind": kind, "name": "runner", "uid": "other" });
        let (status, body) =
            request_token(access, &namespace, &account, json!({ "boundObjectRef": wrong })).await;
        assert_eq!((status, &body["reason"]), (StatusCode::CONFLICT, &json!("Conflict")), "{body}");
        admin(access, &Call::new(Method::DELETE, format!("{path}/runner"))).await;
        until_refused(access, &token).await;
    }
}

#[tokio::test]
async fn token_requests_are_checked() {
    let access = shared().await;
    let namespace = namespace(&access.client().await, "requests").await;
    let account = create_account(access, &namespace).await;
    let reference = |kind: &str| json!({ "apiVersion": "v1", "kind": kind, "name": "nobody" });
    let rows = [
        (json!({ "expirationSeconds": 599 }), 422, "may not specify a duration less than 10 minutes"),
        (
            json!({ "expirationSeconds": (1u64 << 32) + 1 }),
            422,
            "may not specify a duration larger than 2^32 seconds",
        ),
        (json!({ "boundObjectRef": reference("Pod") }), 404, "pods \"nobody\" not found"),
        (json!({ "boundObjectRef": reference("Secret") }), 404, "secrets \"nobody\" not found"),
        (json!({ "boundObjectRef": reference("Node") }), 404, "nodes \"nobody\" not found"),
        (
            json!({ "boundObjectRef": reference("ConfigMap") }),
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
    ];
    for (spec, code, message) in rows {
        let (status, body) = request_token(access, &namespace, &account, spec.clone()).await;
        assert_eq!(status.as_u16(), code, "{spec}: {body}");
        assert!(body["message"].as_str().unwrap().contains(message), "{spec}: {body}");
    }
    let (status, body) = request_token(access, &namespace, "nobody", json!({})).await;
    assert_eq!((status, &body["details"]["kind"]), (StatusCode::NOT_FOUND, &json!("serviceaccounts")));
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let other = json!({ "metadata": { "name": "other" }, "spec": {} });
    assert_eq!(admin(access, &post(path, other)).await.0, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn tokens_are_those_of_another_library() {
    let server = TestServer::start(&[]).await;
    let account = create_account(&server, "default").await;
    let token = token(&server, "default", &account, json!({})).await;
    // The keys that the server publishes verify the tokens that it issues.
    let (_, configuration) = admin(&server, &Call::get("/.well-known/openid-configuration")).await;
    assert_eq!(configuration["issuer"], claims(&token)["iss"]);
    assert!(configuration["jwks_uri"].as_str().unwrap().ends_with("/openid/v1/jwks"));
    let (_, keys) = admin(&server, &Call::get("/openid/v1/jwks")).await;
    let jwk: JsonWebKey<'_> = serde_json::from_value(keys["keys"][0].clone()).expect("a key");
    let public = Es256Public::try_from(&jwk).expect("a P-256 key");
    let untrusted = UntrustedToken::new(&token).expect("a token");
    assert_eq!(untrusted.header().key_id.as_deref(), keys["keys"][0]["kid"].as_str());
    let verified = Es256.validator::<Value>(&public).validate(&untrusted).expect("a good signature");
    assert_eq!(verified.claims().custom["sub"], format!("system:serviceaccount:default:{account}"));
    // And the server takes a token that the library signs with its key, and none that is wrong.
    let private = private_key(&server);
    let good = claims(&token);
    let sign = |claims: &Value| {
        let header = Header::empty().with_key_id(keys["keys"][0]["kid"].as_str().unwrap());
        Es256.token(&header, &Claims::new(claims.clone()), &private).expect("signed")
    };
    let with = |key: &str, value: Value| {
        let mut claims = good.clone();
        claims[key] = value;
        sign(&claims)
    };
    let now = good["iat"].as_i64().unwrap();
    let parts: Vec<&str> = token.split('.').collect();
    let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let (x, y) = (keys["keys"][0]["x"].as_str().unwrap(), keys["keys"][0]["y"].as_str().unwrap());
    let point = [vec![4], URL_SAFE_NO_PAD.decode(x).unwrap(), URL_SAFE_NO_PAD.decode(y).unwrap()].concat();
    let hs256 = {
        use jwt_compact::alg::{Hs256, Hs256Key};
        let key = Hs256Key::new(&point);
        Hs256.token(&Header::empty(), &Claims::new(good.clone()), &key).expect("signed")
    };
    let stranger = Es256Key::from_slice(&[7; 32]).expect("a key");
    let rows = [
        ("signed by the library", sign(&good), 201),
        ("expired", with("exp", json!(now - 3600)), 401),
        ("not valid yet", with("nbf", json!(now + 3600)), 401),
        ("issued in the future", with("iat", json!(now + 3600)), 401),
        ("for another audience", with("aud", json!(["vault"])), 401),
        ("of another issuer", with("iss", json!("https://example.com")), 401),
        (
            "of another account",
            with(
                "kubernetes.io",
                json!({ "namespace": "default", "serviceaccount": { "name": account, "uid": "x" } }),
            ),
            401,
        ),
        (
            "signed by a stranger",
            Es256.token(&Header::empty(), &Claims::new(good.clone()), &stranger).unwrap(),
            401,
        ),
        ("alg none", format!("{}.{}.", encode(json!({ "alg": "none" })), parts[1]), 401),
        ("HS256 with the public key", hs256, 401),
        ("truncated", token[..token.len() - 4].to_owned(), 401),
        ("without a signature", format!("{}.{}.", parts[0], parts[1]), 401),
        ("no token at all", "abc".to_owned(), 401),
    ];
    for (what, token, code) in rows {
        assert_eq!(whoami(&server, &token).await.0.as_u16(), code, "{what}");
    }
    // Wrong credentials are refused where none are needed.
    let (status, _) =
        send(&server, Identity::Anonymous, &Call::get("/livez"), &[("authorization", "Bearer abc")]).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    // A token survives a restart: the key lies in the data directory, for its owner alone.
    use std::os::unix::fs::PermissionsExt;
    let key = std::fs::metadata(server.data().join("pki/sa.key")).expect("the key");
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
}

/// The server's own signing key: the 32 bytes of the scalar out of its PKCS#8 document.
fn private_key(server: &TestServer) -> Es256Key {
    let pem = std::fs::read_to_string(server.data().join("pki/sa.key")).expect("the signing key");
    let base64: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let der = STANDARD.decode(base64).expect("PEM");
    let scalar = [2, 1, 1, 4, 32];
    let at = der.windows(scalar.len()).position(|w| w == scalar).expect("an EC key") + scalar.len();
    Es256Key::from_slice(&der[at..at + 32]).expect("a scalar")
}

#[tokio::test]
async fn reviews_tell_whose_a_token_is() {
    let access = shared().await;
    let namespace = namespace(&access.client().await, "reviews").await;
    let account = create_account(access, &namespace).await;
    let token = token(access, &namespace, &account, json!({ "audiences": ["vault"] })).await;
    let review = |spec: Value| {
        post(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec }),
        )
    };
    let (status, body) =
        admin(access, &review(json!({ "token": token, "audiences": ["vault", "other"] }))).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    assert_eq!(body["status"]["authenticated"], true, "{body}");
    assert_eq!(body["status"]["audiences"], json!(["vault"]));
    assert_eq!(body["status"]["user"]["username"], format!("system:serviceaccount:{namespace}:{account}"));
    let (_, body) = admin(access, &review(json!({ "token": token }))).await;
    assert_eq!(body["status"].get("authenticated"), None, "{body}");
    assert!(
        body["status"]["error"]
            .as_str()
            .unwrap()
            .starts_with("[invalid bearer token, token audiences [\"vault\"] is invalid"),
        "{body}"
    );
    let (_, body) = admin(access, &review(json!({ "token": "abc" }))).await;
    assert_eq!(body["status"], json!({ "user": {}, "error": "invalid bearer token" }));
    let (status, body) = admin(access, &review(json!({}))).await;
    assert_eq!(
        (status, &body["message"]),
        (StatusCode::BAD_REQUEST, &json!("token is required for TokenReview in authentication"))
    );
}

#[tokio::test]
async fn users_act_as_others_when_they_may() {
    let server = TestServer::start(&[]).await;
    let call = post(REVIEW, json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" }));
    let as_admin = |headers: Vec<(&'static str, &'static str)>| {
        let (server, call) = (&server, &call);
        async move {
            let mut connection = server.connect(Protocol::Http1).await;
            let mut request =
                Request::builder().method(Method::POST).uri(REVIEW).header("content-type", JSON);
            for (name, value) in headers {
                request = request.header(name, value);
            }
            let request = request.body(Full::new(Bytes::clone(&call.body))).expect("request");
            let response = connection.send(request, REVIEW).await.expect("answer");
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
    // Who may not is told in the words of the constrained form.
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
    let call = post(REVIEW, json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" }));
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
async fn kubectl_asks_who_it_is_makes_tokens_and_acts_as_others() {
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

#[tokio::test]
async fn secrets_get_the_token_of_their_account_and_go_with_it() {
    let server = TestServer::start(&[]).await;
    let account = create_account(&server, "default").await;
    let path = "/api/v1/namespaces/default/secrets";
    let secret = |name: &str, account: &str| {
        json!({
            "metadata": { "name": name, "annotations": { "kubernetes.io/service-account.name": account } },
            "type": "kubernetes.io/service-account-token",
        })
    };
    let until = async |name: &str, wanted: &dyn Fn(StatusCode, &Value) -> bool| {
        for _ in 0..500 {
            let (status, body) = admin(&server, &Call::get(format!("{path}/{name}"))).await;
            if wanted(status, &body) {
                return body;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("{name} is not as wanted");
    };
    let is_full = |_: StatusCode, secret: &Value| secret["data"]["token"].is_string();
    let is_gone = |status: StatusCode, _: &Value| status == StatusCode::NOT_FOUND;
    let text = |secret: &Value, key: &str| {
        let bytes = STANDARD.decode(secret["data"][key].as_str().expect("a text")).expect("base64");
        String::from_utf8(bytes).expect("text")
    };
    for name in ["first", "second"] {
        let (status, body) = admin(&server, &post(path, secret(name, &account))).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
    }
    let first = until("first", &is_full).await;
    let ca = std::fs::read_to_string(server.data().join("pki/ca.crt")).expect("the authority");
    assert_eq!((text(&first, "ca.crt"), text(&first, "namespace")), (ca, "default".to_owned()));
    let token = text(&first, "token");
    let (status, user) = whoami(&server, &token).await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(user["username"], format!("system:serviceaccount:default:{account}"));
    let uid = &first["metadata"]["annotations"]["kubernetes.io/service-account.uid"];
    assert_eq!((&user["uid"], claims(&token).get("exp")), (uid, None), "it has no end");
    // What is taken out of it is put back; a token that is there stays.
    let patch = Call::new(Method::PATCH, format!("{path}/first"))
        .body("application/merge-patch+json", r#"{"data":{"namespace":null}}"#);
    assert_eq!(admin(&server, &patch).await.0, StatusCode::OK);
    let healed = until("first", &|_, secret| secret["data"]["namespace"].is_string()).await;
    assert_eq!(text(&healed, "token"), token);
    // It ends with its Secret, and the Secrets end with their account.
    admin(&server, &Call::new(Method::DELETE, format!("{path}/first"))).await;
    until_refused(&server, &token).await;
    let second = text(&until("second", &is_full).await, "token");
    assert_eq!(whoami(&server, &second).await.0, StatusCode::CREATED);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin(&server, &Call::new(Method::DELETE, format!("{accounts}/{account}"))).await;
    until("second", &is_gone).await;
    until_refused(&server, &second).await;
    // One that names nobody does not stay.
    admin(&server, &post(path, secret("nobodys", "nobody"))).await;
    until("nobodys", &is_gone).await;
    // What is no such Secret is left alone.
    admin(&server, &post(path, json!({ "metadata": { "name": "own" } }))).await;
    assert_eq!(admin(&server, &Call::get(format!("{path}/own"))).await.0, StatusCode::OK);
}

/// Tokens in Secrets: the day of their last use, what is said of those that upstream made by itself, and the label that ends them.
#[tokio::test]
async fn uses_of_tokens_in_secrets_are_noted_and_labels_switch_them_off() {
    const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
    let server = TestServer::start(&[]).await;
    let account = create_account(&server, "default").await;
    let path = "/api/v1/namespaces/default/secrets";
    let secret = json!({
        "metadata": { "name": "s", "annotations": { "kubernetes.io/service-account.name": account } },
        "type": "kubernetes.io/service-account-token",
    });
    assert_eq!(admin(&server, &post(path, secret)).await.0, StatusCode::CREATED);
    let until = async |wanted: &dyn Fn(&Value) -> bool| {
        for _ in 0..500 {
            let (_, body) = admin(&server, &Call::get(format!("{path}/s"))).await;
            if wanted(&body) {
                return body;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("the Secret is not as wanted");
    };
    let full = until(&|secret| secret["data"]["token"].is_string()).await;
    assert_eq!(full["metadata"]["labels"][LAST_USED], Value::Null, "not used yet");
    let token = STANDARD.decode(full["data"]["token"].as_str().expect("token")).expect("base64");
    let token = String::from_utf8(token).expect("text");
    assert_eq!(whoami(&server, &token).await.0, StatusCode::CREATED);
    let used = until(&|secret| secret["metadata"]["labels"][LAST_USED].is_string()).await;
    let day = used["metadata"]["labels"][LAST_USED].as_str().expect("a day");
    assert!(day.len() == 10 && day.bytes().filter(|b| *b == b'-').count() == 2, "{day}");
    // One that its account lists is taken for one that upstream made by itself: clients are warned.
    let warned = async || {
        let call =
            post(REVIEW, json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" }));
        let endpoint = server.endpoint().with_identity(Identity::Token(token.clone()));
        let mut connection = endpoint.connect(Protocol::Http1).await.expect("connection");
        let reply = connection.call(&call).await.expect("answer");
        assert_eq!(reply.status, StatusCode::CREATED);
        reply.headers.get("warning").map(|text| text.to_str().expect("text").to_owned())
    };
    assert_eq!(warned().await, None);
    let merge = |path: String, body: Value| {
        Call::new(Method::PATCH, path).body("application/merge-patch+json", body.to_string())
    };
    let accounts = format!("/api/v1/namespaces/default/serviceaccounts/{account}");
    let listed = merge(accounts, json!({ "secrets": [{ "name": "s" }] }));
    assert_eq!(admin(&server, &listed).await.0, StatusCode::OK);
    let mut warning = None;
    for _ in 0..500 {
        warning = warned().await;
        if warning.is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(warning.is_some_and(|text| text.contains("instead of auto-generated secret-based tokens")));
    // The label ends it, and it lives again without.
    let label = |value: Value| {
        let labels =
            json!({ "metadata": { "labels": { "kubernetes.io/legacy-token-invalid-since": value } } });
        merge(format!("{path}/s"), labels)
    };
    assert_eq!(admin(&server, &label(json!("2024-01-01"))).await.0, StatusCode::OK);
    until_refused(&server, &token).await;
    assert_eq!(admin(&server, &label(Value::Null)).await.0, StatusCode::OK);
    for _ in 0..500 {
        if whoami(&server, &token).await.0 == StatusCode::CREATED {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the token is not accepted again");
}
