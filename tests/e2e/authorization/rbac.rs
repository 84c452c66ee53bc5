//! RBAC: roles and bindings, what they grant, escalation, aggregation, the bootstrap policy.

use http::{Method, StatusCode};
use plinth_tests::kubectl::Kubectl;
use plinth_tests::samples;
use plinth_tests::server::{launch, namespace, shared, unique, TestServer};
use serde_json::{json, Value};

use super::{admin, ask, binding, get, rule, GROUP, RBAC};

#[tokio::test]
async fn a_binding_takes_effect_for_the_next_request() {
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
    // A change of the role takes effect as soon.
    admin(access, Method::POST, &bindings, binding("b", ("Role", "reader"), &user)).await;
    let less = json!({ "metadata": { "name": "reader" }, "rules": [rule("", "secrets", &["list"])] });
    admin(access, Method::PUT, &format!("{roles}/reader"), less).await;
    assert_eq!(get(access, &user, &pods).await.0, 403);
    assert_eq!(get(access, &user, &format!("/api/v1/namespaces/{namespace}/secrets")).await.0, 200);
}

#[tokio::test]
async fn denials_name_user_verb_and_resource() {
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
    // A binding of an absent role is reported as such.
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
    // resourceNames match a collection that is read by name, not one that is deleted.
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

    // The subjects of a binding may change, its roleRef may not.
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
    // The rules of the ClusterRole edit are aggregated in the background at the first start.
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
async fn bootstrap_policy_is_reconciled_at_start() {
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
    // Objects annotated with autoupdate=false are left alone.
    let object = admin(&server, Method::GET, &basic, Value::Null).await;
    assert!(object["rules"].as_array().is_none_or(Vec::is_empty), "{object}");
}
