//! [`StoreBuilder`]: a new store of records that have revisions already.

use std::path::PathBuf;

use rocksdb::WriteBatch;

use crate::directory::{self, DATABASE, RESTORING};
use crate::error::{Error, Result};
use crate::layout::{meta, FORMAT_VERSION, MARKED_FORMAT_VERSION};
use crate::options::Options;
use crate::record::Record;
use crate::revision::Revision;
use crate::store::{Family, Store};
use crate::stored::{value_crc, Header, Kind, Stored};

/// Bytes that are written to RocksDB at once.
const BATCH: usize = 1 << 20;

/// Makes a new store of the newest versions of keys, with the revisions that another store gave them. What
/// was before counts as compacted: the history of the store begins at the revision at which it is finished.
///
/// The directory becomes usable with [`StoreBuilder::finish`]; until then [`crate::Engine::open`] refuses it.
///
/// ```
/// # fn main() -> Result<(), plinth_engine::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// use plinth_engine::{At, Engine, Options, Record, Revision, StoreBuilder};
///
/// let record = Record {
///     key: "key".into(),
///     value: "value".into(),
///     create_revision: Revision::new(7),
///     mod_revision: Revision::new(12),
///     version: 3,
///     expires_at_ms: None,
/// };
/// let mut builder = StoreBuilder::begin(&Options::new(dir.path()))?;
/// builder.put(&record)?;
/// builder.finish(Revision::new(20))?;
///
/// let engine = Engine::open(Options::new(dir.path()))?;
/// assert_eq!(engine.get(b"key", At::Latest)?, Some(record));
/// assert_eq!(engine.current_revision(), Revision::new(20));
/// # Ok(())
/// # }
/// ```
pub struct StoreBuilder {
    store: Store,
    dir: PathBuf,
    mark: Option<u64>,
    batch: WriteBatch,
    /// The greatest revision of a record.
    newest: Revision,
}

impl StoreBuilder {
    /// Begins a store in the directory of the options, which is absent, empty, or what a restore or builder
    /// left that was not finished. It gets the mark of the options.
    ///
    /// # Errors
    /// When the directory holds something else, is in use, or cannot be written.
    pub fn begin(options: &Options) -> Result<StoreBuilder> {
        let store = Store::begin_restore(options)?;
        let mark = options.mark.filter(|mark| *mark != 0);
        let dir = options.dir.clone();
        Ok(StoreBuilder { store, dir, mark, batch: WriteBatch::default(), newest: Revision::ZERO })
    }

    /// Adds a key. Of several records of a key the last one counts.
    ///
    /// # Errors
    /// [`Error::InvalidTransaction`] for revisions or a version that no store gives, and for a deadline;
    /// errors of the write.
    pub fn put(&mut self, record: &Record) -> Result<()> {
        let invalid = |reason| Err(Error::InvalidTransaction { reason });
        let Record { create_revision, mod_revision, version, .. } = *record;
        if !create_revision.is_set() || create_revision > mod_revision || !mod_revision.is_plausible() {
            return invalid("the revisions of a record are out of range");
        }
        if version == 0 {
            return invalid("the version of a record is zero");
        }
        if record.expires_at_ms.is_some() {
            return invalid("a record with a deadline cannot be imported");
        }
        let header = Header { kind: Kind::Put, mod_revision, create_revision, version, deadline_ms: 0 };
        let stored = Stored::seal(&record.key, header, record.value.clone(), value_crc(&record.value));
        let mut bytes = Vec::with_capacity(header.len() + record.value.len());
        stored.encode_into(&mut bytes);
        self.batch.put_cf(self.store.family(Family::Current), &record.key, bytes);
        self.newest = self.newest.max(mod_revision);
        self.write(BATCH)
    }

    /// Sets a number of the application, as [`crate::Transaction::set_number`] does.
    ///
    /// # Errors
    /// Errors of the write.
    pub fn set_number(&mut self, name: &[u8], number: u64) -> Result<()> {
        let name = [meta::APPLICATION, name].concat();
        self.store.put_number(&mut self.batch, &name, number);
        self.write(BATCH)
    }

    /// Writes what is collected if it is more than so many bytes.
    fn write(&mut self, most: usize) -> Result<()> {
        if self.batch.size_in_bytes() <= most {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        self.store.db().write_without_wal(batch).map_err(Error::from_write)
    }

    /// Makes the store usable; it continues after `revision`.
    ///
    /// # Errors
    /// [`Error::InvalidTransaction`] for a revision below that of a record, or one that leaves no room for
    /// more; errors of the write.
    pub fn finish(mut self, revision: Revision) -> Result<()> {
        if revision < self.newest || revision > Revision::HIGHEST_RESTORED {
            return Err(Error::InvalidTransaction { reason: "the revision of the store is out of range" });
        }
        for name in [meta::FLOOR, meta::SWEPT, meta::RESERVED] {
            self.store.put_number(&mut self.batch, name, revision.get());
        }
        let format = if self.mark.is_some() { MARKED_FORMAT_VERSION } else { FORMAT_VERSION };
        self.store.put_number(&mut self.batch, meta::FORMAT, format.into());
        if let Some(mark) = self.mark {
            self.store.put_number(&mut self.batch, meta::MARK, mark);
        }
        self.write(0)?;
        let _lock = self.store.end_restore()?;
        directory::rename(&self.dir.join(RESTORING), &self.dir.join(DATABASE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{At, Engine, KeyRange, Subscribe, Transaction};

    fn record(key: &str, create: u64, modified: u64, version: u64) -> Record {
        Record {
            key: key.to_owned().into(),
            value: format!("value of {key}").into(),
            create_revision: Revision::new(create),
            mod_revision: Revision::new(modified),
            version,
            expires_at_ms: None,
        }
    }

    #[test]
    fn a_built_store_has_the_records_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let options = || Options::new(dir.path()).mark("etcd");
        let records = [record("a", 5, 9, 3), record("b", 1_000_000, 1_000_000, 1), record("c\0", 2, 2, 1)];
        let mut builder = StoreBuilder::begin(&options()).unwrap();
        assert!(Engine::open(options()).is_err(), "it is not finished");
        records.iter().for_each(|record| builder.put(record).unwrap());
        builder.set_number(b"lease", 60).unwrap();
        builder.finish(Revision::new(1_000_005)).unwrap();

        let engine = Engine::open(options()).unwrap();
        for record in &records {
            assert_eq!(engine.get(&record.key, At::Latest).unwrap().as_ref(), Some(record));
        }
        assert_eq!(engine.numbers(b"lease", b"lease", 9).unwrap(), [("lease".into(), 60)]);
        let after = |revision| Subscribe::new(KeyRange::all()).after(Revision::new(revision));
        assert!(matches!(engine.subscribe(after(1_000_004)), Err(Error::Compacted { .. })));
        let mut feed = engine.subscribe(after(1_000_005)).unwrap();
        let put = engine.transact(Transaction::new().put("a", "next").delete("b")).wait().unwrap();
        assert_eq!(put.revision.get(), 1_000_006);
        let Some(crate::Feed::Events(events)) = feed.try_next().unwrap() else { panic!("no events") };
        assert_eq!(events[0].previous.as_ref().unwrap().mod_revision, Revision::new(9));
        let changed = engine.get(b"a", At::Latest).unwrap().unwrap();
        assert_eq!((changed.create_revision.get(), changed.version), (5, 4));
        assert_eq!(engine.get(b"a", At::Exact(Revision::new(1_000_005))).unwrap().unwrap(), records[0]);
        engine.close().unwrap();
        drop(engine);
        assert_eq!(crate::verify(dir.path(), |_| {}, |finding| panic!("{finding}")).unwrap().findings, 0);
        assert!(matches!(Engine::open(Options::new(dir.path()).mark("")), Err(Error::Mark { .. })));
        assert!(StoreBuilder::begin(&options()).is_err(), "there is a store");
    }

    #[test]
    fn what_no_store_gives_is_refused_and_an_unfinished_store_is_begun_again() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new(dir.path());
        let mut builder = StoreBuilder::begin(&options).unwrap();
        for (create, modified, version) in [(0, 1, 1), (3, 2, 1), (1, u64::MAX, 1), (1, 1, 0)] {
            let put = builder.put(&record("a", create, modified, version));
            assert!(matches!(put, Err(Error::InvalidTransaction { .. })), "{create} {modified} {version}");
        }
        let expiring = Record { expires_at_ms: Some(1), ..record("a", 1, 1, 1) };
        assert!(matches!(builder.put(&expiring), Err(Error::InvalidTransaction { .. })));
        builder.put(&record("a", 1, 9, 1)).unwrap();
        assert!(matches!(builder.finish(Revision::new(8)), Err(Error::InvalidTransaction { .. })));
        let mut builder = StoreBuilder::begin(&options).unwrap();
        builder.put(&record("b", 1, 1, 1)).unwrap();
        builder.finish(Revision::new(1)).unwrap();
        let engine = Engine::open(options).unwrap();
        assert!(engine.get(b"a", At::Latest).unwrap().is_none());
        assert!(engine.get(b"b", At::Latest).unwrap().is_some());
        engine.close().unwrap();
    }
}
