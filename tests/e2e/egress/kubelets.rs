//! Logs and terminals of pods, which come from a kubelet.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::eventually;
use plinth_tests::https::HttpsServer;
use plinth_tests::requests::create;
use plinth_tests::server::{namespace, shared, shared_with_apis, unique, TestServer};
use serde_json::{json, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::{answer, send, upgrade};

/// What asks for an upgrade as kubectl did for long.
const SPDY: &str = "connection: Upgrade\r\nupgrade: SPDY/3.1\r\n";

/// A kubelet that has one log, and echoes what an upgraded connection sends.
async fn kubelet(mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    let target = request.uri().to_string();
    if request.headers().contains_key("authorization") {
        return answer(StatusCode::BAD_REQUEST, "credentials were passed on");
    }
    if target.starts_with("/containerLogs/") {
        assert!(request.headers().keys().all(|name| name == "host"), "{:?}", request.headers());
        let status = match target.rsplit_once("tailLines=") {
            Some((_, "404")) => StatusCode::NOT_FOUND,
            Some((_, "302")) => StatusCode::FOUND,
            _ => StatusCode::OK,
        };
        let mut answer = answer(status, &format!("log of {target}\n"));
        let headers = answer.headers_mut();
        headers.insert("location", "https://example.com/".parse().expect("header"));
        headers.insert("x-of-the-kubelet", "1".parse().expect("header"));
        headers.insert("content-type", "text/html".parse().expect("header"));
        return answer;
    }
    if target.starts_with("/exec/") {
        let upgrade = hyper::upgrade::on(&mut request);
        let protocol = request.headers().get("upgrade").cloned().expect("an upgrade");
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.expect("upgraded connection"));
            let mut buffer = [0u8; 64];
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                stream.write_all(&buffer[..count]).await.expect("echo");
            }
        });
        let mut response = answer(StatusCode::SWITCHING_PROTOCOLS, "");
        response.headers_mut().insert("connection", "Upgrade".parse().expect("header"));
        response.headers_mut().insert("upgrade", protocol);
        return response;
    }
    answer(StatusCode::NOT_FOUND, "no such path")
}

/// Makes a node whose kubelet has that port, and the pod `p` on it; returns the node's name.
pub(super) async fn pod_on_node(client: &Client, pods: &str, port: u16, containers: &Value) -> String {
    let node = unique("node");
    create(client, "/api/v1/nodes", &json!({"metadata": {"name": node}})).await;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    let (code, body, _) = send(client, "PATCH", &format!("/api/v1/nodes/{node}/status"), &status).await;
    assert_eq!(code, 200, "{body}");
    let spec = json!({"nodeName": node, "containers": containers});
    create(client, pods, &json!({"metadata": {"name": "p"}, "spec": spec})).await;
    node
}

/// What admission makes of a connection is what the kubelet is asked for; where that cannot be applied, and
/// in a dry run, it is not asked at all.
#[tokio::test]
async fn a_connection_is_what_admission_has_made_of_it() {
    let access = shared_with_apis().await;
    let client = access.client().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let kubelet = HttpsServer::start(move |request: Request<Incoming>| {
        counter.fetch_add(1, Ordering::SeqCst);
        // Nothing but an error answers an upgrade.
        let answer = answer(StatusCode::NOT_FOUND, &request.uri().to_string());
        async move { answer }
    })
    .await;
    let namespace = namespace(&client, "connect").await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let containers = json!([{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]);
    let node = pod_on_node(&client, &pods, kubelet.port, &containers).await;
    let exec = format!("{pods}/p/exec?container=a&command=rm&command=-rf");
    let asks = async |path: &str| upgrade(&access.endpoint(), path, SPDY).await;
    assert_eq!(asks(&exec).await, (404, format!("/exec/{namespace}/p/a?command=rm&command=-rf")));
    for path in [format!("{exec}&dryRun=All"), format!("/api/v1/nodes/{node}/proxy/x?dryRun=All")] {
        let (code, body, _) = send(&client, "POST", &path, &Value::Null).await;
        assert_eq!((code, body["message"].as_str()), (400, Some("dryRun is not supported")), "{path}");
    }

    let api = "/apis/admissionregistration.k8s.io/v1";
    let patch = "[JSONPatch{op: 'add', path: '/command', value: ['true']}, \
                 JSONPatch{op: 'add', path: '/container', value: 'b'}]";
    let rules = |resources: Value| {
        json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"],
            "resources": resources}]})
    };
    let here = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}});
    let policy = json!({"metadata": {"name": namespace}, "spec": {
        "matchConstraints": rules(json!(["pods/exec", "pods/proxy"])),
        "reinvocationPolicy": "Never", "failurePolicy": "Fail",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }});
    create(&client, &format!("{api}/mutatingadmissionpolicies"), &policy).await;
    let binding =
        json!({"metadata": {"name": namespace}, "spec": {"policyName": namespace, "matchResources": here}});
    create(&client, &format!("{api}/mutatingadmissionpolicybindings"), &binding).await;
    eventually("the policy is in force", || async {
        asks(&exec).await.1 == format!("/exec/{namespace}/p/b?command=true")
    })
    .await;
    let before = asked.load(Ordering::SeqCst);
    let (code, body, _) = send(&client, "POST", &format!("{pods}/p/proxy/x"), &Value::Null).await;
    let message = body["message"].as_str().unwrap_or_default();
    assert!(code == 500 && message.contains("cannot be applied"), "{body}");
    assert_eq!(asked.load(Ordering::SeqCst), before, "it was asked");
    // Ports are those of the options alone, under the kubelet's name.
    let forward = format!("{pods}/p/portforward?ports=80&port=22");
    assert_eq!(asks(&forward).await.1, format!("/portForward/{namespace}/p?port=80"));
}

/// Streams are upgraded connections at both ends, and each kind of them has its own options.
#[tokio::test]
async fn a_stream_is_an_upgrade_at_both_ends() {
    let access = shared().await;
    let client = access.client().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let kubelet = HttpsServer::start(move |request: Request<Incoming>| {
        counter.fetch_add(1, Ordering::SeqCst);
        let target = request.uri().to_string();
        let code = match &target {
            target if target.contains("/switches") => StatusCode::SWITCHING_PROTOCOLS,
            target if target.contains("/accepts") => StatusCode::OK,
            _ => StatusCode::NOT_FOUND,
        };
        let names: Vec<String> = request.headers().keys().map(ToString::to_string).collect();
        let answer = answer(code, &format!("{target} {}", names.join(" ")));
        async move { answer }
    })
    .await;
    let namespace = namespace(&client, "streams").await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let containers = ["a", "switches", "accepts"].map(|name| json!({"name": name, "image": "x"}));
    let node = pod_on_node(&client, &pods, kubelet.port, &json!(containers)).await;

    let endpoint = access.endpoint();
    for stream in ["exec?container=a&command=sh", "attach?container=a", "portforward?ports=80"] {
        let path = format!("{pods}/p/{stream}");
        for method in ["GET", "POST"] {
            let (code, body, _) = send(&client, method, &path, &Value::Null).await;
            let (reason, message) = (body["reason"].as_str(), body["message"].as_str());
            let expected = (400, Some("BadRequest"), Some("Upgrade request required"));
            assert_eq!((code, reason, message), expected, "{method} {stream}");
        }
        let (code, text) = upgrade(&endpoint, &path, "upgrade: SPDY/3.1\r\n").await;
        assert!(code == 400 && text.contains("Upgrade request required"), "{stream}: {code} {text}");
    }
    let (code, body, _) = send(&client, "POST", &format!("{pods}/absent/exec"), &Value::Null).await;
    assert_eq!((code, body["reason"].as_str()), (404, Some("NotFound")));
    assert_eq!(asked.load(Ordering::SeqCst), 0, "the kubelet was asked");

    // What is no upgrade is not passed on as one, with or without its header.
    for (container, code) in [("switches", 101), ("accepts", 200)] {
        let path = format!("{pods}/p/exec?container={container}");
        let (status, text) = upgrade(&endpoint, &path, SPDY).await;
        let message = format!("\"message\":\"invalid upgrade response: status code {code}\"");
        assert!(status == 500 && text.contains(&message), "{container}: {status} {text}");
    }
    // Nobody is named to a kubelet by the client, and options of another kind are none.
    let names = "impersonate_user: root\r\nx_remote_group: a\r\nproxy_authorization: x\r\nx-own: 1\r\n";
    let path = format!("{pods}/p/attach?container=a&stdin=1&command=sh&tailLines=x");
    let (code, text) = upgrade(&endpoint, &path, &format!("{SPDY}{names}")).await;
    let expected = format!(
        "/attach/{namespace}/p/a?input=1 connection content-length host upgrade x-forwarded-for x-own"
    );
    let mut words: Vec<&str> = text.split(' ').collect();
    words[1..].sort_unstable();
    assert_eq!((code, words.join(" ")), (404, expected));
    let proxy = format!("/api/v1/nodes/{node}/proxy/x?tailLines=x&ports=y");
    let (code, body, _) = send(&client, "GET", &proxy, &Value::Null).await;
    assert_eq!((code, body["message"].as_str()), (400, Some("address not allowed")));
    let forward = format!("{pods}/p/portforward?ports=80,70000");
    let (code, text) = upgrade(&endpoint, &forward, SPDY).await;
    assert!(code == 400 && text.contains("value out of range"), "{code} {text}");
}

#[tokio::test]
async fn logs_and_terminals_come_from_the_kubelet() {
    let access = shared().await;
    let client = access.client().await;
    let kubelet = HttpsServer::start(kubelet).await;
    let namespace = namespace(&client, "kubelet").await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let containers = json!([{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]);
    let node = pod_on_node(&client, &pods, kubelet.port, &containers).await;
    create(&client, &pods, &json!({"metadata": {"name": "free"}, "spec": {"containers": containers}})).await;

    let (code, _, text) =
        send(&client, "GET", &format!("{pods}/p/log?container=b&tailLines=3&follow=true"), &Value::Null)
            .await;
    assert_eq!(
        (code, text),
        (200, format!("log of /containerLogs/{namespace}/p/b?follow=true&tailLines=3\n"))
    );
    // Of an answer that is no log the words are kept, and no header.
    let (code, body, _) =
        send(&client, "GET", &format!("{pods}/p/log?container=a&tailLines=404"), &Value::Null).await;
    assert_eq!(
        (code, body["message"].as_str(), &body["details"]),
        (
            404,
            Some("the server could not find the requested resource ( pods/log p)"),
            &json!({"name": "p", "kind": "pods/log"})
        )
    );
    let (code, body, _) =
        send(&client, "GET", &format!("{pods}/p/log?container=a&tailLines=302"), &Value::Null).await;
    let message = body["message"].as_str().unwrap_or_default();
    assert!(code == 500 && message.ends_with("tailLines=302\": redirects forbidden"), "{body}");
    let mut connection = access.connect(Protocol::Http1).await;
    let reply = connection.call(&Call::get(format!("{pods}/p/log?container=a"))).await.expect("an answer");
    let header = |name: &str| reply.headers.get(name).and_then(|value| value.to_str().ok());
    assert_eq!((header("content-type"), header("x-of-the-kubelet")), (Some("text/plain"), None));
    let (code, body, _) = send(&client, "GET", &format!("{pods}/p/log"), &Value::Null).await;
    assert_eq!(
        (code, body["message"].as_str()),
        (400, Some("a container name must be specified for pod p, choose one of: [a b]"))
    );
    let (code, body, _) =
        send(&client, "POST", &format!("{pods}/free/exec?container=a&command=sh"), &Value::Null).await;
    assert_eq!((code, body["message"].as_str()), (400, Some("pod free does not have a host assigned")));

    // An upgrade becomes a pipe from end to end.
    let mut stream = access.endpoint().stream(Protocol::Http1).await.expect("connection");
    let head = format!(
        "POST {pods}/p/exec?container=a&stdin=true&stdout=true&command=cat HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("request");
    let mut seen = Vec::new();
    while !seen.windows(4).any(|end| end == b"\r\n\r\n") {
        seen.push(stream.read_u8().await.expect("head of the answer"));
    }
    let head = String::from_utf8_lossy(&seen).to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101") && head.contains("upgrade: spdy/3.1"), "{head}");
    stream.write_all(b"hello").await.expect("keys");
    let mut echo = [0u8; 5];
    stream.read_exact(&mut echo).await.expect("echo");
    assert_eq!(&echo, b"hello");

    drop(kubelet);
    let (code, body, _) = send(&client, "GET", &format!("{pods}/p/log?container=a"), &Value::Null).await;
    assert_eq!(code, 500);
    assert!(
        body["message"]
            .as_str()
            .is_some_and(|m| m.starts_with("Get \"https://127.0.0.1:") && m.contains("dial tcp 127.0.0.1:")),
        "{body}"
    );
    let mut stream = access.endpoint().stream(Protocol::Http1).await.expect("connection");
    let head = format!(
        "POST {pods}/p/exec?container=a HTTP/1.1\r\nhost: x\r\nconnection: Upgrade, close\r\nupgrade: SPDY/3.1\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("request");
    let mut refused = Vec::new();
    // The end of the connection may come without that of TLS.
    let _ = stream.read_to_end(&mut refused).await;
    let refused = String::from_utf8_lossy(&refused);
    assert!(refused.contains("error dialing backend: dial tcp 127.0.0.1:"), "{refused}");
    let address = json!({"status": {"addresses": [{"type": "InternalIP", "address": "::1"}]}});
    let (code, body, _) = send(&client, "PATCH", &format!("/api/v1/nodes/{node}/status"), &address).await;
    assert_eq!(code, 200, "{body}");
    let (_, body, _) = send(&client, "GET", &format!("{pods}/p/log?container=a"), &Value::Null).await;
    assert!(body["message"].as_str().is_some_and(|m| m.contains("dial tcp [::1]:")), "{body}");
}

/// Options of a log are judged before the pod is looked for, and a kubelet's certificate is left unverified
/// for the one request that asks for it.
#[tokio::test]
async fn options_of_a_log_are_checked() {
    let (other, kubelet) = (HttpsServer::start(kubelet).await, HttpsServer::start(kubelet).await);
    let directory = tempfile::tempdir().expect("directory");
    let authority = directory.path().join("authority.pem");
    std::fs::write(&authority, &other.certificate).expect("authority");
    let flag = format!("--kubelet-certificate-authority={}", authority.display());
    let server = TestServer::start(&[&flag]).await;
    let client = server.client().await;
    let pods = "/api/v1/namespaces/default/pods";
    let log = async |query: &str| send(&client, "GET", &format!("{pods}/p/log?{query}"), &Value::Null).await;
    // query, what is wrong
    let rows = [
        ("tailLines=-1", "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ("sinceSeconds=0", "sinceSeconds: Invalid value: 0: must be greater than 0"),
        ("limitBytes=0", "limitBytes: Invalid value: 0: must be greater than 0"),
        (
            "sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z",
            "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        ("stream=Stdout", "stream: Forbidden: may not be specified"),
    ];
    for (query, errors) in rows {
        let (code, body, _) = log(query).await;
        let message = format!("PodLogOptions \"p\" is invalid: {errors}");
        assert_eq!((code, body["message"].as_str()), (422, Some(&*message)), "{query}");
        let (reason, kind) = (body["reason"].as_str(), body["details"]["kind"].as_str());
        assert_eq!((reason, kind), (Some("Invalid"), Some("PodLogOptions")), "{query}");
    }
    assert_eq!(log("sinceTime=yesterday").await.0, 400);
    assert_eq!(log("tailLines=0").await.0, 404);

    pod_on_node(&client, pods, kubelet.port, &json!([{"name": "a", "image": "x"}])).await;
    for (query, trusted) in [("", false), ("insecureSkipTLSVerifyBackend=true", true), ("tailLines=1", false)]
    {
        let (code, body, text) = log(query).await;
        match trusted {
            true => assert_eq!((code, &*text), (200, "log of /containerLogs/default/p/a\n")),
            false => {
                assert!(code == 500 && body["message"].as_str().is_some_and(|m| m.contains("tls")), "{text}")
            }
        }
    }
}

/// The end of a client gives its place among the connections back, also where the other side goes on.
#[tokio::test]
async fn a_silent_backend_holds_no_place_of_a_client_that_is_gone() {
    const MOST: usize = 12;
    let server = TestServer::start(&[&format!("--max-connections-per-client={MOST}")]).await;
    let client = server.client().await;
    let kubelet = HttpsServer::start(kubelet_that_holds_on).await;
    let pods = "/api/v1/namespaces/default/pods";
    pod_on_node(&client, pods, kubelet.port, &json!([{"name": "a", "image": "x"}])).await;
    let upgrade = || async {
        let mut stream = server.endpoint().stream(Protocol::Http1).await.ok()?;
        let head = format!(
            "POST {pods}/p/exec?stdin=true&command=cat HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.ok()?;
        let mut seen = [0u8; 12];
        stream.read_exact(&mut seen).await.ok()?;
        (&seen == b"HTTP/1.1 101").then_some(stream)
    };
    for _ in 0..2 * MOST {
        eventually("there is a place", || async { upgrade().await.is_some() }).await;
    }
}

/// Each stream of a connection may need one to another server, where one that never answers holds it.
#[tokio::test]
async fn silent_backends_leave_descriptors_to_the_store() {
    const FILES: u32 = 1024;
    /// Half of three quarters of a tenth of what [`FILES`] leaves beside the store.
    const OF_ONE_USER: usize = 9;
    let server = TestServer::start_with_files(FILES, &[]).await;
    let client = server.client().await;
    let silent = HttpsServer::start(|_| std::future::pending::<Response<Full<Bytes>>>()).await;
    let pods = "/api/v1/namespaces/default/pods";
    let containers = json!([{"name": "a", "image": "x"}]);
    let node = pod_on_node(&client, pods, silent.port, &containers).await;
    // Who waits for another server takes nothing from requests with large objects, either.
    let large = json!({"metadata": {"annotations": {"a": "x".repeat(70 << 10)}}});
    let (code, body, _) = send(&client, "PATCH", &format!("{pods}/p"), &large).await;
    assert_eq!(code, 200, "{body}");
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    let ordinary = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ordinary"});
    let binding = json!({"metadata": {"name": "ordinary"}, "roleRef": role, "subjects": [ordinary]});
    create(&client, bindings, &binding).await;
    let connection = server.connect(Protocol::Http2).await;
    let mut waiting = JoinSet::new();
    for _ in 0..OF_ONE_USER + 8 {
        let mut stream = connection.share().expect("a shared connection");
        let call = Call::get(format!("{pods}/p/log"));
        waiting.spawn(async move { stream.open(&call).await.expect("an answer").status() });
    }
    for _ in 0..8 {
        let refused = waiting.join_next().await.expect("an answer").expect("a task");
        assert_eq!(refused, StatusCode::TOO_MANY_REQUESTS);
    }
    let maps = "/api/v1/namespaces/default/configmaps";
    let large = json!({"metadata": {"name": "stored"}, "data": {"a": "x".repeat(70 << 10)}});
    let write = Call::new(Method::POST, maps).body("application/json", large.to_string());
    let write = write.header("impersonate-user", HeaderValue::from_static("ordinary"));
    let mut writer = server.connect(Protocol::Http2).await;
    let written = tokio::time::timeout(Duration::from_secs(40), writer.call(&write)).await;
    let written = written.expect("an answer while others wait").expect("an answer");
    assert_eq!(written.status, StatusCode::CREATED);
    assert_eq!(waiting.len(), OF_ONE_USER, "the others wait");
    waiting.shutdown().await;
    // Those that have gone have given back theirs.
    let honest = HttpsServer::start(kubelet).await;
    let status = json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": honest.port}}}});
    let (code, body, _) = send(&client, "PATCH", &format!("/api/v1/nodes/{node}/status"), &status).await;
    assert_eq!(code, 200, "{body}");
    eventually("a log is read", || async {
        send(&client, "GET", &format!("{pods}/p/log"), &Value::Null).await.0 == 200
    })
    .await;
}

/// Whoever may create service accounts has as many users as they like.
#[tokio::test]
async fn users_leave_connections_to_administrators_and_accounts_of_a_namespace_to_others() {
    let server = TestServer::start_with_files(1024, &[]).await;
    let client = server.client().await;
    let follows = HttpsServer::start(|request: Request<Incoming>| async move {
        if request.uri().query().is_some_and(|query| query.contains("follow=true")) {
            std::future::pending::<()>().await;
        }
        kubelet(request).await
    })
    .await;
    let pods = "/api/v1/namespaces/default/pods";
    pod_on_node(&client, pods, follows.port, &json!([{"name": "a", "image": "x"}])).await;
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    let all =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"});
    let binding = json!({"metadata": {"name": "all"}, "roleRef": role, "subjects": [all]});
    create(&client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    let connection = server.connect(Protocol::Http2).await;
    let mut waiting = JoinSet::new();
    let follow = |waiting: &mut JoinSet<StatusCode>, user: String| {
        let mut stream = connection.share().expect("a shared connection");
        let user = HeaderValue::try_from(user).expect("a name");
        let call = Call::get(format!("{pods}/p/log?follow=true")).header("impersonate-user", user);
        waiting.spawn(async move { stream.open(&call).await.expect("an answer").status() });
    };
    // Half of those that are left to users.
    (0..30).for_each(|n| follow(&mut waiting, format!("system:serviceaccount:default:account-{n}")));
    for _ in 0..22 {
        let refused = waiting.join_next().await.expect("an answer").expect("a task");
        assert_eq!(refused, StatusCode::TOO_MANY_REQUESTS);
    }
    let mut log = server.connect(Protocol::Http2).await;
    let of = |user: &'static str| {
        Call::get(format!("{pods}/p/log")).header("impersonate-user", HeaderValue::from_static(user))
    };
    let answer = log.call(&of("system:serviceaccount:other:account")).await.expect("an answer");
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    // Many users have all of them, but for those that are kept.
    (0..30).for_each(|n| follow(&mut waiting, format!("user-{n}")));
    for _ in 0..23 {
        let refused = waiting.join_next().await.expect("an answer").expect("a task");
        assert_eq!(refused, StatusCode::TOO_MANY_REQUESTS);
    }
    assert_eq!(log.call(&of("late")).await.expect("an answer").status, StatusCode::TOO_MANY_REQUESTS);
    let (code, body, _) = send(&client, "GET", &format!("{pods}/p/log"), &Value::Null).await;
    assert_eq!(code, 200, "{body}");
}

/// A kubelet that switches protocols, reads nothing, writes nothing and keeps the connection.
async fn kubelet_that_holds_on(mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    let upgrade = hyper::upgrade::on(&mut request);
    let protocol = request.headers().get("upgrade").cloned().expect("an upgrade");
    tokio::spawn(async move {
        let _held = upgrade.await;
        std::future::pending::<()>().await;
    });
    let mut response = answer(StatusCode::SWITCHING_PROTOCOLS, "");
    response.headers_mut().insert("connection", "Upgrade".parse().expect("header"));
    response.headers_mut().insert("upgrade", protocol);
    response
}
