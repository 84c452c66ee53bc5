//! Clients that do not read and webhooks that do not answer take no threads from other requests, neither of
//! their own server nor of another one in the process.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Method, Response};
use plinth_benches::api::client::{Call, Connection, Protocol, JSON};
use plinth_benches::api::kubeconfig;
use plinth_server::cli::{runtime, start, Running, ServeOptions};
use tokio::task::JoinSet;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Far above what a list takes, and less than webhooks have to answer.
const GENEROUS: Duration = Duration::from_secs(20);
/// More than the blocking threads of the runtime.
const MANY: usize = 70;
/// Custom resources, whose webhooks are separate services: each is called a few times at once.
const DEFINITIONS: usize = 8;

async fn serve(data_dir: &Path) -> Running {
    let data_dir = data_dir.to_str().expect("a temporary directory has a UTF-8 name");
    let options = ServeOptions::from_arguments(["--data-dir", data_dir, "--secure-port", "0"]).unwrap();
    start(options).await.unwrap()
}

async fn connect(server: &Running) -> Connection {
    kubeconfig::endpoint(server.kubeconfig()).unwrap().connect(Protocol::Http2).await.unwrap()
}

/// Stores more than what is buffered of a backup for a client that does not read.
async fn fill(server: &Running) {
    let mut client = connect(server).await;
    for n in 0..20u64 {
        let letter = |i: u64| char::from(b'a' + u8::try_from((i * 7919 + n * 31 + i / 13) % 26).unwrap());
        let text: String = (0..400_000).map(letter).collect();
        let body = format!(r#"{{"metadata":{{"name":"map-{n}"}},"data":{{"n":"{text}"}}}}"#);
        client.must(&Call::new(Method::POST, CONFIG_MAPS).body(JSON, body)).await.unwrap();
    }
}

/// Backups that nobody reads. Those beyond the server's threads are refused.
async fn backups(server: &Running, many: usize) -> Vec<(Connection, Response<Incoming>)> {
    let mut open = Vec::new();
    for _ in 0..many {
        let endpoint = kubeconfig::endpoint(server.kubeconfig()).unwrap();
        let mut client = endpoint.connect_narrow().await.unwrap();
        let response = client.open(&Call::get("/plinth/backup")).await.unwrap();
        assert!(matches!(response.status().as_u16(), 200 | 429), "{}", response.status());
        open.push((client, response));
    }
    open
}

/// Custom resources whose conversion webhooks accept connections and never answer, and an object of each.
async fn define(server: &Running, webhook: u16) {
    let mut client = connect(server).await;
    for n in 0..DEFINITIONS {
        let definition = format!(
            r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
            "metadata":{{"name":"notes{n}.example.com"}},"spec":{{"group":"example.com","scope":"Cluster",
            "conversion":{{"strategy":"Webhook","webhook":{{"conversionReviewVersions":["v1"],
            "clientConfig":{{"url":"https://127.0.0.1:{webhook}/{n}"}}}}}},
            "names":{{"plural":"notes{n}","singular":"note{n}","kind":"Note{n}","listKind":"Note{n}List"}},
            "versions":[
            {{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object"}}}}}},
            {{"name":"v2","served":true,"storage":false,"schema":{{"openAPIV3Schema":{{"type":"object"}}}}}}
            ]}}}}"#
        );
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        client.must(&Call::new(Method::POST, path).body(JSON, definition)).await.unwrap();
        let notes = format!("/apis/example.com/v1/notes{n}");
        while client.call(&Call::get(notes.as_str())).await.unwrap().status != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let note = format!(r#"{{"apiVersion":"example.com/v1","kind":"Note{n}","metadata":{{"name":"n"}}}}"#);
        client.must(&Call::new(Method::POST, notes.as_str()).body(JSON, note)).await.unwrap();
    }
}

/// Lists that wait for the webhooks; the first of those that the server refuses ends this.
async fn lists(server: &Running, running: &mut JoinSet<u16>) {
    for n in 0..MANY {
        let mut client = connect(server).await;
        running.spawn(async move {
            let path = format!("/apis/example.com/v2/notes{}", n % DEFINITIONS);
            client.call(&Call::get(path)).await.map_or(0, |reply| reply.status.as_u16())
        });
    }
    let refused = async { while running.join_next().await.is_some_and(|status| status.unwrap() != 503) {} };
    tokio::time::timeout(GENEROUS, refused).await.expect("as many as may wait do wait");
}

/// A list is produced on a blocking thread.
async fn expect_a_list(server: &Running, what: &str) {
    let list = async {
        let reply = connect(server).await.call(&Call::get(format!("{CONFIG_MAPS}?limit=2"))).await;
        assert_eq!(reply.unwrap().status, 200, "{what}");
    };
    tokio::time::timeout(GENEROUS, list).await.unwrap_or_else(|_| panic!("no answer: {what}"));
}

#[test]
fn readers_of_backups_that_do_not_read_stop_no_server() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let (a, b) = (serve(&dir.path().join("a")).await, serve(&dir.path().join("b")).await);
        fill(&a).await;
        fill(&b).await;
        let of_both = (backups(&a, MANY).await, backups(&b, 40).await);
        expect_a_list(&a, "of the server whose threads for backups are all in use").await;
        expect_a_list(&b, "of the other server").await;
        // One that is read gets a thread, since of many that are not read each waits briefly.
        let whole = async {
            loop {
                let reply = connect(&a).await.call(&Call::get("/plinth/backup")).await.unwrap();
                match reply.status.as_u16() {
                    200 => break reply.body.len(),
                    status => assert_eq!(status, 429),
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let length = tokio::time::timeout(GENEROUS, whole).await.expect("a backup that is read");
        // All of it: an archive is not compressed by more than a half here.
        assert!(length > 4_000_000, "{length}");
        drop(of_both);
        a.stop().await.unwrap();
        b.stop().await.unwrap();
    });
}

#[test]
fn webhooks_that_do_not_answer_stop_no_server() {
    let dir = tempfile::tempdir().unwrap();
    let webhook = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = webhook.local_addr().unwrap().port();
    runtime().unwrap().block_on(async {
        let (a, b) = (serve(&dir.path().join("a")).await, serve(&dir.path().join("b")).await);
        fill(&a).await;
        fill(&b).await;
        define(&a, port).await;
        define(&b, port).await;
        let of_a = backups(&a, 32).await;
        let mut waiting = JoinSet::new();
        lists(&a, &mut waiting).await;
        expect_a_list(&a, "of a server with slow readers and a silent webhook").await;
        lists(&b, &mut waiting).await;
        expect_a_list(&a, "while both servers wait for webhooks").await;
        expect_a_list(&b, "while both servers wait for webhooks").await;
        waiting.shutdown().await;
        drop(of_a);
    });
}
