//! OpenID Connect: an HTTPS provider of the test's own, whose tokens another library signs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine as _;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use jwt_compact::alg::{Es256, Hs256, Hs256Key};
use jwt_compact::jwk::JsonWebKey;
use jwt_compact::{AlgorithmExt, Claims, Header};
use parking_lot::Mutex;
use plinth_benches::api::client::Identity;
use plinth_tests::https::HttpsServer;
use plinth_tests::server::TestServer;
use serde_json::{json, Value};

type Key = <Es256 as jwt_compact::Algorithm>::SigningKey;

/// What a provider publishes; a test may change it at any time.
#[derive(Default)]
struct Published {
    issuer: String,
    keys: Vec<Value>,
    requests: usize,
    /// The responses of `/claims`, by query, and the credentials that it requires.
    claims: BTreeMap<String, (Option<String>, String)>,
    /// Requests to `/claims`.
    claims_requests: usize,
}

/// An issuer of ID tokens.
struct Provider {
    server: HttpsServer,
    published: Arc<Mutex<Published>>,
}

impl Provider {
    async fn start() -> Provider {
        let published: Arc<Mutex<Published>> = Arc::default();
        let state = published.clone();
        let server = HttpsServer::start(move |request: http::Request<hyper::body::Incoming>| {
            let state = state.clone();
            async move {
                let mut state = state.lock();
                state.requests += 1;
                let issuer = state.issuer.clone();
                if request.uri().path() == "/claims" {
                    state.claims_requests += 1;
                    let shown = request.headers().get("authorization").map(|v| v.to_str().expect("text"));
                    let found = state.claims.get(request.uri().query().unwrap_or_default());
                    let answer = found.filter(|(wanted, _)| wanted.as_deref() == shown);
                    let mut response = Response::new(Full::new(Bytes::from(
                        answer.map(|(_, token)| token.clone()).unwrap_or_default(),
                    )));
                    if answer.is_none() {
                        *response.status_mut() = StatusCode::UNAUTHORIZED;
                    }
                    return response;
                }
                let body = match request.uri().path() {
                    "/.well-known/openid-configuration" => {
                        json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")})
                    }
                    "/keys" => json!({"keys": state.keys}),
                    _ => Value::Null,
                };
                let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
                if body.is_null() {
                    *response.status_mut() = StatusCode::NOT_FOUND;
                }
                response
            }
        })
        .await;
        published.lock().issuer = format!("https://localhost:{}", server.port);
        Provider { server, published }
    }

    fn url(&self) -> String {
        format!("https://localhost:{}", self.server.port)
    }

    fn publishes(&self, keys: &[(&str, &Key)]) {
        let keys = keys.iter().map(|(id, key)| {
            let mut jwk = serde_json::to_value(JsonWebKey::from(&public(key))).expect("a key");
            jwk["kid"] = json!(id);
            jwk["use"] = json!("sig");
            jwk["alg"] = json!("ES256");
            jwk
        });
        // A key of an unknown type is ignored.
        let strange = json!({"kty": "strange", "kid": "strange"});
        self.published.lock().keys = keys.chain([strange]).collect();
    }

    fn requests(&self) -> usize {
        self.published.lock().requests
    }

    fn authority(&self, dir: &Path) -> String {
        let path = dir.join(format!("{}.crt", self.server.port));
        std::fs::write(&path, &self.server.certificate).expect("authority");
        path.display().to_string()
    }
}

fn key(seed: u8) -> Key {
    Key::from_slice(&[seed; 32]).expect("a key")
}

fn public(key: &Key) -> <Es256 as jwt_compact::Algorithm>::VerifyingKey {
    *key.verifying_key()
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
    i64::try_from(since.as_secs()).expect("seconds")
}

/// A token of that key; `changes` replaces claims, null takes them out.
fn token(id: &str, key: &Key, issuer: &str, changes: Value) -> String {
    let mut claims = json!({
        "iss": issuer, "aud": "kubernetes", "sub": "jane", "exp": now() + 600, "iat": now(),
        "email": "jane@example.com", "groups": ["dev", "ops"], "realm": "main",
    });
    for (name, value) in changes.as_object().expect("claims") {
        match value {
            Value::Null => drop(claims.as_object_mut().expect("claims").remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    Es256.token(&Header::empty().with_key_id(id), &Claims::new(claims), key).expect("a token")
}

/// The user that the server authenticates a token as.
async fn whoami(server: &TestServer, token: &str) -> (u16, Value) {
    plinth_tests::requests::whoami(server, Identity::Token(token.to_owned())).await
}

/// Polls until the answer has this code.
async fn until(server: &TestServer, token: &str, code: u16) -> Value {
    for _ in 0..600 {
        let (status, user) = whoami(server, token).await;
        if status == code {
            return user;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never {code}");
}

#[tokio::test]
async fn tokens_of_the_issuer_of_the_flags() {
    let dir = tempfile::tempdir().expect("directory");
    let provider = Provider::start().await;
    let good = key(1);
    provider.publishes(&[("one", &good)]);
    let issuer = provider.url();
    let server = TestServer::start(&[
        &format!("--oidc-issuer-url={issuer}"),
        "--oidc-client-id=kubernetes",
        &format!("--oidc-ca-file={}", provider.authority(dir.path())),
        "--oidc-groups-claim=groups",
        "--oidc-groups-prefix=oidc:",
        "--oidc-required-claim=realm=main",
        "--oidc-signing-algs=RS256,ES256",
    ])
    .await;
    let (status, user) = whoami(&server, &token("one", &good, &issuer, json!({}))).await;
    assert_eq!(status, 201, "{user}");
    // Without a prefix of its own a name gets the issuer's.
    assert_eq!(user["username"], format!("{issuer}#jane"));
    assert_eq!(user["groups"], json!(["oidc:dev", "oidc:ops", "system:authenticated"]));
    let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let genuine = token("one", &good, &issuer, json!({}));
    let parts: Vec<&str> = genuine.split('.').collect();
    let hs256 = {
        let point = public(&good).to_encoded_point(false);
        let claims =
            json!({"iss": issuer, "aud": "kubernetes", "sub": "jane", "exp": now() + 600, "realm": "main"});
        let header = Header::empty().with_key_id("one");
        Hs256.token(&header, &Claims::new(claims), &Hs256Key::new(point.as_bytes())).expect("a token")
    };
    let changed = |changes: Value| token("one", &good, &issuer, changes);
    let rows = [
        ("several audiences", changed(json!({"aud": ["vault", "kubernetes"]})), 201),
        ("one group as a text", changed(json!({"groups": "dev"})), 201),
        ("no groups", changed(json!({"groups": null})), 201),
        ("no key id", Es256.token(&Header::empty(), &Claims::new(json!({"iss": issuer, "aud": "kubernetes", "sub": "jane", "exp": now() + 600, "realm": "main"})), &good).expect("a token"), 201),
        ("another audience", changed(json!({"aud": "vault"})), 401),
        ("no audience", changed(json!({"aud": null})), 401),
        ("expired", changed(json!({"exp": now() - 3600})), 401),
        ("no end", changed(json!({"exp": null})), 401),
        ("not yet", changed(json!({"nbf": now() + 3600})), 401),
        ("another issuer", token("one", &good, "https://example.com", json!({})), 401),
        ("no name", changed(json!({"sub": null})), 401),
        ("a name that is none", changed(json!({"sub": {"a": "b"}})), 401),
        ("an empty name", changed(json!({"sub": ""})), 401),
        ("groups that are none", changed(json!({"groups": {"a": "b"}})), 401),
        ("another realm", changed(json!({"realm": "test"})), 401),
        ("no realm", changed(json!({"realm": null})), 401),
        ("another key by that id", token("one", &key(2), &issuer, json!({})), 401),
        ("a key that is not there", token("two", &key(2), &issuer, json!({})), 401),
        ("alg none", format!("{}.{}.", encode(json!({"alg": "none", "kid": "one"})), parts[1]), 401),
        ("no signature", format!("{}.{}.", parts[0], parts[1]), 401),
        ("another body", format!("{}.{}.{}", parts[0], encode(json!({"iss": issuer, "aud": "kubernetes", "sub": "admin", "exp": now() + 600, "realm": "main"})), parts[2]), 401),
        ("HS256 with the public key", hs256, 401),
    ];
    for (what, token, code) in rows {
        let (status, user) = whoami(&server, &token).await;
        assert_eq!(status, code, "{what}: {user}");
    }
    // Tokens with unknown keys do not make the server request the issuer's configuration and keys each time.
    let requests = provider.requests();
    for _ in 0..50 {
        assert_eq!(whoami(&server, &token("two", &key(2), &issuer, json!({}))).await.0, 401);
    }
    assert!(provider.requests() < requests + 50, "{} requests", provider.requests() - requests);
}

#[tokio::test]
async fn keys_change_and_other_algorithms_are_not_taken() {
    let dir = tempfile::tempdir().expect("directory");
    let provider = Provider::start().await;
    let (old, new) = (key(3), key(4));
    provider.publishes(&[("old", &old)]);
    let issuer = provider.url();
    let authority = format!("--oidc-ca-file={}", provider.authority(dir.path()));
    let url = format!("--oidc-issuer-url={issuer}");
    let flags = [url.as_str(), &authority, "--oidc-client-id=kubernetes", "--oidc-username-claim=email"];
    let server =
        TestServer::start(&[&flags[..], &["--oidc-username-prefix=-", "--oidc-signing-algs=ES256"]].concat())
            .await;
    let (by_old, by_new) = (token("old", &old, &issuer, json!({})), token("new", &new, &issuer, json!({})));
    let (status, user) = whoami(&server, &by_old).await;
    assert_eq!((status, &user["username"]), (201, &json!("jane@example.com")));
    let unverified = token("old", &old, &issuer, json!({"email_verified": false}));
    assert_eq!(whoami(&server, &unverified).await.0, 401, "an address that nobody has checked");
    assert_eq!(whoami(&server, &by_new).await.0, 401);
    provider.publishes(&[("new", &new)]);
    until(&server, &by_new, 201).await;
    assert_eq!(whoami(&server, &by_old).await.0, 401, "a key that is published no more");
    // RS256 alone is taken unless a flag says otherwise.
    let server = TestServer::start(&flags).await;
    assert_eq!(whoami(&server, &by_new).await.0, 401, "ES256");
}

#[tokio::test]
async fn issuers_of_a_file_come_and_go_with_it() {
    let dir = tempfile::tempdir().expect("directory");
    let (first, second) = (Provider::start().await, Provider::start().await);
    let (one, two) = (key(5), key(6));
    first.publishes(&[("k", &one)]);
    second.publishes(&[("k", &two)]);
    let file = dir.path().join("authentication.yaml");
    let configured = |provider: &Provider, prefix: &str| {
        json!({
            "issuer": {
                "url": provider.url(),
                "certificateAuthority": provider.server.certificate,
                "audiences": ["kubernetes", "other"],
                "audienceMatchPolicy": "MatchAny",
            },
            "claimMappings": {
                "username": {"claim": "sub", "prefix": prefix},
                "groups": {"claim": "groups", "prefix": ""},
                "uid": {"claim": "email"},
            },
            "claimValidationRules": [{"claim": "realm", "requiredValue": "main"}],
        })
    };
    let write = |issuers: Vec<Value>| {
        let configuration = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": issuers,
        });
        // Renamed, so that nobody reads half of it.
        std::fs::write(file.with_extension("new"), configuration.to_string()).expect("file");
        std::fs::rename(file.with_extension("new"), &file).expect("file");
    };
    write(vec![configured(&first, "first:")]);
    // Algorithms are a flag's alone; those of a file are upstream's list, ES256 among it.
    let server = TestServer::start(&[&format!("--authentication-config={}", file.display())]).await;
    let (of_first, of_second) =
        (token("k", &one, &first.url(), json!({})), token("k", &two, &second.url(), json!({})));
    let (status, user) = whoami(&server, &of_first).await;
    assert_eq!(status, 201, "{user}");
    assert_eq!((&user["username"], &user["uid"]), (&json!("first:jane"), &json!("jane@example.com")));
    assert_eq!(user["groups"], json!(["dev", "ops", "system:authenticated"]));
    assert_eq!(whoami(&server, &of_second).await.0, 401);
    // The key of one issuer verifies no token of the other.
    assert_eq!(whoami(&server, &token("k", &two, &first.url(), json!({}))).await.0, 401);
    write(vec![configured(&first, "changed:"), configured(&second, "second:")]);
    assert_eq!(until(&server, &of_second, 201).await["username"], "second:jane");
    assert_eq!(whoami(&server, &of_first).await.1["username"], "changed:jane");
    // An invalid configuration changes nothing.
    write(vec![json!({"issuer": {"url": "http://insecure.example.com"}})]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(whoami(&server, &of_second).await.0, 201);
    write(vec![configured(&second, "second:")]);
    until(&server, &of_first, 401).await;
    assert_eq!(whoami(&server, &of_second).await.0, 201);
}

#[tokio::test]
async fn an_issuer_must_match_its_discovery_document() {
    let dir = tempfile::tempdir().expect("directory");
    let provider = Provider::start().await;
    let key = key(7);
    provider.publishes(&[("k", &key)]);
    let issuer = provider.url();
    let authority = format!("--oidc-ca-file={}", provider.authority(dir.path()));
    let url = format!("--oidc-issuer-url={issuer}");
    let flags = [url.as_str(), "--oidc-client-id=kubernetes", "--oidc-signing-algs=ES256"];
    let token = token("k", &key, &issuer, json!({}));
    // A certificate of an authority that is not trusted.
    let other = Provider::start().await;
    let wrong = format!("--oidc-ca-file={}", other.authority(dir.path()));
    let server = TestServer::start(&[&flags[..], &[&wrong]].concat()).await;
    assert_eq!(whoami(&server, &token).await.0, 401);
    assert_eq!(provider.requests(), 0, "an untrusted issuer gets no request");
    // A discovery document of another issuer.
    provider.published.lock().issuer = "https://example.com".into();
    let server = TestServer::start(&[&flags[..], &[&authority]].concat()).await;
    assert_eq!(whoami(&server, &token).await.0, 401);
    // An issuer that becomes reachable again is requested again.
    provider.published.lock().issuer = issuer;
    assert!(until(&server, &token, 201).await["username"].as_str().expect("a name").ends_with("#jane"));
}

#[tokio::test]
async fn groups_may_come_from_distributed_claims() {
    let dir = tempfile::tempdir().expect("directory");
    let (provider, other) = (Provider::start().await, Provider::start().await);
    let (own, others) = (key(8), key(9));
    provider.publishes(&[("k", &own)]);
    other.publishes(&[("k", &others)]);
    let issuer = provider.url();
    // The authorities of both: the CA bundle of the issuer applies to the endpoints that it names.
    let both = format!("{}{}", provider.server.certificate, other.server.certificate);
    let authority = dir.path().join("both.crt");
    std::fs::write(&authority, both).expect("authorities");
    let server = TestServer::start(&[
        &format!("--oidc-issuer-url={issuer}"),
        "--oidc-client-id=kubernetes",
        &format!("--oidc-ca-file={}", authority.display()),
        "--oidc-username-prefix=-",
        "--oidc-groups-claim=groups",
        "--oidc-groups-prefix=oidc:",
        "--oidc-signing-algs=ES256",
    ])
    .await;
    let answer = |name: &str, shown: Option<&str>, answer: String| {
        let row = (shown.map(|token| format!("Bearer {token}")), answer);
        provider.published.lock().claims.insert(name.to_owned(), row);
    };
    let url = |name: &str| format!("{issuer}/claims?{name}");
    let groups = |issuer: &str, key: &Key, changes: Value| token("k", key, issuer, changes);
    answer("own", None, groups(&issuer, &own, json!({"groups": ["a", "b"]})));
    answer("one", None, groups(&issuer, &own, json!({"groups": "a"})));
    answer("secret", Some("s3cret"), groups(&issuer, &own, json!({"groups": ["c"]})));
    answer("other", None, groups(&other.url(), &others, json!({"groups": ["d"]})));
    answer("forged", None, groups(&issuer, &others, json!({"groups": ["system:masters"]})));
    answer("old", None, groups(&issuer, &own, json!({"groups": ["a"], "exp": now() - 60})));
    answer("other-audience", None, groups(&issuer, &own, json!({"groups": ["a"], "aud": "vault"})));
    answer("without", None, groups(&issuer, &own, json!({"groups": null})));
    answer("text", None, "groups".into());
    answer("untrusted", None, groups("https://localhost:1", &others, json!({"groups": ["a"]})));
    answer("long", None, format!("{}.{}", groups(&issuer, &own, json!({})), "x".repeat(70_000)));
    // A token whose claim of that name stands at that endpoint.
    let at = |claim: &str, source: Value| {
        let names =
            json!({"_claim_names": {claim: "src"}, "_claim_sources": {"src": source}, "groups": null});
        token("k", &own, &issuer, names)
    };
    let endpoint = |name: &str| at("groups", json!({"endpoint": url(name)}));
    let plain = url("own").replace("https:", "http:");
    let held =
        json!({"_claim_names": {"groups": "src"}, "_claim_sources": {"src": {"endpoint": url("old")}}});
    let without = json!({"_claim_names": {"groups": "src"}, "groups": null});
    let rows = [
        ("of the issuer", endpoint("own"), Ok(vec!["oidc:a", "oidc:b"])),
        ("one", endpoint("one"), Ok(vec!["oidc:a"])),
        (
            "with a token",
            at("groups", json!({"endpoint": url("secret"), "access_token": "s3cret"})),
            Ok(vec!["oidc:c"]),
        ),
        ("of another issuer", endpoint("other"), Ok(vec!["oidc:d"])),
        ("aggregated", at("groups", json!({"JWT": "a.b.c"})), Ok(vec![])),
        ("another claim", at("roles", json!({"endpoint": url("own")})), Ok(vec![])),
        ("the token has it itself", token("k", &own, &issuer, held), Ok(vec!["oidc:dev", "oidc:ops"])),
        ("without a token", endpoint("secret"), Err(())),
        ("another token", at("groups", json!({"endpoint": url("secret"), "access_token": "x"})), Err(())),
        (
            "a token that is no header",
            at("groups", json!({"endpoint": url("own"), "access_token": "a\nb"})),
            Err(()),
        ),
        ("forged", endpoint("forged"), Err(())),
        ("expired", endpoint("old"), Err(())),
        ("for another audience", endpoint("other-audience"), Err(())),
        ("no such claim there", endpoint("without"), Err(())),
        ("no token there", endpoint("text"), Err(())),
        ("an issuer that is not there", endpoint("untrusted"), Err(())),
        ("too long", endpoint("long"), Err(())),
        ("nothing there", endpoint("nothing"), Err(())),
        ("not https", at("groups", json!({"endpoint": plain})), Err(())),
        ("no URL", at("groups", json!({"endpoint": "groups"})), Err(())),
        ("no source", token("k", &own, &issuer, without), Err(())),
        ("a source that is none", at("groups", json!("groups")), Err(())),
    ];
    for (what, token, expected) in rows {
        let (status, user) = whoami(&server, &token).await;
        match expected {
            Err(()) => assert_eq!(status, 401, "{what}: {user}"),
            Ok(groups) => {
                assert_eq!(status, 201, "{what}: {user}");
                let all = [&groups[..], &["system:authenticated"]].concat();
                assert_eq!(user["groups"], json!(all), "{what}");
            }
        }
    }
    // Distributed claims of a token are cached; those of a token of another issuer are never requested.
    let token = endpoint("own");
    let requests = || provider.published.lock().claims_requests;
    let before = requests();
    for _ in 0..50 {
        assert_eq!(whoami(&server, &token).await.0, 201);
    }
    assert!(requests() < before + 50, "{} requests", requests() - before);
    let before = requests();
    let names = json!({"_claim_names": {"groups": "src"}, "_claim_sources": {"src": {"endpoint": url("own")}}, "groups": null});
    assert_eq!(whoami(&server, &self::token("k", &others, &issuer, names)).await.0, 401);
    assert_eq!(requests(), before, "no request for tokens of another issuer");
}
