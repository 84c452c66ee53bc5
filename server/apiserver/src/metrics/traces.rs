//! Metrics of traces that are sent to a collector.

use prometheus::{IntCounter, Registry};

use super::families::Families;

/// What did not reach the collector.
#[derive(Debug, Clone)]
pub struct TraceMetrics {
    /// Exports that failed.
    pub(crate) failed_exports: IntCounter,
    /// Spans of these.
    pub(crate) lost_spans: IntCounter,
}

impl TraceMetrics {
    pub(super) fn new(registry: &Registry) -> Result<TraceMetrics, prometheus::Error> {
        let families = Families(registry);
        Ok(TraceMetrics {
            failed_exports: families.counter(
                "plinth_trace_export_failures_total",
                "Exports of trace spans to the collector that failed.",
            )?,
            lost_spans: families.counter(
                "plinth_trace_lost_spans_total",
                "Trace spans that were lost because their export failed.",
            )?,
        })
    }
}
