//! Prometheus metrics, under upstream's names where upstream has them.

mod engine;

use std::time::Instant;

use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use plinth_api::request_info::Verb;
use smol_str::SmolStr;

/// Content type of the text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upstream's buckets of request durations, in seconds.
const DURATIONS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];

/// The labels of a request.
pub struct RequestLabel {
    /// Verb.
    pub verb: Verb,
    /// API group.
    pub group: SmolStr,
    /// API version.
    pub version: SmolStr,
    /// Plural resource; empty for other paths.
    pub resource: SmolStr,
    /// Subresource.
    pub subresource: SmolStr,
}

/// For logs: `create apps/v1/deployments/scale`.
impl std::fmt::Display for RequestLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.verb.as_str())?;
        for (n, part) in [&self.group, &self.version, &self.resource, &self.subresource]
            .into_iter()
            .filter(|part| !part.is_empty())
            .enumerate()
        {
            write!(f, "{}{part}", if n == 0 { " " } else { "/" })?;
        }
        Ok(())
    }
}

/// All metrics of a server. Counters are atomics; the label maps have their own short locks.
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    durations: HistogramVec,
    in_flight: IntGaugeVec,
    watches: IntGaugeVec,
    watch_events: IntCounterVec,
    unavailable_apis: IntGaugeVec,
    unavailabilities: IntCounterVec,
}

impl Metrics {
    /// Registers the metrics in a new registry.
    ///
    /// # Errors
    /// When two metrics have one name, which is a programming error that tests would find.
    pub fn new() -> Result<Metrics, prometheus::Error> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            let metric = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let request_labels = ["verb", "group", "version", "resource", "subresource", "code"];
        let requests = counter(
            "apiserver_request_total",
            "Requests by verb, resource and status code.",
            &request_labels,
        )?;
        let watch_labels = ["group", "resource"];
        let watches = gauge("apiserver_longrunning_requests", "Watches that are open.", &watch_labels)?;
        let watch_events = counter("apiserver_watch_events_total", "Watch events delivered.", &watch_labels)?;
        let in_flight =
            gauge("apiserver_current_inflight_requests", "Requests under way.", &["request_kind"])?;
        let durations = HistogramVec::new(
            HistogramOpts::new(
                "apiserver_request_duration_seconds",
                "Time to answer, by verb and resource; watches left out.",
            )
            .buckets(DURATIONS.to_vec()),
            &["verb", "group", "resource"],
        )?;
        registry.register(Box::new(durations.clone()))?;
        let unavailable_apis = gauge(
            "aggregator_unavailable_apiservice",
            "Gauge of APIServices which are marked as unavailable broken down by APIService name.",
            &["name"],
        )?;
        let unavailabilities = counter(
            "aggregator_unavailable_apiservice_total",
            "Counter of APIServices which are marked as unavailable broken down by APIService name and reason.",
            &["name", "reason"],
        )?;
        Ok(Metrics {
            registry,
            requests,
            durations,
            in_flight,
            watches,
            watch_events,
            unavailable_apis,
            unavailabilities,
        })
    }

    /// The registry, for metrics of other modules.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Counts a request when the guard is dropped. A label is empty or names what is served, so that clients
    /// cannot create series.
    pub fn count(&self, label: RequestLabel) -> RequestGuard<'_> {
        RequestGuard { metrics: self, label, started: Instant::now(), code: 0 }
    }

    /// Counts a request for as long as the guard lives.
    pub fn in_flight(&self, mutating: bool) -> GaugeGuard {
        let kind = if mutating { "mutating" } else { "readOnly" };
        GaugeGuard::new(self.in_flight.with_label_values(&[kind]))
    }

    /// Counts a watch for as long as the guard lives.
    pub fn watch(&self, group: &str, resource: &str) -> WatchGuard {
        let events = self.watch_events.with_label_values(&[group, resource]);
        WatchGuard { _open: GaugeGuard::new(self.watches.with_label_values(&[group, resource])), events }
    }

    /// Sets whether an APIService is available; `None` when it was deleted.
    pub fn set_api_service(&self, name: &str, is_available: Option<bool>) {
        match is_available {
            Some(is_available) => {
                self.unavailable_apis.with_label_values(&[name]).set(i64::from(!is_available));
            }
            // Fails for one that was never set.
            None => drop(self.unavailable_apis.remove_label_values(&[name])),
        }
    }

    /// Counts that an APIService has become unavailable.
    pub fn api_service_became_unavailable(&self, name: &str, reason: &str) {
        self.unavailabilities.with_label_values(&[name, reason]).inc();
    }

    /// The text format, with the current statistics of the engine.
    pub fn render(&self, stats: &plinth_engine::Stats) -> Vec<u8> {
        let mut out = Vec::with_capacity(8192);
        // Writing to memory fails for no valid metric; a partial page is better than none.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut out);
        engine::write(stats, &mut out);
        out
    }
}

/// Increments a gauge while it lives.
pub struct GaugeGuard(IntGauge);

impl GaugeGuard {
    fn new(gauge: IntGauge) -> GaugeGuard {
        gauge.inc();
        GaugeGuard(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Counts a request when dropped.
pub struct RequestGuard<'a> {
    metrics: &'a Metrics,
    /// The labels of the request.
    pub label: RequestLabel,
    started: Instant,
    code: u16,
}

impl RequestGuard<'_> {
    /// Sets the status code. A request that is abandoned because its client has disconnected has 0, as
    /// upstream's.
    pub fn answered(mut self, code: u16) {
        self.code = code;
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        let RequestLabel { group, version, resource, subresource, .. } = &self.label;
        let (verb, code) = (self.label.verb.as_str(), self.code.to_string());
        let labels = [verb, group, version, resource, subresource, &code];
        self.metrics.requests.with_label_values(&labels).inc();
        if self.label.verb != Verb::Watch {
            let took = self.started.elapsed().as_secs_f64();
            self.metrics.durations.with_label_values(&[verb, group, resource]).observe(took);
        }
    }
}

/// An open watch.
pub struct WatchGuard {
    _open: GaugeGuard,
    events: IntCounter,
}

impl WatchGuard {
    /// Counts one delivered event.
    pub fn delivered(&self) {
        self.events.inc();
    }
}
