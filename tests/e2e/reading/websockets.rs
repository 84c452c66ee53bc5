//! Watches over WebSocket: a message for each event.

use futures::SinkExt;
use http::HeaderValue;
use plinth_benches::api::client::Protocol;
use plinth_tests::eventually;
use plinth_tests::server::{shared, TestServer};
use plinth_tests::websocket::{next, open, request, WITHIN};
use serde_json::{json, Value};
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::{reader, version};

fn event(message: &Message) -> Value {
    let text = message.to_text().expect("text");
    assert!(text.ends_with("}\n") && text.lines().count() == 1, "one event: {text:?}");
    serde_json::from_str(text).expect("an event")
}

#[tokio::test]
async fn json_comes_as_text_one_event_a_message() {
    let server = shared().await;
    let mut client = reader(server, "socket").await;
    let made = client.create("a", json!({})).await;
    client.create("b", json!({})).await;
    let path = format!("{}?watch=1&resourceVersion={made}&timeoutSeconds=30", client.collection);
    let mut handshake = request(server, &path);
    handshake.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static("v4.example.com"));
    let (mut socket, headers) = open(server, handshake).await.expect("a WebSocket");
    assert_eq!(headers["sec-websocket-protocol"], "v4.example.com");
    let first = event(&next(&mut socket).await);
    assert_eq!(
        (first["type"].as_str(), first["object"]["metadata"]["name"].as_str()),
        (Some("ADDED"), Some("b"))
    );
    // Many at once come as many messages, too; and what the client says is read and dropped.
    socket.send(Message::text("hello")).await.expect("a message to nobody");
    let mut versions = Vec::new();
    for step in 1..=20 {
        versions.push(client.change("a", step).await);
    }
    client.delete("a").await;
    for expected in versions {
        let message = event(&next(&mut socket).await);
        assert_eq!((message["type"].as_str(), version(&message["object"])), (Some("MODIFIED"), expected));
    }
    assert_eq!(event(&next(&mut socket).await)["type"], "DELETED");
    // A ping is answered.
    socket.send(Message::Ping("x".into())).await.expect("a ping");
    assert_eq!(next(&mut socket).await, Message::Pong("x".into()));
    socket.close(None).await.expect("a close");
}

#[tokio::test]
async fn the_state_comes_first_and_the_end_is_a_close_frame() {
    let server = shared().await;
    let mut client = reader(server, "socket-end").await;
    for name in ["a", "b", "c"] {
        client.create(name, json!({})).await;
    }
    let path = format!("{}?watch=1&allowWatchBookmarks=true&timeoutSeconds=1", client.collection);
    let (mut socket, _) = open(server, request(server, &path)).await.expect("a WebSocket");
    let (mut names, mut end) = (Vec::new(), false);
    loop {
        match next(&mut socket).await {
            Message::Close(frame) => {
                assert_eq!(frame.map(|frame| frame.code), Some(CloseCode::Normal));
                break;
            }
            message => {
                let event = event(&message);
                match event["type"].as_str() {
                    Some("ADDED") => {
                        names.push(event["object"]["metadata"]["name"].as_str().unwrap_or("").to_owned())
                    }
                    _ => {
                        end |=
                            event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
                    }
                }
            }
        }
    }
    names.retain(|name| name.len() == 1);
    names.sort();
    assert_eq!((names, end), (vec!["a".into(), "b".into(), "c".to_owned()], true));
}

#[tokio::test]
async fn protobuf_comes_as_binary_without_a_frame() {
    let server = shared().await;
    let mut client = reader(server, "socket-binary").await;
    let made = client.create("a", json!({})).await;
    client.change("a", 1).await;
    let path = format!("{}?watch=1&resourceVersion={made}&timeoutSeconds=30", client.collection);
    let mut handshake = request(server, &path);
    handshake.headers_mut().insert("accept", HeaderValue::from_static("application/vnd.kubernetes.protobuf"));
    let (mut socket, _) = open(server, handshake).await.expect("a WebSocket");
    let Message::Binary(bytes) = next(&mut socket).await else { panic!("no binary message") };
    // Field 1 of WatchEvent: its type. The object within has the envelope.
    assert!(bytes.starts_with(b"\n\x08MODIFIED\x12"), "{bytes:?}");
    assert!(bytes.windows(4).any(|window| window == b"k8s\0"), "{bytes:?}");
}

#[tokio::test]
async fn what_is_refused() {
    let server = shared().await;
    let client = reader(server, "socket-refused").await;
    let watch = format!("{}?watch=1", client.collection);
    type Change = fn(&mut http::HeaderMap);
    let rows: [(&str, String, Change, u16); 6] = [
        ("no origin", watch.clone(), |headers| drop(headers.remove("origin")), 403),
        (
            "an origin that is no URL",
            watch.clone(),
            |headers| drop(headers.insert("origin", HeaderValue::from_static("example.com"))),
            403,
        ),
        (
            "two subprotocols",
            watch.clone(),
            |headers| drop(headers.insert("sec-websocket-protocol", HeaderValue::from_static("a, b"))),
            400,
        ),
        (
            "another version",
            watch.clone(),
            |headers| drop(headers.insert("sec-websocket-version", HeaderValue::from_static("12"))),
            400,
        ),
        ("parameters that do not go together", format!("{watch}&sendInitialEvents=true"), |_| {}, 422),
        ("not a watch", client.collection.clone(), |_| {}, 200),
    ];
    for (what, path, change, status) in rows {
        let mut handshake = request(server, &path);
        change(handshake.headers_mut());
        match open(server, handshake).await {
            Err(Error::Http(response)) => assert_eq!(response.status(), status, "{what}"),
            Err(error) => panic!("{what}: {error}"),
            Ok(_) => panic!("{what}: accepted"),
        }
    }
}

#[tokio::test]
async fn a_stop_of_the_server_closes_properly() {
    let mut server = TestServer::start(&[]).await;
    let path = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=1";
    let (mut socket, _) = open(&server, request(&server, path)).await.expect("a WebSocket");
    let ending = tokio::spawn(async move {
        loop {
            if let Message::Close(frame) = next(&mut socket).await {
                return frame.map(|frame| frame.code);
            }
        }
    });
    server.terminate().await;
    assert_eq!(ending.await.expect("the client"), Some(CloseCode::Normal));
}

/// A connection counts until its end, also after it was upgraded.
#[tokio::test]
async fn watches_over_websocket_count_as_connections() {
    const MOST: usize = 8;
    let server = TestServer::start(&[&format!("--max-connections-per-client={MOST}")]).await;
    let path = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=1";
    let upgrade = async || {
        let stream = server.endpoint().stream(Protocol::Http1).await.ok()?;
        client_async(request(&server, path), stream).await.ok().map(|(socket, _)| socket)
    };
    let mut held = Vec::new();
    while let Some(socket) = tokio::time::timeout(WITHIN, upgrade()).await.expect("an end") {
        held.push(socket);
        assert!(held.len() <= MOST, "{} are open", held.len());
    }
    drop(held);
    eventually("the places are given back", || async { upgrade().await.is_some() }).await;
}

/// The only way for a browser to authenticate. The token is not in the answer's subprotocols.
#[tokio::test]
async fn a_token_among_the_subprotocols_authenticates() {
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use base64::Engine as _;
    let dir = tempfile::tempdir().expect("directory");
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, "janes-token,jane,1,\"system:masters\"\n").expect("tokens");
    let server = TestServer::start(&[&format!("--token-auth-file={}", tokens.display())]).await;
    let offer = |token: &str| {
        format!("base64url.bearer.authorization.k8s.io.{}, v4.example.com", URL_SAFE_NO_PAD.encode(token))
    };
    let path = "/api/v1/namespaces?watch=1&timeoutSeconds=30";
    let ask = async |protocols: String| {
        let mut handshake = request(&server, path);
        handshake.headers_mut().insert("sec-websocket-protocol", protocols.parse().expect("a header"));
        let endpoint = server.endpoint().with_identity(plinth_benches::api::client::Identity::Anonymous);
        let stream = endpoint.stream(Protocol::Http1).await.expect("a connection");
        client_async(handshake, stream).await
    };
    let (mut socket, response) = ask(offer("janes-token")).await.expect("a WebSocket");
    assert_eq!(response.headers()["sec-websocket-protocol"], "v4.example.com");
    assert_eq!(event(&next(&mut socket).await)["type"], "ADDED");
    for (protocols, code) in [
        (offer("guessed"), 401),
        (offer("janes-token").replace(", v4.example.com", ""), 401),
        (format!("{}, {}", offer("janes-token"), offer("janes-token")), 401),
        ("v4.example.com".to_owned(), 403),
    ] {
        match ask(protocols.clone()).await {
            Err(Error::Http(refusal)) => assert_eq!(refusal.status().as_u16(), code, "{protocols}"),
            other => panic!("{protocols}: {:?}", other.map(|_| ())),
        }
    }
}
