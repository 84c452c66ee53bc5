//! Logs of pods over WebSocket, and where there is no log.

use bytes::Bytes;
use futures::SinkExt;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use plinth_tests::https::HttpsServer;
use plinth_tests::requests::create;
use plinth_tests::server::{namespace, shared, Access};
use plinth_tests::websocket::{next, open, request};
use serde_json::{json, Value};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::kubelets::pod_on_node;
use super::{answer, send};

/// The length of the log: two messages and a bit.
const LENGTH: usize = 2 * 2048 + 100;

async fn kubelet(request: Request<Incoming>) -> Response<Full<Bytes>> {
    assert!(request.headers().keys().all(|name| name == "host"), "{:?}", request.headers());
    match request.uri().query() {
        Some("tailLines=0") => answer(StatusCode::OK, ""),
        Some("tailLines=404") => answer(StatusCode::NOT_FOUND, "no log"),
        _ => answer(StatusCode::OK, &"é\n".repeat(LENGTH / 3)),
    }
}

async fn socket(
    access: &Access,
    path: &str,
    protocols: Option<&str>,
) -> Result<(Vec<Message>, Option<String>), Error> {
    let mut handshake = request(access, path);
    // A client of a browser sends its origin, others need not.
    handshake.headers_mut().remove("origin");
    if let Some(protocols) = protocols {
        handshake.headers_mut().insert("sec-websocket-protocol", protocols.parse().expect("a header"));
    }
    let (mut socket, headers) = open(access, handshake).await?;
    // What the client says is read and dropped.
    socket.send(Message::text("hello")).await.expect("a message to nobody");
    let mut messages = Vec::new();
    loop {
        match next(&mut socket).await {
            Message::Close(frame) => {
                assert_eq!(frame.map(|frame| frame.code), Some(CloseCode::Normal));
                break;
            }
            message => messages.push(message),
        }
    }
    let protocol =
        headers.get("sec-websocket-protocol").map(|value| value.to_str().expect("text").to_owned());
    Ok((messages, protocol))
}

/// An empty message, then the log as it is or in base64, then a close frame.
#[tokio::test]
async fn a_log_comes_over_websocket() {
    use base64::engine::general_purpose::STANDARD;
    use base64::Engine as _;
    let access = shared().await;
    let client = access.client().await;
    let kubelet = HttpsServer::start(kubelet).await;
    let namespace = namespace(&client, "logs").await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let containers = json!([{"name": "a", "image": "x"}]);
    pod_on_node(&client, &pods, kubelet.port, &containers).await;
    let log = "é\n".repeat(LENGTH / 3);

    let path = format!("{pods}/p/log");
    for (offered, chosen) in [
        (None, None),
        (Some("binary.k8s.io"), Some("binary.k8s.io")),
        (Some("v4.channel.k8s.io, binary.k8s.io, base64.binary.k8s.io"), Some("binary.k8s.io")),
    ] {
        let (messages, protocol) = socket(access, &path, offered).await.expect("a WebSocket");
        assert_eq!(protocol.as_deref(), chosen);
        assert!(messages.iter().all(Message::is_binary), "{messages:?}");
        assert!(messages[0].is_empty() && messages[1..].iter().all(|m| !m.is_empty() && m.len() <= 2048));
        let sent: Vec<u8> = messages.into_iter().flat_map(|message| message.into_data()).collect();
        assert_eq!(String::from_utf8(sent).expect("text"), log);
    }
    let (messages, protocol) =
        socket(access, &path, Some("base64.binary.k8s.io")).await.expect("a WebSocket");
    assert_eq!(protocol.as_deref(), Some("base64.binary.k8s.io"));
    assert!(messages.iter().all(Message::is_text) && messages[0].is_empty(), "{messages:?}");
    let decode = |message: Message| STANDARD.decode(message.into_data()).expect("base64");
    let sent: Vec<u8> = messages.into_iter().flat_map(decode).collect();
    assert_eq!(String::from_utf8(sent).expect("text"), log);
    let (messages, _) = socket(access, &format!("{path}?tailLines=0"), None).await.expect("a WebSocket");
    assert_eq!(messages, [Message::Binary(Bytes::new())]);

    // Subprotocols that are none of these, and errors from before the log.
    for (path, offered, code) in [
        (path.clone(), Some("v4.channel.k8s.io"), 403),
        (path.clone(), Some("channel.k8s.io, base64.channel.k8s.io"), 403),
        (format!("{path}?tailLines=404"), None, 404),
        (format!("{path}?tailLines=-1"), None, 422),
        (format!("{path}?container=b"), None, 400),
        (format!("{pods}/absent/log"), None, 404),
    ] {
        match socket(access, &path, offered).await {
            Err(Error::Http(refusal)) => assert_eq!(refusal.status().as_u16(), code, "{path} {offered:?}"),
            other => panic!("{path} {offered:?}: {other:?}"),
        }
    }
}

/// A pod without a node has no log, and of several containers one has to be named.
#[tokio::test]
async fn a_log_is_that_of_a_container_on_a_node() {
    let access = shared().await;
    let client = access.client().await;
    let namespace = namespace(&client, "no-logs").await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let container = |name: &str| json!({"name": name, "image": "x"});
    let (a, b, i) = (container("a"), container("b"), container("i"));
    let spec = json!({"containers": [a, b], "initContainers": [i]});
    create(&client, &pods, &json!({"metadata": {"name": "two"}, "spec": spec})).await;
    let spec = json!({"containers": [a], "initContainers": [i]});
    create(&client, &pods, &json!({"metadata": {"name": "one"}, "spec": spec})).await;

    for path in ["one/log", "one/log?container=i", "two/log?container=b"] {
        let (code, _, text) = send(&client, "GET", &format!("{pods}/{path}"), &Value::Null).await;
        assert_eq!((code, &*text), (200, ""), "{path}");
    }
    let which = "a container name must be specified for pod two, choose one of: [i a b]";
    for (method, path, message) in [
        ("GET", "two/log", which),
        ("POST", "two/exec?command=sh", which),
        ("POST", "two/attach", which),
        ("GET", "two/log?container=c", "container c is not valid for pod two"),
        ("POST", "two/exec?container=c", "container c is not valid for pod two"),
        ("POST", "one/attach", "pod one does not have a host assigned"),
    ] {
        let (code, body, _) = send(&client, method, &format!("{pods}/{path}"), &Value::Null).await;
        assert_eq!((code, body["message"].as_str()), (400, Some(message)), "{path}");
    }
}
