//! Locks, atomics and channels of the change feeds and the commit queue.
//!
//! With the feature `loom`, they are those of the loom crate, and the tests in `interleavings` try every
//! interleaving of the threads (docs/reliability.md). Counters for statistics stay the standard library's,
//! since no decision depends on them.

#[cfg(not(feature = "loom"))]
mod real {
    pub(crate) use parking_lot::{Condvar, Mutex, RwLock};
    pub(crate) use std::sync::atomic::{fence, AtomicBool, AtomicU64, AtomicUsize};
    pub(crate) use std::sync::mpsc;
}

#[cfg(not(feature = "loom"))]
pub(crate) use real::*;

/// loom's types with the signatures of parking_lot's, as far as the engine uses them.
#[cfg(feature = "loom")]
mod modelled {
    use std::ops::{Deref, DerefMut};
    use std::time::{Duration, Instant};

    pub(crate) use loom::sync::atomic::{fence, AtomicBool, AtomicU64, AtomicUsize};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    /// None only inside of `Condvar::wait`.
    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    const HELD: &str = "a guard holds its lock but inside of Condvar::wait";

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_deref().expect(HELD)
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_deref_mut().expect(HELD)
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    pub(crate) struct WaitTimeoutResult;

    impl WaitTimeoutResult {
        /// loom has no time: a wait with a timeout ends when it is notified.
        pub(crate) fn timed_out(&self) -> bool {
            false
        }
    }

    impl Condvar {
        pub(crate) fn new() -> Condvar {
            Condvar(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect(HELD);
            guard.0 = Some(self.0.wait(held).unwrap_or_else(|poisoned| poisoned.into_inner()));
        }

        pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> WaitTimeoutResult {
            self.wait(guard);
            WaitTimeoutResult
        }

        pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> WaitTimeoutResult {
            self.wait(guard);
            WaitTimeoutResult
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    #[derive(Debug)]
    pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> RwLock<T> {
            RwLock(loom::sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner())
        }

        pub(crate) fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner())
        }
    }
}

#[cfg(feature = "loom")]
pub(crate) use modelled::*;

/// The standard library's channel, as far as the engine uses it: loom's own does not model a dropped
/// receiver.
#[cfg(feature = "loom")]
pub(crate) mod mpsc {
    use std::collections::VecDeque;
    use std::sync::mpsc::{RecvError, SendError};
    use std::sync::Arc;

    use super::modelled::{Condvar, Mutex};

    struct Queue<T> {
        messages: VecDeque<T>,
        senders: usize,
        receiver_gone: bool,
    }

    struct Shared<T> {
        queue: Mutex<Queue<T>>,
        changed: Condvar,
    }

    pub(crate) struct Sender<T>(Arc<Shared<T>>);

    pub(crate) struct Receiver<T>(Arc<Shared<T>>);

    pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let queue = Queue { messages: VecDeque::new(), senders: 1, receiver_gone: false };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), changed: Condvar::new() });
        (Sender(Arc::clone(&shared)), Receiver(shared))
    }

    impl<T> Sender<T> {
        pub(crate) fn send(&self, message: T) -> Result<(), SendError<T>> {
            let mut queue = self.0.queue.lock();
            if queue.receiver_gone {
                return Err(SendError(message));
            }
            queue.messages.push_back(message);
            drop(queue);
            self.0.changed.notify_one();
            Ok(())
        }
    }

    impl<T> Receiver<T> {
        pub(crate) fn recv(&self) -> Result<T, RecvError> {
            let mut queue = self.0.queue.lock();
            loop {
                if let Some(message) = queue.messages.pop_front() {
                    return Ok(message);
                }
                if queue.senders == 0 {
                    return Err(RecvError);
                }
                self.0.changed.wait(&mut queue);
            }
        }
    }

    impl<T> Clone for Sender<T> {
        fn clone(&self) -> Sender<T> {
            self.0.queue.lock().senders += 1;
            Sender(Arc::clone(&self.0))
        }
    }

    impl<T> Drop for Sender<T> {
        fn drop(&mut self) {
            self.0.queue.lock().senders -= 1;
            self.0.changed.notify_one();
        }
    }

    impl<T> Drop for Receiver<T> {
        fn drop(&mut self) {
            let mut queue = self.0.queue.lock();
            queue.receiver_gone = true;
            let messages = std::mem::take(&mut queue.messages);
            drop(queue);
            drop(messages);
        }
    }
}
