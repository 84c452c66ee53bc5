//! Clients with some permissions that try to extend them: requests forwarded to kubelets, pods and services
//! go where they were allowed to, carry no credentials, and end with the connection.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response};
use http_body_util::Full;
use parking_lot::Mutex;
use plinth_benches::api::client::{Call, Connection, Identity, Protocol, JSON};
use plinth_tests::https::HttpsServer;
use serde_json::{json, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Target;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const PODS: &str = "/api/v1/namespaces/n/pods";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// The requests to a kubelet: target, then headers.
type RequestLog = Arc<Mutex<Vec<(String, Vec<String>)>>>;

/// A kubelet that records requests and answers 200, or 404 where only an upgrade would do, or switches
/// protocols for the container of that name.
async fn kubelet(requests: &RequestLog) -> HttpsServer {
    let requests = requests.clone();
    HttpsServer::start(move |request| {
        let headers = request.headers().keys().map(|name| name.as_str().to_owned()).collect();
        let target = request.uri().to_string();
        let (switches, is_stream) = (target.contains("switches"), target.starts_with("/exec/"));
        requests.lock().push((target, headers));
        let mut response = Response::new(Full::new(Bytes::from_static(b"from the kubelet")));
        response.headers_mut().insert("access-control-allow-origin", http::HeaderValue::from_static("*"));
        if is_stream {
            *response.status_mut() = http::StatusCode::NOT_FOUND;
        }
        if switches {
            *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
            response.headers_mut().insert("connection", http::HeaderValue::from_static("Upgrade"));
            response.headers_mut().insert("upgrade", http::HeaderValue::from_static("SPDY/3.1"));
        }
        async move { response }
    })
    .await
}

async fn make(admin: &mut Connection, method: Method, path: &str, kind: &'static str, object: Value) {
    admin.must(&Call::new(method, path).body(kind, object.to_string())).await.expect(path);
}

/// A server with a user for each token, a node whose kubelet is this, and a pod there.
async fn prepare(dir: &std::path::Path, port: u16) -> (Target, Connection) {
    let tokens = dir.join("tokens.csv");
    std::fs::write(&tokens, "reads,reads,1\nproxies,proxies,2\n").expect("tokens");
    let flag = format!("--token-auth-file={}", tokens.display());
    let target = Target::start_with(&[&flag, "--disable-admission-plugins=ServiceAccount"]).await;
    let mut admin = target.server.connect(Protocol::Http2).await;
    make(&mut admin, Method::POST, "/api/v1/namespaces", JSON, json!({"metadata": {"name": "n"}})).await;
    for node in ["node", "proxy"] {
        make(&mut admin, Method::POST, "/api/v1/nodes", JSON, json!({"metadata": {"name": node}})).await;
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }});
        make(&mut admin, Method::PATCH, &format!("/api/v1/nodes/{node}/status"), STRATEGIC, status).await;
    }
    let containers = json!([{"name": "a", "image": "x"}, {"name": "switches", "image": "x"}]);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "node", "containers": containers}});
    make(&mut admin, Method::POST, PODS, JSON, pod).await;
    let connected =
        json!(["pods/exec", "pods/attach", "pods/portforward", "pods/log", "pods/proxy", "services/proxy"]);
    for (user, verbs) in [("reads", json!(["get"])), ("proxies", json!(["get", "create"]))] {
        let role = json!({
            "metadata": {"name": user},
            "rules": [
                {"apiGroups": [""], "resources": connected, "verbs": verbs},
                {"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": verbs},
            ],
        });
        make(&mut admin, Method::POST, &format!("{RBAC}/clusterroles"), JSON, role).await;
        let binding = json!({
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        make(&mut admin, Method::POST, &format!("{RBAC}/clusterrolebindings"), JSON, binding).await;
    }
    (target, admin)
}

fn user(target: &Target, token: &str) -> plinth_benches::api::client::Endpoint {
    target.server.endpoint().with_identity(Identity::Token(token.to_owned()))
}

/// The status line and headers of an answer, in lower case.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        seen.push(stream.read_u8().await.expect("head of the answer"));
    }
    String::from_utf8_lossy(&seen).to_ascii_lowercase()
}

async fn say(stream: &mut (impl AsyncWrite + Unpin), text: &str) {
    stream.write_all(text.as_bytes()).await.expect("request");
    stream.flush().await.expect("request");
}

#[tokio::test]
async fn requests_forwarded_to_kubelets_are_those_that_were_authorized() {
    let dir = tempfile::tempdir().expect("directory");
    let requests = RequestLog::default();
    let kubelet = kubelet(&requests).await;
    let (target, _admin) = prepare(dir.path(), kubelet.port).await;

    // Permission to get a subresource does not run commands over a WebSocket, whose handshake is a GET.
    let mut reads = user(&target, "reads").connect(Protocol::Http1).await.expect("connection");
    for what in ["exec?command=id&container=a", "attach?container=a", "portforward?ports=80"] {
        let reply = reads.call(&Call::get(format!("{PODS}/p/{what}"))).await.expect("answer");
        let status: Value = serde_json::from_slice(&reply.body).expect("a Status");
        assert_eq!(
            (reply.status.as_u16(), &status["message"]),
            (403, &json!("pods \"p\" is forbidden: ")),
            "{what}"
        );
    }
    let reply = reads.call(&Call::get(format!("{PODS}/p/log?container=a"))).await.expect("answer");
    assert_eq!(
        (reply.status.as_u16(), reply.text().as_str()),
        (200, "from the kubelet"),
        "a log is only read"
    );

    // The request to the kubelet is built from validated parts; the client's input stays a query value.
    requests.lock().clear();
    let proxies = user(&target, "proxies");
    // path, the request to the kubelet; empty where there is none
    let rows = [
        (
            "exec?container=a&command=id%0D%0AHost:%20x&command=%26tty=1",
            Some("/exec/n/p/a?command=id%0D%0AHost%3A+x&command=%26tty%3D1"),
        ),
        ("exec?container=a/../../../run&command=id", None),
        ("exec?container=..&command=id", None),
        ("exec?container=a%2F..%2F..&command=id", None),
        ("log?container=a&sinceTime=2026-01-02T03:04:05Z%26y%3D1%0D%0A", None),
        ("log?container=a&sinceTime=null", Some("/containerLogs/n/p/a?sinceTime=0001-01-01T00%3A00%3A00Z")),
        ("log?container=a&tailLines=1%0D%0Ax", None),
    ];
    for (path, expected) in rows {
        let mut stream = proxies.stream(Protocol::Http1).await.expect("connection");
        let upgrade = "authorization: Bearer proxies\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n";
        say(&mut stream, &format!("GET {PODS}/p/{path} HTTP/1.1\r\nhost: x\r\n{upgrade}\r\n")).await;
        let answer = head(&mut stream).await;
        let got = requests.lock().drain(..).map(|(target, _)| target).collect::<Vec<_>>();
        match expected {
            Some(expected) => assert_eq!(got, [expected], "{path}: {answer}"),
            None => assert!(got.is_empty() || answer.starts_with("http/1.1 200"), "{path}: {got:?}"),
        }
        assert!(
            got.iter().all(
                |target| target.starts_with("/exec/n/p/a?") || target.starts_with("/containerLogs/n/p/a")
            ),
            "{got:?}"
        );
    }
    target.serves("paths to kubelets").await;
}

#[tokio::test]
async fn a_connection_is_taken_over_only_when_both_ends_say_so() {
    let dir = tempfile::tempdir().expect("directory");
    let requests = RequestLog::default();
    let kubelet = kubelet(&requests).await;
    let (target, _admin) = prepare(dir.path(), kubelet.port).await;
    let endpoint = user(&target, "proxies");

    // A kubelet that does not switch: what follows on the connection is a request to this server, with its
    // own credentials, and not one more to the kubelet. Users named in headers are ignored there.
    let mut stream = endpoint.stream(Protocol::Http1).await.expect("connection");
    let upgrade = "connection: Upgrade, X-Hop\r\nupgrade: SPDY/3.1\r\nx-hop: 1\r\n";
    let names = "impersonate-uid: \r\nx-remote-user: root\r\nx-remote-group: system:masters\r\nx_forwarded_for: 10.0.0.1\r\nx-own: 1\r\n";
    say(&mut stream, &format!("POST {PODS}/p/exec?container=a&command=id HTTP/1.1\r\nhost: x\r\nauthorization: Bearer proxies\r\n{upgrade}{names}content-length: 0\r\n\r\n")).await;
    let answer = head(&mut stream).await;
    assert!(
        answer.starts_with("http/1.1 404") && !answer.contains("access-control-allow-origin"),
        "{answer}"
    );
    let mut body = [0u8; 16];
    let length = "content-length: 16";
    assert!(answer.contains(length), "{answer}");
    stream.read_exact(&mut body).await.expect("body");
    let first = requests.lock().drain(..).collect::<Vec<_>>();
    let [(asked_for, headers)] = first.as_slice() else { panic!("{first:?}") };
    assert_eq!(asked_for, "/exec/n/p/a?command=id");
    let unwanted = |name: &&String| {
        ["authorization", "x-hop", "x_forwarded_for"].contains(&name.as_str())
            || name.starts_with("impersonate-")
            || name.starts_with("x-remote-")
    };
    assert_eq!(headers.iter().filter(unwanted).collect::<Vec<_>>(), Vec::<&String>::new());
    assert!(headers.iter().any(|name| name == "x-own"), "{headers:?}");
    // The server may close the connection instead of reading on; it never passes this on.
    let _ = stream.write_all(b"GET /runningpods/ HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(std::time::Duration::from_secs(5), stream.read_to_end(&mut rest)).await;
    let rest = String::from_utf8_lossy(&rest).into_owned();
    assert!(
        rest.is_empty() || rest.starts_with("HTTP/1.1 403") || rest.starts_with("HTTP/1.1 404"),
        "{rest}"
    );
    assert!(requests.lock().is_empty(), "the kubelet got another request");

    // A kubelet that switches protocols unasked: its bytes are not taken for an answer of this server.
    let mut connection = endpoint.connect(Protocol::Http1).await.expect("connection");
    let reply =
        connection.call(&Call::get(format!("{PODS}/p/log?container=switches"))).await.expect("answer");
    assert_eq!(reply.status.as_u16(), 502, "{}", reply.text());
    target.serves("switched protocols").await;
}

#[tokio::test]
async fn proxies_reach_no_address_of_this_machine() {
    let dir = tempfile::tempdir().expect("directory");
    let requests = RequestLog::default();
    let kubelet = kubelet(&requests).await;
    let (target, mut admin) = prepare(dir.path(), kubelet.port).await;
    let port = kubelet.port;
    let mut proxies = user(&target, "proxies").connect(Protocol::Http2).await.expect("connection");
    let mut refused = async |path: &str, disguise: &str| {
        let reply = proxies.call(&Call::get(path)).await.expect("answer");
        let code = reply.status.as_u16();
        let refused = [400, 404, 500, 503].contains(&code);
        assert!(
            refused && reply.text().contains("not allowed"),
            "{path} as {disguise}: {code} {}",
            reply.text()
        );
        assert!(requests.lock().is_empty(), "{path} as {disguise} leads to this machine");
    };
    // Addresses that some may write, in every spelling that leads here or to what only machines may ask.
    let disguises = [
        "127.0.0.1",
        "127.1.2.3",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "0.0.0.0",
        "::",
        "169.254.169.254",
        "::ffff:169.254.169.254",
    ];
    let mut taken = 0;
    for (i, address) in disguises.iter().enumerate() {
        // Validation may refuse some of them already.
        let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
        let patch = Call::new(Method::PATCH, format!("{PODS}/p/status")).body(STRATEGIC, status.to_string());
        let written = admin.call(&patch).await.expect("answer").status.is_success();
        if written {
            taken += 1;
            refused(&format!("{PODS}/https:p:{port}/proxy/"), address).await;
            refused(&format!("{PODS}/p:{port}/proxy/x"), address).await;
        }
        let name = format!("s{i}");
        let service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        make(&mut admin, Method::POST, "/api/v1/namespaces/n/services", JSON, service).await;
        let slice = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": if address.contains(':') { "IPv6" } else { "IPv4" },
            "endpoints": [{"addresses": [address]}],
            "ports": [{"port": port}],
        });
        let slices = "/apis/discovery.k8s.io/v1/namespaces/n/endpointslices";
        let made =
            admin.call(&Call::new(Method::POST, slices).body(JSON, slice.to_string())).await.expect("answer");
        if made.status.is_success() {
            taken += 1;
            refused(&format!("/api/v1/namespaces/n/services/https:{name}:80/proxy/"), address).await;
        }
    }
    assert!(taken > 0, "no address could be written");
    // A node sets its own address; its other ports are not reachable for clients that may proxy to it.
    for path in ["node/proxy/", "https:node:22/proxy/", "proxy/proxy/logs/", "node/proxy/../../x"] {
        refused(&format!("/api/v1/nodes/{path}"), "node").await;
    }
    target.serves("proxies").await;
}
