//! The life of definitions: established, in conflict, changed, deleted, kept over a restart.

use std::time::Duration;

use futures::TryStreamExt;
use http::Method;
use kube::api::{Api, ApiResource, DynamicObject, WatchEvent, WatchParams};
use kube::core::GroupVersionKind;
use plinth_tests::definitions::{
    condition, definition, establish, until, until_established, with_versions, DEFINITIONS,
};
use plinth_tests::requests::{call, fields};
use plinth_tests::server::{namespace, shared_with_apis, unique, TestServer};
use plinth_tests::stays;
use serde_json::{json, Value};

/// The timeout of what has to happen; only reached in failure.
const WITHIN: Duration = Duration::from_secs(60);

fn open_schema() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// As controllers do at their start: what discovery shows is changed at once.
#[tokio::test]
async fn a_definition_that_is_discovered_can_be_changed() {
    let client = shared_with_apis().await.client().await;
    for round in 0..20 {
        let group = format!("{}.example.com", unique("found"));
        let wanted = definition(&group, "Boat", "Namespaced", open_schema());
        assert_eq!(call(&client, Method::POST, DEFINITIONS, Some(&wanted)).await.0, 201);
        let path = format!("{DEFINITIONS}/boats.{group}");
        loop {
            let (code, list) = call(&client, Method::GET, &format!("/apis/{group}/v1"), None).await;
            if code == 200 && list["resources"][0]["name"] == "boats" {
                break;
            }
            assert_eq!(code, 404, "{list}");
        }
        let (code, mut found) = call(&client, Method::GET, &path, None).await;
        assert_eq!((code, condition(&found, "Established")), (200, "True"), "round {round}: {found}");
        found["metadata"]["labels"] = json!({"changed": "yes"});
        let (code, answer) = call(&client, Method::PUT, &path, Some(&found)).await;
        assert_eq!(code, 200, "round {round}: {answer}");
        assert_eq!(call(&client, Method::DELETE, &path, None).await.0, 200);
    }
}

#[tokio::test]
async fn a_definition_opens_an_api_and_its_deletion_closes_it() {
    let client = shared_with_apis().await.client().await;
    let group = format!("{}.example.com", unique("life"));
    let namespace = namespace(&client, "life").await;
    let definition = definition(&group, "Car", "Namespaced", open_schema());
    establish(&client, &definition).await;
    let name = format!("cars.{group}");
    let path = format!("/apis/{group}/v1/namespaces/{namespace}/cars");

    let (code, list) = call(&client, Method::GET, &format!("/apis/{group}/v1"), None).await;
    assert_eq!((code, list["resources"][0]["name"].as_str()), (200, Some("cars")));
    let (code, group_list) = call(&client, Method::GET, "/apis", None).await;
    assert_eq!(code, 200);
    assert!(group_list["groups"].as_array().is_some_and(|g| g.iter().any(|g| g["name"] == group.as_str())));
    let (code, openapi) = call(&client, Method::GET, &format!("/openapi/v3/apis/{group}/v1"), None).await;
    let schemas = openapi["components"]["schemas"].as_object().map(|s| s.len()).unwrap_or_default();
    assert!(code == 200 && schemas > 2, "{code} {schemas}");

    let car = json!({"apiVersion": format!("{group}/v1"), "kind": "Car", "metadata": {"name": "a"}, "spec": {"x": 1}});
    assert_eq!(call(&client, Method::POST, &path, Some(&car)).await.0, 201);
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "Car"));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    let mut events = Box::pin(api.watch(&WatchParams::default(), "0").await.expect("watch"));

    // Objects in the way of a finalizer hold the definition.
    let held = json!({"apiVersion": format!("{group}/v1"), "kind": "Car",
        "metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    assert_eq!(call(&client, Method::POST, &path, Some(&held)).await.0, 201);
    let (code, answer) = call(&client, Method::DELETE, &format!("{DEFINITIONS}/{name}"), None).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(condition(&answer, "Terminating"), "True");
    until(&client, &name, |d| {
        let conditions = d["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["reason"] == "InstanceDeletionInProgress")
    })
    .await;
    let late = json!({"apiVersion": format!("{group}/v1"), "kind": "Car", "metadata": {"name": "late"}});
    let (code, refused) = call(&client, Method::POST, &path, Some(&late)).await;
    assert_eq!(code, 403, "{refused}");
    let patch = Request::merge(json!({"metadata": {"finalizers": null}}));
    assert_eq!(patch.send(&client, &format!("{path}/held")).await, 200);

    let gone = until(&client, &name, |d| d["code"] == 404).await;
    assert_eq!(gone["reason"], "NotFound");
    assert_eq!(call(&client, Method::GET, &path, None).await.0, 404);
    // The watch delivered the deletions of both objects, then ended.
    let seen = tokio::time::timeout(WITHIN, async {
        let mut deleted = Vec::new();
        while let Some(event) = events.try_next().await.expect("events") {
            if let WatchEvent::Deleted(object) = event {
                deleted.push(object.metadata.name.unwrap_or_default());
            }
        }
        deleted
    });
    assert_eq!(seen.await.expect("the end of the watch"), ["a", "held"]);
    // A new definition of the same name begins without objects.
    establish(&client, &definition).await;
    let (code, list) = call(&client, Method::GET, &path, None).await;
    assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(0)));
}

/// A merge patch.
struct Request(Value);

impl Request {
    fn merge(patch: Value) -> Request {
        Request(patch)
    }

    async fn send(&self, client: &kube::Client, path: &str) -> u16 {
        let body = self.0.to_string();
        plinth_tests::requests::call_with(client, Method::PATCH, path, "application/merge-patch+json", body)
            .await
            .0
    }
}

#[tokio::test]
async fn names_belong_to_the_first_definition_until_it_releases_them() {
    let client = shared_with_apis().await.client().await;
    let group = format!("{}.example.com", unique("names"));
    let first = definition(&group, "Boat", "Cluster", open_schema());
    establish(&client, &first).await;
    let mut second = definition(&group, "Ship", "Cluster", open_schema());
    second["spec"]["names"]["kind"] = json!("Boat");
    second["spec"]["names"]["listKind"] = json!("BoatList");
    assert_eq!(call(&client, Method::POST, DEFINITIONS, Some(&second)).await.0, 201);
    let name = format!("ships.{group}");
    let refused = until(&client, &name, |d| condition(d, "NamesAccepted") == "False").await;
    assert_eq!(condition(&refused, "Established"), "False");
    assert_eq!(refused["status"]["acceptedNames"]["plural"], "ships");
    assert_eq!(call(&client, Method::GET, &format!("/apis/{group}/v1/ships"), None).await.0, 404);
    // The first one goes; the second gets the name.
    assert_eq!(call(&client, Method::DELETE, &format!("{DEFINITIONS}/boats.{group}"), None).await.0, 200);
    until_established(&client, &name).await;
    assert_eq!(call(&client, Method::GET, &format!("/apis/{group}/v1/ships"), None).await.0, 200);
}

#[tokio::test]
async fn what_is_immutable_stays_and_the_rest_may_change() {
    let client = shared_with_apis().await.client().await;
    let group = format!("{}.example.com", unique("change"));
    establish(&client, &definition(&group, "Train", "Namespaced", open_schema())).await;
    let path = format!("{DEFINITIONS}/trains.{group}");
    let patch = |patch: Value| {
        let (client, path) = (client.clone(), path.clone());
        async move {
            let media = "application/merge-patch+json";
            plinth_tests::requests::call_with(&client, Method::PATCH, &path, media, patch.to_string()).await
        }
    };
    for (change, field) in [
        (json!({"spec": {"scope": "Cluster"}}), "spec.scope"),
        (json!({"spec": {"names": {"kind": "Tram"}}}), "spec.names.kind"),
        (json!({"spec": {"group": "other.example.com"}}), "spec.group"),
    ] {
        let (code, refused) = patch(change).await;
        assert_eq!(code, 422, "{refused}");
        assert!(fields(&refused).contains(&field), "{refused}");
    }
    let (code, changed) =
        patch(json!({"spec": {"names": {"shortNames": ["tr"], "categories": ["rail"]}}})).await;
    assert_eq!(code, 200, "{changed}");
    until(&client, &format!("trains.{group}"), |d| {
        d["status"]["acceptedNames"]["shortNames"] == json!(["tr"])
    })
    .await;
    let discovered = async {
        loop {
            let (_, list) = call(&client, Method::GET, &format!("/apis/{group}/v1"), None).await;
            if list["resources"][0]["shortNames"] == json!(["tr"]) {
                return list;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let list = tokio::time::timeout(WITHIN, discovered).await.expect("discovery follows");
    assert_eq!(list["resources"][0]["categories"], json!(["rail"]));
}

#[tokio::test]
async fn definitions_and_objects_are_there_after_a_restart() {
    let mut server = TestServer::start(&[]).await;
    let client = server.client().await;
    let versions = json!([
        {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer", "default": 3}}}}}}},
    ]);
    establish(&client, &with_versions("restart.example.com", "Lamp", "Cluster", versions)).await;
    let lamp = json!({"apiVersion": "restart.example.com/v1", "kind": "Lamp", "metadata": {"name": "a"}, "spec": {}});
    let (code, made) = call(&client, Method::POST, "/apis/restart.example.com/v1/lamps", Some(&lamp)).await;
    assert_eq!((code, &made["spec"]["n"]), (201, &json!(3)));
    // A definition whose deletion a restart interrupts is deleted after it.
    let held = definition("held.example.com", "Held", "Cluster", open_schema());
    establish(&client, &held).await;
    let object = json!({"apiVersion": "held.example.com/v1", "kind": "Held",
        "metadata": {"name": "h", "finalizers": ["example.com/hold"]}});
    assert_eq!(call(&client, Method::POST, "/apis/held.example.com/v1/helds", Some(&object)).await.0, 201);
    let held_path = format!("{DEFINITIONS}/helds.held.example.com");
    assert_eq!(call(&client, Method::DELETE, &held_path, None).await.0, 200);

    server.kill();
    server.restart().await;
    let client = server.client().await;
    // Served at once: nobody has to wait for definitions after a start.
    let (code, again) = call(&client, Method::GET, "/apis/restart.example.com/v1/lamps/a", None).await;
    assert_eq!(code, 200, "{again}");
    assert_eq!((&again["spec"], &again["metadata"]["uid"]), (&made["spec"], &made["metadata"]["uid"]));
    let patch = Request::merge(json!({"metadata": {"finalizers": null}}));
    assert_eq!(patch.send(&client, "/apis/held.example.com/v1/helds/h").await, 200);
    until(&client, "helds.held.example.com", |d| d["code"] == 404).await;
}

#[tokio::test]
async fn api_services_follow_what_is_served() {
    const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
    let client = shared_with_apis().await.client().await;
    let group = format!("{}.example.com", unique("registered"));
    let (code, apps) = call(&client, Method::GET, &format!("{API_SERVICES}/v1.apps"), None).await;
    assert_eq!((code, &apps["spec"]["groupPriorityMinimum"]), (200, &json!(17_800)), "{apps}");
    assert_eq!(apps["status"]["conditions"][0]["reason"], "Local");
    let schema = json!({"type": "object"});
    establish(&client, &definition(&group, "Listed", "Cluster", schema)).await;
    let path = format!("{API_SERVICES}/v1.{group}");
    let wait = async |wanted: u16| {
        let look = async {
            loop {
                let (code, found) = call(&client, Method::GET, &path, None).await;
                if code == wanted {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), look).await.expect("the APIService follows")
    };
    let found = wait(200).await;
    assert_eq!(found["metadata"]["labels"], json!({"kube-aggregator.kubernetes.io/automanaged": "true"}));
    assert_eq!(
        found["spec"],
        json!({"group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100})
    );
    let (code, _) = call(&client, Method::DELETE, &format!("{DEFINITIONS}/listeds.{group}"), None).await;
    assert_eq!(code, 200);
    wait(404).await;
}

/// Policies of real projects keep their definitions from being changed to older versions; deleted they must
/// go all the same.
#[tokio::test]
async fn a_policy_about_definitions_holds_none_that_is_deleted() {
    const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    let client = shared_with_apis().await.client().await;
    let group = format!("{}.example.com", unique("guarded"));
    establish(&client, &definition(&group, "Guarded", "Cluster", open_schema())).await;
    let objects = format!("/apis/{group}/v1/guardeds");
    let object = json!({"apiVersion": format!("{group}/v1"), "kind": "Guarded", "metadata": {"name": "g"}});
    assert_eq!(call(&client, Method::POST, &objects, Some(&object)).await.0, 201);
    let definitions = json!([
        {"apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"], "resources": ["customresourcedefinitions"]},
        {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["guardeds"]},
    ]);
    let name = unique("no-change");
    let policy = json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": definitions},
        "validations": [{"expression": format!("request.operation != 'DELETE' && object.spec.group != '{group}'"),
            "message": "not this one"}]}});
    let binding =
        json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    assert_eq!(call(&client, Method::POST, POLICIES, Some(&policy)).await.0, 201);
    assert_eq!(call(&client, Method::POST, BINDINGS, Some(&binding)).await.0, 201);

    let path = format!("{DEFINITIONS}/guardeds.{group}");
    let mut changed = call(&client, Method::GET, &path, None).await.1;
    changed["metadata"]["labels"] = json!({"a": "b"});
    let (code, refused) = call(&client, Method::PUT, &path, Some(&changed)).await;
    assert!(
        code == 422 && refused["message"].as_str().is_some_and(|m| m.ends_with("not this one")),
        "{refused}"
    );
    // Its objects are not asked about one by one, as by upstream.
    assert_eq!(call(&client, Method::DELETE, &format!("{objects}/g"), None).await.0, 422);
    assert_eq!(call(&client, Method::DELETE, &path, None).await.0, 200);
    plinth_tests::eventually("the definition goes", || async {
        call(&client, Method::GET, &path, None).await.0 == 404
    })
    .await;
    call(&client, Method::DELETE, &format!("{BINDINGS}/{name}"), None).await;
    call(&client, Method::DELETE, &format!("{POLICIES}/{name}"), None).await;
}

/// A definition that was freed of its finalizer by hand, and made again, with either scope, while an object
/// of the first one is held.
#[tokio::test]
async fn what_is_left_of_a_definition_takes_nothing_from_the_next_of_its_name() {
    let client = shared_with_apis().await.client().await;
    for scope in ["Namespaced", "Cluster"] {
        let group = format!("{}.example.com", unique("next"));
        let namespace = namespace(&client, "next").await;
        establish(&client, &definition(&group, "Car", "Namespaced", open_schema())).await;
        let name = format!("cars.{group}");
        let path = format!("/apis/{group}/v1/namespaces/{namespace}/cars");
        let car = |name: &str, finalizers: Value| {
            json!({"apiVersion": format!("{group}/v1"), "kind": "Car",
                "metadata": {"name": name, "finalizers": finalizers}})
        };
        let held = car("held", json!(["example.com/hold"]));
        assert_eq!(call(&client, Method::POST, &path, Some(&held)).await.0, 201);
        let own = format!("{DEFINITIONS}/{name}");
        assert_eq!(call(&client, Method::DELETE, &own, None).await.0, 200);
        let free = Request::merge(json!({"metadata": {"finalizers": null}}));
        assert_eq!(free.send(&client, &own).await, 200);
        until(&client, &name, |d| d["code"] == 404).await;

        establish(&client, &definition(&group, "Car", scope, open_schema())).await;
        let path = match scope {
            "Cluster" => format!("/apis/{group}/v1/cars"),
            _ => path,
        };
        assert_eq!(call(&client, Method::POST, &path, Some(&car("fresh", json!([])))).await.0, 201);
        let fresh = format!("{path}/fresh");
        stays(scope, || async {
            let (code, answer) = call(&client, Method::GET, &fresh, None).await;
            code == 200 && answer["metadata"]["deletionTimestamp"].is_null()
        })
        .await;
        // Deleting the new definition works as usual.
        if scope == "Namespaced" {
            assert_eq!(free.send(&client, &format!("{path}/held")).await, 200);
        }
        assert_eq!(call(&client, Method::DELETE, &own, None).await.0, 200);
        until(&client, &name, |d| d["code"] == 404).await;
    }
}
