//! Workloads: Pods with their subresources, Services with their allocations, and merges of nested lists.

use serde_json::{json, Value};

use super::kinds::NAMESPACE;
use super::script::{
    merge, Request, Script, JSON, JSON_PATCH, MERGE_PATCH, PROTOBUF, STRATEGIC_PATCH, TABLE, YAML,
};

/// The path of a collection of the core group in the corpus' namespace.
pub(crate) fn namespaced(plural: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/{plural}")
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "pods"}},
           "spec": {"containers": [{"name": "main", "image": "registry.example/main:1",
               "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1"}},
               "env": [{"name": "A", "value": "b"}], "ports": [{"containerPort": 80}]}]}})
}

/// Binding, eviction, resizing, ephemeral containers, status and deletion of Pods.
pub(crate) fn pods() -> Script {
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
    let eviction = |name: &str, options: Value| {
        json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": name}, "deleteOptions": options})
    };
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

/// Services of every type, with addresses and node ports that are chosen or allocated.
pub(crate) fn services() -> Script {
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
        merge(&mut object, &json!({"spec": spec}));
        let path = format!("{services}/service");
        script.push(Request::create(format!("{services}?dryRun=All"), &object));
        script.push(Request::create(services.clone(), &object));
        script.push(Request::get(path.clone()));
        script.push(Request::get(path.clone()).accept(YAML));
        for change in [
            json!({"spec": {"type": "NodePort"}}),
            json!({"spec": {"type": "ClusterIP"}}),
            json!({"spec": {"clusterIP": "10.0.0.6"}}),
            json!({"spec": {"type": "ExternalName", "externalName": "a.b", "clusterIP": null,
                "clusterIPs": null}}),
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
pub(crate) fn merge_lists() -> Script {
    let mut script = Script::default();
    let deployments = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
    let path = format!("{deployments}/lists");
    let template = json!({"metadata": {"labels": {"app": "lists"}}, "spec": {
        "containers": [{"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}, {"name": "Y",
            "value": "2"}],
                        "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]},
                       {"name": "b", "image": "b:1"}],
        "volumes": [{"name": "v", "emptyDir": {}}]}});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "lists"},
                        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "lists"}},
                            "template": template}});
    script.push(Request::create(deployments, &object));
    let in_spec = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    for patch in [
        in_spec(json!({"containers": [{"name": "a", "image": "a:2"}]})),
        in_spec(json!({"containers": [{"name": "c", "image": "c:1"}]})),
        in_spec(json!({"containers": [{"name": "b", "$patch": "delete"}]})),
        in_spec(json!({"containers": [{"image": "nameless"}]})),
        in_spec(json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
                       "containers": [{"name": "a", "image": "a:3"}]})),
        in_spec(json!({"$setElementOrder/containers": [{"name": "c"}], "containers": [{"name": "a",
                "image": "x"}]})),
        in_spec(json!({"containers": [{"name": "a", "env": [{"name": "X", "$patch": "delete"}]}]})),
        in_spec(json!({"containers": [{"name": "a", "env": [{"$patch": "replace"}, {"name": "Z",
                "value": "3"}]}]})),
        in_spec(json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "web"}]}]})),
        in_spec(json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"],
                "hostPath": {"path": "/x"}}]})),
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
