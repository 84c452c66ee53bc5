//! Clients that stop reading: they get everything once they read again, and no other client waits for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use plinth_benches::api::client::{Call, Protocol, JSON};
use plinth_benches::api::process;
use plinth_benches::api::workloads::resource_version;
use plinth_tests::server::{TestServer, BARE_NAMESPACES};
use serde_json::json;

use super::reader;

/// Enough to leave the ring of recent events (8 MiB) several times over. `PLINTH_E2E_LONG` makes it 100,000.
const EVENTS: u64 = 20_000;
const WRITERS: u64 = 64;

/// What the server's memory may grow by while the events pass, in MiB: buffers of the store, not of the
/// client.
const GROWTH: f64 = 96.0;

fn events() -> u64 {
    match std::env::var_os("PLINTH_E2E_LONG") {
        Some(_) => 100_000,
        None => EVENTS,
    }
}

/// Reads a watch until it has seen `count` events, each later than the one before.
async fn read_all(mut body: hyper::body::Incoming, count: u64) {
    let (mut seen, mut last, mut rest) = (0, 0, Vec::new());
    while seen < count {
        let frame = body.frame().await.unwrap_or_else(|| panic!("the watch ended after {seen} events"));
        let frame = frame.unwrap_or_else(|error| panic!("the watch broke after {seen} events: {error}"));
        let data: Bytes = frame.into_data().expect("data");
        rest.extend_from_slice(&data);
        let whole = rest.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        for line in rest[..whole].split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
            let version =
                resource_version(line).and_then(|v| v.parse::<u64>().ok()).expect("resourceVersion");
            assert!(version > last, "{version} after {last}");
            last = version;
            seen += 1;
        }
        rest.drain(..whole);
    }
    assert_eq!(seen, count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stops_reading_gets_everything_and_delays_nobody() {
    let server = TestServer::start(&[BARE_NAMESPACES]).await;
    let client = reader(&server, "slow").await;
    let count = events();
    let path = format!("{}?watch=1&resourceVersion=1", client.collection);
    // One of each protocol that does not read, and one that does.
    let mut lazy = Vec::new();
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut connection = server.connect(protocol).await;
        let body = connection.open(&Call::get(path.as_str())).await.expect("a watch").into_body();
        lazy.push((connection, body));
    }
    let mut quick = server.connect(Protocol::Http2).await;
    let quick_body = quick.open(&Call::get(path.as_str())).await.expect("a watch").into_body();
    let reading = tokio::spawn(read_all(quick_body, count));
    let before = process::usage(&[server.pid()]).rss_mib;

    let next = Arc::new(AtomicU64::new(0));
    let filler = "x".repeat(900);
    let writers = (0..WRITERS).map(|writer| {
        let mut connection = client.connection.share().expect("another stream");
        let (next, filler, collection) = (next.clone(), filler.clone(), client.collection.clone());
        tokio::spawn(async move {
            let name = format!("cm-{writer}");
            let mut created = false;
            while next.fetch_add(1, Ordering::Relaxed) < count {
                let step = next.load(Ordering::Relaxed).to_string();
                let object = json!({"metadata": {"name": name}, "data": {"step": step, "filler": filler}});
                let call = match std::mem::replace(&mut created, true) {
                    false => Call::new(Method::POST, collection.clone()),
                    true => Call::new(Method::PUT, format!("{collection}/{name}")),
                };
                connection.must(&call.body(JSON, object.to_string())).await.expect("a write");
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("a writer");
    }
    // The one that reads had no reason to wait for the others.
    reading.await.expect("the quick reader");
    let grown = process::usage(&[server.pid()]).rss_mib - before;
    assert!(grown < GROWTH, "the server grew by {grown:.0} MiB while two clients did not read");
    for (connection, body) in lazy {
        read_all(body, count).await;
        drop(connection);
    }
}

/// Objects of the collection that nobody reads to its end, and bytes of each.
const OBJECTS: usize = 150;
const OBJECT: usize = 8 << 10;

/// Readers that stall, half of them in lists and half in the first states of watches: several times as many
/// as there are threads that may block.
const STALLED: usize = 240;
const STREAMS: usize = 60;
/// What one of them may cost the server, in MiB: some chunks that wait.
const EACH: f64 = 0.5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_stall_in_lists_and_initial_events_delay_nobody_and_get_everything() {
    let server = TestServer::start(&[BARE_NAMESPACES, "--request-timeout=600s"]).await;
    let mut client = reader(&server, "stalled").await;
    let filler = "x".repeat(OBJECT);
    for n in 0..OBJECTS {
        let object = json!({"metadata": {"name": format!("cm-{n:03}")}, "data": {"filler": filler}});
        let path = client.collection.clone();
        client.write(Method::POST, &path, object).await;
    }
    let whole = client.connection.must(&Call::get(client.collection.as_str())).await.expect("a list").body;
    let before = process::usage(&[server.pid()]).rss_mib;

    let mut connections = Vec::new();
    let mut stalled = Vec::new();
    for n in 0..STALLED {
        if n % STREAMS == 0 {
            connections.push(server.endpoint().connect_narrow().await.expect("a connection"));
        }
        let query = if n % 2 == 0 { "" } else { "?watch=1" };
        let call = Call::get(format!("{}{query}", client.collection));
        let mut connection = connections.last().and_then(|c| c.share()).expect("another stream");
        stalled.push(connection.open(&call).await.expect("an answer begins").into_body());
    }
    // They stall for longer than the server keeps a snapshot for a reader.
    tokio::time::sleep(Duration::from_secs(5)).await;

    // Lists, pages, selections and first states of others come whole.
    for query in ["", "?limit=100", "?labelSelector=none%3Dsuch", "?resourceVersion=1"] {
        let call = Call::get(format!("{}{query}", client.collection));
        client.connection.must(&call).await.expect("a list beside those who stall");
    }
    let (_, events) = client.watch("timeoutSeconds=1").await;
    assert_eq!(events.len(), OBJECTS);
    let grown = process::usage(&[server.pid()]).rss_mib - before;
    let bound = EACH * STALLED as f64;
    assert!(grown < bound, "the server grew by {grown:.0} MiB for {STALLED} who do not read");

    // Later changes are not in the lists that they began to read.
    client.delete("cm-149").await;
    let mut reading = tokio::task::JoinSet::new();
    for (n, body) in stalled.into_iter().enumerate() {
        let whole = whole.clone();
        reading.spawn(async move {
            if n % 2 == 1 {
                return read_all(body, OBJECTS as u64).await;
            }
            let list = body.collect().await.expect("the list goes on where it stopped").to_bytes();
            assert_eq!(list, whole);
        });
    }
    while let Some(read) = reading.join_next().await {
        read.expect("a reader that reads on");
    }
}
