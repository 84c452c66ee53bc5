//! The answer to a task of the commit queue, and the two ends that it passes between.

use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::error::{Error, Result};
use crate::feed::event::Commit;
use crate::revision::Revision;
use crate::sync::Mutex;

/// The outcome of a committed transaction.
#[derive(Debug, Clone)]
pub struct Committed {
    /// The transaction's revision; when it changed nothing, the newest revision at that time.
    pub revision: Revision,
    /// The changes, shared with subscribers; none when nothing changed. The deleted or replaced records are
    /// the events' previous values.
    pub commit: Option<Arc<Commit>>,
}

/// Holds the answer to one task.
pub(crate) struct Slot(Mutex<SlotState>);

enum SlotState {
    Waiting {
        waker: Option<Waker>,
        /// Whether it is too late to withdraw the task.
        is_begun: bool,
    },
    Done(Result<Committed>),
    Taken,
}

impl Slot {
    pub(crate) fn new(is_begun: bool) -> Arc<Slot> {
        Arc::new(Slot(Mutex::new(SlotState::Waiting { waker: None, is_begun })))
    }

    /// From now on the task cannot be withdrawn; false when it was.
    fn begin(&self) -> bool {
        match &mut *self.0.lock() {
            SlotState::Waiting { is_begun, .. } => {
                *is_begun = true;
                true
            }
            SlotState::Done(_) | SlotState::Taken => false,
        }
    }

    /// The task can be withdrawn again: what was begun was not made, and never will be.
    fn unbegin(&self) {
        if let SlotState::Waiting { is_begun, .. } = &mut *self.0.lock() {
            *is_begun = false;
        }
    }

    /// Withdraws the task unless it was begun; returns whether it was withdrawn.
    pub(crate) fn withdraw(&self) -> bool {
        let mut state = self.0.lock();
        let is_waiting = matches!(*state, SlotState::Waiting { is_begun: false, .. });
        if is_waiting {
            *state = SlotState::Taken;
        }
        is_waiting
    }

    fn answer(&self, result: Result<Committed>) {
        let mut state = self.0.lock();
        if let SlotState::Waiting { waker, .. } = std::mem::replace(&mut *state, SlotState::Done(result)) {
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Result<Committed>> {
        let mut state = self.0.lock();
        match &mut *state {
            SlotState::Waiting { waker: registered, .. } => {
                *registered = Some(waker.clone());
                Poll::Pending
            }
            SlotState::Done(_) => match std::mem::replace(&mut *state, SlotState::Taken) {
                SlotState::Done(result) => Poll::Ready(result),
                SlotState::Waiting { .. } | SlotState::Taken => Poll::Ready(Err(Error::Closed)),
            },
            SlotState::Taken => Poll::Ready(Err(Error::Closed)),
        }
    }
}

/// The committer's end of a [`Slot`]. When it is dropped without an answer, by a thread that panics, it
/// answers with [`Error::OutcomeUnknown`].
pub(crate) struct Reply(Option<Arc<Slot>>);

impl Reply {
    pub(crate) fn new(slot: &Arc<Slot>) -> Reply {
        Reply(Some(Arc::clone(slot)))
    }

    /// See [`Slot::begin`]. False also when nobody waits.
    pub(crate) fn begin(&self) -> bool {
        self.0.as_ref().is_some_and(|slot| slot.begin())
    }

    /// See [`Slot::unbegin`].
    pub(crate) fn unbegin(&self) {
        if let Some(slot) = &self.0 {
            slot.unbegin();
        }
    }

    pub(crate) fn send(mut self, result: Result<Committed>) {
        if let Some(slot) = self.0.take() {
            slot.answer(result);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            slot.answer(Err(Error::OutcomeUnknown { message: "a thread of the engine ended".to_owned() }));
        }
    }
}
