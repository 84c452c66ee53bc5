//! Repair: turns a store that is refused, or in which `verify` finds damage, into one that opens and
//! verifies.
//!
//! Unreadable or inconsistent data is dropped: logs from the first inconsistency on, blocks of tables and
//! records whose checksums do not match. The newest sound version of each key is kept. History and log are
//! dropped completely, since parts of them may be missing, and the store continues at a revision above every
//! one that was ever assigned: a client that holds an earlier revision gets [`Error::Compacted`] and has to
//! list again.
//!
//! The repaired database is built next to the old one, which is then moved aside unchanged, so nothing is
//! deleted. If the repair is killed at any point, either the old database is still in place, or the start is
//! refused until the repair has been run again.

mod copy;
mod replay;
mod revisions;
mod salvage;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rocksdb::{WriteBatch, DB};

use self::copy::{KeyCopier, LastChange};
use self::replay::SoundLog;
use self::revisions::Revisions;
use crate::archive::Progress;
use crate::directory::{self, DATABASE, REPAIRED, REPAIRING};
use crate::error::{Error, Result};
use crate::layout::{self, meta};
use crate::log::LogEntry;
use crate::options::Options;
use crate::record::Kind;
use crate::recovery::{self, FlushState, Log};
use crate::revision::Revision;
use crate::store::{self, Changes, Family};
use crate::view::{Logs, View};
use crate::wal::{self, Tail};
use crate::watermark::{self, WATERMARK};

/// The outcome of a repair or of a dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Whether there is anything to repair.
    pub needed: bool,
    /// Bytes of write-ahead logs that are dropped.
    pub log_bytes: u64,
    /// The first and the last readable revision in them.
    pub log_revisions: Option<(Revision, Revision)>,
    /// Ranges of revisions, first and last, that were written and of which nothing is left. Their changes are
    /// not included in the other counts: objects that they created are lost, those that they updated or
    /// deleted are kept as they were before. The last range may have been longer.
    pub missing: Vec<(Revision, Revision)>,
    /// Keys that are kept.
    pub kept: u64,
    /// Keys that are reverted to an older version, because the newest one, or their deletion, is damaged or
    /// dropped.
    pub reverted: u64,
    /// Keys without any readable version.
    pub lost: u64,
    /// Keys that are kept as found in sound tables, although a damaged table may have held a newer version,
    /// or their deletion.
    pub uncertain: u64,
    /// Ranges of keys that are unreadable because of damaged tables. Keys in them that are named nowhere else
    /// are lost, too, and cannot be counted.
    pub gaps: u64,
    /// A killed repair has been completed. What it had found is not known any more: the other counts are
    /// zero.
    pub continued: bool,
    /// The revision at which the store continues.
    pub revision: Revision,
    /// Where the old database was moved to; none when nothing was changed.
    pub kept_in: Option<PathBuf>,
}

/// Repairs the data directory `dir`, which must not be open; without `apply` it is a dry run that changes
/// nothing. `note` is called with each problem found.
///
/// # Errors
/// [`Error::Locked`]; [`Error::UnfinishedRestore`], [`Error::Foreign`] and [`Error::Incomplete`] where there
/// is no database to repair; [`Error::Io`] and others for which [`Error::is_system_failure`] holds, after
/// which it can be retried; [`Error::Rocks`] when RocksDB cannot open it and neither tables nor logs hold
/// anything, and [`Error::LostCommits`] when nothing is left of a store that was not empty: then a backup has
/// to be restored.
pub fn repair(
    dir: impl AsRef<Path>,
    apply: bool,
    mut progress: impl FnMut(Progress),
    mut note: impl FnMut(String),
) -> Result<RepairReport> {
    let dir = dir.as_ref();
    let database = dir.join(DATABASE);
    if !directory::repairable(dir)? {
        return Err(Error::Foreign { dir: dir.to_owned() });
    }
    let mut repaired = RepairReport::default();
    if directory::kind(&database)?.is_some() && is_sound(dir, &mut progress, &mut note)? {
        return Ok(repaired);
    }
    repaired.needed = true;
    let lock = directory::lock(dir)?;
    if directory::kind(&database)?.is_none() {
        note(format!("an earlier repair of {} did not finish", dir.display()));
        repaired.continued = true;
        if apply {
            repaired.kept_in = Some(take_place(dir)?);
            drop(lock);
            if !is_sound(dir, &mut progress, &mut note)? {
                return Err(Error::Incomplete {
                    dir: dir.to_owned(),
                    path: database,
                    reason: "the result of the unfinished repair is damaged",
                });
            }
        }
        return Ok(repaired);
    }
    let _lock = lock.and_database(dir)?;

    let logs = recovery::read_logs(dir)?;
    // A truncated MANIFEST names tables that were replaced since, and not their replacements.
    let mark = watermark::read(dir).ok().flatten();
    let manifest = recovery::torn_manifest(dir, mark);
    let asked = match &manifest {
        Ok(torn) => store::query_manifest(dir, &logs, torn.as_ref(), Changes::Allowed),
        Err(error) => Err(error.clone()),
    };
    let flushed = match asked {
        Ok(known) => known,
        Err(error @ Error::Io { .. }) => return Err(error),
        Err(error) if error.is_failure_to_write() => return Err(error),
        Err(_) => query_tables(dir, &logs)?,
    };
    let SoundLogs { kept, end, dropped, readable } = sound_logs(&logs, flushed, &mut repaired, &mut note)?;
    let (torn, lost) = match manifest {
        Ok(torn) => (torn, None),
        Err(error) => (None, Some(error)),
    };
    let path = dir.join(REPAIRING);
    directory::remove_unfinished(&path)?;
    let view = View::at(path, &database, &Logs::Cut(&kept), torn.as_ref())?;
    let options = Options::new(dir);
    let sound = || {
        let view = View::at(view.path().join(SOUND), &database, &Logs::Cut(&[]), None)?;
        let db = store::open_sound_tables(view.path(), &options.memory)?;
        replay::replay(&db, &kept, end)?;
        Ok(SoundTables { db, _view: view })
    };
    let old = match lost.map_or_else(|| store::open_untracked(view.path(), &options.memory), Err) {
        Ok(old) => Old::Whole(old),
        Err(error @ Error::Incomplete { .. }) => {
            note(format!("{error}: the tables are read without it"));
            Old::SoundTables(sound()?, error)
        }
        Err(error @ Error::Rocks { .. }) if !error.is_failure_to_write() => {
            note(format!("{error}: what is damaged is left out"));
            Old::SoundTables(sound()?, error)
        }
        Err(error) => return Err(error),
    };

    let part = dir.join(REPAIRED_PART);
    directory::remove_unfinished(&part)?;
    // Dropped after the database in it.
    let _unfinished = Unfinished(part.clone());
    if apply {
        // While the database is in place, `db.repaired` is left over from a killed repair.
        directory::remove_unfinished(&dir.join(REPAIRED))?;
    }
    let new = apply.then(|| store::create_at(&part, &options.memory)).transpose()?;
    let highest = highest_number(old.db());
    let durable = mark.map_or(Revision::ZERO, |mark| mark.revision);
    let last = repaired.log_revisions.map_or(Revision::ZERO, |(_, last)| last).max(highest).max(durable);
    let missing = revisions::missing(old.db(), &readable, last)?;
    for (first, last) in &missing.all {
        note(format!("revisions {first} to {last} are missing completely"));
    }
    repaired.missing = missing.all;
    let mut copier = KeyCopier {
        new: new.as_ref(),
        batch: WriteBatch::default(),
        repaired: &mut repaired,
        dropped,
        last_unlogged: missing.last_unlogged,
        highest,
        done: 0,
        progress: &mut progress,
        note: &mut note,
    };
    match &old {
        Old::Whole(db) => copier.whole(db, sound)?,
        Old::SoundTables(tables, _) => copier.sound_tables(&tables.db)?,
    }
    copier.count_dropped();
    if let Some((_, last)) = copier.repaired.log_revisions {
        copier.highest = copier.highest.max(last);
    }
    let found = copier.highest;
    let nothing = match &old {
        _ if copier.repaired.kept > 0 => None,
        Old::SoundTables(_, error) => Some(error.clone()),
        Old::Whole(_) if durable > found => Some(Error::LostCommits { dir: dir.to_owned(), found, durable }),
        Old::Whole(_) => None,
    };
    if let Some(error) = nothing {
        // An empty store must not replace one that could still be recovered by other means.
        return Err(error);
    }
    let revision = found.max(durable).beyond(SystemTime::now());
    copier.repaired.revision = revision;
    copier.finish(revision)?;
    drop(old);
    drop(view);
    let Some(new) = new else { return Ok(repaired) };
    drop(new);

    let finished = dir.join(REPAIRED);
    let placed = directory::rename(&part, &finished).and_then(|()| take_place(dir));
    if placed.is_err() && directory::has_entry(&database).unwrap_or(false) {
        // The next repair starts over, and removes what is left of this one.
        let _ = directory::remove_unfinished(&finished);
    }
    repaired.kept_in = Some(placed?);
    Ok(repaired)
}

/// A database that is being built. Removed on drop unless it was renamed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // The next repair removes what is left.
        let _ = directory::remove_unfinished(&self.0);
    }
}

/// Replaces the database by `db.repaired`. The old one is moved to a directory of its own, which is returned.
/// If killed at any point, it can be called again.
fn take_place(dir: &Path) -> Result<PathBuf> {
    let aside = match directory::kind(&dir.join(DATABASE))? {
        Some(_) => new_aside(dir)?,
        // A killed repair has moved it already.
        None => newest_aside(dir)?.map_or_else(|| new_aside(dir), Ok)?,
    };
    directory::create(&aside)?;
    // The watermark belongs to the old database.
    for name in [DATABASE, WATERMARK] {
        let from = dir.join(name);
        if directory::kind(&from)?.is_some() {
            directory::make_link_absolute(&from)?;
            directory::rename(&from, &aside.join(name))?;
            directory::sync(dir)?;
        }
    }
    directory::write_marker(dir)?;
    directory::rename(&dir.join(REPAIRED), &dir.join(DATABASE))?;
    Ok(aside)
}

/// Prefix of the directories to which old databases are moved.
const ASIDE: &str = "repair-";

/// A directory name that no repair has used.
fn new_aside(dir: &Path) -> Result<PathBuf> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut aside = dir.join(format!("{ASIDE}{seconds}"));
    for number in 1u32.. {
        let is_taken = |name| directory::has_entry(&aside.join(name));
        if !is_taken(DATABASE)? && !is_taken(WATERMARK)? {
            break;
        }
        // Two repairs within a second.
        aside = dir.join(format!("{ASIDE}{seconds}-{number}"));
    }
    Ok(aside)
}

/// The directory to which a database was moved most recently.
fn newest_aside(dir: &Path) -> Result<Option<PathBuf>> {
    let io = |e| Error::io(format!("reading {}", dir.display()), e);
    let mut newest = None;
    for entry in fs::read_dir(dir).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(ASIDE));
        let Some(name) = name else { continue };
        let (seconds, number) = name.split_once('-').unwrap_or((name, "0"));
        let (Ok(seconds), Ok(number)) = (seconds.parse::<u64>(), number.parse::<u32>()) else { continue };
        if directory::has_entry(&path.join(DATABASE))? {
            newest = newest.max(Some((seconds, number, path)));
        }
    }
    Ok(newest.map(|(_, _, path)| path))
}

/// Directory, within a repair's view, of a second view from which RocksDB removes damaged tables.
const SOUND: &str = "sound";

/// The sound tables of a database, in a view of their own.
struct SoundTables {
    db: DB,
    _view: View,
}

impl AsRef<DB> for SoundTables {
    fn as_ref(&self) -> &DB {
        &self.db
    }
}

/// The database that is repaired.
enum Old {
    /// All tables can be opened.
    Whole(DB),
    /// They cannot, for this reason.
    SoundTables(SoundTables, Error),
}

impl Old {
    fn db(&self) -> &DB {
        match self {
            Old::Whole(db) => db,
            Old::SoundTables(tables, _) => &tables.db,
        }
    }
}

/// The repaired database while it is being written.
const REPAIRED_PART: &str = "db.repaired.part";

/// Whether the store opens and verifies without findings.
fn is_sound(dir: &Path, progress: &mut impl FnMut(Progress), note: &mut impl FnMut(String)) -> Result<bool> {
    /// Maximum number of findings that are reported one by one.
    const NOTES: u64 = 100;
    let mut findings = 0u64;
    let verified = crate::verify::verify(dir, progress, |finding| {
        findings += 1;
        if findings <= NOTES {
            note(finding.to_string());
        }
    });
    match verified {
        Ok(verified) if verified.findings == 0 => Ok(true),
        Ok(verified) => {
            if verified.findings > NOTES {
                note(format!("and {} more", verified.findings - NOTES));
            }
            Ok(false)
        }
        Err(error @ (Error::Incomplete { .. } | Error::Corrupt { .. })) => {
            note(error.to_string());
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The logs up to their first inconsistency.
struct SoundLogs {
    /// Logs, and the bytes of each.
    kept: Vec<SoundLog>,
    /// The sequence number after their last operation; none when they hold nothing.
    end: Option<u64>,
    /// Readable changes after them: the last change of each key.
    dropped: BTreeMap<Vec<u8>, LastChange>,
    /// Their revisions.
    readable: Revisions,
}

/// The first log may begin within what is `flushed`, but not after it.
fn sound_logs(
    logs: &[Log],
    flushed: FlushState,
    repaired: &mut RepairReport,
    note: &mut impl FnMut(String),
) -> Result<SoundLogs> {
    let (mut kept, mut end, mut dropped, mut readable) =
        (Vec::new(), None, BTreeMap::new(), Revisions::default());
    let mut next = None;
    let mut broken = false;
    for log in logs.iter().filter(|log| log.number >= flushed.oldest_log) {
        broken |= match (next, log.contents.first) {
            (Some(next), Some(first)) => next != first,
            (None, Some(first)) => first > flushed.sequence.saturating_add(1),
            (_, None) => false,
        };
        let sound = if broken { 0 } else { log.contents.sound };
        if !broken {
            kept.push((log.path.clone(), sound));
            end = log.contents.next.or(end);
        }
        next = log.contents.next.or(next);
        broken |= log.contents.tail == Tail::Damaged;
        if sound == log.bytes {
            continue;
        }
        let bytes =
            fs::read(&log.path).map_err(|e| Error::io(format!("reading {}", log.path.display()), e))?;
        let batches = wal::dropped_records(&bytes, sound);
        let entries: Vec<LogEntry> = batches.iter().flat_map(|batch| wal::entries(batch)).collect();
        let revisions = || entries.iter().map(|entry| entry.revision);
        revisions().for_each(|revision| readable.add(revision));
        let range = revisions().min().zip(revisions().max());
        repaired.log_bytes += log.bytes - sound;
        repaired.log_revisions = match (repaired.log_revisions, range) {
            (Some((first, last)), Some((low, high))) => Some((first.min(low), last.max(high))),
            (known, range) => known.or(range),
        };
        let readable = match range {
            Some((first, last)) => format!("revisions {first} to {last} can be read in them"),
            None => "no revision can be read in them".to_owned(),
        };
        note(format!(
            "{}: {} of {} bytes are dropped; {readable}",
            log.path.display(),
            log.bytes - sound,
            log.bytes
        ));
        for (revision, operation) in entries
            .iter()
            .flat_map(|entry| entry.operations.iter().map(|operation| (entry.revision, operation)))
        {
            let is_deleted = operation.kind == Kind::Tombstone;
            dropped.insert(operation.key.to_vec(), LastChange { revision, is_deleted });
        }
    }
    Ok(SoundLogs { kept, end, dropped, readable })
}

/// The flush state according to the tables, for a MANIFEST that cannot be read: all families are flushed
/// together, so everything up to their newest sequence number is in them. An obsolete log that was left over
/// from a crash does not continue at the next number.
fn query_tables(dir: &Path, logs: &[Log]) -> Result<FlushState> {
    let path = dir.join(REPAIRING);
    directory::remove_unfinished(&path)?;
    let view = View::at(path, &dir.join(DATABASE), &Logs::Cut(&[]), None)?;
    let sequence = store::open_sound_tables(view.path(), &Options::new(dir).memory)?.latest_sequence_number();
    if sequence == 0 {
        // There are no tables: the logs are all that is left.
        return Ok(FlushState { oldest_log: 0, sequence: u64::MAX });
    }
    let goes_on = |log: &&Log| log.contents.first.is_some_and(|first| first <= sequence.saturating_add(1));
    Ok(FlushState { oldest_log: logs.iter().rev().find(goes_on).map_or(0, |log| log.number), sequence })
}

/// The highest revision among the metadata numbers and in the log.
fn highest_number(old: &DB) -> Revision {
    let numbers = [meta::FLOOR, meta::SWEPT, meta::RESERVED].into_iter();
    let number = numbers.filter_map(|name| salvage::number(old, name)).max();
    let logged = old.cf_handle(Family::Log.name()).and_then(|family| {
        let mut cursor = old.raw_iterator_cf(family);
        cursor.seek_to_last();
        cursor.key().and_then(layout::parse_log_key)
    });
    number.max(logged).unwrap_or(Revision::ZERO)
}
