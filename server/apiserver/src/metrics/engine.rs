//! The storage engine's metrics. The engine counts itself; its statistics are written when they are scraped.

use std::io::Write;

use plinth_engine::{Distribution, FamilyStats, JournalStats, Stats};

/// A metric of one value: name, type, help and value.
type Single = (&'static str, &'static str, &'static str, u64);

/// Appends the engine's metrics in the text format.
pub(super) fn write(stats: &Stats, out: &mut Vec<u8>) {
    for (name, kind, help, value) in singles(stats) {
        header(name, kind, help, out);
        // Writing to memory does not fail, here and below.
        let _ = writeln!(out, "{name} {value}");
    }
    families(
        "plinth_engine_column_family_file_bytes",
        "Bytes of the table files of a column family.",
        &stats.families,
        |family| family.file_bytes,
        out,
    );
    families(
        "plinth_engine_column_family_memtable_bytes",
        "Bytes of the write buffers of a column family.",
        &stats.families,
        |family| family.memory_bytes,
        out,
    );
    let micros = 1e-6;
    histogram(
        "plinth_engine_commit_group_transactions",
        "Transactions in a commit group.",
        1.0,
        &stats.group_size,
        out,
    );
    histogram(
        "plinth_engine_sync_duration_seconds",
        "Duration of a synced write in seconds.",
        micros,
        &stats.sync_micros,
        out,
    );
    histogram(
        "plinth_engine_commit_duration_seconds",
        "Time from a commit group's first transaction to its publication, in seconds.",
        micros,
        &stats.commit_micros,
        out,
    );
    if let Some(stats) = &stats.journal {
        journal(stats, out);
    }
}

/// The metrics of a replica's journal.
fn journal(stats: &JournalStats, out: &mut Vec<u8>) {
    let gauges = [
        ("plinth_journal_up", "Whether the journal answered the last call.", u64::from(stats.is_up)),
        ("plinth_journal_applied_position", "Last position of the journal that was applied.", stats.applied),
    ];
    for (name, help, value) in gauges {
        header(name, "gauge", help, out);
        let _ = writeln!(out, "{name} {value}");
    }
    let help = "Duration of an append to the journal in seconds.";
    histogram("plinth_journal_append_duration_seconds", help, 1e-6, &stats.append_micros, out);
    let help = "Duration of a question for the end of the journal, each for all reads that wait, in seconds.";
    histogram("plinth_journal_end_duration_seconds", help, 1e-6, &stats.end_micros, out);
}

/// The metrics of one value. Counters start at zero when the engine is opened.
#[rustfmt::skip]
fn singles(stats: &Stats) -> [Single; 20] {
    const COUNTER: &str = "counter";
    const GAUGE: &str = "gauge";
    [
        ("plinth_engine_current_revision", GAUGE, "Newest durable revision.", stats.current_revision),
        ("plinth_engine_compacted_revision", GAUGE, "Oldest readable revision.", stats.compacted_revision),
        ("plinth_engine_compaction_debt_revisions", GAUGE, "Compacted revisions whose history is not removed yet.",
            stats.compaction_debt),
        ("plinth_engine_commits_total", COUNTER, "Committed transactions.", stats.commits),
        ("plinth_engine_conflicts_total", COUNTER, "Transactions refused because a precondition did not hold.",
            stats.conflicts),
        ("plinth_engine_failed_groups_total", COUNTER, "Commit groups that could not be written.",
            stats.failed_groups),
        ("plinth_engine_wal_written_bytes_total", COUNTER, "Bytes written to the write-ahead log.",
            stats.written_bytes),
        ("plinth_engine_flushed_bytes_total", COUNTER, "Bytes of tables that write buffers were flushed to.",
            stats.flushed_bytes),
        ("plinth_engine_merged_bytes_total", COUNTER, "Bytes of tables that were written by merging others.",
            stats.merged_bytes),
        ("plinth_engine_expired_keys_total", COUNTER, "Keys deleted because they expired.", stats.expired),
        ("plinth_engine_damaged_expiry_entries_total", COUNTER, "Damaged expiry entries that were skipped.",
            stats.damaged_deadlines),
        ("plinth_engine_swept_versions_total", COUNTER, "Superseded versions removed by compaction.",
            stats.swept_versions),
        ("plinth_engine_commit_queue_transactions", GAUGE, "Transactions in the commit queue.", stats.queued),
        ("plinth_engine_commit_queue_bytes", GAUGE, "Bytes of the transactions in the commit queue.",
            stats.queued_bytes),
        ("plinth_engine_subscriptions", GAUGE, "Open change feeds.", stats.subscribers),
        ("plinth_engine_delivered_events_total", COUNTER, "Events delivered to change feeds.",
            stats.delivered_events),
        ("plinth_engine_event_ring_bytes", GAUGE, "Bytes of recent events kept in memory.", stats.ring_bytes),
        ("plinth_engine_block_cache_hits_total", COUNTER, "Blocks found in the block cache.", stats.cache_hits),
        ("plinth_engine_block_cache_misses_total", COUNTER, "Blocks not found in the block cache.",
            stats.cache_misses),
        ("plinth_engine_block_cache_bytes", GAUGE, "Bytes of the block cache in use.", stats.cache_bytes),
    ]
}

fn header(name: &str, kind: &str, help: &str, out: &mut Vec<u8>) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// A gauge with the label `family`.
fn families(
    name: &str,
    help: &str,
    families: &[FamilyStats],
    value: fn(&FamilyStats) -> u64,
    out: &mut Vec<u8>,
) {
    header(name, "gauge", help, out);
    for family in families {
        let _ = writeln!(out, "{name}{{family=\"{}\"}} {}", family.name, value(family));
    }
}

/// A histogram; `unit` converts a recorded value to the unit of the metric.
fn histogram(name: &str, help: &str, unit: f64, values: &Distribution, out: &mut Vec<u8>) {
    header(name, "histogram", help, out);
    let mut total = 0u64;
    for (bound, count) in values.bounds() {
        total += count;
        if let Some(bound) = bound {
            let _ = writeln!(out, "{name}_bucket{{le=\"{}\"}} {total}", bound as f64 * unit);
        }
    }
    let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {total}");
    let _ = writeln!(out, "{name}_sum {}\n{name}_count {total}", values.sum as f64 * unit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_quantity_is_one_metric_with_its_type_and_unit() {
        let dir = tempfile::tempdir().unwrap();
        let engine = plinth_engine::Engine::open(plinth_engine::Options::new(dir.path())).unwrap();
        engine.transact(plinth_engine::Transaction::new().put("key", "value")).wait().unwrap();
        let mut out = Vec::new();
        write(&engine.stats(), &mut out);
        let text = String::from_utf8(out).unwrap();
        for line in [
            "# TYPE plinth_engine_commits_total counter",
            "plinth_engine_commits_total 1",
            "# TYPE plinth_engine_commit_queue_bytes gauge",
            "plinth_engine_commit_queue_bytes 0",
            "plinth_engine_commit_duration_seconds_count 1",
            "plinth_engine_commit_group_transactions_bucket{le=\"1\"} 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        for name in &names {
            assert_eq!(names.iter().filter(|other| other == &name).count(), 1, "{name}");
            let (name, kind) = name.split_once(' ').unwrap();
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
        }
    }
}
