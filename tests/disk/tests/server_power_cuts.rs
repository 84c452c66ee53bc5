//! Power is cut at every point of the first start of the server, of writes through its API, of a kill and the
//! start after it, of `plinth backup` and `plinth restore`. Each state is started, with the credentials that
//! clients were given before the cut, and must hold what had been acknowledged.
//!
//! `PLINTH_POWER_STRIDE=1` takes every point, N every Nth. `PLINTH_POWER_WRITES` is the number of writes in
//! each of two lives.

// No lock here outlives a panic that matters: the test fails with it. Threads that wait for another process
// sleep.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::path::Path;

use plinth_disk_tests::campaign::{Campaign, Found, Requirement};
use plinth_disk_tests::disk::Disk;
use plinth_disk_tests::process::{scratch, Interposed};
use plinth_disk_tests::server::{create, list, run, Server, Started};
use plinth_disk_tests::trace::{self, Event, Marks};

/// Of so many points one is taken by default.
const STRIDE: u64 = 10;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Records two lives of a server, a backup and a restore.
async fn record(root: &Path, trace: &Path, writes: u64) {
    let interposed = Interposed::below(root).trace(trace);
    let mut marks = Marks::open(trace).unwrap();
    let mut n = 0;
    for life in 0..2 {
        let mut server = match Server::start(root, Some(&interposed)).await {
            Started::Ready(server) => server,
            Started::Ended(status, printed) => panic!("{status}: {printed}"),
        };
        marks.add("ready", &[]).unwrap();
        if life == 0 {
            std::fs::copy(root.join("data/admin.kubeconfig"), root.with_extension("first")).unwrap();
        }
        let mut connection = server.admin().await;
        for _ in 0..writes {
            n += 1;
            create(&mut connection, n).await.unwrap();
            marks.add(&format!("ack {n}"), &[]).unwrap();
        }
        server.kill();
    }
    let (data, archive, restored) = (root.join("data"), root.join("archive"), root.join("restored"));
    let [data, archive, restored] = [data, archive, restored].map(|path| path.to_string_lossy().into_owned());
    let (status, printed) = run(&["backup", "--data-dir", &data, "--to", &archive], Some(&interposed));
    assert!(status.success(), "{printed}");
    marks.add("archived", &[]).unwrap();
    let (status, printed) = run(&["restore", "--from", &archive, "--data-dir", &restored], Some(&interposed));
    assert!(status.success(), "{printed}");
    marks.add("restored", &[]).unwrap();
}

fn block_on<T>(future: impl std::future::Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// What the writes before the first missing one are, when nothing but a write under way is behind them.
fn prefix(mut found: Vec<u64>) -> Result<u64, String> {
    found.sort_unstable();
    let whole = found.iter().zip(1..).take_while(|(found, expected)| **found == *expected).count();
    match found.len() - whole {
        0 => Ok(whole as u64),
        _ => Err(format!("a write is missing before others: {found:?}")),
    }
}

/// Starts a server on the directory, with credentials of the first start when there are some.
async fn check_server(dir: &Path, credentials: Option<&Path>) -> Result<Found, String> {
    let root = dir.with_extension("checked");
    std::fs::create_dir(&root).unwrap();
    std::fs::rename(dir, root.join("data")).unwrap();
    let mut server = match Server::start(&root, None).await {
        Started::Ready(server) => server,
        Started::Ended(status, printed) => {
            // After warnings, such as those of the modes that the states have.
            let refused = status.code() == Some(1) && printed.lines().any(|line| line.starts_with("error:"));
            return Err(format!("{}: {}", if refused { "open" } else { "crash" }, printed.trim()));
        }
    };
    let own = root.join("data/admin.kubeconfig");
    let mut connection = server.connect(credentials.unwrap_or(&own)).await.ok_or("no connection")?;
    let found = list(&mut connection).await.map_err(|error| format!("list: {error}"))?;
    let latest = prefix(found)?;
    server.kill();
    let data = root.join("data").to_string_lossy().into_owned();
    let (status, printed) = run(&["verify", "--data-dir", &data], None);
    if !status.success() {
        return Err(format!("verify: {printed}"));
    }
    Ok(Found { latest, floor: 0 })
}

/// Restores an archive and starts a server on it.
fn check_archive(dir: &Path) -> Result<Found, String> {
    let restored = dir.with_extension("restored");
    let [archive, to] =
        [dir.join("archive"), restored.clone()].map(|path| path.to_string_lossy().into_owned());
    let (status, printed) = run(&["restore", "--from", &archive, "--data-dir", &to], None);
    if !status.success() {
        return Err(format!("open: {}", printed.trim()));
    }
    block_on(check_server(&restored, None))
}

#[test]
fn a_power_cut_at_any_point_of_the_server_loses_nothing_acknowledged() {
    let stride = variable("PLINTH_POWER_STRIDE", STRIDE);
    let dir = scratch();
    let root = dir.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let trace = dir.path().join("trace");
    let writes = variable("PLINTH_POWER_WRITES", 4);
    block_on(record(&root, &trace, writes));
    let events = trace::read(&trace).unwrap();
    let credentials = root.with_extension("first");

    let check = |part: &str, dir: &Path| match part {
        "archive" => check_archive(dir),
        "data, first start" | "restored" => block_on(check_server(dir, None)),
        _ => block_on(check_server(dir, Some(&credentials))),
    };
    let campaign = Campaign::new("power cuts of the server", &check);
    let mut disk = Disk::default();
    let (mut ready, mut acknowledged, mut archived, mut restored) = (false, 0, false, false);
    campaign.run(|states| {
        let mut number = 0;
        for event in &events {
            if let Event::Mark { name, .. } = event {
                ready |= name == "ready";
                archived |= name == "archived";
                restored |= name == "restored";
                acknowledged = name.strip_prefix("ack ").and_then(|n| n.parse().ok()).unwrap_or(acknowledged);
            }
            if !disk.apply(event) {
                continue;
            }
            number += 1;
            if number % stride != 0 {
                continue;
            }
            states.point(&disk, |image, submit| {
                let required = Requirement::opens(acknowledged, 0);
                let or_refused = Requirement::opens_or_refuses(acknowledged);
                if restored {
                    submit("restored", image.below("restored"), required);
                } else if image.has("restored") && !image.below("restored").is_empty() {
                    submit("restored", image.below("restored"), or_refused);
                } else if archived || image.has("archive") {
                    submit("archive", image.only("archive"), required);
                } else if ready {
                    submit("data", image.below("data"), required);
                } else {
                    submit("data, first start", image.below("data"), or_refused);
                }
            });
        }
        disk.image_now().assert_same(&root);
    });
    println!("{} calls, {} writes", events.len(), writes * 2);
}
