//! Values of query parameters as upstream converts them (apimachinery `pkg/runtime/conversion.go`).

use http::Method;
use plinth_benches::api::client::{Call, Protocol, JSON};
use plinth_tests::server::{namespace, shared};
use serde_json::{json, Value};

/// Spellings of a boolean and what they are.
const BOOLEANS: [(&str, bool); 10] = [
    ("true", true),
    ("True", true),
    ("1", true),
    ("", true),
    ("foo", true),
    ("no", true),
    ("false", false),
    ("False", false),
    ("FALSE", false),
    ("0", false),
];

#[tokio::test]
async fn a_boolean_is_true_unless_it_is_false_in_any_case_or_zero() {
    let server = shared().await;
    let namespace = namespace(&server.client().await, "booleans").await;
    let mut connection = server.connect(Protocol::Http2).await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let object = json!({"metadata": {"name": "a"}});
    let create = Call::new(Method::POST, &path).body(JSON, object.to_string());
    connection.must(&create).await.expect("created");
    for (value, expected) in BOOLEANS {
        let query = format!("watch={value}&timeoutSeconds=1");
        let reply = connection.must(&Call::get(format!("{path}?{query}"))).await.expect(&query);
        let is_list = reply.text().starts_with(r#"{"kind":"ConfigMapList""#);
        assert_eq!(is_list, !expected, "{query}: {}", reply.text());

        let query = format!("watch=1&timeoutSeconds=1&allowWatchBookmarks={value}");
        let reply = connection.must(&Call::get(format!("{path}?{query}"))).await.expect(&query);
        assert_eq!(reply.text().contains("BOOKMARK"), expected, "{query}: {}", reply.text());

        // Not forced, the apply conflicts with who created the object.
        let field = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "forced"}, "data": {"owned": value}});
        let apply = |manager: &str, force: &str| {
            let path = format!("{path}/forced?fieldManager={manager}&dryRun=All{force}");
            Call::new(Method::PATCH, path).body("application/apply-patch+yaml", field.to_string())
        };
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "forced"}, "data": {"owned": "otherwise"}});
        let own = Call::new(Method::PATCH, format!("{path}/forced?fieldManager=owner&force=true"))
            .body("application/apply-patch+yaml", owner.to_string());
        connection.must(&own).await.expect("applied");
        let reply = connection.call(&apply("other", &format!("&force={value}"))).await.expect("an answer");
        let code = if expected { 200 } else { 409 };
        assert_eq!(reply.status.as_u16(), code, "force={value}: {}", reply.text());
    }
}

#[tokio::test]
async fn an_integer_that_is_given_must_be_one() {
    let server = shared().await;
    let mut connection = server.connect(Protocol::Http2).await;
    let list = "/api/v1/namespaces/default/configmaps";
    let object = "/api/v1/namespaces/default/configmaps/absent";
    let log = "/api/v1/namespaces/default/pods/absent/log";
    let rows = [
        (Method::GET, list, "limit=", ""),
        (Method::GET, list, "limit=1.0", "1.0"),
        (Method::GET, list, "timeoutSeconds=", ""),
        (Method::GET, list, "watch=1&timeoutSeconds=x", "x"),
        (Method::DELETE, object, "gracePeriodSeconds=", ""),
        (Method::GET, log, "tailLines=some", "some"),
        (Method::GET, log, "limitBytes=", ""),
    ];
    for (method, path, query, value) in rows {
        let reply = connection.call(&Call::new(method, format!("{path}?{query}"))).await.expect(query);
        let status: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let expected = format!("strconv.ParseInt: parsing {value:?}: invalid syntax");
        assert_eq!(
            (&status["code"], &status["reason"], &status["message"]),
            (&json!(400), &json!("BadRequest"), &json!(expected)),
            "{path}?{query}: {}",
            reply.text()
        );
    }
}

/// Options are parsed before a request is queued, and their error is still the last to be found.
#[tokio::test]
async fn an_integer_that_is_none_is_refused_after_all_else() {
    let server = shared().await;
    let mut connection = server.connect(Protocol::Http2).await;
    let rows = [
        (
            "/api/v1/namespaces/default/configmaps?limit=x",
            "jane",
            403,
            "configmaps is forbidden: User \"jane\"",
        ),
        (
            "/api/v1/namespaces/default/nothings?limit=x",
            "",
            404,
            "the server could not find the requested resource",
        ),
        ("/apis/nothing.example.com/v1/things?limit=x", "", 404, "404 page not found"),
        ("/api/v1/configmaps?limit=x&timeout=y", "", 400, "invalid timeout specified in the request URL"),
        ("/api/v1/configmaps?limit=x&timeout=1s", "", 400, "strconv.ParseInt: parsing \"x\": invalid syntax"),
    ];
    for (path, user, code, message) in rows {
        let mut call = Call::get(path);
        if !user.is_empty() {
            call = call.header("impersonate-user", user.parse().expect("a name"));
        }
        let reply = connection.call(&call).await.expect(path);
        let text = match serde_json::from_slice::<Value>(&reply.body) {
            Ok(status) => status["message"].as_str().unwrap_or_default().to_owned(),
            Err(_) => reply.text().to_owned(),
        };
        assert_eq!(reply.status.as_u16(), code, "{path}: {text}");
        assert!(text.starts_with(message), "{path}: {text}");
    }
}
