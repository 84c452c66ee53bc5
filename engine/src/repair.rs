//! Repair: from a store that is refused, or in which `verify` finds damage, to one that opens and in which it finds none.
//!
//! What cannot be read, or does not follow what was before it, is dropped: logs from the first place on where they do not fit, and
//! records whose checksums do not match. The newest sound version of each key stays. History and change log go as a whole,
//! since parts of them may be missing, and the store continues at a revision above every one that was ever given out: whoever
//! holds a revision from before is answered with [`Error::Compacted`] and reads again.
//!
//! The repaired database is built beside the old one, which is then moved away as it was, so nothing is deleted. Killed at any
//! point, either the old database is in its place, or the start is refused and the repair continues.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rocksdb::{ReadOptions, WriteBatch, DB};

use crate::archive::Progress;
use crate::directory::{self, DATABASE, REPAIRED, REPAIRING};
use crate::error::{Error, Result};
use crate::layout::{self, meta, FORMAT_VERSION};
use crate::options::Options;
use crate::record::{self, Header, Kind};
use crate::recovery::{self, Log};
use crate::revision::Revision;
use crate::store::{self, Family};
use crate::view::{Logs, View};
use crate::wal::{self, Tail};
use crate::watermark::{self, WATERMARK};

/// Revisions that are left out above the highest one known: more than can have been given out since the watermark was
/// written, or within a write-ahead log of which nothing is left.
const MARGIN: u64 = 1 << 24;
/// Bytes of a batch of repaired entries.
const BATCH: usize = 1 << 20;

/// What a repair does, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Whether there is anything to repair.
    pub needed: bool,
    /// Bytes of write-ahead logs that are dropped.
    pub log_bytes: u64,
    /// The first and the last revision that can be read in them.
    pub log_revisions: Option<(Revision, Revision)>,
    /// Keys that stay.
    pub kept: u64,
    /// Keys of which an older version stays, because the newest is damaged or dropped.
    pub reverted: u64,
    /// Keys of which no version can be read.
    pub lost: u64,
    /// Blocks of tables are damaged. What can be passed over in them, or lies behind a place at which reading ends, is lost too, or
    /// stays in an older version, and how much that is is not known: `lost` counts none of it.
    pub unread: bool,
    /// A repair that was killed has been continued by its last steps. What it had found is not known any more: the other figures
    /// are zero.
    pub continued: bool,
    /// The revision at which the store continues.
    pub revision: Revision,
    /// Where the old database is kept; none when nothing was changed.
    pub kept_in: Option<PathBuf>,
}

/// Repairs the data directory `dir`, which must not be open; without `apply` it says what it would do and changes nothing.
/// `note` is called with each thing that is wrong.
///
/// # Errors
/// [`Error::Locked`]; [`Error::UnfinishedRestore`], [`Error::Foreign`] and [`Error::Incomplete`] where there is no database to repair;
/// [`Error::Rocks`] when so much is missing that RocksDB cannot open it: then a backup is the way.
pub fn repair(
    dir: impl AsRef<Path>,
    apply: bool,
    mut progress: impl FnMut(Progress),
    mut note: impl FnMut(String),
) -> Result<Repaired> {
    let dir = dir.as_ref();
    let database = dir.join(DATABASE);
    if !directory::repairable(dir)? {
        return Err(Error::Foreign { dir: dir.to_owned() });
    }
    let mut repaired = Repaired::default();
    if directory::kind(&database)?.is_some() && is_sound(dir, &mut progress, &mut note)? {
        return Ok(repaired);
    }
    repaired.needed = true;
    let lock = directory::lock(dir)?;
    if directory::kind(&database)?.is_none() {
        note(format!("a repair of {} did not finish", dir.display()));
        repaired.continued = true;
        if apply {
            repaired.kept_in = Some(take_place(dir)?);
            drop(lock);
            if !is_sound(dir, &mut progress, &mut note)? {
                return Err(Error::Incomplete {
                    dir: dir.to_owned(),
                    path: database,
                    reason: "what the repair that did not finish has made is damaged",
                });
            }
        }
        return Ok(repaired);
    }

    let logs = recovery::read_logs(dir)?;
    let kept = sound_logs(dir, &logs, &mut repaired, &mut note)?;
    let path = dir.join(REPAIRING);
    directory::remove_unfinished(&path)?;
    let view = View::at(path, &database, &Logs::Cut(&kept))?;
    let options = Options::new(dir);
    let old = store::open_untracked(view.path(), &options.memory)?;

    let part = dir.join(REPAIRED_PART);
    directory::remove_unfinished(&part)?;
    if apply {
        // While the database is in its place, this is what a killed repair has left.
        directory::remove_unfinished(&dir.join(REPAIRED))?;
    }
    let new = apply.then(|| store::create_at(&part, &options.memory)).transpose()?;
    let mut highest = highest_number(&old).max(watermark_revision(dir));
    if let Some((_, last)) = repaired.log_revisions {
        highest = highest.max(last);
    }
    let mut copy = Copy {
        new: new.as_ref(),
        batch: WriteBatch::default(),
        repaired: &mut repaired,
        highest,
        progress: &mut progress,
        note: &mut note,
    };
    copy.run(&old)?;
    let revision = Revision::new(copy.highest.get().saturating_add(MARGIN));
    copy.repaired.revision = revision;
    copy.finish(revision)?;
    drop(old);
    drop(view);
    let Some(new) = new else { return Ok(repaired) };
    drop(new);

    directory::rename(&part, &dir.join(REPAIRED))?;
    repaired.kept_in = Some(take_place(dir)?);
    Ok(repaired)
}

/// Puts `db.repaired` in the place of the database. What was there before is moved to a directory of its own, which is returned.
/// Killed at any point, it can be called again.
fn take_place(dir: &Path) -> Result<PathBuf> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut aside = dir.join(format!("repair-{seconds}"));
    for number in 1u32.. {
        let is_taken = |name| directory::kind(&aside.join(name)).map(|found| found.is_some());
        if !is_taken(DATABASE)? && !is_taken(WATERMARK)? {
            break;
        }
        // Two repairs within a second.
        aside = dir.join(format!("repair-{seconds}-{number}"));
    }
    directory::create(&aside)?;
    // The watermark is that of the old database.
    for name in [DATABASE, WATERMARK] {
        let from = dir.join(name);
        if directory::kind(&from)?.is_some() {
            directory::rename(&from, &aside.join(name))?;
            directory::sync(dir)?;
        }
    }
    directory::write_marker(dir)?;
    directory::rename(&dir.join(REPAIRED), &dir.join(DATABASE))?;
    Ok(aside)
}

/// The repaired database while it is being written.
const REPAIRED_PART: &str = "db.repaired.part";

/// Whether the store opens and `verify` finds nothing.
fn is_sound(dir: &Path, progress: &mut impl FnMut(Progress), note: &mut impl FnMut(String)) -> Result<bool> {
    /// More are of no use to anybody.
    const NOTES: u64 = 100;
    let mut faults = 0u64;
    let verified = crate::verify::verify(dir, progress, |fault| {
        faults += 1;
        if faults <= NOTES {
            note(fault.to_string());
        }
    });
    match verified {
        Ok(verified) if verified.faults == 0 => Ok(true),
        Ok(verified) => {
            if verified.faults > NOTES {
                note(format!("and {} more", verified.faults - NOTES));
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

/// The logs, and the bytes of each, up to the first place where they do not fit.
fn sound_logs(
    dir: &Path,
    logs: &[Log],
    repaired: &mut Repaired,
    note: &mut impl FnMut(String),
) -> Result<Vec<(PathBuf, u64)>> {
    // Where the MANIFEST cannot be asked, all logs are needed.
    let oldest = store::oldest_needed(dir, logs).unwrap_or(0);
    let mut kept = Vec::new();
    let mut next = None;
    let mut broken = false;
    for log in logs.iter().filter(|log| log.number >= oldest) {
        broken |= matches!((next, log.contents.first), (Some(next), Some(first)) if next != first);
        let sound = if broken { 0 } else { log.contents.sound };
        if !broken {
            kept.push((log.path.clone(), sound));
        }
        next = log.contents.next.or(next);
        broken |= log.contents.tail == Tail::Damaged;
        if sound == log.bytes {
            continue;
        }
        let bytes =
            fs::read(&log.path).map_err(|e| Error::io(format!("reading {}", log.path.display()), e))?;
        let revisions: Vec<Revision> =
            wal::dropped_records(&bytes, sound).iter().flat_map(|batch| wal::revisions(batch)).collect();
        let range = revisions.iter().min().copied().zip(revisions.iter().max().copied());
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
    }
    Ok(kept)
}

fn watermark_revision(dir: &Path) -> Revision {
    watermark::read(dir).ok().flatten().map_or(Revision::ZERO, |mark| mark.revision)
}

/// The highest revision among the numbers of the store itself and in the log.
fn highest_number(old: &DB) -> Revision {
    let number = |name: &[u8]| {
        let bytes = old.get(name).ok().flatten()?;
        layout::decode_number(name, &bytes)
    };
    let numbers = [meta::FLOOR, meta::SWEPT, meta::RESERVED].into_iter().filter_map(number).max();
    let logged = old.cf_handle(Family::Log.name()).and_then(|family| {
        let mut cursor = old.raw_iterator_cf(family);
        cursor.seek_to_last();
        cursor.key().and_then(layout::parse_log_key)
    });
    Revision::new(numbers.unwrap_or(0)).max(logged.unwrap_or(Revision::ZERO))
}

/// Copies the newest sound version of each key.
struct Copy<'a> {
    new: Option<&'a DB>,
    batch: WriteBatch,
    repaired: &'a mut Repaired,
    highest: Revision,
    progress: &'a mut dyn FnMut(Progress),
    note: &'a mut dyn FnMut(String),
}

fn handle(old: &DB, family: Family) -> Result<&rocksdb::ColumnFamily> {
    old.cf_handle(family.name()).ok_or_else(|| Error::Corrupt {
        key: family.name().into(),
        revision: Revision::ZERO,
        reason: "column family is missing",
    })
}

/// Whether every block of a family has the right checksum. In one that has not, entries can be passed over without a word.
fn is_whole(old: &DB, family: Family) -> Result<bool> {
    let mut read = ReadOptions::default();
    read.fill_cache(false);
    read.set_verify_checksums(true);
    let mut cursor = old.raw_iterator_cf_opt(handle(old, family)?, read);
    cursor.seek_to_first();
    while cursor.valid() {
        cursor.next();
    }
    Ok(cursor.status().is_ok())
}

/// A column family that is read to its end, or to the first place that cannot be read.
struct Source<'a> {
    cursor: rocksdb::DBRawIterator<'a>,
    family: Family,
}

impl<'a> Source<'a> {
    fn new(old: &'a DB, family: Family) -> Result<Source<'a>> {
        let handle = handle(old, family)?;
        let mut read = ReadOptions::default();
        read.fill_cache(false);
        // The records have checksums of their own, which say what exactly is damaged.
        read.set_verify_checksums(false);
        let mut cursor = old.raw_iterator_cf_opt(handle, read);
        cursor.seek_to_first();
        Ok(Source { cursor, family })
    }

    /// The user key of the entry at the cursor; entries whose keys are damaged are skipped.
    fn key(&mut self, note: &mut dyn FnMut(String)) -> Option<Vec<u8>> {
        loop {
            let Some(key) = self.cursor.key() else {
                if let Err(error) = self.cursor.status() {
                    note(format!("column family {} cannot be read to its end: {error}", self.family.name()));
                }
                return None;
            };
            match self.family {
                Family::Current => return Some(key.to_vec()),
                _ => match layout::parse_history_key(key) {
                    Some((key, _)) => return Some(key),
                    None => self.cursor.next(),
                },
            }
        }
    }

    fn header(&self, key: &[u8]) -> Option<Header> {
        record::check(key, self.cursor.value()?).ok().map(|(header, _)| header)
    }
}

impl Copy<'_> {
    fn run(&mut self, old: &DB) -> Result<()> {
        let mut current = Source::new(old, Family::Current)?;
        let mut history = Source::new(old, Family::History)?;
        let mut done = 0;
        let (mut newest_key, mut old_key) = (current.key(self.note), history.key(self.note));
        loop {
            let key = match (&newest_key, &old_key) {
                (Some(newest), Some(old)) => newest.min(old).clone(),
                (Some(key), None) | (None, Some(key)) => key.clone(),
                (None, None) => {
                    self.repaired.unread =
                        !is_whole(old, Family::Current)? || !is_whole(old, Family::History)?;
                    return Ok(());
                }
            };
            let mut best: Option<(Header, Vec<u8>)> = None;
            let mut reverted = false;
            if newest_key.as_ref() == Some(&key) {
                match current.header(&key) {
                    Some(header) => best = current.cursor.value().map(|value| (header, value.to_vec())),
                    None => reverted = true,
                }
                current.cursor.next();
                newest_key = current.key(self.note);
            }
            while old_key.as_ref() == Some(&key) {
                if let Some(header) = history.header(&key) {
                    self.highest = self.highest.max(header.mod_revision);
                    if best.as_ref().is_none_or(|(newest, _)| newest.mod_revision < header.mod_revision) {
                        best = history.cursor.value().map(|value| (header, value.to_vec()));
                        reverted = true;
                    }
                }
                history.cursor.next();
                old_key = history.key(self.note);
            }
            match best {
                Some((header, value)) => self.keep(&key, header, &value, reverted)?,
                None => {
                    self.repaired.lost += 1;
                    (self.note)(format!("key {}: no version of it can be read", record::printable(&key)));
                }
            }
            done += 1;
            if done % 4096 == 0 {
                (self.progress)(Progress { done, total: 0 });
            }
        }
    }

    fn keep(&mut self, key: &[u8], header: Header, value: &[u8], reverted: bool) -> Result<()> {
        self.highest = self.highest.max(header.mod_revision);
        if reverted {
            self.repaired.reverted += 1;
            let revision = header.mod_revision;
            (self.note)(format!("key {}: the version of revision {revision} stays", record::printable(key)));
        }
        // Nothing below the store's new revision can be read, so nobody misses a tombstone.
        if header.kind == Kind::Tombstone {
            return Ok(());
        }
        self.repaired.kept += 1;
        let Some(new) = self.new else { return Ok(()) };
        let family = |family: Family| {
            new.cf_handle(family.name()).ok_or_else(|| Error::Corrupt {
                key: family.name().into(),
                revision: Revision::ZERO,
                reason: "column family is missing",
            })
        };
        self.batch.put_cf(family(Family::Current)?, key, value);
        if let Some(deadline) = header.expires_at_ms() {
            let expiry_key = layout::expiry_key(deadline, key);
            let value = layout::encode_expiry(&expiry_key, header.mod_revision);
            self.batch.put_cf(family(Family::Expiry)?, expiry_key, value);
        }
        if self.batch.size_in_bytes() >= BATCH {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        match self.new {
            Some(new) => new.write_without_wal(batch).map_err(Error::from_write),
            None => Ok(()),
        }
    }

    /// Writes the numbers of the store itself, and everything to disk.
    fn finish(&mut self, revision: Revision) -> Result<()> {
        let Some(new) = self.new else { return Ok(()) };
        let numbers = [
            (meta::FORMAT, FORMAT_VERSION.into()),
            (meta::FLOOR, revision.get()),
            (meta::SWEPT, revision.get()),
            (meta::RESERVED, revision.get()),
        ];
        for (name, number) in numbers {
            self.batch.put(name, layout::encode_number(name, number));
        }
        self.write()?;
        store::flush(new)
    }
}
