//! The layout version of the store's keys, and the migration from the previous one.
//!
//! Until layout 2 custom resources had keys like those of built-in kinds, `GROUP/RESOURCE/...`. So a
//! definition for `clusterrolebindings` in `rbac.authorization.k8s.io` wrote into the prefix that RBAC reads.
//! [`migrate_layout`] moves every custom resource to its [`custom_prefix`], before anything is served or
//! read.
//!
//! - *What is moved*: every value with a schema stamp, which only custom resources have, whatever its key. So
//!   objects stored among those of a built-in kind are found as well, and orphans whose definition was
//!   deleted. The number of segments of a key determines the scope.
//! - *Encrypted values* are moved without decryption, so no key or plugin is needed: they are bound to
//!   `GROUP/RESOURCE/...` in both layouts, and by the stamp in their header to being custom.
//! - *Crash safety*: an object is moved from one key to the other in one transaction, and the next start
//!   moves the rest. The first transaction marks the store as migrating; the mark is removed after the
//!   compaction.
//! - *Clients*: moved objects have a new resourceVersion. History is compacted up to the migration, so older
//!   watches and continue tokens are answered with 410 and start over; otherwise a watch would miss changes
//!   under the old keys.
//! - *Memory*: one snapshot, and batches of bounded size.

use plinth_engine::{At, Condition, Engine, Error, KeyRange, Record, Revision, Transaction};

use super::stored::Header;
use plinth_registry::{custom_prefix, key_prefix, split_key, Registry};

/// The key of the layout version. Keys of objects differ: they contain a slash.
const LAYOUT: &[u8] = b"_layout";
/// Migration in progress; history before it is not compacted yet.
const MOVING: &[u8] = b"1";
/// Custom resources have prefixes of their own.
const CURRENT: &[u8] = b"2";
/// Maximum number of objects moved per transaction, and the size in bytes after which no more are added.
const BATCH: (usize, usize) = (500, 1 << 20);
/// Maximum number of objects found among those of built-in kinds that are logged by name.
const MOST_NAMED: usize = 100;

/// Result of [`migrate_layout`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigratedLayout {
    /// Number of moved objects.
    pub objects: u64,
    /// Number of those that were stored among the objects of a built-in kind.
    pub among_builtin: u64,
}

/// Migrates the store to the current layout. To be called before anything reads or writes objects. Blocks; if
/// there is nothing to do it reads one key and one key per resource, otherwise it scans all objects once.
///
/// # Errors
/// Errors of the engine. Objects moved so far stay moved; another call continues.
pub fn migrate_layout(engine: &Engine, builtin: &Registry) -> Result<MigratedLayout, Error> {
    Migration { engine, builtin, batch: BATCH }.run()
}

struct Migration<'a> {
    engine: &'a Engine,
    builtin: &'a Registry,
    batch: (usize, usize),
}

impl Migration<'_> {
    fn run(&self) -> Result<MigratedLayout, Error> {
        let noted = self.engine.get(LAYOUT, At::Latest)?.map(|record| record.value);
        if noted.as_deref() == Some(CURRENT) && !self.has_old_keys()? {
            return Ok(MigratedLayout::default());
        }
        let mut moved = MigratedLayout::default();
        // There are no other writers, but the engine deletes expired keys: then a batch is rejected and
        // collected again.
        while !self.pass(&mut moved)? {}
        if moved.objects > 0 || noted.as_deref() == Some(MOVING) {
            self.engine.compact(self.engine.current_revision())?;
        }
        self.engine.transact(Transaction::new().put(LAYOUT, CURRENT)).wait()?;
        Ok(moved)
    }

    /// Whether an older version has written since the migration: there are keys of resources that are neither
    /// built in nor in the current layout. Reads one key per resource.
    fn has_old_keys(&self) -> Result<bool, Error> {
        let snapshot = self.engine.snapshot(At::Latest)?;
        let mut rest = KeyRange::all();
        loop {
            let mut entries = snapshot.range(&rest);
            let Some(entry) = entries.next()? else { return Ok(false) };
            let resource = match entry.key.starts_with(b"_") {
                true => b"_".as_slice(),
                false => key_prefix(entry.key).unwrap_or(entry.key),
            };
            if destination(entry.key, entry.value).is_some() && self.builtin.of_key(entry.key).is_none() {
                return Ok(true);
            }
            match KeyRange::prefix(resource.to_vec()).end() {
                Some(end) => rest = KeyRange::from(end.clone()),
                None => return Ok(false),
            }
        }
    }

    /// Moves all objects found; false when a concurrent change rejected a batch.
    fn pass(&self, moved: &mut MigratedLayout) -> Result<bool, Error> {
        let snapshot = self.engine.snapshot(At::Latest)?;
        let mut entries = snapshot.range(&KeyRange::all());
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut is_whole = true;
        while let Some(entry) = entries.next()? {
            let Some(to) = destination(entry.key, entry.value) else { continue };
            bytes += entry.key.len() + to.len() + entry.value.len();
            batch.push((entry.to_record(), to));
            if batch.len() >= self.batch.0 || bytes >= self.batch.1 {
                is_whole &= self.commit(std::mem::take(&mut batch), moved)?;
                bytes = 0;
            }
        }
        Ok(self.commit(batch, moved)? && is_whole)
    }

    fn commit(&self, batch: Vec<(Record, Vec<u8>)>, moved: &mut MigratedLayout) -> Result<bool, Error> {
        if batch.is_empty() {
            return Ok(true);
        }
        let mut transaction = Transaction::new().put(LAYOUT, MOVING);
        for (record, to) in &batch {
            let Record { key, value, mod_revision, .. } = record.clone();
            transaction =
                transaction.require(Condition::ModRevision { key: key.clone(), revision: mod_revision });
            // Both exist only if an older version wrote after a newer one; the last write wins.
            if self.present(to)?.is_none_or(|present| present < mod_revision) {
                transaction = transaction.put(to.clone(), value);
            }
            transaction = transaction.delete(key);
        }
        match self.engine.transact(transaction).wait() {
            Ok(_) => {}
            Err(Error::Conflict { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        for (record, _) in &batch {
            moved.objects += 1;
            if let Some(resource) = self.builtin.of_key(&record.key) {
                moved.among_builtin += 1;
                if moved.among_builtin <= MOST_NAMED as u64 {
                    let form = resource.storage.as_ref();
                    let names = form.and_then(|f| split_key(&f.prefix, resource.row.namespaced, &record.key));
                    let (namespace, name) = names.unwrap_or_default();
                    tracing::warn!(
                        group = resource.group(),
                        resource = resource.plural(),
                        namespace,
                        name,
                        "a custom resource was stored as an object of a built-in kind and was moved; until now it took effect as \
                         such an object: check who made it"
                    );
                }
            }
        }
        Ok(true)
    }

    fn present(&self, key: &[u8]) -> Result<Option<Revision>, Error> {
        Ok(self.engine.get(key, At::Latest)?.map(|record| record.mod_revision))
    }
}

/// The key of a custom resource in the current layout; `None` if it needs no move.
fn destination(old: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    if old.starts_with(b"_") || Header::parse(value).ok()?.schema().is_empty() {
        return None;
    }
    let (group, rest) = std::str::from_utf8(old).ok()?.split_once('/')?;
    let (resource, rest) = rest.split_once('/')?;
    // Segments were not escaped, and those of stored objects need no escaping.
    let prefix = custom_prefix(group, resource, rest.contains('/'));
    Some([prefix.as_bytes(), rest.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use plinth_engine::{Options, Subscribe};

    use super::*;
    use crate::stored::HeaderFields;

    fn value(name: &str, schema: &str) -> Bytes {
        let metadata = format!(r#"{{"name":"{name}"}}"#);
        let body = format!(r#"{{"metadata":{metadata},"spec":{{}}}}"#);
        HeaderFields { version: "v1", uid: name, schema, ..HeaderFields::default() }
            .encode(metadata.len(), body.as_bytes())
    }

    fn custom(name: &str) -> Bytes {
        value(name, "0123456789abcdef")
    }

    /// A store as layout 1 has it: key, value, and the key of layout 2.
    fn old() -> Vec<(String, Bytes, String)> {
        let row = |from: &str, to: &str, value: Bytes| (from.to_owned(), value, to.to_owned());
        let same = |key: &str, value: Bytes| row(key, key, value);
        let mut rows = vec![
            same("core/pods/n/web", value("web", "")),
            same("rbac.authorization.k8s.io/clusterrolebindings/good", value("good", "")),
            row(
                "rbac.authorization.k8s.io/clusterrolebindings/evil",
                "_custom/cluster/rbac.authorization.k8s.io/clusterrolebindings/evil",
                custom("evil"),
            ),
            row("example.com/cars/n/a", "_custom/namespaced/example.com/cars/n/a", custom("a")),
            row("example.com/planets/mars", "_custom/cluster/example.com/planets/mars", custom("mars")),
            // Unreadable values are not moved.
            same("example.com/cars/n/damaged", Bytes::from_static(b"\x07")),
            same("of.another.kind/objects/n/x", value("x", "")),
        ];
        for n in 0..20 {
            let (from, to) =
                (format!("example.com/boats/n/b{n}"), format!("_custom/namespaced/example.com/boats/n/b{n}"));
            rows.push(row(&from, &to, custom("b")));
        }
        rows
    }

    fn open(dir: &std::path::Path) -> Engine {
        Engine::open(Options::new(dir)).unwrap()
    }

    fn fill(engine: &Engine) -> Revision {
        for (key, value, _) in old() {
            engine.transact(Transaction::new().put(key, value)).wait().unwrap();
        }
        engine.current_revision()
    }

    fn contents(engine: &Engine) -> Vec<(String, Bytes)> {
        let snapshot = engine.snapshot(At::Latest).unwrap();
        let mut entries = snapshot.range(&KeyRange::all());
        let mut found = Vec::new();
        while let Some(entry) = entries.next().unwrap() {
            if entry.key != LAYOUT {
                let key = String::from_utf8(entry.key.to_vec()).unwrap();
                found.push((key, Bytes::copy_from_slice(entry.value)));
            }
        }
        found
    }

    fn expected() -> Vec<(String, Bytes)> {
        let mut rows: Vec<_> = old().into_iter().map(|(_, value, to)| (to, value)).collect();
        rows.sort();
        rows
    }

    #[test]
    fn custom_resources_get_keys_of_their_own_once() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        let before = fill(&engine);
        let builtin = Registry::builtin();
        let moved = migrate_layout(&engine, &builtin).unwrap();
        assert_eq!(moved, MigratedLayout { objects: 23, among_builtin: 1 });
        assert_eq!(contents(&engine), expected());
        // Who was here before begins again: a feed would not know of deletions under the old keys.
        let late = engine.subscribe(Subscribe::new(KeyRange::all()).after(before));
        assert!(matches!(late, Err(Error::Compacted { .. })));

        let (header, floor) = (engine.current_revision(), engine.compacted_revision());
        engine.close().unwrap();
        drop(engine);
        let engine = open(dir.path());
        assert_eq!(migrate_layout(&engine, &builtin).unwrap(), MigratedLayout::default());
        assert_eq!((engine.current_revision(), engine.compacted_revision()), (header, floor));
    }

    /// Whichever transaction was the last before a power cut: the next start ends with the same store and
    /// compaction.
    #[test]
    fn a_migration_that_was_cut_off_is_finished() {
        let builtin = Registry::builtin();
        for cut in 0..=12 {
            let dir = tempfile::tempdir().unwrap();
            let engine = open(dir.path());
            let before = fill(&engine);
            let migration = Migration { engine: &engine, builtin: &builtin, batch: (2, 1 << 20) };
            // The state after a number of its transactions.
            let snapshot = engine.snapshot(At::Latest).unwrap();
            let mut entries = snapshot.range(&KeyRange::all());
            let mut found = Vec::new();
            while let Some(entry) = entries.next().unwrap() {
                found.extend(destination(entry.key, entry.value).map(|to| (entry.to_record(), to)));
            }
            for batch in found.chunks(2).take(cut) {
                assert!(migration.commit(batch.to_vec(), &mut MigratedLayout::default()).unwrap());
            }
            if cut == 12 {
                assert_eq!(contents(&engine), expected(), "all is moved, the floor is not raised");
            }
            drop((entries, snapshot));
            engine.close().unwrap();
            drop(engine);

            let engine = open(dir.path());
            migrate_layout(&engine, &builtin).unwrap();
            assert_eq!(contents(&engine), expected(), "after {cut} transactions");
            assert!(engine.compacted_revision() > before, "after {cut} transactions");
            assert_eq!(engine.get(LAYOUT, At::Latest).unwrap().unwrap().value, CURRENT);
        }
    }

    #[test]
    fn an_empty_store_has_the_layout_and_keeps_its_history() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        assert_eq!(migrate_layout(&engine, &Registry::builtin()).unwrap(), MigratedLayout::default());
        assert_eq!(engine.compacted_revision(), Revision::ZERO);
    }

    /// Written by an older version in between: found at the next start, and of two the later one stays.
    #[test]
    fn what_an_older_version_wrote_since_is_moved_too() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        let builtin = Registry::builtin();
        migrate_layout(&engine, &builtin).unwrap();
        let put = |key: &str, value: Bytes| {
            engine.transact(Transaction::new().put(key.to_owned(), value)).wait().unwrap();
        };
        put("core/pods/n/web", value("web", ""));
        put("_custom/namespaced/example.com/cars/n/a", custom("older"));
        assert_eq!(migrate_layout(&engine, &builtin).unwrap(), MigratedLayout::default());
        put("example.com/cars/n/a", custom("newer"));
        assert_eq!(migrate_layout(&engine, &builtin).unwrap().objects, 1);
        let found = engine.get(b"_custom/namespaced/example.com/cars/n/a", At::Latest).unwrap().unwrap();
        assert_eq!(found.value, custom("newer"));
        assert_eq!(engine.get(b"example.com/cars/n/a", At::Latest).unwrap(), None);
    }
}
