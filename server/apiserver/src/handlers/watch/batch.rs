//! Batches of encoded events.

use std::collections::VecDeque;

/// Size of a batch of ready events, in bytes.
pub(super) const BATCH: usize = 64 << 10;

use bytes::Bytes;

use plinth_api::ApiError;

/// Larger events are sent in separate frames, so that watchers share their bytes. The size of a frame.
const MAX_JOINED: usize = 16 << 10;

/// Events in order. A single or a large event is passed on without copying; small ones are joined so that
/// they are sent in one frame.
#[derive(Default)]
pub(super) struct Batch {
    /// Completed pieces.
    pieces: Vec<Piece>,
    /// The only event that has not been joined yet, if there is just one.
    single: Option<Bytes>,
    /// Joined events.
    joined: Vec<u8>,
    /// Their ends. A WebSocket sends each event as a message.
    ends: Vec<usize>,
    /// Bytes of all pieces.
    before: usize,
}

/// Joined events; a single one if `ends` is empty.
struct Piece {
    bytes: Bytes,
    ends: Vec<usize>,
}

impl Batch {
    pub(super) fn push(&mut self, event: Bytes) {
        if event.len() > MAX_JOINED {
            self.close();
            self.before += event.len();
            self.pieces.push(Piece { bytes: event, ends: Vec::new() });
        } else if self.single.is_none() && self.joined.is_empty() {
            self.single = Some(event);
        } else {
            self.join_single(event.len());
            self.joined.extend_from_slice(&event);
            self.ends.push(self.joined.len());
        }
    }

    /// Appends the event that `write` encodes.
    pub(super) fn write(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        self.join_single(0);
        write(&mut self.joined)?;
        self.ends.push(self.joined.len());
        Ok(())
    }

    /// Moves a single event to the joined ones.
    fn join_single(&mut self, more: usize) {
        if let Some(single) = self.single.take() {
            self.joined.reserve(single.len() + more);
            self.joined.extend_from_slice(&single);
            self.ends.push(self.joined.len());
        }
    }

    /// Completes the current piece.
    fn close(&mut self) {
        let (bytes, ends) = match self.single.take() {
            Some(single) => (single, Vec::new()),
            None if self.joined.is_empty() => return,
            None => (Bytes::from(std::mem::take(&mut self.joined)), std::mem::take(&mut self.ends)),
        };
        self.before += bytes.len();
        self.pieces.push(Piece { bytes, ends });
    }

    /// The lengths of the events.
    pub(super) fn event_lengths(&self) -> impl Iterator<Item = usize> + '_ {
        fn between(ends: &[usize]) -> impl Iterator<Item = usize> + '_ {
            let starts = std::iter::once(0).chain(ends.iter().copied());
            ends.iter().zip(starts).map(|(end, start)| end - start)
        }
        let pieces = self.pieces.iter().flat_map(|piece| {
            let single = piece.ends.is_empty().then_some(piece.bytes.len());
            single.into_iter().chain(between(&piece.ends))
        });
        pieces.chain(self.single.as_ref().map(Bytes::len)).chain(between(&self.ends))
    }

    pub(super) fn len(&self) -> usize {
        self.before + self.single.as_ref().map_or(self.joined.len(), Bytes::len)
    }

    /// Gives back what it has reserved, for one that may wait for its reader.
    pub(super) fn shrink(mut self) -> Batch {
        self.joined.shrink_to_fit();
        self
    }

    /// All events, as pieces.
    pub(super) fn into_pieces(mut self) -> VecDeque<Bytes> {
        self.close();
        self.pieces.into_iter().map(|piece| piece.bytes).collect()
    }

    /// The individual events.
    pub(super) fn into_events(mut self) -> impl Iterator<Item = Bytes> {
        self.close();
        self.pieces.into_iter().flat_map(|Piece { bytes, mut ends }| {
            if ends.is_empty() {
                ends.push(bytes.len());
            }
            let mut start = 0;
            ends.into_iter().map(move |end| bytes.slice(std::mem::replace(&mut start, end)..end))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn several() -> Batch {
        let mut batch = Batch::default();
        assert_eq!(batch.len(), 0);
        batch.push(Bytes::from_static(b"one"));
        batch.push(Bytes::from_static(b"two2"));
        batch.push(Bytes::from_static(&[b'x'; MAX_JOINED + 1]));
        batch.push(Bytes::from_static(b"three"));
        batch
            .write(|out| {
                out.extend_from_slice(b"4");
                Ok(())
            })
            .unwrap();
        assert_eq!(batch.len(), 13 + MAX_JOINED + 1);
        batch
    }

    #[test]
    fn events_of_a_batch_stay_apart() {
        let events: Vec<Bytes> = several().into_events().collect();
        let large = [b'x'; MAX_JOINED + 1];
        assert_eq!(events, [&b"one"[..], b"two2", &large, b"three", b"4"]);
        assert_eq!(several().into_pieces(), [&b"onetwo2"[..], &large, b"three4"]);
        assert!(Batch::default().into_pieces().is_empty());
    }

    #[test]
    fn an_event_that_is_alone_or_large_is_not_copied() {
        let (small, large) = (Bytes::from_static(b"event"), Bytes::from(vec![0; MAX_JOINED + 1]));
        let mut batch = Batch::default();
        for event in [&small, &large, &large] {
            batch.push(event.clone());
        }
        let places: Vec<_> = batch.into_pieces().iter().map(|piece| piece.as_ptr()).collect();
        assert_eq!(places, [small.as_ptr(), large.as_ptr(), large.as_ptr()]);
    }
}
