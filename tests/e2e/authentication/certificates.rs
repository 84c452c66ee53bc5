//! Certificates: requests are approved, signed and used; the serving certificate changes without a restart.

use std::sync::Arc;
use std::time::Duration;

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use http::{Method, StatusCode};
use plinth_benches::api::client::{Call, Identity, Protocol, JSON};
use plinth_tests::kubectl::Kubectl;
use plinth_tests::requests::{post, SELF_SUBJECT_REVIEWS};
use plinth_tests::server::{unique, Access, TestServer};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{json, Value};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

async fn call_as(access: &Access, identity: Option<Identity>, call: &Call) -> (StatusCode, Value) {
    let endpoint = match identity {
        Some(identity) => access.endpoint().with_identity(identity),
        None => access.endpoint(),
    };
    let reply =
        endpoint.connect(Protocol::Http1).await.expect("connection").call(call).await.expect("answer");
    (reply.status, serde_json::from_slice(&reply.body).unwrap_or_default())
}

async fn admin(access: &Access, call: &Call) -> (StatusCode, Value) {
    call_as(access, None, call).await
}

/// A key, and a CertificateSigningRequest for it.
fn request(name: &str, subject: (&str, &str), signer: &str, usages: &[&str]) -> (KeyPair, Value) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, subject.1);
    params.distinguished_name.push(DnType::CommonName, subject.0);
    let pem = params.serialize_request(&key).and_then(|request| request.pem()).expect("a request");
    let spec = json!({ "request": STANDARD.encode(pem), "signerName": signer, "usages": usages });
    (
        key,
        json!({ "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": name }, "spec": spec }),
    )
}

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const NODE_USAGES: [&str; 2] = ["client auth", "digital signature"];

/// Polls until the controllers have done their work.
async fn until(access: &Access, name: &str, done: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..500 {
        let (_, request) = admin(access, &Call::get(format!("{REQUESTS}/{name}"))).await;
        if done(&request) {
            return request;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{name} is not as expected: {}", admin(access, &Call::get(format!("{REQUESTS}/{name}"))).await.1);
}

fn is_signed(request: &Value) -> bool {
    request["status"]["certificate"].as_str().is_some_and(|text| !text.is_empty())
}

fn certificate(request: &Value) -> Vec<u8> {
    STANDARD.decode(request["status"]["certificate"].as_str().expect("a certificate")).expect("base64")
}

async fn whoami(access: &Access, certificate: Vec<u8>, key: &KeyPair) -> Value {
    let identity = Identity::Certificate { certificate, key: key.serialize_pem().into_bytes() };
    let (code, user) = plinth_tests::requests::whoami(access, identity).await;
    assert_eq!(code, 201, "{user}");
    user
}

#[tokio::test]
async fn an_approved_certificate_is_signed_and_authenticates() {
    let server = TestServer::start(&[]).await;
    let Some(kubectl) = Kubectl::find("certificates", server.kubeconfig()) else { return };
    let name = unique("jane");
    let (key, body) = request(&name, ("jane", "dev"), CLIENT, &["client auth"]);
    let (status, made) = admin(&server, &post(REQUESTS, body)).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    assert_eq!(made["spec"]["username"], "kubernetes-admin");
    assert!(made["spec"]["groups"].as_array().unwrap().contains(&json!("system:masters")));
    assert!(kubectl.ok("get csr").contains("Pending"));
    kubectl.ok(&format!("certificate approve {name}"));
    let signed = until(&server, &name, is_signed).await;
    assert!(kubectl.ok("get csr").contains("Approved,Issued"));
    let user = whoami(&server, certificate(&signed), &key).await;
    assert_eq!(
        (&user["username"], &user["groups"]),
        (&json!("jane"), &json!(["dev", "system:authenticated"]))
    );
    // A denial is final.
    let denied = unique("joe");
    admin(&server, &post(REQUESTS, request(&denied, ("joe", "dev"), CLIENT, &["client auth"]).1)).await;
    kubectl.ok(&format!("certificate deny {denied}"));
    assert!(kubectl.fails(&format!("certificate approve {denied}")).contains("is already Denied"));
}

#[tokio::test]
async fn a_node_gets_its_first_certificate_by_itself() {
    let server = TestServer::start(&["--enable-bootstrap-token-auth"]).await;
    let secret = json!({
        "metadata": { "name": "bootstrap-token-abcdef" },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": { "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true" },
    });
    admin(&server, &post("/api/v1/namespaces/kube-system/secrets", secret)).await;
    for role in
        ["system:node-bootstrapper", "system:certificates.k8s.io:certificatesigningrequests:nodeclient"]
    {
        let binding = json!({
            "metadata": { "name": format!("e2e:{}", role.rsplit(':').next().unwrap()) },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:bootstrappers" }],
        });
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        let (status, body) = admin(&server, &post(path, binding)).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
    }
    let node = Some(Identity::Token("abcdef.0123456789abcdef".into()));
    let (key, body) = request("node-1", ("system:node:node-1", "system:nodes"), KUBELET, &NODE_USAGES);
    let (status, made) = call_as(&server, node.clone(), &post(REQUESTS, body)).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    let signed = until(&server, "node-1", is_signed).await;
    assert_eq!(signed["status"]["conditions"][0]["reason"], "AutoApproved");
    let user = whoami(&server, certificate(&signed), &key).await;
    assert_eq!(
        (&user["username"], &user["groups"]),
        (&json!("system:node:node-1"), &json!(["system:nodes", "system:authenticated"]))
    );
    // No controller approves requests for other signers: it stays pending.
    let (_, body) = request("other", ("system:node:node-1", "system:nodes"), CLIENT, &["client auth"]);
    call_as(&server, node, &post(REQUESTS, body)).await;
    let (_, waits) = admin(&server, &Call::get(format!("{REQUESTS}/other"))).await;
    assert_eq!(waits["status"].get("conditions"), None, "{waits}");
}

#[tokio::test]
async fn signers_refuse_what_breaks_their_rule() {
    let server = TestServer::start(&[]).await;
    let rows = [
        (
            "usage",
            ("jane", "dev"),
            CLIENT,
            &["server auth"][..],
            "invalid usage for client certificate: server auth",
        ),
        (
            "group",
            ("system:node:a", "dev"),
            KUBELET,
            &NODE_USAGES[..],
            "subject organization is not system:nodes",
        ),
        (
            "name",
            ("jane", "system:nodes"),
            KUBELET,
            &NODE_USAGES[..],
            "subject common name does not begin with system:node:",
        ),
        ("uses", ("system:node:a", "system:nodes"), KUBELET, &["client auth"][..], "usages did not match"),
        (
            "serving",
            ("system:node:a", "system:nodes"),
            "kubernetes.io/kubelet-serving",
            &["server auth", "digital signature"][..],
            "DNS or IP subjectAltName is required",
        ),
    ];
    for (name, subject, signer, usages, message) in rows {
        let (status, mut made) =
            admin(&server, &post(REQUESTS, request(name, subject, signer, usages).1)).await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
        made["status"]["conditions"] =
            json!([{ "type": "Approved", "status": "True", "reason": "e2e", "message": "e2e" }]);
        let path = format!("{REQUESTS}/{name}");
        let put = |path: String, body: &Value| Call::new(Method::PUT, path).body(JSON, body.to_string());
        // Only the approval subresource accepts a decision.
        let (status, refused) = admin(&server, &put(format!("{path}/status"), &made)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
        let (status, body) = admin(&server, &put(format!("{path}/approval"), &made)).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let failed =
            until(&server, name, |r| r["status"]["conditions"].as_array().is_some_and(|c| c.len() == 2))
                .await;
        let condition = &failed["status"]["conditions"][1];
        assert_eq!(
            (&condition["type"], &condition["reason"]),
            (&json!("Failed"), &json!("SignerValidationFailure"))
        );
        assert!(condition["message"].as_str().unwrap().contains(message), "{name}: {condition}");
    }
}

/// The certificate that a server presents.
async fn shown(port: u16) -> Vec<u8> {
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};
    let authority = SHOWN_CA.get().expect("an authority").clone();
    let mut roots = RootCertStore::empty();
    roots.add(authority.into()).expect("an authority");
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("connection");
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("TLS");
    stream.get_ref().1.peer_certificates().expect("a certificate")[0].to_vec()
}

static SHOWN_CA: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();

fn der(pem: &str) -> Vec<u8> {
    let base64: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    STANDARD.decode(base64).expect("PEM")
}

#[tokio::test]
async fn the_serving_certificate_is_reloaded_without_a_restart() {
    let server = TestServer::start(&[]).await;
    let pki = server.data().join("pki");
    let read = |name: &str| std::fs::read_to_string(pki.join(name)).expect(name);
    SHOWN_CA.set(der(&read("ca.crt"))).expect("set once");
    let before = shown(server.port()).await;
    assert_eq!(before, der(&read("apiserver.crt")));
    let authority = KeyPair::from_pem(&read("ca.key")).expect("the authority's key");
    let issuer = rcgen::Issuer::from_ca_cert_pem(&read("ca.crt"), authority).expect("the authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    // The certificate first: until the key follows, the two do not fit and the old ones stay.
    std::fs::write(pki.join("apiserver.crt"), certificate.pem()).expect("certificate");
    std::fs::write(pki.join("apiserver.key"), key.serialize_pem()).expect("key");
    for _ in 0..500 {
        if shown(server.port()).await == certificate.der().to_vec() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the server still shows the old certificate");
}

#[tokio::test]
async fn a_front_proxy_names_the_user() {
    let dir = tempfile::tempdir().expect("directory");
    // An authority of the proxy's own, and a certificate of it.
    let ca_key = KeyPair::generate().expect("a key");
    let mut ca = CertificateParams::default();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_cert = ca.clone().self_signed(&ca_key).expect("an authority");
    let ca_file = dir.path().join("proxy-ca.crt");
    std::fs::write(&ca_file, ca_cert.pem()).expect("authority");
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let identity = |name: &str| {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &issuer).expect("a certificate").pem().into_bytes();
        Identity::Certificate { certificate, key: key.serialize_pem().into_bytes() }
    };
    let flag = format!("--requestheader-client-ca-file={}", ca_file.display());
    let server = TestServer::start(&[
        &flag,
        "--requestheader-allowed-names=proxy",
        "--requestheader-uid-headers=X-Remote-Uid",
    ])
    .await;
    let ask = |identity: Option<Identity>| {
        let server = &server;
        async move {
            let endpoint = match identity {
                Some(identity) => server.endpoint().with_identity(identity),
                None => server.endpoint(),
            };
            let mut connection = endpoint.connect(Protocol::Http1).await.expect("connection");
            let request = http::Request::builder()
                .method(Method::POST)
                .uri(SELF_SUBJECT_REVIEWS)
                .header("content-type", JSON)
                .header("x-remote-user", "jane")
                .header("x-remote-group", "dev")
                .header("x-remote-uid", "u-1")
                .header("x-remote-extra-acme.io%2fscope", "read")
                .body(http_body_util::Full::new(bytes::Bytes::from(
                    json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" })
                        .to_string(),
                )))
                .expect("request");
            let response = connection.send(request, SELF_SUBJECT_REVIEWS).await.expect("answer");
            let status = response.status();
            let body = http_body_util::BodyExt::collect(response).await.expect("body").to_bytes();
            (status, serde_json::from_slice::<Value>(&body).expect("JSON"))
        }
    };
    let (status, body) = ask(Some(identity("proxy"))).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let expected = json!({ "username": "jane", "uid": "u-1", "groups": ["dev", "system:authenticated"], "extra": { "acme.io/scope": ["read"] } });
    assert_eq!(body["status"]["userInfo"], expected);
    assert_eq!(ask(Some(identity("other"))).await.0, StatusCode::UNAUTHORIZED);
    // The headers of other clients are ignored.
    assert_eq!(ask(None).await.1["status"]["userInfo"]["username"], "kubernetes-admin");
    assert_eq!(ask(Some(Identity::Anonymous)).await.0, StatusCode::FORBIDDEN);
}

/// The seconds that a certificate holds.
fn lifetime(der: &[u8]) -> i64 {
    use x509_parser::prelude::{FromDer, X509Certificate};
    let validity = X509Certificate::from_der(der).expect("certificate").1.validity().clone();
    validity.not_after.timestamp() - validity.not_before.timestamp()
}

#[tokio::test]
async fn certificates_live_as_long_as_requested_and_the_signer_can_be_switched_off() {
    let approved = async |server: &TestServer, name: &str, seconds: i64| {
        let (_, mut body) = request(name, ("jane", "dev"), CLIENT, &["client auth"]);
        body["spec"]["expirationSeconds"] = json!(seconds);
        let (status, mut made) = admin(server, &post(REQUESTS, body)).await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
        made["status"]["conditions"] =
            json!([{ "type": "Approved", "status": "True", "reason": "e2e", "message": "e2e" }]);
        let path = format!("{REQUESTS}/{name}/approval");
        let put = Call::new(Method::PUT, path).body(JSON, made.to_string());
        assert_eq!(admin(server, &put).await.0, StatusCode::OK);
    };
    let server = TestServer::start(&["--cluster-signing-duration=2h"]).await;
    // Five minutes are for clocks that differ, before and within.
    for (name, seconds, holds) in [("short", 600, 600), ("hour", 3600, 3600), ("long", 86_400, 7200)] {
        approved(&server, name, seconds).await;
        let signed = until(&server, name, is_signed).await;
        let pem = certificate(&signed);
        let found = lifetime(&der(std::str::from_utf8(&pem).expect("PEM")));
        assert!((holds..=holds + 300).contains(&found), "{name}: {found}");
    }
    let server = TestServer::start(&["--controllers=*,-certificatesigningrequest-signing-controller"]).await;
    approved(&server, "waits", 600).await;
    // Another controller approves; a later request that is approved automatically would be signed by now.
    for _ in 0..20 {
        let (_, waits) = admin(&server, &Call::get(format!("{REQUESTS}/waits"))).await;
        assert!(!is_signed(&waits), "{waits}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
