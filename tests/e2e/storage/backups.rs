//! Backups and restores, also ones that fail.

use std::fs;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams, WatchEvent};
use plinth_tests::server::{launch, start_ready, TestServer, BARE_NAMESPACES};
use serde_json::json;
use tempfile::TempDir;

use super::{
    assert_stale, config_maps, copy, copy_of_populated, files, populated, run, start, start_on_copy,
};

/// A stopped server with objects, and a directory that holds the `archive` of its store.
async fn populated_with_archive() -> (TestServer, TempDir) {
    let server = populated().await;
    let root = TempDir::new().expect("directory");
    let (data, archive) = (server.data(), root.path().join("archive"));
    let (data, archive) = (data.to_str().expect("text"), archive.to_str().expect("text"));
    let (done, text) = run(&["backup", "--data-dir", data, "--to", archive]);
    assert!(done, "{text}");
    (server, root)
}

#[tokio::test]
async fn a_restore_that_failed_does_not_become_an_empty_cluster() {
    let (_, root) = populated_with_archive().await;
    let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
    let archive = fs::read(at("archive")).expect("archive");
    for cut in [0, 100, archive.len() / 2, archive.len() - 1] {
        fs::write(at("cut"), &archive[..cut]).expect("write");
        let (done, text) = run(&["restore", "--from", &at("cut"), "--data-dir", &at("data")]);
        assert!(!done && text.contains("Run plinth restore again with the same --data-dir"), "{text}");
        let refusal = start(root.path()).await.expect_err("a half restored directory");
        assert!(refusal.contains("did not finish") && refusal.contains("plinth restore"), "{refusal}");
        // `plinth verify` reports the same.
        let (done, text) = run(&["verify", "--data-dir", &at("data")]);
        assert!(!done && text.contains("did not finish"), "{text}");
    }
    let (done, text) = run(&["restore", "--from", &at("archive"), "--data-dir", &at("data")]);
    assert!(done, "{text}");
    start(root.path()).await.expect("the restored cluster, with certificates of its own");
    // From now on they belong to it.
    fs::remove_file(root.path().join("data/pki/ca.key")).expect("remove");
    let refusal = start(root.path()).await.expect_err("a lost key");
    assert!(refusal.contains("ca.key"), "{refusal}");
}

/// The volume of the store was not mounted while a backup was restored: once it is mounted again, nothing is
/// restored over it.
#[tokio::test]
async fn a_store_that_comes_back_after_a_restore_that_failed_is_left_alone() {
    let (root, data, path) = copy_of_populated().await;
    let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
    let (done, text) = run(&["backup", "--data-dir", &path, "--to", &at("archive")]);
    assert!(done, "{text}");
    let archive = fs::read(at("archive")).expect("archive");
    fs::write(at("cut"), &archive[..archive.len() / 2]).expect("write");
    let store = data.join("store");
    fs::rename(&store, at("away")).expect("unmounted");
    fs::create_dir(&store).expect("the mount point");
    let (done, text) = run(&["restore", "--from", &at("cut"), "--data-dir", &path]);
    assert!(!done, "{text}");
    fs::remove_dir_all(&store).expect("what the restore has left");
    fs::rename(at("away"), &store).expect("mounted");

    let before = files(&data);
    let refusal = start(root.path()).await.expect_err("the mark of the restore");
    assert!(refusal.contains("plinth.restoring") && refusal.contains("remove the file"), "{refusal}");
    for command in [
        &["verify"][..],
        &["repair"],
        &["repair", "--yes"],
        &["restore", "--from", &at("cut")],
        &["restore", "--from", &at("archive")],
    ] {
        let (done, text) = run(&[command, &["--data-dir", &path]].concat());
        assert!(!done && text.contains("remove the file"), "{command:?}: {text}");
    }
    assert_eq!(files(&data), before);
    fs::remove_file(data.join("plinth.restoring")).expect("the mark");
    start(root.path()).await.expect("the store that came back");
}

#[tokio::test]
async fn a_restored_directory_takes_the_keys_that_are_put_there() {
    let (server, root) = populated_with_archive().await;
    let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
    let (done, text) = run(&["restore", "--from", &at("archive"), "--data-dir", &at("data")]);
    assert!(done, "{text}");
    let pki = root.path().join("data/pki");
    copy(&server.data().join("pki"), &pki);
    fs::rename(pki.join("sa.key"), root.path().join("sa.key")).expect("rename");
    let refusal = start(root.path()).await.expect_err("a part of the keys");
    assert!(refusal.contains("sa.key"), "{refusal}");
    fs::rename(root.path().join("sa.key"), pki.join("sa.key")).expect("rename");
    start(root.path()).await.expect("the restored cluster");
    for name in ["ca.crt", "ca.key", "sa.key"] {
        let same = fs::read(pki.join(name)).ok() == fs::read(server.data().join("pki").join(name)).ok();
        assert!(same, "{name}");
    }
}

/// Each writes a file of its own, and one of them gets the name.
#[tokio::test(flavor = "multi_thread")]
async fn backups_at_once_to_one_path_leave_one_whole_archive() {
    let server = populated().await;
    let root = TempDir::new().expect("directory");
    start_on_copy(&server, root.path(), |kubeconfig| {
        let archive = root.path().join("archive");
        let to = archive.to_str().expect("text");
        let backups: Vec<_> = (0..4)
            .map(|_| {
                let mut command = launch().command(["backup", "--kubeconfig", kubeconfig, "--to", to]);
                command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
                command.spawn().expect("plinth runs")
            })
            .collect();
        let outputs = backups.into_iter().map(|backup| backup.wait_with_output().expect("output"));
        let failed: Vec<_> = outputs.filter(|output| !output.status.success()).collect();
        assert_eq!(failed.len(), 3);
        for output in failed {
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(text.contains("exists already"), "{text}");
        }
        let left: Vec<_> = fs::read_dir(root.path()).expect("directory").flatten().collect();
        let left = left.iter().filter(|entry| entry.file_name().to_string_lossy().contains("unfinished"));
        assert_eq!(left.count(), 0);
        let restored = root.path().join("restored");
        let (done, text) = run(&["restore", "--from", to, "--data-dir", restored.to_str().expect("text")]);
        assert!(done, "{text}");
    })
    .await;
}

#[tokio::test]
async fn clients_that_watched_the_server_of_a_backup_list_again() {
    let server = TestServer::start(&[BARE_NAMESPACES]).await;
    let root = TempDir::new().expect("directory");
    let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
    let kubeconfig = server.data().join("admin.kubeconfig");
    let api = config_maps(&kubeconfig).await;
    let create = async |api: &Api<ConfigMap>, name: &str| {
        let object = serde_json::from_value(json!({"metadata": {"name": name}})).expect("an object");
        let created = api.create(&PostParams::default(), &object).await.expect("create");
        created.metadata.resource_version.expect("version")
    };
    let before = create(&api, "before").await;
    let text = kubeconfig.to_string_lossy().into_owned();
    let (done, text) = run(&["backup", "--kubeconfig", &text, "--to", &at("archive")]);
    assert!(done, "{text}");
    let after = create(&api, "after").await;
    let (done, text) = run(&["restore", "--from", &at("archive"), "--data-dir", &at("data")]);
    assert!(done, "{text}");
    let restored = start_ready(&launch(), root.path(), &[BARE_NAMESPACES]).await;
    let api = config_maps(&restored.kubeconfig()).await;
    for held in [&before, &after] {
        assert_stale(&api, held).await;
    }
    let listed = api.list(&ListParams::default()).await.expect("list");
    let names: Vec<_> = listed.items.iter().filter_map(|object| object.metadata.name.as_deref()).collect();
    assert!(names.contains(&"before") && !names.contains(&"after"), "{names:?}");
    let version = listed.metadata.resource_version.expect("version");
    let mut events = Box::pin(api.watch(&Default::default(), &version).await.expect("watch"));
    let new = create(&api, "new").await;
    assert!(new.parse::<u64>().expect("number") > after.parse().expect("number"), "{new} is given out again");
    let event = events.next().await.expect("event").expect("event");
    assert!(matches!(event, WatchEvent::Added(object) if object.metadata.resource_version == Some(new)));
}
