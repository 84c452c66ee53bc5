//! Reads: one key, a pinned snapshot, a range of keys.
//!
//! The newest version of each key is in `current`, so a read of the latest state is a plain lookup or a plain
//! scan, however many old versions there are. A read at an older revision scans the same column family,
//! because tombstones stay there as long as any readable revision is older than they are: every key that
//! existed at a readable revision has an entry. Only for keys written since that revision it reads `history`,
//! with a second cursor that advances in step.

use std::sync::Arc;

use bytes::Bytes;
use rocksdb::ReadOptions;

use crate::error::{Error, Result};
use crate::feed::hub::Hub;
use crate::floor::Floor;
use crate::layout;
use crate::range::KeyRange;
use crate::record::Record;
use crate::revision::{At, Revision};
use crate::store::{Cursor, Family, Pinned, Store};
use crate::stored::{self, Header, Kind, Stored};

/// Reads one key without pinning a snapshot where that can be avoided.
pub(crate) fn get(
    store: &Arc<Store>,
    hub: &Hub,
    floor: &Floor,
    key: &[u8],
    at: At,
) -> Result<Option<Record>> {
    if at == At::Latest {
        // The newest version is the answer when it is published. A version that is written but not published
        // yet must not be returned: a subsequent list could be older.
        let found = store.get(Family::Current, key)?;
        let latest = hub.latest();
        let Some(bytes) = found else { return Ok(None) };
        let (header, _) = stored::check(key, &bytes)?;
        if header.mod_revision <= latest {
            return Ok(to_record(Bytes::copy_from_slice(key), &header, &bytes));
        }
    }
    Snapshot::take(store, hub, floor, at)?.get(key)
}

/// The newest record of a key, if it can be read without disk access.
pub(crate) fn get_in_memory(store: &Store, hub: &Hub, key: &[u8]) -> Result<InMemory> {
    let Some(found) = store.get_in_memory(Family::Current, key)? else { return Ok(InMemory::Unknown) };
    let latest = hub.latest();
    let Some(bytes) = found else { return Ok(InMemory::Known(None)) };
    let (header, _) = stored::check(key, &bytes)?;
    // As in `get`: a version that is not published yet must not be returned, and the version before it may be
    // on disk.
    if header.mod_revision > latest {
        return Ok(InMemory::Unknown);
    }
    Ok(InMemory::Known(to_record(Bytes::copy_from_slice(key), &header, &bytes)))
}

/// The result of a read without disk access. Returned by [`Engine::get_in_memory`].
///
/// [`Engine::get_in_memory`]: crate::Engine::get_in_memory
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InMemory {
    /// The record, or that there is none.
    Known(Option<Record>),
    /// The read needs disk access: use [`Engine::get`].
    ///
    /// [`Engine::get`]: crate::Engine::get
    Unknown,
}

/// Builds the record from checked bytes; none for a tombstone. Copies the value.
fn to_record(key: Bytes, header: &Header, bytes: &[u8]) -> Option<Record> {
    if header.kind == Kind::Tombstone {
        return None;
    }
    Some(Record {
        key,
        value: Bytes::copy_from_slice(bytes.get(header.len()..).unwrap_or_default()),
        create_revision: header.create_revision,
        mod_revision: header.mod_revision,
        version: header.version,
        expires_at_ms: header.expires_at_ms(),
    })
}

/// The version of `key` that was written at exactly `revision`.
pub(crate) fn version(pinned: &Pinned, key: &[u8], revision: Revision) -> Result<Option<Stored>> {
    if let Some(bytes) = pinned.get(Family::Current, key)? {
        if stored::peek(&bytes).is_some_and(|(header, _)| header.mod_revision == revision) {
            return Stored::decode(key, Bytes::copy_from_slice(&bytes)).map(Some);
        }
    }
    let mut history_key = Vec::with_capacity(key.len() + 16);
    layout::history_key_into(key, revision, &mut history_key);
    match pinned.get(Family::History, &history_key)? {
        Some(bytes) => Stored::decode(key, Bytes::copy_from_slice(&bytes)).map(Some),
        None => Ok(None),
    }
}

/// The state of the store at one revision, readable for as long as it is held.
///
/// It holds a RocksDB snapshot, so neither writes nor compaction change what it shows. It is `Send` and owns
/// what it needs: a blocking task can stream a long range from it. Cheap to clone. While it is held, the
/// space of data deleted since then is not reclaimed, and the directory stays locked.
#[derive(Clone)]
pub struct Snapshot {
    pinned: Arc<Pinned>,
    revision: Revision,
}

impl Snapshot {
    pub(crate) fn take(store: &Arc<Store>, hub: &Hub, floor: &Floor, at: At) -> Result<Snapshot> {
        // The latest revision is read before pinning: the pinned state then holds everything up to it, and
        // perhaps later versions, which reads skip.
        let current = hub.latest();
        let revision = match at {
            At::Latest => current,
            At::Exact(revision) => revision,
        };
        if revision > current {
            return Err(Error::Future { requested: revision, current });
        }
        let pinned = store.pin();
        // The floor is checked after pinning, see `Floor`.
        match at {
            At::Exact(revision) => floor.check(revision)?,
            // The floor never passes the latest revision.
            At::Latest => {
                if floor.get() > revision {
                    return Snapshot::take(store, hub, floor, At::Latest);
                }
            }
        }
        Ok(Snapshot { pinned: Arc::new(pinned), revision })
    }

    /// The revision whose state this is.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The record of a key.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the stored record is damaged.
    pub fn get(&self, key: &[u8]) -> Result<Option<Record>> {
        let Some(bytes) = self.pinned.get(Family::Current, key)? else { return Ok(None) };
        let (header, _) = stored::check(key, &bytes)?;
        if header.mod_revision <= self.revision {
            return Ok(to_record(Bytes::copy_from_slice(key), &header, &bytes));
        }
        let mut older = HistoryCursor::new(&self.pinned, true);
        match older.newest(key, self.revision)? {
            Some(header) => Ok(to_record(Bytes::copy_from_slice(key), &header, older.value())),
            None => Ok(None),
        }
    }

    /// The keys of `range` and their values, in order.
    pub fn range(&self, range: &KeyRange) -> Range {
        let read = options(range.start(), range.end().map(AsRef::as_ref));
        let empty = range.is_empty();
        Range {
            current: (!empty).then(|| self.pinned.cursor(Family::Current, read)),
            older: None,
            at: Position::Start,
            passed: Some(0),
            end: range.end().cloned(),
            snapshot: self.clone(),
        }
    }

    /// The number of keys in `range`. Reads and checks each record, so its cost is that of the range.
    ///
    /// # Errors
    /// As [`Range::next`].
    pub fn count(&self, range: &KeyRange) -> Result<u64> {
        let mut range = self.range(range);
        let mut count = 0;
        while range.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

/// Read options of a cursor over `start..end`.
fn options(start: &[u8], end: Option<&[u8]>) -> ReadOptions {
    let mut read = ReadOptions::default();
    read.set_iterate_lower_bound(start.to_vec());
    if let Some(end) = end {
        read.set_iterate_upper_bound(end.to_vec());
    }
    read
}

/// One key of a range. Borrows from the cursor, so nothing is copied; valid until the cursor moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Key of the record.
    pub key: &'a [u8],
    /// Its value at the revision that was read.
    pub value: &'a [u8],
    /// Revision at which the key was created.
    pub create_revision: Revision,
    /// Revision that wrote this version.
    pub mod_revision: Revision,
    /// Number of puts since the key was created.
    pub version: u64,
    /// When the key expires, in milliseconds since 1970; none for no expiry.
    pub expires_at_ms: Option<u64>,
}

impl Entry<'_> {
    /// The entry as a record of its own.
    pub fn to_record(&self) -> Record {
        Record {
            key: Bytes::copy_from_slice(self.key),
            value: Bytes::copy_from_slice(self.value),
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
            expires_at_ms: self.expires_at_ms,
        }
    }
}

/// A cursor over a range of keys: streams any number of them in constant memory.
///
/// ```
/// # fn main() -> Result<(), plinth_engine::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let engine = plinth_engine::Engine::open(plinth_engine::Options::new(dir.path()))?;
/// use plinth_engine::{At, KeyRange};
///
/// let mut fruit = engine.snapshot(At::Latest)?.range(&KeyRange::prefix("fruit/"));
/// while let Some(entry) = fruit.next()? {
///     println!("{} was written at {}", entry.key.escape_ascii(), entry.mod_revision);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Range {
    /// None when the range is empty or has been read to its end.
    current: Option<Cursor>,
    /// Created at the first key that was written after the snapshot's revision.
    older: Option<HistoryCursor>,
    at: Position,
    /// Bytes of values read so far; `None` once it is a long scan.
    passed: Option<usize>,
    end: Option<Bytes>,
    snapshot: Snapshot,
}

/// Bytes of values after which a range counts as a long scan. Its blocks then bypass the block cache: a
/// collection larger than the cache would evict everything else without a hit of its own the next time.
const LONG_SCAN: usize = 2 << 20;
/// Readahead of a long scan, in bytes.
const READ_AHEAD: usize = 256 << 10;

/// Where the last entry of a range was found.
enum Position {
    Start,
    Current(Header),
    History(Header),
}

impl Range {
    /// The revision of the snapshot that is read.
    pub fn revision(&self) -> Revision {
        self.snapshot.revision
    }

    /// The next key, in bytewise order; none at the end.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when a stored record is damaged, [`Error::Rocks`] when RocksDB cannot read. A call
    /// after an error continues after the damaged record.
    #[allow(clippy::should_implement_trait)] // It lends: the entry borrows from the cursor.
    pub fn next(&mut self) -> Result<Option<Entry<'_>>> {
        if !self.advance()? {
            return Ok(None);
        }
        Ok(self.entry())
    }

    /// The key of the last entry, to continue with [`KeyRange::after`] in another snapshot of the same
    /// revision. None before the first entry and at the end.
    pub fn last_key(&self) -> Option<&[u8]> {
        match self.at {
            Position::Start => None,
            Position::Current(_) | Position::History(_) => self.current.as_ref()?.key(),
        }
    }

    /// Moves to the next key that exists in the snapshot; false at the end.
    fn advance(&mut self) -> Result<bool> {
        self.become_long_scan();
        let Some(current) = &mut self.current else { return Ok(false) };
        loop {
            match self.at {
                Position::Start => current.seek_to_first(),
                Position::Current(_) | Position::History(_) => current.next(),
            }
            let Some((key, value)) = current.item() else {
                let status = current.status();
                self.current = None;
                status?;
                return Ok(false);
            };
            let checked = stored::check(key, value);
            // Even if this record is damaged, the next call continues after it.
            let (header, _) = match checked {
                Ok(checked) => checked,
                Err(error) => {
                    self.at = Position::Current(PLACEHOLDER);
                    return Err(error);
                }
            };
            if let Some(passed) = &mut self.passed {
                *passed += value.len();
            }
            self.at = Position::Current(header);
            if header.mod_revision <= self.snapshot.revision {
                if header.kind != Kind::Tombstone {
                    return Ok(true);
                }
                continue;
            }
            let fill_cache = self.passed.is_some();
            let older =
                self.older.get_or_insert_with(|| HistoryCursor::new(&self.snapshot.pinned, fill_cache));
            if let Some(header) = older.newest(key, self.snapshot.revision)? {
                if header.kind != Kind::Tombstone {
                    self.at = Position::History(header);
                    return Ok(true);
                }
            }
        }
    }

    /// Replaces the cursors by ones that bypass the block cache once much has been read.
    fn become_long_scan(&mut self) {
        if self.passed.is_none_or(|passed| passed < LONG_SCAN) {
            return;
        }
        self.passed = None;
        self.older = None;
        let Some(key) = self.current.as_ref().and_then(|current| current.key()).map(<[u8]>::to_vec) else {
            return;
        };
        let mut read = options(&key, self.end.as_deref());
        read.fill_cache(false);
        read.set_readahead_size(READ_AHEAD);
        let mut cursor = self.snapshot.pinned.cursor(Family::Current, read);
        // The key exists: both cursors see the same snapshot.
        cursor.seek(&key);
        self.current = Some(cursor);
    }

    /// The entry that [`Range::advance`] has moved to.
    fn entry(&self) -> Option<Entry<'_>> {
        let (key, value) = self.current.as_ref()?.item()?;
        let (header, bytes) = match &self.at {
            Position::Start => return None,
            Position::Current(header) => (header, value),
            Position::History(header) => (header, self.older.as_ref()?.value()),
        };
        Some(Entry {
            key,
            value: bytes.get(header.len()..).unwrap_or_default(),
            create_revision: header.create_revision,
            mod_revision: header.mod_revision,
            version: header.version,
            expires_at_ms: header.expires_at_ms(),
        })
    }
}

/// Placeholder for a damaged record; never returned.
const PLACEHOLDER: Header = Header {
    kind: Kind::Tombstone,
    mod_revision: Revision::ZERO,
    create_revision: Revision::ZERO,
    version: 0,
    deadline_ms: 0,
};

/// Finds superseded versions; keys must be requested in ascending order.
struct HistoryCursor {
    cursor: Cursor,
    positioned: bool,
    wanted: Vec<u8>,
}

/// Steps that a cursor tries before it seeks: stepping to a neighbor is cheaper than seeking.
const STEPS_BEFORE_SEEK: usize = 4;

impl HistoryCursor {
    fn new(pinned: &Pinned, fill_cache: bool) -> HistoryCursor {
        let mut read = ReadOptions::default();
        read.fill_cache(fill_cache);
        let cursor = pinned.cursor(Family::History, read);
        HistoryCursor { cursor, positioned: false, wanted: Vec::new() }
    }

    /// Moves to the newest superseded version of `key` at or below `revision`, and checks it.
    fn newest(&mut self, key: &[u8], revision: Revision) -> Result<Option<Header>> {
        layout::history_key_into(key, revision, &mut self.wanted);
        self.move_to_wanted();
        let Some((found, value)) = self.cursor.item() else {
            self.cursor.status()?;
            return Ok(None);
        };
        let same_key = found.len() == self.wanted.len()
            && found.get(..found.len() - 8) == self.wanted.get(..self.wanted.len() - 8);
        if !same_key {
            return Ok(None);
        }
        stored::check(key, value).map(|(header, _)| Some(header))
    }

    fn value(&self) -> &[u8] {
        self.cursor.value().unwrap_or_default()
    }

    fn move_to_wanted(&mut self) {
        let behind = |cursor: &Cursor, wanted: &[u8]| cursor.key().is_some_and(|key| key < wanted);
        if self.positioned && behind(&self.cursor, &self.wanted) {
            for _ in 0..STEPS_BEFORE_SEEK {
                self.cursor.next();
                if !self.cursor.valid() {
                    break;
                }
                if !behind(&self.cursor, &self.wanted) {
                    return;
                }
            }
        } else if self.positioned {
            // At it, beyond it or at the end: everything before the cursor is below the previously wanted
            // key, and wanted keys ascend.
            return;
        }
        self.cursor.seek(&self.wanted);
        self.positioned = true;
    }
}
