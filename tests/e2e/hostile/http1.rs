//! HTTP/1 requests: sizes, contradicting lengths, request smuggling.

use futures::future::join_all;
use http::{Method, StatusCode};
use plinth_benches::api::client::{Call, Protocol, JSON};

use tokio::io::AsyncWriteExt;

use super::{codes, exchange, Target, PATIENCE};

#[tokio::test]
async fn headers_and_bodies_have_limits() {
    let target = Target::start().await;
    let host = "Host: x\r\n";
    let large = "x".repeat(2 << 20);
    // Bytes, and the codes that the answers may have; none is fine where the connection may be closed at
    // once.
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
    target.serves("malformed headers").await;
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

/// Request smuggling: a server that parses the request differently from a proxy in front would answer both.
#[tokio::test]
async fn a_request_inside_of_a_request_is_not_answered() {
    let target = Target::start().await;
    // Health answers 200 to everybody: were the inner request read, its answer would be seen.
    const INNER: &str = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
    let chunked = format!("0\r\n\r\n{INNER}");
    let length = chunked.len();
    // Headers and body, and the codes that the one answer may have.
    let rows: &[(&str, String, &[u16])] = &[
        (
            "length, then chunks",
            format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}"),
            &[403],
        ),
        (
            "chunks, then length",
            format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n\r\n{chunked}"),
            &[403],
        ),
        (
            "chunks and a short length",
            format!("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}"),
            &[403],
        ),
        (
            "lengths that differ",
            format!("Content-Length: 0\r\nContent-Length: {}\r\n\r\n{INNER}", INNER.len()),
            &[400],
        ),
        ("a list of lengths", format!("Content-Length: 0, {}\r\n\r\n{INNER}", INNER.len()), &[400]),
        ("a length with a sign", format!("Content-Length: +0\r\n\r\n{INNER}"), &[400]),
        ("a length in hexadecimal", format!("Content-Length: 0x0\r\n\r\n{INNER}"), &[400]),
        ("an empty length", format!("Content-Length: \r\n\r\n{INNER}"), &[400]),
        ("an encoding that is not known", format!("Transfer-Encoding: xchunked\r\n\r\n{chunked}"), &[400]),
        (
            "chunked, then another encoding",
            format!("Transfer-Encoding: chunked, identity\r\n\r\n{chunked}"),
            &[400],
        ),
        (
            "another encoding inside of the chunks",
            format!("Transfer-Encoding: gzip, chunked\r\n\r\n{chunked}"),
            &[501],
        ),
        ("chunks of chunks", format!("Transfer-Encoding: chunked, chunked\r\n\r\n{chunked}"), &[501]),
        (
            "two encodings",
            format!("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n{chunked}"),
            &[400],
        ),
        ("a tab before the encoding", format!("Transfer-Encoding:\x0bchunked\r\n\r\n{chunked}"), &[400]),
        ("a blank after the name", format!("Transfer-Encoding : chunked\r\n\r\n{chunked}"), &[400]),
        ("a folded line", format!("Transfer-Encoding:\r\n chunked\r\n\r\n{chunked}"), &[400]),
        (
            "a size of a chunk that is none",
            format!("Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n{INNER}"),
            &[403],
        ),
        (
            "a size of a chunk that wraps around",
            format!("Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n{INNER}"),
            &[403],
        ),
    ];
    for (name, rest, expected) in rows {
        let request = format!("POST /nothing HTTP/1.1\r\nHost: x\r\n{rest}");
        let codes = codes(&target.says(Protocol::Http1, request.as_bytes()).await);
        assert!(matches!(codes.as_slice(), [code] if expected.contains(code)), "{name}: {codes:?}");
    }
    let old = format!("POST /nothing HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}");
    assert_eq!(codes(&target.says(Protocol::Http1, old.as_bytes()).await), [400], "chunks in HTTP/1.0");
    target.serves("requests inside of requests").await;
}

/// Names that are not UTF-8 are refused: the request is neither the sender's own nor an unauthenticated
/// client's.
#[tokio::test]
async fn credentials_that_are_no_text_are_wrong_and_not_absent() {
    let target = Target::start().await;
    let admin = target.server.endpoint();
    // Headers of an administrator's request; UTF-8 is text, other bytes are none.
    let rows: &[(&[u8], u16)] = &[
        (b"", 200),
        ("Impersonate-User: jörg\r\n".as_bytes(), 403),
        (b"Impersonate-User: j\xf6rg\r\n", 400),
        (b"Impersonate-User: jane\r\nImpersonate-Group: \xff\r\n", 400),
        (b"Impersonate-User: jane\r\nImpersonate-Uid: \xff\r\n", 400),
        (b"Impersonate-User: jane\r\nImpersonate-Extra-A: \xff\r\n", 400),
    ];
    for (headers, code) in rows {
        let mut stream = admin.stream(Protocol::Http1).await.expect("TLS stream");
        let head: &[u8] = b"GET /api/v1/secrets HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
        let answer = exchange(&mut stream, &[head, headers, b"\r\n"].concat()).await;
        assert_eq!(codes(&answer), [*code], "{}", String::from_utf8_lossy(headers));
    }
    for token in [&b"\xff\xfe"[..], b"a\xc3", "jörg".as_bytes(), b"a.b.\xff"] {
        let request = [
            b"GET /livez HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ",
            token,
            b"\r\nConnection: close\r\n\r\n",
        ];
        let codes = codes(&target.says(Protocol::Http1, &request.concat()).await);
        assert_eq!(codes, [401], "{token:?}");
    }
}

#[tokio::test]
async fn endless_input_is_not_buffered() {
    let target = Target::start().await;
    let admin = target.server.endpoint();
    let post = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let megabytes = "x".repeat(16 << 20);
    let rows: Vec<(&str, String)> = vec![
        ("an extension of a chunk", format!("{post}1;{megabytes}")),
        (
            "extensions of many chunks",
            format!("{post}{}", format!("1;{}\r\n \r\n", "x".repeat(1000)).repeat(16_000)),
        ),
        ("trailers", format!("{post}0\r\n{}", "A: b\r\n".repeat(2_000_000))),
        ("one trailer", format!("{post}0\r\nA: {megabytes}")),
        ("a body", format!("{post}1000000\r\n{megabytes}\r\n0\r\n\r\n")),
    ];
    for (name, bytes) in rows {
        let attackers = (0..8).map(|_| async {
            let mut stream = admin.stream(Protocol::Http1).await.expect("TLS stream");
            exchange(&mut stream, bytes.as_bytes()).await
        });
        for answer in join_all(attackers).await {
            let codes = codes(&answer);
            assert!(codes.iter().all(|code| matches!(code, 400 | 413 | 431)), "{name}: {codes:?}");
        }
        target.serves(name).await;
    }
    // Requests one behind the other, whose answers nobody reads.
    let pipelined = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100_000);
    let attackers = (0..8).map(|_| async {
        let mut stream = target.anonymous_stream(Protocol::Http1).await;
        let _ = tokio::time::timeout(PATIENCE / 4, stream.write_all(pipelined.as_bytes())).await;
        stream
    });
    let held = join_all(attackers).await;
    target.serves("pipelined requests").await;
    drop(held);
}
