//! What is looked at of namespaces with nearly every write: whether they are there, whether they go, and their labels.
//!
//! Nearly every write asks that, some twice; so the heads of the stored objects are kept in memory, about two hundred bytes for
//! each namespace, as fresh as a read (see [`Followed`]).

use std::collections::HashMap;
use std::sync::OnceLock;

use bytes::Bytes;

use super::follow::{Change, Collection, Followed};
use super::stored::{head_of, Head};
use super::Store;
use plinth_api::api_error::ApiError;
use plinth_registry::key;

/// The heads of all namespaces; filled at the first look. Takes no lock but those of [`Followed`].
#[derive(Default)]
pub struct Namespaces(OnceLock<Followed<Heads>>);

/// Heads by names.
struct Heads {
    prefix: String,
    by_name: HashMap<Bytes, Bytes>,
}

impl Namespaces {
    /// What `ask` makes of a namespace's head; `None` when there is no such namespace.
    ///
    /// # Errors
    /// When the namespaces cannot be read.
    pub async fn look<T>(
        &self,
        store: &Store,
        name: &str,
        ask: impl FnOnce(Head<'_>) -> T,
    ) -> Result<Option<T>, ApiError> {
        let followed = self.0.get_or_init(|| {
            let heads = Heads { prefix: key::resource_prefix("", "namespaces"), by_name: HashMap::new() };
            Followed::new(store.clone(), heads)
        });
        let asked = followed.look(|heads| {
            let head = heads.by_name.get(name.as_bytes())?;
            Some(Head::parse(head).map(ask).map_err(ApiError::internal))
        });
        asked.await?.transpose()
    }
}

impl Collection for Heads {
    /// Heads are never encrypted.
    const OPENED: bool = false;

    fn empty(&self) -> Heads {
        Heads { prefix: self.prefix.clone(), by_name: HashMap::new() }
    }

    fn prefixes(&self) -> Vec<String> {
        vec![self.prefix.clone()]
    }

    fn change(&mut self, change: Change<'_>) -> Result<(), ApiError> {
        let Some(name) = change.key.strip_prefix(self.prefix.as_bytes()) else { return Ok(()) };
        let Some(value) = change.value else {
            self.by_name.remove(name);
            return Ok(());
        };
        let head = Bytes::copy_from_slice(head_of(value).map_err(ApiError::internal)?);
        self.by_name.insert(Bytes::copy_from_slice(name), head);
        Ok(())
    }
}
