//! Caches the encoded size of collections, for encodings that state it before the items.
//!
//! Protobuf states the length of a list before its first item, CBOR their number. Computing them takes an
//! additional scan over the collection that encodes every item whose length is not cached. The result is
//! therefore cached and updated from the engine's feed: each event adds the size of the new object and
//! subtracts that of the old one. The next list starts to write at once, at the revision of the cached size;
//! since the engine publishes a commit before it acknowledges it, that revision covers every acknowledged
//! write.

use std::sync::Arc;

use parking_lot::Mutex;
use plinth_engine::{Event, EventKind, Revision, Subscribe};

use super::{Item, ListWriter, Representation, RepresentationKey, Totals};
use plinth_api::ApiError;
use plinth_registry::{prefix_range, ResourceType};
use plinth_storage::{ChangeFeeds, Store};

/// Cached collections. Each holds a subscription of the engine and a few words.
const MAX_ENTRIES: usize = 64;
/// Events that an entry applies at once; beyond that a scan over the collection is faster.
const MAX_CHANGES: usize = 1000;

/// Sizes of the recently listed collections. The lock of the list is held to find an entry; that of an entry
/// while it applies events.
#[derive(Default)]
pub struct ListSizeCache {
    /// Least recently used first.
    entries: Mutex<Vec<Arc<CacheEntry>>>,
}

struct CacheEntry {
    /// Key prefix of the collection.
    collection: Vec<u8>,
    form: RepresentationKey,
    /// `form` identifies the resource by its address; holding it keeps the address from being reused.
    _resource: Arc<ResourceType>,
    tracked: Mutex<TrackedTotals>,
}

struct TrackedTotals {
    feed: ChangeFeeds,
    totals: Totals,
}

impl ListSizeCache {
    /// Size of a collection's list and the revision it is exact at; `None` when it is not cached. Blocks.
    pub fn totals(
        &self,
        store: &Store,
        collection: &[u8],
        representation: &Representation,
    ) -> Option<(Revision, Totals)> {
        let form = representation.key()?;
        let entry = {
            let mut entries = self.entries.lock();
            let is_it = |entry: &Arc<CacheEntry>| entry.form == form && entry.collection == collection;
            let index = entries.iter().position(is_it)?;
            let entry = entries.remove(index);
            entries.push(entry.clone());
            entry
        };
        let mut tracked = entry.tracked.lock();
        if let Ok(revision) = tracked.catch_up(store, representation) {
            return Some((revision, tracked.totals));
        }
        self.entries.lock().retain(|entries| !Arc::ptr_eq(entries, &entry));
        None
    }

    /// Caches the totals of a full scan at that revision.
    pub fn insert(
        &self,
        store: &Store,
        collection: &[u8],
        representation: &Representation,
        revision: Revision,
        totals: Totals,
    ) {
        let subscribe = Subscribe::new(prefix_range(collection)).after(revision).previous(true);
        // A closing engine has no feeds.
        let feed = ChangeFeeds::subscribe(store.engine(), [subscribe]);
        let (Some(form), Ok(feed)) = (representation.key(), feed) else {
            return;
        };
        let entry = CacheEntry {
            collection: collection.to_vec(),
            form,
            _resource: representation.resource.clone(),
            tracked: Mutex::new(TrackedTotals { feed, totals }),
        };
        let mut entries = self.entries.lock();
        entries.retain(|other| other.form != form || other.collection != collection);
        if entries.len() >= MAX_ENTRIES {
            entries.remove(0);
        }
        entries.push(Arc::new(entry));
    }

    /// Drops all entries.
    pub fn clear(&self) {
        self.entries.lock().clear();
    }
}

/// Totals that cannot be brought up to date: events are missing or too many, or the size of an old object is
/// unknown.
struct Outdated;

impl From<plinth_engine::Error> for Outdated {
    fn from(_: plinth_engine::Error) -> Outdated {
        Outdated
    }
}

impl From<ApiError> for Outdated {
    fn from(_: ApiError) -> Outdated {
        Outdated
    }
}

impl TrackedTotals {
    /// Applies pending events, and returns the revision that they reach.
    fn catch_up(&mut self, store: &Store, representation: &Representation) -> Result<Revision, Outdated> {
        let current = store.engine().current_revision();
        let mut list = ListWriter::new(representation)?;
        let mut changes = 0;
        let totals = &mut self.totals;
        let reached = self.feed.drain(|events| {
            changes += events.len();
            if changes > MAX_CHANGES {
                return Err(Outdated);
            }
            events.iter().try_for_each(|event| apply_event(totals, store, &mut list, event))
        })?;
        match reached >= current {
            true => Ok(reached),
            false => Err(Outdated),
        }
    }
}

/// Applies one event.
fn apply_event(
    totals: &mut Totals,
    store: &Store,
    list: &mut ListWriter<&Representation>,
    event: &Event,
) -> Result<(), Outdated> {
    let mut out = Vec::new();
    let mut length = |value: &[u8], revision| -> Result<usize, ApiError> {
        out.clear();
        if list.states_bytes() {
            list.item(&Item::new(&store.open(&event.key, value)?, revision)?, &mut out)?;
        }
        Ok(out.len())
    };
    let Totals { mut items, mut bytes } = *totals;
    if let Some(old) = &event.previous {
        let old = length(&old.value, old.mod_revision)?;
        items = items.checked_sub(1).ok_or(Outdated)?;
        bytes = bytes.checked_sub(old).ok_or(Outdated)?;
    }
    if let EventKind::Put { value, .. } = &event.kind {
        bytes += length(value, event.revision)?;
        items += 1;
    }
    *totals = Totals { items, bytes };
    Ok(())
}
