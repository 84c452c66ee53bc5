//! Events of what the server itself writes.

use std::collections::BTreeMap;

use http::Method;
use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::eventually;
use serde_json::{json, Value};

use super::Audited;

/// What the server's own requests write, whoever it acts as.
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n\
    - {level: RequestResponse, users: ['system:apiserver'], omitManagedFields: true}\n\
    - {level: RequestResponse, userGroups: ['system:serviceaccounts:kube-system'], omitManagedFields: true}\n\
    - {level: None}\n";
const ACCOUNT: &str = "system:serviceaccount:kube-system:";

/// The events of a request in their order: verb, path, user; of the last one its code.
fn find<'e>(events: &'e [Value], user: &str, verb: &str, uri: &str) -> Vec<&'e Value> {
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let is_one = |event: &&Value| {
        event["user"]["username"] == user && text(event, "verb") == verb && text(event, "requestURI") == uri
    };
    events.iter().filter(is_one).collect()
}

#[tokio::test]
async fn the_servers_own_writes_are_recorded() {
    let mut audited = Audited::start_with(POLICY, &[]).await;
    let mut connection = audited.server.connect(Protocol::Http1).await;
    let create = |path: &str, object: &Value| {
        Call::new(Method::POST, path).body("application/json", object.to_string())
    };
    let namespace = json!({"metadata": {"name": "own"}});
    connection.must(&create("/api/v1/namespaces", &namespace)).await.expect("a namespace");
    let maps = "/api/v1/namespaces/own/configmaps";
    let owner =
        connection.must(&create(maps, &json!({"metadata": {"name": "owner"}}))).await.expect("an owner");
    let owner: Value = serde_json::from_slice(&owner.body).expect("an object");
    let reference =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    let dependent = json!({"metadata": {"name": "dependent", "ownerReferences": [reference]}});
    let dependent = connection.must(&create(maps, &dependent)).await.expect("a dependent");
    let dependent: Value = serde_json::from_slice(&dependent.body).expect("an object");
    connection.must(&Call::new(Method::DELETE, format!("{maps}/owner"))).await.expect("a deletion");
    for (path, delete_first) in
        [(format!("{maps}/dependent"), false), ("/api/v1/namespaces/own".into(), true)]
    {
        if delete_first {
            connection.must(&Call::new(Method::DELETE, &path)).await.expect("a deletion");
        }
        let server = &audited.server;
        eventually("it goes", || async {
            let mut connection = server.connect(Protocol::Http1).await;
            connection.call(&Call::get(&path)).await.expect("an answer").status == 404
        })
        .await;
    }
    let events = audited.events().await;

    // Bootstrap, as the server itself.
    let roles =
        find(&events, "system:apiserver", "create", "/apis/rbac.authorization.k8s.io/v1/clusterroles");
    let admin: Vec<_> =
        roles.into_iter().filter(|event| event["objectRef"]["name"] == "cluster-admin").collect();
    // The name of what is created is not known before.
    let [complete] = admin.as_slice() else { panic!("{admin:?}") };
    assert_eq!(complete["user"]["groups"], json!(["system:authenticated", "system:masters"]));
    assert_eq!(complete["sourceIPs"], json!(["127.0.0.1"]));
    assert!(complete["userAgent"].as_str().is_some_and(|agent| agent.starts_with("plinth/")), "{complete}");
    assert_eq!(complete["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!(complete["responseStatus"]["code"], 201);
    for object in ["requestObject", "responseObject"] {
        let object = &complete[object];
        assert_eq!(
            (object["kind"].as_str(), &object["rules"][0]["verbs"]),
            (Some("ClusterRole"), &json!(["*"]))
        );
    }
    assert!(complete["responseObject"]["metadata"]["resourceVersion"].is_string(), "{complete}");

    // Controllers, as their accounts.
    let account = |name: &str| format!("{ACCOUNT}{name}");
    let deleted = find(
        &events,
        &account("generic-garbage-collector"),
        "delete",
        "/api/v1/namespaces/own/configmaps/dependent",
    );
    let [_, complete] = deleted.as_slice() else { panic!("{deleted:?}") };
    assert_eq!(complete["responseStatus"]["code"], 200);
    assert_eq!(complete["requestObject"]["preconditions"]["uid"], dependent["metadata"]["uid"]);
    assert_eq!(complete["requestObject"]["propagationPolicy"], "Background");
    assert_eq!(complete["responseObject"]["details"]["name"], "dependent");
    let made =
        find(&events, &account("root-ca-cert-publisher"), "create", "/api/v1/namespaces/own/configmaps");
    assert_eq!(made.len(), 2, "{made:?}");
    let collection = find(
        &events,
        &account("namespace-controller"),
        "deletecollection",
        "/api/v1/namespaces/own/configmaps",
    );
    assert!(collection.len() >= 2, "{collection:?}");
    let nothing =
        find(&events, &account("namespace-controller"), "deletecollection", "/api/v1/namespaces/own/secrets");
    assert!(nothing.is_empty(), "{nothing:?}");
    let path = "/api/v1/namespaces/own/finalize";
    let finalized = find(&events, &account("namespace-controller"), "update", path);
    let [_, complete] = finalized.as_slice() else { panic!("{finalized:?}") };
    let reference = &complete["objectRef"];
    assert_eq!((&reference["namespace"], &reference["subresource"]), (&json!("own"), &json!("finalize")));

    // Each request has both events, and an update changes something.
    let mut requests = BTreeMap::<&str, Vec<&Value>>::new();
    for event in &events {
        requests.entry(event["auditID"].as_str().expect("an ID")).or_default().push(event);
    }
    for events in requests.values() {
        let stages: Vec<_> = events.iter().map(|event| event["stage"].as_str().unwrap_or_default()).collect();
        assert_eq!(stages, ["RequestReceived", "ResponseComplete"], "{events:?}");
        // It was not authorized yet.
        assert!(events[0]["annotations"].is_null(), "{events:?}");
        assert_ne!(events[1]["responseStatus"]["message"], "Connection closed early", "{events:?}");
    }
}
