//! Each file of a populated data directory absent, empty, cut short or unreadable in turn: the start is
//! refused with a message that names it, or the store is complete. A server is never ready and empty, and
//! nothing is removed.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use futures::StreamExt;
use kube::api::ListParams;
use plinth_tests::outcome::Outcome;
use plinth_tests::server::{launch, start_ready, BARE_NAMESPACES};
use tempfile::TempDir;

use super::{config_maps, copy, copy_of_populated, files, populated, run, start, OBJECTS};

/// What happens to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Removed,
    Empty,
    Cut,
    /// Reading it fails, and not with "not found": a link to itself.
    Unreadable,
    Directory,
}

const LOSSES: [Loss; 5] = [Loss::Removed, Loss::Empty, Loss::Cut, Loss::Unreadable, Loss::Directory];

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

/// Whether a start needs the file as it is. Files that are not listed are created again, or are not used.
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
        // RocksDB's own text log and list of options are written by every attempt, and the reserve holds
        // nothing: a start has its room until it has succeeded.
        let matters = |path: &PathBuf| {
            let name = path.to_string_lossy();
            let is_reserve = name.ends_with("RESERVE");
            !name.contains("db/LOG") && !name.contains("db/OPTIONS") && !name.ends_with("LOCK") && !is_reserve
        };
        let gone: Vec<_> = before.difference(&files(&copied)).filter(|path| matters(path)).cloned().collect();
        assert_eq!(gone, Vec::<PathBuf>::new(), "{name} {loss:?}: removed");
    });
    outcomes.buffer_unordered(4).collect::<Vec<()>>().await;
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

/// The DER tag around a certificate is not covered by its signature: only the TLS library's parser rejects
/// it.
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

/// A container may have no directory for temporary files, and a start after a power cut has to ask the
/// MANIFEST.
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
        let output = command.env("TMPDIR", &absent).outcome();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains("set TMPDIR"), "{text}");
        assert_eq!(files(&data), before);
    }
    let server = start_ready(&launch().env("TMPDIR", &absent), root.path(), &[BARE_NAMESPACES]).await;
    let listed = config_maps(&server.kubeconfig()).await.list(&ListParams::default()).await.expect("list");
    assert!(listed.items.len() >= OBJECTS);
    assert!(server.log().tail(100).contains("dropped the end"), "of the MANIFEST");
    assert!(!view.exists() && !absent.exists());
}
