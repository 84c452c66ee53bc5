//! Write latency while history is compacted, and the space that is reclaimed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_engine::{Engine, Proposal, Transaction};

use super::report::{Goal, Report};
use super::{key, reads, Error, Options};

/// Keys whose versions are superseded.
const KEYS: u64 = 10_000;
/// Writes per second that go on meanwhile.
const RATE: u32 = 1000;

/// Writes at a steady rate until stopped, without waiting for the writes before, as independent clients do;
/// latencies in microseconds, sorted.
fn steady(
    engine: &Engine,
    options: &Options,
    first: u64,
    stop: &AtomicBool,
    at_least: Duration,
) -> Result<Vec<u32>, Error> {
    let value = bytes::Bytes::from(options.value(3));
    let (under_way, written) = std::sync::mpsc::channel::<(Instant, Proposal)>();
    // Writes are acknowledged in the order in which they were handed over.
    let collector = std::thread::spawn(move || {
        let wait = |(due, proposal): (Instant, Proposal)| {
            proposal.wait()?;
            // Measured from when the write was due: a stall counts for every write that it delays.
            Ok(due.elapsed().as_micros().try_into().unwrap_or(u32::MAX))
        };
        written.into_iter().map(wait).collect::<Result<Vec<u32>, plinth_engine::Error>>()
    });
    let started = Instant::now();
    let mut n = 0u32;
    while !stop.load(Ordering::Relaxed) || started.elapsed() < at_least {
        let due = started + Duration::from_secs(1) / RATE * n;
        let wait = due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            std::thread::park_timeout(wait);
        }
        let put = Transaction::new().put(key(first + u64::from(n)), value.clone());
        if under_way.send((due, engine.transact(put))).is_err() {
            break;
        }
        n += 1;
    }
    drop(under_way);
    let mut micros = collector.join().unwrap_or(Ok(Vec::new()))?;
    micros.sort_unstable();
    Ok(micros)
}

fn p99(micros: &[u32]) -> f64 {
    micros.get(micros.len().saturating_sub(1) * 99 / 100).copied().map_or(f64::NAN, f64::from)
}

fn space(engine: &Engine) -> f64 {
    engine.stats().families.iter().map(|family| family.file_bytes as f64).sum()
}

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Error> {
    let dir = options.scratch()?;
    let small = Options { value_size: options.value_size.min(256), ..options.clone() };
    let engine = Engine::open(plinth_engine::Options::new(dir.path()))?;
    reads::fill(&engine, &small, KEYS, options.superseded / KEYS + 1)?;
    let before_space = space(&engine);
    let stop = Arc::new(AtomicBool::new(true));
    let without = p99(&steady(&engine, &small, 100_000_000, &stop, options.time() * 2)?);

    stop.store(false, Ordering::Relaxed);
    let writer = {
        let (engine, options, stop) = (engine.clone(), small.clone(), Arc::clone(&stop));
        std::thread::spawn(move || steady(&engine, &options, 200_000_000, &stop, Duration::ZERO))
    };
    let started = Instant::now();
    engine.compact(engine.current_revision())?;
    engine.wait_compacted()?;
    let took = started.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    let with = p99(&writer.join().unwrap_or(Ok(Vec::new()))?);
    let goal = Some(Goal::RatioAtMost(2.0));
    report.add("compaction", "p99 of writes meanwhile, against without", (with, "us"), Some(without), goal);
    report.add(
        "compaction",
        "superseded versions removed",
        (options.superseded as f64 / took, "1/s"),
        None,
        None,
    );
    // Merging goes on in the background; it is waited for because its result is the figure.
    let deadline = Instant::now() + Duration::from_secs(60);
    while space(&engine) > before_space / 4.0 && Instant::now() < deadline {
        std::thread::park_timeout(Duration::from_millis(100));
    }
    let after = space(&engine);
    report.add(
        "compaction",
        "space of files afterwards",
        (after / 1e6, "MB"),
        Some(before_space / 1e6),
        None,
    );
    Ok(())
}
