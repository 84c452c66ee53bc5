//! Checks of the write-ahead logs at start, before RocksDB reads them: what may be dropped, and what must be
//! refused.
//!
//! Only writes that were never acknowledged are dropped: torn writes at the ends of logs or of the MANIFEST,
//! and logs after a torn one that the watermark does not cover. Everything else that is inconsistent is
//! refused, with the file's name, and left unchanged for `plinth repair`: a log that is damaged, missing or
//! shorter than the watermark requires, a gap between the sequence numbers of two logs, a truncated MANIFEST.
//!
//! Obsolete logs may be left over from a crash, in any state. The MANIFEST records which those are; it is
//! read only when the logs are inconsistent. Where its own end is dropped, the logs must continue where the
//! rest of it ends: logs are removed only after the MANIFEST that makes them obsolete is synced.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::directory::{self, DATABASE, WATERMARK};
use crate::error::{Error, Result};
use crate::wal::{self, Contents, Tail};
use crate::watermark::{self, Mark};

/// Directory for logs that hold nothing acknowledged and do not continue the ones before them.
const UNACKNOWLEDGED: &str = "unacknowledged";

/// The tail of a file that was dropped at start: writes that were not acknowledged before a crash. A file
/// that was truncated by other means within two seconds of the crash looks the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedTail {
    /// The log, or the MANIFEST.
    pub path: PathBuf,
    /// Number of bytes dropped from its end.
    pub bytes: u64,
}

/// A log file and its contents.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    pub number: u64,
    pub path: PathBuf,
    pub bytes: u64,
    pub contents: Contents,
}

/// The changes to make before RocksDB opens the database.
#[derive(Debug, Default)]
pub(crate) struct RecoveryPlan {
    /// The logs whose torn ends are cut off. Not only the newest: one that was begun after an unsynced write
    /// may be blank.
    cut: Vec<Log>,
    /// Logs that hold nothing acknowledged and do not continue the ones before them.
    set_aside: Vec<Log>,
    /// The MANIFEST whose torn end is cut off.
    manifest: Option<TornManifest>,
}

/// A MANIFEST with a torn end.
#[derive(Debug)]
pub(crate) struct TornManifest {
    pub path: PathBuf,
    /// Bytes up to the torn end.
    pub sound: u64,
    /// All its bytes.
    bytes: u64,
}

/// Up to where the logs were flushed to tables, as the MANIFEST records it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlushState {
    /// Number of the oldest log that is still needed.
    pub oldest_log: u64,
    /// The newest sequence number.
    pub sequence: u64,
}

/// Reads the logs of the database in `dir`.
pub(crate) fn read_logs(dir: &Path) -> Result<Vec<Log>> {
    let mut logs = Vec::new();
    for (number, path) in watermark::logs(&dir.join(DATABASE))? {
        let bytes = fs::read(&path).map_err(|e| Error::io(format!("reading {}", path.display()), e))?;
        let contents = wal::read(&bytes, |_| {});
        logs.push(Log { number, path, bytes: bytes.len() as u64, contents });
    }
    Ok(logs)
}

/// Determines what may be dropped, or why the store must not be opened. Changes nothing. `query` asks RocksDB
/// for the flush state that the MANIFEST records.
pub(crate) fn plan(
    dir: &Path,
    query: impl FnOnce(&[Log], Option<&TornManifest>) -> Result<FlushState>,
) -> Result<RecoveryPlan> {
    let mark = watermark::read(dir)?;
    let mut plan = RecoveryPlan { manifest: torn_manifest(dir, mark)?, ..RecoveryPlan::default() };
    let mut logs = read_logs(dir)?;
    check_against_mark(dir, &logs, mark)?;
    if plan.manifest.is_some() || mismatch(&logs).is_some() {
        let flushed = query(&logs, plan.manifest.as_ref())?;
        logs.retain(|log| log.number >= flushed.oldest_log);
        let first = logs.iter().find_map(|log| Some((log.number, log.contents.first?)));
        if let (Some(manifest), Some((number, first))) = (&plan.manifest, first) {
            // Logs are removed from the oldest on, so where the oldest log that is needed is present, none is
            // missing. The sequence number is no sign of one: what is deleted before it is flushed leaves no
            // trace in tables.
            let is_oldest = number == flushed.oldest_log;
            if !is_oldest && first > flushed.sequence.saturating_add(1) {
                return Err(Error::Incomplete {
                    dir: dir.to_owned(),
                    path: manifest.path.clone(),
                    reason: "it is damaged, and the logs that its lost part refers to are missing",
                });
            }
        }
    }
    if let Some(mismatch) = mismatch(&logs) {
        let at = match mismatch {
            Mismatch::Damage(at) => {
                return Err(damaged(&logs[at].path, "the write-ahead log is damaged before its end"))
            }
            Mismatch::Gap(at) => at,
        };
        // The watermark is on disk before the first group in a log is acknowledged.
        let unknown = |log: &Log| mark.is_some_and(|mark| mark.log < log.number);
        if !logs[at..].iter().all(|log| unknown(log) || log.contents.first.is_none()) {
            return Err(damaged(&logs[at].path, "write-ahead logs before this one are missing or truncated"));
        }
        plan.set_aside = logs.split_off(at);
    }
    for (at, log) in logs.iter().enumerate() {
        let is_followed = logs[at + 1..].iter().any(|later| later.contents.first.is_some());
        if log.contents.tail == Tail::Torn && log.contents.next.is_none() && is_followed {
            let bytes = watermark::read_needed(&log.path)?;
            if wal::has_lost_groups(&bytes, log.contents.sound) {
                return Err(damaged(&log.path, "the write-ahead log is damaged at its beginning"));
            }
        }
    }
    // Logs after a torn end, if they hold anything, continue where its sound part ends.
    logs.retain(|log| log.contents.tail == Tail::Torn && log.contents.sound < log.bytes);
    plan.cut = logs;
    Ok(plan)
}

impl RecoveryPlan {
    /// Whether RocksDB can read the logs as they are.
    pub(crate) fn is_empty(&self) -> bool {
        self.cut.is_empty() && self.set_aside.is_empty() && self.manifest.is_none()
    }

    /// The MANIFEST, if its torn end is to be cut off.
    pub(crate) fn manifest(&self) -> Option<&TornManifest> {
        self.manifest.as_ref()
    }

    /// The logs of `logs` that remain, and how many bytes of each.
    pub(crate) fn remaining(&self, logs: Vec<Log>) -> Vec<(PathBuf, u64)> {
        let set_aside = |log: &Log| self.set_aside.iter().any(|other| other.number == log.number);
        logs.into_iter()
            .filter(|log| !set_aside(log))
            .map(|log| {
                let cut = self.cut.iter().find(|cut| cut.number == log.number);
                (log.path, cut.map_or(log.bytes, |cut| cut.contents.sound))
            })
            .collect()
    }

    /// Applies the plan.
    pub(crate) fn apply(self, dir: &Path) -> Result<Vec<DroppedTail>> {
        let mut dropped = Vec::new();
        if !self.set_aside.is_empty() {
            let aside = dir.join(UNACKNOWLEDGED);
            directory::create(&aside)?;
            for log in self.set_aside {
                let name = log.path.file_name().unwrap_or_default();
                fs::rename(&log.path, aside.join(name))
                    .map_err(|e| Error::io(format!("moving {}", log.path.display()), e))?;
                dropped.push(DroppedTail { path: log.path, bytes: log.bytes });
            }
            directory::sync(&aside)?;
            directory::sync(&dir.join(DATABASE))?;
        }
        let logs = self.cut.into_iter().map(|log| (log.path, log.contents.sound, log.bytes));
        let manifest = self.manifest.map(|manifest| (manifest.path, manifest.sound, manifest.bytes));
        for (path, sound, bytes) in manifest.into_iter().chain(logs) {
            File::options()
                .write(true)
                .open(&path)
                .and_then(|file| {
                    file.set_len(sound)?;
                    file.sync_all()
                })
                .map_err(|e| Error::io(format!("cutting {}", path.display()), e))?;
            dropped.push(DroppedTail { path, bytes: bytes - sound });
        }
        Ok(dropped)
    }
}

/// The first inconsistency of a sequence of logs.
enum Mismatch {
    /// This one is damaged.
    Damage(usize),
    /// This one does not continue where the one before it ended.
    Gap(usize),
}

fn mismatch(logs: &[Log]) -> Option<Mismatch> {
    let mut next = None;
    for (at, log) in logs.iter().enumerate() {
        if let (Some(next), Some(first)) = (next, log.contents.first) {
            if next != first {
                return Some(Mismatch::Gap(at));
            }
        }
        next = log.contents.next.or(next);
        if log.contents.tail == Tail::Damaged {
            return Some(Mismatch::Damage(at));
        }
    }
    None
}

/// The logs must hold at least what the watermark names.
fn check_against_mark(dir: &Path, logs: &[Log], mark: Option<Mark>) -> Result<()> {
    let Some(mark) = mark else { return Ok(()) };
    let missing = |reason| {
        let path = dir.join(DATABASE).join(format!("{:06}.log", mark.log));
        Err(Error::Incomplete { dir: dir.to_owned(), path, reason })
    };
    if logs.last().is_none_or(|newest| newest.number < mark.log) {
        return missing("the newest write-ahead log is missing");
    }
    let noted = logs.iter().filter_map(|log| log.contents.note).map(|note| note.marked).max();
    if noted.is_some_and(|noted| noted > mark.revision) && !watermark::has_damaged_slot(dir)? {
        let reason = "it is older than the write-ahead logs, whose end may be missing: the file was replaced";
        return Err(Error::Incomplete { dir: dir.to_owned(), path: dir.join(WATERMARK), reason });
    }
    match logs.iter().find(|log| log.number == mark.log) {
        Some(log) if log.contents.sound < mark.log_bytes && log.contents.tail != Tail::Damaged => {
            missing("the write-ahead log was truncated")
        }
        _ => Ok(()),
    }
}

/// The MANIFEST if it has a torn end, which must be beyond what the watermark covers.
pub(crate) fn torn_manifest(dir: &Path, mark: Option<Mark>) -> Result<Option<TornManifest>> {
    let (number, path) = watermark::manifest(&dir.join(DATABASE))?;
    let bytes = watermark::read_needed(&path)?;
    let synced = mark.filter(|mark| mark.manifest == number).map_or(0, |mark| mark.manifest_bytes);
    let contents = wal::read_manifest(&bytes, synced);
    let reason = match mark {
        _ if contents.tail == Tail::Damaged => "it is damaged",
        Some(mark) if number < mark.manifest => "a newer MANIFEST was in use",
        Some(mark) if number == mark.manifest && contents.sound < mark.manifest_bytes => "it was truncated",
        _ => {
            let bytes = bytes.len() as u64;
            let torn = contents.tail == Tail::Torn && contents.sound < bytes;
            return Ok(torn.then_some(TornManifest { path, sound: contents.sound, bytes }));
        }
    };
    Err(Error::Incomplete { dir: dir.to_owned(), path, reason })
}

/// The error of a log that cannot be used.
pub(crate) fn damaged(log: &Path, reason: &'static str) -> Error {
    Error::Corrupt {
        key: bytes::Bytes::copy_from_slice(log.as_os_str().as_encoded_bytes()),
        revision: crate::revision::Revision::ZERO,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, Options, Transaction};

    /// Copies the files of a store as a kill would leave them, its MANIFEST with zeros behind its end, as an
    /// unsynced write may leave it; returns the log.
    fn copy_with_torn_manifest(to: &Path) -> Log {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        for n in 0..3 {
            engine.transact(Transaction::new().put(format!("key/{n}"), "value")).wait().unwrap();
        }
        for part in ["", DATABASE] {
            fs::create_dir_all(to.join(part)).unwrap();
            for entry in fs::read_dir(dir.path().join(part)).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_file() {
                    fs::copy(entry.path(), to.join(part).join(entry.file_name())).unwrap();
                }
            }
        }
        let (_, manifest) = watermark::manifest(&to.join(DATABASE)).unwrap();
        let mut bytes = fs::read(&manifest).unwrap();
        bytes.extend_from_slice(&[0; 116]);
        fs::write(&manifest, bytes).unwrap();
        read_logs(to).unwrap().into_iter().find(|log| log.contents.first.is_some()).unwrap()
    }

    #[test]
    fn a_torn_manifest_needs_the_logs_that_its_sound_part_refers_to() {
        let dir = tempfile::tempdir().unwrap();
        let log = copy_with_torn_manifest(dir.path());
        let first = log.contents.first.unwrap();
        // The sequence numbers before the log were of versions that were deleted before they were flushed.
        let flushed = |oldest_log, sequence| FlushState { oldest_log, sequence };
        for (state, is_complete) in [
            (flushed(log.number, first - 1), true),
            (flushed(log.number, 0), true),
            (flushed(log.number - 1, first - 1), true),
            (flushed(log.number - 1, first.saturating_sub(2)), first < 2),
        ] {
            let planned = plan(dir.path(), |_, manifest| {
                assert!(manifest.is_some(), "its end is torn");
                Ok(state)
            });
            assert_eq!(planned.is_ok(), is_complete, "{state:?}: {planned:?}");
        }
    }
}
