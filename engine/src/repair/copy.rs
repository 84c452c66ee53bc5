//! What a repair keeps: the newest sound version of each key.
//!
//! The column family `current` has one entry for each key, also for a deleted one. Where it can be read, that entry alone counts: an older
//! version of a key that is not there is one of a key that was deleted. Where it cannot, there are point reads, which see
//! newer tables although an older one is damaged; then history; and the change log names keys and what happened to them last.

use std::collections::{BTreeMap, BTreeSet};

use rocksdb::{WriteBatch, DB};

use super::salvage::{self, Gap, Reader};
use super::Repaired;
use crate::archive::Progress;
use crate::compact::decode_entry;
use crate::error::{Error, Result};
use crate::layout::{self, meta, FORMAT_VERSION};
use crate::record::{self, Header, Kind};
use crate::revision::Revision;
use crate::store::Family;

/// Bytes of a batch of repaired entries.
const BATCH: usize = 1 << 20;

/// Copies the newest sound version of each key.
pub(super) struct Copy<'a> {
    /// None when nothing is to be written.
    pub new: Option<&'a DB>,
    pub batch: WriteBatch,
    pub repaired: &'a mut Repaired,
    /// The highest revision that was met.
    pub highest: Revision,
    pub progress: &'a mut dyn FnMut(Progress),
    pub note: &'a mut dyn FnMut(String),
}

/// A version of a key.
type Version = (Header, Vec<u8>);

/// The keys of which `current` does not show a sound version.
struct Damaged {
    keys: BTreeSet<Vec<u8>>,
    gaps: Vec<Gap>,
}

impl Damaged {
    fn contains(&self, key: &[u8]) -> bool {
        self.keys.contains(key) || self.gaps.iter().any(|gap| gap.contains(key))
    }
}

impl Copy<'_> {
    /// Copies from `old`.
    pub(super) fn run(&mut self, old: &DB) -> Result<()> {
        let damaged = self.newest(old)?;
        self.repaired.gaps = damaged.gaps.len() as u64;
        if damaged.gaps.is_empty() && damaged.keys.is_empty() {
            return Ok(());
        }
        let mut named = self.logged(old, &damaged)?;
        self.older(old, &damaged, &mut named)?;
        for (key, deleted) in named {
            self.rescue(old, key, None, deleted)?;
        }
        Ok(())
    }

    /// Copies what `current` shows; answers what it does not.
    fn newest(&mut self, old: &DB) -> Result<Damaged> {
        let mut current = Reader::new(old, Family::Current)?;
        let mut keys = BTreeSet::new();
        let mut done = 0;
        while let Some((key, value)) = current.item() {
            match record::check(key, value) {
                Ok((header, _)) => self.keep(key, header, value)?,
                Err(_) => {
                    keys.insert(key.to_vec());
                }
            }
            current.next();
            done += 1;
            if done % 4096 == 0 {
                (self.progress)(Progress { done, total: 0 });
            }
        }
        for gap in current.gaps() {
            let before = gap.before.as_ref().map(|key| record::printable(key).to_string());
            (self.note)(format!(
                "blocks of tables are damaged: nothing can be read behind key {} and before {}",
                record::printable(&gap.after),
                before.map_or_else(|| "the end".to_owned(), |key| format!("key {key}"))
            ));
        }
        Ok(Damaged { keys, gaps: current.gaps().to_vec() })
    }

    /// The damaged keys that the change log names, and whether they were deleted at last.
    fn logged(&self, old: &DB, damaged: &Damaged) -> Result<BTreeMap<Vec<u8>, bool>> {
        let mut log = Reader::new(old, Family::Log)?;
        let mut named: BTreeMap<Vec<u8>, bool> =
            damaged.keys.iter().map(|key| (key.clone(), false)).collect();
        while let Some((key, value)) = log.item() {
            if let Ok(entry) = decode_entry(key, value) {
                for operation in entry.operations.iter().filter(|operation| damaged.contains(&operation.key))
                {
                    named.insert(operation.key.to_vec(), operation.kind == Kind::Tombstone);
                }
            }
            log.next();
        }
        Ok(named)
    }

    /// Looks for the newest sound version of each damaged key in history; keys that have one are taken from `named`.
    fn older(&mut self, old: &DB, damaged: &Damaged, named: &mut BTreeMap<Vec<u8>, bool>) -> Result<()> {
        let mut history = Reader::new(old, Family::History)?;
        // The versions of a key follow each other, newest first.
        let mut present: Option<(Vec<u8>, Version)> = None;
        while let Some((history_key, value)) = history.item() {
            let parsed = layout::parse_history_key(history_key);
            let found = parsed.filter(|(key, _)| damaged.contains(key)).and_then(|(key, _)| {
                let (header, _) = record::check(&key, value).ok()?;
                Some((key, (header, value.to_vec())))
            });
            history.next();
            let Some((key, version)) = found else { continue };
            self.highest = self.highest.max(version.0.mod_revision);
            if present.as_ref().is_some_and(|(other, _)| *other == key) {
                continue;
            }
            if let Some((key, version)) = present.replace((key, version)) {
                let deleted = named.remove(&key).unwrap_or(false);
                self.rescue(old, key, Some(version), deleted)?;
            }
        }
        if let Some((key, version)) = present {
            let deleted = named.remove(&key).unwrap_or(false);
            self.rescue(old, key, Some(version), deleted)?;
        }
        Ok(())
    }

    /// Keeps what there is of a key that `current` does not show: the newest version where a point read finds it, else `older`.
    fn rescue(&mut self, old: &DB, key: Vec<u8>, older: Option<Version>, deleted: bool) -> Result<()> {
        let current = salvage::handle(old, Family::Current)?;
        match old.get_cf_opt(current, &key, &salvage::read_options()) {
            // It is not there: it was deleted.
            Ok(None) => return Ok(()),
            Ok(Some(value)) => {
                if let Ok((header, _)) = record::check(&key, &value) {
                    return self.keep(&key, header, &value);
                }
            }
            Err(_) => {}
        }
        if deleted {
            return Ok(());
        }
        match older {
            // What came after a deletion is not known.
            Some((header, value)) if header.kind != Kind::Tombstone => {
                self.repaired.reverted += 1;
                let revision = header.mod_revision;
                (self.note)(format!(
                    "key {}: the version of revision {revision} stays",
                    record::printable(&key)
                ));
                self.keep(&key, header, &value)
            }
            _ => {
                self.repaired.lost += 1;
                (self.note)(format!("key {}: no version of it can be read", record::printable(&key)));
                Ok(())
            }
        }
    }

    fn keep(&mut self, key: &[u8], header: Header, value: &[u8]) -> Result<()> {
        self.highest = self.highest.max(header.mod_revision);
        // Nothing below the store's new revision can be read, so nobody misses a tombstone.
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

    /// Writes the numbers of the store itself, and everything to disk.
    pub(super) fn finish(&mut self, revision: Revision) -> Result<()> {
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
        crate::store::flush(new)
    }
}
