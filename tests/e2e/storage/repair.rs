//! `plinth repair` of a damaged store.

use std::fs;
use std::path::{Path, PathBuf};

use kube::api::ListParams;
use plinth_tests::server::{launch, start_ready, BARE_NAMESPACES};

use super::{assert_stale, config_maps, copy_of_populated, files, run, start, OBJECTS};

#[tokio::test]
async fn a_repair_opens_what_was_refused_and_keeps_what_it_dropped() {
    let (root, data, path) = copy_of_populated().await;
    let (done, text) = run(&["repair", "--data-dir", &path]);
    assert!(done && text.contains("nothing to repair"), "{text}");
    for lost in ["pki/ca.key", "pki/sa.key", "plinth"] {
        fs::remove_file(data.join(lost)).expect("remove");
    }
    // A bit in the middle of the log, whose end is sound.
    let logs =
        files(&data.join("store/db")).into_iter().filter(|file| file.extension().is_some_and(|e| e == "log"));
    let log = logs
        .map(|file| data.join("store/db").join(file))
        .max_by_key(|file| file.metadata().expect("file").len());
    let log = log.expect("a log");
    let mut bytes = fs::read(&log).expect("log");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&log, &bytes).expect("write");
    start(root.path()).await.expect_err("damage");

    let before = files(&data);
    let (done, text) = run(&["repair", "--data-dir", &path]);
    assert!(!done && text.contains("--yes") && text.contains("ca.key") && text.contains("dropped"), "{text}");
    let left = files(&data);
    assert!(before.is_subset(&left) && fs::read(&log).expect("log") == bytes, "nothing was changed");
    let (done, text) = run(&["repair", "--data-dir", &path, "--yes"]);
    assert!(done && text.contains("is kept in"), "{text}");
    let (done, text) = run(&["verify", "--data-dir", &path]);
    assert!(done, "{text}");
    let kept = files(&data)
        .into_iter()
        .find(|file| file.to_string_lossy().contains("repair-") && file.file_name() == log.file_name());
    assert_eq!(fs::read(data.join(kept.expect("the old log"))).expect("log"), bytes);

    let repaired = start_ready(&launch(), root.path(), &[BARE_NAMESPACES]).await;
    let api = config_maps(&repaired.kubeconfig()).await;
    let listed = api.list(&ListParams::default()).await.expect("list");
    assert!(listed.items.len() >= OBJECTS / 2, "what was in tables is there");
    // A watch from a version before the repair gets 410.
    let stale =
        listed.items.first().and_then(|object| object.metadata.resource_version.clone()).expect("version");
    assert_stale(&api, &stale).await;
}

/// A table of the newest versions of objects whose content has `text`, and where.
fn table_with(data: &Path, text: &str) -> (PathBuf, usize) {
    /// Name of the column family, among the properties of its tables.
    const FAMILY: &str = "current";
    let store = data.join("store/db");
    let place = |bytes: &[u8], text: &str| bytes.windows(text.len()).position(|part| part == text.as_bytes());
    let tables = files(&store).into_iter().filter(|file| file.extension().is_some_and(|e| e == "sst"));
    let found = tables.map(|file| store.join(file)).find_map(|table| {
        let bytes = fs::read(&table).expect("table");
        place(&bytes, FAMILY)?;
        Some((table, place(&bytes, text)?))
    });
    found.unwrap_or_else(|| panic!("no table has {text}"))
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).expect("file");
    bytes[at] ^= 0x10;
    fs::write(file, bytes).expect("write");
}

#[tokio::test]
async fn a_repair_steps_over_a_damaged_block_of_a_table() {
    let (root, data, path) = copy_of_populated().await;
    // An object that was written by the server that was stopped.
    let (table, at) = table_with(&data, "configmaps/default/kept-");
    flip(&table, at);
    let (done, text) = run(&["verify", "--data-dir", &path]);
    assert!(!done, "{text}");
    let (done, text) = run(&["repair", "--data-dir", &path]);
    assert!(!done && text.contains("cannot be read as a whole") && text.contains("--yes"), "{text}");
    let (done, text) = run(&["repair", "--data-dir", &path, "--yes"]);
    assert!(done, "{text}");
    let (done, text) = run(&["verify", "--data-dir", &path]);
    assert!(done, "{text}");
    let repaired = start_ready(&launch(), root.path(), &[BARE_NAMESPACES]).await;
    let listed = config_maps(&repaired.kubeconfig()).await.list(&ListParams::default()).await.expect("list");
    let names: Vec<_> = listed.items.iter().filter_map(|object| object.metadata.name.as_deref()).collect();
    // The block has those that were written by the first server; the second one's are in another table, or in
    // a log.
    for index in OBJECTS / 2..OBJECTS {
        assert!(names.contains(&&*format!("kept-{index}")), "{index}: {names:?}");
    }
}

/// RocksDB cannot open a database with such a table: what the other tables have stays, and the output says
/// what that means.
#[tokio::test]
async fn a_repair_leaves_out_a_table_that_cannot_be_opened() {
    let (root, data, path) = copy_of_populated().await;
    let (table, at) = table_with(&data, "rocksdb.block.based.table");
    flip(&table, at);
    let (done, text) = run(&["repair", "--data-dir", &path]);
    assert!(!done && text.contains("left out") && text.contains("--yes"), "{text}");
    let (done, text) = run(&["repair", "--data-dir", &path, "--yes"]);
    assert!(done && text.contains("is kept in"), "{text}");
    let (done, text) = run(&["verify", "--data-dir", &path]);
    assert!(done, "{text}");
    let _repaired = start_ready(&launch(), root.path(), &[BARE_NAMESPACES]).await;
}

/// Without tables and logs there is nothing to repair: the message must not recommend the repair that has
/// just failed.
#[tokio::test]
async fn a_repair_that_cannot_succeed_reports_it() {
    let (_root, data, path) = copy_of_populated().await;
    for file in files(&data.join("store/db")) {
        let name = file.to_string_lossy().into_owned();
        if [".sst", ".log"].iter().any(|end| name.ends_with(end))
            || name.starts_with("MANIFEST")
            || name == "CURRENT"
        {
            fs::remove_file(data.join("store/db").join(file)).expect("remove");
        }
    }
    let before = files(&data);
    for options in [&["--yes"][..], &[]] {
        let (done, text) = run(&[&["repair", "--data-dir", &path], options].concat());
        assert!(!done && text.contains("cannot be repaired") && text.contains("Restore a backup"), "{text}");
        assert!(!text.contains("plinth repair"), "it does not lead back to itself: {text}");
        let left: Vec<_> = files(&data).difference(&before).cloned().collect();
        assert!(left.iter().all(|file| file.ends_with("LOCK")), "{left:?}");
    }
}
