//! The thread that wakes many subscribers, so that the committing thread need not.

use std::sync::mpsc::SendError;
use std::task::Waker;

use crate::sync::mpsc::{self, Receiver, Sender};

/// Hands wakers to the waking thread. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Wakeup {
    batches: Sender<Option<Vec<Waker>>>,
}

impl Wakeup {
    /// The handle and what its thread has to run.
    pub(crate) fn new() -> (Wakeup, impl FnOnce() + Send + 'static) {
        let (batches, receiver) = mpsc::channel();
        (Wakeup { batches }, move || run(&receiver))
    }

    /// Has all of `wakers` called.
    pub(crate) fn wake(&self, wakers: Vec<Waker>) {
        if let Err(SendError(Some(wakers))) = self.batches.send(Some(wakers)) {
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Ends the thread after what was handed over before.
    pub(crate) fn stop(&self) {
        // A thread that is gone already needs no stopping.
        let _ = self.batches.send(None);
    }
}

fn run(batches: &Receiver<Option<Vec<Waker>>>) {
    while let Ok(Some(wakers)) = batches.recv() {
        wakers.into_iter().for_each(Waker::wake);
    }
}
