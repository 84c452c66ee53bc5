//! A node joins by a bootstrap token, as kubeadm and kubelets do it, each step with the credentials that it
//! has by then: cluster-info without any, a request for a certificate by the token, the node's own objects by
//! the certificate, a renewed one by itself.

use http::{Method, StatusCode};
use plinth_benches::api::client::{Connection, Identity, Protocol};
use plinth_tests::requests;
use plinth_tests::server::TestServer;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{json, Value};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::certificate_requests::{call, signed, REQUESTS};
use super::{claims, until_refused, whoami};

const TOKEN: &str = "abcdef.0123456789abcdef";
const BOOTSTRAPPERS: &str = "system:bootstrappers:kubeadm:default-node-token";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// A server with a bootstrap token and the roles that kubeadm's phase bootstrap-token grants.
async fn cluster() -> (TestServer, Connection) {
    let server = TestServer::start(&[
        "--enable-bootstrap-token-auth",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
    ])
    .await;
    let mut admin = server.connect(Protocol::Http1).await;
    let secret = json!({
        "metadata": { "name": "bootstrap-token-abcdef" },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": "abcdef", "token-secret": "0123456789abcdef", "expiration": "2099-01-01T00:00:00Z",
            "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
            "auth-extra-groups": BOOTSTRAPPERS,
        },
    });
    must(&mut admin, SECRETS, &secret).await;
    let requests = "system:certificates.k8s.io:certificatesigningrequests";
    for (name, role, group) in [
        ("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", BOOTSTRAPPERS),
        ("kubeadm:node-autoapprove-bootstrap", &format!("{requests}:nodeclient"), BOOTSTRAPPERS),
        (
            "kubeadm:node-autoapprove-certificate-rotation",
            &format!("{requests}:selfnodeclient"),
            "system:nodes",
        ),
    ] {
        let binding = json!({
            "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group }],
        });
        must(&mut admin, &format!("{RBAC}/clusterrolebindings"), &binding).await;
    }
    (server, admin)
}

/// A creation that succeeds.
async fn must(connection: &mut Connection, path: &str, object: &Value) -> Value {
    let (status, body) = call(connection, Method::POST, path, object).await;
    assert_eq!(status, StatusCode::CREATED, "{path}: {body}");
    body
}

/// A creation that is refused: the end of the message.
async fn refused(connection: &mut Connection, path: &str, object: &Value, why: &str) {
    let (status, body) = call(connection, Method::POST, path, object).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{path}: {body}");
    assert!(body["message"].as_str().unwrap_or_default().ends_with(why), "{body}");
}

async fn connect(server: &TestServer, identity: Identity) -> Connection {
    server.endpoint().with_identity(identity).connect(Protocol::Http1).await.expect("connection")
}

/// A CertificateSigningRequest of a node.
fn request(name: &str, node: &str, key: &KeyPair, signer: &str, names: Vec<SanType>) -> Value {
    use base64::Engine as _;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    params.subject_alt_names = names;
    let text = params.serialize_request(key).and_then(|request| request.pem()).expect("a request");
    let usage = if signer == SERVING { "server auth" } else { "client auth" };
    json!({
        "metadata": { "name": name },
        "spec": {
            "request": base64::engine::general_purpose::STANDARD.encode(text), "signerName": signer,
            "usages": ["digital signature", usage],
        },
    })
}

fn identity(certificate: Vec<u8>, key: &KeyPair) -> Identity {
    Identity::Certificate { certificate, key: key.serialize_pem().into_bytes() }
}

/// The node's credentials, by the token; nobody approves by hand.
async fn join(server: &TestServer, admin: &mut Connection, node: &str) -> (KeyPair, Identity) {
    let mut bootstrapper = connect(server, Identity::Token(TOKEN.to_owned())).await;
    let key = KeyPair::generate().expect("a key");
    let name = format!("csr-{node}");
    let made = must(&mut bootstrapper, REQUESTS, &request(&name, node, &key, CLIENT, Vec::new())).await;
    assert_eq!(made["spec"]["username"], "system:bootstrap:abcdef");
    // Empty, and there, as upstream's.
    assert_eq!(made["status"], json!({}), "{made}");
    assert!(
        made["spec"]["groups"].as_array().is_some_and(|all| all.contains(&json!(BOOTSTRAPPERS))),
        "{made}"
    );
    // Whoever requested it waits for it.
    let certificate = signed(&mut bootstrapper, &name).await.expect("a certificate");
    let (_, request) = call(admin, Method::GET, &format!("{REQUESTS}/{name}"), &Value::Null).await;
    let condition = &request["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("Approved"), &json!("AutoApproved")));
    let identity = identity(certificate, &key);
    let (code, user) = requests::whoami(server, identity.clone()).await;
    assert_eq!((code, &user["username"]), (201, &json!(format!("system:node:{node}"))));
    assert_eq!(user["groups"], json!(["system:nodes", "system:authenticated"]));
    (key, identity)
}

#[tokio::test]
async fn cluster_info_is_read_without_credentials_and_a_token_is_good_for_requests_alone() {
    let (server, mut admin) = cluster().await;
    let maps = "/api/v1/namespaces/kube-public/configmaps";
    let info = json!({ "metadata": { "name": "cluster-info" }, "data": { "kubeconfig": "x", "jws-kubeconfig-abcdef": "y" } });
    must(&mut admin, maps, &info).await;
    must(&mut admin, maps, &json!({ "metadata": { "name": "other" } })).await;
    let role = json!({
        "metadata": { "name": "kubeadm:bootstrap-signer-clusterinfo" },
        "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["cluster-info"], "verbs": ["get"] }],
    });
    let roles = format!("{RBAC}/namespaces/kube-public/roles");
    must(&mut admin, &roles, &role).await;
    let binding = json!({
        "metadata": { "name": "kubeadm:bootstrap-signer-clusterinfo" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "kubeadm:bootstrap-signer-clusterinfo" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous" }],
    });
    must(&mut admin, &format!("{RBAC}/namespaces/kube-public/rolebindings"), &binding).await;
    let mut anybody = connect(&server, Identity::Anonymous).await;
    let (status, read) = call(&mut anybody, Method::GET, &format!("{maps}/cluster-info"), &Value::Null).await;
    assert_eq!((status, &read["data"]), (StatusCode::OK, &info["data"]), "{read}");
    for path in [&format!("{maps}/other"), maps, SECRETS] {
        assert_eq!(
            call(&mut anybody, Method::GET, path, &Value::Null).await.0,
            StatusCode::FORBIDDEN,
            "{path}"
        );
    }

    let mut bootstrapper = connect(&server, Identity::Token(TOKEN.to_owned())).await;
    for path in ["/api/v1/nodes", PODS, SECRETS] {
        let (status, answer) = call(&mut bootstrapper, Method::GET, path, &Value::Null).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}: {answer}");
    }
    let key = KeyPair::generate().expect("a key");
    // Another signer's request stays undecided; the token's user may not approve.
    let serving =
        request("serving", "n1", &key, SERVING, vec![SanType::DnsName("n1".try_into().expect("name"))]);
    let mut made = must(&mut bootstrapper, REQUESTS, &serving).await;
    made["status"]["conditions"] = json!([{ "type": "Approved", "status": "True", "reason": "e2e" }]);
    let path = format!("{REQUESTS}/serving/approval");
    let (status, answer) = call(&mut bootstrapper, Method::PUT, &path, &made).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
    // A token ends with its Secret.
    assert_eq!(whoami(&server, TOKEN).await.0, StatusCode::CREATED);
    let path = format!("{SECRETS}/bootstrap-token-abcdef");
    assert_eq!(call(&mut admin, Method::DELETE, &path, &json!({})).await.0, StatusCode::OK);
    until_refused(&server, TOKEN).await;
}

#[tokio::test]
async fn a_node_joins_by_a_token_registers_and_renews_its_certificates() {
    let (server, mut admin) = cluster().await;
    let (_, first) = join(&server, &mut admin, "n1").await;
    join(&server, &mut admin, "n2").await;
    let mut node = connect(&server, first).await;

    let object = json!({ "metadata": { "name": "n1", "labels": { "kubernetes.io/hostname": "n1" } } });
    must(&mut node, "/api/v1/nodes", &object).await;
    let lease = |name: &str| json!({ "metadata": { "name": name }, "spec": { "holderIdentity": name, "leaseDurationSeconds": 40 } });
    let mut held = must(&mut node, LEASES, &lease("n1")).await;
    held["spec"]["renewTime"] = json!("2026-01-01T00:00:00.000000Z");
    assert_eq!(call(&mut node, Method::PUT, &format!("{LEASES}/n1"), &held).await.0, StatusCode::OK);
    let why = "can only access node lease with the same name as the requesting node";
    refused(&mut node, LEASES, &lease("n2"), why).await;

    // Its next certificate, which it approves itself by its role.
    let key = KeyPair::generate().expect("a key");
    let made = must(&mut node, REQUESTS, &request("renewal", "n1", &key, CLIENT, Vec::new())).await;
    assert_eq!(made["spec"]["username"], "system:node:n1");
    let renewed = signed(&mut node, "renewal").await.expect("a certificate");
    let (code, user) = requests::whoami(&server, identity(renewed.clone(), &key)).await;
    assert_eq!((code, &user["username"]), (201, &json!("system:node:n1")));
    let mut node = connect(&server, identity(renewed, &key)).await;
    // Not that of another node.
    let (status, answer) =
        call(&mut node, Method::POST, REQUESTS, &request("other", "n2", &key, CLIENT, Vec::new())).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");

    // A serving certificate is for an administrator to approve.
    let names = vec![
        SanType::DnsName("n1".try_into().expect("a name")),
        SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()),
    ];
    let mut made = must(&mut node, REQUESTS, &request("serving", "n1", &key, SERVING, names)).await;
    let path = format!("{REQUESTS}/serving");
    // By now an approver of the client certificates above has seen it.
    let (_, seen) = call(&mut admin, Method::GET, &path, &Value::Null).await;
    assert_eq!(seen.get("status").filter(|status| status["conditions"].is_array()), None, "{seen}");
    made["status"]["conditions"] =
        json!([{ "type": "Approved", "status": "True", "reason": "e2e", "message": "e2e" }]);
    let (status, body) = call(&mut admin, Method::PUT, &format!("{path}/approval"), &made).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let pem = signed(&mut node, "serving").await.expect("a certificate");
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).expect("PEM");
    let (_, certificate) = X509Certificate::from_der(&pem.contents).expect("a certificate");
    assert_eq!(certificate.subject().to_string(), "O=system:nodes, CN=system:node:n1");
    let usages = certificate.extended_key_usage().expect("usages").expect("an extension").value;
    assert!(usages.server_auth && !usages.client_auth, "{usages:?}");
    let names = certificate.subject_alternative_name().expect("names").expect("an extension").value;
    assert_eq!(names.general_names.len(), 2, "{names:?}");
}

#[tokio::test]
async fn a_joined_node_mirrors_static_pods_and_requests_its_pods_tokens() {
    let (server, mut admin) = cluster().await;
    let (_, first) = join(&server, &mut admin, "n1").await;
    let (_, second) = join(&server, &mut admin, "n2").await;
    let (mut node, mut other) = (connect(&server, first).await, connect(&server, second).await);
    let object = |name: &str| json!({ "metadata": { "name": name } });
    let uid = must(&mut node, "/api/v1/nodes", &object("n1")).await["metadata"]["uid"].clone();
    must(&mut other, "/api/v1/nodes", &object("n2")).await;

    let mirror = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut pod = json!({
            "metadata": {
                "name": name,
                "annotations": { "kubernetes.io/config.mirror": "hash", "kubernetes.io/config.source": "file" },
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true }],
            },
            "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] },
        });
        change(&mut pod);
        pod
    };
    let made = must(&mut node, PODS, &mirror("static-n1", &|_| ())).await;
    assert_eq!(made["spec"]["serviceAccountName"], Value::Null, "a mirror has no account: {made}");
    // change, end of the message
    let rows: [(&dyn Fn(&mut Value), &str); 6] = [
        (
            &|pod| pod["spec"]["nodeName"] = json!("n2"),
            "node \"n1\" can only create pods with spec.nodeName set to itself",
        ),
        (
            &|pod| pod["metadata"]["ownerReferences"] = json!([]),
            "node \"n1\" can only create pods with an owner reference set to itself",
        ),
        (
            &|pod| pod["metadata"]["ownerReferences"][0]["uid"] = json!("other"),
            &format!("node n1 UID mismatch: expected other got {}", uid.as_str().expect("uid")),
        ),
        (
            &|pod| pod["spec"]["volumes"] = json!([{ "name": "v", "configMap": { "name": "m" } }]),
            "node \"n1\" can not create pods that reference configmaps",
        ),
        (
            &|pod| pod["spec"]["volumes"] = json!([{ "name": "v", "secret": { "secretName": "s" } }]),
            "a mirror pod may not reference secrets",
        ),
        (
            &|pod| pod["spec"]["serviceAccountName"] = json!("default"),
            "a mirror pod may not reference service accounts",
        ),
    ];
    for (change, why) in rows {
        refused(&mut node, PODS, &mirror("refused", change), why).await;
    }
    // Its status is the node's, and so is its end.
    let status = json!({ "metadata": { "name": "static-n1" }, "spec": made["spec"], "status": { "phase": "Running" } });
    let path = format!("{PODS}/static-n1");
    assert_eq!(call(&mut node, Method::PUT, &format!("{path}/status"), &status).await.0, StatusCode::OK);
    assert_eq!(
        call(&mut other, Method::PUT, &format!("{path}/status"), &status).await.0,
        StatusCode::FORBIDDEN
    );
    assert_eq!(call(&mut other, Method::DELETE, &path, &json!({})).await.0, StatusCode::FORBIDDEN);
    let now = json!({ "gracePeriodSeconds": 0 });
    assert_eq!(call(&mut node, Method::DELETE, &path, &now).await.0, StatusCode::OK);

    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    must(&mut admin, accounts, &json!({ "metadata": { "name": "runner" } })).await;
    let pod = json!({
        "metadata": { "name": "web" },
        "spec": {
            "nodeName": "n1", "serviceAccountName": "runner",
            "containers": [{ "name": "c", "image": "i" }],
            "volumes": [{ "name": "v", "projected": { "sources": [{ "serviceAccountToken": { "path": "t", "audience": "vault" } }] } }],
        },
    });
    let pod_uid = must(&mut admin, PODS, &pod).await["metadata"]["uid"].clone();
    let tokens = format!("{accounts}/runner/token");
    let asked = |bound: Value, audiences: Value| json!({ "spec": { "audiences": audiences, "boundObjectRef": bound } });
    let bound = json!({ "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": pod_uid });
    // Of what a pod mounts: the server's own audience, and that of its volume.
    let answer = must(&mut node, &tokens, &asked(bound.clone(), json!(["vault"]))).await;
    let vault = claims(answer["status"]["token"].as_str().expect("a token"));
    assert_eq!(vault["aud"], json!(["vault"]));
    let answer = must(&mut node, &tokens, &asked(bound.clone(), json!([]))).await;
    let token = answer["status"]["token"].as_str().expect("a token");
    let claims = claims(token);
    assert_eq!(claims["kubernetes.io"]["pod"], json!({ "name": "web", "uid": pod_uid }));
    assert_eq!(claims["kubernetes.io"]["node"], json!({ "name": "n1", "uid": uid }));
    let (status, user) = whoami(&server, token).await;
    assert_eq!(
        (status, &user["username"]),
        (StatusCode::CREATED, &json!("system:serviceaccount:default:runner"))
    );
    assert_eq!(user["extra"]["authentication.kubernetes.io/node-name"], json!(["n1"]));
    refused(&mut node, &tokens, &asked(Value::Null, json!([])), "node requested token not bound to a pod")
        .await;
    let why = "node requested token for a pod scheduled on a different node";
    let (status, answer) = call(&mut other, Method::POST, &tokens, &asked(bound.clone(), json!([]))).await;
    // The authorizer has no relationship for it, so admission is not even asked.
    assert_eq!(status, StatusCode::FORBIDDEN, "{why}: {answer}");
    let (status, answer) = call(&mut node, Method::POST, &tokens, &asked(bound, json!(["another"]))).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .unwrap_or_default()
            .contains("audience \"another\" not found in pod spec volume"),
        "{answer}"
    );
    assert_eq!(call(&mut node, Method::DELETE, &format!("{PODS}/web"), &now).await.0, StatusCode::OK);
    until_refused(&server, token).await;
}
