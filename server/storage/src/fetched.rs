//! An object as it was read.

use std::ops::Deref;

use bytes::Bytes;
use plinth_engine::Record;

/// An object as it was read: the engine's record, whose value may be encrypted, and the decrypted value. The
/// two are kept apart because a record that is passed back to the engine
/// ([`plinth_engine::Transaction::having_read`]) must be the engine's own: a decrypted one would put plain
/// text on disk.
#[derive(Clone, Debug)]
pub struct Fetched {
    record: Record,
    /// Header and body in plain text.
    pub value: Bytes,
}

impl Fetched {
    /// A record with its value in plain text.
    pub(crate) fn new(record: Record, value: Bytes) -> Fetched {
        Fetched { record, value }
    }

    /// The value as the engine has it, which may be encrypted.
    pub(crate) fn stored_value(&self) -> &Bytes {
        &self.record.value
    }

    /// The same record with another value, as another version of the API has it.
    pub fn with_value(self, value: Bytes) -> Fetched {
        Fetched { value, ..self }
    }

    /// The engine's own record.
    pub fn into_record(self) -> Record {
        self.record
    }
}

impl Deref for Fetched {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}
