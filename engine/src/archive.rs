//! Backup archives: one file or stream that holds the whole store at one revision.
//!
//! An archive is taken from a pinned snapshot while writes go on, and each record's checksum is checked on
//! the way in and on the way out, so that damage is not copied. Layout (little endian):
//!
//! ```text
//! magic     8 bytes  "PLNTHAR1"
//! blocks    any number of:
//!   family  u8       1 current, 2 history, 3 log, 4 expiry, 5 numbers of the store itself
//!   length  u32      bytes of the payload
//!   crc32   u32      of family, length and payload
//!   payload          entries: key length u32, value length u32, key, value
//! trailer
//!   0       u8
//!   16      u32
//!   crc32   u32      as for a block
//!   revision u64, entries u64
//!   crc32   u32      of the checksums of all blocks, in order
//! ```

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use rocksdb::{ReadOptions, WriteBatch};

use crate::directory::{self, Lock, DATABASE, RESTORING};
use crate::error::{Error, Result};
use crate::failpoint::failpoint;
use crate::layout::{self, meta, FORMAT_VERSION};
use crate::log::decode_entry;
use crate::options::Options;
use crate::replica::applied;
use crate::revision::Revision;
use crate::store::{Family, Pinned, Store};
use crate::stored;

const MAGIC: &[u8; 8] = b"PLNTHAR1";
/// Payload at which a block is closed.
const BLOCK: usize = 256 << 10;
/// Largest payload that is accepted: a single entry may be larger than a block.
const MAX_BLOCK: usize = 64 << 20;
const TRAILER: u8 = 0;
const TRAILER_BYTES: usize = 16;

/// Progress of a long operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Entries that are written or checked.
    pub done: u64,
    /// Estimated number of all entries; zero when unknown.
    pub total: u64,
}

/// Which revision a restored store continues from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Continuation {
    /// From the archive's revision, with its history. Only safe when no client has seen a later revision of
    /// the original store: those revisions are assigned again, to other changes.
    Same,
    /// From a revision above all that the original store can have assigned since the backup, and above those
    /// of other stores restored from the same archive. Earlier revisions count as compacted: a client that
    /// holds a revision of the original store gets [`Error::Compacted`] and has to list again.
    Beyond,
}

/// What was written to an archive, or restored from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveSummary {
    /// The revision at which it is consistent; after a restore, the one the store continues from.
    pub revision: Revision,
    /// Entries of all column families.
    pub entries: u64,
}

fn family_byte(family: Family) -> u8 {
    match family {
        Family::Current => 1,
        Family::History => 2,
        Family::Log => 3,
        Family::Expiry => 4,
        Family::Meta => 5,
    }
}

/// Checks one entry of a column family without regard to others.
pub(crate) fn check_entry(family: Family, key: &[u8], value: &[u8]) -> Result<()> {
    let corrupt =
        |reason| Error::Corrupt { key: Bytes::copy_from_slice(key), revision: Revision::ZERO, reason };
    let plausible = |revision: Revision| match revision.is_plausible() {
        true => Ok(()),
        false => Err(Error::Corrupt {
            key: Bytes::copy_from_slice(key),
            revision,
            reason: "the revision is out of range",
        }),
    };
    match family {
        Family::Current => {
            let (header, _) = stored::check(key, value)?;
            plausible(header.mod_revision.max(header.create_revision))
        }
        Family::History => {
            let (user_key, revision) =
                layout::parse_history_key(key).ok_or_else(|| corrupt("not a history key"))?;
            let (header, _) = stored::check(&user_key, value)?;
            if header.mod_revision == revision {
                plausible(revision.max(header.create_revision))
            } else {
                Err(corrupt("the revision in the key differs from the record's"))
            }
        }
        Family::Log => {
            let entry = decode_entry(key, value)?;
            let named = entry.operations.iter().map(|o| o.superseded.max(o.create_revision));
            plausible(named.max().unwrap_or_default().max(entry.revision))
        }
        Family::Expiry => match (layout::parse_expiry_key(key), layout::decode_expiry(key, value)) {
            (Some(_), Some(revision)) => plausible(revision),
            (Some(_), None) => Err(corrupt("the expiry entry is damaged")),
            (None, _) => Err(corrupt("not an expiry entry")),
        },
        Family::Meta => match layout::decode_number(key, value) {
            Some(number) if [meta::FLOOR, meta::SWEPT, meta::RESERVED].contains(&key) => {
                plausible(Revision::new(number))
            }
            Some(_) => Ok(()),
            None => Err(corrupt("the metadata number is damaged")),
        },
    }
}

/// The newest revision in a pinned state.
pub(crate) fn pinned_revision(pinned: &Pinned) -> Result<Revision> {
    let floor = pinned.revision(meta::FLOOR)?.max(pinned.revision(meta::RESERVED)?);
    let mut cursor = pinned.cursor(Family::Log, ReadOptions::default());
    cursor.seek_to_last();
    let logged = match cursor.item() {
        Some((key, value)) => decode_entry(key, value)?.revision,
        None => {
            cursor.status()?;
            Revision::ZERO
        }
    };
    Ok(logged.max(floor))
}

/// Writes a pinned state to `out`.
pub(crate) fn write(
    store: &Arc<Store>,
    out: &mut impl Write,
    progress: &mut dyn FnMut(Progress),
) -> Result<ArchiveSummary> {
    let pinned = store.pin();
    let revision = pinned_revision(&pinned)?;
    let total = crate::stats::families(store).iter().map(|family| family.keys).sum();
    let mut writer = BlockWriter { out, checksums: crc32fast::Hasher::new() };
    writer.out.write_all(MAGIC).map_err(write_error)?;
    let mut entries = 0;
    let mut payload = Vec::with_capacity(BLOCK + BLOCK / 4);
    for family in Family::ALL {
        let mut read = ReadOptions::default();
        read.fill_cache(false);
        let mut cursor = pinned.cursor(family, read);
        cursor.seek_to_first();
        while let Some((key, value)) = cursor.item() {
            check_entry(family, key, value)?;
            payload.extend_from_slice(&(key.len() as u32).to_le_bytes());
            payload.extend_from_slice(&(value.len() as u32).to_le_bytes());
            payload.extend_from_slice(key);
            payload.extend_from_slice(value);
            entries += 1;
            if payload.len() >= BLOCK {
                writer.block(family_byte(family), &payload)?;
                payload.clear();
                progress(Progress { done: entries, total });
                failpoint!("backup-block");
            }
            cursor.next();
        }
        cursor.status()?;
        if !payload.is_empty() {
            writer.block(family_byte(family), &payload)?;
            payload.clear();
        }
    }
    let mut trailer = [0; TRAILER_BYTES];
    trailer[..8].copy_from_slice(&revision.get().to_le_bytes());
    trailer[8..].copy_from_slice(&entries.to_le_bytes());
    writer.block(TRAILER, &trailer)?;
    let sum = writer.checksums.finalize();
    writer.out.write_all(&sum.to_le_bytes()).map_err(write_error)?;
    writer.out.flush().map_err(write_error)?;
    progress(Progress { done: entries, total: entries });
    Ok(ArchiveSummary { revision, entries })
}

fn write_error(source: std::io::Error) -> Error {
    Error::io("writing the archive", source)
}

fn read_error(source: std::io::Error) -> Error {
    if source.kind() == std::io::ErrorKind::UnexpectedEof {
        return invalid("unexpected end of file");
    }
    Error::io("reading the archive", source)
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::InvalidArchive { reason: reason.into() }
}

struct BlockWriter<'a, W> {
    out: &'a mut W,
    checksums: crc32fast::Hasher,
}

impl<W: Write> BlockWriter<'_, W> {
    fn block(&mut self, kind: u8, payload: &[u8]) -> Result<()> {
        let (header, crc) = block_header(kind, payload);
        self.checksums.update(&crc.to_le_bytes());
        self.out.write_all(&header).map_err(write_error)?;
        self.out.write_all(payload).map_err(write_error)
    }
}

fn block_header(kind: u8, payload: &[u8]) -> ([u8; 9], u32) {
    let mut header = [0; 9];
    header[0] = kind;
    header[1..5].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&header[..5]);
    crc.update(payload);
    let crc = crc.finalize();
    header[5..].copy_from_slice(&crc.to_le_bytes());
    (header, crc)
}

/// Reads a block's kind and payload, checked.
fn read_block(archive: &mut impl Read, payload: &mut Vec<u8>) -> Result<(u8, u32)> {
    let mut header = [0; 9];
    archive.read_exact(&mut header).map_err(read_error)?;
    let length = stored::read_u32(&header, 1).unwrap_or(0) as usize;
    if length > MAX_BLOCK {
        return Err(invalid("the length of a block is out of range"));
    }
    payload.clear();
    // Not allocated up front: the length has not been verified yet.
    let read = archive.by_ref().take(length as u64).read_to_end(payload).map_err(read_error)?;
    if read < length {
        return Err(invalid("unexpected end of file"));
    }
    let (expected, crc) = block_header(header[0], payload);
    if expected != header {
        return Err(invalid("the checksum of a block does not match"));
    }
    Ok((header[0], crc))
}

/// Restores an archive into a directory that is missing, empty, or was left by a restore that did not finish.
/// The directory becomes usable with the last step: if the restore fails or is killed before that,
/// [`crate::Engine::open`] refuses the directory and the restore can be run again.
///
/// ```
/// # fn main() -> Result<(), plinth_engine::Error> {
/// # let from = tempfile::tempdir().unwrap();
/// # let to = tempfile::tempdir().unwrap();
/// use plinth_engine::{restore, At, Continuation, Engine, Options, Transaction};
///
/// let engine = Engine::open(Options::new(from.path()))?;
/// engine.transact(Transaction::new().put("key", "value")).wait()?;
/// let mut archive = Vec::new();
/// engine.backup(&mut archive, |_| {})?;
///
/// let restored = restore(&mut archive.as_slice(), to.path(), Continuation::Beyond, |_| {})?;
/// let engine_of_restored = Engine::open(Options::new(to.path()))?;
/// assert_eq!(engine_of_restored.current_revision(), restored.revision);
/// assert!(restored.revision > engine.current_revision());
/// # let engine = engine_of_restored;
/// assert_eq!(engine.get(b"key", At::Latest)?.unwrap().value, "value");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::InvalidArchive`] and [`Error::Corrupt`] when the archive is damaged or truncated,
/// [`Error::Foreign`] and [`Error::Incomplete`] when the directory holds something else, or an error of the
/// write.
pub fn restore(
    archive: &mut impl Read,
    dir: impl AsRef<Path>,
    continuation: Continuation,
    progress: impl FnMut(Progress),
) -> Result<ArchiveSummary> {
    prepare_restore(archive, dir, continuation, progress)?.finish()
}

/// A restored store that is complete but not yet renamed into place: until [`PreparedRestore::finish`] its
/// directory is refused. Returned by [`prepare_restore`].
#[derive(Debug)]
#[must_use = "without its name the store is refused"]
pub struct PreparedRestore {
    archived: ArchiveSummary,
    dir: PathBuf,
    /// Released on drop.
    _lock: Lock,
}

impl PreparedRestore {
    /// Makes the directory usable with one rename.
    ///
    /// # Errors
    /// An error of the write.
    pub fn finish(self) -> Result<ArchiveSummary> {
        failpoint!("restore-before-rename");
        directory::rename(&self.dir.join(RESTORING), &self.dir.join(DATABASE))?;
        Ok(self.archived)
    }
}

/// Like [`restore`] but without the last step, for callers that have something else to finish first. Dropping
/// the returned value leaves the directory as a killed restore would.
///
/// # Errors
/// As [`restore`].
pub fn prepare_restore(
    archive: &mut impl Read,
    dir: impl AsRef<Path>,
    continuation: Continuation,
    mut progress: impl FnMut(Progress),
) -> Result<PreparedRestore> {
    let dir = dir.as_ref();
    // Before the archive is read: a failed restore must leave a directory that is recognizably unfinished,
    // not one in which the next start creates an empty store.
    let store = Arc::new(Store::begin_restore(&Options::new(dir))?);
    let mut magic = [0; 8];
    archive.read_exact(&mut magic).map_err(read_error)?;
    if &magic != MAGIC {
        return Err(invalid("the magic number does not match: not a backup archive"));
    }
    let mut payload = Vec::new();
    let mut checksums = crc32fast::Hasher::new();
    let mut done = 0;
    loop {
        let (kind, crc) = read_block(archive, &mut payload)?;
        checksums.update(&crc.to_le_bytes());
        if kind == TRAILER {
            break;
        }
        let Some(family) = Family::ALL.into_iter().find(|family| family_byte(*family) == kind) else {
            return Err(invalid("unknown kind of block"));
        };
        done += write_entries(&store, family, &payload)?;
        progress(Progress { done, total: 0 });
        failpoint!("restore-block");
    }
    let mut sum = [0; 4];
    archive.read_exact(&mut sum).map_err(read_error)?;
    if u32::from_le_bytes(sum) != checksums.finalize() {
        return Err(invalid("the checksum over all blocks does not match"));
    }
    let mut revision = Revision::new(stored::read_u64(&payload, 0).ok_or_else(|| invalid("no trailer"))?);
    let entries = stored::read_u64(&payload, 8).ok_or_else(|| invalid("no trailer"))?;
    if entries != done {
        return Err(invalid(format!("it holds {done} entries, its trailer counts {entries}")));
    }
    if pinned_revision(&store.pin())? != revision {
        return Err(invalid("the newest log entry does not match the revision of the archive"));
    }
    if revision > Revision::HIGHEST_RESTORED {
        return Err(invalid(format!("revision {revision} is out of range")));
    }
    let mut batch = WriteBatch::default();
    // The watermark belongs to the store that was backed up.
    batch.delete(meta::MARKED);
    if continuation == Continuation::Beyond {
        revision = revision.beyond(SystemTime::now());
        for name in [meta::FLOOR, meta::RESERVED, meta::RESTORED] {
            store.put_number(&mut batch, name, revision.get());
        }
        // With a revision that no journal leads to, it is no replica any more.
        store.put_number(&mut batch, meta::FORMAT, FORMAT_VERSION.into());
        applied::remove(&store, &mut batch)?;
    }
    store.db().write_without_wal(batch).map_err(Error::from_write)?;
    let store = Arc::into_inner(store).ok_or(Error::Closed)?;
    let lock = store.end_restore()?;
    progress(Progress { done, total: done });
    Ok(PreparedRestore { archived: ArchiveSummary { revision, entries }, dir: dir.to_owned(), _lock: lock })
}

fn write_entries(store: &Store, family: Family, payload: &[u8]) -> Result<u64> {
    let mut batch = WriteBatch::default();
    let mut rest = payload;
    let mut count = 0;
    while !rest.is_empty() {
        let short = || invalid("a block ends inside an entry");
        let key_len = stored::read_u32(rest, 0).ok_or_else(short)? as usize;
        let value_len = stored::read_u32(rest, 4).ok_or_else(short)? as usize;
        let (key, behind) =
            rest.get(8..).and_then(|rest| rest.split_at_checked(key_len)).ok_or_else(short)?;
        let (value, behind) = behind.split_at_checked(value_len).ok_or_else(short)?;
        check_entry(family, key, value)?;
        batch.put_cf(store.family(family), key, value);
        rest = behind;
        count += 1;
    }
    store.db().write_without_wal(batch).map_err(Error::from_write)?;
    Ok(count)
}
