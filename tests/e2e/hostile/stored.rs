//! Small requests that take long because of what is stored, or because of what policies make of them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

use http::{Method, StatusCode};
use plinth_benches::api::client::{Call, Identity, Protocol, JSON};
use serde_json::{json, Value};

use super::Target;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const POEMS: &str = "/apis/long.example/v1/namespaces/default/poems";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
/// Connections that flood.
const FLOODERS: usize = 4;
/// Rounds of honest clients meanwhile, of four requests each.
const ROUNDS: usize = 10;

/// An expression whose cost is the square of the number of a ConfigMap's keys.
const LONG: &str = "object.data.all(k, object.data.all(j, j.matches('^(a|b|k).*$'))) || true";

/// A user who may write ConfigMaps, one of 200,000 finalizers, and policies that take their time.
async fn prepare(dir: &std::path::Path) -> Target {
    let tokens = dir.join("tokens.csv");
    std::fs::write(&tokens, "writer-token,writer,1\n").expect("tokens");
    let target = Target::start_with(&[&format!("--token-auth-file={}", tokens.display())]).await;
    let mut admin = target.server.connect(Protocol::Http2).await;
    let mut maker = target.server.connect(Protocol::Http2).await;
    let mut make = async |path: &str, object: Value| {
        maker.must(&Call::new(Method::POST, path).body(JSON, object.to_string())).await.expect(path);
    };
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": "writer"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "writer"}],
    });
    make(&format!("/apis/{group}/v1/namespaces/default/rolebindings"), binding).await;
    let finalizers: Vec<String> = (0..200_000).map(|n| format!("a.b/{n:x}")).collect();
    make(MAPS, json!({"metadata": {"name": "large", "finalizers": finalizers}})).await;
    let maps = json!([{
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
    }]);
    let policy = json!({"metadata": {"name": "long"}, "spec": {
        "matchConstraints": {"resourceRules": maps},
        "validations": vec![json!({"expression": LONG}); 4],
    }});
    make(&format!("{POLICIES}/validatingadmissionpolicies"), policy).await;
    let binding =
        json!({"metadata": {"name": "long"}, "spec": {"policyName": "long", "validationActions": ["Deny"]}});
    make(&format!("{POLICIES}/validatingadmissionpolicybindings"), binding).await;
    let text = json!({"type": "string", "maxLength": 10});
    let words = json!({"type": "array", "maxItems": 500, "items": text});
    let rule = json!({"rule": "self.words.all(x, self.words.all(y, x == y || x != y))"});
    let schema = json!({
        "type": "object", "properties": {"words": words}, "x-kubernetes-validations": vec![rule; 8],
    });
    let names = json!({"plural": "poems", "singular": "poem", "kind": "Poem", "listKind": "PoemList"});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({
        "metadata": {"name": "poems.long.example"},
        "spec": {"group": "long.example", "scope": "Namespaced", "names": names, "versions": [version]},
    });
    make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    let role = json!({
        "metadata": {"name": "poet"},
        "rules": [{"apiGroups": ["long.example"], "resources": ["poems"], "verbs": ["create"]}],
    });
    make(&format!("/apis/{group}/v1/namespaces/default/roles"), role).await;
    let binding = json!({
        "metadata": {"name": "poet"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "poet"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "writer"}],
    });
    make(&format!("/apis/{group}/v1/namespaces/default/rolebindings"), binding).await;
    while admin.call(&Call::get(POEMS)).await.expect("an answer").status != StatusCode::OK {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    target
}

/// Each of the requests takes as long as a thousand others. Honest clients, who need four of those, do not
/// wait for the flood: of its requests fewer are answered meanwhile than of theirs.
#[tokio::test]
async fn small_requests_that_take_long_hold_up_nobody() {
    let dir = tempfile::tempdir().expect("directory");
    let target = prepare(dir.path()).await;
    let large = format!("{MAPS}/large?dryRun=All");
    let adds = vec![json!({"op": "add", "path": "/metadata/finalizers/0", "value": "a.b/z"}); 900];
    let data: Value =
        (0..300).map(|n| (format!("k{n}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
    let map = json!({"metadata": {"generateName": "small-"}, "data": data});
    let poem = json!({
        "apiVersion": "long.example/v1", "kind": "Poem", "metadata": {"generateName": "long-"},
        "words": (0..250).map(|n| format!("w{n}")).collect::<Vec<_>>(),
    });
    // what it is, the request, how it is answered
    let floods = [
        (
            "a merge patch of a large object",
            Call::new(Method::PATCH, &large).body("application/merge-patch+json", r#"{"data":{"a":"b"}}"#),
            200,
        ),
        (
            "a JSON patch of a large object",
            Call::new(Method::PATCH, &large).body("application/json-patch+json", json!(adds).to_string()),
            200,
        ),
        ("a large object as YAML", Call::get(format!("{MAPS}/large")).accept("application/yaml"), 200),
        (
            "a policy that takes its time",
            Call::new(Method::POST, format!("{MAPS}?dryRun=All")).body(JSON, map.to_string()),
            201,
        ),
        (
            "a custom resource whose rules take their time",
            Call::new(Method::POST, format!("{POEMS}?dryRun=All")).body(JSON, poem.to_string()),
            201,
        ),
    ];
    let endpoint = target.server.endpoint().with_identity(Identity::Token("writer-token".to_owned()));
    for (name, call, code) in floods {
        let (ended, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut flood = tokio::task::JoinSet::new();
        for _ in 0..FLOODERS {
            let mut connection = endpoint.connect(Protocol::Http1).await.expect("connection");
            let (call, ended, answered) = (call.clone(), ended.clone(), answered.clone());
            flood.spawn(async move {
                while !ended.load(Ordering::SeqCst) {
                    let reply = connection.call(&call).await.expect("an answer");
                    assert_eq!(reply.status.as_u16(), code, "{name}: {}", reply.text());
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        while answered.load(Ordering::SeqCst) == 0 {
            if let Some(ended) = flood.try_join_next() {
                ended.expect(name);
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let before = answered.load(Ordering::SeqCst);
        for _ in 0..ROUNDS {
            target.serves(name).await;
        }
        let meanwhile = answered.load(Ordering::SeqCst) - before;
        assert!(meanwhile < 4 * ROUNDS, "{name}: {meanwhile} were answered meanwhile");
        ended.store(true, Ordering::SeqCst);
        flood.join_all().await;
    }
}
