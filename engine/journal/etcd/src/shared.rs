//! What a journal shares with its readers: its keys in etcd, their revisions, and the calls on them.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use plinth_etcd_wire::kv::{
    compare, compare_target, request_op, response_op, CompactionRequest, Compare, KeyValue, PutRequest,
    RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse,
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
/// The oldest etcd that can cut the responses of a watch.
const OLDEST_ETCD: (u32, u32) = (3, 4);

/// What the journal shares with its readers.
pub(crate) struct Shared {
    pub client: Client,
    cluster: ClusterId,
    founding: Founding,
    marker: Bytes,
    log: Bytes,
    pub max_record_bytes: usize,
    /// None until etcd was found to hold this journal. Held while that is found out.
    known: Mutex<Option<KeyRevisions>>,
    /// It was known once: it is founded no more, and its records are below this key, by create revision,
    /// where there were any.
    was_known: AtomicBool,
    log_created: AtomicI64,
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
    marker: i64,
    /// Zero before the first record.
    log: i64,
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
            let response = self.client.txn(&request).map_err(AppendError::Call)?;
            let log = range_of(&response, usize::from(response.succeeded)).cloned();
            if response.succeeded {
                // It is in the log. Without a position, where is known to etcd alone.
                let unknown = |message| AppendError::Call(CallError::Unknown(message));
                let log = log.ok_or_else(|| unknown("etcd did not return the version".to_owned()))?;
                return self.position_of(&log).map_err(|error| unknown(error.to_string()));
            }
            // Nothing was put. The first record of all may be another replica's.
            let is_marked = range_of(&response, 1).is_some_and(|marker| self.is_marker(marker, known));
            let log_created = log.as_ref().map_or(0, |log| log.create_revision);
            match log {
                Some(log) if known.log == 0 && is_marked => {
                    known = self.learn(&log).map_err(AppendError::Journal)?;
                }
                _ if log_created == known.log => return Err(AppendError::Journal(self.unmarked())),
                _ => return Err(AppendError::Journal(self.replaced())),
            }
        }
    }

    /// The position of the newest record.
    pub(crate) fn end(&self) -> Result<Position> {
        self.newest()?.0.map_or(Ok(Position::ZERO), |log| position(&log))
    }

    /// The newest record, without its bytes, and a revision that is not below it.
    fn newest(&self) -> Result<(Option<KeyValue>, i64)> {
        let known = self.known()?;
        // Of one revision. The marker says that it is this journal still.
        let success = vec![range(&self.log, true), range(&self.marker, false)];
        let request = TxnRequest { success, ..TxnRequest::default() };
        let response = self.client.txn(&request).map_err(CallError::of_reading)?;
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        let log = range_of(&response, 0);
        if log.is_none() && known.log != 0 {
            return Err(self.replaced());
        }
        if !range_of(&response, 1).is_some_and(|marker| self.is_marker(marker, known)) {
            return Err(self.unmarked());
        }
        match log {
            Some(log) => {
                self.learn(log)?;
                Ok((Some(log.clone()), revision))
            }
            None => Ok((None, revision)),
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
            _ => Err(self.replaced()),
        }
    }

    /// The position of a record that a reader has got.
    pub(crate) fn position_of(&self, log: &KeyValue) -> Result<Position> {
        self.learn(log)?;
        position(log)
    }

    /// Notes the revision of a position, for the next read.
    pub(crate) fn note(&self, position: Position, revision: i64) {
        *self.recent.lock() = Some((position, revision));
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
        let (newest, revision) = self.newest()?;
        match newest {
            Some(newest) if position(&newest)? >= from => self.revision_of(from, &newest),
            _ => Ok(revision.saturating_add(1)),
        }
    }

    /// The revision of a position up to the newest one.
    ///
    /// Each record takes a revision, other keys take few: the distance to the newest record is the guess, and
    /// halving the rest helps where that is wrong.
    fn revision_of(&self, wanted: Position, newest: &KeyValue) -> Result<i64> {
        let version = i64::try_from(wanted.get()).unwrap_or(i64::MAX);
        let mut lowest = newest.create_revision.saturating_add(version - 1);
        let mut highest = newest.mod_revision.saturating_sub(newest.version - version);
        let mut is_guess = true;
        while lowest <= highest {
            let probe = if is_guess { highest } else { lowest + (highest - lowest) / 2 };
            match self.at_revision(probe)? {
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
    fn at_revision(&self, revision: i64) -> Result<Option<KeyValue>> {
        let key = self.log.clone();
        let request = RangeRequest { key, revision, keys_only: true, ..RangeRequest::default() };
        match self.client.range(&request) {
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
                    return self.oldest_after(message.compact_revision);
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

    fn oldest_after(&self, compacted: i64) -> Result<Position> {
        let Some(log) = self.at_revision(compacted)? else {
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
        let (Some(newest), _) = self.newest()? else { return Ok(()) };
        // The newest record stays: its version is the journal's end.
        let kept = before.min(position(&newest)?);
        let revision = match self.revision_of(kept, &newest) {
            Ok(revision) => revision,
            Err(Error::Trimmed { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        *self.trimmed.lock() = Some(Instant::now());
        // etcd keeps what was the newest version at the revision that it compacts at.
        match self.client.compact(&CompactionRequest { revision, physical: false }) {
            Ok(_) | Err(CallError::Compacted) => Ok(()),
            Err(CallError::Denied(message)) => {
                let message = format!("compacting etcd needs a user with the role root: {message}");
                Err(Error::Refused { message })
            }
            Err(error) => Err(error.of_reading()),
        }
    }

    /// Which journal it is, found out by the first call that reaches etcd.
    pub(crate) fn known(&self) -> Result<KeyRevisions> {
        let mut known = self.known.lock();
        match *known {
            Some(known) => Ok(known),
            None => {
                let found = self.find()?;
                let before = self.log_created.load(Ordering::Relaxed);
                if before != 0 && before != found.log {
                    return Err(self.replaced());
                }
                self.log_created.store(found.log, Ordering::Relaxed);
                self.was_known.store(true, Ordering::Relaxed);
                Ok(*known.insert(found))
            }
        }
    }

    /// Looks at what etcd holds, and founds the journal where that is nothing and it is allowed.
    fn find(&self) -> Result<KeyRevisions> {
        self.check_version()?;
        self.check_keys()?;
        let founding = match self.was_known.load(Ordering::Relaxed) {
            true => Founding::Forbidden,
            false => self.founding,
        };
        let response = match founding {
            Founding::Forbidden => {
                let success = vec![range(&self.marker, false), range(&self.log, true)];
                let request = TxnRequest { success, ..TxnRequest::default() };
                self.client.txn(&request).map_err(CallError::of_reading)?
            }
            Founding::Allowed => {
                let response = self.found()?;
                if response.succeeded {
                    let marker = response.header.map_or(0, |header| header.revision);
                    return Ok(KeyRevisions { marker, log: 0 });
                }
                response
            }
        };
        let place = String::from_utf8_lossy(&self.marker);
        let log = range_of(&response, 1);
        let Some(marker) = range_of(&response, 0) else {
            if log.is_none() && founding == Founding::Allowed {
                // Another journal was founded at the same time at another place.
                self.check_keys()?;
                return Err(Error::Unavailable { message: "a key of etcd came and went".to_owned() });
            }
            if log.is_some() {
                let message = format!(
                    "there are records in etcd, but the key {place:?}, which names their cluster, is absent; \
                     if they are this cluster's, put it back with the value {:?}",
                    self.marker_value()
                );
                return Err(Error::Denied { message });
            }
            let message = format!(
                "the key {place:?} is absent in etcd: the journal that this replica has applied is not there; use \
                 the etcd that holds it. Where its data is lost, make a backup of the replica that is \
                 furthest, and restore it. Nothing was written"
            );
            return Err(Error::Refused { message });
        };
        let expected = self.marker_value();
        let found = String::from_utf8_lossy(&marker.value);
        if found != expected {
            let found: String = found.chars().take(100).collect();
            let message = format!(
                "the key {place:?} in etcd has {found:?} in place of {expected:?}: it is another cluster's, \
                 or of a later version; use another etcd, or join that cluster in an empty data directory. \
                 Nothing was written"
            );
            return Err(Error::Refused { message });
        }
        Ok(KeyRevisions { marker: marker.create_revision, log: log.map_or(0, |log| log.create_revision) })
    }

    /// A condition: the marker names this cluster.
    fn names_cluster(&self) -> Compare {
        let operand = Some(compare::Operand::Value(self.marker_value().into()));
        Compare { target: compare_target::VALUE, key: self.marker.clone(), operand, ..Compare::default() }
    }

    fn is_marker(&self, marker: &KeyValue, known: KeyRevisions) -> bool {
        marker.create_revision == known.marker && marker.value == self.marker_value()
    }

    fn marker_value(&self) -> String {
        format!("{MARKER}{}", self.cluster)
    }

    /// Puts the marker if etcd holds no key at all: of all clusters that do so at once, at this place or at
    /// others, one does. A user who may not see all keys goes by those of this place.
    fn found(&self) -> Result<TxnResponse> {
        let put = PutRequest {
            key: self.marker.clone(),
            value: self.marker_value().into(),
            ..PutRequest::default()
        };
        let all = Bytes::from_static(b"\0");
        let nothing = Compare { range_end: all.clone(), ..created(&all, 0) };
        let mut request = TxnRequest {
            compare: vec![nothing],
            success: vec![RequestOp { request: Some(request_op::Request::Put(put)) }],
            failure: vec![range(&self.marker, false), range(&self.log, true)],
        };
        match self.client.txn(&request) {
            Err(CallError::Denied(_)) => {
                request.compare = vec![created(&self.marker, 0), created(&self.log, 0)];
                self.client.txn(&request).map_err(CallError::of_reading)
            }
            outcome => outcome.map_err(CallError::of_reading),
        }
    }

    fn check_version(&self) -> Result<()> {
        let version = match self.client.status() {
            Ok(status) => status.version,
            // A user without this permission gets a precise error from the next call.
            Err(CallError::Denied(_)) => return Ok(()),
            Err(error) => return Err(error.of_reading()),
        };
        let mut numbers = version.split('.').map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < OLDEST_ETCD => {
                let (major, minor) = OLDEST_ETCD;
                let message = format!("etcd {version} is too old, {major}.{minor} is needed");
                Err(Error::Refused { message })
            }
            _ => Ok(()),
        }
    }

    /// Refuses an etcd that holds anything else: trimming removes the history of all keys. A user who may not
    /// see all keys is believed.
    fn check_keys(&self) -> Result<()> {
        let all = Bytes::from_static(b"\0");
        let (key, range_end) = (all.clone(), all);
        let request = RangeRequest { key, range_end, limit: 3, keys_only: true, ..RangeRequest::default() };
        let response = match self.client.range(&request) {
            Ok(response) => response,
            Err(CallError::Denied(_)) => RangeResponse::default(),
            Err(error) => return Err(error.of_reading()),
        };
        match response.kvs.iter().find(|kv| kv.key != self.marker && kv.key != self.log) {
            None => Ok(()),
            Some(kv) => {
                let key: String = String::from_utf8_lossy(&kv.key).chars().take(100).collect();
                let message = format!(
                    "etcd holds the key {key:?} that is none of this journal's; a journal needs an etcd of its \
                     own, because trimming it removes the history of all keys"
                );
                Err(Error::Refused { message })
            }
        }
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
fn created(key: &Bytes, revision: i64) -> Compare {
    let operand = Some(compare::Operand::CreateRevision(revision));
    Compare { target: compare_target::CREATE, key: key.clone(), operand, ..Compare::default() }
}

fn range(key: &Bytes, keys_only: bool) -> RequestOp {
    let request = RangeRequest { key: key.clone(), keys_only, ..RangeRequest::default() };
    RequestOp { request: Some(request_op::Request::Range(request)) }
}

/// What the operation at `index` of a transaction has found.
fn range_of(response: &TxnResponse, index: usize) -> Option<&KeyValue> {
    match response.responses.get(index)?.response.as_ref()? {
        response_op::Response::Range(range) => range.kvs.first(),
        _ => None,
    }
}
