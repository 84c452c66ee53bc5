//! Names and key formats of the column families. `docs/storage-format.md` documents the whole format.
//!
//! | column family | key | value |
//! |---|---|---|
//! | `current` | user key | newest version of the key, also when that is a tombstone |
//! | `history` | escaped user key, then the revision, inverted | a superseded version |
//! | `log` | revision | the changes of that revision, one [`crate::log::LogEntry`] |
//! | `expiry` | deadline, then the user key | mod revision that set the deadline, and a checksum |
//! | `default` | name | a metadata number of the store |
//!
//! Keys are compared bytewise, so numbers in keys are big endian.

use crate::revision::Revision;

/// Version of the on-disk format. Raised by any change that an older program would misread.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// Format of the store of a replica: a program that would write to it without the journal must not open it.
pub(crate) const REPLICA_FORMAT_VERSION: u32 = 2;

/// Format of a store with the mark of an application: a program that knows no marks must not open it.
pub(crate) const MARKED_FORMAT_VERSION: u32 = 3;

pub(crate) const CURRENT: &str = "current";
pub(crate) const HISTORY: &str = "history";
pub(crate) const LOG: &str = "log";
pub(crate) const EXPIRY: &str = "expiry";

/// Names in the `default` column family. Each value is one little-endian u64 and its crc32.
pub(crate) mod meta {
    /// Format version of the store.
    pub(crate) const FORMAT: &[u8] = b"format";
    /// Oldest revision that can be read.
    pub(crate) const FLOOR: &[u8] = b"floor";
    /// Revision up to which compaction has removed history.
    pub(crate) const SWEPT: &[u8] = b"swept";
    /// No revision at or below this one is assigned again, whatever the log holds. Written ahead of relaxed
    /// commits, whose log entries may be lost in a power failure.
    pub(crate) const RESERVED: &[u8] = b"reserved";
    /// Time of the newest log entry that compaction has removed, in milliseconds since 1970.
    pub(crate) const TIME: &[u8] = b"time";
    /// The revision at which the store was restored from an archive: what was created up to it is from
    /// there.
    pub(crate) const RESTORED: &[u8] = b"restored";
    /// Set once the watermark has been written: a store that has this and no watermark has lost it.
    pub(crate) const MARKED: &[u8] = b"marked";
    /// Begins the names of what a replica has applied, see [`crate::replica::applied`].
    pub(crate) const REPLICA: &[u8] = b"replica.";
    /// The last position that a replica has applied: in the batch of each record.
    pub(crate) const REPLICA_POSITION: &[u8] = b"replica.position";
    /// What the application keeps in the store, see [`crate::Options::mark`]: up to eight characters, as a
    /// big-endian number. Absent for a store without a mark.
    pub(crate) const MARK: &[u8] = b"content";
    /// Begins the names of the application's numbers, see [`crate::Transaction::set_number`].
    pub(crate) const APPLICATION: &[u8] = b"app.";
}

/// Ends the escaped key in a history key. Sorts before every escaped byte.
const TERMINATOR: [u8; 2] = [0, 1];
/// Stands for a zero byte inside an escaped key.
const ESCAPED_ZERO: [u8; 2] = [0, 0xff];

/// Replaces the content of `out` with the escaped form of `key`, which sorts like the key and is no
/// prefix of another one.
pub(crate) fn escape_into(key: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut rest = key;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        out.extend_from_slice(rest.get(..zero).unwrap_or_default());
        out.extend_from_slice(&ESCAPED_ZERO);
        rest = rest.get(zero + 1..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&TERMINATOR);
}

/// Replaces the content of `out` with the history key of a version. Newer versions sort first.
pub(crate) fn history_key_into(key: &[u8], revision: Revision, out: &mut Vec<u8>) {
    escape_into(key, out);
    out.extend_from_slice(&(!revision.get()).to_be_bytes());
}

/// Splits a history key into user key and revision; none when it is malformed.
pub(crate) fn parse_history_key(bytes: &[u8]) -> Option<(Vec<u8>, Revision)> {
    let split = bytes.len().checked_sub(8)?;
    let (escaped, revision) = bytes.split_at(split);
    let revision = Revision::new(!u64::from_be_bytes(revision.try_into().ok()?));
    let mut rest = escaped.strip_suffix(&TERMINATOR)?;
    let mut key = Vec::with_capacity(rest.len());
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        key.extend_from_slice(rest.get(..=zero)?);
        rest = rest.get(zero..)?.strip_prefix(&ESCAPED_ZERO)?;
    }
    key.extend_from_slice(rest);
    Some((key, revision))
}

/// The log key of a revision.
pub(crate) fn log_key(revision: Revision) -> [u8; 8] {
    revision.get().to_be_bytes()
}

/// The revision of a log key; none when it is malformed.
pub(crate) fn parse_log_key(bytes: &[u8]) -> Option<Revision> {
    Some(Revision::new(u64::from_be_bytes(bytes.try_into().ok()?)))
}

/// The expiry key of a deadline.
pub(crate) fn expiry_key(deadline_ms: u64, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + key.len());
    out.extend_from_slice(&deadline_ms.to_be_bytes());
    out.extend_from_slice(key);
    out
}

/// Splits an expiry key into deadline and user key.
pub(crate) fn parse_expiry_key(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (deadline, key) = bytes.split_at_checked(8)?;
    Some((u64::from_be_bytes(deadline.try_into().ok()?), key))
}

/// The value of an expiry entry: the mod revision that set the deadline, and the crc32 of key and revision.
pub(crate) fn encode_expiry(expiry_key: &[u8], revision: Revision) -> [u8; 12] {
    encode_number(expiry_key, revision.get())
}

/// Reads back [`encode_expiry`]; none when damaged. Versions up to 0.1 wrote no checksum.
pub(crate) fn decode_expiry(expiry_key: &[u8], value: &[u8]) -> Option<Revision> {
    let revision = match value.len() {
        8 => crate::stored::read_u64(value, 0)?,
        _ => decode_number(expiry_key, value)?,
    };
    Some(Revision::new(revision))
}

/// The stored form of a metadata number.
pub(crate) fn encode_number(name: &[u8], number: u64) -> [u8; 12] {
    let mut out = [0; 12];
    out[..8].copy_from_slice(&number.to_le_bytes());
    out[8..].copy_from_slice(&number_crc(name, number).to_le_bytes());
    out
}

/// Reads back [`encode_number`]; none when damaged.
pub(crate) fn decode_number(name: &[u8], bytes: &[u8]) -> Option<u64> {
    let number = crate::stored::read_u64(bytes, 0)?;
    let crc = crate::stored::read_u32(bytes, 8)?;
    (bytes.len() == 12 && crc == number_crc(name, number)).then_some(number)
}

fn number_crc(name: &[u8], number: u64) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(name);
    crc.update(&number.to_le_bytes());
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_keys_sort_by_key_then_newest_first() {
        let keys: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"a\0b"];
        let mut encoded = Vec::new();
        for key in keys {
            for revision in [9, 5, 1] {
                let mut out = Vec::new();
                history_key_into(key, Revision::new(revision), &mut out);
                assert_eq!(parse_history_key(&out), Some((key.to_vec(), Revision::new(revision))));
                encoded.push(out);
            }
        }
        let mut sorted = encoded.clone();
        sorted.sort();
        assert_eq!(encoded, sorted);
    }

    #[test]
    fn damaged_expiry_entries_are_noticed_and_old_ones_read() {
        let (key, revision) = (expiry_key(1_000, b"key"), Revision::new(17));
        let value = encode_expiry(&key, revision);
        assert_eq!(decode_expiry(&key, &value), Some(revision));
        assert_eq!(decode_expiry(&key, &17u64.to_le_bytes()), Some(revision), "without a checksum");
        for bit in 0..value.len() * 8 {
            let mut damaged = value;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_expiry(&key, &damaged), None, "bit {bit}");
        }
        assert_eq!(decode_expiry(&expiry_key(1_001, b"key"), &value), None, "of another deadline");
        assert_eq!(decode_expiry(&key, &value[..11]), None);
    }

    #[test]
    fn damaged_numbers_are_noticed() {
        let bytes = encode_number(b"floor", 17);
        assert_eq!(decode_number(b"floor", &bytes), Some(17));
        assert_eq!(decode_number(b"swept", &bytes), None);
        assert_eq!(decode_number(b"floor", &bytes[..11]), None);
    }
}
