//! Headers of namespaces, cached in memory.
//!
//! Nearly every write checks that its namespace exists, whether it is terminating, or its labels, some twice;
//! so the headers are cached, about two hundred bytes per namespace, as fresh as a read (see [`Informer`]).

use std::collections::HashMap;
use std::sync::OnceLock;

use bytes::Bytes;

use super::informer::{Informer, InformerChange, InformerView};
use super::stored::{stored_header_bytes, Header};
use super::{unchanged, Store};
use plinth_api::ApiError;
use plinth_engine::Condition;
use plinth_registry::{object_key, resource_prefix};

/// Plural name of the resource.
const RESOURCE: &str = "namespaces";

/// The headers of all namespaces; loaded by the first read.
#[derive(Default)]
pub struct Namespaces(OnceLock<Informer<Headers>>);

/// Headers by names.
struct Headers {
    prefix: String,
    by_name: HashMap<Bytes, Bytes>,
}

impl Namespaces {
    /// Calls `read` with a namespace's header; `None` when there is no such namespace.
    ///
    /// # Errors
    /// When the namespaces cannot be loaded.
    pub async fn read<T>(
        &self,
        store: &Store,
        name: &str,
        read: impl FnOnce(Header<'_>) -> T,
    ) -> Result<Option<T>, ApiError> {
        let informer = self.0.get_or_init(|| {
            let headers = Headers { prefix: resource_prefix("", RESOURCE), by_name: HashMap::new() };
            Informer::new(store.clone(), headers)
        });
        let outcome = informer.read(|headers| {
            let header = headers.by_name.get(name.as_bytes())?;
            Some(Header::parse(header).map(read).map_err(ApiError::internal))
        });
        outcome.await?.transpose()
    }

    /// The error of a request in a namespace that is absent.
    pub fn not_found(name: &str) -> ApiError {
        ApiError::not_found("", RESOURCE, name)
    }

    /// The condition that a namespace has not changed; `None` where it is absent or being deleted.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn unchanged(store: &Store, name: &str) -> Result<Option<Condition>, ApiError> {
        let key = object_key(&resource_prefix("", RESOURCE), "", name);
        let Some(record) = store.newest(key).await? else { return Ok(None) };
        let header = Header::parse(&record.value).map_err(ApiError::internal)?;
        Ok((!header.deleting()).then(|| unchanged(&record)))
    }
}

impl InformerView for Headers {
    /// Headers are never encrypted.
    const DECRYPTED: bool = false;

    fn empty(&self) -> Headers {
        Headers { prefix: self.prefix.clone(), by_name: HashMap::new() }
    }

    fn prefixes(&self) -> Vec<String> {
        vec![self.prefix.clone()]
    }

    fn change(&mut self, change: InformerChange<'_>) -> Result<(), ApiError> {
        let Some(name) = change.key.strip_prefix(self.prefix.as_bytes()) else { return Ok(()) };
        let Some(value) = change.value else {
            self.by_name.remove(name);
            return Ok(());
        };
        let header = Bytes::copy_from_slice(stored_header_bytes(value).map_err(ApiError::internal)?);
        self.by_name.insert(Bytes::copy_from_slice(name), header);
        Ok(())
    }
}
