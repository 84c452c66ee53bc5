//! Reading a column family of which blocks are damaged.
//!
//! RocksDB's iterators end at a block whose checksum does not match. Reading without checksum verification is
//! no alternative: it skips entries silently, and trusts damaged lengths. So the start of the next block is
//! searched for: the approximate size of a range of keys, which RocksDB takes from the indexes alone, grows
//! at block boundaries only, and the next boundary is found by bisection.

use rocksdb::{ColumnFamily, DBRawIterator, Range, ReadOptions, DB};

use crate::error::{Error, Result};
use crate::layout::{self, meta};
use crate::revision::Revision;
use crate::store::Family;

/// No block boundary is searched for after longer keys.
const LONGEST_KEY: usize = 1 << 12;

/// A range of stored keys in which nothing can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gap {
    /// The last key that was read before it; empty when there is none.
    pub after: Vec<u8>,
    /// The first key that could be read again; none when the gap reaches the end.
    pub before: Option<Vec<u8>>,
}

impl Gap {
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        (self.after.is_empty() || *self.after < *key)
            && self.before.as_ref().is_none_or(|before| key < before.as_slice())
    }
}

/// A cursor over a column family that skips unreadable blocks. Every entry that it returns is in a block
/// whose checksum matches.
pub(super) struct Reader<'a> {
    db: &'a DB,
    handle: &'a ColumnFamily,
    cursor: DBRawIterator<'a>,
    /// The last key that was read.
    last: Vec<u8>,
    gaps: Vec<Gap>,
}

/// The handle of a column family.
pub(super) fn handle(db: &DB, family: Family) -> Result<&ColumnFamily> {
    db.cf_handle(family.name()).ok_or_else(|| Error::Corrupt {
        key: family.name().into(),
        revision: Revision::ZERO,
        reason: "column family is missing",
    })
}

/// One of the metadata numbers, if it can be read.
pub(super) fn number(db: &DB, name: &[u8]) -> Option<Revision> {
    let bytes = db.get(name).ok().flatten()?;
    layout::decode_number(name, &bytes).map(Revision::new)
}

/// The mark of the store, where it was restored, and the numbers of the application, as far as they can be
/// read.
pub(super) fn application_numbers(db: &DB) -> Result<Vec<(Vec<u8>, u64)>> {
    let mut reader = Reader::new(db, Family::Meta)?;
    let mut numbers = Vec::new();
    while let Some((name, value)) = reader.item() {
        if name == meta::MARK || name == meta::RESTORED || name.starts_with(meta::APPLICATION) {
            numbers.extend(layout::decode_number(name, value).map(|number| (name.to_vec(), number)));
        }
        reader.next();
    }
    Ok(numbers)
}

/// The user key of a stored one in `current` or `history`.
pub(super) fn user_key(family: Family, stored: &[u8]) -> Option<Vec<u8>> {
    match family {
        Family::History => layout::parse_history_key(stored).map(|(key, _)| key),
        _ => Some(stored.to_vec()),
    }
}

/// Read options for damaged tables.
pub(super) fn read_options() -> ReadOptions {
    let mut read = ReadOptions::default();
    read.fill_cache(false);
    read.set_verify_checksums(true);
    read
}

impl<'a> Reader<'a> {
    /// A reader at the first entry that can be read.
    pub(super) fn new(db: &'a DB, family: Family) -> Result<Reader<'a>> {
        let handle = handle(db, family)?;
        let mut cursor = db.raw_iterator_cf_opt(handle, read_options());
        cursor.seek_to_first();
        let mut reader = Reader { db, handle, cursor, last: Vec::new(), gaps: Vec::new() };
        reader.skip_unreadable();
        Ok(reader)
    }

    /// The entry at the cursor; none after the last one.
    pub(super) fn item(&self) -> Option<(&[u8], &[u8])> {
        self.cursor.item()
    }

    /// Advances to the next entry.
    pub(super) fn next(&mut self) {
        let Some(key) = self.cursor.key() else { return };
        self.last.clear();
        self.last.extend_from_slice(key);
        self.cursor.next();
        self.skip_unreadable();
    }

    /// The gaps skipped so far.
    pub(super) fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Skips unreadable blocks, up to a readable entry or to the end.
    fn skip_unreadable(&mut self) {
        if self.cursor.valid() || self.cursor.status().is_ok() {
            return;
        }
        let mut from = self.last.clone();
        while !self.cursor.valid() && self.cursor.status().is_err() {
            let Some(border) = self.next_border(&from) else { break };
            self.cursor.seek(&border);
            from = border;
        }
        let before = self.cursor.key().map(<[u8]>::to_vec);
        self.gaps.push(Gap { after: self.last.clone(), before });
    }

    /// The least key after `from` at which another block begins in a table; none after the last block.
    fn next_border(&self, from: &[u8]) -> Option<Vec<u8>> {
        let size_to = |key: &[u8]| {
            let sizes = self.db.get_approximate_sizes_cf(self.handle, &[Range::new(from, key)]);
            sizes.first().copied().unwrap_or_default()
        };
        // A table of range deletions alone counts with all its bytes wherever the range meets it.
        let of_nothing = size_to(from);
        let is_same_block = |key: &[u8]| key <= from || size_to(key) <= of_nothing;
        if is_same_block(&[u8::MAX; LONGEST_KEY]) {
            return None;
        }
        // The greatest key of the block, byte by byte.
        let mut greatest = Vec::new();
        while greatest.len() < LONGEST_KEY {
            greatest.push(0);
            if !is_same_block(&greatest) {
                // With a zero at its end, it is the least key after that one.
                return Some(greatest);
            }
            let (mut low, mut high) = (0u8, u8::MAX);
            while low < high {
                let middle = high - (high - low) / 2;
                *greatest.last_mut()? = middle;
                if is_same_block(&greatest) {
                    low = middle;
                } else {
                    high = middle - 1;
                }
            }
            *greatest.last_mut()? = low;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A table of a range deletion alone has no blocks, and RocksDB counts all of its bytes for any range of
    /// keys that meets it: also for one in which no block begins.
    #[test]
    fn damaged_blocks_below_a_range_deletion_are_stepped_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_disable_auto_compactions(true);
        let families = Family::ALL.map(Family::name);
        let key = |n: u64| n.to_be_bytes();
        let db = DB::open_cf(&options, dir.path(), families).unwrap();
        let flush = |db: &DB| db.flush_cf(handle(db, Family::Log).unwrap()).unwrap();
        let tables = || {
            let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
            names.filter(|path| path.extension().is_some_and(|it| it == "sst")).collect::<Vec<_>>()
        };
        for n in 0..100 {
            db.put_cf(handle(&db, Family::Log).unwrap(), key(n), key(n)).unwrap();
        }
        flush(&db);
        let damaged = tables().pop().unwrap();
        db.delete_range_cf(handle(&db, Family::Log).unwrap(), key(0), key(50)).unwrap();
        flush(&db);
        for n in 200..300 {
            db.put_cf(handle(&db, Family::Log).unwrap(), key(n), key(n)).unwrap();
        }
        flush(&db);
        drop(db);
        assert_eq!(tables().len(), 3);
        let mut bytes = fs::read(&damaged).unwrap();
        bytes[20] ^= 0x55;
        fs::write(&damaged, bytes).unwrap();

        let db = DB::open_cf(&options, dir.path(), families).unwrap();
        let mut reader = Reader::new(&db, Family::Log).unwrap();
        let mut read = Vec::new();
        while let Some((key, _)) = reader.item() {
            read.push(u64::from_be_bytes(key.try_into().unwrap()));
            reader.next();
        }
        assert_eq!(read, (200..300).collect::<Vec<_>>());
        assert_eq!(reader.gaps(), [Gap { after: Vec::new(), before: Some(key(200).to_vec()) }]);
    }
}
