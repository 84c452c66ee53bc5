//! Floods of HTTP/2 frames.

use std::time::Duration;

use futures::future::join_all;
use http::Method;
use plinth_benches::api::client::{Call, Connection, Protocol, JSON};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{resident_peak, Target, PATIENCE};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const PRIORITY: u8 = 2;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM_AND_HEADERS: u8 = 5;
/// Of HPACK's static table.
const PATH: u8 = 4;
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
    let open: Vec<u8> = streams.clone().take(50_000).flat_map(|id| frame(HEADERS, 4, id, REQUEST)).collect();
    // Streams that the server has to reset, because the client breaks a rule on each ("made you reset").
    let made_to_reset: Vec<u8> = streams
        .clone()
        .take(50_000)
        .flat_map(|id| [frame(HEADERS, 4, id, REQUEST), frame(WINDOW_UPDATE, 0, id, &[0; 4])])
        .flatten()
        .collect();
    // A body that never gets anywhere, a head that does neither.
    let empty_data: Vec<u8> = std::iter::once(frame(HEADERS, 4, 1, REQUEST))
        .chain((0..200_000).map(|_| frame(DATA, 0, 1, &[])))
        .flatten()
        .collect();
    let empty_continuations: Vec<u8> = std::iter::once(frame(HEADERS, 1, 1, REQUEST))
        .chain((0..200_000).map(|_| frame(CONTINUATION, 0, 1, &[])))
        .flatten()
        .collect();
    // One header of 4,000 bytes, put into the table and named 16,000 times over in each of many frames.
    let bomb = [&b"\x40\x01a\x7f\xa1\x1e"[..], &[b'x'; 4000]].concat();
    let hpack_bomb: Vec<u8> = std::iter::once(frame(HEADERS, 1, 1, &[REQUEST, &bomb].concat()))
        .chain((0..64).map(|_| frame(CONTINUATION, 0, 1, &[0xbe; 16_000])))
        .flatten()
        .collect();
    let priorities: Vec<u8> =
        (0..200_000).flat_map(|n| frame(PRIORITY, 0, 2 * n + 1, &[0, 0, 0, 0, 9])).collect();
    let windows: Vec<u8> = (0..200_000).flat_map(|_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])).collect();
    let unknown: Vec<u8> = (0..100_000).flat_map(|_| frame(0xfa, 0xff, 7, &[1; 64])).collect();
    let rows = [
        ("made to reset", made_to_reset),
        ("empty data", empty_data),
        ("empty continuations", empty_continuations),
        ("a bomb of headers", hpack_bomb),
        ("priorities", priorities),
        ("windows", windows),
        ("frames of no kind", unknown),
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
            let mut stream = target.anonymous_stream(Protocol::Http2).await;
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

/// A header with a name of HPACK's static table.
fn header(name: u8, value: &str) -> Vec<u8> {
    const PREFIX: usize = 127;
    let mut out = vec![0x40 | name];
    match value.len().checked_sub(PREFIX) {
        None => out.push(u8::try_from(value.len()).expect("a short value")),
        Some(mut rest) => {
            out.push(PREFIX as u8);
            while rest >= 128 {
                out.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            out.push(rest as u8);
        }
    }
    [out.as_slice(), value.as_bytes()].concat()
}

/// The beginning of a connection that opens streams with these headers, and lets the server send no data.
fn unread_requests(headers: &[Vec<u8>], streams: usize) -> Vec<u8> {
    // SETTINGS_INITIAL_WINDOW_SIZE is 0.
    let start = [PREFACE, &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]), &frame(SETTINGS, 1, 0, &[])].concat();
    let request = [b"\x82\x87\x41\x01x".to_vec(), headers.concat()].concat();
    let streams = (1u32..).step_by(2).take(streams);
    let requests = streams.flat_map(|id| frame(HEADERS, END_STREAM_AND_HEADERS, id, &request));
    start.iter().copied().chain(requests).collect()
}

/// Clients without credentials that open streams and take none of the answers: what is held of them has a
/// bound, wherever in the request's path they come from.
#[tokio::test]
async fn answers_that_nobody_reads_are_bounded() {
    const CONNECTIONS: usize = 40;
    const STREAMS: usize = 240;
    let target = Target::start_with(&["--max-unread-bytes=67108864"]).await;
    let long = "n".repeat(16_000);
    let named = |name: &str, value: &str| {
        [&[0x40, u8::try_from(name.len()).expect("short")], name.as_bytes(), &header(0, value)[1..]].concat()
    };
    // Each answer repeats what is long, so that they are 300 to 900 MB in all.
    let attacks = [
        (
            "refusals of long names",
            vec![header(PATH, &format!("/api/v1/namespaces/default/configmaps/{long}"))],
        ),
        ("paths that are none", vec![header(PATH, &format!("/api/v1/watch?{long}"))]),
        (
            "impersonation without a user",
            vec![header(PATH, "/version"), named("impersonate-group", &"<".repeat(16_000))],
        ),
    ];
    for (name, headers) in attacks {
        let bytes = unread_requests(&headers, STREAMS);
        target.serves(name).await;
        resident_peak(target.pid);
        let before = resident_peak(target.pid);
        let attackers = (0..CONNECTIONS).map(|_| async {
            let mut stream = target.anonymous_stream(Protocol::Http2).await;
            let _ = tokio::time::timeout(PATIENCE, stream.write_all(&bytes)).await;
            stream
        });
        let held = join_all(attackers).await;
        target.serves(name).await;
        let grown = resident_peak(target.pid).saturating_sub(before);
        assert!(grown < 220 << 20, "{name}: {} MiB", grown >> 20);
        drop(held);
        target.serves(name).await;
    }
}

/// Waits until no more is produced ahead of readers for a while; whether anything ever was.
async fn all_is_produced(admin: &mut Connection) -> bool {
    let (mut most, mut last, mut same) = (0, 0, 0);
    while same < 10 {
        let metrics = admin.call(&Call::get("/metrics")).await.expect("metrics");
        let text = metrics.text();
        let line = text.lines().find_map(|line| line.strip_prefix("plinth_unread_answer_bytes "));
        let unread: u64 = line.expect("the metric").parse().expect("a number");
        same = if unread == last { same + 1 } else { 0 };
        (most, last) = (most.max(unread), unread);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    most > 16 << 20
}

/// Lists and watches of large objects that nobody reads are produced ahead of their readers, and that has the
/// same bound.
#[tokio::test]
async fn lists_and_watches_that_nobody_reads_are_bounded() {
    const STREAMS: usize = 240;
    let target = Target::start_with(&["--max-unread-bytes=67108864"]).await;
    let mut admin = target.server.connect(Protocol::Http2).await;
    let (path, data) = ("/api/v1/namespaces/default/configmaps", "x".repeat(900_000));
    for name in 0..6 {
        let object = json!({"metadata": {"name": format!("large-{name}")}, "data": {"key": data}});
        admin.must(&Call::new(Method::POST, path).body(JSON, object.to_string())).await.expect("created");
    }
    for (name, path) in [("lists", path.to_owned()), ("watches", format!("{path}?watch=1"))] {
        target.serves(name).await;
        resident_peak(target.pid);
        let before = resident_peak(target.pid);
        let bytes = &unread_requests(&[header(PATH, &path)], STREAMS);
        let attackers = (0..3).map(|_| async {
            let mut stream = target.server.endpoint().stream(Protocol::Http2).await.expect("TLS stream");
            let _ = tokio::time::timeout(PATIENCE, stream.write_all(bytes)).await;
            stream
        });
        let held = join_all(attackers).await;
        assert!(all_is_produced(&mut admin).await, "{name}: nothing is held");
        target.serves(name).await;
        let grown = resident_peak(target.pid).saturating_sub(before);
        assert!(grown < 300 << 20, "{name}: {} MiB", grown >> 20);
        drop(held);
        target.serves(name).await;
    }
}

#[tokio::test]
async fn a_body_that_is_stated_to_be_too_long_is_not_waited_for() {
    const CONTENT_LENGTH: u8 = 28;
    const CONTENT_TYPE: u8 = 31;
    let target = Target::start().await;
    let mut admin = target.server.endpoint().stream(Protocol::Http2).await.expect("TLS stream");
    // `POST https`, an authority, and the rest; nothing of the body follows.
    let head = [
        b"\x83\x87\x41\x01x".to_vec(),
        header(PATH, "/api/v1/namespaces/default/configmaps"),
        header(CONTENT_TYPE, JSON),
        header(CONTENT_LENGTH, &((3 << 20) + 1).to_string()),
    ];
    let frames = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(HEADERS, 4, 1, &head.concat())].concat();
    admin.write_all(&frames).await.expect("sent");
    let mut answer = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&answer).contains("\"code\":413") {
            assert_ne!(admin.read_buf(&mut answer).await.expect("an answer"), 0, "closed");
        }
    };
    assert!(tokio::time::timeout(PATIENCE, read).await.is_ok(), "no answer: {answer:?}");
    target.serves("a long body").await;
}
