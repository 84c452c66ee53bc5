//! Users, and who of them did not read lately.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::taken::Lately;

/// How long it counts that a user does not read, and of how many users.
const REMEMBERED: Duration = Duration::from_secs(60);
const MOST_REMEMBERED: usize = 4096;

/// A user, or all clients that are not identified.
#[derive(Debug, Default)]
pub(super) struct Owner {
    /// What is unread of it, without chunks that several streams have.
    pub(super) bytes: AtomicUsize,
    /// When a connection of it was closed last, or it took answers back that it had not read.
    unread: Mutex<Option<Instant>>,
    /// What the sockets of connections took that have ended.
    taken: Mutex<Option<Lately>>,
}

impl Owner {
    /// Whether it did not read, and that counts still.
    pub(super) fn did_not_read(&self, now: Instant) -> bool {
        self.unread.lock().is_some_and(|unread| now.saturating_duration_since(unread) < REMEMBERED)
    }

    /// Bytes that connections read in a second that have ended.
    pub(super) fn rate(&self, now: Instant) -> f64 {
        self.taken.lock().map_or(0.0, |taken| taken.rate(now))
    }

    /// A connection has ended whose socket took this.
    pub(super) fn add_taken(&self, taken: Lately) {
        let mut before = self.taken.lock();
        *before = Some(before.map_or(taken, |before| before.with(taken, Instant::now())));
    }
}

/// Those who did not read lately, the latest last.
#[derive(Debug, Default)]
pub(super) struct Unreading(Mutex<VecDeque<Arc<Owner>>>);

impl Unreading {
    /// This owner does not read.
    pub(super) fn remember(&self, owner: &Arc<Owner>, now: Instant) {
        let before = owner.unread.lock().replace(now);
        let mut unreading = self.0.lock();
        if before.is_none() {
            unreading.push_back(owner.clone());
        }
        let is_over = |owner: &Arc<Owner>| !owner.did_not_read(now);
        while unreading.len() > MOST_REMEMBERED || unreading.front().is_some_and(is_over) {
            if let Some(owner) = unreading.pop_front() {
                *owner.unread.lock() = None;
            }
        }
    }
}
