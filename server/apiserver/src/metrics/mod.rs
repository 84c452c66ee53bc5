//! Prometheus metrics, under upstream's names and labels where upstream has them. `docs/metrics.md` lists
//! upstream's families, and which are served.
//!
//! | module | subject |
//! |---|---|
//! | `requests` | requests by verb, resource and scope |
//! | `in_flight` | requests that are served at once |
//! | `identity` | authentication and authorization |
//! | `filters` | steps before the handlers of requests, feature gates |
//! | `admission` | plugins, webhooks, policies |
//! | `api_services` | remote APIs |
//! | `watches` | watch events |
//! | `objects` | stored objects by resource |
//! | `engine` | the storage engine |
//! | `workqueue` | the queues of controllers |
//! | `reloads` | configuration files that are reloaded |
//! | `traces` | traces that are sent to a collector |
//! | `health` | health checks, for `/metrics/slis` |
//! | `webhooks` | webhooks that authorize and that convert |
//! | `process` | the process and its build |

mod admission;
mod api_services;
mod engine;
pub(crate) mod families;
mod filters;
mod health;
mod identity;
mod in_flight;
mod objects;
mod process;
#[cfg(test)]
mod reference_tests;
mod reloads;
mod requests;
mod traces;
mod watches;
mod webhooks;
mod workqueue;

use std::io::Write;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use prometheus::{Encoder, IntCounter, IntGauge, Registry, TextEncoder};

use families::Families;
use in_flight::InFlightMetrics;
use objects::ObjectMetrics;
use plinth_http::UnreadAnswers;
use plinth_registry::VersionInfo;
use plinth_storage::Store;

pub use admission::{AdmissionCall, AdmissionMetrics, AdmissionSeries, Stage, WebhookOutcome};
pub use api_services::ApiServiceMetrics;
pub use filters::FilterMetrics;
pub(crate) use filters::RequestFilter;
pub use health::HealthMetrics;
pub use identity::IdentityMetrics;
pub(crate) use identity::{Authentication, Authorization};
pub use in_flight::InFlightGuard;
pub use reloads::{ReloadMetrics, ReloadedConfig};
pub(crate) use requests::{MeteredTarget, PathLabels, Scope, COMPONENT};
pub use requests::{RequestMeter, RequestMetrics};
pub use traces::TraceMetrics;
pub use watches::{WatchMetrics, WatchSeries};
pub(crate) use webhooks::{AuthorizationCall, ConversionFailure};
pub use webhooks::{AuthorizationWebhookMetrics, ConversionMetrics};
pub use workqueue::{QueueMetrics, WorkqueueMetrics};

/// Content type of the text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of a server. Counters are atomics; the label maps have their own short locks.
pub struct Metrics {
    registry: Registry,
    /// Counts, durations and sizes of requests.
    pub requests: Arc<RequestMetrics>,
    /// Authentication and authorization.
    pub identity: Arc<IdentityMetrics>,
    /// Calls of webhooks that authorize.
    pub authorization_webhooks: Arc<AuthorizationWebhookMetrics>,
    /// Conversions by webhooks.
    pub conversions: Arc<ConversionMetrics>,
    /// Steps before the handlers of requests, and feature gates.
    pub filters: FilterMetrics,
    /// Durations and rejections of admission plugins and webhooks.
    pub admission: AdmissionMetrics,
    /// Watches, their events and the sizes of these.
    pub watches: WatchMetrics,
    /// Work queues of controllers.
    pub workqueues: WorkqueueMetrics,
    /// Reloads of configuration files.
    pub reloads: Arc<ReloadMetrics>,
    /// Availability of remote APIs.
    pub api_services: ApiServiceMetrics,
    /// Spans that were lost or could not be exported.
    pub traces: TraceMetrics,
    /// Health checks.
    pub health: HealthMetrics,
    /// TLS handshakes that failed.
    pub tls_handshake_errors: IntCounter,
    /// What clients have not read, of the listener that was started.
    pub unread_answers: OnceLock<Arc<UnreadAnswers>>,
    unread_answer_bytes: IntGauge,
    in_flight: InFlightMetrics,
    objects: ObjectMetrics,
}

impl Metrics {
    /// Registers the metrics in a new registry.
    ///
    /// # Errors
    /// When two metrics have one name, which is a programming error that tests would find.
    pub fn new() -> Result<Metrics, prometheus::Error> {
        let registry = Registry::new();
        Ok(Metrics {
            requests: Arc::new(RequestMetrics::new(&registry)?),
            identity: Arc::new(IdentityMetrics::new(&registry)?),
            authorization_webhooks: Arc::new(AuthorizationWebhookMetrics::new(&registry)?),
            conversions: Arc::new(ConversionMetrics::new(&registry)?),
            filters: FilterMetrics::new(&registry)?,
            admission: AdmissionMetrics::new(&registry)?,
            watches: WatchMetrics::new(&registry)?,
            workqueues: WorkqueueMetrics::new(&registry)?,
            reloads: Arc::new(ReloadMetrics::new(&registry)?),
            api_services: ApiServiceMetrics::new(&registry)?,
            traces: TraceMetrics::new(&registry)?,
            health: HealthMetrics::new()?,
            tls_handshake_errors: Families(&registry).counter(
                "apiserver_tls_handshake_errors_total",
                "Connections dropped because their TLS handshake failed.",
            )?,
            unread_answers: OnceLock::new(),
            unread_answer_bytes: Families(&registry).gauge(
                "plinth_unread_answer_bytes",
                "Bytes of answers that clients have not read, of --max-unread-bytes.",
            )?,
            in_flight: InFlightMetrics::new(&registry)?,
            objects: ObjectMetrics::default(),
            registry,
        })
    }

    /// The registry, for metrics of other modules.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Counts a request that is not long-running for as long as the guard lives.
    pub fn in_flight(&self, mutating: bool, received: Instant) -> InFlightGuard<'_> {
        self.in_flight.enter(mutating, received)
    }

    /// The text format, with the current statistics of the engine and the numbers of objects.
    pub async fn render(&self, store: &Store, version: &VersionInfo<'_>) -> Vec<u8> {
        let counts = self.objects.counts(store, store.registry()).await;
        self.in_flight.refresh();
        self.workqueues.refresh();
        let unread = self.unread_answers.get().map_or(0, |answers| answers.bytes());
        self.unread_answer_bytes.set(i64::try_from(unread).unwrap_or(i64::MAX));
        let mut out = Vec::with_capacity(64 << 10);
        encode(&self.registry, &mut out);
        objects::write(&counts, &mut out);
        let stats = store.engine().stats();
        let bytes: u64 = stats.families.iter().map(|family| family.file_bytes).sum();
        write_room(bytes, store.engine().is_out_of_space(), &mut out);
        engine::write(&stats, &mut out);
        process::write(version, &mut out);
        out
    }

    /// `/metrics/slis`: the health checks.
    pub(crate) fn render_health(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 << 10);
        encode(&self.health.registry, &mut out);
        out
    }
}

/// Appends what the store takes up, and whether the disk has room for it.
fn write_room(bytes: u64, is_out_of_space: bool, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = writeln!(
        out,
        "# HELP apiserver_storage_size_bytes Size of the store's table files in bytes.\n\
         # TYPE apiserver_storage_size_bytes gauge\n\
         apiserver_storage_size_bytes{{storage_cluster_id=\"plinth\"}} {bytes}"
    );
    let _ = writeln!(
        out,
        "# HELP plinth_engine_out_of_space Whether the last write was refused because the disk is full.\n\
         # TYPE plinth_engine_out_of_space gauge\nplinth_engine_out_of_space {}",
        u8::from(is_out_of_space)
    );
}

fn encode(registry: &Registry, out: &mut Vec<u8>) {
    // Writing to memory fails for no valid metric; a partial page is better than none.
    let _ = TextEncoder::new().encode(&registry.gather(), out);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use hyper::header::HeaderMap;
    use hyper::Method;
    use plinth_api::{parse_route, Route};

    use super::*;

    const DOCUMENTED: &str = include_str!("../../../../docs/metrics.md");

    /// A row of a table: type, labels, and whether it is served, which all of Plinth's own are.
    fn documented(name: &str) -> Option<(String, BTreeSet<String>, String)> {
        let start = format!("| `{name}` |");
        let row = DOCUMENTED.lines().find(|line| line.starts_with(&start))?;
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let labels = cells[2].split(", ").filter(|label| !label.is_empty()).map(str::to_owned).collect();
        let served = cells.get(4).map_or("yes", |served| served);
        Some((cells[1].to_owned(), labels, served.to_owned()))
    }

    /// The end-to-end tests compare what ordinary traffic shows; here is what needs more than that.
    #[test]
    fn families_that_need_an_occasion_are_those_of_the_table() {
        let metrics = Metrics::new().unwrap();
        let resources = plinth_registry::Registry::builtin();
        let (method, headers) = (Method::GET, HeaderMap::new());
        let route = parse_route(&method, "/api/v1/pods", None).unwrap();
        let (Route::Resource(info), Some(pods)) = (&route, resources.get("", "v1", "pods")) else { panic!() };
        let pods = MeteredTarget::Resource(info, pods);
        let meter = metrics.requests.meter(pods, (&method, &headers, None), Instant::now()).unwrap();
        meter.begin();
        meter.terminated(504);
        drop(meter);
        let (took, call) = (Duration::from_millis(1), (Stage::Mutating, "CREATE"));
        for outcome in [
            WebhookOutcome::Allowed,
            WebhookOutcome::Denied(403),
            WebhookOutcome::CallFailed,
            WebhookOutcome::FailedOpen,
        ] {
            metrics.admission.webhook("a.example.com", call, outcome, took);
        }
        metrics.admission.validating_policy(("a", "b"), "deny", "no_error", took);
        metrics.admission.mutating_policy(("a", "b"), "no_error", took);
        metrics.reloads.reloaded(ReloadedConfig::Authentication, true);
        metrics.reloads.reloaded(ReloadedConfig::Authorization, false);
        for call in [AuthorizationCall::Success, AuthorizationCall::Timeout, AuthorizationCall::Error] {
            metrics.authorization_webhooks.called("a.example.com", call, took);
        }
        metrics.authorization_webhooks.failed_open("a.example.com", AuthorizationCall::Error);
        metrics.conversions.called(None, took);
        metrics.conversions.converted("foos.example.com", ["v1", "v2"], true, took);
        metrics.api_services.set("v1.example.com", Some(false));
        metrics.api_services.became_unavailable("v1.example.com", "FailedDiscoveryCheck");

        let mut on_occasion = 0;
        for family in metrics.registry.gather() {
            let name = family.name();
            let (kind, labels, served) = documented(name).unwrap_or_else(|| panic!("{name} is documented"));
            assert_eq!(format!("{:?}", family.get_field_type()).to_lowercase(), kind, "{name}");
            let first = family.get_metric().first().unwrap();
            let found: BTreeSet<String> = first.get_label().iter().map(|l| l.name().to_owned()).collect();
            assert_eq!(found, labels, "{name}");
            assert!(served.starts_with("yes"), "{name}: {served}");
            on_occasion += usize::from(served.starts_with("yes, "));
        }
        assert_eq!(on_occasion, 22, "every family on occasion that is registered here");
    }
}
