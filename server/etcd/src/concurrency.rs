//! The services Lock and Election: what etcd's Go client does with keys, done by the server for clients that
//! have no such library (etcd's `v3lock` and `v3election`).
//!
//! Who wants a lock or wants to lead puts a key below the name, with its lease, and waits until the keys that
//! were created before are gone. The key is `NAME/LEASE`, as the Go client's: both share their locks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use plinth_engine::{Error, Feed, KeyRange, Subscribe};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::keys::Keys;
use crate::member::Member;
use crate::value::{put_key_value, to_engine};
use crate::wire::concurrency::{
    CampaignRequest, CampaignResponse, LeaderKey, LeaderRequest, LeaderResponse, LockRequest, LockResponse,
    ProclaimRequest, ResignRequest, UnlockRequest,
};
use crate::wire::kv::request_op::Request;
use crate::wire::kv::{
    compare, compare_result, compare_target, response_op, sort_order, sort_target, Compare,
    DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse,
};
use crate::wire::{HeaderResponse, ResponseHeader};
use crate::{errors, kv, lease_changes, range};

/// Time to live of the lease of a request that has none, in seconds.
const SESSION_TTL: i64 = 60;
/// Leaders that wait for a client of Observe.
const LEADERS: usize = 16;

/// A key in the queue below a name.
pub(crate) struct Place {
    key: Bytes,
    /// Create revision of the key.
    revision: i64,
    lease: i64,
    /// The header of the response that has put or found it.
    header: ResponseHeader,
    /// Its value, where it was there before.
    found: Option<Bytes>,
}

impl Place {
    fn leader(&self, name: Bytes) -> LeaderKey {
        LeaderKey { name, key: self.key.clone(), rev: self.revision, lease: self.lease }
    }
}

/// Deletes the key of a caller that leaves while it waits: nobody else would before its lease ends.
struct Withdrawal {
    member: Arc<Member>,
    key: Option<Bytes>,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        let member = Arc::clone(&self.member);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { delete(&member, key).await });
        }
    }
}

/// Lock, from a place in the queue on: returns once the lock is held.
pub(crate) async fn lock(
    member: &Arc<Member>,
    stop: &CancellationToken,
    request: LockRequest,
    place: Place,
) -> Result<LockResponse, Status> {
    wait(member, stop, &request.name, &place).await?;
    // The lease may have ended just before.
    let own = RangeRequest { key: place.key.clone(), ..RangeRequest::default() };
    let own = range::answer(member, own, None).await?.message;
    match own.kvs.first() {
        Some(found) if found.create_revision == place.revision => {
            Ok(LockResponse { header: own.header, key: place.key })
        }
        _ => Err(errors::session_expired()),
    }
}

/// Releases a lock: deletes its key.
pub(crate) async fn unlock(member: &Arc<Member>, request: UnlockRequest) -> Result<HeaderResponse, Status> {
    let delete = DeleteRangeRequest { key: request.key, ..DeleteRangeRequest::default() };
    Ok(HeaderResponse { header: kv::delete_range(member, delete).await?.message.header })
}

/// The place of a candidate, with the value of its campaign.
pub(crate) async fn stand(member: &Arc<Member>, request: &CampaignRequest) -> Result<Place, Status> {
    let place = enter(member, &request.name, request.lease, request.value.clone()).await?;
    if place.found.as_ref().is_some_and(|found| *found != request.value) {
        let leader = Some(place.leader(request.name.clone()));
        proclaim(member, ProclaimRequest { leader, value: request.value.clone() }).await?;
    }
    Ok(place)
}

/// Campaign, from a place on: returns once the candidate leads.
pub(crate) async fn campaign(
    member: &Arc<Member>,
    stop: &CancellationToken,
    request: CampaignRequest,
    place: Place,
) -> Result<CampaignResponse, Status> {
    let leader = place.leader(request.name);
    wait(member, stop, &leader.name, &place).await?;
    Ok(CampaignResponse { header: Some(place.header), leader: Some(leader) })
}

/// Proclaim: a new value of the leader.
pub(crate) async fn proclaim(
    member: &Arc<Member>,
    request: ProclaimRequest,
) -> Result<HeaderResponse, Status> {
    let leader = request.leader.ok_or_else(errors::no_leader_key)?;
    let put = PutRequest {
        key: leader.key.clone(),
        value: request.value,
        lease: leader.lease,
        ..PutRequest::default()
    };
    let response = kv::txn(member, while_created(&leader, Request::Put(put)), None).await?.message;
    match response.succeeded {
        true => Ok(HeaderResponse { header: response.header }),
        false => Err(errors::not_leader()),
    }
}

/// Resign: the next candidate leads.
pub(crate) async fn resign(member: &Arc<Member>, request: ResignRequest) -> Result<HeaderResponse, Status> {
    let leader = request.leader.ok_or_else(errors::no_leader_key)?;
    let delete = DeleteRangeRequest { key: leader.key.clone(), ..DeleteRangeRequest::default() };
    let response = kv::txn(member, while_created(&leader, Request::DeleteRange(delete)), None).await?.message;
    Ok(HeaderResponse { header: response.header })
}

/// Leader: who leads now.
pub(crate) async fn leader(member: &Arc<Member>, request: LeaderRequest) -> Result<LeaderResponse, Status> {
    let (header, kv) = current_leader(member, &request.name).await?;
    match kv {
        Some(kv) => Ok(LeaderResponse { header: Some(header), kv: Some(kv) }),
        None => Err(errors::no_leader()),
    }
}

/// Whether the client may still see what it observes.
pub(crate) type MaySee = dyn Fn() -> BoxFuture<'static, Result<(), Status>> + Send + Sync;

/// Observe: who leads now, and every leader and proclamation after it, while the client may see that.
pub(crate) fn observe(
    member: Arc<Member>,
    stop: CancellationToken,
    request: LeaderRequest,
    may_see: Box<MaySee>,
) -> mpsc::Receiver<Result<LeaderResponse, Status>> {
    let (out, leaders) = mpsc::channel(LEADERS);
    tokio::spawn(async move {
        let observed = tokio::select! {
            observed = follow(&member, &request.name, &may_see, &out) => observed,
            () = out.closed() => return,
            () = stop.cancelled() => Err(errors::stopped()),
        };
        if let Err(status) = observed {
            // A client that does not read has room for it later, or leaves.
            let _ = out.send(Err(status)).await;
        }
    });
    leaders
}

async fn follow(
    member: &Arc<Member>,
    name: &[u8],
    may_see: &MaySee,
    out: &mpsc::Sender<Result<LeaderResponse, Status>>,
) -> Result<(), Status> {
    loop {
        // Before each leader, as etcd does.
        may_see().await?;
        let (header, mut current) = current_leader(member, name).await?;
        let send = |header: ResponseHeader, kv: KeyValue| {
            out.send(Ok(LeaderResponse { header: Some(header), kv: Some(kv) }))
        };
        if let Some(kv) = &current {
            let Ok(()) = send(header, kv.clone()).await else { return Ok(()) };
        }
        let Some(mut changes) = subscribe(member, below(name), header.revision)? else { continue };
        'changes: loop {
            let feed = match changes.next().await {
                Ok(feed) => feed,
                Err(Error::Compacted { .. }) => break,
                Err(error) => return Err(errors::from_engine(&error)),
            };
            let Feed::Events(events) = feed else { continue };
            for event in events.iter() {
                let is_leader = current.as_ref().is_some_and(|leader| leader.key == event.key);
                match put_key_value(event) {
                    // Whoever leads next was created first of those that are there.
                    None if is_leader => break 'changes,
                    Some(kv) if is_leader || current.is_none() => {
                        let Ok(()) = send(member.header_at(kv.mod_revision), kv.clone()).await else {
                            return Ok(());
                        };
                        current = Some(kv);
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The keys below a name.
pub(crate) fn below(name: &[u8]) -> (Bytes, Bytes) {
    // '0' is the byte behind '/'.
    ([name, b"/"].concat().into(), [name, b"0"].concat().into())
}

/// The key of a lease below a name.
pub(crate) fn place_of(name: &[u8], lease: i64) -> Bytes {
    [name, b"/", format!("{lease:x}").as_bytes()].concat().into()
}

/// The key below a name that was created first: that of the leader.
async fn current_leader(
    member: &Arc<Member>,
    name: &[u8],
) -> Result<(ResponseHeader, Option<KeyValue>), Status> {
    let first = RangeRequest { sort_order: sort_order::ASCEND, ..RangeRequest::default() };
    one_below(member, name, first).await
}

/// The first key below a name in the order of creation that `request` asks for.
async fn one_below(
    member: &Arc<Member>,
    name: &[u8],
    request: RangeRequest,
) -> Result<(ResponseHeader, Option<KeyValue>), Status> {
    let (key, range_end) = below(name);
    let request = RangeRequest { key, range_end, limit: 1, sort_target: sort_target::CREATE, ..request };
    let mut response = range::answer(member, request, None).await?.message;
    Ok((response.header.unwrap_or_else(|| member.header()), response.kvs.pop()))
}

fn subscribe(
    member: &Member,
    (key, range_end): (Bytes, Bytes),
    revision: i64,
) -> Result<Option<plinth_engine::Subscription>, Status> {
    let range: KeyRange = Keys::of(&key, &range_end).to_range();
    match member.engine.subscribe(Subscribe::new(range).after(to_engine(revision))) {
        Ok(subscription) => Ok(Some(subscription)),
        Err(Error::Compacted { .. }) => Ok(None),
        Err(error) => Err(errors::from_engine(&error)),
    }
}

/// A transaction of one operation, which holds while the key of a leader is the one that it has created.
fn while_created(leader: &LeaderKey, operation: Request) -> TxnRequest {
    TxnRequest {
        compare: vec![created_at(leader.key.clone(), leader.rev)],
        success: vec![RequestOp { request: Some(operation) }],
        failure: Vec::new(),
    }
}

fn created_at(key: Bytes, revision: i64) -> Compare {
    Compare {
        result: compare_result::EQUAL,
        target: compare_target::CREATE,
        key,
        operand: Some(compare::Operand::CreateRevision(revision)),
        range_end: Bytes::new(),
    }
}

/// Puts the key of a lease below a name, unless it is there.
pub(crate) async fn enter(
    member: &Arc<Member>,
    name: &[u8],
    lease: i64,
    value: Bytes,
) -> Result<Place, Status> {
    let lease = match lease {
        0 => lease_changes::grant(member, 0, SESSION_TTL).await?.0,
        lease => lease,
    };
    let key = place_of(name, lease);
    let put = PutRequest { key: key.clone(), value, lease, ..PutRequest::default() };
    let get = RangeRequest { key: key.clone(), ..RangeRequest::default() };
    let request = TxnRequest {
        compare: vec![created_at(key.clone(), 0)],
        success: vec![RequestOp { request: Some(Request::Put(put)) }],
        failure: vec![RequestOp { request: Some(Request::Range(get)) }],
    };
    let response = kv::txn(member, request, None).await?.message;
    let header = response.header.unwrap_or_else(|| member.header());
    let found = found(response);
    let revision = found.as_ref().map_or(header.revision, |kv| kv.create_revision);
    Ok(Place { key, revision, lease, header, found: found.map(|kv| kv.value) })
}

/// The key that a transaction of one operation has read.
fn found(mut response: TxnResponse) -> Option<KeyValue> {
    match response.responses.pop()?.response? {
        response_op::Response::Range(mut range) => range.kvs.pop(),
        _ => None,
    }
}

async fn delete(member: &Arc<Member>, key: Bytes) {
    let delete = DeleteRangeRequest { key, ..DeleteRangeRequest::default() };
    if let Err(error) = kv::delete_range(member, delete).await {
        tracing::debug!(error = error.message(), "key of a caller that has left was not deleted");
    }
}

/// Waits until all keys below a name that were created before a place are gone. Keeps the lease alive
/// meanwhile. A caller that leaves loses the place; one that the server stops keeps it.
async fn wait(
    member: &Arc<Member>,
    stop: &CancellationToken,
    name: &[u8],
    place: &Place,
) -> Result<(), Status> {
    let mut withdrawal = Withdrawal { member: Arc::clone(member), key: Some(place.key.clone()) };
    let waited = tokio::select! {
        waited = wait_for_earlier(member, name, place.revision) => waited,
        () = keep_alive(member, place.lease) => Err(errors::session_expired()),
        () = stop.cancelled() => {
            withdrawal.key = None;
            Err(errors::stopped())
        }
    };
    if waited.is_ok() {
        withdrawal.key = None;
    }
    waited
}

/// Keeps a lease alive until it has ended nevertheless.
async fn keep_alive(member: &Member, lease: i64) {
    while let Some(ttl) = member.leases.renew(lease) {
        tokio::time::sleep(Duration::from_secs(ttl.max(1).unsigned_abs()) / 3).await;
    }
}

async fn wait_for_earlier(member: &Arc<Member>, name: &[u8], revision: i64) -> Result<(), Status> {
    loop {
        let last = RangeRequest {
            sort_order: sort_order::DESCEND,
            keys_only: true,
            max_create_revision: revision.saturating_sub(1).max(1),
            ..RangeRequest::default()
        };
        let (header, earlier) = one_below(member, name, last).await?;
        let Some(earlier) = earlier else { return Ok(()) };
        let Some(mut changes) = subscribe(member, (earlier.key, Bytes::new()), header.revision)? else {
            continue;
        };
        loop {
            match changes.next().await {
                Ok(Feed::Events(events)) if events.iter().any(|event| event.is_delete()) => break,
                Ok(_) => {}
                // What was deleted is seen by looking again.
                Err(Error::Compacted { .. }) => break,
                Err(error) => return Err(errors::from_engine(&error)),
            }
        }
    }
}
