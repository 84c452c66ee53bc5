//! The service KV: reads, puts, deletions, transactions, compaction.

use std::sync::Arc;

use plinth_engine::{Committed, InMemory, Snapshot, Transaction};
use tonic::Status;

use crate::answers::Answer;
use crate::errors;
use crate::keys::Keys;
use crate::leases::hint_name;
use crate::member::Member;
use crate::range::{self, Overlay};
use crate::txn::check;
use crate::txn::evaluate::{evaluate, Evaluated, Mode, Stop, View};
use crate::value::{encode, key_value, to_etcd};
use crate::wire::kv::request_op::Request;
use crate::wire::kv::{
    CompactionRequest, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest,
    RangeResponse, RequestOp, TxnRequest, TxnResponse,
};
use crate::wire::{HeaderResponse, ResponseHeader};

/// How often a transaction is evaluated again because what it has read was changed, before it is evaluated
/// while nothing else is written.
const ATTEMPTS: usize = 8;
/// What etcd's quota counts for a put beside key and value, and for a lease.
const PUT_OVERHEAD: usize = 256;
pub(crate) const LEASE_OVERHEAD: usize = 64;

/// Completes the header of a response, of which only the revision is set.
fn fill(member: &Member, header: &mut Option<ResponseHeader>) {
    let revision = header.map_or(0, |header| header.revision);
    *header = Some(member.header_at(revision));
}

/// Range.
pub(crate) async fn range(
    member: &Arc<Member>,
    request: RangeRequest,
) -> Result<Answer<RangeResponse>, Status> {
    range::check(&request)?;
    member.metrics.ranges.inc();
    if let Some(answer) = in_memory(member, &request)? {
        return Ok(answer);
    }
    let reader = Arc::clone(member);
    let read = tokio::task::spawn_blocking(move || from_snapshot(&reader, &request));
    read.await.map_err(errors::from_task)?
}

/// The response of the store. Blocks.
pub(crate) fn from_snapshot(
    member: &Member,
    request: &RangeRequest,
) -> Result<Answer<RangeResponse>, Status> {
    let (snapshot, current) = snapshot(member, request)?;
    let mut held = member.answers.begin();
    let mut message = range::execute(&snapshot, &Overlay::new(), request, current, &mut held)?;
    fill(member, &mut message.header);
    Ok(Answer { message, held })
}

/// What a request reads, and the newest revision.
pub(crate) fn snapshot(member: &Member, request: &RangeRequest) -> Result<(Snapshot, i64), Status> {
    let latest = member.latest()?;
    let current = to_etcd(latest.revision());
    let snapshot = match request.revision > 0 {
        true => member.snapshot_at(request.revision, current)?,
        false => latest,
    };
    Ok((snapshot, current))
}

/// The newest state of one key, if it is in memory and belongs to one revision beyond doubt.
pub(crate) fn in_memory(
    member: &Member,
    request: &RangeRequest,
) -> Result<Option<Answer<RangeResponse>>, Status> {
    let Keys::One(key) = Keys::of(&request.key, &request.range_end) else { return Ok(None) };
    if request.revision > 0 {
        return Ok(None);
    }
    let before = member.engine.current_revision();
    let found = member.engine.get_in_memory(&key).map_err(|error| errors::from_engine(&error))?;
    let InMemory::Known(record) = found else { return Ok(None) };
    let revision = match &record {
        // It was the newest at both: at the revision before the read, and at its own.
        Some(record) => before.max(record.mod_revision),
        None if member.engine.current_revision() == before => before,
        None => return Ok(None),
    };
    let found = record.map(|record| key_value(&record));
    let mut held = member.answers.begin();
    let mut message = range::of_one(request, found, to_etcd(revision), &mut held)?;
    fill(member, &mut message.header);
    Ok(Some(Answer { message, held }))
}

/// Put.
pub(crate) async fn put(member: &Arc<Member>, request: PutRequest) -> Result<PutResponse, Status> {
    check::put(&request)?;
    member.check_space(put_cost(&request)).await?;
    if request.ignore_value || request.ignore_lease {
        // It depends on the key: a transaction of one operation.
        let operation = RequestOp { request: Some(Request::Put(request)) };
        let answer = commit_txn(member, txn_of(operation)).await?;
        return only(answer, |response| match response {
            crate::wire::kv::response_op::Response::Put(put) => Some(put),
            _ => None,
        })
        .map(|Answer { message: mut put, .. }| {
            fill(member, &mut put.header);
            put
        });
    }
    let _shared = member.writes.read().await;
    if request.lease != 0 && !member.leases.has(request.lease) {
        return Err(errors::lease_not_found());
    }
    let mut transaction = Transaction::new().put(request.key.clone(), encode(&request.value, request.lease));
    if request.lease != 0 {
        transaction = transaction.set_number(hint_name(request.lease, &request.key), 1);
    }
    let committed = member.commit(transaction).await?;
    let previous = committed.commit.as_ref().and_then(|commit| commit.events.first()?.previous.as_ref());
    Ok(PutResponse {
        header: Some(member.header_at(to_etcd(committed.revision))),
        prev_kv: previous.filter(|_| request.prev_kv).map(key_value),
    })
}

/// DeleteRange.
pub(crate) async fn delete_range(
    member: &Arc<Member>,
    request: DeleteRangeRequest,
) -> Result<Answer<DeleteRangeResponse>, Status> {
    check::delete(&request)?;
    let Keys::One(key) = Keys::of(&request.key, &request.range_end) else {
        let operation = RequestOp { request: Some(Request::DeleteRange(request)) };
        let answer = commit_txn(member, txn_of(operation)).await?;
        return only(answer, |response| match response {
            crate::wire::kv::response_op::Response::DeleteRange(delete) => Some(delete),
            _ => None,
        })
        .map(|mut answer| {
            fill(member, &mut answer.message.header);
            answer
        });
    };
    let _shared = member.writes.read().await;
    let committed = member.commit(Transaction::new().delete(key)).await?;
    let events = committed.commit.as_ref().map(|commit| commit.events.as_slice()).unwrap_or_default();
    let deleted = events.iter().filter_map(|event| event.previous.as_ref());
    let message = DeleteRangeResponse {
        header: Some(member.header_at(to_etcd(committed.revision))),
        deleted: i64::from(!events.is_empty()),
        prev_kvs: deleted.filter(|_| request.prev_kv).map(key_value).collect(),
    };
    // One value, which a request has brought.
    Ok(Answer { message, held: member.answers.begin() })
}

/// Txn.
pub(crate) async fn txn(member: &Arc<Member>, request: TxnRequest) -> Result<Answer<TxnResponse>, Status> {
    check::txn(&request, member.limits.txn_operations)?;
    member.check_space(txn_cost(&request)).await?;
    member.metrics.txns.inc();
    let mut answer = match check::is_read_only(&request) {
        true => read_txn(member, request).await?,
        false => commit_txn(member, request).await?,
    };
    fill(member, &mut answer.message.header);
    Ok(answer)
}

/// Compact.
pub(crate) async fn compact(
    member: &Arc<Member>,
    request: CompactionRequest,
) -> Result<HeaderResponse, Status> {
    member.compact(request.revision, request.physical).await?;
    Ok(HeaderResponse { header: Some(member.header()) })
}

fn txn_of(operation: RequestOp) -> TxnRequest {
    TxnRequest { success: vec![operation], ..TxnRequest::default() }
}

/// The response of a transaction of one operation.
fn only<T>(
    Answer { mut message, held }: Answer<TxnResponse>,
    select: impl FnOnce(crate::wire::kv::response_op::Response) -> Option<T>,
) -> Result<Answer<T>, Status> {
    let operation = message.responses.pop().and_then(|operation| operation.response);
    operation
        .and_then(select)
        .map(|message| Answer { message, held })
        .ok_or_else(|| Status::internal("a transaction of one operation has no response"))
}

/// Bytes that a put adds, as etcd's quota counts them.
fn put_cost(request: &PutRequest) -> usize {
    PUT_OVERHEAD + request.key.len() + request.value.len()
}

/// Bytes that a transaction adds at most.
fn txn_cost(request: &TxnRequest) -> usize {
    let sum = |operations: &[RequestOp]| {
        operations.iter().fold(0, |sum: usize, operation| {
            sum.saturating_add(match &operation.request {
                Some(Request::Put(request)) => put_cost(request),
                Some(Request::Txn(request)) => txn_cost(request),
                _ => 0,
            })
        })
    };
    sum(&request.success).max(sum(&request.failure))
}

/// Evaluates a transaction as of a snapshot of the newest state. Blocks.
fn evaluate_snapshot(member: &Member, request: &TxnRequest, mode: Mode) -> Result<Evaluated, Stop> {
    let snapshot = member.latest()?;
    let current = to_etcd(snapshot.revision());
    let older = |revision| member.snapshot_at(revision, current);
    let has_lease = |id| member.leases.has(id);
    evaluate(request, View::Snapshot(&snapshot, &older), mode, &has_lease, member.answers.begin())
}

/// The outcome of an evaluation that had a snapshot, and all writes to itself.
fn without_stop(evaluated: Result<Evaluated, Stop>) -> Result<Evaluated, Status> {
    evaluated.map_err(|stop| match stop {
        Stop::Refused(status) => status,
        Stop::Snapshot | Stop::Exclusive => Status::internal("a transaction needs more than a snapshot"),
    })
}

/// A transaction that changes nothing, as of a snapshot.
async fn read_txn(member: &Arc<Member>, request: TxnRequest) -> Result<Answer<TxnResponse>, Status> {
    let reader = Arc::clone(member);
    let read = tokio::task::spawn_blocking(move || {
        without_stop(evaluate_snapshot(&reader, &request, Mode::Exclusive))
    });
    let evaluated = read.await.map_err(errors::from_task)??;
    let base = evaluated.base;
    Ok(evaluated.respond(base, base))
}

/// A transaction that may change something.
async fn commit_txn(member: &Arc<Member>, request: TxnRequest) -> Result<Answer<TxnResponse>, Status> {
    let request = Arc::new(request);
    for _ in 0..ATTEMPTS {
        let _shared = member.writes.read().await;
        let evaluated = match evaluate_shared(member, &request).await {
            Ok(evaluated) => evaluated,
            Err(Stop::Refused(status)) => return Err(status),
            Err(Stop::Exclusive | Stop::Snapshot) => break,
        };
        if evaluated.is_unchanged() {
            return match revision_of_read(member, &evaluated) {
                Some(revision) => Ok(evaluated.respond(revision, revision)),
                None => read_txn(member, request.as_ref().clone()).await,
            };
        }
        let transaction = with_hints(evaluated.transaction(Mode::Shared), &evaluated);
        match member.engine.transact(transaction).await {
            Ok(committed) => {
                member.committed(&committed);
                return Ok(respond(evaluated, &committed));
            }
            Err(plinth_engine::Error::Conflict { .. }) => {}
            Err(error) => return Err(errors::from_engine(&error)),
        }
    }
    commit_alone(member, request).await
}

/// Evaluates a transaction while others are written: of what is in memory, or else of a snapshot.
async fn evaluate_shared(member: &Arc<Member>, request: &Arc<TxnRequest>) -> Result<Evaluated, Stop> {
    let has_lease = |id| member.leases.has(id);
    let (view, held) = (View::Memory(&member.engine), member.answers.begin());
    match evaluate(request, view, Mode::Shared, &has_lease, held) {
        Err(Stop::Snapshot) => {
            let (reader, request) = (Arc::clone(member), Arc::clone(request));
            let evaluation =
                tokio::task::spawn_blocking(move || evaluate_snapshot(&reader, &request, Mode::Shared));
            evaluation.await.map_err(errors::from_task)?
        }
        evaluated => evaluated,
    }
}

/// The revision at which what was read is the state, if there is one beyond doubt: see [`in_memory`].
fn revision_of_read(member: &Member, evaluated: &Evaluated) -> Option<i64> {
    match evaluated.single_read()? {
        Some(record) => Some(evaluated.base.max(to_etcd(record.mod_revision))),
        None if member.revision() == evaluated.base => Some(evaluated.base),
        None => None,
    }
}

/// Evaluates and commits a transaction while nothing else is written. To its end, whether or not the client
/// waits: the lock is held until it is committed.
async fn commit_alone(member: &Arc<Member>, request: Arc<TxnRequest>) -> Result<Answer<TxnResponse>, Status> {
    let member = Arc::clone(member);
    let committed = tokio::spawn(async move {
        let _alone = member.writes.write().await;
        member.barrier().await?;
        let reader = Arc::clone(&member);
        let evaluation = tokio::task::spawn_blocking(move || {
            without_stop(evaluate_snapshot(&reader, &request, Mode::Exclusive))
        });
        let evaluated = evaluation.await.map_err(errors::from_task)??;
        if evaluated.is_unchanged() {
            let base = evaluated.base;
            return Ok(evaluated.respond(base, base));
        }
        let transaction = with_hints(evaluated.transaction(Mode::Exclusive), &evaluated);
        let committed = member.commit(transaction).await?;
        Ok(respond(evaluated, &committed))
    });
    committed.await.map_err(errors::from_task)?
}

fn respond(evaluated: Evaluated, committed: &Committed) -> Answer<TxnResponse> {
    let revision = to_etcd(committed.revision);
    evaluated.respond(revision - 1, revision)
}

fn with_hints(mut transaction: Transaction, evaluated: &Evaluated) -> Transaction {
    for (id, key) in evaluated.leases() {
        transaction = transaction.set_number(hint_name(id, key), 1);
    }
    transaction
}
