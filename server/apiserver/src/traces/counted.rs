//! An exporter of spans whose failures are counted: the library drops the spans, and has a log line for it at
//! most.

use std::time::Duration;

use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use opentelemetry_sdk::Resource;

use crate::metrics::TraceMetrics;

/// Counts what `exporter` does not send.
#[derive(Debug)]
pub(super) struct CountedExporter<E> {
    pub exporter: E,
    pub metrics: TraceMetrics,
}

impl<E: SpanExporter> SpanExporter for CountedExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        let exported = self.exporter.export(batch).await;
        if let Err(error) = &exported {
            self.metrics.failed_exports.inc();
            self.metrics.lost_spans.inc_by(spans);
            tracing::warn!(%error, spans, "spans were not sent to the collector; check the endpoint of \
                --tracing-config-file");
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
