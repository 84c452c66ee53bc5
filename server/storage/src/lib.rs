//! Objects over the engine: the stored form, encryption at rest, reads and conditional writes, caches that follow a collection.
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

pub mod continue_token;
pub mod counts;
pub mod departing;
pub mod encryption;
pub mod follow;
pub mod heads;
pub mod layout;
pub mod lengths;
pub mod mirror;
pub mod namespaces;
pub mod object;
pub mod stored;

use plinth_codec::Value;
use plinth_engine::{
    At, Committed, Condition, Engine, Entry, InMemory, KeyRange, Record, Revision, Transaction,
};

use plinth_api::latency::{timed, Layer};
use plinth_http::attended;
use plinth_registry::{key, Current, Registry, ResourceType, StorageForm};
use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

use crate::encryption::{Encryption, EncryptionError};
use plinth_api::api_error::ApiError;

/// The engine and what is served from it, as the handlers use it. Cheap to clone; owns no lock of its own.
#[derive(Clone)]
pub struct Store {
    engine: Engine,
    encryption: Arc<Encryption>,
    registry: Arc<Current>,
}

/// An object as it was read: the record as it lies in the engine, whose bytes may be encrypted, and the value that
/// they stand for. The two are kept apart because a record that goes back to the engine
/// ([`Transaction::having_read`]) must be the engine's own: an opened one would put plain text on disk.
#[derive(Clone, Debug)]
pub struct Fetched {
    record: Record,
    /// Header and body in plain text.
    pub value: Bytes,
}

impl Fetched {
    /// The same record with the value in another form, as another version of the API has it.
    pub fn with_value(self, value: Bytes) -> Fetched {
        Fetched { value, ..self }
    }

    /// The engine's own record.
    pub fn into_record(self) -> Record {
        self.record
    }
}

impl Deref for Fetched {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

impl Store {
    /// Objects in that engine; the built-in resources are served.
    pub fn new(engine: Engine, encryption: Arc<Encryption>) -> Store {
        Store { engine, encryption, registry: Arc::default() }
    }

    /// What is served now. A request takes it once and keeps it.
    pub fn registry(&self) -> Arc<Registry> {
        self.registry.snapshot()
    }

    /// Where the next registry is published and waited for.
    pub fn current_registry(&self) -> &Current {
        &self.registry
    }

    /// What is encrypted on disk, and how.
    pub fn encryption(&self) -> &Encryption {
        &self.encryption
    }

    /// The value that stored bytes stand for: the bytes themselves where they are not encrypted.
    ///
    /// # Errors
    /// 500 naming the key when they cannot be decrypted.
    pub fn open<'v>(&self, key: &[u8], value: &'v [u8]) -> Result<Cow<'v, [u8]>, ApiError> {
        Ok(self.encryption.open(key, value)?)
    }

    /// A record of the engine with the value that it stands for; copies nothing that is not encrypted.
    ///
    /// # Errors
    /// When it cannot be decrypted.
    pub fn fetched(&self, record: Record) -> Result<Fetched, EncryptionError> {
        let value = match self.encryption.open(&record.key, &record.value)? {
            Cow::Borrowed(_) => record.value.clone(),
            Cow::Owned(plain) => Bytes::from(plain),
        };
        Ok(Fetched { record, value })
    }

    /// The bytes to store for a value: encrypted where the configuration says so for the key's resource.
    ///
    /// # Errors
    /// 500 when no key can be had.
    pub fn seal(&self, key: &[u8], value: Bytes) -> Result<Bytes, ApiError> {
        Ok(self.encryption.seal(key, value)?)
    }

    /// Whether a record should be written again although its value has not changed, because the configuration now
    /// asks for another key or provider.
    pub fn is_stale(&self, record: &Fetched) -> bool {
        self.encryption.is_stale(&record.record.key, &record.record.value)
    }

    /// The engine itself, for feeds and statistics.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Runs a read where blocking is allowed: a key that is not in memory comes from disk.
    ///
    /// # Errors
    /// What the read answers; 500 when it panicked.
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

    /// The newest record of a key. What is in memory is read here and now: that costs a few microseconds, less than
    /// the way to a thread that may block.
    ///
    /// # Errors
    /// What the read answers.
    pub async fn newest(&self, key: Vec<u8>) -> Result<Option<Fetched>, ApiError> {
        let record = match self.engine.get_in_memory(&key)? {
            InMemory::Known(record) => record,
            InMemory::Unknown => self.read(move |engine| engine.get(&key, At::Latest)).await?,
        };
        Ok(record.map(|record| self.fetched(record)).transpose()?)
    }

    /// One object as it is now.
    pub async fn get(
        &self,
        form: &StorageForm,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Fetched>, ApiError> {
        self.newest(key::object(&form.prefix, namespace, name)).await
    }

    /// What `pick` takes of the newest state of a key range, and the revision that this is true at. Values are as the engine
    /// has them: heads can be read, bodies may be encrypted.
    pub async fn survey<T: Send + 'static>(
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

    /// Every record of a key range, and the revision that this is true at. For collections that are small.
    pub async fn records(&self, range: KeyRange) -> Result<(Vec<Fetched>, Revision), ApiError> {
        let (records, revision) = self.survey(range, |entry| Some(entry.to_record())).await?;
        let records = records.into_iter().map(|record| self.fetched(record));
        Ok((records.collect::<Result<_, _>>()?, revision))
    }

    /// Every object of a small collection; all namespaces when the namespace is empty.
    pub async fn objects(&self, resource: &ResourceType, namespace: &str) -> Result<Vec<Value>, ApiError> {
        let Some(form) = &resource.storage else { return Ok(Vec::new()) };
        let range = key::range(&key::collection(&form.prefix, namespace));
        let (records, _) = self.records(range).await?;
        records.iter().map(|record| object::to_tree(resource, record)).collect()
    }

    /// Commits; a failed condition comes back as `None`, so that the caller reads again or gives up. The request that does goes on
    /// to its end from here on, also without its client.
    pub async fn commit(&self, transaction: Transaction) -> Result<Option<Committed>, ApiError> {
        attended::go_on();
        match timed(Layer::Storage, self.engine.transact(transaction)).await {
            Ok(committed) => Ok(Some(committed)),
            Err(plinth_engine::Error::Conflict { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The condition that a record is still what was read.
pub fn unchanged(record: &Record) -> Condition {
    Condition::ModRevision { key: record.key.clone(), revision: record.mod_revision }
}

/// A text that is no resourceVersion. The caller knows which field and code to answer with.
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
