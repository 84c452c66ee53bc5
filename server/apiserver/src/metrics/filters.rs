//! Durations of the steps before a request's handler, and the feature gates.

use std::sync::OnceLock;
use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntGaugeVec, Registry};

use super::families::Families;

/// Upstream's bounds, in seconds.
const DURATIONS: &[f64] = &[0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0, 10.0, 15.0, 30.0];

/// A step that a request has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestFilter {
    Authentication,
    Audit,
    Impersonation,
    PriorityAndFairness,
    MaxInFlight,
    Authorization,
}

impl RequestFilter {
    fn name(self) -> &'static str {
        match self {
            RequestFilter::Authentication => "authentication",
            RequestFilter::Audit => "audit",
            RequestFilter::Impersonation => "constrainedimpersonation",
            RequestFilter::PriorityAndFairness => "priorityandfairness",
            RequestFilter::MaxInFlight => "maxinflight",
            RequestFilter::Authorization => "authorization",
        }
    }
}

/// Durations of steps, and states of feature gates.
pub struct FilterMetrics {
    durations: HistogramVec,
    /// By [`RequestFilter`]; those that requests have passed.
    series: [OnceLock<Histogram>; 6],
    features: IntGaugeVec,
}

impl FilterMetrics {
    pub(super) fn new(registry: &Registry) -> Result<FilterMetrics, prometheus::Error> {
        let families = Families(registry);
        Ok(FilterMetrics {
            durations: families.histograms(
                "apiserver_request_filter_duration_seconds",
                "Duration of the steps before the handlers of requests in seconds.",
                &["filter"],
                DURATIONS,
            )?,
            series: Default::default(),
            features: families.gauges(
                "kubernetes_feature_enabled",
                "Whether a feature gate is on.",
                &["name", "stage"],
            )?,
        })
    }

    /// A request has passed a step.
    pub(crate) fn passed(&self, filter: RequestFilter, took: Duration) {
        let Some(series) = self.series.get(filter as usize) else { return };
        series.get_or_init(|| self.durations.with_label_values(&[filter.name()])).observe(took.as_secs_f64());
    }

    /// Sets the state of a feature gate; `stage` is `ALPHA`, `BETA`, `DEPRECATED`, or empty.
    pub fn set_feature(&self, name: &str, stage: &str, is_on: bool) {
        self.features.with_label_values(&[name, stage]).set(i64::from(is_on));
    }
}
