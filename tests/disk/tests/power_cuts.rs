//! Power is cut at every point of a run of the engine: creation, commits with flushes, merges, compaction and
//! expiry, a kill and the recovery from it, a checkpoint, a restore. What each cut may leave is built, opened
//! and compared with what had been acknowledged.
//!
//! `PLINTH_POWER_COMMITS` is the number of transactions in each of the run's three lives.

// No lock here outlives a panic that matters: the test fails with it. Threads that wait for another process
// sleep.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "../../../engine/tests/common/mod.rs"]
mod common;
mod workload;

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use common::Random;
use plinth_disk_tests::campaign::{Campaign, Requirement};
use plinth_disk_tests::disk::Disk;
use plinth_disk_tests::process::{scratch, Interposed};
use plinth_disk_tests::trace::{self, Event, Marks};
use plinth_engine::{restore, Continuation, Engine, Revision};
use workload::{check_store, follow, last_event, number, options, transaction, variable, History};

/// Transactions of each life by default: what a CI run has time for.
const COMMITS: u64 = 12;

/// One life of the recorded process.
#[test]
#[ignore = "run by another test as a child process"]
fn child() {
    let Some(root) = std::env::var_os("DISK_ROOT") else { return };
    let root = Path::new(&root);
    let trace = std::env::var_os("DISK_TRACE").unwrap();
    let marks = Arc::new(Mutex::new(Marks::open(Path::new(&trace)).unwrap()));
    let mark = |name: String| marks.lock().unwrap().add(&name, &[]).unwrap();
    let life = variable("DISK_LIFE").unwrap();
    let (after, commits) = (variable("DISK_AFTER").unwrap(), variable("DISK_COMMITS").unwrap());
    let engine = Engine::open(options(&root.join("data"))).unwrap();
    let followed = Arc::new(AtomicU64::new(after));
    let follower = {
        let (engine, marks, followed) = (engine.clone(), Arc::clone(&marks), Arc::clone(&followed));
        std::thread::spawn(move || follow(&engine, after, &marks, &followed))
    };
    let mut random = Random(life);
    let mut n = life * 1_000_000;
    let end = n + commits;
    let mut copied = false;
    while n < end {
        let under_way: Vec<_> = (0..1 + random.below(8))
            .map(|_| {
                n += 1;
                engine.transact(transaction(n))
            })
            .collect();
        for proposal in under_way {
            let revision = proposal.wait().unwrap().revision;
            mark(format!("ack {revision}"));
        }
        if random.below(6) == 0 {
            let floor = followed.load(Ordering::Acquire).saturating_sub(random.below(40));
            engine.compact(Revision::new(floor)).unwrap();
            mark(format!("floor {floor}"));
        }
        if life == 2 && !copied && n > end - commits / 2 {
            copied = true;
            let latest = engine.current_revision();
            mark(format!("copying {latest}"));
            engine.checkpoint(root.join("copy")).unwrap();
            mark(format!("copied {latest}"));
            let mut archive = Vec::new();
            let archived = engine.backup(&mut archive, |_| {}).unwrap();
            mark(format!("restoring {}", archived.revision));
            restore(&mut archive.as_slice(), root.join("restored"), Continuation::Same, |_| {}).unwrap();
            mark(format!("restored {}", archived.revision));
        }
    }
    if life == 1 {
        // The only life that ends in peace.
        while followed.load(Ordering::Acquire) < engine.current_revision().get() {
            std::thread::yield_now();
        }
        engine.close().unwrap();
        follower.join().unwrap();
        return;
    }
    if life == 2 {
        while followed.load(Ordering::Acquire) < engine.current_revision().get() {
            std::thread::yield_now();
        }
    }
    // As a kill: nothing is flushed, no destructor runs.
    std::process::abort();
}

/// Runs the three lives; the trace is complete afterwards.
fn record(root: &Path, trace: &Path, commits: u64) -> Vec<Event> {
    for life in 0..3 {
        let after = if trace.is_file() { last_event(&trace::read(trace).unwrap()) } else { 0 };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--ignored", "--nocapture", "--quiet"]);
        Interposed::below(root).trace(trace).apply(&mut command);
        command.env("DISK_ROOT", root).env("DISK_TRACE", trace);
        command.env("DISK_LIFE", life.to_string()).env("DISK_AFTER", after.to_string());
        command.env("DISK_COMMITS", commits.to_string());
        let output = command.output().unwrap();
        let killed = output.status.code().is_none();
        assert!(
            killed || life == 1 && output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    trace::read(trace).unwrap()
}

#[test]
fn a_power_cut_at_any_point_loses_nothing_acknowledged() {
    let dir = scratch();
    let root = dir.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let commits = variable("PLINTH_POWER_COMMITS").unwrap_or(COMMITS);
    let events = record(&root, &dir.path().join("trace"), commits);
    let history = History::of(&events);

    let (mut acknowledged, mut floor) = (0, 0);
    // Revision, and whether it is done.
    let (mut copy, mut restored) = ((0, false), (0, false));
    let check = |part: &str, dir: &Path| match part {
        "data" => check_store(dir, &history, true),
        _ => check_store(dir, &history, false),
    };
    let campaign = Campaign::new("power cuts of the engine", &check);
    let mut disk = Disk::default();
    campaign.run(|states| {
        for event in &events {
            if let Event::Mark { name, .. } = event {
                if let Some(revision) = number(name, "ack").or(number(name, "event")) {
                    acknowledged = revision.max(acknowledged);
                }
                floor = number(name, "floor").unwrap_or_default().max(floor);
                copy = number(name, "copying").map_or(copy, |latest| (latest, false));
                restored = number(name, "restoring").map_or(restored, |latest| (latest, false));
                copy.1 |= number(name, "copied").is_some();
                restored.1 |= number(name, "restored").is_some();
            }
            if !disk.apply(event) {
                continue;
            }
            states.point(&disk, |image, submit| {
                submit("data", image.below("data"), Requirement::opens(acknowledged, floor));
                for (part, (latest, done)) in [("copy", copy), ("restored", restored)] {
                    if done {
                        submit(part, image.below(part), Requirement::opens(latest, 0));
                    } else if image.has(part) {
                        submit(part, image.below(part), Requirement::opens_or_refuses(latest));
                    }
                }
            });
        }
        disk.image_now().assert_same(&root);
    });
    println!("{} revisions, {} calls", history.latest(), events.len());
    let mut seen: HashMap<&str, u32> = HashMap::new();
    for event in &events {
        if let Event::Mark { name, .. } = event {
            *seen.entry(name.split(' ').next().unwrap_or_default()).or_default() += 1;
        }
    }
    println!("marks: {seen:?}");
}
