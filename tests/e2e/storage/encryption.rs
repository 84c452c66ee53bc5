//! Encryption at rest.

use std::path::Path;

use http::{Method, StatusCode};
use plinth_benches::api::client::{Call, Protocol, JSON};
use plinth_tests::requests::{get, until};
use plinth_tests::server::TestServer;
use serde_json::{json, Value};

const KEY_A: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
const KEY_B: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

fn encryption(path: &Path, keys: &[(&str, &str)], identity: bool) {
    let keys: Vec<String> =
        keys.iter().map(|(name, key)| format!("{{name: {name}, secret: {key}}}")).collect();
    let identity = if identity { ", {identity: {}}" } else { "" };
    let text = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  providers: [{{aesgcm: {{keys: [{}]}}}}{identity}]\n",
        keys.join(", ")
    );
    std::fs::write(path, text).expect("configuration");
}

/// A custom resource whose status has a default is stored without it when it is created: `status` of a create
/// is dropped, and defaults are those of what was sent.
#[tokio::test]
async fn a_custom_resource_that_lacks_a_default_is_read_again() {
    let dir = tempfile::tempdir().expect("directory");
    let config = dir.path().join("encryption.yaml");
    encryption(&config, &[("a", KEY_A)], false);
    let text = std::fs::read_to_string(&config).expect("configuration");
    std::fs::write(&config, text.replace("[secrets]", "[widgets.example.com]")).expect("configuration");
    let mut server =
        TestServer::start(&[&format!("--encryption-provider-config={}", config.display())]).await;
    let mut admin = server.connect(Protocol::Http2).await;
    let status =
        json!({"type": "object", "default": {"phase": "New"}, "properties": {"phase": {"type": "string"}}});
    let properties =
        json!({"spec": {"type": "object", "properties": {"a": {"type": "string"}}}, "status": status});
    let version = json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}});
    let definition = json!({"metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"}}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    admin
        .must(&Call::new(Method::POST, definitions).body(JSON, definition.to_string()))
        .await
        .expect("definition");
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"a": "b"}});
    let create = Call::new(Method::POST, widgets).body(JSON, widget.to_string());
    until(&mut admin, widgets, |status, _| status == StatusCode::OK).await;
    admin.must(&create).await.expect("widget");
    for round in ["", "after a restart"] {
        let mut admin = server.connect(Protocol::Http2).await;
        assert_eq!(get(&mut admin, &format!("{widgets}/w")).await["status"]["phase"], "New", "{round}");
        let patch = Call::new(Method::PATCH, format!("{widgets}/w"))
            .body("application/merge-patch+json", r#"{"spec":{"a":"c"}}"#);
        admin.must(&patch).await.expect("patch");
        assert_eq!(get(&mut admin, widgets).await["items"][0]["spec"]["a"], "c", "{round}");
        server.terminate().await;
        server.restart().await;
    }
}

/// Whether any file below a directory contains these bytes.
fn contains(dir: &Path, needle: &[u8]) -> bool {
    std::fs::read_dir(dir).expect("directory").any(|entry| {
        let path = entry.expect("entry").path();
        match path.is_dir() {
            true => contains(&path, needle),
            false => std::fs::read(&path).is_ok_and(|bytes| bytes.windows(needle.len()).any(|w| w == needle)),
        }
    })
}

#[tokio::test]
async fn secrets_are_encrypted_on_disk_and_keys_rotate() {
    let dir = tempfile::tempdir().expect("directory");
    let config = dir.path().join("encryption.yaml");
    encryption(&config, &[("a", KEY_A)], true);
    let argument = format!("--encryption-provider-config={}", config.display());
    let arguments = [argument.as_str(), "--encryption-provider-config-automatic-reload"];
    let mut server = TestServer::start(&arguments).await;
    let mut admin = server.connect(Protocol::Http2).await;
    let base = "/api/v1/namespaces/default";
    let marker = "cGxpbnRoLW1hcmtlci0xMjM0NTY3ODkw";
    let secret =
        |name: &str| json!({"metadata": {"name": name, "labels": {"find": "me"}}, "data": {"word": marker}});
    for name in ["one", "two"] {
        let create = Call::new(Method::POST, format!("{base}/secrets")).body(JSON, secret(name).to_string());
        admin.must(&create).await.expect("secret");
    }
    let map = json!({"metadata": {"name": "plain"}, "data": {"word": "plinth-open-marker-1234567890"}});
    admin
        .must(&Call::new(Method::POST, format!("{base}/configmaps")).body(JSON, map.to_string()))
        .await
        .expect("map");
    // Reads, selectors and updates work as without encryption.
    let list = get(&mut admin, &format!("{base}/secrets?labelSelector=find%3Dme")).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(list["items"][0]["data"]["word"], marker);
    let patch = Call::new(Method::PATCH, format!("{base}/secrets/one"))
        .body("application/merge-patch+json", r#"{"metadata":{"labels":{"x":"y"}}}"#);
    admin.must(&patch).await.expect("patch");
    let before = get(&mut admin, &format!("{base}/secrets/one")).await["metadata"]["resourceVersion"].clone();
    // In the write-ahead log, which is not compressed as tables are.
    assert!(!contains(&server.data(), marker.as_bytes()), "the secret lies on the disk");
    assert!(contains(&server.data(), b"plinth-open-marker"), "what is not configured is as it was");
    server.terminate().await;
    assert!(!contains(&server.data(), marker.as_bytes()), "the secret lies on the disk");
    server.restart().await;
    let mut admin = server.connect(Protocol::Http2).await;
    assert_eq!(get(&mut admin, &format!("{base}/secrets/one")).await["data"]["word"], marker);
    // A new first key: an update that changes nothing encrypts the value again.
    encryption(&config, &[("b", KEY_B), ("a", KEY_A)], true);
    let rewritten = async {
        loop {
            let replace = Call::new(Method::PATCH, format!("{base}/secrets/one"))
                .body("application/merge-patch+json", r#"{"metadata":{"labels":{"x":"y"}}}"#);
            let reply = admin.must(&replace).await.expect("patch");
            let now: Value = serde_json::from_slice(&reply.body).expect("JSON");
            if now["metadata"]["resourceVersion"] != before {
                return now["metadata"]["resourceVersion"].clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    let rewritten =
        tokio::time::timeout(std::time::Duration::from_secs(100), rewritten).await.expect("encrypted again");
    let unchanged = Call::new(Method::PATCH, format!("{base}/secrets/one"))
        .body("application/merge-patch+json", r#"{"metadata":{"labels":{"x":"y"}}}"#);
    let reply = admin.must(&unchanged).await.expect("patch");
    let now: Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(now["metadata"]["resourceVersion"], rewritten, "once");
    // Without the old key, values not yet encrypted again cannot be read; everything else can.
    encryption(&config, &[("b", KEY_B)], true);
    until(&mut admin, &format!("{base}/secrets/two"), |status, _| {
        status == StatusCode::INTERNAL_SERVER_ERROR
    })
    .await;
    let reply = admin.call(&Call::get(format!("{base}/secrets"))).await.expect("an answer");
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(reply.text().contains("unable to transform key"), "{}", reply.text());
    assert!(reply.text().contains("/registry/secrets/default/two"), "{}", reply.text());
    assert_eq!(get(&mut admin, &format!("{base}/secrets/one")).await["data"]["word"], marker);
    get(&mut admin, &format!("{base}/configmaps")).await;
    // A plain delete fails with it, one with ignoreStoreReadErrorWithClusterBreakingPotential does not.
    let delete = Call::new(Method::DELETE, format!("{base}/secrets/two"));
    assert_eq!(admin.call(&delete).await.expect("an answer").status, StatusCode::INTERNAL_SERVER_ERROR);
    let options = json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true});
    let unsafe_delete = |name: &str| {
        Call::new(Method::DELETE, format!("{base}/secrets/{name}")).body(JSON, options.to_string())
    };
    let readable = admin.call(&unsafe_delete("one")).await.expect("an answer");
    assert_eq!(readable.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", readable.text());
    // Nor is there one for all of a collection.
    let collection = Call::new(Method::DELETE, format!("{base}/secrets")).body(JSON, options.to_string());
    let refused = admin.call(&collection).await.expect("an answer");
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text());
    assert!(refused.text().contains("is not allowed with DELETECOLLECTION"), "{}", refused.text());
    admin.must(&unsafe_delete("two")).await.expect("deleted");
    let list = get(&mut admin, &format!("{base}/secrets")).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_role_that_cannot_be_decrypted_takes_no_other_rights_away() {
    let dir = tempfile::tempdir().expect("directory");
    let config = dir.path().join("encryption.yaml");
    let write = |keys: &[(&str, &str)]| {
        let keys: Vec<String> =
            keys.iter().map(|(name, key)| format!("{{name: {name}, secret: {key}}}")).collect();
        let text = format!(
            "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [roles.rbac.authorization.k8s.io]\n  providers: [{{aesgcm: {{keys: [{}]}}}}, {{identity: {{}}}}]\n",
            keys.join(", ")
        );
        std::fs::write(&config, text).expect("configuration");
    };
    write(&[("a", KEY_A)]);
    let argument = format!("--encryption-provider-config={}", config.display());
    let mut server = TestServer::start(&[&argument]).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let post = |path: String, body: Value| Call::new(Method::POST, path).body(JSON, body.to_string());
    let grant = |resource: &str| {
        let role = json!({
            "metadata": {"name": resource},
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["list"]}],
        });
        let binding = json!({
            "metadata": {"name": resource},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": resource},
            "subjects": [{"kind": "User", "name": "jane"}],
        });
        [post(format!("{rbac}/roles"), role), post(format!("{rbac}/rolebindings"), binding)]
    };
    async fn allowed(server: &TestServer, resource: &str) -> bool {
        let review = json!({"spec": {"user": "jane", "resourceAttributes": {
            "verb": "list", "resource": resource, "namespace": "default"}}});
        let call = Call::new(Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews")
            .body(JSON, review.to_string());
        let reply = server.connect(Protocol::Http2).await.must(&call).await.expect("an answer");
        serde_json::from_slice::<Value>(&reply.body).expect("JSON")["status"]["allowed"] == true
    }
    let mut admin = server.connect(Protocol::Http2).await;
    for call in grant("pods") {
        admin.must(&call).await.expect("created");
    }
    // The first key is lost: what it encrypted cannot be read, the roles of the first start among it.
    server.terminate().await;
    write(&[("b", KEY_B)]);
    server.restart().await;
    let mut admin = server.connect(Protocol::Http2).await;
    for call in grant("services") {
        admin.must(&call).await.expect("created");
    }
    assert!(allowed(&server, "services").await, "a role that can be read counts");
    assert!(!allowed(&server, "pods").await, "one that cannot be read grants nothing");
    let reply = admin.call(&Call::get(format!("{rbac}/roles/pods"))).await.expect("an answer");
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", reply.text());
    // The key comes back.
    server.terminate().await;
    write(&[("b", KEY_B), ("a", KEY_A)]);
    server.restart().await;
    assert!(allowed(&server, "services").await && allowed(&server, "pods").await);
}
