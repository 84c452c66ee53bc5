//! Metrics under etcd's names: what changes them.

use std::collections::BTreeMap;

use plinth_etcd::wire::kv::request_op::Request;
use plinth_etcd::wire::kv::{CompactionRequest, Compare, RangeRequest, TxnRequest};
use plinth_etcd::wire::lease::{LeaseGrantRequest, LeaseGrantResponse};
use plinth_etcd::wire::maintenance::{HashKvRequest, MemberRequest, SnapshotResponse, StatusResponse};
use plinth_etcd::wire::watch::WatchCreateRequest;
use plinth_etcd::wire::{Empty, HeaderResponse};
use tokio_stream::StreamExt as _;

use crate::real::RealEtcd;
use crate::support::{bytes, op, put, server, TestServer, CLIENT_VERSION};

async fn value(server: &TestServer, series: &str) -> Option<f64> {
    let text = crate::service::get(server, "/metrics").await;
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

/// Waits until a series has a value.
async fn until(server: &TestServer, series: &str, expected: f64) {
    while value(server, series).await != Some(expected) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn call(name: &str, code: Option<&str>, service: &str, method: &str, kind: &str) -> String {
    let code = code.map(|code| format!("grpc_code=\"{code}\",")).unwrap_or_default();
    let labels =
        format!("grpc_method=\"{method}\",grpc_service=\"etcdserverpb.{service}\",grpc_type=\"{kind}\"");
    format!("grpc_server_{name}_total{{{code}{labels}}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_counted_when_they_start_and_when_they_end() {
    let (_dir, server, client) = server(&[]).await;
    client.put("a", "1").await;
    let future = RangeRequest { key: bytes("a"), revision: 9, ..RangeRequest::default() };
    client.range(future).await.unwrap_err();
    client.call::<_, Empty>("KV/Frobnicate", Empty {}).await.unwrap_err();
    client.call::<_, Empty>("other.KV/Put", Empty {}).await.unwrap_err();
    client.call::<_, Empty>("Cluster/MemberAdd", MemberRequest { id: 1 }).await.unwrap_err();
    for (series, expected) in [
        (call("started", None, "KV", "Put", "unary"), Some(1.0)),
        (call("handled", Some("OK"), "KV", "Put", "unary"), Some(1.0)),
        (call("handled", Some("OutOfRange"), "KV", "Range", "unary"), Some(1.0)),
        (call("started", None, "KV", "Frobnicate", "unary"), None),
        (call("started", None, "KV", "Put", "unary").replace("etcdserverpb", "other"), None),
        (call("handled", Some("Unimplemented"), "Cluster", "MemberAdd", "unary"), Some(1.0)),
    ] {
        assert_eq!(value(&server, &series).await, expected, "{series}");
    }
    let mut watch = client.watch().await;
    let create = WatchCreateRequest { key: bytes("a"), start_revision: 1, ..WatchCreateRequest::default() };
    assert!(watch.create(create).await.created);
    assert_eq!(watch.next().await.events.len(), 1);
    let handled = call("handled", Some("Canceled"), "Watch", "Watch", "bidi_stream");
    assert_eq!(value(&server, &call("started", None, "Watch", "Watch", "bidi_stream")).await, Some(1.0));
    assert_eq!(value(&server, &handled).await, None, "it has not ended");
    until(&server, "etcd_debugging_mvcc_slow_watcher_total", 0.0).await;
    until(&server, "etcd_debugging_mvcc_pending_events_total", 0.0).await;
    drop((watch, client));
    until(&server, &handled, 1.0).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_and_bytes_are_counted() {
    let (_dir, server, client) = server(&[]).await;
    let committed = "etcd_server_proposals_committed_total";
    let received = "etcd_network_client_grpc_received_bytes_total";
    let sent = "etcd_network_client_grpc_sent_bytes_total";
    let before = value(&server, committed).await.unwrap();
    client.put("a", &"x".repeat(1000)).await;
    let grant = LeaseGrantRequest { id: 7, ttl: 600 };
    client.call::<_, LeaseGrantResponse>("Lease/LeaseGrant", grant).await.unwrap();
    // What only reads is no proposal.
    let compare = Compare { key: bytes("a"), ..Compare::default() };
    client.txn(TxnRequest { compare: vec![compare], ..TxnRequest::default() }).await.unwrap();
    assert_eq!(value(&server, committed).await, Some(before + 2.0));
    assert_eq!(value(&server, "etcd_server_proposals_applied_total").await, Some(before + 2.0));
    let (received_first, sent_first) =
        (value(&server, received).await.unwrap(), value(&server, sent).await.unwrap());
    assert!((1000.0..2000.0).contains(&received_first), "{received_first}");
    client.get("a").await.unwrap();
    let sent_then = value(&server, sent).await.unwrap() - sent_first;
    assert!((1000.0..2000.0).contains(&sent_then), "{sent_then}");
    let status: StatusResponse = client.call("Maintenance/Status", Empty {}).await.unwrap();
    assert!(status.db_size_in_use > 0);
    assert!(value(&server, "etcd_mvcc_db_total_size_in_use_in_bytes").await.unwrap() > 0.0);
    server.stop().await;
}

/// A client that does not read has the events wait, and its watch is behind.
#[tokio::test(flavor = "multi_thread")]
async fn watches_that_are_not_read_are_slow() {
    let (_dir, server, client) = server(&[]).await;
    let watch = server.client_without_window().await.watch().await;
    let create = WatchCreateRequest { key: bytes("a"), start_revision: 1, ..WatchCreateRequest::default() };
    watch.send(plinth_etcd::wire::watch::watch_request::Request::Create(create)).await;
    until(&server, "etcd_debugging_mvcc_watcher_total", 1.0).await;
    while value(&server, "etcd_debugging_mvcc_slow_watcher_total").await != Some(1.0) {
        client.put("a", &"x".repeat(1_000_000)).await;
    }
    assert!(value(&server, "etcd_debugging_mvcc_pending_events_total").await.unwrap() > 0.0);
    drop(watch);
    until(&server, "etcd_debugging_mvcc_slow_watcher_total", 0.0).await;
    until(&server, "etcd_debugging_mvcc_pending_events_total", 0.0).await;
    server.stop().await;
}

/// The series of a method, such as `msg_sent_total`.
fn of_method(name: &str, service: &str, method: &str, kind: &str) -> String {
    let labels =
        format!("grpc_method=\"{method}\",grpc_service=\"etcdserverpb.{service}\",grpc_type=\"{kind}\"");
    format!("grpc_server_{name}{{{labels}}}")
}

fn durations(request: &str, success: bool) -> String {
    format!("etcd_server_request_duration_seconds_count{{success=\"{success}\",type=\"{request}\"}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_and_times_of_requests_are_counted() {
    let (_dir, server, client) = server(&[]).await;
    client.put("a", "12345").await;
    client.get("a").await.unwrap();
    let future = RangeRequest { key: bytes("a"), revision: 9, ..RangeRequest::default() };
    client.range(future).await.unwrap_err();
    let success = vec![op(Request::Put(put("b", "1")))];
    client.txn(TxnRequest { success, ..TxnRequest::default() }).await.unwrap();
    let compare = Compare { key: bytes("a"), ..Compare::default() };
    client.txn(TxnRequest { compare: vec![compare], ..TxnRequest::default() }).await.unwrap();
    let requests = |kind: &str, version: &str| {
        format!("etcd_server_client_requests_total{{client_api_version=\"{version}\",type=\"{kind}\"}}")
    };
    for (series, expected) in [
        (of_method("msg_received_total", "KV", "Put", "unary"), Some(1.0)),
        (of_method("msg_sent_total", "KV", "Put", "unary"), Some(1.0)),
        (of_method("msg_received_total", "KV", "Range", "unary"), Some(2.0)),
        (of_method("msg_sent_total", "KV", "Range", "unary"), Some(1.0)),
        (of_method("msg_sent_total", "Maintenance", "Status", "unary"), Some(0.0)),
        (of_method("handling_seconds_count", "KV", "Put", "unary"), None),
        (durations("Put", true), Some(1.0)),
        (durations("Put", false), Some(0.0)),
        (durations("Range", true), Some(1.0)),
        (durations("Range", false), Some(1.0)),
        (durations("Txn", true), Some(1.0)),
        (durations("ReadonlyTxn", true), Some(1.0)),
        ("etcd_server_range_duration_seconds_count{success=\"true\"}".to_owned(), Some(1.0)),
        ("etcd_server_range_duration_seconds_count{success=\"false\"}".to_owned(), Some(1.0)),
        (requests("unary", CLIENT_VERSION), Some(5.0)),
        (requests("stream", CLIENT_VERSION), None),
        ("etcd_debugging_mvcc_total_put_size_in_bytes".to_owned(), Some(8.0)),
    ] {
        assert_eq!(value(&server, &series).await, expected, "{series}");
    }
    let mut watch = client.watch().await;
    for key in ["a", "b"] {
        let create = WatchCreateRequest { key: bytes(key), ..WatchCreateRequest::default() };
        assert!(watch.create(create).await.created);
    }
    client.put("a", "2").await;
    assert_eq!(watch.next().await.events.len(), 1);
    let of_watch = |name| of_method(name, "Watch", "Watch", "bidi_stream");
    assert_eq!(value(&server, &of_watch("msg_received_total")).await, Some(2.0));
    assert_eq!(value(&server, &of_watch("msg_sent_total")).await, Some(3.0));
    assert_eq!(value(&server, &requests("stream", CLIENT_VERSION)).await, Some(1.0));
    // The gateway's calls are calls, of a client that names no version.
    crate::service::get(&server, "/v3/kv/range").await;
    assert_eq!(value(&server, &requests("unary", "unknown")).await, None, "it was no POST");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_is_timed_where_metrics_are_extensive() {
    let (_dir, server, client) = server(&["--metrics=extensive"]).await;
    client.put("a", "1").await;
    let future = RangeRequest { key: bytes("a"), revision: 9, ..RangeRequest::default() };
    client.range(future).await.unwrap_err();
    for method in ["Put", "Range"] {
        let series = of_method("handling_seconds_count", "KV", method, "unary");
        assert_eq!(value(&server, &series).await, Some(1.0), "{series}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_on_the_whole_store_is_timed() {
    let (_dir, server, client) = server(&[]).await;
    for number in 0..3 {
        client.put("a", &number.to_string()).await;
    }
    let grant = LeaseGrantRequest { id: 7, ttl: 600 };
    client.call::<_, LeaseGrantResponse>("Lease/LeaseGrant", grant).await.unwrap();
    let counts = [
        "etcd_mvcc_hash_duration_seconds_count",
        "etcd_mvcc_hash_rev_duration_seconds_count",
        "etcd_disk_backend_defrag_duration_seconds_count",
        "etcd_disk_backend_snapshot_duration_seconds_count",
        "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds_count",
        "etcd_debugging_mvcc_db_compaction_last",
        "etcd_debugging_mvcc_db_compaction_keys_total",
    ];
    for series in counts {
        assert_eq!(value(&server, series).await, Some(0.0), "{series}");
    }
    let compact = CompactionRequest { revision: 4, physical: true };
    let _: HeaderResponse = client.call("KV/Compact", compact).await.unwrap();
    let _: HeaderResponse = client.call("Maintenance/Defragment", Empty {}).await.unwrap();
    let _: HeaderResponse = client.call("Maintenance/Hash", Empty {}).await.unwrap();
    let hash = HashKvRequest { revision: 0 };
    let _: HeaderResponse = client.call("Maintenance/HashKV", hash).await.unwrap();
    let mut parts = client.parts::<_, SnapshotResponse>("Maintenance/Snapshot", Empty {}).await.unwrap();
    while parts.next().await.is_some() {}
    for series in &counts[..3] {
        assert_eq!(value(&server, series).await, Some(1.0), "{series}");
    }
    // The client has the last part before its sender has noted the end.
    until(&server, counts[3], 1.0).await;
    assert_eq!(value(&server, counts[4]).await, Some(1.0));
    assert!(value(&server, counts[5]).await.unwrap() > 1e9);
    assert!(value(&server, counts[6]).await.unwrap() >= 1.0);
    let status: StatusResponse = client.call("Maintenance/Status", Empty {}).await.unwrap();
    let id = status.header.unwrap().member_id;
    for (series, expected) in [
        (format!("etcd_server_id{{server_id=\"{id:x}\"}}"), 1.0),
        ("etcd_cluster_version{cluster_version=\"3.6\"}".to_owned(), 1.0),
        ("etcd_debugging_auth_revision".to_owned(), 1.0),
        ("etcd_debugging_lease_ttl_total_sum".to_owned(), 600.0),
        ("etcd_disk_defrag_inflight".to_owned(), 0.0),
        (durations("Compaction", true), 1.0),
        (durations("LeaseGrant", true), 1.0),
    ] {
        assert_eq!(value(&server, &series).await, Some(expected), "{series}");
    }
    server.stop().await;
}

/// The types of the families of an answer, and the names of the labels of each.
fn families(text: &str) -> BTreeMap<String, (String, Vec<String>)> {
    let mut families = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        families.insert(name.to_owned(), (kind.to_owned(), Vec::new()));
    }
    for line in text.lines().filter(|line| line.contains('{') && !line.starts_with('#')) {
        let (series, labels) = line.split_once('{').unwrap();
        let name = ["_bucket", "_sum", "_count"].iter().find_map(|end| series.strip_suffix(end));
        let name = name.filter(|name| families.contains_key(*name)).unwrap_or(series);
        let Some((_, found)) = families.get_mut(name) else { continue };
        for label in labels.split("\",").filter_map(|label| label.split_once('=')).map(|(label, _)| label) {
            if label != "le" && !found.iter().any(|known| known == label) {
                found.push(label.to_owned());
            }
        }
        found.sort();
    }
    families
}

/// Beside a real etcd: each family under one of its names has its type and its labels.
#[tokio::test(flavor = "multi_thread")]
async fn families_are_those_of_etcd() {
    let Some(mut etcd) = RealEtcd::start() else { return };
    let theirs = etcd.client().await;
    let (_dir, server, ours) = server(&[]).await;
    for client in [&theirs, &ours] {
        client.put("a", "1").await;
        client.get("a").await.unwrap();
        client.txn(TxnRequest::default()).await.unwrap();
    }
    let theirs = families(&etcd.metrics().await);
    let ours = families(&crate::service::get(&server, "/metrics").await);
    assert!(theirs.len() > 100 && ours.len() > 60, "{} {}", theirs.len(), ours.len());
    for (name, (kind, labels)) in ours.iter().filter(|(name, _)| !name.starts_with("process_")) {
        let of_etcd = theirs.get(name).unwrap_or_else(|| panic!("{name} is not of etcd"));
        assert_eq!(&of_etcd.1, labels, "{name}");
        // Totals that etcd decrements, or sets, are gauges with the name of a counter, and ours likewise.
        assert_eq!(&of_etcd.0, kind, "{name}");
    }
    server.stop().await;
}
