//! Requests that have to come in time: a client that sends the beginning of one and nothing else would keep
//! what is there of it for as long as it likes.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use prometheus::IntCounter;
use tokio::time::{sleep_until, Instant, Sleep};
use tonic::body::Body;
use tonic::Status;

use crate::calls::MessageCounter;

/// Time for a request, from its header to its end.
pub(crate) const REQUEST_TIME: Duration = Duration::from_secs(60);

/// The body of a request: bytes and messages are counted, and it ends with an error when it has not come by
/// a time.
pub(crate) struct TimedBody {
    body: Body,
    deadline: Option<Instant>,
    received: IntCounter,
    messages: Option<MessageCounter>,
    /// Made when the body is first waited for: most are there at once.
    timer: Option<Pin<Box<Sleep>>>,
}

impl TimedBody {
    pub(crate) fn new(
        body: Body,
        time: Option<Duration>,
        received: IntCounter,
        messages: Option<MessageCounter>,
    ) -> TimedBody {
        let deadline = time.map(|time| Instant::now() + time);
        TimedBody { body, deadline, received, messages, timer: None }
    }
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
                this.received.inc_by(data.len() as u64);
                if let Some(messages) = &mut this.messages {
                    messages.count(data);
                }
            }
            return Poll::Ready(frame);
        }
        let Some(deadline) = this.deadline else { return Poll::Pending };
        let timer = this.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        match timer.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                let text = "the request did not come in time";
                Poll::Ready(Some(Err(Status::deadline_exceeded(text))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    #[tokio::test]
    async fn what_does_not_come_in_time_ends() {
        let first = stream::iter([Ok::<_, Status>(Frame::data(Bytes::from_static(b"first")))]);
        let body = Body::new(StreamBody::new(futures_util::StreamExt::chain(first, stream::pending())));
        let received = IntCounter::new("received", "bytes").unwrap();
        let mut timed = TimedBody::new(body, Some(Duration::from_millis(20)), received.clone(), None);
        assert_eq!(timed.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
        assert_eq!(timed.frame().await.unwrap().unwrap_err().code(), tonic::Code::DeadlineExceeded);
        let whole = Body::new(http_body_util::Full::from("whole"));
        let timed = TimedBody::new(whole, Some(Duration::ZERO), received.clone(), None);
        assert_eq!(timed.collect().await.unwrap().to_bytes(), "whole", "what is there is there");
        assert_eq!(received.get(), 10);
    }
}
