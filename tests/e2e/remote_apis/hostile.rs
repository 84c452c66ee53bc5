//! Remote APIs that hang, send too much or cannot be reached, and what remains of the rest.

use std::sync::atomic::Ordering;

use http::Request;
use http_body_util::BodyExt;
use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::eventually;
use plinth_tests::requests::{create, send};
use serde_json::{json, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{address, Cluster};

#[tokio::test]
async fn requests_that_hang_are_given_up_and_take_nothing_from_others() {
    let cluster = Cluster::start(&["--max-requests-inflight=6", "--max-mutating-requests-inflight=4"]).await;
    let remote = cluster.remote("hanging.example", 1).await;
    let path = format!("{}/namespaces/default/things/hang", remote.path());
    // Many more than there are seats.
    let mut waiting = Vec::new();
    for _ in 0..40 {
        let mut connection = cluster.server.connect(Protocol::Http1).await;
        let call = Call::get(path.clone());
        waiting.push(tokio::spawn(async move { connection.call(&call).await.map(|reply| reply.status) }));
    }
    eventually("all hang", || async { remote.behavior.open.load(Ordering::SeqCst) == 40 }).await;
    for n in 0..20 {
        let name = format!("local-{n}");
        let object = json!({"metadata": {"name": name}});
        create(&cluster.client, "/api/v1/namespaces/default/configmaps", &object).await;
    }
    // The limit of a request is also that of one that was passed on.
    let (code, text) = cluster.answer(&format!("{path}?timeout=1s")).await;
    assert_eq!((code, text.contains("\"reason\":\"Timeout\"")), (504, true), "{text}");
    waiting.iter().for_each(|task| task.abort());
    eventually("none hangs", || async { remote.behavior.open.load(Ordering::SeqCst) == 0 }).await;
}

#[tokio::test]
async fn a_user_leaves_half_of_the_slots_to_others() {
    let cluster = Cluster::start(&[]).await;
    let remote = cluster.remote("crowded.example", 1).await;
    let things = format!("{}/namespaces/default/things", remote.path());
    let (mut hanging, path) = (Vec::new(), format!("{things}/hang"));
    for _ in 0..128 {
        let mut connection = cluster.server.connect(Protocol::Http1).await;
        let call = Call::get(path.clone());
        hanging.push(tokio::spawn(async move { connection.call(&call).await.map(|reply| reply.status) }));
    }
    eventually("all hang", || async { remote.behavior.open.load(Ordering::SeqCst) == 128 }).await;
    assert_eq!(cluster.answer(&things).await.0, 429);
    let other = Request::get(&things)
        .header("impersonate-user", "jane")
        .header("impersonate-group", "system:masters")
        .body(Vec::new())
        .expect("request");
    cluster.client.request_text(other).await.expect("another user has slots");
    hanging.iter().for_each(|task| task.abort());
    eventually("none hangs", || async { remote.behavior.open.load(Ordering::SeqCst) == 0 }).await;
    assert_eq!(cluster.answer(&things).await.0, 200);
}

/// A response may end before its request: the connection to the other server ends then as well, and nobody
/// else waits for the request's end.
#[tokio::test]
async fn a_server_that_answers_early_keeps_no_connection() {
    const CLIENTS: usize = 20;
    let cluster = Cluster::start(&[]).await;
    let remote = cluster.remote("early.example", 1).await;
    let things = format!("{}/namespaces/default/things", remote.path());
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut stream = cluster.server.endpoint().stream(Protocol::Http1).await.expect("a connection");
        let head = format!(
            "POST {things}/early HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("a request");
        let mut answer = Vec::new();
        while !answer.ends_with(b"{}") {
            assert_ne!(stream.read_buf(&mut answer).await.expect("an answer"), 0);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        clients.push(stream);
    }
    eventually("no connection stands", || async { remote.behavior.open.load(Ordering::SeqCst) == 0 }).await;
    assert_eq!(cluster.answer(&things).await.0, 200);
    drop(clients);
}

#[tokio::test]
async fn an_endless_response_is_cut_off_at_the_time_limit() {
    let cluster = Cluster::start(&[]).await;
    let remote = cluster.remote("endless.example", 1).await;
    let path = format!("{}/namespaces/default/things/endless?timeout=2s", remote.path());
    let mut connection = cluster.server.connect(Protocol::Http1).await;
    let mut body = connection.open(&Call::get(path)).await.expect("response").into_body();
    let mut read = 0;
    let broken = loop {
        match body.frame().await {
            Some(Ok(frame)) => read += frame.into_data().map_or(0, |data| data.len()),
            Some(Err(_)) => break true,
            None => break false,
        }
    };
    assert!(broken && read > 0, "{read} bytes, broken off: {broken}");
    eventually("the other end has seen it", || async { remote.behavior.open.load(Ordering::SeqCst) == 0 })
        .await;
}

#[tokio::test]
async fn servers_that_are_no_api_servers_stay_unavailable() {
    let cluster = Cluster::start(&[]).await;
    // Accepts connections and says nothing; says what is no TLS.
    let silent = TcpListener::bind((address(1), 0)).await.expect("port");
    let babbling = TcpListener::bind((address(2), 0)).await.expect("port");
    let ports = [&silent, &babbling].map(|listener| listener.local_addr().expect("address").port());
    let silence = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = silent.accept().await {
            held.push(stream);
        }
    });
    let babble = tokio::spawn(async move {
        while let Ok((mut stream, _)) = babbling.accept().await {
            let _ = stream.write_all(&[b'x'; 4096]).await;
        }
    });
    for (n, port) in [(1u8, ports[0]), (2, ports[1])] {
        let service = format!("service-{n}");
        plinth_tests::remote_api::register_service(&cluster.client, &service, address(n), port).await;
        let group = format!("odd-{n}.example");
        let api_service = json!({"metadata": {"name": format!("v1.{group}")}, "spec": {
            "group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": {"namespace": "remote", "name": service, "port": port}}});
        create(&cluster.client, plinth_tests::remote_api::API_SERVICES, &api_service).await;
    }
    // Discovery has both, without waiting for them.
    eventually("both are listed", || async {
        let groups = send(&cluster.client, "GET", "/apis", &Value::Null).await.text;
        groups.contains("odd-1.example") && groups.contains("odd-2.example")
    })
    .await;
    for n in [1, 2] {
        let group = format!("odd-{n}.example");
        cluster.reason(&group, "FailedDiscoveryCheck").await;
        let answer = cluster.answer(&format!("/apis/{group}/v1/things")).await;
        assert_eq!(answer, (503, "service unavailable\n".to_owned()));
    }
    silence.abort();
    babble.abort();
}

#[tokio::test]
async fn with_endpoint_routing_a_service_without_endpoints_has_no_address() {
    let cluster = Cluster::start(&["--enable-aggregator-routing=true"]).await;
    let client = &cluster.client;
    create(client, "/api/v1/namespaces", &json!({"metadata": {"name": "remote"}})).await;
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}});
    create(client, "/api/v1/namespaces/remote/services", &service).await;
    let configuration = json!({"metadata": {"name": "hook"}, "webhooks": [{
        "name": "hook.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
        "clientConfig": {"service": {"namespace": "remote", "name": "hook", "path": "/check"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    create(client, path, &configuration).await;
    let object = json!({"metadata": {"name": "checked"}});
    let answer = send(client, "POST", "/api/v1/namespaces/default/configmaps", &object).await;
    assert_eq!(answer.code, 500);
    let expected = "no endpoints available for service \"hook\"";
    assert!(answer.text_at("/message").ends_with(expected), "{}", answer.body);
}
