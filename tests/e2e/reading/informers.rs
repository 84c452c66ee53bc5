//! Informers whose connection is cut again and again: nothing lost, nothing doubled, nothing out of order.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::{reflector, watcher};
use kube::{Client, ResourceExt};
use plinth_tests::proxy::Proxy;
use plinth_tests::server::{namespace, TestServer, BARE_NAMESPACES};
use serde_json::json;

const OBJECTS: usize = 1000;
const WRITERS: usize = 4;
/// How often the connections are cut at least, and how often the informer has to come back.
const CUTS: u32 = 12;
const RETURNS: u64 = 5;

/// How long the first connections live; each lot lives a little longer, so that slow clients on busy machines
/// get on, too.
const BETWEEN_CUTS: Duration = Duration::from_millis(250);
const MORE_EACH_TIME: Duration = Duration::from_millis(50);
/// Made after everything else.
const LAST: &str = "zz-last";
/// How long the informer may take to see the last object; only reached when it never does.
const CATCH_UP: Duration = Duration::from_secs(120);

fn config_map(name: &str, step: u64) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"step": step.to_string()}}))
        .expect("a ConfigMap")
}

fn revision(object: &ConfigMap) -> u64 {
    object.resource_version().and_then(|v| v.parse().ok()).expect("resourceVersion")
}

/// Creates, changes, deletes and creates again the objects of one writer until stopped, two rounds at least.
/// Returns the revisions of what it put.
async fn write(client: Client, namespace: String, writer: usize, stop: Arc<AtomicBool>) -> BTreeSet<u64> {
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let mut put = BTreeSet::new();
    let mut round = 0;
    while round < 2 || !stop.load(Ordering::Relaxed) {
        round += 1;
        for index in (writer..OBJECTS).step_by(WRITERS) {
            let name = format!("cm-{index:04}");
            let object = config_map(&name, round);
            let options = PostParams::default();
            let written = match (round, index % 7) {
                (1, _) => api.create(&options, &object).await.expect("create"),
                (_, 0) => {
                    api.delete(&name, &DeleteParams::default()).await.expect("delete");
                    api.create(&options, &object).await.expect("create")
                }
                // Some rest: their last event stays far behind the others.
                (_, 1) if index % 2 == 0 => continue,
                _ => api.replace(&name, &options, &object).await.expect("replace"),
            };
            put.insert(revision(&written));
        }
    }
    put
}

/// What an informer observed, in order.
#[derive(Default)]
struct Observed {
    /// Lists that it read to the end.
    starts: usize,
    /// Revision and name of each event after the first list, deletions by `None`.
    changes: Vec<(u64, String, Option<u64>)>,
    listed: BTreeSet<u64>,
}

impl Observed {
    fn check(&self, put: &BTreeSet<u64>) {
        assert_eq!(self.starts, 1, "the informer had to start again");
        for pair in self.changes.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{:?} before {:?}", pair[0], pair[1]);
        }
        let mut seen: BTreeSet<u64> = self.changes.iter().filter_map(|(_, _, put)| *put).collect();
        seen.extend(&self.listed);
        let first = *self.listed.iter().next_back().unwrap_or(&0);
        let expected: BTreeSet<u64> = put.iter().copied().filter(|revision| *revision > first).collect();
        let lost: Vec<&u64> = expected.difference(&seen).collect();
        assert!(lost.is_empty(), "{} events were lost: {lost:?}", lost.len());
    }
}

/// A server, a proxy before it, writers at work and somebody who cuts; ends when `follow`, which is given the
/// proxy's port, has seen [`LAST`].
async fn cut_again_and_again<F, T>(follow: F) -> (TestServer, String, BTreeSet<u64>, T)
where
    F: AsyncFnOnce(&TestServer, &str, u16) -> T,
{
    let server = TestServer::start(&[BARE_NAMESPACES]).await;
    let client = server.client().await;
    let namespace = namespace(&client, "informer-cut").await;
    let proxy = Arc::new(Proxy::to(server.port()).await);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(client.clone(), namespace.clone(), writer, stop.clone())))
        .collect();
    let (cutter, over) = (proxy.clone(), stop.clone());
    let cutting = tokio::spawn(async move {
        let mut cuts = 0;
        while cuts < CUTS || cutter.accepted() < RETURNS {
            tokio::time::sleep(BETWEEN_CUTS + cuts * MORE_EACH_TIME).await;
            cutter.cut();
            cuts += 1;
        }
        over.store(true, Ordering::Relaxed);
    });
    let (maker, there) = (client.clone(), namespace.clone());
    let writing = tokio::spawn(async move {
        let mut put = BTreeSet::new();
        for writer in writers {
            put.extend(writer.await.expect("a writer"));
        }
        let api: Api<ConfigMap> = Api::namespaced(maker, &there);
        put.insert(revision(
            &api.create(&PostParams::default(), &config_map(LAST, 0)).await.expect("create"),
        ));
        put
    });
    let observed = tokio::time::timeout(CATCH_UP, follow(&server, &namespace, proxy.port())).await;
    let observed = observed.expect("an informer that sees the last object");
    cutting.await.expect("the cutter");
    (server, namespace, writing.await.expect("the writers"), observed)
}

/// The collection by name.
async fn fresh_list(server: &TestServer, namespace: &str) -> BTreeMap<String, u64> {
    let api: Api<ConfigMap> = Api::namespaced(server.client().await, namespace);
    let list = api.list(&ListParams::default()).await.expect("list");
    list.iter().map(|object| (object.name_any(), revision(object))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reflector_survives_every_cut() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let (server, namespace, put, (observed, store)) =
            cut_again_and_again(async |server, namespace, port| {
                reflect(server, namespace, port, config).await
            })
            .await;
        observed.check(&put);
        let cache: BTreeMap<String, u64> =
            store.state().iter().map(|object| (object.name_any(), revision(object))).collect();
        assert_eq!(cache, fresh_list(&server, &namespace).await);
    }
}

async fn reflect(
    server: &TestServer,
    namespace: &str,
    port: u16,
    config: watcher::Config,
) -> (Observed, reflector::Store<ConfigMap>) {
    let api: Api<ConfigMap> = Api::namespaced(server.client_by_port(port).await, namespace);
    let (store, mut writer) = reflector::store();
    let mut events = Box::pin(watcher(api, config));
    let mut observed = Observed::default();
    loop {
        let event = match events.next().await.expect("a stream without an end") {
            Ok(event) => event,
            // Cut: the watcher goes on by itself.
            Err(_) => continue,
        };
        writer.apply_watcher_event(&event);
        let mut last = false;
        match &event {
            // One that is cut in its middle begins again.
            watcher::Event::Init => observed.listed.clear(),
            watcher::Event::InitApply(object) => {
                observed.listed.insert(revision(object));
                last = object.name_any() == LAST;
            }
            watcher::Event::InitDone => observed.starts += 1,
            watcher::Event::Apply(object) => {
                observed.changes.push((revision(object), object.name_any(), Some(revision(object))));
                last = object.name_any() == LAST;
            }
            watcher::Event::Delete(object) => {
                observed.changes.push((revision(object), object.name_any(), None))
            }
        }
        if last && store.state().iter().any(|object| object.name_any() == LAST) {
            return (observed, store);
        }
    }
}

/// Follows ConfigMaps with the official Python client and prints type, name and revision of each event.
const PYTHON: &str = r#"
import signal, sys
signal.alarm(100)
from kubernetes import client, config, watch
configuration = client.Configuration()
config.load_kube_config(config_file=sys.argv[1], client_configuration=configuration)
configuration.host = "https://127.0.0.1:" + sys.argv[3]
api = client.CoreV1Api(client.ApiClient(configuration))
version, last = None, False
while not last:
    try:
        if version is None:
            listed = api.list_namespaced_config_map(sys.argv[2])
            print("START - 0", flush=True)
            for item in listed.items:
                print("LISTED", item.metadata.name, item.metadata.resource_version, flush=True)
                last = last or item.metadata.name == sys.argv[4]
            version = listed.metadata.resource_version
        for event in watch.Watch().stream(api.list_namespaced_config_map, sys.argv[2], resource_version=version, timeout_seconds=60):
            meta = event["object"].metadata
            version = meta.resource_version
            print(event["type"], meta.name, version, flush=True)
            if meta.name == sys.argv[4]:
                last = True
                break
    except client.ApiException as e:
        if e.status == 410:
            version = None
        else:
            raise
    except Exception:
        pass
"#;

/// The interpreter, if this machine has one with the client; `PLINTH_E2E_PYTHON` names another.
fn python() -> Option<String> {
    let interpreter = std::env::var("PLINTH_E2E_PYTHON").unwrap_or_else(|_| "python3".into());
    let import = Command::new(&interpreter).args(["-c", "import kubernetes"]).stderr(Stdio::null()).status();
    import.is_ok_and(|status| status.success()).then_some(interpreter)
}

/// Runs the Python informer to its end. Blocks; the program gives up by itself.
fn follow_with_python(mut command: Command) -> (Observed, BTreeMap<String, u64>) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("python");
    let (mut observed, mut cache) = (Observed::default(), BTreeMap::new());
    for line in BufReader::new(child.stdout.take().expect("its output")).lines() {
        let line = line.expect("a line");
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, name, revision] = words[..] else { panic!("{line}") };
        let revision: u64 = revision.parse().expect("a revision");
        match kind {
            "START" => {
                observed.starts += 1;
                continue;
            }
            "LISTED" => drop(observed.listed.insert(revision)),
            "DELETED" => observed.changes.push((revision, name.into(), None)),
            _ => observed.changes.push((revision, name.into(), Some(revision))),
        }
        match kind {
            "DELETED" => drop(cache.remove(name)),
            _ => drop(cache.insert(name.to_owned(), revision)),
        }
    }
    assert!(child.wait().expect("its end").success(), "the Python informer did not see the last object");
    (observed, cache)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_survives_every_cut() {
    let Some(interpreter) = python() else {
        eprintln!("skipped: no Python with the package kubernetes");
        return;
    };
    let (server, namespace, put, (observed, cache)) = cut_again_and_again(async |server, namespace, port| {
        let mut command = Command::new(interpreter);
        command.args(["-c", PYTHON]).arg(server.kubeconfig()).args([namespace, &port.to_string(), LAST]);
        tokio::task::spawn_blocking(|| follow_with_python(command)).await.expect("the informer")
    })
    .await;
    observed.check(&put);
    assert_eq!(cache, fresh_list(&server, &namespace).await);
}
