//! A request that is recorded, and the stages of it that have been written.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

use hyper::header::{HeaderMap, CONTENT_TYPE};
use hyper::Response;
use parking_lot::Mutex;
use plinth_codec::schema::{self, GVK};
use plinth_codec::{cbor, json, protobuf, yaml, Value};

use super::counters::EventLost;
use super::event::Event;
use super::policy::{AuditLevel, AuditStage};
use super::sinks::Sinks;
use plinth_api::{success_status, ApiError, Latencies};
use plinth_http::Body;

/// A recorded request. The lock is held to change or encode the event, never across an await.
pub(super) struct Recording {
    pub(super) sinks: Arc<Sinks>,
    pub(super) long_running: bool,
    /// Whether authentication failed. Then there is a single event, of stage ResponseStarted, as upstream's.
    pub(super) unauthenticated: bool,
    pub(super) latencies: Arc<Latencies>,
    /// Which stages have been written: [`STARTED`], [`ENDED`]. Used by the request's own steps only, which
    /// are sequential.
    pub(super) written: AtomicU8,
    pub(super) event: Mutex<Event>,
}

/// ResponseStarted has been written.
const STARTED: u8 = 1;
/// The last stage has been written.
const ENDED: u8 = 2;

impl Recording {
    pub(super) async fn write(&self, stage: AuditStage) -> Result<(), EventLost> {
        self.mark_written(stage);
        // Boxed, since most requests are not recorded.
        Box::pin(self.sinks.write(&self.event, stage)).await
    }

    pub(super) fn write_now(&self, stage: AuditStage) {
        self.mark_written(stage);
        self.sinks.write_now(&self.event, stage);
    }

    /// Marks a stage as written, even if the request is dropped while that happens.
    fn mark_written(&self, stage: AuditStage) {
        let written = match stage {
            AuditStage::RequestReceived => 0,
            AuditStage::ResponseStarted if self.unauthenticated => STARTED | ENDED,
            AuditStage::ResponseStarted => STARTED,
            AuditStage::ResponseComplete | AuditStage::Panic => ENDED,
        };
        self.written.fetch_or(written, Ordering::Relaxed);
    }

    /// Records a response, whose events are still to be written.
    pub(super) fn record_response(&self, response: &Response<Body>, error: Option<&ApiError>) {
        let status = error.map(ApiError::to_status);
        let mut event = self.event.lock();
        let records = event.config.level >= AuditLevel::RequestResponse;
        let mut answer = match (&status, response.body()) {
            (Some(status), _) => Some(status.clone()),
            (None, Body::Full(bytes)) if !bytes.is_empty() => answered_object(bytes, response.headers()),
            _ => None,
        };
        if records {
            event.response_object = answer.as_ref().and_then(|answer| event.encode_object(answer));
        }
        let is_status = |answer: &Value| answer.str_at(&["kind"]) == Some("Status");
        let status = answer.take().filter(is_status);
        event.response = Some((response.status().as_u16(), status));
    }

    /// Marks the request as one of which nothing is written.
    pub(super) fn discard(&self) {
        self.written.fetch_or(ENDED, Ordering::Relaxed);
    }

    /// Writes the event of a request of the server's own.
    pub(super) async fn write_own(&self, stage: AuditStage) {
        self.mark_written(stage);
        Box::pin(self.sinks.write_own(&self.event, stage)).await;
    }

    /// Annotates the latencies of a slow request.
    pub(super) fn annotate_latencies(&self) {
        let mut event = self.event.lock();
        let total = event.received.elapsed().unwrap_or_default();
        for (name, time) in self.latencies.annotations(total) {
            event.annotate(name.into(), time);
        }
    }

    /// Writes the last event without waiting.
    pub(super) fn finish_now(&self) {
        self.annotate_latencies();
        self.write_now(AuditStage::ResponseComplete);
    }
}

/// A request that is dropped because its client has disconnected ends as upstream's does (k8s.io/apiserver
/// `pkg/endpoints/filters/audit.go`).
impl Drop for Recording {
    fn drop(&mut self) {
        let written = self.written.load(Ordering::Relaxed);
        if written & ENDED != 0 {
            return;
        }
        let disconnected = || {
            let mut status = success_status();
            status.insert("message", "Connection closed early");
            (200, Some(Value::Object(status)))
        };
        self.event.get_mut().response.get_or_insert_with(disconnected);
        if written & STARTED == 0 && (self.long_running || self.unauthenticated) {
            self.write_now(AuditStage::ResponseStarted);
        }
        if !self.unauthenticated {
            self.finish_now();
        }
    }
}

/// Decodes the response object, in any encoding; `None` if it is not an API object.
pub(super) fn answered_object(bytes: &[u8], headers: &HeaderMap) -> Option<Value> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let media = content_type.split(';').next().unwrap_or_default().trim();
    let object = match media {
        "application/json" => json::parse(bytes).ok(),
        "application/yaml" => yaml::to_value(bytes).ok().map(|(tree, _)| tree),
        "application/cbor" => cbor::decode(bytes).ok(),
        "application/vnd.kubernetes.protobuf" => {
            let envelope = protobuf::decode(bytes).ok()?;
            let (api_version, kind): (&str, &str) = (&envelope.api_version, &envelope.kind);
            let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
            let gvk = GVK::new(group, version, kind);
            let schema = schema::builtin();
            protobuf::decode_object(envelope.raw, Some(&gvk), schema, schema.kind(&gvk)?).ok()
        }
        _ => None,
    };
    object.filter(|object: &Value| object.get("kind").is_some())
}
