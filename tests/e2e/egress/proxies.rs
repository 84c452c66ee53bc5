//! Servers behind the proxies of pods, services and nodes: what they are sent of the client, and the links
//! and redirects in their answers.
//!
//! Such a server has no address of loopback, so the tests run once more in a network of their own.

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::IpAddr;

use bytes::Bytes;
use flate2::read::{DeflateDecoder, MultiGzDecoder};
use flate2::write::{DeflateEncoder, GzEncoder};
use flate2::Compression;
use futures::future::join_all;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::CONTENT_LENGTH;
use hyper::{Method, Request, Response};
use plinth_benches::api::client::{Call, Protocol, Reply};
use plinth_tests::https::{HttpsOptions, HttpsServer};
use plinth_tests::own_network::{is_inside, ADDRESS};
use plinth_tests::requests::create;
use plinth_tests::server::TestServer;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::upgrade;
use crate::hostile::http2::{header, PATH};
use crate::hostile::unread::{all_is_produced, unread_requests, BOUND};
use crate::hostile::{exchange, resident_peak, Target, PATIENCE};

const PAGE: &str = "<html><a href=\"/a?b\">/a</a><img src='x'><script src=/s>'<a href=/x>'</script></html>\n";

fn compressed(encoding: &str, page: &str) -> Vec<u8> {
    match encoding {
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(page.as_bytes()).expect("compressed");
            encoder.finish().expect("compressed")
        }
        "deflate" => {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(page.as_bytes()).expect("compressed");
            encoder.finish().expect("compressed")
        }
        _ => page.into(),
    }
}

/// Answers with the page, with what the path asks for, or with the request's own headers.
async fn backend(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let mut headers: Vec<String> = request
        .headers()
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap_or_default()))
        .collect();
    headers.sort();
    let mut answer = Response::new(Full::from(headers.concat()));
    let query = request.uri().query().unwrap_or_default().to_owned();
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        match name {
            "body" if request.method() == Method::HEAD => *answer.body_mut() = Full::default(),
            "body" => *answer.body_mut() = Full::from(compressed(value, PAGE)),
            "status" => *answer.status_mut() = value.parse().expect("a status"),
            name => {
                let name: http::HeaderName = name.parse().expect("a name");
                drop(answer.headers_mut().insert(name, value.parse().expect("a value")));
            }
        }
    }
    answer
}

async fn get(server: &TestServer, method: Method, path: &str, headers: &[(&'static str, &str)]) -> Reply {
    let mut connection = server.connect(Protocol::Http1).await;
    let mut request = Request::new(Full::<Bytes>::default());
    *request.method_mut() = method;
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().expect("a value"));
    }
    let (parts, body) = connection.send(request, path).await.expect("an answer").into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    Reply { status: parts.status, headers: parts.headers, body }
}

/// The pod, the service and the node `web`, with the server behind each.
async fn make_targets(server: &TestServer, port: u16) {
    let client = server.client().await;
    let node = json!({"metadata": {"name": "web"}, "status": {
        "addresses": [{"type": "InternalIP", "address": ADDRESS.to_string()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    create(&client, "/api/v1/nodes", &node).await;
    let container = json!({"name": "a", "image": "x", "ports": [{"containerPort": port}]});
    let pod = json!({"metadata": {"name": "web"}, "spec": {"nodeName": "web", "containers": [container]}});
    create(&client, "/api/v1/namespaces/default/pods", &pod).await;
    let status = json!({"status": {"podIPs": [{"ip": ADDRESS.to_string()}], "podIP": ADDRESS.to_string()}});
    let path = "/api/v1/namespaces/default/pods/web/status";
    assert_eq!(super::send(&client, "PATCH", path, &status).await.0, 200);
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 443}]}});
    create(&client, "/api/v1/namespaces/default/services", &service).await;
    let slice = json!({
        "metadata": {"name": "web", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"port": port}],
        "endpoints": [{"addresses": [ADDRESS.to_string()], "conditions": {"ready": true}}],
    });
    create(&client, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await;
}

#[tokio::test]
async fn pages_of_proxied_servers_lead_below_the_proxy() {
    if !is_inside("egress::proxies::pages_of_proxied_servers_lead_below_the_proxy") {
        return;
    }
    let options = HttpsOptions { address: IpAddr::V4(ADDRESS), ..HttpsOptions::default() };
    let backend = HttpsServer::start_as(options, backend).await;
    let port = backend.port;
    let server = TestServer::start(&[]).await;
    make_targets(&server, port).await;
    let proxies = [
        "/api/v1/namespaces/default/services/https:web:/proxy".to_owned(),
        format!("/api/v1/namespaces/default/pods/https:web:{port}/proxy"),
        "/api/v1/nodes/web/proxy".to_owned(),
    ];
    for proxy in &proxies {
        let own = server.endpoint().authority().to_owned();
        let given = [
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-for", "192.0.2.7"),
            ("x_forwarded_for", "192.0.2.8"),
            ("x-forwarded-uri", "/forged"),
            ("x-forwarded-host", "example.com"),
        ];
        let sent = get(&server, Method::GET, &format!("{proxy}/x/y/?q"), &given).await;
        let expected = format!(
            "host: {own}\nx-forwarded-for: 192.0.2.1, 192.0.2.7, 127.0.0.1\nx-forwarded-host: example.com\n\
             x-forwarded-uri: {proxy}/x/y/\n"
        );
        assert_eq!((sent.status.as_u16(), sent.text()), (200, expected), "{proxy}");

        let changed = PAGE.replace("\"/a", &format!("\"{proxy}/a")).replace("=/s", &format!("={proxy}/s"));
        for (encoding, kind, page) in [
            ("", "text/html", &*changed),
            ("", "text/html;charset=utf-8", &*changed),
            ("", "text/plain", PAGE),
            ("", "application/xhtml+xml", PAGE),
            ("gzip", "text/html", &*changed),
            ("gzip", "text/plain", PAGE),
            ("deflate", "text/html", &*changed),
            ("br", "text/html", PAGE),
        ] {
            let mut query = format!("body={encoding}&content-type={kind}");
            if !encoding.is_empty() {
                query.push_str(&format!("&content-encoding={encoding}"));
            }
            let sent = get(&server, Method::GET, &format!("{proxy}/?{query}"), &[]).await;
            let mut text = String::new();
            let body = &sent.body[..];
            match encoding {
                "gzip" => drop(MultiGzDecoder::new(body).read_to_string(&mut text).expect("gzip")),
                "deflate" => drop(DeflateDecoder::new(body).read_to_string(&mut text).expect("deflate")),
                _ => text = sent.text(),
            }
            assert_eq!(text, page, "{proxy} {encoding} {kind}");
            let length = sent.headers.get("content-length").map(|value| value.to_str().expect("text"));
            let whole = sent.body.len().to_string();
            assert_eq!(length, (page == PAGE).then_some(&*whole), "{proxy} {encoding} {kind}");
        }
        let sent = get(&server, Method::HEAD, &format!("{proxy}/?body=&content-type=text/html"), &[]).await;
        assert_eq!((sent.status.as_u16(), sent.body.len()), (200, 0));

        // A redirect is changed, and its page is not.
        let of_another_port = format!("https://{ADDRESS}:{port}/x");
        for (location, changed) in [
            ("/x/", format!("{proxy}/x/")),
            (&*of_another_port, format!("{proxy}/x")),
            (&*format!("{proxy}/x"), format!("{proxy}/x")),
            ("https://example.com/x", "https://example.com/x".to_owned()),
            ("x", "x".to_owned()),
        ] {
            let query = format!("?status=302&body=&content-type=text/html&location={location}");
            let sent = get(&server, Method::GET, &format!("{proxy}/{query}"), &[]).await;
            assert_eq!((sent.status.as_u16(), sent.text()), (302, PAGE.to_owned()), "{location}");
            assert_eq!(sent.headers["location"], changed, "{proxy} {location}");
        }
        let sent = get(&server, Method::GET, &format!("{proxy}/?location=/a%2"), &[]).await;
        let why = "error trying to parse Location header: parse \\\"/a%2\\\": invalid URL escape \\\"%2\\\"";
        assert!(sent.status.as_u16() == 500 && sent.text().contains(why), "{}", sent.text());

        // An upgrade has no page.
        let lines = "connection: Upgrade\r\nupgrade: x\r\nx-forwarded-for: 192.0.2.1\r\n";
        let (code, text) = upgrade(&server.endpoint(), &format!("{proxy}/x?status=400"), lines).await;
        let expected = "connection: Upgrade\ncontent-length: 0\nhost: x\nupgrade: x\n\
                        x-forwarded-for: 192.0.2.1, 127.0.0.1\n";
        assert_eq!((code, &*text), (400, expected), "{proxy}");
        let page = "x?status=400&body=&content-type=text/html";
        let (code, text) = upgrade(&server.endpoint(), &format!("{proxy}/{page}"), lines).await;
        assert_eq!((code, &*text), (400, PAGE), "{proxy}");
    }
}

/// A page that is not compressed as its header says breaks off; what is no page of deflate passes.
#[tokio::test]
async fn broken_pages_break_off() {
    if !is_inside("egress::proxies::broken_pages_break_off") {
        return;
    }
    async fn broken(request: Request<Incoming>) -> Response<Full<Bytes>> {
        let encoding = request.uri().path().trim_matches('/').to_owned();
        let body: &[u8] = match &*encoding {
            "gzip" => b"<a href=/x>",
            // The header of zlib's format.
            _ => b"\x78\x9c<a href=/x>",
        };
        let mut answer = Response::new(Full::from(body.to_vec()));
        answer.headers_mut().insert("content-type", "text/html".parse().expect("a value"));
        answer.headers_mut().insert("content-encoding", encoding.parse().expect("a value"));
        answer
    }
    let options = HttpsOptions { address: IpAddr::V4(ADDRESS), ..HttpsOptions::default() };
    let backend = HttpsServer::start_as(options, broken).await;
    let server = TestServer::start(&[]).await;
    make_targets(&server, backend.port).await;
    let ask = async |path: &str| {
        let mut connection = server.connect(Protocol::Http1).await;
        let answer = connection.send(Request::new(Full::<Bytes>::default()), path).await.expect("an answer");
        answer.into_body().collect().await.map(|body| body.to_bytes())
    };
    let proxy = "/api/v1/namespaces/default/services/https:web:/proxy";
    assert!(ask(&format!("{proxy}/gzip")).await.is_err());
    let passed = ask(&format!("{proxy}/deflate")).await.expect("a whole body");
    assert_eq!(&passed[..], b"\x78\x9c<a href=/x>");
}

/// Heads of proxied answers are in memory until they are sent, however short the bodies behind them.
#[tokio::test]
async fn long_heads_that_nobody_reads_are_bounded() {
    const STREAMS: usize = 240;
    if !is_inside("egress::proxies::long_heads_that_nobody_reads_are_bounded") {
        return;
    }
    let options = HttpsOptions { address: IpAddr::V4(ADDRESS), ..HttpsOptions::default() };
    let backend = HttpsServer::start_as(options, |request: Request<Incoming>| async move {
        let length = request.uri().path().trim_matches('/').parse().expect("a length");
        let response = Response::builder().header("long", "x".repeat(length));
        response.body(Full::<Bytes>::default()).expect("a response")
    });
    let backend = backend.await;
    let target = Target::start_with(&[BOUND]).await;
    make_targets(&target.server, backend.port).await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut admin = target.server.connect(protocol).await;
        for method in [Method::GET, Method::HEAD] {
            // As long as this client takes over HTTP/2.
            let call = Call::new(method, "/api/v1/nodes/web/proxy/12000");
            let answer = admin.call(&call).await.expect("an answer");
            let long = answer.headers.get("long").map(|long| long.len());
            assert_eq!((long, answer.body.len()), (Some(12_000), 0), "{}", answer.text());
        }
        let longer = admin.call(&Call::get("/api/v1/nodes/web/proxy/200000")).await.expect("an answer");
        assert!(longer.status.is_server_error(), "{}", longer.status);
    }
    let mut admin = target.server.connect(Protocol::Http2).await;
    resident_peak(target.pid);
    let before = resident_peak(target.pid);
    let bytes = unread_requests(&[header(PATH, "/api/v1/nodes/web/proxy/40000")], STREAMS, 0);
    let attackers = (0..10).map(|_| async {
        let mut stream = target.server.endpoint().stream(Protocol::Http2).await.expect("TLS stream");
        let _ = tokio::time::timeout(PATIENCE, stream.write_all(&bytes)).await;
        stream
    });
    let held = join_all(attackers).await;
    assert!(all_is_produced(&mut admin).await, "nothing is counted");
    target.serves("long heads").await;
    let grown = resident_peak(target.pid).saturating_sub(before);
    assert!(grown < 250 << 20, "{} MiB", grown >> 20);
    drop(held);
}

/// An answer to HEAD, and one with 204 or 304, has the length that its server gave, or none.
#[tokio::test]
async fn answers_without_bodies_get_no_length_of_their_own() {
    if !is_inside("egress::proxies::answers_without_bodies_get_no_length_of_their_own") {
        return;
    }
    let options = HttpsOptions { address: IpAddr::V4(ADDRESS), ..HttpsOptions::default() };
    let backend = HttpsServer::start_as(options, |request: Request<Incoming>| async move {
        let mut words = request.uri().path().trim_matches('/').split('/');
        let status: u16 = words.next().and_then(|word| word.parse().ok()).expect("a status");
        let head: usize = words.next().and_then(|word| word.parse().ok()).expect("a length");
        let mut response = Response::builder().status(status).header("long", "x".repeat(head));
        if let Some(length) = words.next() {
            response = response.header(CONTENT_LENGTH, length);
        }
        // A body whose length nobody knows before its end.
        let pieces = futures::stream::empty::<Result<Frame<Bytes>, Infallible>>();
        response.body(StreamBody::new(pieces)).expect("a response")
    });
    let backend = backend.await;
    let server = TestServer::start(&[]).await;
    make_targets(&server, backend.port).await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut admin = server.connect(protocol).await;
        // The lengths of heads on both sides of those that count as unread.
        for (head, what) in [100, 12_000].into_iter().flat_map(|head| {
            let heads = [(Method::HEAD, 200, None), (Method::HEAD, 200, Some("17"))];
            let others = [(Method::GET, 204, None), (Method::GET, 304, None)];
            heads.into_iter().chain(others).map(move |what| (head, what))
        }) {
            let (method, status, length) = what.clone();
            let mut path = format!("/api/v1/nodes/web/proxy/{status}/{head}");
            path.extend(length.iter().flat_map(|length| ["/", length]));
            let answer = admin.call(&Call::new(method, path)).await.expect("an answer");
            assert_eq!(answer.status, status, "{}", answer.text());
            let found = answer.headers.get(CONTENT_LENGTH).map(|length| length.to_str().expect("text"));
            assert_eq!(found, length, "{protocol:?} {what:?} {head}");
        }
    }
}

/// A head may have hundreds of lines: groups of a user in a request, cookies in an answer.
#[tokio::test]
async fn heads_may_have_hundreds_of_lines() {
    if !is_inside("egress::proxies::heads_may_have_hundreds_of_lines") {
        return;
    }
    let options = HttpsOptions { address: IpAddr::V4(ADDRESS), ..HttpsOptions::default() };
    let backend = HttpsServer::start_as(options, |request: Request<Incoming>| async move {
        let lines = request.uri().path().trim_matches('/').parse().expect("a number");
        let mut response = Response::new(Full::<Bytes>::default());
        for line in 0..lines {
            response.headers_mut().append("line", line.into());
        }
        response
    });
    let backend = backend.await;
    let server = TestServer::start(&[]).await;
    make_targets(&server, backend.port).await;
    // Raw: this client takes fewer lines itself.
    let sent = async |path: &str, lines: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n");
        let mut stream = server.endpoint().stream(Protocol::Http1).await.expect("TLS stream");
        String::from_utf8(exchange(&mut stream, request.as_bytes()).await).expect("text")
    };
    let answer = sent("/api/v1/nodes/web/proxy/900", "").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\r\nline: 899\r\n"), "{answer}");
    let answer = sent("/api/v1/nodes/web/proxy/1100", "").await;
    assert!(answer.starts_with("HTTP/1.1 500") && answer.contains("message head is too large"), "{answer}");
    let groups = |count: usize| {
        let groups = (0..count).map(|n| format!("Impersonate-Group: group-{n}\r\n"));
        format!("Impersonate-User: bob\r\n{}", groups.collect::<String>())
    };
    let answer = sent("/api/v1/namespaces", &groups(900)).await;
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("User \\\"bob\\\" cannot list"),
        "{answer}"
    );
    let answer = sent("/api/v1/namespaces", &groups(1100)).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}
