//! What is written together with an object, or not at all.

use bytes::Bytes;
use plinth_engine::{Condition, Transaction};

/// Conditions and operations that a write's transaction carries beside the object: what admission plugins
/// charge, what a kind allocates and releases.
#[derive(Debug, Default)]
pub struct TransactionParts {
    conditions: Vec<Condition>,
    puts: Vec<(Bytes, Bytes)>,
    deletes: Vec<Bytes>,
}

impl TransactionParts {
    /// Adds a condition.
    pub fn require(&mut self, condition: Condition) {
        self.conditions.push(condition);
    }

    /// Adds a write of a value as it is stored: one of an object comes from `Store::seal`.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.puts.push((key.into(), value.into()));
    }

    /// Adds a deletion.
    pub fn delete(&mut self, key: impl Into<Bytes>) {
        self.deletes.push(key.into());
    }

    /// These parts and others.
    pub fn and(mut self, others: TransactionParts) -> TransactionParts {
        self.conditions.extend(others.conditions);
        self.puts.extend(others.puts);
        self.deletes.extend(others.deletes);
        self
    }

    /// Whether the transaction can fail because another write changed what its conditions name.
    pub(crate) fn can_race(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// The transaction with these parts.
    pub(crate) fn add_to(self, transaction: Transaction) -> Transaction {
        let transaction = self.conditions.into_iter().fold(transaction, Transaction::require);
        let transaction = self.puts.into_iter().fold(transaction, |t, (key, value)| t.put(key, value));
        self.deletes.into_iter().fold(transaction, Transaction::delete)
    }
}
