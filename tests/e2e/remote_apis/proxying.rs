//! Requests on their way to a remote API and back.

use std::sync::atomic::Ordering;

use http::Request;
use http_body_util::{BodyExt, Full};
use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::eventually;
use plinth_tests::remote_api::RemoteApi;
use plinth_tests::requests::{create, post, send};
use serde_json::{json, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::Cluster;

/// The head of a response, in lower case.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut seen = Vec::new();
    while !seen.windows(4).any(|end| end == b"\r\n\r\n") {
        seen.push(stream.read_u8().await.expect("head of the answer"));
    }
    String::from_utf8_lossy(&seen).to_ascii_lowercase()
}

async fn closed(remote: &RemoteApi) {
    eventually("no request is open", || async { remote.behavior.open.load(Ordering::SeqCst) == 0 }).await;
}

#[tokio::test]
async fn requests_carry_the_authenticated_user_and_nothing_forged() {
    let cluster = Cluster::start(&[]).await;
    let remote = cluster.remote("proxied.example", 1).await;
    let path = format!("{}/namespaces/default/things", remote.path());
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let before = remote.received(&path).len();
        let mut connection = cluster.server.connect(protocol).await;
        let mut request = Request::new(Full::from("{\"a\":1}"));
        *request.method_mut() = http::Method::POST;
        for (name, value) in [
            ("content-type", "application/json"),
            ("x-remote-user", "root"),
            ("x-other-user", "root"),
            ("x-remote-group", "forged"),
            ("x-remote-uid", "0"),
            ("x-remote-extra-scopes", "forged"),
            ("x-forwarded-host", "forged"),
            ("x-own", "kept"),
        ] {
            request.headers_mut().append(name, value.parse().expect("header"));
        }
        let response = connection.send(request, &format!("{path}?b=2&a=1")).await.expect("response");
        let audit_id = response.headers()["audit-id"].to_str().expect("text").to_owned();
        assert_eq!(response.status(), 201);
        let body = response.into_body().collect().await.expect("body").to_bytes();
        assert_eq!(&body[..], b"{\"a\":1}");

        let received = &remote.received(&path)[before];
        assert_eq!(received.client.as_deref(), Some("front-proxy"));
        assert_eq!(received.target, format!("{path}?a=1&b=2"));
        assert_eq!(received.all("x-remote-user"), ["kubernetes-admin"]);
        assert_eq!(received.all("x-remote-group"), ["system:masters", "system:authenticated"]);
        assert_eq!(received.all("x-remote-extra-authentication.kubernetes.io%2fcredential-id").len(), 1);
        for name in ["x-other-user", "x-remote-uid", "x-remote-extra-scopes", "authorization", "connection"] {
            assert_eq!(received.all(name), [""; 0], "{name}");
        }
        assert_eq!(received.all("x-own"), ["kept"]);
        assert_eq!(received.all("x-forwarded-for"), ["127.0.0.1"]);
        assert_eq!(received.all("x-forwarded-uri"), std::slice::from_ref(&path));
        assert!(received.all("x-forwarded-host")[0].starts_with("127.64.1.1:"));
        assert_eq!(received.all("audit-id"), [audit_id]);
    }
}

#[tokio::test]
async fn only_what_was_authorized_is_passed_on() {
    let cluster = Cluster::start(&[]).await;
    let remote = cluster.remote("guarded.example", 1).await;
    let path = |rest: &str| format!("{}/namespaces/{rest}", remote.path());
    let role = json!({
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": ["guarded.example"], "resources": ["things"], "verbs": ["get", "list"]}],
    });
    create(&cluster.client, "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", &role).await;
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    create(&cluster.client, "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &binding)
        .await;

    let mut connection = cluster.server.connect(Protocol::Http1).await;
    let mut as_jane = async |path: String| {
        let mut request = Request::new(Full::default());
        request.headers_mut().insert("impersonate-user", "jane".parse().expect("name"));
        let response = connection.send(request, &path).await.expect("response");
        let status = response.status().as_u16();
        response.into_body().collect().await.expect("body");
        status
    };
    assert_eq!(as_jane(path("default/things")).await, 200);
    let received = &remote.received(&path("default/things"))[0];
    assert_eq!(received.all("x-remote-user"), ["jane"]);
    assert_eq!(received.all("impersonate-user"), [""; 0]);
    // An escaped slash separates, for authorization and for the remote API alike.
    assert_eq!(as_jane(path("default%2Fthings")).await, 200);
    assert_eq!(remote.received(&path("default/things")).len(), 2);

    let all = remote.received(&path("other/things")).len();
    for forbidden in ["other/things", "default%2F..%2Fother/things", "other%2Fthings", "default/others"] {
        assert_eq!(as_jane(path(forbidden)).await, 403, "{forbidden}");
    }
    assert_eq!(remote.received(&path("other/things")).len(), all);
    let empty = format!("/apis//{}", path("default/things").trim_start_matches("/apis/"));
    assert_ne!(as_jane(empty).await, 200);
    let mut anonymous = cluster.server.connect_anonymously(Protocol::Http1).await;
    let reply = anonymous.call(&Call::get(path("default/things"))).await.expect("answer");
    assert_eq!(reply.status, 403);
    assert_eq!(remote.received(&path("default/things")).len(), 2);
}

#[tokio::test]
async fn watches_bodies_and_cancellations_pass_through() {
    let cluster = Cluster::start(&[]).await;
    let remote = cluster.remote("streamed.example", 1).await;
    let things = format!("{}/namespaces/default/things", remote.path());
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut connection = cluster.server.connect(protocol).await;
        let watch = connection.open(&Call::get(format!("{things}?watch=true"))).await.expect("watch");
        assert_eq!(watch.status(), 200);
        let mut events = watch.into_body();
        for n in 0..3 {
            remote.behavior.proceed.notify_one();
            let event =
                events.frame().await.expect("an event").expect("a whole one").into_data().expect("data");
            assert_eq!(event, format!("{{\"event\":{n}}}\n"));
        }
        assert_eq!(remote.behavior.open.load(Ordering::SeqCst), 1);
        drop((events, connection));
        closed(&remote).await;

        // A client that leaves before there is an answer.
        let mut connection = cluster.server.connect(protocol).await;
        let call = Call::get(format!("{}/namespaces/default/things/hang", remote.path()));
        let waits = tokio::spawn(async move { connection.open(&call).await.map(drop) });
        eventually("a request hangs", || async { remote.behavior.open.load(Ordering::SeqCst) == 1 }).await;
        waits.abort();
        closed(&remote).await;
    }

    // The remote API has the first half of a body before the client sends the second.
    let mut stream = cluster.server.endpoint().stream(Protocol::Http1).await.expect("connection");
    let head_of = format!("PUT {}/slow HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nfirst", things);
    stream.write_all(head_of.as_bytes()).await.expect("first half");
    eventually("the first half has arrived", || async { *remote.behavior.bodies.lock() == b"first" }).await;
    stream.write_all(b"later").await.expect("second half");
    assert!(head(&mut stream).await.starts_with("http/1.1 200"));
    assert_eq!(*remote.behavior.bodies.lock(), b"firstlater");
}

#[tokio::test]
async fn upgraded_connections_are_joined() {
    let cluster = Cluster::start(&[]).await;
    let remote = cluster.remote("upgraded.example", 1).await;
    let path = format!("{}/namespaces/default/things/a/exec", remote.path());
    for protocol in ["SPDY/3.1", "websocket"] {
        let mut stream = cluster.server.endpoint().stream(Protocol::Http1).await.expect("connection");
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\nx-remote-user: root\r\nconnection: Upgrade\r\nupgrade: {protocol}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.expect("request");
        let head = head(&mut stream).await;
        assert!(head.starts_with("http/1.1 101") && head.contains(&protocol.to_ascii_lowercase()), "{head}");
        stream.write_all(b"hello").await.expect("bytes");
        let mut echo = [0u8; 5];
        stream.read_exact(&mut echo).await.expect("echo");
        assert_eq!(&echo, b"hello");
    }
    for received in remote.received(&path) {
        assert_eq!(received.all("x-remote-user"), ["kubernetes-admin"]);
    }
    // What is no upgrade after all.
    let mut stream = cluster.server.endpoint().stream(Protocol::Http1).await.expect("connection");
    let things = format!("{}/namespaces/default/things", remote.path());
    let request = format!("GET {things} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: h2c\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("request");
    assert!(head(&mut stream).await.starts_with("http/1.1 503"));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let refusing = Cluster::start(&[]).await;
    let remote = refusing.remote("redirecting.example", 1).await;
    let path = format!("{}/namespaces/default/things/redirect", remote.path());
    let answer = send(&refusing.client, "GET", &path, &Value::Null).await;
    let refused = "the backend attempted to redirect this request, which is not permitted";
    assert_eq!((answer.code, answer.text.as_str()), (502, refused));

    let passing = Cluster::start(&["--aggregator-reject-forwarding-redirect=false"]).await;
    let remote = passing.remote("redirecting.example", 2).await;
    let path = format!("{}/namespaces/default/things/redirect", remote.path());
    let reply = passing.server.connect(Protocol::Http1).await.call(&Call::get(path)).await.expect("answer");
    assert_eq!(
        (reply.status.as_u16(), &reply.headers["location"].as_bytes()[..12]),
        (302, &b"https://192."[..])
    );
}

#[tokio::test]
async fn a_renewed_client_certificate_is_shown_without_a_restart() {
    let cluster = Cluster::start(&[]).await;
    let remote = cluster.remote("renewed.example", 1).await;
    let (certificate, key) = cluster.proxy.signed("renewed", &[]);
    std::fs::write(cluster.dir.path().join("proxy.key"), key).expect("key");
    std::fs::write(cluster.dir.path().join("proxy.crt"), certificate).expect("certificate");
    let path = format!("{}/namespaces/default/things", remote.path());
    eventually("the new certificate is shown", || async {
        let mut connection = cluster.server.connect(Protocol::Http1).await;
        connection.must(&post(path.clone(), json!({}))).await.expect("answer");
        remote.received(&path).last().is_some_and(|received| received.client.as_deref() == Some("renewed"))
    })
    .await;
}

/// Whatever says where a response ends: its length, its chunks, or that it has no body.
#[tokio::test]
async fn connections_are_used_again() {
    /// The server's own requests may need others.
    const MOST: usize = 3;
    let cluster = Cluster::start(&[]).await;
    let remote = cluster.remote("reused.example", 1).await;
    let path = format!("{}/namespaces/default/things", remote.path());
    let before = remote.connections();
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut connection = cluster.server.connect(protocol).await;
        for method in [http::Method::GET, http::Method::HEAD, http::Method::POST].iter().cycle().take(12) {
            let body = if method == http::Method::POST { "{}" } else { "" };
            let call = Call::new(method.clone(), &*path).body("application/json", body);
            connection.call(&call).await.expect("an answer");
            let chunked = Call::get(format!("{path}/chunked"));
            connection.call(&chunked).await.expect("an answer");
        }
    }
    let further = remote.connections() - before;
    assert!(further <= MOST, "{further}");
}
