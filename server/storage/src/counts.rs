//! Number of objects in a collection, for `remainingItemCount`.
//!
//! Counting reads the whole collection, so a page of 500 would cost as much as listing all. Counts are
//! therefore cached: a count is exact at its own revision, and for a second after that it is the estimate
//! that the API allows (`remainingItemCount` "is intended for estimating the size of a collection").

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plinth_engine::{Error, Revision, Snapshot};

use plinth_registry::prefix_range;

/// How long a count is used for other revisions than its own.
const ESTIMATE: Duration = Duration::from_secs(1);
/// Maximum number of cached counts.
const MOST: usize = 1024;

/// The counts of collections that were recently listed in pages. The lock is held for a lookup or an
/// insertion, not while a collection is counted.
#[derive(Debug, Default)]
pub struct Counts {
    kept: Mutex<HashMap<Vec<u8>, Count>>,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    revision: Revision,
    total: u64,
    made: Instant,
}

impl Counts {
    /// Number of keys with the prefix `collection` in the snapshot, possibly an estimate. May read from disk.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn total(&self, collection: &[u8], snapshot: &Snapshot) -> Result<u64, Error> {
        let kept = self.kept.lock().get(collection).copied();
        let usable = |c: &Count| c.revision == snapshot.revision() || c.made.elapsed() < ESTIMATE;
        if let Some(count) = kept.filter(usable) {
            return Ok(count.total);
        }
        let total = snapshot.count(&prefix_range(collection))?;
        let count = Count { revision: snapshot.revision(), total, made: Instant::now() };
        let mut kept = self.kept.lock();
        if kept.len() >= MOST && !kept.contains_key(collection) {
            kept.retain(|_, count| count.made.elapsed() < ESTIMATE);
            if kept.len() >= MOST {
                return Ok(total);
            }
        }
        kept.insert(collection.to_vec(), count);
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_engine::{At, Engine, Options, Transaction};

    fn put(engine: &Engine, key: &str) {
        engine.transact(Transaction::new().put(key.to_owned(), "x")).wait().unwrap();
    }

    #[test]
    fn a_count_is_of_its_collection_and_exact_at_its_revision() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        for key in ["pods/a/1", "pods/a/2", "pods/b/1"] {
            put(&engine, key);
        }
        let counts = Counts::default();
        let first = engine.snapshot(At::Latest).unwrap();
        assert_eq!(counts.total(b"pods/a/", &first).unwrap(), 2);
        assert_eq!(counts.total(b"pods/", &first).unwrap(), 3);
        put(&engine, "pods/a/3");
        // Too old to be used for another revision.
        for count in counts.kept.lock().values_mut() {
            count.made -= ESTIMATE;
        }
        assert_eq!(counts.total(b"pods/a/", &first).unwrap(), 2);
        let second = engine.snapshot(At::Latest).unwrap();
        assert_eq!(counts.total(b"pods/a/", &second).unwrap(), 3);
        assert_eq!(counts.total(b"pods/a/", &first).unwrap(), 3, "young, so it stands for a moment ago");
    }
}
