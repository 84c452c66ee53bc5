//! A disk that is full: writes are refused, reads go on, and deletions make room.

use std::time::{Duration, Instant};

use http::Method;
use plinth_benches::api::client::{Call, Connection, Protocol, JSON};
use plinth_tests::server::{connect_to, launch, start_ready};
use plinth_tests::small_disk::{fill, on_a_small_disk, store_of};
use serde_json::json;

/// RocksDB looks every few seconds whether there is room again.
const NOTICED_WITHIN: Duration = Duration::from_secs(120);

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
    let dir = launch().data_dir().expect("directory");
    let Some(small) = on_a_small_disk(launch(), dir.path()) else { return };
    let mut server = start_ready(&launch(), dir.path(), &[]).await;
    server.terminate().await.expect("end");
    let mut server = start_ready(&small, dir.path(), &[]).await;
    let mut connection = connect_to(&server, Protocol::Http1).await;
    for name in ["a", "b", "held"] {
        connection.must(&config_map(name, 100_000)).await.expect("created");
    }

    let store = store_of(&server, dir.path());
    assert!(store.join("RESERVE").exists(), "room is kept for deletions");
    // The log has some room left of its own.
    let mut created = 0;
    let filler = loop {
        let filler = fill(&store);
        let reply =
            connection.call(&config_map(&format!("more-{created}"), 1_000_000)).await.expect("an answer");
        if reply.status == 503 {
            break filler;
        }
        assert_eq!(reply.status, 201, "{}", reply.text());
        created += 1;
        assert!(created < 100, "the disk is full by now");
    };
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
