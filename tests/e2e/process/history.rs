//! `plinth history` and `plinth up`.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Output;

use hyper::Method;
use plinth_tests::outcome::Outcome;
use plinth_tests::requests::{call, send};
use plinth_tests::server::{client_of, launch, start_ready, TestServer};
use serde_json::json;

fn history(kubeconfig: &Path, arguments: &[&str]) -> Output {
    let mut command = launch().command(["history"]);
    command.args(arguments).arg("--kubeconfig").arg(kubeconfig).outcome()
}

#[tokio::test]
async fn the_versions_of_an_object_are_shown_with_what_changed() {
    let server = TestServer::start(&[]).await;
    let client = server.client().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = |text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}, "data": {"text": text}});
    let mut revisions = Vec::new();
    for (method, path, body) in [
        (Method::POST, maps.to_owned(), Some(map("one"))),
        (Method::PUT, format!("{maps}/mine"), Some(map("two"))),
        (Method::DELETE, format!("{maps}/mine"), None),
        (Method::POST, maps.to_owned(), Some(map("three"))),
    ] {
        let is_delete = method == Method::DELETE;
        let (status, object) = call(&client, method, &path, body.as_ref()).await;
        assert!(status < 300, "{object}");
        if !is_delete {
            revisions.push(object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned());
        }
    }
    // Of another name, in between.
    let shown = history(server.kubeconfig(), &["cm", "mine"]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let heads: Vec<_> = text.lines().filter(|line| line.starts_with("revision ")).collect();
    assert_eq!(heads.len(), 4, "{text}");
    for (head, kind, at) in [(0, "ADDED", 0), (1, "MODIFIED", 1), (3, "ADDED", 2)] {
        assert!(heads[head].starts_with(&format!("revision {} {kind}", revisions[at])), "{text}");
    }
    assert!(heads[2].contains(" DELETED"), "{text}");
    let change = format!("--- revision {}\n+++ revision {}\n", revisions[0], revisions[1]);
    assert!(text.contains(&change) && text.contains("-  text: one\n+  text: two\n"), "{text}");
    assert!(!text.contains("managedFields:"), "{text}");
    let full = history(server.kubeconfig(), &["ConfigMap", "mine", "--show-managed-fields"]);
    assert!(String::from_utf8_lossy(&full.stdout).contains("managedFields:"));

    // One that is deleted, of a kind without namespaces; one that never was; no kind at all.
    let space = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "gone"}, "value": 1});
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    assert!(send(&client, "POST", classes, &space).await.code < 300);
    assert!(call(&client, Method::DELETE, &format!("{classes}/gone"), None).await.0 < 300);
    let shown = history(server.kubeconfig(), &["priorityclasses.scheduling.k8s.io", "gone"]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(text.contains(" ADDED") && text.contains(" DELETED"), "{text}");
    let refused = |arguments: &[&str]| {
        let output = history(server.kubeconfig(), arguments);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let message = refused(&["cm", "never"]);
    assert!(
        message.starts_with("error: cannot show the history: configmaps \"never\" does not exist"),
        "{message}"
    );
    let message = refused(&["gizmos", "mine"]);
    assert!(message.contains("the server has no resource \"gizmos\""), "{message}");
}

#[tokio::test]
async fn history_begins_where_the_server_has_compacted() {
    let server = TestServer::start(&["--history-retention=1s", "--compaction-interval=1s"]).await;
    let client = server.client().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = |text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}, "data": {"text": text}});
    assert!(send(&client, "POST", maps, &map("one")).await.code < 300);
    // Until the creation is compacted, which other writes move on.
    plinth_tests::eventually("the creation is compacted", || {
        let (client, body) = (client.clone(), map("two"));
        let kubeconfig = server.kubeconfig().to_owned();
        async move {
            assert!(send(&client, "PUT", &format!("{maps}/mine"), &body).await.code < 300);
            let shown = history(&kubeconfig, &["cm", "mine"]);
            String::from_utf8_lossy(&shown.stdout)
                .lines()
                .next()
                .is_some_and(|line| line.contains(" PRESENT"))
        }
    })
    .await;
    let shown = history(server.kubeconfig(), &["cm", "mine"]);
    assert!(!String::from_utf8_lossy(&shown.stdout).contains(" ADDED"));
}

#[tokio::test]
async fn up_serves_and_adds_a_context_to_the_users_kubeconfig() {
    let dir = tempfile::tempdir().expect("directory");
    let config = dir.path().join("kube/config");
    fs::create_dir(dir.path().join("kube")).expect("directory");
    fs::write(&config, "clusters:\n- {name: other, cluster: {server: 'https://192.0.2.1'}}\n").expect("file");
    let merge = format!("--user-kubeconfig={}", config.display());
    // The harness starts `plinth serve`.
    const UP: &str = r#"program=$0; shift; exec "$program" up "$@""#;
    let launch = launch().on_host(Ipv4Addr::LOCALHOST.into(), &["sh", "-c", UP]);
    let mut server =
        start_ready(&launch, dir.path(), &["--merge-kubeconfig", &merge, "--context=mine"]).await;
    // It is added when the server is ready.
    let text = || fs::read_to_string(&config).expect("kubeconfig");
    plinth_tests::eventually("it is added", || async { text().contains("current-context: mine\n") }).await;
    assert!(text().contains("https://192.0.2.1"), "{}", text());
    let client = client_of(&config).await;
    let (status, _) = call(&client, Method::GET, "/api/v1/namespaces/default", None).await;
    assert_eq!(status, 200);
    server.terminate().await.expect("clean end");

    // A name that is in use for another cluster ends the server.
    let (kept, other) = (text(), tempfile::tempdir().expect("directory"));
    let arguments = ["--merge-kubeconfig", &merge, "--context=mine"];
    let mut server = launch.start(other.path(), &arguments).await.expect("start");
    let taken = format!("error: --merge-kubeconfig: {} has \"mine\" for another cluster;", config.display());
    plinth_tests::eventually("it ends", || async { server.log().tail(5).contains(&taken) }).await;
    let _ = server.terminate().await;
    assert_eq!(text(), kept);

    // So does a kubeconfig that cannot be changed.
    fs::write(&config, "kind: Pod\n").expect("file");
    let mut server = launch.start(dir.path(), &["--merge-kubeconfig", &merge]).await.expect("start");
    let failed = format!("error: --merge-kubeconfig: {}: not a kubeconfig", config.display());
    plinth_tests::eventually("it ends", || async { server.log().tail(5).contains(&failed) }).await;
    let _ = server.terminate().await;
    assert_eq!(fs::read_to_string(&config).expect("kubeconfig"), "kind: Pod\n");
}
