//! Replicas that begin from a checkpoint again: of another replica, or in a directory. Kills in the middle of
//! it are in the end-to-end tests, with processes.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hyper::Method;
use plinth_benches::api::client::{Call, Connection};
use plinth_journal::simulated::SimulatedJournal;
use plinth_journal::{Error as JournalError, Journal, Position};
use plinth_server::cli::{runtime, JoinOptions, Running};

use super::replicas::{connect, create, get, json, replicas, serve, try_join, try_serve, MAPS};

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a replica has noted where the others are.
async fn knows_others(dir: &Path) {
    let path = dir.join("peers");
    until("the others are noted", || std::fs::read_to_string(&path).is_ok_and(|text| !text.is_empty())).await;
}

/// Writes something, and trims the journal behind it.
async fn trim_behind(client: &mut Connection, journal: &SimulatedJournal, name: &str) {
    for n in 0..4 {
        assert_eq!(create(client, &format!("{name}-{n}")).await.status, 201);
    }
    let journal = journal.client(99);
    let end = journal.end().unwrap();
    journal.trim(end).unwrap();
    assert!(matches!(journal.read(Position::new(1)), Err(JournalError::Trimmed { .. })));
}

fn names(dir: &Path, prefix: &str) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.starts_with(prefix));
    names.sort();
    names
}

#[test]
fn a_replica_that_was_away_for_long_takes_a_checkpoint_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("2");
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(30);
        let [first, mut second]: [Running; 2] = replicas(dir.path(), &journal).await;
        let mut a = connect(&first).await;
        let identity = std::fs::read(own.join("replica")).unwrap();
        for round in 0..2 {
            let before = format!("before-{round}");
            assert_eq!(create(&mut connect(&second).await, &before).await.status, 201);
            knows_others(&own).await;
            second.stop().await.unwrap();
            trim_behind(&mut a, &journal, &format!("meanwhile-{round}")).await;
            if round == 1 {
                // Addresses that nobody has any more are passed over.
                let stale = ["127.0.0.1:1", "[::1]:1"].map(|address| format!("{address}\n")).concat();
                let known = std::fs::read_to_string(own.join("peers")).unwrap();
                std::fs::write(own.join("peers"), stale + &known).unwrap();
            }
            second = serve(&own, &journal, 2).await;
            let mut b = connect(&second).await;
            for name in [before, format!("meanwhile-{round}-0"), format!("meanwhile-{round}-3")] {
                assert_eq!(get(&mut b, &format!("{MAPS}/{name}")).await.status, 200, "{name}");
            }
            // It is the replica that it was, and takes part.
            assert_eq!(std::fs::read(own.join("replica")).unwrap(), identity);
            assert_eq!(create(&mut b, &format!("after-{round}")).await.status, 201);
            assert_eq!(get(&mut a, &format!("{MAPS}/after-{round}")).await.status, 200);
            // The old store is kept, whole, and there is one of it.
            assert_eq!(names(&own, "store"), ["store", "store.replaced"]);
            let report = plinth_engine::verify(own.join("store.replaced"), |_| {}, |_| {}).unwrap();
            assert_eq!(report.findings, 0);
            // In the other one's audit log and rights it is an administrator of its own name; here, that
            // nothing of its keys has changed.
            for key in ["pki/ca.key", "continue.key"] {
                let [ours, theirs] = ["2", "1"].map(|n| std::fs::read(dir.path().join(n).join(key)).unwrap());
                assert_eq!(ours, theirs, "{key}");
            }
        }
        first.stop().await.unwrap();
        second.stop().await.unwrap();
    });
}

#[test]
fn without_a_checkpoint_the_store_stays() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("2");
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(31);
        let [first, second]: [Running; 2] = replicas(dir.path(), &journal).await;
        knows_others(&own).await;
        second.stop().await.unwrap();
        trim_behind(&mut connect(&first).await, &journal, "meanwhile").await;
        first.stop().await.unwrap();
        let before = std::fs::metadata(own.join("store")).unwrap();
        // The other one is down, then a server of another cluster is in its place, then nobody is known.
        let refused = try_serve(&own, &journal, 2, &[]).await.err().unwrap().to_string();
        assert!(refused.contains("away for longer") && refused.contains("cannot reach"), "{refused}");
        assert!(refused.contains("keep the data directory: it may have what others lack"), "{refused}");
        let other = plinth_server::cli::start(super::replicas::options(&dir.path().join("other"), &[]))
            .await
            .unwrap();
        std::fs::write(own.join("peers"), format!("{}\n", other.address())).unwrap();
        let refused = try_serve(&own, &journal, 2, &[]).await.err().unwrap().to_string();
        assert!(refused.contains("tls"), "{refused}");
        other.stop().await.unwrap();
        std::fs::remove_file(own.join("peers")).unwrap();
        let refused = try_serve(&own, &journal, 2, &[]).await.err().unwrap().to_string();
        assert!(refused.contains("no other replica is known"), "{refused}");
        assert_eq!(names(&own, "store"), ["store"]);
        use std::os::unix::fs::MetadataExt;
        assert_eq!(std::fs::metadata(own.join("store")).unwrap().ino(), before.ino());
        let report = plinth_engine::verify(own.join("store"), |_| {}, |_| {}).unwrap();
        assert_eq!(report.findings, 0);
    });
}

fn checkpoints(dir: &Path) -> Vec<PathBuf> {
    names(dir, "plinth-")
        .into_iter()
        .filter(|name| name.ends_with(".checkpoint"))
        .map(|n| dir.join(n))
        .collect()
}

#[test]
fn no_checkpoint_is_written_behind_a_stop() {
    let dir = tempfile::tempdir().unwrap();
    let (kept, own) = (dir.path().join("checkpoints"), dir.path().join("1"));
    std::fs::create_dir(&kept).unwrap();
    let journal = SimulatedJournal::new(33);
    for round in 0..4 {
        let runtime = runtime().unwrap();
        let files = runtime.block_on(async {
            let flags = ["--checkpoint-dir", kept.to_str().unwrap(), "--checkpoint-interval", "1ms"];
            let first = try_serve(&own, &journal, 1, &flags).await.unwrap();
            let mut client = connect(&first).await;
            let newest = checkpoints(&kept).pop();
            let mut n = 0;
            while checkpoints(&kept).pop() == newest {
                assert_eq!(create(&mut client, &format!("step-{round}-{n}")).await.status, 201);
                n += 1;
            }
            first.stop().await.unwrap();
            names(&kept, "")
        });
        // This waits for all that is at work.
        drop(runtime);
        assert_eq!(names(&kept, ""), files);
    }
}

/// A checkpoint that was renamed is of the cluster that is in it.
async fn refuses_a_renamed_checkpoint(checkpoint: &Path, data_dir: &Path) {
    let renamed = tempfile::tempdir().unwrap();
    let of_other = format!("plinth-{}-{:020}.checkpoint", "1".repeat(32), 7);
    std::fs::copy(checkpoint, renamed.path().join(of_other)).unwrap();
    let checkpoint_dir = Some(renamed.path().to_owned().into());
    let options = JoinOptions { data_dir: data_dir.to_owned(), checkpoint_dir, ..JoinOptions::default() };
    let refused = try_join(options).await.unwrap_err().to_string();
    assert!(refused.contains("not of the one in its name") && !data_dir.exists(), "{refused}");
}

#[test]
fn replicas_begin_from_checkpoints_in_a_directory_while_no_other_runs() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let kept = at("checkpoints");
    std::fs::create_dir(&kept).unwrap();
    // What a killed writer has left, and what is somebody else's.
    std::fs::write(kept.join("notes"), "mine").unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(32);
        let flags = ["--checkpoint-dir", kept.to_str().unwrap(), "--checkpoint-interval", "200ms"];
        let first = try_serve(&at("1"), &journal, 1, &flags).await.unwrap();
        let mut a = connect(&first).await;
        assert_eq!(create(&mut a, "in-all").await.status, 201);
        // A third one is written while there are two, so the first is gone.
        until("one is written", || !checkpoints(&kept).is_empty()).await;
        let oldest = checkpoints(&kept)[0].clone();
        let mut n = 0;
        while oldest.exists() {
            assert_eq!(create(&mut a, &format!("step-{n}")).await.status, 201);
            n += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(n < 1000);
        }
        assert!(checkpoints(&kept).len() <= 3 && kept.join("notes").exists());
        for checkpoint in checkpoints(&kept) {
            assert_eq!(std::fs::metadata(checkpoint).unwrap().permissions().mode() & 0o777, 0o600);
        }
        // The journal is kept for them: a key says so, which the trimming goes by.
        assert_eq!(create(&mut a, "last").await.status, 201);
        first.stop().await.unwrap();
        let whole = checkpoints(&kept);
        assert!((1..=3).contains(&whole.len()) && names(&kept, ".").is_empty(), "{whole:?}");

        // Nobody runs. Another machine joins, and has everything.
        let join = |name: &str| {
            let (data_dir, checkpoint_dir) = (at(name), Some(kept.clone().into()));
            try_join(JoinOptions { data_dir, checkpoint_dir, ..JoinOptions::default() })
        };
        join("2").await.unwrap();
        let second = try_serve(&at("2"), &journal, 2, &flags).await.unwrap();
        let mut b = connect(&second).await;
        for name in ["in-all", "step-0", "last"] {
            assert_eq!(get(&mut b, &format!("{MAPS}/{name}")).await.status, 200, "{name}");
        }
        // The first one is away for long, and is back when the second one is gone in its turn.
        let end = checkpoints(&kept).pop().unwrap();
        until("a newer one is written", || checkpoints(&kept).pop().unwrap() != end).await;
        assert_eq!(create(&mut b, "meanwhile").await.status, 201);
        second.stop().await.unwrap();
        let newest = checkpoints(&kept).pop().unwrap();
        let position: u64 =
            newest.file_stem().unwrap().to_str().unwrap().rsplit('-').next().unwrap().parse().unwrap();
        journal.client(9).trim(Position::new(position + 1)).unwrap();
        std::fs::remove_file(at("1").join("peers")).ok();
        let first = try_serve(&at("1"), &journal, 1, &flags).await.unwrap();
        assert_eq!(get(&mut connect(&first).await, &format!("{MAPS}/meanwhile")).await.status, 200);
        assert!(at("1/store.replaced").is_dir());
        first.stop().await.unwrap();

        refuses_a_renamed_checkpoint(&newest, &at("3")).await;
        // A damaged one is not begun from: the join leaves nothing, and a start the store that was there.
        for checkpoint in checkpoints(&kept) {
            let mut bytes = std::fs::read(&checkpoint).unwrap();
            let at = bytes.windows(7).position(|w| w == b"in-all\"").unwrap_or(bytes.len() / 2);
            bytes[at] ^= 0x20;
            std::fs::write(&checkpoint, bytes).unwrap();
        }
        let refused = join("3").await.unwrap_err().to_string();
        assert!(refused.contains("error") || refused.contains("checkpoint"), "{refused}");
        assert!(!at("3").exists() && !at("3.joining").exists());
        // Two clusters in one directory, none, and no directory.
        let foreign = newest.with_file_name(format!("plinth-{}-{:020}.checkpoint", "0".repeat(32), 7));
        std::fs::write(&foreign, "x").unwrap();
        assert!(join("3").await.unwrap_err().to_string().contains("several clusters"));
        for checkpoint in checkpoints(&kept) {
            std::fs::remove_file(checkpoint).unwrap();
        }
        assert!(join("3").await.unwrap_err().to_string().contains("holds no checkpoint"));
        std::fs::remove_dir_all(&kept).unwrap();
        assert!(join("3").await.unwrap_err().to_string().contains("--checkpoint-dir"));
        // A single server has none to write.
        let refused = plinth_server::cli::start(super::replicas::options(&at("single"), &flags)).await;
        assert!(refused.err().unwrap().to_string().contains("--checkpoint-dir is for replicas"));
        assert!(!at("single").exists());
    });
}

fn position_of(checkpoint: &Path) -> u64 {
    checkpoint.file_stem().unwrap().to_str().unwrap().rsplit('-').next().unwrap().parse().unwrap()
}

fn at_position(checkpoint: &Path, position: u64) -> PathBuf {
    let name = checkpoint.file_stem().unwrap().to_str().unwrap();
    let cluster = name.rsplit_once('-').unwrap().0;
    checkpoint.with_file_name(format!("{cluster}-{position:020}.checkpoint"))
}

/// A checkpoint that lies after the end of the journal is of another history: it takes no place among those
/// that stay, and nobody begins from it, also when the journal is longer.
#[test]
fn a_checkpoint_after_the_end_of_the_journal_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let kept = at("checkpoints");
    std::fs::create_dir(&kept).unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(35);
        let flags = ["--checkpoint-dir", kept.to_str().unwrap(), "--checkpoint-interval", "200ms"];
        let first = try_serve(&at("1"), &journal, 1, &flags).await.unwrap();
        let mut a = connect(&first).await;
        until("one is written", || !checkpoints(&kept).is_empty()).await;
        let written = checkpoints(&kept).pop().unwrap();
        let others = [900_000, 900_001].map(|position| at_position(&written, position));
        for other in &others {
            std::fs::copy(&written, other).unwrap();
        }
        // Both are marked, and new ones are written and stay beside them.
        let mark = |path: &PathBuf| path.with_extension("checkpoint.other-history");
        until("they are marked", || others.iter().all(|other| mark(other).exists())).await;
        assert_eq!(create(&mut a, "after").await.status, 201);
        let end = journal.client(9).end().unwrap().get();
        until("a newer one stays", || {
            checkpoints(&kept).iter().map(|path| position_of(path)).any(|at| (end..900_000).contains(&at))
        })
        .await;
        first.stop().await.unwrap();
        assert!(others.iter().all(|other| other.exists()), "nothing is removed that is not its own");
        let (data_dir, checkpoint_dir) = (at("2"), Some(kept.clone().into()));
        try_join(JoinOptions { data_dir, checkpoint_dir, ..JoinOptions::default() }).await.unwrap();
        let second = serve(&at("2"), &journal, 2).await;
        assert_eq!(get(&mut connect(&second).await, &format!("{MAPS}/after")).await.status, 200);
        second.stop().await.unwrap();
        // Where there is no other one, nothing is begun from.
        for checkpoint in checkpoints(&kept) {
            if !others.contains(&checkpoint) {
                std::fs::remove_file(checkpoint).unwrap();
            }
        }
        let (data_dir, checkpoint_dir) = (at("3"), Some(kept.clone().into()));
        let refused = try_join(JoinOptions { data_dir, checkpoint_dir, ..JoinOptions::default() }).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("only checkpoints of another history"), "{refused}");
    });
}

/// A checkpoint that the journal does not go back to either is passed over, and the next one is taken.
#[test]
fn a_replica_that_was_away_passes_over_a_checkpoint_that_is_too_old() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let kept = at("checkpoints");
    std::fs::create_dir(&kept).unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(36);
        let flags = ["--checkpoint-dir", kept.to_str().unwrap(), "--checkpoint-interval", "200ms"];
        let first = try_serve(&at("1"), &journal, 1, &flags).await.unwrap();
        until("one is written", || !checkpoints(&kept).is_empty()).await;
        let old = at("old");
        std::fs::copy(checkpoints(&kept).pop().unwrap(), &old).unwrap();
        super::replicas::join_at(&first, at("2")).await;
        let mut a = connect(&first).await;
        for n in 0..8 {
            assert_eq!(create(&mut a, &format!("meanwhile-{n}")).await.status, 201);
        }
        let end = journal.client(9).end().unwrap().get();
        until("a newer one is written", || {
            checkpoints(&kept).last().is_some_and(|newest| position_of(newest) >= end)
        })
        .await;
        first.stop().await.unwrap();
        let good = checkpoints(&kept).pop().unwrap();
        // What its name says is not what it has.
        let end = journal.client(9).end().unwrap();
        assert!(position_of(&good) < end.get());
        std::fs::copy(&old, at_position(&good, end.get())).unwrap();
        journal.client(9).trim(Position::new(position_of(&good) + 1)).unwrap();
        std::fs::remove_file(at("2").join("peers")).ok();
        let second = try_serve(&at("2"), &journal, 2, &flags).await.unwrap();
        assert_eq!(get(&mut connect(&second).await, &format!("{MAPS}/meanwhile-7")).await.status, 200);
        assert!(at("2/store.replaced").is_dir());
        second.stop().await.unwrap();
    });
}

/// The members of the journal were put back to an old copy, and the others went on without what was lost.
#[test]
fn a_store_that_alone_has_what_was_acknowledged_is_not_replaced() {
    is_not_replaced(false);
}

/// The same, where the copy has an earlier session of the replica.
#[test]
fn nor_is_one_that_was_started_again_before() {
    is_not_replaced(true);
}

fn is_not_replaced(starts_again: bool) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(35);
        let [mut first, second]: [Running; 2] = replicas(dir.path(), &journal).await;
        knows_others(&at("1")).await;
        let address = second.address();
        second.stop().await.unwrap();
        let copied = journal.client(9).end().unwrap();
        if starts_again {
            first.stop().await.unwrap();
            first = serve(&at("1"), &journal, 1).await;
        }
        let mut a = connect(&first).await;
        for n in 0..3 {
            assert_eq!(create(&mut a, &format!("acknowledged-{n}")).await.status, 201);
        }
        first.stop().await.unwrap();
        journal.truncate(copied);
        let second = serve(&at("2"), &journal, 2).await;
        let mut b = connect(&second).await;
        for n in 0..20 {
            assert_eq!(create(&mut b, &format!("later-{n}")).await.status, 201);
        }
        let refused = try_serve(&at("1"), &journal, 1, &[]).await.err().unwrap().to_string();
        assert!(refused.contains("another one than was applied"), "{refused}");
        // Once that record is trimmed, only a checkpoint would do.
        trim_behind(&mut b, &journal, "trimmed").await;
        std::fs::write(at("1/peers"), format!("{address}\n{}\n", second.address())).unwrap();
        for _ in 0..2 {
            let refused = try_serve(&at("1"), &journal, 1, &[]).await.err().unwrap().to_string();
            assert!(refused.contains("may alone have what was acknowledged"), "{refused}");
            assert!(!at("1/store.replaced").exists() && at("1/store").is_dir());
        }
        second.stop().await.unwrap();
        let lost = plinth_engine::applied_records(at("1/store")).unwrap().unwrap();
        assert!(lost.position() > copied, "it is there");
    });
}

#[test]
fn a_journal_is_kept_for_a_replica_that_has_joined_and_not_started() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(33);
        let first = serve(&dir.path().join("1"), &journal, 1).await;
        let mut a = connect(&first).await;
        let (kubeconfig, data_dir) = (Some(first.kubeconfig().to_owned()), dir.path().join("2"));
        try_join(JoinOptions { kubeconfig, data_dir: data_dir.clone(), ..JoinOptions::default() })
            .await
            .unwrap();
        let joined_at = journal.client(9).end().unwrap();
        // The only replica that runs goes on, and trims the journal behind itself as often as it may.
        let applied =
            |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()[0]["position"].as_u64();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            assert_eq!(create(&mut a, &format!("map-{}", uuid())).await.status, 201);
            let listed = get(&mut a, "/plinth/replicas").await.text();
            if applied(&listed) > Some(joined_at.get() + 1) {
                break;
            }
            assert!(Instant::now() < deadline, "{listed}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // One more round, so that it has trimmed by what it recorded.
        let listed = get(&mut a, "/plinth/replicas").await;
        let renewed = json(&listed)[0]["renewedMs"].as_u64();
        while json(&get(&mut a, "/plinth/replicas").await)[0]["renewedMs"].as_u64() == renewed {
            assert!(Instant::now() < deadline);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let second = serve(&data_dir, &journal, 2).await;
        assert!(!data_dir.join("store.replaced").exists(), "its checkpoint was still good");
        let all = json(&get(&mut connect(&second).await, MAPS).await);
        let here = json(&get(&mut a, MAPS).await);
        assert_eq!(all["items"].as_array().unwrap().len(), here["items"].as_array().unwrap().len());
        first.stop().await.unwrap();
        second.stop().await.unwrap();
    });
}

fn uuid() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// The Lease of an API server is there while it runs.
#[test]
fn servers_show_themselves_by_leases() {
    let dir = tempfile::tempdir().unwrap();
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let of = |reply: &plinth_benches::api::client::Reply| {
        json(reply)["items"].as_array().cloned().unwrap_or_default()
    };
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(34);
        let [first, second]: [Running; 2] = replicas(dir.path(), &journal).await;
        let mut a = connect(&first).await;
        let selected = format!("{LEASES}?labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver");
        let deadline = Instant::now() + Duration::from_secs(60);
        let leases = loop {
            let found = of(&get(&mut a, &selected).await);
            if found.len() == 2 {
                break found;
            }
            assert!(Instant::now() < deadline, "{found:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        for lease in &leases {
            let name = lease["metadata"]["name"].as_str().unwrap();
            assert!(name.starts_with("apiserver-") && name.len() == 36, "{name}");
            assert_eq!(lease["metadata"]["labels"]["kubernetes.io/hostname"], host.trim());
            assert_eq!(lease["spec"]["leaseDurationSeconds"], 3600);
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap();
            assert!(holder.starts_with(&format!("{name}_")) && holder.len() == 36 + 1 + 36, "{holder}");
        }
        // They are renewed, and one that is stale is removed when its time is over.
        let renewed = |leases: &[serde_json::Value]| -> Vec<String> {
            leases.iter().map(|lease| lease["spec"]["renewTime"].to_string()).collect()
        };
        let before = renewed(&leases);
        loop {
            let now = renewed(&of(&get(&mut a, &selected).await));
            if now.iter().zip(&before).all(|(now, before)| now > before) {
                break;
            }
            assert!(Instant::now() < deadline, "{now:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for (name, renew, label) in [
            ("apiserver-stale", "2020-01-01T00:00:00.000000Z", "kube-apiserver"),
            ("someone-elses", "2020-01-01T00:00:00.000000Z", "other"),
        ] {
            let body = serde_json::json!({ "metadata": { "name": name,
                "labels": { "apiserver.kubernetes.io/identity": label } },
                "spec": { "holderIdentity": "x", "leaseDurationSeconds": 3600, "renewTime": renew } });
            a.must(&Call::new(Method::POST, LEASES).body("application/json", body.to_string()))
                .await
                .unwrap();
        }
        // One that stops takes its own along, and the next start collects what is stale.
        second.stop().await.unwrap();
        let second = serve(&dir.path().join("2"), &journal, 2).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let all = get(&mut a, LEASES).await.text();
            if !all.contains("apiserver-stale") && of(&get(&mut a, &selected).await).len() == 2 {
                assert!(all.contains("someone-elses"));
                break;
            }
            assert!(Instant::now() < deadline, "{all}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        second.stop().await.unwrap();
        assert_eq!(of(&get(&mut a, &selected).await).len(), 1);
        first.stop().await.unwrap();
    });
}
