//! Encoded events on their way out.

use std::collections::VecDeque;

use bytes::Bytes;

use plinth_api::api_error::ApiError;

/// Events above this travel as they are, in frames of their own: their bytes are shared by all who watch. It is what a frame holds.
const SHARED: usize = 16 << 10;

/// Events in their order. One that is alone or large is passed on as it is, small ones are put together so that they travel in one
/// frame.
#[derive(Default)]
pub(super) struct Batch {
    /// What stands before the events that are being put together.
    pieces: Vec<Piece>,
    /// The only one of those, if there is just one.
    single: Option<Bytes>,
    /// Several.
    joined: Vec<u8>,
    /// Where each of those ends. A WebSocket sends them one by one.
    ends: Vec<usize>,
    /// Bytes of all pieces.
    before: usize,
}

/// Events that travel together; one where it says no ends.
struct Piece {
    bytes: Bytes,
    ends: Vec<usize>,
}

impl Batch {
    pub(super) fn push(&mut self, event: Bytes) {
        if event.len() > SHARED {
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

    /// Appends the event that `write` writes.
    pub(super) fn write(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        self.join_single(0);
        write(&mut self.joined)?;
        self.ends.push(self.joined.len());
        Ok(())
    }

    /// Makes room for another event beside one that was alone.
    fn join_single(&mut self, more: usize) {
        if let Some(single) = self.single.take() {
            self.joined.reserve(single.len() + more);
            self.joined.extend_from_slice(&single);
            self.ends.push(self.joined.len());
        }
    }

    /// Makes a piece of what was put together.
    fn close(&mut self) {
        let (bytes, ends) = match self.single.take() {
            Some(single) => (single, Vec::new()),
            None if self.joined.is_empty() => return,
            None => (Bytes::from(std::mem::take(&mut self.joined)), std::mem::take(&mut self.ends)),
        };
        self.before += bytes.len();
        self.pieces.push(Piece { bytes, ends });
    }

    pub(super) fn len(&self) -> usize {
        self.before + self.single.as_ref().map_or(self.joined.len(), Bytes::len)
    }

    /// All events, in pieces.
    pub(super) fn into_pieces(mut self) -> VecDeque<Bytes> {
        self.close();
        self.pieces.into_iter().map(|piece| piece.bytes).collect()
    }

    /// The events one by one.
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
        batch.push(Bytes::from_static(&[b'x'; SHARED + 1]));
        batch.push(Bytes::from_static(b"three"));
        batch
            .write(|out| {
                out.extend_from_slice(b"4");
                Ok(())
            })
            .unwrap();
        assert_eq!(batch.len(), 13 + SHARED + 1);
        batch
    }

    #[test]
    fn events_of_a_batch_stay_apart() {
        let events: Vec<Bytes> = several().into_events().collect();
        let large = [b'x'; SHARED + 1];
        assert_eq!(events, [&b"one"[..], b"two2", &large, b"three", b"4"]);
        assert_eq!(several().into_pieces(), [&b"onetwo2"[..], &large, b"three4"]);
        assert!(Batch::default().into_pieces().is_empty());
    }

    #[test]
    fn an_event_that_is_alone_or_large_is_not_copied() {
        let (small, large) = (Bytes::from_static(b"event"), Bytes::from(vec![0; SHARED + 1]));
        let mut batch = Batch::default();
        for event in [&small, &large, &large] {
            batch.push(event.clone());
        }
        let places: Vec<_> = batch.into_pieces().iter().map(|piece| piece.as_ptr()).collect();
        assert_eq!(places, [small.as_ptr(), large.as_ptr(), large.as_ptr()]);
    }
}
