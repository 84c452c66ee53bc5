//! Each file of a populated data directory absent, empty, cut short or unreadable in turn: the start is refused with a
//! message that names it, or the store is complete. Never is a server ready and empty, and nothing is removed.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams, WatchEvent};
use plinth_benches::api::server::READY_WITHIN;
use plinth_tests::server::{launch, TestServer, BARE_NAMESPACES};
use serde_json::json;
use tempfile::TempDir;

/// Objects that were acknowledged.
const OBJECTS: usize = 30;

/// What happens to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Removed,
    Empty,
    Cut,
    /// A look at it fails, and not with "not found": a link to itself.
    Unreadable,
    Directory,
}

const LOSSES: [Loss; 5] = [Loss::Removed, Loss::Empty, Loss::Cut, Loss::Unreadable, Loss::Directory];

/// A directory in which a server was stopped once and killed once, with the objects in tables and in a log.
async fn populated() -> TestServer {
    let mut server = TestServer::start(&[BARE_NAMESPACES]).await;
    let mut last = 0;
    for half in [0..OBJECTS / 2, OBJECTS / 2..OBJECTS] {
        let api: Api<ConfigMap> = Api::default_namespaced(server.client().await);
        for index in half {
            let object =
                json!({"metadata": {"name": format!("kept-{index}")}, "data": {"index": index.to_string()}});
            let object = serde_json::from_value(object).expect("an object");
            let created = api.create(&PostParams::default(), &object).await.expect("create");
            last =
                created.metadata.resource_version.and_then(|version| version.parse().ok()).expect("version");
        }
        if server.log_tail(100).matches("is ready").count() == 1 {
            server.terminate().await;
            server.restart().await;
        }
    }
    wait_for_watermark(&server, last).await;
    server.kill();
    server
}

/// A copy of its data: in `data` below a directory of its own, and the path of that as an argument.
async fn copy_of_populated() -> (TempDir, PathBuf, String) {
    let server = populated().await;
    let root = TempDir::new().expect("directory");
    let data = root.path().join("data");
    copy(&server.data(), &data);
    let path = data.to_string_lossy().into_owned();
    (root, data, path)
}

/// Waits until the store has noted that `revision` is durable: from then on its loss is found whatever is lost.
async fn wait_for_watermark(server: &TestServer, revision: u64) {
    /// The file has two slots of a page each, with the revision in the same place.
    const PLACES: [usize; 2] = [32, 4096 + 32];
    for _ in 0..1200 {
        let bytes = fs::read(server.data().join("store/WATERMARK")).expect("watermark");
        let noted =
            PLACES.iter().filter_map(|at| Some(u64::from_le_bytes(bytes.get(*at..at + 8)?.try_into().ok()?)));
        if noted.max().is_some_and(|noted| noted >= revision) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("revision {revision} was not noted as durable");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("directory");
    for entry in fs::read_dir(from).expect("directory") {
        let entry = entry.expect("entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("type").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("copy")),
        }
    }
}

/// The paths of all files below `dir`, relative to it.
fn files(dir: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).expect("directory") {
            let entry = entry.expect("entry");
            match entry.file_type().expect("type").is_dir() {
                true => open.push(entry.path()),
                false => drop(found.insert(entry.path().strip_prefix(dir).expect("below").to_path_buf())),
            }
        }
    }
    found
}

fn inflict(path: &Path, loss: Loss) {
    let content = fs::read(path).expect("file");
    match loss {
        Loss::Empty => fs::write(path, "").expect("write"),
        Loss::Cut => fs::write(path, &content[..content.len() / 2]).expect("write"),
        Loss::Removed | Loss::Unreadable | Loss::Directory => fs::remove_file(path).expect("remove"),
    }
    match loss {
        Loss::Unreadable => symlink(path.file_name().expect("name"), path).expect("link"),
        Loss::Directory => fs::create_dir(path).expect("directory"),
        _ => {}
    }
}

/// The config maps of namespace `default`, for whom a kubeconfig names.
async fn config_maps(kubeconfig: &Path) -> Api<ConfigMap> {
    let access = kube::config::Kubeconfig::read_from(kubeconfig).expect("kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(access, &Default::default()).await.expect("config");
    Api::default_namespaced(kube::Client::try_from(config).expect("client"))
}

/// Starts a server on `root/data`: the text of its refusal, or none when it is ready and everything is there.
async fn start(root: &Path) -> Result<(), String> {
    let mut server = launch().start(root, &[BARE_NAMESPACES]).await.expect("start");
    server.ready(READY_WITHIN).await.map_err(|error| error.to_string())?;
    let listed = config_maps(&server.kubeconfig()).await.list(&ListParams::default()).await.expect("list");
    let kept = listed.into_iter().filter(|object| {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let index = object.data.as_ref().and_then(|data| data.get("index"));
        name.strip_prefix("kept-").is_some_and(|number| index.is_some_and(|index| index == number))
    });
    assert_eq!(kept.count(), OBJECTS, "ready, and not everything is there");
    Ok(())
}

/// Whether a start needs the file as it is. What is not listed is made again, or is of no consequence.
fn is_needed(path: &str, loss: Loss) -> Option<bool> {
    match path {
        "plinth" | "store/PLINTH" | "pki/ca.crt" | "pki/ca.key" | "pki/sa.key" => Some(true),
        "continue.key" => Some(loss != Loss::Removed),
        path if path.ends_with(".sst") => Some(true),
        path if path.ends_with("/CURRENT") || path.contains("/MANIFEST-") => Some(true),
        // Half of it may hold all that was noted as durable.
        path if path.ends_with(".log") && loss == Loss::Cut => None,
        path if path.ends_with(".log") => Some(true),
        "store/WATERMARK" if loss == Loss::Removed => Some(false),
        // Half of it is one of its two slots.
        "store/WATERMARK" if loss == Loss::Cut => None,
        "store/WATERMARK" => Some(true),
        "admin.kubeconfig" => Some(loss == Loss::Directory),
        _ => None,
    }
}

#[tokio::test]
async fn a_lost_file_is_a_refusal_and_never_an_empty_cluster() {
    let server = populated().await;
    let data = server.data();
    let cases: Vec<(PathBuf, Loss)> =
        files(&data).into_iter().flat_map(|path| LOSSES.map(|loss| (path.clone(), loss))).collect();
    assert!(cases.len() > 60, "{cases:?}");
    let data = &data;
    let outcomes = futures::stream::iter(cases).map(|(path, loss)| async move {
        let name = path.to_string_lossy().into_owned();
        let root = TempDir::new().expect("directory");
        let copied = root.path().join("data");
        copy(data, &copied);
        inflict(&copied.join(&path), loss);
        let before = files(&copied);
        let refusal = start(root.path()).await.err();
        if let Some(expected) = is_needed(&name, loss) {
            assert_eq!(refusal.is_some(), expected, "{name} {loss:?}: {refusal:?}");
        }
        let Some(refusal) = refusal else { return };
        let file = path.file_name().expect("name").to_string_lossy();
        // RocksDB writes of its tables and logs by number.
        let stem = file.split('.').next().unwrap_or_default().trim_start_matches('0');
        let lost_commits = refusal.contains("has lost commits");
        assert!(refusal.contains(stem) || lost_commits, "{name} {loss:?} is not named: {refusal}");
        assert!(refusal.contains("error: ") && !refusal.contains("panicked"), "{name} {loss:?}: {refusal}");
        // These are found when the store is open already, which gives it new files.
        if lost_commits || name == "admin.kubeconfig" || name.starts_with("pki/a") {
            return;
        }
        // RocksDB's own text log and list of options are written by every attempt.
        let matters = |path: &PathBuf| {
            let name = path.to_string_lossy();
            !name.contains("db/LOG") && !name.contains("db/OPTIONS") && !name.ends_with("LOCK")
        };
        let gone: Vec<_> = before.difference(&files(&copied)).filter(|path| matters(path)).cloned().collect();
        assert_eq!(gone, Vec::<PathBuf>::new(), "{name} {loss:?}: removed");
    });
    outcomes.buffer_unordered(4).collect::<Vec<()>>().await;
}

/// Runs a command to its end: whether it succeeded, and what it wrote.
fn run(arguments: &[&str]) -> (bool, String) {
    let output = launch().command(arguments).output().expect("plinth runs");
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (output.status.success(), text)
}

#[tokio::test]
async fn lost_directories_and_copies_without_the_marker_are_refused() {
    let server = populated().await;
    for (lost, named) in [("store", "store"), ("pki", "ca.crt"), ("store/db", "db"), ("plinth", "plinth")] {
        let root = TempDir::new().expect("directory");
        let data = root.path().join("data");
        copy(&server.data(), &data);
        let path = data.join(lost);
        match path.is_dir() {
            true => fs::remove_dir_all(&path).expect("remove"),
            false => fs::remove_file(&path).expect("remove"),
        }
        let before = files(&data);
        let refusal = start(root.path()).await.expect_err(lost);
        assert!(refusal.contains(named) && refusal.contains("error: "), "{lost}: {refusal}");
        assert_eq!(files(&data), before, "{lost}");
        assert!(refusal.lines().count() >= 3, "what to do is said, too: {refusal}");
    }
}

#[tokio::test]
async fn a_restore_that_failed_does_not_become_an_empty_cluster() {
    let server = populated().await;
    let root = TempDir::new().expect("directory");
    let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
    let original = server.data().to_string_lossy().into_owned();
    let (done, text) = run(&["backup", "--data-dir", &original, "--to", &at("archive")]);
    assert!(done, "{text}");
    let archive = fs::read(at("archive")).expect("archive");
    for cut in [0, 100, archive.len() / 2, archive.len() - 1] {
        fs::write(at("cut"), &archive[..cut]).expect("write");
        let (done, text) = run(&["restore", "--from", &at("cut"), "--data-dir", &at("data")]);
        assert!(!done, "{text}");
        let refusal = start(root.path()).await.expect_err("a half restored directory");
        assert!(refusal.contains("did not finish") && refusal.contains("plinth restore"), "{refusal}");
        // Whoever tries to verify it is told the same.
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

/// The volume of the store was not there while a backup was restored: when it comes back, nothing is restored over it.
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
    let server = populated().await;
    let root = TempDir::new().expect("directory");
    let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
    let original = server.data().to_string_lossy().into_owned();
    let (done, text) = run(&["backup", "--data-dir", &original, "--to", &at("archive")]);
    assert!(done, "{text}");
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

#[tokio::test]
async fn a_damaged_key_of_continue_tokens_is_reported_and_repaired() {
    let (root, data, path) = copy_of_populated().await;
    fs::write(data.join("continue.key"), "").expect("write");
    let refusal = start(root.path()).await.expect_err("damage");
    assert!(refusal.contains("continue.key is damaged"), "{refusal}");
    let (done, text) = run(&["verify", "--data-dir", &path]);
    assert!(!done && text.contains("continue.key is damaged"), "{text}");
    let (done, text) = run(&["repair", "--data-dir", &path]);
    assert!(!done && text.contains("continue.key is damaged") && text.contains("--yes"), "{text}");
    let (done, text) = run(&["repair", "--data-dir", &path, "--yes"]);
    assert!(done, "{text}");
    start(root.path()).await.expect("a new key");
    let (done, text) = run(&["verify", "--data-dir", &path]);
    assert!(done, "{text}");
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

/// Runs a server on a copy of another one's data while `with` does something with its kubeconfig.
async fn start_on_copy(server: &TestServer, root: &Path, with: impl FnOnce(&str)) {
    copy(&server.data(), &root.join("data"));
    let mut copied = launch().start(root, &[BARE_NAMESPACES]).await.expect("start");
    copied.ready(READY_WITHIN).await.expect("ready");
    let kubeconfig = copied.kubeconfig();
    tokio::task::block_in_place(|| with(kubeconfig.to_str().expect("text")));
}

/// The tag around a certificate is not signed: no reader but the one of TLS minds it.
#[tokio::test]
async fn damage_around_a_certificate_is_reported_and_repaired() {
    let (root, data, path) = copy_of_populated().await;
    let (done, text) = run(&["verify", "--data-dir", &path]);
    assert!(done, "{text}");
    let certificate = data.join("pki/ca.crt");
    let sound = fs::read_to_string(&certificate).expect("certificate");
    assert_eq!(sound.matches("-----\nMII").count(), 1, "{sound}");
    fs::write(&certificate, sound.replace("-----\nMII", "-----\nsII")).expect("write");
    let (done, text) = run(&["verify", "--data-dir", &path]);
    assert!(!done && text.contains("ca.crt: its encoding is not canonical DER"), "{text}");
    let (done, text) = run(&["repair", "--data-dir", &path]);
    assert!(!done && text.contains("pki/ca.key") && text.contains("--yes"), "{text}");
    let (done, text) = run(&["repair", "--data-dir", &path, "--yes"]);
    assert!(done, "{text}");
    start(root.path()).await.expect("a new authority");
    let (done, text) = run(&["verify", "--data-dir", &path]);
    assert!(done, "{text}");
    assert_ne!(fs::read_to_string(&certificate).expect("certificate"), sound);
}

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

    let mut repaired = launch().start(root.path(), &[BARE_NAMESPACES]).await.expect("start");
    repaired.ready(READY_WITHIN).await.expect("ready");
    let api = config_maps(&repaired.kubeconfig()).await;
    let listed = api.list(&ListParams::default()).await.expect("list");
    assert!(listed.items.len() >= OBJECTS / 2, "what was in tables is there");
    // A watch from a version of before is told that it has to list again.
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
    let mut repaired = launch().start(root.path(), &[BARE_NAMESPACES]).await.expect("start");
    repaired.ready(READY_WITHIN).await.expect("ready");
    let listed = config_maps(&repaired.kubeconfig()).await.list(&ListParams::default()).await.expect("list");
    let names: Vec<_> = listed.items.iter().filter_map(|object| object.metadata.name.as_deref()).collect();
    // The block has those that were written by the first server; the second one's are in another table, or in a log.
    for index in OBJECTS / 2..OBJECTS {
        assert!(names.contains(&&*format!("kept-{index}")), "{index}: {names:?}");
    }
}

/// RocksDB cannot open a database with such a table: what the other tables have stays, and the output says what that means.
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
    let mut repaired = launch().start(root.path(), &[BARE_NAMESPACES]).await.expect("start");
    repaired.ready(READY_WITHIN).await.expect("ready");
}

/// Without tables and logs there is nothing to repair: nothing leads back to the repair that has just failed.
#[tokio::test]
async fn who_cannot_repair_says_so() {
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

/// A container may have no directory for temporary files, and a start after a power cut has to ask the MANIFEST.
#[tokio::test]
async fn a_start_after_a_power_cut_needs_no_directory_for_temporary_files() {
    let (root, data, path) = copy_of_populated().await;
    let database = data.join("store/db");
    let name = fs::read_to_string(database.join("CURRENT")).expect("CURRENT");
    let manifest = database.join(name.trim_end());
    let torn = fs::File::options().append(true).open(&manifest).and_then(|mut file| file.write_all(b"end"));
    torn.expect("a torn end");
    // A start that was killed has left its view.
    let view = data.join("store/db.viewing");
    fs::create_dir(&view).expect("directory");
    fs::write(view.join("CURRENT"), "").expect("write");

    let absent = root.path().join("absent");
    let before = files(&data);
    for command in ["verify", "repair"] {
        let mut command = launch().command([command, "--data-dir", &path]);
        let output = command.env("TMPDIR", &absent).output().expect("plinth runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains("set TMPDIR"), "{text}");
        assert_eq!(files(&data), before);
    }
    let mut server =
        launch().env("TMPDIR", &absent).start(root.path(), &[BARE_NAMESPACES]).await.expect("start");
    server.ready(READY_WITHIN).await.expect("ready");
    let listed = config_maps(&server.kubeconfig()).await.list(&ListParams::default()).await.expect("list");
    assert!(listed.items.len() >= OBJECTS);
    assert!(server.log().tail(100).contains("dropped the end"), "of the MANIFEST");
    assert!(!view.exists() && !absent.exists());
}

#[tokio::test]
async fn who_watched_the_server_of_a_backup_lists_again() {
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
    let mut restored = launch().start(root.path(), &[BARE_NAMESPACES]).await.expect("start");
    restored.ready(READY_WITHIN).await.expect("ready");
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

/// Makes sure that a watch from this version has to list again.
async fn assert_stale(api: &Api<ConfigMap>, version: &str) {
    let first = match api.watch(&Default::default(), version).await {
        Ok(events) => Box::pin(events).next().await.map(|event| format!("{event:?}")),
        Err(error) => Some(format!("{error:?}")),
    };
    assert!(first.as_ref().is_some_and(|first| first.contains("410")), "{version}: {first:?}");
}
