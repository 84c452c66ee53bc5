//! A running etcd as source and destination: `plinth etcd` always, and a real one where `PLINTH_ETCD` and
//! `PLINTH_ETCDUTL` name the programs (`scripts/test-etcd` sets them); without them the tests say so.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use http::uri::PathAndQuery;
use http::Method;
use plinth_benches::api::server::free_port;
use plinth_etcd::wire::kv::{
    DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
};
use plinth_migration::snapshot::Snapshot;
use plinth_migration::source::{Source as _, SourceEntry, SourceError};
use plinth_tests::requests::call;
use plinth_tests::server::{client_of, launch, TestServer};
use prost::Message;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::Status;
use tonic_prost::ProstCodec;

use super::{assert_same, filled, hash, must, objects, run, start_with_keys_of, Objects, Paths, NAMESPACE};

/// What is followed, moved from and moved to.
enum Program {
    /// `plinth etcd`.
    Ours,
    /// etcd and etcdutl.
    Real(PathBuf, PathBuf),
}

/// The programs that are there.
fn programs() -> Vec<Program> {
    let named = |name| std::env::var_os(name).map(PathBuf::from);
    let mut programs = vec![Program::Ours];
    match named("PLINTH_ETCD").zip(named("PLINTH_ETCDUTL")) {
        Some((etcd, etcdutl)) => programs.push(Program::Real(etcd, etcdutl)),
        None => eprintln!(
            "SKIPPED for a real etcd: PLINTH_ETCD and PLINTH_ETCDUTL are not set (see scripts/test-etcd)"
        ),
    }
    programs
}

pub(super) fn free_url(scheme: &str) -> String {
    format!("{scheme}://127.0.0.1:{}", free_port().expect("a port"))
}

/// A running server, killed on drop.
struct Etcd {
    process: Child,
    /// Without TLS.
    plain: String,
    /// With TLS and client certificates.
    tls: String,
}

impl Etcd {
    /// Starts a server with what a snapshot has.
    async fn start(program: &Program, paths: &Paths, file: &str) -> Etcd {
        certificates(paths);
        let (plain, tls) = (free_url("http"), free_url("https"));
        let peer = free_url("http");
        let data = paths.at("etcd");
        let mut command = match program {
            Program::Ours => launch().command(["etcd"]),
            Program::Real(etcd, etcdutl) => {
                let restored = Command::new(etcdutl)
                    .args(["snapshot", "restore", file, "--data-dir", &data])
                    .args(["--initial-advertise-peer-urls", &peer])
                    .args(["--initial-cluster", &format!("default={peer}")])
                    .output()
                    .expect("etcdutl runs");
                assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
                let mut command = Command::new(etcd);
                command.args(["--log-level", "error", "--listen-peer-urls", &peer]);
                command.args(["--initial-advertise-peer-urls", &peer]);
                command.args(["--initial-cluster", &format!("default={peer}")]);
                command.args(["--advertise-client-urls", &plain]);
                command
            }
        };
        command.args(["--data-dir", &data, "--listen-client-urls", &format!("{plain},{tls}")]);
        command.args(["--client-cert-auth", "--trusted-ca-file", &paths.at("ca.crt")]);
        command.args(["--cert-file", &paths.at("server.crt"), "--key-file", &paths.at("server.key")]);
        let process = command.stdout(Stdio::null()).spawn().expect("it runs");
        let etcd = Etcd { process, plain, tls };
        let channel = etcd.channel().await;
        if matches!(program, Program::Ours) {
            fill(&channel, file).await;
        }
        etcd
    }

    async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(self.plain.clone()).expect("a URL");
        let deadline = plinth_benches::api::server::READY_WITHIN;
        let connected = async {
            loop {
                match endpoint.connect().await {
                    Ok(channel) => return channel,
                    Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
                }
            }
        };
        tokio::time::timeout(deadline, connected).await.expect("it listens")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It has ended already where the test has killed it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Puts what a snapshot has.
async fn fill(channel: &Channel, file: &str) {
    let snapshot = Snapshot::open(Path::new(file), true).expect("a snapshot");
    let mut entries = Vec::new();
    let collect = &mut |entry: SourceEntry| {
        entries.push(entry);
        Ok::<(), SourceError>(())
    };
    snapshot.visit(b"", collect).expect("all keys");
    for entry in entries {
        put(channel, &String::from_utf8(entry.key).expect("text"), entry.value).await;
    }
}

/// Writes an authority and certificates of a server and a client.
pub(super) fn certificates(paths: &Paths) {
    let authority_key = KeyPair::generate().expect("key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).expect("certificate");
    fs::write(paths.at("ca.crt"), authority.pem()).expect("write");
    let issuer = Issuer::from_params(&params, &authority_key);
    for name in ["server", "client"] {
        let key = KeyPair::generate().expect("key");
        let params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).expect("names");
        let certificate = params.signed_by(&key, &issuer).expect("certificate");
        fs::write(paths.at(&format!("{name}.crt")), certificate.pem()).expect("write");
        fs::write(paths.at(&format!("{name}.key")), key.serialize_pem()).expect("write");
    }
}

pub(super) async fn ask<Q: Message + 'static, A: Message + Default + 'static>(
    channel: &Channel,
    path: &'static str,
    request: Q,
) -> A {
    try_ask(channel, path, request).await.expect("an answer")
}

pub(super) async fn try_ask<Q: Message + 'static, A: Message + Default + 'static>(
    channel: &Channel,
    path: &'static str,
    request: Q,
) -> Result<A, Status> {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.expect("ready");
    let codec = ProstCodec::<Q, A>::default();
    let path = PathAndQuery::from_static(path);
    Ok(grpc.unary(tonic::Request::new(request), path, codec).await?.into_inner())
}

async fn get(channel: &Channel, key: &str) -> Vec<u8> {
    let request = RangeRequest { key: key.to_owned().into(), ..RangeRequest::default() };
    let found: RangeResponse = ask(channel, "/etcdserverpb.KV/Range", request).await;
    found.kvs.first().unwrap_or_else(|| panic!("{key} is absent")).value.to_vec()
}

async fn put(channel: &Channel, key: &str, value: Vec<u8>) -> i64 {
    let request = PutRequest { key: key.to_owned().into(), value: value.into(), ..PutRequest::default() };
    let done: PutResponse = ask(channel, "/etcdserverpb.KV/Put", request).await;
    done.header.expect("a header").revision
}

async fn delete(channel: &Channel, key: &str) {
    let request = DeleteRangeRequest { key: key.to_owned().into(), ..DeleteRangeRequest::default() };
    let done: DeleteRangeResponse = ask(channel, "/etcdserverpb.KV/DeleteRange", request).await;
    assert_eq!(done.deleted, 1, "{key}");
}

/// `plinth import etcd --follow`, from when it follows.
fn follow(etcd: &Etcd, paths: &Paths, arguments: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let data = paths.at("data");
    let first = ["import", "etcd", "--endpoints", &etcd.plain, "--data-dir", &data, "--follow"];
    let mut command = launch().command([&first[..], arguments].concat());
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("plinth runs");
    let mut output = BufReader::new(process.stdout.take().expect("standard output"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert!(line.contains("following"), "{line:?}");
    (process, output)
}

fn end(mut process: Child, mut output: BufReader<std::process::ChildStdout>) -> (bool, String) {
    let mut text = String::new();
    output.read_to_string(&mut text).expect("text");
    process.stderr.take().expect("standard error").read_to_string(&mut text).expect("text");
    (process.wait().expect("ended").success(), text)
}

fn terminate(process: &Child) {
    let status = Command::new("kill").arg(process.id().to_string()).status().expect("kill runs");
    assert!(status.success());
}

/// A value with another text of the same length in it.
fn replaced(value: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut value = value.to_vec();
    let places: Vec<usize> =
        (0..=value.len() - from.len()).filter(|at| value[*at..].starts_with(from.as_bytes())).collect();
    assert!(!places.is_empty(), "{from} is in the value");
    places.into_iter().for_each(|at| value[at..at + to.len()].copy_from_slice(to.as_bytes()));
    value
}

/// A stopped server with objects, a snapshot of them, and what was printed when that was written.
async fn exported(paths: &Paths) -> (TestServer, Objects, String, String) {
    let (server, before, _) = filled(&[]).await;
    let (file, data) = (paths.at("snapshot.db"), server.data());
    let out = must(&["export", "etcd-snapshot", "--data-dir", data.to_str().expect("text"), &file]);
    (server, before, file, out)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_moves_through_etcd() {
    for program in programs() {
        let paths = Paths::new();
        let (server, before, file, out) = exported(&paths).await;
        let etcd = Etcd::start(&program, &paths, &file).await;

        // Live, over TLS with a client certificate.
        let (cacert, cert, key) = (paths.at("ca.crt"), paths.at("client.crt"), paths.at("client.key"));
        let tls = ["import", "etcd", "--endpoints", &etcd.tls, "--cacert", &cacert];
        let (done, text) = run(&[&tls[..], &["--data-dir", &paths.at("data")]].concat());
        assert!(!done && !paths.exists("data"), "without a certificate: {text}");
        assert!(text.contains("etcd does not answer"), "{text}");
        let target = paths.at("data");
        let identity = ["--cert", &cert, "--key", &key, "--data-dir", &target];
        let into = must(&[&tls[..], &identity].concat());
        assert_eq!(hash(&out), hash(&into));
        let moved = start_with_keys_of(&server, paths.0.path(), &[]).await;
        assert_same(&before, &objects(&client_of(&moved.kubeconfig()).await).await.0);
        drop(moved);
        if matches!(program, Program::Ours) {
            continue;
        }
        // The file of a member: without a hash, with pages that were freed, and records of deleted keys.
        let channel = etcd.channel().await;
        for number in 0..300 {
            put(&channel, "/registry/masterleases/10.0.0.1", vec![number as u8; 2000]).await;
        }
        delete(&channel, "/registry/masterleases/10.0.0.1").await;
        // Enough for etcd's backend to commit.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        drop(etcd);
        let member = paths.at("etcd/member/snap/db");
        let (done, text) = run(&["import", "snapshot", &member, "--data-dir", &paths.at("second")]);
        assert!(!done && text.contains("--skip-hash-check"), "{text}");
        let arguments = ["import", "snapshot", &member, "--skip-hash-check", "--data-dir"];
        let from_member = must(&[&arguments[..], &[paths.at("second").as_str()]].concat());
        assert_eq!(hash(&out), hash(&from_member));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_follows_etcd_until_the_switch_over() {
    for program in programs() {
        let paths = Paths::new();
        let (server, _, file, _) = exported(&paths).await;
        let etcd = Etcd::start(&program, &paths, &file).await;
        let channel = etcd.channel().await;
        let (process, output) = follow(&etcd, &paths, &[]);
        assert!(!paths.exists("data"), "absent until the switch-over");

        let cars = format!("/registry/moving.example.com/cars/{NAMESPACE}");
        let car = get(&channel, &format!("{cars}/o-1")).await;
        for number in 0..200 {
            let name = format!("{number:03}");
            put(&channel, &format!("{cars}/{name}"), replaced(&car, "o-1", &name)).await;
        }
        delete(&channel, &format!("{cars}/o-2")).await;
        let definition = "/registry/apiextensions.k8s.io/customresourcedefinitions/cars.moving.example.com";
        let changed = String::from_utf8(get(&channel, definition).await).expect("JSON");
        let changed = changed.replace("\"default\":3", "\"default\":4");
        put(&channel, definition, changed.into_bytes()).await;
        terminate(&process);
        let (done, text) = end(process, output);
        assert!(done, "{text}");
        assert!(text.contains("after 202 changes"), "{text}");
        let moved = start_with_keys_of(&server, paths.0.path(), &[]).await;
        let client = client_of(&moved.kubeconfig()).await;
        let path = |name: &str| format!("/apis/moving.example.com/v1/namespaces/{NAMESPACE}/cars/{name}");
        for (name, expected) in [("000", 200), ("199", 200), ("o-1", 200), ("o-2", 404)] {
            assert_eq!(call(&client, Method::GET, &path(name), None).await.0, expected, "{name}");
        }
        drop(moved);

        // To a revision, with nobody there to command it.
        fs::remove_dir_all(paths.at("data")).expect("remove");
        let now = put(&channel, &format!("{cars}/o-2"), replaced(&car, "o-1", "o-2")).await;
        let until = (now + 5).to_string();
        let (process, output) = follow(&etcd, &paths, &["--until-revision", &until]);
        for _ in 0..5 {
            put(&channel, "/outside", b"the revision counts all keys".to_vec()).await;
        }
        let (done, text) = end(process, output);
        assert!(done && text.contains(&format!("left etcd at revision {until}")), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_dies_leaves_no_directory() {
    for program in programs() {
        let paths = Paths::new();
        let (_server, _, file, _) = exported(&paths).await;
        let etcd = Etcd::start(&program, &paths, &file).await;
        let channel = etcd.channel().await;
        let (process, output) = follow(&etcd, &paths, &[]);
        // What cannot be imported stops it, too.
        put(&channel, "/registry/pods/moved/strange", b"strange".to_vec()).await;
        let (done, text) = end(process, output);
        assert!(!done && text.contains("/registry/pods/moved/strange: "), "{text}");
        assert!(text.contains("--skip-unknown"), "{text}");
        assert!(!paths.exists("data") && !paths.exists("data.importing"));
        delete(&channel, "/registry/pods/moved/strange").await;

        let (process, output) = follow(&etcd, &paths, &[]);
        let endpoint = etcd.plain.clone();
        drop(etcd);
        let (done, text) = end(process, output);
        // The watch has ended, or was not opened yet.
        assert!(!done && text.contains("etcd does not answer"), "{text}");
        assert!(!paths.exists("data") && !paths.exists("data.importing"));
        let arguments = ["import", "etcd", "--endpoints", &endpoint, "--data-dir"];
        let (done, text) = run(&[&arguments[..], &[paths.at("data").as_str()]].concat());
        assert!(!done && text.contains("etcd does not answer") && text.contains(&endpoint), "{text}");
        assert!(!paths.exists("data") && !paths.exists("data.importing"));
    }
}
