//! Metrics under etcd's names.

use std::sync::Arc;

use std::time::Duration;

use plinth_engine::{Committed, Error, Event, EventKind, Stats};
use prometheus::{
    Encoder as _, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::versions::VERSION;

/// How long a transaction may take; one that takes longer is slow. etcd's `--warning-apply-duration`.
const SLOW: Duration = Duration::from_millis(100);

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
    pub started: IntCounterVec,
    pub handled: IntCounterVec,
    pub received_bytes: IntCounter,
    pub sent_bytes: IntCounter,
    pub slow_watchers: IntGauge,
    pub pending_events: IntGauge,
    proposals: Proposals,
    state: StateGauges,
}

/// What is set for each answer.
struct StateGauges {
    has_leader: IntGauge,
    is_leader: IntGauge,
    revision: IntGauge,
    compacted: IntGauge,
    size: IntGauge,
    size_in_use: IntGauge,
    quota: IntGauge,
    keys: IntGauge,
}

/// Transactions of the store, in the place of proposals of Raft.
struct Proposals {
    committed: IntGauge,
    applied: IntGauge,
    pending: IntGauge,
    failed: IntCounter,
    slow: IntCounter,
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

#[allow(clippy::expect_used)] // the names are constant
fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    register(registry, IntCounter::new(name, help).expect("a valid name"))
}

#[allow(clippy::expect_used)] // the names are constant
fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    register(registry, IntGauge::new(name, help).expect("a valid name"))
}

/// Counters of calls that were started, and of those that have ended.
#[allow(clippy::expect_used)] // the names are constant
fn calls(registry: &Registry) -> (IntCounterVec, IntCounterVec) {
    let counters = |name: &str, help: &str, labels: &[&str]| {
        register(registry, IntCounterVec::new(Opts::new(name, help), labels).expect("a valid name"))
    };
    (
        counters(
            "grpc_server_started_total",
            "Total number of RPCs started on the server.",
            &["grpc_method", "grpc_service", "grpc_type"],
        ),
        counters(
            "grpc_server_handled_total",
            "Total number of RPCs completed on the server, regardless of success or failure.",
            &["grpc_code", "grpc_method", "grpc_service", "grpc_type"],
        ),
    )
}

/// What does not change while the process runs.
#[allow(clippy::expect_used)] // the names are constant
fn register_constants(registry: &Registry) {
    let version = Opts::new(
        "etcd_server_version",
        "Which version is running. 1 for 'server_version' label with current version.",
    );
    let version = IntGaugeVec::new(version, &["server_version"]).expect("a valid name");
    register(registry, version).with_label_values(&[VERSION]).set(1);
    // The member was elected once, when it started.
    counter(registry, "etcd_server_leader_changes_seen_total", "The number of leader changes seen.").inc();
    // No read waits for another member, so that none is slow and none fails.
    counter(
        registry,
        "etcd_server_slow_read_indexes_total",
        "The total number of pending read indexes not in sync with leader's or timed out read index requests.",
    );
    counter(
        registry,
        "etcd_server_read_indexes_failed_total",
        "The total number of failed read indexes seen.",
    );
}

impl Proposals {
    fn new(registry: &Registry) -> Proposals {
        Proposals {
            committed: gauge(registry,
                "etcd_server_proposals_committed_total",
                "The total number of transactions committed since the start.",
            ),
            applied: gauge(registry,
                "etcd_server_proposals_applied_total",
                "The total number of transactions applied since the start.",
            ),
            pending: gauge(registry, "etcd_server_proposals_pending", "The current number of transactions to commit."),
            failed: counter(registry, "etcd_server_proposals_failed_total", "The total number of failed transactions."),
            slow: counter(registry,
                "etcd_server_slow_apply_total",
                "The total number of transactions that took longer than 100 ms, the sync of the log included.",
            ),
        }
    }
}

impl StateGauges {
    fn new(registry: &Registry) -> StateGauges {
        StateGauges {
            has_leader: gauge(
                registry,
                "etcd_server_has_leader",
                "Whether or not a leader exists. 1 is existence, 0 is not.",
            ),
            is_leader: gauge(
                registry,
                "etcd_server_is_leader",
                "Whether or not this member is a leader. 1 if is, 0 otherwise.",
            ),
            revision: gauge(
                registry,
                "etcd_debugging_mvcc_current_revision",
                "The current revision of store.",
            ),
            compacted: gauge(
                registry,
                "etcd_debugging_mvcc_compact_revision",
                "The revision of the last compaction in store.",
            ),
            size: gauge(
                registry,
                "etcd_mvcc_db_total_size_in_bytes",
                "Total size of the underlying database physically allocated in bytes.",
            ),
            size_in_use: gauge(
                registry,
                "etcd_mvcc_db_total_size_in_use_in_bytes",
                "Total size of the underlying database logically in use in bytes.",
            ),
            quota: gauge(
                registry,
                "etcd_server_quota_backend_bytes",
                "Current backend storage quota size in bytes.",
            ),
            keys: gauge(
                registry,
                "etcd_debugging_mvcc_keys_total",
                "Total number of keys, as the engine estimates it.",
            ),
        }
    }
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let registry = Registry::new();
        register_constants(&registry);
        let (started, handled) = calls(&registry);
        let counter = |name: &str, help: &str| counter(&registry, name, help);
        let gauge = |name: &str, help: &str| gauge(&registry, name, help);
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
            received_bytes: counter(
                "etcd_network_client_grpc_received_bytes_total",
                "The total number of bytes received from grpc clients.",
            ),
            sent_bytes: counter(
                "etcd_network_client_grpc_sent_bytes_total",
                "The total number of bytes sent to grpc clients.",
            ),
            slow_watchers: gauge(
                "etcd_debugging_mvcc_slow_watcher_total",
                "Total number of unsynced slow watchers.",
            ),
            pending_events: gauge(
                "etcd_debugging_mvcc_pending_events_total",
                "Total number of pending events to be sent.",
            ),
            proposals: Proposals::new(&registry),
            state: StateGauges::new(&registry),
            started,
            handled,
            registry,
        }
    }

    /// Counts the changes of a commit.
    pub(crate) fn changed(&self, events: &[Arc<Event>]) {
        let deletes = events.iter().filter(|event| matches!(event.kind, EventKind::Delete)).count() as u64;
        self.deletes.inc_by(deletes);
        self.puts.inc_by(events.len() as u64 - deletes);
    }

    /// Counts a transaction by its outcome. One that was refused for what it is was never proposed, and one
    /// whose conditions do not hold is evaluated again.
    pub(crate) fn proposed(&self, outcome: &Result<Committed, Error>, time: Duration) {
        match outcome {
            Ok(_) => {
                self.proposals.committed.inc();
                self.proposals.applied.inc();
            }
            Err(
                Error::Conflict { .. }
                | Error::TooLarge { .. }
                | Error::InvalidTransaction { .. }
                | Error::Compacted { .. }
                | Error::Future { .. },
            ) => return,
            Err(_) => self.proposals.failed.inc(),
        }
        if time > SLOW {
            self.proposals.slow.inc();
        }
    }

    /// All metrics in Prometheus' text format.
    pub(crate) fn render(&self, figures: &Figures) -> Vec<u8> {
        let Figures { stats, .. } = figures;
        self.state.has_leader.set(i64::from(figures.is_serving));
        self.state.is_leader.set(i64::from(figures.is_serving));
        self.proposals.pending.set(i64::try_from(stats.queued).unwrap_or(i64::MAX));
        self.state.revision.set(figures.revision);
        self.state.compacted.set(figures.compacted);
        let size = i64::try_from(figures.size).unwrap_or(i64::MAX);
        // Nothing is allocated that is not in use.
        self.state.size.set(size);
        self.state.size_in_use.set(size);
        self.state.quota.set(figures.quota);
        let current = stats.families.iter().find(|family| family.name == "current");
        let keys = current.map_or(0, |family| family.keys);
        self.state.keys.set(i64::try_from(keys).unwrap_or(i64::MAX));
        let mut out = Vec::new();
        // Writing to memory does not fail.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut out);
        histogram(
            "etcd_disk_wal_fsync_duration_seconds",
            "The latency distributions of fsync called by WAL.",
            &stats.sync_micros,
            &mut out,
        );
        histogram(
            "etcd_disk_backend_commit_duration_seconds",
            "The latency distributions of commit called by backend.",
            &stats.commit_micros,
            &mut out,
        );
        plinth_http::write_process_metrics(&mut out);
        out
    }
}

/// Times as a histogram. The engine counts them by powers of two in microseconds.
fn histogram(name: &str, help: &str, distribution: &plinth_engine::Distribution, out: &mut Vec<u8>) {
    let mut total = 0;
    let mut text = format!("# HELP {name} {help}\n# TYPE {name} histogram\n");
    for (bound, count) in distribution.bounds() {
        total += count;
        let bound = bound.map_or_else(|| "+Inf".to_owned(), |micros| format!("{}", micros as f64 / 1e6));
        text.push_str(&format!("{name}_bucket{{le=\"{bound}\"}} {total}\n"));
    }
    text.push_str(&format!("{name}_sum {}\n{name}_count {total}\n", distribution.sum as f64 / 1e6));
    out.extend_from_slice(text.as_bytes());
}
