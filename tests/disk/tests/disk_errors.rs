//! Each file-system call of a run of the engine fails in turn, with each error: nothing acknowledged may be
//! lost, nothing wrong may be read, the engine neither panics nor hangs, and the directory opens afterwards,
//! also after a power cut that follows the error.
//!
//! `PLINTH_ERROR_STRIDE=1` tries every call, N every Nth.

// No lock here outlives a panic that matters: the test fails with it. Threads that wait for another process
// sleep.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "../../../engine/tests/common/mod.rs"]
mod common;
mod workload;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{copy_dir, Random};
use plinth_disk_tests::disk::{Data, Disk, Names, Random as Choices};
use plinth_disk_tests::process::{scratch, Interposed};
use plinth_disk_tests::trace::{self, Event, Marks};
use plinth_engine::{At, Engine, Revision};
use workload::{check_survivor, follow, last_event, number, options, transaction, variable, History};

/// Every how many calls one fails by default.
const STRIDE: u64 = 61;
/// Transactions of the recorded process.
const COMMITS: u64 = 40;
/// After this long a process counts as hanging.
const PATIENCE: Duration = Duration::from_secs(120);
const FOREVER: u64 = 1 << 40;

/// Kinds of calls, and for how many calls in a row they end how.
const ERRORS: &[(&str, u64, &str)] = &[
    ("write", 1, "EIO"),
    ("write", FOREVER, "EIO"),
    ("write", 1, "ENOSPC"),
    ("write", 4, "ENOSPC"),
    ("write", 1, "EDQUOT"),
    ("write", 2, "TORN"),
    ("write", 1, "SHORT"),
    ("sync", 1, "EIO"),
    ("sync", FOREVER, "EIO"),
    ("sync", 1, "ENOSPC"),
    ("sync", 1, "EDQUOT"),
    ("sync", 1, "SLOW"),
    ("sync", 1, "LATE"),
    ("open", 1, "EIO"),
    ("open", 1, "ENOSPC"),
    ("open", 1, "EACCES"),
    ("read", 1, "EIO"),
    ("read", 1, "SHORT"),
    ("stat", 1, "EIO"),
    ("stat", 1, "EACCES"),
    ("rename", 1, "EIO"),
    ("rename", 1, "ENOSPC"),
    ("unlink", 1, "EIO"),
    ("mkdir", 1, "EIO"),
    ("mkdir", 1, "ENOSPC"),
    ("resize", 1, "EIO"),
    ("allocate", 1, "EIO"),
    ("allocate", 1, "ENOSPC"),
];

const REFUSED: i32 = 3;
const HANGS: i32 = 8;
const WRONG: i32 = 9;

/// A process that opens the store, writes, reads what it wrote, and closes, whatever fails on the way.
#[test]
#[ignore = "run by another test as a child process"]
fn child() {
    let Some(root) = std::env::var_os("DISK_ROOT") else { return };
    std::thread::spawn(|| {
        std::thread::sleep(PATIENCE);
        std::process::exit(HANGS);
    });
    let trace = std::env::var_os("DISK_TRACE").unwrap();
    let marks = Arc::new(Mutex::new(Marks::open(Path::new(&trace)).unwrap()));
    let mark = |name: String| marks.lock().unwrap().add(&name, &[]).unwrap();
    let after = variable("DISK_AFTER").unwrap();
    let engine = match Engine::open(options(&Path::new(&root).join("data"))) {
        Ok(engine) => engine,
        Err(error) => {
            mark(format!("refused {error}"));
            std::process::exit(REFUSED);
        }
    };
    let followed = Arc::new(AtomicU64::new(after));
    {
        let (engine, marks, followed) = (engine.clone(), Arc::clone(&marks), Arc::clone(&followed));
        std::thread::spawn(move || follow(&engine, after, &marks, &followed));
    }
    let mut random = Random(after);
    let mut n = variable("DISK_LIFE").unwrap() * 1_000_000;
    let end = n + COMMITS;
    let mut failures = 0;
    while n < end && failures < 8 {
        let under_way: Vec<_> = (0..1 + random.below(3))
            .map(|_| {
                n += 1;
                engine.transact(transaction(n))
            })
            .collect();
        let mut whole = true;
        for proposal in under_way {
            match proposal.wait() {
                Ok(committed) => mark(format!("ack {}", committed.revision)),
                Err(error) => {
                    whole = false;
                    failures += 1;
                    mark(format!("failed {error}"));
                }
            }
        }
        if let Ok(found) = engine.get(b"number", At::Latest) {
            let found = found.map(|record| record.value.to_vec());
            if whole && found.as_deref() != Some(&n.to_le_bytes()) {
                mark(format!("wrong: {found:?} instead of {n}"));
                std::process::exit(WRONG);
            }
        }
        if random.below(6) == 0 {
            let floor = followed.load(Ordering::Acquire).saturating_sub(random.below(20));
            if engine.compact(Revision::new(floor)).is_ok() {
                mark(format!("floor {floor}"));
            }
        }
    }
    if let Err(error) = engine.close() {
        mark(format!("closing {error}"));
    }
    std::process::exit(0);
}

fn run_child(root: &Path, trace: &Path, life: u64, interposed: Option<&Interposed>) -> Option<i32> {
    let after = if trace.is_file() { last_event(&trace::read(trace).unwrap()) } else { 0 };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--ignored", "--nocapture", "--quiet"]);
    if let Some(interposed) = interposed {
        interposed.apply(&mut command);
    }
    command.env("DISK_ROOT", root).env("DISK_TRACE", trace);
    command.env("DISK_LIFE", life.to_string()).env("DISK_AFTER", after.to_string());
    command.output().unwrap().status.code()
}

/// What had been acknowledged: the newest revision and the newest floor.
fn acknowledged(events: &[Event]) -> (u64, u64) {
    let (mut latest, mut floor) = (0, 0);
    for event in events {
        let Event::Mark { name, .. } = event else { continue };
        latest = number(name, "ack").or(number(name, "event")).unwrap_or_default().max(latest);
        floor = number(name, "floor").unwrap_or_default().max(floor);
    }
    (latest, floor)
}

/// A store with a past, left by a process that was killed, and the marks of its history.
struct Template {
    dir: tempfile::TempDir,
    events: Vec<Event>,
}

impl Template {
    fn make() -> Template {
        let dir = scratch();
        let (root, trace) = (dir.path().join("root"), dir.path().join("trace"));
        std::fs::create_dir(&root).unwrap();
        assert_eq!(run_child(&root, &trace, 0, None), Some(0));
        let engine = Engine::open(options(&root.join("data"))).unwrap();
        let mut marks = Marks::open(&trace).unwrap();
        for n in 500_000..500_020 {
            let revision = engine.transact(transaction(n)).wait().unwrap().revision;
            marks.add(&format!("ack {revision}"), &[]).unwrap();
        }
        // Not closed: the log holds what is not written out.
        let live = dir.path().join("live");
        copy_dir(&root, &live);
        drop(engine);
        let events = trace::read(&trace).unwrap();
        Template { dir, events }
    }

    fn copy(&self, root: &Path, trace: &Path) {
        copy_dir(&self.dir.path().join("live"), root);
        let mut marks = Marks::open(trace).unwrap();
        for event in &self.events {
            if let Event::Mark { name, data } = event {
                marks.add(name, data).unwrap();
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Attempt {
    error: (&'static str, u64, &'static str),
    /// Which call of the kind is the first to fail.
    first: u64,
    /// Whether the store is there already.
    populated: bool,
}

/// Whether the error happened at all.
fn attempt(attempt: Attempt, template: &Template) -> Result<bool, String> {
    let dir = scratch();
    let (root, trace, hit) = (dir.path().join("root"), dir.path().join("trace"), dir.path().join("hit"));
    if attempt.populated {
        template.copy(&root, &trace);
    } else {
        std::fs::create_dir(&root).unwrap();
    }
    let (kind, count, what) = attempt.error;
    let mut interposed = Interposed::below(&root).error(kind, attempt.first, count, what, &hit);
    if !attempt.populated {
        interposed = interposed.trace(&trace);
    }
    let code = run_child(&root, &trace, 1, Some(&interposed));
    if !hit.exists() {
        return Ok(false);
    }
    let events = trace::read(&trace).unwrap_or_default();
    let marked = |start: &str| {
        events.iter().any(|event| matches!(event, Event::Mark { name, .. } if name.starts_with(start)))
    };
    match code {
        Some(0 | REFUSED) => {}
        Some(HANGS) => return Err("the process hangs".to_owned()),
        Some(WRONG) => return Err("a wrong answer".to_owned()),
        code => return Err(format!("the process ended with {code:?}")),
    }
    // None of these keeps the engine from working.
    if matches!(what, "SHORT" | "SLOW") && (code != Some(0) || marked("failed")) {
        return Err("a write failed, though nothing did".to_owned());
    }
    let (latest, floor) = acknowledged(&events);
    if !attempt.populated {
        let mut disk = Disk::default();
        for event in &events {
            disk.apply(event);
        }
        for (data, names) in [(Data::Lost, Names::Lost), (Data::Lost, Names::Journal)] {
            let cut = dir.path().join("cut");
            disk.image(data, names, &mut Choices(1)).below("data").write_to(&cut).unwrap();
            check_survivor(&cut, History::of(&events), latest, floor)
                .map_err(|error| format!("after a power cut: {error}"))?;
            std::fs::remove_dir_all(&cut).unwrap();
        }
    }
    let data = root.join("data");
    check_survivor(&data, History::of(&events), latest, floor)?;
    Ok(true)
}

#[test]
fn no_error_of_the_disk_loses_anything_acknowledged() {
    let stride = variable("PLINTH_ERROR_STRIDE").unwrap_or(STRIDE);
    let template = Template::make();
    let only = std::env::var("PLINTH_ERRORS").unwrap_or_default();
    let wanted = ERRORS.iter().filter(|(call, _, error)| format!("{call} {error}").contains(&only));
    let series: Vec<_> = wanted.flat_map(|error| [(*error, false), (*error, true)]).collect();
    let next = AtomicUsize::new(0);
    let counts: Mutex<BTreeMap<(&str, &str), u64>> = Mutex::default();
    let failures: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((number, (error, populated))) = {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    series.get(number).map(|series| (number as u64, *series))
                } {
                    let mut first = 1 + number * 7 % stride;
                    loop {
                        let attempted = Attempt { error, first, populated };
                        let outcome = std::panic::catch_unwind(|| attempt(attempted, &template))
                            .unwrap_or_else(|panic| {
                                let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                                Err(format!("panic: {text}"))
                            });
                        match outcome {
                            Ok(true) => {}
                            Ok(false) => break,
                            Err(why) => failures.lock().unwrap().push(format!("{attempted:?}: {why}")),
                        }
                        *counts.lock().unwrap().entry((error.0, error.2)).or_default() += 1;
                        first += stride;
                    }
                }
            });
        }
    });
    let counts = counts.into_inner().unwrap();
    println!("errors of the disk: {} processes", counts.values().sum::<u64>());
    for ((kind, what), count) in counts {
        println!("  {kind} {what}: {count}");
    }
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} failed: {failures:#?}", failures.len());
}
