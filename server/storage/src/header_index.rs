//! Index of object headers in memory, so that a selector does not read the whole collection.
//!
//! A selector needs only an object's [`Header`], but headers are stored with their bodies: finding one pod of
//! ten thousand would read all of them. The headers of a collection that was searched are therefore cached, a
//! few hundred bytes per object, and kept up to date by the engine's change feed. Each search applies what
//! was published first ([`super::change_feeds`]), so it is at a revision that includes every write
//! acknowledged before it. The matches are read from a snapshot of exactly that revision.
//!
//! That revision, and that collections are filled by scans and evicted, distinguish this from
//! [`super::informer`].
//!
//! Memory is bounded: the least recently used collections are evicted beyond `BUDGET` bytes, and a larger
//! collection is not indexed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use plinth_engine::{Engine, Event, EventKind, KeyRange, Revision, Snapshot, Subscribe};

use super::change_feeds::ChangeFeeds;
use super::damaged_value::DamagedValue;
use super::stored::{self, Header};
use plinth_api::ApiError;
use plinth_registry::prefix_range;

/// Maximum size of all headers in bytes, including the overhead of maps and allocations.
const BUDGET: usize = 16 << 20;
/// Overhead per entry, in bytes.
const ENTRY_OVERHEAD: usize = 64;
/// Minimum size of a collection's values, in bytes, for an index to pay off.
const MIN_COLLECTION: usize = 512 << 10;
/// Reading one object by its key costs about as much as scanning this many.
const SCANNED_PER_READ: usize = 8;

/// The cached headers. The outer lock is held to look a collection up; the lock of a collection is shared by
/// searches, and exclusive to apply changes.
#[derive(Default)]
pub struct HeaderIndex {
    /// Least recently used first.
    collections: Mutex<Vec<Arc<IndexedCollection>>>,
}

struct IndexedCollection {
    /// Common prefix of its keys.
    collection: Vec<u8>,
    state: RwLock<State>,
}

struct State {
    feed: ChangeFeeds,
    headers: Headers,
}

/// Headers by the keys of their objects.
#[derive(Default)]
struct Headers {
    by_key: BTreeMap<Box<[u8]>, Box<[u8]>>,
    bytes: usize,
}

/// Collects the headers of a collection during a scan.
pub struct IndexBuilder {
    collection: Vec<u8>,
    /// `None` when they exceed the budget.
    state: Option<State>,
    /// Total size of the scanned values, in bytes.
    scanned: usize,
}

/// Result of a search.
pub struct Matches {
    /// The revision of the result.
    pub revision: Revision,
    /// The matching keys, in order.
    pub keys: Vec<Bytes>,
    /// Number of objects examined.
    pub examined: u64,
}

impl HeaderIndex {
    /// The matching objects of `range`, which is within `collection`. `None` when the collection is not
    /// indexed, or when so many match that scanning the range is cheaper. Examines each header.
    pub fn find(
        &self,
        engine: &Engine,
        collection: &[u8],
        range: &KeyRange,
        mut matches: impl FnMut(&[u8], &Header<'_>) -> bool,
    ) -> Option<Matches> {
        let kept = self.find_collection(collection)?;
        let mut state = kept.state.write();
        let reached = state.catch_up(engine).filter(|_| state.headers.bytes <= BUDGET);
        let Some(revision) = reached else {
            drop(state);
            self.evict(&kept);
            return None;
        };
        let state = RwLockWriteGuard::downgrade(state);
        let (mut keys, mut examined) = (Vec::new(), 0);
        let end = range.end().map_or(Bound::Unbounded, |end| Bound::Excluded(&end[..]));
        for (key, header) in state.headers.by_key.range::<[u8], _>((Bound::Included(&range.start()[..]), end))
        {
            examined += 1;
            if matches(key, &Header::parse(header).ok()?) {
                keys.push(Bytes::copy_from_slice(key));
            }
        }
        if keys.len() * SCANNED_PER_READ > examined {
            return None;
        }
        Some(Matches { revision, keys, examined: examined as u64 })
    }

    /// Begins to index a collection, for a scan of all of it in that snapshot. `None` when the engine is
    /// closing.
    pub fn build(&self, engine: &Engine, collection: &[u8], snapshot: &Snapshot) -> Option<IndexBuilder> {
        let changes = Subscribe::new(prefix_range(collection)).after(snapshot.revision());
        let feed = ChangeFeeds::subscribe(engine, [changes]).ok()?;
        let state = State { feed, headers: Headers::default() };
        Some(IndexBuilder { collection: collection.to_vec(), state: Some(state), scanned: 0 })
    }

    /// Caches the headers of a complete scan.
    pub fn insert(&self, builder: IndexBuilder) {
        let Some(state) = builder.state.filter(|_| builder.scanned >= MIN_COLLECTION) else { return };
        let mut left = BUDGET.saturating_sub(state.headers.bytes);
        let mut kept = self.collections.lock();
        // Replaces the same collection, or parts of this one.
        kept.retain(|other| !other.collection.starts_with(&builder.collection));
        let mut others = std::mem::take(&mut *kept);
        while let Some(other) = others.pop() {
            let bytes = other.state.read().headers.bytes;
            let Some(less) = left.checked_sub(bytes) else { break };
            left = less;
            kept.insert(0, other);
        }
        kept.push(Arc::new(IndexedCollection { collection: builder.collection, state: RwLock::new(state) }));
    }

    /// The indexed collection that includes the given one.
    fn find_collection(&self, collection: &[u8]) -> Option<Arc<IndexedCollection>> {
        let mut kept = self.collections.lock();
        let position = kept.iter().position(|kept| collection.starts_with(&kept.collection))?;
        let found = kept.remove(position);
        kept.push(found.clone());
        Some(found)
    }

    fn evict(&self, gone: &Arc<IndexedCollection>) {
        self.collections.lock().retain(|kept| !Arc::ptr_eq(kept, gone));
    }
}

impl IndexBuilder {
    /// Adds the header of a value.
    ///
    /// # Errors
    /// [`DamagedValue`] when the value is not a stored object.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), DamagedValue> {
        self.scanned += value.len();
        if let Some(state) = &mut self.state {
            state.headers.put(key, value)?;
            if state.headers.bytes > BUDGET {
                self.state = None;
            }
        }
        Ok(())
    }
}

impl State {
    /// Applies the changes of the feed, and returns the revision that it has reached; `None` when some are
    /// missing.
    fn catch_up(&mut self, engine: &Engine) -> Option<Revision> {
        let wanted = engine.current_revision();
        let headers = &mut self.headers;
        let apply = |events: &[Arc<Event>]| -> Result<(), ApiError> {
            for event in events {
                match &event.kind {
                    EventKind::Delete => headers.remove(&event.key),
                    EventKind::Put { value, .. } => {
                        headers.put(&event.key, value).map_err(ApiError::internal)?;
                    }
                }
            }
            Ok(())
        };
        self.feed.drain(apply).ok().filter(|reached| *reached >= wanted)
    }
}

impl Headers {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), DamagedValue> {
        let header = stored::stored_header_bytes(value)?;
        self.bytes += key.len() + header.len() + ENTRY_OVERHEAD;
        if let Some(old) = self.by_key.insert(key.into(), header.into()) {
            self.bytes -= key.len() + old.len() + ENTRY_OVERHEAD;
        }
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(old) = self.by_key.remove(key) {
            self.bytes -= key.len() + old.len() + ENTRY_OVERHEAD;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::HeaderFields;
    use plinth_engine::{At, Options, Transaction};
    use plinth_registry::prefix_range;

    /// An object with a label and a body of so many bytes.
    fn object(label: &str, body: usize) -> Bytes {
        let header =
            HeaderFields { version: "v1", uid: "u", labels: vec![("app", label)], ..HeaderFields::default() };
        header
            .encode(14, format!(r#"{{"metadata":{{"name":"x"}},"data":"{}"}}"#, "x".repeat(body)).as_bytes())
    }

    fn put(engine: &Engine, key: &str, label: &str) -> Revision {
        let body = 10_000;
        engine.transact(Transaction::new().put(key.to_owned(), object(label, body))).wait().unwrap().revision
    }

    /// Collects a collection as a walk does.
    fn build(headers: &HeaderIndex, engine: &Engine, collection: &[u8]) {
        let snapshot = engine.snapshot(At::Latest).unwrap();
        let mut builder = headers.build(engine, collection, &snapshot).unwrap();
        let mut range = snapshot.range(&prefix_range(collection));
        while let Some(entry) = range.next().unwrap() {
            builder.add(entry.key, entry.value).unwrap();
        }
        headers.insert(builder);
    }

    fn find(headers: &HeaderIndex, engine: &Engine, collection: &str, label: &str) -> Option<Vec<String>> {
        let collection = collection.as_bytes();
        let found = headers.find(engine, collection, &prefix_range(collection), |_, header| {
            header.label("app") == Some(label)
        })?;
        assert_eq!(found.revision, engine.current_revision());
        Some(found.keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect())
    }

    #[test]
    fn a_search_finds_the_current_objects() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        for n in 0..100 {
            put(&engine, &format!("pods/{}/{n:02}", n % 2), if n == 50 { "rare" } else { "common" });
        }
        put(&engine, "nodes/1", "rare");
        let headers = HeaderIndex::default();
        assert_eq!(find(&headers, &engine, "pods/", "rare"), None, "nothing is kept yet");
        build(&headers, &engine, b"pods/");
        assert_eq!(find(&headers, &engine, "pods/", "rare").unwrap(), ["pods/0/50"]);
        assert_eq!(find(&headers, &engine, "pods/0/", "rare").unwrap(), ["pods/0/50"]);
        assert_eq!(find(&headers, &engine, "pods/1/", "rare").unwrap(), [""; 0]);
        assert_eq!(find(&headers, &engine, "pods/", "common"), None, "reading is cheaper");
        assert_eq!(find(&headers, &engine, "nodes/", "rare"), None);
        // Changes of every kind are seen at once.
        put(&engine, "pods/1/51", "rare");
        put(&engine, "pods/0/50", "common");
        put(&engine, "pods/1/new", "rare");
        put(&engine, "nodes/2", "rare");
        assert_eq!(find(&headers, &engine, "pods/", "rare").unwrap(), ["pods/1/51", "pods/1/new"]);
        engine.transact(Transaction::new().delete("pods/1/new")).wait().unwrap();
        assert_eq!(find(&headers, &engine, "pods/", "rare").unwrap(), ["pods/1/51"]);
    }

    #[test]
    fn an_index_that_is_too_far_behind_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path()).event_ring_bytes(1 << 10)).unwrap();
        let headers = HeaderIndex::default();
        for n in 0..100 {
            put(&engine, &format!("pods/{n:03}"), "common");
        }
        build(&headers, &engine, b"pods/");
        for n in 100..200 {
            put(&engine, &format!("pods/{n:03}"), if n == 150 { "rare" } else { "common" });
        }
        // The ring does not reach back so far: either all of it was read by now, or nothing is known.
        if let Some(found) = find(&headers, &engine, "pods/", "rare") {
            assert_eq!(found, ["pods/150"]);
        }
        build(&headers, &engine, b"pods/");
        assert_eq!(find(&headers, &engine, "pods/", "rare").unwrap(), ["pods/150"]);
    }

    #[test]
    fn memory_is_bounded_and_small_collections_are_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        let headers = HeaderIndex::default();
        put(&engine, "few/1", "rare");
        build(&headers, &engine, b"few/");
        assert!(headers.collections.lock().is_empty());
        let snapshot = engine.snapshot(At::Latest).unwrap();
        let large = |name: &str, objects: usize| {
            let mut builder = headers.build(&engine, name.as_bytes(), &snapshot).unwrap();
            let value = object(&"l".repeat(1000), 1000);
            for n in 0..objects {
                builder.add(format!("{name}{n}").as_bytes(), &value).unwrap();
            }
            headers.insert(builder);
        };
        let kept = || {
            headers
                .collections
                .lock()
                .iter()
                .map(|k| String::from_utf8_lossy(&k.collection).into_owned())
                .collect::<Vec<_>>()
        };
        large("too-many/", BUDGET / 1000);
        assert_eq!(kept(), [""; 0]);
        large("a/", BUDGET / 4000);
        large("b/", BUDGET / 4000);
        large("b/", BUDGET / 4000);
        assert_eq!(kept(), ["a/", "b/"]);
        assert!(headers.find(&engine, b"a/", &prefix_range(b"a/"), |_, _| false).is_some());
        large("c/", BUDGET / 2000);
        assert_eq!(kept(), ["a/", "c/"], "the one used longest ago has gone");
    }
}
