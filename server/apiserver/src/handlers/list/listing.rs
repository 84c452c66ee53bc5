//! Writes a list chunk by chunk.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use plinth_engine::{At, Revision};

use super::Plan;
use crate::custom_resources::present::{Selects, Walk};
use crate::flow_control::Seat;
use crate::representation::{Ahead, Item, ListMeta, ListWriter, Representation, Totals};
use plinth_api::api_error::ApiError;
use plinth_http::compression::Gzip;
use plinth_http::pull::{Next, Presence, Producer};
use plinth_storage::stored::Head;

/// Bytes that are collected before they are handed to the connection.
const CHUNK: usize = 128 << 10;

/// A list that is being written. It is owned by the thread that makes the next chunk, or lies beside its reader.
pub(super) struct Listing {
    plan: Plan,
    representation: Arc<Representation>,
    list: ListWriter<Arc<Representation>>,
    stage: Stage,
    buffer: Vec<u8>,
    /// Compresses every chunk of a list that does not fit into one.
    gzip: Option<Gzip>,
    /// Whether a chunk was handed over.
    begun: bool,
    /// The list's place among the requests that are served is free when it has been handed over.
    _seat: Arc<Seat>,
}

enum Stage {
    Begin,
    /// Items go out as the walk passes them.
    Items {
        walk: Box<Walk>,
        page: Page,
        known: bool,
    },
    /// The front has stated what follows.
    Stated(Box<Stated>),
    Done,
}

/// How far a page has come.
#[derive(Default)]
struct Page {
    taken: u64,
    /// The key of the last item that the limit lets through.
    last: Vec<u8>,
    /// Whether there is more than the limit lets through.
    cut: bool,
}

/// A list whose front says how much follows.
struct Stated {
    meta: ListMeta,
    totals: Totals,
    /// The first items, encoded.
    kept: VecDeque<Bytes>,
    /// The walk over the others, what they must come to, and what they have come to.
    others: Option<(Walk, Totals, Totals)>,
}

impl Page {
    /// Takes the next selected item in; false when it belongs to the next page.
    fn takes(&mut self, limit: u64, key: &[u8]) -> bool {
        self.cut = limit > 0 && self.taken == limit;
        if !self.cut {
            self.taken += 1;
            if self.taken == limit {
                self.last = key.to_vec();
            }
        }
        !self.cut
    }
}

impl Listing {
    pub(super) fn new(
        plan: Plan,
        representation: Representation,
        gzip: Option<Gzip>,
        seat: Arc<Seat>,
    ) -> Result<Listing, ApiError> {
        let representation = Arc::new(representation);
        let list = ListWriter::new(representation.clone())?;
        let buffer = Vec::with_capacity(4096);
        Ok(Listing {
            plan,
            representation,
            list,
            stage: Stage::Begin,
            buffer,
            gzip,
            begun: false,
            _seat: seat,
        })
    }

    /// Writes until the buffer is full; true at the end of the list.
    fn write(&mut self, reader: Presence<'_>) -> Result<bool, ApiError> {
        if matches!(self.stage, Stage::Begin) {
            self.begin(reader)?;
        }
        let Listing { plan, list, buffer, .. } = self;
        let selects = |key: &[u8], head: &Head<'_>| plan.selection.matches(&plan.resource, key, head);
        let selects: Selects<'_> = if plan.selection.is_everything() { None } else { Some(&selects) };
        match &mut self.stage {
            Stage::Begin | Stage::Done => return Ok(true),
            Stage::Items { walk, page, known } => {
                let at_end = walk.for_each(selects, |key, value, revision| {
                    if !page.takes(plan.limit, key) {
                        return Ok(false);
                    }
                    list.item(&Item::new(value, revision)?, buffer)?;
                    Ok(buffer.len() < CHUNK)
                })?;
                if !at_end && !page.cut {
                    return Ok(false);
                }
                plan.note_size(walk, at_end);
                let meta = plan.meta(walk.revision(), page.cut.then_some(&page.last[..]))?;
                list.end(&meta, !*known, Totals::default(), buffer)?;
            }
            Stage::Stated(stated) => {
                while let Some(piece) = stated.kept.pop_front() {
                    buffer.extend_from_slice(&piece);
                    if buffer.len() >= CHUNK {
                        return Ok(false);
                    }
                }
                if let Some((walk, rest, written)) = &mut stated.others {
                    let at_end = walk.for_each(selects, |_, value, revision| {
                        let before = buffer.len();
                        list.item(&Item::new(value, revision)?, buffer)?;
                        written.items += 1;
                        written.bytes += buffer.len() - before;
                        Ok(buffer.len() < CHUNK && written.items < rest.items)
                    })?;
                    if !at_end && written.items < rest.items {
                        return Ok(false);
                    }
                    // Bytes are counted for protobuf alone. A front that does not fit what follows must not look like a list.
                    if written.items != rest.items || (rest.bytes != 0 && written.bytes != rest.bytes) {
                        plan.server.lengths.forget();
                        plan.server.ledger.forget();
                        return Err(ApiError::internal("a list came out otherwise the second time"));
                    }
                }
                list.end(&stated.meta, false, stated.totals, buffer)?;
            }
        }
        self.stage = Stage::Done;
        Ok(true)
    }

    fn begin(&mut self, reader: Presence<'_>) -> Result<(), ApiError> {
        let Listing { plan, list, representation, buffer, .. } = self;
        let is_accountable = list.looks_ahead()
            && plan.is_newest_whole()
            && plan.selection.is_everything()
            && !plan.resource.is_custom();
        if is_accountable {
            let (server, collection) = (&plan.server, &plan.collection);
            let known = server.ledger.totals(&server.store, collection, representation);
            // Compaction may have gone beyond that revision by now, though not beyond the newest.
            let known = known.and_then(|(revision, totals)| {
                Some((server.store.engine().snapshot(At::Exact(revision)).ok()?, totals))
            });
            if let Some((snapshot, totals)) = known {
                let meta = plan.meta(snapshot.revision(), None)?;
                list.start(Some(&meta), totals, buffer)?;
                let walk = Walk::over(
                    server.presenter.clone(),
                    plan.resource.clone(),
                    &snapshot,
                    plan.range.clone(),
                );
                let others = Some((walk, totals, Totals::default()));
                self.stage = Stage::Stated(Box::new(Stated { meta, totals, kept: VecDeque::new(), others }));
                return Ok(());
            }
        }
        let source = plan.source()?;
        let revision = source.snapshot.revision();
        let mut walk = source.walk((&plan.server, &plan.resource), &plan.range, None);
        if !list.looks_ahead() {
            // Without a limit there is no next page, so the metadata is known beforehand.
            let known = if plan.limit == 0 { Some(plan.meta(revision, None)?) } else { None };
            list.start(known.as_ref(), Totals::default(), buffer)?;
            self.stage = Stage::Items { walk: Box::new(walk), page: Page::default(), known: known.is_some() };
            return Ok(());
        }
        // The snapshot does not change between the walks.
        let selects = |key: &[u8], head: &Head<'_>| plan.selection.matches(&plan.resource, key, head);
        let selects: Selects<'_> = if plan.selection.is_everything() { None } else { Some(&selects) };
        let (mut ahead, mut page) = (Ahead::new(&plan.server.lengths), Page::default());
        let at_end = walk.for_each(selects, |key, value, revision| {
            if !page.takes(plan.limit, key) {
                return Ok(false);
            }
            ahead.item(key, &Item::new(value, revision)?, list)?;
            Ok(reader.waits())
        })?;
        plan.note_size(&walk, at_end);
        drop(walk);
        let meta = plan.meta(revision, page.cut.then_some(&page.last[..]))?;
        let totals = ahead.totals();
        list.start(Some(&meta), totals, buffer)?;
        if is_accountable && at_end {
            let stated = Totals { bytes: if list.states_bytes() { totals.bytes } else { 0 }, ..totals };
            plan.server.ledger.keep(&plan.server.store, &plan.collection, representation, revision, stated);
        }
        let (kept, rest) = ahead.kept();
        let others = rest.map(|(after, rest)| {
            let walk = source.walk((&plan.server, &plan.resource), &plan.range, Some(&after));
            (walk, rest, Totals::default())
        });
        self.stage = Stage::Stated(Box::new(Stated { meta, totals, kept: kept.into(), others }));
        Ok(())
    }
}

impl Producer for Listing {
    type Piece = Bytes;
    type Error = ApiError;

    fn next(&mut self, reader: Presence<'_>) -> Result<Next<Bytes>, ApiError> {
        loop {
            let ended = self.write(reader)?;
            let room = if ended { 0 } else { CHUNK + CHUNK / 4 };
            let chunk = Bytes::from(std::mem::replace(&mut self.buffer, Vec::with_capacity(room)));
            let begun = std::mem::replace(&mut self.begun, true);
            if ended {
                // A list that fits into one chunk is below the threshold of compression.
                return Ok(Next::Last(match self.gzip.take().filter(|_| begun) {
                    Some(mut gzip) => [gzip.push(&chunk), gzip.finish()].concat().into(),
                    None => chunk,
                }));
            }
            let chunk = match &mut self.gzip {
                Some(gzip) => gzip.push(&chunk),
                None => chunk,
            };
            if !chunk.is_empty() {
                return Ok(Next::Piece(chunk));
            }
        }
    }

    fn release(&mut self) {
        match &mut self.stage {
            Stage::Items { walk, .. } => walk.release(),
            Stage::Stated(stated) => {
                if let Some((walk, ..)) = &mut stated.others {
                    walk.release();
                }
            }
            Stage::Begin | Stage::Done => {}
        }
    }
}

impl Plan {
    /// The metadata of a list at that revision, whose last item has the key `cut` when more follows.
    pub(in crate::handlers) fn meta(
        &self,
        revision: Revision,
        cut: Option<&[u8]>,
    ) -> Result<ListMeta, ApiError> {
        let (continue_token, remaining_item_count) =
            cut.map(|last| self.rest(revision, last)).transpose()?.unwrap_or_default();
        Ok(ListMeta { resource_version: revision.to_string(), continue_token, remaining_item_count })
    }

    /// Flow control wants to know how large collections are.
    fn note_size(&self, walk: &Walk, at_end: bool) {
        if at_end && self.is_of_all() && !walk.is_picked() {
            let (group, plural) = (self.resource.group(), self.resource.plural());
            self.server.flow_control.sizes.note(group, plural, walk.seen());
        }
    }
}
