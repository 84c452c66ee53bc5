//! The events of a request from the first to the last.

use super::*;
use hyper::header::CONTENT_TYPE;
use hyper::Method;
use plinth_api::parse_route;
use plinth_codec::tree;

fn audit(dir: &std::path::Path, rules: &str) -> Audit {
    let policy = dir.join("policy.yaml");
    std::fs::write(&policy, format!("kind: Policy\napiVersion: audit.k8s.io/v1\n{rules}")).unwrap();
    let options = options::parsed([
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", dir.join("audit.log").display()),
    ]);
    Audit::start(&options, &prometheus::Registry::new()).unwrap()
}

/// The events in the log, as soon as there are `count`.
async fn events(dir: &std::path::Path, count: usize) -> Vec<Value> {
    let read = || std::fs::read_to_string(dir.join("audit.log")).unwrap_or_default();
    let wait = async {
        while read().lines().count() < count {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), wait).await.expect("the events are written");
    read().lines().map(|line| json::parse(line.as_bytes()).unwrap()).collect()
}

fn begin(audit: &Audit, method: &str, uri: &str, headers: &HeaderMap) -> Recorder {
    let uri: Uri = uri.parse().unwrap();
    let method: Method = method.parse().unwrap();
    let route = parse_route(&method, uri.path(), uri.query()).unwrap();
    let jane = User { name: "jane".into(), ..User::default() };
    let id = id(headers);
    let verb = match &route {
        Route::Resource(info) => info.verb.as_str(),
        Route::NonResource(_) => "get",
    };
    audit.begin(&ReceivedRequest {
        user: Some(&jane),
        route: &route,
        verb,
        name: match &route {
            Route::Resource(info) => &info.name,
            Route::NonResource(_) => "",
        },
        uri: &uri,
        headers,
        remote: [127, 0, 0, 1].into(),
        id: &id,
        received: SystemTime::now(),
    })
}

#[tokio::test]
async fn a_create_is_recorded_with_both_objects() {
    let dir = tempfile::tempdir().unwrap();
    let audit = audit(dir.path(), "rules: [{level: RequestResponse, resources: [{group: ''}]}]");
    let mut headers = HeaderMap::new();
    headers.insert(HEADER, HeaderValue::from_static("my-own-id"));
    headers.insert(USER_AGENT, HeaderValue::from_static("kubectl/v1"));
    headers.insert("x-forwarded-for", HeaderValue::from_static("10.1.2.3, 10.4.5.6"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let recorder = begin(&audit, "POST", "/api/v1/namespaces/n/configmaps?dryRun=All", &headers);
    recorder.received(&mut headers).await.unwrap();
    assert!(!headers.contains_key(ACCEPT_ENCODING), "what is recorded is not compressed");
    recorder.annotate(DECISION, "allow");
    recorder.request_object(
        &tree!({ "metadata": tree!({ "name": "x" }), "data": tree!({ "a": "b" }) }),
        |object| {
            object.as_object_mut().unwrap().insert("immutable", false);
        },
    );
    let mut response =
        Response::new(Body::from(br#"{"kind":"ConfigMap","metadata":{"name":"x","uid":"u"}}"#.to_vec()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *response.status_mut() = hyper::StatusCode::CREATED;
    recorder.answered(response, None).await;
    let events = events(dir.path(), 2).await;
    let text = |i: usize, path: &[&str]| events[i].str_at(path).unwrap_or_default().to_owned();
    assert_eq!(
        (text(0, &["stage"]), text(1, &["stage"])),
        ("RequestReceived".into(), "ResponseComplete".into())
    );
    assert_eq!((text(0, &["auditID"]), text(1, &["auditID"])), ("my-own-id".into(), "my-own-id".into()));
    assert_eq!(text(1, &["requestURI"]), "/api/v1/namespaces/n/configmaps?dryRun=All");
    assert_eq!((text(1, &["verb"]), text(1, &["user", "username"])), ("create".into(), "jane".into()));
    assert_eq!(text(1, &["objectRef", "name"]), "x", "out of the body");
    assert_eq!(text(1, &["requestObject", "data", "a"]), "b");
    assert_eq!(events[1].at(&["requestObject", "immutable"]), Some(&Value::from(false)), "a default");
    assert_eq!(text(1, &["responseObject", "metadata", "uid"]), "u");
    assert_eq!(text(1, &["annotations", DECISION]), "allow");
    let ips: Vec<_> = events[1]
        .get("sourceIPs")
        .and_then(Value::as_array)
        .unwrap()
        .iter()
        .map(|v| v.as_str().unwrap())
        .collect();
    assert_eq!(ips, ["10.1.2.3", "10.4.5.6", "127.0.0.1"]);
    assert_eq!(events[1].at(&["responseStatus", "code"]).and_then(Value::as_int), Some(201));
}

#[tokio::test]
async fn a_refusal_is_recorded_with_its_status() {
    let dir = tempfile::tempdir().unwrap();
    let audit = audit(dir.path(), "omitStages: [RequestReceived]\nrules: [{level: Metadata}]");
    let recorder = begin(&audit, "GET", "/api/v1/namespaces/n/secrets/x", &HeaderMap::new());
    recorder.received(&mut HeaderMap::new()).await.unwrap();
    let error = ApiError::forbidden("", "secrets", "x", "no");
    let mut response = Response::new(Body::empty());
    *response.status_mut() = hyper::StatusCode::FORBIDDEN;
    recorder.answered(response, Some(&error)).await;
    let events = events(dir.path(), 1).await;
    assert_eq!(events[0].str_at(&["responseStatus", "reason"]), Some("Forbidden"));
    assert_eq!(events[0].str_at(&["responseStatus", "message"]), Some("secrets \"x\" is forbidden: no"));
    assert_eq!(events[0].get("responseObject"), None);
}

#[tokio::test]
async fn a_watch_is_recorded_when_it_starts_and_when_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let audit = audit(dir.path(), "rules: [{level: RequestResponse}]");
    let recorder = begin(&audit, "GET", "/api/v1/pods?watch=1", &HeaderMap::new());
    recorder.received(&mut HeaderMap::new()).await.unwrap();
    let (_, rest) = plinth_http::chunk_channel(1, std::time::Duration::from_secs(60), &Default::default());
    let body = Body::Channel { first: Some("{}".into()), rest };
    let response = recorder.answered(Response::new(body), None).await;
    assert_eq!(events(dir.path(), 2).await.len(), 2);
    drop(response);
    let events = events(dir.path(), 3).await;
    let stages: Vec<_> = events.iter().map(|e| e.str_at(&["stage"]).unwrap()).collect();
    assert_eq!(stages, ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
    assert_eq!(events[2].get("responseObject"), None, "a watch has no object");
}

#[tokio::test]
async fn a_list_in_chunks_is_recorded_whole() {
    let dir = tempfile::tempdir().unwrap();
    let audit = audit(dir.path(), "rules: [{level: RequestResponse}]");
    let recorder = begin(&audit, "GET", "/api/v1/pods", &HeaderMap::new());
    let (send, rest) = plinth_http::chunk_channel(4, std::time::Duration::from_secs(60), &Default::default());
    send.send(Ok(r#""items":[{"metadata":{"name":"x"}}]}"#.into()));
    drop(send);
    let body = Body::Channel { first: Some(r#"{"kind":"PodList","#.into()), rest };
    let mut response = recorder.answered(Response::new(body), None).await;
    use http_body_util::BodyExt;
    let sent = response.body_mut().collect().await.unwrap().to_bytes();
    assert_eq!(sent, r#"{"kind":"PodList","items":[{"metadata":{"name":"x"}}]}"#);
    drop(response);
    let events = events(dir.path(), 1).await;
    assert_eq!(events[0].str_at(&["responseObject", "kind"]), Some("PodList"));
}

#[tokio::test]
async fn a_request_that_is_given_up_ends_once() {
    // Kind of request, stages written before it is dropped, all stages.
    let rows: [(&str, &[AuditStage], &[&str]); 4] = [
        ("/api/v1/pods", &[], &["ResponseComplete"]),
        ("/api/v1/pods", &[AuditStage::ResponseComplete], &["ResponseComplete"]),
        ("/api/v1/pods?watch=1", &[], &["ResponseStarted", "ResponseComplete"]),
        ("/api/v1/pods?watch=1", &[AuditStage::ResponseStarted], &["ResponseStarted", "ResponseComplete"]),
    ];
    for (uri, before, expected) in rows {
        let dir = tempfile::tempdir().unwrap();
        let audit = audit(dir.path(), "rules: [{level: Metadata}]");
        let recorder = begin(&audit, "GET", uri, &HeaderMap::new());
        for stage in before {
            recorder.0.as_ref().unwrap().write(*stage).await.unwrap();
        }
        // The last clone that is dropped ends it.
        drop(recorder.clone());
        drop(recorder);
        audit.drain().await;
        let events = events(dir.path(), 0).await;
        let stages: Vec<_> = events.iter().map(|e| e.str_at(&["stage"]).unwrap()).collect();
        assert_eq!(stages, expected, "{uri} {before:?}");
        let message = events.last().unwrap().str_at(&["responseStatus", "message"]);
        let is_given_up = !before.contains(&AuditStage::ResponseComplete);
        assert_eq!(message, is_given_up.then_some("Connection closed early"), "{uri} {before:?}");
    }
}

#[test]
fn nothing_is_made_where_nothing_is_recorded() {
    assert!(!begin(&Audit::default(), "GET", "/api/v1/pods", &HeaderMap::new()).is_on());
}
