//! The flags of a control plane's manifest: each takes effect, is warned about or is refused.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;

use http::{Method, StatusCode};
use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::outcome::Outcome;
use plinth_tests::server::{launch, TestServer};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::{json, Value};

/// A key and an authority's certificate, in files.
fn authority(dir: &Path, name: &str) -> String {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).expect("an authority").pem();
    std::fs::write(dir.join(format!("{name}.crt")), &pem).expect("certificate");
    std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).expect("key");
    std::fs::write(dir.join(format!("{name}.pub")), key.public_key_pem()).expect("public key");
    pem
}

async fn read(server: &TestServer, path: &str) -> Value {
    let mut admin = server.connect(Protocol::Http2).await;
    let reply = admin.must(&Call::get(path)).await.expect(path);
    serde_json::from_slice(&reply.body).expect("JSON")
}

#[tokio::test]
async fn a_control_planes_flags_are_followed() {
    let dir = tempfile::tempdir().expect("directory");
    let front = authority(dir.path(), "front-proxy-ca");
    authority(dir.path(), "sa");
    authority(dir.path(), "front-proxy-client");
    let file = |name: &str| dir.path().join(name).display().to_string();
    let flags = [
        "--advertise-address=192.0.2.7".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--enable-bootstrap-token-auth=true".to_owned(),
        "--etcd-servers=https://127.0.0.1:2379".to_owned(),
        format!("--etcd-cafile={}", file("no-such-file")),
        "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname".to_owned(),
        format!("--proxy-client-cert-file={}", file("front-proxy-client.crt")),
        format!("--proxy-client-key-file={}", file("front-proxy-client.key")),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        format!("--requestheader-client-ca-file={}", file("front-proxy-ca.crt")),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-signing-key-file={}", file("sa.key")),
        "--service-cluster-ip-range=10.96.0.0/12".to_owned(),
        "--tls-min-version=VersionTLS13".to_owned(),
        "--profiling=false".to_owned(),
        "--feature-gates=WatchList=true".to_owned(),
    ];
    let server = TestServer::start(&flags.each_ref().map(String::as_str)).await;

    let endpoints = read(&server, "/api/v1/namespaces/default/endpoints/kubernetes").await;
    assert_eq!(endpoints["subsets"][0]["addresses"], json!([{ "ip": "192.0.2.7" }]));
    let service = read(&server, "/api/v1/namespaces/default/services/kubernetes").await;
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
    let discovery = read(&server, "/.well-known/openid-configuration").await;
    let keys = discovery["jwks_uri"].as_str().unwrap_or_default().to_owned();
    assert!(keys.starts_with("https://192.0.2.7:") && keys.ends_with("/openid/v1/jwks"), "{keys}");

    // The authorities that the server trusts, published for extension API servers; reconciled when changed.
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let trust = read(&server, path).await;
    let text = |key: &str| trust["data"][key].as_str().unwrap_or_default().to_owned();
    assert_eq!(text("requestheader-client-ca-file"), front);
    assert_eq!(text("requestheader-allowed-names"), r#"["front-proxy-client"]"#);
    assert_eq!(text("requestheader-username-headers"), r#"["X-Remote-User"]"#);
    assert_eq!(text("requestheader-extra-headers-prefix"), r#"["X-Remote-Extra-"]"#);
    assert!(text("client-ca-file").starts_with("-----BEGIN CERTIFICATE-----"));
    let mut admin = server.connect(Protocol::Http2).await;
    admin.must(&Call::new(Method::DELETE, path)).await.expect("deletion");
    // It is created again within ten seconds.
    loop {
        let reply = admin.call(&Call::get(path)).await.expect("answer");
        if reply.status == StatusCode::OK {
            let repaired: Value = serde_json::from_slice(&reply.body).expect("JSON");
            assert_eq!(repaired["data"], trust["data"]);
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server as the command of a static pod has it: by upstream's name, with its flags and no others but the
/// data directory.
#[tokio::test]
async fn called_as_kube_apiserver_it_serves() {
    let dir = tempfile::tempdir().expect("directory");
    let data = dir.path().join("data");
    let port = plinth_benches::api::server::free_port().expect("a port");
    authority(dir.path(), "sa");
    let file = |name: &str| dir.path().join(name).display().to_string();
    let flags = [
        "--advertise-address=127.0.0.1".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--data-dir={}", data.display()),
        "--allow-privileged=true".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-bootstrap-token-auth=true".to_owned(),
        "--etcd-servers=https://127.0.0.1:2379".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-signing-key-file={}", file("sa.key")),
        "--service-cluster-ip-range=10.96.0.0/12".to_owned(),
    ];
    let log = std::fs::File::create(dir.path().join("log")).expect("log");
    let mut command = launch().command(&flags);
    command.arg0("/usr/local/bin/kube-apiserver").stdout(log.try_clone().expect("log")).stderr(log);
    let mut server = Running(command.spawn().expect("a process"));
    let kubeconfig = data.join("admin.kubeconfig");
    let mut admin = loop {
        let ended = server.0.try_wait().expect("state of the process");
        assert!(ended.is_none(), "{ended:?}: {}", std::fs::read_to_string(file("log")).unwrap_or_default());
        if let Ok(endpoint) = plinth_benches::api::kubeconfig::endpoint(&kubeconfig) {
            if let Ok(mut connection) = endpoint.connect(Protocol::Http2).await {
                if connection.must(&Call::get("/readyz")).await.is_ok() {
                    break connection;
                }
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    // No controllers, as kube-apiserver has none.
    let reply = admin.must(&Call::get("/flagz").accept("text/plain")).await.expect("flags");
    let shown = String::from_utf8_lossy(&reply.body).into_owned();
    let controllers = shown.lines().find_map(|line| line.strip_prefix("controllers"));
    assert_eq!(controllers.map(|rest| rest.trim_matches([' ', '=', ':'])), Some(""), "{shown}");
    let service = admin.must(&Call::get("/api/v1/namespaces/default/services/kubernetes")).await;
    let service: Value = serde_json::from_slice(&service.expect("the service").body).expect("JSON");
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
}

#[test]
fn called_as_kube_apiserver_it_reports_its_version_and_refuses_as_plinth_serve() {
    let run = |arguments: &[&str]| {
        let output = launch().command(arguments).arg0("kube-apiserver").outcome();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, version, _) = run(&["--version"]);
    assert_eq!(code, Some(0));
    assert!(version.starts_with("Kubernetes v1.36."), "{version}");
    let (code, _, error) = run(&["--data-dir=/nonexistent/data", "--profiling=true"]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.starts_with("error: --profiling=true is not supported: "), "{error}");
    // No commands of plinth.
    let (code, _, error) = run(&["backup", "--to", "x"]);
    assert_eq!(code, Some(2), "{error}");
}
