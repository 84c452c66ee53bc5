//! The state that a watch begins with, as ADDED events.

use std::sync::Arc;

use plinth_engine::{At, KeyRange, Revision};

use super::batch::Batch;
use super::stream::BATCH;
use crate::context::Server;
use crate::custom_resources::present::{Selects, Walk};
use crate::flow_control::Seat;
use crate::handlers::list::source::{searches, Source};
use crate::representation::{EventType, Item, Representation};
use crate::selection::Selection;
use plinth_api::api_error::ApiError;
use plinth_http::pull::{Next, Presence, Producer};
use plinth_registry::key;
use plinth_registry::ResourceType;
use plinth_storage::stored::Head;

/// A collection at one revision on its way to a watcher.
pub(super) struct State {
    walk: Walk,
    resource: Arc<ResourceType>,
    selection: Arc<Selection>,
    representation: Arc<Representation>,
    /// Whether no event was written yet.
    first: bool,
    /// A watch has its place among the requests that are served until its state has been handed over, or its client has
    /// stopped taking it.
    seat: Option<Arc<Seat>>,
}

impl State {
    /// The newest state of a range. Blocks.
    pub(super) fn open(
        server: Arc<Server>,
        resource: Arc<ResourceType>,
        collection: &[u8],
        range: KeyRange,
        selection: Arc<Selection>,
        representation: Arc<Representation>,
        seat: Arc<Seat>,
    ) -> Result<State, ApiError> {
        let source = match Source::find(&server, &resource, &selection, collection, &range) {
            Some(source) => source,
            None => {
                let fills = searches(&resource, &selection) && range == key::range(collection);
                let snapshot = server.store.engine().snapshot(At::Latest)?;
                Source { snapshot, picked: None, fills: fills.then(|| collection.to_vec()) }
            }
        };
        let walk = source.walk((&server, &resource), &range, None);
        Ok(State { walk, resource, selection, representation, first: true, seat: Some(seat) })
    }

    /// The revision that is shown.
    pub(super) fn revision(&self) -> Revision {
        self.walk.revision()
    }
}

impl Producer for State {
    type Piece = Batch;
    type Error = ApiError;

    fn next(&mut self, _: Presence<'_>) -> Result<Next<Batch>, ApiError> {
        let State { walk, resource, selection, representation, first, .. } = self;
        let selects = |key: &[u8], head: &Head<'_>| selection.matches(resource, key, head);
        let selects: Selects<'_> = if selection.is_everything() { None } else { Some(&selects) };
        let mut batch = Batch::default();
        let at_end = walk.for_each(selects, |_, value, revision| {
            let item = Item::new(value, revision)?;
            batch.write(|out| representation.event(EventType::Added, &item, *first, out))?;
            *first = false;
            Ok(batch.len() < BATCH)
        })?;
        Ok(match (at_end, batch.len()) {
            (false, _) => Next::Piece(batch),
            (true, 0) => Next::End,
            (true, _) => Next::Last(batch),
        })
    }

    fn release(&mut self) {
        self.walk.release();
        self.seat = None;
    }
}
