//! What a transaction reads and changes, as of a view of the store.
//!
//! A transaction is evaluated on the side of the caller, and committed with the condition that every key that
//! it has read is unchanged since. That decides transactions of single keys, whatever else is written in the
//! meantime. One that reads a range, or reads after it has changed something, is evaluated while nothing else
//! is written ([`Mode::Exclusive`]).

use std::collections::HashMap;

use bytes::Bytes;
use plinth_engine::{Condition, Engine, InMemory, KeyCounts, KeyRange, Record, Snapshot, Transaction};
use tonic::Status;

use crate::answers::{Answer, Reservation};
use crate::errors;
use crate::keys::{owned, Keys};
use crate::range::{self, Overlay, RangeView};
use crate::txn::compare;
use crate::value::{encode, entry_key_value, key_value, lease_of, to_etcd, value_of};
use crate::wire::kv::request_op::Request;
use crate::wire::kv::response_op::Response;
use crate::wire::kv::{
    Compare, DeleteRangeRequest, DeleteRangeResponse, KeyValue, PutRequest, PutResponse, RangeRequest,
    RangeResponse, RequestOp, ResponseOp, TxnRequest, TxnResponse,
};
use crate::wire::ResponseHeader;

/// What may be written while a transaction is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Any key: others write at the same time.
    Shared,
    /// Nothing, or nothing that matters: the transaction reads a snapshot and writes nothing.
    Exclusive,
}

/// Why an evaluation has ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It needs a snapshot: what it reads is not in memory.
    Snapshot,
    /// It needs [`Mode::Exclusive`].
    Exclusive,
    /// The request is refused.
    Refused(Status),
}

impl From<Status> for Stop {
    fn from(status: Status) -> Stop {
        Stop::Refused(status)
    }
}

/// Where a transaction reads.
pub(crate) enum View<'a> {
    /// Single keys that are in memory.
    Memory(&'a Engine),
    /// A snapshot of the newest state. The function returns one of an older revision.
    Snapshot(&'a Snapshot, &'a KeyCounts, &'a dyn Fn(i64) -> Result<Snapshot, Status>),
}

/// A change of one key.
#[derive(Debug, Clone)]
enum Change {
    Put { value: Bytes, lease: i64 },
    Delete,
}

/// What a transaction reads and changes.
#[derive(Debug)]
pub(crate) struct Evaluated {
    /// The response; the revisions in the headers of its operations are those after [`Evaluated::base`].
    pub response: TxnResponse,
    /// The newest revision when it was evaluated.
    pub base: i64,
    /// The keys that were read.
    reads: HashMap<Bytes, Option<Record>>,
    changes: Vec<(Bytes, Change)>,
    /// The ranges that were read.
    ranges: Vec<KeyRange>,
    /// Whether what it has changed was read again.
    reads_changes: bool,
    /// What the response takes.
    held: Reservation,
}

impl Evaluated {
    /// Whether it changes nothing.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.changes.is_empty()
    }

    /// The ranges that were read, of the newest state.
    pub(crate) fn ranges(&self) -> &[KeyRange] {
        &self.ranges
    }

    /// Whether the response depends on the revision beyond the headers.
    pub(crate) fn reads_changes(&self) -> bool {
        self.reads_changes
    }

    /// What was read, if it is one key at most.
    pub(crate) fn single_read(&self) -> Option<Option<&Record>> {
        match self.reads.len() {
            0 => Some(None),
            1 => Some(self.reads.values().next().and_then(Option::as_ref)),
            _ => None,
        }
    }

    /// The leases that keys are attached to.
    pub(crate) fn leases(&self) -> impl Iterator<Item = (i64, &Bytes)> {
        self.changes.iter().filter_map(|(key, change)| match change {
            Change::Put { lease, .. } if *lease != 0 => Some((*lease, key)),
            Change::Put { .. } | Change::Delete => None,
        })
    }

    /// The engine's transaction. In [`Mode::Shared`] it requires that what was read is unchanged.
    pub(crate) fn transaction(&self, mode: Mode) -> Transaction {
        let mut transaction = Transaction::new();
        if mode == Mode::Shared {
            for (key, read) in &self.reads {
                transaction = transaction.require(match read {
                    Some(record) => {
                        Condition::ModRevision { key: key.clone(), revision: record.mod_revision }
                    }
                    None => Condition::Absent(key.clone()),
                });
            }
        }
        for (key, change) in &self.changes {
            transaction = match change {
                Change::Put { value, lease } => transaction.put(owned(key), encode(value, *lease)),
                Change::Delete => transaction.delete(owned(key)),
            };
            if let Some(Some(record)) = self.reads.get(key) {
                transaction = transaction.having_read(record.clone());
            }
        }
        transaction
    }

    /// The response of a transaction that took effect after revision `base`, with this revision in its
    /// header.
    pub(crate) fn respond(mut self, base: i64, revision: i64) -> Answer<TxnResponse> {
        shift_revisions(&mut self.response, base - self.base);
        self.response.header = Some(ResponseHeader { revision, ..ResponseHeader::default() });
        Answer { message: self.response, held: self.held }
    }
}

/// Adds to the revisions in the headers of operations. Those of nested transactions have none.
fn shift_revisions(response: &mut TxnResponse, by: i64) {
    for operation in &mut response.responses {
        let header = match &mut operation.response {
            Some(Response::Range(response)) => &mut response.header,
            Some(Response::Put(response)) => &mut response.header,
            Some(Response::DeleteRange(response)) => &mut response.header,
            Some(Response::Txn(response)) => {
                shift_revisions(response, by);
                continue;
            }
            None => continue,
        };
        if let Some(header) = header {
            header.revision += by;
        }
    }
}

/// Evaluates a transaction that passed [`crate::txn::check::txn`]. `has_lease` is whether a lease exists.
pub(crate) fn evaluate(
    request: &TxnRequest,
    view: View<'_>,
    mode: Mode,
    has_lease: &dyn Fn(i64) -> bool,
    held: Reservation,
) -> Result<Evaluated, Stop> {
    let base = match &view {
        View::Memory(engine) => to_etcd(engine.current_revision()),
        View::Snapshot(snapshot, ..) => to_etcd(snapshot.revision()),
    };
    let mut evaluation = Evaluation {
        view,
        mode,
        has_lease,
        base,
        reads: HashMap::new(),
        changes: Vec::new(),
        ranges: Vec::new(),
        reads_changes: false,
        overlay: Overlay::new(),
        held,
    };
    // All conditions, those of nested transactions too, are about the state before the transaction.
    let branches = evaluation.branches(request)?;
    let response = evaluation.execute(request, &mut branches.into_iter())?;
    let Evaluation { reads, changes, ranges, reads_changes, held, .. } = evaluation;
    Ok(Evaluated { response, base, reads, changes, ranges, reads_changes, held })
}

struct Evaluation<'a> {
    view: View<'a>,
    mode: Mode,
    has_lease: &'a dyn Fn(i64) -> bool,
    base: i64,
    reads: HashMap<Bytes, Option<Record>>,
    changes: Vec<(Bytes, Change)>,
    ranges: Vec<KeyRange>,
    reads_changes: bool,
    /// The changes as later operations see them; of each changed key at least that it was changed.
    overlay: Overlay,
    held: Reservation,
}

impl Evaluation<'_> {
    /// The revision after the changes so far.
    fn revision(&self) -> i64 {
        self.base + i64::from(!self.changes.is_empty())
    }

    fn header(&self, revision: i64) -> Option<ResponseHeader> {
        Some(ResponseHeader { revision, ..ResponseHeader::default() })
    }

    /// Which branches are taken: of this transaction, then of the nested ones in the branch, in order.
    fn branches(&mut self, request: &TxnRequest) -> Result<Vec<bool>, Stop> {
        let mut succeeded = true;
        for compare in &request.compare {
            if !self.compare(compare)? {
                succeeded = false;
                break;
            }
        }
        let mut branches = vec![succeeded];
        for operation in chosen(request, succeeded) {
            if let Some(Request::Txn(nested)) = &operation.request {
                branches.extend(self.branches(nested)?);
            }
        }
        Ok(branches)
    }

    fn compare(&mut self, condition: &Compare) -> Result<bool, Stop> {
        match Keys::of(&condition.key, &condition.range_end) {
            Keys::One(key) => {
                let found = self.read(&key)?.map(|record| key_value(&record));
                Ok(compare::holds(condition, found.as_ref()))
            }
            Keys::Range(range) => {
                let (snapshot, _) = exclusive_snapshot(&self.view, self.mode)?;
                self.ranges.push(range.clone());
                let mut range = snapshot.range(&range);
                Ok(compare::holds_for_all(condition, |visit| {
                    while let Some(entry) = range.next().map_err(|error| errors::from_engine(&error))? {
                        if !visit(&entry_key_value(&entry, true)) {
                            break;
                        }
                    }
                    Ok(())
                })?)
            }
        }
    }

    /// The state of a key before the transaction.
    fn read(&mut self, key: &Bytes) -> Result<Option<Record>, Stop> {
        if let Some(read) = self.reads.get(key) {
            return Ok(read.clone());
        }
        let failed = |error| Stop::Refused(errors::from_engine(&error));
        let record = match &self.view {
            View::Memory(engine) => match engine.get_in_memory(key).map_err(failed)? {
                InMemory::Known(record) => record,
                InMemory::Unknown => return Err(Stop::Snapshot),
            },
            View::Snapshot(snapshot, ..) => snapshot.get(key).map_err(failed)?,
        };
        self.reads.insert(key.clone(), record.clone());
        Ok(record)
    }

    fn execute(
        &mut self,
        request: &TxnRequest,
        branches: &mut dyn Iterator<Item = bool>,
    ) -> Result<TxnResponse, Stop> {
        let succeeded = branches.next().unwrap_or(false);
        let mut responses = Vec::new();
        for operation in chosen(request, succeeded) {
            let response = match &operation.request {
                Some(Request::Range(request)) => Response::Range(self.range(request)?),
                Some(Request::Put(request)) => Response::Put(self.put(request)?),
                Some(Request::DeleteRange(request)) => Response::DeleteRange(self.delete(request)?),
                Some(Request::Txn(request)) => Response::Txn(self.execute(request, branches)?),
                None => return Err(Stop::Refused(errors::key_not_found())),
            };
            responses.push(ResponseOp { response: Some(response) });
        }
        // Only the outermost header gets a revision.
        Ok(TxnResponse { header: Some(ResponseHeader::default()), succeeded, responses })
    }

    fn range(&mut self, request: &RangeRequest) -> Result<RangeResponse, Stop> {
        if !self.changes.is_empty() && self.mode == Mode::Shared {
            return Err(Stop::Exclusive);
        }
        let current = self.revision();
        if request.revision != 0 {
            let View::Snapshot(_, counts, older) = &self.view else { return Err(Stop::Snapshot) };
            let snapshot = older(request.revision)?;
            let state = RangeView { snapshot: &snapshot, counts, overlay: &Overlay::new() };
            return Ok(range::execute(&state, request, current, &mut self.held)?);
        }
        match Keys::of(&request.key, &request.range_end) {
            Keys::One(key) if !self.overlay.contains_key(&key) => {
                let found = self.read(&key)?.map(|record| key_value(&record));
                Ok(range::of_one(request, found, current, &mut self.held)?)
            }
            keys => {
                let (snapshot, counts) = exclusive_snapshot(&self.view, self.mode)?;
                self.ranges.push(keys.to_range());
                self.reads_changes |= !self.changes.is_empty();
                let state = RangeView { snapshot, counts, overlay: &self.overlay };
                Ok(range::execute(&state, request, current, &mut self.held)?)
            }
        }
    }

    fn put(&mut self, request: &PutRequest) -> Result<PutResponse, Stop> {
        if request.lease != 0 && !(self.has_lease)(request.lease) {
            return Err(Stop::Refused(errors::lease_not_found()));
        }
        let keeps = request.ignore_value || request.ignore_lease;
        // Later operations of an exclusive transaction may read the key: its new state needs the old one.
        let previous = match keeps || request.prev_kv || self.mode == Mode::Exclusive {
            true => self.read(&request.key)?,
            false => None,
        };
        let (mut value, mut lease) = (request.value.clone(), request.lease);
        match &previous {
            Some(previous) => {
                if request.ignore_value {
                    value = value_of(&previous.value);
                }
                if request.ignore_lease {
                    lease = lease_of(&previous.value);
                }
            }
            None if keeps => return Err(Stop::Refused(errors::key_not_found())),
            None => {}
        }
        let revision = self.base + 1;
        let previous = previous.map(|previous| key_value(&previous));
        let new = KeyValue {
            key: request.key.clone(),
            create_revision: previous.as_ref().map_or(revision, |previous| previous.create_revision),
            mod_revision: revision,
            version: previous.as_ref().map_or(0, |previous| previous.version) + 1,
            value: value.clone(),
            lease,
        };
        self.change(request.key.clone(), Change::Put { value, lease }, Some(new))?;
        Ok(PutResponse { header: self.header(revision), prev_kv: previous.filter(|_| request.prev_kv) })
    }

    fn delete(&mut self, request: &DeleteRangeRequest) -> Result<DeleteRangeResponse, Stop> {
        let keys = Keys::of(&request.key, &request.range_end);
        // What was put is refused beforehand, except between two nested transactions: a key changes once in
        // one revision.
        if self.overlay.iter().any(|(key, new)| new.is_some() && keys.contains(key)) {
            return Err(Stop::Refused(errors::duplicate_key()));
        }
        let deleted: Vec<KeyValue> = match keys {
            Keys::One(key) if self.overlay.contains_key(&key) => Vec::new(),
            Keys::One(key) => self.read(&key)?.iter().map(key_value).collect(),
            Keys::Range(range) => {
                let mut deleted = Vec::new();
                self.ranges.push(range.clone());
                let (snapshot, _) = exclusive_snapshot(&self.view, self.mode)?;
                let mut range = snapshot.range(&range);
                while let Some(entry) = range.next().map_err(|error| errors::from_engine(&error))? {
                    if !self.overlay.contains_key(entry.key) {
                        let kv = entry_key_value(&entry, request.prev_kv);
                        if request.prev_kv {
                            self.held.add(&kv)?;
                        }
                        deleted.push(kv);
                    }
                }
                deleted
            }
        };
        for kv in &deleted {
            self.change(kv.key.clone(), Change::Delete, None)?;
        }
        Ok(DeleteRangeResponse {
            header: self.header(self.revision()),
            deleted: i64::try_from(deleted.len()).unwrap_or(i64::MAX),
            prev_kvs: if request.prev_kv { deleted } else { Vec::new() },
        })
    }

    fn change(&mut self, key: Bytes, change: Change, new: Option<KeyValue>) -> Result<(), Stop> {
        if self.overlay.insert(key.clone(), new).is_some() {
            return Err(Stop::Refused(errors::duplicate_key()));
        }
        self.changes.push((key, change));
        Ok(())
    }
}

/// The snapshot of a view that nothing is written beside.
fn exclusive_snapshot<'a>(view: &View<'a>, mode: Mode) -> Result<(&'a Snapshot, &'a KeyCounts), Stop> {
    match (view, mode) {
        (_, Mode::Shared) => Err(Stop::Exclusive),
        (View::Memory(_), Mode::Exclusive) => Err(Stop::Snapshot),
        (View::Snapshot(snapshot, counts, _), Mode::Exclusive) => Ok((snapshot, counts)),
    }
}

fn chosen(request: &TxnRequest, succeeded: bool) -> &[RequestOp] {
    match succeeded {
        true => &request.success,
        false => &request.failure,
    }
}
