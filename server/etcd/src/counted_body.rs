//! Responses whose bytes and messages are counted, and with whose end their calls are handled.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use prometheus::IntCounter;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::calls::{MessageCounter, StartedCall};
use crate::metrics::Metrics;

/// A response whose bytes are counted. Its call has ended with it, unless it is a stream.
pub(crate) fn counted(
    response: Response<Body>,
    metrics: &Metrics,
    mut call: Option<StartedCall>,
) -> Response<Body> {
    if let Some(call) = &mut call {
        match Status::from_header_map(response.headers()) {
            Some(status) => call.end(status.code()),
            None if call.is_unary() => call.end(Code::Ok),
            None => {}
        }
    }
    let sent = metrics.sent_bytes.clone();
    let messages = call.as_ref().map(StartedCall::sent);
    response.map(|body| Body::new(CountedBody { body, sent, messages, call }))
}

struct CountedBody {
    body: Body,
    sent: IntCounter,
    messages: Option<MessageCounter>,
    call: Option<StartedCall>,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(frame) = &polled {
            let ended = match frame {
                Some(Ok(frame)) => {
                    let bytes = frame.data_ref().map(Bytes::as_ref).unwrap_or_default();
                    self.sent.inc_by(bytes.len() as u64);
                    if let Some(messages) = &mut self.messages {
                        messages.count(bytes);
                    }
                    frame.trailers_ref().and_then(Status::from_header_map).map(|status| status.code())
                }
                Some(Err(status)) => Some(status.code()),
                None => None,
            };
            if let Some((call, code)) = self.call.as_mut().zip(ended) {
                call.end(code);
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
