//! Metrics of watches.

use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, Registry};

use super::families::Families;
use super::requests::Scope;
use plinth_registry::ResourceType;

const RESOURCE: [&str; 3] = ["group", "version", "resource"];

/// Events that watches sent, and their sizes.
pub struct WatchMetrics {
    events: IntCounterVec,
    sizes: HistogramVec,
    initial: HistogramVec,
}

/// The series of one watch.
pub struct WatchSeries {
    events: IntCounter,
    sizes: Histogram,
}

impl WatchMetrics {
    pub(super) fn new(registry: &Registry) -> Result<WatchMetrics, prometheus::Error> {
        let families = Families(registry);
        let sizes: Vec<f64> = (0..8).map(|power| f64::from(1024u32 << power)).collect();
        Ok(WatchMetrics {
            events: families.counters("apiserver_watch_events_total", "Watch events sent.", &RESOURCE)?,
            sizes: families.histograms(
                "apiserver_watch_events_sizes",
                "Size of watch events in bytes.",
                &RESOURCE,
                &sizes,
            )?,
            initial: families.histograms(
                "apiserver_watch_list_duration_seconds",
                "Time until the initial state of a streaming list was sent, in seconds.",
                &[RESOURCE.as_slice(), &["scope"]].concat(),
                &[0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0],
            )?,
        })
    }

    /// The series of a watch of that resource.
    pub(crate) fn series(&self, resource: &ResourceType) -> WatchSeries {
        let row = &resource.row;
        let labels = [row.group.as_str(), &row.version, &row.plural];
        WatchSeries {
            events: self.events.with_label_values(&labels),
            sizes: self.sizes.with_label_values(&labels),
        }
    }

    /// The initial state of a streaming list was sent.
    pub(crate) fn initial_state_sent(&self, resource: &ResourceType, scope: Scope, took: Duration) {
        let row = &resource.row;
        let labels = [row.group.as_str(), &row.version, &row.plural, scope.as_str()];
        self.initial.with_label_values(&labels).observe(took.as_secs_f64());
    }
}

impl WatchSeries {
    /// Counts one event.
    pub(crate) fn sent(&self, bytes: usize) {
        self.events.inc();
        self.sizes.observe(bytes as f64);
    }
}
