//! Point reads and ranges.

use std::time::{Duration, Instant};

use plinth_engine::{At, Engine, KeyRange, Revision, Transaction};
use rocksdb::DB;

use super::report::{Goal, Report};
use super::{key, plain, Error, Options};

/// Keys of a range.
const RANGE: u64 = 10_000;
/// Retained versions of each key in the second data set.
const VERSIONS: u64 = 100;

/// Fills keys 0 to `count` of the engine in transactions of 100, `rounds` times.
///
/// # Errors
/// When a transaction fails.
pub fn fill(engine: &Engine, options: &Options, count: u64, rounds: u64) -> Result<(), Error> {
    for round in 0..rounds {
        let mut under_way = Vec::new();
        for start in (0..count).step_by(100) {
            let transaction = (start..(start + 100).min(count)).fold(Transaction::new(), |transaction, n| {
                transaction.put(key(n), options.value(n ^ (round << 40)))
            });
            under_way.push(engine.transact(transaction));
            if under_way.len() == 20 {
                for proposal in under_way.drain(..) {
                    proposal.wait()?;
                }
            }
        }
        for proposal in under_way {
            proposal.wait()?;
        }
    }
    Ok(())
}

/// Calls `work` for about `time`, in turns with `other`; operations per second of both.
fn in_turns(
    time: Duration,
    mut work: impl FnMut(u64) -> Result<(), Error>,
    mut other: impl FnMut(u64) -> Result<(), Error>,
) -> Result<(f64, f64), Error> {
    /// Turns of each: what disturbs the machine disturbs both.
    const TURNS: u32 = 10;
    let mut totals = [(0u64, Duration::ZERO); 2];
    for _ in 0..TURNS {
        for (which, (count, spent)) in totals.iter_mut().enumerate() {
            let started = Instant::now();
            while started.elapsed() < time / TURNS {
                if which == 0 {
                    work(*count)?;
                } else {
                    other(*count)?;
                }
                *count += 1;
            }
            *spent += started.elapsed();
        }
    }
    let rate = |(count, spent): (u64, Duration)| count as f64 / spent.as_secs_f64();
    Ok((rate(totals[0]), rate(totals[1])))
}

/// Waits until the background has merged what it wants to merge.
fn settle(engine: &Engine) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut last = None;
    while Instant::now() < deadline {
        let now: Vec<u64> = engine.stats().families.iter().map(|family| family.file_bytes).collect();
        if last.as_ref() == Some(&now) {
            return;
        }
        last = Some(now);
        std::thread::park_timeout(Duration::from_secs(3));
    }
}

fn scattered(n: u64, count: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % count
}

fn scan(engine: &Engine, at: At, expected: u64) -> Result<(), Error> {
    let mut range = engine.snapshot(at)?.range(&KeyRange::prefix("registry/things/"));
    let (mut found, mut bytes) = (0, 0);
    while let Some(entry) = range.next()? {
        found += 1;
        bytes += entry.value.len();
    }
    std::hint::black_box(bytes);
    assert_eq!(found, expected, "the range is complete");
    Ok(())
}

fn scan_plain(db: &DB, expected: u64) -> Result<(), Error> {
    let mut iterator = db.raw_iterator();
    iterator.seek(b"registry/things/");
    let (mut found, mut bytes) = (0, 0);
    while let Some((_, value)) = iterator.item() {
        found += 1;
        bytes += value.len();
        iterator.next();
    }
    iterator.status()?;
    std::hint::black_box(bytes);
    assert_eq!(found, expected, "the scan is complete");
    Ok(())
}

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Error> {
    let dir = options.scratch()?;
    let time = options.time();
    let engine = Engine::open(plinth_engine::Options::new(dir.path().join("engine")))?;
    let db = plain::open(&dir.path().join("plain"))?;
    fill(&engine, options, RANGE, 1)?;
    plain::fill(&db, options, RANGE)?;
    let old = engine.current_revision();

    let (get, plain_get) = in_turns(
        time,
        |n| {
            let record = engine.get(&key(scattered(n, RANGE)), At::Latest)?;
            std::hint::black_box(record);
            Ok(())
        },
        |n| {
            std::hint::black_box(db.get(key(scattered(n, RANGE)))?);
            Ok(())
        },
    )?;
    report.add("reads", "point reads", (get, "1/s"), Some(plain_get), Some(Goal::RatioAtLeast(0.7)));

    let (one, baseline) = in_turns(time, |_| scan(&engine, At::Latest, RANGE), |_| scan_plain(&db, RANGE))?;
    let goal = Some(Goal::RatioAtMost(1.0 / 0.6));
    report.add(
        "reads",
        "range of 10,000 keys, against RocksDB",
        (1e3 / one, "ms"),
        Some(1e3 / baseline),
        goal,
    );
    report.add("reads", "range of 10,000 keys", (1e3 / one, "ms"), None, Some(Goal::AtMost(7.0)));

    // Half of the keys change: the old revision is put together from both column families.
    fill(&engine, options, RANGE / 2, 1)?;
    let (older, latest) =
        in_turns(time, |_| scan(&engine, At::Exact(old), RANGE), |_| scan(&engine, At::Latest, RANGE))?;
    let goal = Some(Goal::RatioAtMost(2.0));
    report.add(
        "reads",
        "range at an old revision, half changed, against latest",
        (1e3 / older, "ms"),
        Some(1e3 / latest),
        goal,
    );
    drop((db, engine));

    let many = Engine::open(plinth_engine::Options::new(dir.path().join("many")))?;
    let single = Engine::open(plinth_engine::Options::new(dir.path().join("single")))?;
    fill(&many, options, RANGE, VERSIONS)?;
    fill(&single, options, RANGE, 1)?;
    let (fresh, one) =
        in_turns(time, |_| scan(&many, At::Latest, RANGE), |_| scan(&single, At::Latest, RANGE))?;
    let name = "range right after 100 overwrites, against one version";
    report.add("reads", name, (1e3 / fresh, "ms"), Some(1e3 / one), None);
    // The steady state: files have been merged. Closing writes out what is in memory.
    many.close()?;
    drop(many);
    let many = Engine::open(plinth_engine::Options::new(dir.path().join("many")))?;
    settle(&many);
    let (hundred, one) =
        in_turns(time, |_| scan(&many, At::Latest, RANGE), |_| scan(&single, At::Latest, RANGE))?;
    report.add("reads", "range with 100 versions, against one", (1e3 / hundred, "ms"), Some(1e3 / one), goal);
    let middle = Revision::new(many.current_revision().get() / 2);
    let (at_middle, latest) =
        in_turns(time, |_| scan(&many, At::Exact(middle), RANGE), |_| scan(&many, At::Latest, RANGE))?;
    report.add(
        "reads",
        "range 50 versions back, all changed, against latest",
        (1e3 / at_middle, "ms"),
        Some(1e3 / latest),
        None,
    );
    Ok(())
}
