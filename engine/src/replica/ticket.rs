//! A reader that waits for a position of the journal.

use std::task::{Poll, Waker};

use parking_lot::Mutex;

use crate::error::Result;

/// A reader that waits.
#[derive(Default)]
pub(crate) struct Ticket(Mutex<TicketState>);

#[derive(Default)]
struct TicketState {
    outcome: Option<Result<u64>>,
    waker: Option<Waker>,
}

impl Ticket {
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Result<u64>> {
        let mut state = self.0.lock();
        match &state.outcome {
            Some(outcome) => Poll::Ready(outcome.clone()),
            None => {
                state.waker = Some(waker.clone());
                Poll::Pending
            }
        }
    }

    pub(crate) fn answer(&self, outcome: Result<u64>) {
        let mut state = self.0.lock();
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
