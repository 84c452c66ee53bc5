//! Objects over the engine: stored form, encryption at rest, reads and conditional writes, caches of
//! collections.
//!
//! ```
//! use std::sync::Arc;
//!
//! use plinth_engine::{Engine, Options};
//! use plinth_storage::Store;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let engine = Engine::open(Options::new(dir.path()))?;
//! let store = Store::new(engine, Arc::default());
//! let pods = store.registry().get("", "v1", "pods").cloned().ok_or("a built-in resource")?;
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! let found = runtime.block_on(store.objects(&pods, "default"))?;
//! assert!(found.is_empty());
//! # Ok(())
//! # }
//! ```

#![cfg_attr(not(test), warn(unreachable_pub))]

mod change_feeds;
mod continue_token;
mod counts;
mod damaged_value;
mod encryption;
mod fetched;
mod header_index;
mod informer;
mod layout;
mod lengths;
mod namespaces;
mod object;
mod object_cache;
mod stored;
mod terminating;
mod varint;

pub use change_feeds::ChangeFeeds;
pub use continue_token::{ContinuePosition, ContinueTokenError, ContinueTokens};
pub use counts::Counts;
pub use damaged_value::DamagedValue;
pub use encryption::{
    parse_encryption_config, Encryption, EncryptionConfigError, EncryptionError, EncryptionOptions,
    SealedValue,
};
pub use fetched::Fetched;
pub use header_index::{HeaderIndex, IndexBuilder, Matches};
pub use informer::{Informer, InformerChange, InformerView};
pub use layout::{migrate_layout, MigratedLayout};
pub use lengths::{Lengths, Owner};
pub use namespaces::Namespaces;
pub use object::{decode_object, decode_served_object, encode_object};
pub use object_cache::{DerivedCache, Entries, ObjectCache};
pub use stored::{stored_header_bytes, Header, HeaderFields, Stored, BODY_START};
pub use terminating::TerminatingObject;

use plinth_codec::Value;
use plinth_engine::{
    At, Committed, Condition, Engine, Entry, InMemory, KeyRange, Record, Revision, Transaction,
};

use plinth_api::{timed, ApiError, Layer};
use plinth_http::mark_must_complete;
use plinth_registry::{
    collection_prefix, object_key, prefix_range, resource_prefix, Current, Registry, ResourceType,
    StorageForm, DEFINITION_RESOURCE as DEFINITIONS,
};
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

/// The engine and the registry, as handlers use them. Cheap to clone; owns no lock of its own.
#[derive(Clone)]
pub struct Store {
    engine: Engine,
    encryption: Arc<Encryption>,
    registry: Arc<Current>,
}

impl Store {
    /// A store over an engine, with the built-in resources.
    pub fn new(engine: Engine, encryption: Arc<Encryption>) -> Store {
        Store::serving(engine, encryption, Registry::builtin())
    }

    /// The same with the built-in resources of a registry.
    pub fn serving(engine: Engine, encryption: Arc<Encryption>, registry: Registry) -> Store {
        Store { engine, encryption, registry: Arc::new(Current::new(registry)) }
    }

    /// The current registry. A request reads it once and keeps it.
    pub fn registry(&self) -> Arc<Registry> {
        self.registry.snapshot()
    }

    /// The holder of the current registry, to publish another one and to wait for it.
    pub fn current_registry(&self) -> &Current {
        &self.registry
    }

    /// Encryption at rest.
    pub fn encryption(&self) -> &Encryption {
        &self.encryption
    }

    /// Decrypts a stored value; borrowed when it is not encrypted.
    ///
    /// # Errors
    /// 500 naming the key when they cannot be decrypted.
    pub fn open<'v>(&self, key: &[u8], value: &'v [u8]) -> Result<Cow<'v, [u8]>, ApiError> {
        Ok(self.encryption.open(key, value)?)
    }

    /// Decrypts a record; copies nothing that is not encrypted.
    ///
    /// # Errors
    /// When it cannot be decrypted.
    pub fn fetched(&self, record: Record) -> Result<Fetched, EncryptionError> {
        let value = match self.encryption.open(&record.key, &record.value)? {
            Cow::Borrowed(_) => record.value.clone(),
            Cow::Owned(plain) => Bytes::from(plain),
        };
        Ok(Fetched::new(record, value))
    }

    /// Encrypts a value if its key's resource is configured to be.
    ///
    /// # Errors
    /// 500 when no key is available.
    pub fn seal(&self, key: &[u8], value: Bytes) -> Result<Bytes, ApiError> {
        Ok(self.encryption.seal(key, value)?)
    }

    /// Whether a record should be rewritten although its value has not changed, because the configuration now
    /// has another key or provider.
    pub fn is_stale(&self, record: &Fetched) -> bool {
        self.encryption.is_stale(&record.key, record.stored_value())
    }

    /// The engine, for feeds and statistics.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Waits until the newest state here is at least as new as everything that was committed before the call,
    /// on whichever replica. In a single store it is.
    ///
    /// # Errors
    /// 503 when that is not known at `deadline`, because the journal does not answer.
    pub async fn reach_most_recent(&self, deadline: Option<Instant>) -> Result<(), ApiError> {
        match self.reaches_most_recent(deadline).await? {
            true => Ok(()),
            false => Err(ApiError::most_recent_unknown(self.engine.journal_refusal().as_deref())),
        }
    }

    /// The same; false when that is not known at `deadline`.
    ///
    /// # Errors
    /// When the engine has failed, or is closed.
    pub async fn reaches_most_recent(&self, deadline: Option<Instant>) -> Result<bool, ApiError> {
        if !self.engine.is_replica() {
            return Ok(true);
        }
        let barrier = timed(Layer::Storage, self.engine.read_barrier());
        let reached = match deadline {
            None => barrier.await,
            Some(deadline) => match tokio::time::timeout_at(deadline.into(), barrier).await {
                Ok(reached) => reached,
                Err(_) => return Ok(false),
            },
        };
        Ok(reached.map(|_| true)?)
    }

    /// Waits until the registry has a definition that another replica has accepted; returns at once where
    /// there is none. For custom resources that seem not to be served.
    ///
    /// # Errors
    /// As [`Store::reach_most_recent`].
    pub async fn reach_definition(
        &self,
        group: &str,
        plural: &str,
        deadline: Option<Instant>,
    ) -> Result<(), ApiError> {
        self.reach_most_recent(deadline).await?;
        let prefix = resource_prefix(DEFINITIONS.0, DEFINITIONS.2);
        let stored = self.newest(object_key(&prefix, "", &format!("{plural}.{group}"))).await?;
        if let (Some(definition), Some(deadline)) = (stored, deadline) {
            // One that is not served yet is not waited for longer.
            let reached = self.registry.reach(definition.mod_revision);
            let _ = tokio::time::timeout_at(deadline.into(), reached).await;
        }
        Ok(())
    }

    /// Runs a read on a thread that may block: keys that are not in memory are read from disk.
    ///
    /// # Errors
    /// Errors of the read; 500 when it panicked.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Engine) -> Result<T, plinth_engine::Error> + Send + 'static,
    ) -> Result<T, ApiError> {
        let engine = self.engine.clone();
        match timed(Layer::Storage, tokio::task::spawn_blocking(move || read(&engine))).await {
            Ok(result) => Ok(result?),
            Err(error) => Err(ApiError::internal(format!("storage read failed: {error}"))),
        }
    }

    /// The latest record of a key. If it is in memory it is read on this thread: that takes a few
    /// microseconds, less than the switch to a thread that may block.
    ///
    /// # Errors
    /// Errors of the engine.
    pub async fn newest(&self, key: Vec<u8>) -> Result<Option<Fetched>, ApiError> {
        let record = match self.engine.get_in_memory(&key)? {
            InMemory::Known(record) => record,
            InMemory::Unknown => self.read(move |engine| engine.get(&key, At::Latest)).await?,
        };
        Ok(record.map(|record| self.fetched(record)).transpose()?)
    }

    /// The latest version of an object.
    pub async fn get(
        &self,
        form: &StorageForm,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Fetched>, ApiError> {
        self.newest(object_key(&form.prefix, namespace, name)).await
    }

    /// Collects what `pick` returns for the entries of a key range, and the revision. Values are as stored:
    /// headers can be read, bodies may be encrypted.
    pub async fn scan<T: Send + 'static>(
        &self,
        range: KeyRange,
        mut pick: impl FnMut(&Entry<'_>) -> Option<T> + Send + 'static,
    ) -> Result<(Vec<T>, Revision), ApiError> {
        self.read(move |engine| {
            let snapshot = engine.snapshot(At::Latest)?;
            let mut picked = Vec::new();
            let mut entries = snapshot.range(&range);
            while let Some(entry) = entries.next()? {
                picked.extend(pick(&entry));
            }
            Ok((picked, snapshot.revision()))
        })
        .await
    }

    /// Every record of a key range, and the revision. For small collections.
    pub async fn records(&self, range: KeyRange) -> Result<(Vec<Fetched>, Revision), ApiError> {
        let (records, revision) = self.scan(range, |entry| Some(entry.to_record())).await?;
        let records = records.into_iter().map(|record| self.fetched(record));
        Ok((records.collect::<Result<_, _>>()?, revision))
    }

    /// Every object of a collection that only administrators fill; all namespaces if `namespace` is empty. Of
    /// one that users fill, all objects at once may take more memory than there is: see [`Store::visit`].
    pub async fn objects(
        &self,
        resource: &Arc<ResourceType>,
        namespace: &str,
    ) -> Result<Vec<Value>, ApiError> {
        let collect = |objects: &mut Vec<Value>, object: Value| {
            objects.push(object);
            ControlFlow::Continue(())
        };
        self.visit(resource, namespace, |_| true, Vec::new(), collect).await
    }

    /// Calls `each` with the objects of a collection whose headers `is_selected`, until it breaks, and
    /// returns what it has made of `found`. All namespaces if `namespace` is empty. Runs on a thread that may
    /// block, and holds one object at a time.
    ///
    /// # Errors
    /// Errors of the read; 500 when an object cannot be decrypted or decoded.
    pub async fn visit<T: Send + 'static>(
        &self,
        resource: &Arc<ResourceType>,
        namespace: &str,
        is_selected: impl Fn(&Header<'_>) -> bool + Send + 'static,
        mut found: T,
        mut each: impl FnMut(&mut T, Value) -> ControlFlow<()> + Send + 'static,
    ) -> Result<T, ApiError> {
        let Some(form) = &resource.storage else { return Ok(found) };
        let range = prefix_range(&collection_prefix(&form.prefix, namespace));
        let (store, resource) = (self.clone(), resource.clone());
        let visited = self.read(move |engine| {
            let snapshot = engine.snapshot(At::Latest)?;
            let mut entries = snapshot.range(&range);
            while let Some(entry) = entries.next()? {
                match store.selected(&resource, &entry, &is_selected) {
                    Ok(None) => {}
                    Ok(Some(object)) => {
                        if each(&mut found, object).is_break() {
                            break;
                        }
                    }
                    Err(error) => return Ok(Err(error)),
                }
            }
            Ok(Ok(found))
        });
        visited.await?
    }

    /// The object of an entry, if its header `is_selected`.
    fn selected(
        &self,
        resource: &ResourceType,
        entry: &Entry<'_>,
        is_selected: impl Fn(&Header<'_>) -> bool,
    ) -> Result<Option<Value>, ApiError> {
        if !is_selected(&Header::parse(entry.value).map_err(ApiError::internal)?) {
            return Ok(None);
        }
        let record = self.fetched(entry.to_record())?;
        object::decode_object(resource, &record).map(Some)
    }

    /// Commits a transaction; `None` when a condition failed, so that the caller retries. From here on the
    /// request completes even if its client disconnects. The caller waits until `deadline`. A single store
    /// answers before: only a replica waits for something that can be away, its journal.
    ///
    /// # Errors
    /// 503 when the transaction was not committed until then and never will be, 504 when that is not certain.
    pub async fn commit_by(
        &self,
        transaction: Transaction,
        deadline: Option<Instant>,
    ) -> Result<Option<Committed>, ApiError> {
        mark_must_complete();
        let mut proposal = self.engine.transact(transaction);
        let committed = match deadline.filter(|_| self.engine.is_replica()) {
            None => timed(Layer::Storage, proposal).await,
            Some(deadline) => {
                let waiting = tokio::time::timeout_at(deadline.into(), &mut proposal);
                match timed(Layer::Storage, waiting).await {
                    Ok(committed) => committed,
                    Err(_) if proposal.withdraw() => {
                        return Err(ApiError::journal_unavailable(self.engine.journal_refusal().as_deref()))
                    }
                    Err(_) => return Err(ApiError::timeout()),
                }
            }
        };
        match committed {
            Ok(committed) => Ok(Some(committed)),
            Err(plinth_engine::Error::Conflict { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The condition that a record has not changed.
pub fn unchanged(record: &Record) -> Condition {
    Condition::ModRevision { key: record.key.clone(), revision: record.mod_revision }
}

/// An invalid resourceVersion. The caller chooses the field and status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a resource version")]
pub struct InvalidResourceVersion;

/// Parses a resourceVersion: a positive decimal integer without leading zeros, `0`, or nothing.
///
/// # Errors
/// [`InvalidResourceVersion`] for everything else.
pub fn parse_resource_version(text: &str) -> Result<Option<Revision>, InvalidResourceVersion> {
    match text {
        "" => Ok(None),
        "0" => Ok(Some(Revision::ZERO)),
        text if text.starts_with('0') || !text.bytes().all(|b| b.is_ascii_digit()) => {
            Err(InvalidResourceVersion)
        }
        text => text.parse().map(|n| Some(Revision::new(n))).map_err(|_| InvalidResourceVersion),
    }
}
