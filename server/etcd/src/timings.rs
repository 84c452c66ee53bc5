//! How long operations take, as histograms with etcd's names and bounds.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use prometheus::{Histogram, HistogramVec, IntGauge, Registry};

use crate::families::{doubling, gauge, histogram, histograms};

/// The histograms, and what belongs to them.
pub(crate) struct Timings {
    ranges: HistogramVec,
    requests: HistogramVec,
    pub hash: Histogram,
    pub hash_at_revision: Histogram,
    pub defragment: Histogram,
    /// Defragmentations that run.
    pub defragmenting: IntGauge,
    pub snapshot: Histogram,
    /// In milliseconds.
    compaction: Histogram,
    compacted_at: IntGauge,
    /// Times to live of leases, in seconds.
    pub lease_ttls: Histogram,
}

impl Timings {
    /// Registers them; `requests` has the durations of requests by success and type.
    pub(crate) fn new(registry: &Registry, requests: HistogramVec) -> Timings {
        let seconds = |name, help, first, count| histogram(registry, name, help, doubling(first, count));
        Timings {
            ranges: histograms(
                registry,
                "etcd_server_range_duration_seconds",
                "The latency distributions of txn.Range",
                &["success"],
                doubling(0.0001, 20),
            ),
            requests,
            hash: seconds(
                "etcd_mvcc_hash_duration_seconds",
                "The latency distribution of storage hash operation.",
                0.01,
                15,
            ),
            hash_at_revision: seconds(
                "etcd_mvcc_hash_rev_duration_seconds",
                "The latency distribution of storage hash by revision operation.",
                0.01,
                15,
            ),
            defragment: seconds(
                "etcd_disk_backend_defrag_duration_seconds",
                "The latency distribution of backend defragmentation.",
                0.1,
                13,
            ),
            defragmenting: gauge(
                registry,
                "etcd_disk_defrag_inflight",
                "Whether or not defrag is active on the member. 1 means active, 0 means not.",
            ),
            snapshot: seconds(
                "etcd_disk_backend_snapshot_duration_seconds",
                "The latency distribution of backend snapshots.",
                0.01,
                17,
            ),
            compaction: seconds(
                "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds",
                "Bucketed histogram of db compaction total duration.",
                100.0,
                14,
            ),
            compacted_at: gauge(
                registry,
                "etcd_debugging_mvcc_db_compaction_last",
                "The unix time of the last db compaction. Resets to 0 on start.",
            ),
            lease_ttls: seconds(
                "etcd_debugging_lease_ttl_total",
                "Bucketed histogram of lease TTLs.",
                1.0,
                24,
            ),
        }
    }

    /// Notes how long a Range has read.
    pub(crate) fn read(&self, start: Instant, succeeded: bool) {
        self.ranges.with_label_values(&[flag(succeeded)]).observe(start.elapsed().as_secs_f64());
    }

    /// Notes how long a transaction took.
    pub(crate) fn transacted(&self, start: Instant, is_read_only: bool, succeeded: bool) {
        let request = if is_read_only { "ReadonlyTxn" } else { "Txn" };
        self.requests.with_label_values(&[flag(succeeded), request]).observe(start.elapsed().as_secs_f64());
    }

    /// Notes a compaction that has ended.
    pub(crate) fn compacted(&self, start: Instant) {
        self.compaction.observe(start.elapsed().as_millis() as f64);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        self.compacted_at.set(i64::try_from(now).unwrap_or(i64::MAX));
    }
}

fn flag(value: bool) -> &'static str {
    if value {
        "true"
    } else {
        "false"
    }
}
