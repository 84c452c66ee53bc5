//! Metrics of requests, with upstream's labels (k8s.io/apiserver `pkg/endpoints/metrics/metrics.go`).
//!
//! The series of a resource hang on its [`ResourceType`]: a request finds its own by comparing a few bytes,
//! and formats and hashes nothing. Label values are those of the registry, or from fixed sets: a client
//! cannot create series with names of its own. As upstream, a request is counted once its handler runs: one
//! that is refused before (401, 403) is not, and counts among the authentication and authorization attempts.
//! Nor is one whose method its resource does not have.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::header::{HeaderMap, CONTENT_TYPE};
use hyper::{Method, Response};
use parking_lot::RwLock;
use plinth_api::{query_may_have, query_parameters, RequestInfo, Verb};
use plinth_http::{Body, BodyObserver};
use plinth_registry::ResourceType;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::families::Families;

/// Upstream's buckets of request durations, in seconds.
const DURATIONS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];
/// The same of durations without webhooks and queues.
const SLI_DURATIONS: &[f64] = &[
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
/// Of response sizes, in bytes.
const SIZES: &[f64] = &[1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
/// Of the sizes of request bodies, in bytes.
const BODY_SIZES: &[f64] = &[
    50_000.0,
    150_000.0,
    250_000.0,
    350_000.0,
    450_000.0,
    550_000.0,
    650_000.0,
    750_000.0,
    850_000.0,
    950_000.0,
    1_050_000.0,
    1_150_000.0,
    1_250_000.0,
    1_350_000.0,
    1_450_000.0,
    1_550_000.0,
    1_650_000.0,
    1_750_000.0,
    1_850_000.0,
    1_950_000.0,
    2_050_000.0,
    2_150_000.0,
    2_250_000.0,
    2_350_000.0,
    2_450_000.0,
    2_550_000.0,
    2_650_000.0,
    2_750_000.0,
    2_850_000.0,
    2_950_000.0,
    3_050_000.0,
];
/// `component` of resources, and of some paths.
pub(crate) const COMPONENT: &str = "apiserver";

/// The labels of the requests for a path that is no resource, where such are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathLabels {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) subresource: &'static str,
    pub(crate) component: &'static str,
}

/// What a request is counted as.
#[derive(Clone, Copy)]
pub(crate) enum MeteredTarget<'a> {
    Resource(&'a RequestInfo, &'a Arc<ResourceType>),
    Path(PathLabels),
}

/// `verb`: from the method and the scope, not from the authorized verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportedVerb {
    Get,
    List,
    Watch,
    Post,
    Put,
    Patch,
    Apply,
    Delete,
    Connect,
    Other,
}

impl ReportedVerb {
    fn of(info: &RequestInfo, method: &Method, headers: &HeaderMap) -> ReportedVerb {
        /// Subresources that are a connection to something else.
        const CONNECTIONS: [&str; 5] = ["log", "exec", "portforward", "attach", "proxy"];
        if CONNECTIONS.contains(&info.subresource.as_str()) {
            return ReportedVerb::Connect;
        }
        match ReportedVerb::of_method(method, headers) {
            _ if info.verb == Verb::Watch => ReportedVerb::Watch,
            ReportedVerb::Get if info.name.is_empty() => ReportedVerb::List,
            verb => verb,
        }
    }

    /// The verb of a path that is no resource.
    fn of_method(method: &Method, headers: &HeaderMap) -> ReportedVerb {
        const APPLY: &[u8] = b"application/apply-patch+yaml";
        match *method {
            Method::GET | Method::HEAD => ReportedVerb::Get,
            Method::POST => ReportedVerb::Post,
            Method::PUT => ReportedVerb::Put,
            Method::PATCH if headers.get(CONTENT_TYPE).is_some_and(|v| v.as_bytes() == APPLY) => {
                ReportedVerb::Apply
            }
            Method::PATCH => ReportedVerb::Patch,
            Method::DELETE => ReportedVerb::Delete,
            _ => ReportedVerb::Other,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ReportedVerb::Get => "GET",
            ReportedVerb::List => "LIST",
            ReportedVerb::Watch => "WATCH",
            ReportedVerb::Post => "POST",
            ReportedVerb::Put => "PUT",
            ReportedVerb::Patch => "PATCH",
            ReportedVerb::Apply => "APPLY",
            ReportedVerb::Delete => "DELETE",
            ReportedVerb::Connect => "CONNECT",
            ReportedVerb::Other => "other",
        }
    }

    /// Whether requests last as long as their client likes.
    fn is_long_running(self) -> bool {
        matches!(self, ReportedVerb::Watch | ReportedVerb::Connect)
    }
}

/// `scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    None,
    Resource,
    Namespace,
    Cluster,
}

impl Scope {
    pub(crate) fn of(info: &RequestInfo) -> Scope {
        match (info.name.is_empty() && info.verb != Verb::Create, info.namespace.is_empty()) {
            (false, _) => Scope::Resource,
            (true, false) => Scope::Namespace,
            (true, true) => Scope::Cluster,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Scope::None => "",
            Scope::Resource => "resource",
            Scope::Namespace => "namespace",
            Scope::Cluster => "cluster",
        }
    }
}

/// `dry_run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DryRun {
    No,
    All,
    Invalid,
}

impl DryRun {
    fn of(query: Option<&str>) -> DryRun {
        let Some(query) = query.filter(|query| query_may_have(query, "dryRun")) else { return DryRun::No };
        let mut values = query_parameters(query).filter(|(key, _)| key == "dryRun").peekable();
        match values.peek().is_none() {
            true => DryRun::No,
            false if values.all(|(_, value)| value == "All") => DryRun::All,
            false => DryRun::Invalid,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            DryRun::No => "",
            DryRun::All => "All",
            DryRun::Invalid => "invalid",
        }
    }
}

/// What distinguishes the series of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SeriesKey {
    verb: ReportedVerb,
    scope: Scope,
    dry_run: DryRun,
    /// Place of the subresource in the resource's row, from 1; 0 for the resource itself.
    part: u8,
}

/// Counts, durations and sizes of requests and responses.
pub struct RequestMetrics {
    total: IntCounterVec,
    durations: HistogramVec,
    sli_durations: HistogramVec,
    sizes: HistogramVec,
    body_sizes: HistogramVec,
    long_running: IntGaugeVec,
    terminations: IntCounterVec,
    aborts: IntCounterVec,
    deprecated: IntGaugeVec,
    paths: SeriesCache<(ReportedVerb, PathLabels)>,
}

impl RequestMetrics {
    pub(super) fn new(registry: &Registry) -> Result<RequestMetrics, prometheus::Error> {
        let families = Families(registry);
        let (all, where_) = (
            ["verb", "dry_run", "group", "version", "resource", "subresource", "scope", COMPONENT_LABEL],
            ["verb", "group", "version", "resource", "subresource", "scope", COMPONENT_LABEL],
        );
        Ok(RequestMetrics {
            total: families.counters(
                "apiserver_request_total",
                "Requests by verb, dry run, resource, scope, component and status code.",
                &[all.as_slice(), &["code"]].concat(),
            )?,
            durations: families.histograms(
                "apiserver_request_duration_seconds",
                "Duration of requests in seconds.",
                &all,
                DURATIONS,
            )?,
            sli_durations: families.histograms(
                "apiserver_request_sli_duration_seconds",
                "Duration of requests in seconds, without webhooks and the queues of priority and fairness.",
                &where_,
                SLI_DURATIONS,
            )?,
            sizes: families.histograms(
                "apiserver_response_sizes",
                "Size of the responses of gets and lists in bytes.",
                &where_,
                SIZES,
            )?,
            body_sizes: families.histograms(
                "apiserver_request_body_size_bytes",
                "Size of the bodies of requests in bytes.",
                &["resource", "verb", "group"],
                BODY_SIZES,
            )?,
            long_running: families.gauges(
                "apiserver_longrunning_requests",
                "Long-running requests that are open.",
                &where_,
            )?,
            terminations: families.counters(
                "apiserver_request_terminations_total",
                "Requests that the server ended in self-defense.",
                &[where_.as_slice(), &["code"]].concat(),
            )?,
            aborts: families.counters(
                "apiserver_request_aborts_total",
                "Requests that ended without an answer.",
                &["verb", "group", "version", "resource", "subresource", "scope"],
            )?,
            deprecated: families.gauges(
                "apiserver_requested_deprecated_apis",
                "Deprecated APIs that have been requested.",
                &["group", "version", "resource", "subresource", "removed_release"],
            )?,
            paths: SeriesCache::default(),
        })
    }

    /// The meter of a request that was received at `received`; `None` when its subresource is not served.
    pub(crate) fn meter(
        self: &Arc<Self>,
        target: MeteredTarget,
        (method, headers, query): (&Method, &HeaderMap, Option<&str>),
        received: Instant,
    ) -> Option<Arc<RequestMeter>> {
        let series = match target {
            MeteredTarget::Resource(info, resource) => {
                let part = match info.subresource.as_str() {
                    "" => 0,
                    name => {
                        let parts = &resource.row.subresources;
                        u8::try_from(parts.iter().position(|part| part.name == name)? + 1).ok()?
                    }
                };
                let key = SeriesKey {
                    verb: ReportedVerb::of(info, method, headers),
                    scope: Scope::of(info),
                    dry_run: DryRun::of(query),
                    part,
                };
                let cache = resource.extension.get_or_init(SeriesCache::default)?;
                cache.get(key, || self.series(key, resource))
            }
            MeteredTarget::Path(labels) => {
                let key = (ReportedVerb::of_method(method, headers), labels);
                self.paths.get(key, || self.series_of_path(key))
            }
        };
        Some(Arc::new(RequestMeter::new(self.clone(), series, received)))
    }

    fn series(&self, key: SeriesKey, resource: &ResourceType) -> RequestSeries {
        let row = &resource.row;
        let part = usize::from(key.part).checked_sub(1).and_then(|place| row.subresources.get(place));
        let part = part.map_or("", |part| part.name.as_str());
        self.with_labels(key, [&row.group, &row.version, &row.plural, part, COMPONENT])
    }

    fn series_of_path(&self, (verb, labels): (ReportedVerb, PathLabels)) -> RequestSeries {
        let key = SeriesKey { verb, scope: Scope::None, dry_run: DryRun::No, part: 0 };
        let PathLabels { group, version, resource, subresource, component } = labels;
        self.with_labels(key, [group, version, resource, subresource, component])
    }

    fn with_labels(&self, key: SeriesKey, names: [&str; 5]) -> RequestSeries {
        let [group, version, resource, part, component] = names;
        let (verb, scope, dry_run) = (key.verb.as_str(), key.scope.as_str(), key.dry_run.as_str());
        let all = [verb, dry_run, group, version, resource, part, scope, component];
        let without_dry_run = [verb, group, version, resource, part, scope, component];
        let is_read = matches!(key.verb, ReportedVerb::Get | ReportedVerb::List);
        RequestSeries {
            verb: key.verb,
            labels: all.map(str::to_owned),
            duration: self.durations.with_label_values(&all),
            sli_duration: (key.dry_run == DryRun::No)
                .then(|| self.sli_durations.with_label_values(&without_dry_run)),
            size: is_read.then(|| self.sizes.with_label_values(&without_dry_run)),
            body_size: OnceLock::new(),
            long_running: (key.verb.is_long_running())
                .then(|| self.long_running.with_label_values(&without_dry_run)),
            totals: RwLock::default(),
        }
    }

    /// Notes that a deprecated API was requested, and which release removes it.
    pub(crate) fn deprecated(&self, resource: &ResourceType, part: &str, removed: &str) {
        let row = &resource.row;
        self.deprecated.with_label_values(&[&row.group, &row.version, &row.plural, part, removed]).set(1);
    }
}

const COMPONENT_LABEL: &str = "component";

/// The series of a resource's requests, or of those for paths. Grows to the number of its verbs, scopes and
/// subresources. The lock is held to find or add one.
struct SeriesCache<K>(RwLock<Vec<(K, Arc<RequestSeries>)>>);

impl<K> Default for SeriesCache<K> {
    fn default() -> SeriesCache<K> {
        SeriesCache(RwLock::default())
    }
}

impl<K: Copy + PartialEq> SeriesCache<K> {
    fn get(&self, key: K, make: impl FnOnce() -> RequestSeries) -> Arc<RequestSeries> {
        let find = |all: &[(K, Arc<RequestSeries>)]| {
            all.iter().find(|(other, _)| *other == key).map(|(_, series)| series.clone())
        };
        if let Some(series) = find(&self.0.read()) {
            return series;
        }
        let mut all = self.0.write();
        if let Some(series) = find(&all) {
            return series;
        }
        let series = Arc::new(make());
        all.push((key, series.clone()));
        series
    }
}

/// The series of requests with the same labels. The lock is held to find or add a code.
struct RequestSeries {
    verb: ReportedVerb,
    /// Verb, dry run, group, version, resource, subresource, scope and component.
    labels: [String; 8],
    duration: Histogram,
    sli_duration: Option<Histogram>,
    size: Option<Histogram>,
    body_size: OnceLock<Histogram>,
    long_running: Option<IntGauge>,
    totals: RwLock<Vec<(u16, IntCounter)>>,
}

impl RequestSeries {
    fn count(&self, code: u16, metrics: &RequestMetrics) {
        if let Some((_, total)) = self.totals.read().iter().find(|(other, _)| *other == code) {
            return total.inc();
        }
        let text = code.to_string();
        let mut labels: Vec<&str> = self.labels.iter().map(String::as_str).collect();
        labels.push(&text);
        let total = metrics.total.with_label_values(&labels);
        total.inc();
        let mut totals = self.totals.write();
        if totals.iter().all(|(other, _)| *other != code) {
            totals.push((code, total));
        }
    }

    fn terminated(&self, code: u16, metrics: &RequestMetrics) {
        let [verb, _, group, version, resource, part, scope, component] = &self.labels;
        let code = code.to_string();
        let labels = [verb, group, version, resource, part, scope, component, &code];
        metrics.terminations.with_label_values(&labels.map(String::as_str)).inc();
    }
}

/// Measures one request; counts it when the last reference is dropped, which is when its response has been
/// sent.
pub struct RequestMeter {
    metrics: Arc<RequestMetrics>,
    series: Arc<RequestSeries>,
    received: Instant,
    /// Whether the handler ran.
    runs: AtomicBool,
    /// Whether the handler had nothing for the method.
    unrouted: AtomicBool,
    code: AtomicU16,
    sent: AtomicU64,
    /// Nanoseconds in queues and webhooks.
    waited: AtomicU64,
}

impl RequestMeter {
    fn new(metrics: Arc<RequestMetrics>, series: Arc<RequestSeries>, received: Instant) -> RequestMeter {
        RequestMeter {
            metrics,
            series,
            received,
            runs: AtomicBool::new(false),
            unrouted: AtomicBool::new(false),
            code: AtomicU16::new(0),
            sent: AtomicU64::new(0),
            waited: AtomicU64::new(0),
        }
    }

    /// The handler begins: the request counts from here on.
    pub(crate) fn begin(&self) {
        if !self.runs.swap(true, Ordering::Relaxed) {
            self.series.long_running.as_ref().inspect(|gauge| gauge.inc());
        }
    }

    /// Subtracts the time in a queue or a webhook from the duration that the server answers for.
    pub fn spent_waiting(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX >> 1);
        self.waited.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The length of the request's body.
    pub(crate) fn received_body(&self, bytes: usize) {
        let [_, _, group, _, resource, ..] = &self.series.labels;
        let verb = match self.series.verb {
            ReportedVerb::Post => "create",
            ReportedVerb::Put => "update",
            ReportedVerb::Patch | ReportedVerb::Apply => "patch",
            ReportedVerb::Delete => "delete",
            _ => return,
        };
        let sizes = &self.metrics.body_sizes;
        let size = self.series.body_size.get_or_init(|| sizes.with_label_values(&[resource, verb, group]));
        size.observe(bytes as f64);
    }

    pub(super) fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The request was refused by flow control, which upstream counts without a duration.
    pub(crate) fn refused(&self, code: u16) {
        self.series.count(code, &self.metrics);
    }

    /// Its resource does not have the method: upstream has no handler for it, and does not count it.
    pub(crate) fn not_routed(&self) {
        self.unrouted.store(true, Ordering::Relaxed);
    }

    /// The request was ended because it took too long.
    pub(crate) fn terminated(&self, code: u16) {
        self.series.terminated(code, &self.metrics);
    }

    /// Notes the response, and measures a streamed body to its end.
    pub(crate) fn answered(self: Arc<Self>, mut response: Response<Body>) -> Response<Body> {
        self.code.store(response.status().as_u16(), Ordering::Relaxed);
        match response.body() {
            Body::Full(bytes) => self.add_sent(bytes.len()),
            _ => {
                let inner = std::mem::replace(response.body_mut(), Body::empty());
                *response.body_mut() = inner.observed(Metered(self));
            }
        }
        response
    }
}

/// Measures a streamed body: its request is counted when it has been sent.
struct Metered(Arc<RequestMeter>);

impl BodyObserver for Metered {
    fn sent(&mut self, data: &Bytes) {
        self.0.add_sent(data.len());
    }
}

impl Drop for RequestMeter {
    fn drop(&mut self) {
        if !*self.runs.get_mut() {
            return;
        }
        let (series, code) = (&self.series, *self.code.get_mut());
        series.long_running.as_ref().inspect(|gauge| gauge.dec());
        if *self.unrouted.get_mut() {
            return;
        }
        // A request that is abandoned because its client has left has no code, as upstream's.
        if code == 0 {
            let [verb, _, group, version, resource, part, scope, _] = &series.labels;
            let labels = [verb, group, version, resource, part, scope];
            self.metrics.aborts.with_label_values(&labels.map(String::as_str)).inc();
        }
        series.count(code, &self.metrics);
        let took = self.received.elapsed();
        series.duration.observe(took.as_secs_f64());
        if let Some(sli) = &series.sli_duration {
            let waited = Duration::from_nanos(*self.waited.get_mut());
            sli.observe(took.saturating_sub(waited).as_secs_f64());
        }
        if let Some(size) = &series.size {
            size.observe(*self.sent.get_mut() as f64);
        }
    }
}

#[cfg(test)]
mod tests;
