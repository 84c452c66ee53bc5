//! Alarms that are raised by clients, and what is refused meanwhile; the same requests are sent to a real
//! etcd where `PLINTH_ETCD` names one.

use plinth_etcd::wire::concurrency::{LockRequest, LockResponse};
use plinth_etcd::wire::kv::request_op::Request;
use plinth_etcd::wire::kv::{
    CompactionRequest, DeleteRangeRequest, DeleteRangeResponse, PutResponse, RangeRequest, TxnRequest,
};
use plinth_etcd::wire::lease::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseRequest, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use plinth_etcd::wire::maintenance::{
    alarm, alarm_action, downgrade_action, AlarmMember, AlarmRequest, AlarmResponse, DowngradeRequest,
    DowngradeResponse,
};
use plinth_etcd::wire::HeaderResponse;
use tonic::{Code, Status};

use crate::real::RealEtcd;
use crate::support::{bytes, op, put, server, Client, TestServer};

async fn alarms(client: &Client, action: i32, member_id: u64, alarm: i32) -> Vec<AlarmMember> {
    let request = AlarmRequest { action, member_id, alarm };
    client.call::<_, AlarmResponse>("Maintenance/Alarm", request).await.unwrap().alarms
}

fn delete(key: &str) -> DeleteRangeRequest {
    DeleteRangeRequest { key: bytes(key), ..DeleteRangeRequest::default() }
}

fn txn(request: Request) -> TxnRequest {
    TxnRequest { success: vec![op(request)], ..TxnRequest::default() }
}

async fn check_refusals_of_a_corrupt_store(client: &Client) {
    client.put("a", "1").await;
    let grant = |id| LeaseGrantRequest { id, ttl: 600 };
    client.call::<_, LeaseGrantResponse>("Lease/LeaseGrant", grant(7)).await.unwrap();
    let raised = AlarmMember { member_id: 0, alarm: alarm::CORRUPT };
    assert_eq!(alarms(client, alarm_action::ACTIVATE, 0, alarm::CORRUPT).await, [raised]);
    let refused = |refused: Result<(), Status>| {
        let status = refused.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::DataLoss, "etcdserver: corrupt cluster"));
    };
    refused(client.call::<_, PutResponse>("KV/Put", put("a", "2")).await.map(drop));
    refused(client.call::<_, DeleteRangeResponse>("KV/DeleteRange", delete("a")).await.map(drop));
    refused(client.call::<_, DeleteRangeResponse>("KV/DeleteRange", delete("nothing")).await.map(drop));
    refused(client.txn(txn(Request::Put(put("a", "2")))).await.map(drop));
    refused(client.txn(txn(Request::DeleteRange(delete("a")))).await.map(drop));
    let compaction = CompactionRequest { revision: 2, physical: false };
    refused(client.call::<_, HeaderResponse>("KV/Compact", compaction).await.map(drop));
    refused(client.call::<_, LeaseGrantResponse>("Lease/LeaseGrant", grant(8)).await.map(drop));
    let revoke = LeaseRequest { id: 7 };
    refused(client.call::<_, HeaderResponse>("Lease/LeaseRevoke", revoke).await.map(drop));
    // What is no request is refused as ever, and what only reads is answered.
    let empty = client.call::<_, PutResponse>("KV/Put", put("", "2")).await.unwrap_err();
    assert_eq!(empty.message(), "etcdserver: key is not provided");
    assert_eq!(client.get("a").await.unwrap().value, "1");
    let range = RangeRequest { key: bytes("a"), ..RangeRequest::default() };
    assert!(client.txn(txn(Request::Range(range))).await.is_ok());
    let left = LeaseTimeToLiveRequest { id: 7, keys: false };
    let left: LeaseTimeToLiveResponse = client.call("Lease/LeaseTimeToLive", left).await.unwrap();
    assert_eq!(left.granted_ttl, 600);
    assert_eq!(alarms(client, alarm_action::DEACTIVATE, 0, alarm::CORRUPT).await, [raised]);
    client.put("a", "3").await;
}

async fn check_members_of_alarms(client: &Client) {
    let raised = AlarmMember { member_id: 77, alarm: alarm::NOSPACE };
    assert_eq!(alarms(client, alarm_action::ACTIVATE, 77, alarm::NOSPACE).await, [raised]);
    assert_eq!(alarms(client, alarm_action::GET, 0, alarm::NONE).await, [raised]);
    assert_eq!(alarms(client, alarm_action::GET, 0, alarm::CORRUPT).await, []);
    let full = client.call::<_, PutResponse>("KV/Put", put("a", "2")).await.unwrap_err();
    assert_eq!(full.message(), "etcdserver: mvcc: database space exceeded");
    // Neither the alarm of another member nor all alarms.
    assert_eq!(alarms(client, alarm_action::DEACTIVATE, 0, alarm::NOSPACE).await, []);
    assert_eq!(alarms(client, alarm_action::DEACTIVATE, 0, alarm::NONE).await, []);
    assert_eq!(alarms(client, alarm_action::DEACTIVATE, 77, alarm::NOSPACE).await, [raised]);
    assert_eq!(alarms(client, alarm_action::ACTIVATE, 77, alarm::NONE).await, []);
    assert_eq!(alarms(client, alarm_action::GET, 0, alarm::NONE).await, []);
    client.put("a", "2").await;
}

/// What a canceled downgrade is answered with: the minor version of the cluster.
async fn check_downgrade(client: &Client) -> String {
    let request = |action, version: &str| DowngradeRequest { action, version: version.to_owned() };
    let call = |request| client.call::<_, DowngradeResponse>("Maintenance/Downgrade", request);
    let unknown = call(request(3, "3.5")).await.unwrap_err();
    assert_eq!((unknown.code(), unknown.message()), (Code::Unknown, "etcdserver: unknown method"));
    let wrong = call(request(downgrade_action::ENABLE, "x")).await.unwrap_err();
    assert_eq!(wrong.message(), "etcdserver: wrong downgrade target version format");
    let canceled = call(request(downgrade_action::CANCEL, "")).await.unwrap();
    assert!(canceled.header.is_some());
    canceled.version
}

#[tokio::test(flavor = "multi_thread")]
async fn alarms_and_downgrades_are_answered_as_by_etcd() {
    let (_dir, server, client) = server(&[]).await;
    check_refusals_of_a_corrupt_store(&client).await;
    check_members_of_alarms(&client).await;
    assert_eq!(check_downgrade(&client).await, "3.6");
    server.stop().await;
    if let Some(mut etcd) = RealEtcd::start() {
        let client = etcd.client().await;
        check_refusals_of_a_corrupt_store(&client).await;
        check_members_of_alarms(&client).await;
        check_downgrade(&client).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn alarms_outlive_a_restart_and_refuse_locks() {
    let (dir, server, client) = server(&[]).await;
    let id = client.put("a", "1").await.header.unwrap().member_id;
    for member_id in [id, 5] {
        alarms(&client, alarm_action::ACTIVATE, member_id, alarm::CORRUPT).await;
    }
    server.stop().await;
    let server = TestServer::start(dir.path(), &[]).await;
    let client = server.client().await;
    let listed = alarms(&client, alarm_action::GET, 0, alarm::CORRUPT).await;
    let mut members: Vec<u64> = listed.iter().map(|raised| raised.member_id).collect();
    members.sort_unstable();
    assert_eq!(members, [5, id]);
    let metrics = crate::service::get(&server, "/metrics").await;
    for member in members {
        let series =
            format!("etcd_debugging_server_alarms{{alarm_type=\"CORRUPT\",server_id=\"{member:x}\"}} 1\n");
        assert!(metrics.contains(&series), "{series}");
    }
    let lock = LockRequest { name: bytes("lock"), lease: 0 };
    let refused = client.call::<_, LockResponse>("v3lockpb.Lock/Lock", lock).await.unwrap_err();
    assert_eq!(refused.message(), "etcdserver: corrupt cluster");
    assert_eq!(alarms(&client, alarm_action::DEACTIVATE, id, alarm::CORRUPT).await.len(), 1);
    client.call::<_, PutResponse>("KV/Put", put("a", "2")).await.unwrap_err();
    assert_eq!(alarms(&client, alarm_action::DEACTIVATE, 5, alarm::CORRUPT).await.len(), 1);
    client.put("a", "2").await;
    server.stop().await;
}

/// A client may name any member, and no more alarms are kept than that.
#[tokio::test(flavor = "multi_thread")]
async fn alarms_are_bounded() {
    let (_dir, server, client) = server(&[]).await;
    for member_id in 1..=1024 {
        alarms(&client, alarm_action::ACTIVATE, member_id, alarm::NOSPACE).await;
    }
    let one_more = AlarmRequest { action: alarm_action::ACTIVATE, member_id: 1025, alarm: alarm::NOSPACE };
    let refused = client.call::<_, AlarmResponse>("Maintenance/Alarm", one_more).await.unwrap_err();
    assert_eq!(refused.message(), "etcdserver: too many requests");
    server.stop().await;
}
