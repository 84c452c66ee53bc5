//! Credentials towards admission webhooks: a kubeconfig in the configuration of their plugins.

use std::path::Path;
use std::sync::Arc;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::{Request, Response};
use parking_lot::Mutex;
use plinth_tests::eventually;
use plinth_tests::https::{ClientName, HttpsOptions, HttpsServer};
use plinth_tests::requests::create;
use plinth_tests::server::TestServer;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use serde_json::{json, Value};

use super::reviewed;

/// Who has called: path, name in the certificate, the header.
type Calls = Arc<Mutex<Vec<(String, Option<String>, String)>>>;

/// Writes a client's certificate and key to a directory; returns the authority.
fn client_certificate(dir: &Path) -> String {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().expect("key");
    let authority = ca.clone().self_signed(&ca_key).expect("authority").pem();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "api-server");
    let key = KeyPair::generate().expect("key");
    let certificate = params.signed_by(&key, &Issuer::new(ca, ca_key)).expect("certificate");
    std::fs::write(dir.join("client.crt"), certificate.pem()).expect("certificate");
    std::fs::write(dir.join("client.key"), key.serialize_pem()).expect("key");
    authority
}

/// Allows everything and notes who has called.
async fn note(calls: Calls, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let name = request.extensions().get::<ClientName>().cloned().unwrap_or_default().0;
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let call = (request.uri().path().to_owned(), name, header.unwrap_or_default().to_owned());
    calls.lock().push(call);
    let body = request.into_body().collect().await.expect("body").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("a review");
    reviewed(&json!({"uid": review["request"]["uid"], "allowed": true}))
}

fn configuration(dir: &Path) -> String {
    let plugin = |name: &str, kubeconfig: &str| {
        json!({"name": name, "configuration": {"apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": dir.join(kubeconfig)}})
    };
    let plugins =
        [plugin("MutatingAdmissionWebhook", "mutating"), plugin("ValidatingAdmissionWebhook", "validating")];
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins})
        .to_string()
}

#[tokio::test]
async fn webhooks_get_the_credentials_for_their_hosts() {
    let dir = tempfile::tempdir().expect("directory");
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("a file");
    let authority = client_certificate(dir.path());
    let calls = Calls::default();
    let noted = calls.clone();
    let options = HttpsOptions { client_authority: Some(authority), ..HttpsOptions::default() };
    let hook = HttpsServer::start_as(options, move |request| note(noted.clone(), request)).await;
    let host = format!("localhost:{}", hook.port);
    let certificate = json!({"client-certificate": "client.crt", "client-key": "client.key"});
    let users = json!([{"name": host, "user": certificate}, {"name": "*", "user": {"token": "other"}}]);
    write("mutating", &json!({"kind": "Config", "users": users}).to_string());
    write("validating", r#"{"users": [{"name": "*", "user": {"tokenFile": "token"}}]}"#);
    write("token", "first\n");
    write("admission.yaml", &configuration(dir.path()));
    let flag = format!("--admission-control-config-file={}", dir.path().join("admission.yaml").display());
    let server = TestServer::start(&[&flag]).await;
    let client = server.client().await;
    let webhook = |path: &str| {
        json!({"webhooks": [{
            "name": "webhook.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": format!("https://{host}/{path}"), "caBundle": BASE64_STANDARD.encode(&hook.certificate)},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        }], "metadata": {"name": path}})
    };
    for plural in ["mutating", "validating"] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}webhookconfigurations");
        create(&client, &path, &webhook(plural)).await;
    }
    let object = json!({"metadata": {"generateName": "m"}});
    let called = async || {
        create(&client, "/api/v1/namespaces/default/configmaps", &object).await;
        std::mem::take(&mut *calls.lock())
    };
    let by = |token: &str| {
        [
            ("/mutating".to_owned(), Some("api-server".to_owned()), String::new()),
            ("/validating".to_owned(), None, format!("Bearer {token}")),
        ]
    };
    assert_eq!(called().await, by("first"));
    write("token", "second, which is longer\n");
    eventually("the renewed token is sent", || async { called().await == by("second, which is longer") })
        .await;
    // A file that the kubeconfig names since it was changed, and that is written later and renewed.
    write("validating", r#"{"users": [{"name": "*", "user": {"tokenFile": "other"}}]}"#);
    for token in ["third", "fourth, which is longer"] {
        write("other", token);
        eventually("the other token is sent", || async { called().await == by(token) }).await;
    }
}
