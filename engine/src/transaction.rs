//! Transactions: conditions and changes that a caller submits.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::options::Limits;
use crate::record::Record;
use crate::revision::Revision;
use crate::stored;

/// Bytes that the name of a number may be longer than a key, so that a number can be kept for each key.
const MAX_NUMBER_PREFIX: usize = 32;

/// A precondition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// The key exists and was last written at this revision.
    ModRevision {
        /// Key whose record is compared.
        key: Bytes,
        /// Its mod revision.
        revision: Revision,
    },
    /// The key does not exist.
    Absent(Bytes),
    /// The key exists.
    Exists(Bytes),
}

impl Condition {
    /// The key that the condition is about.
    pub fn key(&self) -> &Bytes {
        match self {
            Condition::ModRevision { key, .. } | Condition::Absent(key) | Condition::Exists(key) => key,
        }
    }

    /// Whether the condition holds when the key was last written at `current` (none: it is absent).
    pub(crate) fn holds(&self, current: Option<Revision>) -> bool {
        match self {
            Condition::ModRevision { revision, .. } => current == Some(*revision),
            Condition::Absent(_) => current.is_none(),
            Condition::Exists(_) => current.is_some(),
        }
    }
}

/// A change of one key.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub key: Bytes,
    pub action: Action,
    /// The record that the caller has just read; spares the committer a read if it is still current.
    pub read: Option<Record>,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    Put { value: Bytes, value_crc: u32, ttl: Option<Duration> },
    Delete,
}

/// Conditions and changes that are applied atomically, at one revision.
///
/// Deleting a key that does not exist changes nothing; a transaction that changes nothing takes no
/// revision. A key may be changed once in a transaction.
///
/// ```
/// use plinth_engine::{Condition, Revision, Transaction};
///
/// let transfer = Transaction::new()
///     .require(Condition::ModRevision { key: "accounts/a".into(), revision: Revision::new(7) })
///     .put("accounts/a", "90")
///     .put("accounts/b", "110")
///     .delete("pending/a-b");
/// assert_eq!(transfer.len(), 3);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Transaction {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) operations: Vec<Operation>,
    /// Numbers of the application by their names; none removes one.
    pub(crate) numbers: Vec<(Bytes, Option<u64>)>,
    /// Whether it is accepted while the disk is full.
    pub(crate) reclaims: bool,
}

impl Transaction {
    /// A transaction that requires nothing and does nothing.
    pub fn new() -> Transaction {
        Transaction::default()
    }

    /// Adds a condition. All are checked against the state before the transaction.
    #[must_use]
    pub fn require(mut self, condition: Condition) -> Transaction {
        self.conditions.push(condition);
        self
    }

    /// Sets the value of a key. The value may be empty.
    #[must_use]
    pub fn put(self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Transaction {
        self.push_put(key.into(), value.into(), None)
    }

    /// Sets the value of a key, which the engine deletes when `ttl` has passed, unless the key is put again
    /// before. The time counts from the commit, at a resolution of milliseconds.
    #[must_use]
    pub fn put_expiring(self, key: impl Into<Bytes>, value: impl Into<Bytes>, ttl: Duration) -> Transaction {
        self.push_put(key.into(), value.into(), Some(ttl))
    }

    /// Deletes a key.
    #[must_use]
    pub fn delete(mut self, key: impl Into<Bytes>) -> Transaction {
        self.operations.push(Operation { key: key.into(), action: Action::Delete, read: None });
        self
    }

    /// Passes the record that the caller has read for the key of the last operation, so that the committer
    /// need not read it again. Only a hint: when the key has changed since, it is not used. Passing a record
    /// that the engine did not return for this key corrupts the history of the key.
    #[must_use]
    pub fn having_read(mut self, record: Record) -> Transaction {
        if let Some(operation) = self.operations.last_mut() {
            if operation.key == record.key {
                operation.read = Some(record);
            }
        }
        self
    }

    /// Marks a transaction that deletes, or leads to a deletion: on a full disk it may use the room that
    /// [`crate::Options::reserve_bytes`] keeps.
    #[must_use]
    pub fn reclaiming(mut self) -> Transaction {
        self.reclaims = true;
        self
    }

    /// Sets a number of the application, which is written and synced together with the other changes. Such a
    /// number has no revision, no history and no event: a transaction that sets numbers alone takes no
    /// revision. Of several for one name the last one counts. Not in a replica.
    #[must_use]
    pub fn set_number(mut self, name: impl Into<Bytes>, number: u64) -> Transaction {
        self.numbers.push((name.into(), Some(number)));
        self
    }

    /// Removes a number of the application, if there is one of this name.
    #[must_use]
    pub fn remove_number(mut self, name: impl Into<Bytes>) -> Transaction {
        self.numbers.push((name.into(), None));
        self
    }

    /// Number of changes of keys.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there are no changes of keys.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    fn push_put(mut self, key: Bytes, value: Bytes, ttl: Option<Duration>) -> Transaction {
        // The checksum of the value is computed here, on the caller's thread: the committer is the bottleneck
        // of all writes.
        let value_crc = stored::value_crc(&value);
        self.operations.push(Operation { key, action: Action::Put { value, value_crc, ttl }, read: None });
        self
    }

    /// Bytes of keys and values: the transaction's size in queues and groups.
    pub(crate) fn size(&self) -> usize {
        let operations = self.operations.iter().map(|operation| {
            operation.key.len()
                + match &operation.action {
                    Action::Put { value, .. } => value.len(),
                    Action::Delete => 0,
                }
        });
        let conditions = self.conditions.iter().map(|condition| condition.key().len());
        let numbers = self.numbers.iter().map(|(name, _)| name.len());
        operations.chain(conditions).chain(numbers).fold(0, usize::saturating_add)
    }

    /// Refuses a transaction that is over the limits or contradicts itself, before it is queued.
    pub(crate) fn check(&self, limits: &Limits) -> Result<()> {
        let bound = |what, size, limit| {
            if size > limit {
                Err(Error::TooLarge { what, size, limit })
            } else {
                Ok(())
            }
        };
        let parts = [self.operations.len(), self.conditions.len(), self.numbers.len()];
        if parts.into_iter().fold(0, usize::saturating_add) > limits.operations {
            return Err(Error::InvalidTransaction { reason: "too many operations" });
        }
        for condition in &self.conditions {
            bound("key", condition.key().len(), limits.key)?;
        }
        for (name, _) in &self.numbers {
            bound("name of a number", name.len(), limits.key.saturating_add(MAX_NUMBER_PREFIX))?;
        }
        for operation in &self.operations {
            bound("key", operation.key.len(), limits.key)?;
            if let Action::Put { value, .. } = &operation.action {
                bound("value", value.len(), limits.value)?;
            }
        }
        bound("transaction", self.size(), limits.transaction)?;
        self.check_unique()
    }

    /// Refuses a transaction that changes a key twice.
    pub(crate) fn check_unique(&self) -> Result<()> {
        let unique = match self.operations.as_slice() {
            [] | [_] => true,
            [a, b] => a.key != b.key,
            many => {
                let mut keys = HashSet::with_capacity(many.len());
                many.iter().all(|operation| keys.insert(&operation.key))
            }
        };
        if !unique {
            return Err(Error::InvalidTransaction { reason: "a key is changed twice" });
        }
        Ok(())
    }
}
