//! Webhooks that authenticate tokens and authorize requests.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use plinth_benches::api::client::{Call, Identity, Protocol};
use plinth_tests::eventually;
use plinth_tests::https::HttpsServer;
use plinth_tests::requests::create;
use plinth_tests::server::TestServer;
use serde_json::{json, Value};

use super::answer;
use crate::monitoring::Scrape;

/// Whether [`authority`] gives no answers.
static AWAY: AtomicBool = AtomicBool::new(false);

/// A service that authenticates one token, and authorizes its user.
async fn authority(request: Request<Incoming>) -> Response<Full<Bytes>> {
    if AWAY.load(Ordering::SeqCst) {
        return answer(StatusCode::SERVICE_UNAVAILABLE, "later");
    }
    let path = request.uri().path().to_owned();
    if request.headers().get("authorization").is_none_or(|v| v != "Bearer of-the-server") {
        return answer(StatusCode::UNAUTHORIZED, "who asks?");
    }
    let body = request.into_body().collect().await.expect("body").to_bytes();
    let mut review: Value = serde_json::from_slice(&body).expect("a review");
    let spec = review["spec"].clone();
    review["status"] = match path.as_str() {
        "/authenticate" => match spec["token"].as_str() {
            Some("janes-token") => {
                json!({"authenticated": true, "user": {"username": "jane", "uid": "u", "groups": ["dev"], "extra": {"scope": ["a"]}}})
            }
            Some("broken") => json!({"authenticated": false, "error": "no longer"}),
            Some("untyped") => json!({"authenticated": true, "user": {"username": 7, "groups": ["dev"]}}),
            _ => json!({"authenticated": false}),
        },
        _ => {
            let attributes = &spec["resourceAttributes"];
            let (verb, resource) = (attributes["verb"].as_str(), attributes["resource"].as_str());
            match (spec["user"].as_str(), verb, resource) {
                (Some("jane"), Some("list"), Some("configmaps")) => {
                    json!({"allowed": true, "reason": "she may"})
                }
                (Some("jane"), Some("list"), Some("endpoints")) => {
                    json!({"allowed": true, "denied": "true"})
                }
                (Some("jane"), _, Some("secrets")) => {
                    json!({"allowed": false, "denied": true, "reason": "never"})
                }
                _ => json!({"allowed": false}),
            }
        }
    };
    answer(StatusCode::OK, &review.to_string())
}

#[tokio::test]
async fn tokens_and_decisions_come_from_a_service() {
    let service = HttpsServer::start(authority).await;
    let dir = tempfile::tempdir().expect("directory");
    let file = |path: &str| {
        let file = dir.path().join(&path[1..]);
        std::fs::write(&file, service.kubeconfig(path, "of-the-server")).expect("kubeconfig");
        file.display().to_string()
    };
    let token = dir.path().join("token");
    std::fs::write(&token, "expired").expect("token");
    let by_file = service.kubeconfig("/authenticate", "x").replace("token: x", "tokenFile: token");
    std::fs::write(dir.path().join("by-file"), by_file).expect("kubeconfig");
    let server = TestServer::start(&[
        &format!("--authentication-token-webhook-config-file={}", dir.path().join("by-file").display()),
        "--authentication-token-webhook-version=v1",
        // Nothing is cached, so that the service's absence takes effect at once.
        "--authentication-token-webhook-cache-ttl=0s",
        "--authorization-mode=Node,Webhook,RBAC",
        &format!("--authorization-webhook-config-file={}", file("/authorize")),
        "--authorization-webhook-version=v1",
        "--authorization-webhook-cache-authorized-ttl=0s",
        "--authorization-webhook-cache-unauthorized-ttl=0s",
    ])
    .await;
    let ask = async |token: &str, path: &str| {
        let endpoint = server.endpoint().with_identity(Identity::Token(token.to_owned()));
        let mut connection = endpoint.connect(Protocol::Http1).await.expect("connection");
        let reply = connection.call(&Call::get(path)).await.expect("answer");
        (reply.status.as_u16(), reply.text())
    };
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(ask("janes-token", maps).await.0, 401);
    // The server's own token is renewed in its file.
    std::fs::write(&token, "of-the-server").expect("token");
    eventually("the new token is used", || async { ask("janes-token", maps).await.0 == 200 }).await;
    for token in ["guessed", "broken", "untyped"] {
        assert_eq!(ask(token, maps).await.0, 401, "{token}");
    }
    let (code, text) = ask("janes-token", "/api/v1/namespaces/default/secrets").await;
    assert_eq!((code, text.contains("never")), (403, true), "{text}");
    assert_eq!(
        ask("janes-token", "/api/v1/namespaces/default/pods").await.0,
        403,
        "no opinion is no permission"
    );
    assert_eq!(
        ask("janes-token", "/api/v1/namespaces/default/endpoints").await.0,
        500,
        "an answer of other types"
    );
    // Without an opinion of the service the next authorizer decides; a denial is final.
    let client = server.client().await;
    let role = json!({"metadata": {"name": "jane"}, "rules": [{"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["list"]}]});
    let group = "rbac.authorization.k8s.io";
    create(&client, &format!("/apis/{group}/v1/namespaces/default/roles"), &role).await;
    let binding = json!({
        "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "jane"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "jane"}],
    });
    create(&client, &format!("/apis/{group}/v1/namespaces/default/rolebindings"), &binding).await;
    assert_eq!(ask("janes-token", "/api/v1/namespaces/default/pods").await.0, 200);
    assert_eq!(ask("janes-token", "/api/v1/namespaces/default/secrets").await.0, 403);
    // Each call is counted; that of endpoints had an answer of other types.
    let scrape = Scrape::of(&mut server.connect(Protocol::Http1).await, "/metrics").await;
    for name in ["webhook_evaluations_total", "webhook_duration_seconds_count"] {
        let name = format!("apiserver_authorization_{name}");
        let calls =
            ["success", "error"].map(|result| scrape.value(&name, &[&format!("result=\"{result}\"")]));
        assert!(calls[0] >= 5.0 && calls[1] == 1.0, "{name}: {calls:?}");
    }
    let failed_open =
        scrape.value("apiserver_authorization_webhook_evaluations_fail_open_total", &["result=\"error\""]);
    assert_eq!(failed_open, 1.0);
    // Without the service nobody is authenticated.
    AWAY.store(true, Ordering::SeqCst);
    assert_eq!(ask("janes-token", maps).await.0, 401);
}
