//! Metrics under etcd's names.

use std::sync::Arc;

use std::time::Duration;

use plinth_engine::{Committed, Error, Event, EventKind, Stats};
use prometheus::{Encoder as _, IntCounter, IntGauge, Registry, TextEncoder};

use crate::calls::{request_durations, Calls};
use crate::families::{constant, counter, gauge};
use crate::timings::Timings;
use crate::value::lease_and_value;
use crate::versions::{CLUSTER_VERSION, VERSION};
use crate::wire::maintenance::{alarm, AlarmMember};

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
    pub calls: Calls,
    pub timings: Timings,
    pub received_bytes: IntCounter,
    pub sent_bytes: IntCounter,
    pub slow_watchers: IntGauge,
    pub pending_events: IntGauge,
    /// Bytes of keys and values that were put.
    put_bytes: IntGauge,
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
    log_bytes: IntGauge,
    auth_revision: IntGauge,
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
    pub auth_revision: u64,
    pub alarms: Vec<AlarmMember>,
}

/// What does not change while the process runs.
fn register_constants(registry: &Registry, member_id: u64) {
    constant(
        registry,
        "etcd_server_version",
        "Which version is running. 1 for 'server_version' label with current version.",
        ("server_version", VERSION),
    );
    let minor = CLUSTER_VERSION.rsplit_once('.').map_or(CLUSTER_VERSION, |(minor, _)| minor);
    constant(
        registry,
        "etcd_cluster_version",
        "Which version is running. 1 for 'cluster_version' label with current cluster version",
        ("cluster_version", minor),
    );
    constant(
        registry,
        "etcd_server_id",
        "Server or member ID in hexadecimal format. 1 for 'server_id' label with current ID.",
        ("server_id", &format!("{member_id:x}")),
    );
    // The member was elected once, when it started.
    counter(registry, "etcd_server_leader_changes_seen_total", "The number of leader changes seen.").inc();
    // It is not a learner, and has no peers.
    gauge(
        registry,
        "etcd_server_is_learner",
        "Whether or not this member is a learner. 1 if is, 0 otherwise.",
    );
    counter(
        registry,
        "etcd_server_learner_promote_successes",
        "The total number of successful learner promotions while this member is leader.",
    );
    counter(
        registry,
        "etcd_server_heartbeat_send_failures_total",
        "The total number of leader heartbeat send failures (likely overloaded from slow disk).",
    );
    gauge(
        registry,
        "etcd_server_snapshot_apply_in_progress_total",
        "1 if the server is applying the incoming snapshot. 0 if none.",
    );
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
            log_bytes: gauge(
                registry,
                "etcd_disk_wal_write_bytes_total",
                "Total number of bytes written in WAL.",
            ),
            auth_revision: gauge(
                registry,
                "etcd_debugging_auth_revision",
                "The current revision of auth store.",
            ),
        }
    }
}

impl Metrics {
    /// The metrics of a member with this id; with `is_extensive` also how long each call takes
    /// (`--metrics=extensive`).
    pub(crate) fn new(member_id: u64, is_extensive: bool) -> Metrics {
        let registry = Registry::new();
        register_constants(&registry, member_id);
        let requests = request_durations(&registry);
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
            put_bytes: gauge(
                "etcd_debugging_mvcc_total_put_size_in_bytes",
                "The total size of put kv pairs seen by this member.",
            ),
            calls: Calls::new(&registry, &requests, is_extensive),
            timings: Timings::new(&registry, requests),
            registry,
        }
    }

    /// Counts the changes of a commit.
    pub(crate) fn changed(&self, events: &[Arc<Event>]) {
        let (mut puts, mut bytes) = (0, 0);
        for event in events {
            if let EventKind::Put { value, .. } = &event.kind {
                puts += 1;
                bytes += event.key.len() + lease_and_value(value).1.len();
            }
        }
        self.deletes.inc_by(events.len() as u64 - puts);
        self.puts.inc_by(puts);
        self.put_bytes.add(i64::try_from(bytes).unwrap_or(i64::MAX));
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
        self.state.log_bytes.set(i64::try_from(stats.written_bytes).unwrap_or(i64::MAX));
        self.state.auth_revision.set(i64::try_from(figures.auth_revision).unwrap_or(i64::MAX));
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
        // The engine counts them, and so they are no counter of the registry.
        let name = "etcd_debugging_mvcc_db_compaction_keys_total";
        let help = "Total number of db keys compacted.";
        let swept = stats.swept_versions;
        out.extend_from_slice(
            format!("# HELP {name} {help}\n# TYPE {name} counter\n{name} {swept}\n").as_bytes(),
        );
        write_alarms(&figures.alarms, &mut out);
        plinth_http::write_process_metrics(&mut out);
        out
    }
}

/// The alarms that are raised; without one etcd has no such metric either.
fn write_alarms(alarms: &[AlarmMember], out: &mut Vec<u8>) {
    const NAME: &str = "etcd_debugging_server_alarms";
    if alarms.is_empty() {
        return;
    }
    let mut text = format!(
        "# HELP {NAME} Alarms for every member in cluster. 1 for 'server_id' label with current ID. 2 for \
         'alarm_type' label with type of this alarm\n# TYPE {NAME} gauge\n"
    );
    for AlarmMember { member_id, alarm } in alarms {
        let kind = match *alarm {
            alarm::NOSPACE => "NOSPACE",
            alarm::CORRUPT => "CORRUPT",
            _ => continue,
        };
        text.push_str(&format!("{NAME}{{alarm_type=\"{kind}\",server_id=\"{member_id:x}\"}} 1\n"));
    }
    out.extend_from_slice(text.as_bytes());
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
