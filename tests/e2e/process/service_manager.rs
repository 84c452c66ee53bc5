//! What a service manager and the server exchange: readiness, signs of life, the listening socket.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use plinth_benches::api::client::{Call, Protocol};
use plinth_benches::api::kubeconfig;
use plinth_tests::eventually;
use plinth_tests::outcome::Outcome;
use plinth_tests::server::{launch, start_ready};

#[tokio::test]
async fn readiness_life_and_the_end_are_reported() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("socket");
    // Generous: the end of the test is no message, not a slow one.
    manager.set_read_timeout(Some(Duration::from_secs(120))).expect("timeout");
    let receive = || {
        let mut bytes = [0; 1024];
        let length = manager.recv(&mut bytes).expect("a message of the server");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let launch = launch().env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", Path::new("100000"));
    let mut server = start_ready(&launch, dir.path(), &[]).await;
    let first = receive();
    assert_eq!(first, format!("READY=1\nSTATUS=Serving on https://127.0.0.1:{}", server.port()));
    assert_eq!(receive(), "WATCHDOG=1");
    assert_eq!(receive(), "WATCHDOG=1");
    server.terminate().await.expect("clean end");
    let mut last = receive();
    while last == "WATCHDOG=1" {
        last = receive();
    }
    assert_eq!(last, "STOPPING=1\nSTATUS=Finishing requests");
}

/// Ends with the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn an_inherited_socket_is_served() {
    const HANDS_OVER: &str = r#"exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@""#;
    let dir = tempfile::tempdir().expect("directory");
    let data = dir.path().join("data");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("address").port();
    let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let starter = launch().on_host(localhost, &["sh", "-c", HANDS_OVER]);
    // The flag is that of a server that listens by itself; the socket has another port.
    let mut command = starter.command(["serve", "--secure-port", "1", "--data-dir"]);
    command.arg(&data).stdin(OwnedFd::from(listener)).stdout(Stdio::null());
    let _running = Running(command.spawn().expect("plinth starts"));
    let kubeconfig = data.join("admin.kubeconfig");
    eventually("it serves the socket", || async {
        let Ok(endpoint) = kubeconfig::endpoint(&kubeconfig) else { return false };
        let Ok(mut connection) = endpoint.connect(Protocol::Http1).await else { return false };
        connection.must(&Call::get("/readyz")).await.is_ok()
    })
    .await;
    let text = std::fs::read_to_string(&kubeconfig).expect("kubeconfig");
    assert!(text.contains(&format!("https://127.0.0.1:{port}")), "{text}");
}

#[test]
fn a_file_in_the_place_of_the_socket_is_refused() {
    let script = r#"exec 3</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@""#;
    let dir = tempfile::tempdir().expect("directory");
    let starter = launch().on_host(IpAddr::V4(Ipv4Addr::LOCALHOST), &["sh", "-c", script]);
    let output = starter.command(["serve", "--data-dir"]).arg(dir.path().join("data")).outcome();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.starts_with("error: the socket of the service manager (file descriptor 3): "),
        "{message}"
    );
}
