//! Metrics under etcd's names: what changes them.

use plinth_etcd::wire::kv::{Compare, RangeRequest, TxnRequest};
use plinth_etcd::wire::lease::{LeaseGrantRequest, LeaseGrantResponse};
use plinth_etcd::wire::maintenance::{MemberRequest, StatusResponse};
use plinth_etcd::wire::watch::WatchCreateRequest;
use plinth_etcd::wire::Empty;

use crate::support::{bytes, server, TestServer};

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
