//! Heads of stored objects held in memory, so that a selector does not cost reading a collection.
//!
//! A selector looks at an object's head alone ([`Head`]), but heads lie on disk before their bodies: to find one pod of ten
//! thousand is to read all of them. The heads of a collection that was searched are therefore kept, a few hundred bytes for each
//! object, and follow the engine's feed. Each look takes in what was published since, and the engine publishes a commit
//! before it acknowledges it; so a look is at a revision that covers every write acknowledged before it. What is
//! found is read from a snapshot of exactly that revision.
//!
//! That revision, and bodies that stay encrypted, are what sets this apart from [`super::follow`].
//!
//! All of it is bounded: the heads of the collections looked at longest ago go when there are more than `BUDGET` bytes, and a
//! collection with more than that is read instead.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use plinth_engine::{Engine, EventKind, Feed, KeyRange, Revision, Snapshot, Subscribe, Subscription};

use super::stored::{self, Damaged, Head};
use plinth_registry::key;

/// Bytes of all heads, with what maps and allocations add.
const BUDGET: usize = 16 << 20;
/// What an entry costs beside its bytes.
const ENTRY: usize = 64;
/// Bytes of values from which on it is worth the while.
const WORTHWHILE: usize = 512 << 10;
/// To read one object by its key costs about as much as to pass so many of its neighbours.
const NEIGHBOURS: usize = 8;

/// The heads that are kept. The lock of the list is held to look for a collection; that of a collection is shared by all who
/// look, and exclusive to take in what was published.
#[derive(Default)]
pub struct Heads {
    /// The one used last is the last.
    kept: Mutex<Vec<Arc<Kept>>>,
}

struct Kept {
    /// What all its keys start with.
    collection: Vec<u8>,
    state: RwLock<State>,
}

struct State {
    feed: Subscription,
    heads: BTreeMap<Box<[u8]>, Box<[u8]>>,
    bytes: usize,
}

/// The heads of a collection while a walk over it collects them.
pub struct Filling {
    collection: Vec<u8>,
    /// None when there are too many.
    state: Option<State>,
    /// Bytes of the values passed.
    passed: usize,
}

/// What was found.
pub struct Found {
    /// The revision at which this is true.
    pub revision: Revision,
    /// The keys of the objects, in order.
    pub keys: Vec<Bytes>,
    /// How many objects were looked at.
    pub of: u64,
}

impl Heads {
    /// The objects of `range`, which is within `collection`, that match. None when the heads are not there, or when so many
    /// match that reading the range is cheaper. Costs a look at each head.
    pub fn find(
        &self,
        engine: &Engine,
        collection: &[u8],
        range: &KeyRange,
        mut matches: impl FnMut(&[u8], &Head<'_>) -> bool,
    ) -> Option<Found> {
        let kept = self.kept_of(collection)?;
        let mut state = kept.state.write();
        if !state.catch_up(engine) || state.bytes > BUDGET {
            drop(state);
            self.drop_kept(&kept);
            return None;
        }
        let state = RwLockWriteGuard::downgrade(state);
        let (mut keys, mut of) = (Vec::new(), 0);
        let end = range.end().map_or(Bound::Unbounded, |end| Bound::Excluded(&end[..]));
        for (key, head) in state.heads.range::<[u8], _>((Bound::Included(&range.start()[..]), end)) {
            of += 1;
            if matches(key, &Head::parse(head).ok()?) {
                keys.push(Bytes::copy_from_slice(key));
            }
        }
        if keys.len() * NEIGHBOURS > of {
            return None;
        }
        Some(Found { revision: state.feed.position(), keys, of: of as u64 })
    }

    /// Begins to collect the heads of a collection, for a walk over all of it in that snapshot. None when the engine is being
    /// closed.
    pub fn fill(&self, engine: &Engine, collection: &[u8], snapshot: &Snapshot) -> Option<Filling> {
        let subscribe = Subscribe::new(key::range(collection)).after(snapshot.revision());
        let feed = engine.subscribe(subscribe).ok()?;
        let state = State { feed, heads: BTreeMap::new(), bytes: 0 };
        Some(Filling { collection: collection.to_vec(), state: Some(state), passed: 0 })
    }

    /// Keeps what a walk that came to its end has collected.
    pub fn keep(&self, filling: Filling) {
        let Some(state) = filling.state.filter(|_| filling.passed >= WORTHWHILE) else { return };
        let mut left = BUDGET.saturating_sub(state.bytes);
        let mut kept = self.kept.lock();
        // Part of what is new, or the same.
        kept.retain(|other| !other.collection.starts_with(&filling.collection));
        let mut others = std::mem::take(&mut *kept);
        while let Some(other) = others.pop() {
            let bytes = other.state.read().bytes;
            let Some(less) = left.checked_sub(bytes) else { break };
            left = less;
            kept.insert(0, other);
        }
        kept.push(Arc::new(Kept { collection: filling.collection, state: RwLock::new(state) }));
    }

    /// The heads of that collection or of one that it is part of.
    fn kept_of(&self, collection: &[u8]) -> Option<Arc<Kept>> {
        let mut kept = self.kept.lock();
        let place = kept.iter().position(|kept| collection.starts_with(&kept.collection))?;
        let found = kept.remove(place);
        kept.push(found.clone());
        Some(found)
    }

    fn drop_kept(&self, gone: &Arc<Kept>) {
        self.kept.lock().retain(|kept| !Arc::ptr_eq(kept, gone));
    }
}

impl Filling {
    /// Takes the head of a value in.
    ///
    /// # Errors
    /// [`Damaged`] when it has none.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), Damaged> {
        self.passed += value.len();
        if let Some(state) = &mut self.state {
            state.put(key, value)?;
            if state.bytes > BUDGET {
                self.state = None;
            }
        }
        Ok(())
    }
}

impl State {
    /// Takes in what the feed has; false when that is not everything. One that nobody looked at for long is sooner filled anew
    /// than led through the past.
    fn catch_up(&mut self, engine: &Engine) -> bool {
        let wanted = engine.current_revision();
        loop {
            match self.feed.try_next() {
                Ok(Some(Feed::Events(events))) => {
                    for event in events.iter() {
                        let taken = match &event.kind {
                            EventKind::Delete => {
                                self.remove(&event.key);
                                Ok(())
                            }
                            EventKind::Put { value, .. } => self.put(&event.key, value),
                        };
                        if taken.is_err() {
                            return false;
                        }
                    }
                }
                Ok(Some(Feed::Progress(_))) => {}
                Ok(None) => return self.feed.position() >= wanted,
                Err(_) => return false,
            }
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Damaged> {
        let head = stored::head_of(value)?;
        self.bytes += key.len() + head.len() + ENTRY;
        if let Some(old) = self.heads.insert(key.into(), head.into()) {
            self.bytes -= key.len() + old.len() + ENTRY;
        }
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(old) = self.heads.remove(key) {
            self.bytes -= key.len() + old.len() + ENTRY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::Header;
    use plinth_engine::{At, Options, Transaction};

    /// An object with a label and a body of so many bytes.
    fn object(label: &str, body: usize) -> Bytes {
        let header = Header { version: "v1", uid: "u", labels: vec![("app", label)], ..Header::default() };
        header
            .encode(14, format!(r#"{{"metadata":{{"name":"x"}},"data":"{}"}}"#, "x".repeat(body)).as_bytes())
    }

    fn put(engine: &Engine, key: &str, label: &str) -> Revision {
        let body = 10_000;
        engine.transact(Transaction::new().put(key.to_owned(), object(label, body))).wait().unwrap().revision
    }

    /// Collects a collection as a walk does.
    fn fill(heads: &Heads, engine: &Engine, collection: &[u8]) {
        let snapshot = engine.snapshot(At::Latest).unwrap();
        let mut filling = heads.fill(engine, collection, &snapshot).unwrap();
        let mut range = snapshot.range(&key::range(collection));
        while let Some(entry) = range.next().unwrap() {
            filling.add(entry.key, entry.value).unwrap();
        }
        heads.keep(filling);
    }

    fn find(heads: &Heads, engine: &Engine, collection: &str, label: &str) -> Option<Vec<String>> {
        let collection = collection.as_bytes();
        let found = heads
            .find(engine, collection, &key::range(collection), |_, head| head.label("app") == Some(label))?;
        assert_eq!(found.revision, engine.current_revision());
        Some(found.keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect())
    }

    #[test]
    fn what_is_found_is_what_is_there_now() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        for n in 0..100 {
            put(&engine, &format!("pods/{}/{n:02}", n % 2), if n == 50 { "rare" } else { "common" });
        }
        put(&engine, "nodes/1", "rare");
        let heads = Heads::default();
        assert_eq!(find(&heads, &engine, "pods/", "rare"), None, "nothing is kept yet");
        fill(&heads, &engine, b"pods/");
        assert_eq!(find(&heads, &engine, "pods/", "rare").unwrap(), ["pods/0/50"]);
        assert_eq!(find(&heads, &engine, "pods/0/", "rare").unwrap(), ["pods/0/50"]);
        assert_eq!(find(&heads, &engine, "pods/1/", "rare").unwrap(), [""; 0]);
        assert_eq!(find(&heads, &engine, "pods/", "common"), None, "reading is cheaper");
        assert_eq!(find(&heads, &engine, "nodes/", "rare"), None);
        // Changes of every kind are seen at once.
        put(&engine, "pods/1/51", "rare");
        put(&engine, "pods/0/50", "common");
        put(&engine, "pods/1/new", "rare");
        put(&engine, "nodes/2", "rare");
        assert_eq!(find(&heads, &engine, "pods/", "rare").unwrap(), ["pods/1/51", "pods/1/new"]);
        engine.transact(Transaction::new().delete("pods/1/new")).wait().unwrap();
        assert_eq!(find(&heads, &engine, "pods/", "rare").unwrap(), ["pods/1/51"]);
    }

    #[test]
    fn what_was_not_looked_at_for_long_is_filled_anew() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path()).event_ring_bytes(1 << 10)).unwrap();
        let heads = Heads::default();
        for n in 0..100 {
            put(&engine, &format!("pods/{n:03}"), "common");
        }
        fill(&heads, &engine, b"pods/");
        for n in 100..200 {
            put(&engine, &format!("pods/{n:03}"), if n == 150 { "rare" } else { "common" });
        }
        // The ring does not reach back so far: either all of it was read by now, or nothing is said.
        if let Some(found) = find(&heads, &engine, "pods/", "rare") {
            assert_eq!(found, ["pods/150"]);
        }
        fill(&heads, &engine, b"pods/");
        assert_eq!(find(&heads, &engine, "pods/", "rare").unwrap(), ["pods/150"]);
    }

    #[test]
    fn memory_is_bounded_and_small_collections_are_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        let heads = Heads::default();
        put(&engine, "few/1", "rare");
        fill(&heads, &engine, b"few/");
        assert!(heads.kept.lock().is_empty());
        let snapshot = engine.snapshot(At::Latest).unwrap();
        let large = |name: &str, objects: usize| {
            let mut filling = heads.fill(&engine, name.as_bytes(), &snapshot).unwrap();
            let value = object(&"l".repeat(1000), 1000);
            for n in 0..objects {
                filling.add(format!("{name}{n}").as_bytes(), &value).unwrap();
            }
            heads.keep(filling);
        };
        let kept = || {
            heads
                .kept
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
        assert!(heads.find(&engine, b"a/", &key::range(b"a/"), |_, _| false).is_some());
        large("c/", BUDGET / 2000);
        assert_eq!(kept(), ["a/", "c/"], "the one used longest ago has gone");
    }
}
