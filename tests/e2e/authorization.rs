//! Who may do what: roles and bindings, what they give and refuse, reviews, nodes, and what survives a restart.

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use plinth_benches::api::client::Protocol;
use plinth_tests::kubectl::Kubectl;
use plinth_tests::samples;
use plinth_tests::server::{launch, namespace, shared, unique, Access, TestServer};
use serde_json::{json, Value};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const GROUP: &str = "rbac.authorization.k8s.io";

/// A request as somebody: a user and its groups, or the administrator for no name.
async fn ask(
    access: &Access,
    (user, groups): (&str, &[&str]),
    method: Method,
    path: &str,
    body: Value,
) -> (StatusCode, Value) {
    let mut connection = access.connect(Protocol::Http1).await;
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    if !user.is_empty() {
        request = request.header("impersonate-user", user);
    }
    for group in groups {
        request = request.header("impersonate-group", *group);
    }
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = request.body(Full::new(bytes::Bytes::from(body))).expect("request");
    let response = connection.send(request, path).await.expect("answer");
    let status = response.status();
    let body = response.collect().await.expect("body").to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

async fn admin(access: &Access, method: Method, path: &str, body: Value) -> Value {
    let (status, answer) = ask(access, ("", &[]), method, path, body).await;
    assert!(status.is_success(), "{path}: {status} {answer}");
    answer
}

async fn get(access: &Access, user: &str, path: &str) -> (u16, String) {
    let (status, answer) = ask(access, (user, &[]), Method::GET, path, Value::Null).await;
    (status.as_u16(), answer["message"].as_str().unwrap_or_default().to_owned())
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs })
}

fn binding(name: &str, (role_kind, role): (&str, &str), user: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": GROUP, "kind": role_kind, "name": role },
        "subjects": [{ "apiGroup": GROUP, "kind": "User", "name": user }],
    })
}

#[tokio::test]
async fn a_binding_counts_for_the_next_request() {
    let access = shared().await;
    let namespace = namespace(&access.client().await, "at-once").await;
    let (roles, bindings) = (
        format!("{RBAC}/namespaces/{namespace}/roles"),
        format!("{RBAC}/namespaces/{namespace}/rolebindings"),
    );
    let (pods, user) = (format!("/api/v1/namespaces/{namespace}/pods"), unique("at-once-user"));
    let role = json!({ "metadata": { "name": "reader" }, "rules": [rule("", "pods", &["list"])] });
    admin(access, Method::POST, &roles, role).await;
    for round in 0..20 {
        assert_eq!(get(access, &user, &pods).await.0, 403, "before, round {round}");
        admin(access, Method::POST, &bindings, binding("b", ("Role", "reader"), &user)).await;
        assert_eq!(get(access, &user, &pods).await.0, 200, "bound, round {round}");
        admin(access, Method::DELETE, &format!("{bindings}/b"), Value::Null).await;
    }
    // A change of the role counts as soon.
    admin(access, Method::POST, &bindings, binding("b", ("Role", "reader"), &user)).await;
    let less = json!({ "metadata": { "name": "reader" }, "rules": [rule("", "secrets", &["list"])] });
    admin(access, Method::PUT, &format!("{roles}/reader"), less).await;
    assert_eq!(get(access, &user, &pods).await.0, 403);
    assert_eq!(get(access, &user, &format!("/api/v1/namespaces/{namespace}/secrets")).await.0, 200);
}

#[tokio::test]
async fn denials_say_who_cannot_do_what() {
    let access = shared().await;
    let namespace = namespace(&access.client().await, "denials").await;
    let user = unique("denied");
    let rows = [
        (
            format!("/api/v1/namespaces/{namespace}/pods"),
            format!("pods is forbidden: User \"{user}\" cannot list resource \"pods\" in API group \"\" in the namespace \"{namespace}\""),
        ),
        (
            format!("/apis/apps/v1/namespaces/{namespace}/deployments/web/scale"),
            format!("deployments.apps \"web\" is forbidden: User \"{user}\" cannot get resource \"deployments/scale\" in API group \"apps\" in the namespace \"{namespace}\""),
        ),
        (
            "/api/v1/nodes?watch=1".to_owned(),
            format!("nodes is forbidden: User \"{user}\" cannot watch resource \"nodes\" in API group \"\" at the cluster scope"),
        ),
        ("/metrics".to_owned(), format!("forbidden: User \"{user}\" cannot get path \"/metrics\"")),
    ];
    for (path, message) in rows {
        assert_eq!(get(access, &user, &path).await, (403, message), "{path}");
    }
    // A binding of a role that is not there says so.
    let bindings = format!("{RBAC}/namespaces/{namespace}/rolebindings");
    admin(access, Method::POST, &bindings, binding("lost", ("Role", "gone"), &user)).await;
    let (code, message) = get(access, &user, &format!("/api/v1/namespaces/{namespace}/pods")).await;
    assert_eq!(code, 403);
    assert!(message.ends_with(": RBAC: role.rbac.authorization.k8s.io \"gone\" not found"), "{message}");
}

#[tokio::test]
async fn names_and_subresources_limit_a_rule() {
    let access = shared().await;
    let namespace = namespace(&access.client().await, "names").await;
    let user = unique("named");
    let mut named = rule("", "configmaps", &["get", "list", "watch", "delete", "deletecollection"]);
    named["resourceNames"] = json!(["mine"]);
    let role = json!({ "metadata": { "name": "r" }, "rules": [named, rule("apps", "*/scale", &["get"])] });
    admin(access, Method::POST, &format!("{RBAC}/namespaces/{namespace}/roles"), role).await;
    let bindings = format!("{RBAC}/namespaces/{namespace}/rolebindings");
    admin(access, Method::POST, &bindings, binding("b", ("Role", "r"), &user)).await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    for name in ["mine", "other"] {
        admin(access, Method::POST, &maps, json!({ "metadata": { "name": name } })).await;
    }
    let rows = [
        (format!("{maps}/mine"), 200),
        (format!("{maps}/other"), 403),
        (maps.clone(), 403),
        (format!("{maps}?fieldSelector=metadata.name%3Dmine"), 200),
        (format!("{maps}?fieldSelector=metadata.name%3Dother"), 403),
        // Allowed, and not there.
        (format!("/apis/apps/v1/namespaces/{namespace}/deployments/web/scale"), 404),
        (format!("/apis/apps/v1/namespaces/{namespace}/deployments/web"), 403),
    ];
    for (path, code) in rows {
        assert_eq!(get(access, &user, &path).await.0, code, "{path}");
    }
    // What is authorized is what is listed: a selector that only one of both can read opens nothing.
    let mine = "fieldSelector=metadata.name%3Dmine";
    let rows = [
        (format!("{mine},metadata.namespace!%3D%zz"), 403),
        (format!("{mine},metadata.namespace!%3Dx;y"), 403),
        (format!("{mine}%"), 403),
        (format!("{mine};"), 403),
        (format!("watch=1&timeoutSeconds=1&{mine},metadata.namespace!%3D%zz"), 403),
        (format!("a=b;{mine}"), 403),
        (format!("fieldSelector=metadata.name%3Dother&{mine}"), 403),
        (format!("{mine}&fieldSelector=metadata.name%3Dother"), 200),
        (format!("fieldSelector=%zz&{mine}"), 200),
        ("fieldS%65lector=metadata.name%3Dmine&fieldSelector=".to_owned(), 200),
        (format!("{mine},metadata.name%3Dother"), 200),
    ];
    for (query, code) in rows {
        let path = format!("{maps}?{query}");
        let (status, list) = ask(access, (&user, &[]), Method::GET, &path, Value::Null).await;
        assert_eq!(status.as_u16(), code, "{path}: {list}");
        let items = list["items"].as_array().cloned().unwrap_or_default();
        assert!(items.iter().all(|item| item["metadata"]["name"] == "mine"), "{path}: {list}");
    }
    // A name stands for a collection that is read, not for one that is deleted.
    let path = format!("{maps}?{mine}");
    let (status, answer) = ask(access, (&user, &[]), Method::DELETE, &path, Value::Null).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
}

#[tokio::test]
async fn nobody_grants_more_than_they_have() {
    let access = shared().await;
    let namespace = namespace(&access.client().await, "escalation").await;
    let carol = unique("carol");
    let (roles, bindings) = (
        format!("{RBAC}/namespaces/{namespace}/roles"),
        format!("{RBAC}/namespaces/{namespace}/rolebindings"),
    );
    let own = json!({ "metadata": { "name": "own" }, "rules": [
        rule(GROUP, "roles", &["create", "update", "get", "patch"]),
        rule(GROUP, "rolebindings", &["create", "update", "get"]),
        rule("", "pods", &["get"]),
    ] });
    admin(access, Method::POST, &roles, own).await;
    admin(access, Method::POST, &bindings, binding("own", ("Role", "own"), &carol)).await;
    let as_carol = |method, path: String, body| {
        let carol = carol.clone();
        async move { ask(access, (&carol, &[]), method, &path, body).await }
    };
    let held = json!({ "metadata": { "name": "held" }, "rules": [rule("", "pods", &["get"])] });
    assert_eq!(as_carol(Method::POST, roles.clone(), held.clone()).await.0, StatusCode::CREATED);
    let mut more = held.clone();
    more["rules"] = json!([rule("", "pods", &["get", "list"]), rule("", "secrets", &["get"])]);
    let missing = |what: &str, name: &str| {
        format!("{what}.{GROUP} \"{name}\" is forbidden: user \"{carol}\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n")
    };
    let expected = missing("roles", "held")
        + "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}";
    let (status, answer) = as_carol(Method::PUT, format!("{roles}/held"), more).await;
    assert_eq!((status.as_u16(), answer["message"].as_str()), (403, Some(expected.as_str())));
    let (status, answer) =
        as_carol(Method::POST, bindings.clone(), binding("up", ("ClusterRole", "cluster-admin"), &carol))
            .await;
    let expected = missing("rolebindings", "up")
        + "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}";
    assert_eq!((status.as_u16(), answer["message"].as_str()), (403, Some(expected.as_str())));
    assert_eq!(as_carol(Method::POST, bindings.clone(), binding("held", ("Role", "held"), "x")).await.0, 201);
    let (status, answer) =
        as_carol(Method::POST, bindings.clone(), binding("no", ("Role", "gone"), "x")).await;
    assert_eq!((status.as_u16(), answer["details"]["kind"].as_str()), (404, Some("rolebindings")));

    // With the verb bind on that one role she may.
    let mut bind = rule(GROUP, "clusterroles", &["bind"]);
    bind["resourceNames"] = json!(["view"]);
    admin(access, Method::POST, &roles, json!({ "metadata": { "name": "binder" }, "rules": [bind] })).await;
    admin(access, Method::POST, &bindings, binding("binder", ("Role", "binder"), &carol)).await;
    assert_eq!(
        as_carol(Method::POST, bindings.clone(), binding("v", ("ClusterRole", "view"), "x")).await.0,
        201
    );
    let (status, _) =
        as_carol(Method::POST, bindings.clone(), binding("e", ("ClusterRole", "edit"), "x")).await;
    assert_eq!(status, 403);

    // What a binding grants to whom changes, what it grants never.
    let mut other = binding("v", ("ClusterRole", "edit"), "x");
    other["metadata"]["namespace"] = json!(namespace);
    let (status, answer) = ask(access, ("", &[]), Method::PUT, &format!("{bindings}/v"), other).await;
    assert_eq!((status.as_u16(), answer["details"]["causes"][0]["field"].as_str()), (422, Some("roleRef")));
}

#[tokio::test]
async fn small_roles_that_stand_for_billions_of_permissions_are_decided() {
    let access = shared().await;
    let namespace = namespace(&access.client().await, "products").await;
    let carol = unique("carol");
    let (roles, bindings) = (
        format!("{RBAC}/namespaces/{namespace}/roles"),
        format!("{RBAC}/namespaces/{namespace}/rolebindings"),
    );
    let own = json!({ "metadata": { "name": "own" }, "rules": [
        rule(GROUP, "roles", &["create"]), rule("", "pods", &["get"]),
    ] });
    admin(access, Method::POST, &roles, own).await;
    admin(access, Method::POST, &bindings, binding("own", ("Role", "own"), &carol)).await;
    let create = |rules: Value| {
        let role = json!({ "metadata": { "name": unique("product") }, "rules": [rules] });
        ask(access, (&carol, &[]), Method::POST, &roles, role)
    };
    let repeated = |text: &str| vec![text.to_owned(); 3000];
    let distinct = |prefix: &str| (0..300).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>();

    let held = json!({ "apiGroups": repeated(""), "resources": repeated("pods"), "verbs": repeated("get"), "resourceNames": distinct("n") });
    let (status, answer) = create(held).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let missing =
        json!({ "apiGroups": repeated(""), "resources": repeated("pods"), "verbs": repeated("list") });
    let (status, answer) = create(missing).await;
    let message = answer["message"].as_str().unwrap_or_default();
    assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
    assert!(
        message.ends_with("not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}"),
        "{message}"
    );
    let missing = json!({ "apiGroups": distinct("g"), "resources": distinct("r"), "verbs": distinct("v"), "resourceNames": distinct("n") });
    let (status, answer) = create(missing).await;
    let message = answer["message"].as_str().unwrap_or_default();
    assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
    assert!(message.ends_with("\nand others") && message.len() < 1 << 20, "{} bytes", message.len());
}

#[tokio::test]
async fn aggregated_roles_follow() {
    let access = shared().await;
    let (part, sum, label) = (unique("part"), unique("sum"), unique("gather"));
    let roles = format!("{RBAC}/clusterroles");
    let aggregated = json!({ "metadata": { "name": sum }, "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { &label: "yes" } }] } });
    admin(access, Method::POST, &roles, aggregated).await;
    let rules = async |expected: Value| {
        let mut found = Value::Null;
        for _ in 0..500 {
            found = admin(access, Method::GET, &format!("{roles}/{sum}"), Value::Null).await["rules"].take();
            if found == expected || (found.is_null() && expected == json!([])) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("the rules are {found}, not {expected}");
    };
    let one = rule("example.com", "things", &["get"]);
    admin(
        access,
        Method::POST,
        &roles,
        json!({ "metadata": { "name": part, "labels": { &label: "yes" } }, "rules": [one] }),
    )
    .await;
    rules(json!([one])).await;
    let two = rule("example.com", "others", &["get"]);
    admin(
        access,
        Method::PUT,
        &format!("{roles}/{part}"),
        json!({ "metadata": { "name": part, "labels": { &label: "yes" } }, "rules": [two] }),
    )
    .await;
    rules(json!([two])).await;
    admin(access, Method::DELETE, &format!("{roles}/{part}"), Value::Null).await;
    rules(json!([])).await;
    admin(access, Method::DELETE, &format!("{roles}/{sum}"), Value::Null).await;
}

#[tokio::test]
async fn reviews_answer_for_others_and_oneself() {
    let access = shared().await;
    let namespace = namespace(&access.client().await, "reviews").await;
    let user = unique("reviewed");
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let pods = json!({ "verb": "get", "resource": "pods", "namespace": namespace });
    let review =
        async |spec: Value| admin(access, Method::POST, path, json!({ "spec": spec })).await["status"].take();
    assert_eq!(
        review(json!({ "user": user, "resourceAttributes": pods })).await,
        json!({ "allowed": false })
    );
    let bindings = format!("{RBAC}/namespaces/{namespace}/rolebindings");
    admin(access, Method::POST, &bindings, binding("v", ("ClusterRole", "view"), &user)).await;
    let reason =
        format!("RBAC: allowed by RoleBinding \"v/{namespace}\" of ClusterRole \"view\" to User \"{user}\"");
    let allowed = json!({ "allowed": true, "reason": reason });
    assert_eq!(review(json!({ "user": user, "resourceAttributes": pods })).await, allowed);
    let local = format!("/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews");
    let spec = json!({ "spec": { "user": user, "resourceAttributes": pods } });
    assert_eq!(admin(access, Method::POST, &local, spec).await["status"], allowed);
    let health = json!({ "user": user, "groups": ["system:unauthenticated"], "nonResourceAttributes": { "verb": "get", "path": "/healthz" } });
    assert_eq!(review(health).await["reason"], "RBAC: allowed by ClusterRoleBinding \"system:public-info-viewer\" of ClusterRole \"system:public-info-viewer\" to Group \"system:unauthenticated\"");
    let masters = json!({ "user": "x", "groups": ["system:masters"], "resourceAttributes": { "verb": "*", "resource": "*", "group": "*" } });
    assert_eq!(review(masters).await, json!({ "allowed": true }));
    let unread = json!({ "user": user, "resourceAttributes": { "verb": "list", "resource": "pods", "namespace": namespace, "labelSelector": { "rawSelector": "a in (" } } });
    assert_eq!(
        review(unread).await["evaluationError"],
        "spec.resourceAttributes.labelSelector ignored due to parse error"
    );
    // What cannot be asked.
    let rows = [
        (json!({ "user": "x" }), "spec.resourceAttributes", "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"),
        (json!({ "resourceAttributes": pods }), "spec.user", "Invalid value: \"\": at least one of user or group must be specified"),
        (
            json!({ "user": "x", "resourceAttributes": pods, "nonResourceAttributes": { "path": "/x" } }),
            "spec.nonResourceAttributes",
            "Invalid value: {\"Path\":\"/x\",\"Verb\":\"\"}: cannot be specified in combination with resourceAttributes",
        ),
        (
            json!({ "user": "x", "resourceAttributes": { "fieldSelector": {} } }),
            "spec.resourceAttributes.fieldSelector.requirements",
            "Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required",
        ),
    ];
    for (spec, field, message) in rows {
        let (status, answer) = ask(access, ("", &[]), Method::POST, path, json!({ "spec": spec })).await;
        let cause = &answer["details"]["causes"][0];
        assert_eq!(
            (status.as_u16(), cause["field"].as_str(), cause["message"].as_str()),
            (422, Some(field), Some(message))
        );
    }
}

#[tokio::test]
async fn kubectl_auth_can_i() {
    let access = shared().await;
    let Some(kubectl) = Kubectl::find("kubectl auth can-i", access.kubeconfig()) else { return };
    let namespace = namespace(&access.client().await, "can-i").await;
    let user = unique("asker");
    let can_i = |what: &str| kubectl.run(&format!("auth can-i {what} -n {namespace} --as {user}"));
    let no = can_i("list deployments.apps");
    assert_eq!((no.status.code(), String::from_utf8_lossy(&no.stdout).trim()), (Some(1), "no"));
    kubectl.ok(&format!("create role r -n {namespace} --verb=list,get --resource=deployments.apps"));
    kubectl.ok(&format!("create rolebinding r -n {namespace} --role=r --user={user}"));
    let yes = can_i("list deployments.apps");
    assert_eq!((yes.status.code(), String::from_utf8_lossy(&yes.stdout).trim()), (Some(0), "yes"));
    assert_eq!(can_i("delete deployments.apps").status.code(), Some(1));
    assert_eq!(can_i("get /healthz").status.code(), Some(0));
    let list = kubectl.ok(&format!("auth can-i --list -n {namespace} --as {user}"));
    let row = list.lines().find(|line| line.starts_with("deployments.apps")).expect("a row of deployments");
    assert!(row.contains("[get list]") || row.contains("[list get]"), "{row}");
    assert!(
        list.lines().any(|line| line.starts_with("selfsubjectaccessreviews.authorization.k8s.io")),
        "{list}"
    );
    assert_eq!(kubectl.ok("auth can-i * *").trim(), "yes");
    let denied = kubectl.fails(&format!("get deployments -n {namespace}-x --as {user}"));
    assert!(denied.contains("cannot list resource \"deployments\" in API group \"apps\""), "{denied}");
}

#[tokio::test]
async fn a_node_reads_what_its_pods_need() {
    let access = shared().await;
    let namespace = namespace(&access.client().await, "nodes").await;
    let (node, other) = (unique("node"), unique("node"));
    let name = format!("system:node:{node}");
    let as_node = |method, path: String, body| {
        let name = name.clone();
        async move { ask(access, (&name, &["system:nodes"]), method, &path, body).await }
    };
    let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
    for secret in ["used", "unused"] {
        admin(access, Method::POST, &secrets, json!({ "metadata": { "name": secret } })).await;
    }
    let read = |secret: &str| as_node(Method::GET, format!("{secrets}/{secret}"), Value::Null);
    let (status, answer) = read("used").await;
    let reason = format!("no relationship found between node '{node}' and this object");
    assert_eq!(status, 403);
    assert!(answer["message"].as_str().unwrap_or_default().ends_with(&reason), "{answer}");
    let pod = json!({ "metadata": { "name": "web" }, "spec": {
        "nodeName": node,
        "containers": [{ "name": "c", "image": "i" }],
        "volumes": [{ "name": "v", "secret": { "secretName": "used" } }],
    } });
    admin(access, Method::POST, &format!("/api/v1/namespaces/{namespace}/pods"), pod).await;
    assert_eq!((read("used").await.0, read("unused").await.0), (StatusCode::OK, StatusCode::FORBIDDEN));
    assert_eq!(as_node(Method::GET, secrets.clone(), Value::Null).await.0, 403);
    let of = |node: &str| format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
    assert_eq!(as_node(Method::GET, of(&node), Value::Null).await.0, 200);
    assert_eq!(as_node(Method::GET, of(&other), Value::Null).await.0, 403);

    // It registers itself, and itself alone.
    let own = |name: &str, labels: Value| json!({ "metadata": { "name": name, "labels": labels } });
    let nodes = "/api/v1/nodes";
    let (status, answer) = as_node(Method::POST, nodes.into(), own(&other, json!({}))).await;
    let denied =
        format!("nodes \"{other}\" is forbidden: node \"{node}\" is not allowed to modify node \"{other}\"");
    assert_eq!((status.as_u16(), answer["message"].as_str()), (403, Some(denied.as_str())));
    let labels = json!({ "node-restriction.kubernetes.io/a": "x", "kubernetes.io/os": "linux" });
    let (status, answer) = as_node(Method::POST, nodes.into(), own(&node, labels)).await;
    let denied = format!("nodes \"{node}\" is forbidden: node \"{node}\" is not allowed to set the following labels: node-restriction.kubernetes.io/a");
    assert_eq!((status.as_u16(), answer["message"].as_str()), (403, Some(denied.as_str())));
    let labels = json!({ "kubernetes.io/os": "linux" });
    assert_eq!(as_node(Method::POST, nodes.into(), own(&node, labels)).await.0, 201);
    let patch = json!({ "spec": { "taints": [] }, "metadata": { "labels": { "k8s.io/x": "y" } } });
    let mut connection = access.connect(Protocol::Http1).await;
    let path = format!("{nodes}/{node}");
    let request = Request::patch(&path)
        .header("content-type", "application/merge-patch+json")
        .header("impersonate-user", &name)
        .header("impersonate-group", "system:nodes")
        .body(Full::new(bytes::Bytes::from(patch.to_string())))
        .expect("request");
    let response = connection.send(request, &path).await.expect("answer");
    assert_eq!(response.status(), 403);
    // A pod that is no mirror of its own is not the node's to make.
    let pod = json!({ "metadata": { "name": "own" }, "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] } });
    let (status, answer) = as_node(Method::POST, format!("/api/v1/namespaces/{namespace}/pods"), pod).await;
    assert_eq!(status, 403);
    let why = format!("pod does not have \"kubernetes.io/config.mirror\" annotation, node \"{node}\" can only create mirror pods");
    assert!(answer["message"].as_str().unwrap_or_default().ends_with(&why), "{answer}");
}

#[tokio::test]
async fn approving_takes_the_signer_too() {
    let access = shared().await;
    let (user, name, role) = (unique("approver"), unique("csr"), unique("approvers"));
    let sample = samples::of("certificates.k8s.io/v1", "CertificateSigningRequest", &name, "");
    let mut csr = serde_json::to_value(sample).expect("JSON");
    csr["spec"]["signerName"] = json!("example.com/mine");
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let csr = admin(access, Method::POST, requests, csr).await;
    let mut approved = csr.clone();
    approved["status"]["conditions"] =
        json!([{ "type": "Approved", "status": "True", "reason": "r", "message": "m" }]);
    let rules = |extra: Option<Value>| {
        let update = rule("certificates.k8s.io", "certificatesigningrequests/approval", &["update"]);
        json!({ "metadata": { "name": role }, "rules": std::iter::once(update).chain(extra).collect::<Vec<_>>() })
    };
    let roles = format!("{RBAC}/clusterroles");
    admin(access, Method::POST, &roles, rules(None)).await;
    let bindings = format!("{RBAC}/clusterrolebindings");
    admin(access, Method::POST, &bindings, binding(&role, ("ClusterRole", &role), &user)).await;
    let path = format!("{requests}/{name}/approval");
    let (status, answer) = ask(access, (&user, &[]), Method::PUT, &path, approved.clone()).await;
    let why = "user not permitted to approve requests with signerName \"example.com/mine\"";
    assert_eq!(status, 403, "{answer}");
    assert!(answer["message"].as_str().unwrap_or_default().ends_with(why), "{answer}");
    let mut approve = rule("certificates.k8s.io", "signers", &["approve"]);
    approve["resourceNames"] = json!(["example.com/*"]);
    admin(access, Method::PUT, &format!("{roles}/{role}"), rules(Some(approve))).await;
    let (status, answer) = ask(access, (&user, &[]), Method::PUT, &path, approved).await;
    assert_eq!(status, 200, "{answer}");
    admin(access, Method::DELETE, &format!("{bindings}/{role}"), Value::Null).await;
    admin(access, Method::DELETE, &format!("{roles}/{role}"), Value::Null).await;
}

#[tokio::test]
async fn a_certificate_for_one_namespace_holds_over_restarts() {
    let mut server = TestServer::start(&[]).await;
    let Some(admin) = Kubectl::find("a user's certificate", server.kubeconfig()) else { return };
    let file = admin.home().join("jane.kubeconfig");
    let issued = launch()
        .command(["kubeconfig", "--user", "jane", "--group", "dev", "--data-dir"])
        .arg(server.data())
        .arg("--to")
        .arg(&file)
        .output()
        .expect("plinth kubeconfig");
    assert!(issued.status.success(), "{}", String::from_utf8_lossy(&issued.stderr));
    let jane = Kubectl::find("a user's certificate", &file).expect("kubectl");
    admin.ok("create namespace team");
    admin.ok("create rolebinding dev -n team --clusterrole=edit --group=dev");
    // The rules of edit are gathered in the background at the first start.
    for _ in 0..500 {
        if admin.run("auth can-i create pods -n team --as jane --as-group dev").status.success() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    for round in ["before", "after"] {
        jane.ok("get pods -n team");
        jane.ok(&format!("create configmap {round} -n team --from-literal=a=1"));
        let denied = jane.fails("get pods -n default");
        let expected = "Error from server (Forbidden): pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"";
        assert_eq!(denied.trim(), expected, "{round}");
        jane.fails("get nodes");
        jane.fails("create rolebinding more -n team --clusterrole=admin --user=jane");
        if round == "before" {
            server.terminate().await;
            server.restart().await;
        }
    }
}

#[tokio::test]
async fn bootstrap_policy_is_put_right_at_start() {
    let mut server = TestServer::start(&[]).await;
    let count = async |server: &TestServer, plural: &str| {
        let list = admin(server, Method::GET, &format!("{RBAC}/{plural}"), Value::Null).await;
        list["items"].as_array().map_or(0, Vec::len)
    };
    let before = [count(&server, "clusterroles").await, count(&server, "clusterrolebindings").await];
    assert_eq!(before, [69, 50]);
    assert_eq!([count(&server, "roles").await, count(&server, "rolebindings").await], [7, 7]);
    admin(&server, Method::DELETE, &format!("{RBAC}/clusterroles/system:discovery"), Value::Null).await;
    admin(&server, Method::DELETE, &format!("{RBAC}/clusterrolebindings/system:basic-user"), Value::Null)
        .await;
    let viewer = format!("{RBAC}/clusterrolebindings/system:public-info-viewer");
    let mut object = admin(&server, Method::GET, &viewer, Value::Null).await;
    object["subjects"] = json!([{ "apiGroup": GROUP, "kind": "User", "name": "own" }]);
    admin(&server, Method::PUT, &viewer, object).await;
    let basic = format!("{RBAC}/clusterroles/system:basic-user");
    let mut object = admin(&server, Method::GET, &basic, Value::Null).await;
    object["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] = json!("false");
    object["rules"] = json!([]);
    admin(&server, Method::PUT, &basic, object).await;
    server.terminate().await;
    server.restart().await;
    assert_eq!([count(&server, "clusterroles").await, count(&server, "clusterrolebindings").await], before);
    let object = admin(&server, Method::GET, &viewer, Value::Null).await;
    let names: Vec<&str> =
        object["subjects"].as_array().unwrap().iter().filter_map(|s| s["name"].as_str()).collect();
    assert_eq!(names, ["own", "system:authenticated", "system:unauthenticated"]);
    // What says that it is to be left alone is.
    let object = admin(&server, Method::GET, &basic, Value::Null).await;
    assert!(object["rules"].as_array().is_none_or(Vec::is_empty), "{object}");
}

/// The reviews are asked and answered in each encoding; what one answers is a question in the next. (What a SelfSubjectRulesReview
/// answers does not say the namespace any more.)
#[tokio::test]
async fn reviews_speak_every_encoding() {
    use plinth_benches::api::client::Call;
    const ENCODINGS: [&str; 4] =
        ["application/yaml", "application/cbor", "application/vnd.kubernetes.protobuf", "application/json"];
    const AUTHN: &str = "authentication.k8s.io/v1";
    const AUTHZ: &str = "authorization.k8s.io/v1";
    let access = shared().await;
    let attributes = json!({ "verb": "list", "resource": "pods", "namespace": "default" });
    // group version, kind, path, spec, a place in the answer and what is there
    let rows = [
        (
            AUTHZ,
            "SubjectAccessReview",
            format!("/apis/{AUTHZ}/subjectaccessreviews"),
            json!({ "user": "nobody", "resourceAttributes": attributes }),
            ("/status/allowed", json!(false)),
        ),
        (
            AUTHZ,
            "LocalSubjectAccessReview",
            format!("/apis/{AUTHZ}/namespaces/default/localsubjectaccessreviews"),
            json!({ "user": "u", "groups": ["system:masters"], "resourceAttributes": attributes }),
            ("/status/allowed", json!(true)),
        ),
        (
            AUTHZ,
            "SelfSubjectAccessReview",
            format!("/apis/{AUTHZ}/selfsubjectaccessreviews"),
            json!({ "resourceAttributes": attributes }),
            ("/status/allowed", json!(true)),
        ),
        (
            AUTHN,
            "SelfSubjectReview",
            format!("/apis/{AUTHN}/selfsubjectreviews"),
            Value::Null,
            ("/status/userInfo/username", json!("kubernetes-admin")),
        ),
        (
            AUTHN,
            "TokenReview",
            format!("/apis/{AUTHN}/tokenreviews"),
            json!({ "token": "wrong" }),
            ("/status/user", json!({})),
        ),
        (
            AUTHN,
            "TokenRequest",
            "/api/v1/namespaces/kube-system/serviceaccounts/reviewed/token".to_owned(),
            json!({ "audiences": ["a"], "expirationSeconds": 700 }),
            ("/spec/expirationSeconds", json!(700)),
        ),
    ];
    let account = json!({ "metadata": { "name": "reviewed" } });
    admin(access, Method::POST, "/api/v1/namespaces/kube-system/serviceaccounts", account).await;
    let mut connection = access.connect(Protocol::Http1).await;
    for (version, kind, path, spec, (place, expected)) in rows {
        let mut body = json!({ "apiVersion": version, "kind": kind });
        if !spec.is_null() {
            body["spec"] = spec;
        }
        let mut question = (body.to_string().into_bytes(), "application/json");
        for encoding in ENCODINGS {
            let call = Call::new(Method::POST, &*path).body(question.1, question.0).accept(encoding);
            let reply = connection.call(&call).await.expect("answer");
            assert_eq!(reply.status, StatusCode::CREATED, "{kind} as {encoding}: {}", reply.text());
            assert_eq!(reply.headers.get("content-type").expect("a type"), encoding, "{kind}");
            question = (reply.body.to_vec(), encoding);
        }
        let answer: Value = serde_json::from_slice(&question.0).expect("JSON");
        assert_eq!((&answer["apiVersion"], &answer["kind"]), (&json!(version), &json!(kind)));
        let found = answer.pointer(place).cloned();
        // What is empty is left out.
        let found = found.unwrap_or_else(|| if expected.is_object() { json!({}) } else { json!(false) });
        assert_eq!(found, expected, "{kind}: {answer}");
    }
}

/// Admission sees what a node sends to its status before the rest of it is put back, as upstream.
#[tokio::test]
async fn a_node_sends_nothing_but_status_to_its_status() {
    let access = shared().await;
    let node = unique("node");
    let name = format!("system:node:{node}");
    let spec = json!({ "taints": [{ "key": "k", "effect": "NoSchedule" }] });
    let object = json!({ "metadata": { "name": node }, "spec": spec });
    let mut object = admin(access, Method::POST, "/api/v1/nodes", object).await;
    let path = format!("/api/v1/nodes/{node}/status");
    let put = async |object: &Value| {
        ask(access, (&name, &["system:nodes"]), Method::PUT, &path, object.clone()).await
    };
    object["status"]["phase"] = json!("Running");
    let (status, object) = put(&object).await;
    assert_eq!((status.as_u16(), object["status"]["phase"].as_str()), (200, Some("Running")));
    let refused = async |change: &dyn Fn(&mut Value), why: &str| {
        let mut changed = object.clone();
        change(&mut changed);
        let (status, answer) = put(&changed).await;
        assert_eq!(status.as_u16(), 403, "{answer}");
        assert_eq!(answer["message"], format!("nodes \"{node}\" is forbidden: {why}"));
    };
    let not_allowed = |what: &str| format!("node \"{node}\" is not allowed to {what}");
    refused(&|o| o["spec"] = json!({}), &not_allowed("modify taints")).await;
    let label = |o: &mut Value| o["metadata"]["labels"] = json!({ "node-restriction.kubernetes.io/x": "y" });
    refused(&label, "is not allowed to modify labels: node-restriction.kubernetes.io/x").await;
    let source =
        json!({ "configMap": { "namespace": "a", "name": "b", "uid": "c", "kubeletConfigKey": "d" } });
    let set_source = |o: &mut Value| o["spec"]["configSource"] = source.clone();
    refused(&set_source, &not_allowed("update configSource to a new non-nil configSource")).await;
    // For others the rest is as it was, without a word.
    let mut bare = object.clone();
    bare["spec"] = json!({});
    let kept = admin(access, Method::PUT, &path, bare).await;
    assert_eq!(kept["spec"], object["spec"]);
}
