//! What is not the same for every kind: Pods' subresources, tokens, reviews, access, discovery, and what is refused early.

use http::Method;
use serde_json::{json, Value};

use super::kinds::{Catalog, NAMESPACE};
use super::script::{
    Body, Request, Script, CBOR, JSON, JSON_PATCH, MERGE_PATCH, PROTOBUF, STRATEGIC_PATCH, TABLE, YAML,
};
use super::Subject;

/// The namespace and account that later subjects use.
pub fn setup() -> Script {
    let mut script = Script::default();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    script.push(Request::create("/api/v1/namespaces", &namespace));
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    script.push(Request::create(format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), &account));
    script
}

/// The subjects of this file.
pub fn all(catalog: &Catalog) -> Vec<Subject> {
    let subject = |name: &str, script| Subject { name: name.into(), script };
    vec![
        subject("pods", pods()),
        subject("services", services()),
        subject("merge lists", merge_lists()),
        subject("pages", pages()),
        subject("namespaces", namespaces()),
        subject("tokens", tokens()),
        subject("reviews", reviews()),
        subject("access", access(catalog)),
        subject("discovery", discovery(catalog)),
        subject("paths", paths()),
        subject("bootstrap objects", bootstrap_objects(catalog)),
    ]
}

fn namespaced(plural: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/{plural}")
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "pods"}},
           "spec": {"containers": [{"name": "main", "image": "registry.example/main:1",
               "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1"}},
               "env": [{"name": "A", "value": "b"}], "ports": [{"containerPort": 80}]}]}})
}

fn pods() -> Script {
    let mut script = Script::default();
    let pods = namespaced("pods");
    let nodes = "/api/v1/nodes";
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}});
    script.push(Request::create(nodes, &node));
    for name in ["a", "b", "c"] {
        script.push(Request::create(pods.clone(), &pod(name)).capture(name));
    }
    let binding = |name: &str, node: &str| {
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
               "target": {"kind": "Node", "name": node}})
    };
    for (path, name, node) in [
        (format!("{pods}/a/binding?dryRun=All"), "a", "node"),
        (format!("{pods}/a/binding"), "a", ""),
        (format!("{pods}/a/binding"), "b", "node"),
        (format!("{pods}/a/binding"), "a", "node"),
        (format!("{pods}/a/binding"), "a", "node"),
        (format!("{pods}/absent/binding"), "absent", "node"),
        (namespaced("bindings"), "b", "node"),
    ] {
        script.push(Request::create(path, &binding(name, node)).verb("binding"));
    }
    for path in
        ["a/ephemeralcontainers", "a/resize", "b/log", "c/log", "a/log?follow=x", "c/log?container=other"]
    {
        script.push(Request::get(format!("{pods}/{path}")).verb("get (subresource)"));
    }
    for (sub, change) in [
        (
            "ephemeralcontainers",
            json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "x",
            "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}]}}),
        ),
        ("ephemeralcontainers", json!({"spec": {"ephemeralContainers": [{"name": "main", "image": "x"}]}})),
        ("ephemeralcontainers", json!({"spec": {"ephemeralContainers": [{"name": "other", "ports": []}]}})),
        ("ephemeralcontainers", json!({"spec": {"ephemeralContainers": []}})),
        (
            "resize",
            json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]}}),
        ),
        (
            "resize",
            json!({"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "50m"}}}]}}),
        ),
        ("resize", json!({"spec": {"containers": [{"name": "main", "image": "other"}]}})),
        (
            "status",
            json!({"status": {"phase": "Running", "podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}],
            "conditions": [{"type": "Ready", "status": "True"}]}}),
        ),
        ("status", json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})),
        (
            "status",
            json!({"status": {"containerStatuses": [{"name": "main", "ready": true, "restartCount": 0,
            "image": "x", "imageID": "y", "state": {"running": {"startedAt": "2020-01-01T00:00:00Z"}}}]}}),
        ),
        ("status", json!({"status": {"podIP": "x", "phase": "Succeeded"}})),
        ("", json!({"spec": {"containers": [{"name": "main", "image": "registry.example/main:2"}]}})),
        ("", json!({"spec": {"containers": [{"name": "main", "command": ["x"]}]}})),
        ("", json!({"spec": {"nodeName": "other", "activeDeadlineSeconds": 5}})),
        ("", json!({"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}})),
        ("", json!({"spec": {"containers": [{"name": "main", "$patch": "delete"}]}})),
        ("", json!({"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "c"}]}]}})),
        ("", json!({"spec": {"terminationGracePeriodSeconds": 1}})),
        ("", json!({"metadata": {"generateName": "x-", "creationTimestamp": "2020-01-01T00:00:00Z"}})),
    ] {
        for name in ["a", "b"] {
            let path = format!("{pods}/{name}/{sub}");
            let path = path.trim_end_matches('/');
            for media_type in [STRATEGIC_PATCH, MERGE_PATCH] {
                script.push(Request::patch(path, media_type, &change));
            }
        }
    }
    let budget = |minimum: Value| {
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "budget"},
               "spec": {"minAvailable": minimum, "selector": {"matchLabels": {"app": "pods"}}}})
    };
    let eviction = |name: &str, options: Value| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options});
    let budgets = format!("/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets");
    for (name, options) in [
        ("c", json!({"dryRun": ["All"]})),
        ("c", json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}})),
        ("a", json!({"gracePeriodSeconds": -5})),
        ("absent", json!({})),
        ("other", json!(null)),
    ] {
        let target = if name == "other" { "a" } else { name };
        let path = format!("{pods}/{target}/eviction");
        script.push(Request::create(path, &eviction(name, options)).verb("eviction"));
    }
    script.push(Request::create(budgets.clone(), &budget(json!(2))));
    for name in ["a", "b", "c"] {
        let request = Request::create(format!("{pods}/{name}/eviction"), &eviction(name, json!({})));
        script.push(request.verb("eviction"));
    }
    let allowed = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2,
                                    "desiredHealthy": 1, "expectedPods": 3}});
    script.push(Request::patch(format!("{budgets}/budget/status"), MERGE_PATCH, &allowed));
    for name in ["a", "b"] {
        let request = Request::create(format!("{pods}/{name}/eviction"), &eviction(name, json!({})));
        script.push(request.verb("eviction"));
        script.push(Request::get(format!("{pods}/{name}")));
    }
    script.push(Request::get(format!("{budgets}/budget")));
    script.push(Request::delete(format!("{budgets}/budget")));
    for query in [
        "fieldSelector=spec.nodeName%3Dnode",
        "fieldSelector=status.phase%3DRunning",
        "fieldSelector=status.phase%21%3DRunning,metadata.namespace%3Dcorpus",
        "fieldSelector=spec.absent%3Dx",
        "labelSelector=app+in+(pods)",
        "labelSelector=app,!other",
    ] {
        for media_type in [JSON, PROTOBUF, TABLE] {
            script.push(Request::list(format!("{pods}?{query}")).accept(media_type));
        }
    }
    for path in
        ["a?gracePeriodSeconds=30", "a", "a?gracePeriodSeconds=-1", "a?gracePeriodSeconds=0", "b", "c"]
    {
        script.push(Request::delete(format!("{pods}/{path}")));
    }
    script.push(Request::delete(format!("{pods}?gracePeriodSeconds=0")).verb("deletecollection"));
    script.push(Request::delete(format!("{nodes}/node")));
    script.push(Request::list(pods));
    script
}

fn services() -> Script {
    let mut script = Script::default();
    let services = namespaced("services");
    for spec in [
        json!({}),
        json!({"type": "NodePort"}),
        json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30123}]}),
        json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}),
        json!({"type": "ExternalName", "externalName": "example.com", "ports": null}),
        json!({"type": "ExternalName"}),
        json!({"clusterIP": "None"}),
        json!({"clusterIP": "10.0.0.5"}),
        json!({"clusterIP": "10.0.0.1"}),
        json!({"clusterIP": "192.0.2.1"}),
        json!({"clusterIP": "x"}),
        json!({"ipFamilyPolicy": "RequireDualStack"}),
        json!({"ipFamilies": ["IPv6"]}),
        json!({"sessionAffinity": "ClientIP"}),
        json!({"ports": [{"port": 1}, {"port": 2}]}),
        json!({"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 1}]}),
        json!({"ports": [{"port": 70_000, "protocol": "X", "targetPort": "Not A Port"}]}),
    ] {
        let mut object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "service"},
                                "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}});
        super::script::merge(&mut object, &json!({"spec": spec}));
        let path = format!("{services}/service");
        script.push(Request::create(format!("{services}?dryRun=All"), &object));
        script.push(Request::create(services.clone(), &object));
        script.push(Request::get(path.clone()));
        script.push(Request::get(path.clone()).accept(YAML));
        for change in [
            json!({"spec": {"type": "NodePort"}}),
            json!({"spec": {"type": "ClusterIP"}}),
            json!({"spec": {"clusterIP": "10.0.0.6"}}),
            json!({"spec": {"type": "ExternalName", "externalName": "a.b", "clusterIP": null, "clusterIPs": null}}),
            json!({"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}),
        ] {
            script.push(Request::patch(path.clone(), MERGE_PATCH, &change));
            script.push(Request::patch(format!("{path}/status"), MERGE_PATCH, &change));
        }
        script.push(Request::delete(path));
    }
    script
}

/// Strategic merge patches of lists with merge keys, and directives.
fn merge_lists() -> Script {
    let mut script = Script::default();
    let deployments = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
    let path = format!("{deployments}/lists");
    let template = json!({"metadata": {"labels": {"app": "lists"}}, "spec": {
        "containers": [{"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}],
                        "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]},
                       {"name": "b", "image": "b:1"}],
        "volumes": [{"name": "v", "emptyDir": {}}]}});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "lists"},
                        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "lists"}}, "template": template}});
    script.push(Request::create(deployments, &object));
    let in_spec = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    for patch in [
        in_spec(json!({"containers": [{"name": "a", "image": "a:2"}]})),
        in_spec(json!({"containers": [{"name": "c", "image": "c:1"}]})),
        in_spec(json!({"containers": [{"name": "b", "$patch": "delete"}]})),
        in_spec(json!({"containers": [{"image": "nameless"}]})),
        in_spec(json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
                       "containers": [{"name": "a", "image": "a:3"}]})),
        in_spec(
            json!({"$setElementOrder/containers": [{"name": "c"}], "containers": [{"name": "a", "image": "x"}]}),
        ),
        in_spec(json!({"containers": [{"name": "a", "env": [{"name": "X", "$patch": "delete"}]}]})),
        in_spec(
            json!({"containers": [{"name": "a", "env": [{"$patch": "replace"}, {"name": "Z", "value": "3"}]}]}),
        ),
        in_spec(json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "web"}]}]})),
        in_spec(
            json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}),
        ),
        in_spec(json!({"volumes": [{"$patch": "replace"}]})),
        in_spec(json!({"tolerations": [{"key": "a", "operator": "Exists"}]})),
        json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
        json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}}}),
        json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}}),
        json!({"spec": {"replicas": "many"}}),
        json!({"spec": {"template": null}}),
    ] {
        script.push(Request::patch(format!("{path}?dryRun=All"), MERGE_PATCH, &patch));
        script.push(Request::patch(path.clone(), STRATEGIC_PATCH, &patch));
        script.push(Request::get(path.clone()).accept(PROTOBUF));
    }
    let scale = format!("{path}/scale");
    script.push(Request::patch(scale.clone(), MERGE_PATCH, r#"{"spec":{"replicas":7}}"#).verb("scale"));
    script.push(Request::patch(scale.clone(), JSON_PATCH, r#"[{"op":"remove","path":"/spec/replicas"}]"#));
    script.push(Request::get(scale).accept(TABLE).verb("scale"));
    script.push(Request::delete(format!("{path}?propagationPolicy=Orphan")));
    script.push(Request::patch(path.clone(), MERGE_PATCH, r#"{"metadata":{"finalizers":[]}}"#));
    script.push(Request::get(path));
    script
}

/// Pages of a collection that changes between them, in every encoding.
fn pages() -> Script {
    let mut script = Script::default();
    let collection = namespaced("configmaps");
    for number in 0..60 {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "x".repeat(number * 200)},
            "metadata": {"name": format!("page-{number:02}"), "labels": {"parity": (number % 2).to_string()}}});
        script.push(Request::create(collection.clone(), &object));
    }
    for (number, selector) in ["", "&labelSelector=parity%3D1"].into_iter().enumerate() {
        script.push(Request::list(format!("{collection}?limit=7{selector}")).capture("page"));
        for _ in 0..9 {
            let next = format!("{collection}?limit=7&continue=${{page.metadata.continue}}{selector}");
            for media_type in [YAML, TABLE] {
                script.push(Request::list(next.clone()).accept(media_type));
            }
            script.push(Request::delete(format!("{collection}/page-{:02}", 30 + number)));
            script.push(Request::list(next).capture("page"));
        }
    }
    for media_type in [JSON, PROTOBUF, YAML, CBOR, TABLE] {
        script.push(Request::list(collection.clone()).accept(media_type));
        script.push(Request::list(collection.clone()).accept(media_type).header("accept-encoding", "gzip"));
        script.push(Request::list(format!("{collection}?pretty=1&limit=5")).accept(media_type));
    }
    let watch = format!("{collection}?watch=1&timeoutSeconds=1");
    script.push(
        Request::list(format!("{watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"))
            .verb("watch"),
    );
    let bookmarks =
        format!("{watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
    script.push(Request::list(bookmarks.clone()).verb("watch"));
    script.push(Request::list(bookmarks).verb("watch").accept(PROTOBUF));
    script.push(Request::list(watch.clone()).verb("watch"));
    script.push(
        Request::list(format!("{watch}&resourceVersion=0&fieldSelector=metadata.name%3Dpage-01"))
            .verb("watch"),
    );
    script.push(Request::list(format!("{watch}&limit=3&continue=x")).verb("watch"));
    script.push(
        Request::list(format!("/api/v1/watch/namespaces/{NAMESPACE}/configmaps?timeoutSeconds=1"))
            .verb("watch"),
    );
    let many = format!("{collection}?labelSelector=parity");
    script.push(Request::delete(many).verb("deletecollection").accept(TABLE));
    script
}

fn namespaces() -> Script {
    let mut script = Script::default();
    let path = "/api/v1/namespaces/finalized";
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "finalized"}});
    script.push(Request::create("/api/v1/namespaces", &object));
    script.push(Request::delete("/api/v1/namespaces/default"));
    script.push(Request::delete("/api/v1/namespaces").verb("deletecollection"));
    script.push(Request::delete(path));
    script.push(Request::get(path).capture("namespace"));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}});
    script.push(Request::create(format!("{path}/configmaps"), &map));
    script.push(Request::create("/api/v1/namespaces/absent/configmaps", &map));
    let finalize = |change: Value| {
        Request::update(format!("{path}/finalize"), Body::Changed("namespace".into(), change))
            .verb("finalize")
    };
    script.push(finalize(json!({"metadata": {"resourceVersion": "1"}})));
    script.push(finalize(json!({"spec": {"finalizers": ["not qualified"]}})));
    script.push(finalize(json!({"spec": {"finalizers": []}})));
    script.push(Request::get(path));
    script
}

fn tokens() -> Script {
    let mut script = Script::default();
    let accounts = namespaced("serviceaccounts");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    script.push(Request::create(accounts.clone(), &account));
    let path = format!("{accounts}/robot/token");
    let review = "/apis/authentication.k8s.io/v1/tokenreviews";
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let who_body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    for spec in [
        json!({}),
        json!({"expirationSeconds": 600}),
        json!({"expirationSeconds": 5}),
        json!({"expirationSeconds": 4_294_967_297_u64}),
        json!({"audiences": ["other"]}),
        json!({"audiences": [""]}),
        json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "absent"}}),
        json!({"boundObjectRef": {"kind": "Nonsense", "apiVersion": "v1", "name": "x"}}),
    ] {
        let object = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        script.push(Request::create(path.clone(), &object).capture("token").verb("token"));
        let reviewed = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
                              "spec": {"token": "${token.status.token}", "audiences": spec["audiences"]}});
        script.push(Request::create(review, &reviewed).verb("review"));
        let bearer = "Bearer ${token.status.token}";
        script.push(
            Request::create(who, &who_body).unauthenticated().header("authorization", bearer).verb("review"),
        );
    }
    script.push(Request::create(format!("{accounts}/absent/token"), &json!({})).verb("token"));
    let empty = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {}});
    script.push(Request::create(review, &empty).verb("review"));
    for bearer in
        ["Bearer alice-token", "Bearer bob-token", "Bearer wrong", "Bearer", "Basic YTpi", "nonsense", ""]
    {
        script.push(
            Request::create(who, &who_body).unauthenticated().header("authorization", bearer).verb("review"),
        );
    }
    script.push(Request::delete(format!("{accounts}/robot")));
    script
}

fn reviews() -> Script {
    let mut script = Script::default();
    let root = "/apis/authorization.k8s.io/v1";
    let attributes = [
        json!({"resourceAttributes": {"namespace": NAMESPACE, "verb": "get", "resource": "pods"}}),
        json!({"resourceAttributes": {"verb": "*", "group": "*", "resource": "*"}}),
        json!({"resourceAttributes": {"verb": "get", "resource": "pods", "fieldSelector": {"rawSelector": "a=b"}}}),
        json!({"resourceAttributes": {"verb": "get", "resource": "pods", "labelSelector": {"rawSelector": "==="}}}),
        json!({"nonResourceAttributes": {"verb": "get", "path": "/version"}}),
        json!({"nonResourceAttributes": {"verb": "get", "path": "/secret"}}),
        json!({"nonResourceAttributes": {}, "resourceAttributes": {}}),
        json!({}),
    ];
    for spec in attributes {
        for bearer in ["", "Bearer alice-token", "Bearer bob-token"] {
            let own = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec});
            let request = Request::create(format!("{root}/selfsubjectaccessreviews"), &own).verb("review");
            script.push(request.unauthenticated().header("authorization", bearer));
        }
        for (user, groups) in
            [("alice", json!(["developers"])), ("", json!([])), ("x", json!(["system:masters"]))]
        {
            let mut spec = spec.clone();
            super::script::merge(&mut spec, &json!({"user": user, "groups": groups}));
            let other =
                json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
            script.push(Request::create(format!("{root}/subjectaccessreviews"), &other).verb("review"));
            let local = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview",
                               "metadata": {"namespace": NAMESPACE}, "spec": spec});
            let path = format!("{root}/namespaces/{NAMESPACE}/localsubjectaccessreviews");
            script.push(Request::create(path, &local).verb("review"));
        }
    }
    for namespace in ["", NAMESPACE] {
        for bearer in ["Bearer alice-token", "Bearer bob-token"] {
            let rules = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
                               "spec": {"namespace": namespace}});
            let request = Request::create(format!("{root}/selfsubjectrulesreviews"), &rules).verb("review");
            script.push(request.unauthenticated().header("authorization", bearer));
        }
    }
    script
}

/// Requests of other users: unauthenticated, by token, and by impersonation.
fn access(catalog: &Catalog) -> Script {
    let mut script = Script::default();
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps", "pods/log"], "verbs": ["get", "list"]},
                  {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}]});
    let root = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}");
    script.push(Request::create(format!("{root}/roles"), &role));
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "reader"}, "subjects": [{"kind": "Group", "name": "developers"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}});
    script.push(Request::create(format!("{root}/rolebindings"), &binding));
    let wide = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "wide"},
                      "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let alice = "Bearer alice-token";
    let escalation = Request::create(format!("{root}/roles"), &wide);
    script.push(escalation.unauthenticated().header("authorization", alice));
    for resource in &catalog.resources {
        let collection = resource.collection();
        for bearer in ["", alice, "Bearer bob-token", "Bearer wrong"] {
            let list = Request::list(format!("{collection}?limit=1")).unauthenticated();
            script.push(list.header("authorization", bearer).verb("access"));
        }
        let request = Request::delete(format!("{collection}/absent")).unauthenticated().verb("access");
        script.push(request.header("authorization", alice));
        let impersonated = Request::get(format!("{collection}/absent")).verb("impersonation");
        script
            .push(impersonated.header("impersonate-user", "alice").header("impersonate-group", "developers"));
    }
    let maps = namespaced("configmaps");
    for headers in [
        vec![("impersonate-user", "bob"), ("impersonate-group", "system:masters")],
        vec![("impersonate-user", "system:serviceaccount:corpus:default")],
        vec![("impersonate-user", "system:anonymous")],
        vec![("impersonate-group", "developers")],
        vec![("impersonate-user", "alice"), ("impersonate-uid", "7"), ("impersonate-extra-a%2fb", "c")],
        vec![("impersonate-extra-scopes", "x")],
    ] {
        for bearer in ["", alice, "Bearer bob-token"] {
            let mut request = Request::list(maps.clone()).verb("impersonation");
            if !bearer.is_empty() {
                request = request.unauthenticated().header("authorization", bearer);
            }
            for (name, value) in &headers {
                request = request.header(name, value);
            }
            script.push(request);
        }
    }
    script
}

fn discovery(catalog: &Catalog) -> Script {
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let mut script = Script::default();
    let mut roots: Vec<String> = catalog.resources.iter().map(|resource| resource.root()).collect();
    roots.dedup();
    let mut push = |path: &str, media_type: &str, etag: &str| {
        let request = Request::get(path).verb("discovery").accept(media_type);
        script.push(request.header("if-none-match", etag));
    };
    for root in &roots {
        for media_type in [JSON, PROTOBUF, YAML, "application/json;as=Table", "text/plain"] {
            push(root, media_type, "");
        }
        for media_type in [JSON, "application/com.github.proto-openapi.spec.v3@v1.0+protobuf", "*/*", YAML] {
            push(&format!("/openapi/v3{root}"), media_type, "");
        }
        if let Some(group) = root.rsplit_once('/').filter(|_| root.starts_with("/apis/")) {
            push(group.0, JSON, "");
            push(group.0, PROTOBUF, "");
        }
    }
    for path in
        ["/api", "/apis", "/openapi/v3", "/openapi/v2", "/version", "/", "/.well-known/openid-configuration"]
    {
        for media_type in [JSON, PROTOBUF, YAML, AGGREGATED, "*/*", "text/html", ""] {
            push(path, media_type, "");
        }
        push(path, JSON, "\"nonsense\"");
        push(path, AGGREGATED, "W/\"x\", *");
    }
    push("/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "");
    push("/openapi/v3/api/v1?hash=nonsense", JSON, "");
    for path in
        ["/apis/absent", "/apis/apps/v9", "/apis/apps/v1/nonsense", "/openapi/v3/apis/absent/v1", "/api/v2"]
    {
        push(path, JSON, "");
    }
    script
}

/// What is no resource, and requests that cannot be understood.
fn paths() -> Script {
    let mut script = Script::default();
    for path in ["/healthz", "/livez", "/readyz"] {
        for rest in ["", "?verbose", "?exclude=ping", "/ping", "/absent", "?verbose&exclude=nonsense"] {
            script.push(Request::get(format!("{path}{rest}")).verb("health"));
            script.push(Request::get(format!("{path}{rest}")).verb("health").unauthenticated());
        }
    }
    script.push(Request::get("/metrics").verb("metrics"));
    script.push(Request::get("/metrics").verb("access").unauthenticated());
    let names = [
        "/metrics/slis",
        "/logs",
        "/debug/pprof/",
        "/configz",
        "/statusz",
        "/flagz",
        "/absent",
        "/apis/",
        "/api/v1/",
        "/api/v1/namespaces/",
        "//api//v1",
        "/api/v1/../v1",
        "/api/v1/%6eamespaces",
        "/api/v1/%zz",
        "/api/v1/namespaces/corpus/configmaps/a/b/c/d",
        "/api/v1/namespaces/corpus",
        "/api/v1/proxy/x",
        "/api/v1/componentstatuses",
        "/api/v1/componentstatuses/etcd-0",
        "/api/v1/nodes/absent/proxy",
        "/api/v1/namespaces/corpus/pods/absent/exec",
        "/api/v1/namespaces/corpus/pods/absent/log",
        "/api/v1/namespaces/corpus/services/absent/proxy/x",
        "/api/v1/configmaps/first",
        "/openapi",
        "/openid/v1/jwks",
    ];
    for path in names {
        for method in
            [Method::GET, Method::POST, Method::DELETE, Method::PATCH, Method::HEAD, Method::OPTIONS]
        {
            // The keys of service accounts' tokens are each server's own.
            if path != "/openid/v1/jwks" || method != Method::GET {
                script.push(Request::new("path", method.clone(), path));
            }
            script.push(Request::new("path", method, path).unauthenticated());
        }
    }
    let maps = namespaced("configmaps");
    for (name, value) in [
        ("content-encoding", "gzip"),
        ("content-encoding", "nonsense"),
        ("content-type", "application/json; charset=utf-8"),
        ("content-type", "nonsense"),
        ("accept", "application/json;q=0.1, application/yaml"),
        ("accept", "application/json;as=Nonsense;g=meta.k8s.io;v=v1"),
        ("accept", "application/json;as=Table;g=meta.k8s.io;v=v1beta1, application/json"),
        ("accept", "image/png, */*;q=0"),
        ("origin", "https://example.com"),
        ("x-http-method-override", "DELETE"),
        ("expect", "nonsense"),
        ("user-agent", "a name that is very long and has (comments) v1.2.3/4"),
    ] {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "headers"}});
        let request = Request::create(format!("{maps}?dryRun=All"), &object).verb("header");
        script.push(request.header(name, value));
        script.push(Request::list(maps.clone()).header(name, value).verb("header"));
    }
    for query in [
        "dryRun=All&dryRun=All", "fieldManager=", "pretty=nonsense", "fieldValidation=", "unknown=1", "=&&=",
        "fieldManager=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ] {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "query"}});
        script.push(Request::create(format!("{maps}?{query}"), &object));
        script.push(Request::delete(format!("{maps}/query?{query}")));
        script.push(Request::delete(format!("{maps}/query")));
    }
    let large = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"},
                       "data": {"a": "x".repeat(1_100_000)}});
    script.push(Request::create(maps.clone(), &large));
    let larger = Body::Bytes(vec![b' '; 4 << 20]);
    script.push(Request::create(maps, &large).body(JSON, larger));
    script
}

/// Every collection with what the server itself has created, in several encodings.
fn bootstrap_objects(catalog: &Catalog) -> Script {
    let mut script = Script::default();
    for resource in &catalog.resources {
        for media_type in [JSON, PROTOBUF, TABLE] {
            let path = format!("{}/{}", resource.root(), resource.plural);
            script.push(Request::list(path).accept(media_type));
        }
    }
    script
}
