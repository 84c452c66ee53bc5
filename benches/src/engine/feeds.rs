//! Delivery of events to many subscribers, and what idle ones cost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_engine::{Engine, Feed, KeyRange, Subscribe, Subscription};

use super::memory::resident;
use super::report::{Goal, Report};
use super::writes::{load, Keys};
use super::{Error, Options};

/// Subscribers of one prefix.
const LIVE: usize = 1000;
/// Subscribers of other prefixes.
const IDLE: usize = 10_000;

/// Delivers what `writers` write to `count` subscribers; deliveries per second until all are delivered.
fn fan_out(options: &Options, count: usize, writers: usize) -> Result<f64, Error> {
    let dir = options.scratch()?;
    let engine = Engine::open(plinth_engine::Options::new(dir.path()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    let delivered = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..count {
        let mut feed = engine.subscribe(Subscribe::new(KeyRange::prefix("registry/")))?;
        let delivered = Arc::clone(&delivered);
        tasks.push(runtime.spawn(async move {
            while let Ok(Feed::Events(events)) = feed.next().await {
                delivered.fetch_add(events.len() as u64, Ordering::Relaxed);
            }
        }));
    }
    let started = Instant::now();
    load(&engine, options, writers, Keys::Existing(1000), options.time())?;
    let wanted = engine.current_revision().get() * count as u64;
    while delivered.load(Ordering::Relaxed) < wanted {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let rate = wanted as f64 / started.elapsed().as_secs_f64();
    engine.close()?;
    runtime.block_on(async {
        for task in tasks {
            // Each ends with the engine.
            let _ = task.await;
        }
    });
    Ok(rate)
}

fn subscribe_to_other_ranges(engine: &Engine) -> Result<Vec<Subscription>, Error> {
    let subscribe = |n| {
        let mut feed =
            engine.subscribe(Subscribe::new(KeyRange::prefix(format!("elsewhere/namespace-{n}/"))))?;
        feed.try_next()?;
        Ok(feed)
    };
    (0..IDLE).map(subscribe).collect()
}

/// What an idle subscriber holds. It runs before everything else: memory that others have given back to the
/// allocator, and that the subscribers would take, is not seen to grow.
pub(super) fn idle(options: &Options, report: &mut Report) -> Result<(), Error> {
    let dir = options.scratch()?;
    let engine = Engine::open(plinth_engine::Options::new(dir.path()))?;
    let before = resident();
    let idle = subscribe_to_other_ranges(&engine)?;
    let each = (resident() - before) / IDLE as f64;
    drop(idle);
    report.add("idle", "memory of an idle subscriber", (each, "B"), None, Some(Goal::AtMost(1024.0)));
    Ok(())
}

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Error> {
    let rate = fan_out(options, LIVE, 100)?;
    let name = "deliveries to 1,000 subscribers, 100 writers";
    report.add("feeds", name, (rate, "1/s"), None, Some(Goal::AtLeast(1e6)));
    let rate = fan_out(options, LIVE, 1)?;
    report.add("feeds", "deliveries to 1,000 subscribers, 1 writer", (rate, "1/s"), None, None);

    let dir = options.scratch()?;
    let engine = Engine::open(plinth_engine::Options::new(dir.path()))?;
    let (mut with, mut without) = (0.0, 0.0);
    let mut next = 0;
    const TURNS: u32 = 6;
    for _ in 0..TURNS {
        // Alternating: the load of the machine changes more than the figures do.
        let time = options.time() / 2;
        without += load(&engine, options, 100, Keys::New(next), time)?.rate;
        let idle = subscribe_to_other_ranges(&engine)?;
        with += load(&engine, options, 100, Keys::New(next + 50_000_000), time)?.rate;
        drop(idle);
        next += 100_000_000;
    }
    let turns = f64::from(TURNS);
    report.add(
        "feeds",
        "puts with 10,000 subscribers of other prefixes, against none",
        (with / turns, "1/s"),
        Some(without / turns),
        Some(Goal::RatioAtLeast(0.95)),
    );
    Ok(())
}
