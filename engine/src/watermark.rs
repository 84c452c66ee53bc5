//! The durable watermark: a lower bound of what the store holds, in a file of its own.
//!
//! RocksDB's MANIFEST records every closed log with its length (`track_and_verify_wals_in_manifest`), but not
//! the newest one: if that one, or the last edits of the MANIFEST itself, were missing or truncated, the
//! store would open without their contents, and assign their revisions again. The watermark names the newest
//! log, bytes of it that are synced, a revision that is durable, and bytes of the MANIFEST that are synced. A
//! start must find at least these.
//!
//! It is written before the first group in a log is acknowledged, two seconds after a commit at the latest,
//! and when the store is closed. So a missing or empty log is always detected, and a truncated one unless all
//! that is missing was written within the last two seconds.
//!
//! The file `WATERMARK` has two slots of a page each, written alternately, so that a torn write leaves the
//! other intact:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | `PLNTHWM1` |
//! | 8 | 8 | number of the write: the slot with the higher one counts |
//! | 16 | 8 | number of the newest log |
//! | 24 | 8 | bytes of it |
//! | 32 | 8 | revision |
//! | 40 | 8 | number of the MANIFEST |
//! | 48 | 8 | bytes of it |
//! | 56 | 4 | crc32 of the above |

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::directory::{self, WATERMARK};
use crate::error::{Error, Result};
use crate::revision::Revision;
use crate::stored::{read_u32, read_u64};
use crate::wal::{Note, WriterId};

/// The file while it is being created.
const WATERMARK_PART: &str = "WATERMARK.part";
const MAGIC: &[u8; 8] = b"PLNTHWM1";
const SLOT: usize = 4096;
const BYTES: usize = 60;
/// Interval of writes while there are commits.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// A lower bound of what the store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    /// Number of the newest log.
    pub log: u64,
    /// Bytes of it that are on disk.
    pub log_bytes: u64,
    /// A revision that is durable.
    pub revision: Revision,
    /// Number of the MANIFEST.
    pub manifest: u64,
    /// Bytes of it that are on disk.
    pub manifest_bytes: u64,
}

impl Mark {
    fn encode(self, counter: u64) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        out[..8].copy_from_slice(MAGIC);
        let fields =
            [counter, self.log, self.log_bytes, self.revision.get(), self.manifest, self.manifest_bytes];
        for (place, field) in out[8..56].chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        let crc = crc32fast::hash(&out[..56]);
        out[56..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(slot: &[u8]) -> Option<(u64, Mark)> {
        let sound = slot.starts_with(MAGIC) && read_u32(slot, 56)? == crc32fast::hash(slot.get(..56)?);
        let mark = Mark {
            log: read_u64(slot, 16)?,
            log_bytes: read_u64(slot, 24)?,
            revision: Revision::new(read_u64(slot, 32)?),
            manifest: read_u64(slot, 40)?,
            manifest_bytes: read_u64(slot, 48)?,
        };
        let counter = read_u64(slot, 8)?;
        // Leaves room for later values; see `Revision::HIGHEST`.
        let sound = sound && mark.revision.is_plausible() && counter <= Revision::HIGHEST.get();
        sound.then_some((counter, mark))
    }
}

/// Reads the watermark of a data directory; none in one that was written by a version without it.
pub(crate) fn read(dir: &Path) -> Result<Option<Mark>> {
    Ok(read_counted(dir)?.map(|(_, mark)| mark))
}

/// Whether one of the two slots is not sound, so that the other one may be older than the logs. The second
/// one is blank before the first mark.
pub(crate) fn has_damaged_slot(dir: &Path) -> Result<bool> {
    let path = dir.join(WATERMARK);
    let bytes = fs::read(&path).map_err(|e| Error::io(format!("reading {}", path.display()), e))?;
    let marks: Vec<_> = bytes.chunks(SLOT).map(Mark::decode).collect();
    let is_first = marks.iter().flatten().all(|(counter, _)| *counter == 0);
    let is_blank = |slot: &[u8]| is_first && slot.iter().all(|byte| *byte == 0);
    let is_sound = |(slot, mark): (_, &Option<_>)| mark.is_some() || is_blank(slot);
    Ok(bytes.len() != 2 * SLOT || !bytes.chunks(SLOT).zip(&marks).all(is_sound))
}

/// Refuses a store that ends at `latest` if a later revision was durable.
pub(crate) fn check(dir: &Path, latest: Revision) -> Result<()> {
    match read(dir)? {
        Some(mark) if mark.revision > latest => {
            Err(Error::LostCommits { dir: dir.to_owned(), found: latest, durable: mark.revision })
        }
        _ => Ok(()),
    }
}

fn read_counted(dir: &Path) -> Result<Option<(u64, Mark)>> {
    let path = dir.join(WATERMARK);
    if directory::kind(&path)?.is_none() {
        return Ok(None);
    }
    let bytes = fs::read(&path).map_err(|e| Error::io(format!("reading {}", path.display()), e))?;
    let newest = bytes.chunks(SLOT).take(2).filter_map(Mark::decode).max_by_key(|(counter, _)| *counter);
    newest.map(Some).ok_or(Error::Incomplete { dir: dir.to_owned(), path, reason: "it is damaged" })
}

/// The number in the name of one of RocksDB's files.
pub(crate) fn number(name: &str) -> Option<u64> {
    name.bytes().all(|byte| byte.is_ascii_digit()).then(|| name.parse().ok()).flatten()
}

/// RocksDB assigns no higher file numbers; starting from one, it would overflow.
pub(crate) const HIGHEST_FILE: u64 = 1 << 40;

/// The write-ahead logs of a database, oldest first.
///
/// # Errors
/// [`Error::Incomplete`] for one whose number cannot have been assigned by RocksDB.
pub(crate) fn logs(database: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let io = |e| Error::io(format!("reading {}", database.display()), e);
    let mut logs = Vec::new();
    for entry in fs::read_dir(database).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let found = name.to_str().and_then(|name| number(name.strip_suffix(".log")?));
        let Some(found) = found else { continue };
        let path = database.join(name);
        if found > HIGHEST_FILE {
            let reason = "its number was not assigned by RocksDB; move the file out of the directory";
            return Err(Error::Incomplete { dir: database.to_owned(), path, reason });
        }
        logs.push((found, path));
    }
    logs.sort();
    Ok(logs)
}

/// Reads a file that every database has.
pub(crate) fn read_needed(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::Incomplete {
            dir: path.parent().unwrap_or(path).to_owned(),
            path: path.to_owned(),
            reason: "it is missing",
        },
        _ => Error::io(format!("reading {}", path.display()), error),
    })
}

/// The MANIFEST that `CURRENT` names, and its number.
pub(crate) fn manifest(database: &Path) -> Result<(u64, PathBuf)> {
    let current = database.join("CURRENT");
    let text = read_needed(&current)?;
    let name = std::str::from_utf8(&text).ok().and_then(|text| text.strip_suffix('\n'));
    let found = name.and_then(|name| Some((number(name.strip_prefix("MANIFEST-")?)?, database.join(name))));
    found.ok_or(Error::Incomplete {
        dir: database.to_owned(),
        path: current,
        reason: "it does not name a MANIFEST",
    })
}

/// RocksDB's background work: its flushes and compactions, which add to the MANIFEST and sync it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackgroundWork {
    /// None is running. Read before the errors, so that those of all work so far are counted.
    pub is_idle: bool,
    /// How much of it has failed.
    pub errors: u64,
}

impl BackgroundWork {
    /// That of a database that is not open.
    pub(crate) fn none() -> BackgroundWork {
        BackgroundWork { is_idle: true, errors: 0 }
    }
}

/// Asks RocksDB for the state of its background work.
pub(crate) type AskBackgroundWork = Box<dyn Fn() -> BackgroundWork + Send>;

/// The MANIFEST, opened once. After a sync of it failed, a later one that succeeds does not cover what was
/// lost by that. Linux reports each such error once to each file that was open then, so a sync by this one
/// fails, too, however late RocksDB counts its own error. Errors from before it was opened are counted once
/// no background work is running.
struct OpenManifest {
    number: u64,
    file: File,
    /// All errors from before it was opened are counted.
    is_covered: bool,
    /// A sync may have failed.
    is_distrusted: bool,
}

impl OpenManifest {
    /// Opens the MANIFEST in use; none when RocksDB has begun another one meanwhile.
    fn open(number: u64, path: &Path) -> Result<Option<OpenManifest>> {
        match File::open(path) {
            Ok(file) => Ok(Some(OpenManifest { number, file, is_covered: false, is_distrusted: false })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(format!("opening {}", path.display()), error)),
        }
    }
}

/// Maintains the watermark of an open store.
pub(crate) struct Watermark {
    background_work: AskBackgroundWork,
    seen_errors: u64,
    /// Of this start.
    writer: WriterId,
    manifest: Option<OpenManifest>,
    database: PathBuf,
    path: PathBuf,
    file: File,
    counter: u64,
    log: File,
    /// The mark in the file.
    marked: Mark,
    /// The mark to be written next.
    reached: Mark,
    /// The log also has unsynced bytes of other writers, so its synced length is unknown without a sync.
    is_log_ahead: bool,
    marked_at: Instant,
    /// Bytes of the log and number of the store's writes when they were last read.
    seen_bytes: u64,
    seen_writes: u64,
}

impl Watermark {
    /// Writes the watermark of a store that was opened and is at `revision`, with everything synced. The file
    /// is created if it does not exist.
    pub(crate) fn start(
        dir: &Path,
        revision: Revision,
        background_work: AskBackgroundWork,
    ) -> Result<Watermark> {
        let path = dir.join(WATERMARK);
        let database = dir.join(directory::DATABASE);
        let counter = match read_counted(dir)? {
            Some((counter, _)) => counter,
            None => {
                make(dir)?;
                0
            }
        };
        let open = |path: &Path, write| {
            File::options()
                .read(true)
                .write(write)
                .open(path)
                .map_err(|e| Error::io(format!("opening {}", path.display()), e))
        };
        let (number, newest) = newest_log(&database)?;
        let mark = Mark { log: number, revision, ..Mark::default() };
        let mut watermark = Watermark {
            seen_errors: background_work().errors,
            background_work,
            writer: WriterId::random(),
            manifest: None,
            file: open(&path, true)?,
            log: open(&newest, false)?,
            database,
            path,
            counter,
            marked: mark,
            reached: mark,
            is_log_ahead: false,
            marked_at: Instant::now(),
            seen_bytes: 0,
            seen_writes: 0,
        };
        watermark.mark_synced_files()?;
        Ok(watermark)
    }

    /// A group was written and synced, and `revision` is durable. When the group is the first in its log, the
    /// watermark is on disk when the function returns. `writes` counts the store's writes, each before it
    /// starts.
    pub(crate) fn synced(&mut self, revision: Revision, writes: &AtomicU64) -> Result<()> {
        let bytes = self.log_bytes()?;
        // Read after the bytes: a write that is not counted yet is not among them.
        let writes = writes.load(Ordering::SeqCst);
        let alone = self.seen_writes.checked_add(1) == Some(writes);
        // A single write, and the log has grown: the group is in it. Otherwise the group is in a newer log,
        // or there were other writes, and one of them may have begun a new log.
        let same_log = alone && bytes > self.seen_bytes;
        (self.seen_bytes, self.seen_writes) = (bytes, writes);
        self.reached.revision = revision;
        let is_first = self.marked.log_bytes == 0;
        if same_log {
            (self.reached.log_bytes, self.is_log_ahead) = (bytes, false);
            return if is_first { self.mark() } else { Ok(()) };
        }
        let (number, path) = newest_log(&self.database)?;
        if number == self.reached.log {
            self.is_log_ahead = true;
            return if is_first { self.mark() } else { Ok(()) };
        }
        self.log = File::open(&path).map_err(|e| Error::io(format!("opening {}", path.display()), e))?;
        self.reached.log = number;
        self.mark_synced_files()
    }

    /// Bytes of the newest log after the last synced group, as far as is known without asking the disk.
    pub(crate) fn seen_bytes(&self) -> u64 {
        self.seen_bytes
    }

    /// The note of a group that is written now.
    pub(crate) fn note(&self) -> Note {
        Note { writer: self.writer, durable: self.reached.revision, marked: self.marked.revision }
    }

    /// How long until [`Watermark::mark`] is due; none when there is nothing to write.
    pub(crate) fn due(&self) -> Option<Duration> {
        (self.marked != self.reached).then(|| INTERVAL.saturating_sub(self.marked_at.elapsed()))
    }

    /// Writes the reached mark; its log length covers at least its revision.
    pub(crate) fn mark(&mut self) -> Result<()> {
        if self.is_log_ahead {
            self.reached.log_bytes = self.synced_log_bytes()?;
        }
        if self.manifest.as_ref().is_some_and(|open| !open.is_covered) && (self.background_work)().is_idle {
            self.reach_manifest()?;
        }
        self.counter += 1;
        let place = SLOT as u64 * (self.counter % 2);
        self.file
            .write_all_at(&self.reached.encode(self.counter), place)
            .and_then(|()| self.file.sync_data())
            .map_err(|e| Error::io(format!("writing {}", self.path.display()), e))?;
        self.marked = self.reached;
        self.marked_at = Instant::now();
        Ok(())
    }

    /// Syncs the MANIFEST; the next mark has its length if all of it is known to be on disk, otherwise what
    /// was known before.
    fn reach_manifest(&mut self) -> Result<()> {
        let (number, path) = manifest(&self.database)?;
        if self.manifest.as_ref().is_none_or(|open| open.number != number) {
            self.manifest = OpenManifest::open(number, &path)?;
        }
        if let Some(open) = &mut self.manifest {
            let length = synced_length(&open.file);
            // After the sync, so that an error before it is counted.
            let work = (self.background_work)();
            open.is_covered |= work.is_idle;
            open.is_distrusted |= length.is_err() || work.errors != self.seen_errors;
            self.seen_errors = work.errors;
            match length {
                Ok(length) if open.is_covered && !open.is_distrusted => {
                    (self.reached.manifest, self.reached.manifest_bytes) = (number, length);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the reached mark, with the synced lengths of the log and of the MANIFEST.
    fn mark_synced_files(&mut self) -> Result<()> {
        let length = self.synced_log_bytes()?;
        (self.seen_bytes, self.reached.log_bytes) = (length, length);
        self.reach_manifest()?;
        self.mark()
    }

    /// Syncs the current log, and returns its length.
    fn synced_log_bytes(&mut self) -> Result<u64> {
        self.is_log_ahead = false;
        synced_length(&self.log)
            .map_err(|e| Error::io(format!("syncing a log in {}", self.database.display()), e))
    }

    /// Writes the watermark of a store that was flushed and has no writes in flight.
    pub(crate) fn close(&mut self, revision: Revision) -> Result<()> {
        let (number, path) = newest_log(&self.database)?;
        self.log = File::open(&path).map_err(|e| Error::io(format!("opening {}", path.display()), e))?;
        (self.reached.log, self.reached.revision) = (number, revision);
        self.mark_synced_files()
    }

    fn log_bytes(&self) -> Result<u64> {
        let io = |e| Error::io(format!("reading metadata of a log in {}", self.database.display()), e);
        Ok(self.log.metadata().map_err(io)?.len())
    }
}

/// Syncs a file, and returns its length.
fn synced_length(file: &File) -> std::io::Result<u64> {
    let length = file.metadata()?.len();
    file.sync_data()?;
    Ok(length)
}

fn newest_log(database: &Path) -> Result<(u64, PathBuf)> {
    logs(database)?.pop().ok_or(Error::Incomplete {
        dir: database.to_owned(),
        path: database.join("*.log"),
        reason: "no write-ahead log was found",
    })
}

/// Creates the file, with a mark of zeros.
fn make(dir: &Path) -> Result<()> {
    let part = dir.join(WATERMARK_PART);
    let write = || -> std::io::Result<()> {
        let mut file = directory::create_file(&part)?;
        let mut bytes = vec![0; 2 * SLOT];
        bytes[..BYTES].copy_from_slice(&Mark::default().encode(0));
        file.write_all(&bytes)?;
        file.sync_all()
    };
    write().map_err(|e| Error::io(format!("writing {}", part.display()), e))?;
    directory::rename(&part, &dir.join(WATERMARK))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    fn dir() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join(directory::DATABASE);
        fs::create_dir(&database).unwrap();
        fs::write(database.join("CURRENT"), "MANIFEST-000005\n").unwrap();
        fs::write(database.join("MANIFEST-000005"), "edits").unwrap();
        fs::write(database.join("000004.log"), "").unwrap();
        dir
    }

    #[test]
    fn a_new_log_is_known_before_its_first_group_is_acknowledged() {
        let dir = dir();
        assert_eq!(read(dir.path()).unwrap(), None);
        let mut watermark =
            Watermark::start(dir.path(), Revision::new(7), Box::new(BackgroundWork::none)).unwrap();
        let mark = |log, log_bytes, revision| Mark {
            log,
            log_bytes,
            revision: Revision::new(revision),
            manifest: 5,
            manifest_bytes: 5,
        };
        assert_eq!(read(dir.path()).unwrap(), Some(mark(4, 0, 7)));
        let database = dir.path().join(directory::DATABASE);
        fs::write(database.join("000004.log"), "one").unwrap();
        watermark.synced(Revision::new(8), &AtomicU64::new(1)).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(mark(4, 3, 8)), "an empty log is a lost one from now on");
        fs::write(database.join("000004.log"), "one, two").unwrap();
        watermark.synced(Revision::new(9), &AtomicU64::new(2)).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(mark(4, 3, 8)), "not for every group");
        assert!(watermark.due().is_some());
        // A single write, and the log has not grown.
        fs::write(database.join("000009.log"), "three").unwrap();
        watermark.synced(Revision::new(10), &AtomicU64::new(3)).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(mark(9, 5, 10)));
        // The log has grown, but there was another write, too.
        fs::write(database.join("000009.log"), "three, four").unwrap();
        fs::write(database.join("000010.log"), "five").unwrap();
        watermark.synced(Revision::new(11), &AtomicU64::new(5)).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(mark(10, 4, 11)));
        assert_eq!(watermark.due(), None);
    }

    #[test]
    fn a_torn_write_leaves_the_other_slot() {
        let dir = dir();
        let mut watermark =
            Watermark::start(dir.path(), Revision::new(1), Box::new(BackgroundWork::none)).unwrap();
        for revision in 2..6 {
            let before = read(dir.path()).unwrap();
            watermark.reached.revision = Revision::new(revision);
            watermark.mark().unwrap();
            let after = fs::read(dir.path().join(WATERMARK)).unwrap();
            let slot = SLOT * (watermark.counter % 2) as usize;
            for damage in 0..BYTES {
                let mut torn = after.clone();
                torn[slot + damage] ^= 0x55;
                fs::write(dir.path().join(WATERMARK), &torn).unwrap();
                assert_eq!(read(dir.path()).unwrap(), before);
            }
            fs::write(dir.path().join(WATERMARK), &after).unwrap();
        }
        for bad in [&b""[..], b"PLNTHWM1", &[0; 8192]] {
            fs::write(dir.path().join(WATERMARK), bad).unwrap();
            assert!(read(dir.path()).unwrap_err().to_string().contains("WATERMARK"));
        }
    }

    /// A watermark, and the state that RocksDB's background work is given.
    fn watched(dir: &Path) -> (Watermark, Arc<Mutex<BackgroundWork>>) {
        let work = Arc::new(Mutex::new(BackgroundWork::none()));
        let state = Arc::clone(&work);
        let watermark = Watermark::start(dir, Revision::new(7), Box::new(move || *state.lock())).unwrap();
        (watermark, work)
    }

    fn marked_manifest(dir: &Path) -> Option<(u64, u64)> {
        read(dir).unwrap().map(|mark| (mark.manifest, mark.manifest_bytes))
    }

    #[test]
    fn nothing_is_claimed_of_a_manifest_whose_sync_may_have_failed() {
        let dir = dir();
        let (mut watermark, work) = watched(dir.path());
        let database = dir.path().join(directory::DATABASE);
        fs::write(database.join("MANIFEST-000005"), "edits, more").unwrap();
        watermark.close(Revision::new(8)).unwrap();
        assert_eq!(marked_manifest(dir.path()), Some((5, 11)));
        fs::write(database.join("MANIFEST-000005"), "edits, more, lost").unwrap();
        work.lock().errors = 1;
        for revision in [9, 10] {
            watermark.close(Revision::new(revision)).unwrap();
            assert_eq!(marked_manifest(dir.path()), Some((5, 11)), "a sync of our own shows nothing");
        }
        fs::write(database.join("MANIFEST-000012"), "all of it").unwrap();
        fs::write(database.join("CURRENT"), "MANIFEST-000012\n").unwrap();
        watermark.close(Revision::new(11)).unwrap();
        assert_eq!(marked_manifest(dir.path()), Some((12, 9)));
    }

    #[test]
    fn errors_from_before_a_manifest_was_opened_may_be_counted_late() {
        let dir = dir();
        let (mut watermark, work) = watched(dir.path());
        let database = dir.path().join(directory::DATABASE);
        let next = |number: u64, idle: bool| {
            fs::write(database.join(format!("MANIFEST-{number:06}")), "edits").unwrap();
            fs::write(database.join("CURRENT"), format!("MANIFEST-{number:06}\n")).unwrap();
            work.lock().is_idle = idle;
        };
        next(12, false);
        watermark.close(Revision::new(8)).unwrap();
        assert_eq!(marked_manifest(dir.path()), Some((5, 5)), "an error may be on its way");
        *work.lock() = BackgroundWork { is_idle: true, errors: 1 };
        watermark.close(Revision::new(9)).unwrap();
        assert_eq!(marked_manifest(dir.path()), Some((5, 5)), "it was");
        next(13, false);
        watermark.close(Revision::new(10)).unwrap();
        assert_eq!(marked_manifest(dir.path()), Some((5, 5)));
        work.lock().is_idle = true;
        watermark.mark().unwrap();
        assert_eq!(marked_manifest(dir.path()), Some((13, 5)));
        // What begins later is reported to the open file.
        work.lock().is_idle = false;
        fs::write(database.join("MANIFEST-000013"), "edits, more").unwrap();
        watermark.close(Revision::new(12)).unwrap();
        assert_eq!(marked_manifest(dir.path()), Some((13, 11)));
    }

    #[test]
    fn a_manifest_that_cannot_be_synced_is_not_marked_and_fails_nothing() {
        let dir = dir();
        let (mut watermark, _) = watched(dir.path());
        let database = dir.path().join(directory::DATABASE);
        // A sync of a device is refused.
        std::os::unix::fs::symlink("/dev/null", database.join("MANIFEST-000012")).unwrap();
        fs::write(database.join("CURRENT"), "MANIFEST-000012\n").unwrap();
        watermark.close(Revision::new(8)).unwrap();
        assert_eq!(marked_manifest(dir.path()), Some((5, 5)));
        assert_eq!(read(dir.path()).unwrap().unwrap().revision, Revision::new(8));
    }
}
