//! Bodies of answers, counted until they are read.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use hyper::header::HeaderMap;
use hyper::Response;

use super::body::{Body, BodyError, ChunkStream, HeadedBody};
use super::unread_answers::{ConnectionUnread, CountedAnswer, UnreadStream, UserUnread, MANY_STREAMS};

/// What the stream of an answer takes beside it.
pub(crate) const STREAM: usize = 4 << 10;
/// Shorter answers are not counted, but for the streams of a connection that has many.
pub(crate) const COUNTED_FROM: usize = 1 << 10;

/// Shorter heads are not counted: those of answers of this server, as a rule.
const LONG_HEAD: usize = 4 << 10;
/// How often a head is in memory: as fields, and as they are sent.
const COPIES_OF_HEAD: usize = 2;

impl ConnectionUnread {
    /// An answer whose body counts as [`ConnectionUnread::count`] has it, and its head, too, where that is
    /// long.
    pub fn count_response(
        self: &Arc<Self>,
        response: Response<Body>,
        user: Option<&Arc<UserUnread>>,
        (streams, http1): (usize, bool),
    ) -> Response<Body> {
        let head = bytes_of(response.headers());
        response.map(|body| {
            let body = self.count(body, user, streams);
            // HTTP/1.1 has one answer at a time, and would announce a body where there is none.
            if head < LONG_HEAD || (http1 && body.is_end_stream()) {
                return body;
            }
            match UnreadStream::new(self, user) {
                Some(counted) => {
                    let head = counted.head(head * COPIES_OF_HEAD);
                    Body::Headed(Box::new(HeadedBody::new(body, head)))
                }
                None => Body::Stream(Box::pin(Dropped)),
            }
        })
    }

    /// An answer that counts until it is read, as the user's where that is known, on a connection with so
    /// many streams. On one that is being closed it is an error, which is no clean end.
    pub fn count(self: &Arc<Self>, answer: Body, user: Option<&Arc<UserUnread>>, streams: usize) -> Body {
        match answer {
            Body::Full(bytes) => self.count_whole(bytes, user, streams),
            Body::Observed(body) => {
                Body::Observed(Box::new(body.map(|answer| self.count(answer, user, streams))))
            }
            answer => self.count_stream(answer, user),
        }
    }

    fn count_stream(self: &Arc<Self>, mut answer: Body, user: Option<&Arc<UserUnread>>) -> Body {
        let Some(counted) = UnreadStream::new(self, user) else { return Body::Stream(Box::pin(Dropped)) };
        let counts_itself = match &mut answer {
            Body::Stream(stream) => stream.as_mut().count_in(&counted),
            _ => false,
        };
        match counts_itself {
            true => answer,
            false => Body::Stream(Box::pin(CountedBody { body: answer, counted })),
        }
    }

    fn count_whole(self: &Arc<Self>, bytes: Bytes, user: Option<&Arc<UserUnread>>, streams: usize) -> Body {
        let length = if bytes.len() >= COUNTED_FROM && bytes.is_unique() { bytes.len() } else { 0 };
        let stream = if streams >= MANY_STREAMS && !bytes.is_empty() { STREAM } else { 0 };
        if length + stream == 0 {
            return Body::Full(bytes);
        }
        let Some(answer) = CountedAnswer::new(self, user, bytes, length + stream) else {
            return Body::Stream(Box::pin(Dropped));
        };
        match answer.only_part() {
            Some(part) => Body::Full(part),
            None => Body::Counted(Box::new(answer)),
        }
    }
}

/// The bytes of a head, without its status.
fn bytes_of(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// A body whose chunks are counted as they are taken.
struct CountedBody {
    body: Body,
    counted: Arc<UnreadStream>,
}

impl ChunkStream for CountedBody {
    fn poll_chunk(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let CountedBody { body, counted } = self.get_mut();
        // No body has other frames than data.
        let chunk = |frame: Frame<Bytes>| frame.into_data().unwrap_or_default();
        let polled = Pin::new(body).poll_frame(cx);
        polled.map(|frame| frame.map(|frame| frame.map(|frame| counted.count(chunk(frame)))))
    }
}

/// The body of an answer that was dropped.
struct Dropped;

impl ChunkStream for Dropped {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        Poll::Ready(Some(Err(BodyError("the connection is closed: answers are not read".to_owned()))))
    }
}
