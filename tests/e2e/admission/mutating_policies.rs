//! MutatingAdmissionPolicies: expressions change objects before they are stored. The webhook here counts its
//! calls.

use base64::prelude::{Engine as _, BASE64_STANDARD};
use http::Method;
use plinth_tests::https::HttpsServer;
use plinth_tests::kubectl::Kubectl;
use plinth_tests::requests::{call, create};
use plinth_tests::server::{namespace, shared, unique};
use serde_json::{json, Value};

use super::validating_policies::CONFIGURATIONS;

/// A policy for ConfigMaps and Deployments of one namespace, with its binding.
async fn policy(client: &kube::Client, name: &str, namespace: &str, mutations: Value, more: Value) {
    let mut policy = json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceRules": [
                {"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]},
                {"operations": ["CREATE", "UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]},
            ],
        },
        "matchConditions": [{"name": "mine", "expression": format!("object.metadata.name.startsWith('{}')", name.split('.').next_back().unwrap_or_default())}],
        "reinvocationPolicy": "Never",
        "mutations": mutations,
    }});
    for (key, value) in more.as_object().into_iter().flatten() {
        policy["spec"][key] = value.clone();
    }
    create(client, &format!("{CONFIGURATIONS}/mutatingadmissionpolicies"), &policy).await;
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
    create(client, &format!("{CONFIGURATIONS}/mutatingadmissionpolicybindings"), &binding).await;
}

async fn remove(client: &kube::Client, name: &str) {
    for plural in ["mutatingadmissionpolicybindings", "mutatingadmissionpolicies"] {
        let (code, body) =
            call(client, Method::DELETE, &format!("{CONFIGURATIONS}/{plural}/{name}"), None).await;
        assert_eq!(code, 200, "{body}");
    }
}

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

#[tokio::test]
async fn policies_change_objects() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "mutated").await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let prefix = unique("mutating");
    let x1 = json!({"x": "1"});
    // name, mutations, more of the spec, data that are stored or what the refusal says
    let rows: [(&str, Value, Value, Result<Value, &str>); 16] = [
        ("set", json!([apply("Object{data: {'y': string(size(object.data))}}")]), json!({}), Ok(json!({"x": "1", "y": "1"}))),
        ("fields", json!([apply("Object{data: Object.data{y: '2', ?z: object.data.?nope}}")]), json!({}), Ok(json!({"x": "1", "y": "2"}))),
        ("twice", json!([apply("Object{data: {'m': '1'}}"), apply("Object{data: {'n': string(size(object.data))}}")]), json!({}), Ok(json!({"x": "1", "m": "1", "n": "2"}))),
        (
            "variables",
            json!([apply("Object{data: {'v': variables.w + request.operation + namespaceObject.metadata.name.substring(0, 7)}}")]),
            json!({"variables": [{"name": "v", "expression": "object.data.x"}, {"name": "w", "expression": "variables.v + 'w'"}]}),
            Ok(json!({"x": "1", "v": "1wCREATEmutated"})),
        ),
        ("asking", json!([apply("Object{data: {'may': string(authorizer.group('').resource('pods').check('get').allowed())}}")]), json!({}), Ok(json!({"x": "1", "may": "true"}))),
        ("patch", json!([patch("[JSONPatch{op: 'test', path: '/data/x', value: '1'}, JSONPatch{op: 'move', from: '/data/x', path: '/data/' + jsonpatch.escapeKey('y')}]")]), json!({}), Ok(json!({"y": "1"}))),
        // What a failed test guards is not done, which is no failure.
        ("tested", json!([patch("[JSONPatch{op: 'test', path: '/data/x', value: '9'}, JSONPatch{op: 'remove', path: '/data/x'}]")]), json!({}), Ok(x1.clone())),
        ("none", json!([apply("Object{}"), patch("[JSONPatch{}].filter(p, false)")]), json!({}), Ok(x1.clone())),
        ("error", json!([apply("Object{data: {'a': object.nope}}")]), json!({}), Err("expression 'Object{data: {'a': object.nope}}' resulted in error: no such key: nope")),
        ("forgiven", json!([apply("Object{data: {'a': object.nope}}"), apply("Object{data: {'b': 'c'}}")]), json!({"failurePolicy": "Ignore"}), Ok(json!({"x": "1", "b": "c"}))),
        ("misnamed", json!([apply("Object{metadata: Object.spec{labels: {'a': 'b'}}}")]), json!({}), Err("type mismatch: unexpected type name \"Object.spec\", expected \"Object.metadata\", which matches field name path from root Object type")),
        ("unknown", json!([apply("Object{nope: 1}")]), json!({}), Err("error applying patch: failed to convert patch object to typed object: .nope: field not declared in schema")),
        ("atomic", json!([apply("Object{metadata: Object.metadata{ownerReferences: [Object.metadata.ownerReferences{uid: 'u'}]}}")]), json!({}), Err("error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .metadata.ownerReferences[0]")),
        ("removed", json!([patch("[JSONPatch{op: 'remove', path: '/data/q'}]")]), json!({}), Err("JSON Patch: error in remove for path: '/data/q': Unable to remove nonexistent key: q: missing value")),
        (
            "params",
            json!([apply("Object{data: {'p': params.metadata.name}}")]),
            json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}),
            // A binding without a reference has no parameters.
            Err("expression 'Object{data: {'p': params.metadata.name}}' resulted in error: no such key: metadata"),
        ),
        ("compiled", json!([apply("Object{data: {'a': variables.nope}}")]), json!({"variables": [{"name": "nope", "expression": "object.data.q"}]}), Err("expression 'Object{data: {'a': variables.nope}}' resulted in error: composited variable \"nope\" fails to evaluate: no such key: q")),
    ];
    for (name, mutations, more, expected) in rows {
        let policy_name = format!("{prefix}.{name}");
        policy(&client, &policy_name, &namespace, mutations, more).await;
        let body = json!({"metadata": {"name": name}, "data": x1});
        let (code, answer) = call(&client, Method::POST, &maps, Some(&body)).await;
        match expected {
            Ok(data) => {
                assert_eq!((code, &answer["data"]), (201, &data), "{name}: {answer}");
                let (_, stored) = call(&client, Method::GET, &format!("{maps}/{name}"), None).await;
                assert_eq!(stored["data"], data, "{name}");
            }
            Err(why) => {
                let why =
                    format!("policy '{policy_name}' with binding '{policy_name}' denied request: {why}");
                assert_eq!((code, answer["reason"].as_str()), (403, Some("Invalid")), "{name}: {answer}");
                assert_eq!(answer["message"], why.as_str(), "{name}");
                assert_eq!(answer["details"]["causes"], json!([{"message": why}]), "{name}");
                assert_eq!(call(&client, Method::GET, &format!("{maps}/{name}"), None).await.0, 404);
            }
        }
        remove(&client, &policy_name).await;
    }
}

#[tokio::test]
async fn what_policies_add_is_defaulted_and_checked() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "defaulted").await;
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let prefix = unique("sidecar");
    let name = format!("{prefix}.web");
    let mutations = json!([
        apply("Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'side', image: 's'}]}}}}"),
        apply("Object{spec: Object.spec{replicas: object.spec.replicas + size(object.spec.template.spec.containers)}}"),
        patch("[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'operation': request.operation}}]"),
    ]);
    policy(&client, &name, &namespace, mutations, json!({})).await;
    let deployment = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        }})
    };
    let made = create(&client, &path, &deployment("web")).await;
    assert_eq!(made["spec"]["replicas"], 3, "{made}");
    let containers = &made["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers[0]["name"], "c");
    // What was added has the defaults of what a client sends.
    assert_eq!(
        (&containers[1]["name"], &containers[1]["imagePullPolicy"]),
        (&json!("side"), &json!("Always"))
    );
    assert_eq!(made["metadata"]["annotations"], json!({"operation": "CREATE"}));
    // The policy sees a patch, too: the sidecar is there, and additions go to the stored object.
    let merge = json!({"spec": {"replicas": 10}});
    let request = http::Request::patch(format!("{path}/web"))
        .header("content-type", "application/merge-patch+json")
        .body(serde_json::to_vec(&merge).expect("JSON"))
        .expect("a request");
    let patched: Value = client.request(request).await.expect("patched");
    assert_eq!(
        (&patched["spec"]["replicas"], patched["metadata"]["annotations"]["operation"].as_str()),
        (&json!(12), Some("UPDATE"))
    );
    remove(&client, &name).await;

    // What makes an object invalid is refused with its field.
    let name = format!("{prefix}.bad");
    let mutations = json!([apply("Object{spec: Object.spec{replicas: -1}}")]);
    policy(&client, &name, &namespace, mutations, json!({})).await;
    let (code, refused) = call(&client, Method::POST, &path, Some(&deployment("bad"))).await;
    assert_eq!(
        (code, refused["details"]["causes"][0]["field"].as_str()),
        (422, Some("spec.replicas")),
        "{refused}"
    );
    remove(&client, &name).await;
}

#[tokio::test]
async fn policies_and_webhooks_see_each_others_changes() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "rounds").await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    // A webhook that counts its calls in the object, and records what it found.
    let server = HttpsServer::start(|request: hyper::Request<hyper::body::Incoming>| async move {
        use http_body_util::BodyExt;
        let body = request.into_body().collect().await.expect("body").to_bytes();
        let review: Value = serde_json::from_slice(&body).expect("a review");
        let data = &review["request"]["object"]["data"];
        let asked = data["asked"].as_str().unwrap_or_default();
        let patch = json!([{"op": "add", "path": "/data/asked", "value": format!("{asked}{}", data["size"].as_str().unwrap_or("-"))}]);
        let response = json!({"uid": review["request"]["uid"], "allowed": true, "patchType": "JSONPatch", "patch": BASE64_STANDARD.encode(patch.to_string())});
        let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        hyper::Response::new(http_body_util::Full::new(bytes::Bytes::from(answer.to_string())))
    })
    .await;
    let hook = unique("rounds");
    create(&client, &format!("{CONFIGURATIONS}/mutatingwebhookconfigurations"), &json!({"metadata": {"name": hook}, "webhooks": [{
        "name": "rounds.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "reinvocationPolicy": "IfNeeded",
        "clientConfig": {"url": format!("https://localhost:{}/", server.port), "caBundle": BASE64_STANDARD.encode(&server.certificate)},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        "matchConditions": [{"name": "few", "expression": "object.metadata.name != 'alone'"}],
    }]})).await;
    let size = "Object{data: {'size': string(size(object.data))}}";
    // name, reinvocation policy, what is stored
    let rows = [
        // One member before the webhook adds its own; the policy has changed something, so the webhook is not
        // called again.
        ("once", "Never", json!({"x": "1", "size": "1", "asked": "1"})),
        // The policy is reinvoked: it sees three members, and then the webhook sees that.
        ("again", "IfNeeded", json!({"x": "1", "size": "3", "asked": "13"})),
        // A policy that changes something on its second pass is invoked twice, with or without a webhook.
        ("alone", "IfNeeded", json!({"x": "1", "size": "2"})),
    ];
    for (name, reinvocation, data) in rows {
        let policy_name = format!("{}.{name}", unique("rounds"));
        let more = json!({"reinvocationPolicy": reinvocation});
        policy(&client, &policy_name, &namespace, json!([apply(size)]), more).await;
        let made = create(&client, &maps, &json!({"metadata": {"name": name}, "data": {"x": "1"}})).await;
        assert_eq!(made["data"], data, "{name}");
        remove(&client, &policy_name).await;
    }
    let path = format!("{CONFIGURATIONS}/mutatingwebhookconfigurations/{hook}");
    assert_eq!(call(&client, Method::DELETE, &path, None).await.0, 200);
}

#[tokio::test]
async fn custom_resources_are_changed_by_their_schema() {
    let access = shared().await;
    let client = access.client().await;
    let Some(kubectl) = Kubectl::find("mutating policies", access.kubeconfig()) else { return };
    let namespace = namespace(&client, "customised").await;
    let group = format!("{}.example.com", unique("mutated"));
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("boxes.{group}")}, "spec": {
        "group": group, "scope": "Namespaced", "names": {"plural": "boxes", "kind": "Box"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
            "type": "object", "properties": {
                "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "weight": {"type": "integer", "default": 7}}}},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
        }}}}}],
    }});
    kubectl.ok_with_input("apply -f -", &definition.to_string());
    kubectl.ok(&format!("wait --for=condition=Established --timeout=60s crd/boxes.{group}"));
    let name = unique("boxes");
    let mutating = |expression: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": {
            "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["*"], "resources": ["boxes"]}]},
            "reinvocationPolicy": "Never",
            "mutations": [apply(expression)],
        }})
    };
    let add = "Object{spec: Object.spec{items: [Object.spec.items{name: 'b'}]}}";
    kubectl.ok_with_input("apply -f -", &mutating(add).to_string());
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": {"policyName": name}});
    kubectl.ok_with_input("apply -f -", &binding.to_string());
    let boxed = |name: &str| json!({"apiVersion": format!("{group}/v1"), "kind": "Box", "metadata": {"name": name}, "spec": {"items": [{"name": "a", "weight": 1}], "tags": ["t"]}});
    kubectl.ok_with_input(&format!("apply -n {namespace} -f -"), &boxed("one").to_string());
    let weights =
        kubectl.ok(&format!("get boxes.{group} one -n {namespace} -o jsonpath={{.spec.items[*].weight}}"));
    assert_eq!(weights, "1 7", "the element that was added has its default");
    // A list without keys has one owner: nobody sets a part of it.
    kubectl.ok_with_input("apply -f -", &mutating("Object{spec: Object.spec{tags: ['u']}}").to_string());
    let refused = kubectl.fails_with_input(&format!("create -n {namespace} -f -"), &boxed("two").to_string());
    assert!(refused.contains("may not mutate atomic arrays, maps or structs: .spec.tags"), "{refused}");
    kubectl.ok(&format!("delete mutatingadmissionpolicybinding,mutatingadmissionpolicy {name}"));
    kubectl.ok_with_input(&format!("create -n {namespace} -f -"), &boxed("two").to_string());
    kubectl.ok(&format!("delete crd boxes.{group}"));
}
