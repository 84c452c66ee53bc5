//! Non-resource paths: which users may read which.

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use plinth_benches::api::client::Protocol;
use plinth_tests::requests::call;
use plinth_tests::server::{shared, unique, Access, TestServer};
use serde_json::{json, Value};

/// Requesters, by the columns of [`ROWS`].
const REQUESTERS: [&str; 5] =
    ["anonymous", "without rights", "with get on the path", "with get on *", "system:masters"];

/// Each path outside of `/api` and `/apis` that is served, with the codes for [`REQUESTERS`]. Those
/// below `/plinth` are none of upstream's.
const ROWS: &[(&str, [u16; 5])] = &[
    ("/", [403, 403, 200, 200, 200]),
    ("/livez", [200, 200, 200, 200, 200]),
    ("/livez/ping?verbose", [403, 403, 200, 200, 200]),
    ("/readyz?verbose", [200, 200, 200, 200, 200]),
    ("/healthz", [200, 200, 200, 200, 200]),
    ("/version", [200, 200, 200, 200, 200]),
    ("/index.html", [403, 403, 200, 200, 200]),
    ("/metrics", [403, 403, 200, 200, 200]),
    ("/metrics/slis", [403, 403, 200, 200, 200]),
    ("/statusz", [403, 403, 200, 200, 200]),
    ("/flagz", [403, 403, 200, 200, 200]),
    ("/debug/api_priority_and_fairness/dump_requests", [403, 403, 200, 200, 200]),
    ("/openapi/v2", [403, 200, 200, 200, 200]),
    ("/openapi/v3", [403, 200, 200, 200, 200]),
    ("/openapi/v3/", [403, 200, 200, 200, 200]),
    ("/openapi/v3/api/v1", [403, 200, 200, 200, 200]),
    ("/api", [403, 200, 200, 200, 200]),
    ("/apis", [403, 200, 200, 200, 200]),
    ("/apis/apps/v1", [403, 200, 200, 200, 200]),
    ("/.well-known/openid-configuration", [403, 403, 200, 200, 200]),
    ("/openid/v1/jwks", [403, 403, 200, 200, 200]),
    ("/plinth/backup", [403, 403, 403, 403, 200]),
    // A single server has neither, and says so to those who may ask.
    ("/plinth/checkpoint", [403, 403, 403, 403, 404]),
    ("/plinth/replicas", [403, 403, 404, 404, 404]),
    // It knows no users: whoever sends the request may not act as another one.
    ("/plinth/join", [404, 403, 403, 403, 404]),
    // Paths that are not served.
    ("/debug/pprof/", [403, 403, 404, 404, 404]),
    ("/debug/api_priority_and_fairness/dump_none", [403, 403, 404, 404, 404]),
    ("/debug/flags/v", [403, 403, 404, 404, 404]),
    ("/logs", [403, 403, 404, 404, 404]),
    ("/logs/kube-apiserver.log", [403, 403, 404, 404, 404]),
    ("/configz", [403, 403, 404, 404, 404]),
    ("/plinth", [403, 403, 404, 404, 404]),
];

async fn ask(access: &Access, who: usize, users: &[String; 2], path: &str) -> (u16, Value) {
    let mut connection = match who {
        0 => access.connect_anonymously(Protocol::Http1).await,
        _ => access.connect(Protocol::Http1).await,
    };
    let mut request = Request::builder().method(Method::GET).uri(path);
    request = match who {
        1 => request.header("impersonate-user", unique("nobody")),
        2 => request.header("impersonate-user", &users[0]),
        3 => request.header("impersonate-user", &users[1]),
        _ => request,
    };
    let request = request.body(http_body_util::Full::new(bytes::Bytes::new())).expect("a request");
    let response = connection.send(request, path).await.expect("an answer");
    let code = response.status().as_u16();
    let body = match code {
        // An archive may be long; its status is enough.
        200 => bytes::Bytes::new(),
        _ => response.into_body().collect().await.expect("the whole answer").to_bytes(),
    };
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

/// Lets a user get those paths.
async fn may_get(access: &Access, user: &str, paths: &[&str]) {
    let client = access.client().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": user}, "rules": [{"nonResourceURLs": paths, "verbs": ["*"]}]});
    let (code, answer) = call(&client, Method::POST, &format!("{rbac}/clusterroles"), Some(&role)).await;
    assert_eq!(code, 201, "{answer}");
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    let (code, answer) =
        call(&client, Method::POST, &format!("{rbac}/clusterrolebindings"), Some(&binding)).await;
    assert_eq!(code, 201, "{answer}");
}

#[tokio::test]
async fn paths_by_table() {
    let access = shared().await;
    let users = [unique("reads-paths"), unique("reads-all")];
    let paths: Vec<&str> = ROWS.iter().map(|(path, _)| path.split('?').next().unwrap_or(path)).collect();
    may_get(access, &users[0], &paths).await;
    may_get(access, &users[1], &["*"]).await;
    for (path, expected) in ROWS {
        for (who, code) in expected.iter().enumerate() {
            assert_eq!(ask(access, who, &users, path).await.0, *code, "{path} for {}", REQUESTERS[who]);
        }
    }
    let (_, refused) = ask(access, 3, &users, "/plinth/backup").await;
    let why = format!(
        "forbidden: User \"{}\" cannot get path \"/plinth/backup\": only members of the group \"system:masters\" may back up the store",
        users[1]
    );
    assert_eq!((&refused["reason"], &refused["message"]), (&json!("Forbidden"), &json!(why)));
    // Other spellings of the path are 404, or refused in the same way.
    for path in
        ["/plinth/backup/", "//plinth/backup", "/plinth//backup", "/plinth/%62ackup", "/plinth/backup?a=b"]
    {
        let (code, _) = ask(access, 3, &users, path).await;
        assert!(matches!(code, 403 | 404), "{path}: {code}");
    }
}

/// What is served is in the table of the document, row by row.
#[test]
fn every_served_path_is_documented() {
    let document = include_str!("../../../docs/security.md");
    let rows = document.lines().filter(|line| line.starts_with("| `/"));
    let documented: Vec<&str> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2))
        .map(|path| path.trim_end_matches('…'))
        .collect();
    let is_documented = |path: &str| {
        documented.iter().any(|known| match known.strip_suffix('/') {
            Some(folder) if !folder.is_empty() => path.starts_with(known),
            _ => path == *known,
        })
    };
    for (path, codes) in ROWS.iter().filter(|(_, codes)| codes.contains(&200)) {
        let path = path.split('?').next().unwrap_or(path);
        let below_discovery = ["/apis/", "/openapi/v3/"].iter().any(|start| path.starts_with(start));
        assert!(is_documented(path) || below_discovery, "{path} {codes:?} is not among {documented:?}");
    }
}

/// The paths that `/` lists are rows of the table.
#[tokio::test]
async fn every_listed_path_has_a_row() {
    let client = shared().await.client().await;
    let (_, root) = call(&client, Method::GET, "/", None).await;
    let paths: Vec<&str> =
        root["paths"].as_array().expect("paths").iter().filter_map(Value::as_str).collect();
    assert!(paths.contains(&"/metrics"), "{paths:?}");
    let is_row = |path: &str| ROWS.iter().any(|(row, _)| row.split('?').next() == Some(path));
    let is_check =
        |path: &str| ["/livez/", "/readyz/", "/healthz/"].iter().any(|start| path.starts_with(start));
    for path in paths.iter().filter(|path| !path.starts_with("/api")) {
        assert!(is_row(path) || is_check(path), "{path}");
    }
}

/// No mode, and no right to impersonate another than the group itself, leads to the backup.
#[tokio::test]
async fn the_backup_is_for_system_masters_in_every_mode() {
    for mode in ["AlwaysAllow", "RBAC,AlwaysAllow", "RBAC"] {
        let server = TestServer::start(&["--authorization-mode", mode]).await;
        let client = server.client().await;
        let get = |groups: &'static [&'static str]| {
            let mut request = Request::get("/plinth/backup").header("impersonate-user", "jane");
            for group in groups {
                request = request.header("impersonate-group", *group);
            }
            let (client, request) = (client.clone(), request.body(Body::empty()).expect("a request"));
            async move { client.send(request).await.expect("an answer").status().as_u16() }
        };
        assert_eq!(get(&[]).await, 403, "{mode}");
        assert_eq!(get(&["system:authenticated", "dev"]).await, 403, "{mode}");
        assert_eq!(
            get(&["system:masters"]).await,
            200,
            "who may impersonate the group is as good as a member, {mode}"
        );
        // An access review has the same result.
        let review = json!({"spec": {"user": "jane", "nonResourceAttributes": {"path": "/plinth/backup", "verb": "get"}}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let (_, review) = call(&client, Method::POST, path, Some(&review)).await;
        assert_eq!(
            (&review["status"]["allowed"], &review["status"]["denied"]),
            (&json!(false), &json!(true)),
            "{mode}: {review}"
        );
    }
}
