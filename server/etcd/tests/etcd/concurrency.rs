//! The services Lock and Election.

use std::time::Duration;

use plinth_etcd::wire::concurrency::{
    CampaignRequest, CampaignResponse, LeaderRequest, LeaderResponse, LockRequest, LockResponse,
    ProclaimRequest, ResignRequest, UnlockRequest,
};
use plinth_etcd::wire::kv::RangeRequest;
use plinth_etcd::wire::lease::{LeaseGrantRequest, LeaseGrantResponse, LeaseRequest};
use plinth_etcd::wire::HeaderResponse;
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};

use crate::support::{bytes, server, Client};

/// A test that waits for longer has failed.
const PATIENCE: Duration = Duration::from_secs(120);

async fn lease(client: &Client) -> i64 {
    let request = LeaseGrantRequest { ttl: 600, id: 0 };
    client.call::<_, LeaseGrantResponse>("Lease/LeaseGrant", request).await.unwrap().id
}

async fn lock(client: &Client, lease: i64) -> Result<LockResponse, Status> {
    client.call("v3lockpb.Lock/Lock", LockRequest { name: bytes("lock"), lease }).await
}

async fn unlock(client: &Client, lock: &LockResponse) {
    let request = UnlockRequest { key: lock.key.clone() };
    client.call::<_, HeaderResponse>("v3lockpb.Lock/Unlock", request).await.unwrap();
}

/// Waits until there are so many keys below a name.
async fn queued(client: &Client, prefix: &str, count: i64) {
    let (key, range_end) = (bytes(&format!("{prefix}/")), bytes(&format!("{prefix}0")));
    let request = RangeRequest { key, range_end, count_only: true, ..RangeRequest::default() };
    let until = async {
        while client.range(request.clone()).await.unwrap().count != count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, until).await.expect("the queue does not get there");
}

async fn campaign(client: &Client, lease: i64, value: &str) -> CampaignResponse {
    let request = CampaignRequest { name: bytes("election"), lease, value: bytes(value) };
    client.call("v3electionpb.Election/Campaign", request).await.unwrap()
}

async fn leader(client: &Client) -> Result<String, Status> {
    let request = LeaderRequest { name: bytes("election") };
    let response: LeaderResponse = client.call("v3electionpb.Election/Leader", request).await?;
    Ok(String::from_utf8(response.kv.unwrap().value.to_vec()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_by_one_and_given_on_in_order() {
    let (_dir, server, client) = server(&[]).await;
    let leases = [lease(&client).await, lease(&client).await, lease(&client).await];
    let held = lock(&client, leases[0]).await.unwrap();
    assert_eq!(held.key, bytes(&format!("lock/{:x}", leases[0])));
    // Who has it may ask again.
    assert_eq!(lock(&client, leases[0]).await.unwrap().key, held.key);
    let waiting: Vec<_> = {
        let mut waiting = Vec::new();
        for (number, lease) in leases[1..].iter().copied().enumerate() {
            let client = client.clone();
            waiting.push(tokio::spawn({
                let client = client.clone();
                async move { lock(&client, lease).await }
            }));
            queued(&client, "lock", number as i64 + 2).await;
        }
        waiting
    };
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    unlock(&client, &held).await;
    let mut waiting = waiting.into_iter();
    let second = waiting.next().unwrap().await.unwrap().unwrap();
    assert_eq!(second.key, bytes(&format!("lock/{:x}", leases[1])));
    // The end of a lease is the end of the lock.
    let third = waiting.next().unwrap();
    assert!(!third.is_finished());
    let revoke = LeaseRequest { id: leases[1] };
    client.call::<_, HeaderResponse>("Lease/LeaseRevoke", revoke).await.unwrap();
    unlock(&client, &third.await.unwrap().unwrap()).await;
    queued(&client, "lock", 0).await;
    // Without a lease there is one for it; one that does not exist is an error.
    let own = lock(&client, 0).await.unwrap();
    assert!(client.get(std::str::from_utf8(&own.key).unwrap()).await.unwrap().lease != 0);
    unlock(&client, &own).await;
    let refused = lock(&client, 1).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::NotFound, "etcdserver: requested lease not found")
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_while_it_waits_leaves_the_queue() {
    let (_dir, server, client) = server(&[]).await;
    let (first, second) = (lease(&client).await, lease(&client).await);
    let held = lock(&client, first).await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { lock(&client, second).await }
    });
    queued(&client, "lock", 2).await;
    waiting.abort();
    queued(&client, "lock", 1).await;
    // One whose lease ends while it waits gets an error.
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { lock(&client, second).await }
    });
    queued(&client, "lock", 2).await;
    let revoke = LeaseRequest { id: second };
    client.call::<_, HeaderResponse>("Lease/LeaseRevoke", revoke).await.unwrap();
    unlock(&client, &held).await;
    assert_eq!(waiting.await.unwrap().unwrap_err().message(), "mutex: session is expired");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_election_has_one_leader_which_is_observed() {
    let (_dir, server, client) = server(&[]).await;
    assert_eq!(leader(&client).await.unwrap_err().message(), "election: no leader");
    let request = LeaderRequest { name: bytes("election") };
    let observing = tokio::spawn({
        let client = client.clone();
        async move { client.parts::<_, LeaderResponse>("v3electionpb.Election/Observe", request).await.unwrap() }
    });
    let (first, second) = (lease(&client).await, lease(&client).await);
    let elected = campaign(&client, first, "one").await.leader.unwrap();
    let mut observed = observing.await.unwrap();
    let mut next = async || {
        let leader = observed.next().await.unwrap().unwrap();
        String::from_utf8(leader.kv.unwrap().value.to_vec()).unwrap()
    };
    assert_eq!(next().await, "one");
    let candidate = tokio::spawn({
        let client = client.clone();
        async move { campaign(&client, second, "two").await }
    });
    queued(&client, "election", 2).await;
    assert_eq!(leader(&client).await.unwrap(), "one");
    let proclaim = ProclaimRequest { leader: Some(elected.clone()), value: bytes("uno") };
    let proclaimed =
        client.call::<_, HeaderResponse>("v3electionpb.Election/Proclaim", proclaim.clone()).await;
    proclaimed.unwrap();
    assert_eq!(next().await, "uno");
    // A campaign of who leads is another proclamation.
    assert_eq!(campaign(&client, first, "eins").await.leader.unwrap(), elected);
    assert_eq!(next().await, "eins");
    let resign = ResignRequest { leader: Some(elected) };
    client.call::<_, HeaderResponse>("v3electionpb.Election/Resign", resign).await.unwrap();
    candidate.await.unwrap();
    assert_eq!(next().await, "two");
    let late =
        client.call::<_, HeaderResponse>("v3electionpb.Election/Proclaim", proclaim).await.unwrap_err();
    assert_eq!(late.message(), "election: not leader");
    let nobody = ProclaimRequest::default();
    let nobody =
        client.call::<_, HeaderResponse>("v3electionpb.Election/Proclaim", nobody).await.unwrap_err();
    assert_eq!((nobody.code(), nobody.message()), (Code::Unknown, "\"leader\" field must be provided"));
    server.stop().await;
}
