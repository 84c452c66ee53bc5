//! The protocols below the API: TLS, HTTP/1.1 and HTTP/2, and refusals before a body is read.

use futures::future::join_all;
use http::{Method, StatusCode};
use plinth_benches::api::client::{Call, Identity, Protocol, JSON};
use plinth_tests::server::{namespace, shared};
use serde_json::{json, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn both_protocols_serve_the_same() {
    let server = shared().await;
    let namespace = namespace(&server.client().await, "protocols").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut bodies = Vec::new();
    for (protocol, version) in
        [(Protocol::Http1, http::Version::HTTP_11), (Protocol::Http2, http::Version::HTTP_2)]
    {
        let mut connection = server.connect(protocol).await;
        let name = format!("{protocol:?}").to_lowercase();
        let body = json!({"metadata": {"name": name}}).to_string();
        let created =
            connection.call(&Call::new(Method::POST, &*path).body(JSON, body)).await.expect("create");
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
        let response = connection.open(&Call::get(&*path)).await.expect("list");
        assert_eq!(response.version(), version);
        assert_eq!(response.headers()["content-type"], JSON);
        bodies.push(connection.must(&Call::get("/api/v1/namespaces/default")).await.expect("get").body);
    }
    assert_eq!(bodies[0], bodies[1]);
}

#[tokio::test]
async fn one_connection_carries_many_requests_at_once() {
    let server = shared().await;
    let connection = server.connect(Protocol::Http2).await;
    let call = Call::get("/api/v1/namespaces/kube-system");
    let requests = (0..200).map(|_| {
        let mut connection = connection.share().expect("a shared connection");
        let call = call.clone();
        async move { connection.must(&call).await.expect("get").status }
    });
    assert!(join_all(requests).await.into_iter().all(|status| status == StatusCode::OK));
}

#[tokio::test]
async fn unauthenticated_clients_see_health_and_version_only() {
    let server = shared().await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        // A connection each: the server may close one whose request was not authenticated.
        for path in ["/livez", "/readyz", "/healthz", "/version"] {
            let mut nobody = server.connect_anonymously(protocol).await;
            let reply = nobody.call(&Call::get(path)).await.expect(path);
            assert_eq!(reply.status, StatusCode::OK, "{path}");
        }
        for path in
            ["/api", "/apis", "/api/v1/namespaces", "/api/v1/secrets", "/metrics", "/openapi/v2", "/nothing"]
        {
            let mut nobody = server.connect_anonymously(protocol).await;
            let reply = nobody.call(&Call::get(path)).await.expect(path);
            // Where anonymous requests are allowed the refusal is 403, elsewhere it is 401.
            assert!(matches!(reply.status.as_u16(), 401 | 403), "{path}: {}", reply.status);
            let status: Value = serde_json::from_slice(&reply.body).expect("a Status");
            assert_eq!(status["kind"], "Status", "{path}");
            assert_eq!(status["code"], reply.status.as_u16(), "{path}");
            assert!(
                matches!(status["reason"].as_str(), Some("Unauthorized" | "Forbidden")),
                "{path}: {status}"
            );
        }
    }
}

#[tokio::test]
async fn a_bad_token_is_refused_even_on_health() {
    let endpoint = shared().await.endpoint().with_identity(Identity::Token("no-such-token".into()));
    for path in ["/healthz", "/api/v1/namespaces"] {
        let mut anonymous = endpoint.connect(Protocol::Http2).await.expect("connection");
        let reply = anonymous.call(&Call::get(path)).await.expect(path);
        assert_eq!(reply.status, StatusCode::UNAUTHORIZED, "{path}");
        let status: Value = serde_json::from_slice(&reply.body).expect("a Status");
        assert_eq!(status["reason"], "Unauthorized", "{path}");
    }
}

#[tokio::test]
async fn plain_http_is_answered_with_an_explanation() {
    let endpoint = shared().await.endpoint();
    let mut plain = TcpStream::connect(endpoint.authority()).await.expect("connection");
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("request");
    let mut answer = String::new();
    // The server may reset after its answer; what was read before that counts.
    let _ = plain.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.0 400 Bad Request\r\n"), "{answer:?}");
}

#[tokio::test]
async fn methods_that_resources_do_not_have_are_405() {
    let mut connection = shared().await.connect(Protocol::Http2).await;
    for method in [Method::HEAD, Method::OPTIONS, Method::PUT] {
        let reply =
            connection.call(&Call::new(method.clone(), "/api/v1/namespaces")).await.expect("an answer");
        assert_eq!(reply.status, StatusCode::METHOD_NOT_ALLOWED, "{method}");
    }
}

/// Upstream routes some paths by method; its other handlers answer each method as GET. As kube-apiserver
/// v1.36.3 answered.
#[tokio::test]
async fn methods_of_other_paths_by_table() {
    const BY_METHOD: [&str; 9] = [
        "/api",
        "/api/",
        "/api/v1",
        "/apis/apps/v1",
        "/apis/apiextensions.k8s.io/v1",
        "/apis/apiregistration.k8s.io",
        "/version",
        "/.well-known/openid-configuration",
        "/openid/v1/jwks",
    ];
    const ANY: [&str; 10] = [
        "/",
        "/apis",
        "/apis/apps",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/api/v1",
        "/healthz",
        "/livez/ping",
        "/readyz",
        "/metrics",
    ];
    const NOWHERE: [&str; 6] =
        ["/nope", "/healthz/nope", "/apis/nope", "/apis/nope/v1", "/apis/apps/nope", "/api/nope"];
    let server = shared().await;
    let mut connection = server.connect(Protocol::Http2).await;
    let unknown = Method::from_bytes(b"FOO").expect("a method");
    for (paths, expected) in [(&BY_METHOD[..], 405), (&ANY[..], 200), (&NOWHERE[..], 404)] {
        for path in paths {
            let read = connection.call(&Call::get(*path)).await.expect("an answer");
            assert_eq!(read.status.as_u16(), if expected == 405 { 200 } else { expected }, "GET {path}");
            for method in [Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::OPTIONS] {
                let reply = connection.call(&Call::new(method.clone(), *path)).await.expect("an answer");
                assert_eq!(reply.status.as_u16(), expected, "{method} {path}");
                // HEAD and GET have one answer, but for its body.
                if method == Method::POST && expected == 200 && *path != "/metrics" {
                    assert_eq!(reply.body, read.body, "{path}");
                }
            }
            for method in [Method::DELETE, unknown.clone()] {
                let reply = connection.call(&Call::new(method.clone(), *path)).await.expect("an answer");
                // Upstream resets its metrics.
                let is_reset = method == Method::DELETE && *path == "/metrics";
                assert_eq!(reply.status.as_u16(), if is_reset { 405 } else { expected }, "{method} {path}");
            }
        }
    }
    let reply = connection.call(&Call::new(Method::POST, "/version")).await.expect("an answer");
    let status: Value = serde_json::from_slice(&reply.body).expect("a Status");
    let message = "the server does not allow this method on the requested resource";
    assert_eq!((&status["reason"], &status["message"]), (&json!("MethodNotAllowed"), &json!(message)));
}

#[tokio::test]
async fn a_proxy_says_that_it_leads_nowhere_before_it_redirects() {
    let server = shared().await;
    let namespace = namespace(&server.client().await, "proxies").await;
    let mut connection = server.connect(Protocol::Http2).await;
    let nodes = [("bare", json!([])), ("here", json!([{"type": "InternalIP", "address": "127.0.0.1"}]))];
    for (name, addresses) in nodes {
        let name = format!("{namespace}-{name}");
        let node = json!({"metadata": {"name": name}, "status": {"addresses": addresses}}).to_string();
        let made = connection.call(&Call::new(Method::POST, "/api/v1/nodes").body(JSON, node)).await;
        assert_eq!(made.expect("create").status, StatusCode::CREATED);
    }
    let no_address = "no preferred addresses found; known addresses: []".to_owned();
    let rows = [
        (format!("nodes/{namespace}-bare"), 500, Value::Null, no_address),
        (format!("nodes/{namespace}-here"), 400, json!("BadRequest"), "address not allowed".into()),
        ("nodes/no-such".into(), 404, json!("NotFound"), "nodes \"no-such\" not found".into()),
        ("nodes/a:b:c:d".into(), 400, json!("BadRequest"), "invalid node request \"a:b:c:d\"".into()),
        (
            format!("namespaces/{namespace}/services/none"),
            404,
            json!("NotFound"),
            "services \"none\" not found".into(),
        ),
        (
            format!("namespaces/{namespace}/pods/none"),
            404,
            json!("NotFound"),
            "pods \"none\" not found".into(),
        ),
    ];
    for (path, code, reason, message) in rows {
        for tail in ["", "/", "/healthz"] {
            for method in [Method::GET, Method::POST] {
                let path = format!("/api/v1/{path}/proxy{tail}");
                let reply = connection.call(&Call::new(method, &*path)).await.expect("an answer");
                let status: Value = serde_json::from_slice(&reply.body).expect("a Status");
                assert_eq!((&status["code"], &status["reason"]), (&json!(code), &reason), "{path}");
                assert_eq!(status["message"], message, "{path}");
            }
        }
    }
}

/// Endpoints are looked for by the name of the port, also where it has none. What is found is no address that
/// a proxy may connect to, so that nothing is sent.
#[tokio::test]
async fn a_service_is_reached_at_a_ready_endpoint_with_its_port() {
    let server = shared().await;
    let namespace = namespace(&server.client().await, "endpoints").await;
    let mut connection = server.connect(Protocol::Http2).await;
    let services = format!("/api/v1/namespaces/{namespace}/services");
    let named =
        json!([{"name": "web", "port": 80}, {"name": "idle", "port": 81}, {"name": "lost", "port": 82}]);
    for (name, ports) in [("named", named), ("plain", json!([{"port": 80}]))] {
        let service = json!({"metadata": {"name": name}, "spec": {"ports": ports}}).to_string();
        connection.must(&Call::new(Method::POST, &services).body(JSON, service)).await.expect("a service");
    }
    // Name and service of a slice, its port, whether its endpoints are ready
    let slices = [
        ("idle", "named", json!({"name": "idle", "port": 8081}), false),
        ("web", "named", json!({"name": "web", "port": 8080}), true),
        ("plain", "plain", json!({"port": 8080}), true),
    ];
    for (name, service, port, is_ready) in slices {
        let slice = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["239.1.1.1"], "conditions": {"ready": is_ready}}],
            "ports": [port],
        });
        let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
        let call = Call::new(Method::POST, path).body(JSON, slice.to_string());
        connection.must(&call).await.expect("a slice");
    }
    let found = || (400, "address not allowed".to_owned());
    let none = |id: &str| (503, format!("no endpoints available for service \"{id}\""));
    let rows = [
        ("named:web", found()),
        ("http:named:80", found()),
        ("plain", found()),
        ("plain:80", found()),
        ("named", none("named")),
        ("named:idle", none("named:idle")),
        ("named:82", none("named:82")),
        ("plain:web", none("plain:web")),
        ("named:8080", (503, "no service port 8080 found for service \"named\"".to_owned())),
    ];
    for (id, expected) in rows {
        let reply = connection.call(&Call::get(format!("{services}/{id}/proxy/x"))).await.expect("an answer");
        let status: Value = serde_json::from_slice(&reply.body).expect("a Status");
        let message = status["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!((reply.status.as_u16(), message), expected, "{id}");
    }
}

#[tokio::test]
async fn large_answers_are_compressed_for_those_who_ask() {
    let server = shared().await;
    let mut connection = server.connect(Protocol::Http1).await;
    let ask = |accept: Option<&str>| {
        let mut request = http::Request::new(http_body_util::Full::default());
        if let Some(accept) = accept {
            request.headers_mut().insert("accept-encoding", accept.parse().expect("a header"));
        }
        request
    };
    // The document of a built-in group is above the 128 KiB from which answers are compressed.
    for (accept, expected) in [(Some("gzip"), Some("gzip")), (None, None)] {
        let response = connection.send(ask(accept), "/openapi/v2").await.expect("OpenAPI");
        assert_eq!(response.status(), StatusCode::OK);
        let encoding = response.headers().get("content-encoding").map(|v| v.to_str().expect("text"));
        assert_eq!(encoding, expected, "Accept-Encoding: {accept:?}");
        http_body_util::BodyExt::collect(response.into_body()).await.expect("a whole body");
    }
}

/// The request line and headers of an unauthenticated POST, which is refused before its body is read.
fn refused_head(length: usize, more: &str) -> String {
    format!("POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{more}\r\n")
}

/// Reads until `text` has come or the server has closed.
async fn read_until(stream: &mut (impl AsyncRead + Unpin), text: &str) -> String {
    let mut answer = Vec::new();
    let mut buffer = vec![0; 4096];
    loop {
        let read = String::from_utf8_lossy(&answer).into_owned();
        if read.contains(text) {
            return read;
        }
        match stream.read(&mut buffer).await {
            Ok(n @ 1..) => answer.extend_from_slice(&buffer[..n]),
            _ => return read,
        }
    }
}

#[tokio::test]
async fn a_connection_outlives_a_refusal_that_no_body_was_read_for() {
    let endpoint = shared().await.endpoint().with_identity(Identity::Anonymous);
    let mut stream = endpoint.stream(Protocol::Http1).await.expect("TLS stream");
    for round in 1..=20 {
        // Headers and body in two TLS records: the body has not arrived yet when the request is refused.
        stream.write_all(refused_head(1000, "").as_bytes()).await.expect("head");
        stream.flush().await.expect("head");
        tokio::task::yield_now().await;
        stream.write_all(&[b'x'; 1000]).await.expect("body");
        stream.flush().await.expect("body");
        let answer = read_until(&mut stream, "\"code\":40").await;
        assert!(answer.starts_with("HTTP/1.1 40"), "{round}: {answer}");
        assert!(!answer.to_lowercase().contains("connection: close"), "{round}: {answer}");
    }
}

#[tokio::test]
async fn a_long_body_that_nobody_reads_takes_no_answer_away() {
    let endpoint = shared().await.endpoint().with_identity(Identity::Anonymous);
    let stream = endpoint.stream(Protocol::Http1).await.expect("TLS stream");
    let (mut reader, mut writer) = tokio::io::split(stream);
    let length = 1 << 20;
    let sent = tokio::spawn(async move {
        writer.write_all(refused_head(length, "").as_bytes()).await?;
        writer.write_all(&vec![b'x'; length]).await?;
        writer.flush().await
    });
    let mut answer = Vec::new();
    reader.read_to_end(&mut answer).await.expect("a clean end");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 40") && answer.trim_end().ends_with('}'), "{answer}");
    assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    sent.await.expect("sender").expect("everything could be sent");
}

#[tokio::test]
async fn a_client_that_expects_100_continue_is_refused_before_its_body() {
    let endpoint = shared().await.endpoint().with_identity(Identity::Anonymous);
    let mut stream = endpoint.stream(Protocol::Http1).await.expect("TLS stream");
    stream.write_all(refused_head(10, "Expect: 100-continue\r\n").as_bytes()).await.expect("head");
    stream.flush().await.expect("head");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("a clean end");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 40"), "{answer}");
    assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
}

/// Over HTTP/2 the server itself must leave out the body of an answer to HEAD.
#[tokio::test]
async fn no_answer_to_a_head_has_a_body() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut connection = shared().await.connect(protocol).await;
        for (path, status) in [
            ("/api/v1/namespaces", 405),
            ("/livez", 200),
            ("/api/v1/namespaces/default/pods/absent", 405),
            ("/api/v1/namespaces/default/pods/pr%oxy", 400),
            ("/nobody", 404),
            ("/api/v1/namespaces/default/pods/absent/proxy", 404),
        ] {
            let answer = connection.call(&Call::new(Method::HEAD, path)).await.expect(path);
            assert_eq!((answer.status.as_u16(), answer.body.len()), (status, 0), "{protocol:?} {path}");
        }
    }
}
