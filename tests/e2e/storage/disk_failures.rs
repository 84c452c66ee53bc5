//! The storage fails under a running server: a library that is loaded before the C library makes one sync
//! fail, or has syncs hang.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use plinth_benches::api::client::{Call, Connection, Protocol, JSON};
use plinth_benches::api::server::{Server, READY_WITHIN, STOP_WITHIN};
use plinth_tests::outcome::Outcome;
use plinth_tests::server::{connect_to, launch, start_ready};
use serde_json::{json, Value};
use tempfile::TempDir;

/// The file whose presence makes the next sync fail: of any file, or of one whose path contains this file's
/// content. The sync removes it, so that later syncs would succeed: a retry would report success.
const TRIGGER: &str = "PLINTH_TEST_FAIL_SYNC";

/// How long a hanging disk may stay undetected: longer than any limit of the probes.
const HANG_SEEN_WITHIN: Duration = Duration::from_secs(60);

/// The file whose removal syncs wait for.
const HANG: &str = "PLINTH_TEST_HANG_SYNC";

const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int is_meant(const char *trigger, int fd) {
    char text[64] = "", link[64], path[4096] = "";
    FILE *file = fopen(trigger, "r");
    if (!file) return 0;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0) return 0;
    return strstr(path, text) != NULL;
}
static int sync_or_fail(const char *name, int fd) {
    const char *trigger = getenv("PLINTH_TEST_FAIL_SYNC");
    if (trigger && is_meant(trigger, fd) && unlink(trigger) == 0) { errno = EIO; return -1; }
    const char *hang = getenv("PLINTH_TEST_HANG_SYNC");
    while (hang && access(hang, F_OK) == 0) usleep(5000);
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return real(fd);
}
int fsync(int fd) { return sync_or_fail("fsync", fd); }
int fdatasync(int fd) { return sync_or_fail("fdatasync", fd); }
"#;

/// Compiles the library; the C compiler is there, since RocksDB was compiled with it.
fn shim(dir: &Path) -> PathBuf {
    let (source, library) = (dir.join("shim.c"), dir.join("shim.so"));
    std::fs::write(&source, SHIM).expect("the shim's source");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
    assert!(cc.status().expect("a C compiler").success(), "the shim compiles");
    library
}

fn config_map(name: &str) -> Call {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    Call::new(Method::POST, "/api/v1/namespaces/default/configmaps").body(JSON, body.to_string())
}

/// Waits for the process to end by itself; how it ended.
async fn ending(server: &mut Server) -> String {
    let deadline = Instant::now() + STOP_WITHIN;
    loop {
        if let Some(ended) = server.ended() {
            return ended;
        }
        assert!(Instant::now() < deadline, "the process ends");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// RocksDB would continue in whatever replaces the directory.
#[tokio::test]
async fn a_server_whose_data_directory_is_moved_ends() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let mut server = start_ready(&launch, dir.path(), &[]).await;
    let mut connection = connect_to(&server, Protocol::Http1).await;
    connection.must(&config_map("before")).await.expect("created");
    let (data, moved) = (dir.path().join("data"), dir.path().join("moved"));
    std::fs::rename(&data, &moved).expect("moved");
    assert_eq!(ending(&mut server).await, "exit status: 74");
    let log = server.log().tail(100);
    assert!(log.contains("moved or replaced while it was in use"), "{log}");
    assert!(!data.exists(), "nothing is made in its place");
    std::fs::rename(&moved, &data).expect("moved back");
    server.restart().await.expect("restarted");
    let mut connection = connect_to(&server, Protocol::Http1).await;
    connection.must(&Call::get("/api/v1/namespaces/default/configmaps/before")).await.expect("acknowledged");

    // A second directory with a link to the database of the first.
    let second = dir.path().join("second/data");
    std::fs::create_dir_all(second.join("store")).expect("directory");
    for name in ["plinth", "continue.key", "store/PLINTH", "store/WATERMARK"] {
        std::fs::copy(data.join(name), second.join(name)).expect(name);
    }
    std::os::unix::fs::symlink(data.join("pki"), second.join("pki")).expect("link");
    std::os::unix::fs::symlink(data.join("store/db"), second.join("store/db")).expect("link");
    std::fs::remove_file(data.join("store/db/LOCK")).expect("RocksDB's own lock");
    let mut other = launch.start(&dir.path().join("second"), &[]).await.expect("start");
    let refusal = other.ready(READY_WITHIN).await.expect_err("one database has one server").to_string();
    assert!(refusal.contains("is in use by another process"), "{refusal}");
    connection.must(&config_map("after")).await.expect("created");
}

/// A server with one object, a connection to it, and the file whose presence makes a sync fail ([`TRIGGER`]).
async fn with_a_trigger() -> (TempDir, PathBuf, Server, Connection) {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let trigger = dir.path().join("trigger");
    let launch = launch.env("LD_PRELOAD", &shim(dir.path())).env(TRIGGER, &trigger);
    let server = start_ready(&launch, dir.path(), &[]).await;
    let mut connection = connect_to(&server, Protocol::Http1).await;
    connection.must(&config_map("before")).await.expect("created");
    (dir, trigger, server, connection)
}

#[tokio::test]
async fn a_failed_sync_ends_the_server_and_is_never_tried_again() {
    let (_dir, trigger, mut server, mut connection) = with_a_trigger().await;
    std::fs::write(&trigger, "").expect("trigger");
    let failed = connection.call(&config_map("unknown")).await.expect("an answer");
    let text = failed.text();
    // A background write of the server's own may have hit the failing sync instead.
    assert!(
        failed.status == 504 && text.contains("outcome of the write is unknown") || failed.status == 503,
        "{} {text}",
        failed.status
    );
    for probe in ["/livez", "/readyz"] {
        let health = connection.call(&Call::get(probe)).await.expect("an answer");
        let text = health.text();
        assert_eq!(health.status, 500, "{text}");
        assert!(text.contains("[-]etcd failed"), "{text}");
    }
    let refused = connection.call(&config_map("after")).await.expect("an answer");
    assert_eq!(refused.status, 503, "{}", refused.text());

    let ended = ending(&mut server).await;
    assert_eq!(ended, "exit status: 74");
    let log = server.log().tail(100);
    assert_eq!(log.matches("storage engine has failed and").count(), 1, "{log}");
    assert!(log.contains("start the server again"), "{log}");
    let logged: Vec<&str> =
        log.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).collect();
    assert_eq!(logged.len(), 1, "what follows from the failure is not logged beside it: {log}");

    server.restart().await.expect("restarted");
    let mut connection = connect_to(&server, Protocol::Http1).await;
    connection.must(&Call::get("/api/v1/namespaces/default/configmaps/before")).await.expect("acknowledged");
    let after =
        connection.call(&Call::get("/api/v1/namespaces/default/configmaps/after")).await.expect("an answer");
    assert_eq!(after.status, 404, "what was refused was not written");
}

#[tokio::test]
async fn a_sync_that_fails_while_the_server_stops_is_a_storage_failure() {
    let (_dir, trigger, mut server, _connection) = with_a_trigger().await;
    // A server with so few objects writes no table before it stops.
    std::fs::write(&trigger, ".sst").expect("trigger");
    let end = server.terminate().await.expect_err("a failure").to_string();
    assert!(!trigger.exists() && end.contains("exit status: 74"), "{end}");
    assert!(end.contains("while the server stopped") && end.contains("start the server again"), "{end}");
    assert!(!end.contains("cannot open") && !end.contains("Restore a backup"), "{end}");
    server.restart().await.expect("restarted");
    let mut connection = connect_to(&server, Protocol::Http1).await;
    connection.must(&Call::get("/api/v1/namespaces/default/configmaps/before")).await.expect("acknowledged");
}

/// The largest table of a data directory.
fn largest_table(data: &Path) -> PathBuf {
    let files =
        std::fs::read_dir(data.join("store/db")).expect("database").map(|entry| entry.expect("entry").path());
    let tables = files.filter(|path| path.extension().is_some_and(|end| end == "sst"));
    tables.max_by_key(|path| path.metadata().expect("table").len()).expect("a table")
}

#[tokio::test]
async fn a_repair_that_the_disk_fails_can_be_run_again() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let trigger = dir.path().join("trigger");
    let shim = shim(dir.path());
    let mut server = start_ready(&launch, dir.path(), &[]).await;
    server.terminate().await.expect("stopped");
    let data = dir.path().join("data");
    let table = largest_table(&data);
    let mut bytes = std::fs::read(&table).expect("table");
    bytes[100] ^= 1;
    std::fs::write(&table, bytes).expect("damage");
    let path = data.to_str().expect("text");
    let run = |arguments: &[&str]| {
        let mut command = launch.command(arguments);
        command.env("LD_PRELOAD", &shim).env(TRIGGER, &trigger);
        let output = command.outcome();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.success(), text.concat())
    };
    for place in ["db.repairing", "db.repaired.part/MANIFEST", ".sst", "db.repaired.part", "data/store"] {
        std::fs::write(&trigger, place).expect("trigger");
        let (done, text) = run(&["repair", "--data-dir", path, "--yes"]);
        assert!(!trigger.exists() && !done, "{place}: {text}");
        assert!(text.contains("run plinth repair again"), "{place}: {text}");
        assert!(!text.contains("cannot be repaired") && !text.contains("left out"), "{place}: {text}");
        for left in ["db.repairing", "db.repaired.part", "db.repaired"] {
            assert!(!data.join("store").join(left).exists(), "{place}: {left}");
        }
    }
    // The sync behind the first of the renames.
    std::fs::write(&trigger, "/repair-").expect("trigger");
    let (done, text) = run(&["repair", "--data-dir", path, "--yes"]);
    assert!(!trigger.exists() && !done && text.contains("run plinth repair again"), "{text}");
    let (done, text) = run(&["repair", "--data-dir", path, "--yes"]);
    assert!(done && text.contains("is kept in"), "{text}");
    let (done, text) = run(&["verify", "--data-dir", path]);
    assert!(done, "{text}");
}

/// Polls until the answer has this status; returns the answer.
async fn until(connection: &mut Connection, probe: &str, status: u16) -> String {
    let deadline = Instant::now() + HANG_SEEN_WITHIN;
    loop {
        let answer = connection.call(&Call::get(probe)).await.expect("an answer");
        if answer.status == status {
            return answer.text();
        }
        assert!(Instant::now() < deadline, "{probe} answers {} {}", answer.status, answer.text());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_hanging_disk_ends_readiness_and_later_liveness_and_nothing_else() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let hang = dir.path().join("hang");
    let launch = launch.env("LD_PRELOAD", &shim(dir.path())).env(HANG, &hang);
    let mut server = start_ready(&launch, dir.path(), &[]).await;
    let endpoint = server.endpoint().expect("endpoint");
    let mut writer = endpoint.connect(Protocol::Http1).await.expect("connection");
    let mut prober = endpoint.connect(Protocol::Http1).await.expect("connection");
    until(&mut prober, "/readyz", 200).await;
    until(&mut prober, "/livez", 200).await;

    std::fs::write(&hang, "").expect("the disk hangs");
    let write = tokio::spawn(async move { writer.call(&config_map("late")).await });
    let unready = until(&mut prober, "/readyz", 500).await;
    assert!(unready.contains("[-]etcd failed"), "{unready}");
    let alone = prober.call(&Call::get("/readyz/etcd")).await.expect("an answer");
    assert_eq!(alone.status, 500, "{}", alone.text());
    let unhealthy = until(&mut prober, "/livez", 500).await;
    assert!(unhealthy.contains("[-]etcd failed"), "{unhealthy}");
    let read = prober.call(&Call::get("/api/v1/namespaces/default")).await.expect("an answer");
    assert_eq!(read.status, 200, "reads go on: {}", read.text());

    std::fs::remove_file(&hang).expect("the disk comes back");
    let late = write.await.expect("no panic").expect("an answer");
    assert_eq!(late.status, 201, "{}", late.text());
    until(&mut prober, "/readyz", 200).await;
    until(&mut prober, "/livez", 200).await;
    assert!(server.ended().is_none(), "the process goes on");
    let log = server.log().tail(100);
    assert_eq!(log.matches("does not return").count(), 1, "{log}");
    assert_eq!(log.matches("complete again").count(), 1, "{log}");
}

/// A write that was handed to the storage is committed although its client has left, and recorded with its
/// outcome.
#[tokio::test]
async fn a_write_is_committed_without_its_client_and_recorded() {
    const POLICY: &str = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}";
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let (hang, policy, log) =
        (dir.path().join("hang"), dir.path().join("policy.yaml"), dir.path().join("audit.log"));
    std::fs::write(&policy, POLICY).expect("policy");
    let launch = launch.env("LD_PRELOAD", &shim(dir.path())).env(HANG, &hang);
    let flags =
        [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
    let mut server = start_ready(&launch, dir.path(), &flags.each_ref().map(String::as_str)).await;
    let endpoint = server.endpoint().expect("endpoint");
    let mut prober = endpoint.connect(Protocol::Http1).await.expect("connection");
    let mut client = endpoint.connect(Protocol::Http2).await.expect("connection");
    std::fs::write(&hang, "").expect("the disk hangs");
    // One is being written, one may be next, and later ones wait in the queue: one by one, so that they are
    // not one group.
    let mut writes = Vec::new();
    for name in NAMES {
        let mut client = client.share().expect("a shared connection");
        // Not so large that they would wait for each other.
        let map = json!({"metadata": {"name": name}, "data": {"x": "y".repeat(50_000)}});
        let request = http::Request::post("/").header("audit-id", name).header("content-type", JSON);
        let request = request.body(Full::new(Bytes::from(map.to_string()))).expect("request");
        writes.push(tokio::spawn(async move {
            client.send(request, "/api/v1/namespaces/default/configmaps").await.map(drop)
        }));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let queued = |metrics: &str| {
        let name = "plinth_engine_commit_queue_bytes ";
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)).expect("the metric");
        value.parse::<u64>().expect("a number")
    };
    let deadline = Instant::now() + HANG_SEEN_WITHIN;
    while queued(&prober.must(&Call::get("/metrics")).await.expect("metrics").text()) < 50_000 {
        assert!(Instant::now() < deadline, "nothing waits");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for write in writes {
        write.abort();
        let outcome = write.await;
        assert!(outcome.is_err_and(|error| error.is_cancelled()), "no write is answered");
    }
    // Once this is answered the server has seen the resets.
    client.must(&Call::get("/api/v1/namespaces/default")).await.expect("an answer");
    std::fs::remove_file(&hang).expect("the disk comes back");
    until(&mut prober, "/readyz", 200).await;
    server.terminate().await.expect("end");
    let text = std::fs::read_to_string(&log).expect("log");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();

    server.restart().await.expect("restarted");
    let mut client = connect_to(&server, Protocol::Http1).await;
    let mut written = 0;
    for name in NAMES {
        let path = format!("/api/v1/namespaces/default/configmaps/{name}");
        let is_there = client.call(&Call::get(path)).await.expect("an answer").status == 200;
        let ends: Vec<&Value> = events
            .iter()
            .filter(|event| event["auditID"] == name && event["stage"] == "ResponseComplete")
            .map(|event| &event["responseStatus"]["code"])
            .collect();
        // A write that had not reached the storage is abandoned.
        assert_eq!(ends, [if is_there { 201 } else { 200 }], "{name}");
        written += usize::from(is_there);
    }
    assert!(written > 0, "what waits in the queue is written");
}

/// The watchdog of a service manager would restart it only for as long as the disk hangs.
#[tokio::test]
async fn a_server_whose_disk_hangs_gives_no_sign_of_life() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let (hang, path) = (dir.path().join("hang"), dir.path().join("notify"));
    let manager = UnixDatagram::bind(&path).expect("socket");
    let launch = launch.env("LD_PRELOAD", &shim(dir.path())).env(HANG, &hang);
    let launch = launch.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", Path::new("100000"));
    let server = start_ready(&launch, dir.path(), &[]).await;
    let receive = |within: Duration| {
        manager.set_read_timeout(Some(within)).expect("timeout");
        let mut bytes = [0; 1024];
        let length = manager.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    };
    let sign = Some("WATCHDOG=1".to_owned());
    assert!(receive(HANG_SEEN_WITHIN).expect("a message").starts_with("READY=1"));
    assert_eq!(receive(HANG_SEEN_WITHIN), sign);

    std::fs::write(&hang, "").expect("the disk hangs");
    let mut writer = connect_to(&server, Protocol::Http1).await;
    let write = tokio::spawn(async move { writer.call(&config_map("late")).await });
    // Forty times the interval: as often as a sign would come.
    let mut ends = false;
    for _ in 0..200 {
        ends = receive(Duration::from_secs(2)).is_none();
        if ends {
            break;
        }
    }
    assert!(ends, "signs of life go on");

    std::fs::remove_file(&hang).expect("the disk comes back");
    write.await.expect("no panic").expect("an answer");
    assert_eq!(receive(HANG_SEEN_WITHIN), sign);
}
