//! A write that passes the plugins.

use std::ops::Deref;

use parking_lot::Mutex;
use plinth_apiserver::context::AdmissionRequest;

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
