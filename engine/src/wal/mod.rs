//! RocksDB's log format: the contents of a log file, and how it ends.
//!
//! RocksDB silently drops what it considers a torn tail: any record whose length reaches beyond the end of
//! the file, and everything after it. So the engine reads the logs first ([`crate::recovery`]) and lets
//! RocksDB see only complete records.
//!
//! The format (blocks of 32 KiB; fragments that do not cross them: masked crc32c u32, length u16, type u8,
//! payload; a record is one whole fragment, or a first, any number of middle ones and a last) is that of
//! RocksDB's `db/log_format.h`. A record of a write-ahead log is a batch: sequence number u64 of its first
//! operation, number of operations u32, operations (`db/write_batch.cc`). The MANIFEST has the same format
//! with other records.

mod batch;
mod note;
mod page;

use std::borrow::Cow;

use plinth_journal::crc32c;

use crate::revision::Revision;

pub(crate) use self::batch::{entries, operations, revisions, Change};
use self::batch::{is_applied_record, note, sequence};
pub(crate) use self::note::{Note, WriterId};
pub(crate) use self::page::filler;

const BLOCK: usize = 32 << 10;
const HEADER: usize = 7;
/// The unit that a disk writes atomically.
const SECTOR: usize = 512;

/// The contents of a log file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Bytes up to the end of the last complete record before the first unsound one.
    pub sound: u64,
    /// Sequence number of the first operation.
    pub first: Option<u64>,
    /// The sequence number after the last operation of the sound part.
    pub next: Option<u64>,
    /// The last note of the sound part.
    pub note: Option<Note>,
    /// What follows the sound part.
    pub tail: Tail,
}

/// What follows the last complete record of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Tail {
    /// The log ends with a complete record.
    #[default]
    Clean,
    /// An unfinished write, as a power failure leaves it.
    Torn,
    /// Bytes that were changed after they were written.
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

/// Assembles records from fragments.
#[derive(Default)]
struct Assembly {
    record: Option<Vec<u8>>,
}

/// The effect of a fragment.
enum Step<'a> {
    /// The record is not complete, or the fragment is metadata (compression, predecessor and the like).
    More,
    Complete(Cow<'a, [u8]>),
    /// The fragment does not continue the ones before it.
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

/// A checksum in its stored form, as in RocksDB's `util/crc32c.h`.
fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Reads a write-ahead log; `record` is called with each complete record of the sound part.
pub(crate) fn read(log: &[u8], mut record: impl FnMut(&[u8])) -> Contents {
    let mut contents = Contents::default();
    let behind = walk(log, &mut contents.sound, |batch| {
        if let Some((first, next)) = sequence(batch) {
            contents.first.get_or_insert(first);
            contents.next = Some(next);
        }
        contents.note = note(batch).or(contents.note);
        record(batch);
    });
    contents.tail = match behind {
        None => Tail::Clean,
        Some(at) if !looks_torn(log, at) || is_whole_with_changed_length(log, at) => Tail::Damaged,
        Some(at) => {
            let mut newest = None;
            walk(log, &mut 0, |batch| newest = revisions(batch).last().copied().or(newest));
            let records = genuine(records_behind(log, at), &contents, log.len() - at.min(log.len()));
            match is_unacknowledged(newest, contents.note, &records) {
                true => Tail::Torn,
                false => Tail::Damaged,
            }
        }
    };
    contents
}

/// Those of `records`, found in the `bytes` behind the sound part, that the writer of the log may have
/// written: a value may hold the bytes of any other record.
fn genuine(records: Vec<Vec<u8>>, sound: &Contents, bytes: usize) -> Vec<Vec<u8>> {
    let is_genuine = |batch: &Vec<u8>| {
        // Sequence numbers have no gaps, and no operation is without bytes.
        let follows = match (sound.next, sequence(batch)) {
            (Some(next), Some((first, _))) => (1..bytes as u64).contains(&first.saturating_sub(next)),
            _ => true,
        };
        // Versions without notes have written the others.
        follows && sound.note.is_none_or(|last| note(batch).is_some_and(|note| note.writer == last.writer))
    };
    records.into_iter().filter(is_genuine).collect()
}

/// Whether nothing of the complete records behind a torn one was acknowledged.
///
/// Before the first group in a log is acknowledged, the watermark names the log with its length, so where the
/// sound part has no group that decides. Otherwise a record that was written after a revision behind
/// `newest`, the last sound one, had become durable has that in its note. Everything that was not synced may
/// be there in any part: a sweep's batches, one group, relaxed groups, and all that a replica has applied,
/// which is applied once more, from its journal.
fn is_unacknowledged(newest: Option<Revision>, last: Option<Note>, behind: &[Vec<u8>]) -> bool {
    let Some(newest) = newest.max(last.map(|note| note.durable)) else { return true };
    if last.is_some() {
        return behind.iter().filter_map(|batch| note(batch)).all(|note| note.durable <= newest);
    }
    // Without notes: one group, whose revisions continue those before, or what a replica has applied.
    let groups: Vec<(&Vec<u8>, Vec<Revision>)> = behind
        .iter()
        .map(|batch| (batch, revisions(batch)))
        .filter(|(_, revisions)| !revisions.is_empty())
        .collect();
    match &*groups {
        [] => true,
        [(_, revisions)] if revisions.first() == Some(&newest.next()) => true,
        groups => groups.iter().all(|(batch, _)| is_applied_record(batch)),
    }
}

/// Reads a file of the same format whose records are not batches: the MANIFEST. Its first `synced` bytes were
/// on disk; after them, a record may be present without the ones that were written together with it.
pub(crate) fn read_manifest(log: &[u8], synced: u64) -> Contents {
    let mut contents = Contents::default();
    if let Some(at) = walk(log, &mut contents.sound, |_| {}) {
        // Records behind may be bytes of a key.
        let torn = looks_torn(log, at)
            && (records_behind(log, at).is_empty()
                || contents.sound >= synced && (has_lost_sector(log, at) || !has_changed_length(log, at)));
        contents.tail = if torn { Tail::Torn } else { Tail::Damaged };
    }
    contents
}

/// The complete records of a log after its sound part, or after less of it, as far as they can be read.
pub(crate) fn dropped_records(log: &[u8], sound: u64) -> Vec<Vec<u8>> {
    let at = usize::try_from(sound).unwrap_or(usize::MAX).min(log.len());
    let contents = read(log.get(..at).unwrap_or_default(), |_| {});
    genuine(records_behind(log, at), &contents, log.len() - at)
}

/// Whether groups lie behind a sound part that has none. Where a later log has groups, they were acknowledged
/// before, unless they are what a replica has applied, which its journal has.
pub(crate) fn has_lost_groups(log: &[u8], sound: u64) -> bool {
    let records = dropped_records(log, sound);
    records.iter().any(|batch| !revisions(batch).is_empty() && !is_applied_record(batch))
}

/// Walks the sound part of a log, and returns where it ends unless that is the end of the file.
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

/// The complete records after an unsound position.
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
            // The rest of a record whose first fragment is unsound, or a record behind the beginning of one.
            Step::Misplaced if matches!(fragment.kind, WHOLE | FIRST) => continue,
            Step::Misplaced => {}
        }
        at = fragment.end;
    }
    found
}

/// Whether the unsound position `at` looks like an unfinished write: the file ends in it, or a sector of it
/// is lost.
fn looks_torn(log: &[u8], at: usize) -> bool {
    let block_end = (at + 1).next_multiple_of(BLOCK);
    let Some(length) = length_at(log, at) else { return true };
    at + HEADER > log.len()
        || (log.len() < block_end && at + HEADER + length > log.len())
        || has_lost_sector(log, at)
}

/// The length in the header at a position.
fn length_at(log: &[u8], at: usize) -> Option<usize> {
    match log.get(at + 4..at + 6) {
        Some(&[low, high]) => Some(usize::from(u16::from_le_bytes([low, high]))),
        _ => None,
    }
}

/// Whether a whole record is at `at`, but for one bit of its length. Not for the other fragments: values
/// alone decide about the checksum of some, and there is nothing in them that clients do not know.
fn is_whole_with_changed_length(log: &[u8], at: usize) -> bool {
    log.get(at + HEADER - 1) == Some(&WHOLE) && has_changed_length(log, at)
}

/// Whether the fragment at `at` is whole but for one bit of its length.
fn has_changed_length(log: &[u8], at: usize) -> bool {
    let (Some(length), Some(checksum)) = (length_at(log, at), crate::stored::read_u32(log, at)) else {
        return false;
    };
    (0..u16::BITS).map(|bit| length ^ (1 << bit)).any(|length| {
        let checked = log.get(at + HEADER - 1..at + HEADER + length);
        checked.is_some_and(|checked| masked(crc32c(checked)) == checksum)
    })
}

/// Whether a sector of the unsound fragment at `at`, or the rest of one, was never written and reads as
/// zeros.
fn has_lost_sector(log: &[u8], at: usize) -> bool {
    let block_end = (at + 1).next_multiple_of(BLOCK);
    let Some(length) = length_at(log, at) else { return false };
    let claimed = at + HEADER + length;
    // Where the length itself may be lost, the next sector counts, too.
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
        // To the end of the sector, since it is lost as a whole: the record may end after a few bytes of it.
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

/// Whether the first bytes of a header, up to the end of a sector at `to`, are zeros because they were lost:
/// no checksum is zero by chance, and if part of it is lost the rest matches.
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

#[cfg(test)]
mod tests;
