//! Discovery and OpenAPI documents with remote APIs among them.

use std::sync::atomic::Ordering;

use plinth_tests::definitions::definition;
use plinth_tests::eventually;
use plinth_tests::remote_api::API_SERVICES;
use plinth_tests::requests::{create, send};
use serde_json::{json, Value};

use super::Cluster;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

impl Cluster {
    async fn json(&self, path: &str, accept: &'static str) -> Value {
        serde_json::from_slice(&self.get(path, accept).await.body).unwrap_or_default()
    }

    /// The version `v1` of a group in aggregated discovery, and the group's place.
    async fn discovered(&self, group: &str) -> Option<(usize, Value)> {
        let list = self.json("/apis", AGGREGATED).await;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let place = items.iter().position(|item| item["metadata"]["name"] == group)?;
        Some((place, items[place]["versions"][0].clone()))
    }

    async fn freshness(&self, group: &str) -> Value {
        self.discovered(group).await.unwrap_or_default().1["freshness"].clone()
    }
}

#[tokio::test]
async fn remote_groups_are_discovered_in_both_forms_and_stale_while_down() {
    let cluster = Cluster::start(&[]).await;
    let unread = json!({
        "metadata": {"name": "v1.unread.example"},
        "spec": {
            "group": "unread.example", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10,
            "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "no-such-service"},
        },
    });
    create(&cluster.client, API_SERVICES, &unread).await;
    eventually("a group that was never read", || async {
        cluster
            .discovered("unread.example")
            .await
            .is_some_and(|(_, version)| version == json!({"version": "v1", "freshness": "Stale"}))
    })
    .await;
    let indented = cluster.get("/apis/unread.example?pretty=true", "application/json").await.text();
    assert!(indented.starts_with("{\n  \"kind\": \"APIGroup\""), "{indented}");
    let remote = cluster.remote("found.example", 1).await;
    let group = remote.group.as_str();
    let current = || async { cluster.freshness(group).await == "Current" };
    eventually("discovered", current).await;

    let groups = cluster.json("/apis", "application/json").await;
    let found =
        groups["groups"].as_array().expect("groups").iter().find(|g| g["name"] == group).expect("the group");
    assert_eq!(found["preferredVersion"]["groupVersion"], format!("{group}/v1"));
    assert_eq!(cluster.json(&format!("/apis/{group}"), "application/json").await["name"], group);
    // A version's own document is the other server's.
    let list = cluster.json(&remote.path(), "application/json").await;
    assert_eq!(list["resources"][0]["name"], "things");
    let index = cluster.json("/", "application/json").await;
    assert!(index["paths"].as_array().expect("paths").contains(&json!(remote.path())));

    let (place, version) = cluster.discovered(group).await.expect("the group");
    assert_eq!(version["resources"][0]["resource"], "things");
    // As the list has it: without group and version.
    assert_eq!(version["resources"][0]["responseKind"]["group"], "");
    assert_eq!(version["resources"][0].get("shortNames"), None);

    // The aggregated document of the other server comes first, and the order is by priority.
    let path = format!("{API_SERVICES}/v1.{group}");
    remote.behavior.is_aggregated.store(true, Ordering::SeqCst);
    let first = json!({"spec": {"groupPriorityMinimum": 20_000}});
    assert_eq!(send(&cluster.client, "MERGE", &path, &first).await.code, 200);
    eventually("read again", || async {
        let (place, version) = cluster.discovered(group).await.expect("the group");
        version["resources"][0]["shortNames"] == json!(["aggregated"]) && place < 2
    })
    .await;
    assert!(place > 2);

    // Down: what was known stays and is marked. Hanging: as long as it takes, discovery answers.
    for broken in [&remote.behavior.is_down, &remote.behavior.hangs] {
        broken.store(true, Ordering::SeqCst);
        let touched = json!({"metadata": {"annotations": {"touched": format!("{broken:p}")}}});
        assert_eq!(send(&cluster.client, "MERGE", &path, &touched).await.code, 200);
        eventually("stale", || async { cluster.freshness(group).await == "Stale" }).await;
        let (_, version) = cluster.discovered(group).await.expect("the group");
        assert_eq!(version["resources"][0]["resource"], "things");
        let groups = cluster.json("/apis", "application/json").await;
        assert!(groups["groups"].as_array().expect("groups").iter().any(|g| g["name"] == group));
        broken.store(false, Ordering::SeqCst);
        eventually("current again", current).await;
    }
    assert_eq!(send(&cluster.client, "DELETE", &path, &Value::Null).await.code, 200);
    eventually("gone", || async { cluster.discovered(group).await.is_none() }).await;
    assert_eq!(cluster.get(&format!("/apis/{group}"), "application/json").await.status, 404);
}

#[tokio::test]
async fn openapi_documents_have_the_remote_apis() {
    let cluster = Cluster::start(&[]).await;
    let remote = cluster.remote("described.example", 1).await;
    let own = format!("apis/{}/v1", remote.group);
    let url = format!("/openapi/v3/{own}");
    eventually("in the index", || async {
        let index = cluster.json("/openapi/v3", "application/json").await;
        index["paths"][&own]["serverRelativeURL"] == format!("{url}?hash=AB")
    })
    .await;
    let index = cluster.json("/openapi/v3", "application/json").await;
    assert!(index["paths"]["version"]["serverRelativeURL"].as_str().is_some_and(|url| !url.contains("CD")));
    let known = cluster.get(&format!("{url}?hash=AB"), "application/json").await;
    assert_eq!((known.status.as_u16(), known.text().contains("3.0.0")), (200, true));
    assert_eq!(known.headers["cache-control"], "public, immutable, max-age=31536000");
    let old = cluster.get(&format!("{url}?hash=OLD"), "application/json").await;
    assert_eq!(
        (old.status.as_u16(), old.headers["location"].as_bytes()),
        (301, format!("{url}?hash=AB").as_bytes())
    );
    assert_eq!(remote.received(&url)[0].all("x-remote-user"), ["kubernetes-admin"]);

    let path = format!("{}/things", remote.path());
    eventually("in the second edition", || async {
        cluster.json("/openapi/v2", "application/json").await["paths"].get(&path).is_some()
    })
    .await;
    let document = cluster.json("/openapi/v2", "application/json").await;
    assert!(
        document["definitions"].get("Thing").is_some() && document["definitions"].get("Unused").is_none()
    );
    assert!(document["paths"].get("/apis/apps/v1/deployments").is_some());
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let reply = cluster.get("/openapi/v2", protobuf).await;
    assert!(reply.body.windows(path.len()).any(|part| part == path.as_bytes()));
}

#[tokio::test]
async fn apis_of_this_server_are_taken_over_only_as_upstream() {
    let cluster = Cluster::start(&[]).await;
    let remote = cluster.remote("taken.example", 1).await;
    let service = remote.api_service("service-1")["spec"].clone();
    let with_service = json!({"spec": {"service": service["service"], "caBundle": service["caBundle"]}});

    // An APIService that belongs to a definition is repaired; one without the label is another's.
    let made = definition("taken.example", "Car", "Cluster", json!({"type": "object"}));
    create(&cluster.client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &made).await;
    let cars = "/apis/taken.example/v1/cars";
    let things = format!("{}/namespaces/default/things", remote.path());
    assert_eq!(send(&cluster.client, "GET", &things, &Value::Null).await.code, 200, "it was there first");
    assert_eq!(
        send(&cluster.client, "DELETE", &format!("{API_SERVICES}/v1.taken.example"), &Value::Null).await.code,
        200
    );
    eventually("the definition is served", || async {
        let answer = send(&cluster.client, "GET", cars, &Value::Null).await;
        answer.code == 200 && answer.body["kind"] == "CarList"
    })
    .await;

    // The core group and that of APIServices stay here, whatever an object says.
    let path = format!("{API_SERVICES}/v1.");
    let answer = send(&cluster.client, "MERGE", &path, &with_service).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    let own = json!({"metadata": {"name": "v1.apiregistration.k8s.io"}, "spec": {
        "group": "apiregistration.k8s.io", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
        "service": service["service"], "caBundle": service["caBundle"]}});
    create(&cluster.client, API_SERVICES, &own).await;
    for path in ["/api/v1/namespaces/default", API_SERVICES] {
        assert_eq!(send(&cluster.client, "GET", path, &Value::Null).await.code, 200, "{path}");
    }
    assert!(
        remote.received("/api/v1/namespaces/default").is_empty() && remote.received(API_SERVICES).is_empty()
    );
}
