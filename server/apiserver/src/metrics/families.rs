//! Metric families, created and registered in one step.

use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

type Registered<T> = Result<T, prometheus::Error>;

/// Upstream's bounds of many durations, in seconds: fifteen from a millisecond on, each twice the one before.
pub(super) fn doubling_from_a_millisecond() -> Vec<f64> {
    (0..15).map(|power| 0.001 * f64::from(1u16 << power)).collect()
}

/// Registers families. Each function fails when the name is already registered, which is a programming error
/// that tests would find.
pub(crate) struct Families<'r>(pub(crate) &'r Registry);

impl Families<'_> {
    fn register<C: Collector + Clone + 'static>(&self, family: C) -> Registered<C> {
        self.0.register(Box::new(family.clone()))?;
        #[cfg(test)]
        super::reference_tests::note(&family);
        Ok(family)
    }

    pub(crate) fn counter(&self, name: &str, help: &str) -> Registered<IntCounter> {
        self.register(IntCounter::new(name, help)?)
    }

    pub(crate) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Registered<IntCounterVec> {
        self.register(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    pub(crate) fn gauge(&self, name: &str, help: &str) -> Registered<IntGauge> {
        self.register(IntGauge::new(name, help)?)
    }

    pub(crate) fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Registered<IntGaugeVec> {
        self.register(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    pub(crate) fn ratio(&self, name: &str, help: &str) -> Registered<Gauge> {
        self.register(Gauge::new(name, help)?)
    }

    pub(crate) fn ratios(&self, name: &str, help: &str, labels: &[&str]) -> Registered<GaugeVec> {
        self.register(GaugeVec::new(Opts::new(name, help), labels)?)
    }

    pub(crate) fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Registered<Histogram> {
        self.register(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?)
    }

    pub(crate) fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Registered<HistogramVec> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(HistogramVec::new(options, labels)?)
    }
}
