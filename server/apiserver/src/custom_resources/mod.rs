//! Objects of custom resources, served by the same verb handlers as built-in kinds.
//!
//! | module | subject |
//! |---|---|
//! | [`object`] | conversion between request bodies, stored objects and versions |
//! | [`webhook`] | conversion webhooks |
//!
//! A request for a custom resource takes the same path as any other; where built-in kinds have a typed
//! schema, the row has a [`CustomVersion`](plinth_registry::CustomVersion) that handlers use instead.

pub mod object;
pub mod webhook;

use std::sync::Arc;

use crate::egress::Webhooks;
use crate::metrics::ConversionMetrics;
use plinth_http::RemoteWaits;
use plinth_storage::Store;

/// Converts objects between versions. Cheap to clone.
#[derive(Clone)]
pub struct Converter {
    /// Where webhooks' Services are looked up.
    pub store: Store,
    /// Clients of conversion webhooks.
    pub webhooks: Arc<Webhooks>,
    /// Bounds the threads that wait for conversion webhooks.
    pub remote_waits: RemoteWaits,
    /// Counts the conversions.
    pub metrics: Arc<ConversionMetrics>,
}
