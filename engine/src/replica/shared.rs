//! What the threads of a replica share: how far it has applied the journal, who waits for that, and the
//! callers whose proposals are in the journal.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use plinth_journal::record::{Anchor, Hash, ReplicaId, Session};
use plinth_journal::{Error as JournalError, Journal, Position};

use crate::commit::reply::Reply;
use crate::error::Error;
use crate::health::WarningHandler;
use crate::replica::outage::{Call, CallTimes, Outage};
use crate::replica::ticket::Ticket;
use crate::stats::JournalStats;

/// Positions whose hashes are kept, to be compared with those of others: seconds of a busy journal.
const KEPT_HASHES: usize = 16 << 10;

/// Records of this replica that are in the journal and not applied yet, at most.
const MAX_UNAPPLIED: usize = 64;

/// Longest time for which a closing replica waits for its journal.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// Longest time for which trimming waits until the journal was checked, and how often it looks.
const CHECK_WAIT: Duration = Duration::from_secs(1);
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

pub(crate) struct Shared {
    pub replica: ReplicaId,
    pub times: CallTimes,
    journal: Arc<dyn Journal>,
    outage: Mutex<Outage>,
    warn: WarningHandler,
    /// How often a call of the journal has failed. [`Shared::losses`] counts what it has given up as well.
    failed_calls: AtomicU64,
    /// How often it was lost before a reader was opened that had the record that was applied last. After more
    /// losses the journal that answers may be another one, or one that has lost records.
    checked_after: AtomicU64,
    state: Mutex<State>,
    /// Something has changed, other than that a reader waits.
    changed: Condvar,
    /// A reader waits for whom the end of the journal is to be asked, or the replica ends. One thread waits.
    asked: Condvar,
}

/// What may be in the journal though its append has failed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Awaited {
    Nothing,
    /// The record with this sequence.
    Record(u64),
    /// The one that begins this session.
    Session(Session),
}

struct State {
    /// How far the journal is applied and published.
    anchor: Anchor,
    /// The hashes at the newest positions, the last one being that of the anchor.
    hashes: VecDeque<(Position, Hash)>,
    level: u8,
    /// The session of this replica as the journal has it.
    session: Option<Session>,
    /// The session that this process proposes in, and the one that it goes on in.
    own: Option<Session>,
    next: Option<Session>,
    /// Callers by the sequence of their record.
    pending: BTreeMap<u64, Pending>,
    /// Readers that wait for a position.
    confirmed: BTreeMap<Position, Vec<Arc<Ticket>>>,
    /// Readers for whom the end of the journal is not known yet.
    asking: VecDeque<Arc<Ticket>>,
    stop_at: Option<Instant>,
    proposer_ended: bool,
    /// The replica has failed, or was closed and no longer applies anything: nothing is pending from then on.
    failed: Option<Error>,
}

/// The callers of a record.
struct Pending {
    /// [`record::checksum`](plinth_journal::record::checksum) of the record: a sequence belongs to another
    /// one after its first was taken for not appended.
    checksum: u32,
    replies: Vec<Reply>,
}

impl Shared {
    pub(crate) fn new(
        replica: ReplicaId,
        anchor: Anchor,
        level: u8,
        session: Option<Session>,
        (journal, warn): (Arc<dyn Journal>, WarningHandler),
    ) -> Shared {
        Shared {
            replica,
            journal,
            times: CallTimes::default(),
            outage: Mutex::default(),
            warn,
            failed_calls: AtomicU64::new(0),
            checked_after: AtomicU64::new(u64::MAX),
            state: Mutex::new(State {
                anchor,
                hashes: [(anchor.position, anchor.hash)].into(),
                level,
                session,
                own: None,
                next: None,
                pending: BTreeMap::new(),
                confirmed: BTreeMap::new(),
                asking: VecDeque::new(),
                stop_at: None,
                proposer_ended: false,
                failed: None,
            }),
            changed: Condvar::new(),
            asked: Condvar::new(),
        }
    }

    /// A call of the journal has ended, with this error or none. After one that failed the journal is checked
    /// before it is used again, unless it has answered that it is full: it may have been replaced meanwhile.
    pub(crate) fn heard(&self, call: Call, error: Option<&JournalError>) {
        let Some(error) = error.filter(|error| error.is_transient() || error.refusal().is_some()) else {
            return self.outage.lock().succeeded(call);
        };
        let warning = self.outage.lock().failed(call, error);
        self.lost(error);
        if let Some(warning) = warning {
            self.warn.warn(&warning);
        }
    }

    /// Counts a call of the journal that has failed with this error. A full journal has answered as one that
    /// takes records. It may be full for hours, in which it refuses an append several times a second: each
    /// reader would wait for one comparison after another.
    fn lost(&self, error: &JournalError) {
        if !matches!(error, JournalError::Full { .. }) {
            self.failed_calls.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How often the journal was lost: a call of it has failed, or it has given up what it took for the
    /// journal, in whichever call, also one that is not made here. Both only grow, so where the sum has not
    /// changed neither has.
    pub(crate) fn losses(&self) -> u64 {
        self.failed_calls.load(Ordering::Acquire).saturating_add(self.journal.given_up())
    }

    /// A reader that was opened after `losses` has the record that was applied last.
    pub(crate) fn checked(&self, losses: u64) {
        // Under the lock, so that nobody begins to wait for it meanwhile.
        let mut state = self.state.lock();
        if self.checked_after.swap(losses, Ordering::AcqRel) != losses {
            // The end that others wait for may be that of one member, which has counted what others lack.
            let confirmed = std::mem::take(&mut state.confirmed);
            state.asking.extend(confirmed.into_values().flatten());
        }
        self.changed.notify_all();
        self.asked.notify_one();
    }

    /// Whether the journal was checked since it was lost: nothing is appended before, and no reader answered.
    pub(crate) fn is_checked(&self) -> bool {
        self.checked_after.load(Ordering::Acquire) == self.losses()
    }

    /// Trims the journal, once it is known to be the one that was applied. While appends fail it is lost, and
    /// found again, several times a second. Where it is given up and the next one found between the last look
    /// at that and the first step of the journal, it is the next one that is trimmed: the right one has what
    /// was applied here, so that position is right for it, and of one that was put back each replica that
    /// lacks something takes a checkpoint of another one.
    ///
    /// # Errors
    /// Those of [`Journal::trim`].
    pub(crate) fn trim(&self, before: Position) -> Result<(), JournalError> {
        let deadline = Instant::now() + CHECK_WAIT;
        while !self.is_checked() {
            if Instant::now() >= deadline || self.state.lock().failed.is_some() {
                let message = "it was not compared yet with what was applied".to_owned();
                return Err(JournalError::Unavailable { message });
            }
            self.wait_for_check(CHECK_INTERVAL);
        }
        let trimmed = self.journal.trim(before);
        trimmed.inspect_err(|error| {
            // As of any other call. Who lacks the right to trim is refused each time.
            if error.is_transient() {
                self.lost(error);
            }
        })
    }

    /// Why the journal refuses what it is asked for.
    pub(crate) fn refusal_of_journal(&self) -> Option<String> {
        self.outage.lock().refusal()
    }

    /// The error of the last call of the journal that failed, while it does not answer as it should.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.outage.lock().last_error()
    }

    pub(crate) fn stats(&self) -> JournalStats {
        self.times.stats(self.anchor().position, self.silence().is_none())
    }

    /// For how long the journal has not answered.
    pub(crate) fn silence(&self) -> Option<Duration> {
        self.outage.lock().silence()
    }

    pub(crate) fn anchor(&self) -> Anchor {
        self.state.lock().anchor
    }

    /// The hash at a position that was applied lately.
    pub(crate) fn hash_at(&self, position: Position) -> Option<Hash> {
        let hashes = &self.state.lock().hashes;
        let first = hashes.front()?.0.get();
        let at = usize::try_from(position.get().checked_sub(first)?).ok()?;
        hashes.get(at).filter(|(found, _)| *found == position).map(|(_, hash)| *hash)
    }

    pub(crate) fn level(&self) -> u8 {
        self.state.lock().level
    }

    /// The session of this replica as the journal has it.
    pub(crate) fn session(&self) -> Option<Session> {
        self.state.lock().session
    }

    /// This process proposes in `session` from now on.
    pub(crate) fn set_own(&self, session: Session) {
        self.state.lock().own = Some(session);
    }

    /// This process proposes in `session` as soon as the record is applied that begins it.
    pub(crate) fn set_next(&self, session: Session) {
        self.state.lock().next = Some(session);
    }

    /// Registers the callers of a record, by its checksum, before it is appended. After the replica has
    /// failed or was closed nobody would answer them: they are refused here, and false is returned.
    pub(crate) fn register(&self, sequence: u64, checksum: u32, replies: Vec<Reply>) -> bool {
        let mut state = self.state.lock();
        let Some(error) = state.failed.clone() else {
            state.pending.insert(sequence, Pending { checksum, replies });
            return true;
        };
        drop(state);
        replies.into_iter().for_each(|reply| reply.send(Err(error.clone())));
        false
    }

    /// Why nothing more is proposed.
    pub(crate) fn refusal(&self) -> Error {
        self.state.lock().failed.clone().unwrap_or(Error::Closed)
    }

    /// Takes the callers of a record that the journal reports as not appended; none when it was applied all
    /// the same.
    pub(crate) fn take_refused(&self, sequence: u64) -> Option<Vec<Reply>> {
        self.state.lock().pending.remove(&sequence).map(|pending| pending.replies)
    }

    /// Takes the callers of a record of this replica that is applied, or void where `is_valid` is not so.
    ///
    /// Callers are never answered with the outcome of another record than theirs, whatever the journal
    /// reported about its append: those whose sequence another one has used up are answered here.
    pub(crate) fn take_applied(
        &self,
        session: Session,
        sequence: u64,
        checksum: u32,
        is_valid: bool,
    ) -> Vec<Reply> {
        let mut state = self.state.lock();
        let Some(pending) = state.pending.get(&sequence).filter(|_| state.own == Some(session)) else {
            return Vec::new();
        };
        let is_theirs = pending.checksum == checksum;
        if !is_valid && !is_theirs {
            return Vec::new();
        }
        let replies = state.pending.remove(&sequence).map_or(Vec::new(), |pending| pending.replies);
        drop(state);
        if is_valid && is_theirs {
            // Whatever becomes of the append: the journal has taken it.
            self.heard(Call::Append, None);
            return replies;
        }
        let message = "the journal has appended a record that it had reported as not appended".to_owned();
        for reply in replies {
            reply.send(Err(Error::OutcomeUnknown { message: message.clone() }));
        }
        Vec::new()
    }

    /// Whether one of these records, by sequence, was not applied though the journal was, up to the position
    /// that it has named for the record.
    pub(crate) fn lacks(&self, mut records: impl Iterator<Item = (u64, Position)>) -> bool {
        let state = self.state.lock();
        records.any(|(sequence, position)| {
            position <= state.anchor.position && state.pending.contains_key(&sequence)
        })
    }

    /// Whether the record with this sequence is still to be applied.
    pub(crate) fn is_pending(&self, sequence: u64) -> bool {
        self.state.lock().pending.contains_key(&sequence)
    }

    /// A record was applied and published. Returns whether this process still is the one that proposes for
    /// the replica.
    pub(crate) fn applied(&self, anchor: Anchor, level: u8, session: Option<Session>) -> bool {
        let mut state = self.state.lock();
        state.anchor = anchor;
        if state.hashes.len() == KEPT_HASHES {
            state.hashes.pop_front();
        }
        state.hashes.push_back((anchor.position, anchor.hash));
        state.level = level;
        state.session = session;
        if session.is_some() && state.next == session {
            state.own = state.next.take();
        }
        let later = state.confirmed.split_off(&anchor.position.next());
        let ready = std::mem::replace(&mut state.confirmed, later);
        let is_own = state.own.is_none() || state.own == session;
        drop(state);
        self.changed.notify_all();
        for ticket in ready.into_values().flatten() {
            ticket.answer(Ok(anchor.revision));
        }
        is_own
    }

    /// Adds a reader for whom the end of the journal is to be asked.
    pub(crate) fn ask(&self, ticket: &Arc<Ticket>) {
        let mut state = self.state.lock();
        if let Some(error) = state.ending() {
            drop(state);
            return ticket.answer(Err(error));
        }
        state.asking.push_back(Arc::clone(ticket));
        let is_first = state.asking.len() == 1;
        drop(state);
        // The thread that asks takes all who wait.
        if is_first {
            self.asked.notify_one();
        }
    }

    /// Takes the readers that wait now. When `block`, waits until there are some. None when the replica ends.
    pub(crate) fn take_asking(&self, block: bool) -> Option<VecDeque<Arc<Ticket>>> {
        let mut state = self.state.lock();
        loop {
            if state.ending().is_some() {
                return None;
            }
            // Those whose callers have left are not worth a call.
            state.asking.retain(|ticket| Arc::strong_count(ticket) > 1);
            if !state.asking.is_empty() || !block {
                return Some(std::mem::take(&mut state.asking));
            }
            self.asked.wait(&mut state);
        }
    }

    /// The journal ended at `end` after these readers arrived, and after it was lost so often: they wait
    /// until that is applied. Where it was lost since, also where that was found out and the journal compared
    /// meanwhile, its end is asked for again.
    pub(crate) fn confirm(&self, tickets: VecDeque<Arc<Ticket>>, end: Position, losses: u64) {
        let mut state = self.state.lock();
        let is_lost = self.losses() != losses || !self.is_checked();
        let outcome = match state.ending() {
            Some(error) => Err(error),
            // Whoever checks it waits for the lock: those that wait then are asked for again.
            None if is_lost => return state.asking.extend(tickets),
            None if end <= state.anchor.position => Ok(state.anchor.revision),
            None => {
                state.confirmed.entry(end).or_default().extend(tickets);
                return;
            }
        };
        drop(state);
        tickets.iter().for_each(|ticket| ticket.answer(outcome.clone()));
    }

    /// The end of the journal could not be asked: these readers wait for the next time.
    pub(crate) fn ask_later(&self, mut tickets: VecDeque<Arc<Ticket>>) {
        let mut state = self.state.lock();
        if let Some(error) = state.ending() {
            drop(state);
            return tickets.iter().for_each(|ticket| ticket.answer(Err(error.clone())));
        }
        tickets.append(&mut state.asking);
        state.asking = tickets;
    }

    /// Waits until something has changed, for `timeout` at most, or the replica ends.
    pub(crate) fn pause(&self, timeout: Duration) {
        let mut state = self.state.lock();
        if state.failed.is_none() {
            self.changed.wait_for(&mut state, timeout);
        }
    }

    /// Waits until the journal was checked since it was lost, for `timeout` at most, or something else has
    /// changed.
    pub(crate) fn wait_for_check(&self, timeout: Duration) {
        let mut state = self.state.lock();
        if state.failed.is_none() && !self.is_checked() {
            self.changed.wait_for(&mut state, timeout);
        }
    }

    /// Leaves the journal alone for `timeout` after it has failed, whatever changes meanwhile but for what is
    /// awaited, and that the replica fails or begins to be closed.
    pub(crate) fn rest(&self, timeout: Duration, awaited: Awaited) {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
        let was_stopping = state.stop_at.is_some();
        let has_come = |state: &State| match awaited {
            Awaited::Nothing => false,
            Awaited::Record(sequence) => !state.pending.contains_key(&sequence),
            Awaited::Session(session) => state.session == Some(session),
        };
        while state.failed.is_none() && state.stop_at.is_some() == was_stopping && !has_come(&state) {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return;
            }
        }
    }

    /// Whether there is room for another record before some are applied.
    pub(crate) fn has_room(&self) -> bool {
        self.state.lock().pending.len() < MAX_UNAPPLIED
    }

    /// The engine is being closed: what is in the journal is still applied, for a bounded time.
    pub(crate) fn stop(&self) {
        self.state.lock().stop_at.get_or_insert_with(|| Instant::now() + CLOSE_WAIT);
        self.end(Error::Closed, false);
    }

    /// Follows the journal no more once what is in it is applied, or the time for that is over, which this
    /// waits for: calls of it that go on then end. To be called after [`Shared::stop`].
    pub(crate) fn leave_journal(&self) {
        let mut state = self.state.lock();
        while let Some(end) = state.stop_at.filter(|_| !state.is_done()) {
            self.changed.wait_until(&mut state, end);
        }
        drop(state);
        self.journal.close();
    }

    /// The engine has failed.
    pub(crate) fn fail(&self, error: Error) {
        self.end(error, true);
    }

    fn end(&self, error: Error, failed: bool) {
        let mut state = self.state.lock();
        let mut pending = BTreeMap::new();
        if failed {
            state.failed.get_or_insert_with(|| error.clone());
            pending = std::mem::take(&mut state.pending);
        }
        let mut tickets: Vec<Arc<Ticket>> = std::mem::take(&mut state.asking).into();
        tickets.extend(std::mem::take(&mut state.confirmed).into_values().flatten());
        drop(state);
        self.changed.notify_all();
        self.asked.notify_one();
        for ticket in tickets {
            ticket.answer(Err(error.clone()));
        }
        for reply in pending.into_values().flat_map(|pending| pending.replies) {
            // Whatever has failed here: its record may be in the journal, and other replicas apply it.
            reply.send(Err(Error::OutcomeUnknown { message: error.cause() }));
        }
    }

    /// The proposer has ended: nothing more will be appended.
    pub(crate) fn proposer_ended(&self) {
        self.state.lock().proposer_ended = true;
        self.changed.notify_all();
    }

    /// Whether the proposer gives up on a journal that does not answer.
    pub(crate) fn gives_up(&self) -> bool {
        let state = self.state.lock();
        state.failed.is_some() || state.stop_at.is_some_and(|at| Instant::now() >= at)
    }

    /// Whether the applier is done.
    pub(crate) fn is_done(&self) -> bool {
        self.state.lock().is_done()
    }

    /// The replica was closed and applies nothing more: answers callers whose records were not applied.
    pub(crate) fn abandon(&self) {
        self.end(Error::Closed, true);
    }
}

impl State {
    fn is_done(&self) -> bool {
        let closed = self
            .stop_at
            .is_some_and(|at| (self.proposer_ended && self.pending.is_empty()) || Instant::now() >= at);
        self.failed.is_some() || closed
    }

    fn ending(&self) -> Option<Error> {
        self.failed.clone().or(self.stop_at.map(|_| Error::Closed))
    }
}

#[cfg(test)]
mod tests {
    use plinth_journal::simulated::SimulatedJournal;

    use super::*;
    fn unused() -> (Arc<dyn Journal>, WarningHandler) {
        (Arc::new(SimulatedJournal::new(1).client(1)), WarningHandler::default())
    }
    use crate::commit::proposal::Proposal;
    use crate::commit::queue::{CommitQueue, Task};
    use crate::transaction::Transaction;

    /// A caller, with the reply that a record of it has.
    fn caller() -> (Proposal, Vec<Reply>) {
        let queue = Arc::new(CommitQueue::new(1 << 20));
        let task = Task::Transact(Transaction::new().put("k", "v"));
        let proposal = Proposal::submit_withdrawable(&queue, task, 2);
        let replies = queue.take_batch(usize::MAX, Duration::MAX).unwrap().into_iter().map(|work| work.reply);
        let replies: Vec<_> = replies.filter(Reply::begin).collect();
        assert_eq!(replies.len(), 1);
        (proposal, replies)
    }

    #[test]
    fn what_may_be_in_the_journal_has_an_unknown_outcome_when_the_replica_fails() {
        let shared = Shared::new(ReplicaId(1), Anchor::default(), 0, None, unused());
        let (proposal, replies) = caller();
        assert!(shared.register(1, 7, replies));
        shared.fail(Error::Poisoned { message: "no space left".to_owned() });
        match proposal.wait() {
            Err(Error::OutcomeUnknown { message }) => assert!(message.contains("no space left")),
            other => panic!("{other:?}"),
        }
    }

    /// It was lost, found again and compared between the answer and its use.
    #[test]
    fn an_end_of_before_the_journal_was_lost_answers_nobody() {
        let shared = Shared::new(ReplicaId(1), Anchor::default(), 0, None, unused());
        shared.checked(shared.losses());
        for is_checked in [false, true] {
            let (ticket, losses) = (Arc::<Ticket>::default(), shared.losses());
            shared.heard(Call::Read, Some(&JournalError::Unavailable { message: "lost".to_owned() }));
            if is_checked {
                shared.checked(shared.losses());
            }
            shared.confirm([Arc::clone(&ticket)].into(), Position::ZERO, losses);
            assert!(ticket.poll(std::task::Waker::noop()).is_pending());
            assert_eq!(shared.take_asking(false).map(|asking| asking.len()), Some(1));
        }
        let ticket = Arc::<Ticket>::default();
        shared.confirm([Arc::clone(&ticket)].into(), Position::ZERO, shared.losses());
        assert!(ticket.poll(std::task::Waker::noop()).is_ready());
    }

    #[test]
    fn callers_that_are_registered_after_the_end_are_refused() {
        let failed: fn(&Shared) = |shared| shared.fail(Error::Poisoned { message: "full".to_owned() });
        for end in [failed, Shared::abandon] {
            let shared = Shared::new(ReplicaId(1), Anchor::default(), 0, None, unused());
            end(&shared);
            let (proposal, replies) = caller();
            assert!(!shared.register(1, 7, replies), "it is not to be appended");
            let refused = proposal.wait();
            assert!(matches!(refused, Err(Error::Poisoned { .. } | Error::Closed)), "{refused:?}");
        }
    }
}
