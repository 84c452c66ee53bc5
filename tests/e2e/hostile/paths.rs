//! Ambiguous paths.

use http::Method;
use plinth_benches::api::client::{Call, Identity, Protocol, JSON};

use super::{codes, Target};

/// Paths that one parser could take for a health check, and another for Secrets.
#[tokio::test]
async fn no_path_leads_an_unauthenticated_client_to_secrets() {
    let target = Target::start().await;
    let secret = serde_json::json!({"metadata": {"name": "hidden"}, "stringData": {"word": "xyzzy"}});
    let path = "/api/v1/namespaces/kube-system/secrets";
    let mut admin = target.server.connect(Protocol::Http2).await;
    admin.must(&Call::new(Method::POST, path).body(JSON, secret.to_string())).await.expect("a secret");
    let tricks: &[&[u8]] = &[
        b"/api/v1/secrets",
        b"//api/v1/secrets",
        b"/livez//api/v1/secrets",
        b"/livez/../api/v1/secrets",
        b"/livez/..;/api/v1/secrets",
        b"/healthz/%2e%2e/api/v1/secrets",
        b"/healthz/%252e%252e/api/v1/secrets",
        b"/version/..%2fapi%2fv1%2fsecrets",
        b"/api/v1/namespaces/default/../kube-system/secrets/hidden",
        b"/api/v1/namespaces/kube-system/secrets/hidden%00",
        b"/api/v1/namespaces/kube-system/secrets/hidden%0a",
        b"/api/v1/%73ecrets",
        b"/%61pi/v1/secrets",
        b"/API/v1/secrets",
        b"/api/v1/secrets/.",
        b"/api/v1/secrets?watch=1",
        b"/api/v1/watch/secrets",
        b"/api/v1/secrets#/livez",
        b"/api/v1/secrets?/livez",
        b"/livez?/../../api/v1/secrets",
        b"/api/v1\\secrets",
        b"/api/v1/secrets;/livez",
        b"https://127.0.0.1/api/v1/secrets",
        b"*",
        b"/api/v1/namespaces/kube-system/secrets/hidden\xff",
    ];
    for trick in tricks {
        for extra in
            ["", "X-Original-URL: /livez\r\n", "X-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n"]
        {
            let mut request = b"GET ".to_vec();
            request.extend_from_slice(trick);
            request.extend_from_slice(
                format!(" HTTP/1.1\r\nHost: x\r\n{extra}Connection: close\r\n\r\n").as_bytes(),
            );
            let answer = target.says(Protocol::Http1, &request).await;
            let name = String::from_utf8_lossy(trick);
            let text = String::from_utf8_lossy(&answer);
            assert!(!text.contains("xyzzy") && !text.contains("eHl6enk"), "{name}: the secret is disclosed");
            assert!(!text.contains("SecretList"), "{name}: {text}");
            let is_health = name.starts_with("/livez?");
            assert!(is_health || !codes(&answer).contains(&200), "{name}: {text}");
        }
    }
    // A later request on the same connection is that of the same unauthenticated client.
    let smuggled = b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /api/v1/secrets HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = target.says(Protocol::Http1, smuggled).await;
    assert!(!codes(&answer).contains(&200), "{}", String::from_utf8_lossy(&answer));
    target.serves("path tricks").await;
}

/// A user who may read ConfigMaps of one namespace and some paths reads nothing else, however it is written.
#[tokio::test]
async fn no_path_leads_out_of_a_namespace() {
    let dir = tempfile::tempdir().expect("directory");
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, "janes-token,jane,1\n").expect("tokens");
    let target = Target::start_with(&[&format!("--token-auth-file={}", tokens.display())]).await;
    let mut admin = target.server.connect(Protocol::Http2).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let jane = serde_json::json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]);
    let secret = serde_json::json!({"metadata": {"name": "hidden"}, "stringData": {"word": "xyzzy"}});
    let objects = [
        ("/api/v1/namespaces".to_owned(), serde_json::json!({"metadata": {"name": "open"}})),
        ("/api/v1/namespaces".to_owned(), serde_json::json!({"metadata": {"name": "closed"}})),
        ("/api/v1/namespaces/closed/secrets".to_owned(), secret.clone()),
        ("/api/v1/namespaces/open/secrets".to_owned(), secret),
        (
            "/api/v1/namespaces/open/configmaps".to_owned(),
            serde_json::json!({"metadata": {"name": "readable"}}),
        ),
        (
            format!("{rbac}/namespaces/open/roles"),
            serde_json::json!({"metadata": {"name": "jane"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]}),
        ),
        (
            format!("{rbac}/namespaces/open/rolebindings"),
            serde_json::json!({"metadata": {"name": "jane"}, "subjects": jane, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "jane"}}),
        ),
        (
            format!("{rbac}/clusterroles"),
            serde_json::json!({"metadata": {"name": "jane"}, "rules": [{"nonResourceURLs": ["/open/*", "/livez/*", "/api/v1"], "verbs": ["*"]}]}),
        ),
        (
            format!("{rbac}/clusterrolebindings"),
            serde_json::json!({"metadata": {"name": "jane"}, "subjects": jane, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "jane"}}),
        ),
    ];
    for (path, object) in objects {
        admin.must(&Call::new(Method::POST, path).body(JSON, object.to_string())).await.expect("an object");
    }
    let jane = target.server.endpoint().with_identity(Identity::Token("janes-token".into()));
    let mut connection = jane.connect(Protocol::Http1).await.expect("connection");
    // What she may do works, so that the refusals below are no accident.
    connection.must(&Call::get("/api/v1/namespaces/open/configmaps/readable")).await.expect("her own");
    let open = "/api/v1/namespaces/open";
    let tricks: Vec<String> = [
        "/configmaps/../secrets/hidden",
        "/configmaps/%2e%2e/secrets/hidden",
        "/configmaps%2f..%2fsecrets/hidden",
        "/configmaps/..;/secrets/hidden",
        "/configmaps/readable/../../secrets/hidden",
        "/configmaps/../../closed/secrets/hidden",
        "/configmaps/..%2f..%2fclosed%2fsecrets%2fhidden",
        "/../closed/secrets/hidden",
        "%2f..%2fclosed/secrets/hidden",
        "%00/secrets/hidden",
        "/secrets/hidden",
        "/secrets/hidden/",
        "/secrets/hidden/status",
        "/secrets/hidden?resource=configmaps",
        "/secrets?fieldSelector=metadata.name%3Dhidden",
        "/secrets?watch=1&resourceVersion=1&timeoutSeconds=1",
        "/Secrets/hidden",
        "//secrets/hidden",
        "/configmaps/readable/secrets/hidden",
        "/configmaps;/secrets/hidden",
        "/configmaps\\..\\secrets\\hidden",
        "/configmaps?namespace=closed",
        "/status/secrets/hidden",
        "/finalize/secrets/hidden",
        "/services/https:127.0.0.1:6443/proxy/api/v1/namespaces/closed/secrets/hidden",
        "/pods/x/proxy/../../../secrets/hidden",
    ]
    .iter()
    .map(|trick| format!("{open}{trick}"))
    .chain(
        [
            "/api/v1/namespaces/closed/secrets/hidden",
            "/api/v1/namespaces/closed/configmaps",
            "/api/v1/configmaps",
            "/api/v1//namespaces/closed/secrets/hidden",
            "/api/v1/namespaces//closed/secrets/hidden",
            "/api/v1/namespaces/closed//secrets/hidden",
            "//api/v1/namespaces/closed/secrets/hidden",
            "/api//v1/namespaces/closed/secrets/hidden",
            "/apis//v1/namespaces/closed/secrets/hidden",
            "/apis/core/v1/namespaces/closed/secrets/hidden",
            "/apis/%00/v1/namespaces/closed/secrets/hidden",
            "/api/v1/watch/namespaces/closed/secrets/hidden?timeoutSeconds=1",
            "/api/v1/watch/secrets?timeoutSeconds=1",
            "/api/v1/proxy/namespaces/closed/secrets/hidden",
            "/livez/../api/v1/namespaces/closed/secrets/hidden",
            "/livez/%2e%2e/api/v1/namespaces/closed/secrets/hidden",
            "/open/../api/v1/secrets",
            "/open//api/v1/secrets",
            "/open/..%2fapi%2fv1%2fsecrets",
            "/api/v1?/namespaces/closed/secrets/hidden",
            "/api/v1%2fnamespaces%2fclosed%2fsecrets%2fhidden",
        ]
        .map(str::to_owned),
    )
    .collect();
    for trick in &tricks {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get"] {
            for extra in
                ["", "X-HTTP-Method-Override: GET\r\nX-Original-URL: /open/x\r\nX-Rewrite-URL: /open/x\r\n"]
            {
                // Escapes that the client library would not send go as they are.
                let request = format!(
                    "{method} {trick} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer janes-token\r\nContent-Length: 0\r\n{extra}Connection: close\r\n\r\n"
                );
                let answer = target.says(Protocol::Http1, request.as_bytes()).await;
                let text = String::from_utf8_lossy(&answer);
                assert!(!text.contains("eHl6enk"), "{method} {trick}: {text}");
                let is_hers = trick.starts_with("/api/v1?")
                    || trick.starts_with("/livez/")
                    || trick.ends_with("?namespace=closed");
                assert!(
                    is_hers || codes(&answer).iter().all(|code| *code >= 400),
                    "{method} {trick}: {text}"
                );
            }
        }
        // The same in HTTP/2, where the path is a field of its own.
        let mut connection = jane.connect(Protocol::Http2).await.expect("connection");
        let Ok(reply) = connection.call(&Call::get(trick)).await else { continue };
        assert!(!reply.text().contains("eHl6enk"), "{trick}: {}", reply.text());
    }
    // Nothing was changed either.
    for namespace in ["open", "closed"] {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/hidden");
        assert!(admin.must(&Call::get(path)).await.expect("the secret").text().contains("eHl6enk"));
    }
    target.serves("path tricks of a user").await;
}
