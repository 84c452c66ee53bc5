//! State that is derived from stored objects and kept up to date by the engine's change feed.
//!
//! Each read applies what was published first ([`super::change_feeds`]). So a read reflects every write that
//! was acknowledged before it began: a RoleBinding is effective for the request after the one that created
//! it.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use plinth_codec::{json, Value};
use plinth_engine::{At, Event, EventKind, KeyRange, Revision, Subscribe};

use super::change_feeds::ChangeFeeds;
use super::stored::Stored;
use super::Store;
use plinth_api::ApiError;
use plinth_registry::prefix_range;

/// Retry interval for objects that cannot be decrypted: their key may have become available.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// A change of one key.
#[derive(Clone, Copy, Debug)]
pub struct InformerChange<'a> {
    /// The changed key.
    pub key: &'a Bytes,
    /// The revision of the change.
    pub revision: Revision,
    /// The new value, in plain text if [`InformerView::DECRYPTED`]; `None` when it was deleted.
    pub value: Option<&'a [u8]>,
}

impl InformerChange<'_> {
    /// The new object.
    ///
    /// # Errors
    /// When it cannot be decoded.
    pub fn object(&self) -> Result<Option<Value>, ApiError> {
        let Some(value) = self.value else { return Ok(None) };
        let stored = Stored::parse(value).map_err(ApiError::internal)?;
        json::parse(stored.body()).map(Some).map_err(ApiError::internal)
    }
}

/// State derived from stored objects.
pub trait InformerView: Send + Sync + 'static {
    /// Whether values are decrypted. Not needed for state that is derived from headers alone, which then
    /// includes objects whose bodies cannot be decrypted.
    const DECRYPTED: bool = true;

    /// Whether an object that cannot be decrypted is skipped, and retried later. For objects that only grant
    /// something, such as rights. A skipped policy or quota would allow more: there the state is unavailable
    /// until all objects can be decrypted.
    const SKIPS_UNDECRYPTABLE: bool = false;

    /// Whether the state has all objects, which are loaded before the first read. One that has only what was
    /// asked for begins empty and is given the changes alone: it drops what they make stale. It begins empty
    /// again where it was not read for so long that its feeds have to read from disk.
    const HAS_ALL: bool = true;

    /// An empty state with the same parameters.
    fn empty(&self) -> Self;

    /// The key prefixes of the objects that it is derived from.
    fn prefixes(&self) -> Vec<String>;

    /// Applies a change.
    ///
    /// # Errors
    /// When the value cannot be decoded; the state is then reloaded, and reads fail until that succeeds.
    fn change(&mut self, change: InformerChange<'_>) -> Result<(), ApiError>;
}

/// A [`InformerView`] and its position in the change feed.
///
/// Reads share the view's lock. The feed's lock is held to apply changes, never across an await; a read
/// without new changes costs one atomic load.
pub struct Informer<V> {
    store: Store,
    view: RwLock<V>,
    /// `None` before the first read, and after an error.
    feeds: Mutex<Option<ChangeFeeds>>,
    /// Revision up to which changes have been applied; 0 before the first load.
    position: AtomicU64,
    /// Whether objects were skipped, and when they were last retried. The flag saves reads the lock.
    is_partial: AtomicBool,
    retried: Mutex<Option<Instant>>,
}

impl<V: InformerView> Informer<V> {
    /// Loaded by the first read.
    pub fn new(store: Store, empty: V) -> Informer<V> {
        Informer {
            store,
            view: RwLock::new(empty),
            feeds: Mutex::default(),
            position: AtomicU64::new(0),
            is_partial: AtomicBool::new(false),
            retried: Mutex::default(),
        }
    }

    /// Reads the state, which includes every write acknowledged before.
    ///
    /// # Errors
    /// When the state cannot be loaded.
    pub async fn read<T>(&self, read: impl FnOnce(&V) -> T) -> Result<T, ApiError> {
        let wanted = self.store.engine().current_revision().get();
        // Revision 0 is a store that was never written to.
        if self.position.load(Ordering::Acquire) < wanted && !self.catch_up(wanted) {
            Box::pin(self.reload()).await?;
        } else if self.is_due() {
            if let Err(error) = Box::pin(self.reload()).await {
                tracing::warn!(%error, "objects that cannot be decrypted are still skipped");
            }
        }
        Ok(read(&self.view.read()))
    }

    /// Whether a retry of skipped objects is due; true for one caller.
    fn is_due(&self) -> bool {
        if !self.is_partial.load(Ordering::Relaxed) {
            return false;
        }
        let mut retried = self.retried.lock();
        let due = retried.is_some_and(|when| when.elapsed() >= RETRY_INTERVAL);
        if due {
            *retried = Some(Instant::now());
        }
        due
    }

    /// Records whether objects were skipped.
    fn set_partial(&self, is_partial: bool) {
        *self.retried.lock() = is_partial.then(Instant::now);
        self.is_partial.store(is_partial, Ordering::Relaxed);
    }

    /// Applies the changes of the feeds; false when they do not reach the wanted revision: after a long time
    /// without reads a reload is cheaper than the backlog.
    fn catch_up(&self, wanted: u64) -> bool {
        let mut held = self.feeds.lock();
        let Some(feeds) = held.as_mut() else { return false };
        let reached = match feeds.drain(|events| self.apply(events)) {
            Ok(position) => position.get(),
            Err(error) => {
                // When the engine fails all feeds end; that error is logged once, where the process ends.
                if !self.store.engine().is_over() {
                    let prefixes = self.view.read().prefixes();
                    tracing::warn!(%error, ?prefixes, "change feed failed, reloading cache of stored objects");
                }
                0
            }
        };
        if reached < wanted {
            *held = None;
            return false;
        }
        self.position.fetch_max(reached, Ordering::AcqRel);
        true
    }

    fn apply(&self, events: &[Arc<Event>]) -> Result<(), ApiError> {
        let mut view = self.view.write();
        for event in events {
            let value = match &event.kind {
                EventKind::Put { value, .. } => {
                    let plain = decrypt::<V>(&self.store, &event.key, value)?;
                    if plain.is_none() {
                        self.set_partial(true);
                    }
                    plain
                }
                EventKind::Delete => None,
            };
            let (key, revision) = (&event.key, event.revision);
            view.change(InformerChange { key, revision, value: value.as_deref() })?;
        }
        Ok(())
    }

    /// Reloads the state: on a thread that may block, where objects are read.
    async fn reload(&self) -> Result<(), ApiError> {
        loop {
            let (store, empty) = (self.store.clone(), self.view.read().empty());
            let loaded = match V::HAS_ALL {
                true => {
                    let loaded = tokio::task::spawn_blocking(move || load(&store, empty)).await;
                    loaded.map_err(ApiError::internal)?
                }
                false => load(&store, empty),
            };
            let Loaded { view, feeds, revision, is_partial } = loaded?;
            let mut held = self.feeds.lock();
            // A concurrent reader may be ahead: the state must not go back.
            if self.position.load(Ordering::Acquire) <= revision.get() {
                *self.view.write() = view;
                *held = Some(feeds);
                self.set_partial(is_partial);
                self.position.store(revision.get(), Ordering::Release);
                return Ok(());
            }
            if held.is_some() {
                return Ok(());
            }
        }
    }
}

/// The value as the view wants it; `None` if it is skipped.
fn decrypt<'v, V: InformerView>(
    store: &Store,
    key: &[u8],
    value: &'v [u8],
) -> Result<Option<Cow<'v, [u8]>>, ApiError> {
    if !V::DECRYPTED {
        return Ok(Some(Cow::Borrowed(value)));
    }
    match store.encryption().open(key, value) {
        Ok(plain) => Ok(Some(plain)),
        Err(error) if V::SKIPS_UNDECRYPTABLE && error.affects_only_this_value() => {
            tracing::warn!(%error, "skipping object that cannot be decrypted");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// A newly loaded state.
struct Loaded<V> {
    view: V,
    feeds: ChangeFeeds,
    revision: Revision,
    is_partial: bool,
}

fn load<V: InformerView>(store: &Store, mut view: V) -> Result<Loaded<V>, ApiError> {
    let mut is_partial = false;
    let engine = store.engine();
    let snapshot = engine.snapshot(At::Latest)?;
    let ranges: Vec<KeyRange> =
        view.prefixes().iter().map(|prefix| prefix_range(prefix.as_bytes())).collect();
    for range in ranges.iter().filter(|_| V::HAS_ALL) {
        let mut entries = snapshot.range(range);
        while let Some(entry) = entries.next()? {
            let Some(value) = decrypt::<V>(store, entry.key, entry.value)? else {
                is_partial = true;
                continue;
            };
            let (key, revision) = (&Bytes::copy_from_slice(entry.key), entry.mod_revision);
            view.change(InformerChange { key, revision, value: Some(&value) })?;
        }
    }
    let revision = snapshot.revision();
    let feeds = ranges.into_iter().map(|range| Subscribe::new(range).after(revision));
    let feeds = ChangeFeeds::subscribe(engine, feeds)?;
    Ok(Loaded { view, feeds, revision, is_partial })
}
