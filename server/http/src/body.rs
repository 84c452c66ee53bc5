//! Response bodies.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::chunks;
use super::paced_response::{PacedReader, PieceProducer};
use super::unread_answers::{CountedAnswer, HeldBytes, UnreadStream};

/// A source of body chunks that is polled by the connection's own task, so that an idle watch costs no
/// task of its own.
pub trait ChunkStream: Send {
    /// The next chunk; `None` ends the body cleanly.
    fn poll_chunk(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>>;

    /// Whether it counts its chunks from now on, and what it has ahead of the connection. Otherwise they are
    /// counted as the connection takes them.
    fn count_in(self: Pin<&mut Self>, _: &Arc<UnreadStream>) -> bool {
        false
    }
}

/// A streamed response whose first chunk was produced before the response header was sent.
pub struct ProducedBody<P: PieceProducer> {
    /// The first chunk.
    first: Option<Bytes>,
    /// The remaining chunks.
    rest: PacedReader<P>,
    counted: Option<Arc<UnreadStream>>,
}

impl<P: PieceProducer<Piece = Bytes>> ProducedBody<P> {
    /// The first chunk and the others.
    pub fn new(first: Bytes, rest: PacedReader<P>) -> ProducedBody<P> {
        ProducedBody { first: Some(first), rest, counted: None }
    }
}

impl<P> ChunkStream for ProducedBody<P>
where
    P: PieceProducer<Piece = Bytes>,
    P::Error: Into<BodyError>,
{
    fn poll_chunk(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let body = self.get_mut();
        if let Some(first) = body.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let counted = |piece| match &body.counted {
            Some(counted) => counted.count(piece),
            None => piece,
        };
        body.rest.poll_next(cx).map(|piece| piece.map(|piece| piece.map(counted).map_err(Into::into)))
    }

    fn count_in(self: Pin<&mut Self>, counted: &Arc<UnreadStream>) -> bool {
        let body = self.get_mut();
        body.first = body.first.take().map(|first| counted.count(first));
        body.rest.count_in(counted);
        body.counted = Some(counted.clone());
        true
    }
}

// No field is pinned.
impl<P: PieceProducer> Unpin for ProducedBody<P> {}

/// The body of a response.
pub enum Body {
    /// Complete in memory; sent with `Content-Length`.
    Full(Bytes),
    /// The same, counted until it is read.
    Counted(Box<CountedAnswer>),
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
    /// A body behind a long head.
    Headed(Box<HeadedBody>),
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

impl ObservedBody {
    /// The same with another body, made of this one.
    pub(crate) fn map(self, make: impl FnOnce(Body) -> Body) -> ObservedBody {
        ObservedBody { observer: self.observer, inner: make(self.inner) }
    }
}

/// A body behind a head that counts until the first chunk, which is empty where there is none otherwise, is
/// sent: after the head.
pub struct HeadedBody {
    body: Body,
    head: Option<HeldBytes>,
}

impl HeadedBody {
    pub(crate) fn new(body: Body, head: HeldBytes) -> HeadedBody {
        HeadedBody { body, head: Some(head) }
    }
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
            Body::Counted(answer) => Poll::Ready(answer.next_part().map(|part| Ok(Frame::data(part)))),
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
            Body::Headed(body) => {
                let frame = ready!(Pin::new(&mut body.body).poll_frame(cx)).transpose()?;
                let Some(head) = body.head.take() else { return Poll::Ready(frame.map(Ok)) };
                // No body has other frames than data.
                let chunk = frame.and_then(|frame| frame.into_data().ok()).unwrap_or_default();
                Poll::Ready(Some(Ok(Frame::data(head.until_dropped(chunk)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Full(bytes) => bytes.is_empty(),
            Body::Counted(answer) => answer.remaining() == 0,
            Body::Headed(body) => body.head.is_none() && body.body.is_end_stream(),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::Counted(answer) => SizeHint::with_exact(answer.remaining() as u64),
            // An answer that has no body has no length either.
            Body::Headed(body) if body.body.is_end_stream() => SizeHint::default(),
            Body::Headed(body) => body.body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}
