//! Requests that are refused, and a store that is full.

use plinth_etcd::wire::concurrency::{LockRequest, LockResponse};
use plinth_etcd::wire::kv::request_op::Request;
use plinth_etcd::wire::kv::{
    compare, compare_target, CompactionRequest, Compare, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
    PutResponse, RangeRequest, RangeResponse, RangeStreamResponse, TxnRequest,
};
use plinth_etcd::wire::lease::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseRequest, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use plinth_etcd::wire::maintenance::{alarm, alarm_action, AlarmMember, AlarmRequest, AlarmResponse};
use plinth_etcd::wire::watch::WatchCreateRequest;
use plinth_etcd::wire::{Empty, HeaderResponse};
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};

use crate::support::{bytes, op, put, server, Client, TestServer};

async fn refusal(client: &Client, request: PutRequest) -> (Code, String) {
    let status = client.call::<_, PutResponse>("KV/Put", request).await.unwrap_err();
    (status.code(), status.message().to_owned())
}

fn invalid(text: &str) -> (Code, String) {
    (Code::InvalidArgument, text.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_get_the_errors_of_etcd() {
    let (_dir, server, client) = server(&[]).await;
    assert_eq!(refusal(&client, put("", "v")).await, invalid("etcdserver: key is not provided"));
    let value = PutRequest { ignore_value: true, ..put("a", "v") };
    assert_eq!(refusal(&client, value).await, invalid("etcdserver: value is provided"));
    let lease = PutRequest { ignore_lease: true, lease: 1, ..put("a", "v") };
    assert_eq!(refusal(&client, lease).await, invalid("etcdserver: lease is provided"));
    let lease = PutRequest { lease: 1, ..put("a", "v") };
    let not_found = (Code::NotFound, "etcdserver: requested lease not found".to_owned());
    assert_eq!(refusal(&client, lease).await, not_found);
    let sorted = RangeRequest { key: bytes("a"), sort_target: 9, ..Default::default() };
    let refused = client.range(sorted).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::InvalidArgument, "etcdserver: invalid sort option")
    );

    let many = TxnRequest {
        success: (0..129).map(|n| op(Request::Put(put(&n.to_string(), "v")))).collect(),
        ..Default::default()
    };
    let refused = client.txn(many).await.unwrap_err();
    assert_eq!(refused.message(), "etcdserver: too many operations in txn request");
    let delete = DeleteRangeRequest { key: bytes("a"), range_end: bytes("c"), ..Default::default() };
    let twice = TxnRequest {
        success: vec![op(Request::DeleteRange(delete)), op(Request::Put(put("b", "v")))],
        ..Default::default()
    };
    let refused = client.txn(twice).await.unwrap_err();
    assert_eq!(refused.message(), "etcdserver: duplicate key given in txn request");
    assert_eq!(client.all().await.header.unwrap().revision, 1, "nothing was changed");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_requests_are_refused_in_two_ways_as_by_etcd() {
    let (_dir, server, client) = server(&["--max-request-bytes", "1024"]).await;
    let large = (Code::InvalidArgument, "etcdserver: request is too large".to_owned());
    assert_eq!(refusal(&client, put("a", &"x".repeat(1024))).await, large);
    client.put("a", &"x".repeat(900)).await;
    let (code, text) = refusal(&client, put("a", &"x".repeat(600 << 10))).await;
    assert_eq!(code, Code::ResourceExhausted);
    assert_eq!(text, "grpc: received message larger than max (614407 vs. 525312)");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limits_of_requests_are_those_of_the_flags() {
    let (_dir, server, client) = server(&["--max-txn-ops", "3"]).await;
    let puts = |count: usize| TxnRequest {
        success: (0..count).map(|n| op(Request::Put(put(&n.to_string(), "v")))).collect(),
        ..Default::default()
    };
    client.txn(puts(3)).await.unwrap();
    let many = "etcdserver: too many operations in txn request";
    let refused = client.txn(puts(4)).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, many));
    let compares = TxnRequest {
        compare: (0..4).map(|n| Compare { key: bytes(&n.to_string()), ..Default::default() }).collect(),
        ..Default::default()
    };
    assert_eq!(client.txn(compares).await.unwrap_err().message(), many);
    // 1.5 MiB for all that a request has, half a MiB more for gRPC.
    let large = "etcdserver: request is too large";
    let half = "x".repeat(800_000);
    assert_eq!(refusal(&client, put(&half, &half)).await, invalid(large));
    let of_two = TxnRequest {
        success: vec![op(Request::Put(put("a", &half))), op(Request::Put(put("b", &half)))],
        ..Default::default()
    };
    let refused = client.txn(of_two).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, large));
    let delete =
        DeleteRangeRequest { key: half.clone().into(), range_end: half.clone().into(), prev_kv: false };
    let refused = client.call::<_, DeleteRangeResponse>("KV/DeleteRange", delete).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, large));
    let key = "k".repeat(2_200_000);
    for method in ["KV/Put", "KV/Range"] {
        let request = RangeRequest { key: key.clone().into(), ..Default::default() };
        let refused = client.call::<_, RangeResponse>(method, request).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{method}");
        let (begin, end) = ("grpc: received message larger than max (", " vs. 2097152)");
        assert!(refused.message().starts_with(begin) && refused.message().ends_with(end), "{refused}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_may_be_as_large_as_a_request() {
    let (dir, server, client) = server(&[]).await;
    let key = "k".repeat(1_572_000);
    let (key, next) = (bytes(&key), bytes(&key.replacen('k', "l", 1)));
    let _: LeaseGrantResponse =
        client.call("Lease/LeaseGrant", LeaseGrantRequest { ttl: 600, id: 1 }).await.unwrap();
    let mut watch = client.watch().await;
    watch.create(WatchCreateRequest { key: key.clone(), ..Default::default() }).await;
    let leased = PutRequest { key: key.clone(), value: bytes("v"), lease: 1, ..Default::default() };
    let _: PutResponse = client.call("KV/Put", leased.clone()).await.unwrap();
    assert_eq!(watch.next().await.events[0].kv.as_ref().unwrap().key, key);
    let kept = PutRequest { lease: 0, ignore_lease: true, value: bytes("w"), ..leased };
    let _: PutResponse = client.call("KV/Put", kept).await.unwrap();
    let put_next = PutRequest { key: next.clone(), ..Default::default() };
    let _: PutResponse = client.call("KV/Put", put_next).await.unwrap();
    server.stop().await;

    let server = TestServer::start(dir.path(), &[]).await;
    let client = server.client().await;
    let request = LeaseTimeToLiveRequest { id: 1, keys: true };
    let info: LeaseTimeToLiveResponse = client.call("Lease/LeaseTimeToLive", request).await.unwrap();
    assert_eq!(info.keys, std::slice::from_ref(&key));
    let all = client.all().await;
    assert_eq!(all.kvs.iter().map(|kv| kv.key.clone()).collect::<Vec<_>>(), [key.clone(), next.clone()]);
    let compare = Compare {
        key: key.clone(),
        target: compare_target::LEASE,
        operand: Some(compare::Operand::Lease(1)),
        ..Default::default()
    };
    let txn = TxnRequest { compare: vec![compare], ..Default::default() };
    assert!(client.txn(txn).await.unwrap().succeeded);
    let mut parts = client
        .parts::<_, RangeStreamResponse>(
            "KV/RangeStream",
            RangeRequest { key: key.clone(), ..Default::default() },
        )
        .await
        .unwrap();
    let part = parts.next().await.unwrap().unwrap().range_response.unwrap();
    assert_eq!((part.kvs[0].key.clone(), part.count), (key, 1));
    let _: HeaderResponse = client.call("Lease/LeaseRevoke", LeaseRequest { id: 1 }).await.unwrap();
    assert_eq!(client.all().await.kvs.len(), 1);
    // Names of locks are keys, with the lease behind them.
    let lock = LockRequest { name: bytes(&"n".repeat(1_572_860)), lease: 0 };
    let refused = client.call::<_, LockResponse>("v3lockpb.Lock/Lock", lock).await.unwrap_err();
    assert_eq!(refused.message(), "etcdserver: request is too large");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_raises_the_alarm_and_still_takes_deletions() {
    let (_dir, server, client) = server(&["--quota-backend-bytes", "200000"]).await;
    let refused: Status = loop {
        match client.call::<_, PutResponse>("KV/Put", put("a", &"x".repeat(20_000))).await {
            Ok(_) => {}
            Err(status) => break status,
        }
    };
    let text = "etcdserver: mvcc: database space exceeded";
    assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, text));
    let listed: AlarmResponse = client.call("Maintenance/Alarm", AlarmRequest::default()).await.unwrap();
    assert_eq!(listed.alarms.iter().map(|raised| raised.alarm).collect::<Vec<_>>(), [alarm::NOSPACE]);
    let delete = DeleteRangeRequest { key: bytes("a"), ..Default::default() };
    let only_deletes = TxnRequest { success: vec![op(Request::DeleteRange(delete))], ..Default::default() };
    assert!(client.txn(only_deletes).await.is_ok());
    // The alarm holds, however small the request.
    assert_eq!(refusal(&client, put("b", "")).await.0, Code::ResourceExhausted);
    disarm(&client).await;
    server.stop().await;
}

/// Disarms the alarm that is raised, as etcdctl does: by the member and the alarm that are listed.
async fn disarm(client: &Client) {
    let listed: AlarmResponse = client.call("Maintenance/Alarm", AlarmRequest::default()).await.unwrap();
    let [AlarmMember { member_id, alarm }] = *listed.alarms else { panic!("{listed:?}") };
    let disarm = AlarmRequest { action: alarm_action::DEACTIVATE, member_id, alarm };
    let disarmed: AlarmResponse = client.call("Maintenance/Alarm", disarm).await.unwrap();
    assert_eq!(disarmed.alarms, listed.alarms);
}

async fn delete_all(client: &Client) -> i64 {
    let all = DeleteRangeRequest { key: bytes("k"), range_end: bytes("l"), ..Default::default() };
    let deleted: DeleteRangeResponse = client.call("KV/DeleteRange", all).await.unwrap();
    assert!(deleted.deleted > 0);
    deleted.header.unwrap().revision
}

async fn compact(client: &Client, revision: i64) {
    let request = CompactionRequest { revision, physical: true };
    let _: HeaderResponse = client.call("KV/Compact", request).await.unwrap();
}

async fn defragment(client: &Client) {
    let _: HeaderResponse = client.call("Maintenance/Defragment", Empty {}).await.unwrap();
}

/// A put of a value that does not compress.
fn put_noise(key: &str, seed: u64, length: usize) -> PutRequest {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let value: Vec<u8> = (0..length).map(|_| next()).collect();
    PutRequest { key: bytes(key), value: value.into(), ..Default::default() }
}

/// Puts keys until the store is full.
async fn fill(client: &Client) {
    for n in 0.. {
        let put = put_noise(&format!("k{n}"), n, 20_000);
        if let Err(status) = client.call::<_, PutResponse>("KV/Put", put).await {
            assert_eq!(status.code(), Code::ResourceExhausted);
            assert!(n > 2, "{n} keys");
            return;
        }
    }
}

/// etcd's way out, where one deletion makes all the room that there is.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_takes_keys_again_once_one_deletion_was_compacted() {
    let (_dir, server, client) = server(&["--quota-backend-bytes", "200000"]).await;
    fill(&client).await;
    let deleted = delete_all(&client).await;
    compact(&client, deleted).await;
    defragment(&client).await;
    disarm(&client).await;
    let _: PutResponse = client.call("KV/Put", put_noise("k", 1, 100_000)).await.unwrap();
    // What a watch that begins at the deletion would need is gone.
    let mut watch = client.watch().await;
    let from = WatchCreateRequest { key: bytes("k"), start_revision: deleted, ..Default::default() };
    assert!(watch.create(from).await.created);
    let canceled = watch.next().await;
    assert_eq!((canceled.canceled, canceled.compact_revision), (true, deleted));
    server.stop().await;
}

/// The deletion was compacted before the alarm was raised, so there is no later revision to compact.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_without_keys_is_not_full_for_ever() {
    let (_dir, server, client) = server(&["--quota-backend-bytes", "200000"]).await;
    for n in 0..7 {
        let put = put_noise(&format!("k{n}"), n, 20_000);
        let _: PutResponse = client.call("KV/Put", put).await.unwrap();
    }
    let deleted = delete_all(&client).await;
    compact(&client, deleted).await;
    // Nothing is left to be deleted.
    let large = client.call::<_, PutResponse>("KV/Put", put_noise("a", 1, 190_000)).await;
    assert_eq!(large.unwrap_err().code(), Code::ResourceExhausted);
    defragment(&client).await;
    disarm(&client).await;
    let _: PutResponse = client.call("KV/Put", put_noise("a", 1, 100_000)).await.unwrap();
    server.stop().await;
}
