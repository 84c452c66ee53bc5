//! Where the objects of a list, or of a watch's first state, come from: a walk over their range, or those that the heads in
//! memory tell ([`plinth_storage::heads`]).

use std::sync::Arc;

use bytes::Bytes;
use plinth_engine::{At, KeyRange, Snapshot};

use crate::context::Server;
use crate::custom_resources::present::{self, Walk};
use crate::selection::Selection;
use plinth_registry::ResourceType;

/// A state, and what of it is looked at.
pub(in crate::handlers) struct Source {
    /// The state.
    pub(in crate::handlers) snapshot: Snapshot,
    /// The objects to look at, where they were found without a walk.
    pub(in crate::handlers) picked: Option<Vec<Bytes>>,
    /// The collection whose heads are taken in, where all of it is walked over and that is wanted.
    pub(in crate::handlers) fills: Option<Vec<u8>>,
}

/// Whether a selection is a matter of looking at heads.
pub(in crate::handlers) fn searches(resource: &ResourceType, selection: &Selection) -> bool {
    let needs_webhook = resource.custom.as_ref().is_some_and(|custom| !custom.converts_by_name());
    !selection.is_everything() && selection.single_name().is_none() && !needs_webhook
}

impl Source {
    /// The newest state, as far as the selection goes, from the heads in memory. None when they do not tell. To be called
    /// where blocking is allowed.
    pub(in crate::handlers) fn find(
        server: &Server,
        resource: &ResourceType,
        selection: &Selection,
        collection: &[u8],
        range: &KeyRange,
    ) -> Option<Source> {
        if !searches(resource, selection) {
            return None;
        }
        let engine = server.store.engine();
        // What is not as it would be served is looked at when it has been made so.
        let found = server.presenter.header_index.find(engine, collection, range, |key, head| {
            !present::is_current(resource, head) || selection.matches(resource, key, head)
        })?;
        let snapshot = engine.snapshot(At::Exact(found.revision)).ok()?;
        Some(Source { snapshot, picked: Some(found.keys), fills: None })
    }

    /// A walk over the objects of the range that come after a key.
    pub(in crate::handlers) fn walk(
        &self,
        (server, resource): (&Arc<Server>, &Arc<ResourceType>),
        range: &KeyRange,
        after: Option<&[u8]>,
    ) -> Walk {
        let (server, resource) = (server.clone(), resource.clone());
        if let Some(picked) = &self.picked {
            let behind = picked.partition_point(|key| after.is_some_and(|after| &key[..] <= after));
            let keys = picked.get(behind..).unwrap_or_default().to_vec();
            return Walk::over_keys(server.presenter.clone(), resource, self.snapshot.clone(), keys);
        }
        let rest = after.map(|after| range.after(after));
        let is_whole = rest.is_none();
        let mut walk = Walk::over(
            server.presenter.clone(),
            resource,
            &self.snapshot,
            rest.unwrap_or_else(|| range.clone()),
        );
        if let Some(collection) = self.fills.as_ref().filter(|_| is_whole) {
            walk.fill(server.presenter.header_index.build(server.store.engine(), collection, &self.snapshot));
        }
        walk
    }
}
