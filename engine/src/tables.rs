//! Verifies the checksums of RocksDB's table files, including parts that no read needs.
//!
//! Reading every entry checks the data blocks and those parts of the index and the filter that the reads
//! touched. RocksDB's own check reads every block of every live file. The binding does not expose it, hence
//! the call of the C API.

use std::ffi::{c_char, CStr};
use std::ptr::null_mut;

use librocksdb_sys as ffi;
use rocksdb::{AsRawPtr, DB};

/// Reads every block of every live table file and compares its checksum; the first mismatch as text.
pub(crate) fn check(db: &DB) -> Result<(), String> {
    let mut error: *mut c_char = null_mut();
    // SAFETY: the pointer is that of an open database, which the borrow keeps open during the call; `error`
    // is a place for one pointer, null before.
    unsafe { ffi::rocksdb_verify_checksum(db.as_raw_ptr(), &raw mut error) };
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: RocksDB has put a string with a zero at its end there, which is the caller's to free.
    let text = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
    // SAFETY: as above; it is not used afterwards.
    unsafe { ffi::rocksdb_free(error.cast()) };
    Err(text)
}
