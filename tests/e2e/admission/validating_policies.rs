//! ValidatingAdmissionPolicies and the match conditions of webhooks.

use base64::prelude::{Engine as _, BASE64_STANDARD};
use http::Method;
use plinth_tests::https::HttpsServer;
use plinth_tests::kubectl::Kubectl;
use plinth_tests::requests::{call, create};
use plinth_tests::server::{namespace, shared, unique};
use serde_json::{json, Value};

pub(super) const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// Rules for ConfigMaps of one namespace.
fn maps_of(namespace: &str) -> Value {
    json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "resourceRules": [{"operations": ["CREATE", "UPDATE", "DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    })
}

fn policy(name: &str, namespace: &str, spec: Value) -> Value {
    let mut policy = json!({"metadata": {"name": name}, "spec": spec});
    policy["spec"]["matchConstraints"] = maps_of(namespace);
    policy
}

fn binding(name: &str, actions: &[&str], params: Option<Value>) -> Value {
    let mut binding =
        json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": actions}});
    if let Some(params) = params {
        binding["spec"]["paramRef"] = params;
    }
    binding
}

#[tokio::test]
async fn policies_decide_by_their_expressions() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "policies").await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let name = unique("policy");
    let spec = json!({
        "matchConditions": [{"name": "mine", "expression": "request.operation == 'DELETE' || object.metadata.name != 'exempt'"}],
        "variables": [
            {"name": "data", "expression": "request.operation == 'DELETE' || !has(object.data) ? {} : object.data"},
            {"name": "count", "expression": "variables.data.size()"},
        ],
        "validations": [
            {"expression": "variables.count < 4", "message": "too many"},
            {"expression": "!('a' in variables.data)", "messageExpression": "'a is ' + variables.data.a + ' of ' + string(variables.count)", "reason": "Forbidden"},
            {"expression": "!('b' in variables.data)", "messageExpression": "'two\\nlines'", "reason": "RequestEntityTooLarge"},
            {"expression": "!('c' in variables.data) || object.nope == 1"},
            {"expression": "!('d' in variables.data) || authorizer.group('').resource('configmaps').namespace(request.namespace).check('create').allowed()", "message": "may not"},
            {"expression": "!('e' in variables.data) || authorizer.serviceAccount('default', 'default').requestResource.check('create').allowed()", "message": "never compiled"},
            {"expression": "request.operation != 'DELETE' || oldObject.metadata.name != 'kept'", "message": "stays"},
            {"expression": "namespaceObject.metadata.name == request.namespace"},
        ],
    });
    // An invalid expression is reported with its field, and nothing is stored.
    let (code, refused) = call(
        &client,
        Method::POST,
        &format!("{CONFIGURATIONS}/validatingadmissionpolicies"),
        Some(&policy(&name, &namespace, spec.clone())),
    )
    .await;
    assert_eq!(code, 422, "{refused}");
    let cause = &refused["details"]["causes"][0];
    assert_eq!(cause["field"], "spec.validations[5].expression", "{refused}");
    assert!(cause["message"].as_str().is_some_and(|m| m.contains("requestResource")), "{refused}");
    let mut spec = spec;
    spec["validations"][5]["expression"] = json!("!('e' in variables.data) || authorizer.serviceAccount('default', 'default').group('').resource('configmaps').check('create').allowed()");
    spec["validations"][5]["message"] = json!("the account may not");
    create(
        &client,
        &format!("{CONFIGURATIONS}/validatingadmissionpolicies"),
        &policy(&name, &namespace, spec),
    )
    .await;
    // Without a binding a policy does nothing.
    create(&client, &maps, &json!({"metadata": {"name": "before"}, "data": {"a": "1"}})).await;
    create(
        &client,
        &format!("{CONFIGURATIONS}/validatingadmissionpolicybindings"),
        &binding(&name, &["Deny"], None),
    )
    .await;

    let denied =
        |why: &str| format!("ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: {why}");
    // name, data, code and reason, what the refusal says
    let rows = [
        ("plain", json!({"x": "1"}), 201, "", ""),
        ("exempt", json!({"a": "1"}), 201, "", ""),
        ("many", json!({"v": "", "x": "", "y": "", "z": ""}), 422, "Invalid", "too many"),
        ("one", json!({"a": "1", "x": "2"}), 403, "Forbidden", "a is 1 of 2"),
        (
            "two",
            json!({"b": ""}),
            413,
            "RequestEntityTooLarge",
            "failed expression: !('b' in variables.data)",
        ),
        (
            "three",
            json!({"c": ""}),
            422,
            "Invalid",
            "expression '!('c' in variables.data) || object.nope == 1' resulted in error: no such key: nope",
        ),
        ("four", json!({"d": ""}), 201, "", ""),
        ("five", json!({"e": ""}), 422, "Invalid", "the account may not"),
    ];
    for (object, data, code, reason, why) in rows {
        let body = json!({"metadata": {"name": object}, "data": data});
        let (found, answer) = call(&client, Method::POST, &maps, Some(&body)).await;
        assert_eq!(found, code, "{object}: {answer}");
        if code != 201 {
            let message = format!("configmaps \"{object}\" is forbidden: {}", denied(why));
            assert_eq!(
                (answer["reason"].as_str(), answer["message"].as_str()),
                (Some(reason), Some(message.as_str()))
            );
            assert_eq!(answer["details"]["causes"], json!([{"message": denied(why)}]));
            assert_eq!(call(&client, Method::GET, &format!("{maps}/{object}"), None).await.0, 404);
        }
    }
    // Updates and deletions are seen, too.
    let (code, answer) = call(
        &client,
        Method::PUT,
        &format!("{maps}/plain"),
        Some(&json!({"metadata": {"name": "plain"}, "data": {"a": "1"}})),
    )
    .await;
    assert_eq!(code, 403, "{answer}");
    create(&client, &maps, &json!({"metadata": {"name": "kept"}})).await;
    assert_eq!(call(&client, Method::DELETE, &format!("{maps}/kept"), None).await.0, 422);
    assert_eq!(call(&client, Method::DELETE, &format!("{maps}/plain"), None).await.0, 200);

    // A policy that ignores failures ignores errors, not refusals.
    let path = format!("{CONFIGURATIONS}/validatingadmissionpolicies/{name}");
    let (_, mut stored) = call(&client, Method::GET, &path, None).await;
    stored["spec"]["failurePolicy"] = json!("Ignore");
    assert_eq!(call(&client, Method::PUT, &path, Some(&stored)).await.0, 200);
    create(&client, &maps, &json!({"metadata": {"name": "three"}, "data": {"c": ""}})).await;
    let (code, _) =
        call(&client, Method::POST, &maps, Some(&json!({"metadata": {"name": "one"}, "data": {"a": ""}})))
            .await;
    assert_eq!(code, 403);

    for plural in ["validatingadmissionpolicybindings", "validatingadmissionpolicies"] {
        let (code, body) =
            call(&client, Method::DELETE, &format!("{CONFIGURATIONS}/{plural}/{name}"), None).await;
        assert_eq!(code, 200, "{body}");
    }
    create(&client, &maps, &json!({"metadata": {"name": "one"}, "data": {"a": ""}})).await;
}

#[tokio::test]
async fn policies_have_parameters() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "parameters").await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let name = unique("limits");
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "counted", "expression": "has(object.data) && 'n' in object.data"}],
        "validations": [{
            "expression": "params == null || int(object.data.n) <= int(params.data.max)",
            "messageExpression": "params.metadata.name + ' allows ' + params.data.max",
        }],
    });
    create(
        &client,
        &format!("{CONFIGURATIONS}/validatingadmissionpolicies"),
        &policy(&name, &namespace, spec),
    )
    .await;
    for (name, max) in [("large", "9"), ("small", "3")] {
        let body = json!({"metadata": {"name": name, "labels": {"limit": "yes"}}, "data": {"max": max}});
        create(&client, &maps, &body).await;
    }
    let bindings = format!("{CONFIGURATIONS}/validatingadmissionpolicybindings");
    create(&client, &bindings, &binding(&name, &["Deny"], None)).await;
    let missing =
        "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    // reference, number, what the refusal says; empty when there is none
    let rows = [
        (None, "7", ""),
        (Some(json!({"name": "large", "parameterNotFoundAction": "Deny"})), "7", ""),
        (Some(json!({"name": "small", "parameterNotFoundAction": "Deny"})), "7", "small allows 3"),
        (Some(json!({"name": "nope", "parameterNotFoundAction": "Deny"})), "7", missing),
        (Some(json!({"name": "nope", "parameterNotFoundAction": "Allow"})), "70", ""),
        // Each object that is selected must allow it.
        (
            Some(json!({"selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Deny"})),
            "7",
            "small allows 3",
        ),
        (
            Some(json!({"selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Deny"})),
            "2",
            "",
        ),
        (
            Some(json!({"name": "large", "namespace": "default", "parameterNotFoundAction": "Deny"})),
            "2",
            missing,
        ),
    ];
    for (i, (params, number, why)) in rows.into_iter().enumerate() {
        let path = format!("{bindings}/{name}");
        let (_, stored) = call(&client, Method::GET, &path, None).await;
        let mut wanted = binding(&name, &["Deny"], params);
        wanted["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        let (code, answer) = call(&client, Method::PUT, &path, Some(&wanted)).await;
        assert_eq!(code, 200, "{answer}");
        let body = json!({"metadata": {"name": format!("object-{i}")}, "data": {"n": number}});
        let (code, answer) = call(&client, Method::POST, &maps, Some(&body)).await;
        assert_eq!(code, if why.is_empty() { 201 } else { 422 }, "{i}: {answer}");
        assert!(answer["message"].as_str().unwrap_or_default().ends_with(why), "{i}: {answer}");
    }
    for plural in ["validatingadmissionpolicybindings", "validatingadmissionpolicies"] {
        assert_eq!(
            call(&client, Method::DELETE, &format!("{CONFIGURATIONS}/{plural}/{name}"), None).await.0,
            200
        );
    }
}

#[tokio::test]
async fn kubectl_shows_the_messages_of_policies() {
    let access = shared().await;
    let client = access.client().await;
    let Some(kubectl) = Kubectl::find("policies", access.kubeconfig()) else { return };
    let namespace = namespace(&client, "warned").await;
    let name = unique("warning");
    let manifest = format!(
        r#"apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints:
    namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}
    resourceRules: [{{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}}]
  validations: [{{expression: object.spec.replicas <= 3, message: at most three}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}, validationActions: [Warn]}}
"#
    );
    kubectl.ok_with_input("apply -f -", &manifest);
    let line = format!("create deployment web --image=x --replicas=4 -n {namespace}");
    let warned = kubectl.run(&line);
    let output = String::from_utf8_lossy(&warned.stderr).into_owned();
    assert!(warned.status.success(), "{output}");
    let warning = format!("Warning: Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{name}': at most three");
    assert!(output.contains(&warning), "{output}");
    kubectl.ok_with_input("apply -f -", &manifest.replace("[Warn]", "[Deny]"));
    let refused = kubectl.fails(&line.replace(" web ", " other "));
    assert!(refused.contains("denied request: at most three"), "{refused}");
    kubectl.ok(&format!("delete validatingadmissionpolicybinding,validatingadmissionpolicy {name}"));
    kubectl.ok(&line.replace(" web ", " other "));
}

#[tokio::test]
async fn match_conditions_decide_which_webhooks_are_called() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "conditions").await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    // A webhook that denies every review.
    let server = HttpsServer::start(|request: hyper::Request<hyper::body::Incoming>| async move {
        use http_body_util::BodyExt;
        let body = request.into_body().collect().await.expect("body").to_bytes();
        let review: Value = serde_json::from_slice(&body).expect("a review");
        let response =
            json!({"uid": review["request"]["uid"], "allowed": false, "status": {"message": "asked"}});
        let answer =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        hyper::Response::new(http_body_util::Full::new(bytes::Bytes::from(answer.to_string())))
    })
    .await;
    let name = unique("conditions");
    let configuration = |conditions: &[&str], policy: &str| {
        let conditions: Vec<Value> = conditions
            .iter()
            .enumerate()
            .map(|(i, expression)| json!({"name": format!("c{i}"), "expression": expression}))
            .collect();
        json!({"metadata": {"name": name}, "webhooks": [{
            "name": "conditions.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": policy,
            "timeoutSeconds": 5,
            "clientConfig": {
                "url": format!("https://localhost:{}/", server.port),
                "caBundle": BASE64_STANDARD.encode(&server.certificate),
            },
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
            "matchConditions": conditions,
        }]})
    };
    let path = format!("{CONFIGURATIONS}/validatingwebhookconfigurations");
    let (code, refused) =
        call(&client, Method::POST, &path, Some(&configuration(&["true", "object.a", "nope"], "Fail"))).await;
    assert_eq!(code, 422);
    let causes: Vec<&str> = refused["details"]["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|c| c["field"].as_str())
        .collect();
    assert_eq!(
        causes,
        ["webhooks[0].matchConditions[1].expression", "webhooks[0].matchConditions[2].expression"]
    );
    create(&client, &path, &configuration(&["true"], "Fail")).await;

    const UNDEFINED_FIELD: &str = "object.nope == 1";
    const UNDEFINED_FIELD_ERROR: &str = "expression 'object.nope == 1' resulted in error: no such key: nope";
    // conditions, failure policy, code
    let rows: [(&[&str], &str, u16, &str); 9] = [
        (&["object.metadata.name.startsWith('row')"], "Fail", 400, "asked"),
        (&["object.metadata.name.startsWith('row')", "request.userInfo.username == 'nobody'"], "Fail", 201, ""),
        (&["oldObject == null && request.operation == 'CREATE'"], "Fail", 400, "asked"),
        (&[UNDEFINED_FIELD], "Fail", 403, UNDEFINED_FIELD_ERROR),
        (&[UNDEFINED_FIELD], "Ignore", 201, ""),
        // A condition that is false decides, whatever errors others have.
        (&[UNDEFINED_FIELD, "false"], "Fail", 201, ""),
        (&["authorizer.requestResource.check('create').allowed()"], "Fail", 400, "asked"),
        (&["authorizer.serviceAccount('default', 'default').group('').resource('configmaps').check('create').allowed()"], "Fail", 201, ""),
        (&["!authorizer.path('/healthz').check('get').allowed()"], "Fail", 201, ""),
    ];
    for (i, (conditions, policy, code, why)) in rows.into_iter().enumerate() {
        let path = format!("{path}/{name}");
        let (_, stored) = call(&client, Method::GET, &path, None).await;
        let mut wanted = configuration(conditions, policy);
        wanted["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        let (changed, answer) = call(&client, Method::PUT, &path, Some(&wanted)).await;
        assert_eq!(changed, 200, "{answer}");
        let body = json!({"metadata": {"name": format!("row-{i}")}});
        let (found, answer) = call(&client, Method::POST, &maps, Some(&body)).await;
        assert_eq!(found, code, "{conditions:?}: {answer}");
        assert!(answer["message"].as_str().unwrap_or_default().ends_with(why), "{conditions:?}: {answer}");
    }
    assert_eq!(call(&client, Method::DELETE, &format!("{path}/{name}"), None).await.0, 200);
}

/// A token is created under the same policies as an object; reviews bypass policies, so that none can lock
/// everybody out, and go to webhooks.
#[tokio::test]
async fn token_requests_are_admitted_and_reviews_bypass_policies() {
    // A webhook whose service is unreachable denies the requests that it matches, so this test has a server
    // of its own.
    let server = plinth_tests::server::TestServer::start(&[]).await;
    let client = server.client().await;
    let namespace = namespace(&client, "tokens").await;
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    create(&client, &accounts, &json!({"metadata": {"name": "a"}})).await;
    let name = unique("tokens");
    let rule = |group: &str, resource: &str| json!({"operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource]});
    let policy = json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": [rule("", "serviceaccounts/token"), rule("*", "*")]},
        "validations": [{
            "expression": "!has(object.spec.audiences) || !('forbidden' in object.spec.audiences)",
            "message": "not for them",
        }],
    }});
    create(&client, &format!("{CONFIGURATIONS}/validatingadmissionpolicies"), &policy).await;
    let bindings = format!("{CONFIGURATIONS}/validatingadmissionpolicybindings");
    create(&client, &bindings, &binding(&name, &["Deny"], None)).await;
    let token = format!("{accounts}/a/token");
    create(&client, &token, &json!({"spec": {"audiences": ["api"]}})).await;
    let wanted = json!({"spec": {"audiences": ["forbidden"]}});
    let (code, refused) = call(&client, Method::POST, &token, Some(&wanted)).await;
    assert_eq!(code, 422, "{refused}");
    assert!(refused["message"].as_str().is_some_and(|m| m.ends_with("not for them")), "{refused}");
    assert!(refused.get("status").is_none_or(|s| s.get("token").is_none()), "{refused}");
    let review = json!({"spec": {"token": "x", "audiences": ["forbidden"]}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    create(&client, reviews, &review).await;

    let hook = json!({
        "name": "away.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 1,
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule("authentication.k8s.io", "tokenreviews"), rule("", "serviceaccounts/token")],
    });
    let configuration = json!({"metadata": {"name": name}, "webhooks": [hook]});
    create(&client, &format!("{CONFIGURATIONS}/validatingwebhookconfigurations"), &configuration).await;
    for (path, object) in [(reviews, &review), (token.as_str(), &json!({"spec": {"audiences": ["api"]}}))] {
        let (code, refused) = call(&client, Method::POST, path, Some(object)).await;
        assert_eq!(code, 500, "{path}: {refused}");
        assert!(refused["message"].as_str().is_some_and(|m| m.contains("away.example.com")), "{refused}");
    }
}

/// `request.options` has what the client asked for, whichever way it said so.
#[tokio::test]
async fn expressions_see_the_options_of_a_request() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "options").await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    create(&client, &maps, &json!({"metadata": {"name": "kept"}})).await;
    let name = unique("options");
    let shown: Vec<String> = [
        "fieldManager",
        "fieldValidation",
        "force",
        "gracePeriodSeconds",
        "propagationPolicy",
        "orphanDependents",
    ]
    .iter()
    .map(|key| format!("(has(request.options.{key}) ? ' {key}=' + string(request.options.{key}) : '')"))
    .collect();
    let expression = format!("request.options.kind + {}", shown.join(" + "));
    let spec = json!({"validations": [{"expression": "false", "messageExpression": expression}]});
    let policies = format!("{CONFIGURATIONS}/validatingadmissionpolicies");
    create(&client, &policies, &policy(&name, &namespace, spec)).await;
    create(
        &client,
        &format!("{CONFIGURATIONS}/validatingadmissionpolicybindings"),
        &binding(&name, &["Deny"], None),
    )
    .await;
    let kept =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"a": "b"}});
    let delete = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "propagationPolicy": "Orphan"});
    let (one, none) = (format!("{maps}/kept"), Value::Null);
    let rows = [
        (
            "POST",
            format!("{maps}?fieldValidation=Strict&fieldManager=m"),
            &kept,
            "CreateOptions fieldManager=m fieldValidation=Strict",
        ),
        ("PUT", format!("{one}?fieldValidation=Ignore"), &kept, "UpdateOptions fieldValidation=Ignore"),
        ("MERGE", one.clone(), &kept, "PatchOptions"),
        (
            "APPLY",
            format!("{one}?fieldManager=m&force=true"),
            &kept,
            "PatchOptions fieldManager=m force=true",
        ),
        (
            "DELETE",
            format!("{one}?gracePeriodSeconds=0&propagationPolicy=Foreground"),
            &none,
            "DeleteOptions gracePeriodSeconds=0 propagationPolicy=Foreground",
        ),
        ("DELETE", one.clone(), &delete, "DeleteOptions gracePeriodSeconds=0 propagationPolicy=Orphan"),
        ("DELETE", format!("{maps}?orphanDependents=true"), &none, "DeleteOptions orphanDependents=true"),
        ("DELETE", one.clone(), &none, "DeleteOptions"),
    ];
    plinth_tests::eventually("the policy is in force", || async {
        plinth_tests::requests::send(&client, "DELETE", &one, &none).await.code == 422
    })
    .await;
    for (method, path, body, expected) in rows {
        let answer = plinth_tests::requests::send(&client, method, &path, body).await;
        let message = answer.text_at("/message");
        assert!(
            answer.code == 422 && message.ends_with(&format!("denied request: {expected}")),
            "{method} {path}: {message}"
        );
    }
}
