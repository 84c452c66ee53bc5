//! The thread that wakes many subscribers, so that the writer does not.

use std::sync::mpsc::SendError;
use std::task::Waker;

use crate::sync::mpsc::{self, Receiver, Sender};

/// Sends wakers to the wake-up thread. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Wakeup {
    batches: Sender<Option<Vec<Waker>>>,
}

impl Wakeup {
    /// The handle and the body of its thread.
    pub(crate) fn new() -> (Wakeup, impl FnOnce() + Send + 'static) {
        let (batches, receiver) = mpsc::channel();
        (Wakeup { batches }, move || run(&receiver))
    }

    /// Wakes all of `wakers`.
    pub(crate) fn wake(&self, wakers: Vec<Waker>) {
        if let Err(SendError(Some(wakers))) = self.batches.send(Some(wakers)) {
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Ends the thread after the wakers that were sent before.
    pub(crate) fn stop(&self) {
        // The thread may have ended already.
        let _ = self.batches.send(None);
    }
}

fn run(batches: &Receiver<Option<Vec<Waker>>>) {
    while let Ok(Some(wakers)) = batches.recv() {
        wakers.into_iter().for_each(Waker::wake);
    }
}
