//! `plinth etcd`: the process, its directory, kills.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use http::uri::PathAndQuery;
use plinth_etcd::wire::kv::{PutRequest, PutResponse, RangeRequest, RangeResponse};
use plinth_tests::outcome::Outcome;
use plinth_tests::server::{launch, TestServer};
use tempfile::TempDir;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::Status;
use tonic_prost::ProstCodec;

/// A running `plinth etcd`, killed on drop.
struct Etcd {
    process: Child,
    address: String,
}

impl Etcd {
    fn start(data_dir: &Path) -> Etcd {
        let mut command =
            launch().command(["etcd", "--listen-client-urls", "http://127.0.0.1:0", "--data-dir"]);
        let mut process = command.arg(data_dir).stdout(Stdio::piped()).spawn().expect("plinth runs");
        let mut line = String::new();
        let output = process.stdout.take().expect("standard output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
        Etcd { process, address }
    }

    async fn client(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).expect("a URL");
        endpoint.connect().await.expect("a connection")
    }

    fn kill(mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("ended");
    }

    fn terminate(mut self) {
        let pid = self.process.id().to_string();
        std::process::Command::new("kill").arg(pid).status().expect("kill runs");
        assert!(self.process.wait().expect("ended").success());
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It has ended already where the test succeeded.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn put(channel: &Channel, key: String) -> Result<PutResponse, Status> {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let request = PutRequest { key: key.into(), value: "value".into(), ..Default::default() };
    let path = PathAndQuery::from_static("/etcdserverpb.KV/Put");
    let codec = ProstCodec::<PutRequest, PutResponse>::default();
    Ok(grpc.unary(tonic::Request::new(request), path, codec).await?.into_inner())
}

async fn all(channel: &Channel) -> RangeResponse {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.expect("ready");
    let request = RangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() };
    let path = PathAndQuery::from_static("/etcdserverpb.KV/Range");
    let codec = ProstCodec::<RangeRequest, RangeResponse>::default();
    grpc.unary(tonic::Request::new(request), path, codec).await.expect("an answer").into_inner()
}

/// Runs a command that must fail, and returns what it says.
fn refused(arguments: &[&str], data_dir: &Path) -> String {
    let output = launch().command(arguments).arg("--data-dir").arg(data_dir).outcome();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_belongs_to_one_of_the_two_servers() {
    let dir = TempDir::new().expect("directory");
    let etcd = Etcd::start(dir.path());
    put(&etcd.client().await, "key".to_owned()).await.expect("a put");
    etcd.terminate();
    let message = refused(&["serve", "--bind-address", "127.0.0.1", "--secure-port", "0"], dir.path());
    assert!(message.contains("is a store of \"etcd\""), "{message}");
    assert!(message.contains("plinth etcd serves"), "{message}");

    let mut server = TestServer::start(&[]).await;
    server.terminate().await;
    let message = refused(&["etcd", "--listen-client-urls", "http://127.0.0.1:0"], &server.data());
    assert!(message.contains("was opened as a store of \"etcd\""), "{message}");
    server.restart().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_puts_survive_kills_and_move_with_backups() {
    let dir = TempDir::new().expect("directory");
    let data = dir.path().join("data");
    let mut acknowledged = 0;
    for round in 0..3 {
        let etcd = Etcd::start(&data);
        let channel = etcd.client().await;
        assert_eq!(all(&channel).await.count, acknowledged, "round {round}");
        for _ in 0..50 {
            put(&channel, format!("key-{acknowledged:04}")).await.expect("a put");
            acknowledged += 1;
        }
        etcd.kill();
    }
    let run = |arguments: &[&str], data: &Path| {
        let output = launch().command(arguments).arg("--data-dir").arg(data).outcome();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["verify"], &data);
    let (archive, restored) = (dir.path().join("archive"), dir.path().join("restored"));
    let archive = archive.to_str().expect("text");
    run(&["backup", "--to", archive], &data);
    run(&["restore", "--from", archive], &restored);
    let etcd = Etcd::start(&restored);
    let channel = etcd.client().await;
    let found = all(&channel).await;
    assert_eq!(found.count, acknowledged);
    let before = found.header.expect("a header").revision;
    assert!(before > acknowledged, "revisions go on above all that were seen");
    let next = put(&channel, "next".to_owned()).await.expect("a put");
    assert_eq!(next.header.expect("a header").revision, before + 1);
    etcd.terminate();
}
