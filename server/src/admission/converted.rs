//! Conversions of objects that one run of the plugins has made, for all that need the same.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use plinth_codec::Value;

use plinth_api::ApiError;

/// What has been converted in one run of the plugins. The lock is held for a look-up or an insertion only.
#[derive(Default)]
pub(super) struct Conversions {
    all: Mutex<Vec<Conversion>>,
}

/// One conversion that was made, or failed.
pub(super) struct Conversion {
    pub(super) api_version: String,
    pub(super) from: Value,
    pub(super) outcome: Result<Arc<Value>, ApiError>,
}

/// Versions and states of objects that are kept: an object that every webhook changes is not kept in each
/// state.
const MAX_KEPT: usize = 16;

impl Conversions {
    /// That of an object to a version, if it was made.
    pub(super) fn find(&self, api_version: &str, from: &Value) -> Option<Result<Arc<Value>, ApiError>> {
        let all = self.all.lock();
        let found = all.iter().rev().find(|made| made.api_version == api_version && made.from == *from);
        found.map(|made| made.outcome.clone())
    }

    pub(super) fn keep(&self, conversion: Conversion) {
        let mut all = self.all.lock();
        if all.len() >= MAX_KEPT {
            all.remove(0);
        }
        all.push(conversion);
    }
}

/// An object in a version: the request's own, or a converted one.
pub(super) enum Versioned<'v> {
    /// The request is in this version.
    Own(&'v Value),
    /// Shared with all that read it.
    Converted(Arc<Value>),
}

impl Versioned<'_> {
    pub(super) fn into_owned(self) -> Value {
        match self {
            Versioned::Own(object) => object.clone(),
            Versioned::Converted(object) => Arc::unwrap_or_clone(object),
        }
    }
}

impl Deref for Versioned<'_> {
    type Target = Value;

    fn deref(&self) -> &Value {
        match self {
            Versioned::Own(object) => object,
            Versioned::Converted(object) => object,
        }
    }
}
