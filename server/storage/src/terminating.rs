//! Terminating objects whose contents must be deleted first: namespaces and definitions.
//!
//! Meanwhile a client may remove the finalizer and create another object of the same name, whose contents
//! must not be deleted. So the work is bound to the UID, which is checked before each step (kubernetes
//! `pkg/controller/namespace/deletion` reads the namespace before each pass and compares UIDs).

use plinth_codec::Value;

use super::stored::Header;
use super::Store;
use plinth_api::{is_deleting, metadata_text, ApiError};
use plinth_registry::resource_prefix;

/// A cluster-scoped object that is being deleted.
#[derive(Clone, Debug)]
pub struct TerminatingObject {
    group: &'static str,
    plural: &'static str,
    name: String,
    uid: String,
}

impl TerminatingObject {
    /// The object with the given name, if it is being deleted.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn find(
        store: &Store,
        group: &'static str,
        plural: &'static str,
        name: &str,
    ) -> Result<Option<TerminatingObject>, ApiError> {
        let object_key = plinth_registry::object_key(&resource_prefix(group, plural), "", name);
        let Some(record) = store.newest(object_key).await? else { return Ok(None) };
        let header = Header::parse(&record.value).map_err(ApiError::internal)?;
        let terminating =
            || TerminatingObject { group, plural, name: name.to_owned(), uid: header.uid().to_owned() };
        Ok(header.deleting().then(terminating))
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Checks that the object still exists.
    ///
    /// # Errors
    /// 404 when it was deleted, even if another object has its name now.
    pub async fn check(&self, store: &Store) -> Result<(), ApiError> {
        match TerminatingObject::find(store, self.group, self.plural, &self.name).await? {
            Some(found) if found.uid == self.uid => Ok(()),
            _ => Err(self.not_found()),
        }
    }

    /// Checks that `live` is this object, before it is changed.
    ///
    /// # Errors
    /// 404 when it is another object.
    pub fn check_live(&self, live: &Value) -> Result<(), ApiError> {
        match metadata_text(live, "uid") == self.uid && is_deleting(live) {
            true => Ok(()),
            false => Err(self.not_found()),
        }
    }

    fn not_found(&self) -> ApiError {
        ApiError::not_found(self.group, self.plural, &self.name)
    }
}
