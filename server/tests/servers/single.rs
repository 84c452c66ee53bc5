//! A single server becomes the first replica of a cluster, and a replica a single server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_benches::api::client::Protocol;
use plinth_benches::api::kubeconfig;
use plinth_journal::simulated::SimulatedJournal;
use plinth_server::cli::{replicate, runtime, start, undo_replication, ReplicateOptions, Running};

use crate::replicas::{connect, create, get, json, options, replicas, serve, try_serve, MAPS};

#[test]
fn a_single_server_becomes_the_first_replica_and_a_backup_a_single_one() {
    let dir = tempfile::tempdir().unwrap();
    let data = |name: &str| dir.path().join(name);
    runtime().unwrap().block_on(async {
        let single = start(options(&data("1"), &[])).await.unwrap();
        let mut client = connect(&single).await;
        let created = json(&create(&mut client, "of-the-single-one").await);
        let watched = created["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        // While it runs it stays what it is.
        assert!(replicate(ReplicateOptions { data_dir: data("1"), ..ReplicateOptions::default() }).is_err());
        single.stop().await.unwrap();
        for _ in 0..2 {
            replicate(ReplicateOptions { data_dir: data("1"), ..ReplicateOptions::default() }).unwrap();
        }
        let journal = SimulatedJournal::new(9);
        let [first, second]: [Running; 2] = replicas(dir.path(), &journal).await;
        let (mut a, mut b) = (connect(&first).await, connect(&second).await);
        assert_eq!(create(&mut a, "of-the-first-replica").await.status, 201);
        // The revisions go on: a watch of before is continued, at another replica.
        let watch = format!("{MAPS}?watch=true&resourceVersion={watched}&timeoutSeconds=1");
        let events = get(&mut b, &watch).await.text();
        assert!(events.contains("of-the-first-replica") && !events.contains("of-the-single-one"), "{events}");
        assert_eq!(get(&mut b, &format!("{MAPS}/of-the-single-one")).await.status, 200);
        first.stop().await.unwrap();
        second.stop().await.unwrap();
    });
    // The data directory of a stopped replica is backed up, and restores as a single server.
    let archive = data("archive");
    let plinth = |arguments: &[&str]| {
        let cli = <plinth_server::cli::Cli as clap::Parser>::try_parse_from(arguments).unwrap();
        plinth_server::cli::run(cli).unwrap();
    };
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    plinth(&["plinth", "backup", "--data-dir", &path(&data("2")), "--to", &path(&archive)]);
    plinth(&["plinth", "verify", "--data-dir", &path(&data("2"))]);
    plinth(&["plinth", "restore", "--from", &path(&archive), "--data-dir", &path(&data("restored"))]);
    runtime().unwrap().block_on(async {
        let single = start(options(&data("restored"), &[])).await.unwrap();
        let found = get(&mut connect(&single).await, &format!("{MAPS}/of-the-first-replica")).await;
        assert_eq!(found.status, 200);
        single.stop().await.unwrap();
    });
}

#[test]
fn a_replica_becomes_a_single_server_with_everything_that_is_in_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let data = |name: &str| dir.path().join(name);
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(13);
        let undo_of = |name: &str, client: u16| {
            let (journal, path) = (Arc::new(journal.client(client)), data(name));
            tokio::task::spawn_blocking(move || undo_replication(path, Box::new(move |_, _| Ok(journal))))
        };
        let undo = |client: u16| undo_of("2", client);
        let [first, second]: [Running; 2] = replicas(dir.path(), &journal).await;
        assert_eq!(create(&mut connect(&second).await, "of-both").await.status, 201);
        assert!(undo(2).await.unwrap().unwrap_err().to_string().contains("in use"), "while it runs");
        second.stop().await.unwrap();
        // What the other one writes meanwhile is in the journal alone.
        let created = json(&create(&mut connect(&first).await, "of-the-first").await);
        let revision: u64 = created["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let refused = undo(2).await.unwrap().unwrap_err().to_string();
        assert!(refused.contains("is up"), "{refused}");
        first.stop().await.unwrap();
        journal.set_reachable(2, false);
        let refused = start(options(&data("2"), &[])).await.err().unwrap().to_string();
        assert!(refused.contains("--journal"), "it is still a replica: {refused}");
        journal.set_reachable(2, true);
        undo(2).await.unwrap().unwrap();
        let refused = undo(2).await.unwrap().unwrap_err().to_string();
        assert!(refused.contains("single server already"), "{refused}");

        // The other one does not start again, the first time by the record that closes the journal.
        let appended = journal.records().len();
        let deadline = Instant::now() + Duration::from_secs(60);
        let refused = loop {
            match try_serve(&data("1"), &journal, 1, &[]).await {
                Ok(running) => {
                    let failure = running.failed().await.to_string();
                    assert!(failure.contains("was closed"), "{failure}");
                    running.stop().await.unwrap_err();
                }
                // At the record that closes it, some write of the start may fail first.
                Err(error) if error.to_string().contains("make a backup") => break error.to_string(),
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        };
        assert!(refused.contains("was closed") && refused.contains("is a single server since"), "{refused}");
        assert!(refused.contains("make a backup"), "{refused}");
        let refused = undo_of("1", 1).await.unwrap().unwrap_err().to_string();
        assert!(refused.contains("has closed the journal"), "{refused}");

        let appended = appended.max(journal.records().len());
        let single = start(options(&data("2"), &[])).await.unwrap();
        let mut client = connect(&single).await;
        for name in ["of-both", "of-the-first"] {
            assert_eq!(get(&mut client, &format!("{MAPS}/{name}")).await.status, 200, "{name}");
        }
        // The revisions go on, for watches, too; the keys are the same.
        let watch = format!("{MAPS}?watch=true&resourceVersion={revision}&timeoutSeconds=1");
        assert_eq!(create(&mut client, "of-the-single-one").await.status, 201);
        let events = get(&mut client, &watch).await;
        assert!(events.status == 200 && events.text().contains("of-the-single-one"), "{}", events.text());
        let admin = kubeconfig::endpoint(first_kubeconfig(dir.path()).as_path()).unwrap();
        let ca = std::fs::read(data("2").join("pki/ca.crt")).unwrap();
        let address = single.address().to_string();
        let over_name = plinth_benches::api::client::Endpoint::new(&address, &ca, admin.identity().clone());
        let mut over_name = over_name.unwrap().connect(Protocol::Http1).await.unwrap();
        assert_eq!(get(&mut over_name, MAPS).await.status, 200);
        assert_eq!(get(&mut client, "/plinth/replicas").await.status, 404);
        single.stop().await.unwrap();
        assert_eq!(journal.records().len(), appended, "it follows no journal");
        // And it can become the first replica of another cluster.
        replicate(ReplicateOptions { data_dir: data("2"), ..ReplicateOptions::default() }).unwrap();
        let journal = SimulatedJournal::new(14);
        let again = serve(&data("2"), &journal, 1).await;
        let listed = get(&mut connect(&again).await, "/plinth/replicas").await;
        assert!(json(&listed).as_array().unwrap().len() <= 1, "{}", listed.text());
        again.stop().await.unwrap();
    });
}

fn first_kubeconfig(dir: &Path) -> PathBuf {
    dir.join("1/admin.kubeconfig")
}

/// As the command does it: outside of any runtime. Another replica has not stopped by itself: it runs, or was
/// killed, which looks the same until it is seen not to renew its record.
#[test]
fn a_replica_becomes_a_single_server_beside_one_that_did_not_stop() {
    let dir = tempfile::tempdir().unwrap();
    let data = |name: &str| dir.path().join(name);
    let runtime = runtime().unwrap();
    let journal = SimulatedJournal::new(15);
    let undo = || {
        let journal = Arc::new(journal.client(2));
        undo_replication(data("2"), Box::new(move |_, _| Ok(journal)))
    };
    let [first, second]: [Running; 2] = runtime.block_on(replicas(dir.path(), &journal));
    runtime.block_on(second.stop()).unwrap();
    let refused = undo().unwrap_err().to_string();
    assert!(refused.contains("is up"), "{refused}");
    // Killed: nothing of it reaches the journal any more.
    journal.set_reachable(1, false);
    undo().unwrap();
    drop(runtime.block_on(first.stop()));
    runtime.block_on(async {
        let single = start(options(&data("2"), &[])).await.unwrap();
        assert_eq!(create(&mut connect(&single).await, "of-the-single-one").await.status, 201);
        single.stop().await.unwrap();
    });
}

/// Replicas of the cluster that a backup is of are none of the one that begins with it.
#[test]
fn a_new_cluster_does_not_list_the_replicas_of_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let data = |name: &str| dir.path().join(name);
    let path = |path: PathBuf| path.to_str().unwrap().to_owned();
    let plinth = |arguments: &[&str]| {
        let cli = <plinth_server::cli::Cli as clap::Parser>::try_parse_from(arguments).unwrap();
        plinth_server::cli::run(cli).unwrap();
    };
    let runtime = runtime().unwrap();
    let journal = SimulatedJournal::new(16);
    let [first, second]: [Running; 2] = runtime.block_on(replicas(dir.path(), &journal));
    runtime.block_on(first.stop()).unwrap();
    runtime.block_on(second.stop()).unwrap();
    let archive = path(data("archive"));
    plinth(&["plinth", "backup", "--data-dir", &path(data("2")), "--to", &archive]);
    plinth(&["plinth", "restore", "--from", &archive, "--data-dir", &path(data("3"))]);
    std::fs::write(data("3/peers"), "127.0.0.1:1\n").unwrap();
    replicate(ReplicateOptions { data_dir: data("3"), ..ReplicateOptions::default() }).unwrap();
    assert!(!data("3/peers").exists());
    let journal = SimulatedJournal::new(17);
    runtime.block_on(async {
        let third = serve(&data("3"), &journal, 3).await;
        let listed = get(&mut connect(&third).await, "/plinth/replicas").await;
        assert!(json(&listed).as_array().unwrap().len() <= 1, "{}", listed.text());
        third.stop().await.unwrap();
    });
}
