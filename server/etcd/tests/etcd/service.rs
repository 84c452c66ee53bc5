//! Maintenance, Cluster, Auth, and what is served over plain HTTP.

use std::net::SocketAddr;

use plinth_etcd::wire::auth::AuthStatusResponse;
use plinth_etcd::wire::kv::{
    sort_target, CompactionRequest, RangeRequest, RangeResponse, RangeStreamResponse,
};
use plinth_etcd::wire::maintenance::{
    HashKvRequest, HashKvResponse, MemberRequest, MembersResponse, MoveLeaderRequest, StatusResponse,
};
use plinth_etcd::wire::{Empty, HeaderResponse};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_stream::StreamExt as _;
use tonic::transport::Identity;
use tonic::Code;

use crate::support::{bytes, server, TestServer};

pub(crate) async fn get(server: &TestServer, path: &str) -> String {
    get_from(server.address, path).await
}

async fn get_from(address: SocketAddr, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test(flavor = "multi_thread")]
async fn health_version_and_metrics_are_those_of_etcd() {
    let (_dir, server, client) = server(&[]).await;
    client.put("a", "1").await;
    let health = get(&server, "/health").await;
    assert!(health.starts_with("HTTP/1.1 200") && health.ends_with(r#"{"health":"true","reason":""}"#));
    let version = get(&server, "/version").await;
    assert!(version.contains(r#""etcdserver":"3.6."#), "{version}");
    assert!(get(&server, "/readyz?verbose").await.contains("[+]serializable_read ok"));
    assert!(get(&server, "/nothing").await.starts_with("HTTP/1.1 404"));
    let metrics = get(&server, "/metrics").await;
    for line in [
        "etcd_server_has_leader 1",
        "etcd_mvcc_put_total 1",
        "etcd_debugging_mvcc_current_revision 2",
        "grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"Put\"",
        "etcd_disk_wal_fsync_duration_seconds_count",
        "etcd_disk_backend_commit_duration_seconds_count",
        "etcd_server_is_leader 1",
        "etcd_server_leader_changes_seen_total 1",
        "etcd_server_version{server_version=\"3.6.",
        "etcd_server_proposals_failed_total 0",
        "etcd_server_proposals_pending 0",
        "etcd_server_slow_apply_total ",
        "etcd_server_slow_read_indexes_total 0",
        "etcd_server_read_indexes_failed_total 0",
        "etcd_server_is_learner 0",
        "etcd_server_learner_promote_successes 0",
        "etcd_server_heartbeat_send_failures_total 0",
        "etcd_server_snapshot_apply_in_progress_total 0",
        "etcd_disk_wal_write_bytes_total ",
        "etcd_debugging_mvcc_slow_watcher_total 0",
        "etcd_debugging_mvcc_pending_events_total 0",
        // `etcdctl check datascale` reads it.
        "process_resident_memory_bytes",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_has_one_member_and_takes_no_other() {
    let (dir, server, client) = server(&["--name", "one"]).await;
    let members: MembersResponse = client.call("Cluster/MemberList", Empty {}).await.unwrap();
    assert_eq!(members.members.len(), 1);
    assert_eq!(members.members[0].name, "one");
    let id = members.members[0].id;
    let status: StatusResponse = client.call("Maintenance/Status", Empty {}).await.unwrap();
    assert_eq!((status.leader, status.header.unwrap().member_id), (id, id));
    assert_eq!((status.raft_index, status.raft_applied_index), (1, 1));
    let remove = client.call::<_, Empty>("Cluster/MemberRemove", MemberRequest { id }).await.unwrap_err();
    assert_eq!(remove.code(), Code::FailedPrecondition);
    let add = client.call::<_, Empty>("Cluster/MemberAdd", Empty {}).await.unwrap_err();
    assert_eq!(add.code(), Code::Unimplemented);
    let other_member = MoveLeaderRequest { target_id: id ^ 1 };
    let moved = client.call::<_, HeaderResponse>("Maintenance/MoveLeader", other_member).await.unwrap_err();
    assert_eq!(moved.message(), "etcdserver: bad leader transferee");
    let auth: AuthStatusResponse = client.call("Auth/AuthStatus", Empty {}).await.unwrap();
    assert!(!auth.enabled);
    let enable = client.call::<_, Empty>("Auth/AuthEnable", Empty {}).await.unwrap_err();
    assert_eq!(enable.message(), "etcdserver: root user does not exist");
    let unknown = client.call::<_, Empty>("KV/Frobnicate", Empty {}).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unimplemented);

    // Ids stay, the term is a new one.
    server.stop().await;
    let server = TestServer::start(dir.path(), &[]).await;
    let again: StatusResponse = server.client().await.call("Maintenance/Status", Empty {}).await.unwrap();
    let (before, after) = (status.header.unwrap(), again.header.unwrap());
    assert_eq!((before.cluster_id, before.member_id), (after.cluster_id, after.member_id));
    assert_eq!(before.raft_term + 1, after.raft_term);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_need_a_certificate_of_the_trusted_authority() {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let dir = tempfile::tempdir().unwrap();
    let (ca_key, server_key, client_key) =
        (KeyPair::generate().unwrap(), KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = ca.self_signed(&ca_key).unwrap().pem();
    let issuer = Issuer::new(ca, ca_key);
    let names = vec!["localhost".to_owned()];
    let issue = |key| CertificateParams::new(names.clone()).unwrap().signed_by(key, &issuer).unwrap().pem();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let files = [
        ("--cert-file", file("server.crt", &issue(&server_key))),
        ("--key-file", file("server.key", &server_key.serialize_pem())),
        ("--trusted-ca-file", file("ca.crt", &authority)),
    ];
    let mut flags = vec!["--listen-client-urls", "https://127.0.0.1:0", "--client-cert-auth=true"];
    flags.extend(["--tls-min-version=TLS1.3", "--listen-metrics-urls=http://127.0.0.1:0"]);
    flags.extend(["--name=cp1", "--initial-cluster=cp1=https://192.0.2.10:2380"]);
    flags.extend(["--initial-advertise-peer-urls=https://192.0.2.10:2380"]);
    flags.extend(files.iter().flat_map(|(flag, path)| [*flag, path.as_str()]));
    let server = TestServer::start(&dir.path().join("data"), &flags).await;

    let identity = Identity::from_pem(issue(&client_key), client_key.serialize_pem());
    let client = server.tls_client(&authority, Some(identity)).await.unwrap();
    client.put("a", "1").await;
    assert_eq!(client.get("a").await.unwrap().value, "1");
    // With TLS 1.3 the refusal may come with the first call.
    let is_refused = match server.tls_client(&authority, None).await {
        Err(_) => true,
        Ok(client) => client.call::<_, StatusResponse>("Maintenance/Status", Empty {}).await.is_err(),
    };
    assert!(is_refused, "without a certificate");
    let members: MembersResponse = client.call("Cluster/MemberList", Empty {}).await.unwrap();
    assert_eq!(members.members[0].peer_urls, ["https://192.0.2.10:2380"]);

    // What asks for metrics and probes has no certificate, and gets nothing else.
    let metrics = server.metrics[0];
    for path in ["/livez", "/readyz", "/health"] {
        assert!(get_from(metrics, path).await.starts_with("HTTP/1.1 200"), "{path}");
    }
    assert!(get_from(metrics, "/metrics").await.contains("etcd_server_has_leader 1"));
    for path in ["/version", "/v3/kv/range", "/etcdserverpb.KV/Range"] {
        assert!(get_from(metrics, path).await.starts_with("HTTP/1.1 404"), "{path}");
    }
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{metrics}")).unwrap();
    let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<RangeRequest, RangeResponse>::default();
    let path = http::uri::PathAndQuery::from_static("/etcdserverpb.KV/Range");
    let range = RangeRequest { key: bytes("a"), ..RangeRequest::default() };
    assert!(grpc.unary(tonic::Request::new(range), path, codec).await.is_err());
    server.stop().await;
    let refused = |flag: &'static str| {
        let flags = [&flags[..], &[flag]].concat();
        let dir = dir.path().join("data");
        async move { TestServer::refused(&dir, &flags).await }
    };
    for (flag, expected) in [
        ("--initial-cluster=cp1=https://192.0.2.10:2380,cp2=https://192.0.2.11:2380", "a cluster of one"),
        ("--listen-metrics-urls=127.0.0.1:0", "--listen-metrics-urls: "),
        ("--tls-max-version=TLS1.2", "--tls-min-version: the minimum is greater than the maximum"),
    ] {
        let error = refused(flag).await;
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_with_the_same_keys_have_the_same_hash() {
    let (_dir, server, client) = server(&[]).await;
    let hash = |revision| client.call::<_, HashKvResponse>("Maintenance/HashKV", HashKvRequest { revision });
    // JSON leaves a zero out, and clients look for the field.
    assert_ne!(hash(0).await.unwrap().hash, 0);
    client.put("a", "1").await;
    let first = hash(0).await.unwrap();
    client.put("a", "2").await;
    assert_ne!(hash(0).await.unwrap().hash, first.hash);
    let then = hash(2).await.unwrap();
    assert_eq!((then.hash, then.hash_revision, then.compact_revision), (first.hash, 2, -1));
    // What is reported of the compacted revision is what was reported before, as in etcd.
    let before = hash(3).await.unwrap();
    for (revision, compacted) in [(3, -1), (4, 3)] {
        client.put("b", "1").await;
        let compact = CompactionRequest { revision, physical: true };
        let _: HeaderResponse = client.call("KV/Compact", compact).await.unwrap();
        let after = hash(revision).await.unwrap();
        assert_eq!((after.hash_revision, after.compact_revision), (revision, compacted));
        if revision == 3 {
            assert_eq!(after.hash, before.hash);
        }
    }
    assert_eq!(hash(0).await.unwrap().compact_revision, 4);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_can_be_streamed_in_parts() {
    let (_dir, server, client) = server(&["--max-request-bytes", "4096"]).await;
    for number in 0..20 {
        client.put(&format!("key-{number:02}"), &"x".repeat(1000)).await;
    }
    let request =
        RangeRequest { key: bytes("key-"), range_end: bytes("key."), limit: 15, ..Default::default() };
    let mut parts = client.parts::<_, RangeStreamResponse>("KV/RangeStream", request).await.unwrap();
    let (mut keys, mut count, mut responses) = (Vec::new(), 0, 0);
    while let Some(part) = parts.next().await {
        let part = part.unwrap().range_response.unwrap();
        keys.extend(part.kvs.into_iter().map(|kv| kv.key));
        count = part.count;
        responses += 1;
    }
    assert_eq!((keys.len(), count), (15, 20));
    assert!(responses > 3);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_range_with_a_target_and_no_order_is_sorted_by_it() {
    let (_dir, server, client) = server(&[]).await;
    for number in 0..20 {
        client.put(&format!("key-{number:02}"), &format!("value-{:02}", 19 - number)).await;
    }
    let request = RangeRequest {
        key: bytes("key-"),
        range_end: bytes("key."),
        sort_target: sort_target::VALUE,
        ..Default::default()
    };
    let whole: RangeResponse = client.call("KV/Range", request.clone()).await.unwrap();
    assert_eq!((whole.kvs[0].key.clone(), whole.kvs.len()), (bytes("key-19"), 20));
    let mut parts = client.parts::<_, RangeStreamResponse>("KV/RangeStream", request).await.unwrap();
    let part = parts.next().await.unwrap().unwrap().range_response.unwrap();
    assert_eq!(part, whole);
    assert!(parts.next().await.is_none());
    server.stop().await;
}
