//! Two servers in one process share nothing: objects, authorities, definitions, metrics, and their ends are
//! each one's own.

use std::io::ErrorKind;
use std::path::Path;

use hyper::Method;
use plinth_benches::api::client::{Call, Connection, Protocol, Reply, JSON};
use plinth_benches::api::kubeconfig;
use plinth_server::cli::{runtime, start, Running, ServeOptions};
use tokio::net::TcpStream;

async fn serve(data_dir: &Path) -> Running {
    serve_with(data_dir, &[]).await
}

async fn serve_with(data_dir: &Path, more: &[&str]) -> Running {
    let data_dir = data_dir.to_str().expect("a temporary directory has a UTF-8 name");
    let arguments = ["--data-dir", data_dir, "--secure-port", "0"];
    let options = ServeOptions::from_arguments(arguments.iter().chain(more).copied()).unwrap();
    start(options).await.unwrap()
}

async fn connect(server: &Running) -> Connection {
    kubeconfig::endpoint(server.kubeconfig()).unwrap().connect(Protocol::Http2).await.unwrap()
}

async fn post(client: &mut Connection, path: &str, body: String) -> Reply {
    client.must(&Call::new(Method::POST, path).body(JSON, body)).await.unwrap()
}

async fn get(client: &mut Connection, path: &str) -> Reply {
    client.call(&Call::get(path)).await.unwrap()
}

fn definition(scope: &str) -> String {
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
        "metadata":{{"name":"notes.example.com"}},"spec":{{"group":"example.com","scope":"{scope}",
        "names":{{"plural":"notes","singular":"note","kind":"Note","listKind":"NoteList"}},"versions":[
        {{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object"}}}}}}]}}}}"#
    )
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Waits until a path is served; a definition is established in the background.
async fn until_served(client: &mut Connection, path: &str) {
    while get(client, path).await.status != 200 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Requests of this kind that a server has counted.
async fn counted(client: &mut Connection, labels: [&str; 2]) -> u64 {
    let metrics = get(client, "/metrics").await.text();
    let matches = |line: &&str| {
        line.starts_with("apiserver_request_total{") && labels.iter().all(|label| line.contains(label))
    };
    metrics.lines().filter(matches).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[test]
fn two_servers_in_one_process_share_nothing() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let first = serve(&dir.path().join("first")).await;
        let second = serve(&dir.path().join("second")).await;
        let (mut a, mut b) = (connect(&first).await, connect(&second).await);

        // Objects, and the counters of requests.
        for n in 0..20 {
            let body = format!(r#"{{"metadata":{{"name":"map-{n}"}},"data":{{"n":"{n}"}}}}"#);
            post(&mut a, CONFIG_MAPS, body).await;
        }
        assert_eq!(get(&mut a, &format!("{CONFIG_MAPS}/map-7")).await.status, 200);
        assert_eq!(get(&mut b, &format!("{CONFIG_MAPS}/map-7")).await.status, 404);
        let posts = ["resource=\"configmaps\"", "verb=\"POST\""];
        assert_eq!((counted(&mut a, posts).await, counted(&mut b, posts).await), (20, 0));

        // One definition, in another scope on each.
        post(&mut a, DEFINITIONS, definition("Cluster")).await;
        post(&mut b, DEFINITIONS, definition("Namespaced")).await;
        until_served(&mut a, "/apis/example.com/v1/notes").await;
        until_served(&mut b, "/apis/example.com/v1/namespaces/default/notes").await;
        assert_eq!(get(&mut a, "/apis/example.com/v1/namespaces/default/notes").await.status, 404);
        let note = r#"{"apiVersion":"example.com/v1","kind":"Note","metadata":{"name":"n"}}"#;
        post(&mut a, "/apis/example.com/v1/notes", note.to_owned()).await;
        assert!(!get(&mut b, "/apis/example.com/v1/notes").await.text().contains("\"n\""));

        // The administrator of one is unknown to the other: its certificate is of another authority.
        let foreign = kubeconfig::endpoint(first.kubeconfig()).unwrap();
        let own = std::fs::read(dir.path().join("second/pki/ca.crt")).unwrap();
        let at_second = plinth_benches::api::client::Endpoint::new(
            &second.address().to_string(),
            &own,
            foreign.identity().clone(),
        );
        let mut unknown = at_second.unwrap().connect(Protocol::Http1).await.unwrap();
        assert_eq!(get(&mut unknown, "/api/v1/nodes").await.status, 401);

        // The end of one is not the end of the other.
        first.stop().await.unwrap();
        assert!(a.call(&Call::get("/readyz")).await.is_err());
        post(&mut b, CONFIG_MAPS, r#"{"metadata":{"name":"after"}}"#.to_owned()).await;
        assert_eq!(get(&mut b, "/readyz").await.text(), "ok");
        second.stop().await.unwrap();

        // Both directories are whole, and can be served again.
        let again = serve(&dir.path().join("first")).await;
        assert_eq!(get(&mut connect(&again).await, &format!("{CONFIG_MAPS}/map-7")).await.status, 200);
        again.stop().await.unwrap();
    });
}

/// The limit of open files is the process's: each server keeps to the share that it is given.
#[test]
fn two_servers_in_one_process_share_its_open_files() {
    /// Connections of clients with the smallest share.
    const CONNECTIONS: usize = 58;
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let share = ["--max-open-files", "256"];
        let first = serve_with(&dir.path().join("first"), &share).await;
        let second = serve_with(&dir.path().join("second"), &share).await;
        let mut held = Vec::new();
        for _ in 0..2 * CONNECTIONS {
            held.push(TcpStream::connect(first.address()).await.unwrap());
        }
        // Those beyond are closed, the newest or one that is idle; the others wait for what the client says.
        let is_open = |stream: &&TcpStream| {
            matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        };
        let mut open = held.len();
        for _ in 0..2000 {
            open = held.iter().filter(is_open).count();
            if open <= CONNECTIONS {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(open, CONNECTIONS);
        assert_eq!(get(&mut connect(&second).await, "/readyz").await.text(), "ok");
        drop(held);
        first.stop().await.unwrap();
        second.stop().await.unwrap();
    });
}
