//! `plinth etcd`: the process, its directory, kills.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use http::uri::PathAndQuery;
use plinth_benches::api::server::free_port;
use plinth_etcd::wire::kv::{PutRequest, PutResponse, RangeRequest, RangeResponse};
use plinth_tests::eventually;
use plinth_tests::outcome::Outcome;
use plinth_tests::server::{launch, TestServer};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
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

/// The flags of the manifest that kubeadm v1.36 writes for etcd, with other addresses and directories.
#[tokio::test(flavor = "multi_thread")]
async fn the_manifest_of_kubeadm_is_served() {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let dir = TempDir::new().expect("directory");
    let write = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("text").to_owned()
    };
    let (ca_key, key) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
    let mut ca = CertificateParams::new(Vec::new()).expect("parameters");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = ca.self_signed(&ca_key).expect("signed").pem();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    let certificate = certificate.signed_by(&key, &Issuer::new(ca, ca_key)).expect("signed").pem();
    let (ca_file, cert_file) = (write("ca.crt", authority.clone()), write("server.crt", certificate.clone()));
    let key_file = write("server.key", key.serialize_pem());
    let data = dir.path().join("data").to_str().expect("text").to_owned();
    let (name, peer) = ("cp1", "https://192.0.2.10:2380");
    let flags = [
        "--advertise-client-urls=https://192.0.2.10:2379".to_owned(),
        format!("--cert-file={cert_file}"),
        "--client-cert-auth=true".to_owned(),
        format!("--data-dir={data}"),
        "--feature-gates=InitialCorruptCheck=true".to_owned(),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster={name}={peer}"),
        format!("--key-file={key_file}"),
        "--listen-client-urls=https://127.0.0.1:0,https://127.0.0.2:0".to_owned(),
        "--listen-metrics-urls=http://127.0.0.1:0".to_owned(),
        format!("--listen-peer-urls={peer}"),
        format!("--name={name}"),
        format!("--peer-cert-file={cert_file}"),
        "--peer-client-cert-auth=true".to_owned(),
        format!("--peer-key-file={key_file}"),
        format!("--peer-trusted-ca-file={ca_file}"),
        "--snapshot-count=10000".to_owned(),
        format!("--trusted-ca-file={ca_file}"),
        "--watch-progress-notify-interval=5s".to_owned(),
    ];
    let words = std::iter::once("etcd".to_owned()).chain(flags.clone());
    let mut process = launch().command(words).stdout(Stdio::piped()).spawn().expect("plinth runs");
    let mut lines = BufReader::new(process.stdout.take().expect("standard output")).lines();
    let mut address = || {
        let line = lines.next().expect("a line").expect("text");
        line.split_once(" on ").expect("addresses").1.split(", ").next().expect("one").to_owned()
    };
    let (clients, metrics) = (address(), address());
    let etcd = Etcd { process, address: clients };
    for path in ["/livez", "/readyz", "/metrics"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut stream = tokio::net::TcpStream::connect(&metrics).await.expect("a connection");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    let identity = Identity::from_pem(certificate, key.serialize_pem());
    let tls =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority)).domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{}", etcd.address)).expect("a URL");
    let endpoint = endpoint.tls_config(tls.identity(identity)).expect("a configuration");
    let channel = endpoint.connect().await.expect("a connection");
    put(&channel, "key".to_owned()).await.expect("a put");
    assert_eq!(all(&channel).await.count, 1);
    etcd.terminate();

    let more = format!("--initial-cluster={name}={peer},cp2=https://192.0.2.11:2380");
    let words = std::iter::once("etcd".to_owned()).chain(flags).chain([more]);
    let output = launch().command(words).outcome();
    let message = String::from_utf8(output.stderr).expect("text");
    assert!(message.contains("plinth etcd is a cluster of one"), "{message}");
}

/// The line that announces it cannot be written.
#[tokio::test]
async fn an_etcd_whose_output_is_full_serves() {
    let dir = TempDir::new().expect("directory");
    let address = format!("127.0.0.1:{}", free_port().expect("a port"));
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a device");
    let url = format!("http://{address}");
    let mut command = launch().command(["etcd", "--listen-client-urls", &url, "--data-dir"]);
    let process = command.arg(dir.path()).stdout(full).spawn().expect("plinth runs");
    let etcd = Etcd { process, address };
    eventually("it answers", || async {
        let Ok(mut stream) = TcpStream::connect(&etcd.address).await else { return false };
        let request = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let mut answer = String::new();
        let sent = stream.write_all(request).await.is_ok();
        sent && stream.read_to_string(&mut answer).await.is_ok() && answer.starts_with("HTTP/1.1 200 ")
    })
    .await;
    etcd.terminate();
}
