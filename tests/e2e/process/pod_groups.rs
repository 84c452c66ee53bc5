//! Workloads and PodGroups: what they may be, what protects them, and the pods that refer to them.

use http::Request;
use kube::client::Body;
use plinth_tests::requests::{answer, create, send};
use plinth_tests::server::{client_of, launch, start_ready};
use serde_json::{json, Value};

const WORKLOADS: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/workloads";
const GROUPS: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";
const PODS: &str = "/api/v1/namespaces/default/pods";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const FLAGS: [&str; 2] = ["--runtime-config=api/all=true", "--feature-gates=GenericWorkload=true"];
const NULL: &Value = &Value::Null;

fn object(kind: &str, name: &str, spec: Value) -> Value {
    let metadata = json!({ "name": name });
    json!({ "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": kind, "metadata": metadata, "spec": spec })
}

fn group(name: &str, workload: Value) -> Value {
    let reference = if workload.is_null() { Value::Null } else { json!({ "workload": workload }) };
    object("PodGroup", name, json!({ "podGroupTemplateRef": reference, "schedulingPolicy": { "basic": {} } }))
}

fn template(name: &str) -> Value {
    json!({ "name": name, "schedulingPolicy": { "gang": { "minCount": 2 } }, "priority": 7,
        "disruptionMode": "PodGroup" })
}

#[tokio::test]
async fn groups_are_made_of_templates_and_protected() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let mut server = start_ready(&launch, dir.path(), &FLAGS).await;
    let client = client_of(&server.kubeconfig()).await;
    let workload = object("Workload", "w", json!({ "podGroupTemplates": [template("a")] }));
    let made = create(&client, WORKLOADS, &workload).await;
    let gang = json!({ "gang": { "minCount": 2 } });
    let kept = json!({ "name": "a", "schedulingPolicy": gang, "schedulingConstraints": null });
    assert_eq!(made["spec"]["podGroupTemplates"], json!([kept]));
    for (spec, fields) in [
        (json!({ "podGroupTemplates": [] }), &["spec.podGroupTemplates"][..]),
        (
            json!({ "podGroupTemplates": [template("a"), template("a")], "controllerRef": { "kind": "Job" } }),
            &["spec.controllerRef.name", "spec.podGroupTemplates[1]"],
        ),
    ] {
        let refused = send(&client, "POST", WORKLOADS, &object("Workload", "bad", spec)).await;
        assert_eq!((refused.code, refused.fields()), (422, fields.to_vec()), "{}", refused.text);
    }
    let other = json!({ "spec": { "podGroupTemplates": [template("b")] } });
    let refused = send(&client, "MERGE", &format!("{WORKLOADS}/w"), &other).await;
    assert_eq!((refused.code, refused.fields()), (422, vec!["spec.podGroupTemplates"]), "{}", refused.text);

    let reference = |workload: &str, template: &str| json!({ "workloadName": workload, "podGroupTemplateName": template });
    for (workload, template, why) in [
        ("none", "a", "PodGroup rejected: Workload \\\"none\\\" not found"),
        ("w", "b", "PodGroup rejected: PodGroupTemplate \\\"b\\\" not found in Workload \\\"w\\\""),
    ] {
        let refused = send(&client, "POST", GROUPS, &group("g", reference(workload, template))).await;
        assert!(refused.code == 403 && refused.text.contains(why), "{}", refused.text);
    }
    let mut full = group("g", reference("w", "a"));
    full["spec"]["priority"] = json!(7);
    full["spec"]["disruptionMode"] = json!("PodGroup");
    full["status"] = json!({ "conditions": [] });
    let made = create(&client, GROUPS, &full).await;
    let kept = json!({ "podGroupTemplateRef": { "workload": reference("w", "a") },
        "schedulingPolicy": { "basic": {} }, "disruptionMode": "Pod" });
    assert_eq!((&made["spec"], &made["status"]), (&kept, &json!({})));
    assert_eq!(made["metadata"]["finalizers"], json!(["scheduling.k8s.io/podgroup-protection"]));
    let path = format!("{GROUPS}/g");
    let refused = send(&client, "MERGE", &path, &json!({ "spec": { "disruptionMode": "PodGroup" } })).await;
    assert_eq!((refused.code, refused.fields()), (422, vec!["spec.disruptionMode"]), "{}", refused.text);

    let scheduled = json!([{ "type": "PodGroupScheduled", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    let claims = json!([{ "name": "c", "resourceClaimName": "d" }]);
    let status = json!({ "status": { "conditions": scheduled, "resourceClaimStatuses": claims } });
    let written = send(&client, "MERGE", &format!("{path}/status"), &status).await;
    assert_eq!((written.code, &written.body["status"]), (200, &json!({ "conditions": scheduled })));
    let bad = json!({ "status": { "conditions": [{ "type": "X", "status": "maybe" }] } });
    assert_eq!(send(&client, "MERGE", &format!("{path}/status"), &bad).await.code, 422);

    let table = Request::get(GROUPS).header("accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
    let table = answer(&client, table.body(Body::empty()).expect("request")).await.body;
    assert_eq!(
        table["rows"][0]["cells"].as_array().map(|cells| json!(cells[..4])),
        Some(json!(["g", "Basic", "w", "Scheduled"]))
    );
    assert_eq!(send(&client, "DELETE", &path, NULL).await.code, 200);
    let deleted = send(&client, "GET", &path, NULL).await;
    assert!(
        deleted.code == 200 && !deleted.text_at("/metadata/deletionTimestamp").is_empty(),
        "{}",
        deleted.text
    );

    let role = |name: &str| format!("{ROLES}/{name}");
    for (name, rule) in [
        ("system:controller:podgroup-protection-controller", "\"podgroups\""),
        ("system:kube-scheduler", "\"podgroups/status\""),
        ("system:aggregate-to-view", "\"podgroups/status\""),
        ("system:aggregate-to-edit", "\"workloads\""),
    ] {
        let found = send(&client, "GET", &role(name), NULL).await;
        assert!(found.code == 200 && found.text.contains(rule), "{name} {}", found.text);
    }
    server.terminate().await.expect("end");
}

/// The reference of pods is kept with the gate, and validated; without it, it is dropped.
#[tokio::test]
async fn pods_refer_to_groups_with_the_gate() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let pod = |name: &str, group: Value| {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": { "containers": [{ "name": "c", "image": "i" }], "schedulingGroup": group } })
    };
    let of_group = || json!({ "podGroupName": "g" });
    let mut server = start_ready(&launch, dir.path(), &FLAGS).await;
    let client = client_of(&server.kubeconfig()).await;
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
    send(&client, "POST", "/api/v1/namespaces/default/serviceaccounts", &account).await;
    assert_eq!(create(&client, PODS, &pod("p", of_group())).await["spec"]["schedulingGroup"], of_group());
    for bad in [json!({}), json!({ "podGroupName": "A" })] {
        let refused = send(&client, "POST", PODS, &pod("bad", bad)).await;
        let fields = vec!["spec.schedulingGroup.podGroupName"];
        assert_eq!((refused.code, refused.fields()), (422, fields), "{}", refused.text);
    }
    let other = json!({ "spec": { "schedulingGroup": { "podGroupName": "h" } } });
    let refused = send(&client, "MERGE", &format!("{PODS}/p"), &other).await;
    assert_eq!((refused.code, refused.fields()), (422, vec!["spec"]), "{}", refused.text);
    server.terminate().await.expect("end");

    let mut server = start_ready(&launch, dir.path(), &["--runtime-config=api/all=true"]).await;
    let client = client_of(&server.kubeconfig()).await;
    for path in [WORKLOADS, GROUPS] {
        assert_eq!(send(&client, "GET", path, NULL).await.code, 404, "{path}");
    }
    assert_eq!(create(&client, PODS, &pod("q", of_group())).await["spec"]["schedulingGroup"], NULL.clone());
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    let changed = send(&client, "MERGE", &format!("{PODS}/p"), &labels).await;
    assert_eq!(
        (changed.code, &changed.body["spec"]["schedulingGroup"]),
        (200, &of_group()),
        "{}",
        changed.text
    );
    server.terminate().await.expect("end");
}
