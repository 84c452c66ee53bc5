//! Reads chunks of the log on disk for the feeder's thread.

use std::sync::Arc;

use bytes::Bytes;
use rocksdb::ReadOptions;

use crate::error::{Error, Result};
use crate::feed::event::{Event, EventKind};
use crate::feed::feeder::{CatchUp, Chunk, History};
use crate::feed::hub::Hub;
use crate::floor::Floor;
use crate::layout::{self, meta};
use crate::log::{decode_entry, LogEntry, LoggedOperation};
use crate::read;
use crate::revision::Revision;
use crate::store::{Family, Pinned, Store};
use crate::stored::{Kind, Stored};

/// Maximum number of log entries read for one chunk.
const STEP_ENTRIES: usize = 4096;
/// Bytes of events after which a chunk ends.
const STEP_BYTES: usize = 512 << 10;

/// Reads the log of the store.
pub(crate) struct LogReader {
    pub store: Arc<Store>,
    pub hub: Arc<Hub>,
    pub floor: Arc<Floor>,
}

impl History for LogReader {
    fn read(&self, request: &CatchUp) -> Result<Chunk> {
        // The latest revision is read before pinning: the pinned state then holds everything up to it.
        let latest = self.hub.latest();
        let pinned = self.store.pin();
        self.floor.check(request.after)?;

        let mut read = ReadOptions::default();
        read.set_iterate_lower_bound(layout::log_key(request.after.next()).to_vec());
        read.set_iterate_upper_bound(layout::log_key(latest.next()).to_vec());
        read.fill_cache(false);
        let mut cursor = pinned.cursor(Family::Log, read);
        cursor.seek_to_first();

        let mut events = Vec::new();
        let (mut entries, mut bytes) = (0, 0);
        let mut expected = request.after.next();
        while let Some((key, value)) = cursor.item() {
            let LogEntry { revision, operations, .. } = decode_entry(key, value)?;
            check_gap(&pinned, expected, revision)?;
            expected = revision.next();
            for operation in operations {
                if request.range.contains(&operation.key) {
                    let event = read_event(&pinned, revision, operation, request.previous)?;
                    bytes += event.size();
                    events.push(Arc::new(event));
                }
            }
            entries += 1;
            if entries >= STEP_ENTRIES || bytes >= STEP_BYTES {
                return Ok(Chunk { events, through: revision });
            }
            cursor.next();
        }
        cursor.status()?;
        check_gap(&pinned, expected, latest.next())?;
        Ok(Chunk { events, through: latest.max(request.after) })
    }
}

/// Refuses a log in which the entries from `expected` up to `found` are missing, unless they may be revisions
/// that relaxed durability reserved and that were lost in a power failure.
fn check_gap(pinned: &Pinned, expected: Revision, found: Revision) -> Result<()> {
    if expected >= found || pinned.revision(meta::RESERVED)?.is_set() {
        return Ok(());
    }
    Err(Error::Corrupt {
        key: Bytes::copy_from_slice(&layout::log_key(expected)),
        revision: expected,
        reason: "the log has no entry for this revision",
    })
}

/// Builds the event of a logged operation from the versions that it refers to.
fn read_event(
    pinned: &Pinned,
    revision: Revision,
    operation: LoggedOperation,
    with_previous: bool,
) -> Result<Event> {
    let version = |revision| -> Result<Stored> {
        read::version(pinned, &operation.key, revision)?.ok_or_else(|| Error::Corrupt {
            key: operation.key.clone(),
            revision,
            reason: "the log names a version that is missing",
        })
    };
    let kind = match operation.kind {
        Kind::Tombstone => EventKind::Delete,
        Kind::Put | Kind::PutExpiring => {
            let stored = version(revision)?;
            EventKind::Put {
                expires_at_ms: stored.header.expires_at_ms(),
                value: stored.value,
                create_revision: operation.create_revision,
                version: operation.version,
            }
        }
    };
    let previous = if with_previous && operation.has_previous() {
        version(operation.superseded)?.record(operation.key.clone())
    } else {
        None
    };
    Ok(Event::new(revision, operation.key, kind, previous))
}
