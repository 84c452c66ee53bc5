//! The thread that reads the log on disk for subscribers that lag.
//!
//! Requests are served in order, a bounded chunk each, so that lagging subscribers share the thread fairly; a
//! subscriber requests the next chunk when it has taken the last one, so at most one chunk for each is in
//! memory. No lock is held while reading. Live subscribers are woken by another thread (see
//! [`crate::feed::wake`]): a wake-up must not wait for a read from disk.

use std::sync::Arc;
use std::task::Waker;

use crate::error::{Error, Result};
use crate::feed::event::Event;
use crate::range::KeyRange;
use crate::revision::Revision;
use crate::sync::mpsc::{self, Receiver, Sender};
use crate::sync::Mutex;

/// Sends requests to the feeder's thread. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Feeder {
    jobs: Sender<Job>,
}

enum Job {
    Read(PendingRead),
    Stop,
}

/// A requested chunk; when it is dropped unread, the subscriber is woken nonetheless.
struct PendingRead(Arc<CatchUp>);

impl Drop for PendingRead {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A chunk of the log that is being read for one subscriber.
pub(crate) struct CatchUp {
    pub range: KeyRange,
    pub after: Revision,
    pub previous: bool,
    answer: Mutex<Answer>,
}

struct Answer {
    chunk: Option<Result<Chunk>>,
    /// Whether there is or was a chunk.
    answered: bool,
    waker: Waker,
}

/// A chunk of the log for one subscriber.
pub(crate) struct Chunk {
    pub events: Vec<Arc<Event>>,
    /// The events cover the range completely up to this revision.
    pub through: Revision,
}

impl CatchUp {
    /// The chunk if it is ready; otherwise `waker` is called when it is.
    pub(crate) fn poll(&self, waker: &Waker) -> Option<Result<Chunk>> {
        let mut answer = self.answer.lock();
        if answer.chunk.is_none() {
            answer.waker.clone_from(waker);
        }
        answer.chunk.take()
    }

    /// Answers with [`Error::Closed`], unless a chunk was answered already.
    fn end(&self) {
        let mut answer = self.answer.lock();
        if answer.answered {
            return;
        }
        answer.answered = true;
        answer.chunk = Some(Err(Error::Closed));
        let waker = answer.waker.clone();
        drop(answer);
        waker.wake();
    }

    fn answer(&self, chunk: Result<Chunk>) {
        let mut answer = self.answer.lock();
        answer.answered = true;
        answer.chunk = Some(chunk);
        let waker = answer.waker.clone();
        drop(answer);
        waker.wake();
    }
}

/// The source that the feeder's thread reads from.
pub(crate) trait History: Send + 'static {
    /// A bounded chunk of the changes in `catch_up.range` after `catch_up.after`.
    fn read(&self, catch_up: &CatchUp) -> Result<Chunk>;
}

impl Feeder {
    /// A feeder and the body of its thread.
    pub(crate) fn new(history: impl History) -> (Feeder, impl FnOnce() + Send + 'static) {
        let (jobs, receiver) = mpsc::channel();
        (Feeder { jobs }, move || run(&history, &receiver))
    }

    /// Requests a chunk of the log after `after`.
    pub(crate) fn read(
        &self,
        range: &KeyRange,
        after: Revision,
        previous: bool,
        waker: &Waker,
    ) -> Arc<CatchUp> {
        let answer = Mutex::new(Answer { chunk: None, answered: false, waker: waker.clone() });
        let catch_up = Arc::new(CatchUp { range: range.clone(), after, previous, answer });
        // A job that no thread receives is dropped, and thereby answered.
        let _ = self.jobs.send(Job::Read(PendingRead(Arc::clone(&catch_up))));
        catch_up
    }

    /// Ends the thread after the requests that were sent before.
    pub(crate) fn stop(&self) {
        // The thread may have ended already.
        let _ = self.jobs.send(Job::Stop);
    }
}

fn run(history: &impl History, jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Read(pending) => {
                // The subscriber may have been dropped while the request was queued.
                if Arc::strong_count(&pending.0) > 1 {
                    pending.0.answer(history.read(&pending.0));
                }
            }
            Job::Stop => return,
        }
    }
}
