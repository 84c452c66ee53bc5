//! Availability of remote APIs (kube-aggregator `pkg/controllers/status/metrics`).

use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::families::Families;

/// Metrics of APIServices. An APIService is named by who may create it.
pub struct ApiServiceMetrics {
    unavailable: IntGaugeVec,
    unavailabilities: IntCounterVec,
}

impl ApiServiceMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When a name is already registered.
    pub(super) fn new(registry: &Registry) -> Result<ApiServiceMetrics, prometheus::Error> {
        let families = Families(registry);
        Ok(ApiServiceMetrics {
            unavailable: families.gauges(
                "aggregator_unavailable_apiservice",
                "Whether an APIService is unavailable.",
                &["name"],
            )?,
            unavailabilities: families.counters(
                "aggregator_unavailable_apiservice_total",
                "How often an APIService became unavailable, by reason.",
                &["name", "reason"],
            )?,
        })
    }

    /// Sets whether an APIService is available; `None` when it was deleted.
    pub fn set(&self, name: &str, is_available: Option<bool>) {
        match is_available {
            Some(is_available) => {
                self.unavailable.with_label_values(&[name]).set(i64::from(!is_available));
            }
            // Fails for one that was never set.
            None => drop(self.unavailable.remove_label_values(&[name])),
        }
    }

    /// Counts that an APIService has become unavailable.
    pub fn became_unavailable(&self, name: &str, reason: &str) {
        self.unavailabilities.with_label_values(&[name, reason]).inc();
    }
}
