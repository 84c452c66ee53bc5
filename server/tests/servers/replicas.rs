//! Servers that share a journal, in one process, through the socket: each shows what the others have
//! accepted, takes what they have issued, and says so when the journal is away. The journal is simulated;
//! what real ones add is in the tests of their crates.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Method;
use plinth_benches::api::client::{Call, Connection, Identity, Protocol, Reply, JSON};
use plinth_benches::api::kubeconfig;
use plinth_journal::simulated::{FailureRates, SimulatedJournal};
use plinth_server::cli::{
    join, replicas as list_replicas, runtime, start, start_on, JoinError, JoinOptions, ReplicasOptions,
    Running, ServeError, ServeOptions,
};

pub(super) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(super) fn options(data_dir: &Path, more: &[&str]) -> ServeOptions {
    let data_dir = data_dir.to_str().expect("a temporary directory has a UTF-8 name");
    let given = ["--data-dir", data_dir, "--secure-port", "0"];
    ServeOptions::from_arguments(given.iter().chain(more)).unwrap()
}

pub(super) async fn serve(data_dir: &Path, journal: &SimulatedJournal, client: u16) -> Running {
    try_serve(data_dir, journal, client, &[]).await.unwrap()
}

pub(super) async fn try_serve(
    data_dir: &Path,
    journal: &SimulatedJournal,
    client: u16,
    more: &[&str],
) -> Result<Running, ServeError> {
    let journal = Arc::new(journal.client(client));
    start_on(options(data_dir, more), Some(Box::new(move |_, _| Ok(journal)))).await
}

pub(super) async fn join_at(server: &Running, data_dir: PathBuf) {
    let options =
        JoinOptions { kubeconfig: Some(server.kubeconfig().to_owned()), data_dir, ..JoinOptions::default() };
    try_join(options).await.unwrap();
}

pub(super) async fn try_join(options: JoinOptions) -> Result<(), JoinError> {
    tokio::task::spawn_blocking(move || join(options)).await.unwrap()
}

/// Replicas in directories of their own: the first one founds the cluster, the others join it.
pub(super) async fn replicas<const N: usize>(dir: &Path, journal: &SimulatedJournal) -> [Running; N] {
    let mut running = vec![serve(&dir.join("1"), journal, 1).await];
    for n in 2..=N {
        let path = dir.join(n.to_string());
        join_at(&running[0], path.clone()).await;
        running.push(serve(&path, journal, n as u16).await);
    }
    running.try_into().ok().expect("as many as there are")
}

pub(super) async fn connect(server: &Running) -> Connection {
    kubeconfig::endpoint(server.kubeconfig()).unwrap().connect(Protocol::Http2).await.unwrap()
}

pub(super) async fn create(client: &mut Connection, name: &str) -> Reply {
    let body = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"n":"0"}}}}"#);
    client.call(&Call::new(Method::POST, MAPS).body(JSON, body)).await.unwrap()
}

pub(super) async fn get(client: &mut Connection, path: &str) -> Reply {
    client.call(&Call::get(path)).await.unwrap()
}

pub(super) fn json(reply: &Reply) -> serde_json::Value {
    serde_json::from_str(&reply.text()).unwrap_or_default()
}

#[test]
fn each_replica_shows_at_once_what_the_others_have_accepted() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(3);
        let servers: [Running; 3] = replicas(dir.path(), &journal).await;
        journal.set_failures(FailureRates { latency: Duration::from_millis(2), ..FailureRates::default() });
        let mut clients = Vec::new();
        for server in &servers {
            clients.push(connect(server).await);
        }
        for round in 0..30 {
            let (a, b, c) = (round % 3, (round + 1) % 3, (round + 2) % 3);
            let path = format!("{MAPS}/map-{round}");
            assert_eq!(create(&mut clients[a], &format!("map-{round}")).await.status, 201);
            assert_eq!(get(&mut clients[b], &path).await.status, 200, "{round}");
            // A change on the state that another one has returned is no conflict.
            let mut map = json(&get(&mut clients[b], &path).await);
            map["data"]["n"] = "1".into();
            let put = Call::new(Method::PUT, &*path).body(JSON, map.to_string());
            let put = clients[c].call(&put).await.unwrap();
            assert_eq!(put.status, 200, "{}", put.text());
            // An older one is, everywhere.
            let late = Call::new(Method::PUT, &*path).body(JSON, map.to_string());
            assert_eq!(clients[a].call(&late).await.unwrap().status, 409);
            // Not older than a revision that another replica has given.
            let revision = json(&put)["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            let found = get(&mut clients[b], &format!("{path}?resourceVersion={revision}")).await;
            assert_eq!(json(&found)["data"]["n"], "1");
            let list = json(&get(&mut clients[a], &format!("{MAPS}?labelSelector=")).await);
            let names = list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].clone());
            assert!(names.clone().any(|name| name == format!("map-{round}")), "{round}");
            let deleted = clients[b].call(&Call::new(Method::DELETE, &*path)).await.unwrap();
            assert_eq!(deleted.status, 200, "{}", deleted.text());
            assert_eq!(get(&mut clients[c], &path).await.status, 404, "{round}");
        }
        for server in servers {
            server.stop().await.unwrap();
        }
    });
}

/// The second replica lags, and its writes are tried on what it has.
#[test]
fn a_write_on_an_older_state_is_judged_by_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(11);
        let [first, second]: [Running; 2] = replicas(dir.path(), &journal).await;
        let lag =
            FailureRates { latency: Duration::from_millis(2), stale_reads: 800, ..FailureRates::default() };
        journal.set_failures(lag);
        let (mut a, mut b) = (connect(&first).await, connect(&second).await);
        for round in 0..20 {
            // In a namespace that is new, and in one that is gone.
            let namespaces = "/api/v1/namespaces";
            let body = format!(r#"{{"metadata":{{"name":"n-{round}"}}}}"#);
            a.must(&Call::new(Method::POST, namespaces).body(JSON, body)).await.unwrap();
            let maps = format!("{namespaces}/n-{round}/configmaps");
            let map = |n: u32| format!(r#"{{"metadata":{{"name":"m"}},"data":{{"n":"{n}"}}}}"#);
            let post = Call::new(Method::POST, &*maps).body(JSON, map(0));
            let created = b.call(&post).await.unwrap();
            assert_eq!(created.status, 201, "{round}: {}", created.text());
            assert_eq!(a.call(&post).await.unwrap().status, 409);

            // A change back to what the second replica may still have is a change.
            let path = format!("{maps}/m");
            let put = |n: u32| Call::new(Method::PUT, &*path).body(JSON, map(n));
            a.must(&put(1)).await.unwrap();
            b.must(&put(0)).await.unwrap();
            assert_eq!(json(&get(&mut a, &path).await)["data"]["n"], "0", "{round}");
            let patch = Call::new(Method::PATCH, &*path)
                .body("application/merge-patch+json", r#"{"data":{"n":"2"}}"#);
            b.must(&patch).await.unwrap();
            assert_eq!(json(&get(&mut a, &path).await)["data"]["n"], "2", "{round}");
            a.must(&Call::new(Method::DELETE, &*path)).await.unwrap();
            assert_eq!(b.call(&put(3)).await.unwrap().status, 404, "{round}");

            a.must(&Call::new(Method::DELETE, format!("{namespaces}/n-{round}"))).await.unwrap();
            let late = b.call(&post).await.unwrap();
            assert!(late.status == 403 || late.status == 404, "{round}: {}", late.text());
        }
        for server in [first, second] {
            server.stop().await.unwrap();
        }
    });
}

#[test]
fn a_custom_resource_is_served_everywhere_when_it_is_established() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(10);
        let servers: [Running; 3] = replicas(dir.path(), &journal).await;
        journal.set_failures(FailureRates { latency: Duration::from_millis(5), ..FailureRates::default() });
        let mut clients = Vec::new();
        for server in &servers {
            clients.push(connect(server).await);
        }
        for round in 0..6 {
            let definition = format!(
                r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
                "metadata":{{"name":"notes{round}.example.com"}},"spec":{{"group":"example.com","scope":"Namespaced",
                "names":{{"plural":"notes{round}","singular":"note{round}","kind":"Note{round}"}},"versions":[
                {{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object"}}}}}}]}}}}"#
            );
            let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let (a, b, c) = (round % 3, (round + 1) % 3, (round + 2) % 3);
            clients[a].must(&Call::new(Method::POST, definitions).body(JSON, definition)).await.unwrap();
            let path = format!("{definitions}/notes{round}.example.com");
            while !get(&mut clients[a], &path).await.text().contains("\"Established\"") {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let notes = format!("/apis/example.com/v1/namespaces/default/notes{round}");
            let kind = format!("Note{round}");
            let note =
                format!(r#"{{"apiVersion":"example.com/v1","kind":"{kind}","metadata":{{"name":"n"}}}}"#);
            let created = clients[b].call(&Call::new(Method::POST, &*notes).body(JSON, note)).await.unwrap();
            assert_eq!(created.status, 201, "{round}: {}", created.text());
            assert_eq!(get(&mut clients[c], &format!("{notes}/n")).await.status, 200);
            assert_eq!(get(&mut clients[c], &format!("{notes}-unknown")).await.status, 404);
        }
        for server in servers {
            server.stop().await.unwrap();
        }
    });
}

#[test]
fn what_one_replica_issues_all_accept() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(4);
        let [first, second]: [Running; 2] = replicas(dir.path(), &journal).await;
        let (mut a, mut b) = (connect(&first).await, connect(&second).await);

        // The token of an account that has just been created.
        for n in 0..5 {
            let accounts = "/api/v1/namespaces/default/serviceaccounts";
            let body = format!(r#"{{"metadata":{{"name":"robot-{n}"}}}}"#);
            a.must(&Call::new(Method::POST, accounts).body(JSON, body)).await.unwrap();
            let path = format!("{accounts}/robot-{n}/token");
            let issued = a.must(&Call::new(Method::POST, path).body(JSON, "{}")).await.unwrap();
            let token = json(&issued)["status"]["token"].as_str().unwrap().to_owned();
            let at_second = kubeconfig::endpoint(second.kubeconfig()).unwrap();
            let bearer = at_second.with_identity(Identity::Token(token));
            let mut robot = bearer.connect(Protocol::Http1).await.unwrap();
            let reply = get(&mut robot, MAPS).await;
            // Known, and without a role.
            assert_eq!(reply.status, 403, "{}", reply.text());
            assert!(reply.text().contains(&format!("system:serviceaccount:default:robot-{n}")));
        }

        // A list is continued at another replica, at its revision.
        for n in 0..6 {
            assert_eq!(create(&mut a, &format!("page-{n}")).await.status, 201);
        }
        let page = json(&get(&mut a, &format!("{MAPS}?limit=3")).await);
        assert_eq!(create(&mut a, "page-9-later").await.status, 201);
        let token = page["metadata"]["continue"].as_str().unwrap();
        let rest = json(&get(&mut b, &format!("{MAPS}?limit=100&continue={token}")).await);
        assert_eq!(rest["metadata"]["resourceVersion"], page["metadata"]["resourceVersion"]);
        let names: Vec<_> =
            rest["items"].as_array().unwrap().iter().map(|i| &i["metadata"]["name"]).collect();
        assert!(
            names.iter().any(|name| *name == "page-5") && !names.iter().any(|name| *name == "page-9-later")
        );

        // A client certificate, and a watch from a revision of the other one.
        let admin = kubeconfig::endpoint(first.kubeconfig()).unwrap();
        let ca = std::fs::read(dir.path().join("2/pki/ca.crt")).unwrap();
        let elsewhere = plinth_benches::api::client::Endpoint::new(
            &second.address().to_string(),
            &ca,
            admin.identity().clone(),
        );
        let mut elsewhere = elsewhere.unwrap().connect(Protocol::Http1).await.unwrap();
        let revision = rest["metadata"]["resourceVersion"].as_str().unwrap();
        let watch = format!("{MAPS}?watch=true&resourceVersion={revision}&timeoutSeconds=1");
        let events = get(&mut elsewhere, &watch).await.text();
        assert!(events.contains("page-9-later") && !events.contains("page-5"), "{events}");

        // Both are endpoints of the cluster's own Service, and known by their hashes.
        let deadline = Instant::now() + Duration::from_secs(40);
        loop {
            let text = get(&mut b, "/api/v1/namespaces/default/endpoints/kubernetes").await.text();
            let members = json(&get(&mut b, "/plinth/replicas").await);
            let members = members.as_array().unwrap().clone();
            let ports = [first.address().port(), second.address().port()];
            if members.len() == 2 && ports.iter().all(|port| text.contains(&format!("\"port\":{port}"))) {
                break;
            }
            assert!(Instant::now() < deadline, "{text} {members:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        // One that stops is none any more.
        let port = format!("\"port\":{}", first.address().port());
        first.stop().await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(40);
        while get(&mut b, "/api/v1/namespaces/default/endpoints/kubernetes").await.text().contains(&port) {
            assert!(Instant::now() < deadline);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        second.stop().await.unwrap();
    });
}

#[test]
fn without_its_journal_a_replica_reads_and_says_why_it_does_not_write() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(5);
        let [first, second]: [Running; 2] = replicas(dir.path(), &journal).await;
        let (mut a, mut b) = (connect(&first).await, connect(&second).await);
        assert_eq!(create(&mut a, "before").await.status, 201);
        assert_eq!(get(&mut b, &format!("{MAPS}/before")).await.status, 200);
        let mut watcher = connect(&second).await;
        let watch = Call::get(format!("{MAPS}?watch=true&resourceVersion=0&timeoutSeconds=20"));
        let watching = tokio::spawn(async move { watcher.call(&watch).await.unwrap().text() });
        assert_eq!(create(&mut b, "of-another-page").await.status, 201);
        let page = json(&get(&mut b, &format!("{MAPS}?limit=1")).await);
        let next = page["metadata"]["continue"].as_str().unwrap().to_owned();

        journal.set_reachable(2, false);
        assert_eq!(create(&mut a, "meanwhile").await.status, 201, "the others go on");
        // Any state is served; the most recent one is not known.
        let any = get(&mut b, &format!("{MAPS}/before?resourceVersion=0")).await;
        assert_eq!(any.status, 200);
        assert_eq!(get(&mut b, &format!("{MAPS}/meanwhile?resourceVersion=0")).await.status, 404);
        for call in [
            Call::get(format!("{MAPS}/meanwhile?timeout=1s")),
            Call::get(format!("{MAPS}?timeout=1s")),
            Call::get(format!("{MAPS}?watch=true&timeoutSeconds=1")),
            Call::new(Method::POST, format!("{MAPS}?timeout=1s"))
                .body(JSON, r#"{"metadata":{"name":"never"}}"#),
            Call::new(Method::DELETE, format!("{MAPS}/before?timeout=1s")),
        ] {
            let reply = b.call(&call).await.unwrap();
            assert_eq!(reply.status, 503, "{call:?}: {}", reply.text());
            assert!(reply.headers.contains_key("retry-after"));
            assert!(reply.text().contains("journal"), "{}", reply.text());
        }
        // A page of a list is of a revision that is here.
        let page = get(&mut b, &format!("{MAPS}?limit=1&continue={next}&timeout=1s")).await;
        assert_eq!(page.status, 200, "{}", page.text());
        let ready = get(&mut b, "/readyz?verbose").await;
        assert_eq!(ready.status, 200);
        assert!(ready.text().contains("[-]journal"), "{}", ready.text());
        assert!(get(&mut b, "/metrics").await.text().contains("plinth_journal_up 0"));

        journal.set_reachable(2, true);
        assert_eq!(get(&mut b, &format!("{MAPS}/meanwhile")).await.status, 200);
        assert_eq!(create(&mut b, "after").await.status, 201);
        for client in [&mut a, &mut b] {
            assert_eq!(get(client, &format!("{MAPS}/never")).await.status, 404, "it was withdrawn");
            assert_eq!(get(client, &format!("{MAPS}/before")).await.status, 200);
            assert!(get(client, "/readyz?verbose").await.text().contains("[+]journal"));
        }
        let metrics = get(&mut b, "/metrics").await.text();
        assert!(metrics.contains("plinth_journal_up 1"));
        assert!(metrics.contains("plinth_journal_append_duration_seconds_count"));
        let events = watching.await.unwrap();
        for name in ["before", "meanwhile", "after"] {
            assert_eq!(events.matches(&format!("\"name\":\"{name}\"")).count(), 1, "{name}: {events}");
        }
        first.stop().await.unwrap();
        second.stop().await.unwrap();
    });
}

#[test]
fn a_replica_starts_again_where_it_was_even_without_its_journal() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(6);
        let [first, second]: [Running; 2] = replicas(dir.path(), &journal).await;
        let mut a = connect(&first).await;
        assert_eq!(create(&mut a, "one").await.status, 201);
        assert_eq!(get(&mut connect(&second).await, &format!("{MAPS}/one")).await.status, 200);
        second.stop().await.unwrap();
        assert_eq!(create(&mut a, "two").await.status, 201);
        journal.set_reachable(2, false);
        let second = serve(&dir.path().join("2"), &journal, 2).await;
        let mut b = connect(&second).await;
        assert_eq!(get(&mut b, &format!("{MAPS}/one?resourceVersion=0")).await.status, 200);
        assert_eq!(get(&mut b, &format!("{MAPS}/two?timeout=1s")).await.status, 503);
        journal.set_reachable(2, true);
        assert_eq!(get(&mut b, &format!("{MAPS}/two")).await.status, 200);
        first.stop().await.unwrap();
        second.stop().await.unwrap();
    });
}

/// Waits for what a controller makes in a new namespace.
async fn controllers_run(client: &mut Connection, namespace: &str) {
    let body = format!(r#"{{"metadata":{{"name":"{namespace}"}}}}"#);
    client.must(&Call::new(Method::POST, "/api/v1/namespaces").body(JSON, body)).await.unwrap();
    let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
    let deadline = Instant::now() + Duration::from_secs(60);
    while get(client, &account).await.status != 200 {
        assert!(Instant::now() < deadline, "{namespace}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn the_controllers_go_on_at_another_replica() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(8);
        let [first, second, third]: [Running; 3] = replicas(dir.path(), &journal).await;
        let mut last = connect(&third).await;
        controllers_run(&mut last, "with-three").await;
        // The first one, which had come first, is handed over; the next one is cut off.
        first.stop().await.unwrap();
        controllers_run(&mut last, "with-two").await;
        journal.set_reachable(2, false);
        controllers_run(&mut last, "with-one").await;
        journal.set_reachable(2, true);
        controllers_run(&mut connect(&second).await, "with-two-again").await;
        second.stop().await.unwrap();
        third.stop().await.unwrap();
    });
}

#[test]
fn directories_and_credentials_that_do_not_fit_are_refused_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(7);
        let single = dir.path().join("single");
        let running = start(options(&single, &[])).await.unwrap();
        // It is no replica: nothing to list, nothing to join.
        let mut client = connect(&running).await;
        assert_eq!(get(&mut client, "/plinth/replicas").await.status, 404);
        let refused = {
            let data_dir = dir.path().join("joined");
            try_join(JoinOptions { kubeconfig: Some(running.kubeconfig().to_owned()), data_dir, ..JoinOptions::default() })
                .await
                .unwrap_err()
        };
        assert!(refused.to_string().contains("no replica"), "{refused}");
        assert!(!dir.path().join("joined").exists() && !dir.path().join("joined.joining").exists());
        running.stop().await.unwrap();

        // A single store does not follow a journal, a replica follows nothing else.
        let client = Arc::new(journal.client(1));
        let refused = start_on(options(&single, &[]), Some(Box::new(move |_, _| Ok(client)))).await;
        let refused = refused.err().unwrap();
        assert!(refused.to_string().contains("single store"), "{refused}");
        assert!(journal.records().is_empty());
        let [replica]: [Running; 1] = replicas(dir.path(), &journal).await;
        let kubeconfig = replica.kubeconfig().to_owned();

        // The keys are for those alone who can do everything, whatever a role allows.
        let role = r#"{"metadata":{"name":"reader"},"rules":[{"nonResourceURLs":["*"],"verbs":["*"]}]}"#;
        let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        let mut admin = connect(&replica).await;
        admin.must(&Call::new(Method::POST, roles).body(JSON, role)).await.unwrap();
        let binding = r#"{"metadata":{"name":"reader"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",
            "name":"reader"},"subjects":[{"kind":"ServiceAccount","name":"default","namespace":"default"}]}"#;
        let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        admin.must(&Call::new(Method::POST, bindings).body(JSON, binding)).await.unwrap();
        let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
        let deadline = Instant::now() + Duration::from_secs(30);
        let issued = loop {
            // The account is made by a controller.
            let reply = admin.call(&Call::new(Method::POST, path).body(JSON, "{}")).await.unwrap();
            if reply.status == 201 {
                break reply;
            }
            assert!(Instant::now() < deadline, "{}", reply.text());
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let token = json(&issued)["status"]["token"].as_str().unwrap().to_owned();
        let endpoint = kubeconfig::endpoint(&kubeconfig).unwrap().with_identity(Identity::Token(token));
        let mut reader = endpoint.connect(Protocol::Http1).await.unwrap();
        assert_eq!(get(&mut reader, "/plinth/replicas").await.status, 200);
        let refused = get(&mut reader, "/plinth/checkpoint").await;
        assert_eq!(refused.status, 403);
        assert!(!refused.text().contains("PRIVATE KEY"));

        // A directory that holds something is not joined.
        let refused = {
            let data_dir = single.clone();
            try_join(JoinOptions { kubeconfig: Some(kubeconfig), data_dir, ..JoinOptions::default() })
                .await
                .unwrap_err()
        };
        assert!(refused.to_string().contains("not empty"), "{refused}");
        replica.stop().await.unwrap();
        let refused = start(options(&dir.path().join("1"), &[])).await.err().unwrap();
        assert!(refused.to_string().contains("--journal"), "{refused}");
        start(options(&single, &[])).await.unwrap().stop().await.unwrap();
    });
}

#[test]
fn a_replica_that_is_gone_is_removed_from_the_list() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(12);
        let [first, second]: [Running; 2] = replicas(dir.path(), &journal).await;
        let mut client = connect(&first).await;
        let listed = |reply: &Reply| {
            let ids =
                json(reply).as_array().unwrap().iter().map(|member| member["id"].as_u64().unwrap()).collect();
            let ids: Vec<u64> = ids;
            ids
        };
        let address = second.address().to_string();
        let deadline = Instant::now() + Duration::from_secs(40);
        let gone = loop {
            let members = get(&mut client, "/plinth/replicas").await;
            let found = json(&members).as_array().unwrap().iter().find(|m| m["address"] == *address).cloned();
            match found {
                Some(member) => break member["id"].as_u64().unwrap(),
                None => assert!(Instant::now() < deadline, "{}", members.text()),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let delete = |id: &str| Call::new(Method::DELETE, format!("/plinth/replicas/{id}"));
        let up = client.call(&delete(&gone.to_string())).await.unwrap();
        assert_eq!(up.status, 409, "{}", up.text());
        assert!(up.text().contains("stop it first"));
        second.stop().await.unwrap();

        let kubeconfig = first.kubeconfig().to_owned();
        let options = ReplicasOptions { kubeconfig, remove: Some(gone), compare: false };
        tokio::task::spawn_blocking(move || list_replicas(options)).await.unwrap().unwrap();
        assert!(!listed(&get(&mut client, "/plinth/replicas").await).contains(&gone));
        for id in [gone.to_string(), "x".to_owned(), "70000".to_owned()] {
            assert_eq!(client.call(&delete(&id)).await.unwrap().status, 404, "{id}");
        }
        assert_eq!(get(&mut client, &format!("/plinth/replicas/{gone}")).await.status, 405);
        let mut anybody = kubeconfig::endpoint(first.kubeconfig())
            .unwrap()
            .with_identity(Identity::Anonymous)
            .connect(Protocol::Http1)
            .await
            .unwrap();
        assert_eq!(anybody.call(&delete("1")).await.unwrap().status, 403);
        first.stop().await.unwrap();
    });
}
