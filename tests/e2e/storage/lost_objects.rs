//! Objects that a repair of a damaged store has lost, while others that belong to them still exist: a start
//! creates the bootstrap objects, and addresses and ports that no Service has any more can be allocated
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use http::Method;
use plinth_benches::api::client::{Call, Connection, Protocol, JSON};
use plinth_benches::api::server::Server;
use plinth_engine::{At, Engine, KeyRange, Options, Transaction};
use plinth_tests::server::{connect_to, launch, start_ready};
use serde_json::{json, Value};
use tempfile::TempDir;

use super::copy;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

/// Starts done at once: each is a process.
const AT_ONCE: usize = 3;

async fn start(root: &Path, arguments: &[&str]) -> (Server, Connection) {
    let server = start_ready(&launch(), root, arguments).await;
    let connection = connect_to(&server, Protocol::Http1).await;
    (server, connection)
}

async fn get(connection: &mut Connection, path: &str) -> (u16, Value) {
    let answer = connection.call(&Call::get(path)).await.expect("an answer");
    (answer.status.into(), serde_json::from_slice(&answer.body).expect("JSON"))
}

async fn create_service(connection: &mut Connection, name: &str, address: &str, port: u16) -> (u16, String) {
    let spec = json!({
        "type": "NodePort", "clusterIP": address, "ports": [{"port": 80, "nodePort": port}],
    });
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    let call = Call::new(Method::POST, SERVICES).body(JSON, service.to_string());
    let answer = connection.call(&call).await.expect("an answer");
    (answer.status.into(), answer.text())
}

/// Removes keys from the store of a server that is stopped; the keys that were there.
async fn remove(root: &Path, is_lost: impl Fn(&str) -> bool) -> Vec<String> {
    let engine = Engine::open(Options::new(root.join("data/store"))).expect("the store");
    let mut keys = Vec::new();
    {
        let snapshot = engine.snapshot(At::Latest).expect("snapshot");
        let mut entries = snapshot.range(&KeyRange::all());
        while let Some(entry) = entries.next().expect("entry") {
            keys.push(String::from_utf8(entry.key.to_vec()).expect("text"));
        }
    }
    let lost = keys.iter().filter(|key| is_lost(key));
    let transaction = lost.fold(Transaction::new(), |transaction, key| transaction.delete(key.clone()));
    if !transaction.is_empty() {
        engine.transact(transaction).await.expect("commit");
    }
    engine.close().expect("close");
    keys
}

#[tokio::test]
async fn addresses_and_ports_of_a_lost_service_can_be_allocated_again() {
    let root = TempDir::new().expect("directory");
    let (mut server, mut connection) = start(root.path(), &[]).await;
    for (name, address, port) in [("lost", "10.0.0.50", 30100), ("kept", "10.0.0.49", 30101)] {
        let (code, text) = create_service(&mut connection, name, address, port).await;
        assert_eq!(code, 201, "{text}");
    }
    server.terminate().await.expect("stopped");
    let lost = ["core/services/default/kubernetes", "core/services/default/lost"];
    let keys = remove(root.path(), |key| lost.contains(&key)).await;
    for key in [lost[0], lost[1], "networking.k8s.io/ipaddresses/10.0.0.1", "allocations/nodeports/30100"] {
        assert!(keys.iter().any(|there| there == key), "{key}: {keys:?}");
    }
    let (mut server, mut connection) = start(root.path(), &[]).await;
    let (code, service) = get(&mut connection, &format!("{SERVICES}/kubernetes")).await;
    assert_eq!((code, service["spec"]["clusterIP"].as_str()), (200, Some("10.0.0.1")), "{service}");
    let (_, address) = get(&mut connection, &format!("{ADDRESSES}/10.0.0.1")).await;
    let parent = json!({"resource": "services", "namespace": "default", "name": "kubernetes"});
    assert_eq!(address["spec"]["parentRef"], parent, "{address}");
    // What a Service holds stays its own.
    for (address, port) in [("10.0.0.49", 30102), ("10.0.0.52", 30101)] {
        let (code, text) = create_service(&mut connection, "other", address, port).await;
        assert!(code == 422 && text.contains("already allocated"), "{code} {text}");
    }
    let (code, text) = create_service(&mut connection, "other", "10.0.0.50", 30100).await;
    assert_eq!(code, 201, "{text}");
    let (_, address) = get(&mut connection, &format!("{ADDRESSES}/10.0.0.50")).await;
    assert_eq!(address["spec"]["parentRef"]["name"], "other", "{address}");
    let (code, text) = create_service(&mut connection, "lost", "10.0.0.50", 30103).await;
    assert_eq!(code, 422, "{text}");

    // The first address of the range belongs to another Service: the start goes on.
    server.terminate().await.expect("stopped");
    remove(root.path(), |key| key == lost[0]).await;
    let (mut server, mut connection) = start(root.path(), &["--service-cluster-ip-range=10.0.0.48/28"]).await;
    let log = server.log().tail(100);
    assert!(
        log.contains("object=\"Service default/kubernetes\"") && log.contains("object cannot be created"),
        "{log}"
    );
    let (code, _) = get(&mut connection, &format!("{SERVICES}/kubernetes")).await;
    assert_eq!(code, 404);
    server.terminate().await.expect("stopped");
}

/// An IPAddress that was deleted, or lost in a repair together with a node port: the Service that has them in
/// its spec keeps them.
#[tokio::test]
async fn addresses_and_ports_in_a_service_stay_allocated() {
    let root = TempDir::new().expect("directory");
    let (mut server, mut connection) = start(root.path(), &[]).await;
    let (code, text) = create_service(&mut connection, "kept", "10.0.0.50", 30100).await;
    assert_eq!(code, 201, "{text}");
    let (_, before) = get(&mut connection, &format!("{ADDRESSES}/10.0.0.50")).await;
    let call = Call::new(Method::DELETE, format!("{ADDRESSES}/10.0.0.50"));
    assert_eq!(connection.call(&call).await.expect("an answer").status, 200);
    // Made again in the background.
    let there_again = async {
        while get(&mut connection, &format!("{ADDRESSES}/10.0.0.50")).await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(100), there_again).await.expect("it is there again");
    let (_, after) = get(&mut connection, &format!("{ADDRESSES}/10.0.0.50")).await;
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
    server.terminate().await.expect("stopped");
    let lost = ["networking.k8s.io/ipaddresses/10.0.0.50", "allocations/nodeports/30100"];
    let keys = remove(root.path(), |key| lost.contains(&key)).await;
    assert_eq!(keys.iter().filter(|key| lost.contains(&key.as_str())).count(), 2, "{keys:?}");
    let (mut server, mut connection) = start(root.path(), &[]).await;
    let (_, address) = get(&mut connection, &format!("{ADDRESSES}/10.0.0.50")).await;
    assert_eq!(address["spec"]["parentRef"]["name"], "kept", "{address}");
    for (address, port) in [("10.0.0.50", 30101), ("10.0.0.51", 30100)] {
        let (code, text) = create_service(&mut connection, "other", address, port).await;
        assert!(code == 422 && text.contains("already allocated"), "{code} {text}");
    }
    server.terminate().await.expect("stopped");
}

/// Each collection lost, and each the only one that is left.
#[tokio::test]
async fn no_lost_bootstrap_object_keeps_a_server_from_starting() {
    let root = TempDir::new().expect("directory");
    let (mut server, mut connection) = start(root.path(), &[]).await;
    let (code, text) = create_service(&mut connection, "held", "10.0.0.50", 30100).await;
    assert_eq!(code, 201, "{text}");
    server.terminate().await.expect("stopped");
    let keys = remove(root.path(), |_| false).await;
    let collection = |key: &str| key.splitn(3, '/').take(2).collect::<Vec<_>>().join("/") + "/";
    let collections: BTreeSet<String> = keys.iter().map(|key| collection(key)).collect();
    assert!(collections.len() > 12, "{collections:?}");
    let cases = collections.iter().flat_map(|prefix| [(prefix, true), (prefix, false)]);
    let root = root.path();
    let starts = cases.map(|(prefix, is_lost)| async move {
        let copied = TempDir::new().expect("directory");
        copy(&root.join("data"), &copied.path().join("data"));
        remove(copied.path(), |key| key.starts_with(prefix.as_str()) == is_lost).await;
        let (mut server, mut connection) = start(copied.path(), &[]).await;
        let what = format!("{prefix} {}", if is_lost { "lost" } else { "alone" });
        let (code, service) = get(&mut connection, &format!("{SERVICES}/kubernetes")).await;
        let log = server.log().tail(200);
        assert_eq!((code, service["spec"]["clusterIP"].as_str()), (200, Some("10.0.0.1")), "{what}: {log}");
        assert!(!log.contains("cannot be created"), "{what}: {log}");
        let kept = ["/api/v1/namespaces/default", "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"];
        for path in kept {
            assert_eq!(get(&mut connection, path).await.0, 200, "{what}: {path}");
        }
        server.kill().expect("stopped");
    });
    futures::stream::iter(starts).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

/// One object of each collection is damaged: the server starts, answers requests for it with an error, and
/// logs that.
#[tokio::test]
async fn no_damaged_object_keeps_a_server_from_starting() {
    let root = TempDir::new().expect("directory");
    let (mut server, _) = start(root.path(), &[]).await;
    server.terminate().await.expect("stopped");
    let keys = remove(root.path(), |_| false).await;
    let collection = |key: &str| key.splitn(3, '/').take(2).collect::<Vec<_>>().join("/");
    let firsts: BTreeMap<String, &String> = keys.iter().rev().map(|key| (collection(key), key)).collect();
    assert!(firsts.len() > 12, "{firsts:?}");
    let root = root.path();
    let starts = firsts.values().map(|key| async move {
        let copied = TempDir::new().expect("directory");
        copy(&root.join("data"), &copied.path().join("data"));
        let engine = Engine::open(Options::new(copied.path().join("data/store"))).expect("the store");
        let damage = Transaction::new().put(key.to_string(), "no object");
        engine.transact(damage).await.expect("commit");
        engine.close().expect("close");
        drop(engine);
        let (mut server, mut connection) = start(copied.path(), &[]).await;
        let (code, text) = get(&mut connection, "/api/v1/namespaces/kube-public").await;
        assert_eq!(code, 200, "{key}: {text}");
        let is_used_at_start = ["core/services/", "networking.k8s.io/servicecidrs/", "rbac."];
        if is_used_at_start.iter().any(|prefix| key.starts_with(prefix)) {
            let is_logged =
                || std::future::ready(server.log().tail(1000).contains("stored object is damaged"));
            plinth_tests::eventually(&format!("{key} is reported as damaged"), is_logged).await;
        }
        server.kill().expect("stopped");
    });
    futures::stream::iter(starts).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}
