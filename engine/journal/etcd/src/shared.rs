//! What a journal shares with its readers: its keys in etcd, their revisions, and the calls on them.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use plinth_etcd_wire::kv::{
    compare, compare_target, request_op, response_op, CompactionRequest, Compare, KeyValue, PutRequest,
    RangeRequest, RequestOp, TxnRequest, TxnResponse,
};
use plinth_etcd_wire::watch::WatchCreateRequest;
use plinth_journal::record::ClusterId;
use plinth_journal::{Error, Founding, Position, Result, LAG};

use crate::call_error::CallError;
use crate::client::{Client, Watch};
use crate::options::EtcdOptions;

/// What the marker holds before the cluster.
const MARKER: &str = "plinth journal, format 1, cluster ";
/// Pause between two compactions.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for etcd to report what it has compacted.
const OLDEST_WAIT: Duration = Duration::from_secs(2);
/// Bounds of [`Shared::patience`], in milliseconds: it is doubled from the first to the last.
const LEAST_PATIENCE: u64 = LAG.as_millis() as u64;
const MOST_PATIENCE: u64 = 64_000;

/// What the journal shares with its readers.
pub(crate) struct Shared {
    pub client: Client,
    cluster: ClusterId,
    pub founding: Founding,
    pub marker: Bytes,
    pub log: Bytes,
    pub max_record_bytes: usize,
    /// None until etcd was found to hold this journal. Held while that is found out.
    pub known: Mutex<Option<KeyRevisions>>,
    /// It was known once: it is founded no more, and its records are below this key, by create revision,
    /// where there were any.
    pub was_known: AtomicBool,
    pub log_created: AtomicI64,
    /// The newest position that was read or answered: no member that has all records ends before it.
    highest: AtomicU64,
    /// The revision of a position that was read lately.
    recent: Mutex<Option<(Position, i64)>>,
    /// When the journal was last trimmed.
    trimmed: Mutex<Option<Instant>>,
    /// Milliseconds that a member is given for a record that is known to be there, before another one is
    /// read.
    patience: AtomicU64,
}

/// The revisions that created the journal's keys. A journal of the same name in a new etcd may have the same
/// ones, so the cluster that the marker names is compared beside them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyRevisions {
    pub marker: i64,
    /// Zero before the first record.
    pub log: i64,
}

/// The newest record as a member has it, without its bytes, and a revision that is not below it.
pub(crate) struct Newest {
    log: Option<KeyValue>,
    revision: i64,
    member: usize,
}

/// What a member has otherwise than it was.
enum Doubt {
    /// The keys were deleted or created again.
    Replaced,
    /// The key that names the cluster is not as it has to be.
    Unmarked,
    /// It ends before what was read already.
    Behind(Newest),
}

pub(crate) enum AppendError {
    /// Nothing was appended.
    Journal(Error),
    Call(CallError),
}

impl Shared {
    pub(crate) fn new(options: &EtcdOptions, cluster: ClusterId, founding: Founding) -> Result<Shared> {
        Ok(Shared {
            client: Client::new(options)?,
            cluster,
            founding,
            marker: format!("{}/journal", options.prefix).into(),
            log: format!("{}/log", options.prefix).into(),
            max_record_bytes: options.max_record_bytes,
            known: Mutex::new(None),
            was_known: AtomicBool::new(false),
            log_created: AtomicI64::new(0),
            highest: AtomicU64::new(0),
            recent: Mutex::new(None),
            trimmed: Mutex::new(None),
            patience: AtomicU64::new(LEAST_PATIENCE),
        })
    }

    /// How long a member may take for a record that is known to be there.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_millis(self.patience.load(Ordering::Relaxed))
    }

    /// A member was left because it took longer: where the path is slow, each does.
    pub(crate) fn be_patient(&self) {
        let longer = (self.patience.load(Ordering::Relaxed) * 2).min(MOST_PATIENCE);
        self.patience.store(longer, Ordering::Relaxed);
    }

    /// A record came.
    pub(crate) fn reset_patience(&self) {
        self.patience.store(LEAST_PATIENCE, Ordering::Relaxed);
    }

    pub(crate) fn append(&self, record: &Bytes) -> Result<Position, AppendError> {
        let put = PutRequest { key: self.log.clone(), value: record.clone(), ..PutRequest::default() };
        let mut known = self.known().map_err(AppendError::Journal)?;
        loop {
            let request = TxnRequest {
                compare: vec![
                    created(&self.marker, known.marker),
                    self.names_cluster(),
                    created(&self.log, known.log),
                ],
                success: vec![
                    RequestOp { request: Some(request_op::Request::Put(put.clone())) },
                    range(&self.log, true),
                ],
                failure: vec![range(&self.log, true), range(&self.marker, false)],
            };
            let (response, member) = self.client.txn(&request).map_err(AppendError::Call)?;
            let log = range_of(&response, usize::from(response.succeeded)).cloned();
            if response.succeeded {
                // It is in the log. Without a position, where is known to etcd alone.
                let unknown = |message| AppendError::Call(CallError::Unknown(message));
                let log = log.ok_or_else(|| unknown("etcd did not return the version".to_owned()))?;
                let position = self.position_of(&log).map_err(|error| unknown(error.to_string()))?;
                self.expect(position);
                return Ok(position);
            }
            // Nothing was put there. The first record of all may be another replica's.
            let is_marked = range_of(&response, 1).is_some_and(|marker| self.is_marker(marker, known));
            let log_created = log.as_ref().map_or(0, |log| log.create_revision);
            match log {
                Some(log) if known.log == 0 && is_marked => {
                    known = self.learn(&log).map_err(AppendError::Journal)?;
                }
                _ if known.log == 0 || log_created == known.log => {
                    return Err(self.not_put(known, member, Doubt::Unmarked));
                }
                _ => return Err(self.not_put(known, member, Doubt::Replaced)),
            }
        }
    }

    /// The outcome of an append that a member has not made, as the journal is another one there. Each member
    /// compares what it has itself: where others have it as it was, they have made the append.
    fn not_put(&self, known: KeyRevisions, member: usize, doubt: Doubt) -> AppendError {
        let mut doubts = vec![(member, doubt)];
        for other in self.client.in_turn().filter(|other| *other != member) {
            match self.inspect(other, known) {
                Ok(Ok(_)) => {
                    self.client.prefer(other);
                    let message = format!(
                        "{} has another journal than {}, and has not made the append",
                        self.client.address(member),
                        self.client.address(other)
                    );
                    return AppendError::Call(CallError::Unknown(message));
                }
                Ok(Err(doubt)) => doubts.push((other, doubt)),
                // Too few may be left.
                Err(_) => {}
            }
        }
        match self.decide(doubts) {
            Ok(Doubt::Replaced) => AppendError::Journal(self.replaced()),
            Ok(Doubt::Unmarked) => AppendError::Journal(self.unmarked()),
            Ok(Doubt::Behind(_)) => {
                AppendError::Call(CallError::Unknown("the journal ends earlier".to_owned()))
            }
            Err(message) => AppendError::Call(CallError::Unknown(message)),
        }
    }

    /// What most members doubt, in the same way, or all of them.
    fn decide(&self, doubts: Vec<(usize, Doubt)>) -> Result<Doubt, String> {
        let members = self.client.members();
        let addresses: Vec<&str> = doubts.iter().map(|(member, _)| self.client.address(*member)).collect();
        let message =
            format!("the journal is another one at {}, and not at most members", addresses.join(", "));
        let of_kind = |kind: &Doubt| {
            doubts
                .iter()
                .filter(|(_, doubt)| std::mem::discriminant(doubt) == std::mem::discriminant(kind))
                .count()
        };
        let is_decided = |kind: &Doubt| of_kind(kind) * 2 > members || doubts.len() == members;
        let at = doubts.iter().position(|(_, doubt)| is_decided(doubt));
        at.and_then(|at| doubts.into_iter().nth(at)).map(|(_, doubt)| doubt).ok_or(message)
    }

    /// The position of the newest record.
    pub(crate) fn end(&self) -> Result<Position> {
        self.newest()?.log.map_or(Ok(Position::ZERO), |log| position(&log))
    }

    /// The newest record, of a member that has the journal as it was. What only some have otherwise they have
    /// damaged, or lost.
    fn newest(&self) -> Result<Newest> {
        let known = self.known()?;
        let mut doubts = Vec::new();
        for member in self.client.in_turn() {
            match self.inspect(member, known) {
                Ok(Ok(newest)) => {
                    if !doubts.is_empty() {
                        self.client.prefer(member);
                    }
                    if let Some(log) = &newest.log {
                        self.learn(log)?;
                    }
                    return Ok(newest);
                }
                Ok(Err(doubt)) => doubts.push((member, doubt)),
                Err(error) if doubts.is_empty() => return Err(error.of_reading()),
                Err(_) => {}
            }
        }
        match self.decide(doubts) {
            Ok(Doubt::Replaced) => Err(self.replaced()),
            Ok(Doubt::Unmarked) => Err(self.unmarked()),
            Ok(Doubt::Behind(newest)) => Ok(newest),
            Err(message) => Err(Error::Unavailable { message }),
        }
    }

    /// The newest record of a member, or what it has otherwise than it was.
    fn inspect(&self, member: usize, known: KeyRevisions) -> Result<Result<Newest, Doubt>, CallError> {
        let highest = self.highest.load(Ordering::Relaxed);
        // Of one revision. The marker says that it is this journal still.
        let success = vec![range(&self.log, true), range(&self.marker, false)];
        let response = self.client.txn_at(member, &TxnRequest { success, ..TxnRequest::default() })?;
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        let log = range_of(&response, 0);
        let is_other = match log {
            Some(log) => known.log != 0 && log.create_revision != known.log,
            None => known.log != 0,
        };
        if is_other {
            return Ok(Err(Doubt::Replaced));
        }
        if !range_of(&response, 1).is_some_and(|marker| self.is_marker(marker, known)) {
            return Ok(Err(Doubt::Unmarked));
        }
        let end = log.map_or(0, |log| u64::try_from(log.version).unwrap_or(0));
        let newest = Newest { log: log.cloned(), revision, member };
        Ok(if end < highest { Err(Doubt::Behind(newest)) } else { Ok(newest) })
    }

    /// The error of a reader whose member has the keys otherwise than they were.
    pub(crate) fn doubted(&self, member: usize) -> Error {
        match self.newest() {
            Ok(_) => {
                self.client.leave(member);
                let message = format!("{} has another journal than the others", self.client.address(member));
                Error::Unavailable { message }
            }
            Err(error) => error,
        }
    }

    /// Checks that the key of the records is the one that it was, and notes which one that is.
    fn learn(&self, log: &KeyValue) -> Result<KeyRevisions> {
        let mut known = self.known.lock();
        match &mut *known {
            Some(known) if known.log == 0 || known.log == log.create_revision => {
                known.log = log.create_revision;
                self.log_created.store(known.log, Ordering::Relaxed);
                Ok(*known)
            }
            Some(_) => Err(self.replaced()),
            None => Err(Error::Unavailable { message: "the journal is looked for in etcd".to_owned() }),
        }
    }

    /// The position of a record that a reader has got.
    pub(crate) fn position_of(&self, log: &KeyValue) -> Result<Position> {
        self.learn(log)?;
        position(log)
    }

    /// Notes the revision of a position, for the next read.
    pub(crate) fn note(&self, position: Position, revision: i64) {
        self.expect(position);
        *self.recent.lock() = Some((position, revision));
    }

    /// Notes that the journal has a record at a position.
    pub(crate) fn expect(&self, position: Position) {
        self.highest.fetch_max(position.get(), Ordering::Relaxed);
    }

    pub(crate) fn replaced(&self) -> Error {
        let marker = String::from_utf8_lossy(&self.marker);
        let message = format!(
            "the keys beside {marker:?} were deleted or created again since this replica has used them; \
             start the replicas from a checkpoint on an empty prefix"
        );
        Error::Refused { message }
    }

    /// The error of a marker that is not the one that it was. What it is now, the next call finds out: it may
    /// have been put back, or be that of another cluster.
    fn unmarked(&self) -> Error {
        *self.known.lock() = None;
        let (place, value) = (String::from_utf8_lossy(&self.marker), self.marker_value());
        let message = format!(
            "the key {place:?} in etcd, which names the journal's cluster, was removed or put again; it has to \
             be {value:?}"
        );
        Error::Denied { message }
    }

    /// A revision from which on a watch returns `from` and what follows.
    pub(crate) fn start_revision(&self, from: Position) -> Result<i64> {
        self.known()?;
        // Once: where it does not lead there, it is searched for.
        match self.recent.lock().take() {
            Some((position, revision)) if position == from => return Ok(revision),
            Some((position, revision)) if position.next() == from => return Ok(revision.saturating_add(1)),
            _ => {}
        }
        let Newest { log, revision, member } = self.newest()?;
        match log {
            Some(newest) if position(&newest)? >= from => self.revision_of(from, &newest, member),
            _ => Ok(revision.saturating_add(1)),
        }
    }

    /// The revision of a position up to the newest one.
    ///
    /// Each record takes a revision, other keys take few: the distance to the newest record is the guess, and
    /// halving the rest helps where that is wrong.
    fn revision_of(&self, wanted: Position, newest: &KeyValue, member: usize) -> Result<i64> {
        let version = i64::try_from(wanted.get()).unwrap_or(i64::MAX);
        let mut lowest = newest.create_revision.saturating_add(version - 1);
        let mut highest = newest.mod_revision.saturating_sub(newest.version - version);
        let mut is_guess = true;
        while lowest <= highest {
            let probe = if is_guess { highest } else { lowest + (highest - lowest) / 2 };
            match self.at_revision(member, probe)? {
                Some(log) if log.version == version => return Ok(log.mod_revision),
                Some(log) if log.version > version => {
                    highest = log.mod_revision.saturating_sub(log.version - version);
                }
                Some(log) => lowest = probe.saturating_add(version - log.version),
                None if probe == highest => {
                    return Err(Error::Trimmed { requested: wanted, oldest: self.oldest()? });
                }
                None => lowest = probe + 1,
            }
            is_guess = !is_guess;
        }
        let message = format!("position {wanted} was not found among etcd's revisions");
        Err(Error::Unavailable { message })
    }

    /// The record that was the newest one at a revision, without its bytes; none when it is compacted.
    fn at_revision(&self, member: usize, revision: i64) -> Result<Option<KeyValue>> {
        let key = self.log.clone();
        let request = RangeRequest { key, revision, keys_only: true, ..RangeRequest::default() };
        match self.client.range_at(member, &request) {
            Ok(response) => Ok(Some(response.kvs.into_iter().next().unwrap_or_default())),
            Err(CallError::Compacted) => Ok(None),
            Err(error) => Err(error.of_reading()),
        }
    }

    /// A watch of the records from a revision on, its responses cut to the size of a request.
    pub(crate) fn watch(&self, start_revision: i64) -> Result<Watch> {
        let key = self.log.clone();
        let request =
            WatchCreateRequest { key, start_revision, fragment: true, ..WatchCreateRequest::default() };
        self.client.watch(request).map_err(CallError::of_reading)
    }

    /// The oldest position that can be read. etcd reports the compacted revision to a watch that begins
    /// before it.
    pub(crate) fn oldest(&self) -> Result<Position> {
        let mut watch = self.watch(1)?;
        let deadline = Instant::now() + OLDEST_WAIT;
        loop {
            let wait = deadline.saturating_duration_since(Instant::now());
            let message = self.client.next(&mut watch, wait).map_err(CallError::of_reading)?;
            match message {
                Some(message) if message.compact_revision > 0 => {
                    return self.oldest_after(watch.member, message.compact_revision);
                }
                Some(message) if message.events.is_empty() && !message.canceled => {}
                Some(message) if !message.canceled => return Ok(Position::new(1)),
                _ => {
                    let message = "etcd did not report what it has compacted".to_owned();
                    return Err(Error::Unavailable { message });
                }
            }
        }
    }

    fn oldest_after(&self, member: usize, compacted: i64) -> Result<Position> {
        let Some(log) = self.at_revision(member, compacted)? else {
            return Err(Error::Unavailable { message: "etcd is compacted further meanwhile".to_owned() });
        };
        let position = position(&log)?;
        Ok(if log.mod_revision == compacted { position } else { position.next() })
    }

    pub(crate) fn trim(&self, before: Position) -> Result<()> {
        let is_due = |last: Instant| last.elapsed() >= TRIM_INTERVAL;
        if !self.trimmed.lock().is_none_or(is_due) {
            return Ok(());
        }
        let Newest { log: Some(newest), member, .. } = self.newest()? else { return Ok(()) };
        // The newest record stays: its version is the journal's end.
        let kept = before.min(position(&newest)?);
        let revision = match self.revision_of(kept, &newest, member) {
            Ok(revision) => revision,
            Err(Error::Trimmed { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        *self.trimmed.lock() = Some(Instant::now());
        // etcd keeps what was the newest version at the revision that it compacts at.
        match self.client.compact_at(member, &CompactionRequest { revision, physical: false }) {
            Ok(_) | Err(CallError::Compacted) => Ok(()),
            Err(CallError::Denied(message)) => {
                let message = format!("compacting etcd needs a user with the role root: {message}");
                Err(Error::Refused { message })
            }
            Err(error) => Err(error.of_reading()),
        }
    }

    /// A condition: the marker names this cluster.
    fn names_cluster(&self) -> Compare {
        let operand = Some(compare::Operand::Value(self.marker_value().into()));
        Compare { target: compare_target::VALUE, key: self.marker.clone(), operand, ..Compare::default() }
    }

    fn is_marker(&self, marker: &KeyValue, known: KeyRevisions) -> bool {
        marker.create_revision == known.marker && marker.value == self.marker_value()
    }

    pub(crate) fn marker_value(&self) -> String {
        format!("{MARKER}{}", self.cluster)
    }
}

/// The version of the key is the number of its puts.
fn position(log: &KeyValue) -> Result<Position> {
    match u64::try_from(log.version) {
        Ok(version) if version > 0 => Ok(Position::new(version)),
        _ => Err(Error::Unavailable { message: "etcd returned no version of the key".to_owned() }),
    }
}

/// A condition: the key was created at this revision; it does not exist for revision zero.
pub(crate) fn created(key: &Bytes, revision: i64) -> Compare {
    let operand = Some(compare::Operand::CreateRevision(revision));
    Compare { target: compare_target::CREATE, key: key.clone(), operand, ..Compare::default() }
}

pub(crate) fn range(key: &Bytes, keys_only: bool) -> RequestOp {
    let request = RangeRequest { key: key.clone(), keys_only, ..RangeRequest::default() };
    RequestOp { request: Some(request_op::Request::Range(request)) }
}

/// What the operation at `index` of a transaction has found.
pub(crate) fn range_of(response: &TxnResponse, index: usize) -> Option<&KeyValue> {
    match response.responses.get(index)?.response.as_ref()? {
        response_op::Response::Range(range) => range.kvs.first(),
        _ => None,
    }
}
