//! Files of bbolt, the B+tree in one file that etcd keeps its data in: [`BoltFile`] reads one and checks what
//! it reads, [`BoltWriter`] writes one in one pass.
//!
//! A file is pages of one size. Pages 0 and 1 are *meta* pages: of the two, the valid one with the higher
//! transaction number counts. A bucket is a tree of branch and leaf pages; the root bucket holds the others
//! by name. A page has 16 bytes of header: its number (u64), kind (u16), number of elements (u16), and how
//! many more pages it continues over (u32). Then an element each, and after them keys and values:
//!
//! | page | element |
//! |---|---|
//! | branch | distance from the element to its key (u32), length of the key (u32), page of the child (u64) |
//! | leaf | flags (u32: 1 for a bucket), distance to its key (u32), lengths of key and value (u32 each) |
//!
//! A meta page has, behind the header: magic number, version 2, page size, flags (u32 each), the root
//! bucket's page and sequence, the page of the freelist (all ones for none), the number of pages, the number
//! of the transaction, and FNV-1a (64 bits) of what stands before it (u64 each). All numbers are little
//! endian. Facts of bbolt's `internal/common` (`page.go`, `meta.go`).
//!
//! ```
//! use plinth_bolt::{BoltError, BoltFile, BoltWriter};
//!
//! let mut writer = BoltWriter::new(tempfile::tempfile()?)?;
//! let mut bucket = writer.bucket(b"colors");
//! bucket.put(b"apple".to_vec(), b"red".to_vec())?;
//! bucket.finish()?;
//! let file = writer.finish()?;
//!
//! let length = file.metadata()?.len();
//! let mut found = Vec::new();
//! BoltFile::open(file, length)?.bucket::<BoltError>(b"colors", &mut |key, value, _| {
//!     found.push((key.to_vec(), value.to_vec()));
//!     Ok(())
//! })?;
//! assert_eq!(found, [(b"apple".to_vec(), b"red".to_vec())]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod reader;
mod writer;

pub use reader::{BoltError, BoltFile, Place};
pub use writer::{BoltWriter, BucketWriter, Layout};

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
const PAGE_HEADER: usize = 16;
const BRANCH_ELEMENT: usize = 16;
const LEAF_ELEMENT: usize = 16;
/// Bytes of a meta page behind the header, with the checksum.
const META: usize = 64;
/// Bytes of a bucket's value: its root page and sequence.
const BUCKET: usize = 16;
const BRANCH_PAGE: u16 = 0x01;
const LEAF_PAGE: u16 = 0x02;
const META_PAGE: u16 = 0x04;
const FREELIST_PAGE: u16 = 0x10;
const BUCKET_LEAF: u32 = 0x01;
const NO_FREELIST: u64 = u64::MAX;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// FNV-1a with 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
