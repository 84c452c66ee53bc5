//! Objects over the engine: keys, the stored form, reads and conditional writes.

pub mod continue_token;
pub mod counts;
pub mod key;
pub mod object;
pub mod stored;

use plinth_engine::{At, Committed, Condition, Engine, InMemory, Record, Revision, Transaction};

use crate::registry::StorageForm;
use crate::status::ApiError;

/// The engine, as the handlers use it. Cheap to clone; owns no lock of its own.
#[derive(Clone)]
pub struct Store {
    engine: Engine,
}

impl Store {
    /// Objects in that engine.
    pub fn new(engine: Engine) -> Store {
        Store { engine }
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
        match tokio::task::spawn_blocking(move || read(&engine)).await {
            Ok(result) => Ok(result?),
            Err(fault) => Err(ApiError::internal(format!("storage read failed: {fault}"))),
        }
    }

    /// The newest record of a key. What is in memory is read here and now: that costs a few microseconds, less than
    /// the way to a thread that may block.
    ///
    /// # Errors
    /// What the read answers.
    pub async fn newest(&self, key: Vec<u8>) -> Result<Option<Record>, ApiError> {
        match self.engine.get_in_memory(&key)? {
            InMemory::Known(record) => Ok(record),
            InMemory::Unknown => self.read(move |engine| engine.get(&key, At::Latest)).await,
        }
    }

    /// One object as it is now.
    pub async fn get(
        &self,
        form: &StorageForm,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Record>, ApiError> {
        self.newest(key::object(&form.prefix, namespace, name)).await
    }

    /// Commits; a failed condition comes back as `None`, so that the caller reads again or gives up.
    pub async fn commit(&self, transaction: Transaction) -> Result<Option<Committed>, ApiError> {
        match self.engine.transact(transaction).await {
            Ok(committed) => Ok(Some(committed)),
            Err(plinth_engine::Error::Conflict { .. }) => Ok(None),
            Err(fault) => Err(fault.into()),
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
