//! Entry points to the decoders for fuzz targets and their tests on stable Rust. Not part of the public
//! interface.

use bytes::Bytes;

use crate::archive::check_entry;
use crate::log::LogEntry;
use crate::revision::Revision;
use crate::store::Family;
use crate::stored::Stored;
use crate::wal;

/// Decodes a stored version, and checks that encoding it again gives the same bytes.
pub fn record(key: &[u8], bytes: &[u8]) {
    if let Ok(stored) = Stored::decode(key, Bytes::copy_from_slice(bytes)) {
        let mut again = Vec::new();
        stored.encode_into(&mut again);
        assert_eq!(again, bytes);
    }
}

/// Decodes a log entry, and checks that encoding it again gives the same bytes.
pub fn log_entry(revision: u64, bytes: &[u8]) {
    if let Ok(entry) = LogEntry::decode(Revision::new(revision), Bytes::copy_from_slice(bytes)) {
        let mut again = Vec::new();
        entry.encode_into(&mut again);
        assert_eq!(again, bytes);
    }
    // Without the checksum, so that the fuzzer reaches the decoder.
    let entry = LogEntry::decode_unchecked(Revision::new(revision), bytes);
    if let Some(entry) = entry {
        let mut again = Vec::new();
        entry.encode_into(&mut again);
        assert_eq!(again.get(4..), bytes.get(4..));
    }
}

/// Reads bytes as a write-ahead log and as a manifest: the sound part ends within the file.
pub fn wal(log: &[u8]) {
    let contents = wal::read(log, |batch| drop(wal::revisions(batch)));
    assert!(contents.sound <= log.len() as u64);
    drop(wal::dropped_records(log, contents.sound));
    assert!(wal::read_manifest(log, 0).sound <= log.len() as u64);
}

/// Checks bytes as an entry of each column family.
pub fn entry(key: &[u8], value: &[u8]) {
    for family in Family::ALL {
        let _ = check_entry(family, key, value);
    }
}
