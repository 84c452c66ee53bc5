//! The bounded queue in front of the committer, and the hand-over between its two threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::commit::group::Group;
use crate::commit::proposal::Slot;
use crate::error::Error;
use crate::revision::Revision;
use crate::transaction::Transaction;

/// Something for the builder to do.
pub(crate) struct Work {
    pub task: Task,
    pub slot: Arc<Slot>,
    /// What it counts for in the queue.
    pub size: usize,
}

/// The kinds of work.
pub(crate) enum Task {
    /// A caller's transaction.
    Transact(Transaction),
    /// Removes tombstones that no reader can need any more, where they are still the newest version.
    Purge(Vec<(Bytes, Revision)>),
    /// Sets a number of the store itself, synced.
    SetNumber(&'static [u8], u64),
}

/// Work that the builder takes at a time, so that a waiting syncer is seen soon.
const TAKE: usize = 64;

/// The queue and the hand-over. One lock, held for moments; the builder and the syncer each wait on
/// a condition of their own.
pub(crate) struct Desk {
    state: Mutex<State>,
    builder: Condvar,
    syncer: Condvar,
    limit: usize,
}

struct State {
    queue: VecDeque<Work>,
    queued_bytes: usize,
    /// Callers that found the queue full.
    outside: Vec<Waker>,
    /// A group that the syncer has not taken yet.
    ready: Option<Group>,
    syncing: bool,
    /// The syncer has written every group up to this number.
    finished: u64,
    /// The syncer's last group failed; the builder has not taken note yet.
    failed: Option<Error>,
    /// Refuses everything from now on.
    refusing: Option<Error>,
    builder_gone: bool,
}

/// What the builder finds when it looks.
pub(crate) struct Look {
    pub work: Vec<Work>,
    pub finished: u64,
    pub failed: Option<Error>,
    pub closing: bool,
    /// Nothing is on its way to the database: neither ready nor being written.
    pub idle: bool,
}

impl Desk {
    pub(crate) fn new(limit: usize) -> Desk {
        Desk {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                queued_bytes: 0,
                outside: Vec::new(),
                ready: None,
                syncing: false,
                finished: 0,
                failed: None,
                refusing: None,
                builder_gone: false,
            }),
            builder: Condvar::new(),
            syncer: Condvar::new(),
            limit,
        }
    }

    /// Queues work. When the queue is full it comes back, and `waker` is called when there is room.
    /// Work larger than the whole queue is let in when the queue is empty.
    pub(crate) fn submit(&self, work: Work, waker: Option<&Waker>) -> Option<Work> {
        let mut state = self.state.lock();
        if let Some(error) = &state.refusing {
            let error = error.clone();
            drop(state);
            work.slot.answer(Err(error));
            return None;
        }
        if !state.queue.is_empty() && state.queued_bytes.saturating_add(work.size) > self.limit {
            state.outside.extend(waker.cloned());
            return Some(work);
        }
        state.queued_bytes += work.size;
        state.queue.push_back(work);
        if state.queue.len() == 1 {
            self.builder.notify_one();
        }
        None
    }

    /// Bytes and number of what is queued.
    pub(crate) fn queued(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.queue.len(), state.queued_bytes)
    }

    /// Refuses new work with [`Error::Closed`]; what is queued is still done, then the two threads end.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.refusing = Some(Error::Closed);
        let outside = std::mem::take(&mut state.outside);
        drop(state);
        outside.into_iter().for_each(Waker::wake);
        self.builder.notify_one();
    }

    /// Refuses new and queued work with `error`: no more writes.
    pub(crate) fn poison(&self, error: &Error) {
        let mut state = self.state.lock();
        state.refusing.get_or_insert_with(|| error.clone());
        let queue = std::mem::take(&mut state.queue);
        state.queued_bytes = 0;
        let outside = std::mem::take(&mut state.outside);
        drop(state);
        for work in queue {
            work.slot.answer(Err(error.clone()));
        }
        outside.into_iter().for_each(Waker::wake);
    }

    /// The builder's side: hands `group` over as soon as the syncer is free, and takes work as long as
    /// the group has room. Returns when there is something to do.
    pub(crate) fn look(&self, group: &mut Option<Group>, room: bool) -> Look {
        let mut state = self.state.lock();
        loop {
            if state.failed.is_none() && !state.syncing && state.ready.is_none() && group.is_some() {
                state.ready = group.take();
                self.syncer.notify_one();
            }
            let room = room || group.is_none();
            let closing = matches!(state.refusing, Some(Error::Closed)) && state.queue.is_empty();
            if state.failed.is_some() || (room && !state.queue.is_empty()) || (closing && group.is_none()) {
                let take = if room && state.failed.is_none() { state.queue.len().min(TAKE) } else { 0 };
                let work: Vec<Work> = state.queue.drain(..take).collect();
                state.queued_bytes -= work.iter().map(|work| work.size).sum::<usize>();
                let look = Look {
                    work,
                    finished: state.finished,
                    failed: state.failed.take(),
                    closing: closing && group.is_none(),
                    idle: !state.syncing && state.ready.is_none(),
                };
                let outside = std::mem::take(&mut state.outside);
                drop(state);
                outside.into_iter().for_each(Waker::wake);
                return look;
            }
            self.builder.wait(&mut state);
        }
    }

    /// The builder's side: there will be no more groups.
    pub(crate) fn builder_gone(&self) {
        self.state.lock().builder_gone = true;
        self.syncer.notify_one();
    }

    /// The syncer's side: waits for a group. None when `timeout` passed first; an error in the inner
    /// result when there will be no more.
    pub(crate) fn take_group(&self, timeout: Option<Duration>) -> Result<Option<Group>, Finished> {
        let mut state = self.state.lock();
        loop {
            if let Some(group) = state.ready.take() {
                state.syncing = true;
                return Ok(Some(group));
            }
            if state.builder_gone {
                return Err(Finished);
            }
            match timeout {
                None => self.syncer.wait(&mut state),
                Some(timeout) => {
                    if self.syncer.wait_for(&mut state, timeout).timed_out() && state.ready.is_none() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// The syncer's side: the group with this number is in the database, or failed.
    pub(crate) fn group_done(&self, number: u64, failed: Option<Error>) {
        let mut state = self.state.lock();
        state.syncing = false;
        state.finished = number;
        state.failed = failed;
        drop(state);
        self.builder.notify_one();
    }
}

/// There will be no more groups.
pub(crate) struct Finished;
