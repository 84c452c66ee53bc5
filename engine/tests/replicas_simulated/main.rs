//! Replicas over a simulated journal, step by step, each decided by a seed. A failure names its seed;
//! `PLINTH_SEED=N` runs that one alone. The long form runs schedules in several threads:
//!
//!     scripts/campaign schedules 100000 [FIRST_SEED]
//!
//! Engines, watches and clients' answers are compared with `specification`, an interpreter of the journal's
//! records that shares no code with the engine; what clients saw is checked for linearizability, too.

mod clients;
#[path = "../common/mod.rs"]
mod common;
mod node;
mod specification;
mod watcher;
mod world;

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::scaled;
use parking_lot::Mutex;
use world::World;

/// Schedules of a run of the tests.
const SCHEDULES: u64 = 200;

type Counts = BTreeMap<&'static str, u64>;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run(seed: u64) -> Counts {
    let mut world = World::new(seed);
    world.live();
    world.settle();
    world.expire_everything();
    world.check()
}

/// Runs the schedules of `seeds`, on as many threads; returns what was done, and the seeds that have failed.
fn run_all(seeds: std::ops::Range<u64>, threads: u64) -> (Counts, Vec<u64>) {
    let (next, stop) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let (totals, failed) = (Mutex::new(Counts::new()), Mutex::new(Vec::new()));
    let progress = Mutex::new(Progress::new(seeds.end - seeds.start));
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    match catch_unwind(|| run(seed)) {
                        Ok(counts) => {
                            let mut totals = totals.lock();
                            for (what, count) in counts {
                                *totals.entry(what).or_default() += count;
                            }
                            *totals.entry("schedules").or_default() += 1;
                        }
                        Err(_) => {
                            eprintln!("the schedule of PLINTH_SEED={seed} has failed, see above");
                            failed.lock().push(seed);
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                    progress.lock().one_more();
                }
            });
        }
    });
    (totals.into_inner(), failed.into_inner())
}

/// How many schedules have run: one line that is written over on a terminal, a line each minute where there
/// is none.
struct Progress {
    all: u64,
    done: u64,
    started: Instant,
    shown: Instant,
}

impl Progress {
    fn new(all: u64) -> Progress {
        Progress { all, done: 0, started: Instant::now(), shown: Instant::now() }
    }

    fn one_more(&mut self) {
        self.done += 1;
        let is_terminal = std::io::stderr().is_terminal();
        let interval = Duration::from_secs(if is_terminal { 1 } else { 60 });
        if self.shown.elapsed() < interval {
            return;
        }
        self.shown = Instant::now();
        let rate = self.done as f64 / self.started.elapsed().as_secs_f64();
        let (start, end) = if is_terminal { ("\r", "") } else { ("", "\n") };
        eprint!("{start}{} of {} schedules, {rate:.1} a second {end}", self.done, self.all);
        let _ = std::io::stderr().flush();
    }
}

#[test]
fn replicas_agree_whatever_fails() {
    let first = variable("PLINTH_FIRST_SEED").unwrap_or(1);
    let seeds = match variable("PLINTH_SEED") {
        Some(seed) => seed..seed + 1,
        None => first..first + variable("PLINTH_SCHEDULES").unwrap_or(scaled(SCHEDULES)),
    };
    let processors = thread::available_parallelism().map_or(1, usize::from) as u64;
    let (totals, failed) = run_all(seeds, variable("PLINTH_THREADS").unwrap_or(processors));
    println!("{totals:?}");
    assert_eq!(failed, [], "the schedules of these seeds have failed: PLINTH_SEED=N runs one again");
}
