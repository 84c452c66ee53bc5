//! Idle connections to one service.

use std::time::{Duration, Instant};

use hyper::body::Body;
use parking_lot::Mutex;

use super::connection::Connection;

/// Idle connections per service, and how long they are kept: Go's time, and enough for the concurrent
/// requests of a few clients.
const MAX_IDLE: usize = 16;
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Idle connections whose requests have bodies of type `B`. The lock is held to take one or return it.
pub struct Pool<B> {
    idle: Mutex<Vec<Idle<B>>>,
}

struct Idle<B> {
    connection: Connection<B>,
    since: Instant,
}

impl<B> Default for Pool<B> {
    fn default() -> Pool<B> {
        Pool { idle: Mutex::default() }
    }
}

impl<B: Body + Unpin + 'static> Pool<B> {
    /// Takes a connection that is open as far as is known.
    pub fn take(&self) -> Option<Connection<B>> {
        let mut idle = self.idle.lock();
        // Most recently used first: when it is too old, so are the others.
        while let Some(Idle { connection, since }) = idle.pop() {
            if !connection.is_closed() && since.elapsed() < IDLE_TIMEOUT {
                return Some(connection);
            }
        }
        None
    }

    /// Returns a connection whose response was read to its end. It is closed where the request was not sent
    /// to its end: its client decides when that is.
    pub(crate) fn put_back(&self, connection: Connection<B>) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE && connection.has_sent() {
            idle.push(Idle { connection, since: Instant::now() });
        }
    }

    /// Closes all of them: one was found closed, so the others probably are.
    pub fn clear(&self) {
        self.idle.lock().clear();
    }
}
