//! Hostile clients: whatever they send, nobody is authorized wrongly, honest clients are answered, the server
//! lives, and its memory stays bounded. `plinth bench api` measures how quick the answers are.
//!
//! | module | attack |
//! |---|---|
//! | [`connections`] | sockets and handshakes that are left half open |
//! | [`http1`] | HTTP/1 requests: sizes, lengths that contradict each other, requests inside of requests |
//! | [`paths`] | ambiguous paths |
//! | [`http2`] | floods of frames |
//! | [`bodies`] | what is deep, long or no text, in every encoding |
//! | [`insiders`] | clients with some permissions: requests forwarded to kubelets, pods and services |
//! | [`load`] | requests, watches and readers in numbers |
//! | [`stored`] | small requests that take long |
//! | [`unread`] | answers, lists and watches that nobody reads |
//! | [`collections`] | requests that concern many large objects |

use std::time::Duration;

use http::StatusCode;
use plinth_benches::api::client::{Call, Identity, Protocol};
use plinth_tests::server::TestServer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

mod bodies;
mod collections;
mod connections;
mod http1;
pub(crate) mod http2;
mod insiders;
mod load;
mod paths;
mod stored;
pub(crate) mod unread;

/// What the process may have in memory at the most while it is attacked, in bytes: caches and buffers have
/// their own limits far below.
pub(crate) const MEMORY: u64 = 1 << 30;
/// How long a read waits for what may never come. Nothing depends on how much of it is used.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The attacked server and what must hold of it.
pub(crate) struct Target {
    /// The server under attack.
    pub server: TestServer,
    /// Its process id; another one means that the server was restarted.
    pub pid: u32,
}

impl Target {
    pub(crate) async fn start() -> Target {
        Target::start_with(&[]).await
    }

    /// With further arguments.
    pub(crate) async fn start_with(arguments: &[&str]) -> Target {
        let server = TestServer::start(arguments).await;
        let pid = server.pid();
        Target { server, pid }
    }

    /// Asserts that honest clients are served: over old and new connections, authenticated or not.
    pub(crate) async fn serves(&self, attack: &str) {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let mut admin = self.server.connect(protocol).await;
            let reply = admin.call(&Call::get("/api/v1/namespaces/default")).await;
            let reply = reply.unwrap_or_else(|e| panic!("{attack}: an administrator is not served: {e}"));
            assert_eq!(reply.status, StatusCode::OK, "{attack}: {}", reply.text());
            let mut anonymous = self.server.connect_anonymously(protocol).await;
            let reply = anonymous.call(&Call::get("/livez")).await.expect("health");
            assert_eq!(reply.status, StatusCode::OK, "{attack}: {}", reply.text());
        }
        assert_eq!(self.server.pid(), self.pid, "{attack}: it was restarted");
        let memory = resident(self.pid);
        assert!(memory < MEMORY, "{attack}: {} MiB in memory", memory >> 20);
    }

    /// A bare TLS stream of an unauthenticated client.
    pub(crate) async fn anonymous_stream(
        &self,
        protocol: Protocol,
    ) -> impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin {
        let endpoint = self.server.endpoint().with_identity(Identity::Anonymous);
        endpoint.stream(protocol).await.expect("TLS stream")
    }

    /// Sends bytes on a stream of their own; gives what comes back until the server closes or falls silent.
    pub(crate) async fn says(&self, protocol: Protocol, bytes: &[u8]) -> Vec<u8> {
        exchange(&mut self.anonymous_stream(protocol).await, bytes).await
    }
}

/// The most memory that the process has had since it was last asked, in bytes, the files that it maps
/// included.
pub(crate) fn resident_peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server lives");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("a new peak");
    kib << 10
}

/// Sends bytes; gives what comes back until the server closes or falls silent.
pub(crate) async fn exchange(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), bytes: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let write = async {
        // The server may close before it has read everything.
        let _ = writer.write_all(bytes).await;
        let _ = writer.flush().await;
        std::future::pending::<()>().await;
    };
    let read = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(n @ 1..) = reader.read(&mut buffer).await {
            answer.extend_from_slice(&buffer[..n]);
        }
    };
    let both = async {
        tokio::select! {
            () = read => {}
            () = write => {}
        }
    };
    let _ = tokio::time::timeout(PATIENCE, both).await;
    answer
}

/// Resident memory of a process, in bytes.
pub(crate) fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server lives");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kib << 10
}

/// The status codes of all HTTP/1 answers in these bytes.
pub(crate) fn codes(answer: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(answer);
    let starts = text.match_indices("HTTP/1.").map(|(at, _)| &text[at..]);
    starts.filter_map(|rest| rest.split_whitespace().nth(1)?.parse().ok()).collect()
}
