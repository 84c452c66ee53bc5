//! CertificateSigningRequests that parsers of PEM and of names disagree about, sent by an authorized user and
//! approved by one who sees their harmless part: the certificate is for the subject that admission saw, as
//! upstream's is, or none is signed.

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use http::{Method, StatusCode};
use plinth_benches::api::client::{Call, Connection, Identity, Protocol, JSON};
use plinth_tests::requests;
use plinth_tests::server::TestServer;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{json, Value};

pub(super) const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Requests of one key, each with what Go's `encoding/pem` and `crypto/x509` make of it
/// (`server/pki/src/testdata/judge.go`).
const JUDGED: &str = include_str!("../../../server/pki/src/testdata/judged.json");

const KEY: &[u8] = include_bytes!("../../../server/pki/src/testdata/judged-key.pem");

/// A certificate of the server's authority.
fn identity(server: &TestServer, name: &str, group: &str) -> Identity {
    let pki = server.data().join("pki");
    let read = |name: &str| std::fs::read_to_string(pki.join(name)).expect(name);
    let authority = KeyPair::from_pem(&read("ca.key")).expect("the authority's key");
    let issuer = rcgen::Issuer::from_ca_cert_pem(&read("ca.crt"), authority).expect("the authority");
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer).expect("a certificate").pem().into_bytes();
    Identity::Certificate { certificate, key: key.serialize_pem().into_bytes() }
}

async fn connect(server: &TestServer, identity: Identity) -> Connection {
    server.endpoint().with_identity(identity).connect(Protocol::Http1).await.expect("connection")
}

pub(super) async fn call(
    connection: &mut Connection,
    method: Method,
    path: &str,
    body: &Value,
) -> (StatusCode, Value) {
    let call = match method {
        Method::GET => Call::get(path),
        method => Call::new(method, path).body(JSON, body.to_string()),
    };
    let reply = connection.call(&call).await.expect("answer");
    (reply.status, serde_json::from_slice(&reply.body).unwrap_or_default())
}

async fn bind(admin: &mut Connection, role: &str, kind: &str, subject: &str) {
    let body = json!({
        "metadata": { "name": format!("e2e:{subject}") },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": subject }],
    });
    let (status, body) = call(admin, Method::POST, BINDINGS, &body).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
}

/// The certificate that comes of a request; `None` when it is marked as failed.
pub(super) async fn signed(admin: &mut Connection, name: &str) -> Option<Vec<u8>> {
    for _ in 0..1000 {
        let (_, request) = call(admin, Method::GET, &format!("{REQUESTS}/{name}"), &Value::Null).await;
        if let Some(text) = request["status"]["certificate"].as_str().filter(|text| !text.is_empty()) {
            return Some(STANDARD.decode(text).expect("base64"));
        }
        let conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|condition| condition["type"] == "Failed") {
            return None;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{name} is neither signed nor failed");
}

/// Whom a certificate authenticates: name, groups and UID.
async fn whoami(server: &TestServer, certificate: Vec<u8>) -> Option<Value> {
    let identity = Identity::Certificate { certificate, key: KEY.to_vec() };
    let (code, user) = plinth_tests::requests::whoami(server, identity).await;
    (code == 201).then_some(user)
}

/// Whether a certificate contains a text anywhere, in any character width, where another parser could find
/// it.
fn holds(certificate: &[u8], text: &str) -> bool {
    let pem = std::str::from_utf8(certificate).expect("PEM");
    let digits: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let der: Vec<u8> = STANDARD.decode(digits).expect("base64").into_iter().filter(|b| *b != 0).collect();
    der.windows(text.len()).any(|part| part == text.as_bytes())
}

#[tokio::test]
async fn what_is_signed_is_what_admission_saw() {
    let server = TestServer::start(&["--authorization-mode=Node,RBAC"]).await;
    let mut admin = server.connect(Protocol::Http1).await;
    // A user who may create requests, and a node, which may also approve its own.
    let role = json!({
        "metadata": { "name": "e2e:requester" },
        "rules": [{ "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create"] }],
    });
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    assert_eq!(call(&mut admin, Method::POST, roles, &role).await.0, StatusCode::CREATED);
    bind(&mut admin, "e2e:requester", "User", "requester").await;
    bind(
        &mut admin,
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        "Group",
        "system:nodes",
    )
    .await;
    let mut requester = connect(&server, identity(&server, "requester", "dev")).await;
    let mut node = connect(&server, identity(&server, "system:node:n1", "system:nodes")).await;
    let (mut refused, mut issued) = (0, 0);
    for (i, line) in JUDGED.lines().enumerate() {
        let row: Value = serde_json::from_str(line).expect("a row");
        let (case, upstream) = (row["name"].as_str().expect("a name"), &row["outcome"]);
        let is_nodes = case.starts_with("node: ");
        let (sender, signer, usages) = match is_nodes {
            true => (
                &mut node,
                "kubernetes.io/kube-apiserver-client-kubelet",
                json!(["client auth", "digital signature"]),
            ),
            false => (&mut requester, "kubernetes.io/kube-apiserver-client", json!(["client auth"])),
        };
        let name = format!("case-{i}");
        let request = json!({
            "metadata": { "name": name },
            "spec": { "request": row["text"], "signerName": signer, "usages": usages },
        });
        let (status, mut made) = call(sender, Method::POST, REQUESTS, &request).await;
        if status != StatusCode::CREATED {
            assert!(matches!(status.as_u16(), 403 | 422), "{case}: {made}");
            refused += 1;
            continue;
        }
        assert!(upstream.get("error").is_none(), "{case}: upstream refuses it: {upstream}");
        // The administrator approves it, unless a controller was faster.
        made["status"]["conditions"] =
            json!([{ "type": "Approved", "status": "True", "reason": "e2e", "message": "e2e" }]);
        let (status, body) =
            call(&mut admin, Method::PUT, &format!("{REQUESTS}/{name}/approval"), &made).await;
        assert!(status == StatusCode::OK || (is_nodes && status == StatusCode::CONFLICT), "{case}: {body}");
        let Some(certificate) = signed(&mut admin, &name).await else {
            refused += 1;
            continue;
        };
        issued += 1;
        assert!(!holds(&certificate, "system:masters"), "{case}");
        assert!(!holds(&certificate, "system:node:n2"), "{case}");
        let user = whoami(&server, certificate).await;
        if upstream["commonName"] == "" {
            assert_eq!(user, None, "{case}");
            continue;
        }
        let user = user.unwrap_or_else(|| panic!("{case}: nobody"));
        let mut groups = upstream["organizations"].as_array().expect("groups").clone();
        groups.push("system:authenticated".into());
        assert_eq!((&user["username"], &user["groups"]), (&upstream["commonName"], &groups.into()), "{case}");
        assert_eq!(user.get("uid"), None, "{case}");
        assert!(!is_nodes || user["username"] == "system:node:n1", "{case}: {user}");
    }
    assert_eq!((refused, issued), (81, 32), "of {}", JUDGED.lines().count());
}

/// Through the status a decision stays as it was made, also where a client leaves its times out; another one
/// is refused.
#[tokio::test]
async fn a_decision_that_is_sent_again_through_the_status_stays() {
    let server = plinth_tests::server::shared().await;
    let client = server.client().await;
    let key = KeyPair::generate().expect("a key");
    let request = CertificateParams::default().serialize_request(&key).expect("a request");
    let name = plinth_tests::server::unique("decided");
    let object = json!({
        "metadata": { "name": name },
        "spec": {
            "request": STANDARD.encode(request.pem().expect("PEM")),
            "signerName": "example.com/nobody",
            "usages": ["client auth"],
        },
    });
    let (code, answer) = requests::call(&client, Method::POST, REQUESTS, Some(&object)).await;
    assert_eq!(code, 201, "{answer}");
    let patch = async |part: &str, conditions: Value| {
        let body = json!({ "status": { "conditions": conditions } }).to_string();
        let path = format!("{REQUESTS}/{name}/{part}");
        requests::call_with(&client, Method::PATCH, &path, "application/merge-patch+json", body).await
    };
    let decision = |reason: &str| json!({ "type": "Approved", "status": "True", "reason": reason });
    let other_time = json!({
        "type": "Approved", "status": "True", "reason": "r",
        "lastUpdateTime": "2099-01-01T00:00:00Z", "lastTransitionTime": "2099-01-01T00:00:00Z",
    });
    let (code, decided) = patch("approval", json!([other_time])).await;
    assert_eq!(code, 200, "{decided}");
    for again in ["r", "another"] {
        let (code, kept) = patch("status", json!([decision(again)])).await;
        assert_eq!((code, &kept["status"]), (200, &decided["status"]), "{kept}");
    }
    let (code, changed) = patch("approval", json!([decision("r")])).await;
    let condition = &changed["status"]["conditions"][0];
    assert_eq!((code, &condition["lastTransitionTime"]), (200, &json!("2099-01-01T00:00:00Z")), "{changed}");
    assert_ne!(condition["lastUpdateTime"], "2099-01-01T00:00:00Z");
    let (code, refused) = patch("status", json!([decision("r"), decision("r")])).await;
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(code == 422 && message.contains("updates may not add a condition of type"), "{refused}");
}
