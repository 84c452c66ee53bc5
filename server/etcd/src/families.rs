//! Making and registering metrics. Names are constant and differ, so neither fails.

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// Registers a metric; one that could not be would only be missing from the answer.
pub(crate) fn register<M: Collector + Clone + 'static>(registry: &Registry, metric: M) -> M {
    if let Err(error) = registry.register(Box::new(metric.clone())) {
        tracing::error!(%error, "metric could not be registered");
    }
    metric
}

/// Upper bounds of a histogram, each twice the one before.
pub(crate) fn doubling(first: f64, count: usize) -> Vec<f64> {
    std::iter::successors(Some(first), |bound| Some(bound * 2.0)).take(count).collect()
}

#[allow(clippy::expect_used)] // the names are constant
pub(crate) fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    register(registry, IntCounter::new(name, help).expect("a valid name"))
}

#[allow(clippy::expect_used)] // the names are constant
pub(crate) fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    register(registry, IntCounterVec::new(Opts::new(name, help), labels).expect("a valid name"))
}

#[allow(clippy::expect_used)] // the names are constant
pub(crate) fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    register(registry, IntGauge::new(name, help).expect("a valid name"))
}

/// A metric that is 1 with this value of its label.
#[allow(clippy::expect_used)] // the names are constant
pub(crate) fn constant(registry: &Registry, name: &str, help: &str, (label, value): (&str, &str)) {
    let gauges = IntGaugeVec::new(Opts::new(name, help), &[label]).expect("a valid name");
    register(registry, gauges).with_label_values(&[value]).set(1);
}

#[allow(clippy::expect_used)] // the names are constant
pub(crate) fn histogram(registry: &Registry, name: &str, help: &str, bounds: Vec<f64>) -> Histogram {
    let options = HistogramOpts::new(name, help).buckets(bounds);
    register(registry, Histogram::with_opts(options).expect("a valid name"))
}

#[allow(clippy::expect_used)] // the names are constant
pub(crate) fn histograms(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
    bounds: Vec<f64>,
) -> HistogramVec {
    let options = HistogramOpts::new(name, help).buckets(bounds);
    register(registry, HistogramVec::new(options, labels).expect("a valid name"))
}
