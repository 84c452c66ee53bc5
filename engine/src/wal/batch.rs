//! Write batches: the records of a write-ahead log (`db/write_batch.cc`).

use bytes::Bytes;
use plinth_journal::take_varint;

use crate::layout::meta;
use crate::log::LogEntry;
use crate::revision::Revision;
use crate::wal::note::Note;

/// Sequence number and number of operations of a batch.
const BATCH_HEADER: usize = 12;

/// Sequence number of the first operation of a batch, and the one after its last.
pub(super) fn sequence(batch: &[u8]) -> Option<(u64, u64)> {
    let first = crate::stored::read_u64(batch, 0)?;
    let count = crate::stored::read_u32(batch, 8)?;
    Some((first, first.saturating_add(count.into())))
}

/// An operation of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchOperation<'a> {
    /// The number of the column family.
    pub family: usize,
    pub key: &'a [u8],
    pub change: Change<'a>,
}

/// The change that an operation makes to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Put(&'a [u8]),
    Delete,
    /// Deletes a key that was put once.
    SingleDelete,
    /// Deletes the keys from this one up to the given one.
    DeleteRange(&'a [u8]),
}

/// The operations of a batch, in order; none if it holds an operation that the engine does not write.
pub(crate) fn operations(batch: &[u8]) -> Option<Vec<BatchOperation<'_>>> {
    let count = crate::stored::read_u32(batch, 8)? as usize;
    let mut rest = batch.get(BATCH_HEADER..)?;
    let mut operations = Vec::new();
    while let Some(operation) = take_operation(&mut rest) {
        operations.push(operation);
    }
    (rest.is_empty() && operations.len() == count).then_some(operations)
}

/// Whether a batch is what a replica has applied of its journal.
pub(super) fn is_applied_record(batch: &[u8]) -> bool {
    /// The number of the `default` column family.
    const DEFAULT: usize = 0;
    let mut rest = batch.get(BATCH_HEADER..).unwrap_or_default();
    std::iter::from_fn(|| take_operation(&mut rest))
        .any(|operation| operation.family == DEFAULT && operation.key == meta::REPLICA_POSITION)
}

/// The revisions that a batch commits: those of its log entries, in order.
pub(crate) fn revisions(batch: &[u8]) -> Vec<Revision> {
    entries(batch).iter().map(|entry| entry.revision).collect()
}

/// The log entries of a batch, in order, as far as they can be read.
pub(crate) fn entries(batch: &[u8]) -> Vec<LogEntry> {
    let mut found = Vec::new();
    let mut rest = batch.get(BATCH_HEADER..).unwrap_or_default();
    while let Some(BatchOperation { key, change, .. }) = take_operation(&mut rest) {
        let (Some(revision), Change::Put(value)) = (crate::layout::parse_log_key(key), change) else {
            continue;
        };
        found.extend(LogEntry::decode(revision, Bytes::copy_from_slice(value)));
    }
    found
}

/// The note of a batch.
pub(super) fn note(batch: &[u8]) -> Option<Note> {
    let mut rest = batch.get(BATCH_HEADER..)?;
    loop {
        while let Some(data) = take_log_data(&mut rest) {
            if let Some(note) = Note::decode(data) {
                return Some(note);
            }
        }
        take_operation(&mut rest)?;
    }
}

/// Takes data of the log alone, which is no operation, off the front of a batch.
fn take_log_data<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    /// A value type of RocksDB's `db/dbformat.h`.
    const LOG_DATA: u8 = 3;
    let (&LOG_DATA, mut behind) = rest.split_first()? else { return None };
    let data = take_slice(&mut behind)?;
    *rest = behind;
    Some(data)
}

/// Takes an operation off the front of a batch. None at the end, and at an operation that the engine does not
/// write.
fn take_operation<'a>(rest: &mut &'a [u8]) -> Option<BatchOperation<'a>> {
    /// Value types of RocksDB's `db/dbformat.h`; the second of each pair is followed by the number of a
    /// column family.
    const DELETE: [u8; 2] = [0, 4];
    const PUT: [u8; 2] = [1, 5];
    const SINGLE_DELETE: [u8; 2] = [7, 8];
    const DELETE_RANGE: [u8; 2] = [15, 14];
    while take_log_data(rest).is_some() {}
    let mut behind = *rest;
    let (tag, after) = behind.split_first()?;
    behind = after;
    let family = match [DELETE[1], PUT[1], SINGLE_DELETE[1], DELETE_RANGE[1]].contains(tag) {
        true => take_number(&mut behind)?,
        false => 0,
    };
    let operation = match tag {
        tag if DELETE.contains(tag) => {
            BatchOperation { family, key: take_slice(&mut behind)?, change: Change::Delete }
        }
        tag if SINGLE_DELETE.contains(tag) => {
            BatchOperation { family, key: take_slice(&mut behind)?, change: Change::SingleDelete }
        }
        tag if PUT.contains(tag) => {
            let key = take_slice(&mut behind)?;
            BatchOperation { family, key, change: Change::Put(take_slice(&mut behind)?) }
        }
        tag if DELETE_RANGE.contains(tag) => {
            let key = take_slice(&mut behind)?;
            BatchOperation { family, key, change: Change::DeleteRange(take_slice(&mut behind)?) }
        }
        _ => return None,
    };
    *rest = behind;
    Some(operation)
}

/// RocksDB writes numbers in their shortest form.
fn take_number(rest: &mut &[u8]) -> Option<usize> {
    take_varint(rest).and_then(|number| usize::try_from(number).ok())
}

fn take_slice<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_number(rest)?;
    let (slice, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(slice)
}
