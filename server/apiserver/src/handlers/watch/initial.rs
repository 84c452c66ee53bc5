//! The initial state of a watch, as ADDED events.

use std::sync::Arc;

use plinth_engine::{At, KeyRange, Revision};

use super::batch::{Batch, BATCH};
use crate::context::Server;
use crate::flow_control::Seat;
use crate::handlers::list::source::{uses_header_index, Source};
use crate::representation::{EventType, Item, Representation};
use crate::selection::Selection;
use crate::stored_objects::{Filter, Scan};
use plinth_api::ApiError;
use plinth_http::{ClientPresence, NextPiece, PieceProducer};
use plinth_registry::{prefix_range, ResourceType};
use plinth_storage::Header;

/// A collection at one revision, being sent to a watcher.
pub(super) struct InitialState {
    scan: Scan,
    resource: Arc<ResourceType>,
    selection: Arc<Selection>,
    representation: Arc<Representation>,
    /// Whether no event has been written yet.
    first: bool,
    /// The request's seat, released when the state has been sent or its client has stopped reading.
    seat: Option<Arc<Seat>>,
}

impl InitialState {
    /// Opens the latest state of a range. Blocks.
    pub(super) fn open(
        server: Arc<Server>,
        resource: Arc<ResourceType>,
        collection: &[u8],
        range: KeyRange,
        selection: Arc<Selection>,
        representation: Arc<Representation>,
        seat: Arc<Seat>,
    ) -> Result<InitialState, ApiError> {
        let source = match Source::find(&server, &resource, &selection, collection, &range) {
            Some(source) => source,
            None => {
                let indexes = uses_header_index(&resource, &selection) && range == prefix_range(collection);
                let snapshot = server.store.engine().snapshot(At::Latest)?;
                Source { snapshot, keys: None, indexes: indexes.then(|| collection.to_vec()) }
            }
        };
        let scan = source.scan((&server, &resource), &range, None);
        Ok(InitialState { scan, resource, selection, representation, first: true, seat: Some(seat) })
    }

    /// The revision of the state.
    pub(super) fn revision(&self) -> Revision {
        self.scan.revision()
    }
}

impl PieceProducer for InitialState {
    type Piece = Batch;
    type Error = ApiError;

    fn next(&mut self, _: ClientPresence<'_>) -> Result<NextPiece<Batch>, ApiError> {
        let InitialState { scan, resource, selection, representation, first, .. } = self;
        let filter = |key: &[u8], header: &Header<'_>| selection.matches(resource, key, header);
        let filter: Filter<'_> = if selection.is_everything() { None } else { Some(&filter) };
        let mut batch = Batch::default();
        let at_end = scan.for_each(filter, |_, value, revision| {
            let item = Item::new(value, revision)?;
            batch.write(|out| representation.event(EventType::Added, &item, *first, out))?;
            *first = false;
            Ok(batch.len() < BATCH)
        })?;
        let batch = batch.shrink();
        Ok(match (at_end, batch.len()) {
            (false, _) => NextPiece::Piece(batch),
            (true, 0) => NextPiece::End,
            (true, _) => NextPiece::Last(batch),
        })
    }

    fn suspend(&mut self) {
        self.scan.suspend();
    }

    fn idle(&mut self) {
        self.suspend();
        self.seat = None;
    }

    fn piece_bytes(batch: &Batch) -> usize {
        batch.len()
    }
}
