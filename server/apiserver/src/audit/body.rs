//! A response body whose audit event is written when it has been sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use hyper::header::HeaderMap;

use super::{answered_object, Recording, MAX_OBJECT_BYTES, TRUNCATED};
use plinth_api::latency::Layer;
use plinth_http::body::{Body, BodyError};

/// A response body; the request's last event is written when it ends or its client disconnects.
pub(crate) struct RecordedBody {
    inner: Body,
    recording: Arc<Recording>,
    /// The bytes so far, if the response object is recorded and not yet too large.
    captured: Option<Vec<u8>>,
    begun: Instant,
}

impl RecordedBody {
    pub(super) fn new(inner: Body, recording: Arc<Recording>, captured: Option<Vec<u8>>) -> RecordedBody {
        RecordedBody { inner, recording, captured, begun: Instant::now() }
    }
}

impl HttpBody for RecordedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let recorded = self.get_mut();
        let frame = Pin::new(&mut recorded.inner).poll_frame(cx);
        if let (Poll::Ready(Some(Ok(frame))), Some(captured)) = (&frame, &mut recorded.captured) {
            let data = frame.data_ref().map_or(&[][..], |data| data);
            if captured.len() + data.len() <= MAX_OBJECT_BYTES {
                captured.extend_from_slice(data);
            } else {
                recorded.captured = None;
                recorded.recording.event.lock().annotations.insert(TRUNCATED.into(), "true".into());
            }
        }
        frame
    }
}

impl Drop for RecordedBody {
    fn drop(&mut self) {
        if let Some(captured) = self.captured.take() {
            // A recorded list is nearly always JSON; other encodings are recognized by their first byte.
            let mut headers = HeaderMap::new();
            let media = match captured.first() {
                Some(b'k') => "application/vnd.kubernetes.protobuf",
                Some(0xd9) => "application/cbor",
                Some(b'{') => "application/json",
                _ => "application/yaml",
            };
            headers.insert(hyper::header::CONTENT_TYPE, hyper::header::HeaderValue::from_static(media));
            let object = answered_object(&captured, &headers);
            let mut event = self.recording.event.lock();
            event.response_object = object.and_then(|object| event.encode_object(&object));
        }
        self.recording.latencies.add(Layer::ResponseWrite, self.begun.elapsed());
        self.recording.finish_now();
    }
}
