//! What is not the same for every kind: pages, tokens, reviews, access, discovery, and requests that are
//! refused before they reach a resource.

use http::Method;
use serde_json::{json, Value};

use super::kinds::{Catalog, NAMESPACE};
use super::script::{merge, Body, Request, Script, CBOR, JSON, PROTOBUF, TABLE, YAML};
use super::workloads::{merge_lists, namespaced, pods, services};
use super::Subject;

/// The namespace and account that later subjects use.
pub(crate) fn setup() -> Script {
    let mut script = Script::default();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    script.push(Request::create("/api/v1/namespaces", &namespace));
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    script.push(Request::create(format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), &account));
    script
}

/// The subjects of this file.
pub(crate) fn all(catalog: &Catalog) -> Vec<Subject> {
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

/// Pages of a collection that changes between them, in every encoding.
fn pages() -> Script {
    let mut script = Script::default();
    let collection = namespaced("configmaps");
    for number in 0..60 {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "data": {"text": "x".repeat(number * 200)},
            "metadata": {"name": format!("page-{number:02}"),
                "labels": {"parity": (number % 2).to_string()}}});
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
        json!({"resourceAttributes": {"verb": "get", "resource": "pods",
            "fieldSelector": {"rawSelector": "a=b"}}}),
        json!({"resourceAttributes": {"verb": "get", "resource": "pods",
            "labelSelector": {"rawSelector": "==="}}}),
        json!({"nonResourceAttributes": {"verb": "get", "path": "/version"}}),
        json!({"nonResourceAttributes": {"verb": "get", "path": "/secret"}}),
        json!({"nonResourceAttributes": {}, "resourceAttributes": {}}),
        json!({}),
    ];
    for spec in attributes {
        for bearer in ["", "Bearer alice-token", "Bearer bob-token"] {
            let own = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": spec});
            let request = Request::create(format!("{root}/selfsubjectaccessreviews"), &own).verb("review");
            script.push(request.unauthenticated().header("authorization", bearer));
        }
        for (user, groups) in
            [("alice", json!(["developers"])), ("", json!([])), ("x", json!(["system:masters"]))]
        {
            let mut spec = spec.clone();
            merge(&mut spec, &json!({"user": user, "groups": groups}));
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
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps", "pods/log"], "verbs": ["get", "list"]},
                  {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"],
                      "verbs": ["create"]}]});
    let root = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}");
    script.push(Request::create(format!("{root}/roles"), &role));
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "reader"}, "subjects": [{"kind": "Group", "name": "developers"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}});
    script.push(Request::create(format!("{root}/rolebindings"), &binding));
    let wide = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "wide"},
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
        "dryRun=All&dryRun=All",
        "fieldManager=",
        "pretty=nonsense",
        "fieldValidation=",
        "unknown=1",
        "=&&=",
        "fieldManager=LONG",
    ] {
        let query = query.replace("LONG", &"a".repeat(129));
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
