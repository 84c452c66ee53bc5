//! Leases.

use std::collections::HashSet;
use std::time::Duration;

use plinth_etcd::wire::kv::request_op::Request;
use plinth_etcd::wire::kv::{
    DeleteRangeRequest, DeleteRangeResponse, Event, PutRequest, PutResponse, RangeRequest, TxnRequest,
};
use plinth_etcd::wire::lease::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveResponse, LeaseLeasesResponse, LeaseRequest,
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use plinth_etcd::wire::watch::WatchCreateRequest;
use plinth_etcd::wire::{Empty, HeaderResponse};
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};

use crate::support::{bytes, op, put, server, Client, TestServer};

async fn grant(client: &Client, id: i64, ttl: i64) -> Result<LeaseGrantResponse, Status> {
    client.call("Lease/LeaseGrant", LeaseGrantRequest { ttl, id }).await
}

async fn attach(client: &Client, key: &str, lease: i64) -> Result<PutResponse, Status> {
    client.call("KV/Put", PutRequest { lease, ..put(key, "v") }).await
}

async fn time_to_live(client: &Client, id: i64) -> LeaseTimeToLiveResponse {
    let request = LeaseTimeToLiveRequest { id, keys: true };
    client.call("Lease/LeaseTimeToLive", request).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn revoking_a_lease_deletes_its_keys_in_one_revision() {
    let (_dir, server, client) = server(&[]).await;
    let granted = grant(&client, 7, 100).await.unwrap();
    assert_eq!((granted.id, granted.ttl, granted.header.unwrap().revision), (7, 100, 1));
    let again = grant(&client, 7, 100).await.unwrap_err();
    assert_eq!(
        (again.code(), again.message()),
        (Code::FailedPrecondition, "etcdserver: lease already exists")
    );
    for key in ["b", "a", "c", "d"] {
        attach(&client, key, 7).await.unwrap();
    }
    // Put without it, deleted, and kept.
    client.put("c", "plain").await;
    let one = DeleteRangeRequest { key: bytes("d"), ..Default::default() };
    let _: DeleteRangeResponse = client.call("KV/DeleteRange", one).await.unwrap();
    let kept = PutRequest { ignore_lease: true, ..put("a", "v2") };
    let _: PutResponse = client.call("KV/Put", kept).await.unwrap();
    assert_eq!(client.get("a").await.unwrap().lease, 7);
    let keys_only = RangeRequest { key: bytes("a"), keys_only: true, ..Default::default() };
    assert_eq!(client.range(keys_only).await.unwrap().kvs[0].lease, 7, "as etcd 3.6");
    let info = time_to_live(&client, 7).await;
    assert_eq!((info.granted_ttl, info.keys), (100, vec![bytes("a"), bytes("b")]));

    let mut watch = client.watch().await;
    watch.create(WatchCreateRequest { key: bytes("\0"), range_end: bytes("\0"), ..Default::default() }).await;
    let revoked: HeaderResponse = client.call("Lease/LeaseRevoke", LeaseRequest { id: 7 }).await.unwrap();
    assert_eq!(revoked.header.unwrap().revision, 9);
    let deleted = watch.next().await;
    let keys: Vec<_> =
        deleted.events.iter().map(|event| (event.kind, event.kv.clone().unwrap().key)).collect();
    assert_eq!(keys, [(Event::DELETE, bytes("a")), (Event::DELETE, bytes("b"))]);
    assert_eq!(client.all().await.kvs.len(), 1);

    let missing = client.call::<_, HeaderResponse>("Lease/LeaseRevoke", LeaseRequest { id: 7 }).await;
    let missing = missing.unwrap_err();
    assert_eq!(
        (missing.code(), missing.message()),
        (Code::NotFound, "etcdserver: requested lease not found")
    );
    assert_eq!(attach(&client, "e", 7).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(time_to_live(&client, 7).await.ttl, -1);
    server.stop().await;
}

/// More than a revision may delete: the lease is gone before the first of its keys.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_lease_is_gone_before_its_keys() {
    const KEYS: usize = 70;
    let (_dir, server, client) = server(&[]).await;
    grant(&client, 7, 100).await.unwrap();
    for number in 0..KEYS {
        let request = PutRequest { lease: 7, ..put(&format!("key-{number:02}"), &"x".repeat(1 << 20)) };
        let _: PutResponse = client.call("KV/Put", request).await.unwrap();
    }
    let mut watch = client.watch().await;
    let all = WatchCreateRequest { key: bytes("key"), range_end: bytes("kez"), ..Default::default() };
    watch.create(all).await;
    let revoking = client.call::<_, HeaderResponse>("Lease/LeaseRevoke", LeaseRequest { id: 7 });
    let watching = async {
        let (mut deleted, mut revisions) = (0, HashSet::new());
        while deleted < KEYS {
            let response = watch.next().await;
            deleted += response.events.len();
            revisions.extend(response.events.iter().map(|event| event.kv.as_ref().unwrap().mod_revision));
            let leases: LeaseLeasesResponse = client.call("Lease/LeaseLeases", Empty {}).await.unwrap();
            assert!(leases.leases.is_empty());
        }
        revisions.len()
    };
    let (revoked, revisions) = tokio::join!(revoking, watching);
    revoked.unwrap();
    assert_eq!(revisions, 2);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_deletes_its_keys() {
    let (_dir, server, client) = server(&[]).await;
    // The shortest that is granted.
    let granted = grant(&client, 0, 1).await.unwrap();
    assert_eq!(granted.ttl, 2);
    attach(&client, "a", granted.id).await.unwrap();
    let mut watch = client.watch().await;
    watch.create(WatchCreateRequest { key: bytes("a"), ..Default::default() }).await;
    let response = watch.next().await;
    assert_eq!(response.events[0].kind, Event::DELETE);
    let leases: LeaseLeasesResponse = client.call("Lease/LeaseLeases", Empty {}).await.unwrap();
    assert!(leases.leases.is_empty());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_kept_alive_does_not_expire() {
    let (_dir, server, client) = server(&[]).await;
    let granted = grant(&client, 5, 2).await.unwrap();
    attach(&client, "a", granted.id).await.unwrap();
    let (requests, mut replies) =
        client.stream::<LeaseRequest, LeaseKeepAliveResponse>("Lease/LeaseKeepAlive").await;
    for _ in 0..8 {
        requests.send(LeaseRequest { id: 5 }).await.unwrap();
        assert_eq!(replies.next().await.unwrap().unwrap().ttl, 2);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(client.get("a").await.is_some());
    requests.send(LeaseRequest { id: 6 }).await.unwrap();
    assert_eq!(replies.next().await.unwrap().unwrap().ttl, 0, "a lease that does not exist");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_and_their_keys_outlive_a_restart() {
    let (dir, server, client) = server(&[]).await;
    for id in 1..=3000 {
        grant(&client, id, 1000 + id).await.unwrap();
    }
    attach(&client, "a", 1).await.unwrap();
    attach(&client, "b", 2).await.unwrap();
    server.stop().await;

    let server = TestServer::start(dir.path(), &[]).await;
    let client = server.client().await;
    let leases: LeaseLeasesResponse = client.call("Lease/LeaseLeases", Empty {}).await.unwrap();
    let ids: Vec<i64> = leases.leases.iter().map(|lease| lease.id).collect();
    assert_eq!(ids, (1..=3000).collect::<Vec<_>>(), "those that expire first at the beginning");
    let info = time_to_live(&client, 1).await;
    assert_eq!((info.granted_ttl, info.keys), (1001, vec![bytes("a")]));
    let _: HeaderResponse = client.call("Lease/LeaseRevoke", LeaseRequest { id: 1 }).await.unwrap();
    assert!(client.get("a").await.is_none());
    assert!(client.get("b").await.is_some());
    server.stop().await;
}

/// Every key names a lease that is there.
async fn check_attachments(client: &Client) -> usize {
    // Behind what clients that have left have queued.
    client.put("last", "v").await;
    let leases: LeaseLeasesResponse = client.call("Lease/LeaseLeases", Empty {}).await.unwrap();
    let ids: HashSet<i64> = leases.leases.iter().map(|lease| lease.id).collect();
    let keys = client.all().await.kvs;
    for kv in &keys {
        assert!(kv.lease == 0 || ids.contains(&kv.lease), "{kv:?} names a lease that has ended");
    }
    keys.iter().filter(|kv| kv.lease != 0).count()
}

/// Attaches a key by a put, by a put that depends on the key, or by a transaction.
async fn attach_somehow(client: &Client, way: usize, key: String, lease: i64) -> Result<(), Status> {
    let attached = PutRequest { lease, ..put(&key, "v") };
    match way % 3 {
        0 => client.call::<_, PutResponse>("KV/Put", attached).await.map(drop),
        1 => {
            client.put(&key, "before").await;
            let kept = PutRequest { ignore_value: true, value: bytes(""), ..attached };
            client.call::<_, PutResponse>("KV/Put", kept).await.map(drop)
        }
        _ => {
            let range =
                RangeRequest { key: bytes("k"), range_end: bytes("l"), limit: 1, ..Default::default() };
            let operations = vec![op(Request::Put(attached)), op(Request::Range(range))];
            client.txn(TxnRequest { success: operations, ..Default::default() }).await.map(drop)
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_is_attached_to_a_lease_that_ends_meanwhile() {
    let (_dir, server, client) = server(&[]).await;
    let mut attached = 0;
    for round in 1..=40_i64 {
        grant(&client, round, 600).await.unwrap();
        let mut puts = tokio::task::JoinSet::new();
        let mut leaving = Vec::new();
        for n in 0..24 {
            let (client, key) = (client.clone(), format!("k{n}"));
            let put = async move { attach_somehow(&client, n, key, round).await };
            match n % 4 {
                // Clients that leave.
                3 => leaving.push(tokio::spawn(put)),
                _ => drop(puts.spawn(put)),
            }
        }
        for _ in 0..round % 8 {
            tokio::task::yield_now().await;
        }
        leaving.iter().for_each(tokio::task::JoinHandle::abort);
        let _: HeaderResponse = client.call("Lease/LeaseRevoke", LeaseRequest { id: round }).await.unwrap();
        while let Some(put) = puts.join_next().await {
            match put.unwrap() {
                Ok(()) => attached += 1,
                Err(status) => assert_eq!(status.code(), Code::NotFound, "{status}"),
            }
        }
        assert_eq!(check_attachments(&client).await, 0);
    }
    assert!(attached > 0, "some were in time");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_attached_until_their_lease_expires_and_not_after() {
    let (_dir, server, client) = server(&[]).await;
    let mut puts = tokio::task::JoinSet::new();
    for id in 1..=20 {
        grant(&client, id, 2).await.unwrap();
        let client = client.clone();
        puts.spawn(async move {
            for n in 0.. {
                if let Err(status) = attach_somehow(&client, n, format!("k{id}-{}", n % 50), id).await {
                    assert_eq!(status.code(), Code::NotFound, "{status}");
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }
    while let Some(put) = puts.join_next().await {
        put.unwrap();
    }
    assert_eq!(check_attachments(&client).await, 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_with_large_keys_is_revoked_in_several_revisions() {
    let (_dir, server, client) = server(&[]).await;
    grant(&client, 7, 600).await.unwrap();
    // What one revision deletes for a lease is bounded by 64 MiB, which counts keys twice.
    let key = |n: usize| format!("{n:04}{}", "k".repeat(1_400_000));
    for n in 0..60 {
        attach(&client, &key(n), 7).await.unwrap();
    }
    let before = client.put("small", "v").await.header.unwrap().revision;
    let revoked: HeaderResponse = client.call("Lease/LeaseRevoke", LeaseRequest { id: 7 }).await.unwrap();
    assert!(revoked.header.unwrap().revision > before + 1);
    let keys = client.all().await.kvs;
    assert_eq!(keys.iter().map(|kv| kv.key.clone()).collect::<Vec<_>>(), ["small"]);
    assert_eq!(time_to_live(&client, 7).await.ttl, -1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_leases_are_granted_kept_alive_and_outlive_a_restart() {
    const LEASES: i64 = 100_000;
    const CLIENTS: i64 = 500;
    let (dir, server, client) = server(&[]).await;
    let mut grants = tokio::task::JoinSet::new();
    for first in 0..CLIENTS {
        let client = client.clone();
        grants.spawn(async move {
            for id in (1 + first..=LEASES).step_by(CLIENTS as usize) {
                grant(&client, id, 3600 + id).await.unwrap();
            }
        });
    }
    while let Some(granted) = grants.join_next().await {
        granted.unwrap();
    }
    attach(&client, "a", LEASES).await.unwrap();
    let (requests, mut replies) =
        client.stream::<LeaseRequest, LeaseKeepAliveResponse>("Lease/LeaseKeepAlive").await;
    let asking = tokio::spawn(async move {
        for id in 1..=LEASES {
            requests.send(LeaseRequest { id }).await.unwrap();
        }
    });
    for id in 1..=LEASES {
        let reply = replies.next().await.unwrap().unwrap();
        assert_eq!((reply.id, reply.ttl), (id, 3600 + id));
    }
    asking.await.unwrap();
    server.stop().await;

    let server = TestServer::start(dir.path(), &[]).await;
    let client = server.client().await;
    let leases: LeaseLeasesResponse = client.call("Lease/LeaseLeases", Empty {}).await.unwrap();
    assert_eq!(leases.leases.len(), LEASES as usize);
    let info = time_to_live(&client, LEASES).await;
    assert_eq!((info.granted_ttl, info.keys), (3600 + LEASES, vec![bytes("a")]));
    let _: HeaderResponse = client.call("Lease/LeaseRevoke", LeaseRequest { id: LEASES }).await.unwrap();
    assert!(client.get("a").await.is_none());
    server.stop().await;
}
