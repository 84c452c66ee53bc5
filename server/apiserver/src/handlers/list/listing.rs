//! Produces a list chunk by chunk.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use plinth_engine::{At, Revision};

use super::plan::Plan;
use crate::flow_control::Seat;
use crate::representation::{FirstPass, Item, ListMeta, ListWriter, Representation, Totals};
use crate::stored_objects::{Filter, Scan};
use plinth_api::ApiError;
use plinth_http::{ClientPresence, Gzip, NextPiece, PieceProducer};
use plinth_storage::Header;

/// Bytes per chunk.
const CHUNK: usize = 128 << 10;

/// A list in progress. It is owned by the thread that produces the next chunk, or kept with its reader.
pub(super) struct ListProducer {
    plan: Plan,
    representation: Arc<Representation>,
    list: ListWriter<Arc<Representation>>,
    stage: Stage,
    buffer: Vec<u8>,
    /// Compresses the chunks of a list that does not fit into one.
    gzip: Option<Gzip>,
    /// Whether a chunk has been produced.
    begun: bool,
    /// The request's seat, released when the list is complete.
    _seat: Arc<Seat>,
}

enum Stage {
    Begin,
    /// Items are written during the scan.
    Items {
        scan: Box<Scan>,
        page: Page,
        meta_written: bool,
    },
    /// The prefix has stated the size of the items.
    Sized(Box<SizedList>),
    Done,
}

/// Progress of a page.
#[derive(Default)]
struct Page {
    taken: u64,
    /// Key of the last item within the limit.
    last: Vec<u8>,
    /// Whether there are items beyond the limit.
    has_more: bool,
}

/// A list whose prefix states its size.
struct SizedList {
    meta: ListMeta,
    totals: Totals,
    /// The first items, encoded by the first pass.
    kept: VecDeque<Bytes>,
    /// The scan over the other items, their expected totals, and the totals so far.
    remaining: Option<(Scan, Totals, Totals)>,
}

impl Page {
    /// Takes the next selected item; false when it belongs to the next page.
    fn take(&mut self, limit: u64, key: &[u8]) -> bool {
        self.has_more = limit > 0 && self.taken == limit;
        if !self.has_more {
            self.taken += 1;
            if self.taken == limit {
                self.last = key.to_vec();
            }
        }
        !self.has_more
    }
}

impl ListProducer {
    pub(super) fn new(
        plan: Plan,
        representation: Representation,
        gzip: Option<Gzip>,
        seat: Arc<Seat>,
    ) -> Result<ListProducer, ApiError> {
        let representation = Arc::new(representation);
        let list = ListWriter::new(representation.clone())?;
        let buffer = Vec::with_capacity(4096);
        Ok(ListProducer {
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
    fn write(&mut self, reader: ClientPresence<'_>) -> Result<bool, ApiError> {
        if matches!(self.stage, Stage::Begin) {
            self.begin(reader)?;
        }
        let ListProducer { plan, list, buffer, .. } = self;
        let filter = |key: &[u8], header: &Header<'_>| plan.selection.matches(&plan.resource, key, header);
        let filter: Filter<'_> = if plan.selection.is_everything() { None } else { Some(&filter) };
        match &mut self.stage {
            Stage::Begin | Stage::Done => return Ok(true),
            Stage::Items { scan, page, meta_written } => {
                let at_end = scan.for_each(filter, |key, value, revision| {
                    if !page.take(plan.limit, key) {
                        return Ok(false);
                    }
                    list.item(&Item::new(value, revision)?, buffer)?;
                    Ok(buffer.len() < CHUNK)
                })?;
                if !at_end && !page.has_more {
                    return Ok(false);
                }
                plan.record_size(scan, at_end);
                let meta = plan.meta(scan.revision(), page.has_more.then_some(&page.last[..]))?;
                list.end(&meta, !*meta_written, Totals::default(), buffer)?;
            }
            Stage::Sized(sized) => {
                while let Some(piece) = sized.kept.pop_front() {
                    buffer.extend_from_slice(&piece);
                    if buffer.len() >= CHUNK {
                        return Ok(false);
                    }
                }
                if let Some((scan, rest, written)) = &mut sized.remaining {
                    let at_end = scan.for_each(filter, |_, value, revision| {
                        let before = buffer.len();
                        list.item(&Item::new(value, revision)?, buffer)?;
                        written.items += 1;
                        written.bytes += buffer.len() - before;
                        Ok(buffer.len() < CHUNK && written.items < rest.items)
                    })?;
                    if !at_end && written.items < rest.items {
                        return Ok(false);
                    }
                    // Bytes are counted for protobuf only. If the prefix does not match the items, the list
                    // is aborted.
                    if written.items != rest.items || (rest.bytes != 0 && written.bytes != rest.bytes) {
                        plan.server.lengths.forget();
                        plan.server.list_sizes.clear();
                        return Err(ApiError::internal("a list differed when it was produced a second time"));
                    }
                }
                list.end(&sized.meta, false, sized.totals, buffer)?;
            }
        }
        self.stage = Stage::Done;
        Ok(true)
    }

    fn begin(&mut self, reader: ClientPresence<'_>) -> Result<(), ApiError> {
        let ListProducer { plan, list, representation, buffer, .. } = self;
        let is_cacheable = list.needs_totals()
            && plan.is_latest_collection()
            && plan.selection.is_everything()
            && !plan.resource.is_custom();
        if is_cacheable {
            let (server, collection) = (&plan.server, &plan.collection);
            let cached = server.list_sizes.totals(&server.store, collection, representation);
            // That revision may have been compacted by now; the latest has not.
            let cached = cached.and_then(|(revision, totals)| {
                Some((server.store.engine().snapshot(At::Exact(revision)).ok()?, totals))
            });
            if let Some((snapshot, totals)) = cached {
                let meta = plan.meta(snapshot.revision(), None)?;
                list.start(Some(&meta), totals, buffer)?;
                let scan =
                    Scan::over(server.reader.clone(), plan.resource.clone(), &snapshot, plan.range.clone());
                let remaining = Some((scan, totals, Totals::default()));
                self.stage =
                    Stage::Sized(Box::new(SizedList { meta, totals, kept: VecDeque::new(), remaining }));
                return Ok(());
            }
        }
        let source = plan.source()?;
        let revision = source.snapshot.revision();
        let mut scan = source.scan((&plan.server, &plan.resource), &plan.range, None);
        if !list.needs_totals() {
            // Without a limit there is no next page, so the metadata is known in advance.
            let meta = if plan.limit == 0 { Some(plan.meta(revision, None)?) } else { None };
            list.start(meta.as_ref(), Totals::default(), buffer)?;
            self.stage =
                Stage::Items { scan: Box::new(scan), page: Page::default(), meta_written: meta.is_some() };
            return Ok(());
        }
        // Both passes read the same snapshot.
        let filter = |key: &[u8], header: &Header<'_>| plan.selection.matches(&plan.resource, key, header);
        let filter: Filter<'_> = if plan.selection.is_everything() { None } else { Some(&filter) };
        let (mut first_pass, mut page) = (FirstPass::new(&plan.server.lengths), Page::default());
        let at_end = scan.for_each(filter, |key, value, revision| {
            if !page.take(plan.limit, key) {
                return Ok(false);
            }
            first_pass.item(key, &Item::new(value, revision)?, list)?;
            Ok(reader.waits())
        })?;
        plan.record_size(&scan, at_end);
        drop(scan);
        let meta = plan.meta(revision, page.has_more.then_some(&page.last[..]))?;
        let totals = first_pass.totals();
        list.start(Some(&meta), totals, buffer)?;
        if is_cacheable && at_end {
            let stated = Totals { bytes: if list.states_bytes() { totals.bytes } else { 0 }, ..totals };
            plan.server.list_sizes.insert(
                &plan.server.store,
                &plan.collection,
                representation,
                revision,
                stated,
            );
        }
        let (kept, rest) = first_pass.kept();
        let remaining = rest.map(|(after, rest)| {
            let scan = source.scan((&plan.server, &plan.resource), &plan.range, Some(&after));
            (scan, rest, Totals::default())
        });
        self.stage = Stage::Sized(Box::new(SizedList { meta, totals, kept: kept.into(), remaining }));
        Ok(())
    }
}

impl PieceProducer for ListProducer {
    type Piece = Bytes;
    type Error = ApiError;

    fn next(&mut self, reader: ClientPresence<'_>) -> Result<NextPiece<Bytes>, ApiError> {
        loop {
            let ended = self.write(reader)?;
            let capacity = if ended { 0 } else { CHUNK + CHUNK / 4 };
            let mut chunk = std::mem::replace(&mut self.buffer, Vec::with_capacity(capacity));
            // Large objects leave up to as much room behind them.
            chunk.shrink_to_fit();
            let chunk = Bytes::from(chunk);
            let begun = std::mem::replace(&mut self.begun, true);
            if ended {
                // A list that fits into one chunk is below the threshold of compression.
                return Ok(NextPiece::Last(match self.gzip.take().filter(|_| begun) {
                    Some(mut gzip) => [gzip.push(&chunk), gzip.finish()].concat().into(),
                    None => chunk,
                }));
            }
            let chunk = match &mut self.gzip {
                Some(gzip) => gzip.push(&chunk),
                None => chunk,
            };
            if !chunk.is_empty() {
                return Ok(NextPiece::Piece(chunk));
            }
        }
    }

    fn suspend(&mut self) {
        match &mut self.stage {
            Stage::Items { scan, .. } => scan.suspend(),
            Stage::Sized(sized) => {
                if let Some((scan, ..)) = &mut sized.remaining {
                    scan.suspend();
                }
            }
            Stage::Begin | Stage::Done => {}
        }
    }

    fn piece_bytes(chunk: &Bytes) -> usize {
        chunk.len()
    }

    fn kept_bytes(&self) -> usize {
        let kept = match &self.stage {
            Stage::Sized(sized) => sized.kept.iter().map(Bytes::len).sum(),
            _ => 0,
        };
        self.buffer.capacity() + kept
    }
}

impl Plan {
    /// The metadata of a list at that revision; `cut` is the key of the last item if there are more.
    pub(in crate::handlers) fn meta(
        &self,
        revision: Revision,
        cut: Option<&[u8]>,
    ) -> Result<ListMeta, ApiError> {
        let (continue_token, remaining_item_count) =
            cut.map(|last| self.next_page(revision, last)).transpose()?.unwrap_or_default();
        Ok(ListMeta { resource_version: revision.to_string(), continue_token, remaining_item_count })
    }

    /// Records the size of the collection for flow control.
    fn record_size(&self, scan: &Scan, at_end: bool) {
        if at_end && self.covers_resource() && !scan.is_by_keys() && !self.is_held() {
            let (group, plural) = (self.resource.group(), self.resource.plural());
            self.server.flow_control.sizes.record(group, plural, scan.scanned());
        }
    }
}
