//! What one member has of the journal.

use plinth_etcd_wire::kv::KeyValue;
use plinth_journal::{Error, Position, Result};

/// The newest record as a member has it, without its bytes, and a revision that is not below it.
pub(crate) struct Newest {
    pub log: Option<KeyValue>,
    pub revision: i64,
    pub member: usize,
}

impl Newest {
    /// Its position, zero where there is no record.
    pub(crate) fn position(&self) -> Result<Position> {
        self.log.as_ref().map_or(Ok(Position::ZERO), position)
    }

    /// Its position as a number, zero for one that cannot be.
    pub(crate) fn end(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| u64::try_from(log.version).unwrap_or(0))
    }
}

/// What a member has otherwise than it was.
pub(crate) enum Doubt {
    /// The keys were deleted or created again.
    Replaced,
    /// The key that names the cluster is not as it has to be.
    Unmarked,
    /// It ends before what was read or answered already.
    Behind(Newest),
}

impl Doubt {
    pub(crate) fn end(&self) -> u64 {
        match self {
            Doubt::Behind(newest) => newest.end(),
            Doubt::Replaced | Doubt::Unmarked => 0,
        }
    }
}

/// The version of the key is the number of its puts.
pub(crate) fn position(log: &KeyValue) -> Result<Position> {
    match u64::try_from(log.version) {
        Ok(version) if version > 0 => Ok(Position::new(version)),
        _ => Err(Error::Unavailable { message: "etcd returned no version of the key".to_owned() }),
    }
}
