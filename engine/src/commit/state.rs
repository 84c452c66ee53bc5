//! What a transaction does to the state: whether its conditions hold, its revision, versions, log entry and
//! events.
//!
//! The outcome depends on the state, the transaction and the time alone, so that every replica that applies
//! the same transactions in the same order has the same state. The builder of a single store and the applier
//! of a replica both use it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use rocksdb::WriteBatch;

use crate::commit::group::Group;
use crate::commit::recent::RecentWrites;
use crate::commit::reply::Committed;
use crate::error::{Error, Result};
use crate::feed::event::{Commit, Event, EventKind};
use crate::layout;
use crate::log::{LogEntry, LoggedOperation};
use crate::revision::Revision;
use crate::stats::Metrics;
use crate::store::{Family, Store};
use crate::stored::{Header, Kind, Stored};
use crate::transaction::{Action, Condition, Operation, Transaction};

/// The state as of the last transaction, written or not. Owned by one thread at a time.
pub(crate) struct StateMachine {
    store: Arc<Store>,
    metrics: Arc<Metrics>,
    /// The last revision assigned, durable or not.
    last_assigned: Revision,
    /// Newest versions of keys changed by groups that are not written yet; they take precedence over the
    /// database.
    overlay: HashMap<Bytes, Pending>,
    /// Which keys may have been written since a caller read them.
    recent: RecentWrites,
    scratch: Scratch,
}

/// A version that is not written yet; none when the key is being purged.
struct Pending {
    stored: Option<Stored>,
    group: u64,
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

/// A transaction whose conditions hold.
pub(crate) struct Plan(Vec<Planned>);

impl Plan {
    /// Whether it changes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys that it changes.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter().map(|planned| &planned.operation.key)
    }
}

impl StateMachine {
    /// The state of a store whose newest revision is `latest`.
    pub(crate) fn new(store: Arc<Store>, metrics: Arc<Metrics>, latest: Revision) -> StateMachine {
        StateMachine {
            store,
            metrics,
            last_assigned: latest,
            overlay: HashMap::new(),
            recent: RecentWrites::new(latest),
            scratch: Scratch::default(),
        }
    }

    /// The last revision assigned.
    pub(crate) fn last_assigned(&self) -> Revision {
        self.last_assigned
    }

    /// Everything that is not written has failed: `latest` is the newest revision again.
    pub(crate) fn reset(&mut self, latest: Revision) {
        self.overlay.clear();
        self.last_assigned = latest;
    }

    /// The keys of a group are in the database. A later group may have changed them again.
    pub(crate) fn written(&mut self, group: u64, keys: Vec<Bytes>) {
        for key in keys {
            if self.overlay.get(&key).is_some_and(|pending| pending.group == group) {
                self.overlay.remove(&key);
            }
        }
    }

    /// The answer to a transaction that changes nothing.
    pub(crate) fn unchanged(&self) -> Committed {
        Committed { revision: self.last_assigned, commit: None }
    }

    /// Checks the conditions of a transaction, and finds what it changes.
    pub(crate) fn plan(&self, transaction: Transaction) -> Result<Plan> {
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
        Ok(Plan(planned))
    }

    fn check_conditions(&self, conditions: &[Condition], planned: &[Planned]) -> Result<()> {
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

    /// Assigns the transaction its revision and adds it to `group`.
    pub(crate) fn apply(&mut self, plan: Plan, time_ms: u64, group: &mut Group) -> Committed {
        let Plan(planned) = plan;
        let revision = self.last_assigned.next();
        self.last_assigned = revision;
        let mut events = Vec::with_capacity(planned.len());
        let mut logged = Vec::with_capacity(planned.len());
        for Planned { operation, old } in planned {
            let key = operation.key;
            let (new, event_kind) = next_version(&key, operation.action, old.as_ref(), revision, time_ms);
            let superseded = old.as_ref().map_or(Revision::ZERO, |old| old.header.mod_revision);
            self.scratch.write(&self.store, &mut group.batch, &key, old.as_ref(), &new);
            self.recent.note(&key, revision);
            group.deadline_ms = group.deadline_ms.min(new.header.expires_at_ms().unwrap_or(u64::MAX));
            logged.push(LoggedOperation {
                key: key.clone(),
                kind: new.header.kind,
                superseded,
                create_revision: new.header.create_revision,
                version: new.header.version,
            });
            let previous = old.and_then(|old| old.record(key.clone()));
            events.push(Arc::new(Event::new(revision, key.clone(), event_kind, previous)));
            group.keys.push(key.clone());
            self.overlay.insert(key, Pending { stored: Some(new), group: group.number });
        }
        let entry = LogEntry { revision, time_ms, operations: logged };
        entry.encode_into(&mut self.scratch.value);
        let log = self.store.family(Family::Log);
        group.batch.put_cf(log, layout::log_key(revision), &self.scratch.value);
        let commit = Arc::new(Commit::new(revision, events));
        group.commits.push(Arc::clone(&commit));
        Committed { revision, commit: Some(commit) }
    }

    /// Those of the tombstones that are still the newest version of their key.
    pub(crate) fn purgeable(&self, tombstones: Vec<(Bytes, Revision)>) -> Result<Vec<Bytes>> {
        let mut keys = Vec::new();
        for (key, revision) in tombstones {
            let Some(newest) = self.newest(&key)? else { continue };
            if newest.header.kind == Kind::Tombstone && newest.header.mod_revision == revision {
                keys.push(key);
            }
        }
        Ok(keys)
    }

    /// Adds to `group` the removal of tombstones that are [`StateMachine::purgeable`].
    pub(crate) fn purge(&mut self, keys: Vec<Bytes>, group: &mut Group) {
        for key in keys {
            group.batch.delete_cf(self.store.family(Family::Current), &key);
            group.keys.push(key.clone());
            self.overlay.insert(key, Pending { stored: None, group: group.number });
        }
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
            (Stored::seal(key, header, Bytes::new(), crate::stored::value_crc(&[])), EventKind::Delete)
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
