//! A real etcd, which `PLINTH_ETCD` names: it answers the same requests as the model does, and so as our
//! server.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plinth_benches::api::server::free_port;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::Client;

/// A member of etcd with data of its own, killed on drop.
pub(crate) struct RealEtcd {
    process: Child,
    address: String,
    _dir: TempDir,
}

fn free_address() -> String {
    format!("127.0.0.1:{}", free_port().unwrap())
}

impl RealEtcd {
    /// Starts etcd; none when no program is named.
    pub(crate) fn start() -> Option<RealEtcd> {
        let program = std::env::var_os("PLINTH_ETCD")?;
        let dir = tempfile::tempdir().unwrap();
        let (address, peers) = (free_address(), free_address());
        let process = Command::new(program)
            .arg("--data-dir")
            .arg(dir.path())
            .args(["--listen-client-urls", &format!("http://{address}")])
            .args(["--advertise-client-urls", &format!("http://{address}")])
            .args(["--listen-peer-urls", &format!("http://{peers}")])
            .args(["--initial-advertise-peer-urls", &format!("http://{peers}")])
            .args(["--initial-cluster", &format!("default=http://{peers}"), "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(RealEtcd { process, address, _dir: dir })
    }

    /// Its metrics. HTTP/1.0 has no chunks.
    pub(crate) async fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    /// A client, once it serves.
    pub(crate) async fn client(&mut self) -> Client {
        loop {
            assert!(self.process.try_wait().unwrap().is_none(), "etcd has ended");
            if let Some(client) = Client::connect(&format!("http://{}", self.address)).await {
                if client.is_ready().await {
                    return client;
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for RealEtcd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
