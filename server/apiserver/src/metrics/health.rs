//! Metrics of health checks (k8s.io/component-base `metrics/prometheus/slis`), which `/metrics/slis` serves.

use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::families::Families;

/// The families, in a registry of their own.
pub struct HealthMetrics {
    pub(super) registry: Registry,
    status: IntGaugeVec,
    results: IntCounterVec,
}

impl HealthMetrics {
    pub(super) fn new() -> Result<HealthMetrics, prometheus::Error> {
        let registry = Registry::new();
        let families = Families(&registry);
        let status = families.gauges(
            "kubernetes_healthcheck",
            "Whether a health check passed when it was last made.",
            &["name", "type"],
        )?;
        let results = families.counters(
            "kubernetes_healthchecks_total",
            "Health checks by result.",
            &["name", "type", "status"],
        )?;
        Ok(HealthMetrics { registry, status, results })
    }

    /// Counts a check that the endpoint `probe` made.
    pub(crate) fn checked(&self, name: &str, probe: &str, passed: bool) {
        self.status.with_label_values(&[name, probe]).set(i64::from(passed));
        let status = if passed { "success" } else { "error" };
        self.results.with_label_values(&[name, probe, status]).inc();
    }
}
