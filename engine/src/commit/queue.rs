//! The commit queue: bounded, in front of the committer, with the hand-over between its two threads.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::commit::group::Group;
use crate::commit::group_delay::{GroupDelay, Wait};
use crate::commit::reply::Reply;
use crate::error::Error;
use crate::revision::Revision;
use crate::sync::{Condvar, Mutex};
use crate::transaction::Transaction;

/// A queued task with its reply.
pub(crate) struct Work {
    pub task: Task,
    pub reply: Reply,
    /// Bytes that it takes of the queue's limit.
    pub size: usize,
}

/// A task of the builder.
pub(crate) enum Task {
    /// A caller's transaction.
    Transact(Transaction),
    /// Removes tombstones that no readable revision needs, where they are still the newest version.
    Purge(Vec<(Bytes, Revision)>),
    /// Stores the compaction floor, synced.
    SetFloor(Revision),
    /// Raises the level of the cluster, in a replica.
    RaiseLevel(u8),
    /// Closes the journal, in a replica.
    CloseJournal,
}

/// A group of at most this many transactions is written by the builder itself when nothing else is in flight:
/// waking another thread costs more than the overlap gains.
const FEW: usize = 8;

/// Tasks that the builder takes at a time, so that an idle syncer is noticed soon.
const TAKE: usize = 64;

/// The queue and the hand-over. One lock, held briefly; the builder and the syncer each wait on a condition
/// variable of their own.
pub(crate) struct CommitQueue {
    state: Mutex<State>,
    builder: Condvar,
    syncer: Condvar,
    limit: usize,
}

struct State {
    queue: VecDeque<Work>,
    queued_bytes: usize,
    /// Callers blocked by a full queue.
    blocked: Vec<Waker>,
    /// A group that the syncer has not taken yet.
    ready: Option<Group>,
    /// A group is being written.
    syncing: bool,
    /// The callers of the last group are being notified.
    answering: bool,
    /// Whether the next group is delayed for more callers.
    group_delay: GroupDelay,
    /// Groups were written since the syncer last waited without a timeout.
    written_since: bool,
    /// The syncer has written every group up to this number.
    finished: u64,
    /// A group failed, or the whole engine; not yet seen by the builder.
    failed: Option<Error>,
    /// Why new tasks are refused.
    refusing: Option<Error>,
    builder_ended: bool,
}

/// What the builder has to do next.
pub(crate) struct NextWork {
    pub work: Vec<Work>,
    /// A group to write before anything else: small, and nothing else is in flight.
    pub write: Option<Group>,
    pub finished: u64,
    pub failed: Option<Error>,
    pub closing: bool,
    /// No group is ready or being written.
    pub idle: bool,
}

impl NextWork {
    fn empty(finished: u64) -> NextWork {
        NextWork { work: Vec::new(), write: None, finished, failed: None, closing: false, idle: false }
    }
}

impl CommitQueue {
    pub(crate) fn new(limit: usize) -> CommitQueue {
        CommitQueue {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                queued_bytes: 0,
                blocked: Vec::new(),
                ready: None,
                syncing: false,
                answering: false,
                written_since: false,
                group_delay: GroupDelay::default(),
                finished: 0,
                failed: None,
                refusing: None,
                builder_ended: false,
            }),
            builder: Condvar::new(),
            syncer: Condvar::new(),
            limit,
        }
    }

    /// Queues work. When the queue is full the work is returned, and `waker` is called when there is room.
    /// Work larger than the whole queue is admitted when the queue is empty.
    pub(crate) fn submit(&self, work: Work, waker: Option<&Waker>) -> Option<Work> {
        let mut state = self.state.lock();
        if let Some(error) = &state.refusing {
            let error = error.clone();
            drop(state);
            work.reply.send(Err(error));
            return None;
        }
        if !state.queue.is_empty() && state.queued_bytes.saturating_add(work.size) > self.limit {
            state.blocked.extend(waker.cloned());
            return Some(work);
        }
        state.queued_bytes += work.size;
        state.queue.push_back(work);
        if state.queue.len() == 1 {
            self.builder.notify_one();
        }
        None
    }

    /// Number of queued tasks and their bytes.
    pub(crate) fn queued(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.queue.len(), state.queued_bytes)
    }

    /// Refuses new work with [`Error::Closed`]; queued work is completed, then the two threads end.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.refusing = Some(Error::Closed);
        let blocked = std::mem::take(&mut state.blocked);
        drop(state);
        blocked.into_iter().for_each(Waker::wake);
        self.builder.notify_one();
    }

    /// Stops all writes: refuses with `error` new work, queued work and groups that are not being written
    /// yet.
    pub(crate) fn poison(&self, error: &Error) {
        let mut state = self.state.lock();
        // A queue that is closing keeps closing: its threads wait for that.
        state.refusing.get_or_insert_with(|| error.clone());
        state.failed.get_or_insert_with(|| error.clone());
        let queue = std::mem::take(&mut state.queue);
        state.queued_bytes = 0;
        let blocked = std::mem::take(&mut state.blocked);
        let ready = state.ready.take();
        drop(state);
        if let Some(group) = ready {
            group.fail(error);
        }
        for work in queue {
            work.reply.send(Err(error.clone()));
        }
        blocked.into_iter().for_each(Waker::wake);
        self.builder.notify_one();
    }

    /// For the builder: hands `group` over as soon as the syncer is free and the group-commit delay has
    /// passed (see [`GroupDelay`]), and takes work as long as the group has room. A small group is returned
    /// to be written by the builder. Blocks until there is something to do.
    pub(crate) fn next_work(&self, group: &mut Option<Group>, room: bool) -> NextWork {
        let mut state = self.state.lock();
        loop {
            let closed = state.refusing.is_some();
            let mut wait = Wait::No;
            if state.failed.is_none() && !state.syncing && state.ready.is_none() {
                if let Some(size) = group.as_ref().map(|group| group.answers.len()) {
                    if room && !closed {
                        wait = state.group_delay.wait(size, Instant::now());
                    }
                    let alone = state.queue.is_empty() && !state.answering && size <= FEW;
                    match wait {
                        Wait::No if alone && group.as_ref().is_some_and(|group| group.sync) => {
                            state.syncing = true;
                            return NextWork { write: group.take(), ..NextWork::empty(state.finished) };
                        }
                        Wait::No => {
                            state.ready = group.take();
                            self.syncer.notify_one();
                        }
                        Wait::Until(_) | Wait::UntilAnswered => {}
                    }
                }
            }
            let room = room || group.is_none();
            let closing = matches!(state.refusing, Some(Error::Closed)) && state.queue.is_empty();
            if state.failed.is_some() || (room && !state.queue.is_empty()) || (closing && group.is_none()) {
                let take = if room && state.failed.is_none() { state.queue.len().min(TAKE) } else { 0 };
                let work: Vec<Work> = state.queue.drain(..take).collect();
                state.queued_bytes -= work.iter().map(|work| work.size).sum::<usize>();
                let next = NextWork {
                    work,
                    write: None,
                    finished: state.finished,
                    failed: state.failed.take(),
                    closing: closing && group.is_none(),
                    idle: !state.syncing && state.ready.is_none(),
                };
                let blocked = std::mem::take(&mut state.blocked);
                drop(state);
                blocked.into_iter().for_each(Waker::wake);
                return next;
            }
            match wait {
                Wait::No | Wait::UntilAnswered => self.builder.wait(&mut state),
                Wait::Until(until) => {
                    self.builder.wait_until(&mut state, until);
                }
            }
        }
    }

    /// For the proposer of a replica, which takes the place of the builder: takes queued work of up to
    /// `limit` bytes, one task at least. Waits for some as long as `wait`, for ever if that is
    /// [`Duration::MAX`]. None when there will be no more.
    pub(crate) fn take_batch(&self, limit: usize, wait: Duration) -> Option<Vec<Work>> {
        let until = Instant::now().checked_add(wait);
        let mut state = self.state.lock();
        loop {
            if state.failed.is_some() || (state.refusing.is_some() && state.queue.is_empty()) {
                return None;
            }
            if !state.queue.is_empty() || until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
            match until {
                Some(until) => drop(self.builder.wait_until(&mut state, until)),
                None => self.builder.wait(&mut state),
            }
        }
        let mut work: Vec<Work> = Vec::new();
        let mut bytes = 0usize;
        while let Some(next) = state.queue.front() {
            bytes = bytes.saturating_add(next.size);
            if !work.is_empty() && bytes > limit {
                break;
            }
            state.queued_bytes -= next.size;
            work.extend(state.queue.pop_front());
        }
        let blocked = if work.is_empty() { Vec::new() } else { std::mem::take(&mut state.blocked) };
        drop(state);
        blocked.into_iter().for_each(Waker::wake);
        Some(work)
    }

    /// For the builder: there will be no more groups.
    pub(crate) fn builder_ended(&self) {
        self.state.lock().builder_ended = true;
        self.syncer.notify_one();
    }

    /// For the syncer: waits for a group. None when `timeout` passed first or, without a timeout, when a
    /// group was written since the last such wait, because a sync may be due then. An error when there will
    /// be no more groups.
    pub(crate) fn take_group(&self, timeout: Option<Duration>) -> Result<Option<Group>, Finished> {
        let mut state = self.state.lock();
        loop {
            if let Some(group) = state.ready.take() {
                state.syncing = true;
                return Ok(Some(group));
            }
            if state.builder_ended {
                return Err(Finished);
            }
            match timeout {
                None if std::mem::take(&mut state.written_since) => return Ok(None),
                None => self.syncer.wait(&mut state),
                Some(timeout) => {
                    if self.syncer.wait_for(&mut state, timeout).timed_out() && state.ready.is_none() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// For the writer: the group with this number is in the database. `answered` callers are about to be
    /// notified; the synced write lasted `took`.
    pub(crate) fn group_written(&self, number: u64, answered: usize, took: Duration) {
        let mut state = self.state.lock();
        state.group_delay.written(answered, took);
        state.syncing = false;
        state.answering = true;
        state.finished = number;
        drop(state);
        self.builder.notify_one();
    }

    /// For the writer: the callers of the last group have been notified.
    pub(crate) fn group_answered(&self) {
        let mut state = self.state.lock();
        state.group_delay.answered(Instant::now());
        state.answering = false;
        let was_written = std::mem::replace(&mut state.written_since, true);
        let waiting = state.ready.is_none();
        drop(state);
        if !was_written {
            self.syncer.notify_one();
        }
        if waiting {
            self.builder.notify_one();
        }
    }

    /// For the writer: the group with this number could not be written.
    pub(crate) fn group_failed(&self, number: u64, error: Error) {
        let mut state = self.state.lock();
        state.syncing = false;
        state.finished = number;
        // The group that the builder has open was never written, which is what the error set by `poison`
        // states.
        state.failed.get_or_insert(error);
        drop(state);
        self.builder.notify_one();
    }
}

/// There will be no more groups.
pub(crate) struct Finished;
