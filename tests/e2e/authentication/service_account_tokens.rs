//! Tokens of service accounts: requested, bound, reviewed, and checked by a library that the server does not
//! use.

use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use base64::Engine as _;
use http::{Method, StatusCode};
use jwt_compact::alg::Es256;
use jwt_compact::jwk::JsonWebKey;
use jwt_compact::{AlgorithmExt, Claims, Header, UntrustedToken};
use plinth_benches::api::client::{Call, Identity};
use plinth_tests::requests::post;
use plinth_tests::server::{namespace, shared, TestServer};
use serde_json::{json, Value};

use super::{admin, claims, create_account, request_token, send, token, until_refused, whoami};

type Es256Key = <Es256 as jwt_compact::Algorithm>::SigningKey;
type Es256Public = <Es256 as jwt_compact::Algorithm>::VerifyingKey;

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

/// What kube-apiserver does not promise: it caches tokens for ten seconds.
#[tokio::test]
async fn the_request_after_a_delete_is_refused() {
    let server = TestServer::start(&[]).await;
    let pods = "/api/v1/namespaces/default/pods";
    for round in 0..40 {
        let account = create_account(&server, "default").await;
        let pod = json!({
            "metadata": { "name": "runner" },
            "spec": { "serviceAccountName": account, "containers": [{ "name": "c", "image": "example.com/c" }] },
        });
        let (status, created) = admin(&server, &post(pods, pod)).await;
        assert_eq!(status, StatusCode::CREATED, "{created}");
        let uid = &created["metadata"]["uid"];
        let reference = json!({ "apiVersion": "v1", "kind": "Pod", "name": "runner", "uid": uid });
        let of_pod = token(&server, "default", &account, json!({ "boundObjectRef": reference })).await;
        let of_account = token(&server, "default", &account, json!({})).await;
        let account = format!("/api/v1/namespaces/default/serviceaccounts/{account}");
        for (token, deleted) in [(&of_pod, format!("{pods}/runner")), (&of_account, account)] {
            assert_eq!(whoami(&server, token).await.0, StatusCode::CREATED, "round {round}: {deleted}");
            let (status, body) = admin(&server, &Call::new(Method::DELETE, &*deleted)).await;
            assert_eq!(status, StatusCode::OK, "{body}");
            assert_eq!(whoami(&server, token).await.0, StatusCode::UNAUTHORIZED, "round {round}: {deleted}");
        }
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
    // And the server accepts a token that the library signs with its key, and no invalid one.
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
    let foreign_key = Es256Key::from_slice(&[7; 32]).expect("a key");
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
            "signed by another key",
            Es256.token(&Header::empty(), &Claims::new(good.clone()), &foreign_key).unwrap(),
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
async fn token_reviews_return_the_user_of_a_token() {
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
