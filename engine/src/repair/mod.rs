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
mod old_database;
mod place;
mod replay;
mod revisions;
mod salvage;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rocksdb::{WriteBatch, DB};

use self::copy::{KeyCopier, LastChange};
use self::old_database::OldDatabase;
use self::replay::SoundLogs;
use self::revisions::Revisions;
use crate::archive::Progress;
use crate::directory::{self, DATABASE, REPAIRED, REPAIRING};
use crate::error::{Error, Result};
use crate::layout::{self, meta};
use crate::log::LogEntry;
use crate::options::Options;
use crate::recovery::{self, FlushState, Log};
use crate::revision::Revision;
use crate::store::{self, Changes, Family};
use crate::stored::Kind;
use crate::view::{Logs, View};
use crate::wal::{self, Tail};
use crate::watermark::{self, Mark};

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
    let (progress, note) = (&mut progress, &mut note);
    let database = dir.join(DATABASE);
    if !directory::repairable(dir)? {
        return Err(Error::Foreign { dir: dir.to_owned() });
    }
    let mut repaired = RepairReport::default();
    if directory::kind(&database)?.is_some() && is_sound(dir, progress, note)? {
        return Ok(repaired);
    }
    repaired.needed = true;
    let lock = directory::lock(dir)?;
    if directory::kind(&database)?.is_none() {
        note(format!("an earlier repair of {} did not finish", dir.display()));
        repaired.continued = true;
        if apply {
            repaired.kept_in = Some(place::take_place(dir)?);
            drop(lock);
            if !is_sound(dir, progress, note)? {
                let reason = "the result of the unfinished repair is damaged";
                return Err(Error::Incomplete { dir: dir.to_owned(), path: database, reason });
            }
        }
        return Ok(repaired);
    }
    let _lock = lock.and_database(dir)?;
    let mark = watermark::read(dir).ok().flatten();
    let (old, changes) = read_old(dir, mark, &mut repaired, note)?;
    let part = dir.join(REPAIRED_PART);
    directory::remove_unfinished(&part)?;
    // Dropped after the database in it.
    let _unfinished = Unfinished(part.clone());
    if apply {
        // While the database is in place, `db.repaired` is left over from a killed repair.
        directory::remove_unfinished(&dir.join(REPAIRED))?;
    }
    let new = apply.then(|| store::create_at(&part, &Options::new(dir).memory)).transpose()?;
    let durable = mark.map_or(Revision::ZERO, |mark| mark.revision);
    copy_sound(&old, new.as_ref(), changes, durable, &mut repaired, progress, note)?;
    drop(old);
    if let Some(new) = new {
        drop(new);
        repaired.kept_in = Some(place::replace_database(dir, &part)?);
    }
    Ok(repaired)
}

/// Opens what is left of the database, and reports what its logs lose.
fn read_old(
    dir: &Path,
    mark: Option<Mark>,
    repaired: &mut RepairReport,
    note: &mut impl FnMut(String),
) -> Result<(OldDatabase, DroppedChanges)> {
    let logs = recovery::read_logs(dir)?;
    // A truncated MANIFEST names tables that were replaced since, and not their replacements.
    let manifest = recovery::torn_manifest(dir, mark);
    let queried = match &manifest {
        Ok(torn) => store::query_manifest(dir, &logs, torn.as_ref(), Changes::Allowed),
        Err(error) => Err(error.clone()),
    };
    let flushed = match queried {
        Ok(known) => known,
        Err(error @ Error::Io { .. }) => return Err(error),
        Err(error) if error.is_failure_to_write() => return Err(error),
        Err(_) => query_tables(dir, &logs)?,
    };
    let (sound, changes) = sound_logs(&logs, flushed, repaired, note)?;
    Ok((OldDatabase::open(dir, manifest, sound, note)?, changes))
}

/// Copies the newest sound version of each key; counts only where there is no `new` database.
fn copy_sound(
    old: &OldDatabase,
    new: Option<&DB>,
    changes: DroppedChanges,
    durable: Revision,
    repaired: &mut RepairReport,
    progress: &mut impl FnMut(Progress),
    note: &mut impl FnMut(String),
) -> Result<()> {
    let highest = highest_number(old.db());
    let last = repaired.log_revisions.map_or(Revision::ZERO, |(_, last)| last).max(highest).max(durable);
    let missing = revisions::missing(old.db(), &changes.revisions, last)?;
    for (first, last) in &missing.all {
        note(format!("revisions {first} to {last} are missing completely"));
    }
    repaired.missing = missing.all;
    let mut copier = KeyCopier {
        new,
        batch: WriteBatch::default(),
        repaired,
        dropped: changes.of_keys,
        last_unlogged: missing.last_unlogged,
        highest,
        done: 0,
        progress,
        note,
    };
    match old.unreadable() {
        None => copier.whole(old.db(), || old.open_sound_tables())?,
        Some(_) => copier.sound_tables(old.db())?,
    }
    copier.count_dropped();
    if let Some((_, last)) = copier.repaired.log_revisions {
        copier.highest = copier.highest.max(last);
    }
    let found = copier.highest;
    if copier.repaired.kept == 0 {
        // An empty store must not replace one that could still be recovered by other means.
        match old.unreadable() {
            Some(error) => return Err(error.clone()),
            None if durable > found => {
                return Err(Error::LostCommits { dir: old.dir().to_owned(), found, durable });
            }
            None => {}
        }
    }
    let revision = found.max(durable).beyond(SystemTime::now());
    copier.repaired.revision = revision;
    copier.finish(revision, &salvage::application_numbers(old.db())?)
}

/// A database that is being built. Removed on drop unless it was renamed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // The next repair removes what is left.
        let _ = directory::remove_unfinished(&self.0);
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

/// Readable changes in the parts of the logs that are dropped.
#[derive(Default)]
struct DroppedChanges {
    /// The last change of each key.
    of_keys: BTreeMap<Vec<u8>, LastChange>,
    revisions: Revisions,
}

/// The logs up to their first inconsistency, and what can be read after it. The first log may begin within
/// what is `flushed`, but not after it.
fn sound_logs(
    logs: &[Log],
    flushed: FlushState,
    repaired: &mut RepairReport,
    note: &mut impl FnMut(String),
) -> Result<(SoundLogs, DroppedChanges)> {
    let (mut kept, mut end, mut changes) = (Vec::new(), None, DroppedChanges::default());
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
        revisions().for_each(|revision| changes.revisions.add(revision));
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
            changes.of_keys.insert(operation.key.to_vec(), LastChange { revision, is_deleted });
        }
    }
    Ok((SoundLogs { logs: kept, end }, changes))
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
