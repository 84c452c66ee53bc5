//! Whether the engine takes writes, and how it says that it does not any more.
//!
//! A write or sync that fails leaves nobody who knows what is on disk: after a failed fsync the system
//! may have dropped the pages and report success for the next one. So nothing is tried twice. The first
//! failure is kept, every waiting and later proposal gets an error, feeds end, and whoever awaits
//! [`crate::Engine::failed`] learns of it. What was acknowledged is on disk: the way out is to open the
//! directory again in a new process. The engine itself ends no process, because it may be embedded.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::atomic::{self, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::revision::Revision;
use crate::sync::{AtomicBool, Mutex};

/// Why an engine takes no more writes, for good.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A write or a sync failed; how much of it is on disk is unknown.
    #[error("a write to disk failed: {message}")]
    Write {
        /// The error of the write.
        message: String,
    },
    /// The data directory was moved or replaced while it was in use. What was acknowledged is in the directory that was moved.
    #[error("the data directory was moved or replaced while it was in use: {message}")]
    Moved {
        /// What is not in its place.
        message: String,
    },
    /// A thread of the engine panicked.
    #[error("thread {thread} panicked: {message}")]
    Panic {
        /// Name of the thread.
        thread: String,
        /// The panic's message.
        message: String,
    },
}

/// Something that an operator should know and that no caller gets as an error.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// An entry of the deadlines cannot be used and is skipped: its key does not expire by itself.
    #[error("deadline entry {} is skipped: {reason}", crate::record::printable(.entry))]
    DamagedDeadline {
        /// The entry: deadline (8 bytes), then the key.
        entry: Bytes,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Expiry, retention or compaction could not be done; it is tried again.
    #[error("maintenance failed and is tried again: {error}")]
    Maintenance {
        /// Why.
        error: Error,
    },
    /// The store has lost the file that says how far it had got.
    #[error(
        "the file WATERMARK was lost and is made again: were the newest write-ahead log lost with it, nothing would tell, and revisions behind \
         {latest} would be given out again"
    )]
    WatermarkLost {
        /// The newest revision that was found.
        latest: Revision,
    },
}

/// Whom to tell of warnings.
#[derive(Clone)]
pub(crate) struct Warn(Arc<dyn Fn(&Warning) + Send + Sync>);

impl Warn {
    pub(crate) fn new(warn: impl Fn(&Warning) + Send + Sync + 'static) -> Warn {
        Warn(Arc::new(warn))
    }

    pub(crate) fn warn(&self, warning: &Warning) {
        (self.0)(warning);
    }
}

impl Default for Warn {
    fn default() -> Warn {
        Warn::new(|_| {})
    }
}

impl Debug for Warn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Warn")
    }
}

/// The state of one engine, shared by its threads.
pub(crate) struct Health {
    failed: AtomicBool,
    state: Mutex<State>,
    /// What `disk_wait` counts from.
    created: Instant,
    /// When the write or sync that is under way began, in microseconds since `created`, counted from 1; zero when none
    /// is. Not one of loom's: nothing is decided by it.
    disk_wait: atomic::AtomicU64,
}

impl Default for Health {
    fn default() -> Health {
        Health {
            failed: AtomicBool::default(),
            state: Mutex::default(),
            created: Instant::now(),
            disk_wait: atomic::AtomicU64::new(0),
        }
    }
}

/// What to do with the first failure.
type Hook = Box<dyn FnOnce(&Failure) + Send>;

#[derive(Default)]
struct State {
    failure: Option<Failure>,
    hooks: Vec<Hook>,
    /// Futures that wait for a failure.
    waiting: BTreeMap<u64, Waker>,
    next_waiter: u64,
}

impl Health {
    /// Has `hook` called at the first failure, on the thread that noticed it.
    pub(crate) fn on_failure(&self, hook: impl FnOnce(&Failure) + Send + 'static) {
        self.state.lock().hooks.push(Box::new(hook));
    }

    /// The engine has failed. Only the first failure counts: what follows is its consequence.
    pub(crate) fn fail(&self, failure: Failure) {
        let mut state = self.state.lock();
        if state.failure.is_some() {
            return;
        }
        state.failure = Some(failure.clone());
        self.failed.store(true, Ordering::Release);
        let hooks = std::mem::take(&mut state.hooks);
        drop(state);
        // The hooks first: whoever is woken finds that nothing waits any more.
        for hook in hooks {
            hook(&failure);
        }
        let waiting = std::mem::take(&mut self.state.lock().waiting);
        waiting.into_values().for_each(Waker::wake);
    }

    /// The first failure.
    pub(crate) fn failure(&self) -> Option<Failure> {
        if !self.failed.load(Ordering::Acquire) {
            return None;
        }
        self.state.lock().failure.clone()
    }

    /// Refuses when the engine has failed.
    pub(crate) fn check(&self) -> Result<()> {
        match self.failure() {
            None => Ok(()),
            Some(failure) => Err(refusal(&failure)),
        }
    }

    /// A write or a sync of the commit path begins; there is at most one at a time.
    pub(crate) fn disk_wait_begins(&self, now: Instant) {
        self.disk_wait.store(self.micros(now).max(1), Ordering::Relaxed);
    }

    /// The write or sync has returned.
    pub(crate) fn disk_wait_ends(&self) {
        self.disk_wait.store(0, Ordering::Relaxed);
    }

    /// For how long the write or sync has been under way; none when there is none.
    pub(crate) fn disk_wait(&self) -> Option<Duration> {
        match self.disk_wait.load(Ordering::Relaxed) {
            0 => None,
            since => Some(Duration::from_micros(self.micros(Instant::now()).saturating_sub(since))),
        }
    }

    fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.created).as_micros().try_into().unwrap_or(u64::MAX)
    }

    /// Runs what a thread has to do; a panic is a failure of the engine.
    pub(crate) fn run_thread(&self, name: &str, run: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            self.fail(Failure::Panic { thread: name.to_owned(), message: panic_message(&*panic) });
        }
    }
}

/// What a proposal gets that was not handed to the disk before the failure.
pub(crate) fn refusal(failure: &Failure) -> Error {
    Error::Poisoned { message: failure.to_string() }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// A future that ends when the engine has failed. From [`crate::Engine::failed`].
#[must_use = "futures do nothing unless awaited"]
pub struct Failed {
    health: Arc<Health>,
    /// Set while it is registered.
    id: Option<u64>,
}

impl Failed {
    pub(crate) fn new(health: Arc<Health>) -> Failed {
        Failed { health, id: None }
    }
}

impl Future for Failed {
    type Output = Failure;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Failure> {
        let mut state = self.health.state.lock();
        if let Some(failure) = state.failure.clone() {
            return Poll::Ready(failure);
        }
        let id = self.id.unwrap_or(state.next_waiter);
        state.next_waiter = state.next_waiter.max(id + 1);
        state.waiting.insert(id, cx.waker().clone());
        drop(state);
        self.id = Some(id);
        Poll::Pending
    }
}

impl Drop for Failed {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.health.state.lock().waiting.remove(&id);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::block::block_until;

    #[test]
    fn a_write_that_does_not_return_is_seen_for_as_long_as_it_lasts() {
        let health = Health::default();
        assert_eq!(health.disk_wait(), None);
        let Some(before) = Instant::now().checked_sub(Duration::from_secs(60)) else { return };
        let health = Health { created: before, ..Health::default() };
        health.disk_wait_begins(before + Duration::from_secs(1));
        assert!(health.disk_wait().is_some_and(|wait| wait >= Duration::from_secs(59)));
        health.disk_wait_ends();
        assert_eq!(health.disk_wait(), None);
        health.disk_wait_begins(before);
        assert!(health.disk_wait().is_some(), "at the very moment of its creation");
    }

    #[test]
    fn the_first_failure_is_kept_and_told() {
        let health = Arc::new(Health::default());
        let (sender, hooked) = std::sync::mpsc::channel();
        health.on_failure(move |failure| sender.send(failure.clone()).unwrap());
        assert!(health.check().is_ok());
        let waiter = Failed::new(Arc::clone(&health));
        let waiter = std::thread::spawn(move || block_until(waiter, None).unwrap());
        health.run_thread("plinth-test", || panic!("on purpose"));
        health.fail(Failure::Write { message: "later".into() });
        let first = Failure::Panic { thread: "plinth-test".into(), message: "on purpose".into() };
        assert_eq!(waiter.join().unwrap(), first);
        assert_eq!(health.failure(), Some(first.clone()));
        assert_eq!(hooked.try_iter().collect::<Vec<_>>(), [first]);
        assert!(matches!(health.check(), Err(Error::Poisoned { message }) if message.contains("on purpose")));
    }
}
