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
use plinth_journal::{Error, Founding, Position, Result, Review, Silence, LAG};

use crate::call_error::CallError;
use crate::client::{Client, Watch};
use crate::member_state::{position, Doubt, Newest};
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
    /// Keeps whoever looks for it from doing so one after the other.
    pub silence: Silence,
    /// It was known once: it is founded no more, and its records are below this key, by create revision,
    /// where there were any.
    pub was_known: AtomicBool,
    /// What the members have reported of it.
    pub review: Review,
    pub log_created: AtomicI64,
    /// The newest position that was read or answered: no member that has all records ends before it, unless
    /// the one that named it counts otherwise than most.
    pub highest: AtomicU64,
    /// The revision of a position that was read lately.
    pub recent: Mutex<Option<(Position, i64)>>,
    /// When the journal was last trimmed.
    trimmed: Mutex<Option<Instant>>,
    /// Milliseconds that a member is given for a record that is known to be there, before another one is
    /// read.
    patience: AtomicU64,
}

/// The revisions that created the journal's keys. A journal of the same name in a new etcd may have the same
/// ones, so the cluster that the marker names is compared beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyRevisions {
    pub marker: i64,
    /// Zero before the first record.
    pub log: i64,
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
            silence: Silence::default(),
            was_known: AtomicBool::new(false),
            review: Review::default(),
            log_created: AtomicI64::new(0),
            highest: AtomicU64::new(0),
            recent: Mutex::new(None),
            trimmed: Mutex::new(None),
            patience: AtomicU64::new(LEAST_PATIENCE),
        })
    }

    /// Gives up what was found, by whoever holds it: the next call looks for the journal again. What was
    /// noted of its revisions leads nowhere in another one.
    pub(crate) fn give_up(&self, known: &mut Option<KeyRevisions>) {
        self.review.give_up();
        *known = None;
        *self.recent.lock() = None;
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

    /// Waits for the next answers as long as at first, since a record has arrived.
    pub(crate) fn reset_patience(&self) {
        self.patience.store(LEAST_PATIENCE, Ordering::Relaxed);
    }

    /// Appends a record at a member, or at another one where that takes no record of this size: its limit may
    /// be lower than that of the others.
    pub(crate) fn append(&self, record: &Bytes) -> Result<Position, AppendError> {
        let size = record.len();
        let (mut is_too_large, mut failed) = (false, None);
        let in_turn = self.client.in_turn_for(size);
        for member in in_turn.members {
            // One that stands still would leave the outcome unknown.
            if is_too_large && self.client.is_silent(member) {
                continue;
            }
            match self.append_at(member, record) {
                Err(AppendError::Call(CallError::TooLarge)) => {
                    self.client.takes_less(member, size);
                    is_too_large = true;
                }
                Err(AppendError::Call(error @ (CallError::NotMade(_) | CallError::Unusable(_))))
                    if is_too_large || in_turn.is_large =>
                {
                    failed = Some(error);
                }
                Ok(position) => {
                    self.client.takes(member, size);
                    return Ok(position);
                }
                error => return error,
            }
        }
        Err(AppendError::Call(failed.filter(|_| !is_too_large).unwrap_or(CallError::TooLarge)))
    }

    fn append_at(&self, member: usize, record: &Bytes) -> Result<Position, AppendError> {
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
            let response = self.client.txn_at(member, &request).map_err(AppendError::Call)?;
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

    /// The position of the newest record.
    pub(crate) fn end(&self) -> Result<Position> {
        self.newest()?.position()
    }

    /// Checks that the key of the records is the one that it was, and notes which one that is.
    pub(crate) fn learn(&self, log: &KeyValue) -> Result<KeyRevisions> {
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

    /// A watch that returns `from` and what follows.
    pub(crate) fn watch_from(&self, from: Position) -> Result<Watch> {
        self.known()?;
        // Once: where it does not lead there, it is searched for.
        let recent = match self.recent.lock().take() {
            Some((position, revision)) if position == from => Some(revision),
            Some((position, revision)) if position.next() == from => Some(revision.saturating_add(1)),
            _ => None,
        };
        if let Some(revision) = recent {
            return self.watch(self.client.current(), revision);
        }
        let Newest { log, revision, member } = self.newest()?;
        let revision = match log {
            Some(newest) if position(&newest)? >= from => self.revision_of(from, &newest, member)?,
            _ => revision.saturating_add(1),
        };
        self.watch(member, revision)
    }

    /// The revision of a position up to the newest one.
    ///
    /// Each record takes a revision, other keys take few: the distance to the newest record is the guess, and
    /// halving the rest helps where that is wrong.
    pub(crate) fn revision_of(&self, wanted: Position, newest: &KeyValue, member: usize) -> Result<i64> {
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

    /// A watch of the records from a revision of a member on, its responses cut to the size of a request.
    fn watch(&self, member: usize, start_revision: i64) -> Result<Watch> {
        let key = self.log.clone();
        let request =
            WatchCreateRequest { key, start_revision, fragment: true, ..WatchCreateRequest::default() };
        self.client.watch(member, request).map_err(CallError::of_reading)
    }

    /// The oldest position that can be read. etcd reports the compacted revision to a watch that begins
    /// before it.
    pub(crate) fn oldest(&self) -> Result<Position> {
        let mut watch = self.watch(self.client.current(), 1)?;
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
        let given_up = self.review.given_up();
        if self.known.lock().is_none() {
            // Which one it is then, nobody has compared.
            return Err(Error::Unavailable { message: "the journal is looked for in etcd".to_owned() });
        }
        let reached = self.highest.load(Ordering::Relaxed);
        let newest = self.newest()?;
        if newest.end() < reached {
            // It was put back to an old copy, whose records at these positions may be others.
            let message = format!("etcd has no record at position {reached}, which was there");
            return Err(Error::Unavailable { message });
        }
        let Newest { log: Some(newest), member, .. } = newest else { return Ok(()) };
        // The newest record stays: its version is the journal's end.
        let kept = before.min(position(&newest)?);
        let revision = match self.revision_of(kept, &newest, member) {
            Ok(revision) => revision,
            Err(Error::Trimmed { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        // The revision is one of the journal that was found at first.
        self.review.outcome(given_up, Ok(()))?;
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

    pub(crate) fn is_marker(&self, marker: &KeyValue, known: KeyRevisions) -> bool {
        marker.create_revision == known.marker && marker.value == self.marker_value()
    }

    pub(crate) fn marker_value(&self) -> String {
        format!("{MARKER}{}", self.cluster)
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
