//! Metrics of priority and fairness, with upstream's names (`apiserver_flowcontrol_*`).

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};

use crate::metrics::families::Families;

const LEVEL: &[&str] = &["priority_level"];
const SCHEMA: &[&str] = &["priority_level", "flow_schema"];
/// Upstream's buckets, in seconds.
const DURATIONS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
const LENGTHS: &[f64] = &[0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
const SEATS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];

/// All metrics. Counters are atomics; label maps are accessed when the configuration changes or a request is
/// refused, not for each request.
pub struct FlowMetrics {
    rejected: IntCounterVec,
    dispatched: IntCounterVec,
    executing: IntGaugeVec,
    executing_seats: IntGaugeVec,
    waiting: IntGaugeVec,
    waiting_seats: IntGaugeVec,
    wait: HistogramVec,
    execution: HistogramVec,
    queue_length: HistogramVec,
    estimated_seats: HistogramVec,
    nominal: IntGaugeVec,
    lower: IntGaugeVec,
    upper: IntGaugeVec,
    current: IntGaugeVec,
    demand_peak: IntGaugeVec,
    demand_average: GaugeVec,
    demand_deviation: GaugeVec,
    demand_smoothed: GaugeVec,
    target: GaugeVec,
    fair_fraction: Gauge,
}

impl FlowMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When a name is already registered; a programming error.
    pub fn new(registry: &Registry) -> Result<FlowMetrics, prometheus::Error> {
        let families = Families(registry);
        let name = |name: &str| format!("apiserver_flowcontrol_{name}");
        let counters = |what: &str, help: &str, labels: &[&str]| families.counters(&name(what), help, labels);
        let counts = |what: &str, help: &str, labels: &[&str]| families.gauges(&name(what), help, labels);
        let gauges = |what: &str, help: &str, labels: &[&str]| families.ratios(&name(what), help, labels);
        let distribution = |what: &str, help: &str, labels: &[&str], buckets: &[f64]| {
            families.histograms(&name(what), help, labels, buckets)
        };
        let fair_fraction =
            families.ratio(&name("seat_fair_frac"), "Part of its target that a level gets.")?;
        let with = |label: &'static str| [SCHEMA, &[label]].concat();
        Ok(FlowMetrics {
            rejected: counters("rejected_requests_total", "Requests refused.", &with("reason"))?,
            dispatched: counters("dispatched_requests_total", "Requests served.", SCHEMA)?,
            executing: counts("current_executing_requests", "Requests that are served.", SCHEMA)?,
            executing_seats: counts("current_executing_seats", "Seats that are occupied.", SCHEMA)?,
            waiting: counts("current_inqueue_requests", "Requests that wait.", SCHEMA)?,
            waiting_seats: counts("current_inqueue_seats", "Seats that waiting requests want.", SCHEMA)?,
            wait: distribution(
                "request_wait_duration_seconds",
                "Time that requests waited, in seconds.",
                &with("execute"),
                DURATIONS,
            )?,
            execution: distribution(
                "request_execution_seconds",
                "Time that requests occupied their seats, in seconds.",
                &with("type"),
                DURATIONS,
            )?,
            queue_length: distribution(
                "request_queue_length_after_enqueue",
                "Length of the queue after a request was added to it.",
                SCHEMA,
                LENGTHS,
            )?,
            estimated_seats: distribution(
                "work_estimated_seats",
                "Seats that requests were taken to need.",
                SCHEMA,
                SEATS,
            )?,
            nominal: counts("nominal_limit_seats", "Seats of a level by its shares.", LEVEL)?,
            lower: counts("lower_limit_seats", "Seats that a level always has.", LEVEL)?,
            upper: counts("upper_limit_seats", "Seats that a level can have at most.", LEVEL)?,
            current: counts("current_limit_seats", "Seats that a level has now.", LEVEL)?,
            demand_peak: counts(
                "demand_seats_high_watermark",
                "Most seats that a level wanted at once in the last period.",
                LEVEL,
            )?,
            demand_average: gauges("demand_seats_average", "Average of the seats wanted.", LEVEL)?,
            demand_deviation: gauges("demand_seats_stdev", "Deviation of the seats wanted.", LEVEL)?,
            demand_smoothed: gauges("demand_seats_smoothed", "Seats wanted, smoothed.", LEVEL)?,
            target: gauges("target_seats", "Seats that a level is to get.", LEVEL)?,
            fair_fraction,
        })
    }

    /// The metrics of a schema on a level.
    pub fn schema(&self, level: &str, schema: &str) -> SchemaMetrics {
        let labels = &[level, schema];
        SchemaMetrics {
            dispatched: self.dispatched.with_label_values(labels),
            executing: self.executing.with_label_values(labels),
            executing_seats: self.executing_seats.with_label_values(labels),
            waiting: self.waiting.with_label_values(labels),
            waiting_seats: self.waiting_seats.with_label_values(labels),
            execution: self.execution.with_label_values(&[level, schema, "regular"]),
            execution_of_watches: self.execution.with_label_values(&[level, schema, "watch"]),
            queue_length: self.queue_length.with_label_values(labels),
            estimated_seats: self.estimated_seats.with_label_values(labels),
            waited_served: self.wait.with_label_values(&[level, schema, "true"]),
            waited_refused: self.wait.with_label_values(&[level, schema, "false"]),
            rejected: self.rejected.clone(),
        }
    }

    /// Sets the limits of a level.
    pub(crate) fn set_limits(&self, level: &str, allocation: &super::allocation::LevelAllocation, now: u32) {
        let set = |metric: &IntGaugeVec, value: u32| {
            metric.with_label_values(&[level]).set(i64::from(value));
        };
        set(&self.nominal, allocation.bounds.nominal);
        set(&self.lower, allocation.bounds.lower);
        set(&self.upper, allocation.bounds.upper);
        set(&self.current, now);
        set(&self.demand_peak, allocation.demand.peak);
        self.demand_average.with_label_values(&[level]).set(allocation.demand.average);
        self.demand_deviation.with_label_values(&[level]).set(allocation.demand.deviation);
        self.demand_smoothed.with_label_values(&[level]).set(allocation.demand.smoothed);
        self.target.with_label_values(&[level]).set(allocation.target());
    }

    /// Sets the fair fraction.
    pub(crate) fn set_fair_fraction(&self, fraction: f64) {
        self.fair_fraction.set(fraction);
    }

    /// Removes the metrics of a deleted level.
    pub(crate) fn remove_level(&self, level: &str) {
        let counts = [&self.nominal, &self.lower, &self.upper, &self.current, &self.demand_peak];
        counts.iter().for_each(|metric| drop(metric.remove_label_values(&[level])));
        let gauges = [&self.demand_average, &self.demand_deviation, &self.demand_smoothed, &self.target];
        gauges.iter().for_each(|metric| drop(metric.remove_label_values(&[level])));
    }
}

/// The metrics of requests of one schema.
#[allow(missing_docs)] // see the names above
pub struct SchemaMetrics {
    pub dispatched: IntCounter,
    pub executing: IntGauge,
    pub executing_seats: IntGauge,
    pub waiting: IntGauge,
    pub waiting_seats: IntGauge,
    pub execution: Histogram,
    pub execution_of_watches: Histogram,
    pub queue_length: Histogram,
    pub estimated_seats: Histogram,
    pub waited_served: Histogram,
    pub waited_refused: Histogram,
    rejected: IntCounterVec,
}

impl SchemaMetrics {
    /// Counts a refused request.
    pub fn rejected(&self, level: &str, schema: &str, why: super::queues::Rejected) {
        self.rejected.with_label_values(&[level, schema, why.as_str()]).inc();
    }

    /// Number of requests refused for that reason.
    pub(crate) fn rejections(&self, level: &str, schema: &str, why: super::queues::Rejected) -> u64 {
        self.rejected.with_label_values(&[level, schema, why.as_str()]).get()
    }
}
