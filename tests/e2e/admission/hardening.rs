//! Admission plugins of hardened clusters, which are off unless they are named.

use http::{Method, StatusCode};
use plinth_benches::api::client::{Call, Identity, Protocol, JSON};
use plinth_tests::server::TestServer;
use serde_json::{json, Value};

/// Plugins that are off unless they are named, as kube-apiserver answers with them.
const MERGE: &str = "application/merge-patch+json";

#[tokio::test]
async fn admission_plugins_of_hardened_clusters_refuse_what_upstreams_refuse() {
    let dir = tempfile::tempdir().expect("directory");
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, "janes-token,jane,1\n").expect("tokens");
    let server = TestServer::start(&[
        &format!("--token-auth-file={}", tokens.display()),
        "--enable-admission-plugins=AlwaysPullImages,DenyServiceExternalIPs,OwnerReferencesPermissionEnforcement",
        "--disable-admission-plugins=ServiceAccount",
        // The owners below are not there.
        "--controllers=*,-garbage-collector-controller",
    ])
    .await;
    let mut admin = server.connect(Protocol::Http2).await;
    let post = |path: &str, object: Value| Call::new(Method::POST, path).body(JSON, object.to_string());
    let patch = |path: &str, object: Value| Call::new(Method::PATCH, path).body(MERGE, object.to_string());
    let core = "/api/v1/namespaces/default";

    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "a", "image": "x", "imagePullPolicy": "Never"}],
        "initContainers": [{"name": "i", "image": "y:1"}],
        "volumes": [{"name": "v", "image": {"reference": "z", "pullPolicy": "IfNotPresent"}}],
    }});
    let reply = admin.must(&post(&format!("{core}/pods"), pod)).await.expect("a pod");
    let made: Value = serde_json::from_slice(&reply.body).expect("JSON");
    let spec = &made["spec"];
    assert_eq!(
        [&spec["containers"][0]["imagePullPolicy"], &spec["initContainers"][0]["imagePullPolicy"]],
        ["Always", "Always"]
    );
    assert_eq!(spec["volumes"][0]["image"]["pullPolicy"], "Always");

    let service = |name: &str, addresses: Value| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "externalIPs": addresses}});
    let services = format!("{core}/services");
    admin.must(&post(&services, service("a", json!([])))).await.expect("a service");
    let more = json!({"spec": {"externalIPs": ["192.0.2.1"]}});
    let denied = "Use of external IPs is denied by admission control";
    for (name, call) in [
        ("b", post(&services, service("b", json!(["192.0.2.1"])))),
        ("a", patch(&format!("{services}/a"), more)),
    ] {
        let reply = admin.call(&call).await.expect("answer");
        assert_eq!(reply.status, StatusCode::FORBIDDEN);
        assert!(
            reply.text().contains(&format!("services \\\"{name}\\\" is forbidden: {denied}")),
            "{}",
            reply.text()
        );
    }

    let maps = format!("{core}/configmaps");
    for name in ["owner", "owned"] {
        admin.must(&post(&maps, json!({"metadata": {"name": name}}))).await.expect("a map");
    }
    let group = "rbac.authorization.k8s.io";
    let rbac = format!("/apis/{group}/v1/namespaces/default");
    let mut grant = async |name: &str, resource: &str, verbs: &[&str]| {
        let role = json!({"metadata": {"name": name}, "rules": [{"apiGroups": [""], "resources": [resource], "verbs": verbs}]});
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "jane"}],
        });
        admin.must(&post(&format!("{rbac}/roles"), role)).await.expect("a role");
        admin.must(&post(&format!("{rbac}/rolebindings"), binding)).await.expect("a binding");
    };
    let endpoint = server.endpoint().with_identity(Identity::Token("janes-token".into()));
    let mut jane = endpoint.connect(Protocol::Http2).await.expect("connection");
    let owner = |kind: (&str, &str), blocks: bool| json!([{"apiVersion": kind.0, "kind": kind.1, "name": "owner", "uid": "u", "blockOwnerDeletion": blocks}]);
    const MAP: (&str, &str) = ("v1", "ConfigMap");
    const NONE: (&str, &str) = ("nope.example.com/v1", "Nope");
    let finalizers = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
    let unknown = "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion nope.example.com/v1 Kind Nope: no matches for kind";
    let cannot_delete = "cannot set an ownerRef on a resource you can't delete: , <nil>";
    // what is granted before, the new object (none for a change of the one that is there), its owner, the
    // refusal
    type Row<'a> = (
        Option<(&'a str, &'a str, &'a [&'a str])>,
        Option<&'a str>,
        (&'a str, &'a str),
        bool,
        Option<&'a str>,
    );
    let rows: &[Row<'_>] = &[
        (Some(("write", "configmaps", &["create", "update", "patch", "get"])), Some("a"), MAP, false, None),
        (None, Some("b"), MAP, true, Some(finalizers)),
        (None, Some("c"), NONE, true, Some(unknown)),
        (None, Some("d"), NONE, false, None),
        (None, None, MAP, false, Some(cannot_delete)),
        (Some(("delete", "configmaps", &["delete"])), None, MAP, false, None),
        (None, None, MAP, true, Some(finalizers)),
        (Some(("finalize", "configmaps/finalizers", &["update"])), None, MAP, true, None),
        (None, Some("e"), MAP, true, None),
        (None, Some("f"), ("apps/v1", "Deployment"), true, Some(finalizers)),
    ];
    for (i, (granted, name, kind, blocks, refusal)) in rows.iter().enumerate() {
        if let Some((role, resource, verbs)) = granted {
            grant(role, resource, verbs).await;
        }
        let call = match name {
            Some(name) => {
                post(&maps, json!({"metadata": {"name": name, "ownerReferences": owner(*kind, *blocks)}}))
            }
            None => patch(
                &format!("{maps}/owned"),
                json!({"metadata": {"ownerReferences": owner(*kind, *blocks)}}),
            ),
        };
        let reply = jane.call(&call).await.expect("answer");
        let status: Value = serde_json::from_slice(&reply.body).expect("JSON");
        let message = status["message"].as_str().unwrap_or_default();
        match refusal {
            None => assert!(reply.status.is_success(), "row {i}: {status}"),
            Some(why) => {
                assert!(reply.status == StatusCode::FORBIDDEN && message.contains(why), "row {i}: {status}")
            }
        }
    }
}
