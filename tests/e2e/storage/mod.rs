//! Stored data: what survives restarts, lost and damaged files, failing disks, backups and repairs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams};
use plinth_benches::api::server::READY_WITHIN;
use plinth_tests::server::{client_of, launch, run, start_ready, TestServer, BARE_NAMESPACES};
use serde_json::json;
use tempfile::TempDir;

mod backups;
mod buckets;
mod disk_failures;
mod durability;
mod encryption;
mod full_disk;
mod lost_files;
mod lost_objects;
mod repair;

/// Objects that were acknowledged.
const OBJECTS: usize = 30;

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

/// Waits until the store has noted that `revision` is durable: from then on its loss is found whatever is
/// lost.
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

/// The ConfigMaps of namespace `default`, as the user of a kubeconfig.
async fn config_maps(kubeconfig: &Path) -> Api<ConfigMap> {
    Api::default_namespaced(client_of(kubeconfig).await)
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

/// Makes sure that a watch from this version has to list again.
async fn assert_stale(api: &Api<ConfigMap>, version: &str) {
    let first = match api.watch(&Default::default(), version).await {
        Ok(events) => Box::pin(events).next().await.map(|event| format!("{event:?}")),
        Err(error) => Some(format!("{error:?}")),
    };
    assert!(first.as_ref().is_some_and(|first| first.contains("410")), "{version}: {first:?}");
}

/// Runs a server on a copy of another one's data while `with` does something with its kubeconfig.
async fn start_on_copy(server: &TestServer, root: &Path, with: impl FnOnce(&str)) {
    copy(&server.data(), &root.join("data"));
    let copied = start_ready(&launch(), root, &[BARE_NAMESPACES]).await;
    let kubeconfig = copied.kubeconfig();
    tokio::task::block_in_place(|| with(kubeconfig.to_str().expect("text")));
}
