//! Metrics of work queues, with the names of client-go's (k8s.io/component-base
//! `metrics/prometheus/workqueue`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{
    GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};
use tokio::time::Instant;

use super::families::Families;

/// The families, and the queues that they are about.
pub struct WorkqueueMetrics {
    depth: IntGaugeVec,
    adds: IntCounterVec,
    waits: HistogramVec,
    work: HistogramVec,
    retries: IntCounterVec,
    unfinished: GaugeVec,
    longest: GaugeVec,
    /// One for each name: there are as many as controllers. The lock is held to add or read one.
    queues: Mutex<HashMap<&'static str, Arc<QueueMetrics>>>,
}

/// The series of one queue.
pub struct QueueMetrics {
    depth: IntGauge,
    adds: IntCounter,
    waits: Histogram,
    work: Histogram,
    retries: IntCounter,
    /// When the running keys began; at most as many as the queue has workers.
    running: Mutex<Vec<Instant>>,
}

impl WorkqueueMetrics {
    pub(super) fn new(registry: &Registry) -> Result<WorkqueueMetrics, prometheus::Error> {
        let (families, name) = (Families(registry), ["name"]);
        // Ten nanoseconds to a thousand seconds.
        let durations: Vec<f64> = (-8..=3).map(|power| 10f64.powi(power)).collect();
        Ok(WorkqueueMetrics {
            depth: families.gauges("workqueue_depth", "Keys in a work queue.", &name)?,
            adds: families.counters("workqueue_adds_total", "Keys added to a work queue.", &name)?,
            waits: families.histograms(
                "workqueue_queue_duration_seconds",
                "Time that keys wait in a work queue in seconds.",
                &name,
                &durations,
            )?,
            work: families.histograms(
                "workqueue_work_duration_seconds",
                "Time that the reconciliation of a key takes in seconds.",
                &name,
                &durations,
            )?,
            retries: families.counters("workqueue_retries_total", "Keys that are retried.", &name)?,
            unfinished: families.ratios(
                "workqueue_unfinished_work_seconds",
                "Seconds that running reconciliations have taken so far, in sum.",
                &name,
            )?,
            longest: families.ratios(
                "workqueue_longest_running_processor_seconds",
                "Seconds that the longest running reconciliation has taken so far.",
                &name,
            )?,
            queues: Mutex::default(),
        })
    }

    /// The series of the queue with this name.
    pub fn queue(&self, name: &'static str) -> Arc<QueueMetrics> {
        let labels = [name];
        let new = || {
            Arc::new(QueueMetrics {
                depth: self.depth.with_label_values(&labels),
                adds: self.adds.with_label_values(&labels),
                waits: self.waits.with_label_values(&labels),
                work: self.work.with_label_values(&labels),
                retries: self.retries.with_label_values(&labels),
                running: Mutex::default(),
            })
        };
        self.queues.lock().entry(name).or_insert_with(new).clone()
    }

    /// Sets the gauges that depend on the time.
    pub(super) fn refresh(&self) {
        let now = Instant::now();
        for (name, queue) in self.queues.lock().iter() {
            let seconds: Vec<f64> =
                queue.running.lock().iter().map(|begun| (now - *begun).as_secs_f64()).collect();
            self.unfinished.with_label_values(&[*name]).set(seconds.iter().sum());
            self.longest.with_label_values(&[*name]).set(seconds.into_iter().fold(0.0, f64::max));
        }
    }
}

impl QueueMetrics {
    /// A key was added that was not in the queue.
    pub fn added(&self) {
        self.adds.inc();
    }

    /// The number of keys that are due.
    pub fn set_depth(&self, keys: usize) {
        self.depth.set(i64::try_from(keys).unwrap_or(i64::MAX));
    }

    /// A key was taken after it waited so long.
    pub fn began(&self, at: Instant, waited: Duration) {
        self.waits.observe(waited.as_secs_f64());
        self.running.lock().push(at);
    }

    /// The reconciliation that began at `at` has ended.
    pub fn ended(&self, at: Instant) {
        let mut running = self.running.lock();
        if let Some(place) = running.iter().position(|begun| *begun == at) {
            running.swap_remove(place);
            self.work.observe(at.elapsed().as_secs_f64());
        }
    }

    /// Nothing is queued and nothing runs: the controller begins, or begins again.
    pub fn reset(&self) {
        self.running.lock().clear();
        self.depth.set(0);
    }

    /// A key failed and is retried.
    pub fn retried(&self) {
        self.retries.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_work_is_measured_while_it_runs() {
        let registry = Registry::new();
        let metrics = WorkqueueMetrics::new(&registry).unwrap();
        let queue = metrics.queue("test");
        let begun = Instant::now() - Duration::from_secs(5);
        queue.began(begun, Duration::from_secs(1));
        metrics.refresh();
        let value = |name: &str| {
            let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
            let start = format!("{name}{{name=\"test\"}} ");
            let value = text.lines().find_map(|line| line.strip_prefix(&start)).map(str::to_owned);
            value.unwrap_or_else(|| panic!("{name}\n{text}")).parse::<f64>().unwrap()
        };
        assert!(value("workqueue_unfinished_work_seconds") >= 5.0);
        assert!(value("workqueue_longest_running_processor_seconds") >= 5.0);
        metrics.queue("test").ended(begun);
        metrics.refresh();
        assert_eq!(value("workqueue_unfinished_work_seconds"), 0.0);
        assert_eq!(value("workqueue_work_duration_seconds_count"), 1.0);
    }
}
