use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use plinth_codec::{json, Value};

use super::*;
use crate::authz::{ResourceTarget, Selectors};
use plinth_api::User;

/// A service on a free port that answers depending on the user's name, and counts requests.
struct Double {
    asked: Arc<AtomicUsize>,
    last: Arc<Mutex<Vec<u8>>>,
    _dir: tempfile::TempDir,
    client: Option<Service>,
}

async fn service() -> Double {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (counter, seen) = (asked.clone(), last.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (counter, seen) = (counter.clone(), seen.clone());
            let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
                let (counter, seen) = (counter.clone(), seen.clone());
                async move {
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    counter.fetch_add(1, Ordering::SeqCst);
                    *seen.lock() = body.to_vec();
                    let review = json::parse(&body).unwrap();
                    let (code, status) = match review.str_at(&["spec", "user"]).unwrap() {
                        "yes" => (201, r#"{"allowed":true,"reason":"known"}"#),
                        "no" => (200, r#"{"allowed":false,"reason":"unknown"}"#),
                        "never" => (200, r#"{"allowed":false,"denied":true,"reason":"banned"}"#),
                        "both" => (200, r#"{"allowed":true,"denied":true}"#),
                        _ => (404, "{}"),
                    };
                    let text = format!(
                        r#"{{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{status}}}"#
                    );
                    let mut response = Response::new(Full::new(Bytes::from(text)));
                    *response.status_mut() = hyper::StatusCode::from_u16(code).unwrap();
                    Ok::<_, Infallible>(response)
                }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer),
            );
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: s, user: u}}}}]\nclusters: [{{name: s, cluster: {{server: 'http://{address}/ask'}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
    );
    std::fs::write(&path, text).unwrap();
    let client = Service::from_kubeconfig(&path, Duration::from_secs(30)).unwrap();
    Double { asked, last, _dir: dir, client: Some(client) }
}

fn settings() -> WebhookSettings {
    WebhookSettings {
        version: AccessReviewVersion::V1,
        authorized_ttl: Duration::from_secs(300),
        unauthorized_ttl: Duration::ZERO,
        on_error: Verdict::NoOpinion,
    }
}

const PODS: ResourceTarget<'static> = ResourceTarget {
    group: "",
    version: "v1",
    resource: "pods",
    subresource: "",
    name: "",
    namespace: "a",
    selectors: None,
};

#[tokio::test]
async fn answers_by_table() {
    let mut service = service().await;
    let webhook = WebhookAuthorizer::new(service.client.take().unwrap(), settings());
    let rows = [
        ("yes", Verdict::Allow, "known", false),
        ("no", Verdict::NoOpinion, "unknown", false),
        ("never", Verdict::Deny, "banned", false),
        ("both", Verdict::Deny, "", true),
        ("whoever", Verdict::NoOpinion, "", true),
    ];
    for (name, verdict, reason, fails) in rows {
        let user = User::new(name, &["g"]);
        let decision = webhook.authorize(&Attributes::resource(&user, "get", PODS), None).await;
        let found = (decision.verdict, decision.reason.to_string(), decision.error.is_some());
        assert_eq!(found, (verdict, reason.to_owned(), fails), "{name}");
    }
    assert_eq!(service.asked.load(Ordering::SeqCst), rows.len());
    // Allow decisions are cached; others, with a TTL of zero, are not.
    for (name, asked) in [("yes", 0), ("no", 1)] {
        let before = service.asked.load(Ordering::SeqCst);
        let user = User::new(name, &["g"]);
        webhook.authorize(&Attributes::resource(&user, "get", PODS), None).await;
        assert_eq!(service.asked.load(Ordering::SeqCst) - before, asked, "{name}");
    }
    // `failurePolicy: Deny` denies.
    let closed =
        WebhookAuthorizer { settings: WebhookSettings { on_error: Verdict::Deny, ..settings() }, ..webhook };
    let user = User::new("whoever", &[]);
    let decision = closed.authorize(&Attributes::resource(&user, "get", PODS), None).await;
    assert_eq!(decision.verdict, Verdict::Deny);
}

#[tokio::test]
async fn conditions_decide_whether_the_service_is_called() {
    let mut service = service().await;
    let conditions = ["request.user != 'never'", "request.resourceAttributes.verb == 'get'"];
    let conditions = Conditions::compile(&conditions, "c").unwrap();
    let webhook =
        WebhookAuthorizer::new(service.client.take().unwrap(), settings()).with_conditions(conditions);
    let rows = [
        ("yes", "get", 1, Verdict::Allow),
        ("never", "get", 0, Verdict::NoOpinion),
        ("yes", "list", 0, Verdict::NoOpinion),
    ];
    for (name, verb, asked, verdict) in rows {
        let before = service.asked.load(Ordering::SeqCst);
        let user = User::new(name, &[]);
        let decision = webhook.authorize(&Attributes::resource(&user, verb, PODS), None).await;
        assert_eq!((decision.verdict, decision.error), (verdict, None), "{name} {verb}");
        assert_eq!(service.asked.load(Ordering::SeqCst) - before, asked, "{name} {verb}");
    }
    // A condition that cannot be evaluated is a failure of the webhook.
    let user = User::new("yes", &[]);
    let decision = webhook.authorize(&Attributes::path(&user, "get", "/x"), None).await;
    assert_eq!(decision.verdict, Verdict::NoOpinion);
    assert!(decision.error.is_some_and(|why| why.contains("no such key: resourceAttributes")));
    let closed =
        WebhookAuthorizer { settings: WebhookSettings { on_error: Verdict::Deny, ..settings() }, ..webhook };
    assert_eq!(closed.authorize(&Attributes::path(&user, "get", "/x"), None).await.verdict, Verdict::Deny);
}

#[tokio::test]
async fn the_question_says_everything() {
    let mut service = service().await;
    let webhook = WebhookAuthorizer::new(service.client.take().unwrap(), settings());
    let mut user = User::new("yes", &["g", "h"]);
    user.uid = "u-1".into();
    user.extra.insert("scopes".into(), vec!["a".into()]);
    let selectors = Selectors::of_query("fieldSelector=spec.nodeName%3Dn1&labelSelector=app%20in%20(a,b),!c");
    let target = ResourceTarget { selectors: selectors.as_ref(), ..PODS };
    webhook.authorize(&Attributes::resource(&user, "list", target), None).await;
    let asked = json::parse(&service.last.lock()).unwrap();
    let expected = r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","metadata":{},"spec":{"user":"yes","uid":"u-1","groups":["g","h"],"extra":{"scopes":["a"]},
        "resourceAttributes":{"namespace":"a","verb":"list","version":"v1","resource":"pods",
            "fieldSelector":{"requirements":[{"key":"spec.nodeName","operator":"In","values":["n1"]}]},
            "labelSelector":{"requirements":[{"key":"app","operator":"In","values":["a","b"]},{"key":"c","operator":"DoesNotExist"}]}}}}"#;
    assert_eq!(asked, json::parse(expected.as_bytes()).unwrap());
    let beta = review::encode(AccessReviewVersion::V1Beta1, &Attributes::path(&user, "get", "/x"));
    let beta = json::parse(&beta).unwrap();
    assert_eq!(beta.at(&["spec", "group"]).and_then(Value::as_array).map(<[Value]>::len), Some(2));
    assert_eq!(beta.str_at(&["spec", "nonResourceAttributes", "path"]), Some("/x"));
    assert_eq!(beta.str_at(&["apiVersion"]), Some("authorization.k8s.io/v1beta1"));
}

#[tokio::test]
async fn answers_about_long_selectors_are_not_kept() {
    let mut service = service().await;
    let webhook = WebhookAuthorizer::new(service.client.take().unwrap(), settings());
    let user = User::new("yes", &[]);
    let many = vec!["a"; 20_000].join(",");
    // selector, calls for two requests
    for (selector, asked) in [
        ("labelSelector=a,!b".to_owned(), 1),
        (format!("labelSelector={many}"), 2),
        (format!("fieldSelector=metadata.name%3D{}", "x".repeat(20_000)), 2),
    ] {
        let before = service.asked.load(Ordering::SeqCst);
        let selectors = Selectors::of_query(&selector);
        assert!(selectors.is_some(), "it is valid");
        for _ in 0..2 {
            let target = ResourceTarget { selectors: selectors.as_ref(), ..PODS };
            webhook.authorize(&Attributes::resource(&user, "list", target), None).await;
        }
        assert_eq!(service.asked.load(Ordering::SeqCst) - before, asked, "{selector:.30}");
    }
}
