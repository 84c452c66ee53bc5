//! Requests for certificates of pods: who makes them, who signs them, and the volumes that need them.

use std::time::Duration;

use http::Request;
use kube::client::Body;
use kube::Client;
use plinth_codec::base64_text;
use plinth_codec::time::Timestamp;
use plinth_tests::requests::{answer, create, send, Answer};
use plinth_tests::server::{client_of, launch, start_ready};
use serde_json::{json, Value};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";
const PODS: &str = "/api/v1/namespaces/default/pods";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const FLAGS: [&str; 2] = ["--runtime-config=api/beta=true", "--feature-gates=PodCertificateRequest=true"];
const NODES: &str = "system:nodes";
const NULL: &Value = &Value::Null;

/// A request of the administrator in the name of another user.
async fn by(client: &Client, user: &str, group: &str, method: &str, path: &str, body: &Value) -> Answer {
    let media_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string().into_bytes()) };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media_type)
        .header("impersonate-user", user)
        .header("impersonate-group", group);
    answer(client, request.body(body).expect("request")).await
}

fn pod() -> Value {
    let certificate = json!({ "signerName": "example.com/s", "keyType": "ED25519",
        "credentialBundlePath": "bundle.pem" });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }],
            "volumes": [{ "name": "v", "projected": { "sources": [{ "podCertificate": certificate }] } }] } })
}

/// Node `n1` with the pod `web`, and the request of the node for a certificate of the pod.
async fn world(client: &Client) -> (Value, rcgen::KeyPair) {
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
    send(client, "POST", "/api/v1/namespaces/default/serviceaccounts", &account).await;
    let account = send(client, "GET", "/api/v1/namespaces/default/serviceaccounts/default", NULL).await.body;
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" } });
    let node = create(client, "/api/v1/nodes", &node).await;
    let pod = create(client, PODS, &pod()).await;
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let stub = rcgen::CertificateParams::default().serialize_request(&key).expect("a request");
    let uid = |object: &Value| object["metadata"]["uid"].clone();
    let request = json!({ "apiVersion": "certificates.k8s.io/v1beta1", "kind": "PodCertificateRequest",
        "metadata": { "name": "r" },
        "spec": { "signerName": "example.com/s", "podName": "web", "podUID": uid(&pod),
            "serviceAccountName": "default", "serviceAccountUID": uid(&account), "nodeName": "n1",
            "nodeUID": uid(&node), "stubPKCS10Request": base64_text::encode(stub.der()) } });
    (request, key)
}

fn with(request: &Value, field: &str, value: Value) -> Value {
    let mut request = request.clone();
    request["spec"][field] = value;
    request
}

#[tokio::test]
async fn nodes_request_certificates_of_their_pods() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let mut server = start_ready(&launch, dir.path(), &FLAGS).await;
    let client = client_of(&server.kubeconfig()).await;
    let (request, _) = world(&client).await;
    let node = async |name: &str, request: &Value| {
        by(&client, &format!("system:node:{name}"), NODES, "POST", REQUESTS, request).await
    };
    for (name, request, code, why) in [
        ("n2", request.clone(), 403, "which is not the requesting node \"n2\""),
        ("n1", with(&request, "podUID", json!("u")), 500, "differs from running pod"),
        (
            "n1",
            with(&request, "serviceAccountName", json!("other")),
            403,
            "differs from running pod (\"default\")",
        ),
        ("n1", with(&request, "podName", json!("")), 500, "named in the PodCertificateRequest"),
        ("n1", with(&request, "stubPKCS10Request", json!("")), 422, "exactly one of (stubPKCS10Request) or"),
        ("n1", with(&request, "maxExpirationSeconds", json!(1)), 422, "must be in the range [3600, 7862400]"),
    ] {
        let refused = node(name, &request).await;
        assert!(refused.code == code && refused.text.contains(&why.replace('"', "\\\"")), "{}", refused.text);
    }
    let made = node("n1", &request).await;
    assert_eq!(
        (made.code, &made.body["spec"]["maxExpirationSeconds"]),
        (201, &json!(86400)),
        "{}",
        made.text
    );
    assert_eq!(made.body["status"], json!({}));

    let path = format!("{REQUESTS}/r");
    let selected = format!("{REQUESTS}?fieldSelector=spec.nodeName%3Dn1");
    for (user, path, code) in
        [("n1", &path, 200), ("n2", &path, 403), ("n1", &selected, 200), ("n1", &REQUESTS.to_owned(), 403)]
    {
        let user = format!("system:node:{user}");
        assert_eq!(by(&client, &user, NODES, "GET", path, NULL).await.code, code, "{user} {path}");
    }
    let delete = by(&client, "system:node:n1", NODES, "DELETE", &path, NULL).await;
    assert!(delete.code == 403 && delete.text.contains("nodes may not delete"), "{}", delete.text);
    for (selector, found) in [("spec.podName%3Dweb", 1), ("spec.signerName%3Dother.example%2Fs", 0)] {
        let list = send(&client, "GET", &format!("{REQUESTS}?fieldSelector={selector}"), NULL).await;
        assert_eq!(list.body["items"].as_array().map(Vec::len), Some(found), "{selector} {}", list.text);
    }
    let role = format!("{RBAC}/clusterroles/system:controller:podcertificaterequestcleaner");
    assert_eq!(send(&client, "GET", &role, NULL).await.code, 200);
    let refused = send(&client, "MERGE", &path, &json!({ "spec": { "podName": "other" } })).await;
    assert_eq!((refused.code, refused.fields()), (422, vec!["spec"]), "{}", refused.text);
    server.terminate().await.expect("end");
}

/// The status of a certificate for that key that is valid for a day.
fn issued(key: &rcgen::KeyPair) -> Value {
    const DAY: i64 = 24 * 60 * 60;
    let begin = Timestamp::now().seconds;
    let at = |seconds: i64| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds.unsigned_abs());
    let mut params = rcgen::CertificateParams::default();
    (params.not_before, params.not_after) = (at(begin), at(begin + DAY));
    let time = |seconds| Timestamp { seconds, nanos: 0 }.to_rfc3339().to_string();
    json!({ "status": {
        "conditions": [{ "type": "Issued", "status": "True", "reason": "Issued", "message": "",
            "lastTransitionTime": time(begin) }],
        "certificateChain": params.self_signed(key).expect("a certificate").pem(),
        "notBefore": time(begin), "beginRefreshAt": time(begin + DAY / 2), "notAfter": time(begin + DAY) } })
}

#[tokio::test]
async fn signers_end_requests_once() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let mut server = start_ready(&launch, dir.path(), &FLAGS).await;
    let client = client_of(&server.kubeconfig()).await;
    let (request, key) = world(&client).await;
    create(&client, REQUESTS, &request).await;
    let rule = |verbs: Value, resource: &str| json!({ "verbs": verbs, "apiGroups": ["certificates.k8s.io"], "resources": [resource] });
    let rules = json!([rule(json!(["patch"]), "podcertificaterequests/status")]);
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "signer" }, "rules": rules });
    create(&client, &format!("{RBAC}/clusterroles"), &role).await;
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "signer" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "signer" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane" }] });
    create(&client, &format!("{RBAC}/clusterrolebindings"), &binding).await;

    let path = format!("{REQUESTS}/r/status");
    let jane = async |status: &Value| by(&client, "jane", "dev", "PATCH", &path, status).await;
    let status = issued(&key);
    let refused = jane(&status).await;
    assert_eq!((refused.code, refused.fields()), (422, vec!["spec.signerName"]), "{}", refused.text);
    let why = "User \"jane\" is not permitted to \"sign\" for signer \"example.com/s\"";
    assert!(refused.text_at("/message").contains(why), "{}", refused.text);
    let wider = json!({ "rules": [rules[0], rule(json!(["sign"]), "signers")] });
    assert_eq!(send(&client, "MERGE", &format!("{RBAC}/clusterroles/signer"), &wider).await.code, 200);
    let other = issued(&rcgen::KeyPair::generate().expect("a key"));
    let refused = jane(&other).await;
    assert_eq!((refused.code, refused.fields()), (422, vec!["status.certificateChain"]), "{}", refused.text);
    assert_eq!(jane(&status).await.code, 200);
    let denied = json!({ "status": { "conditions": [{ "type": "Denied", "status": "True", "reason": "R",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
    let refused = jane(&denied).await;
    assert_eq!((refused.code, refused.fields()), (422, vec!["status"]), "{}", refused.text);

    let table = Request::get(REQUESTS).header("accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
    let table = answer(&client, table.body(Body::empty()).expect("request")).await.body;
    let cells = json!(["r", "web", "default", "n1", "example.com/s", "Issued", "<none>"]);
    assert_eq!(table["rows"][0]["cells"], cells);
    server.terminate().await.expect("end");
}

/// The source of volumes is kept with the gate, and validated; without it, it is dropped unless it is stored.
#[tokio::test]
async fn volumes_need_the_gate() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let sources = |pod: &Value| pod["spec"]["volumes"][0]["projected"]["sources"].clone();
    let mut server = start_ready(&launch, dir.path(), &FLAGS).await;
    let client = client_of(&server.kubeconfig()).await;
    let kept = create(&client, PODS, &pod()).await;
    assert_eq!(sources(&kept), sources(&pod()));
    let mut bad = pod();
    bad["metadata"]["name"] = json!("bad");
    bad["spec"]["volumes"][0]["projected"]["sources"][0]["podCertificate"] =
        json!({ "signerName": "s", "keyType": "RSA", "maxExpirationSeconds": 1 });
    let refused = send(&client, "POST", PODS, &bad).await;
    let fields = ["signerName", "keyType", "maxExpirationSeconds", ""];
    let expected = fields.map(|field| {
        let source = "spec.volumes[0].projected.sources[0].podCertificate";
        if field.is_empty() {
            source.to_owned()
        } else {
            format!("{source}.{field}")
        }
    });
    assert_eq!((refused.code, refused.fields()), (422, expected.each_ref().map(String::as_str).to_vec()));
    server.terminate().await.expect("end");

    let mut server = start_ready(&launch, dir.path(), &["--runtime-config=api/beta=true"]).await;
    let client = client_of(&server.kubeconfig()).await;
    assert_eq!(send(&client, "GET", REQUESTS, NULL).await.code, 404);
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    let changed = send(&client, "MERGE", &format!("{PODS}/web"), &labels).await;
    assert_eq!((changed.code, sources(&changed.body)), (200, sources(&pod())), "{}", changed.text);
    let mut other = pod();
    other["metadata"]["name"] = json!("other");
    assert_eq!(sources(&create(&client, PODS, &other).await), json!([{}]));
    server.terminate().await.expect("end");
}
