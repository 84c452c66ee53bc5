//! The engine is killed, and what it acknowledged must survive.
//!
//! A child process writes and reports each acknowledgement over a pipe; it is killed with SIGKILL, at a
//! random moment or at a failpoint; then the store is compared with the acknowledgements. The operations
//! follow from a seed, so that parent and child compute the same.
//!
//! Needs the feature `failpoints`. `PLINTH_TEST_SCALE` multiplies the number of kills.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{assert_sound, dump, replay, scaled, scratch, Model, Random};
use plinth_engine::{
    failpoint, restore, At, Continuation, Engine, Error, KeyRange, Options, Revision, Transaction,
};

/// Kills at random moments.
const RANDOM_KILLS: u64 = 120;

/// Failpoints and how often each is killed at.
const POINTS: &[(&str, u64)] = &[
    ("write-before", 12),
    ("write-after", 14),
    ("compact-before-floor", 8),
    ("compact-after-floor", 10),
    ("compact-after-history", 10),
    ("compact-after-purge", 10),
    ("compact-after-step", 10),
    ("checkpoint-before-marker", 6),
    ("backup-block", 4),
    ("create-before-marker", 3),
    ("create-before-rename", 3),
];

/// Transaction number `n` of a seed: its operations.
fn operations(seed: u64, n: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut random = Random(seed ^ n.wrapping_mul(0x5851_f42d_4c95_7f2d));
    let mut operations: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
    // One key that every transaction writes makes sure that each takes a revision.
    operations.push((b"counter".to_vec(), Some(n.to_le_bytes().to_vec())));
    for _ in 0..random.below(4) {
        let key = format!("key/{}", random.below(40)).into_bytes();
        if operations.iter().any(|(other, _)| *other == key) {
            continue;
        }
        let value = match random.below(4) {
            0 => None,
            1 => Some(vec![n as u8; random.below(5000) as usize]),
            _ => Some(n.to_le_bytes().to_vec()),
        };
        operations.push((key, value));
    }
    operations
}

fn transaction(operations: &[(Vec<u8>, Option<Vec<u8>>)]) -> Transaction {
    operations.iter().fold(Transaction::new(), |transaction, (key, value)| match value {
        Some(value) => transaction.put(key.clone(), value.clone()),
        None => transaction.delete(key.clone()),
    })
}

fn options(dir: &Path) -> Options {
    // Small buffers, so that flushes and compactions are frequent.
    Options::new(dir).write_buffer_bytes(128 << 10).max_wal_bytes(512 << 10)
}

/// The child. Writes forever, several transactions in flight at once, compacts and copies now and then, and
/// prints `ack REVISION` and `floor REVISION`.
#[test]
#[ignore = "run by the other tests as a child process"]
fn child() {
    let Some(dir) = std::env::var_os("CRASH_DIR") else { return };
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("CRASH_SEED").unwrap();
    let dir = Path::new(&dir);
    if let Ok(point) = std::env::var("CRASH_POINT") {
        failpoint::set(&point, number("CRASH_NTH").unwrap(), failpoint::Action::Kill);
    }
    let engine = Engine::open(options(&dir.join("data"))).unwrap();
    let mut out = std::io::stdout();
    let mut random = Random(seed);
    loop {
        let latest = engine.current_revision().get();
        let under_way: Vec<_> = (latest + 1..=latest + 1 + random.below(20))
            .map(|n| engine.transact(transaction(&operations(seed, n))))
            .collect();
        for proposal in under_way {
            let revision = proposal.wait().unwrap().revision;
            writeln!(out, "ack {revision}").unwrap();
        }
        out.flush().unwrap();
        let latest = engine.current_revision();
        if random.below(8) == 0 {
            let floor = Revision::new(latest.get().saturating_sub(random.below(60)));
            engine.compact(floor).unwrap();
            writeln!(out, "floor {floor}").unwrap();
            out.flush().unwrap();
        }
        if random.below(30) == 0 {
            let copy = dir.join(format!("copy-{latest}"));
            engine.checkpoint(&copy).unwrap();
            writeln!(out, "copy {latest}").unwrap();
            out.flush().unwrap();
        }
        if random.below(30) == 0 {
            engine.backup(&mut std::io::sink(), |_| {}).unwrap();
        }
    }
}

fn spawn(dir: &Path, seed: u64, point: Option<(&str, u64)>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--ignored", "--nocapture", "--quiet"]);
    command.env("CRASH_DIR", dir).env("CRASH_SEED", seed.to_string());
    if let Some((point, nth)) = point {
        command.env("CRASH_POINT", point).env("CRASH_NTH", nth.to_string());
    }
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// What the child reported before it was killed.
#[derive(Default)]
struct ChildReport {
    acknowledged: u64,
    floor: u64,
    copy: Option<u64>,
}

/// Reads until the child is dead; kills it after `acks` acknowledgements when that is given.
fn listen(mut child: Child, acks: Option<u64>) -> ChildReport {
    let mut report = ChildReport::default();
    let mut heard = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        // The last line may be cut off by the kill.
        let Ok(line) = line else { break };
        let mut words = line.split(' ');
        let (Some(what), Some(number)) = (words.next(), words.next()) else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        match what {
            "ack" => {
                assert!(number > report.acknowledged, "revisions go forward");
                report.acknowledged = number;
                heard += 1;
                if acks.is_some_and(|acks| heard == acks) {
                    child.kill().unwrap();
                }
            }
            "floor" => report.floor = report.floor.max(number),
            "copy" => report.copy = Some(number),
            _ => {}
        }
    }
    let _ = child.kill();
    child.wait().unwrap();
    report
}

/// The model of transactions 1 to `latest` of a seed, with the states from `from` on.
fn model(seed: u64, from: u64, latest: u64) -> Model {
    let mut model = Model::default();
    for n in 1..=latest {
        assert_eq!(model.apply(&operations(seed, n)), n);
        if n > from {
            continue;
        }
        model.states[n as usize - 1].clear();
    }
    model
}

/// Opens what the child left and checks it; returns the latest revision and the floor.
fn check(dir: &Path, seed: u64, report: &ChildReport) -> (u64, u64) {
    if dir.join("db").exists() {
        assert_sound(dir);
    }
    let engine = Engine::open(options(dir)).unwrap();
    let (latest, floor) = (engine.current_revision().get(), engine.compacted_revision().get());
    assert!(latest >= report.acknowledged, "lost: {} acknowledged, {latest} there", report.acknowledged);
    assert!(floor >= report.floor, "a floor that was acknowledged stays");
    assert!(floor <= latest);
    let model = model(seed, floor, latest);
    let mut random = Random(seed ^ latest);
    let mut at = vec![floor, latest];
    at.extend((0..6).map(|_| floor + random.below(latest - floor + 1)));
    for at in at {
        let state = dump(&engine, &KeyRange::all(), At::Exact(Revision::new(at)));
        let expected = &model.states[at as usize];
        let differing: Vec<_> = expected
            .keys()
            .chain(state.keys())
            .filter(|key| expected.get(*key) != state.get(*key))
            .map(|key| {
                (
                    key.escape_ascii().to_string(),
                    expected.get(key).map(|v| v.modified),
                    state.get(key).map(|v| v.modified),
                )
            })
            .collect();
        assert!(
            differing.is_empty(),
            "state at {at} of {floor}..{latest}, key, expected, found: {differing:?}"
        );
    }
    assert!(replay(&engine, &KeyRange::all(), floor) == model.feed(&KeyRange::all(), floor));
    if floor > 0 {
        let below = engine.snapshot(At::Exact(Revision::new(floor - 1)));
        assert!(matches!(below, Err(Error::Compacted { .. })));
    }
    engine.wait_compacted().unwrap();
    let head_state = dump(&engine, &KeyRange::all(), At::Exact(Revision::new(floor)));
    assert!(head_state == model.states[floor as usize], "finishing the compaction changes nothing");
    (latest, floor)
}

/// Runs and kills a child, and checks the store; several times in the same directory.
fn lives(seed: u64, count: u64, mut next: impl FnMut(u64) -> (Option<u64>, Option<(String, u64)>)) {
    let dir = scratch();
    let mut random = Random(seed);
    for life in 0..count {
        let (acks, point) = next(life);
        let point = point.as_ref().map(|(name, nth)| (name.as_str(), *nth));
        let mut report = listen(spawn(dir.path(), seed, point), acks);
        if let Some(copy) = report.copy.take() {
            let copy = dir.path().join(format!("copy-{copy}"));
            if random.below(2) == 0 {
                // A finished checkpoint holds all that was acknowledged before it began.
                check(&copy, seed, &ChildReport { acknowledged: 0, floor: 0, copy: None });
            }
        }
        check(&dir.path().join("data"), seed, &report);
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().is_some_and(|name| name != "data") {
                std::fs::remove_dir_all(path).unwrap();
            }
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_at_random_kills() {
    let mut random = Random(1);
    let per_directory = 10;
    for seed in 0..scaled(RANDOM_KILLS).div_ceil(per_directory) {
        lives(seed, per_directory, |_| (Some(1 + random.below(120)), None));
    }
}

#[test]
fn nothing_acknowledged_is_lost_at_any_point() {
    let mut random = Random(2);
    for (seed, (point, kills)) in POINTS.iter().enumerate() {
        if point.starts_with("create") {
            for _ in 0..*kills {
                lives(1000 + seed as u64, 1, |_| (None, Some(((*point).to_owned(), 1))));
            }
            continue;
        }
        lives(1000 + seed as u64, scaled(*kills), |_| {
            let nth = 1 + random.below(if point.starts_with("write") { 40 } else { 4 });
            (None, Some(((*point).to_owned(), nth)))
        });
    }
}

/// A restore that is killed leaves a directory that is refused, and can be started again.
#[test]
fn a_killed_restore_is_refused_and_starts_again() {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path().join("from"))).unwrap();
    for n in 0..200u32 {
        engine.transact(Transaction::new().put(n.to_be_bytes().to_vec(), vec![1; 9000])).wait().unwrap();
    }
    let mut archive = Vec::new();
    engine.backup(&mut archive, |_| {}).unwrap();
    let before = dump(&engine, &KeyRange::all(), At::Latest);
    std::fs::write(dir.path().join("archive"), &archive).unwrap();
    let to = dir.path().join("to");
    let points = (1..=6).map(|nth| ("restore-block", nth)).chain([("restore-before-rename", 1)]);
    for (point, nth) in points {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "restoring_child", "--ignored", "--nocapture", "--quiet"]);
        command.env("CRASH_DIR", dir.path()).env("CRASH_NTH", nth.to_string()).env("CRASH_POINT", point);
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert!(!status.success(), "it was killed");
        assert!(matches!(Engine::open(Options::new(&to)), Err(Error::UnfinishedRestore { .. })));
    }
    restore(&mut archive.as_slice(), &to, Continuation::Same, |_| {}).unwrap();
    assert_sound(&to);
    let engine = Engine::open(Options::new(&to)).unwrap();
    assert_eq!(dump(&engine, &KeyRange::all(), At::Latest), before);
}

#[test]
#[ignore = "run by another test as a child process"]
fn restoring_child() {
    let Some(dir) = std::env::var_os("CRASH_DIR") else { return };
    let dir = Path::new(&dir);
    let nth = std::env::var("CRASH_NTH").unwrap().parse().unwrap();
    failpoint::set(&std::env::var("CRASH_POINT").unwrap(), nth, failpoint::Action::Kill);
    let archive = std::fs::read(dir.join("archive")).unwrap();
    restore(&mut archive.as_slice(), dir.join("to"), Continuation::Same, |_| {}).unwrap();
}
