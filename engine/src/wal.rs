//! RocksDB's log format: what a log file holds, and how it ends.
//!
//! RocksDB drops, without a word, whatever it takes for a torn tail: any record whose length reaches beyond the end of the
//! file, and everything behind it. So the engine reads the logs first ([`crate::recovery`]) and lets RocksDB see only what is
//! whole.
//!
//! The format (blocks of 32 KiB; fragments that do not cross them: masked crc32c u32, length u16, type u8, payload; a record is
//! one whole fragment, or a first, any number of middle ones and a last) is that of RocksDB's `db/log_format.h`. A record of a
//! write-ahead log is a batch: sequence number u64 of its first operation, number of operations u32, operations
//! (`db/write_batch.cc`). The MANIFEST has the same format with other records.

use std::borrow::Cow;

use bytes::Bytes;

use crate::log::LogEntry;
use crate::revision::Revision;

const BLOCK: usize = 32 << 10;
const HEADER: usize = 7;
/// What a disk writes whole.
const SECTOR: usize = 512;
/// Sequence number and number of operations of a batch.
const BATCH_HEADER: usize = 12;

/// What a log file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Bytes up to the end of the last whole record before the first unsound one.
    pub sound: u64,
    /// Sequence number of the first operation.
    pub first: Option<u64>,
    /// The sequence number behind the last operation of the sound part.
    pub next: Option<u64>,
    /// What is behind the sound part.
    pub tail: Tail,
}

/// What is behind the last whole record of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing.
    Clean,
    /// A write that was not finished, as a power cut leaves it.
    Torn,
    /// Bytes that were written and have changed since.
    Damaged,
}

/// A sound fragment of a record.
#[derive(Clone, Copy)]
struct Fragment<'a> {
    kind: u8,
    payload: &'a [u8],
    end: usize,
}

const WHOLE: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// Puts fragments together.
#[derive(Default)]
struct Assembly {
    record: Option<Vec<u8>>,
}

/// What a fragment does to a record.
enum Step<'a> {
    /// The record is not complete, or the fragment belongs to none (compression, predecessor and the like).
    More,
    Complete(Cow<'a, [u8]>),
    /// The fragment does not fit the ones before it.
    Misplaced,
}

impl Assembly {
    fn add<'a>(&mut self, fragment: Fragment<'a>) -> Step<'a> {
        match (fragment.kind, self.record.take()) {
            (WHOLE, None) => Step::Complete(fragment.payload.into()),
            (FIRST, None) => {
                self.record = Some(fragment.payload.to_vec());
                Step::More
            }
            (MIDDLE, Some(mut record)) => {
                record.extend_from_slice(fragment.payload);
                self.record = Some(record);
                Step::More
            }
            (LAST, Some(mut record)) => {
                record.extend_from_slice(fragment.payload);
                Step::Complete(record.into())
            }
            (WHOLE | FIRST | MIDDLE | LAST, _) => Step::Misplaced,
            (_, None) => Step::More,
            (_, Some(_)) => Step::Misplaced,
        }
    }
}

/// Reads a write-ahead log; `record` is called with each whole record of the sound part.
pub(crate) fn read(log: &[u8], mut record: impl FnMut(&[u8])) -> Contents {
    let mut contents = Contents { sound: 0, first: None, next: None, tail: Tail::Clean };
    let behind = walk(log, &mut contents.sound, |batch| {
        if let Some((first, next)) = sequence(batch) {
            contents.first.get_or_insert(first);
            contents.next = Some(next);
        }
        record(batch);
    });
    contents.tail = match behind {
        None => Tail::Clean,
        Some(at) if !looks_torn(log, at) => Tail::Damaged,
        // Everything behind the last sync is unacknowledged: any number of the sweep's batches, and one group, whose
        // revisions go on where the sound part ended. More than that was acknowledged once.
        Some(at) => {
            let mut newest = None;
            walk(log, &mut 0, |batch| newest = revisions(batch).last().copied().or(newest));
            let groups: Vec<Vec<Revision>> = records_behind(log, at)
                .iter()
                .map(|batch| revisions(batch))
                .filter(|r| !r.is_empty())
                .collect();
            let follows = |first: Option<&Revision>| {
                first.is_none_or(|first| newest.is_none_or(|newest: Revision| newest.next() == *first))
            };
            match &*groups {
                [] => Tail::Torn,
                [group] if follows(group.first()) => Tail::Torn,
                _ => Tail::Damaged,
            }
        }
    };
    contents
}

/// Reads a file of the same format whose records are no batches: the MANIFEST. Its first `synced` bytes were on disk; behind them,
/// records that were written together may be there without the ones before them.
pub(crate) fn read_manifest(log: &[u8], synced: u64) -> Contents {
    let mut contents = Contents { sound: 0, first: None, next: None, tail: Tail::Clean };
    if let Some(at) = walk(log, &mut contents.sound, |_| {}) {
        let torn = if records_behind(log, at).is_empty() {
            looks_torn(log, at)
        } else {
            contents.sound >= synced && has_lost_sector(log, at)
        };
        contents.tail = if torn { Tail::Torn } else { Tail::Damaged };
    }
    contents
}

/// The whole records of a log behind its sound part, as far as they can be read.
pub(crate) fn dropped_records(log: &[u8], sound: u64) -> Vec<Vec<u8>> {
    records_behind(log, usize::try_from(sound).unwrap_or(usize::MAX))
}

/// Walks through the sound part of a log, and answers where it ends unless that is the end of the file.
fn walk(log: &[u8], sound: &mut u64, mut record: impl FnMut(&[u8])) -> Option<usize> {
    let mut assembly = Assembly::default();
    let mut at = 0;
    loop {
        if BLOCK - at % BLOCK < HEADER {
            at = at.next_multiple_of(BLOCK);
        }
        if at >= log.len() {
            // A record without its last fragment is torn.
            return assembly.record.is_some().then_some(log.len());
        }
        let Some(fragment) = fragment_at(log, at) else { return Some(at) };
        match assembly.add(fragment) {
            Step::More => {}
            Step::Complete(batch) => record(&batch),
            Step::Misplaced => return Some(at),
        }
        at = fragment.end;
        if assembly.record.is_none() {
            *sound = at as u64;
        }
    }
}

/// The whole records behind an unsound place.
fn records_behind(log: &[u8], unsound: usize) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut assembly = Assembly::default();
    let mut at = unsound;
    while at < log.len() {
        if BLOCK - at % BLOCK < HEADER {
            at = at.next_multiple_of(BLOCK);
            continue;
        }
        let Some(fragment) = fragment_at(log, at) else {
            assembly = Assembly::default();
            at += 1;
            continue;
        };
        match assembly.add(fragment) {
            Step::Complete(batch) => found.push(batch.into_owned()),
            Step::More => {}
            // The rest of a record whose beginning is not sound.
            Step::Misplaced => assembly = Assembly::default(),
        }
        at = fragment.end;
    }
    found
}

/// Whether the unsound place `at` looks like a write that was not finished: the file ends in it, or a sector of it is lost.
fn looks_torn(log: &[u8], at: usize) -> bool {
    let block_end = (at + 1).next_multiple_of(BLOCK);
    let Some(length) = length_at(log, at) else { return true };
    at + HEADER > log.len()
        || (log.len() < block_end && at + HEADER + length > log.len())
        || has_lost_sector(log, at)
}

/// The length that the header at a place names.
fn length_at(log: &[u8], at: usize) -> Option<usize> {
    match log.get(at + 4..at + 6) {
        Some(&[low, high]) => Some(usize::from(u16::from_le_bytes([low, high]))),
        _ => None,
    }
}

/// Whether a sector of the unsound fragment at `at`, or the rest of one, was never written and reads as zeros.
fn has_lost_sector(log: &[u8], at: usize) -> bool {
    let block_end = (at + 1).next_multiple_of(BLOCK);
    let Some(length) = length_at(log, at) else { return false };
    let claimed = at + HEADER + length;
    // Where the length itself may be lost, the sector behind it counts, too.
    let next_sector = (at + 1).next_multiple_of(SECTOR);
    let nearest = block_end.min(next_sector + SECTOR);
    let end = if claimed > block_end || length == 0 {
        nearest
    } else if next_sector < at + HEADER {
        claimed.max(nearest)
    } else {
        claimed
    };
    let end = end.min(log.len());
    let mut from = at;
    while from < end {
        // To the end of the sector, since it is lost as a whole: of the record's last one there may be a few bytes only.
        let to = (from + 1).next_multiple_of(SECTOR).min(log.len());
        let lost = log.get(from..to).is_some_and(|part| part.iter().all(|byte| *byte == 0));
        let is_enough = to - from >= HEADER || to == log.len() || from == at && is_header_lost(log, at, to);
        if lost && is_enough {
            return true;
        }
        from = to;
    }
    false
}

/// Whether the first bytes of a header, up to the end of a sector at `to`, are zeros because they were lost: no checksum is
/// zero by chance, and of one that is lost in part the rest is right.
fn is_header_lost(log: &[u8], at: usize, to: usize) -> bool {
    const CHECKSUM: usize = 4;
    if to - at >= CHECKSUM {
        return true;
    }
    let Some(length) = length_at(log, at) else { return false };
    let Some(checked) = log.get(at + HEADER - 1..at + HEADER + length) else { return false };
    let checksum = masked(crc32c(checked)).to_le_bytes();
    log.get(to..at + CHECKSUM) == checksum.get(to - at..)
}

/// Sequence number of the first operation of a batch, and the one behind its last.
fn sequence(batch: &[u8]) -> Option<(u64, u64)> {
    let first = crate::record::read_u64(batch, 0)?;
    let count = crate::record::read_u32(batch, 8)?;
    Some((first, first.saturating_add(count.into())))
}

/// An operation of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation<'a> {
    /// The number of the column family.
    pub family: usize,
    pub key: &'a [u8],
    pub change: Change<'a>,
}

/// What an operation of a batch does to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Put(&'a [u8]),
    Delete,
    /// Deletes a key that was put once.
    SingleDelete,
    /// The key and those behind it, up to this one.
    DeleteRange(&'a [u8]),
}

/// The operations of a batch, in order; none when it holds anything that the engine does not write.
pub(crate) fn operations(batch: &[u8]) -> Option<Vec<Operation<'_>>> {
    let count = crate::record::read_u32(batch, 8)? as usize;
    let mut rest = batch.get(BATCH_HEADER..)?;
    let mut operations = Vec::new();
    while let Some(operation) = take_operation(&mut rest) {
        operations.push(operation);
    }
    (rest.is_empty() && operations.len() == count).then_some(operations)
}

/// The revisions that a batch commits: those of its log entries, in order.
pub(crate) fn revisions(batch: &[u8]) -> Vec<Revision> {
    entries(batch).iter().map(|entry| entry.revision).collect()
}

/// The log entries of a batch, in order, as far as it can be read.
pub(crate) fn entries(batch: &[u8]) -> Vec<LogEntry> {
    let mut found = Vec::new();
    let mut rest = batch.get(BATCH_HEADER..).unwrap_or_default();
    while let Some(Operation { key, change, .. }) = take_operation(&mut rest) {
        let (Some(revision), Change::Put(value)) = (crate::layout::parse_log_key(key), change) else {
            continue;
        };
        found.extend(LogEntry::decode(revision, Bytes::copy_from_slice(value)));
    }
    found
}

/// Takes an operation off the front of a batch. None at the end, and where something stands that the engine does not write.
fn take_operation<'a>(rest: &mut &'a [u8]) -> Option<Operation<'a>> {
    /// Value types of RocksDB's `db/dbformat.h`; with the second of each pair a column family's number comes first.
    const DELETE: [u8; 2] = [0, 4];
    const PUT: [u8; 2] = [1, 5];
    const SINGLE_DELETE: [u8; 2] = [7, 8];
    const DELETE_RANGE: [u8; 2] = [15, 14];
    let mut behind = *rest;
    let (tag, after) = behind.split_first()?;
    behind = after;
    let family = match [DELETE[1], PUT[1], SINGLE_DELETE[1], DELETE_RANGE[1]].contains(tag) {
        true => take_varint(&mut behind)?,
        false => 0,
    };
    let operation = match tag {
        tag if DELETE.contains(tag) => {
            Operation { family, key: take_slice(&mut behind)?, change: Change::Delete }
        }
        tag if SINGLE_DELETE.contains(tag) => {
            Operation { family, key: take_slice(&mut behind)?, change: Change::SingleDelete }
        }
        tag if PUT.contains(tag) => {
            let key = take_slice(&mut behind)?;
            Operation { family, key, change: Change::Put(take_slice(&mut behind)?) }
        }
        tag if DELETE_RANGE.contains(tag) => {
            let key = take_slice(&mut behind)?;
            Operation { family, key, change: Change::DeleteRange(take_slice(&mut behind)?) }
        }
        _ => return None,
    };
    *rest = behind;
    Some(operation)
}

fn take_varint(rest: &mut &[u8]) -> Option<usize> {
    let mut number = 0usize;
    for shift in (0..35).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_slice<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_varint(rest)?;
    let (slice, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(slice)
}

/// The sound fragment at `at`, if there is one.
fn fragment_at(log: &[u8], at: usize) -> Option<Fragment<'_>> {
    let left = BLOCK - at % BLOCK;
    let header = log.get(at..at.checked_add(HEADER)?)?;
    let [c0, c1, c2, c3, l0, l1, kind] = *<&[u8; HEADER]>::try_from(header).ok()?;
    let length = usize::from(u16::from_le_bytes([l0, l1]));
    // Kinds: whole, first, middle, last; compression, timestamp size, predecessor info.
    if !matches!(kind, WHOLE..=LAST | 9 | 10 | 130) || HEADER + length > left {
        return None;
    }
    let end = at + HEADER + length;
    let checked = log.get(at + HEADER - 1..end)?;
    let payload = log.get(at + HEADER..end)?;
    (masked(crc32c(checked)) == u32::from_le_bytes([c0, c1, c2, c3])).then_some(Fragment {
        kind,
        payload,
        end,
    })
}

/// A checksum as it is stored.
fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
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

    /// Appends a record as RocksDB writes it.
    fn append(log: &mut Vec<u8>, mut record: &[u8]) {
        let mut begin = true;
        loop {
            if BLOCK - log.len() % BLOCK < HEADER {
                log.resize(log.len().next_multiple_of(BLOCK), 0);
            }
            let room = BLOCK - log.len() % BLOCK - HEADER;
            let (part, rest) = record.split_at(record.len().min(room));
            let kind = match (begin, rest.is_empty()) {
                (true, true) => WHOLE,
                (true, false) => FIRST,
                (false, false) => MIDDLE,
                (false, true) => LAST,
            };
            let mut checked = vec![kind];
            checked.extend_from_slice(part);
            let sum = masked(crc32c(&checked));
            log.extend_from_slice(&sum.to_le_bytes());
            log.extend_from_slice(&(part.len() as u16).to_le_bytes());
            log.extend_from_slice(&checked);
            (record, begin) = (rest, false);
            if record.is_empty() {
                return;
            }
        }
    }

    /// A batch that commits `revision` with a value of `size` bytes that are not zero, or a sweep's batch.
    fn batch(sequence: u64, revision: Option<u64>, size: usize) -> Vec<u8> {
        let mut batch = sequence.to_le_bytes().to_vec();
        batch.extend_from_slice(&2u32.to_le_bytes());
        let mut put = |family: u8, key: &[u8], value: &[u8]| {
            batch.extend_from_slice(&[5, family, key.len() as u8]);
            batch.extend_from_slice(key);
            let (mut length, mut bytes) = (value.len(), Vec::new());
            while length > 0x7f {
                bytes.push(length as u8 | 0x80);
                length >>= 7;
            }
            bytes.push(length as u8);
            batch.extend_from_slice(&bytes);
            batch.extend_from_slice(value);
        };
        put(1, b"key", &vec![7; size]);
        match revision {
            Some(revision) => {
                let revision = Revision::new(revision);
                let mut entry = Vec::new();
                LogEntry { revision, time_ms: 1, operations: Vec::new() }.encode_into(&mut entry);
                put(3, &crate::layout::log_key(revision), &entry);
            }
            None => put(0, b"swept", b"number"),
        }
        batch
    }

    fn log(batches: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
        let (mut log, mut ends) = (Vec::new(), vec![0]);
        for batch in batches {
            append(&mut log, batch);
            ends.push(log.len());
        }
        (log, ends)
    }

    fn tail(log: &[u8]) -> Tail {
        read(log, |_| {}).tail
    }

    #[test]
    fn the_checksum_is_castagnolis() {
        // The check value of the CRC catalogue, and the 32 zero bytes of RFC 3720.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn revisions_and_sequence_numbers_are_read() {
        let batches = [batch(5, Some(9), 10), batch(7, None, 100_000), batch(9, Some(10), 40_000)];
        let (log, _) = log(&batches);
        let mut seen = Vec::new();
        let contents = read(&log, |batch| seen.push(revisions(batch)));
        assert_eq!(seen, [vec![Revision::new(9)], vec![], vec![Revision::new(10)]]);
        assert_eq!((contents.first, contents.next), (Some(5), Some(11)));
        assert_eq!((contents.sound, contents.tail), (log.len() as u64, Tail::Clean));
    }

    #[test]
    fn a_log_cut_anywhere_is_torn() {
        let (log, ends) = log(&[batch(1, Some(1), 3), batch(3, Some(2), 70_000), batch(5, Some(3), 9)]);
        for cut in (0..log.len()).filter(|cut| cut % 97 == 0 || ends.iter().any(|end| end.abs_diff(*cut) < 9))
        {
            let contents = read(&log[..cut], |_| {});
            let whole = ends.iter().rfind(|end| **end <= cut).copied().unwrap();
            assert_eq!(contents.sound, whole as u64, "cut at {cut}");
            assert_eq!(contents.tail, if cut == whole { Tail::Clean } else { Tail::Torn }, "cut at {cut}");
        }
    }

    #[test]
    fn a_flipped_bit_is_damage_wherever_it_is() {
        let (log, ends) = log(&[batch(1, Some(1), 30), batch(3, Some(2), 40), batch(5, Some(3), 50)]);
        // The last record's length may point behind the end of the file, as a torn one's does.
        let length = ends[2] + 4..ends[2] + 6;
        for bit in (0..log.len() * 8).filter(|bit| !length.contains(&(bit / 8))) {
            let mut damaged = log.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(tail(&damaged), Tail::Damaged, "bit {bit}");
        }
    }

    /// Sectors of the last group were not written, in any combination.
    #[test]
    fn a_torn_last_group_is_recognised() {
        let (log, ends) = log(&[batch(1, Some(1), 700), batch(3, Some(2), 80_000)]);
        let sectors = log.len().div_ceil(SECTOR);
        let first = ends[1] / SECTOR;
        let mut random = 1u64;
        for round in 0..400 {
            let mut torn = log.clone();
            for sector in first..sectors {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let lost = if round < sectors - first { sector == first + round } else { random >> 60 < 3 };
                if lost {
                    let from = (sector * SECTOR).max(ends[1]);
                    let to = ((sector + 1) * SECTOR).min(log.len());
                    torn[from..to].fill(0);
                }
            }
            if torn == log {
                continue;
            }
            let contents = read(&torn, |_| {});
            assert_eq!((contents.tail, contents.sound), (Tail::Torn, ends[1] as u64), "round {round}");
        }
    }

    /// The header of the group's record lies in two sectors, and any of its sectors is lost, or all from one of them on.
    #[test]
    fn a_group_whose_header_lies_in_two_sectors_is_torn() {
        for before in 1..HEADER {
            let small = (1..2 * SECTOR)
                .map(|size| batch(1, Some(1), size))
                .find(|small| log(std::slice::from_ref(small)).0.len() % SECTOR == SECTOR - before)
                .unwrap();
            let (whole, ends) = log(&[small, batch(3, Some(2), 3000)]);
            for sector in ends[1] / SECTOR..whole.len().div_ceil(SECTOR) {
                let from = (sector * SECTOR).max(ends[1]);
                for to in [((sector + 1) * SECTOR).min(whole.len()), whole.len()] {
                    let mut torn = whole.clone();
                    torn[from..to].fill(0);
                    let what = format!("{before} bytes before the border, {from}..{to} lost");
                    let contents = read(&torn, |_| {});
                    assert_eq!((contents.tail, contents.sound), (Tail::Torn, ends[1] as u64), "{what}");
                    let contents = read_manifest(&torn, ends[1] as u64);
                    assert_eq!((contents.tail, contents.sound), (Tail::Torn, ends[1] as u64), "{what}");
                }
            }
            // A flipped bit is no lost sector.
            for bit in 0..8 * HEADER {
                let mut damaged = whole.clone();
                damaged[ends[1] + bit / 8] ^= 1 << (bit % 8);
                let tail = read(&damaged, |_| {}).tail;
                // One in the length may lead beyond the end, as a torn write does, and one may leave zeros.
                let may_be_torn = (32..48).contains(&bit) || damaged[ends[1]] == 0;
                assert!(tail == Tail::Damaged || may_be_torn, "{before}, bit {bit}: {tail:?}");
            }
        }
    }

    /// What the lost sector holds of the group is shorter than a header, and other records follow.
    #[test]
    fn a_group_whose_last_bytes_are_lost_is_torn() {
        let small = batch(1, Some(1), 100);
        let before = log(std::slice::from_ref(&small)).0.len() as u64;
        for rest in 1..=HEADER {
            let large = (SECTOR..2 * SECTOR)
                .map(|size| [small.clone(), batch(3, None, size)])
                .find(|batches| log(batches).0.len() == 2 * SECTOR + rest)
                .unwrap();
            let [small, large] = large;
            let (mut torn, _) = log(&[small, large, batch(5, Some(2), 700)]);
            torn[2 * SECTOR..].fill(0);
            let contents = read(&torn, |_| {});
            assert_eq!((contents.tail, contents.sound), (Tail::Torn, before), "{rest} bytes");
        }
    }

    #[test]
    fn what_was_acknowledged_behind_a_lost_sector_is_damage() {
        let zeroed = |batches: &[Vec<u8>], index: usize| {
            let (mut log, ends) = log(batches);
            log[ends[index]..ends[index + 1]].fill(0);
            tail(&log)
        };
        let sweep = |sequence| batch(sequence, None, 900);
        let group = |sequence, revision| batch(sequence, Some(revision), 900);
        // The sweep's batches are synced with the next group, which was not acknowledged.
        assert_eq!(zeroed(&[group(1, 1), sweep(3), group(5, 2)], 1), Tail::Torn);
        assert_eq!(zeroed(&[group(1, 1), sweep(3), sweep(5), group(7, 2), sweep(9)], 1), Tail::Torn);
        // Revision 2 was acknowledged before 3 was written.
        assert_eq!(zeroed(&[group(1, 1), group(3, 2), group(5, 3)], 1), Tail::Damaged);
        assert_eq!(zeroed(&[group(1, 1), sweep(3), group(5, 2), group(7, 3)], 1), Tail::Damaged);
    }

    #[test]
    fn a_manifest_ends_whole_or_torn() {
        let (manifest, ends) = log(&[b"one".to_vec(), vec![9; 2000], b"three".to_vec()]);
        let synced = manifest.len() as u64;
        assert_eq!(read_manifest(&manifest, synced).tail, Tail::Clean);
        assert_eq!(read_manifest(&manifest[..manifest.len() - 1], synced).tail, Tail::Torn);
        for bit in ends[1] * 8..(ends[2] - 6) * 8 {
            let mut damaged = manifest.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_manifest(&damaged, 0).tail, Tail::Damaged, "bit {bit}");
        }
        // Sectors of what was written together are lost in any order, and those of what was synced never.
        let mut damaged = manifest;
        damaged[SECTOR..2 * SECTOR].fill(0);
        let torn = read_manifest(&damaged, ends[1] as u64);
        assert_eq!((torn.tail, torn.sound), (Tail::Torn, ends[1] as u64));
        assert_eq!(read_manifest(&damaged, ends[1] as u64 + 1).tail, Tail::Damaged);
    }
}
