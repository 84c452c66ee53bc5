//! Idle connections to one service.

use std::time::{Duration, Instant};

use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;

/// Idle connections per service, and how long they are kept: Go's time, and enough for the concurrent
/// requests of a few clients.
const MAX_IDLE: usize = 16;
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Idle connections whose requests have bodies of type `B`. The lock is held to take one or return it.
pub struct Pool<B> {
    idle: Mutex<Vec<Idle<B>>>,
}

struct Idle<B> {
    sender: SendRequest<B>,
    since: Instant,
}

impl<B> Default for Pool<B> {
    fn default() -> Pool<B> {
        Pool { idle: Mutex::default() }
    }
}

impl<B> Pool<B> {
    /// Takes a connection that is open as far as is known.
    pub fn take(&self) -> Option<SendRequest<B>> {
        let mut idle = self.idle.lock();
        // Most recently used first: when it is too old, so are the others.
        while let Some(Idle { sender, since }) = idle.pop() {
            if !sender.is_closed() && since.elapsed() < IDLE_TIMEOUT {
                return Some(sender);
            }
        }
        None
    }

    /// Returns a connection whose response was read to its end.
    pub(crate) fn put_back(&self, sender: SendRequest<B>) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(Idle { sender, since: Instant::now() });
        }
    }

    /// Closes all of them: one was found closed, so the others probably are.
    pub fn clear(&self) {
        self.idle.lock().clear();
    }
}
