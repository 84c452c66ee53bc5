//! Leases: what deletes the keys that are attached to it when it is not kept alive.
//!
//! A lease is a number of the store (its time to live) and a deadline in memory; after a restart it has its
//! whole time to live again, as after an election in etcd. Which lease a key is attached to is part of its
//! value (`value.rs`). The way back, from a lease to its keys, is a second number for each attachment,
//! written with the put. It is a hint: the key may have been put or deleted since, so it counts only while
//! the key names the lease. That keeps memory free of keys, and a start short. Hints that no longer hold are
//! removed now and then.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use parking_lot::Mutex;
use plinth_engine::{At, Engine, Error, Event, EventKind};

use crate::numbers::{pages, PAGE};
use crate::value::lease_of;

/// Longest time to live, in seconds.
pub(crate) const MAX_TTL: i64 = 9_000_000_000;
/// What leases get in addition after a start: etcd's election timeout.
const EXTENSION: Duration = Duration::from_secs(1);
/// Hints that are removed at a time.
pub(crate) const HINTS: usize = 1024;
/// Hints that are read at a time. Each may be as large as a request.
pub(crate) const HINT_PAGE: usize = 128;
/// Hints to be removed that are remembered. What is beyond goes with the lease.
const MAX_DETACHED: usize = 1 << 20;

const LEASE: &[u8] = b"lease.";
const ATTACHED: &[u8] = b"attached.";

/// The name of a lease's number.
pub(crate) fn lease_name(id: i64) -> Bytes {
    [LEASE, &id.to_be_bytes()].concat().into()
}

/// Begins the names of a lease's hints.
pub(crate) fn hints_of(id: i64) -> Vec<u8> {
    [ATTACHED, &id.to_be_bytes()].concat()
}

/// The name of the hint that a key is attached to a lease.
pub(crate) fn hint_name(id: i64, key: &[u8]) -> Bytes {
    let mut name = BytesMut::with_capacity(ATTACHED.len() + 8 + key.len());
    name.put_slice(ATTACHED);
    name.put_i64(id);
    name.put_slice(key);
    name.freeze()
}

#[derive(Debug)]
struct Lease {
    ttl: i64,
    deadline: Instant,
    /// How often a key was attached to it.
    attachments: u64,
}

#[derive(Debug, Default)]
struct State {
    leases: HashMap<i64, Lease>,
    /// The leases by their deadlines.
    deadlines: BTreeSet<(Instant, i64)>,
    /// Ids of leases that are being granted.
    granting: HashSet<i64>,
    /// Leases whose revocation is being written: nobody sees them any more.
    revoking: HashMap<i64, Lease>,
}

/// The leases of a store.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    state: Mutex<State>,
    /// Attachments that have ended.
    detached: Mutex<Vec<(i64, Bytes)>>,
}

/// What is known of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseInfo {
    /// Seconds as they were granted.
    pub ttl: i64,
    /// Whole seconds that are left.
    pub left: i64,
}

impl State {
    fn insert(&mut self, id: i64, ttl: i64, deadline: Instant) {
        self.leases.insert(id, Lease { ttl, deadline, attachments: 0 });
        self.deadlines.insert((deadline, id));
    }
}

fn deadline(from: Instant, ttl: i64) -> Instant {
    let ttl = Duration::from_secs(ttl.max(0).unsigned_abs());
    // Thirty years, should the clock not reach as far as the lease.
    from.checked_add(ttl).unwrap_or_else(|| from + Duration::from_secs(1 << 30))
}

impl Leases {
    /// Reads the leases of a store.
    pub(crate) fn load(engine: &Engine) -> Result<Leases, Error> {
        let mut state = State::default();
        let start = Instant::now() + EXTENSION;
        for page in pages(engine, LEASE, PAGE) {
            for (name, ttl) in page? {
                let id = name.get(LEASE.len()..).and_then(|id| id.try_into().ok()).map(i64::from_be_bytes);
                let Some(id) = id else { continue };
                let ttl = i64::try_from(ttl).unwrap_or(MAX_TTL);
                state.insert(id, ttl, deadline(start, ttl));
            }
        }
        Ok(Leases { state: Mutex::new(state), detached: Mutex::default() })
    }

    /// Whether a lease exists.
    pub(crate) fn has(&self, id: i64) -> bool {
        self.state.lock().leases.contains_key(&id)
    }

    /// Gives a lease its whole time to live again; returns that, or none for a lease that does not exist or
    /// has expired.
    pub(crate) fn renew(&self, id: i64) -> Option<i64> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let lease = state.leases.get_mut(&id).filter(|lease| lease.deadline > now)?;
        let (ttl, old) = (lease.ttl, lease.deadline);
        let new = deadline(now, ttl);
        lease.deadline = new;
        state.deadlines.remove(&(old, id));
        state.deadlines.insert((new, id));
        Some(ttl)
    }

    /// What is known of a lease.
    pub(crate) fn info(&self, id: i64) -> Option<LeaseInfo> {
        let state = self.state.lock();
        let lease = state.leases.get(&id)?;
        let left = lease.deadline.saturating_duration_since(Instant::now()).as_secs();
        Some(LeaseInfo { ttl: lease.ttl, left: i64::try_from(left).unwrap_or(i64::MAX) })
    }

    /// How often a key was attached to a lease since the start; none for a lease that does not exist.
    pub(crate) fn attachments(&self, id: i64) -> Option<u64> {
        self.state.lock().leases.get(&id).map(|lease| lease.attachments)
    }

    /// All leases, those that expire first at the beginning.
    pub(crate) fn all(&self) -> Vec<i64> {
        self.state.lock().deadlines.iter().map(|(_, id)| *id).collect()
    }

    /// Expired leases, `limit` at most.
    pub(crate) fn expired(&self, limit: usize) -> Vec<i64> {
        let now = Instant::now();
        let state = self.state.lock();
        let expired = state.deadlines.iter().take_while(|(deadline, _)| *deadline <= now);
        expired.take(limit).map(|(_, id)| *id).collect()
    }

    /// Reserves the id of a lease that is to be granted; false when it is taken.
    pub(crate) fn begin_grant(&self, id: i64) -> bool {
        let mut state = self.state.lock();
        let is_taken = state.leases.contains_key(&id) || state.revoking.contains_key(&id);
        !is_taken && state.granting.insert(id)
    }

    /// The lease is stored, with this time to live in seconds, or could not be.
    pub(crate) fn end_grant(&self, id: i64, ttl: Option<i64>) {
        let mut state = self.state.lock();
        state.granting.remove(&id);
        if let Some(ttl) = ttl {
            state.insert(id, ttl, deadline(Instant::now(), ttl));
        }
    }

    /// A lease's revocation, or a part of it, is to be written. Nobody sees the lease from here on: who
    /// learns from a watch that its keys are deleted must not find it. Its id stays taken until `end_revoke`.
    pub(crate) fn begin_revoke(&self, id: i64) {
        let mut state = self.state.lock();
        if let Some(lease) = state.leases.remove(&id) {
            state.deadlines.remove(&(lease.deadline, id));
            state.revoking.insert(id, lease);
        }
    }

    /// The revocation is written, or could not be: then the lease is back as it was.
    pub(crate) fn end_revoke(&self, id: i64, is_written: bool) {
        let mut state = self.state.lock();
        let Some(lease) = state.revoking.remove(&id).filter(|_| !is_written) else { return };
        state.deadlines.insert((lease.deadline, id));
        state.leases.insert(id, lease);
    }

    /// The attachments that have ended since the last call.
    pub(crate) fn take_detached(&self) -> Vec<(i64, Bytes)> {
        std::mem::take(&mut *self.detached.lock())
    }

    /// Notes which attachments a commit has made, and which it has ended.
    pub(crate) fn note(&self, events: &[Arc<Event>]) {
        let attached = events.iter().filter_map(|event| match &event.kind {
            EventKind::Put { value, .. } => Some(lease_of(value)).filter(|id| *id != 0),
            EventKind::Delete => None,
        });
        let mut attached = attached.peekable();
        if attached.peek().is_some() {
            let mut state = self.state.lock();
            for id in attached {
                if let Some(lease) = state.leases.get_mut(&id) {
                    lease.attachments += 1;
                }
            }
        }
        self.note_detached(events);
    }

    fn note_detached(&self, events: &[Arc<Event>]) {
        let ended = events.iter().filter_map(|event| {
            let before = lease_of(&event.previous.as_ref()?.value);
            let after = match &event.kind {
                EventKind::Put { value, .. } => lease_of(value),
                EventKind::Delete => 0,
            };
            (before != 0 && before != after).then(|| (before, event.key.clone()))
        });
        let mut ended = ended.peekable();
        if ended.peek().is_some() {
            let mut detached = self.detached.lock();
            let room = MAX_DETACHED.saturating_sub(detached.len());
            detached.extend(ended.take(room));
        }
    }
}

/// The keys that are attached to a lease, in order. Reads from disk.
pub(crate) fn attached(engine: &Engine, id: i64) -> Result<Vec<Bytes>, Error> {
    let prefix = hints_of(id);
    let snapshot = engine.snapshot(At::Latest)?;
    let mut keys = Vec::new();
    for hints in pages(engine, &prefix, HINT_PAGE) {
        for (name, _) in hints? {
            let key = name.slice(prefix.len()..);
            let record = snapshot.get(&key)?;
            keys.extend(record.filter(|record| lease_of(&record.value) == id).map(|_| key));
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_sees_a_lease_that_is_being_revoked() {
        let leases = Leases::default();
        for (id, ttl) in [(1, 10), (2, 20)] {
            assert!(leases.begin_grant(id));
            leases.end_grant(id, Some(ttl));
        }
        leases.begin_revoke(1);
        assert_eq!(
            (leases.all(), leases.has(1), leases.renew(1), leases.info(1)),
            (vec![2], false, None, None)
        );
        assert!(!leases.begin_grant(1), "its id is taken");
        // It could not be written.
        leases.end_revoke(1, false);
        assert_eq!((leases.all(), leases.renew(1)), (vec![1, 2], Some(10)));
        leases.begin_revoke(1);
        leases.end_revoke(1, true);
        assert_eq!(leases.all(), [2]);
        assert!(leases.begin_grant(1));
    }
}
