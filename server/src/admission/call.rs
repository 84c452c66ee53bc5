//! A write that passes the plugins.

use std::ops::Deref;

use parking_lot::Mutex;
use plinth_api::ApiError;
use plinth_apiserver::context::AdmissionRequest;
use plinth_codec::Value;

use super::converted::Conversions;
use super::reinvocation::Reinvocation;

/// A request that passes the plugins. Belongs to one run of them; the lock is held for a read or an update
/// only.
pub(super) struct Call<'c> {
    pub(super) request: &'c AdmissionRequest<'c>,
    /// Its objects in other versions.
    pub(super) conversions: Conversions,
    /// The state of mutating webhooks and policies.
    pub(super) reinvocation: Mutex<Reinvocation>,
}

impl<'c> Deref for Call<'c> {
    type Target = AdmissionRequest<'c>;

    fn deref(&self) -> &AdmissionRequest<'c> {
        self.request
    }
}

impl Call<'_> {
    /// Reads the object of a built-in kind that the write refers to; `None` for an empty name.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) async fn stored_object(
        &self,
        (group, version, plural): (&str, &str, &str),
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, ApiError> {
        if name.is_empty() {
            return Ok(None);
        }
        let Some(resource) = self.cx.registry.internal(group, version, plural) else { return Ok(None) };
        let Some(form) = &resource.storage else { return Ok(None) };
        let record = self.cx.stored(form, namespace, name).await?;
        record.map(|record| plinth_storage::decode_object(resource, &record)).transpose()
    }
}
