//! Stored versions of keys: the form of a [`Record`] on disk.
//!
//! A version is written once, under its key in the `current` column family, and moves unchanged to `history`
//! when another one supersedes it. Its checksum covers value, key and header, in that order: the value comes
//! first so that its part of the checksum can be computed by the caller, before the revision is known. Layout
//! (little endian), see `docs/storage-format.md`:
//!
//! ```text
//!  0  crc32            u32   of value, key, bytes 4.. of the header
//!  4  kind             u8    1 put, 2 tombstone, 3 put with a deadline
//!  5  zero             3 bytes
//!  8  mod revision     u64
//! 16  create revision  u64   of the life that the version belongs to
//! 24  version          u64   1 for the put that created the key
//! 32  deadline         u64   kind 3 only: milliseconds since 1970
//!     value
//! ```

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::record::Record;
use crate::revision::Revision;

/// The kind of a stored version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The key has a value.
    Put,
    /// The key was deleted.
    Tombstone,
    /// The key has a value until a deadline.
    PutExpiring,
}

impl Kind {
    pub(crate) const fn byte(self) -> u8 {
        match self {
            Kind::Put => 1,
            Kind::Tombstone => 2,
            Kind::PutExpiring => 3,
        }
    }

    pub(crate) const fn from_byte(byte: u8) -> Option<Kind> {
        match byte {
            1 => Some(Kind::Put),
            2 => Some(Kind::Tombstone),
            3 => Some(Kind::PutExpiring),
            _ => None,
        }
    }
}

/// Bytes of a header without a deadline.
pub(crate) const HEADER: usize = 32;
/// Bytes of a header with one.
pub(crate) const HEADER_EXPIRING: usize = 40;

/// The decoded header of a stored version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Kind,
    pub mod_revision: Revision,
    pub create_revision: Revision,
    pub version: u64,
    /// Milliseconds since 1970; zero unless the kind is [`Kind::PutExpiring`].
    pub deadline_ms: u64,
}

impl Header {
    /// Bytes before the value.
    pub(crate) const fn len(&self) -> usize {
        match self.kind {
            Kind::PutExpiring => HEADER_EXPIRING,
            Kind::Put | Kind::Tombstone => HEADER,
        }
    }

    pub(crate) fn expires_at_ms(&self) -> Option<u64> {
        (self.kind == Kind::PutExpiring).then_some(self.deadline_ms)
    }

    /// The bytes after the checksum field, and how many of them are used.
    fn tail(&self) -> ([u8; HEADER_EXPIRING - 4], usize) {
        let mut tail = [0; HEADER_EXPIRING - 4];
        tail[0] = self.kind.byte();
        tail[4..12].copy_from_slice(&self.mod_revision.get().to_le_bytes());
        tail[12..20].copy_from_slice(&self.create_revision.get().to_le_bytes());
        tail[20..28].copy_from_slice(&self.version.to_le_bytes());
        tail[28..36].copy_from_slice(&self.deadline_ms.to_le_bytes());
        (tail, self.len() - 4)
    }
}

/// A stored version in memory, as the committer keeps it while its group is in flight.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub header: Header,
    pub crc: u32,
    pub value: Bytes,
}

impl Stored {
    /// Seals a version. `value_crc` is [`value_crc`] of the value, computed beforehand.
    pub(crate) fn seal(key: &[u8], header: Header, value: Bytes, value_crc: u32) -> Stored {
        let crc = seal_crc(key, &header, value_crc, value.len());
        Stored { header, crc, value }
    }

    /// Checks and decodes the bytes stored for `key`; the value shares their allocation.
    pub(crate) fn decode(key: &[u8], bytes: Bytes) -> Result<Stored> {
        let (header, crc) = check(key, &bytes)?;
        let value = bytes.slice(header.len()..);
        Ok(Stored { header, crc, value })
    }

    /// Replaces the content of `out` with the stored form.
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        let (tail, len) = self.header.tail();
        out.clear();
        out.extend_from_slice(&self.crc.to_le_bytes());
        out.extend_from_slice(tail.get(..len).unwrap_or(&tail));
        out.extend_from_slice(&self.value);
    }

    /// The public record; none for a tombstone.
    pub(crate) fn record(&self, key: Bytes) -> Option<Record> {
        if self.header.kind == Kind::Tombstone {
            return None;
        }
        Some(Record {
            key,
            value: self.value.clone(),
            create_revision: self.header.create_revision,
            mod_revision: self.header.mod_revision,
            version: self.header.version,
            expires_at_ms: self.header.expires_at_ms(),
        })
    }
}

/// The value's part of a record's checksum.
pub(crate) fn value_crc(value: &[u8]) -> u32 {
    crc32fast::hash(value)
}

fn seal_crc(key: &[u8], header: &Header, value_crc: u32, value_len: usize) -> u32 {
    let (tail, len) = header.tail();
    let mut crc = crc32fast::Hasher::new_with_initial_len(value_crc, value_len as u64);
    update_with_both(&mut crc, key, tail.get(..len).unwrap_or(&tail));
    crc.finalize()
}

/// Adds the key and the header to a checksum: in one update where they are short, because each update costs
/// about 15 ns whatever its length, which is noticeable in a scan of small records.
fn update_with_both(crc: &mut crc32fast::Hasher, key: &[u8], header: &[u8]) {
    let mut both = [0; 192];
    let len = key.len() + header.len();
    match both.get_mut(..len).map(|both| both.split_at_mut(key.len())) {
        Some((first, second)) => {
            first.copy_from_slice(key);
            second.copy_from_slice(header);
            crc.update(both.get(..len).unwrap_or_default());
        }
        None => {
            crc.update(key);
            crc.update(header);
        }
    }
}

/// Decodes the header of `bytes` without verifying the checksum.
///
/// # Errors
/// `None` when the bytes cannot be a record.
pub(crate) fn peek(bytes: &[u8]) -> Option<(Header, u32)> {
    let crc = read_u32(bytes, 0)?;
    let kind = Kind::from_byte(*bytes.get(4)?)?;
    if bytes.get(5..8)? != [0; 3] {
        return None;
    }
    let header = Header {
        kind,
        mod_revision: Revision::new(read_u64(bytes, 8)?),
        create_revision: Revision::new(read_u64(bytes, 16)?),
        version: read_u64(bytes, 24)?,
        deadline_ms: if kind == Kind::PutExpiring { read_u64(bytes, HEADER)? } else { 0 },
    };
    Some((header, crc))
}

/// Checks the stored bytes of `key` and decodes their header.
pub(crate) fn check(key: &[u8], bytes: &[u8]) -> Result<(Header, u32)> {
    let corrupt = |revision, reason| Error::Corrupt { key: Bytes::copy_from_slice(key), revision, reason };
    let Some((header, crc)) = peek(bytes) else {
        return Err(corrupt(Revision::ZERO, "not a record"));
    };
    let body = bytes.get(header.len()..).unwrap_or_default();
    let mut sum = crc32fast::Hasher::new();
    sum.update(body);
    update_with_both(&mut sum, key, bytes.get(4..header.len()).unwrap_or_default());
    if sum.finalize() != crc {
        return Err(corrupt(header.mod_revision, "checksum does not match"));
    }
    Ok((header, crc))
}

/// The little-endian number at `at`, if in bounds.
pub(crate) fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    let array: [u8; 8] = bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
    Some(u64::from_le_bytes(array))
}

/// The little-endian number at `at`, if in bounds.
pub(crate) fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let array: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(u32::from_le_bytes(array))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(kind: Kind, value: &'static [u8]) -> Stored {
        let header = Header {
            kind,
            mod_revision: Revision::new(7),
            create_revision: Revision::new(3),
            version: 4,
            deadline_ms: if kind == Kind::PutExpiring { 99 } else { 0 },
        };
        Stored::seal(b"key", header, Bytes::from_static(value), value_crc(value))
    }

    #[test]
    fn what_was_encoded_decodes() {
        for (kind, value) in
            [(Kind::Put, &b"value"[..]), (Kind::Put, b""), (Kind::Tombstone, b""), (Kind::PutExpiring, b"v")]
        {
            let stored = stored(kind, value);
            let mut bytes = Vec::new();
            stored.encode_into(&mut bytes);
            let back = Stored::decode(b"key", bytes.into()).unwrap();
            assert_eq!(back.header, stored.header);
            assert_eq!(back.value, stored.value);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let mut bytes = Vec::new();
        stored(Kind::PutExpiring, b"some value").encode_into(&mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Stored::decode(b"key", damaged.into()).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(Stored::decode(b"key", bytes[..len].to_vec().into()).is_err(), "cut at {len}");
        }
        assert!(Stored::decode(b"kez", bytes.into()).is_err(), "another key's record");
    }
}
