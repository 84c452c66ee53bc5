//! The engine's failure state: whether it takes writes, and how a failure is reported.
//!
//! After a failed write or sync the contents of the disk are unknown: after a failed fsync the kernel may
//! have dropped the pages and report success for the next one. So nothing is retried. The first failure is
//! kept, every waiting and later proposal gets an error, feeds end, and [`crate::Engine::failed`] resolves.
//! What was acknowledged is on disk: the remedy is to open the directory again in a new process. The engine
//! itself never ends the process, because it may be embedded.

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
use plinth_journal::record::{Hash, ReplicaId};
use plinth_journal::Position;

use crate::error::{Error, Result};
use crate::revision::Revision;
use crate::sync::{AtomicBool, Mutex};

/// Why an engine has failed for good and takes no more writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A write or a sync failed; how much of it is on disk is unknown.
    #[error("a write to disk failed: {message}")]
    Write {
        /// The error of the write.
        message: String,
    },
    /// A write failed for want of room, and is not to be tried again: a replica does not skip a record, and
    /// RocksDB takes no more writes after an exceeded quota.
    #[error("the disk or quota of the data directory is full: {message}")]
    OutOfSpace {
        /// The system's message.
        message: String,
    },
    /// The data directory was moved or replaced while it was in use. What was acknowledged is in the
    /// directory that was moved.
    #[error("the data directory was moved or replaced while it was in use: {message}")]
    Moved {
        /// What was moved or replaced.
        message: String,
    },
    /// The journal holds something that this replica cannot apply, or no longer holds what it needs. Nothing
    /// of it was applied.
    #[error("the journal cannot be followed: {error}")]
    Journal {
        /// What the journal reported.
        error: plinth_journal::Error,
    },
    /// This replica and another one have applied the same records with different results, and more of the
    /// others differ from this one than agree with it, or it was not found out in time which is so.
    #[error(
        "this replica has diverged from replica {replica}: after position {position} of the journal its hash is \
         {ours}, theirs is {theirs}"
    )]
    Diverged {
        /// The position after which they were compared.
        position: Position,
        /// The replica that proposed the record with the other hash.
        replica: ReplicaId,
        /// The hash of this replica.
        ours: Hash,
        /// The other one.
        theirs: Hash,
    },
    /// Another process has opened this replica of the cluster.
    #[error("replica {replica} was opened by another process; each replica needs an id of its own")]
    Superseded {
        /// The replica whose state differs.
        replica: ReplicaId,
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

impl Failure {
    /// That of a write that has failed.
    pub(crate) fn of_write(error: &Error) -> Failure {
        let message = error.cause();
        match error.is_out_of_space() {
            true => Failure::OutOfSpace { message },
            false => Failure::Write { message },
        }
    }
}

/// A condition that an operator should know of and that is not returned to any caller as an error.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// An expiry entry is damaged and skipped: its key does not expire.
    #[error("expiry entry {} is skipped: {reason}", crate::record::printable(.entry))]
    DamagedDeadline {
        /// The entry: deadline (8 bytes), then the key.
        entry: Bytes,
        /// Why, as one line of a log.
        reason: &'static str,
    },
    /// Expiry, retention or compaction failed; it is retried.
    #[error("maintenance failed and will be retried: {error}")]
    Maintenance {
        /// Why it failed.
        error: Error,
    },
    /// The file `WATERMARK` was missing and was created again.
    #[error(
        "the file WATERMARK was missing and has been created again: if the newest write-ahead log was lost with it, \
         the loss cannot be detected, and revisions after {latest} are assigned again"
    )]
    WatermarkLost {
        /// The newest revision found.
        latest: Revision,
    },
    /// The journal answers, and refuses what it is asked for. Reported once, until it takes that again.
    #[error(
        "the journal refuses, so writes wait, and reads of the most recent state if it refuses them as well: \
         {message}"
    )]
    JournalRefuses {
        /// Why, and what to do.
        message: String,
    },
    /// The journal has not answered for ten seconds. Reported once, until it answers.
    #[error("the journal does not answer, so writes and reads of the most recent state wait: {message}")]
    JournalAway {
        /// The error of the last call.
        message: String,
    },
    /// A member of the journal has returned a record that is damaged, or lacks one. Another one is asked.
    #[error(
        "member {member} of the journal: {error}. Another member is asked; if that has it as it should be, {member} is \
         damaged: take it out, and let a new one take its place"
    )]
    SuspectMember {
        /// The address of the member.
        member: String,
        /// What was found there.
        error: plinth_journal::Error,
    },
    /// Another replica has applied the same records with a different result. This one stops unless more of
    /// the others agree with it.
    #[error(
        "replica {replica} has diverged from this one, or this one from it: after position {position} of the journal \
         the hash here is {ours}, theirs is {theirs}. The one that is alone stops"
    )]
    Differs {
        /// The position after which they were compared.
        position: Position,
        /// The replica that proposed the record with the other hash.
        replica: ReplicaId,
        /// The hash of this replica.
        ours: Hash,
        /// The other one.
        theirs: Hash,
    },
}

impl Warning {
    /// What an operator can do about it, for a log line: beside what the warning's own text names.
    pub fn advice(&self) -> &'static str {
        match self {
            Warning::Maintenance { error } if error.is_out_of_space() => {
                "free some space on the file system of the data directory, or raise its quota"
            }
            Warning::Maintenance { error } if error.is_system_failure() => "check the disk and the kernel's log",
            Warning::DamagedDeadline { .. }
            | Warning::Maintenance { error: Error::Corrupt { .. } | Error::Rocks { .. } } => {
                "stop the server and run \"plinth verify\", which reports what is damaged"
            }
            Warning::Maintenance { .. } => "nothing has to be done unless it is reported again",
            Warning::WatermarkLost { .. } => {
                "find out what has removed the file; where others were lost with it, restore a backup"
            }
            Warning::JournalRefuses { .. } => {
                "correct that at the journal; after a change of what --journal-config names, restart the server"
            }
            Warning::JournalAway { .. } => {
                "check the members of the journal, the addresses in --journal, the network between, and that \
                 certificateAuthorityFile is set in --journal-config if the members speak TLS, and not otherwise"
            }
            Warning::SuspectMember { .. } => "nothing is damaged in the data directory",
            Warning::Differs { .. } => "the replica that stops logs what to do with it",
        }
    }
}

/// The handler of warnings.
#[derive(Clone)]
pub(crate) struct WarningHandler(Arc<dyn Fn(&Warning) + Send + Sync>);

impl WarningHandler {
    pub(crate) fn new(warn: impl Fn(&Warning) + Send + Sync + 'static) -> WarningHandler {
        WarningHandler(Arc::new(warn))
    }

    pub(crate) fn warn(&self, warning: &Warning) {
        (self.0)(warning);
    }
}

impl Default for WarningHandler {
    fn default() -> WarningHandler {
        WarningHandler::new(|_| {})
    }
}

impl Debug for WarningHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WarningHandler")
    }
}

/// The state of one engine, shared by its threads.
pub(crate) struct Health {
    failed: AtomicBool,
    state: Mutex<State>,
    /// Origin of `disk_wait`.
    created: Instant,
    /// Start of the write or sync in progress, in microseconds since `created`, at least 1; zero when there
    /// is none. Not a loom atomic: no decision depends on it.
    disk_wait: atomic::AtomicU64,
    /// Whether the last write failed for want of room. Not a loom atomic, like `disk_wait`.
    out_of_space: atomic::AtomicBool,
}

impl Default for Health {
    fn default() -> Health {
        Health {
            failed: AtomicBool::default(),
            state: Mutex::default(),
            created: Instant::now(),
            disk_wait: atomic::AtomicU64::new(0),
            out_of_space: atomic::AtomicBool::new(false),
        }
    }
}

/// Called with the first failure.
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
    /// Registers `hook` to be called at the first failure, on the thread that detected it.
    pub(crate) fn on_failure(&self, hook: impl FnOnce(&Failure) + Send + 'static) {
        self.state.lock().hooks.push(Box::new(hook));
    }

    /// Records a failure. Only the first one counts: later ones are its consequences.
    pub(crate) fn fail(&self, failure: Failure) {
        let mut state = self.state.lock();
        if state.failure.is_some() {
            return;
        }
        state.failure = Some(failure.clone());
        self.failed.store(true, Ordering::Release);
        let hooks = std::mem::take(&mut state.hooks);
        drop(state);
        // The hooks run first: woken tasks then find every queue and feed closed.
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

    /// Returns an error when the engine has failed.
    pub(crate) fn check(&self) -> Result<()> {
        match self.failure() {
            None => Ok(()),
            Some(failure) => Err(refusal(&failure)),
        }
    }

    /// A write failed for want of room, or one succeeded.
    pub(crate) fn set_out_of_space(&self, is_full: bool) {
        if self.is_out_of_space() != is_full {
            self.out_of_space.store(is_full, Ordering::Relaxed);
        }
    }

    /// Whether the last write failed for want of room.
    pub(crate) fn is_out_of_space(&self) -> bool {
        self.out_of_space.load(Ordering::Relaxed)
    }

    /// A write or a sync of the commit path begins; there is at most one at a time.
    pub(crate) fn disk_wait_begins(&self, now: Instant) {
        self.disk_wait.store(self.micros(now).max(1), Ordering::Relaxed);
    }

    /// The write or sync has returned.
    pub(crate) fn disk_wait_ends(&self) {
        self.disk_wait.store(0, Ordering::Relaxed);
    }

    /// Duration of the write or sync in progress; none when there is none.
    pub(crate) fn disk_wait(&self) -> Option<Duration> {
        match self.disk_wait.load(Ordering::Relaxed) {
            0 => None,
            since => Some(Duration::from_micros(self.micros(Instant::now()).saturating_sub(since))),
        }
    }

    fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.created).as_micros().try_into().unwrap_or(u64::MAX)
    }

    /// Runs the body of a thread; a panic is a failure of the engine.
    pub(crate) fn run_thread(&self, name: &str, run: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            self.fail(Failure::Panic { thread: name.to_owned(), message: panic_message(&*panic) });
        }
    }
}

/// The error of a proposal that was not written before the failure.
pub(crate) fn refusal(failure: &Failure) -> Error {
    Error::Poisoned { message: failure.to_string() }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// A future that resolves when the engine has failed. Returned by [`crate::Engine::failed`].
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
    fn a_full_disk_is_distinguished_from_damage() {
        let full = || "IO error: No space left on device".to_owned();
        for error in [Error::OutOfSpace { message: full() }, Error::OutcomeUnknown { message: full() }] {
            assert_eq!(Failure::of_write(&error), Failure::OutOfSpace { message: full() });
            assert!(Warning::Maintenance { error }.advice().contains("free some space"));
        }
        let other = Error::OutcomeUnknown { message: "IO error: Input/output error".to_owned() };
        assert!(matches!(Failure::of_write(&other), Failure::Write { .. }));
        let key = Bytes::from("key");
        let error = Error::Corrupt { key, revision: Revision::new(1), reason: "checksum" };
        assert!(Warning::Maintenance { error }.advice().contains("plinth verify"));
        let away = Warning::JournalAway { message: "no route".to_owned() };
        assert!(away.advice().contains("--journal") && !away.advice().contains("verify"));
    }

    #[test]
    fn the_first_failure_is_kept_and_reported() {
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
