//! A look at RocksDB's write-ahead log before RocksDB replays it.
//!
//! A crash leaves a torn tail: a record that was not written to its end, and nothing behind it. RocksDB is
//! told to tolerate that. But it takes any record whose length reaches beyond the end of the file for
//! one, so a flipped bit in a length would make everything behind it vanish without a word. Hence
//! this check: where a record is not sound, no sound one may follow.
//!
//! The format (blocks of 32 KiB, records that do not cross them: masked crc32c u32, length u16, type u8,
//! payload) is that of RocksDB's `db/log_format.h`.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::revision::Revision;

const BLOCK: usize = 32 << 10;
const HEADER: usize = 7;

/// Refuses a database directory with a write-ahead log that is damaged before its tail.
pub(crate) fn check(database: &Path) -> Result<()> {
    let io = |path: &Path| {
        let context = format!("reading {}", path.display());
        move |e| Error::io(context, e)
    };
    let mut logs: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(database).map_err(io(database))? {
        let path = entry.map_err(io(database))?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            logs.push(path);
        }
    }
    for path in logs {
        let log = fs::read(&path).map_err(io(&path))?;
        if damaged_before_tail(&log) {
            return Err(Error::Corrupt {
                key: Bytes::copy_from_slice(path.as_os_str().as_encoded_bytes()),
                revision: Revision::ZERO,
                reason: "the write-ahead log is damaged before its end",
            });
        }
    }
    Ok(())
}

pub(crate) fn damaged_before_tail(log: &[u8]) -> bool {
    let mut at = 0;
    loop {
        if BLOCK - at % BLOCK < HEADER {
            at = at.next_multiple_of(BLOCK);
        }
        if at >= log.len() {
            return false;
        }
        match record_at(log, at) {
            Some(length) => at += HEADER + length,
            None => return (at + 1..log.len()).any(|at| record_at(log, at).is_some()),
        }
    }
}

/// The payload length of the sound record at `at`, if there is one.
fn record_at(log: &[u8], at: usize) -> Option<usize> {
    let left = BLOCK - at % BLOCK;
    let header = log.get(at..at.checked_add(HEADER)?)?;
    let [c0, c1, c2, c3, l0, l1, kind] = *<&[u8; HEADER]>::try_from(header).ok()?;
    let length = usize::from(u16::from_le_bytes([l0, l1]));
    // Kinds: whole, first, middle, last; compression, timestamp size, predecessor info.
    if !matches!(kind, 1..=4 | 9 | 10 | 130) || HEADER + length > left {
        return None;
    }
    let checked = log.get(at + HEADER - 1..at + HEADER + length)?;
    let sum = crc32c(checked);
    let masked = sum.rotate_right(15).wrapping_add(0xa282_ead8);
    (masked == u32::from_le_bytes([c0, c1, c2, c3])).then_some(length)
}

/// The Castagnoli checksum, eight bytes at a step.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let Ok(chunk) = <[u8; 8]>::try_from(chunk) else { break };
        let word = u64::from_le_bytes(chunk) ^ u64::from(crc);
        crc = 0;
        for (table, byte) in TABLES.iter().rev().zip(word.to_le_bytes()) {
            crc ^= table[usize::from(byte)];
        }
    }
    for byte in chunks.remainder() {
        let [low, ..] = crc.to_le_bytes();
        crc = TABLES[0][usize::from(low ^ byte)] ^ (crc >> 8);
    }
    !crc
}

/// `TABLES[n][b]`: checksum of byte `b` followed by `n` zero bytes.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    /// The polynomial, bits reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = tables[0][(before & 0xff) as usize] ^ (before >> 8);
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(payload: &[u8]) -> Vec<u8> {
        let mut checked = vec![1];
        checked.extend_from_slice(payload);
        let mut out = crc32c(&checked).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes().to_vec();
        out.extend_from_slice(&(payload.len() as u16).to_le_bytes());
        out.extend_from_slice(&checked);
        out
    }

    #[test]
    fn the_checksum_is_castagnolis() {
        // The check value of the CRC catalogue, and the 32 zero bytes of RFC 3720.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn tails_may_be_torn_and_nothing_else() {
        let log: Vec<u8> = [&b"one"[..], b"two two", b"three"].iter().flat_map(|p| record(p)).collect();
        for cut in 0..=log.len() {
            assert!(!damaged_before_tail(&log[..cut]), "cut at {cut}");
        }
        let last = log.len() - record(b"three").len();
        for bit in 0..last * 8 {
            let mut damaged = log.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(damaged_before_tail(&damaged), "bit {bit}");
        }
    }
}
