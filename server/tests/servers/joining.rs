//! Joining with a token: who gets the cluster's keys for it, and who does not.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use plinth_benches::api::client::{Call, Connection, Identity, Protocol, Reply, JSON};
use plinth_benches::api::kubeconfig;
use plinth_journal::simulated::SimulatedJournal;
use plinth_pki::{JoinCredential, JoinToken};
use plinth_server::archives::ArchiveLocation;
use plinth_server::cli::{
    create_token, replicate, restore, runtime, start, CreateTokenOptions, JoinError, JoinOptions,
    ReplicateOptions, RestoreOptions, Running,
};
use serde_json::json;

use super::replicas::{connect, create, get, json, replicas, serve, try_join, try_serve, MAPS};

const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

pub(crate) async fn token_of(server: &Running) -> String {
    let options = CreateTokenOptions {
        kubeconfig: server.kubeconfig().to_owned(),
        ttl: Duration::from_secs(600),
        description: "for a test".into(),
        print_join_command: false,
        server: None,
    };
    tokio::task::spawn_blocking(move || create_token(&options)).await.unwrap().unwrap()
}

pub(crate) fn url(server: &Running) -> String {
    format!("https://{}", server.address())
}

pub(crate) async fn join_with(url: String, token: &str, data_dir: PathBuf) -> Result<(), JoinError> {
    let token = Some(token.parse().unwrap());
    try_join(JoinOptions { server: Some(url), token, data_dir, ..JoinOptions::default() }).await
}

fn credential_of(token: &str) -> JoinCredential {
    JoinToken::parse(token).unwrap().credential
}

/// A connection whose requests have this bearer token, or none.
async fn bearer(server: &Running, token: Option<&str>) -> Connection {
    let endpoint = kubeconfig::endpoint(server.kubeconfig()).unwrap();
    let identity = token.map_or(Identity::Anonymous, |token| Identity::Token(token.to_owned()));
    endpoint.with_identity(identity).connect(Protocol::Http1).await.unwrap()
}

async fn redeem(server: &Running, credential: &str) -> Reply {
    let mut client = bearer(server, Some(credential)).await;
    client.call(&Call::new(Method::POST, "/plinth/join")).await.unwrap()
}

pub(crate) fn holds(dir: &Path, needle: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => holds(&entry.path(), needle),
            // Files come and go while the server runs.
            false => std::fs::read(entry.path())
                .is_ok_and(|bytes| bytes.windows(needle.len()).any(|window| window == needle)),
        }
    })
}

#[test]
fn a_replica_joins_with_a_token_once() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let encryption = at("at-rest.yaml");
    std::fs::write(
        &encryption,
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [configmaps]\n  providers:\n  - aesgcm:\n      keys:\n      - {name: one, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}\n",
    )
    .unwrap();
    let policy = at("policy.yaml");
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: RequestResponse\n")
        .unwrap();
    let (encryption, policy, log) = (encryption.to_str().unwrap(), policy.to_str().unwrap(), at("audit.log"));
    let flags = [
        "--encryption-provider-config",
        encryption,
        "--audit-policy-file",
        policy,
        "--audit-log-path",
        log.to_str().unwrap(),
        // Nobody is anonymous, and a token still joins.
        "--anonymous-auth=false",
    ];
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(20);
        let first = try_serve(&at("1"), &journal, 1, &flags).await.unwrap();
        let mut admin = connect(&first).await;
        assert_eq!(create(&mut admin, "before").await.status, 201);
        let token = token_of(&first).await;
        let credential = credential_of(&token);
        join_with(url(&first), &token, at("2")).await.unwrap();
        // What it needs came with it: the keys, and the configuration with which the store is read.
        let own = at("2").join("encryption.yaml");
        assert_eq!(std::fs::read(&own).unwrap(), std::fs::read(encryption).unwrap());
        let key = "pki/ca.key";
        assert_eq!(std::fs::read(at("2").join(key)).unwrap(), std::fs::read(at("1").join(key)).unwrap());
        assert!(!at("2").join("pki/apiserver.key").exists(), "each has its own");
        let flags = ["--encryption-provider-config", own.to_str().unwrap()];
        let second = try_serve(&at("2"), &journal, 2, &flags).await.unwrap();
        assert_eq!(get(&mut connect(&second).await, &format!("{MAPS}/before")).await.status, 200);

        // It is used up, everywhere, and nothing was left of another attempt.
        for server in [&first, &second] {
            let refused = join_with(url(server), &token, at("3")).await.unwrap_err().to_string();
            assert!(refused.contains("token create"), "{refused}");
        }
        assert!(!at("3").exists() && !at("3.joining").exists());
        let name = format!("{SECRETS}/bootstrap-token-{}", credential.id());
        assert_eq!(get(&mut admin, &name).await.status, 404);

        // Neither the store, its history included, nor the audit log has the secret; the log has the ID.
        let (id, secret) =
            credential.expose().split_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        second.stop().await.unwrap();
        first.stop().await.unwrap();
        assert!(holds(dir.path(), id.as_bytes()) && !holds(dir.path(), secret.as_bytes()));
        let logged = std::fs::read_to_string(&log).unwrap();
        let used = format!("\"plinth/join-token\":\"{id}\"");
        assert_eq!(logged.matches(&used).count(), 1, "once, where it was used");
        assert!(logged.contains("\"requestURI\":\"/plinth/join\""));
    });
}

/// A token that was used after a backup is in the backup as it was before.
#[test]
fn tokens_of_a_backup_are_void_in_a_store_that_is_restored_from_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(22);
        let first = serve(&at("1"), &journal, 1).await;
        let token = token_of(&first).await;
        let mut archive = Vec::new();
        connect(&first)
            .await
            .call(&Call::get("/plinth/backup"))
            .await
            .map(|reply| archive.extend_from_slice(&reply.body))
            .unwrap();
        first.stop().await.unwrap();

        let restored = at("restored");
        std::fs::write(at("archive"), &archive).unwrap();
        let options =
            RestoreOptions { from: ArchiveLocation::Path(at("archive")), data_dir: restored.clone() };
        restore(options).unwrap();
        std::fs::create_dir(restored.join("pki")).unwrap();
        for entry in std::fs::read_dir(at("1").join("pki")).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), restored.join("pki").join(entry.file_name())).unwrap();
            }
        }
        // As a single server, which completes its keys, and then as a replica.
        start(super::replicas::options(&restored, &[])).await.unwrap().stop().await.unwrap();
        replicate(ReplicateOptions { data_dir: restored.clone(), ..ReplicateOptions::default() }).unwrap();
        let again = serve(&restored, &SimulatedJournal::new(23), 1).await;
        let refused = join_with(url(&again), &token, at("3")).await.unwrap_err().to_string();
        assert!(refused.contains("token create"), "{refused}");
        join_with(url(&again), &token_of(&again).await, at("3")).await.unwrap();
        again.stop().await.unwrap();
    });
}

#[test]
fn of_several_uses_at_once_one_gets_the_keys() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(21);
        let servers: [Running; 2] = replicas(dir.path(), &journal).await;
        for round in 0..4 {
            // Created at one, used at both.
            let token = credential_of(&token_of(&servers[round % 2]).await).expose();
            let [a, b, c] = [&servers[0], &servers[1], &servers[1]].map(|server| redeem(server, &token));
            let (a, b, c) = tokio::join!(a, b, c);
            let mut codes = [a.status, b.status, c.status];
            codes.sort_unstable();
            assert_eq!(codes, [200, 401, 401], "{round}");
        }
        for server in servers {
            server.stop().await.unwrap();
        }
    });
}

fn secret(credential: &JoinCredential, more: &[(&str, &str)]) -> String {
    let name = format!("bootstrap-token-{}", credential.id());
    let hash = credential.hash();
    let mut data = vec![("token-id", credential.id()), ("token-hash", &hash), ("usage-plinth-join", "true")];
    data.push(("expiration", "2999-01-01T00:00:00Z"));
    data.retain(|(key, _)| more.iter().all(|(other, _)| key != other));
    data.extend(more.iter().filter(|(_, value)| !value.is_empty()));
    let data: serde_json::Map<_, _> =
        data.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    json!({ "metadata": { "name": name }, "type": "bootstrap.kubernetes.io/token", "stringData": data })
        .to_string()
}

#[test]
fn what_is_no_valid_token_gets_nothing() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(22);
        let flags = ["--enable-bootstrap-token-auth"];
        let server = try_serve(&dir.path().join("1"), &journal, 1, &flags).await.unwrap();
        let mut admin = connect(&server).await;
        // A token of a kubelet, which is one for other paths.
        let kubelet = json!({ "metadata": { "name": "bootstrap-token-kubele" }, "type": "bootstrap.kubernetes.io/token",
            "stringData": { "token-id": "kubele", "token-secret": "0123456789abcdef",
                "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true" } });
        admin.must(&Call::new(Method::POST, SECRETS).body(JSON, kubelet.to_string())).await.unwrap();
        let kubelet = "kubele.0123456789abcdef";
        let mut node = bearer(&server, Some(kubelet)).await;
        assert_eq!(get(&mut node, "/api").await.status, 200, "it is a user");
        assert_eq!(get(&mut node, "/plinth/checkpoint").await.status, 403);
        assert_eq!(redeem(&server, kubelet).await.status, 401);

        // Tokens that are wrong in one thing each, those of an administrator among them.
        let right = JoinCredential::generate().unwrap();
        for more in [
            [("expiration", "2020-01-01T00:00:00Z")],
            [("expiration", "")],
            [("usage-plinth-join", "false")],
            [("usage-plinth-join", "")],
            [("usage-bootstrap-authentication", "true")],
            [("token-secret", "0123456789abcdef")],
            [("token-id", "other0")],
            [("token-hash", "0000")],
        ] {
            let name = format!("{SECRETS}/bootstrap-token-{}", right.id());
            admin.must(&Call::new(Method::POST, SECRETS).body(JSON, secret(&right, &more))).await.unwrap();
            let refused = redeem(&server, &right.expose()).await;
            assert_eq!(refused.status, 401, "{more:?}: {}", refused.text());
            assert_eq!(get(&mut admin, &name).await.status, 200, "a token that is refused is not used up");
            admin.must(&Call::new(Method::DELETE, name)).await.unwrap();
        }
        admin.must(&Call::new(Method::POST, SECRETS).body(JSON, secret(&right, &[]))).await.unwrap();
        let exposed = right.expose();
        for wrong in [
            format!("{}.{}", right.id(), "0".repeat(32)),
            exposed.replace('.', ""),
            format!("{exposed}x"),
            exposed.to_uppercase(),
            "kubele.00000000000000000000000000000000".to_owned(),
            String::new(),
        ] {
            let refused = redeem(&server, &wrong).await;
            assert_eq!(refused.status, 401, "{wrong}");
            assert!(!refused.text().contains("PRIVATE"), "{wrong}");
        }
        // As a credential of a user it is none, anywhere, and no other path takes it.
        let mut other = bearer(&server, Some(&exposed)).await;
        for path in ["/api", "/plinth/checkpoint", "/plinth/replicas", "/plinth/join/", "//plinth/join", "/plinth//join"] {
            for method in [Method::GET, Method::POST] {
                let reply = other.call(&Call::new(method, path)).await.unwrap();
                assert_eq!(reply.status, 401, "{path}: {}", reply.text());
            }
        }
        let review = json!({ "spec": { "token": exposed } }).to_string();
        let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
        let review = admin.must(&Call::new(Method::POST, reviews).body(JSON, review)).await.unwrap();
        assert!(json(&review)["status"]["authenticated"].is_null(), "{}", review.text());
        // An administrator is nobody here.
        let join = || Call::new(Method::POST, "/plinth/join");
        assert_eq!(admin.call(&join()).await.unwrap().status, 401);
        for method in [Method::PUT, Method::DELETE, Method::PATCH] {
            let status = admin.call(&Call::new(method, "/plinth/join")).await.unwrap().status;
            assert!(status == 403 || status == 405, "{status}");
        }
        // After all of that it is as good as before.
        assert_eq!(redeem(&server, &exposed).await.status, 200);
        server.stop().await.unwrap();
    });
}

/// A service account that may do everything with Secrets, as an operator that copies them may.
async fn with_all_rights_on_secrets(admin: &mut Connection, server: &Running) -> Connection {
    let role = r#"{"metadata":{"name":"secrets"},"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["*"]}]}"#;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    admin.must(&Call::new(Method::POST, format!("{rbac}/clusterroles")).body(JSON, role)).await.unwrap();
    let binding = r#"{"metadata":{"name":"secrets"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",
        "name":"secrets"},"subjects":[{"kind":"ServiceAccount","name":"robot","namespace":"default"}]}"#;
    admin
        .must(&Call::new(Method::POST, format!("{rbac}/clusterrolebindings")).body(JSON, binding))
        .await
        .unwrap();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin
        .must(&Call::new(Method::POST, accounts).body(JSON, r#"{"metadata":{"name":"robot"}}"#))
        .await
        .unwrap();
    let path = format!("{accounts}/robot/token");
    let issued = admin.must(&Call::new(Method::POST, path).body(JSON, "{}")).await.unwrap();
    bearer(server, json(&issued)["status"]["token"].as_str()).await
}

#[test]
fn rights_on_secrets_are_no_right_to_join() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(23);
        let server = serve(&dir.path().join("1"), &journal, 1).await;
        let mut admin = connect(&server).await;
        let mut robot = with_all_rights_on_secrets(&mut admin, &server).await;
        let own = JoinCredential::generate().unwrap();
        let path = format!("{SECRETS}/bootstrap-token-{}", own.id());
        // Not by creating one, nor by making one of another Secret, nor by trying what would become of it.
        let denied = |reply: Reply| {
            assert_eq!(reply.status, 403, "{}", reply.text());
            assert!(reply.text().contains("tokens for joining replicas"), "{}", reply.text());
        };
        let post = |path: &str, text: String| Call::new(Method::POST, path).body(JSON, text);
        denied(robot.call(&post(SECRETS, secret(&own, &[]))).await.unwrap());
        denied(robot.call(&post(&format!("{SECRETS}?dryRun=All"), secret(&own, &[]))).await.unwrap());
        let apply = Call::new(Method::PATCH, format!("{path}?fieldManager=robot&force=true"));
        let mut applied: serde_json::Value = serde_json::from_str(&secret(&own, &[])).unwrap();
        (applied["apiVersion"], applied["kind"]) = ("v1".into(), "Secret".into());
        denied(robot.call(&apply.body("application/apply-patch+yaml", applied.to_string())).await.unwrap());
        let harmless = secret(&own, &[("usage-plinth-join", "")]);
        robot.must(&post(SECRETS, harmless)).await.unwrap();
        let patch = |text: &str| {
            Call::new(Method::PATCH, &*path).body("application/merge-patch+json", text.to_owned())
        };
        denied(robot.call(&patch(r#"{"stringData":{"usage-plinth-join":"true"}}"#)).await.unwrap());
        denied(robot.call(&patch(r#"{"data":{"usage-plinth-join":"dHJ1ZQ=="}}"#)).await.unwrap());
        let put: serde_json::Value = serde_json::from_str(&secret(&own, &[])).unwrap();
        denied(robot.call(&Call::new(Method::PUT, &*path).body(JSON, put.to_string())).await.unwrap());
        assert_eq!(redeem(&server, &own.expose()).await.status, 401);
        robot.must(&Call::new(Method::DELETE, &*path)).await.unwrap();

        // Nor by changing an administrator's, or by reading it: it holds a hash.
        admin.must(&post(SECRETS, secret(&own, &[("expiration", "2020-01-01T00:00:00Z")]))).await.unwrap();
        denied(robot.call(&patch(r#"{"stringData":{"expiration":"2999-01-01T00:00:00Z"}}"#)).await.unwrap());
        denied(robot.call(&patch(r#"{"data":{"token-hash":"eA=="}}"#)).await.unwrap());
        robot.must(&patch(r#"{"metadata":{"labels":{"a":"b"}}}"#)).await.unwrap();
        let token = token_of(&server).await;
        let listed = get(&mut robot, SECRETS).await.text();
        let (id, hidden) = credential_of(&token)
            .expose()
            .split_once('.')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        assert!(listed.contains(&format!("bootstrap-token-{id}")) && !listed.contains(&hidden));

        // Outside of kube-system it is a Secret as any other, and grants nothing.
        let misplaced = JoinCredential::generate().unwrap();
        robot.must(&post("/api/v1/namespaces/default/secrets", secret(&misplaced, &[]))).await.unwrap();
        assert_eq!(redeem(&server, &misplaced.expose()).await.status, 401);
        server.stop().await.unwrap();
    });
}

/// Who may configure admission may change what others write, but not into a token for joining.
#[test]
fn policies_make_no_token_of_what_masters_write() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(29);
        let server = serve(&dir.path().join("1"), &journal, 1).await;
        let mut admin = connect(&server).await;
        let own = JoinCredential::generate().unwrap();
        let forged: serde_json::Value = serde_json::from_str(&secret(&own, &[])).unwrap();
        let (name, data) = (&forged["metadata"]["name"], &forged["stringData"]);
        let expression = format!(
            r#"[JSONPatch{{op: "replace", path: "/metadata/name", value: {name}}},
                JSONPatch{{op: "replace", path: "/type", value: "bootstrap.kubernetes.io/token"}},
                JSONPatch{{op: "add", path: "/stringData", value: {data}}}]"#
        );
        let policy = json!({
            "metadata": { "name": "forger" },
            "spec": {
                "matchConstraints": { "resourceRules": [
                    { "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"] },
                ] },
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression": expression } }],
            },
        });
        let binding = json!({ "metadata": { "name": "forger" }, "spec": { "policyName": "forger" } });
        let group = "/apis/admissionregistration.k8s.io/v1";
        let post = |path: String, body: String| Call::new(Method::POST, path).body(JSON, body);
        let policies = format!("{group}/mutatingadmissionpolicies");
        admin.must(&post(policies, policy.to_string())).await.unwrap();
        let bindings = format!("{group}/mutatingadmissionpolicybindings");
        admin.must(&post(bindings.clone(), binding.to_string())).await.unwrap();
        let harmless = json!({ "metadata": { "name": "harmless" }, "stringData": { "a": "b" } }).to_string();
        let token = secret(&JoinCredential::generate().unwrap(), &[]);
        for body in [harmless.clone(), token] {
            let refused = admin.call(&post(SECRETS.to_owned(), body)).await.unwrap();
            assert_eq!(refused.status, 403, "{}", refused.text());
            assert!(refused.text().contains("only the sender of the request may grant"), "{}", refused.text());
        }
        assert_eq!(redeem(&server, &own.expose()).await.status, 401);
        // It was the policy: without its binding both are written.
        admin.must(&Call::new(Method::DELETE, format!("{bindings}/forger"))).await.unwrap();
        admin.must(&post(SECRETS.to_owned(), harmless)).await.unwrap();
        server.stop().await.unwrap();
    });
}

#[test]
fn a_deleted_token_and_one_of_a_replica_that_lags() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(24);
        let [first, second]: [Running; 2] = replicas(dir.path(), &journal).await;
        // Deleted at one replica while the other one cannot know it: there it is not redeemed.
        let token = credential_of(&token_of(&first).await);
        let path = format!("{SECRETS}/bootstrap-token-{}", token.id());
        assert_eq!(get(&mut connect(&second).await, &path).await.status, 200);
        journal.set_reachable(2, false);
        connect(&first).await.must(&Call::new(Method::DELETE, &*path)).await.unwrap();
        let refused = redeem(&second, &token.expose()).await;
        assert!(refused.status.is_server_error(), "{}", refused.text());
        assert!(!refused.text().contains("PRIVATE"));
        journal.set_reachable(2, true);
        assert_eq!(redeem(&second, &token.expose()).await.status, 401);
        // A single server has no path for it.
        first.stop().await.unwrap();
        second.stop().await.unwrap();
    });
}

/// A server in the middle: it has a certificate of its own authority, and answers GET with `shown`. Returns
/// its URL, the number of requests, and the headers of all of them.
async fn in_the_middle(shown: String) -> (String, Arc<AtomicUsize>, Arc<Mutex<String>>) {
    let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
    params.subject_alt_names.push(rcgen::SanType::IpAddress([127, 0, 0, 1].into()));
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let (count, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(String::new())));
    let (counter, log) = (count.clone(), seen.clone());
    let shown = if shown.is_empty() { certificate.pem() } else { shown };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let (counter, log, shown) = (counter.clone(), log.clone(), shown.clone());
            let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
                counter.fetch_add(1, Ordering::SeqCst);
                log.lock().push_str(&format!("{:?} {:?}\n", request.method(), request.headers()));
                let body = Full::new(bytes::Bytes::from(shown.clone()));
                async move { Ok::<_, std::convert::Infallible>(Response::new(body)) }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer),
            );
        }
    });
    (url, count, seen)
}

#[test]
fn a_server_with_another_authority_gets_nothing() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(25);
        let server = serve(&dir.path().join("1"), &journal, 1).await;
        let token = token_of(&server).await;
        let authority = std::fs::read_to_string(dir.path().join("1/pki/ca.crt")).unwrap();
        // One that shows its own authority, one that shows the right one, which it has no certificate of, one
        // that shows both, and one that shows no end of it.
        let both = format!("{authority}{authority}");
        for (shown, why) in [
            (String::new(), "another authority"),
            (authority, "certificate of the cluster's own authority"),
            (both, "certificate of the cluster's own authority"),
            ("x".repeat(1 << 20), "longer than 262144 bytes"),
            ("nothing".to_owned(), "another authority"),
        ] {
            let (middle, count, seen) = in_the_middle(shown).await;
            let refused = join_with(middle, &token, dir.path().join("2")).await.unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
            assert!(!refused.contains(&credential_of(&token).expose()));
            let seen = seen.lock().clone();
            assert_eq!(count.load(Ordering::SeqCst), 1, "{seen}");
            assert!(
                seen.starts_with("GET") && !seen.contains("authorization") && !seen.contains("POST"),
                "{seen}"
            );
            assert!(!dir.path().join("2").exists());
        }
        // A token that names another authority, for the right server.
        let other = JoinToken { authority: [7; 32], credential: credential_of(&token) }.expose();
        let refused = join_with(url(&server), &other, dir.path().join("2")).await.unwrap_err().to_string();
        assert!(refused.contains("another authority"), "{refused}");
        // What cannot be a token or a server is refused without a connection, and not shown.
        for (url, token, why) in [
            (url(&server), credential_of(&token).expose(), "not a whole token"),
            (url(&server), format!("{token}x"), "not a whole token"),
            (url(&server).replace("https", "http"), token.clone(), "not the URL"),
            (format!("{}/path", url(&server)), token.clone(), "not the URL"),
        ] {
            let refused = join_with(url, &token, dir.path().join("2")).await.unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
            assert!(!refused.contains(&token), "{refused}");
        }
        // It was used nowhere: it still joins.
        join_with(url(&server), &token, dir.path().join("2")).await.unwrap();
        server.stop().await.unwrap();
    });
}

#[test]
fn a_token_file_is_read_and_a_single_server_has_none() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(26);
        let server = serve(&dir.path().join("1"), &journal, 1).await;
        let file = dir.path().join("token");
        std::fs::write(&file, format!("{}\n", token_of(&server).await)).unwrap();
        let options = JoinOptions {
            server: Some(url(&server)),
            token_file: Some(file),
            data_dir: dir.path().join("2"),
            ..JoinOptions::default()
        };
        try_join(options).await.unwrap();
        assert!(dir.path().join("2/store").is_dir());
        let deadline = Instant::now() + Duration::from_secs(60);
        // The permit of that one is returned when everything was sent.
        while redeem(&server, "abcdef.x").await.status == 429 {
            assert!(Instant::now() < deadline);
        }
        server.stop().await.unwrap();
        let single = plinth_server::cli::start(super::replicas::options(&dir.path().join("single"), &[]))
            .await
            .unwrap();
        assert_eq!(redeem(&single, "abcdef.x").await.status, 404);
        single.stop().await.unwrap();
    });
}
