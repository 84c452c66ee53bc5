//! Caches the objects that service account tokens are bound to.
//!
//! A token is valid only while its account, pod, Secret or node exists with the same UID. Looking that up
//! costs a read per object and request, from disk at worst; so the result is cached, and a task that watches
//! those four resources invalidates what changes. A deletion takes effect once that task has received it: it
//! lags behind the commit by the time that it takes to wake it.
//!
//! Only objects that tokens in use are bound to are cached, at most `MAX_ENTRIES`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plinth_codec::time::Timestamp;
use plinth_codec::{base64_text, json, Value};
use plinth_engine::{Feed, Subscribe, Subscription};
use sha2::{Digest, Sha256};

use plinth_api::ApiError;
use plinth_registry::{object_key, prefix_range, resource_prefix};
use plinth_storage::{Store, Stored};

/// Cached objects; when the limit is reached the cache is cleared.
const MAX_ENTRIES: usize = 16 << 10;
/// How long a replica is given to learn of an object that it lacks.
const LONGEST_LAG: Duration = Duration::from_secs(2);
/// Pause before watching again after an error.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Kinds of objects that a token can be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the API's own words
pub enum BoundKind {
    ServiceAccount,
    Pod,
    Secret,
    Node,
}

impl BoundKind {
    const ALL: [BoundKind; 4] =
        [BoundKind::ServiceAccount, BoundKind::Pod, BoundKind::Secret, BoundKind::Node];

    /// The plural resource.
    pub fn plural(self) -> &'static str {
        match self {
            BoundKind::ServiceAccount => "serviceaccounts",
            BoundKind::Pod => "pods",
            BoundKind::Secret => "secrets",
            BoundKind::Node => "nodes",
        }
    }

    fn key(self, namespace: &str, name: &str) -> Vec<u8> {
        let namespace = if self == BoundKind::Node { "" } else { namespace };
        object_key(&resource_prefix("", self.plural()), namespace, name)
    }
}

/// The fields of an object that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundObject {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.deletionTimestamp` in seconds since 1970.
    pub deleted_at: Option<i64>,
    /// Of a Secret: the hash of its token.
    pub token: Option<[u8; 32]>,
    /// Of a Secret: the date on which its token was marked invalid.
    pub invalid_since: Option<String>,
    /// Of a Secret: the date on which its token was last used.
    pub last_used: Option<String>,
    /// Of a service account: its listed Secrets.
    pub secrets: Vec<String>,
}

/// State of a cache entry.
#[derive(Clone, Debug)]
enum Entry {
    /// Being read; the number identifies the reader that may insert the result.
    Loading(u64),
    Loaded(Option<Arc<BoundObject>>),
}

#[derive(Default)]
struct BindingCache {
    entries: HashMap<Vec<u8>, Entry>,
    readers: u64,
}

/// The cache. The lock is held to look up, insert and invalidate, never across a read.
pub struct Bindings {
    store: Store,
    cache: Mutex<BindingCache>,
}

impl Bindings {
    /// Caches objects of a store. [`Bindings::watch`] must run concurrently.
    pub fn new(store: Store) -> Bindings {
        Bindings { store, cache: Mutex::default() }
    }

    /// The current state of an object; `None` when it does not exist. Costs a lock and a look-up, and a read
    /// the first time and after a change.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn get(
        &self,
        kind: BoundKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<BoundObject>>, ApiError> {
        let key = kind.key(namespace, name);
        let found = self.look_up(kind, &key).await?;
        if found.is_some() || !self.store.engine().is_replica() {
            return Ok(found);
        }
        // Another replica may just have created it. Upstream asks the storage, too, for what its cache lacks.
        let reached = self.store.reach_most_recent(Instant::now().checked_add(LONGEST_LAG));
        if reached.await.is_err() {
            return Ok(None);
        }
        {
            let mut cache = self.cache.lock();
            if matches!(cache.entries.get(&key), Some(Entry::Loaded(None))) {
                cache.entries.remove(&key);
            }
        }
        self.look_up(kind, &key).await
    }

    async fn look_up(&self, kind: BoundKind, key: &[u8]) -> Result<Option<Arc<BoundObject>>, ApiError> {
        let key = key.to_vec();
        let reader = {
            let mut cache = self.cache.lock();
            if let Some(Entry::Loaded(bound)) = cache.entries.get(&key) {
                return Ok(bound.clone());
            }
            if cache.entries.len() >= MAX_ENTRIES {
                cache.entries.clear();
            }
            cache.readers += 1;
            let reader = cache.readers;
            cache.entries.insert(key.clone(), Entry::Loading(reader));
            reader
        };
        // The entry was inserted before the read: a change after that removes it, so no stale result is
        // inserted.
        let read = match self.store.newest(key.clone()).await {
            Ok(record) => record.map(|record| BoundObject::parse(kind, &record.value)).transpose(),
            Err(error) => Err(error),
        };
        let mut cache = self.cache.lock();
        let ours = matches!(cache.entries.get(&key), Some(Entry::Loading(r)) if *r == reader);
        match read {
            Ok(bound) => {
                let bound = bound.map(Arc::new);
                if ours {
                    cache.entries.insert(key, Entry::Loaded(bound.clone()));
                }
                Ok(bound)
            }
            Err(error) => {
                if ours {
                    cache.entries.remove(&key);
                }
                Err(error)
            }
        }
    }

    /// Clears the cache, as if everything had changed.
    #[cfg(test)]
    pub(super) fn clear(&self) {
        self.cache.lock().entries.clear();
    }

    /// Invalidates entries that change, forever.
    pub async fn watch(&self) {
        loop {
            let Err(error) = self.watch_once().await;
            self.cache.lock().entries.clear();
            tracing::warn!(%error, "watch of the objects that tokens are bound to failed; restarting it");
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    async fn watch_once(&self) -> Result<std::convert::Infallible, plinth_engine::Error> {
        let subscribe = |kind: BoundKind| {
            let prefix = resource_prefix("", kind.plural());
            self.store.engine().subscribe(Subscribe::new(prefix_range(prefix.as_bytes())))
        };
        let [accounts, pods, secrets, nodes] = BoundKind::ALL.map(subscribe);
        let (mut accounts, mut pods, mut secrets, mut nodes) = (accounts?, pods?, secrets?, nodes?);
        // Entries read before the subscription may have changed.
        self.cache.lock().entries.clear();
        loop {
            tokio::select! {
                changed = self.invalidate(&mut accounts) => changed?,
                changed = self.invalidate(&mut pods) => changed?,
                changed = self.invalidate(&mut secrets) => changed?,
                changed = self.invalidate(&mut nodes) => changed?,
            }
        }
    }

    async fn invalidate(&self, feed: &mut Subscription) -> Result<(), plinth_engine::Error> {
        if let Feed::Events(events) = feed.next().await? {
            let mut cache = self.cache.lock();
            for event in events.iter() {
                cache.entries.remove(event.key.as_ref());
            }
        }
        Ok(())
    }
}

impl BoundObject {
    fn parse(kind: BoundKind, value: &[u8]) -> Result<BoundObject, ApiError> {
        let stored = Stored::parse(value).map_err(ApiError::internal)?;
        let mut bound = BoundObject { uid: stored.uid().to_owned(), ..BoundObject::default() };
        if stored.deleting() {
            let metadata = json::parse(stored.metadata()).map_err(ApiError::internal)?;
            let when = metadata.str_at(&["deletionTimestamp"]).unwrap_or_default();
            // An invalid time counts as long ago.
            bound.deleted_at = Some(Timestamp::parse(when).map_or(0, |when| when.seconds));
        }
        if kind == BoundKind::Secret {
            let secret = json::parse(stored.body()).map_err(ApiError::internal)?;
            bound.token = secret_text(&secret, "token").map(|token| Sha256::digest(token).into());
            let label = stored.label(super::INVALID_SINCE).filter(|label| !label.is_empty());
            bound.invalid_since = label.map(str::to_owned);
            bound.last_used = stored.label(super::last_used::LAST_USED).map(str::to_owned);
        }
        if kind == BoundKind::ServiceAccount {
            let account = json::parse(stored.body()).map_err(ApiError::internal)?;
            let listed = account.list_at(&["secrets"]);
            bound.secrets = listed.iter().filter_map(|s| Some(s.str_at(&["name"])?.to_owned())).collect();
        }
        Ok(bound)
    }
}

/// A value of a Secret's data, decoded.
pub(crate) fn secret_text(secret: &Value, key: &str) -> Option<Vec<u8>> {
    base64_text::decode(secret.str_at(&["data", key])?).ok()
}
