//! Events of requests of the server's own, which have no connection. They are never refused for their events.

use hyper::Response;

use super::policy::AuditStage;
use super::Recorder;
use plinth_api::ApiError;
use plinth_http::Body;

impl Recorder {
    /// Writes the first event.
    pub(crate) async fn begin_own(&self) {
        if let Some(recording) = &self.0 {
            recording.write_own(AuditStage::RequestReceived).await;
        }
    }

    /// Records the response that a client would get.
    pub(crate) fn record_own(&self, response: &Response<Body>, error: Option<&ApiError>) {
        if let Some(recording) = &self.0 {
            recording.record_response(response, error);
            recording.annotate_latencies();
        }
    }

    /// Writes the last event.
    pub(crate) async fn end_own(&self) {
        if let Some(recording) = &self.0 {
            recording.write_own(AuditStage::ResponseComplete).await;
        }
    }

    /// Ends a request that has come to nothing, and of which no event was written.
    pub(crate) fn discard(&self) {
        if let Some(recording) = &self.0 {
            recording.discard();
        }
    }
}
