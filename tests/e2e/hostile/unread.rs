//! Clients that do not read what they have requested.

use std::time::Duration;

use futures::future::join_all;
use http::Method;
use plinth_benches::api::client::{Call, Connection, Protocol, JSON};
use plinth_tests::websocket::{next, open, request};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::http2::{frame, header, END_STREAM_AND_HEADERS, HEADERS, PATH, PREFACE, SETTINGS};
use super::{resident_peak, Target, PATIENCE};

pub(crate) const BOUND: &str = "--max-unread-bytes=67108864";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The beginning of a connection that opens streams with these headers, on each of which the server may send
/// so many bytes.
pub(crate) fn unread_requests(headers: &[Vec<u8>], streams: usize, window: u8) -> Vec<u8> {
    // SETTINGS_INITIAL_WINDOW_SIZE.
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, window]);
    let start = [PREFACE, &settings, &frame(SETTINGS, 1, 0, &[])].concat();
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
    let target = Target::start_with(&[BOUND]).await;
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
        let bytes = unread_requests(&headers, STREAMS, 0);
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

/// A ConfigMap of that number, whose content begins with a mark.
fn large_object(number: usize, mark: usize) -> String {
    let data = "x".repeat(900_000);
    json!({"metadata": {"name": format!("large-{number}")}, "data": {"key": format!("{mark}{data}")}})
        .to_string()
}

/// A server with that many large objects and a small bound, and its administrator.
async fn with_large_objects(count: usize) -> (Target, Connection) {
    let target = Target::start_with(&[BOUND]).await;
    let mut admin = target.server.connect(Protocol::Http2).await;
    for number in 0..count {
        let create = Call::new(Method::POST, MAPS).body(JSON, large_object(number, 0));
        admin.must(&create).await.expect("created");
    }
    (target, admin)
}

/// Waits until no more is produced ahead of readers for a while; whether anything ever was.
pub(crate) async fn all_is_produced(admin: &mut Connection) -> bool {
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
    let (target, mut admin) = with_large_objects(6).await;
    let watch = format!("{MAPS}?watch=1");
    for (name, path, window) in [
        ("lists", MAPS, 0),
        ("watches", &watch, 0),
        ("lists, a byte of each", MAPS, 1),
        ("watches", &watch, 1),
    ] {
        target.serves(name).await;
        resident_peak(target.pid);
        let before = resident_peak(target.pid);
        let bytes = &unread_requests(&[header(PATH, path)], STREAMS, window);
        let attackers = (0..3).map(|_| async {
            let stream = target.server.endpoint().stream(Protocol::Http2).await.expect("TLS stream");
            Attacker::new(stream, bytes).await
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

/// A client that reads whatever the server may send, which is little.
struct Attacker {
    reads: JoinHandle<()>,
    _writes: Box<dyn Send>,
}

impl Attacker {
    async fn new(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, bytes: &[u8]) -> Attacker {
        let (mut read, mut write) = tokio::io::split(stream);
        let _ = tokio::time::timeout(PATIENCE, write.write_all(bytes)).await;
        let reads = tokio::spawn(async move {
            let _ = tokio::io::copy(&mut read, &mut tokio::io::sink()).await;
        });
        Attacker { reads, _writes: Box::new(write) }
    }

    fn is_closed(&self) -> bool {
        self.reads.is_finished()
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.reads.abort();
    }
}

/// Watches that each keep an event of their own, which all others have read: their connections are closed,
/// and nobody else's.
#[tokio::test]
async fn watches_that_keep_events_are_closed_and_no_others() {
    const WATCHES: usize = 240;
    let (target, mut admin) = with_large_objects(1).await;
    let watched = format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Dlarge-0");
    let events = request(&target.server, &watched);
    let (mut events, _) = open(&target.server, events).await.expect("a watch");
    assert!(next(&mut events).await.to_text().expect("text").contains("ADDED"));
    resident_peak(target.pid);
    let before = resident_peak(target.pid);
    let (large, mut attackers) = (format!("{MAPS}/large-0"), Vec::new());
    let watch = unread_requests(&[header(PATH, &watched)], 2, 1);
    for n in 1..=WATCHES {
        let stream = target.server.endpoint().stream(Protocol::Http2).await.expect("TLS stream");
        attackers.push(Attacker::new(stream, &watch).await);
        let update = Call::new(Method::PUT, &*large).body(JSON, large_object(0, n));
        admin.must(&update).await.expect("updated");
        // The watch that is read has all of them.
        let event = next(&mut events).await;
        assert!(event.to_text().expect("text").contains(&format!("\"{n}xxx")), "{n}");
    }
    let grown = resident_peak(target.pid).saturating_sub(before);
    assert!(grown < 400 << 20, "{} MiB", grown >> 20);
    assert!(attackers.iter().any(Attacker::is_closed));
    target.serves("kept events").await;
}

#[tokio::test]
async fn watches_over_websocket_that_nobody_reads_are_bounded() {
    const WATCHES: usize = 100;
    let (target, mut admin) = with_large_objects(12).await;
    resident_peak(target.pid);
    let before = resident_peak(target.pid);
    let mut held = Vec::new();
    for _ in 0..WATCHES {
        held.push(open(&target.server, request(&target.server, &format!("{MAPS}?watch=1"))).await);
    }
    assert!(all_is_produced(&mut admin).await, "nothing is held");
    target.serves("WebSockets").await;
    let grown = resident_peak(target.pid).saturating_sub(before);
    assert!(grown < 350 << 20, "{} MiB", grown >> 20);
    drop(held);
}
