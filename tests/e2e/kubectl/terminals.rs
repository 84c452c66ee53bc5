//! `kubectl logs`, `exec` and `attach`, against a kubelet of the test's own that speaks
//! what kubelets speak: WebSocket with a channel number before each message.

use std::process::Output;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use plinth_tests::https::HttpsServer;
use plinth_tests::kubectl::Kubectl;
use plinth_tests::server::{namespace, shared, unique};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::WebSocketStream;

/// Channels of remote commands (`v5.channel.k8s.io`).
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const CLOSE: u8 = 255;

fn plain(code: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    response
}

/// A command: it prints the request on standard error, and copies its input to its output.
async fn command(socket: hyper::upgrade::OnUpgrade, command_line: String, has_input: bool) {
    let stream = TokioIo::new(socket.await.expect("an upgraded connection"));
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    let frame = |channel: u8, text: &[u8]| Message::Binary([&[channel], text].concat().into());
    socket.send(frame(STDERR, format!("{command_line}\n").as_bytes())).await.expect("standard error");
    // Without an input there is nothing to wait for.
    let mut open = has_input;
    while open {
        match socket.next().await {
            Some(Ok(Message::Binary(data))) => match data.split_first() {
                Some((&STDIN, text)) => socket.send(frame(STDOUT, text)).await.expect("standard output"),
                Some((&CLOSE, _)) => open = false,
                _ => {}
            },
            Some(Ok(_)) => {}
            _ => return,
        }
    }
    if command_line.contains("command=false") {
        let failed = br#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;
        socket.send(frame(ERROR, failed)).await.expect("the end");
    } else {
        socket.send(frame(ERROR, br#"{"metadata":{},"status":"Success"}"#)).await.expect("the end");
    }
    // The client answers the close frame; a connection that is closed by then is as good.
    let end = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    let _ = socket.close(Some(end)).await;
    while let Some(Ok(_)) = socket.next().await {}
}

async fn kubelet(mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    let target = request.uri().to_string();
    let header = |name: &str| {
        request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    if target.starts_with("/containerLogs/") {
        return plain(StatusCode::OK, format!("log of {target}\n"));
    }
    if !target.starts_with("/exec/") && !target.starts_with("/attach/") {
        return plain(StatusCode::OK, format!("{} {target}", request.method()));
    }
    let (key, protocols) = (header("sec-websocket-key"), header("sec-websocket-protocol"));
    let protocol = protocols.split(',').map(str::trim).find(|p| *p == "v5.channel.k8s.io");
    let Some(protocol) = protocol.filter(|_| !key.is_empty()) else {
        return plain(StatusCode::BAD_REQUEST, format!("{protocols:?} is not spoken here"));
    };
    let (upgrade, has_input) = (hyper::upgrade::on(&mut request), target.contains("input=1"));
    tokio::spawn(command(upgrade, target, has_input));
    let mut response = plain(StatusCode::SWITCHING_PROTOCOLS, String::new());
    let headers = response.headers_mut();
    headers.insert("connection", "Upgrade".parse().expect("header"));
    headers.insert("upgrade", "websocket".parse().expect("header"));
    headers.insert("sec-websocket-accept", derive_accept_key(key.as_bytes()).parse().expect("header"));
    headers.insert("sec-websocket-protocol", protocol.parse().expect("header"));
    response
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_reaches_what_runs_on_a_node() {
    let server = shared().await;
    let Some(kubectl) = Kubectl::find("kubectl exec", server.kubeconfig()) else { return };
    let kubelet = HttpsServer::start(kubelet).await;
    let (node, namespace) = (unique("node"), namespace(&server.client().await, "terminals").await);
    let port = kubelet.port;
    let objects = format!(
        r#"{{"apiVersion":"v1","kind":"List","items":[
        {{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{node}"}},"status":{{"addresses":[{{"type":"InternalIP","address":"127.0.0.1"}}],"daemonEndpoints":{{"kubeletEndpoint":{{"Port":{port}}}}}}}}},
        {{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p","namespace":"{namespace}"}},"spec":{{"nodeName":"{node}","containers":[{{"name":"a","image":"x","stdin":true}},{{"name":"b","image":"x"}}]}}}}
        ]}}"#
    );
    // kubectl blocks its thread and the kubelet answers from this very process, so it runs on another thread.
    let steps = move || {
        kubectl.ok_with_input("create -f -", &objects);
        let status = r#"{"status":{"phase":"Running"}}"#;
        kubectl.ok(&format!("patch pod p -n {namespace} --subresource=status --type=merge -p {status}"));
        let pod = format!("{namespace}/p");
        assert_eq!(
            kubectl.ok(&format!("logs p -n {namespace} -c b --tail=3")),
            format!("log of /containerLogs/{pod}/b?tailLines=3\n")
        );
        let copied =
            kubectl.ok_with_input(&format!("exec -i p -n {namespace} -c a -- cat -u"), "some\nlines\n");
        assert_eq!(copied, "some\nlines\n");
        // kubectl discards what comes before it has made its streams; a kubelet that answers at once is
        // that quick on a busy machine.
        let exec = |command: &str| {
            let mut runs = (0..20).map(|_| kubectl.run(&format!("exec p -n {namespace} -c b -- {command}")));
            let is_whole = |run: &Output| !String::from_utf8_lossy(&run.stderr).contains("Unknown stream id");
            runs.find(is_whole).expect("a run whose output was not discarded")
        };
        let said = exec("date");
        let output = String::from_utf8_lossy(&said.stderr);
        assert!(
            said.status.success()
                && output.contains(&format!("/exec/{pod}/b?"))
                && output.contains("command=date"),
            "{output}"
        );
        let failed = exec("false");
        assert_eq!(failed.status.code(), Some(7), "{}", String::from_utf8_lossy(&failed.stderr));
        let attached = kubectl.ok_with_input(&format!("attach -i p -n {namespace} -c a"), "typed\n");
        assert!(attached.contains("typed\n"), "{attached}");
        // Whoever may proxy to nodes does not get to this machine.
        let refused = kubectl.fails(&format!("get --raw /api/v1/nodes/{node}/proxy/some/path"));
        assert!(refused.contains("address not allowed"), "{refused}");
        let nowhere = kubectl.fails(&format!("exec nosuch -n {namespace} -- date"));
        assert!(nowhere.contains(r#"pods "nosuch" not found"#), "{nowhere}");
        kubectl.ok(&format!("delete pod p -n {namespace} --grace-period=0 --force --wait=false"));
        kubectl.ok(&format!("delete node {node} --wait=false"));
    };
    tokio::task::spawn_blocking(steps).await.expect("the steps");
}
