//! Requests, watches and slow readers in numbers.

use futures::future::join_all;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use plinth_benches::api::client::{Call, Identity, Protocol, JSON};
use serde_json::{json, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{codes, resident, Target, PATIENCE};

/// Watches at once, on connections of 200 each.
const WATCHES: usize = 10_000;

/// A flood: its client, its requests, and the codes that each may be answered with.
struct Flood {
    name: &'static str,
    identity: Identity,
    call: Call,
    codes: &'static [u16],
}

/// A thousand requests at once, repeatedly, of one client at a time; others are served meanwhile, among them
/// one of the same priority level.
#[tokio::test]
async fn a_flood_of_one_client_is_turned_away_and_others_are_served() {
    let dir = tempfile::tempdir().expect("directory");
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, "greedy-token,greedy,1\nmodest-token,modest,2\n").expect("tokens");
    let target = Target::start_with(&[&format!("--token-auth-file={}", tokens.display())]).await;
    let mut admin = target.server.connect(Protocol::Http2).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    for n in 0..20 {
        let body = json!({"metadata": {"name": format!("large-{n}")}, "data": {"x": "y".repeat(100_000)}});
        admin.must(&Call::new(Method::POST, maps).body(JSON, body.to_string())).await.expect("create");
    }
    let group = "rbac.authorization.k8s.io";
    let subjects = ["greedy", "modest"].map(|name| json!({"apiGroup": group, "kind": "User", "name": name}));
    let binding = json!({
        "metadata": {"name": "flood"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
        "subjects": subjects,
    });
    let path = format!("/apis/{group}/v1/namespaces/default/rolebindings");
    admin.must(&Call::new(Method::POST, path).body(JSON, binding.to_string())).await.expect("a binding");
    let token = |token: &str| Identity::Token(token.to_owned());
    let create = Call::new(Method::POST, maps).body(JSON, r#"{"metadata":{"generateName":"flood-"}}"#);
    let floods = [
        Flood {
            name: "unauthenticated clients",
            identity: Identity::Anonymous,
            call: Call::get("/api/v1/pods"),
            codes: &[403, 429],
        },
        Flood { name: "wrong tokens", identity: token("guessed"), call: Call::get("/livez"), codes: &[401] },
        Flood {
            name: "what may not be had",
            identity: token("greedy-token"),
            call: Call::get("/api/v1/secrets"),
            codes: &[403, 429],
        },
        Flood {
            name: "long lists",
            identity: token("greedy-token"),
            call: Call::get(maps),
            codes: &[200, 429],
        },
        Flood { name: "writes", identity: token("greedy-token"), call: create, codes: &[201, 429] },
    ];
    let modest = target.server.endpoint().with_identity(token("modest-token"));
    for Flood { name, identity, call, codes: allowed } in floods {
        let endpoint = target.server.endpoint().with_identity(identity);
        let mut flood = Vec::new();
        for _ in 0..10 {
            let connection = endpoint.connect(Protocol::Http2).await.expect("connection");
            for _ in 0..100 {
                let mut connection = connection.share().expect("a shared connection");
                let call = call.clone();
                flood.push(async move {
                    let mut codes = Vec::new();
                    for _ in 0..4 {
                        match connection.call(&call).await {
                            Ok(reply) => codes.push(reply.status.as_u16()),
                            Err(_) => break,
                        }
                    }
                    codes
                });
            }
        }
        let flood = tokio::spawn(join_all(flood));
        for _ in 0..3 {
            target.serves(name).await;
            let mut connection = modest.connect(Protocol::Http1).await.expect("connection");
            let reply = connection.call(&Call::get(format!("{maps}/large-1"))).await.expect("an answer");
            assert_eq!(reply.status, StatusCode::OK, "{name}: {}", reply.text());
        }
        let codes: Vec<u16> = flood.await.expect("the flood").into_iter().flatten().collect();
        assert!(!codes.is_empty(), "{name}");
        assert!(codes.iter().all(|code| allowed.contains(code)), "{name}: {codes:?}");
    }
}

#[tokio::test]
async fn thousands_of_watches_and_slow_readers_leave_room_for_others() {
    let target = Target::start().await;
    let mut admin = target.server.connect(Protocol::Http2).await;
    let path = "/api/v1/namespaces/default/configmaps";
    for n in 0..20 {
        let body = json!({"metadata": {"name": format!("large-{n}")}, "data": {"x": "y".repeat(500_000)}});
        admin.must(&Call::new(Method::POST, path).body(JSON, body.to_string())).await.expect("create");
    }
    let mut watches = Vec::new();
    for _ in 0..WATCHES / 200 {
        let connection = target.server.connect(Protocol::Http2).await;
        for _ in 0..200 {
            let mut connection = connection.share().expect("a shared connection");
            let call = Call::get("/api/v1/namespaces/default/secrets?watch=1&resourceVersion=1");
            watches.push(async move { connection.open(&call).await.expect("a watch") });
        }
    }
    let watches = join_all(watches).await;
    assert!(watches.iter().all(|w| w.status() == StatusCode::OK || w.status() == StatusCode::GONE));
    target.serves("ten thousand watches").await;
    // Lists and watches of ten megabytes whose readers never read.
    let mut slow = Vec::new();
    for n in 0..100 {
        let mut connection = target.server.connect(Protocol::Http1).await;
        let query = if n % 2 == 0 { "" } else { "?watch=1" };
        let response = connection.open(&Call::get(format!("{path}{query}"))).await.expect("an answer");
        assert_eq!(response.status(), StatusCode::OK);
        slow.push((connection, response));
        if n % 25 == 24 {
            target.serves("slow readers").await;
        }
    }
    drop((slow, watches));
    target.serves("after the watches").await;
}

/// An event of a large object is encoded once for all who watch in the same form, also as a row below the
/// names of columns, and also behind a small event: what they have not read yet is not copied for each of
/// them.
#[tokio::test]
async fn what_watches_have_not_read_is_shared() {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    const SIZE: usize = 1 << 20;
    let target = Target::start().await;
    let mut admin = target.server.connect(Protocol::Http2).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let mut versions = Vec::new();
    for (name, size) in [("first", 1), ("small", 1), ("large", SIZE)] {
        let body = json!({"metadata": {"name": name}, "data": {"x": "y".repeat(size)}});
        let reply = admin.must(&Call::new(Method::POST, maps).body(JSON, body.to_string())).await;
        let made: Value = serde_json::from_slice(&reply.expect("create").body).expect("JSON");
        versions.push(made["metadata"]["resourceVersion"].as_str().expect("a version").to_owned());
    }
    let before = resident(target.pid);
    let mut watches = Vec::new();
    // The small event and the large one; the large one alone.
    for (accept, version, smaller) in [(JSON, 0, 1), (TABLE, 0, 1), (TABLE, 1, 0)] {
        let version = &versions[version];
        let path = format!("{maps}?watch=1&includeObject=Object&resourceVersion={version}");
        let call = Call::get(path).accept(accept);
        let connection = target.server.endpoint().connect_trickling().await.expect("connection");
        for _ in 0..200 {
            let mut connection = connection.share().expect("a shared connection");
            let mut watch = connection.open(&call).await.expect("a watch");
            assert_eq!(watch.status(), StatusCode::OK);
            // Read until the large event has begun.
            let mut ended = 0;
            let mut begun = false;
            while !begun {
                let frame = watch.frame().await.expect("a frame").expect("a watch that goes on");
                let data = frame.into_data().expect("data");
                begun = ended == smaller;
                ended += data.iter().filter(|byte| **byte == b'\n').count();
            }
            watches.push((connection, watch));
        }
    }
    let more = resident(target.pid).saturating_sub(before);
    assert!(more < 100 * SIZE as u64, "{} MiB for {} watches", more >> 20, watches.len());
    target.serves("watches that nobody reads").await;
}

/// More stalled request bodies than there are seats. A single slow one is waited for.
#[tokio::test]
async fn bodies_that_do_not_come_leave_seats_to_others() {
    let dir = tempfile::tempdir().expect("directory");
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, "slow-token,slow,1\nprompt-token,prompt,2\n").expect("tokens");
    let target = Target::start_with(&[
        &format!("--token-auth-file={}", tokens.display()),
        "--max-requests-inflight=20",
        "--max-mutating-requests-inflight=10",
    ])
    .await;
    let body = r#"{"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}"#;
    let head = format!(
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer slow-token\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    let begin = async || {
        let mut stream = target.anonymous_stream(Protocol::Http1).await;
        stream.write_all(head.as_bytes()).await.expect("the head");
        stream.write_all(&body.as_bytes()[..1]).await.expect("the first byte");
        stream.flush().await.expect("sent");
        stream
    };
    let mut patient = begin().await;
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    patient.write_all(&body.as_bytes()[1..]).await.expect("the rest");
    patient.flush().await.expect("sent");
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, patient.read_to_end(&mut answer))
        .await
        .expect("an end")
        .expect("an answer");
    assert_eq!(codes(&answer), [201], "{}", String::from_utf8_lossy(&answer));

    let mut slow = Vec::new();
    for _ in 0..80 {
        slow.push(begin().await);
    }
    let mut admin = target.server.connect(Protocol::Http1).await;
    let waiting = |metrics: &str| {
        let name = "apiserver_flowcontrol_current_inqueue_requests{";
        let mut lines = metrics.lines().filter(|line| line.starts_with(name));
        lines.any(|line| line.contains("priority_level=\"global-default\"") && !line.ends_with(" 0"))
    };
    let full = async {
        while !waiting(&admin.must(&Call::get("/metrics")).await.expect("metrics").text()) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, full).await.expect("the level is full");
    let endpoint = target.server.endpoint().with_identity(Identity::Token("prompt-token".to_owned()));
    let mut prompt = endpoint.connect(Protocol::Http1).await.expect("connection");
    for _ in 0..3 {
        let reply = prompt.call(&Call::get("/api/v1")).await.expect("an answer");
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    }
    target.serves("bodies that do not come").await;
    drop(slow);
}
