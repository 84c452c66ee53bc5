//! The thread that checks conditions, assigns revisions and builds commit groups.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rocksdb::WriteBatch;

use crate::clock::Timeline;
use crate::commit::group::Group;
use crate::commit::proposal::Committed;
use crate::commit::queue::{CommitQueue, Task, Work};
use crate::commit::recent::RecentWrites;
use crate::commit::writer::Writer;
use crate::error::{Error, Result};
use crate::feed::event::{Commit, Event, EventKind};
use crate::feed::hub::Hub;
use crate::layout::{self, meta};
use crate::log::{LogEntry, LoggedOperation};
use crate::record::{Header, Kind, Stored};
use crate::revision::Revision;
use crate::stats::Metrics;
use crate::store::{Family, Store};
use crate::transaction::{Action, Operation, Transaction};

/// Revisions that are reserved at a time for transactions with relaxed durability.
const RESERVE: u64 = 10_000;

/// The state of the builder thread, owned by that thread alone.
pub(crate) struct Builder {
    store: Arc<Store>,
    hub: Arc<Hub>,
    queue: Arc<CommitQueue>,
    /// For groups that the builder writes itself.
    writer: Arc<Mutex<Writer>>,
    metrics: Arc<Metrics>,
    /// The last revision assigned, durable or not.
    last_assigned: Revision,
    /// Newest versions of keys changed by groups in flight; they take precedence over the database.
    overlay: HashMap<Bytes, Pending>,
    /// Which keys may have been written since a caller read them.
    recent: RecentWrites,
    /// Keys of groups in flight, to clear the overlay once they are written.
    in_flight: VecDeque<(u64, Vec<Bytes>)>,
    open: Option<Group>,
    next_group: u64,
    group_limit: usize,
    relaxed: Relaxed,
    time: Arc<Timeline>,
    scratch: Scratch,
}

/// Configuration of the builder.
pub(crate) struct Settings {
    pub group_limit: usize,
    pub relaxed: Relaxed,
    pub time: Arc<Timeline>,
}

/// State of relaxed durability.
pub(crate) struct Relaxed {
    /// Key prefixes that are committed with relaxed durability.
    pub prefixes: Vec<Bytes>,
    /// Revisions up to this one are never assigned again after a power failure.
    pub reserved: Revision,
}

/// A version that is not written yet; none when the key is being purged.
struct Pending {
    stored: Option<Stored>,
    group: u64,
}

/// Signals on drop that there will be no more groups.
struct BuilderExit(Arc<CommitQueue>);

impl Drop for BuilderExit {
    fn drop(&mut self) {
        self.0.builder_ended();
    }
}

/// Buffers reused for every operation.
#[derive(Default)]
struct Scratch {
    key: Vec<u8>,
    value: Vec<u8>,
}

/// An operation with the version that it supersedes.
struct Planned {
    operation: Operation,
    old: Option<Stored>,
}

impl Builder {
    pub(crate) fn new(
        store: Arc<Store>,
        hub: Arc<Hub>,
        queue: Arc<CommitQueue>,
        writer: Arc<Mutex<Writer>>,
        metrics: Arc<Metrics>,
        settings: Settings,
    ) -> Builder {
        let Settings { group_limit, relaxed, time } = settings;
        Builder {
            last_assigned: hub.latest(),
            recent: RecentWrites::new(hub.latest()),
            store,
            hub,
            queue,
            writer,
            metrics,
            overlay: HashMap::new(),
            in_flight: VecDeque::new(),
            open: None,
            next_group: 1,
            group_limit,
            relaxed,
            time,
            scratch: Scratch::default(),
        }
    }

    /// Runs until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        // However this thread ends, the syncer must not wait for it forever.
        let _exit = BuilderExit(Arc::clone(&self.queue));
        loop {
            let room = self.open.as_ref().is_none_or(|group| group.bytes < self.group_limit);
            let was_open = self.open.is_some();
            if let Some(group) = &mut self.open {
                // The keys stay here: the overlay is cleared by them once the group is written.
                let keys = std::mem::take(&mut group.keys);
                match self.in_flight.back_mut().filter(|(number, _)| *number == group.number) {
                    Some((_, known)) => known.extend(keys),
                    None => self.in_flight.push_back((group.number, keys)),
                }
            }
            let next = self.queue.next_work(&mut self.open, room);
            debug_assert!(was_open || self.open.is_none());
            if let Some(error) = next.failed {
                self.reset_after_failure(&error);
                continue;
            }
            self.retire(next.finished);
            if let Some(group) = next.write {
                self.writer.lock().write(group);
            }
            for work in next.work {
                self.process(work, next.idle);
            }
            if next.closing {
                break;
            }
        }
    }

    /// A group failed: everything built on top of it fails too.
    fn reset_after_failure(&mut self, error: &Error) {
        if let Some(group) = self.open.take() {
            group.fail(error);
        }
        self.overlay.clear();
        self.in_flight.clear();
        self.last_assigned = self.hub.latest();
        self.relaxed.reserved = Revision::ZERO;
    }

    /// Removes groups that are in the database from the overlay.
    fn retire(&mut self, finished: u64) {
        while self.in_flight.front().is_some_and(|(number, _)| *number <= finished) {
            let Some((number, keys)) = self.in_flight.pop_front() else { break };
            for key in keys {
                // A later group may have changed the key again.
                if self.overlay.get(&key).is_some_and(|pending| pending.group == number) {
                    self.overlay.remove(&key);
                }
            }
        }
    }

    fn process(&mut self, work: Work, idle: bool) {
        let result = match work.task {
            Task::Transact(transaction) => self.transact(transaction),
            Task::Purge(tombstones) => self.purge(tombstones),
            Task::SetNumber(name, number) => {
                let store = Arc::clone(&self.store);
                let group = self.group();
                store.put_number(&mut group.batch, name, number);
                group.sync = true;
                Ok(self.unchanged())
            }
        };
        match &mut self.open {
            Some(group) => {
                group.bytes += work.size;
                group.answers.push((work.reply, result));
            }
            // The answer does not depend on anything unpublished.
            None if idle && self.hub.latest() == self.last_assigned => work.reply.send(result),
            None => self.group().answers.push((work.reply, result)),
        }
    }

    fn unchanged(&self) -> Committed {
        Committed { revision: self.last_assigned, commit: None }
    }

    fn group(&mut self) -> &mut Group {
        let next = &mut self.next_group;
        self.open.get_or_insert_with(|| {
            let group = Group::new(*next);
            *next += 1;
            group
        })
    }

    fn transact(&mut self, transaction: Transaction) -> Result<Committed> {
        let mut planned = Vec::with_capacity(transaction.operations.len());
        for operation in transaction.operations {
            let read = operation.read.as_ref();
            let old = match read.filter(|_| !self.overlay.contains_key(&operation.key)) {
                Some(record) => match self.recent.verified(record) {
                    Some(stored) => Some(stored),
                    None => self.newest(&operation.key)?,
                },
                None => self.newest(&operation.key)?,
            };
            planned.push(Planned { operation, old });
        }
        self.check_conditions(&transaction.conditions, &planned)?;
        // Deleting an absent key is a no-op.
        planned.retain(|planned| match planned.operation.action {
            Action::Put { .. } => true,
            Action::Delete => is_live(planned.old.as_ref()),
        });
        if planned.is_empty() {
            return Ok(self.unchanged());
        }
        Ok(self.apply(planned))
    }

    fn check_conditions(
        &self,
        conditions: &[crate::transaction::Condition],
        planned: &[Planned],
    ) -> Result<()> {
        /// From this many pairs on, a map is cheaper than a linear search.
        const FEW: usize = 64;
        let by_key: Option<HashMap<&Bytes, &Planned>> = (conditions.len() * planned.len() > FEW)
            .then(|| planned.iter().map(|planned| (&planned.operation.key, planned)).collect());
        for condition in conditions {
            let key = condition.key();
            let known = match &by_key {
                Some(map) => map.get(key).copied(),
                None => planned.iter().find(|planned| planned.operation.key == *key),
            };
            let current = match known {
                Some(planned) => planned.old.clone(),
                None => self.newest(key)?,
            };
            let current = current.filter(|stored| stored.header.kind != Kind::Tombstone);
            if !condition.holds(current.as_ref().map(|stored| stored.header.mod_revision)) {
                self.metrics.conflicts.add(1);
                let current = current.and_then(|stored| stored.record(key.clone())).map(Box::new);
                return Err(Error::Conflict { key: key.clone(), current });
            }
        }
        Ok(())
    }

    /// The newest version of a key, groups in flight included.
    fn newest(&self, key: &Bytes) -> Result<Option<Stored>> {
        if let Some(pending) = self.overlay.get(key) {
            return Ok(pending.stored.clone());
        }
        match self.store.get(Family::Current, key)? {
            Some(bytes) => Stored::decode(key, Bytes::copy_from_slice(&bytes)).map(Some),
            None => Ok(None),
        }
    }

    /// Assigns the transaction its revision and adds it to the open group.
    fn apply(&mut self, planned: Vec<Planned>) -> Committed {
        let revision = self.last_assigned.next();
        self.last_assigned = revision;
        let time_ms = self.time.now_ms();
        let relaxed = planned.iter().all(|planned| self.is_relaxed(&planned.operation.key));
        let number = self.group().number;
        let store = Arc::clone(&self.store);
        let mut batch = std::mem::take(&mut self.group().batch);

        let mut events = Vec::with_capacity(planned.len());
        let mut logged = Vec::with_capacity(planned.len());
        let mut deadline_ms = u64::MAX;
        for Planned { operation, old } in planned {
            let key = operation.key;
            let (new, event_kind) = next_version(&key, operation.action, old.as_ref(), revision, time_ms);
            let superseded = old.as_ref().map_or(Revision::ZERO, |old| old.header.mod_revision);
            self.scratch.write(&store, &mut batch, &key, old.as_ref(), &new);
            self.recent.note(&key, revision);
            deadline_ms = deadline_ms.min(new.header.expires_at_ms().unwrap_or(u64::MAX));
            logged.push(LoggedOperation {
                key: key.clone(),
                kind: new.header.kind,
                superseded,
                create_revision: new.header.create_revision,
                version: new.header.version,
            });
            let previous = old.and_then(|old| old.record(key.clone()));
            events.push(Arc::new(Event::new(revision, key.clone(), event_kind, previous)));
            self.group().keys.push(key.clone());
            self.overlay.insert(key, Pending { stored: Some(new), group: number });
        }
        let entry = LogEntry { revision, time_ms, operations: logged };
        entry.encode_into(&mut self.scratch.value);
        batch.put_cf(store.family(Family::Log), layout::log_key(revision), &self.scratch.value);

        let reserve = relaxed && revision > self.relaxed.reserved;
        if reserve {
            self.relaxed.reserved = Revision::new(revision.get().saturating_add(RESERVE));
            store.put_number(&mut batch, meta::RESERVED, self.relaxed.reserved.get());
        }
        let commit = Arc::new(Commit::new(revision, events));
        let group = self.group();
        group.batch = batch;
        group.sync |= !relaxed || reserve;
        group.deadline_ms = group.deadline_ms.min(deadline_ms);
        group.commits.push(Arc::clone(&commit));
        Committed { revision, commit: Some(commit) }
    }

    fn purge(&mut self, tombstones: Vec<(Bytes, Revision)>) -> Result<Committed> {
        let store = Arc::clone(&self.store);
        for (key, revision) in tombstones {
            let Some(newest) = self.newest(&key)? else { continue };
            if newest.header.kind != Kind::Tombstone || newest.header.mod_revision != revision {
                continue;
            }
            let group = self.group();
            group.batch.delete_cf(store.family(Family::Current), &key);
            group.keys.push(key.clone());
            let number = group.number;
            self.overlay.insert(key, Pending { stored: None, group: number });
        }
        Ok(self.unchanged())
    }

    fn is_relaxed(&self, key: &[u8]) -> bool {
        self.relaxed.prefixes.iter().any(|prefix| key.starts_with(prefix))
    }
}

fn is_live(stored: Option<&Stored>) -> bool {
    stored.is_some_and(|stored| stored.header.kind != Kind::Tombstone)
}

/// The version that follows `old`, and the event for it.
fn next_version(
    key: &[u8],
    action: Action,
    old: Option<&Stored>,
    revision: Revision,
    time_ms: u64,
) -> (Stored, EventKind) {
    let live = old.filter(|old| old.header.kind != Kind::Tombstone).map(|old| old.header);
    let create_revision = live.map_or(revision, |old| old.create_revision);
    match action {
        Action::Put { value, value_crc, ttl } => {
            let deadline_ms = ttl.map(|ttl| {
                let ttl = ttl.as_millis().try_into().unwrap_or(u64::MAX);
                time_ms.saturating_add(ttl)
            });
            let header = Header {
                kind: if deadline_ms.is_some() { Kind::PutExpiring } else { Kind::Put },
                mod_revision: revision,
                create_revision,
                version: live.map_or(1, |old| old.version.saturating_add(1)),
                deadline_ms: deadline_ms.unwrap_or(0),
            };
            let event = EventKind::Put {
                value: value.clone(),
                create_revision,
                version: header.version,
                expires_at_ms: deadline_ms,
            };
            (Stored::seal(key, header, value, value_crc), event)
        }
        Action::Delete => {
            let header = Header {
                kind: Kind::Tombstone,
                mod_revision: revision,
                create_revision,
                version: live.map_or(0, |old| old.version),
                deadline_ms: 0,
            };
            (Stored::seal(key, header, Bytes::new(), crate::record::value_crc(&[])), EventKind::Delete)
        }
    }
}

impl Scratch {
    /// Adds to `batch` the writes by which `new` supersedes `old`.
    fn write(
        &mut self,
        store: &Store,
        batch: &mut WriteBatch,
        key: &[u8],
        old: Option<&Stored>,
        new: &Stored,
    ) {
        if let Some(old) = old {
            layout::history_key_into(key, old.header.mod_revision, &mut self.key);
            old.encode_into(&mut self.value);
            batch.put_cf(store.family(Family::History), &self.key, &self.value);
            if let Some(deadline) = old.header.expires_at_ms() {
                batch.delete_cf(store.family(Family::Expiry), layout::expiry_key(deadline, key));
            }
        }
        new.encode_into(&mut self.value);
        batch.put_cf(store.family(Family::Current), key, &self.value);
        if let Some(deadline) = new.header.expires_at_ms() {
            let expiry_key = layout::expiry_key(deadline, key);
            let value = layout::encode_expiry(&expiry_key, new.header.mod_revision);
            batch.put_cf(store.family(Family::Expiry), expiry_key, value);
        }
    }
}
