//! Events of the engine as responses of a watch.

use std::sync::Arc;

use bytes::Bytes;
use plinth_engine::{Event, EventKind};
use prost::Message as _;

use crate::value::{key_value, put_key_value, to_etcd};
use crate::wire::kv::{Event as WireEvent, KeyValue};
use crate::wire::watch::{WatchCreateRequest, WatchResponse};
use crate::wire::ResponseHeader;

/// What a watch wants to see of events.
#[derive(Debug, Clone, Copy)]
pub(super) struct Selection {
    pub puts: bool,
    pub deletes: bool,
    pub previous: bool,
    /// Whether responses may end within a revision.
    pub fragment: bool,
}

impl Selection {
    pub(super) fn of(request: &WatchCreateRequest) -> Selection {
        Selection {
            puts: !request.filters.contains(&WatchCreateRequest::NO_PUT),
            deletes: !request.filters.contains(&WatchCreateRequest::NO_DELETE),
            previous: request.prev_kv,
            fragment: request.fragment,
        }
    }
}

/// Makes the responses for some events: whole revisions, each response up to `size` bytes where a revision is
/// not larger by itself, or by fragments of that size where the watch takes them. `header` makes a header for
/// a revision; previous states of revisions up to `compacted` are gone.
pub(super) fn responses(
    watch_id: i64,
    events: &[Arc<Event>],
    selection: Selection,
    size: usize,
    compacted: i64,
    header: impl Fn(i64) -> ResponseHeader,
) -> Vec<WatchResponse> {
    let mut responses = Vec::new();
    let mut batch = Batch::default();
    for revision in events.chunk_by(|a, b| a.revision == b.revision) {
        let wire = revision.iter().filter_map(|event| to_wire(event, selection, compacted));
        let wire: Vec<WireEvent> = wire.collect();
        let bytes = wire.iter().map(encoded_len).sum::<usize>();
        if !batch.events.is_empty() && batch.bytes + bytes > size {
            batch.finish(watch_id, selection, size, &header, &mut responses);
        }
        if let (Some(last), false) = (revision.last(), wire.is_empty()) {
            batch.revision = to_etcd(last.revision);
            batch.bytes += bytes;
            batch.events.extend(wire);
        }
    }
    batch.finish(watch_id, selection, size, &header, &mut responses);
    responses
}

/// Events of whole revisions.
#[derive(Default)]
struct Batch {
    events: Vec<WireEvent>,
    bytes: usize,
    revision: i64,
}

impl Batch {
    fn finish(
        &mut self,
        watch_id: i64,
        selection: Selection,
        size: usize,
        header: &impl Fn(i64) -> ResponseHeader,
        responses: &mut Vec<WatchResponse>,
    ) {
        let Batch { events, bytes, revision } = std::mem::take(self);
        if events.is_empty() {
            return;
        }
        let make = |events, fragment| WatchResponse {
            header: Some(header(revision)),
            watch_id,
            fragment,
            events,
            ..WatchResponse::default()
        };
        if !selection.fragment || bytes < size {
            responses.push(make(events, false));
            return;
        }
        let (mut fragment, mut filled) = (Vec::new(), 0);
        for event in events {
            let bytes = encoded_len(&event);
            if !fragment.is_empty() && filled + bytes >= size {
                responses.push(make(std::mem::take(&mut fragment), true));
                filled = 0;
            }
            filled += bytes;
            fragment.push(event);
        }
        responses.push(make(fragment, false));
    }
}

/// Bytes of an event within a response.
fn encoded_len(event: &WireEvent) -> usize {
    /// The tag of the field and the longest length.
    const FIELD: usize = 6;
    event.encoded_len() + FIELD
}

fn to_wire(event: &Event, selection: Selection, compacted: i64) -> Option<WireEvent> {
    let revision = to_etcd(event.revision);
    let (kind, kv) = match &event.kind {
        EventKind::Put { .. } if selection.puts => (WireEvent::PUT, put_key_value(event)?),
        EventKind::Delete if selection.deletes => {
            let (key, value) = (event.key.clone(), Bytes::new());
            (WireEvent::DELETE, KeyValue { key, mod_revision: revision, value, ..KeyValue::default() })
        }
        EventKind::Put { .. } | EventKind::Delete => return None,
    };
    let has_previous = selection.previous && revision > compacted;
    let previous = event.previous.as_ref().filter(|_| has_previous).map(key_value);
    Some(WireEvent { kind, kv: Some(kv), prev_kv: previous })
}
