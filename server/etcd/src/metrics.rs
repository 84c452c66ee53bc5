//! Metrics under etcd's names.

use std::sync::Arc;

use plinth_engine::{Event, EventKind, Stats};
use prometheus::{Encoder as _, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder};

/// The metrics of a member.
pub(crate) struct Metrics {
    registry: Registry,
    pub ranges: IntCounter,
    pub puts: IntCounter,
    pub deletes: IntCounter,
    pub txns: IntCounter,
    pub leases_granted: IntCounter,
    pub leases_renewed: IntCounter,
    pub leases_revoked: IntCounter,
    pub leases_expired: IntCounter,
    pub watch_streams: IntGauge,
    pub watchers: IntGauge,
    pub events: IntCounter,
    pub health_checks: IntCounter,
    pub health_failures: IntCounter,
    pub handled: IntCounterVec,
    has_leader: IntGauge,
    revision: IntGauge,
    compacted: IntGauge,
    size: IntGauge,
    quota: IntGauge,
    keys: IntGauge,
}

/// What is looked up for each answer.
pub(crate) struct Figures {
    pub stats: Stats,
    pub is_serving: bool,
    pub revision: i64,
    pub compacted: i64,
    pub size: u64,
    pub quota: i64,
}

/// Makes and registers a metric. The names are constant and differ, so neither fails; a metric that did would
/// only be missing from the answer.
fn register<M: prometheus::core::Collector + Clone + 'static>(registry: &Registry, metric: M) -> M {
    if let Err(error) = registry.register(Box::new(metric.clone())) {
        tracing::error!(%error, "metric could not be registered");
    }
    metric
}

impl Metrics {
    #[allow(clippy::expect_used)] // the names are constant
    pub(crate) fn new() -> Metrics {
        let registry = Registry::new();
        let counter =
            |name: &str, help: &str| register(&registry, IntCounter::new(name, help).expect("a valid name"));
        let gauge =
            |name: &str, help: &str| register(&registry, IntGauge::new(name, help).expect("a valid name"));
        let handled = Opts::new(
            "grpc_server_handled_total",
            "Total number of RPCs completed on the server, regardless of success or failure.",
        );
        let handled = IntCounterVec::new(handled, &["grpc_code", "grpc_method", "grpc_service", "grpc_type"])
            .expect("a valid name");
        Metrics {
            ranges: counter("etcd_mvcc_range_total", "Total number of ranges seen by this member."),
            puts: counter("etcd_mvcc_put_total", "Total number of puts seen by this member."),
            deletes: counter("etcd_mvcc_delete_total", "Total number of deletes seen by this member."),
            txns: counter("etcd_mvcc_txn_total", "Total number of txns seen by this member."),
            leases_granted: counter(
                "etcd_debugging_lease_granted_total",
                "The total number of granted leases.",
            ),
            leases_renewed: counter("etcd_debugging_lease_renewed_total", "The number of renewed leases."),
            leases_revoked: counter(
                "etcd_debugging_lease_revoked_total",
                "The total number of revoked leases.",
            ),
            leases_expired: counter(
                "etcd_debugging_server_lease_expired_total",
                "The total number of expired leases.",
            ),
            watch_streams: gauge("etcd_debugging_mvcc_watch_stream_total", "Total number of watch streams."),
            watchers: gauge("etcd_debugging_mvcc_watcher_total", "Total number of watchers."),
            events: counter(
                "etcd_debugging_mvcc_events_total",
                "Total number of events sent by this member.",
            ),
            health_checks: counter(
                "etcd_server_health_success",
                "The total number of successful health checks",
            ),
            health_failures: counter(
                "etcd_server_health_failures",
                "The total number of failed health checks",
            ),
            has_leader: gauge(
                "etcd_server_has_leader",
                "Whether or not a leader exists. 1 is existence, 0 is not.",
            ),
            revision: gauge("etcd_debugging_mvcc_current_revision", "The current revision of store."),
            compacted: gauge(
                "etcd_debugging_mvcc_compact_revision",
                "The revision of the last compaction in store.",
            ),
            size: gauge(
                "etcd_mvcc_db_total_size_in_bytes",
                "Total size of the underlying database physically allocated in bytes.",
            ),
            quota: gauge("etcd_server_quota_backend_bytes", "Current backend storage quota size in bytes."),
            keys: gauge(
                "etcd_debugging_mvcc_keys_total",
                "Total number of keys, as the engine estimates it.",
            ),
            handled: register(&registry, handled),
            registry,
        }
    }

    /// Counts the changes of a commit.
    pub(crate) fn changed(&self, events: &[Arc<Event>]) {
        let deletes = events.iter().filter(|event| matches!(event.kind, EventKind::Delete)).count() as u64;
        self.deletes.inc_by(deletes);
        self.puts.inc_by(events.len() as u64 - deletes);
    }

    /// All metrics in Prometheus' text format.
    pub(crate) fn render(&self, figures: &Figures) -> Vec<u8> {
        let Figures { stats, .. } = figures;
        self.has_leader.set(i64::from(figures.is_serving));
        self.revision.set(figures.revision);
        self.compacted.set(figures.compacted);
        self.size.set(i64::try_from(figures.size).unwrap_or(i64::MAX));
        self.quota.set(figures.quota);
        let current = stats.families.iter().find(|family| family.name == "current");
        let keys = current.map_or(0, |family| family.keys);
        self.keys.set(i64::try_from(keys).unwrap_or(i64::MAX));
        let mut out = Vec::new();
        // Writing to memory does not fail.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut out);
        fsync_histogram(&stats.sync_micros, &mut out);
        plinth_http::write_process_metrics(&mut out);
        out
    }
}

/// The time of syncs as etcd's histogram. The engine counts them by powers of two in microseconds.
fn fsync_histogram(distribution: &plinth_engine::Distribution, out: &mut Vec<u8>) {
    use std::io::Write as _;
    const NAME: &str = "etcd_disk_wal_fsync_duration_seconds";
    let mut total = 0;
    let mut text =
        format!("# HELP {NAME} The latency distributions of fsync called by WAL.\n# TYPE {NAME} histogram\n");
    for (bound, count) in distribution.bounds() {
        total += count;
        let bound = bound.map_or_else(|| "+Inf".to_owned(), |micros| format!("{}", micros as f64 / 1e6));
        text.push_str(&format!("{NAME}_bucket{{le=\"{bound}\"}} {total}\n"));
    }
    text.push_str(&format!("{NAME}_sum {}\n{NAME}_count {total}\n", distribution.sum as f64 / 1e6));
    let _ = out.write_all(text.as_bytes());
}
