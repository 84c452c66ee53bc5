//! The log: one entry per revision, telling what it did.
//!
//! An entry and the versions that it names (under the keys in it, with its revision) are all that a
//! commit did: together they are enough to repeat it elsewhere. Layout (little endian):
//!
//! ```text
//!  0  crc32   u32   of the log key and bytes 4..
//!  4  time    u64   milliseconds since 1970 when the entry was made
//! 12  count   u32   number of operations, at least 1
//!     then for each operation, in the order of the transaction:
//!     kind             u8    as in a version
//!     superseded       u64   mod revision of the version that this one took the place of, 0 for none
//!     create revision  u64
//!     version          u64
//!     key length       u32
//!     key
//! ```

use bytes::{Buf, Bytes};

use crate::error::{Error, Result};
use crate::layout;
use crate::record::{read_u32, read_u64, Kind};
use crate::revision::Revision;

/// What one revision did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogEntry {
    pub revision: Revision,
    /// When the entry was made, by the clock of the machine; only retention by age looks at it.
    pub time_ms: u64,
    pub operations: Vec<LoggedOperation>,
}

/// What one revision did to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoggedOperation {
    pub key: Bytes,
    pub kind: Kind,
    /// Mod revision of the version (or tombstone) that this one took the place of; zero for none.
    pub superseded: Revision,
    pub create_revision: Revision,
    pub version: u64,
}

impl LoggedOperation {
    /// Whether the superseded version is a value rather than a tombstone.
    pub(crate) fn has_previous(&self) -> bool {
        self.kind == Kind::Tombstone || self.version > 1
    }
}

const FIXED: usize = 1 + 8 + 8 + 8 + 4;

impl LogEntry {
    /// Replaces the content of `out` with the stored form.
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.time_ms.to_le_bytes());
        out.extend_from_slice(&(self.operations.len() as u32).to_le_bytes());
        for operation in &self.operations {
            out.push(operation.kind.byte());
            out.extend_from_slice(&operation.superseded.get().to_le_bytes());
            out.extend_from_slice(&operation.create_revision.get().to_le_bytes());
            out.extend_from_slice(&operation.version.to_le_bytes());
            out.extend_from_slice(&(operation.key.len() as u32).to_le_bytes());
            out.extend_from_slice(&operation.key);
        }
        let crc = checksum(&layout::log_key(self.revision), out);
        if let Some(field) = out.get_mut(..4) {
            field.copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Checks and decodes a stored entry; keys share the allocation of `bytes`.
    pub(crate) fn decode(revision: Revision, bytes: Bytes) -> Result<LogEntry> {
        let corrupt = |reason| Error::Corrupt { key: Bytes::new(), revision, reason };
        if read_u32(&bytes, 0) != Some(checksum(&layout::log_key(revision), &bytes)) {
            return Err(corrupt("checksum of the log entry does not match"));
        }
        Self::decode_checked(revision, bytes).ok_or_else(|| corrupt("not a log entry"))
    }

    fn decode_checked(revision: Revision, bytes: Bytes) -> Option<LogEntry> {
        let time_ms = read_u64(&bytes, 4)?;
        let count = read_u32(&bytes, 12)? as usize;
        let mut rest = bytes.get(16..).map(|rest| bytes.slice_ref(rest))?;
        // The count is not trusted with memory: each operation takes at least its fixed part.
        if count > rest.len() / FIXED {
            return None;
        }
        let mut operations = Vec::with_capacity(count);
        for _ in 0..count {
            let kind = Kind::from_byte(*rest.first()?)?;
            let superseded = Revision::new(read_u64(&rest, 1)?);
            let create_revision = Revision::new(read_u64(&rest, 9)?);
            let version = read_u64(&rest, 17)?;
            let length = read_u32(&rest, 25)? as usize;
            rest.advance(FIXED);
            if length > rest.len() {
                return None;
            }
            let key = rest.split_to(length);
            operations.push(LoggedOperation { key, kind, superseded, create_revision, version });
        }
        rest.is_empty().then_some(LogEntry { revision, time_ms, operations })
    }
}

/// Checksum of an entry: its key, then everything behind the checksum field.
fn checksum(key: &[u8; 8], bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(key);
    crc.update(bytes.get(4..).unwrap_or_default());
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> LogEntry {
        let operation = |key: &'static str, kind, version| LoggedOperation {
            key: Bytes::from_static(key.as_bytes()),
            kind,
            superseded: Revision::new(5),
            create_revision: Revision::new(2),
            version,
        };
        LogEntry {
            revision: Revision::new(9),
            time_ms: 123,
            operations: vec![operation("a", Kind::Put, 1), operation("", Kind::Tombstone, 4)],
        }
    }

    #[test]
    fn what_was_encoded_decodes() {
        let mut bytes = Vec::new();
        entry().encode_into(&mut bytes);
        assert_eq!(LogEntry::decode(Revision::new(9), bytes.into()).unwrap(), entry());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let mut bytes = Vec::new();
        entry().encode_into(&mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(LogEntry::decode(Revision::new(9), damaged.into()).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(LogEntry::decode(Revision::new(9), bytes[..len].to_vec().into()).is_err());
        }
        assert!(LogEntry::decode(Revision::new(8), bytes.into()).is_err(), "another revision's entry");
    }
}
