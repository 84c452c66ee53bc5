//! Verification: reads the whole store and reports damage.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rocksdb::ReadOptions;

use crate::archive::{check_entry, pinned_revision, Progress};
use crate::error::{Error, Result};
use crate::layout::{self, meta};
use crate::log::{decode_entry, LogEntry};
use crate::options::Options;
use crate::read;
use crate::record;
use crate::revision::Revision;
use crate::store::{Cursor, Family, Pinned, Store};
use crate::stored::{self, Kind};
use crate::tables;
use crate::watermark;

/// Damage or an inconsistency in the stored data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The key concerned, if known.
    pub key: Option<Bytes>,
    /// The revision concerned, if known.
    pub revision: Option<Revision>,
    /// What is wrong.
    pub reason: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.key {
            Some(key) => write!(f, "key {}", record::printable(key))?,
            None => write!(f, "no key")?,
        }
        match self.revision {
            Some(revision) => write!(f, ", revision {revision}: {}", self.reason),
            None => write!(f, ", no revision: {}", self.reason),
        }
    }
}

/// The outcome of a verification.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Entries of all column families.
    pub entries: u64,
    /// Number of findings.
    pub findings: u64,
    /// Newest revision, as far as it could be read.
    pub revision: Revision,
}

/// Checks the data directory `dir`, which must not be open: every checksum of every record and block, and
/// that log, versions and expiry entries are consistent. Changes nothing. Calls `finding` for each finding
/// and `progress` now and then.
///
/// # Errors
/// [`Error::Locked`], [`Error::Foreign`], [`Error::FormatVersion`] or [`Error::Io`] when the directory cannot
/// be read. Damage is not an error but a finding.
pub fn verify(
    dir: impl AsRef<Path>,
    mut progress: impl FnMut(Progress),
    mut finding: impl FnMut(Finding),
) -> Result<VerifyReport> {
    let mut verified = VerifyReport::default();
    let mut count = |found: Finding| {
        verified.findings += 1;
        finding(found);
    };
    let store = match Store::open_read_only(&Options::new(dir.as_ref())) {
        Ok(store) => Arc::new(store),
        Err(error @ (Error::Rocks { .. } | Error::Corrupt { .. })) => {
            count(Finding {
                key: None,
                revision: None,
                reason: format!("the database cannot be opened: {error}"),
            });
            return Ok(verified);
        }
        Err(error) => return Err(error),
    };
    let total = crate::stats::families(&store).iter().map(|family| family.keys).sum();
    let mut check = Check {
        pinned: store.pin(),
        floor: Revision::ZERO,
        latest: Revision::ZERO,
        finding: &mut count,
        progress: &mut progress,
        done: Progress { done: 0, total },
        reported: HashSet::new(),
    };
    check.run(&store);
    match watermark::check(dir.as_ref(), check.latest) {
        Ok(()) => {}
        Err(error @ Error::LostCommits { .. }) => check.report(error),
        Err(error) => return Err(error),
    }
    let (entries, revision) = (check.done.done, check.latest);
    verified.entries = entries;
    verified.revision = revision;
    Ok(verified)
}

struct Check<'a> {
    pinned: Pinned,
    floor: Revision,
    latest: Revision,
    finding: &'a mut dyn FnMut(Finding),
    progress: &'a mut dyn FnMut(Progress),
    done: Progress,
    /// RocksDB's errors that were reported: every read of a damaged block returns the same one.
    reported: HashSet<String>,
}

/// Maximum size of `Check::reported`; beyond it errors are reported every time.
const MAX_REPORTED: usize = 10_000;

/// Entries between two calls of the progress function.
const PROGRESS_STEP: u64 = 4096;

impl Check<'_> {
    fn run(&mut self, store: &Store) {
        if let Err(reason) = tables::check(store.db()) {
            self.reported.insert(reason.clone());
            (self.finding)(Finding { key: None, revision: None, reason: format!("table files: {reason}") });
        }
        match self.pinned.revision(meta::FLOOR) {
            Ok(floor) => self.floor = floor,
            Err(error) => self.report(error),
        }
        match pinned_revision(&self.pinned) {
            Ok(latest) => self.latest = latest,
            Err(error) => {
                self.report(error);
                // Unknown: no revision is beyond it.
                self.latest = Revision::new(u64::MAX);
            }
        }
        for family in Family::ALL {
            self.family(family);
        }
        (self.progress)(Progress { done: self.done.done, total: self.done.done });
    }

    /// Reads a column family to its end, or to the first damaged block, which ends the cursor. RocksDB's
    /// checksums are always verified: in a damaged block it would trust lengths and allocate accordingly. The
    /// blocks after that one were verified with the tables.
    fn family(&mut self, family: Family) {
        let mut last_revision = None;
        let mut read = ReadOptions::default();
        read.fill_cache(false);
        read.set_verify_checksums(true);
        let mut cursor = self.pinned.cursor(family, read);
        cursor.seek_to_first();
        if let Err(error) = self.scan(family, &mut cursor, &mut last_revision) {
            self.report_block(family, error);
        }
    }

    /// Checks entries to the end; the error when the cursor fails.
    fn scan(
        &mut self,
        family: Family,
        cursor: &mut Cursor,
        last_revision: &mut Option<Revision>,
    ) -> Result<(), rocksdb::Error> {
        while let Some((key, value)) = cursor.item() {
            let checked = check_entry(family, key, value)
                .and_then(|()| self.cross_check(family, key, value, last_revision));
            if let Err(error) = checked {
                self.report(error);
            }
            self.done.done += 1;
            if self.done.done.is_multiple_of(PROGRESS_STEP) {
                (self.progress)(self.done);
            }
            cursor.next();
        }
        cursor.status()
    }

    /// Checks an entry, which is valid by itself, against other entries.
    fn cross_check(
        &mut self,
        family: Family,
        key: &[u8],
        value: &[u8],
        last_revision: &mut Option<Revision>,
    ) -> Result<()> {
        match family {
            Family::Current => self.check_current(key, value),
            Family::History => self.check_history(key),
            Family::Log => {
                let entry = decode_entry(key, value)?;
                let after = last_revision.replace(entry.revision);
                self.check_log(entry, after)
            }
            Family::Expiry => self.check_expiry(key, value),
            Family::Meta => Ok(()),
        }
    }

    fn check_current(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (header, _) = stored::check(key, value)?;
        let corrupt = |reason| Err(corrupt_record(key, header.mod_revision, reason));
        if header.mod_revision > self.latest {
            return corrupt("the record is newer than the log");
        }
        // Point reads take another path than scans, through filters and index.
        if self.pinned.get(Family::Current, key)?.is_none_or(|found| *found != *value) {
            return corrupt("the record is found by scanning, but not by its key");
        }
        if let Some(deadline) = header.expires_at_ms() {
            if self.pinned.get(Family::Expiry, &layout::expiry_key(deadline, key))?.is_none() {
                return corrupt("the record has a deadline and no expiry entry");
            }
        }
        if header.mod_revision > self.floor {
            let log_key = layout::log_key(header.mod_revision);
            let logged = match self.pinned.get(Family::Log, &log_key)? {
                Some(bytes) => decode_entry(&log_key, &bytes)?.operations.iter().any(|o| o.key == key),
                None => false,
            };
            if !logged {
                return corrupt("the log has no entry for the record");
            }
        }
        Ok(())
    }

    fn check_history(&self, history_key: &[u8]) -> Result<()> {
        let Some((key, revision)) = layout::parse_history_key(history_key) else { return Ok(()) };
        let newest = match self.pinned.get(Family::Current, &key)? {
            Some(bytes) => stored::check(&key, &bytes)?.0.mod_revision,
            None => Revision::ZERO,
        };
        if newest <= revision {
            return Err(corrupt_record(
                &key,
                revision,
                "the record is stored as superseded and is the newest",
            ));
        }
        Ok(())
    }

    fn check_log(&self, entry: LogEntry, after: Option<Revision>) -> Result<()> {
        if entry.revision <= self.floor {
            return Ok(());
        }
        // Relaxed transactions leave gaps in the log, a restore only below the floor.
        let is_dense = self.pinned.revision(meta::RESERVED)? <= self.floor;
        if is_dense && after.is_some_and(|after| after >= self.floor && after.next() != entry.revision) {
            return Err(corrupt_record(b"", entry.revision, "the log has a gap before this revision"));
        }
        for operation in entry.operations {
            let Some(version) = read::version(&self.pinned, &operation.key, entry.revision)? else {
                return Err(corrupt_record(
                    &operation.key,
                    entry.revision,
                    "the log names a version that is missing",
                ));
            };
            let header = version.header;
            if header.kind != operation.kind
                || header.version != operation.version
                || header.create_revision != operation.create_revision
            {
                return Err(corrupt_record(
                    &operation.key,
                    entry.revision,
                    "the log entry does not match the record",
                ));
            }
            let superseded = operation.superseded;
            if superseded.is_set() && read::version(&self.pinned, &operation.key, superseded)?.is_none() {
                return Err(corrupt_record(&operation.key, superseded, "a superseded version is missing"));
            }
        }
        Ok(())
    }

    fn check_expiry(&self, expiry_key: &[u8], value: &[u8]) -> Result<()> {
        let Some((deadline, key)) = layout::parse_expiry_key(expiry_key) else { return Ok(()) };
        let revision = layout::decode_expiry(expiry_key, value).unwrap_or(Revision::ZERO);
        let agrees = match self.pinned.get(Family::Current, key)? {
            Some(bytes) => {
                let (header, _) = stored::check(key, &bytes)?;
                header.kind == Kind::PutExpiring
                    && header.deadline_ms == deadline
                    && header.mod_revision == revision
            }
            None => false,
        };
        if agrees {
            Ok(())
        } else {
            Err(corrupt_record(key, revision, "the expiry entry does not match the record"))
        }
    }

    fn report(&mut self, error: Error) {
        let found = match error {
            Error::Corrupt { key, revision, reason } => Finding {
                key: Some(key),
                revision: revision.is_set().then_some(revision),
                reason: reason.to_owned(),
            },
            Error::Rocks { source } if self.was_reported(source.as_ref()) => return,
            other => Finding { key: None, revision: None, reason: other.to_string() },
        };
        (self.finding)(found);
    }

    /// Whether this RocksDB error was reported before; records it.
    fn was_reported(&mut self, message: &str) -> bool {
        self.reported.contains(message)
            || self.reported.len() < MAX_REPORTED && !self.reported.insert(message.to_owned())
    }

    fn report_block(&mut self, family: Family, error: rocksdb::Error) {
        if self.was_reported(error.as_ref()) {
            return;
        }
        let reason = format!("column family {}: {error}", family.name());
        (self.finding)(Finding { key: None, revision: None, reason });
    }
}

fn corrupt_record(key: &[u8], revision: Revision, reason: &'static str) -> Error {
    Error::Corrupt { key: Bytes::copy_from_slice(key), revision, reason }
}
