//! Statistics of the engine: counters and histograms.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::store::{Family, Store};

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Buckets of a histogram: upper bounds 1, 2, 4, … and one for the rest.
pub const BUCKETS: usize = 28;

/// A histogram with powers of two as bucket bounds.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Histogram {
    pub(crate) fn record(&self, time: Duration) {
        self.record_count(time.as_micros().try_into().unwrap_or(u64::MAX));
    }

    pub(crate) fn record_count(&self, value: u64) {
        let bucket = (u64::BITS - value.saturating_sub(1).leading_zeros()) as usize;
        if let Some(bucket) = self.buckets.get(bucket.min(BUCKETS - 1)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Distribution {
        let mut buckets = [0; BUCKETS];
        for (out, bucket) in buckets.iter_mut().zip(&self.buckets) {
            *out = bucket.load(Ordering::Relaxed);
        }
        Distribution { buckets, sum: self.sum.load(Ordering::Relaxed) }
    }
}

/// A snapshot of a histogram; counts since the engine was opened.
#[derive(Debug, Clone)]
pub struct Distribution {
    /// Number of values up to 2^i in bucket i (and above 2^(i-1)); the last bucket has the rest.
    pub buckets: [u64; BUCKETS],
    /// Sum of all values.
    pub sum: u64,
}

impl Distribution {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Upper bound of each bucket with its number of values; none for the last one, which has no bound.
    pub fn bounds(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        self.buckets.iter().enumerate().map(|(i, count)| ((i + 1 < BUCKETS).then_some(1 << i), *count))
    }
}

/// The counters and histograms that the engine's threads update.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub commits: Counter,
    pub conflicts: Counter,
    pub failed_groups: Counter,
    pub written_bytes: Counter,
    pub expired: Counter,
    pub damaged_deadlines: Counter,
    pub swept_versions: Counter,
    pub group_size: Histogram,
    pub sync_time: Histogram,
    pub commit_time: Histogram,
}

/// Statistics of one column family.
#[derive(Debug, Clone, Default)]
pub struct FamilyStats {
    /// Its name, as in `docs/storage-format.md`.
    pub name: &'static str,
    /// Bytes of its files.
    pub file_bytes: u64,
    /// Bytes of its recent writes in memory.
    pub memory_bytes: u64,
    /// Estimated number of its keys.
    pub keys: u64,
    /// RocksDB's estimate of bytes that are pending compaction.
    pub pending_compaction_bytes: u64,
}

/// Statistics of a replica's journal.
#[derive(Debug, Clone)]
pub struct JournalStats {
    /// The last position that this replica has applied.
    pub applied: u64,
    /// Whether its last call was answered.
    pub is_up: bool,
    /// Microseconds of an append.
    pub append_micros: Distribution,
    /// Microseconds of a question for the journal's end, each for all readers of the most recent state that
    /// waited when it was asked.
    pub end_micros: Distribution,
}

/// Statistics of the engine; counters start when it is opened.
#[derive(Debug, Clone)]
pub struct Stats {
    /// Newest durable revision.
    pub current_revision: u64,
    /// Oldest readable revision.
    pub compacted_revision: u64,
    /// Revisions below the floor that are not swept yet: the compaction debt.
    pub compaction_debt: u64,
    /// Transactions that took a revision.
    pub commits: u64,
    /// Transactions refused because a condition did not hold.
    pub conflicts: u64,
    /// Groups that could not be written.
    pub failed_groups: u64,
    /// Bytes written to the write-ahead log.
    pub written_bytes: u64,
    /// Bytes of tables that write buffers were flushed to.
    pub flushed_bytes: u64,
    /// Bytes of tables that were written by merging others.
    pub merged_bytes: u64,
    /// Keys deleted because they expired.
    pub expired: u64,
    /// Damaged expiry entries that are skipped.
    pub damaged_deadlines: u64,
    /// Versions removed by compaction.
    pub swept_versions: u64,
    /// Transactions in a group.
    pub group_size: Distribution,
    /// Microseconds of a synced write.
    pub sync_micros: Distribution,
    /// Microseconds from a group's first transaction to its publication.
    pub commit_micros: Distribution,
    /// Transactions in the commit queue.
    pub queued: u64,
    /// Bytes of keys and values of queued transactions.
    pub queued_bytes: u64,
    /// Number of open subscriptions.
    pub subscribers: u64,
    /// Distinct key ranges that are subscribed to.
    pub range_feeds: u64,
    /// Events handed to subscribers.
    pub delivered_events: u64,
    /// Bytes of events in memory.
    pub ring_bytes: u64,
    /// Blocks found in the cache.
    pub cache_hits: u64,
    /// Blocks not found in the cache.
    pub cache_misses: u64,
    /// Bytes of the block cache in use.
    pub cache_bytes: u64,
    /// Statistics of each column family.
    pub families: Vec<FamilyStats>,
    /// Statistics of the journal; none in a single store.
    pub journal: Option<JournalStats>,
}

impl Metrics {
    pub(crate) fn distributions(&self) -> [Distribution; 3] {
        [self.group_size.snapshot(), self.sync_time.snapshot(), self.commit_time.snapshot()]
    }
}

/// Reads the statistics of RocksDB's column families. Unavailable ones are zero.
pub(crate) fn families(store: &Store) -> Vec<FamilyStats> {
    use rocksdb::properties::{
        CUR_SIZE_ALL_MEM_TABLES, ESTIMATE_NUM_KEYS, ESTIMATE_PENDING_COMPACTION_BYTES, TOTAL_SST_FILES_SIZE,
    };
    Family::ALL
        .into_iter()
        .map(|family| {
            let property = |name: &rocksdb::properties::PropName| {
                store.db().property_int_value_cf(store.family(family), name).ok().flatten().unwrap_or(0)
            };
            FamilyStats {
                name: family.name(),
                file_bytes: property(TOTAL_SST_FILES_SIZE),
                memory_bytes: property(CUR_SIZE_ALL_MEM_TABLES),
                keys: property(ESTIMATE_NUM_KEYS),
                pending_compaction_bytes: property(ESTIMATE_PENDING_COMPACTION_BYTES),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_land_in_the_bucket_that_bounds_them() {
        let histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, 5, 1024, 1025, u64::MAX] {
            histogram.record_count(value);
        }
        let buckets = histogram.snapshot().buckets;
        assert_eq!(&buckets[..4], &[2, 1, 2, 1]);
        assert_eq!((buckets[10], buckets[11], buckets[BUCKETS - 1]), (1, 1, 1));
    }
}
