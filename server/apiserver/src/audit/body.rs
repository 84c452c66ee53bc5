//! Writes the audit event of a response when its body has been sent.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hyper::header::HeaderMap;

use super::event::{MAX_OBJECT_BYTES, TRUNCATED};
use super::recording::{answered_object, Recording};
use plinth_api::Layer;
use plinth_http::BodyObserver;

/// Follows a response body; the request's last event is written when it ends or its client disconnects.
pub(super) struct BodyRecorder {
    recording: Arc<Recording>,
    /// The bytes so far, if the response object is recorded and not yet too large.
    captured: Option<Vec<u8>>,
    begun: Instant,
}

impl BodyRecorder {
    pub(super) fn new(recording: Arc<Recording>, captured: Option<Vec<u8>>) -> BodyRecorder {
        BodyRecorder { recording, captured, begun: Instant::now() }
    }
}

impl BodyObserver for BodyRecorder {
    fn sent(&mut self, data: &Bytes) {
        let Some(captured) = &mut self.captured else { return };
        if captured.len() + data.len() <= MAX_OBJECT_BYTES {
            captured.extend_from_slice(data);
        } else {
            self.captured = None;
            self.recording.event.lock().annotations.insert(TRUNCATED.into(), "true".into());
        }
    }
}

impl Drop for BodyRecorder {
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
