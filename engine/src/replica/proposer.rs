//! Takes what callers submit, appends it to the journal as records, and leaves the rest to the applier.
//!
//! One append is in flight at a time: what arrives meanwhile is the next record, so groups are as large as
//! they come. An append whose outcome is unknown is made again, the same bytes, until it is certain that it
//! is in the journal: that it was answered, or that its record was applied. Where the journal takes it no
//! more, as it is too large by now, a new session of the replica makes it void ([`Doubtful`]).

use std::collections::hash_map::RandomState;
use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use plinth_journal::record::{
    self, Body, ClusterId, ConditionRecord, OperationRecord, ProposalRecord, Record, Session,
    TransactionRecord,
};
use plinth_journal::{outcome_of_append, Error as JournalError, Journal, Position};

use crate::clock::Timeline;
use crate::commit::queue::{CommitQueue, Task, Work};
use crate::commit::reply::Reply;
use crate::error::Error;
use crate::replica::applier::Applier;
use crate::replica::outage::Call;
use crate::replica::shared::{Awaited, Shared};
use crate::replica::unapplied::{Unapplied, UnappliedRecords};
use crate::transaction::{Action, Condition, Transaction};

/// Pauses after appends that fail, doubled from the first to the last, and the longest where the journal may
/// answer again at any moment. In a pause the journal is checked and readers are answered: each append that
/// fails makes it one that is to be checked.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(500)];
const LONGEST_WHILE_AWAY: Duration = Duration::from_millis(100);
/// Longest wait for something to be applied, before it is looked at again.
const APPLY_WAIT: Duration = Duration::from_millis(100);

pub(crate) struct Proposer {
    pub shared: Arc<Shared>,
    pub queue: Arc<CommitQueue>,
    appender: Appender,
    pub applier: Arc<Mutex<Applier>>,
    pub time: Arc<Timeline>,
    pub cluster: ClusterId,
    pub group_limit: usize,
    /// The newest version of records that this program knows.
    newest: u8,
    phase: Phase,
    /// Work that was taken from the queue and did not fit into the last record.
    backlog: VecDeque<Work>,
    /// What was in a record that was certainly not appended.
    returned: Vec<(ProposalRecord, Reply)>,
    /// What was in one that the journal found too large.
    alone: VecDeque<(ProposalRecord, Reply)>,
    /// What is to be void once the session has begun that is being begun.
    doubtful: Option<Doubtful>,
    /// Records of the session that were answered.
    unapplied: UnappliedRecords,
}

/// A record that may be in the journal, or come there later, and that the journal takes no more: its limit
/// was lowered since the first append. To wait until it was raised would keep all writes of this replica.
///
/// So the replica begins another session, by a record that replaces the one that this record belongs to, and
/// by nothing else: a session of another process is not ended by it. Nothing is appended before that was
/// applied. It decides what becomes of the doubtful record, for all replicas in the same way, as they apply
/// both in the journal's order:
///
/// - The doubtful record comes first. It is of the current session then, is applied, and its callers are
///   answered with its outcome, before the new session's record is. Nothing is left to be void.
/// - The new session comes first. The doubtful record is void wherever it follows, and however often: its
///   session is not the current one, and no session is the current one twice, as each record that begins one
///   names the one before and sessions are numbered (`Session::after`). So it is certain that it was not
///   applied and never will be, and its callers may get that error, or be tried again, as those of a record
///   that was never sent.
///
/// This replica knows which it is when it has applied the new session's record: whoever still waits for the
/// doubtful one then ([`Shared::take_refused`]) waits for a void one. If the journal loses the new session's
/// record after that, it is not the journal that was applied, which stops the replica
/// (`docs/design/0029-proposals-over-one-log.md`, After it was lost). An unknown outcome of the append of the
/// new session's record is found out as that of any other: it is repeated until it was applied.
struct Doubtful {
    sequence: u64,
    proposals: Vec<ProposalRecord>,
    error: Error,
}

enum Phase {
    /// Before a session is begun.
    New,
    /// The record that begins a session is to be appended, once more if that is not certain.
    Beginning { session: Session, bytes: Bytes },
    /// It is in the journal at this position, by an answer after so many losses of the journal.
    Begun { session: Session, bytes: Bytes, position: Position, losses: u64 },
    /// Nothing is to be appended before there is new work.
    Ready { session: Session, sequence: u64 },
    /// A record is to be appended. After an append of it with an unknown outcome it is `uncertain`.
    Appending {
        session: Session,
        sequence: u64,
        proposals: Vec<ProposalRecord>,
        bytes: Bytes,
        uncertain: bool,
    },
}

/// What a step has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Done,
    /// There is nothing to do until something is applied.
    Waiting,
    /// There is no work.
    Idle,
    /// The journal did not answer as hoped.
    Failed,
    Ended,
}

impl Proposer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        queue: Arc<CommitQueue>,
        journal: Arc<dyn Journal>,
        applier: Arc<Mutex<Applier>>,
        time: Arc<Timeline>,
        (cluster, group_limit, newest): (ClusterId, usize, u8),
    ) -> Proposer {
        let appender =
            Appender { journal, shared: Arc::clone(&shared), retry_delay: RETRY_DELAYS[0], pause: None };
        Proposer {
            shared,
            queue,
            appender,
            applier,
            time,
            cluster,
            group_limit,
            newest,
            phase: Phase::New,
            backlog: VecDeque::new(),
            returned: Vec::new(),
            alone: VecDeque::new(),
            doubtful: None,
            unapplied: UnappliedRecords::default(),
        }
    }

    /// Proposes until the queue is closed and empty, or the replica fails.
    pub(crate) fn run(mut self) {
        loop {
            match self.step(true) {
                // Work is waited for where it is taken.
                Step::Done | Step::Idle => {}
                Step::Waiting => self.shared.pause(APPLY_WAIT),
                Step::Failed => match self.appender.pause.take() {
                    Some(pause) => self.shared.rest(pause, self.awaited()),
                    None => self.shared.wait_for_check(APPLY_WAIT),
                },
                Step::Ended => break,
            }
            if self.shared.gives_up() {
                break;
            }
        }
        self.end();
    }

    /// What the journal may have.
    fn awaited(&self) -> Awaited {
        match self.phase {
            Phase::Appending { sequence, uncertain: true, .. } => Awaited::Record(sequence),
            Phase::Beginning { session, .. } => Awaited::Session(session),
            _ => match self.unapplied.first_missing() {
                Some(record) => Awaited::Record(record.sequence),
                None => Awaited::Nothing,
            },
        }
    }

    /// Refuses what was not appended.
    pub(crate) fn end(&mut self) {
        let error = self.shared.refusal();
        for (_, reply) in self.returned.drain(..).chain(self.alone.drain(..)) {
            reply.send(Err(error.clone()));
        }
        for work in self.backlog.drain(..) {
            work.reply.send(Err(error.clone()));
        }
        while let Some(work) =
            self.queue.take_batch(usize::MAX, Duration::ZERO).filter(|work| !work.is_empty())
        {
            work.into_iter().for_each(|work| work.reply.send(Err(error.clone())));
        }
        self.shared.proposer_ended();
    }

    /// Makes one call of the journal, or prepares one.
    pub(crate) fn step(&mut self, block: bool) -> Step {
        match &mut self.phase {
            Phase::New => self.begin(self.shared.session()),
            Phase::Beginning { session, bytes } => {
                let session = *session;
                if self.shared.session() == Some(session) {
                    return self.begun(session);
                }
                let losses = self.shared.losses();
                match self.appender.append(bytes.clone()) {
                    Ok(position) => {
                        let bytes = std::mem::take(bytes);
                        self.phase = Phase::Begun { session, bytes, position, losses };
                        Step::Done
                    }
                    Err(_) => Step::Failed,
                }
            }
            Phase::Begun { session, bytes, position, losses } => {
                let session = *session;
                let is_applied = self.shared.anchor().position >= *position;
                if self.shared.session() == Some(session) {
                    return self.begun(session);
                }
                if is_applied && self.doubtful.is_none() {
                    // An append of an earlier process is before it.
                    self.phase = Phase::New;
                    return Step::Done;
                }
                // Where another process has begun one in the place of an own session, the replica stops.
                // Otherwise the journal that has answered was given up, as for records of a session.
                if is_applied || self.appender.end_since(losses).is_some_and(|end| end < *position) {
                    self.phase = Phase::Beginning { session, bytes: std::mem::take(bytes) };
                    return Step::Done;
                }
                Step::Waiting
            }
            Phase::Ready { session, sequence } => {
                let (session, sequence) = (*session, *sequence);
                self.unapplied.compare(&self.shared, |losses| self.appender.end_since(losses));
                match self.unapplied.first_missing() {
                    Some(_) => self.append_missing(session),
                    None => self.prepare(session, sequence, block),
                }
            }
            Phase::Appending { .. } => self.append(),
        }
    }

    /// Prepares the record that begins a session in the place of another one.
    fn begin(&mut self, replaces: Option<Session>) -> Step {
        // Of the operating system's randomness. It decides nothing but equality.
        let session = Session::after(replaces, RandomState::new().build_hasher().finish());
        let bytes = self.encode(session, 0, Body::Session { replaces });
        self.phase = Phase::Beginning { session, bytes };
        Step::Done
    }

    /// Appends the record that was prepared.
    fn append(&mut self) -> Step {
        let Phase::Appending { session, sequence, proposals, bytes, uncertain } = &mut self.phase else {
            return Step::Done;
        };
        let (session, sequence, losses) = (*session, *sequence, self.shared.losses());
        let outcome = match self.shared.is_pending(sequence) {
            true => self.appender.append(bytes.clone()).map(Some),
            // It was applied, whatever became of the append.
            false => Ok(None),
        };
        match outcome {
            Ok(answer) => {
                if let Some(position) = answer {
                    self.unapplied.add(sequence, std::mem::take(bytes), position, losses);
                }
                self.phase = Phase::Ready { session, sequence: sequence.saturating_add(1) };
                Step::Done
            }
            Err(JournalError::TooLarge { size, limit }) => {
                let proposals = std::mem::take(proposals);
                let error = Error::TooLarge { what: "record for the journal", size, limit };
                let doubtful = Doubtful { sequence, proposals, error };
                if *uncertain {
                    self.replace_session(session, doubtful);
                } else if self.too_large(doubtful) {
                    self.phase = Phase::Ready { session, sequence };
                }
                Step::Done
            }
            Err(error) if error.was_not_appended() && !*uncertain => {
                // Nothing was appended: callers may leave, and the others are in another record.
                let Some(replies) = self.shared.take_refused(sequence) else {
                    return Step::Done;
                };
                if proposals.is_empty() {
                    // A level: whoever raises it tries again.
                    replies.into_iter().for_each(|reply| reply.send(Err(Error::from(error.clone()))));
                } else {
                    replies.iter().for_each(Reply::unbegin);
                    self.returned = std::mem::take(proposals).into_iter().zip(replies).collect();
                }
                self.phase = Phase::Ready { session, sequence };
                Step::Failed
            }
            Err(error) => {
                *uncertain |= !error.was_not_appended();
                Step::Failed
            }
        }
    }

    /// Appends a record once more that was answered and that the journal lacks.
    fn append_missing(&mut self, session: Session) -> Step {
        let Some(Unapplied { sequence, bytes, .. }) = self.unapplied.first_missing() else {
            return Step::Done;
        };
        let (sequence, bytes) = (*sequence, bytes.clone());
        match self.appender.append(bytes.clone()) {
            Ok(position) => self.unapplied.found(position),
            Err(JournalError::TooLarge { size, limit }) => {
                let error = Error::TooLarge { what: "record for the journal", size, limit };
                let proposals = self.proposals_of(bytes);
                self.replace_session(session, Doubtful { sequence, proposals, error });
            }
            Err(_) => return Step::Failed,
        }
        Step::Done
    }

    /// Begins a session in the place of the own one, so that a record of that is void.
    fn replace_session(&mut self, session: Session, doubtful: Doubtful) {
        self.doubtful = Some(doubtful);
        self.begin(Some(session));
        if let Phase::Beginning { session, .. } = self.phase {
            self.shared.set_next(session);
        }
    }

    /// The journal has found a record too large that was not appended, or is void. A single proposal is
    /// refused; of several each is tried in a record of its own, so that what is too large keeps nobody else.
    /// False where it was applied all the same.
    fn too_large(&mut self, Doubtful { sequence, proposals, error }: Doubtful) -> bool {
        let Some(replies) = self.shared.take_refused(sequence) else { return false };
        if proposals.len() > 1 {
            replies.iter().for_each(Reply::unbegin);
            self.alone.extend(proposals.into_iter().zip(replies));
        } else {
            replies.into_iter().for_each(|reply| reply.send(Err(error.clone())));
        }
        true
    }

    /// The record that begins a session was applied, and with it everything before it.
    fn begun(&mut self, session: Session) -> Step {
        self.shared.set_own(session);
        let doubtful = self.doubtful.take();
        let is_doubtful = |record: &Unapplied| {
            doubtful.as_ref().is_some_and(|doubtful| doubtful.sequence == record.sequence)
        };
        // Of the session before, and void as that record is, where they were not applied.
        while let Some(record) = self.unapplied.take_first() {
            if !is_doubtful(&record) {
                self.propose_alone(record);
            }
        }
        if let Some(doubtful) = doubtful {
            self.too_large(doubtful);
        }
        self.phase = Phase::Ready { session, sequence: 1 };
        Step::Done
    }

    /// Tries each proposal of a record that is void in a record of its own.
    fn propose_alone(&mut self, record: Unapplied) {
        let Some(replies) = self.shared.take_refused(record.sequence) else { return };
        let proposals = self.proposals_of(record.bytes);
        if proposals.is_empty() {
            // A level: whoever raises it tries again.
            let message = "the journal lacks a record that it had answered".to_owned();
            let error = Error::from(JournalError::Unavailable { message });
            replies.into_iter().for_each(|reply| reply.send(Err(error.clone())));
            return;
        }
        replies.iter().for_each(Reply::unbegin);
        self.alone.extend(proposals.into_iter().zip(replies));
    }

    /// What a record of this replica proposes; nothing for one of another kind.
    fn proposals_of(&self, bytes: Bytes) -> Vec<ProposalRecord> {
        match Record::decode_up_to(bytes, self.newest).map(|record| record.body) {
            Ok(Body::Group(proposals)) => proposals,
            Ok(Body::Session { .. } | Body::Level(_)) | Err(_) => Vec::new(),
        }
    }

    /// Makes a record of the work that waits.
    fn prepare(&mut self, session: Session, sequence: u64, block: bool) -> Step {
        if !self.shared.has_room() || !self.unapplied.has_room() {
            return Step::Waiting;
        }
        let returned = std::mem::take(&mut self.returned).into_iter().filter(|(_, reply)| reply.begin());
        let (proposals, replies): (Vec<_>, Vec<_>) = returned.unzip();
        if !proposals.is_empty() {
            return self.append_later(session, sequence, Body::Group(proposals), replies);
        }
        while let Some((proposal, reply)) = self.alone.pop_front() {
            if reply.begin() {
                return self.append_later(session, sequence, Body::Group(vec![proposal]), vec![reply]);
            }
        }
        if self.backlog.is_empty() {
            let wait = match (block, self.unapplied.is_empty()) {
                (false, _) => Duration::ZERO,
                (true, true) => Duration::MAX,
                // What was answered is looked at again.
                (true, false) => APPLY_WAIT,
            };
            match self.queue.take_batch(self.group_limit, wait) {
                None => return Step::Ended,
                Some(work) => self.backlog.extend(work),
            }
        }
        let limit = self
            .appender
            .journal
            .max_record_bytes()
            .min(record::MAX_BYTES)
            .saturating_sub(record::HEADER_BYTES + 10);
        let (mut proposals, mut replies) = (Vec::new(), Vec::new());
        let mut size = 0usize;
        while let Some(work) = self.backlog.pop_front() {
            // A level has a record of its own.
            if matches!(work.task, Task::RaiseLevel(_) | Task::CloseJournal) && !proposals.is_empty() {
                self.backlog.push_front(work);
                break;
            }
            let Work { task, reply, size: queued } = work;
            if !reply.begin() {
                continue;
            }
            let proposal = match task {
                Task::Transact(transaction) => ProposalRecord::Transaction((&transaction).into()),
                Task::SetFloor(floor) => ProposalRecord::Floor(floor.get()),
                Task::RaiseLevel(level) if level > self.newest => {
                    let position = self.shared.anchor().position.next();
                    let error = JournalError::Version { position, found: level, newest: self.newest };
                    reply.send(Err(error.into()));
                    continue;
                }
                Task::RaiseLevel(level) => {
                    return self.append_later(session, sequence, Body::Level(level), vec![reply]);
                }
                Task::CloseJournal => {
                    return self.append_later(session, sequence, Body::Level(record::CLOSED), vec![reply]);
                }
                Task::Purge(tombstones) => {
                    reply.send(self.applier.lock().purge(tombstones));
                    continue;
                }
            };
            let bytes = proposal.size();
            if bytes > limit {
                reply.send(Err(Error::TooLarge { what: "transaction", size: queued, limit }));
                continue;
            }
            size += bytes;
            proposals.push(proposal);
            replies.push(reply);
            if self.backlog.front().is_some_and(|next| size + next.size + next_overhead(next) > limit) {
                break;
            }
        }
        if proposals.is_empty() {
            return Step::Idle;
        }
        self.append_later(session, sequence, Body::Group(proposals), replies)
    }

    fn append_later(&mut self, session: Session, sequence: u64, body: Body, replies: Vec<Reply>) -> Step {
        let proposals = match &body {
            Body::Group(proposals) => proposals.clone(),
            Body::Session { .. } | Body::Level(_) => Vec::new(),
        };
        let bytes = self.encode(session, sequence, body);
        if !self.shared.register(sequence, record::checksum(&bytes), replies) {
            return Step::Ended;
        }
        self.phase = Phase::Appending { session, sequence, proposals, bytes, uncertain: false };
        Step::Done
    }

    fn encode(&self, session: Session, sequence: u64, body: Body) -> Bytes {
        let record = Record {
            cluster: self.cluster,
            replica: self.shared.replica,
            session,
            sequence,
            clock_ms: self.time.now_ms(),
            anchor: self.shared.anchor(),
            body,
        };
        // What every replica reads.
        record.encode_as(self.shared.level().min(self.newest))
    }
}

/// Appends records and notes whether the journal answered.
struct Appender {
    journal: Arc<dyn Journal>,
    shared: Arc<Shared>,
    /// The pause after the next append that fails.
    retry_delay: Duration,
    /// The pause that is due, after one that has failed.
    pause: Option<Duration>,
}

impl Appender {
    /// Appends a record. A journal that was lost is not written to before it was checked.
    ///
    /// Between that and the first step of the journal another thread may give up what was checked and find
    /// the next one, which gets the record unchecked, as one does that takes its place while the record is on
    /// its way. What it answers is no outcome, neither a position nor a limit: the record is appended once
    /// more when the journal was checked, and is void there if it was the same one. Callers are answered by
    /// what this replica applies alone (`engine/tests/replicas_interleaved.rs` has each order of the steps).
    ///
    /// # Errors
    /// Those of [`Journal::append`], and [`JournalError::Unavailable`] where it was not checked.
    fn append(&mut self, bytes: Bytes) -> Result<Position, JournalError> {
        self.pause = None;
        let given_up = self.journal.given_up();
        if !self.shared.is_checked() {
            let message = "it was lost, and is not known yet to have what was applied last".to_owned();
            return Err(JournalError::Unavailable { message });
        }
        let started = Instant::now();
        let appended = self.journal.append(bytes);
        let appended = outcome_of_append(self.journal.given_up() != given_up, appended);
        self.shared.heard(Call::Append, appended.as_ref().err());
        if appended.is_ok() {
            self.shared.times.append.record(started.elapsed());
        }
        let longest = match &appended {
            Err(error) if error.refusal().is_some() => RETRY_DELAYS[1],
            Err(_) => LONGEST_WHILE_AWAY,
            Ok(_) => {
                self.retry_delay = RETRY_DELAYS[0];
                return appended;
            }
        };
        self.pause = Some(self.retry_delay.min(longest));
        self.retry_delay = (self.retry_delay * 2).min(longest);
        appended
    }

    /// The end of the journal, where it was lost since `losses`, and was checked. Once: `losses` is raised.
    fn end_since(&self, losses: &mut u64) -> Option<Position> {
        let now = self.shared.losses();
        if *losses == now || !self.shared.is_checked() {
            return None;
        }
        let end = self.journal.end();
        self.shared.heard(Call::Read, end.as_ref().err());
        if self.shared.losses() == now {
            *losses = now;
        }
        end.ok().filter(|_| *losses == now)
    }
}

/// Bytes that a task takes of a record beyond those of its keys and values, at most.
fn next_overhead(work: &Work) -> usize {
    let parts = match &work.task {
        Task::Transact(transaction) => transaction.operations.len() + transaction.conditions.len(),
        Task::SetFloor(_) | Task::RaiseLevel(_) | Task::CloseJournal | Task::Purge(_) => 0,
    };
    32 * (parts + 1)
}

impl From<&Transaction> for TransactionRecord {
    fn from(transaction: &Transaction) -> TransactionRecord {
        let conditions = transaction.conditions.iter().map(|condition| match condition {
            Condition::ModRevision { key, revision } => {
                ConditionRecord::ModRevision(key.clone(), revision.get())
            }
            Condition::Absent(key) => ConditionRecord::Absent(key.clone()),
            Condition::Exists(key) => ConditionRecord::Exists(key.clone()),
        });
        let operations = transaction.operations.iter().map(|operation| match &operation.action {
            Action::Put { value, ttl, .. } => OperationRecord::Put {
                key: operation.key.clone(),
                value: value.clone(),
                ttl_ms: ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            },
            Action::Delete => OperationRecord::Delete(operation.key.clone()),
        });
        TransactionRecord { conditions: conditions.collect(), operations: operations.collect() }
    }
}
