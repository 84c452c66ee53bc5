//! The objects of a list, or of a watch's initial state: a scan over their range, or the keys found in the
//! header index ([`plinth_storage::HeaderIndex`]).

use std::sync::Arc;

use bytes::Bytes;
use plinth_engine::{At, KeyRange, Snapshot};

use crate::context::Server;
use crate::selection::Selection;
use crate::stored_objects::{read, Scan};
use plinth_registry::ResourceType;

/// A state and the objects to read from it.
pub(in crate::handlers) struct Source {
    pub(in crate::handlers) snapshot: Snapshot,
    /// Keys of the objects, if they were found in the header index.
    pub(in crate::handlers) keys: Option<Vec<Bytes>>,
    /// The collection to be indexed, if all of it is scanned.
    pub(in crate::handlers) indexes: Option<Vec<u8>>,
}

/// Whether a selection can be evaluated on headers.
pub(in crate::handlers) fn uses_header_index(resource: &ResourceType, selection: &Selection) -> bool {
    let needs_webhook = resource.custom.as_ref().is_some_and(|custom| !custom.converts_by_name());
    !selection.is_everything() && selection.single_name().is_none() && !needs_webhook
}

impl Source {
    /// The latest state, with the keys selected from the header index; `None` when the index does not cover
    /// the collection. Blocks.
    pub(in crate::handlers) fn find(
        server: &Server,
        resource: &ResourceType,
        selection: &Selection,
        collection: &[u8],
        range: &KeyRange,
    ) -> Option<Source> {
        if !uses_header_index(resource, selection) {
            return None;
        }
        let engine = server.store.engine();
        // Objects that must be converted are selected after the conversion.
        let found = server.reader.header_index.find(engine, collection, range, |key, header| {
            !read::is_current(resource, header) || selection.matches(resource, key, header)
        })?;
        let snapshot = engine.snapshot(At::Exact(found.revision)).ok()?;
        Some(Source { snapshot, keys: Some(found.keys), indexes: None })
    }

    /// Scans the objects of the range after a key.
    pub(in crate::handlers) fn scan(
        &self,
        (server, resource): (&Arc<Server>, &Arc<ResourceType>),
        range: &KeyRange,
        after: Option<&[u8]>,
    ) -> Scan {
        let (server, resource) = (server.clone(), resource.clone());
        if let Some(keys) = &self.keys {
            let behind = keys.partition_point(|key| after.is_some_and(|after| &key[..] <= after));
            let keys = keys.get(behind..).unwrap_or_default().to_vec();
            return Scan::over_keys(server.reader.clone(), resource, self.snapshot.clone(), keys);
        }
        let rest = after.map(|after| range.after(after));
        let is_whole = rest.is_none();
        let mut scan = Scan::over(
            server.reader.clone(),
            resource,
            &self.snapshot,
            rest.unwrap_or_else(|| range.clone()),
        );
        if let Some(collection) = self.indexes.as_ref().filter(|_| is_whole) {
            scan.fill(server.reader.header_index.build(server.store.engine(), collection, &self.snapshot));
        }
        scan
    }
}
