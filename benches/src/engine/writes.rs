//! Synced transactions with many writers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use plinth_engine::{Engine, Transaction};

use super::report::{Goal, Report};
use super::{key, limits, plain, Error, Options};

/// What a closed loop of writers did.
pub struct Load {
    /// Transactions per second.
    pub rate: f64,
    /// Latencies in microseconds, sorted.
    pub micros: Vec<u32>,
    /// CPU seconds of the process for 100,000 transactions, the writers included.
    pub cpu_per_100k: f64,
    /// Bytes written to the disk for each transaction.
    pub disk_bytes: f64,
}

impl Load {
    /// What took `seconds` and these latencies.
    pub(super) fn new(mut micros: Vec<u32>, seconds: f64, before: &Usage, after: &Usage) -> Load {
        micros.sort_unstable();
        let count = micros.len() as f64;
        Load {
            rate: count / seconds,
            cpu_per_100k: (after.cpu_seconds - before.cpu_seconds) / count * 100_000.0,
            disk_bytes: (after.disk_bytes - before.disk_bytes) / count,
            micros,
        }
    }

    /// The latency that a part of the transactions stayed under, in microseconds.
    pub fn quantile(&self, part: f64) -> f64 {
        let at = ((self.micros.len() as f64 * part) as usize).min(self.micros.len().saturating_sub(1));
        self.micros.get(at).copied().map_or(f64::NAN, f64::from)
    }
}

/// Which keys are written.
#[derive(Debug, Clone, Copy)]
pub enum Keys {
    /// New ones, from this number on.
    New(u64),
    /// The first so many, over and over.
    Existing(u64),
}

/// Keeps `writers` transactions under way for `time`, from one thread of an async runtime.
///
/// # Errors
/// When a transaction fails.
pub fn load(
    engine: &Engine,
    options: &Options,
    writers: usize,
    keys: Keys,
    time: Duration,
) -> Result<Load, Error> {
    let value = Bytes::from(options.value(2));
    let started = Instant::now();
    drive(
        engine,
        writers,
        || Ok(()),
        move |n| {
            if started.elapsed() >= time {
                return Ok(None);
            }
            let n = match keys {
                Keys::New(first) => first + n,
                Keys::Existing(count) => (n * 7919) % count,
            };
            Ok(Some(Transaction::new().put(key(n), value.clone())))
        },
    )
}

/// Runs the transactions of `next`, which has their number and returns none at the end, with `writers` at a
/// time. What `end` uses after them counts, and the time that it takes does not.
///
/// # Errors
/// When a transaction fails, or those of `next` and `end`.
pub(super) fn drive<N>(
    engine: &Engine,
    writers: usize,
    end: impl FnOnce() -> Result<(), Error>,
    next: N,
) -> Result<Load, Error>
where
    N: Fn(u64) -> Result<Option<Transaction>, Error> + Send + Sync + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let (next, counter) = (Arc::new(next), Arc::new(AtomicU64::new(0)));
    let before = Usage::now();
    let started = Instant::now();
    let micros = runtime.block_on(async {
        let tasks: Vec<_> = (0..writers)
            .map(|_| {
                let (engine, next, counter) = (engine.clone(), Arc::clone(&next), Arc::clone(&counter));
                tokio::task::spawn(async move {
                    let mut micros = Vec::new();
                    while let Some(transaction) = next(counter.fetch_add(1, Ordering::Relaxed))? {
                        let called = Instant::now();
                        engine.transact(transaction).await?;
                        micros.push(called.elapsed().as_micros().try_into().unwrap_or(u32::MAX));
                    }
                    Ok::<_, Error>(micros)
                })
            })
            .collect();
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.map_err(std::io::Error::other)??);
        }
        Ok::<Vec<u32>, Error>(all)
    })?;
    let seconds = started.elapsed().as_secs_f64();
    end()?;
    Ok(Load::new(micros, seconds, &before, &Usage::now()))
}

/// What this process has used so far.
pub(super) struct Usage {
    cpu_seconds: f64,
    disk_bytes: f64,
}

impl Usage {
    pub(super) fn now() -> Usage {
        /// Clock ticks per second of `/proc/self/stat`, on every Linux that we run on.
        const TICKS: f64 = 100.0;
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let stat = read("/proc/self/stat");
        // Behind the name, which is in parentheses: user and system time are fields 12 and 13.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
        let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        let disk = read("/proc/self/io")
            .lines()
            .find_map(|line| line.strip_prefix("write_bytes: ")?.parse::<f64>().ok())
            .unwrap_or(f64::NAN);
        Usage { cpu_seconds: ticks / TICKS, disk_bytes: disk }
    }
}

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Error> {
    let mut first = 0;
    for writers in [1, 10, 100, 1000] {
        // Baseline and engine in turns, so that both see the same machine.
        let dir = options.scratch()?;
        let engine = Engine::open(plinth_engine::Options::new(dir.path().join("engine")))?;
        let db = plain::open(&dir.path().join("plain"))?;
        let sync_rate = limits::fdatasync_rate(options)?;
        let load = load(&engine, options, writers, Keys::New(first), options.time())?;
        // The size of group that the engine found; RocksDB gets the same.
        let groups = engine.stats().group_size;
        let group = (groups.sum / groups.count().max(1)).max(1);
        let baseline = plain::put_rate(&db, options, group, first, options.time())?;
        first += 10_000_000;

        let goal = match writers {
            1 => Some(Goal::AtLeast(1.0 / (1.3 / sync_rate + 50e-6))),
            1000 => Some(Goal::RatioAtLeast(0.8)),
            _ => None,
        };
        let name = format!("new keys, {writers} writers, against RocksDB, groups of {group}");
        report.add("writes", name, (load.rate, "1/s"), Some(baseline), goal).at("engine", writers as f64);
        report
            .add("writes", format!("RocksDB alone, groups of {group}"), (baseline, "1/s"), None, None)
            .at("RocksDB alone", writers as f64);
        // What etcd does with so many clients on such a machine.
        let etcd = match writers {
            1 => 2_400.0,
            10 => 7_800.0,
            100 => 16_000.0,
            _ => 19_000.0,
        };
        let goal = (writers >= 100).then_some(Goal::RatioAtLeast(3.0));
        report.add(
            "writes",
            format!("the same, {writers} writers, against etcd"),
            (load.rate, "1/s "),
            Some(etcd),
            goal,
        );
        let name = format!("p50 latency, {writers} writers, against one fdatasync");
        report
            .add("writes", name, (load.quantile(0.5), "us"), Some(1e6 / sync_rate), None)
            .at("p50", writers as f64);
        report
            .add("writes", format!("p99 latency, {writers} writers"), (load.quantile(0.99), "us"), None, None)
            .at("p99", writers as f64);
        if writers >= 100 {
            let name = format!("CPU per 100,000 puts, {writers} writers included");
            report.add("writes", name, (load.cpu_per_100k, "s"), None, Some(Goal::AtMost(2.0)));
            let name = format!("written to disk per put, {writers} writers");
            report.add("writes", name, (load.disk_bytes, "B"), None, Some(Goal::AtMost(2200.0)));
            let again = self::load(&engine, options, writers, Keys::Existing(10_000), options.time())?;
            let name = format!("overwrites of 10,000 keys, {writers} writers");
            report.add("writes", name, (again.rate, "1/s"), Some(baseline), None);
            let name = format!("written to disk per overwrite, {writers} writers");
            report.add("writes", name, (again.disk_bytes, "B"), None, None);
        }
    }
    Ok(())
}
