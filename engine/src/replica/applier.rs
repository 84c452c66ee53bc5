//! Applies the records of the journal, in its order, to the store.
//!
//! What a record does depends on the records before it alone: [`Applier::apply`] reads no clock, no random
//! number and nothing that only this replica has done, such as sweeping. Each record is one unsynced batch
//! together with its position: after a crash the store is as it was after some record, and continues there.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use plinth_journal::record::{
    self, Body, DecodeError, OperationRecord, ProposalRecord, Record, ReplicaId, TransactionRecord,
};
use plinth_journal::{Entry, Error as JournalError, Journal, Position, Reader};

use crate::clock::Timeline;
use crate::commit::group::Group;
use crate::commit::proposal::Proposal;
use crate::commit::queue::{CommitQueue, Task};
use crate::commit::reply::Committed;
use crate::commit::state::StateMachine;
use crate::commit::writer::Writer;
use crate::error::{Error, Result};
use crate::floor::Floor;
use crate::health::{Failure, Warning, WarningHandler};
use crate::layout::meta;
use crate::maintenance_control::MaintenanceControl;
use crate::replica::agreement::Agreement;
use crate::replica::applied::{compare_applied, next_hash, Applied};
use crate::replica::outage::Call;
use crate::replica::shared::{Awaited, Shared};
use crate::replica::suspect::{self, Suspects};
use crate::revision::Revision;
use crate::store::Store;
use crate::transaction::{Condition, Transaction};

/// How long a read waits for the next record.
const READ_WAIT: Duration = Duration::from_millis(100);
/// Pause after the journal could not be read.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// Deadlines are looked at again when time moves forward by as much with a commit.
const NOTICED_JUMP: Duration = Duration::from_secs(1);

/// The only writer of a replica's store.
pub(crate) struct Applier {
    pub store: Arc<Store>,
    pub floor: Arc<Floor>,
    pub maintenance: Arc<MaintenanceControl>,
    pub writer: Arc<Mutex<Writer>>,
    pub shared: Arc<Shared>,
    pub state: StateMachine,
    pub applied: Applied,
    /// The newest version of records that this program reads.
    pub newest: u8,
    /// What the hashes in the records of others say.
    pub agreement: Agreement,
    /// Never behind the newest commit. It decides nothing here: records have their proposer's clock.
    pub time: Arc<Timeline>,
    /// Takes what this replica proposes where hashes differ.
    pub queue: Arc<CommitQueue>,
    pub warn: WarningHandler,
}

/// What is to be written for one record.
struct Effect {
    group: Group,
    results: Vec<Result<Committed>>,
    /// The floor, where the record raises it.
    floor: Option<Revision>,
}

impl Applier {
    /// Applies the record at `position`, which is the next one. A position that was applied already is
    /// ignored.
    ///
    /// # Errors
    /// A failure for good. Nothing of the record was applied then.
    pub(crate) fn apply(&mut self, position: Position, bytes: Bytes) -> Result<(), Failure> {
        let expected = self.applied.anchor.position.next();
        if position < expected {
            return Ok(());
        }
        if let Some(error) = self.applied.closed() {
            return Err(Failure::Journal { error });
        }
        let record = self.check(expected, position, &bytes).map_err(|error| Failure::Journal { error })?;
        self.compare_hashes(&record)?;
        let (replica, session, sequence) = (record.replica, record.session, record.sequence);
        let is_own = replica == self.shared.replica;
        let is_early = Self::is_early(&self.applied, &record);
        let mut applied = self.applied.clone();
        let mut effect = Effect { group: Group::new(position.get()), results: Vec::new(), floor: None };
        let is_valid = Self::begins_or_continues(&mut applied, &record);
        if is_valid {
            self.perform(record.body, (replica, record.clock_ms), &mut applied, &mut effect)
                .map_err(|error| Failure::of_write(&error))?;
        }
        let Effect { mut group, results, floor } = effect;
        applied.anchor.position = position;
        applied.anchor.revision = self.state.last_assigned().get();
        let checksum = record::checksum(&bytes);
        applied.checksum = Some(checksum);
        applied.anchor.hash =
            next_hash(applied.anchor.hash, position, checksum, applied.time_ms, &group.commits);
        applied.write(&self.store, &mut group.batch, replica);
        if let Some(floor) = floor {
            self.store.put_number(&mut group.batch, meta::FLOOR, floor.get());
        }
        if is_own && !is_early {
            let replies = self.shared.take_applied(session, sequence, checksum, is_valid);
            group.answers = replies.into_iter().zip(results).collect();
        }
        let (number, keys) = (group.number, std::mem::take(&mut group.keys));
        // Before its deadlines are published: they count from its time.
        let ahead = self.time.reach(applied.time_ms);
        let written = self.writer.lock().write_applied(group);
        written.map_err(|error| Failure::of_write(&error))?;
        self.state.written(number, keys);
        if ahead >= NOTICED_JUMP {
            // Others may have passed.
            self.maintenance.deadline_set(0);
        }
        self.finish(applied, floor)
    }

    /// Checks that it is the record that is due, and one that this program reads.
    fn check(&self, expected: Position, position: Position, bytes: &Bytes) -> Result<Record, JournalError> {
        if position != expected {
            return Err(JournalError::Gap { expected, found: position });
        }
        let newest = self.newest;
        let record = decode(self.applied.cluster, position, bytes, newest)?;
        if record::version(bytes).is_none_or(|version| version > self.applied.level) {
            // Others may not read it: whoever appended it has broken the rule that keeps all together.
            let reason = "its version is above the level of the cluster";
            return Err(JournalError::Damaged { position, reason });
        }
        Ok(record)
    }

    /// Compares the hash that the proposer had with the one that this replica had at the same position. Of
    /// positions that it has forgotten nothing is known; later records name later ones.
    fn compare_hashes(&mut self, record: &Record) -> Result<(), Failure> {
        let (replica, position, theirs) = (record.replica, record.anchor.position, record.anchor.hash);
        let Some(ours) = self.shared.hash_at(position) else { return Ok(()) };
        if ours == theirs {
            self.agreement.agrees(replica, position);
            return Ok(());
        }
        let failure = Failure::Diverged { position, replica, ours, theirs };
        if self.agreement.differs(replica, position, failure)? {
            // Where the queue is full, what is in it makes records with the hash as well.
            drop(Proposal::submit(&self.queue, Task::Transact(Transaction::new()), 0));
            self.warn.warn(&Warning::Differs { position, replica, ours, theirs });
        }
        Ok(())
    }

    /// Whether the record is the next one of its replica's session, or begins a session in the place of the
    /// one that it expects; notes it if so. Anything else is void: a repeated append, or one of an earlier
    /// process that arrives late.
    fn begins_or_continues(applied: &mut Applied, record: &Record) -> bool {
        let current = applied.sessions.get(&record.replica).copied();
        let is_valid = match &record.body {
            Body::Session { replaces } => *replaces == current.map(|(session, _)| session),
            _ => current.is_some_and(|(session, sequence)| {
                session == record.session && sequence.checked_add(1) == Some(record.sequence)
            }),
        };
        if is_valid {
            applied.sessions.insert(record.replica, (record.session, record.sequence));
        }
        is_valid
    }

    /// Whether the record is void because one before it is missing, which its session has proposed: both are
    /// appended once more (`unapplied`), and its callers wait for that.
    fn is_early(applied: &Applied, record: &Record) -> bool {
        let is_session = matches!(record.body, Body::Session { .. });
        applied.sessions.get(&record.replica).is_some_and(|(session, sequence)| {
            !is_session && *session == record.session && record.sequence > sequence.saturating_add(1)
        })
    }

    fn perform(
        &mut self,
        body: Body,
        (replica, clock_ms): (ReplicaId, u64),
        applied: &mut Applied,
        effect: &mut Effect,
    ) -> Result<()> {
        match body {
            Body::Session { .. } => {}
            Body::Level(level) => {
                applied.level = applied.level.max(level);
                applied.closed_by = (level == record::CLOSED).then_some(replica);
                effect.results.push(Ok(self.state.unchanged()));
            }
            Body::Group(proposals) => {
                // One time for the group, not below that of the commit before.
                let time_ms = clock_ms.max(applied.time_ms);
                for proposal in proposals {
                    let result = match proposal {
                        ProposalRecord::Transaction(transaction) => {
                            self.transact(transaction, time_ms, &mut effect.group)
                        }
                        ProposalRecord::Floor(floor) => {
                            let floor = Revision::new(floor);
                            let lowest = effect.floor.unwrap_or(self.floor.get());
                            if floor > lowest && floor <= self.state.last_assigned() {
                                effect.floor = Some(floor);
                            }
                            Ok(self.state.unchanged())
                        }
                    };
                    // What a transaction is refused for is part of its outcome; what cannot be read is not.
                    match result {
                        Ok(_) | Err(Error::Conflict { .. } | Error::InvalidTransaction { .. }) => {
                            effect.results.push(result);
                        }
                        Err(error) => return Err(error),
                    }
                }
                if !effect.group.commits.is_empty() {
                    applied.time_ms = time_ms;
                }
            }
        }
        Ok(())
    }

    fn transact(&mut self, record: TransactionRecord, time_ms: u64, group: &mut Group) -> Result<Committed> {
        let transaction = Transaction::from(record);
        transaction.check_unique()?;
        let plan = self.state.plan(transaction)?;
        if plan.is_empty() {
            return Ok(self.state.unchanged());
        }
        Ok(self.state.apply(plan, time_ms, group))
    }

    fn finish(&mut self, applied: Applied, floor: Option<Revision>) -> Result<(), Failure> {
        let anchor = applied.anchor;
        self.applied = applied;
        if let Some(floor) = floor {
            // It is stored, and the commits before it are published.
            self.floor.raise(floor);
            self.maintenance.sweep();
        }
        let session = self.applied.sessions.get(&self.shared.replica).map(|(session, _)| *session);
        let is_current = self.shared.applied(anchor, self.applied.level, session);
        match (self.applied.closed(), is_current) {
            (Some(error), _) => Err(Failure::Journal { error }),
            (None, true) => Ok(()),
            (None, false) => Err(Failure::Superseded { replica: self.shared.replica }),
        }
    }

    /// Removes tombstones that no readable revision needs. Each replica does so when it sweeps: no reader can
    /// see whether they are there.
    pub(crate) fn purge(&mut self, tombstones: Vec<(Bytes, Revision)>) -> Result<Committed> {
        let keys = self.state.purgeable(tombstones)?;
        if !keys.is_empty() {
            let mut group = Group::new(self.applied.anchor.position.get());
            self.state.purge(keys, &mut group);
            let (number, keys) = (group.number, std::mem::take(&mut group.keys));
            self.writer.lock().write_applied(group)?;
            self.state.written(number, keys);
        }
        Ok(self.state.unchanged())
    }
}

/// Decodes a record and checks that it is of this cluster, and raises its level to no more than is read here,
/// or closes the journal.
pub(crate) fn decode(
    cluster: record::ClusterId,
    position: Position,
    bytes: &Bytes,
    newest: u8,
) -> Result<Record, JournalError> {
    let record = Record::decode_up_to(bytes.clone(), newest).map_err(|error| match error {
        DecodeError::Version(found) => JournalError::Version { position, found, newest },
        error => error.at(position),
    })?;
    if record.cluster != cluster {
        return Err(JournalError::OtherCluster { position, found: record.cluster, expected: cluster });
    }
    match record.body {
        Body::Level(found) if found > newest && found != record::CLOSED => {
            Err(JournalError::Version { position, found, newest })
        }
        _ => Ok(record),
    }
}

impl From<TransactionRecord> for Transaction {
    fn from(record: TransactionRecord) -> Transaction {
        let mut transaction = Transaction::new();
        for condition in record.conditions {
            transaction = transaction.require(match condition {
                record::ConditionRecord::ModRevision(key, revision) => {
                    Condition::ModRevision { key, revision: Revision::new(revision) }
                }
                record::ConditionRecord::Absent(key) => Condition::Absent(key),
                record::ConditionRecord::Exists(key) => Condition::Exists(key),
            });
        }
        for operation in record.operations {
            transaction = match operation {
                OperationRecord::Put { key, value, ttl_ms: None } => transaction.put(key, value),
                OperationRecord::Put { key, value, ttl_ms: Some(ttl_ms) } => {
                    transaction.put_expiring(key, value, Duration::from_millis(ttl_ms))
                }
                OperationRecord::Delete(key) => transaction.delete(key),
            };
        }
        transaction
    }
}

/// A reader of the journal.
pub(crate) struct OpenReader {
    reader: Box<dyn Reader>,
    /// How often the journal was lost before it was opened.
    losses: u64,
    /// The record that was applied last, by position and checksum, where it is still to be compared.
    unchecked: Option<(Position, u32)>,
}

/// Reads the journal for the applier.
pub(crate) struct Follower {
    pub applier: Arc<Mutex<Applier>>,
    pub journal: Arc<dyn Journal>,
    pub shared: Arc<Shared>,
    pub reader: Option<OpenReader>,
    /// The reader from before the journal was lost, until it was checked. What it may have got of the next
    /// records meanwhile would take a slow path a second time.
    pub kept: Option<Box<dyn Reader>>,
    /// Who has served what is due missing or damaged.
    pub suspects: Suspects,
    /// How often the journal had given up another one when the last step began.
    pub given_up: u64,
}

impl Follower {
    /// Follows the journal until the replica is closed or fails.
    pub(crate) fn run(mut self) {
        let store = Arc::clone(&self.applier.lock().store);
        while !self.shared.is_done() {
            match self.step(READ_WAIT) {
                Ok(Ok(_)) => {}
                Ok(Err(_transient)) => self.shared.rest(RETRY_DELAY, Awaited::Nothing),
                Err(failure) => return store.health().fail(failure),
            }
            if let Err(failure) = self.applier.lock().agreement.check() {
                return store.health().fail(failure);
            }
        }
        self.shared.abandon();
    }

    /// Applies the next record, if there is one within `wait`; returns whether there was, or the journal was
    /// checked.
    ///
    /// # Errors
    /// The inner one may pass, the outer one is for good.
    pub(crate) fn step(&mut self, wait: Duration) -> Result<Result<bool, JournalError>, Failure> {
        let (was_checked, given_up) = (self.shared.is_checked(), self.journal.given_up());
        if std::mem::replace(&mut self.given_up, given_up) != given_up {
            // They are members of that one.
            self.suspects = Suspects::default();
        }
        let next = match self.read(wait) {
            Ok(Some(next)) => next,
            Ok(None) => return Ok(Ok(!was_checked && self.shared.is_checked())),
            Err(error) => return self.after_error(error).map(Err),
        };
        let applied = self.applier.lock().apply(next.position, next.bytes);
        match applied {
            Ok(()) => {}
            Err(Failure::Journal { error }) => return self.after_error(error).map(Err),
            Err(failure) => return Err(failure),
        }
        self.suspects = Suspects::default();
        Ok(Ok(true))
    }

    /// The next record that is due, if there is one within `wait`.
    ///
    /// After the journal was lost it is opened at the record that was applied last, and goes on only if that
    /// is there: its members may have lost records, or be those of another journal, since this replica was
    /// last answered.
    fn read(&mut self, wait: Duration) -> Result<Option<Entry>, JournalError> {
        let losses = self.shared.losses();
        let is_compared = match self.open(losses).and_then(|()| self.compare(wait)) {
            // What is trimmed cannot be compared.
            Err(JournalError::Trimmed { .. }) => {
                self.kept = None;
                let position = self.applier.lock().applied.anchor.position;
                self.begin(position.next(), None, losses)?;
                true
            }
            compared => compared?,
        };
        match &mut self.reader {
            Some(open) if is_compared => open.reader.next(wait),
            _ => Ok(None),
        }
    }

    /// Opens the journal, unless it is open since it was lost last.
    fn open(&mut self, losses: u64) -> Result<(), JournalError> {
        if self.reader.as_ref().is_some_and(|open| open.losses == losses) {
            return Ok(());
        }
        if let Some(mut open) = self.reader.take().filter(|open| open.unchecked.is_none()) {
            // What comes from now on is asked for when it was checked.
            open.reader.is_busy();
            self.kept = Some(open.reader);
        }
        let (position, checksum) = {
            let applied = &self.applier.lock().applied;
            (applied.anchor.position, applied.checksum)
        };
        match checksum.filter(|_| position > Position::ZERO) {
            Some(checksum) => self.begin(position, Some((position, checksum)), losses),
            None => self.begin(position.next(), None, losses),
        }
    }

    fn begin(
        &mut self,
        from: Position,
        unchecked: Option<(Position, u32)>,
        losses: u64,
    ) -> Result<(), JournalError> {
        let reader = self.journal.read(from)?;
        self.reader = Some(OpenReader { reader, losses, unchecked });
        if unchecked.is_none() {
            self.checked(losses);
        }
        Ok(())
    }

    /// Compares the record that was applied last, where that is still to be done; whether it is done.
    fn compare(&mut self, wait: Duration) -> Result<bool, JournalError> {
        let Some(open) = &mut self.reader else { return Ok(false) };
        let Some((position, checksum)) = open.unchecked else { return Ok(true) };
        let Some(entry) = open.reader.next(wait)? else {
            let mut end = self.journal.end()?;
            if end < position {
                // It may be that of one member that has lost what others have. A reader reports what is
                // expected.
                drop(self.journal.read(position.next())?);
                end = self.journal.end()?;
            }
            return match end < position {
                true => Err(JournalError::Behind { applied: position, end }),
                false => Ok(false),
            };
        };
        compare_applied(&entry, position, checksum)?;
        open.unchecked = None;
        let losses = open.losses;
        self.checked(losses);
        Ok(true)
    }

    /// The journal is the one that was applied. It is read on by the reader from before it was lost, if that
    /// is getting something over a connection that has not ended: of one that has, it may have records that
    /// the journal lost when it was put back to an old copy.
    fn checked(&mut self, losses: u64) {
        if let (Some(open), Some(mut kept)) = (&mut self.reader, self.kept.take()) {
            if kept.is_busy() {
                open.reader = kept;
            }
        }
        self.shared.heard(Call::Read, None);
        self.shared.checked(losses);
    }

    /// After an error the journal is read again from where it is due, and at another member where the error
    /// may be that of one.
    fn after_error(&mut self, error: JournalError) -> Result<JournalError, Failure> {
        let reader = self.reader.take();
        if error.is_transient() {
            self.shared.heard(Call::Read, Some(&error));
            return Ok(error);
        }
        self.kept = None;
        if self.journal.given_up() != self.given_up {
            // That of a journal which is not followed any more.
            return Ok(error);
        }
        if !suspect::may_pass(&error) {
            return Err(Failure::Journal { error });
        }
        let member = reader.and_then(|mut open| open.reader.distrust());
        self.suspects.add(member, &error, &self.applier.lock().warn);
        match self.suspects.agree(&error, &*self.journal) {
            true => Err(Failure::Journal { error }),
            false => Ok(error),
        }
    }
}
