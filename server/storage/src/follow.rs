//! State in memory that is made of stored objects and follows the engine's feed.
//!
//! The engine publishes a commit before it acknowledges it, and each look takes in what was published: so a look sees
//! every write that was acknowledged before it began, and a binding counts for the request after the one that made it.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use plinth_codec::{json, Value};
use plinth_engine::{At, EventKind, Feed, Revision, Subscribe, Subscription};

use super::stored::Stored;
use super::Store;
use plinth_api::api_error::ApiError;
use plinth_registry::key;

/// How long after it was passed over an object that cannot be decrypted is tried again: its key may have come back.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// A change of one key.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The key.
    pub key: &'a Bytes,
    /// The revision that made it.
    pub revision: Revision,
    /// What lies there now, in plain text unless the collection takes it unopened; `None` when it was deleted.
    pub value: Option<&'a [u8]>,
}

impl Change<'_> {
    /// The object that lies there now.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn object(&self) -> Result<Option<Value>, ApiError> {
        let Some(value) = self.value else { return Ok(None) };
        let stored = Stored::parse(value).map_err(ApiError::internal)?;
        json::parse(stored.body()).map(Some).map_err(ApiError::internal)
    }
}

/// What is made of stored objects.
pub trait Collection: Send + Sync + 'static {
    /// Whether values come in plain text. What looks at heads alone can do without, and with objects whose bodies
    /// cannot be decrypted.
    const OPENED: bool = true;

    /// Whether an object that cannot be decrypted is passed over as if it were not there, and tried again later. For what an
    /// object only adds to, such as rights. Elsewhere one policy or quota less would allow more: there nothing is known
    /// until all can be read.
    const PASSES_OVER: bool = false;

    /// The same without anything in it.
    fn empty(&self) -> Self;

    /// The prefixes of the keys that it is made of.
    fn prefixes(&self) -> Vec<String>;

    /// Takes a change in.
    ///
    /// # Errors
    /// When the value cannot be read; the collection is then made anew, and answers with the error until it can be.
    fn change(&mut self, change: Change<'_>) -> Result<(), ApiError>;
}

/// A collection and its place in the feed.
///
/// Looks share the collection's lock. The feed's lock is held to take changes in, never across an await; a look that
/// finds nothing new touches one atomic number and no feed.
pub struct Followed<C> {
    store: Store,
    collection: RwLock<C>,
    /// `None` until the first look, and after a error.
    feeds: Mutex<Option<Vec<Subscription>>>,
    /// Revision up to which everything has been taken in; 0 while nothing has.
    position: AtomicU64,
    /// Whether objects were passed over, and when they were last tried. The flag spares looks the lock.
    is_partial: AtomicBool,
    tried: Mutex<Option<Instant>>,
}

impl<C: Collection> Followed<C> {
    /// One that is filled at the first look.
    pub fn new(store: Store, empty: C) -> Followed<C> {
        Followed {
            store,
            collection: RwLock::new(empty),
            feeds: Mutex::default(),
            position: AtomicU64::new(0),
            is_partial: AtomicBool::new(false),
            tried: Mutex::default(),
        }
    }

    /// Asks the collection, with everything in it that was acknowledged before.
    ///
    /// # Errors
    /// When the collection cannot be read.
    pub async fn look<T>(&self, ask: impl FnOnce(&C) -> T) -> Result<T, ApiError> {
        let wanted = self.store.engine().current_revision().get();
        // Revision 0 is a store that nothing was ever written to.
        if self.position.load(Ordering::Acquire) < wanted && !self.catch_up(wanted) {
            Box::pin(self.fill()).await?;
        } else if self.is_due() {
            if let Err(error) = Box::pin(self.fill()).await {
                tracing::warn!(%error, "what was passed over is still not read");
            }
        }
        Ok(ask(&self.collection.read()))
    }

    /// Whether it is time to try what was passed over; the one that is told so does it.
    fn is_due(&self) -> bool {
        if !self.is_partial.load(Ordering::Relaxed) {
            return false;
        }
        let mut tried = self.tried.lock();
        let due = tried.is_some_and(|when| when.elapsed() >= TRY_AGAIN);
        if due {
            *tried = Some(Instant::now());
        }
        due
    }

    /// Notes whether something was passed over.
    fn note(&self, is_partial: bool) {
        *self.tried.lock() = is_partial.then(Instant::now);
        self.is_partial.store(is_partial, Ordering::Relaxed);
    }

    /// Takes in what the feeds have; false when that is not everything up to the wanted revision: a collection
    /// that nobody looked at for long is sooner filled anew than led through the past.
    fn catch_up(&self, wanted: u64) -> bool {
        let mut held = self.feeds.lock();
        let Some(feeds) = held.as_mut() else { return false };
        let mut reached = u64::MAX;
        for feed in feeds {
            match self.drain(feed) {
                Ok(position) => reached = reached.min(position.get()),
                Err(error) => {
                    // The end of the engine ends all feeds; that it failed is logged once, where the process ends.
                    if !self.store.engine().is_over() {
                        let prefixes = self.collection.read().prefixes();
                        tracing::warn!(%error, ?prefixes, "Cache of stored objects is reloaded");
                    }
                    reached = 0;
                }
            }
        }
        if reached < wanted {
            *held = None;
            return false;
        }
        self.position.fetch_max(reached, Ordering::AcqRel);
        true
    }

    fn drain(&self, feed: &mut Subscription) -> Result<Revision, ApiError> {
        while let Some(next) = feed.try_next()? {
            let Feed::Events(events) = next else { continue };
            let mut collection = self.collection.write();
            for event in events.iter() {
                let value = match &event.kind {
                    EventKind::Put { value, .. } => {
                        let plain = plain::<C>(&self.store, &event.key, value)?;
                        if plain.is_none() {
                            self.note(true);
                        }
                        plain
                    }
                    EventKind::Delete => None,
                };
                let (key, revision) = (&event.key, event.revision);
                collection.change(Change { key, revision, value: value.as_deref() })?;
            }
        }
        Ok(feed.position())
    }

    /// Makes the collection anew of what is stored, where blocking is allowed.
    async fn fill(&self) -> Result<(), ApiError> {
        loop {
            let (store, empty) = (self.store.clone(), self.collection.read().empty());
            let made = tokio::task::spawn_blocking(move || read(&store, empty)).await;
            let Made { collection, feeds, revision, is_partial } = made.map_err(ApiError::internal)??;
            let mut held = self.feeds.lock();
            // Others may have gone further meanwhile: what was true then must not come back.
            if self.position.load(Ordering::Acquire) <= revision.get() {
                *self.collection.write() = collection;
                *held = Some(feeds);
                self.note(is_partial);
                self.position.store(revision.get(), Ordering::Release);
                return Ok(());
            }
            if held.is_some() {
                return Ok(());
            }
        }
    }
}

/// A value as the collection wants it; `None` where it is passed over.
fn plain<'v, C: Collection>(
    store: &Store,
    key: &[u8],
    value: &'v [u8],
) -> Result<Option<Cow<'v, [u8]>>, ApiError> {
    if !C::OPENED {
        return Ok(Some(Cow::Borrowed(value)));
    }
    match store.encryption().open(key, value) {
        Ok(plain) => Ok(Some(plain)),
        Err(error) if C::PASSES_OVER && error.is_of_the_value() => {
            tracing::warn!(%error, "an object that cannot be decrypted counts as not there");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// A collection made of what is stored.
struct Made<C> {
    collection: C,
    feeds: Vec<Subscription>,
    revision: Revision,
    is_partial: bool,
}

fn read<C: Collection>(store: &Store, mut collection: C) -> Result<Made<C>, ApiError> {
    let mut is_partial = false;
    let engine = store.engine();
    let snapshot = engine.snapshot(At::Latest)?;
    let mut feeds = Vec::new();
    for prefix in collection.prefixes() {
        let range = key::range(prefix.as_bytes());
        let mut entries = snapshot.range(&range);
        while let Some(entry) = entries.next()? {
            let Some(value) = plain::<C>(store, entry.key, entry.value)? else {
                is_partial = true;
                continue;
            };
            let (key, revision) = (&Bytes::copy_from_slice(entry.key), entry.mod_revision);
            collection.change(Change { key, revision, value: Some(&value) })?;
        }
        feeds.push(engine.subscribe(Subscribe::new(range).after(snapshot.revision()))?);
    }
    Ok(Made { collection, feeds, revision: snapshot.revision(), is_partial })
}
