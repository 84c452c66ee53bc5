//! A store that was written when custom resources had keys like those of built-in kinds keeps working.
//!
//! `old_layout.backup.gz` is a backup that plinth made before it had layout 2, with crontabs encrypted under
//! [`ENCRYPTION`], and `old_layout.json` is what its server answered to lists of crontabs and planets. It
//! also has a definition whose object lay among ClusterRoleBindings, and one whose object lay among
//! NetworkPolicies.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use http::{Method, Request};
use kube::client::Body;
use kube::Client;
use plinth_benches::api::server::Server;
use plinth_tests::definitions::DEFINITIONS;
use plinth_tests::eventually;
use plinth_tests::outcome::Outcome;
use plinth_tests::requests::call;
use plinth_tests::server::{client_of, launch, start_ready};
use serde_json::{json, Value};
use tempfile::TempDir;

const ENCRYPTION: &str = "kind: EncryptionConfiguration
apiVersion: apiserver.config.k8s.io/v1
resources:
- resources: [crontabs.example.com]
  providers:
  - aesgcm: {keys: [{name: k, secret: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}]}
";
const GRANTS: &str = "/apis/rbac.authorization.k8s.io/v2/clusterrolebindings";
const FENCES: &str = "/apis/networking.k8s.io/v2/networkpolicies";
const POLICIES: &str = "/apis/networking.k8s.io/v1/networkpolicies";
const CRONTABS: &str = "/apis/example.com/v1/crontabs";
const PLANETS: &str = "/apis/example.com/v1/planets";

fn fixture(name: &str) -> PathBuf {
    plinth_tests::package_dir().join("e2e/custom_resources").join(name)
}

/// What the older server answered: lists by path.
fn answered() -> Value {
    let text = std::fs::read_to_string(fixture("old_layout.json")).expect("the answers");
    serde_json::from_str(&text).expect("JSON")
}

/// Restores the backup below a directory, where a server looks for its data.
fn restore(root: &Path) {
    let (archive, data) = (root.join("old.backup"), root.join("data"));
    let mut bytes = Vec::new();
    let mut file = GzDecoder::new(File::open(fixture("old_layout.backup.gz")).expect("the backup"));
    file.read_to_end(&mut bytes).expect("the whole backup");
    std::fs::write(&archive, bytes).expect("the backup");
    let mut command = launch().command(["restore", "--from"]);
    let output = command.arg(&archive).arg("--data-dir").arg(&data).outcome();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn start(root: &Path, arguments: &[&str]) -> (Server, Client) {
    let server = start_ready(&launch(), root, arguments).await;
    let client = client_of(&server.kubeconfig()).await;
    (server, client)
}

async fn list(client: &Client, path: &str) -> Value {
    let (code, list) = call(client, Method::GET, path, None).await;
    assert_eq!(code, 200, "{path}: {list}");
    list
}

/// The items of a list without their resourceVersions, which are others after the move.
fn items(list: &Value) -> Vec<Value> {
    let mut items = list["items"].as_array().cloned().unwrap_or_default();
    for item in &mut items {
        item["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    }
    items
}

fn names(list: &Value) -> Vec<String> {
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    items(list).iter().map(name).collect()
}

async fn as_mallory(client: &Client) -> u16 {
    let request = Request::get("/api/v1/secrets").header("impersonate-user", "mallory").body(Body::empty());
    client.send(request.expect("a request")).await.expect("an answer").status().as_u16()
}

#[tokio::test]
async fn objects_keep_what_they_are_and_take_effect_as_nothing_else() {
    let dir = TempDir::new().expect("directory");
    let configuration = dir.path().join("encryption.yaml");
    std::fs::write(&configuration, ENCRYPTION).expect("configuration");
    restore(dir.path());
    let encryption = ["--encryption-provider-config", configuration.to_str().expect("a path")];
    let (mut server, client) = start(dir.path(), &encryption).await;

    let before = answered();
    for path in [CRONTABS, PLANETS] {
        let found = list(&client, path).await;
        assert!(!items(&found).is_empty(), "{path}");
        assert_eq!(items(&found), items(&before[path]), "{path}");
    }
    // The older server answered these lists with 500, and let mallory read every Secret.
    assert_eq!(names(&list(&client, GRANTS).await), ["evil"]);
    assert_eq!(names(&list(&client, FENCES).await), ["fence"]);
    assert_eq!(names(&list(&client, POLICIES).await), ["deny"]);
    assert_eq!(as_mallory(&client).await, 403, "the custom ClusterRoleBinding grants nothing any more");
    let log = server.log().tail(500);
    let named = |name: &str| {
        log.lines().any(|line| line.contains("built-in kind") && line.contains(&format!("name=\"{name}\"")))
    };
    assert!(named("evil") && named("fence") && !named("mars"), "{log}");

    // Clients that watched the older server have to list again.
    let old = before[CRONTABS]["metadata"]["resourceVersion"].as_str().expect("a version");
    let watch = format!("{CRONTABS}?watch=1&timeoutSeconds=1&resourceVersion={old}");
    let request = Request::get(watch).body(Vec::new()).expect("a request");
    let gone = client.request_text(request).await;
    let is_gone = match &gone {
        Ok(text) => text.contains("\"code\":410"),
        Err(kube::Error::Api(status)) => status.code == 410,
        Err(_) => false,
    };
    assert!(is_gone, "{gone:?}");

    // They are objects like others: changed, listed, deleted with their definition.
    let tab = format!("/apis/example.com/v1/namespaces/old/crontabs/{}", names(&before[CRONTABS])[0]);
    let (code, mut object) = call(&client, Method::GET, &tab, None).await;
    assert_eq!(code, 200);
    object["spec"]["n"] = json!(99);
    assert_eq!(call(&client, Method::PUT, &tab, Some(&object)).await.0, 200);
    let definition = format!("{DEFINITIONS}/networkpolicies.networking.k8s.io");
    assert_eq!(call(&client, Method::DELETE, &definition, None).await.0, 200);
    eventually("the definition is gone", || async {
        call(&client, Method::GET, &definition, None).await.0 == 404
    })
    .await;
    assert_eq!(names(&list(&client, POLICIES).await), ["deny"]);

    // Once is enough.
    let (tabs, lines) =
        (list(&client, CRONTABS).await, server.log().tail(5000).matches("were moved").count());
    assert_eq!(lines, 1);
    server.terminate().await.expect("a clean end");
    let mut verify = launch().command(["verify", "--data-dir"]);
    assert!(verify.arg(server.data()).outcome().status.success());
    server.restart().await.expect("restarted server");
    let again = list(&client_of(&server.kubeconfig()).await, CRONTABS).await;
    assert_eq!(again["items"], tabs["items"], "with their resourceVersions");
    assert_eq!(server.log().tail(5000).matches("were moved").count(), 1);
}

/// The move needs no keys: what cannot be decrypted is moved, too, and is readable once the keys are there
/// again.
#[tokio::test]
async fn encrypted_objects_are_moved_without_their_keys() {
    let dir = TempDir::new().expect("directory");
    restore(dir.path());
    let (mut server, client) = start(dir.path(), &[]).await;
    let (code, refused) = call(&client, Method::GET, CRONTABS, None).await;
    assert_eq!(code, 500, "{refused}");
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(message.contains("/registry/example.com/crontabs/old/"), "{message}");
    assert_eq!(items(&list(&client, PLANETS).await), items(&answered()[PLANETS]));
    server.terminate().await.expect("a clean end");
    drop(server);
    let configuration = dir.path().join("encryption.yaml");
    std::fs::write(&configuration, ENCRYPTION).expect("configuration");
    let encryption = ["--encryption-provider-config", configuration.to_str().expect("a path")];
    let (_server, client) = start(dir.path(), &encryption).await;
    assert_eq!(items(&list(&client, CRONTABS).await), items(&answered()[CRONTABS]));
}
