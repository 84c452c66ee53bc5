//! Connections: what the server asks of clients that are silent, ping too often, or are too many.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{server, TestServer};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;

/// A frame of the connection itself.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 0], payload].concat()
}

/// A client that speaks HTTP/2 and sends nothing by itself.
async fn connect(server: &TestServer) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, &[])).await.unwrap();
    stream
}

/// The next frame: its type and payload; none at the end of the connection.
async fn next_frame(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut header = [0; 9];
    stream.read_exact(&mut header).await.ok()?;
    let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).await.ok()?;
    Some((header[3], payload))
}

async fn frames(stream: &mut TcpStream) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some(frame) = next_frame(stream).await {
        frames.push(frame);
    }
    frames
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_answer_a_ping_is_disconnected() {
    let flags = ["--grpc-keepalive-interval", "100ms", "--grpc-keepalive-timeout", "100ms"];
    let (_dir, server, client) = server(&flags).await;
    let mut silent = connect(&server).await;
    let frames = frames(&mut silent).await;
    assert!(frames.iter().any(|(kind, _)| *kind == PING), "{frames:?}");
    // A client that answers stays.
    tokio::time::sleep(Duration::from_millis(500)).await;
    client.put("a", "v").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_pings_too_often_is_disconnected_and_told_so_in_grpcs_words() {
    let (_dir, server, client) = server(&["--grpc-keepalive-min-time", "1h"]).await;
    let mut eager = connect(&server).await;
    for _ in 0..4 {
        eager.write_all(&frame(PING, 0, &[1; 8])).await.unwrap();
    }
    let frames = frames(&mut eager).await;
    let (kind, payload) = frames.last().unwrap();
    assert_eq!((*kind, &payload[4..]), (GO_AWAY, &b"\0\0\0\x0btoo_many_pings"[..]));
    client.put("a", "v").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_streams_is_that_of_the_flag() {
    const MAX_CONCURRENT_STREAMS: u8 = 3;
    let (_dir, server, _client) = server(&["--max-concurrent-streams", "77"]).await;
    let mut stream = connect(&server).await;
    let (kind, settings) = next_frame(&mut stream).await.unwrap();
    assert_eq!(kind, SETTINGS);
    let found = settings.chunks(6).find(|setting| setting[1] == MAX_CONCURRENT_STREAMS).unwrap();
    assert_eq!(found[2..], 77_u32.to_be_bytes());
    server.stop().await;
}

/// Until the server has closed it.
async fn closed(mut stream: TcpStream) {
    let mut received = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut received).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_nothing_is_disconnected() {
    let (_dir, server, client) = server(&[]).await;
    let begun: [&[u8]; 4] = [b"", b"PRI * HTTP/2.0\r\n", b"GET", b"GET /health HTTP/1.1\r\nHost: a\r\n"];
    let mut waiting = tokio::task::JoinSet::new();
    for begun in begun {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(begun).await.unwrap();
        waiting.spawn(closed(stream));
    }
    let ended = tokio::time::timeout(Duration::from_secs(60), waiting.join_all()).await;
    assert!(ended.is_ok());
    client.put("a", "v").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_never_begin_take_no_room_from_others() {
    let (_dir, server, client) = server(&[]).await;
    let first = TcpStream::connect(server.address).await.unwrap();
    // As many as one address may have that have not begun, and as there are of these.
    let mut others = Vec::new();
    for _ in 0..300 {
        others.push(TcpStream::connect(server.address).await.unwrap());
    }
    closed(first).await;
    client.put("a", "v").await;
    server.client().await.put("b", "v").await;
    server.stop().await;
}

/// The number of ranges that the server has carried out.
async fn ranges(server: &TestServer) -> u64 {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).await.unwrap();
    let value = metrics.lines().find_map(|line| line.strip_prefix("etcd_mvcc_range_total "));
    value.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_no_response_gets_a_bounded_number_of_them() {
    const RESPONSES: u64 = 1024;
    let (_dir, server, client) = server(&[]).await;
    client.put("a", &"x".repeat(60_000)).await;
    let before = ranges(&server).await;
    let greedy = server.client_without_window().await;
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..3 * RESPONSES {
        let greedy = greedy.clone();
        requests.spawn(async move { greedy.get("a").await });
    }
    // Others are served, and as long as they are, it is not.
    while ranges(&server).await - before < RESPONSES {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        client.put("b", "v").await;
    }
    assert_eq!(ranges(&server).await - before, RESPONSES);
    requests.abort_all();
    while requests.join_next().await.is_some() {}
    assert_eq!(client.get("b").await.unwrap().value, "v");
    server.stop().await;
}
