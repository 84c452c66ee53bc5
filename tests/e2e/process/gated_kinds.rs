//! Kinds that a feature gate switches on.

use http::Request;
use kube::client::Body;
use kube::Client;
use plinth_tests::requests::{answer, create, send, Answer};
use plinth_tests::server::{client_of, launch, start_ready};
use serde_json::{json, Value};

const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
const ALPHA_BUNDLES: &str = "/apis/certificates.k8s.io/v1alpha1/clustertrustbundles";
const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const EVERY_API: &str = "--runtime-config=api/all=true";
const NULL: &Value = &Value::Null;

fn authority() -> String {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.self_signed(&key).expect("an authority").pem()
}

fn bundle(version: &str, name: &str, signer: &str, certificates: &str) -> Value {
    json!({ "apiVersion": format!("certificates.k8s.io/{version}"), "kind": "ClusterTrustBundle",
        "metadata": { "name": name }, "spec": { "signerName": signer, "trustBundle": certificates } })
}

/// A request of the administrator in the name of another user.
async fn by(client: &Client, user: &str, group: &str, method: &str, path: &str, body: &Value) -> Answer {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string().into_bytes()) };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .header("impersonate-user", user)
        .header("impersonate-group", group);
    answer(client, request.body(body).expect("request")).await
}

#[tokio::test]
async fn kinds_are_served_while_their_gate_and_their_version_are_on() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    // Neither alone.
    for flags in [EVERY_API, "--feature-gates=ClusterTrustBundle=true,StorageVersionMigrator=true"] {
        let mut server = start_ready(&launch, dir.path(), &[flags]).await;
        let client = client_of(&server.kubeconfig()).await;
        for path in [BUNDLES, ALPHA_BUNDLES, MIGRATIONS] {
            assert_eq!(send(&client, "GET", path, NULL).await.code, 404, "{flags} {path}");
        }
        server.terminate().await.expect("end");
    }
    let gate = "--feature-gates=ClusterTrustBundle=true";
    let mut server = start_ready(&launch, dir.path(), &[EVERY_API, gate]).await;
    let client = client_of(&server.kubeconfig()).await;
    assert_eq!(send(&client, "GET", MIGRATIONS, NULL).await.code, 404);
    let made = create(&client, ALPHA_BUNDLES, &bundle("v1alpha1", "roots", "", &authority())).await;
    let read = send(&client, "GET", &format!("{BUNDLES}/roots"), NULL).await;
    assert_eq!(read.text_at("/apiVersion"), "certificates.k8s.io/v1beta1");
    assert_eq!(read.body["spec"], made["spec"]);
    let warned = send(&client, "GET", ALPHA_BUNDLES, NULL).await.warnings;
    assert!(warned.len() == 1 && warned[0].contains("deprecated in v1.34+"), "{warned:?}");
    server.terminate().await.expect("end");

    // Nothing is lost while it is off.
    let mut server = start_ready(&launch, dir.path(), &[EVERY_API]).await;
    let client = client_of(&server.kubeconfig()).await;
    assert_eq!(send(&client, "GET", &format!("{BUNDLES}/roots"), NULL).await.code, 404);
    server.terminate().await.expect("end");
    let mut server = start_ready(&launch, dir.path(), &[EVERY_API, gate]).await;
    let client = client_of(&server.kubeconfig()).await;
    assert_eq!(send(&client, "GET", &format!("{BUNDLES}/roots"), NULL).await.code, 200);
    server.terminate().await.expect("end");
}

/// Kubelets and service accounts read trust bundles, and who writes one of a signer attests for it.
#[tokio::test]
async fn trust_bundles_are_for_workloads_and_of_signers() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let flags = [EVERY_API, "--feature-gates=ClusterTrustBundle=true"];
    let mut server = start_ready(&launch, dir.path(), &flags).await;
    let client = client_of(&server.kubeconfig()).await;
    let authority = authority();
    for (name, signer, certificates, field) in [
        ("a:b", "", &*authority, "metadata.name"),
        ("roots", "example.com/s", &authority, "metadata.name"),
        ("nodomain:a", "nodomain", &authority, "spec.signerName"),
        ("roots", "", "", "spec.trustBundle"),
    ] {
        let bad = bundle("v1beta1", name, signer, certificates);
        let refused = send(&client, "POST", BUNDLES, &bad).await;
        assert_eq!((refused.code, refused.fields()), (422, vec![field]), "{}", refused.text);
    }

    let rule = |verbs: Value, resource: &str| json!({ "verbs": verbs, "apiGroups": ["certificates.k8s.io"], "resources": [resource] });
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "writer" }, "rules": [rule(json!(["create"]), "clustertrustbundles")] });
    create(&client, ROLES, &role).await;
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "writer" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writer" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane" }] });
    create(&client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    let of_signer = bundle("v1beta1", "example.com:s:roots", "example.com/s", &authority);
    let refused = by(&client, "jane", "dev", "POST", BUNDLES, &of_signer).await;
    assert_eq!(refused.code, 403, "{}", refused.text);
    let why = "user not permitted to attest for signerName \"example.com/s\"";
    assert!(refused.text_at("/message").ends_with(why), "{}", refused.text);
    let own = bundle("v1beta1", "roots", "", &authority);
    assert_eq!(by(&client, "jane", "dev", "POST", BUNDLES, &own).await.code, 201);
    let rules = json!([rule(json!(["create"]), "clustertrustbundles"), rule(json!(["attest"]), "signers")]);
    let wider = json!({ "rules": rules });
    assert_eq!(send(&client, "MERGE", &format!("{ROLES}/writer"), &wider).await.code, 200);
    assert_eq!(by(&client, "jane", "dev", "POST", BUNDLES, &of_signer).await.code, 201);

    let of_accounts = "system:serviceaccounts";
    for (user, group, code) in [
        ("system:serviceaccount:default:default", of_accounts, 200),
        ("system:node:n1", "system:nodes", 200),
        ("jane", "dev", 403),
    ] {
        assert_eq!(by(&client, user, group, "GET", BUNDLES, NULL).await.code, code, "{user}");
    }
    let selected = format!("{BUNDLES}?fieldSelector=spec.signerName%3Dexample.com%2Fs");
    let selected = send(&client, "GET", &selected, NULL).await;
    assert_eq!(selected.body["items"].as_array().map(Vec::len), Some(1), "{}", selected.text);
    server.terminate().await.expect("end");
}

/// The controller writes the status; what is to be migrated does not change.
#[tokio::test]
async fn migrations_keep_their_resource_and_their_result() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let flags = ["--runtime-config=api/beta=true", "--feature-gates=StorageVersionMigrator=true"];
    let mut server = start_ready(&launch, dir.path(), &flags).await;
    let client = client_of(&server.kubeconfig()).await;
    let role = format!("{ROLES}/system:controller:storage-version-migrator-controller");
    assert_eq!(send(&client, "GET", &role, NULL).await.code, 200);
    let migration = json!({ "apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
        "metadata": { "name": "m" }, "spec": { "resource": { "group": "apps", "resource": "deployments" } },
        "status": { "resourceVersion": "1" } });
    let made = create(&client, MIGRATIONS, &migration).await;
    assert_eq!(made["status"], json!({}));
    let path = format!("{MIGRATIONS}/m");
    let other = json!({ "spec": { "resource": { "group": "batch" } } });
    let refused = send(&client, "MERGE", &path, &other).await;
    assert_eq!((refused.code, refused.fields()), (422, vec!["spec"]));
    let status = |version: &str, kind: &str| {
        json!({ "status": { "resourceVersion": version, "conditions": [{ "type": kind, "status": "True",
            "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }] } })
    };
    let path = format!("{path}/status");
    for (status, code) in [
        (status("012", "Running"), 422),
        (status("12", "Running"), 200),
        (status("13", "Running"), 422),
        (status("12", "Succeeded"), 200),
        (status("12", "Failed"), 422),
    ] {
        let answer = send(&client, "MERGE", &path, &status).await;
        assert_eq!(answer.code, code, "{status} {}", answer.text);
    }
    server.terminate().await.expect("end");
}
