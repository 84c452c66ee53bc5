//! Requests that are refused, and a store that is full.

use plinth_etcd::wire::kv::request_op::Request;
use plinth_etcd::wire::kv::{DeleteRangeRequest, PutRequest, PutResponse, RangeRequest, TxnRequest};
use plinth_etcd::wire::maintenance::{alarm, alarm_action, AlarmRequest, AlarmResponse};
use tonic::{Code, Status};

use crate::support::{bytes, op, put, server, Client};

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
    let disarm = AlarmRequest { action: alarm_action::DEACTIVATE, ..Default::default() };
    let disarmed: AlarmResponse = client.call("Maintenance/Alarm", disarm).await.unwrap();
    assert_eq!(disarmed.alarms.len(), 1);
    server.stop().await;
}
