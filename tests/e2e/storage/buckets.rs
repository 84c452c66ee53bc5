//! Backups in an S3-compatible store: a small one of the tests', or a real one (`scripts/test-s3`).

use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use plinth_benches::api::server::{Launch, READY_WITHIN};
use plinth_tests::eventually;
use plinth_tests::object_store::{Misbehavior, ObjectStore};
use plinth_tests::outcome::Outcome;
use plinth_tests::server::{launch, start_ready};
use serde_json::json;
use tempfile::TempDir;

use super::{config_maps, OBJECTS};

/// Bytes of the value of each large object; that many are more than one part of an upload.
const LARGE: usize = 900_000;

/// Runs a command with the store's credentials: whether it succeeded, and what it wrote.
fn run(store: &ObjectStore, changed: &[(&str, &str)], arguments: &[&str]) -> (bool, String) {
    let mut command = launch().command(arguments);
    command.env_remove("AWS_PROFILE").env("HOME", "/nonexistent");
    command.envs(store.environment.iter().map(|(name, value)| (name, value)));
    let output = command.envs(changed.iter().copied()).outcome();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (output.status.success(), text)
}

/// Creates objects of some megabytes that cannot be compressed to one part of an upload.
async fn create_large(api: &Api<ConfigMap>) {
    let mut state = 1u64;
    for index in 0..OBJECTS {
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b' ' + 3 + ((state >> 33) % 56) as u8)
        };
        let value: String = (0..LARGE).map(|_| random()).collect();
        let object = json!({"metadata": {"name": format!("large-{index}")}, "data": {"value": value}});
        let object = serde_json::from_value(object).expect("an object");
        api.create(&PostParams::default(), &object).await.expect("create");
    }
}

async fn restored_has(root: &Path, name: &str) {
    let server = start_ready(&launch(), root, &[]).await;
    let found = config_maps(&server.kubeconfig()).await.get_opt(name).await.expect("get");
    assert!(found.is_some(), "{name}");
}

#[tokio::test]
async fn scheduled_backups_go_to_a_bucket_and_can_be_restored() {
    let store = ObjectStore::start("scheduled");
    store.put_foreign("notes");
    let root = TempDir::new().expect("directory");
    let launch = with_credentials(&store);
    let flags =
        [format!("--backup-dir={}", store.url), "--backup-interval=1s".into(), "--backup-keep=2".into()];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = start_ready(&launch, root.path(), &flags).await;
    let api = config_maps(&server.kubeconfig()).await;
    let object = serde_json::from_value(json!({"metadata": {"name": "kept"}})).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("create");
    let archives = || {
        let mut names = store.names();
        names.retain(|name| name.ends_with(".backup"));
        names
    };
    eventually("there are two", || async { archives().len() == 2 }).await;
    // A store that is away for a moment: nothing is lost, and the schedule goes on.
    store.be_unavailable(2);
    let first = archives();
    eventually("both are replaced", || async {
        let now = archives();
        now.len() == 2 && now[0] > first[1]
    })
    .await;
    drop(server);
    assert!(store.names().contains(&"notes".to_owned()));
    let newest = format!("{}/{}", store.url, archives().last().expect("a backup"));
    let restored = root.path().join("restored");
    let data = restored.join("data");
    let (done, text) =
        run(&store, &[], &["restore", "--from", &newest, "--data-dir", data.to_str().expect("text")]);
    assert!(done, "{text}");
    restored_has(&restored, "kept").await;
}

#[tokio::test]
async fn an_archive_of_many_parts_is_written_and_restored() {
    let store = ObjectStore::start("parts");
    let root = TempDir::new().expect("directory");
    let mut server = start_ready(&launch(), root.path(), &[]).await;
    create_large(&config_maps(&server.kubeconfig()).await).await;
    let kubeconfig = server.kubeconfig().display().to_string();
    let (data, to) = (server.data().display().to_string(), |name: &str| format!("{}/{name}", store.url));
    // Online, and then offline.
    let (done, text) = run(&store, &[], &["backup", "--kubeconfig", &kubeconfig, "--to", &to("online")]);
    assert!(done && text.starts_with(&to("online")), "{text}");
    // A part that is refused: nothing appears, and nothing is left of it.
    if store.refuse_parts_from(2) {
        let (done, text) = run(&store, &[], &["backup", "--kubeconfig", &kubeconfig, "--to", &to("failed")]);
        assert!(!done && text.contains("QuotaExceeded") && text.contains(&to("failed")), "{text}");
        store.refuse_parts_from(usize::MAX);
    }
    server.terminate().await.expect("clean end");
    let (done, text) = run(&store, &[], &["backup", "--data-dir", &data, "--to", &to("offline")]);
    assert!(done, "{text}");
    // A source that fails leaves nothing.
    let (done, text) = run(&store, &[], &["backup", "--data-dir", &to("none"), "--to", &to("nothing")]);
    assert!(!done, "{text}");
    assert_eq!(store.names(), ["offline", "online"]);
    if let Some(uploads) = store.uploads() {
        assert_eq!(uploads, (3, 0), "uploads in parts, and those that are open");
    }
    for name in ["online", "offline"] {
        let restored = root.path().join(name);
        let data = restored.join("data").display().to_string();
        let (done, text) = run(&store, &[], &["restore", "--from", &to(name), "--data-dir", &data]);
        assert!(done, "{text}");
        restored_has(&restored, &format!("large-{}", OBJECTS - 1)).await;
    }
}

#[tokio::test]
async fn errors_of_a_store_say_what_to_do() {
    let store = ObjectStore::start("errors");
    let root = TempDir::new().expect("directory");
    let mut server = start_ready(&launch(), root.path(), &[]).await;
    server.terminate().await.expect("clean end");
    let data = server.data().display().to_string();
    let to = format!("{}/archive", store.url);
    let back_up = |changed: &[(&str, &str)], to: &str| {
        run(&store, changed, &["backup", "--data-dir", &data, "--to", to])
    };
    let (done, text) = back_up(&[], &to);
    assert!(done, "{text}");
    let elsewhere = format!("{}/restored", root.path().display());
    let restore = |from: &str| run(&store, &[], &["restore", "--from", from, "--data-dir", &elsewhere]);
    // what is wrong, what the error has
    let cases = [
        (back_up(&[], &to), "exists already, and an archive is never overwritten"),
        (back_up(&[("AWS_SECRET_ACCESS_KEY", "wrong")], &format!("{to}-2")), "check the credentials"),
        (back_up(&[("AWS_ACCESS_KEY_ID", "WRONG")], &format!("{to}-2")), "check the credentials"),
        (back_up(&[("AWS_ACCESS_KEY_ID", "a\nb")], &to), "the access key ID has characters other than"),
        (back_up(&[("AWS_ENDPOINT_URL", "ftp://x")], &to), "AWS_ENDPOINT_URL: \"ftp://x\" is no URL"),
        (
            back_up(&[("AWS_ENDPOINT_URL", "http://127.0.0.1:1")], &to),
            "connection refused; check AWS_ENDPOINT_URL",
        ),
        (back_up(&[("AWS_PROFILE", "none")], &to), "AWS_PROFILE: there is no profile \"none\""),
        (back_up(&[], "s3://"), "the name of the bucket is missing"),
        (back_up(&[], "gs://bucket/x"), "neither a path nor a URL of the form s3://"),
        (back_up(&[], "s3://no-such-bucket-here/x"), "create the bucket"),
        (restore(&format!("{to}-3")), "not found; check the name"),
    ];
    for ((done, text), expected) in &cases {
        assert!(!done && text.contains(expected), "{expected:?} in {text:?}");
    }
    assert!(!Path::new(&elsewhere).exists());
    assert_eq!(store.names(), ["archive"]);
    // Settings that cannot be used are found at the start, a store that does not answer is not.
    let start = |endpoint: &'static str| launch().env("AWS_ENDPOINT_URL", Path::new(endpoint));
    let flag = format!("--backup-dir={}", store.url);
    let mut refused = start("ftp://x").start(root.path(), &[&flag]).await.expect("start");
    let refusal = refused.ready(READY_WITHIN).await.expect_err("a refusal").to_string();
    assert!(refusal.contains("--backup-dir: AWS_ENDPOINT_URL"), "{refusal}");
    let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
    let away =
        keys.iter().fold(start("http://127.0.0.1:1"), |l, (name, value)| l.env(name, Path::new(value)));
    let server = start_ready(&away, root.path(), &[&flag]).await;
    let logged = || server.log().tail(20).contains("scheduled backup to s3://");
    eventually("the failure is logged", || async { logged() }).await;
}

/// Keys that no archive has, but that a list returns.
const FOREIGN: [&str; 8] = [
    "plinth-20250101T000000Z.backup/",
    "plinth-/",
    "plinth-//plinth-20250101T000000Z.backup",
    "plinth-/../plinth-20250101T000000Z.backup",
    "plinth-100%&<\u{1}\n",
    "plinth-mine.backup",
    "/plinth-20250101T000000Z.backup",
    "",
];

#[tokio::test]
async fn objects_with_unusual_keys_are_ignored() {
    let store = ObjectStore::start("foreign");
    if !store.misbehave(None) {
        eprintln!("skipped: a real store keeps objects as files, which cannot have such names");
        return;
    }
    FOREIGN.iter().for_each(|name| store.put_foreign(name));
    let root = TempDir::new().expect("directory");
    let flags =
        [format!("--backup-dir={}", store.url), "--backup-interval=1s".into(), "--backup-keep=1".into()];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut server = start_ready(&with_credentials(&store), root.path(), &flags).await;
    let archives = || {
        let mut names = store.names();
        names.retain(|name| !FOREIGN.contains(&name.as_str()));
        names
    };
    eventually("there is one", || async { archives().len() == 1 }).await;
    let first = archives();
    eventually("it is replaced", || async { archives().len() == 1 && archives() != first }).await;
    // A stop may abandon the backup or the deletion that it meets, and says so: what is logged before counts.
    let log = server.log().tail(50);
    server.terminate().await.expect("clean end");
    let names = store.names();
    assert!(FOREIGN.iter().all(|name| names.iter().any(|found| found == name)), "{names:?}");
    assert!(log.contains("objects with unusual keys are ignored"), "{log}");
    assert!(!log.contains("could not be deleted") && !log.contains("failed"), "{log}");
}

/// A server that knows the store's credentials.
fn with_credentials(store: &ObjectStore) -> Launch {
    store.environment.iter().fold(launch(), |launch, (name, value)| launch.env(name, Path::new(value)))
}

#[tokio::test]
async fn a_server_stops_while_its_store_does_not_answer() {
    for misbehavior in [Misbehavior::Hang, Misbehavior::HangOnWrites, Misbehavior::HangOnParts] {
        let store = ObjectStore::start("hanging");
        let root = TempDir::new().expect("directory");
        let flags = [format!("--backup-dir={}", store.url), "--backup-interval=1s".into()];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut server = start_ready(&with_credentials(&store), root.path(), &flags).await;
        create_large(&config_maps(&server.kubeconfig()).await).await;
        if !store.misbehave(Some(misbehavior)) {
            return;
        }
        eventually("a request waits", || async { store.hanging() > 0 }).await;
        server.terminate().await.expect("clean end");
        if misbehavior == Misbehavior::HangOnParts {
            assert_eq!(store.uploads().map(|(_, open)| open), Some(0), "it is aborted");
        }
    }
}

/// What was sent of it takes up space, and is in nobody's way.
#[tokio::test]
async fn an_upload_that_is_killed_is_no_archive() {
    let store = ObjectStore::start("killed");
    if !store.misbehave(Some(Misbehavior::HangOnParts)) {
        return;
    }
    let root = TempDir::new().expect("directory");
    let mut server = start_ready(&launch(), root.path(), &[]).await;
    create_large(&config_maps(&server.kubeconfig()).await).await;
    server.terminate().await.expect("clean end");
    let (data, to) = (server.data().display().to_string(), format!("{}/archive", store.url));
    let arguments = ["backup", "--data-dir", &data, "--to", &to];
    let mut command = launch().command(arguments);
    command.envs(store.environment.iter().map(|(name, value)| (name, value)));
    let mut killed = command.spawn().expect("plinth runs");
    eventually("a part waits", || async { store.hanging() > 0 }).await;
    killed.kill().expect("killed");
    killed.wait().expect("its end");
    assert_eq!((store.names().len(), store.uploads()), (0, Some((1, 1))));
    store.misbehave(None);
    let (done, text) = run(&store, &[], &arguments);
    assert!(done, "{text}");
    assert_eq!((store.names(), store.uploads()), (vec!["archive".to_owned()], Some((2, 1))));
    let restored = root.path().join("restored");
    let data = restored.join("data").display().to_string();
    let (done, text) = run(&store, &[], &["restore", "--from", &to, "--data-dir", &data]);
    assert!(done, "{text}");
    restored_has(&restored, &format!("large-{}", OBJECTS - 1)).await;
}

/// Runs commands against a store that is broken.
#[tokio::test]
async fn broken_stores_cost_no_memory_and_no_archives() {
    let store = ObjectStore::start("broken");
    if !store.misbehave(None) {
        return;
    }
    let root = TempDir::new().expect("directory");
    let mut server = start_ready(&launch(), root.path(), &[]).await;
    create_large(&config_maps(&server.kubeconfig()).await).await;
    server.terminate().await.expect("clean end");
    let (data, to) = (server.data().display().to_string(), |name: &str| format!("{}/{name}", store.url));
    let back_up = |name: &str| run(&store, &[], &["backup", "--data-dir", &data, "--to", &to(name)]);
    let restored = root.path().join("restored").display().to_string();
    let restore = || run(&store, &[], &["restore", "--from", &to("archive"), "--data-dir", &restored]);
    let joined = root.path().join("joined").display().to_string();
    let join = || run(&store, &[], &["join", "--checkpoint-dir", &store.url, "--data-dir", &joined]);
    let (done, text) = back_up("archive");
    assert!(done, "{text}");
    let archive = |change: &mut dyn FnMut(&mut Vec<u8>)| store.change("archive", |content| change(content));
    let mut whole = Vec::new();
    archive(&mut |content| whole = content.clone());
    // what the store does, a command, what its error has
    let misbehaviors: [(_, &dyn Fn() -> (bool, String), _); 9] = [
        (Misbehavior::EndlessList, &join, "returns more than 100000 keys"),
        (Misbehavior::LongToken, &join, "the token of the next page has more than"),
        (Misbehavior::EndlessError, &join, "403 Forbidden: xxx"),
        (Misbehavior::LongUploadId, &|| back_up("other"), "is longer than"),
        (Misbehavior::LongParts, &restore, "changed while it was read"),
        (Misbehavior::HalfParts, &restore, "broke off: nothing was received for"),
        (Misbehavior::Hang, &restore, "broke off: nothing was received for"),
        (Misbehavior::Replace, &restore, "changed while it was read"),
        (Misbehavior::Delete, &restore, "NoSuchKey"),
    ];
    for (misbehavior, command, expected) in misbehaviors {
        store.misbehave(Some(misbehavior));
        let (done, text) = command();
        assert!(!done && text.contains(expected) && !text.contains("panicked"), "{misbehavior:?}: {text}");
        store.misbehave(None);
        store.put_foreign("archive");
        archive(&mut |content| content.clone_from(&whole));
    }
    // What is stored is damaged.
    let damages: [&dyn Fn(&mut Vec<u8>); 4] = [
        &|content| content.truncate(content.len() / 2),
        &|content| content.truncate(content.len() - 1),
        &|content| content.clear(),
        &|content| *content.last_mut().expect("a byte") ^= 1,
    ];
    for damage in damages {
        archive(&mut |content| damage(content));
        let (done, text) = restore();
        assert!(!done, "{text}");
        archive(&mut |content| content.clone_from(&whole));
    }
    for place in [0, 100, whole.len() / 3, whole.len() / 2] {
        archive(&mut |content| content[place] ^= 0x40);
        let (done, text) = restore();
        assert!(!done, "byte {place}: {text}");
        archive(&mut |content| content.clone_from(&whole));
    }
    assert_eq!(store.names(), ["archive"]);
    assert!(!Path::new(&joined).exists());
    // The directory that all of these have left is no obstacle.
    let (done, text) = restore();
    assert!(done, "{text}");
    let name = format!("large-{}", OBJECTS - 1);
    fs::create_dir(root.path().join("new")).expect("directory");
    fs::rename(&restored, root.path().join("new/data")).expect("renamed");
    restored_has(&root.path().join("new"), &name).await;
}
