//! Answers in memory that their clients have not read yet.
//!
//! An answer that is whole in memory has left the request's seat and slot behind, and a client that opens
//! many streams and reads none (HTTP/2 with a closed window) would collect them without bound. Two rules:
//!
//! - *Pace.* Where half of the bound is used, and a quarter by one user, one request after the other of that
//!   user is begun on each connection, when the answer to the one before is read. Others are served as ever,
//!   and nobody waits for what others read.
//! - *Bound.* Where a server holds more than it may ([`UnreadAnswers::new`]), connections are closed: those
//!   of users who have more than their share, the largest first, and of these the connections whose answers
//!   have waited longest, if that is [`YOUNG`] at least; with twice as much, whatever that is. How young its
//!   answers are, and on how many connections, is in a client's hands; so it is the user who counts, and a
//!   connection of several counts for the one of them who has most. All clients that are anonymous, or not
//!   authenticated yet, are one user: addresses are cheap.
//!
//! Requests that wait count as answers that are not read, for a reader or, where a connection has many, for
//! their processor time; so do the streams of such a connection. Documents that all answers share do not.
//!
//! Bodies that are streams ([`UnreadStream`]) count with each chunk until the connection has sent it, and
//! with what is produced ahead (`paced_response`). A chunk that several streams have, as an event of many
//! watches, is in memory once and counts once; each of them has a part of it, and who keeps it when all
//! others have read it has all.
//!
//! | module | subject |
//! |---|---|
//! | `connection` | what one connection and its users have not read; pace |
//! | `stream` | bodies that are streams |

mod connection;
mod stream;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::connection::Waiting;
use self::stream::SharedChunk;
use super::memory_limit::memory_limit;
use super::shared_by_key::SharedByKey;

pub use self::connection::{BegunRequest, ConnectionUnread, CountedAnswer, UnbegunRequest, UserUnread};
pub use self::stream::{HeldBytes, UnreadStream};

/// How long an answer may wait in any case, but for twice the bound.
const YOUNG: Duration = Duration::from_secs(15);
/// How often it is looked for connections to close; with twice the bound; and how often that is logged.
const LOOKED_FOR: Duration = Duration::from_millis(100);
const LOOKED_FOR_URGENTLY: Duration = Duration::from_millis(10);
const LOGGED: Duration = Duration::from_secs(10);
/// The bound where none is given: this part of the memory, within these limits.
const PART_OF_MEMORY: u64 = 8;
const BOUNDS: (u64, u64) = (128 << 20, 1 << 30);

/// The answers of a server that are not read yet.
#[derive(Debug)]
pub struct UnreadAnswers {
    most: usize,
    /// Of all connections that are not closed, and of all chunks that several streams have.
    bytes: AtomicUsize,
    /// What connections have of such chunks that are closed and not gone yet.
    closing: AtomicUsize,
    /// Numbers connections.
    next: AtomicU64,
    /// What is unread of each user.
    owners: Mutex<SharedByKey<String, Owner>>,
    /// The same of clients that are not identified.
    unidentified: Arc<Owner>,
    /// Chunks that several streams have, by address and length.
    shared: Mutex<SharedByKey<(usize, usize), SharedChunk>>,
    /// Held to add or remove a connection, and to look for those that have waited longest.
    connections: Mutex<HashMap<u64, Weak<ConnectionUnread>>>,
    /// When it was looked for some, and when that was logged. Held meanwhile.
    looked: Mutex<[Option<Instant>; 2]>,
}

/// Unread bytes of a user, or of all clients that are not identified; without chunks that several streams
/// have.
type Owner = AtomicUsize;

impl UnreadAnswers {
    /// No more than `most` bytes, or an eighth of the memory that the process may have; twice that for a
    /// while.
    pub fn new(most: Option<u64>) -> Arc<UnreadAnswers> {
        let most = most.unwrap_or_else(|| (memory_limit() / PART_OF_MEMORY).clamp(BOUNDS.0, BOUNDS.1));
        Arc::new(UnreadAnswers {
            most: usize::try_from(most).unwrap_or(usize::MAX),
            bytes: AtomicUsize::new(0),
            closing: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            owners: Mutex::default(),
            unidentified: Arc::default(),
            shared: Mutex::default(),
            connections: Mutex::default(),
            looked: Mutex::default(),
        })
    }

    /// A new connection.
    pub fn connection(self: &Arc<UnreadAnswers>) -> Arc<ConnectionUnread> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(ConnectionUnread::new(self, number));
        self.connections.lock().insert(number, Arc::downgrade(&connection));
        connection
    }

    /// Bytes that are not read now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// The same without what is being given back.
    fn remaining(&self) -> usize {
        self.bytes().saturating_sub(self.closing.load(Ordering::Acquire))
    }

    fn owner(&self, name: &str) -> Arc<Owner> {
        self.owners.lock().get_or_make(name, Owner::default)
    }

    /// To be called without a lock when more is counted than before.
    fn keep_bound(&self) {
        if self.bytes() > self.most {
            self.make_room();
        }
    }

    /// Closes connections of those who have more than their share, until a quarter is free.
    fn make_room(&self) {
        let now = Instant::now();
        let is_urgent = self.remaining() > self.most.saturating_mul(2);
        // Somebody looks already.
        let Some(mut looked) = self.looked.try_lock() else { return };
        let is_due = |last: Option<Instant>, interval| last.is_none_or(|last| now >= last + interval);
        if !is_due(looked[0], if is_urgent { LOOKED_FOR_URGENTLY } else { LOOKED_FOR }) {
            return;
        }
        looked[0] = Some(now);
        // Dropped after the lock, which the end of a connection takes.
        let connections: Vec<Arc<ConnectionUnread>> =
            self.connections.lock().values().filter_map(Weak::upgrade).collect();
        let closed = self.close_largest(&connections, now, is_urgent);
        if closed > 0 && is_due(looked[1], LOGGED) {
            looked[1] = Some(now);
            tracing::warn!(
                connections = closed,
                bytes = self.most,
                "connections closed: their clients do not read answers, and there is no memory for more (--max-unread-bytes)"
            );
        }
    }

    /// Closes connections of owners who have more than their share, the largest first, and returns how many.
    fn close_largest(&self, connections: &[Arc<ConnectionUnread>], now: Instant, is_urgent: bool) -> usize {
        let enough = if is_urgent { self.most / 2 * 3 } else { self.most / 4 * 3 };
        let waiting: Vec<Vec<Waiting>> =
            connections.iter().map(|connection| connection.waiting(is_urgent)).collect();
        let mut shares: HashMap<*const Owner, usize> = HashMap::new();
        for Waiting { owner, shared, .. } in waiting.iter().flatten() {
            *shares.entry(Arc::as_ptr(owner)).or_default() += shared;
        }
        let share = self.most / shares.len().max(1);
        let size = |shares: &HashMap<*const Owner, usize>, owner: &Arc<Owner>| {
            owner.load(Ordering::Acquire) + shares.get(&Arc::as_ptr(owner)).copied().unwrap_or(0)
        };
        // Each connection counts for the largest of its owners.
        let mut largest: Vec<(usize, Waiting, &Arc<ConnectionUnread>)> = Vec::new();
        for (waiting, connection) in waiting.into_iter().zip(connections) {
            let sized = waiting.into_iter().map(|waiting| (size(&shares, &waiting.owner), waiting));
            if let Some((size, waiting)) = sized.max_by_key(|(size, _)| *size) {
                largest.push((size, waiting, connection));
            }
        }
        largest
            .sort_by_key(|(size, waiting, _)| (Reverse(*size), Arc::as_ptr(&waiting.owner), waiting.since));
        let mut closed = 0;
        for (_, Waiting { owner, since, shared, .. }, connection) in largest {
            if self.remaining() <= enough {
                break;
            }
            let is_young = now.saturating_duration_since(since) < YOUNG;
            if (is_urgent || !is_young) && size(&shares, &owner) > share {
                connection.close();
                if let Some(all) = shares.get_mut(&Arc::as_ptr(&owner)) {
                    *all = all.saturating_sub(shared);
                }
                closed += 1;
            }
        }
        closed
    }
}

#[cfg(test)]
mod tests;
