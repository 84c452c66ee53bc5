//! The service KV but for Range: puts, deletions, transactions, compaction.

use std::sync::Arc;
use std::time::Instant;

use plinth_engine::{Committed, Error, Feed, KeyRange, Snapshot, Subscribe, Subscription, Transaction};
use tonic::Status;

use crate::answers::Answer;
use crate::auth::Unchanged;
use crate::errors;
use crate::keys::{owned, Keys};
use crate::leases::hint_name;
use crate::member::Member;
use crate::txn::check;
use crate::txn::evaluate::{evaluate, Evaluated, Mode, Stop, View};
use crate::value::{encode, key_value, to_etcd};
use crate::wire::kv::request_op::Request;
use crate::wire::kv::{
    CompactionRequest, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RequestOp,
    TxnRequest, TxnResponse,
};
use crate::wire::HeaderResponse;

/// How often a transaction is evaluated again because what it has read was changed, before it is evaluated
/// while nothing else is written.
const ATTEMPTS: usize = 8;
/// What etcd's quota counts for a put beside key and value, and for a lease.
const PUT_OVERHEAD: usize = 256;
pub(crate) const LEASE_OVERHEAD: usize = 64;

/// Writes one key, as etcd does for `Put`.
pub(crate) async fn put(member: &Arc<Member>, request: PutRequest) -> Result<PutResponse, Status> {
    check::put(&request)?;
    member.check_not_corrupt()?;
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
            member.fill(&mut put.header);
            put
        });
    }
    let _shared = member.writes.read().await;
    if request.lease != 0 && !member.leases.has(request.lease) {
        return Err(errors::lease_not_found());
    }
    let mut transaction = Transaction::new().put(owned(&request.key), encode(&request.value, request.lease));
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

/// The method `DeleteRange` of the service `KV`.
pub(crate) async fn delete_range(
    member: &Arc<Member>,
    request: DeleteRangeRequest,
) -> Result<Answer<DeleteRangeResponse>, Status> {
    check::delete(&request)?;
    member.check_not_corrupt()?;
    let Keys::One(key) = Keys::of(&request.key, &request.range_end) else {
        let operation = RequestOp { request: Some(Request::DeleteRange(request)) };
        let answer = commit_txn(member, txn_of(operation)).await?;
        return only(answer, |response| match response {
            crate::wire::kv::response_op::Response::DeleteRange(delete) => Some(delete),
            _ => None,
        })
        .map(|mut answer| {
            member.fill(&mut answer.message.header);
            answer
        });
    };
    let _shared = member.writes.read().await;
    let committed = member.commit(Transaction::new().delete(owned(&key))).await?;
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

/// Txn. `unchanged` is released when what a transaction reads that changes nothing is pinned.
pub(crate) async fn txn(
    member: &Arc<Member>,
    request: TxnRequest,
    unchanged: Unchanged,
) -> Result<Answer<TxnResponse>, Status> {
    check::txn(&request, member.limits.txn_operations)?;
    let is_read_only = check::is_read_only(&request);
    if !is_read_only {
        member.check_not_corrupt()?;
    }
    member.check_space(txn_cost(&request)).await?;
    member.metrics.txns.inc();
    let start = Instant::now();
    let answered = match is_read_only {
        true => read_txn(member, request, unchanged).await,
        false => commit_txn(member, request).await,
    };
    member.metrics.timings.transacted(start, is_read_only, answered.is_ok());
    let mut answer = answered?;
    member.fill(&mut answer.message.header);
    Ok(answer)
}

/// Removes history, as etcd does for `Compact`.
pub(crate) async fn compact(
    member: &Arc<Member>,
    request: CompactionRequest,
) -> Result<HeaderResponse, Status> {
    member.check_not_corrupt()?;
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
    evaluate_at(member, &member.latest()?, request, mode)
}

/// Evaluates a transaction as of a snapshot. Blocks.
fn evaluate_at(
    member: &Member,
    snapshot: &Snapshot,
    request: &TxnRequest,
    mode: Mode,
) -> Result<Evaluated, Stop> {
    let current = to_etcd(snapshot.revision());
    let older = |revision| member.snapshot_at(revision, current);
    let has_lease = |id| member.leases.has(id);
    let view = View::Snapshot(snapshot, &member.counts, &older);
    evaluate(request, view, mode, &has_lease, member.answers.begin())
}

/// The outcome of an evaluation that had a snapshot, and all writes to itself.
fn without_stop(evaluated: Result<Evaluated, Stop>) -> Result<Evaluated, Status> {
    evaluated.map_err(|stop| match stop {
        Stop::Refused(status) => status,
        Stop::Snapshot | Stop::Exclusive => Status::internal("a transaction needs more than a snapshot"),
    })
}

/// A transaction that changes nothing, as of a snapshot.
async fn read_txn(
    member: &Arc<Member>,
    request: TxnRequest,
    unchanged: Unchanged,
) -> Result<Answer<TxnResponse>, Status> {
    let reader = Arc::clone(member);
    let read = tokio::task::spawn_blocking(move || {
        let snapshot = reader.latest()?;
        drop(unchanged);
        without_stop(evaluate_at(&reader, &snapshot, &request, Mode::Exclusive))
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
                None => read_txn(member, request.as_ref().clone(), None).await,
            };
        }
        let transaction = with_hints(evaluated.transaction(Mode::Shared), &evaluated);
        match member.transact(transaction).await {
            Ok(committed) => {
                member.committed(&committed);
                return Ok(respond(evaluated, &committed));
            }
            Err(Error::Conflict { .. }) => {}
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

/// The revision at which what was read is the state, if there is one beyond doubt: see
/// [`crate::range::read`].
fn revision_of_read(member: &Member, evaluated: &Evaluated) -> Option<i64> {
    match evaluated.single_read()? {
        Some(record) => Some(evaluated.base.max(to_etcd(record.mod_revision))),
        None if member.revision() == evaluated.base => Some(evaluated.base),
        None => None,
    }
}

/// Commits a transaction that reads ranges while nothing else is written. To its end, whether or not the
/// client waits: the lock is held until it is committed. It is evaluated before that, and again if what it
/// has read was changed: nobody waits while a long range is read.
async fn commit_alone(member: &Arc<Member>, request: Arc<TxnRequest>) -> Result<Answer<TxnResponse>, Status> {
    let member = Arc::clone(member);
    let committed = tokio::spawn(async move {
        let mut early = on_thread(&member, &request, Early::evaluate).await?;
        if early.evaluated.is_unchanged() {
            let base = early.evaluated.base;
            return Ok(early.evaluated.respond(base, base));
        }
        let _alone = member.writes.write().await;
        member.barrier().await?;
        if early.holds(&member).await? {
            let transaction = with_hints(early.evaluated.transaction(Mode::Shared), &early.evaluated);
            match member.transact(transaction).await {
                Ok(committed) => {
                    member.committed(&committed);
                    return Ok(respond(early.evaluated, &committed));
                }
                // A single key that it has read.
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(errors::from_engine(&error)),
            }
        }
        drop(early);
        let evaluate = |member: &Member, request: &TxnRequest| {
            without_stop(evaluate_snapshot(member, request, Mode::Exclusive))
        };
        let evaluated = on_thread(&member, &request, evaluate).await?;
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

/// Evaluates a transaction on a thread that may block.
async fn on_thread<T: Send + 'static>(
    member: &Arc<Member>,
    request: &Arc<TxnRequest>,
    evaluate: impl FnOnce(&Member, &TxnRequest) -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    let (member, request) = (Arc::clone(member), Arc::clone(request));
    tokio::task::spawn_blocking(move || evaluate(&member, &request)).await.map_err(errors::from_task)?
}

/// A transaction that was evaluated while others write.
struct Early {
    evaluated: Evaluated,
    /// What is written since into the ranges that it has read; none where that is compacted already.
    changes: Option<Vec<Subscription>>,
}

impl Early {
    /// Evaluates it at the latest revision, on a thread that may block.
    fn evaluate(member: &Member, request: &TxnRequest) -> Result<Early, Status> {
        let snapshot = member.latest()?;
        let evaluated = without_stop(evaluate_at(member, &snapshot, request, Mode::Exclusive))?;
        let since = |range: &KeyRange| {
            member.engine.subscribe(Subscribe::new(range.clone()).after(snapshot.revision()))
        };
        let changes = evaluated.ranges().iter().map(since).collect::<Result<_, _>>().ok();
        Ok(Early { evaluated, changes })
    }

    /// Whether ranges and leases are as they were. The caller lets nobody write meanwhile, and single keys
    /// are conditions of the commit.
    async fn holds(&mut self, member: &Member) -> Result<bool, Status> {
        let current = member.engine.current_revision();
        if !self.evaluated.leases().all(|(id, _)| member.leases.has(id)) {
            return Ok(false);
        }
        if to_etcd(current) == self.evaluated.base {
            return Ok(true);
        }
        let Some(changes) = self.changes.as_mut().filter(|_| !self.evaluated.reads_changes()) else {
            return Ok(false);
        };
        for changes in changes {
            loop {
                changes.request_progress();
                match changes.next().await {
                    Ok(Feed::Progress(revision)) if revision >= current => break,
                    Ok(Feed::Progress(_)) => {}
                    Ok(Feed::Events(_)) | Err(Error::Compacted { .. }) => return Ok(false),
                    Err(error) => return Err(errors::from_engine(&error)),
                }
            }
        }
        Ok(true)
    }
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_of_a_request_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let member = Arc::new(Member::of_test(dir.path(), 4));
        let request = Bytes::from(vec![b'k'; 1 << 20]);
        let key = || request.slice(..3);
        let put = |ignore_value| PutRequest { key: key(), ignore_value, ..PutRequest::default() };
        let delete = || DeleteRangeRequest { key: key(), ..DeleteRangeRequest::default() };
        let transaction = |change| txn_of(RequestOp { request: Some(change) });
        super::put(&member, put(false)).await.unwrap();
        super::put(&member, put(true)).await.unwrap();
        delete_range(&member, delete()).await.unwrap();
        commit_txn(&member, transaction(Request::Put(put(false)))).await.unwrap();
        commit_txn(&member, transaction(Request::DeleteRange(delete()))).await.unwrap();
        assert_eq!(member.revision(), 6);
        assert!(request.is_unique());
    }
}
