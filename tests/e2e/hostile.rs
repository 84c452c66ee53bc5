//! Hostile clients: whatever they send, nobody gets in, honest clients are answered, the server lives, and its memory
//! stays bounded. How quick the answers are is for `plinth bench api` to tell.

use std::time::Duration;

use futures::future::join_all;
use http::{Method, StatusCode};
use plinth_benches::api::client::{Call, Identity, Protocol, JSON};
use plinth_tests::server::TestServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What the process may have in memory at the most while it is attacked, in bytes: caches and buffers have their own
/// limits far below.
const MEMORY: u64 = 1 << 30;
/// How long a read waits for what may never come. Nothing depends on how much of it is used.
const PATIENCE: Duration = Duration::from_secs(20);

/// The attacked server and what must hold of it.
struct Target {
    server: TestServer,
    pid: u32,
}

impl Target {
    async fn start() -> Target {
        let server = TestServer::start(&[]).await;
        let pid = server.pid();
        Target { server, pid }
    }

    /// Honest clients are served: over old and new connections, administrators and strangers.
    async fn serves(&self, attack: &str) {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let mut admin = self.server.connect(protocol).await;
            let reply = admin.call(&Call::get("/api/v1/namespaces/default")).await;
            let reply = reply.unwrap_or_else(|e| panic!("{attack}: an administrator is not served: {e}"));
            assert_eq!(reply.status, StatusCode::OK, "{attack}: {}", reply.text());
            let mut stranger = self.server.connect_anonymously(protocol).await;
            let reply = stranger.call(&Call::get("/livez")).await.expect("health");
            assert_eq!(reply.status, StatusCode::OK, "{attack}: {}", reply.text());
        }
        assert_eq!(self.server.pid(), self.pid, "{attack}: it was started anew");
        let memory = resident(self.pid);
        assert!(memory < MEMORY, "{attack}: {} MiB in memory", memory >> 20);
    }

    /// A bare TLS stream of a stranger.
    async fn stranger(
        &self,
        protocol: Protocol,
    ) -> impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin {
        let endpoint = self.server.endpoint().with_identity(Identity::Anonymous);
        endpoint.stream(protocol).await.expect("TLS stream")
    }

    /// Sends bytes on a stream of their own; gives what comes back until the server closes or falls silent.
    async fn says(&self, protocol: Protocol, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.stranger(protocol).await;
        // The server may close before it has read everything.
        let _ = stream.write_all(bytes).await;
        let _ = stream.flush().await;
        let mut answer = Vec::new();
        let read = async {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                answer.extend_from_slice(&buffer[..n]);
            }
        };
        let _ = tokio::time::timeout(PATIENCE, read).await;
        answer
    }
}

/// Resident memory of a process, in bytes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server lives");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kib << 10
}

/// The status codes of all HTTP/1 answers in what came back.
fn codes(answer: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(answer);
    let starts = text.match_indices("HTTP/1.").map(|(at, _)| &text[at..]);
    starts.filter_map(|rest| rest.split_whitespace().nth(1)?.parse().ok()).collect()
}

#[tokio::test]
async fn half_open_connections_keep_nobody_out() {
    let target = Target::start().await;
    let address = format!("127.0.0.1:{}", target.server.port());
    let mut held = Vec::new();
    for n in 0..900 {
        let mut stream = TcpStream::connect(&address).await.expect("connection");
        // Nothing at all, the first byte of TLS, or half of a ClientHello.
        let start: &[u8] = match n % 3 {
            0 => b"",
            1 => b"\x16",
            _ => b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        };
        // Those that had to make room are closed already.
        let _ = stream.write_all(start).await;
        held.push(stream);
        if n % 300 == 299 {
            target.serves("half-open connections").await;
        }
    }
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut stream = target.stranger(Protocol::Http1).await;
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ").await.expect("half a head");
        slow.push(stream);
    }
    target.serves("half-sent heads").await;
    drop((held, slow));
    target.serves("after half-open connections").await;
}

#[tokio::test]
async fn heads_and_bodies_have_bounds() {
    let target = Target::start().await;
    let host = "Host: x\r\n";
    let large = "x".repeat(2 << 20);
    // Bytes, and the codes that the answers may have; none is fine where the connection may be closed at once.
    let rows: Vec<(&str, Vec<u8>, &[u16])> = vec![
        ("one giant header", format!("GET /livez HTTP/1.1\r\n{host}A: {large}\r\n\r\n").into(), &[431]),
        (
            "many headers",
            format!("GET /livez HTTP/1.1\r\n{host}{}\r\n", "A: b\r\n".repeat(200_000)).into(),
            &[431],
        ),
        ("a giant path", format!("GET /{large} HTTP/1.1\r\n{host}\r\n").into(), &[414, 431]),
        (
            "two lengths",
            format!("POST /livez HTTP/1.1\r\n{host}Content-Length: 3\r\nContent-Length: 5\r\n\r\nabcde")
                .into(),
            &[400],
        ),
        ("no length", format!("POST /livez HTTP/1.1\r\n{host}Content-Length: x\r\n\r\n").into(), &[400]),
        (
            "a negative length",
            format!("POST /livez HTTP/1.1\r\n{host}Content-Length: -1\r\n\r\n").into(),
            &[400],
        ),
        (
            "a NUL in a header",
            [b"GET /livez HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n".as_slice()].concat(),
            &[400],
        ),
        (
            "a line break in a header's name",
            format!("GET /livez HTTP/1.1\r\n{host}A\nB: c\r\n\r\n").into(),
            &[400],
        ),
        ("no HTTP", b"\x00\x01\x02\xff\xfe\r\n\r\n".to_vec(), &[400]),
        (
            "a chunk of odd size",
            format!(
                "POST /version HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"
            )
            .into(),
            &[400, 403, 405],
        ),
    ];
    for (name, bytes, expected) in rows {
        let codes = codes(&target.says(Protocol::Http1, &bytes).await);
        assert!(codes.iter().all(|code| expected.contains(code)), "{name}: {codes:?}");
    }
    target.serves("malformed heads").await;
    // A body that is longer than it may be, and one that would be when it is unpacked.
    let mut admin = target.server.connect(Protocol::Http1).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let reply = admin.call(&Call::new(Method::POST, path).body(JSON, vec![b' '; (3 << 20) + 1])).await;
    assert_eq!(reply.expect("an answer").status, StatusCode::PAYLOAD_TOO_LARGE);
    // 1 GiB of zeros in 1 MiB would be: the server unpacks no request at all.
    let mut admin = target.server.connect(Protocol::Http1).await;
    let bomb: Vec<u8> =
        [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3].into_iter().chain(std::iter::repeat_n(0, 1 << 20)).collect();
    let request = http::Request::post(path)
        .header("content-type", JSON)
        .header("content-encoding", "gzip")
        .body(http_body_util::Full::new(bytes::Bytes::from(bomb)))
        .expect("request");
    let reply = admin.send(request, path).await.expect("an answer");
    assert_eq!(reply.status(), StatusCode::BAD_REQUEST);
    target.serves("bombs").await;
}

/// Paths that mean to be two things: to whoever guards them health, to whoever serves them secrets.
#[tokio::test]
async fn no_path_leads_a_stranger_to_secrets() {
    let target = Target::start().await;
    let secret = serde_json::json!({"metadata": {"name": "hidden"}, "stringData": {"word": "xyzzy"}});
    let path = "/api/v1/namespaces/kube-system/secrets";
    let mut admin = target.server.connect(Protocol::Http2).await;
    admin.must(&Call::new(Method::POST, path).body(JSON, secret.to_string())).await.expect("a secret");
    let tricks: &[&[u8]] = &[
        b"/api/v1/secrets",
        b"//api/v1/secrets",
        b"/livez//api/v1/secrets",
        b"/livez/../api/v1/secrets",
        b"/livez/..;/api/v1/secrets",
        b"/healthz/%2e%2e/api/v1/secrets",
        b"/healthz/%252e%252e/api/v1/secrets",
        b"/version/..%2fapi%2fv1%2fsecrets",
        b"/api/v1/namespaces/default/../kube-system/secrets/hidden",
        b"/api/v1/namespaces/kube-system/secrets/hidden%00",
        b"/api/v1/namespaces/kube-system/secrets/hidden%0a",
        b"/api/v1/%73ecrets",
        b"/%61pi/v1/secrets",
        b"/API/v1/secrets",
        b"/api/v1/secrets/.",
        b"/api/v1/secrets?watch=1",
        b"/api/v1/watch/secrets",
        b"/api/v1/secrets#/livez",
        b"/api/v1/secrets?/livez",
        b"/livez?/../../api/v1/secrets",
        b"/api/v1\\secrets",
        b"/api/v1/secrets;/livez",
        b"https://127.0.0.1/api/v1/secrets",
        b"*",
        b"/api/v1/namespaces/kube-system/secrets/hidden\xff",
    ];
    for trick in tricks {
        for extra in
            ["", "X-Original-URL: /livez\r\n", "X-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n"]
        {
            let mut request = b"GET ".to_vec();
            request.extend_from_slice(trick);
            request.extend_from_slice(
                format!(" HTTP/1.1\r\nHost: x\r\n{extra}Connection: close\r\n\r\n").as_bytes(),
            );
            let answer = target.says(Protocol::Http1, &request).await;
            let name = String::from_utf8_lossy(trick);
            let text = String::from_utf8_lossy(&answer);
            assert!(!text.contains("xyzzy") && !text.contains("eHl6enk"), "{name}: the secret is told");
            assert!(!text.contains("SecretList"), "{name}: {text}");
            let is_health = name.starts_with("/livez?");
            assert!(is_health || !codes(&answer).contains(&200), "{name}: {text}");
        }
    }
    // What comes behind a first request on the same connection is asked for by the same stranger.
    let smuggled = b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /api/v1/secrets HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = target.says(Protocol::Http1, smuggled).await;
    assert!(!codes(&answer).contains(&200), "{}", String::from_utf8_lossy(&answer));
    target.serves("path tricks").await;
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM_AND_HEADERS: u8 = 5;
/// HPACK of `GET / https`, all from the static table, and an authority.
const REQUEST: &[u8] = b"\x82\x84\x87\x41\x01x";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let mut out = length.to_be_bytes()[1..].to_vec();
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

#[tokio::test]
async fn floods_of_http2_frames_end_their_own_connection_at_most() {
    let target = Target::start().await;
    let start = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let streams = (1u32..).step_by(2);
    let rapid_reset: Vec<u8> = streams
        .clone()
        .take(50_000)
        .flat_map(|id| {
            [
                frame(HEADERS, END_STREAM_AND_HEADERS, id, REQUEST),
                frame(RST_STREAM, 0, id, &8u32.to_be_bytes()),
            ]
        })
        .flatten()
        .collect();
    let settings: Vec<u8> = (0..200_000).flat_map(|_| frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])).collect();
    let pings: Vec<u8> = (0..200_000).flat_map(|_| frame(PING, 0, 0, &[7; 8])).collect();
    // A head without an end.
    let continuation: Vec<u8> = std::iter::once(frame(HEADERS, 1, 1, REQUEST))
        .chain((0..2_000).map(|_| frame(CONTINUATION, 0, 1, &[0x40, 1, b'a', 1, b'b'].repeat(200))))
        .flatten()
        .collect();
    // Streams without an end: more than there may be.
    let open: Vec<u8> = streams.take(50_000).flat_map(|id| frame(HEADERS, 4, id, REQUEST)).collect();
    let rows = [
        ("rapid reset", rapid_reset),
        ("settings flood", settings),
        ("ping flood", pings),
        ("continuation flood", continuation),
        ("open streams", open),
        ("garbage", vec![0xff; 100_000]),
    ];
    for (name, frames) in rows {
        let bytes = [start.as_slice(), &frames].concat();
        let attackers = (0..4).map(|_| async {
            let mut stream = target.stranger(Protocol::Http2).await;
            // Never reading, so that answers pile up, until it is shut out or done.
            let _ = tokio::time::timeout(PATIENCE, stream.write_all(&bytes)).await;
            stream
        });
        let held = futures::future::join(join_all(attackers), target.serves(name)).await.0;
        target.serves(name).await;
        drop(held);
    }
    target.serves("after the floods").await;
}

#[tokio::test]
async fn a_flood_of_one_client_is_turned_away_and_others_are_served() {
    let target = Target::start().await;
    let mut flood = Vec::new();
    for _ in 0..16 {
        let connection = target.server.connect_anonymously(Protocol::Http2).await;
        for _ in 0..100 {
            let mut connection = connection.share().expect("a shared connection");
            flood.push(async move {
                let mut codes = Vec::new();
                for _ in 0..10 {
                    match connection.call(&Call::get("/api/v1/pods")).await {
                        Ok(reply) => codes.push(reply.status.as_u16()),
                        Err(_) => break,
                    }
                }
                codes
            });
        }
    }
    let flood = tokio::spawn(join_all(flood));
    for _ in 0..10 {
        target.serves("a flood").await;
    }
    let codes: Vec<u16> = flood.await.expect("the flood").into_iter().flatten().collect();
    assert!(!codes.is_empty());
    assert!(codes.iter().all(|code| matches!(code, 403 | 429)), "refused or told to come later: {codes:?}");
}

#[tokio::test]
async fn thousands_of_watches_and_slow_readers_leave_room_for_others() {
    let target = Target::start().await;
    let mut admin = target.server.connect(Protocol::Http2).await;
    let path = "/api/v1/namespaces/default/configmaps";
    for n in 0..20 {
        let body = serde_json::json!({"metadata": {"name": format!("large-{n}")}, "data": {"x": "y".repeat(500_000)}});
        admin.must(&Call::new(Method::POST, path).body(JSON, body.to_string())).await.expect("create");
    }
    let mut watches = Vec::new();
    for _ in 0..10 {
        let connection = target.server.connect(Protocol::Http2).await;
        for _ in 0..200 {
            let mut connection = connection.share().expect("a shared connection");
            let call = Call::get("/api/v1/namespaces/default/secrets?watch=1&resourceVersion=1");
            watches.push(async move { connection.open(&call).await.expect("a watch") });
        }
    }
    let watches = join_all(watches).await;
    assert!(watches.iter().all(|w| w.status() == StatusCode::OK || w.status() == StatusCode::GONE));
    target.serves("2,000 watches").await;
    // Lists and watches of ten megabytes whose readers never read.
    let mut slow = Vec::new();
    for n in 0..100 {
        let mut connection = target.server.connect(Protocol::Http1).await;
        let query = if n % 2 == 0 { "" } else { "?watch=1" };
        let response = connection.open(&Call::get(format!("{path}{query}"))).await.expect("an answer");
        assert_eq!(response.status(), StatusCode::OK);
        slow.push((connection, response));
        if n % 25 == 24 {
            target.serves("slow readers").await;
        }
    }
    drop((slow, watches));
    target.serves("after the watches").await;
}
