//! Whether the objects that tokens are bound to are still there.
//!
//! A token is worth something only as long as its account, pod, Secret or node is the one that it names. To look that
//! up costs a read per object and request, from disk at worst; so what was read is kept, and a task that follows the
//! changes of those four resources forgets what changes. A token is dead as soon as that task has seen the deletion:
//! it runs behind a commit by the time that it takes to wake it.
//!
//! Only objects that tokens in use are bound to are kept, at most `MOST`.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use plinth_codec::time::Timestamp;
use plinth_codec::{base64_text, json, Value};
use plinth_engine::{Feed, Subscribe, Subscription};
use sha2::{Digest, Sha256};

use plinth_api::api_error::ApiError;
use plinth_registry::key;
use plinth_storage::stored::Stored;
use plinth_storage::Store;

/// Objects that are kept; beyond them all are forgotten and read again.
const MOST: usize = 16 << 10;
/// A pause before the changes are followed again after a error.
const RETRY: std::time::Duration = std::time::Duration::from_secs(1);

/// What a token can be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the API's own words
pub enum Kind {
    ServiceAccount,
    Pod,
    Secret,
    Node,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::ServiceAccount, Kind::Pod, Kind::Secret, Kind::Node];

    /// The plural resource.
    pub fn plural(self) -> &'static str {
        match self {
            Kind::ServiceAccount => "serviceaccounts",
            Kind::Pod => "pods",
            Kind::Secret => "secrets",
            Kind::Node => "nodes",
        }
    }

    fn key(self, namespace: &str, name: &str) -> Vec<u8> {
        let namespace = if self == Kind::Node { "" } else { namespace };
        key::object(&key::resource_prefix("", self.plural()), namespace, name)
    }
}

/// What matters of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.deletionTimestamp` in seconds since 1970.
    pub deleted_at: Option<i64>,
    /// Of a Secret: the hash of the token in it.
    pub token: Option<[u8; 32]>,
    /// Of a Secret: when its token was switched off.
    pub invalid_since: Option<String>,
    /// Of a Secret: on which day its token was last used.
    pub last_used: Option<String>,
    /// Of an account: the Secrets that it lists.
    pub secrets: Vec<String>,
}

/// One object that is asked for.
#[derive(Clone, Debug)]
enum Entry {
    /// It is being read; `u64` is the reader that may put the outcome.
    Reading(u64),
    Known(Option<Arc<Bound>>),
}

#[derive(Default)]
struct Known {
    entries: HashMap<Vec<u8>, Entry>,
    readers: u64,
}

/// The objects that tokens are bound to. The lock is held to look up, to put and to forget, never across a read.
pub struct Bindings {
    store: Store,
    known: Mutex<Known>,
}

impl Bindings {
    /// Over the objects of a store. [`Bindings::follow`] must run beside it.
    pub fn new(store: Store) -> Bindings {
        Bindings { store, known: Mutex::default() }
    }

    /// An object as it is now; `None` when it is not there. Costs a lock and a look-up, and a read the first time
    /// and after a change.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Arc<Bound>>, ApiError> {
        let key = kind.key(namespace, name);
        let reader = {
            let mut known = self.known.lock();
            if let Some(Entry::Known(bound)) = known.entries.get(&key) {
                return Ok(bound.clone());
            }
            if known.entries.len() >= MOST {
                known.entries.clear();
            }
            known.readers += 1;
            let reader = known.readers;
            known.entries.insert(key.clone(), Entry::Reading(reader));
            reader
        };
        // The entry was there before the read: a change after it takes the entry away, and nothing stale is put.
        let read = match self.store.newest(key.clone()).await {
            Ok(record) => record.map(|record| Bound::parse(kind, &record.value)).transpose(),
            Err(error) => Err(error),
        };
        let mut known = self.known.lock();
        let ours = matches!(known.entries.get(&key), Some(Entry::Reading(r)) if *r == reader);
        match read {
            Ok(bound) => {
                let bound = bound.map(Arc::new);
                if ours {
                    known.entries.insert(key, Entry::Known(bound.clone()));
                }
                Ok(bound)
            }
            Err(error) => {
                if ours {
                    known.entries.remove(&key);
                }
                Err(error)
            }
        }
    }

    /// Forgets everything, as if it had changed.
    #[cfg(test)]
    pub(super) fn forget_all(&self) {
        self.known.lock().entries.clear();
    }

    /// Forgets what changes, for ever.
    pub async fn follow(&self) {
        loop {
            let Err(error) = self.follow_once().await;
            self.known.lock().entries.clear();
            tracing::warn!(%error, "the objects that tokens are bound to are followed again");
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn follow_once(&self) -> Result<std::convert::Infallible, plinth_engine::Error> {
        let subscribe = |kind: Kind| {
            let prefix = key::resource_prefix("", kind.plural());
            self.store.engine().subscribe(Subscribe::new(key::range(prefix.as_bytes())))
        };
        let [accounts, pods, secrets, nodes] = Kind::ALL.map(subscribe);
        let (mut accounts, mut pods, mut secrets, mut nodes) = (accounts?, pods?, secrets?, nodes?);
        // What was read before the subscriptions began may have changed unseen.
        self.known.lock().entries.clear();
        loop {
            tokio::select! {
                changed = self.forget(&mut accounts) => changed?,
                changed = self.forget(&mut pods) => changed?,
                changed = self.forget(&mut secrets) => changed?,
                changed = self.forget(&mut nodes) => changed?,
            }
        }
    }

    async fn forget(&self, feed: &mut Subscription) -> Result<(), plinth_engine::Error> {
        if let Feed::Events(events) = feed.next().await? {
            let mut known = self.known.lock();
            for event in events.iter() {
                known.entries.remove(event.key.as_ref());
            }
        }
        Ok(())
    }
}

impl Bound {
    fn parse(kind: Kind, value: &[u8]) -> Result<Bound, ApiError> {
        let stored = Stored::parse(value).map_err(ApiError::internal)?;
        let mut bound = Bound { uid: stored.uid().to_owned(), ..Bound::default() };
        if stored.deleting() {
            let metadata = json::parse(stored.metadata()).map_err(ApiError::internal)?;
            let when = metadata.str_at(&["deletionTimestamp"]).unwrap_or_default();
            // A time that cannot be read is long ago.
            bound.deleted_at = Some(Timestamp::parse(when).map_or(0, |when| when.seconds));
        }
        if kind == Kind::Secret {
            let secret = json::parse(stored.body()).map_err(ApiError::internal)?;
            bound.token = secret_text(&secret, "token").map(|token| Sha256::digest(token).into());
            let label = stored.label(super::INVALID_SINCE).filter(|label| !label.is_empty());
            bound.invalid_since = label.map(str::to_owned);
            bound.last_used = stored.label(super::last_used::LAST_USED).map(str::to_owned);
        }
        if kind == Kind::ServiceAccount {
            let account = json::parse(stored.body()).map_err(ApiError::internal)?;
            let listed = account.get("secrets").and_then(Value::as_array).unwrap_or_default();
            bound.secrets = listed.iter().filter_map(|s| Some(s.str_at(&["name"])?.to_owned())).collect();
        }
        Ok(bound)
    }
}

/// A value of a Secret's data, decoded.
pub fn secret_text(secret: &Value, key: &str) -> Option<Vec<u8>> {
    base64_text::decode(secret.str_at(&["data", key])?).ok()
}
