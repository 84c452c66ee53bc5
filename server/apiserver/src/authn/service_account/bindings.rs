//! Caches the objects that service account tokens are bound to.
//!
//! A token is valid only while its account, pod, Secret or node exists with the same UID. Looking that up
//! costs a read per object and request, from disk at worst; so the result is cached until the object changes.
//! As every [`Informer`], the cache applies what was published before it answers: a token is refused by the
//! request after the delete of its pod.
//!
//! Only objects that tokens in use are bound to are cached, at most `MAX_ENTRIES`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plinth_codec::time::Timestamp;
use plinth_codec::{base64_text, json, Value};
use sha2::{Digest, Sha256};

use plinth_api::ApiError;
use plinth_registry::{object_key, resource_prefix};
use plinth_storage::{Informer, InformerChange, InformerView, Store, Stored};

/// The label that marks the token in a Secret invalid.
pub const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// Cached objects; when the limit is reached the cache is cleared.
const MAX_ENTRIES: usize = 16 << 10;
/// How long a replica is given to learn of an object that it lacks.
const LONGEST_LAG: Duration = Duration::from_secs(2);

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

/// What was read of bound objects and has not changed since.
#[derive(Default)]
struct UnchangedObjects(Mutex<BindingCache>);

#[derive(Default)]
struct BindingCache {
    entries: HashMap<Vec<u8>, Entry>,
    /// Counts readers, in all states that follow each other: what one reserved in a state before is not taken
    /// for a reservation in this one.
    readers: Arc<AtomicU64>,
}

impl InformerView for UnchangedObjects {
    /// A change drops the entry, whatever the new value.
    const DECRYPTED: bool = false;
    const HAS_ALL: bool = false;

    fn empty(&self) -> UnchangedObjects {
        let readers = Arc::clone(&self.0.lock().readers);
        UnchangedObjects(Mutex::new(BindingCache { readers, ..BindingCache::default() }))
    }

    fn prefixes(&self) -> Vec<String> {
        BoundKind::ALL.map(|kind| resource_prefix("", kind.plural())).to_vec()
    }

    fn change(&mut self, change: InformerChange<'_>) -> Result<(), ApiError> {
        self.0.get_mut().entries.remove(&change.key[..]);
        Ok(())
    }
}

/// The cache. The lock is held to look up, insert and drop entries, never across a read.
pub struct Bindings {
    store: Store,
    objects: Informer<UnchangedObjects>,
}

impl Bindings {
    /// Caches objects of a store.
    pub fn new(store: Store) -> Bindings {
        Bindings { objects: Informer::new(store.clone(), UnchangedObjects::default()), store }
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
        match reached.await {
            Ok(_) => self.look_up(kind, &key).await,
            Err(_) => Ok(None),
        }
    }

    async fn look_up(&self, kind: BoundKind, key: &[u8]) -> Result<Option<Arc<BoundObject>>, ApiError> {
        let reader = match self.objects.read(|objects| objects.0.lock().find_or_reserve(key)).await? {
            Ok(bound) => return Ok(bound),
            Err(reader) => reader,
        };
        let read = match self.store.newest(key.to_vec()).await {
            Ok(record) => record.map(|record| BoundObject::parse(kind, &record.value)).transpose(),
            Err(error) => Err(error),
        };
        let bound = read.map(|bound| bound.map(Arc::new));
        let insert = |objects: &UnchangedObjects| objects.0.lock().insert(key, reader, bound.as_ref().ok());
        if let Err(error) = self.objects.read(insert).await {
            // What was read holds, whether it can be kept or not.
            tracing::debug!(%error, "an object that a token is bound to is not cached");
        }
        bound
    }
}

impl BindingCache {
    /// The cached object, or the number under which the caller may insert it once it has read it. The entry
    /// is reserved before the read: a change after that drops it, so that no stale result is inserted.
    fn find_or_reserve(&mut self, key: &[u8]) -> Result<Option<Arc<BoundObject>>, u64> {
        if let Some(Entry::Loaded(bound)) = self.entries.get(key) {
            return Ok(bound.clone());
        }
        if self.entries.len() >= MAX_ENTRIES {
            self.entries.clear();
        }
        let reader = self.readers.fetch_add(1, Ordering::Relaxed);
        self.entries.insert(key.to_owned(), Entry::Loading(reader));
        Err(reader)
    }

    /// Inserts what was read, or drops the entry when the read failed, if it is still that of the reader.
    fn insert(&mut self, key: &[u8], reader: u64, read: Option<&Option<Arc<BoundObject>>>) {
        if !matches!(self.entries.get(key), Some(Entry::Loading(of)) if *of == reader) {
            return;
        }
        match read {
            Some(bound) => self.entries.insert(key.to_owned(), Entry::Loaded(bound.clone())),
            None => self.entries.remove(key),
        };
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
            let label = stored.label(INVALID_SINCE).filter(|label| !label.is_empty());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Several first readers may each load an empty state; the object is deleted between two of them.
    #[test]
    fn what_was_reserved_before_a_reload_is_not_inserted_after_it() {
        let first = UnchangedObjects::default();
        let read_before_the_delete = Some(Arc::new(BoundObject::default()));
        let reader = first.0.lock().find_or_reserve(b"pod").unwrap_err();
        let second = first.empty();
        let later = second.0.lock().find_or_reserve(b"pod").unwrap_err();
        second.0.lock().insert(b"pod", reader, Some(&read_before_the_delete));
        assert!(second.0.lock().find_or_reserve(b"pod").is_err(), "a deleted pod would be there for ever");
        second.0.lock().insert(b"pod", later, Some(&None));
        let last = second.0.lock().find_or_reserve(b"pod").unwrap_err();
        second.0.lock().insert(b"pod", last, Some(&None));
        assert_eq!(second.0.lock().find_or_reserve(b"pod"), Ok(None));
    }
}
