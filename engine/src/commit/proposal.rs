//! The caller's handle of a transaction in flight.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::block::block_until;
use crate::commit::queue::{CommitQueue, Task, Work};
use crate::commit::reply::{Committed, Reply, Slot};
use crate::error::{Error, Result};

/// A transaction in flight: a future for any runtime, or [`Proposal::wait`] for a plain thread.
///
/// The transaction was queued when the proposal was made, unless the queue was full: then it is queued as
/// soon as there is room and the proposal is polled. Dropping a proposal discards the answer, and cancels the
/// transaction only when it was not queued yet.
#[must_use = "the outcome is known only when the proposal is awaited"]
pub struct Proposal(State);

enum State {
    /// The queue is full.
    Blocked(Arc<CommitQueue>, Option<Work>, Arc<Slot>),
    /// Queued, being committed, or answered.
    Queued(Arc<Slot>),
    /// Refused before it was queued.
    Refused(Option<Error>),
}

impl Proposal {
    /// Queues `task`, which takes `size` bytes of the queue's limit.
    pub(crate) fn submit(queue: &Arc<CommitQueue>, task: Task, size: usize) -> Proposal {
        Proposal::queue(queue, task, size, Slot::new(true))
    }

    /// Queues `task`, which can be withdrawn until it is begun.
    pub(crate) fn submit_withdrawable(queue: &Arc<CommitQueue>, task: Task, size: usize) -> Proposal {
        Proposal::queue(queue, task, size, Slot::new(false))
    }

    fn queue(queue: &Arc<CommitQueue>, task: Task, size: usize, slot: Arc<Slot>) -> Proposal {
        let work = Work { task, reply: Reply::new(&slot), size };
        Proposal(match queue.submit(work, None) {
            None => State::Queued(slot),
            Some(work) => State::Blocked(Arc::clone(queue), Some(work), slot),
        })
    }

    pub(crate) fn refused(error: Error) -> Proposal {
        Proposal(State::Refused(Some(error)))
    }

    /// Gives up waiting. True when the transaction was not committed and never will be; false when that is
    /// not certain. It is never certain in a single store once the transaction is queued, and in a replica
    /// while it is part of a record that is being appended, or may have been. A withdrawn proposal resolves
    /// to [`Error::Closed`].
    pub fn withdraw(&mut self) -> bool {
        let is_withdrawn = match &mut self.0 {
            State::Blocked(_, work, _) => work.is_some(),
            State::Queued(slot) => slot.withdraw(),
            State::Refused(_) => true,
        };
        if is_withdrawn {
            self.0 = State::Refused(None);
        }
        is_withdrawn
    }

    /// Blocks the thread until the transaction is durable or has failed.
    ///
    /// # Errors
    /// [`Error::Conflict`] when a condition does not hold; [`Error::TooLarge`], [`Error::InvalidTransaction`]
    /// when the transaction is refused; [`Error::OutOfSpace`] when the disk is full;
    /// [`Error::OutcomeUnknown`] when it is unknown whether it was written; [`Error::Closed`],
    /// [`Error::Poisoned`] when the engine takes no writes.
    pub fn wait(self) -> Result<Committed> {
        block_until(self, None).unwrap_or(Err(Error::Closed))
    }
}

impl Future for Proposal {
    type Output = Result<Committed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &mut self.get_mut().0;
        if let State::Blocked(queue, work, slot) = state {
            if let Some(taken) = work.take() {
                *work = queue.submit(taken, Some(cx.waker()));
                if work.is_some() {
                    return Poll::Pending;
                }
            }
            *state = State::Queued(Arc::clone(slot));
        }
        match state {
            State::Queued(slot) => slot.poll(cx.waker()),
            State::Refused(error) => Poll::Ready(Err(error.take().unwrap_or(Error::Closed))),
            State::Blocked(..) => Poll::Pending,
        }
    }
}
