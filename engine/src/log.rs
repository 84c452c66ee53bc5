//! The log: one entry per revision, with the changes that it made.
//!
//! An entry and the versions that it refers to (under the keys in it, with its revision) describe a commit
//! completely: together they are enough to replay it. Layout (little endian):
//!
//! ```text
//!  0  crc32   u32   of the log key and bytes 4..
//!  4  time    u64   milliseconds since 1970 when the entry was made
//! 12  count   u32   number of operations, at least 1
//!     then for each operation, in the order of the transaction:
//!     kind             u8      as in a version
//!     superseded       number  mod revision of the version that this one took the place of, 0 for none
//!     create revision  number
//!     version          number
//!     key length       number
//!     key
//! ```
//!
//! A number is a varint: seven bits in each byte, the lowest first; the highest bit is set when more bytes
//! follow. Only the shortest form is valid, so that an entry has one encoding.

use bytes::{Buf, Bytes};
use plinth_journal::{put_varint, take_varint};

use crate::error::{Error, Result};
use crate::layout;
use crate::revision::Revision;
use crate::stored::{read_u32, read_u64, Kind};

/// The changes of one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogEntry {
    pub revision: Revision,
    /// When the entry was made, by the engine's clock; used only by retention by age.
    pub time_ms: u64,
    pub operations: Vec<LoggedOperation>,
}

/// The change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoggedOperation {
    pub key: Bytes,
    pub kind: Kind,
    /// Mod revision of the version (or tombstone) that this one superseded; zero for none.
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

/// Minimum size of an operation in bytes, with an empty key.
const MIN_OPERATION: usize = 5;

impl LogEntry {
    /// Replaces the content of `out` with the stored form.
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.time_ms.to_le_bytes());
        out.extend_from_slice(&(self.operations.len() as u32).to_le_bytes());
        for operation in &self.operations {
            out.push(operation.kind.byte());
            put_varint(out, operation.superseded.get());
            put_varint(out, operation.create_revision.get());
            put_varint(out, operation.version);
            put_varint(out, operation.key.len() as u64);
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

    /// Decodes an entry whatever its checksum, for fuzzing.
    pub(crate) fn decode_unchecked(revision: Revision, bytes: &[u8]) -> Option<LogEntry> {
        Self::decode_checked(revision, Bytes::copy_from_slice(bytes))
    }

    fn decode_checked(revision: Revision, bytes: Bytes) -> Option<LogEntry> {
        let time_ms = read_u64(&bytes, 4)?;
        let count = read_u32(&bytes, 12)? as usize;
        let mut rest = bytes.get(16..).map(|rest| bytes.slice_ref(rest))?;
        // No memory is allocated for a count that the bytes cannot hold.
        if count > rest.len() / MIN_OPERATION {
            return None;
        }
        let mut operations = Vec::with_capacity(count);
        for _ in 0..count {
            let kind = Kind::from_byte(*rest.first()?)?;
            rest.advance(1);
            let superseded = Revision::new(take_varint(&mut rest)?);
            let create_revision = Revision::new(take_varint(&mut rest)?);
            let version = take_varint(&mut rest)?;
            let length = usize::try_from(take_varint(&mut rest)?).ok()?;
            if length > rest.len() {
                return None;
            }
            let key = rest.split_to(length);
            operations.push(LoggedOperation { key, kind, superseded, create_revision, version });
        }
        rest.is_empty().then_some(LogEntry { revision, time_ms, operations })
    }
}

/// Decodes an entry of the log.
pub(crate) fn decode_entry(key: &[u8], value: &[u8]) -> Result<LogEntry> {
    let revision = layout::parse_log_key(key).ok_or(Error::Corrupt {
        key: Bytes::copy_from_slice(key),
        revision: Revision::ZERO,
        reason: "not a log key",
    })?;
    LogEntry::decode(revision, Bytes::copy_from_slice(value))
}

/// Checksum of an entry: its key, then everything after the checksum field.
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
    fn numbers_have_one_form() {
        for number in [0, 1, 127, 128, 300, 1 << 21, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, number);
            let mut rest = Bytes::from(out);
            assert_eq!(take_varint(&mut rest), Some(number));
            assert!(rest.is_empty());
        }
        for bad in [
            &[][..],
            &[0x80],
            &[0x80, 0],
            &[0xff; 9],
            &[0xff; 11],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert_eq!(take_varint(&mut Bytes::copy_from_slice(bad)), None, "{bad:?}");
        }
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
