//! Objects that are being deleted and whose end takes work: namespaces and definitions, whose contents go first.
//!
//! While that work is under way, somebody may take the finalizer off that holds the object, and make another of the same name.
//! What is in that one is not to be touched, so the work is bound to the UID, and looks again before each step
//! (kubernetes `pkg/controller/namespace/deletion` reads the namespace before each pass and compares UIDs).

use plinth_codec::Value;

use super::stored::Head;
use super::Store;
use plinth_api::api_error::ApiError;
use plinth_api::metadata;
use plinth_registry::key;

/// A cluster-scoped object that is being deleted.
#[derive(Clone, Debug)]
pub struct Departing {
    group: &'static str,
    plural: &'static str,
    name: String,
    uid: String,
}

impl Departing {
    /// The object of that name, if it is being deleted.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn find(
        store: &Store,
        group: &'static str,
        plural: &'static str,
        name: &str,
    ) -> Result<Option<Departing>, ApiError> {
        let object_key = key::object(&key::resource_prefix(group, plural), "", name);
        let Some(record) = store.newest(object_key).await? else { return Ok(None) };
        let head = Head::parse(&record.value).map_err(ApiError::internal)?;
        let departing = || Departing { group, plural, name: name.to_owned(), uid: head.uid().to_owned() };
        Ok(head.deleting().then(departing))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Looks again.
    ///
    /// # Errors
    /// 404 when it has gone, whatever has its name now.
    pub async fn check(&self, store: &Store) -> Result<(), ApiError> {
        match Departing::find(store, self.group, self.plural, &self.name).await? {
            Some(found) if found.uid == self.uid => Ok(()),
            _ => Err(self.gone()),
        }
    }

    /// Whether `live` is this object, for use where it is changed.
    ///
    /// # Errors
    /// 404 when it is another one.
    pub fn check_live(&self, live: &Value) -> Result<(), ApiError> {
        match metadata::text(live, "uid") == self.uid && metadata::is_deleting(live) {
            true => Ok(()),
            false => Err(self.gone()),
        }
    }

    fn gone(&self) -> ApiError {
        ApiError::not_found(self.group, self.plural, &self.name)
    }
}
