//! Replicas of which something is taken away while they run, or that begin with what is wrong: room on the
//! disk, credentials, records.

use std::time::{Duration, Instant};

use hyper::Method;
use plinth_benches::api::client::{Call, Connection, Protocol, JSON};
use plinth_benches::api::server::Server;
use plinth_tests::eventually;
use plinth_tests::outcome::Outcome;
use plinth_tests::server::{connect_to, launch, start_ready};
use plinth_tests::small_disk::{fill, on_a_small_disk, store_of};
use serde_json::{json, Value};
use tempfile::TempDir;

use super::replicas::{join, replicas, Members, ETCD};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str, bytes: usize) -> Call {
    config_map_at(CONFIG_MAPS, name, bytes)
}

fn config_map_at(path: &str, name: &str, bytes: usize) -> Call {
    let body = json!({"metadata": {"name": name}, "data": {"x": "y".repeat(bytes)}});
    Call::new(Method::POST, path).body(JSON, body.to_string())
}

/// Waits until the process has ended by itself.
async fn ending(server: &mut Server) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = server.ended() {
            return status.to_string();
        }
        assert!(Instant::now() < deadline, "it goes on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_on_a_full_disk_stops_and_leaves_no_doubt() {
    let Some(members) = Members::start(ETCD) else { return };
    let roots: Vec<TempDir> = (0..2).map(|_| TempDir::new().expect("directory")).collect();
    let Some(small) = on_a_small_disk(launch(), roots[1].path()) else { return };
    let mut servers = replicas(&roots, &members).await;
    servers[1].terminate().await.expect("clean end");
    let mut server = start_ready(&small, roots[1].path(), &["--journal", members.url.as_str()]).await;
    let mut connection = connect_to(&server, Protocol::Http1).await;
    let store = store_of(&server, roots[1].path());
    let mut created = 0;
    let (name, unknown) = loop {
        fill(&store);
        let name = format!("m-{created}");
        let reply = connection.call(&config_map(&name, 1_000_000)).await.expect("an answer");
        if reply.status != 201 {
            break (name, reply);
        }
        created += 1;
        assert!(created < 100, "the disk is full by now");
    };
    // It is in the journal, so the other one has it.
    assert_eq!(unknown.status, 504, "{}", unknown.text());
    let status: Value = serde_json::from_str(&unknown.text()).expect("a status");
    let message = status["message"].as_str().expect("a message");
    assert_eq!(status["reason"], "Timeout");
    assert!(message.contains("the outcome of the write is unknown: "), "{message}");
    assert!(message.contains("No space left") && message.contains("read the object"), "{message}");
    assert!(!unknown.headers.contains_key("retry-after"), "it may be made twice");
    let mut other = connect_to(&servers[0], Protocol::Http1).await;
    other.must(&Call::get(format!("{CONFIG_MAPS}/{name}"))).await.expect("it was written");
    let refused = connection.call(&config_map("after", 1)).await.expect("an answer");
    assert_eq!(refused.status, 503, "{}", refused.text());

    assert_eq!(ending(&mut server).await, "exit status: 74");
    let log = server.log().tail(1000);
    let failure: Vec<&str> = log.lines().filter(|line| line.contains("storage engine has failed")).collect();
    assert_eq!(failure.len(), 1, "{log}");
    assert!(failure[0].contains("is full: ") && failure[0].contains("Free some space"), "{log}");
    assert!(!log.contains("verify"), "that is not what helps: {log}");
    assert_eq!(other.call(&Call::get(format!("{CONFIG_MAPS}/after"))).await.expect("an answer").status, 404);

    // With room, it has what it has not applied.
    let again = start_ready(&launch(), roots[1].path(), &["--journal", members.url.as_str()]).await;
    let mut connection = connect_to(&again, Protocol::Http1).await;
    connection.must(&Call::get(format!("{CONFIG_MAPS}/{name}"))).await.expect("applied");
}

/// Users of etcd, with the role `root` and without any, and the token of one who changes them.
fn add_users(members: &Members) -> String {
    let call = |path: &str, body: &str| members.gateway(path, body, "");
    for user in ["root", "plinth", "guest"] {
        call("/v3/auth/user/add", &format!(r#"{{"name":"{user}","password":"secret of {user}"}}"#));
    }
    call("/v3/auth/role/add", r#"{"name":"root"}"#);
    for user in ["root", "plinth"] {
        call("/v3/auth/user/grant", &format!(r#"{{"user":"{user}","role":"root"}}"#));
    }
    let enabled = call("/v3/auth/enable", "{}");
    assert!(enabled.starts_with("HTTP/1.1 200"), "{enabled}");
    let answer = call("/v3/auth/authenticate", r#"{"name":"root","password":"secret of root"}"#);
    let token = answer.split("\"token\":\"").nth(1).and_then(|rest| rest.split('"').next());
    token.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Repeats a request until it is answered with `status`; other answers are 503.
async fn until(connection: &mut Connection, call: &Call, status: u16) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let reply = connection.call(call).await.expect("an answer");
        let text = reply.text();
        if reply.status == status {
            assert_eq!(reply.headers.contains_key("retry-after"), status == 503, "{text}");
            return text;
        }
        assert!([200, 201, 409, 503].iter().any(|known| reply.status == *known), "{} {text}", reply.status);
        assert!(Instant::now() < deadline, "{text}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_of_a_journal_are_checked_at_the_start_and_may_be_revoked() {
    let Some(members) = Members::start(ETCD) else { return };
    let token = add_users(&members);
    let root = TempDir::new().expect("directory");
    let path = |name: &str| root.path().join(name);
    let write_file = |name: &str, text: &str| {
        std::fs::write(path(name), text).expect("a file");
        path(name)
    };
    for user in ["plinth", "guest"] {
        write_file(user, &format!("secret of {user}\n"));
    }
    let config = |name: &str, text: &str| write_file(name, text).to_str().expect("UTF-8").to_owned();
    for (name, text, expected) in [
        ("nobody", "{}", "set user and passwordFile in --journal-config"),
        ("guess", "user: plinth\npasswordFile: guest", "correct user and passwordFile in --journal-config"),
        ("without-rights", "user: guest\npasswordFile: guest", "--journal-config the role root"),
        ("no-file", "user: plinth\npasswordFile: absent", "absent"),
        ("no-pem", "certificateAuthorityFile: guest", "certificateAuthorityFile"),
        ("small", "user: plinth\npasswordFile: plinth\nmaxRecordBytes: 0", "maxRecordBytes"),
    ] {
        let file = config(&format!("{name}.yaml"), text);
        let mut command = launch().command(["serve", "--secure-port", "0", "--journal", &members.url]);
        let data = path(name).join("data");
        command.args(["--journal-config", &file, "--data-dir"]).arg(&data);
        let refused = command.outcome();
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{name}: {text}");
        assert!(text.contains("error: --journal") && text.contains(expected), "{name}: {text}");
        assert!(!text.contains("secret") && !data.join("store").exists(), "{name}: {text}");
    }
    let written = members.gateway("/v3/kv/range", r#"{"key":"AA==","range_end":"AA=="}"#, &token);
    assert!(written.starts_with("HTTP/1.1 200") && !written.contains("kvs"), "{written}");

    let file = config("plinth.yaml", "user: plinth\npasswordFile: plinth");
    let arguments = ["--journal", members.url.as_str(), "--journal-config", &file];
    let mut server = start_ready(&launch(), root.path(), &arguments).await;
    let mut connection = connect_to(&server, Protocol::Http1).await;
    connection.must(&config_map("before", 1)).await.expect("created");
    let change = |change: &str, field: &str| {
        let body = format!(r#"{{"{field}":"plinth","role":"root"}}"#);
        let answer = members.gateway(&format!("/v3/auth/user/{change}"), &body, &token);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    };
    change("revoke", "name");
    let within = |path: &str| format!("{path}?timeout=1s");
    let create = Call::new(Method::POST, within(CONFIG_MAPS));
    let during = create.body(JSON, r#"{"metadata":{"name":"during"}}"#);
    let refused = until(&mut connection, &during, 503).await;
    assert!(refused.contains("permission denied") && refused.contains("--journal-config"), "{refused}");
    until(&mut connection, &Call::get(within(&format!("{CONFIG_MAPS}/before"))), 503).await;
    let old = Call::get(format!("{CONFIG_MAPS}/before?resourceVersion=0"));
    connection.must(&old).await.expect("reads of its own state go on");
    let checks = connection.must(&Call::get("/readyz?verbose")).await.expect("ready").text();
    assert!(checks.contains("[-]journal"), "{checks}");
    change("grant", "user");
    until(&mut connection, &during, 201).await;
    connection.must(&Call::get(format!("{CONFIG_MAPS}/before"))).await.expect("read");
    server.terminate().await.expect("clean end");
    let log = server.log().tail(1000);
    assert!(log.contains("the journal refuses") && !log.contains("does not answer"), "{log}");
}

/// What Kubernetes gives a process to end before it kills it.
const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// As behind a partition: calls of it are neither refused nor answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_starts_and_stops_while_its_etcd_stands_still() {
    let Some(members) = Members::start(ETCD) else { return };
    let roots = [TempDir::new().expect("directory")];
    let mut servers = replicas(&roots, &members).await;
    let mut connection = connect_to(&servers[0], Protocol::Http1).await;
    connection.must(&config_map("before", 1)).await.expect("created");
    members.signal_all("-STOP");
    for is_long_up in [true, false] {
        if !is_long_up {
            let begun = Instant::now();
            servers[0].restart().await.expect("ready");
            assert!(begun.elapsed() < GRACE_PERIOD, "{:?}", begun.elapsed());
        }
        let mut connection = connect_to(&servers[0], Protocol::Http1).await;
        let read = Call::get(format!("{CONFIG_MAPS}?resourceVersion=0"));
        let listed = connection.must(&read).await.expect("read").text();
        assert!(listed.contains("\"before\""), "{listed}");
        // What is written to nobody says nothing of it.
        let dry_run = config_map_at(&format!("{CONFIG_MAPS}?dryRun=All&timeout=1s"), "dry", 1);
        for call in [Call::get(format!("{CONFIG_MAPS}?timeout=1s")), dry_run] {
            let answer = connection.call(&call).await.expect("an answer");
            let text = answer.text();
            assert_eq!(answer.status, 503, "{text}");
            assert!(text.contains("most recent state") && !text.contains("written"), "{text}");
        }
        // A client waits for the journal when the replica is stopped.
        let waiting = tokio::spawn(async move { connection.call(&config_map("after", 1)).await });
        tokio::time::sleep(Duration::from_millis(200)).await;
        let begun = Instant::now();
        servers[0].terminate().await.expect("clean end");
        assert!(begun.elapsed() < GRACE_PERIOD, "{:?}", begun.elapsed());
        let answer = waiting.await.expect("a task").expect("an answer");
        assert!(matches!(answer.status.as_u16(), 503 | 504), "{}", answer.text());
    }
    members.signal_all("-CONT");
    servers[0].restart().await.expect("ready");
}

/// It has no more than what it was given, and has never been answered by etcd.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_has_just_joined_starts_while_its_etcd_stands_still() {
    let Some(members) = Members::start(ETCD) else { return };
    let roots: Vec<TempDir> = (0..2).map(|_| TempDir::new().expect("directory")).collect();
    let servers = replicas(&roots[..1], &members).await;
    let mut connection = connect_to(&servers[0], Protocol::Http1).await;
    connection.must(&config_map("before", 1)).await.expect("created");
    join(&servers[0], &roots[1]);
    members.signal_all("-STOP");
    let begun = Instant::now();
    let mut joined = start_ready(&launch(), roots[1].path(), &["--journal", members.url.as_str()]).await;
    assert!(begun.elapsed() < GRACE_PERIOD, "{:?}", begun.elapsed());
    let mut connection = connect_to(&joined, Protocol::Http1).await;
    let read = Call::get(format!("{CONFIG_MAPS}/before?resourceVersion=0"));
    connection.must(&read).await.expect("what it was given");
    let answer = connection.call(&config_map_at(&format!("{CONFIG_MAPS}?timeout=1s"), "away", 1)).await;
    assert!(matches!(answer.expect("an answer").status.as_u16(), 503 | 504));
    members.signal_all("-CONT");
    connection.must(&config_map("after", 1)).await.expect("the journal is back");
    joined.terminate().await.expect("clean end");
}

/// Flags that act on all, and what the replicas have in common.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_compared_and_warn_of_flags_that_differ() {
    let Some(members) = Members::start(ETCD) else { return };
    let roots: Vec<TempDir> = (0..2).map(|_| TempDir::new().expect("directory")).collect();
    let mut servers = replicas(&roots, &members).await;
    let arguments = [
        "--journal",
        members.url.as_str(),
        "--history-retention=10s",
        "--service-node-port-range=20000-20100",
    ];
    servers[1].terminate().await.expect("clean end");
    servers[1] = start_ready(&launch(), roots[1].path(), &arguments).await;
    for flag in ["--history-retention", "--service-node-port-range"] {
        for server in &servers {
            let is_warned = || server.log().tail(200).contains(flag);
            eventually("each warns of the other", || async { is_warned() }).await;
        }
    }
    let run = |arguments: &[&str]| {
        let mut command = launch().command(["replicas"]);
        let output = command.args(arguments).arg("--kubeconfig").arg(servers[0].kubeconfig()).outcome();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).expect("text"))
    };
    // Two at once do not disturb each other.
    let compare = || run(&["--compare"]);
    let compared = std::thread::scope(|scope| {
        let other = scope.spawn(compare);
        [compare(), other.join().expect("a comparison")]
    });
    for (code, text) in compared {
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("2 replicas have the same state at position"), "{text}");
    }
    let (code, text) = run(&["--remove", "99999"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("no replica has the id \"99999\""), "{text}");
    // One that is away without having stopped is not compared.
    servers[1].kill().expect("killed");
    let kubeconfig = servers[0].kubeconfig();
    let mut command = launch().command(["replicas", "--compare", "--kubeconfig"]);
    let output = command.arg(kubeconfig).outcome();
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.code() == Some(1) && text.contains("has not recorded its hash"), "{text}");
}
