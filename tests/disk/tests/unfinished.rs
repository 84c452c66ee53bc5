//! Processes that end or stall in the middle of making a data directory: a restore that is killed at any of
//! its system calls, and a first start that stalls while another one begins.
//!
//! `PLINTH_KILL_STRIDE=1` takes every call that opens or writes, N every Nth; of other kinds every call is
//! taken.

// Threads that wait for another process sleep.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use plinth_disk_tests::process::{scratch, Interposed};
use plinth_disk_tests::server::{create, list, run, Server, Started};

const OBJECTS: u64 = 3;
/// Of so many calls that open or write one is taken by default.
const STRIDE: usize = 7;
/// How long a process may take to reach the call at which it is held.
const PATIENCE: Duration = Duration::from_secs(60);

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Makes an archive with some objects.
async fn make_archive(root: &Path) -> String {
    fs::create_dir(root).unwrap();
    let mut server = match Server::start(root, None).await {
        Started::Ready(server) => server,
        Started::Ended(status, printed) => panic!("{status}: {printed}"),
    };
    let mut connection = server.admin().await;
    for n in 1..=OBJECTS {
        create(&mut connection, n).await.unwrap();
    }
    server.kill();
    let archive = text(&root.join("archive"));
    let (status, printed) = run(&["backup", "--data-dir", &text(&root.join("data")), "--to", &archive], None);
    assert!(status.success(), "{printed}");
    archive
}

/// What a start makes of the directory: refused as unfinished, or all objects.
async fn check_start(root: &Path, at: &str) -> &'static str {
    match Server::start(root, None).await {
        Started::Ended(status, printed) => {
            let refused = status.code() == Some(1) && printed.contains("did not finish");
            assert!(refused, "{at}: {status}: {printed}");
            "refused"
        }
        Started::Ready(server) => {
            let mut found = list(&mut server.admin().await).await.unwrap();
            found.sort_unstable();
            assert_eq!(found, (1..=OBJECTS).collect::<Vec<u64>>(), "{at}: an empty cluster");
            "complete"
        }
    }
}

#[tokio::test]
async fn a_restore_that_is_killed_anywhere_leaves_nothing_that_starts_empty() {
    let stride = std::env::var("PLINTH_KILL_STRIDE").ok().and_then(|n| n.parse().ok()).unwrap_or(STRIDE);
    let dir = scratch();
    let archive = make_archive(&dir.path().join("origin")).await;
    let (mut absent, mut refused, mut complete) = (0, 0, 0);
    for is_there in [false, true] {
        for kind in ["mkdir", "rename", "unlink", "link", "resize", "allocate", "open", "write"] {
            let stride = if matches!(kind, "open" | "write") { stride } else { 1 };
            for call in (1..).step_by(stride) {
                let at = format!("{kind} {call}, directory there: {is_there}");
                let root = dir.path().join("root");
                let (data, hit) = (root.join("data"), dir.path().join("hit"));
                fs::create_dir(&root).unwrap();
                if is_there {
                    fs::create_dir(&data).unwrap();
                }
                let interposed = Interposed::below(&root).error(kind, call as u64, 1, "KILL", &hit);
                let restore = ["restore", "--from", &archive, "--data-dir", &text(&data)];
                let (status, printed) = run(&restore, Some(&interposed));
                let is_hit = fs::remove_file(&hit).is_ok();
                assert_eq!(status.success(), !is_hit, "{at}: {status}: {printed}");
                let is_as_before = match is_there {
                    true => fs::read_dir(&data).unwrap().next().is_none(),
                    false => !data.exists(),
                };
                if is_as_before {
                    absent += 1;
                } else {
                    match check_start(&root, &at).await {
                        "refused" => refused += 1,
                        _ => complete += 1,
                    }
                }
                if is_hit && !data.join("store/db").exists() {
                    let (status, printed) = run(&restore, None);
                    assert!(status.success(), "{at}: once more: {status}: {printed}");
                    let (status, printed) = run(&["verify", "--data-dir", &text(&data)], None);
                    assert!(status.success(), "{at}: {status}: {printed}");
                }
                fs::remove_dir_all(&root).unwrap();
                if !is_hit {
                    break;
                }
            }
        }
    }
    assert!(absent > 0 && refused > 0 && complete > 0);
    println!("killed restores: {absent} as before, {refused} refused, {complete} complete");
}

#[tokio::test]
async fn a_first_start_that_stalls_does_not_undo_what_another_one_does() {
    let dir = scratch();
    for (kind, call) in [("mkdir", 1), ("open", 2), ("rename", 1), ("rename", 2)] {
        let root = dir.path().join(format!("{kind}{call}"));
        fs::create_dir(&root).unwrap();
        let hit = dir.path().join("hit");
        let held = Interposed::below(&root).error(kind, call, 1, "HOLD", &hit);
        let mut stalled = Server::spawn(&root, Some(&held));
        let deadline = Instant::now() + PATIENCE;
        while !hit.exists() {
            assert!(Instant::now() < deadline, "{kind} {call} is reached: {}", stalled.printed());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Ready when the other one held nothing yet, else refused.
        let second = Server::start(&root, None).await;
        fs::remove_file(&hit).unwrap();
        match second {
            Started::Ended(status, printed) => {
                assert_eq!(status.code(), Some(1), "{kind} {call}: {printed}");
                assert!(printed.contains("in use by another process"), "{kind} {call}: {printed}");
                let ready =
                    || fs::read_to_string(root.join("data/plinth")).is_ok_and(|t| t.lines().count() == 1);
                while !ready() {
                    assert!(stalled.ended().is_none() && Instant::now() < deadline, "{}", stalled.printed());
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            Started::Ready(mut second) => {
                let status = stalled.wait(PATIENCE).expect("the second one has the directory");
                assert_eq!(status.code(), Some(1), "{kind} {call}: {}", stalled.printed());
                second.kill();
            }
        }
        stalled.kill();
        let marker = fs::read_to_string(root.join("data/plinth")).unwrap();
        assert_eq!(marker.lines().count(), 1, "{kind} {call}: the first start was complete: {marker}");
    }
}
