//! A snapshot as a directory of `plinth etcd`, with the revisions that the etcd gave.

use std::fs;
use std::process::{Child, Stdio};

use plinth_etcd::wire::auth::{NameRequest, UserAddRequest, UserRoleRequest};
use plinth_etcd::wire::kv::{
    CompactionRequest, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest,
    RangeResponse,
};
use plinth_etcd::wire::lease::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use plinth_etcd::wire::maintenance::SnapshotResponse;
use plinth_etcd::wire::{Empty, HeaderResponse};
use plinth_tests::server::launch;
use tonic::transport::{Channel, Endpoint};

use super::etcd::{ask, free_url, try_ask};
use super::{must, run, Paths};

const RANGE: &str = "/etcdserverpb.KV/Range";
const PUT: &str = "/etcdserverpb.KV/Put";

/// `plinth etcd`, killed on drop.
struct Server(Child, Channel);

impl Server {
    async fn start(data: &str) -> Server {
        let url = free_url("http");
        let arguments = ["etcd", "--data-dir", data, "--listen-client-urls", &url, "--bcrypt-cost", "4"];
        let process = launch().command(arguments).stdout(Stdio::null()).spawn().expect("it runs");
        let endpoint = Endpoint::from_shared(url).expect("a URL");
        let connected = async {
            loop {
                match endpoint.connect().await {
                    Ok(channel) => return channel,
                    Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
                }
            }
        };
        let within = plinth_benches::api::server::READY_WITHIN;
        let channel = tokio::time::timeout(within, connected).await.expect("it listens");
        Server(process, channel)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn put(key: &str, value: &str, lease: i64) -> PutRequest {
    PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), lease, ..PutRequest::default() }
}

async fn all(channel: &Channel) -> RangeResponse {
    let request = RangeRequest { key: "\0".into(), range_end: "\0".into(), ..RangeRequest::default() };
    ask(channel, RANGE, request).await
}

/// Changes that leave gaps between revisions, keys of several versions, a lease, and users.
async fn fill(channel: &Channel) {
    let grant = LeaseGrantRequest { ttl: 600, id: 77 };
    let _: LeaseGrantResponse = ask(channel, "/etcdserverpb.Lease/LeaseGrant", grant).await;
    for number in 0..200 {
        let lease = if number % 50 == 0 { 77 } else { 0 };
        let key = format!("key/{:03}", number % 90);
        let _: PutResponse = ask(channel, PUT, put(&key, &"v".repeat(number), lease)).await;
    }
    let delete = DeleteRangeRequest { key: "key/08".into(), range_end: "key/09".into(), prev_kv: false };
    let deleted: DeleteRangeResponse = ask(channel, "/etcdserverpb.KV/DeleteRange", delete).await;
    assert_eq!(deleted.deleted, 10);
    let compact = CompactionRequest { revision: 150, physical: true };
    let _: HeaderResponse = ask(channel, "/etcdserverpb.KV/Compact", compact).await;
    let user =
        |name: &str| UserAddRequest { name: name.to_owned(), password: "pw".to_owned(), options: None };
    let _: HeaderResponse = ask(channel, "/etcdserverpb.Auth/UserAdd", user("root")).await;
    let role = UserRoleRequest { user: "root".to_owned(), role: "root".to_owned() };
    let _: HeaderResponse = ask(channel, "/etcdserverpb.Auth/UserGrantRole", role).await;
    let role = NameRequest { name: "r".to_owned() };
    let _: HeaderResponse = ask(channel, "/etcdserverpb.Auth/RoleAdd", role).await;
}

/// Writes the file of a snapshot.
async fn save(channel: &Channel, path: &str) {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.expect("ready");
    let codec = tonic_prost::ProstCodec::<Empty, SnapshotResponse>::default();
    let method = http::uri::PathAndQuery::from_static("/etcdserverpb.Maintenance/Snapshot");
    let answer = grpc.server_streaming(tonic::Request::new(Empty {}), method, codec).await;
    let mut parts = answer.expect("a snapshot").into_inner();
    let mut file = Vec::new();
    while let Some(part) = parts.message().await.expect("a part") {
        file.extend_from_slice(&part.blob);
    }
    fs::write(path, file).expect("write");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_leases_and_users_keep_what_they_had() {
    let paths = Paths::new();
    let source = Server::start(&paths.at("source")).await;
    fill(&source.1).await;
    let before = all(&source.1).await;
    let revision = before.header.as_ref().expect("a header").revision;
    let file = paths.at("snapshot.db");
    save(&source.1, &file).await;
    drop(source);
    let data = paths.at("data");
    let text = must(&["import", "snapshot", &file, "--data-dir", &data, "--for-etcd"]);
    assert!(
        text.contains("80 keys, 1 leases, 1 users") && text.contains(&format!("revision {revision}")),
        "{text}"
    );
    must(&["verify", "--data-dir", &data]);
    let (done, text) = run(&["import", "snapshot", &file, "--data-dir", &data, "--for-etcd"]);
    assert!(!done && text.contains("exists already"), "{text}");
    let (done, text) = run(&["serve", "--data-dir", &data]);
    assert!(!done && text.contains("etcd"), "it is of plinth etcd: {text}");

    let moved = Server::start(&data).await;
    let channel = &moved.1;
    let after = all(channel).await;
    assert_eq!(after.kvs, before.kvs, "values, revisions, versions and leases");
    assert_eq!(after.header.expect("a header").revision, revision);
    let lease = LeaseTimeToLiveRequest { id: 77, keys: true };
    let lease: LeaseTimeToLiveResponse = ask(channel, "/etcdserverpb.Lease/LeaseTimeToLive", lease).await;
    let leased: Vec<_> = before.kvs.iter().filter(|kv| kv.lease == 77).map(|kv| kv.key.clone()).collect();
    assert!(!leased.is_empty());
    assert_eq!((lease.granted_ttl, lease.keys), (600, leased));
    // Watches and reads go on at the revision, not before it.
    let at = |revision| RangeRequest { key: "key/000".into(), revision, ..RangeRequest::default() };
    let found: RangeResponse = ask(channel, RANGE, at(revision)).await;
    assert_eq!(found.kvs.len(), 1);
    let compacted =
        try_ask::<_, RangeResponse>(channel, RANGE, at(revision - 1)).await.expect_err("compacted");
    assert_eq!(compacted.message(), "etcdserver: mvcc: required revision has been compacted");
    let next: PutResponse = ask(channel, PUT, put("key/001", "next", 0)).await;
    assert_eq!(next.header.expect("a header").revision, revision + 1);
    let old = before.kvs.iter().find(|kv| kv.key == "key/001").expect("it was there");
    let new = all(channel).await.kvs.into_iter().find(|kv| kv.key == "key/001").expect("it is there");
    assert_eq!((new.create_revision, new.version), (old.create_revision, old.version + 1));
    let _: HeaderResponse = ask(channel, "/etcdserverpb.Auth/AuthEnable", Empty {}).await;
    let refused = try_ask::<_, PutResponse>(channel, PUT, put("a", "b", 0)).await.expect_err("no user");
    assert_eq!(refused.message(), "etcdserver: user name is empty");
    drop(moved);

    // A file that ends early leaves nothing.
    let whole = fs::read(&file).expect("the file");
    let broken = paths.at("broken.db");
    fs::write(&broken, &whole[..whole.len() - 4096]).expect("write");
    let second = paths.at("second");
    let (done, text) = run(&["import", "snapshot", &broken, "--data-dir", &second, "--for-etcd"]);
    assert!(!done && text.contains("does not match"), "{text}");
    assert!(!paths.exists("second") && !paths.exists("second.importing"));
    let flags = ["import", "snapshot", &file, "--data-dir", &second, "--for-etcd", "--prefix", "/x"];
    let (done, text) = run(&flags);
    assert!(!done && text.contains("cannot be used with"), "{text}");
}
