//! Metrics of single requests.

use http::{Method, StatusCode};
use plinth_benches::api::client::{Call, Protocol, JSON};
use plinth_tests::definitions::{definition, establish};
use plinth_tests::eventually;
use plinth_tests::server::{unique, TestServer};
use serde_json::json;

use super::Scrape;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TOTAL: &str = "apiserver_request_total";

#[tokio::test]
async fn requests_are_counted_by_verb_scope_dry_run_and_code() {
    let server = TestServer::start(&[]).await;
    let mut admin = server.connect(Protocol::Http2).await;
    let map = |name: &str| json!({"metadata": {"name": name}}).to_string();
    let post =
        |query: &str, name: &str| Call::new(Method::POST, format!("{MAPS}{query}")).body(JSON, map(name));
    admin.must(&post("", "a")).await.expect("created");
    admin.must(&post("?dryRun=All", "b")).await.expect("checked");
    let again = admin.call(&post("", "a")).await.expect("an answer");
    assert_eq!(again.status, StatusCode::CONFLICT);
    let apply = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}"#;
    let apply = Call::new(Method::PATCH, format!("{MAPS}/a?fieldManager=t&force=true"))
        .body("application/apply-patch+yaml", apply);
    admin.must(&apply).await.expect("applied");
    admin.must(&Call::get(format!("{MAPS}?limit=5"))).await.expect("listed");
    admin.must(&Call::get("/api/v1/configmaps")).await.expect("listed");
    admin.must(&Call::get(format!("{MAPS}/a"))).await.expect("read");
    admin
        .must(&Call::get(format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion=0")))
        .await
        .expect("watch");
    let missing = admin.call(&Call::get(format!("{MAPS}/none"))).await.expect("an answer");
    assert_eq!(missing.status, StatusCode::NOT_FOUND);

    let of = |more: &[&'static str]| {
        let common = ["group=\"\"", "version=\"v1\"", "resource=\"configmaps\"", "component=\"apiserver\""];
        [common.as_slice(), more].concat()
    };
    // labels, requests
    let rows: [(&[&str], f64); 9] = [
        (&["verb=\"POST\"", "scope=\"resource\"", "dry_run=\"\"", "code=\"201\""], 1.0),
        (&["verb=\"POST\"", "scope=\"resource\"", "dry_run=\"All\"", "code=\"201\""], 1.0),
        (&["verb=\"POST\"", "scope=\"resource\"", "dry_run=\"\"", "code=\"409\""], 1.0),
        (&["verb=\"APPLY\"", "scope=\"resource\"", "code=\"200\""], 1.0),
        (&["verb=\"LIST\"", "scope=\"namespace\"", "code=\"200\""], 1.0),
        (&["verb=\"LIST\"", "scope=\"cluster\"", "code=\"200\""], 1.0),
        (&["verb=\"GET\"", "scope=\"resource\"", "code=\"200\""], 1.0),
        (&["verb=\"GET\"", "scope=\"resource\"", "code=\"404\""], 1.0),
        (&["verb=\"WATCH\"", "scope=\"namespace\"", "code=\"200\""], 1.0),
    ];
    // A watch counts when it has ended, which the server learns after its client.
    eventually("the watch is counted", || async {
        let mut admin = server.connect(Protocol::Http1).await;
        let scrape = Scrape::of(&mut admin, "/metrics").await;
        scrape.value(TOTAL, &of(rows[8].0)) == 1.0
    })
    .await;
    let scrape = Scrape::of(&mut admin, "/metrics").await;
    for (labels, requests) in rows {
        assert_eq!(scrape.value(TOTAL, &of(labels)), requests, "{labels:?}");
    }
    let durations = "apiserver_request_duration_seconds_count";
    assert_eq!(scrape.value(durations, &of(&["verb=\"POST\"", "dry_run=\"All\""])), 1.0);
    assert_eq!(scrape.value(durations, &of(&["verb=\"GET\""])), 2.0);
    let sli = "apiserver_request_sli_duration_seconds_count";
    assert_eq!(scrape.value(sli, &of(&["verb=\"POST\""])), 2.0, "dry runs are left out");
    assert_eq!(scrape.value("apiserver_response_sizes_count", &of(&["verb=\"LIST\""])), 2.0);
    assert_eq!(scrape.value("apiserver_response_sizes_count", &of(&["verb=\"POST\""])), 0.0, "reads alone");
    let bodies = ["resource=\"configmaps\"", "verb=\"create\""];
    assert_eq!(scrape.value("apiserver_request_body_size_bytes_count", &bodies), 3.0);
    assert!(scrape.value("apiserver_watch_events_total", &["resource=\"configmaps\""]) >= 1.0);
}

#[tokio::test]
async fn open_watches_and_stored_objects_are_gauges() {
    let server = TestServer::start(&[]).await;
    let mut admin = server.connect(Protocol::Http2).await;
    let long_running = |scrape: &Scrape| {
        scrape.value("apiserver_longrunning_requests", &["verb=\"WATCH\"", "resource=\"configmaps\""])
    };
    assert_eq!(long_running(&Scrape::of(&mut admin, "/metrics").await), 0.0);
    let mut watcher = server.connect(Protocol::Http2).await;
    let open = watcher.open(&Call::get(format!("{MAPS}?watch=1"))).await.expect("a watch");
    assert_eq!(long_running(&Scrape::of(&mut admin, "/metrics").await), 1.0);
    drop((open, watcher));
    eventually("the watch has ended", || async {
        let mut admin = server.connect(Protocol::Http1).await;
        long_running(&Scrape::of(&mut admin, "/metrics").await) == 0.0
    })
    .await;
    let scrape = Scrape::of(&mut admin, "/metrics").await;
    let namespaces = scrape.value("apiserver_storage_objects", &["resource=\"namespaces\""]);
    assert_eq!(namespaces, scrape.value("apiserver_resource_objects", &["resource=\"namespaces\""]));
    assert_eq!(namespaces, 4.0, "default and the system's");
    let roles = "resource=\"clusterroles.rbac.authorization.k8s.io\"";
    assert!(scrape.value("apiserver_storage_objects", &[roles]) > 10.0);
    assert!(scrape.value("process_resident_memory_bytes", &[]) > 1e6);
    assert!(scrape.value("process_start_time_seconds", &[]) > 1e9);
}

#[tokio::test]
async fn custom_resources_have_series_and_made_up_names_have_none() {
    let server = TestServer::start(&[]).await;
    let group = unique("metrics.example.com").replace('_', "-");
    establish(&server.client().await, &definition(&group, "Gauge", "Namespaced", json!({"type": "object"})))
        .await;
    let mut admin = server.connect(Protocol::Http2).await;
    let path = format!("/apis/{group}/v1/namespaces/default/gauges");
    admin.must(&Call::get(path)).await.expect("listed");
    for path in ["/apis/made.up/v1/things", "/api/v1/namespaces/default/configmaps/a/made-up", "/made-up"] {
        let answer = admin.call(&Call::get(path)).await.expect("an answer");
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
    }
    let scrape = Scrape::of(&mut admin, "/metrics").await;
    let group = format!("group=\"{group}\"");
    assert_eq!(scrape.value(TOTAL, &[&group, "resource=\"gauges\"", "verb=\"LIST\"", "code=\"200\""]), 1.0);
    let made_up = scrape.0.values().flat_map(|family| family.series.keys());
    assert_eq!(made_up.filter(|series| series.contains("made")).count(), 0);
}

#[tokio::test]
async fn paths_are_counted_as_upstream_counts_them() {
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    const STATUSZ: &str = "application/json;g=config.k8s.io;v=v1beta1;as=Statusz";
    let server = TestServer::start(&[]).await;
    let mut admin = server.connect(Protocol::Http2).await;
    let calls = [
        (Method::GET, "/livez", "*/*"),
        (Method::HEAD, "/livez", "*/*"),
        (Method::POST, "/healthz", "*/*"),
        (Method::GET, "/livez/ping", "*/*"),
        (Method::GET, "/api", AGGREGATED),
        (Method::GET, "/api", JSON),
        (Method::GET, "/apis", AGGREGATED),
        (Method::GET, "/openapi/v3", "*/*"),
        (Method::GET, "/openapi/v3/api/v1", "*/*"),
        (Method::GET, "/openapi/v2", "*/*"),
        (Method::GET, "/statusz", "*/*"),
        (Method::GET, "/statusz", STATUSZ),
        (Method::GET, "/flagz", "image/png"),
        (Method::GET, "/version", "*/*"),
        // Methods that the resource does not have.
        (Method::OPTIONS, "/api/v1/namespaces/default/configmaps", "*/*"),
        (Method::POST, "/api/v1/namespaces/default/configmaps/a", "*/*"),
    ];
    for (method, path, accept) in calls {
        admin.call(&Call::new(method, path).accept(accept)).await.expect(path);
    }
    let scrape = Scrape::of(&mut admin, "/metrics").await;
    // labels, requests
    let rows: [(&[&str], f64); 10] = [
        (&["component=\"\"", "subresource=\"/livez\"", "verb=\"GET\""], 2.0),
        (&["component=\"\"", "subresource=\"/healthz\"", "verb=\"POST\""], 1.0),
        (&["component=\"apiserver\"", "group=\"\"", "resource=\"\"", "subresource=\"api\""], 1.0),
        (&["component=\"apiserver\"", "group=\"\"", "resource=\"\"", "subresource=\"apis\""], 1.0),
        (&["component=\"\"", "subresource=\"openapi/v3\""], 1.0),
        (&["component=\"\"", "subresource=\"openapi/v3/\""], 1.0),
        (&["component=\"apiserver\"", "group=\"\"", "resource=\"statusz\"", "code=\"200\""], 1.0),
        (&["group=\"config.k8s.io\"", "resource=\"statusz\"", "version=\"v1beta1\""], 1.0),
        (&["group=\"\"", "resource=\"flagz\"", "code=\"406\""], 1.0),
        (&["code=\"405\""], 0.0),
    ];
    for (labels, requests) in rows {
        assert_eq!(scrape.value(TOTAL, labels), requests, "{labels:?}");
    }
}

#[tokio::test]
async fn steps_before_handlers_and_feature_gates_are_measured() {
    let server = TestServer::start(&["--feature-gates=APIServingWithRoutine=true"]).await;
    let mut admin = server.connect(Protocol::Http2).await;
    let scrape = Scrape::of(&mut admin, "/metrics").await;
    let passed = |scrape: &Scrape, filter: &str| {
        let label = format!("filter=\"{filter}\"");
        scrape.value("apiserver_request_filter_duration_seconds_count", &[&label])
    };
    let mut anonymous = server.connect_anonymously(Protocol::Http1).await;
    let refused = anonymous.call(&Call::get(MAPS)).await.expect("an answer");
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let after = Scrape::of(&mut admin, "/metrics").await;
    // The refused request and that for the metrics.
    for filter in ["authentication", "audit", "constrainedimpersonation", "priorityandfairness"] {
        assert!(passed(&after, filter) >= passed(&scrape, filter) + 2.0, "{filter}");
    }
    assert!(passed(&after, "authorization") < passed(&after, "authentication"), "one was refused");
    assert_eq!(passed(&after, "maxinflight"), 0.0);
    for (name, stage, is_on) in [
        ("WatchList", "BETA", 1.0),
        ("APIServerTracing", "", 1.0),
        ("APIServingWithRoutine", "ALPHA", 1.0),
        ("AllowInsecureKubeletCertificateSigningRequests", "DEPRECATED", 0.0),
    ] {
        let labels = [format!("name=\"{name}\""), format!("stage=\"{stage}\"")];
        let state = after.value("kubernetes_feature_enabled", &[&labels[0], &labels[1]]);
        assert_eq!(state, is_on, "{name}");
    }
}

#[tokio::test]
async fn what_is_refused_before_its_handler_counts_among_the_attempts() {
    let server = TestServer::start(&[]).await;
    let mut admin = server.connect(Protocol::Http2).await;
    let mut anonymous = server.connect_anonymously(Protocol::Http1).await;
    let refused = anonymous.call(&Call::get(MAPS)).await.expect("an answer");
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    anonymous.must(&Call::get("/version")).await.expect("allowed by RBAC");
    let scrape = Scrape::of(&mut admin, "/metrics").await;
    assert_eq!(scrape.value(TOTAL, &["resource=\"configmaps\""]), 0.0);
    assert_eq!(scrape.value("authorization_attempts_total", &["result=\"no-opinion\""]), 1.0);
    let decided = ["type=\"RBAC\"", "name=\"rbac\"", "decision=\"allowed\""];
    assert!(scrape.value("apiserver_authorization_decisions_total", &decided) >= 1.0);
    assert!(scrape.value("authentication_attempts", &["result=\"success\""]) >= 3.0);
    assert!(scrape.value("authenticated_user_requests", &["username=\"other\""]) >= 3.0);
    assert!(scrape.value("apiserver_client_certificate_expiration_seconds_count", &[]) >= 1.0);
}

#[tokio::test]
async fn requests_that_take_too_long_are_terminations() {
    let server = TestServer::start(&["--request-timeout=1s"]).await;
    let mut admin = server.connect(Protocol::Http1).await;
    // The wait for a revision of the future is longer than a second.
    let late = admin.call(&Call::get(format!("{MAPS}?resourceVersion=999999999"))).await.expect("an answer");
    assert_eq!(late.status, StatusCode::GATEWAY_TIMEOUT);
    let scrape = Scrape::of(&mut admin, "/metrics").await;
    let labels = ["verb=\"LIST\"", "resource=\"configmaps\"", "scope=\"namespace\"", "code=\"504\""];
    assert_eq!(scrape.value("apiserver_request_terminations_total", &labels), 1.0);
    assert_eq!(scrape.value(TOTAL, &labels), 1.0);
}
