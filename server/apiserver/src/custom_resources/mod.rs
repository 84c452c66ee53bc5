//! Objects of custom resources, served by the same verb handlers as built-in kinds.
//!
//! | module | subject |
//! |---|---|
//! | [`object`] | from bodies to stored objects, and from one version to another |
//! | [`present`] | from stored objects to what is served |
//! | [`webhook`] | conversion between versions by a server outside |
//!
//! A request for a custom resource takes the same path as any other; where built-in kinds have a typed schema, the row
//! has a [`CustomVersion`](plinth_registry::custom::CustomVersion) that handlers ask instead.

pub mod object;
pub mod present;
pub mod webhook;

use std::sync::Arc;

use crate::outward::Webhooks;
use plinth_http::pull::RemoteWaits;
use plinth_storage::heads::Heads;
use plinth_storage::Store;

/// What objects are read and converted with. Cheap to clone.
#[derive(Clone)]
pub struct Presenter {
    /// Objects.
    pub store: Store,
    /// The way to webhooks.
    pub webhooks: Arc<Webhooks>,
    /// Heads of collections that are searched by selectors.
    pub heads: Arc<Heads>,
    /// Bounds the threads that wait for conversion webhooks.
    pub remote_waits: RemoteWaits,
}
