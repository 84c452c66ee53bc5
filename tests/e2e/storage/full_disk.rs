//! A disk that is full: a small file system in a mount namespace of the server's own, on which the test takes
//! all the room.

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use http::Method;
use plinth_benches::api::client::{Call, Connection, Protocol, JSON};
use plinth_tests::server::{connect_to, launch, start_ready};
use serde_json::json;

/// RocksDB looks every few seconds whether there is room again.
const NOTICED_WITHIN: Duration = Duration::from_secs(120);

/// Runs its arguments after the directory `$0/store` was replaced by a small file system with its contents.
const ON_A_SMALL_DISK: &str = "cp -a $0/store $0/copy && mount -t tmpfs -o size=80m tmpfs $0/store && \
    cp -a $0/copy/. $0/store && exec \"$@\"";

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str, bytes: usize) -> Call {
    let body =
        json!({"metadata": {"name": name, "finalizers": finalizers(name)}, "data": {"x": "y".repeat(bytes)}});
    Call::new(Method::POST, CONFIG_MAPS).body(JSON, body.to_string())
}

fn finalizers(name: &str) -> &'static [&'static str] {
    if name == "held" {
        &["example.com/held"]
    } else {
        &[]
    }
}

/// Takes all the room of the file system.
fn fill(directory: &Path) -> PathBuf {
    let path = directory.join("filler");
    let mut file = File::create(&path).expect("a file");
    for size in [1 << 20, 1 << 12] {
        let zeros = vec![0; size];
        while file.write_all(&zeros).is_ok() {}
    }
    path
}

/// Repeats a request until it is answered with `status`; what was refused before must be for want of room.
async fn until(connection: &mut Connection, call: &Call, status: u16) {
    let deadline = Instant::now() + NOTICED_WITHIN;
    loop {
        let reply = connection.call(call).await.expect("an answer");
        if reply.status == status {
            return;
        }
        assert!(reply.status == 503 && reply.text().contains("is full"), "{} {}", reply.status, reply.text());
        assert!(reply.headers.contains_key("retry-after"), "{:?}", reply.headers);
        assert!(Instant::now() < deadline, "{}", reply.text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn objects_are_deleted_from_a_full_disk() {
    let unshare = ["unshare", "--user", "--map-root-user", "--mount"];
    if !Command::new(unshare[0]).args(&unshare[1..]).arg("true").status().is_ok_and(|status| status.success())
    {
        println!("skipped: this user may not mount a small file system");
        return;
    }
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let mut server = start_ready(&launch, dir.path(), &[]).await;
    server.terminate().await.expect("end");
    let data = dir.path().join("data");
    let words = [&unshare[..], &["sh", "-c", ON_A_SMALL_DISK, data.to_str().expect("UTF-8")]].concat();
    let launch = launch.on_host(IpAddr::V4(Ipv4Addr::LOCALHOST), &words);
    let mut server = start_ready(&launch, dir.path(), &[]).await;
    let mut connection = connect_to(&server, Protocol::Http1).await;
    for name in ["a", "b", "held"] {
        connection.must(&config_map(name, 100_000)).await.expect("created");
    }

    // The server's own view of its directory.
    let store = Path::new("/proc")
        .join(server.pid().to_string())
        .join("root")
        .join(data.strip_prefix("/").expect("an absolute path"));
    let store = store.join("store");
    assert!(store.join("RESERVE").exists(), "room is kept for deletions");
    let filler = fill(&store);
    // The log has some room left of its own.
    let mut created = 0;
    loop {
        let reply =
            connection.call(&config_map(&format!("more-{created}"), 500_000)).await.expect("an answer");
        if reply.status == 503 {
            break;
        }
        assert_eq!(reply.status, 201, "{}", reply.text());
        created += 1;
        assert!(created < 100, "the disk is full by now");
    }
    assert!(!store.join("RESERVE").exists(), "the room is given to deletions");
    connection.must(&Call::get(format!("{CONFIG_MAPS}/a"))).await.expect("reads go on");
    let checks = connection.must(&Call::get("/readyz?verbose")).await.expect("ready").text();
    assert!(checks.contains("[-]disk-space failed"), "{checks}");

    let object = |name: &str| format!("{CONFIG_MAPS}/{name}");
    until(&mut connection, &Call::new(Method::DELETE, object("a")), 200).await;
    until(&mut connection, &Call::new(Method::DELETE, object("held")), 200).await;
    let release = Call::new(Method::PATCH, object("held"))
        .body("application/merge-patch+json", json!({"metadata": {"finalizers": null}}).to_string());
    until(&mut connection, &release, 200).await;
    for name in ["a", "held"] {
        let gone = connection.call(&Call::get(object(name))).await.expect("an answer");
        assert_eq!(gone.status, 404, "{}", gone.text());
    }

    std::fs::remove_file(&filler).expect("there is room");
    until(&mut connection, &config_map("one-more", 1), 201).await;
    let checks = connection.must(&Call::get("/readyz?verbose")).await.expect("ready").text();
    assert!(checks.contains("[+]disk-space ok"), "{checks}");
    assert!(store.join("RESERVE").exists(), "the room is kept again");
    assert!(server.ended().is_none(), "the process goes on");
}
