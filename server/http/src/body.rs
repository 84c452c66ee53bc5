//! Response bodies.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::chunks;
use super::paced_response::{PacedReader, PieceProducer};
use super::unread_answers::UnreadStream;

/// A source of body chunks that is polled by the connection's own task, so that an idle watch costs no
/// task of its own.
pub trait ChunkStream: Send {
    /// The next chunk; `None` ends the body cleanly.
    fn poll_chunk(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>>;

    /// Counts what is produced ahead of the connection, where there is such a thing.
    fn count_ahead(self: Pin<&mut Self>, _: UnreadStream) {}
}

/// A streamed response whose first chunk was produced before the response header was sent.
pub struct ProducedBody<P: PieceProducer> {
    /// The first chunk.
    pub first: Option<Bytes>,
    /// The remaining chunks.
    pub rest: PacedReader<P>,
}

impl<P> ChunkStream for ProducedBody<P>
where
    P: PieceProducer<Piece = Bytes>,
    P::Error: Into<BodyError>,
{
    fn poll_chunk(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let body = self.get_mut();
        match body.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => body.rest.poll_next(cx).map(|piece| piece.map(|piece| piece.map_err(Into::into))),
        }
    }

    fn count_ahead(self: Pin<&mut Self>, counted: UnreadStream) {
        self.get_mut().rest.count_in(counted);
    }
}

// No field is pinned.
impl<P: PieceProducer> Unpin for ProducedBody<P> {}

/// The body of a response.
pub enum Body {
    /// Complete in memory; sent with `Content-Length`.
    Full(Bytes),
    /// Produced by another task while it is sent; the channel's capacity bounds the memory.
    Channel {
        /// The chunk that was produced before the response header was sent.
        first: Option<Bytes>,
        /// The remaining chunks.
        rest: chunks::ChunkReceiver<Bytes, BodyError>,
    },
    /// Produced on demand: by the connection's task itself, or at its request.
    Stream(Pin<Box<dyn ChunkStream>>),
    /// A body that is followed while it is sent.
    Observed(Box<ObservedBody>),
}

/// Follows a body while it is sent. Dropped when that has ended or its client has disconnected.
pub trait BodyObserver: Send {
    /// These are about to be sent.
    fn sent(&mut self, data: &Bytes);
}

/// A body and its observer. See [`Body::observed`].
pub struct ObservedBody {
    // Dropped first: what it records is what was sent until then.
    observer: Box<dyn BodyObserver>,
    inner: Body,
}

/// A body that failed after the response header was sent; the connection (HTTP/1.1) or stream (HTTP/2) is
/// reset so that the client cannot take a partial answer for a complete one.
#[derive(Debug, thiserror::Error)]
#[error("response broke off: {0}")]
pub struct BodyError(pub String);

impl From<chunks::TooSlow> for BodyError {
    fn from(slow: chunks::TooSlow) -> BodyError {
        BodyError(slow.to_string())
    }
}

impl From<plinth_api::ApiError> for BodyError {
    fn from(error: plinth_api::ApiError) -> BodyError {
        BodyError(error.message)
    }
}

impl Body {
    /// An empty body.
    pub fn empty() -> Body {
        Body::Full(Bytes::new())
    }

    /// The same body, followed by an observer. It has no length before it is sent.
    pub fn observed(self, observer: impl BodyObserver + 'static) -> Body {
        Body::Observed(Box::new(ObservedBody { observer: Box::new(observer), inner: self }))
    }

    /// The stream that produces it, if one does.
    pub(crate) fn stream(&mut self) -> Option<Pin<&mut dyn ChunkStream>> {
        match self {
            Body::Stream(stream) => Some(stream.as_mut()),
            Body::Observed(body) => body.inner.stream(),
            Body::Full(_) | Body::Channel { .. } => None,
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Body::Full(Bytes::from(bytes))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Body::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Body::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Body::Channel { first, rest } => match first.take() {
                Some(chunk) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
                None => rest.poll_recv(cx).map(|c| c.map(|c| c.map(Frame::data))),
            },
            Body::Stream(stream) => stream.as_mut().poll_chunk(cx).map(|c| c.map(|c| c.map(Frame::data))),
            Body::Observed(body) => {
                let frame = Pin::new(&mut body.inner).poll_frame(cx);
                if let Poll::Ready(Some(Ok(frame))) = &frame {
                    frame.data_ref().into_iter().for_each(|data| body.observer.sent(data));
                }
                frame
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            _ => SizeHint::default(),
        }
    }
}
