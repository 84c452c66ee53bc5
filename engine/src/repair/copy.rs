//! Copies what a repair keeps: the newest sound version of each key.
//!
//! The column family `current` has one entry for each key, also for a deleted one. Where it can be read, that
//! entry alone counts: an older version of a key without an entry belongs to a deleted key. Where it cannot,
//! the sources are point reads, which see newer tables although an older one is damaged; the sound tables;
//! then history; and the log, which names keys and their last changes.

use std::collections::{BTreeMap, BTreeSet};

use rocksdb::{WriteBatch, DB};

use super::salvage::{self, Gap, Reader};
use super::RepairReport;
use crate::archive::Progress;
use crate::error::{Error, Result};
use crate::layout::{self, meta, FORMAT_VERSION};
use crate::log::decode_entry;
use crate::record;
use crate::revision::Revision;
use crate::store::Family;
use crate::stored::{self, Header, Kind};

/// Bytes of a batch of repaired entries.
const BATCH: usize = 1 << 20;

/// Copies the newest sound version of each key.
pub(super) struct KeyCopier<'a> {
    /// None in a dry run.
    pub new: Option<&'a DB>,
    pub batch: WriteBatch,
    pub repaired: &'a mut RepairReport,
    /// The last changes of keys in dropped logs. Keys that were processed are removed.
    pub dropped: BTreeMap<Vec<u8>, LastChange>,
    /// The last revision without an entry in the log.
    pub last_unlogged: Revision,
    /// The highest revision found.
    pub highest: Revision,
    /// Number of keys processed.
    pub done: u64,
    pub progress: &'a mut dyn FnMut(Progress),
    pub note: &'a mut dyn FnMut(String),
}

/// A version of a key.
type Version = (Header, Vec<u8>);

/// The keys without a sound version in `current`.
struct Damaged {
    keys: BTreeSet<Vec<u8>>,
    gaps: Vec<Gap>,
}

impl Damaged {
    fn contains(&self, key: &[u8]) -> bool {
        // The gaps do not overlap, and go up.
        let at = self
            .gaps
            .partition_point(|gap| gap.before.as_ref().is_some_and(|before| before.as_slice() <= key));
        self.gaps.get(at).is_some_and(|gap| gap.contains(key)) || self.keys.contains(key)
    }
}

/// The last change of a key according to the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastChange {
    pub revision: Revision,
    pub is_deleted: bool,
}

/// The newest sound version of each damaged key in a column family, in the order of keys.
struct DamagedVersions<'a> {
    reader: Reader<'a>,
    family: Family,
    damaged: &'a Damaged,
    present: Option<(Vec<u8>, Version)>,
}

impl<'a> DamagedVersions<'a> {
    fn new(db: &'a DB, family: Family, damaged: &'a Damaged) -> Result<DamagedVersions<'a>> {
        let reader = Reader::new(db, family)?;
        let mut versions = DamagedVersions { reader, family, damaged, present: None };
        versions.advance();
        Ok(versions)
    }

    fn key(&self) -> Option<&Vec<u8>> {
        self.present.as_ref().map(|(key, _)| key)
    }

    /// Takes the version if it is that of `key`.
    fn take(&mut self, key: &[u8]) -> Option<Version> {
        if self.key().is_none_or(|present| present != key) {
            return None;
        }
        let taken = self.present.take().map(|(_, version)| version);
        self.advance();
        // Older versions of the key follow.
        while self.key().is_some_and(|present| present == key) {
            self.advance();
        }
        taken
    }

    fn advance(&mut self) {
        self.present = None;
        while let (None, Some((stored, value))) = (&self.present, self.reader.item()) {
            let key = salvage::user_key(self.family, stored);
            self.present = key.filter(|key| self.damaged.contains(key)).and_then(|key| {
                let (header, _) = stored::check(&key, value).ok()?;
                Some((key, (header, value.to_vec())))
            });
            self.reader.next();
        }
    }
}

impl KeyCopier<'_> {
    /// Copies from a database whose tables can all be opened; `sound` opens those of them in which nothing is
    /// damaged.
    pub(super) fn whole<T: AsRef<DB>>(&mut self, old: &DB, sound: impl FnOnce() -> Result<T>) -> Result<()> {
        let damaged = self.newest(old)?;
        if damaged.gaps.is_empty() && damaged.keys.is_empty() {
            return Ok(());
        }
        self.repaired.gaps = damaged.gaps.len() as u64;
        self.rescue_all(Some(old), sound()?.as_ref(), &damaged)
    }

    /// Copies from what is left of a database of which tables cannot be opened.
    pub(super) fn sound_tables(&mut self, sound: &DB) -> Result<()> {
        let everything = Gap { after: Vec::new(), before: None };
        self.repaired.gaps = 1;
        self.rescue_all(None, sound, &Damaged { keys: BTreeSet::new(), gaps: vec![everything] })
    }

    /// Copies the sound versions of `current`; returns the keys that are damaged.
    fn newest(&mut self, old: &DB) -> Result<Damaged> {
        let mut current = Reader::new(old, Family::Current)?;
        let mut keys = BTreeSet::new();
        while let Some((key, value)) = current.item() {
            match stored::check(key, value) {
                Ok((header, _)) => self.keep(key, header, value)?,
                Err(_) => {
                    keys.insert(key.to_vec());
                }
            }
            current.next();
            self.progress();
        }
        for gap in current.gaps() {
            let before = gap.before.as_ref().map(|key| record::printable(key));
            (self.note)(format!(
                "blocks of tables are damaged: not everything can be read after key {} and before {}",
                record::printable(&gap.after),
                before.map_or_else(|| "the end".to_owned(), |key| format!("key {key}"))
            ));
        }
        Ok(Damaged { keys, gaps: current.gaps().to_vec() })
    }

    fn progress(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(4096) {
            (self.progress)(Progress { done: self.done, total: 0 });
        }
    }

    /// The damaged keys that the log names.
    fn logged(&self, old: &DB, damaged: &Damaged) -> Result<BTreeMap<Vec<u8>, Option<LastChange>>> {
        let mut log = Reader::new(old, Family::Log)?;
        let mut named: BTreeMap<_, _> = damaged.keys.iter().map(|key| (key.clone(), None)).collect();
        while let Some((key, value)) = log.item() {
            if let Ok(entry) = decode_entry(key, value) {
                for operation in entry.operations.iter().filter(|operation| damaged.contains(&operation.key))
                {
                    let is_deleted = operation.kind == Kind::Tombstone;
                    let logged = LastChange { revision: entry.revision, is_deleted };
                    named.insert(operation.key.to_vec(), Some(logged));
                }
            }
            log.next();
        }
        Ok(named)
    }

    /// Recovers each damaged key from sound tables, history, and `old` as far as it can be read.
    fn rescue_all(&mut self, old: Option<&DB>, sound: &DB, damaged: &Damaged) -> Result<()> {
        let readable = old.unwrap_or(sound);
        let mut named = self.logged(readable, damaged)?;
        let mut current = DamagedVersions::new(sound, Family::Current, damaged)?;
        let mut history = DamagedVersions::new(readable, Family::History, damaged)?;
        loop {
            let keys = [current.key(), history.key(), named.first_key_value().map(|(key, _)| key)];
            let Some(key) = keys.into_iter().flatten().min().cloned() else { return Ok(()) };
            let (from_tables, from_history) = (current.take(&key), history.take(&key));
            let logged = named.remove(&key).flatten();
            // Dropped changes are newer than the others. They are undone, deletions included.
            let dropped =
                self.dropped.remove(&key).map(|dropped| LastChange { is_deleted: false, ..dropped });
            let logged = dropped.or(logged);
            self.rescue(old, &key, from_tables, from_history, logged)?;
            self.progress();
        }
    }

    /// Recovers a damaged key: the newest version if a point read finds it, else the newer one of the
    /// versions in sound tables and in history.
    fn rescue(
        &mut self,
        old: Option<&DB>,
        key: &[u8],
        from_tables: Option<Version>,
        from_history: Option<Version>,
        logged: Option<LastChange>,
    ) -> Result<()> {
        if let Some(old) = old {
            match old.get_cf_opt(salvage::handle(old, Family::Current)?, key, &salvage::read_options()) {
                // Absent: it was deleted.
                Ok(None) => return Ok(()),
                Ok(Some(value)) => {
                    if let Ok((header, _)) = stored::check(key, &value) {
                        return self.keep(key, header, &value);
                    }
                }
                Err(_) => {}
            }
        }
        let is_superseded = from_history.as_ref().is_some_and(|(from_history, _)| {
            from_tables
                .as_ref()
                .is_none_or(|(from_tables, _)| from_tables.mod_revision <= from_history.mod_revision)
        });
        let best = if is_superseded { from_history } else { from_tables };
        let found = best.as_ref().map_or(Revision::ZERO, |(header, _)| header.mod_revision);
        self.highest = self.highest.max(found);
        if logged.is_some_and(|logged| logged.is_deleted && logged.revision >= found) {
            return Ok(());
        }
        let is_superseded = is_superseded || logged.is_some_and(|logged| logged.revision > found);
        match best {
            Some((header, value)) if header.kind != Kind::Tombstone => {
                if is_superseded {
                    self.repaired.reverted += 1;
                    (self.note)(format!(
                        "key {}: reverted to the version of revision {found}",
                        record::printable(key)
                    ));
                } else if logged.is_none() || found < self.last_unlogged {
                    self.repaired.uncertain += 1;
                }
                self.keep(key, header, &value)
            }
            // Deleted, as far as is known.
            Some(_) if !is_superseded => Ok(()),
            _ => {
                self.repaired.lost += 1;
                (self.note)(format!(
                    "key {}: lost, since no version of it can be read",
                    record::printable(key)
                ));
                Ok(())
            }
        }
    }

    /// Counts the keys of dropped logs that are lost. To be called when everything is copied.
    pub(super) fn count_dropped(&mut self) {
        for (key, logged) in std::mem::take(&mut self.dropped) {
            if !logged.is_deleted {
                self.repaired.lost += 1;
                (self.note)(format!(
                    "key {}: lost, since its only known revision, {}, is in a dropped log",
                    record::printable(&key),
                    logged.revision
                ));
            }
        }
    }

    fn keep(&mut self, key: &[u8], header: Header, value: &[u8]) -> Result<()> {
        let found = header.mod_revision;
        self.highest = self.highest.max(found);
        let dropped = match header.kind {
            // Created in a dropped log: lost.
            Kind::Tombstone => None,
            _ => self.dropped.remove(key).filter(|dropped| dropped.revision > found),
        };
        if let Some(dropped) = dropped {
            self.repaired.reverted += 1;
            let change = if dropped.is_deleted { "deleted" } else { "changed" };
            (self.note)(format!(
                "key {}: reverted to the version of revision {found}; it was {change} at revision {}, which is in a \
                 dropped log",
                record::printable(key),
                dropped.revision
            ));
        }
        // Nothing below the store's new revision can be read, so tombstones are not needed.
        if header.kind == Kind::Tombstone {
            return Ok(());
        }
        self.repaired.kept += 1;
        let Some(new) = self.new else { return Ok(()) };
        self.batch.put_cf(salvage::handle(new, Family::Current)?, key, value);
        if let Some(deadline) = header.expires_at_ms() {
            let expiry_key = layout::expiry_key(deadline, key);
            let value = layout::encode_expiry(&expiry_key, header.mod_revision);
            self.batch.put_cf(salvage::handle(new, Family::Expiry)?, expiry_key, value);
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

    /// Writes the metadata numbers, those of the application included, and flushes.
    pub(super) fn finish(&mut self, revision: Revision, application: &[(Vec<u8>, u64)]) -> Result<()> {
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
        for (name, number) in application {
            self.batch.put(name, layout::encode_number(name, *number));
        }
        self.write()?;
        crate::store::flush(new)
    }
}
